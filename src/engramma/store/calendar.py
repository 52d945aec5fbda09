"""On which days the notes of a space lie: when each was said, and the days that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from engramma.note import Note, SaidDate
from engramma.store.arrays import Grown

_LONG = 31  # days: what a note says of a longer time ("in 2022") is no answer to a question about one day


class Calendar:
    """Days as ordinals (1 is 1 January of the year 1), in the time zone each note was said in."""

    def __init__(self) -> None:
        self._day = Grown("i4")
        self._said: dict[int, list[tuple[int, int]]] = {}
        self._spans: np.ndarray | None = None

    def new_row(self) -> None:
        """Add a note that lies on no day."""
        self._day.append(0)

    def put(self, row: int, note: Note) -> None:
        """Set a note's days."""
        self._day.view[row] = note.at.date().toordinal()
        said = [(day.start.toordinal(), day.end.toordinal()) for day in note.dates]
        if said or row in self._said:
            self._said[row], self._spans = said, None

    def within(self, wanted: Sequence[SaidDate], today: date) -> np.ndarray:
        """Which notes were said in one of the times or speak of it: bool (n,).

        Of a time that is not over yet only those that speak of it: what was said today is not for
        that what "What is on today?" asks for.
        """
        found = np.zeros(self._day.size, bool)
        rows, starts, ends = self._gathered()
        for time in wanted:
            start, end = time.start.toordinal(), time.end.toordinal()
            if end < today.toordinal():
                found |= (self._day.view >= start) & (self._day.view <= end)
            meets = (starts <= end) & (ends >= start) & (ends - starts <= max(_LONG, 2 * (end - start)))
            found[rows[meets]] = True
        return found

    def _gathered(self) -> np.ndarray:
        if self._spans is None:
            spans = [(row, start, end) for row, said in self._said.items() for start, end in said]
            self._spans = np.array(spans, "i4").reshape(-1, 3).T
        return self._spans
