"""Arrays that grow by one row at a time."""

from __future__ import annotations

import numpy as np


class Grown:
    """A numpy array that grows by doubling; ``view`` is the used part."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        shape = (64,) if width is None else (64, width)
        self._data, self.size = np.zeros(shape, dtype), 0

    @property
    def view(self) -> np.ndarray:
        """The rows there are, writable."""
        return self._data[: self.size]

    def append(self, value: object) -> None:
        """Add a row."""
        if self.size == len(self._data):
            self._data = np.concatenate([self._data, np.zeros_like(self._data)])
        self._data[self.size] = value
        self.size += 1
