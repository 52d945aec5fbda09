"""Embedders for measuring: one that keeps its vectors on disk, and one that reads other texts."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from platformdirs import user_cache_dir

from engramma.models import Embedder, EmbeddingKind, embedded
from evals.progress import bar

_BATCH = 64
_SAVE_EVERY = 512  # new vectors: a file is written whole each time
_PROBE = "A grey heron stands in the shallow water behind the mill."
_SAME = 1e-3  # a batch may round otherwise than a single text
_DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)


def default_folder() -> Path:
    """Where vectors are kept when nobody says."""
    return Path(user_cache_dir("engramma-evals"))


class Cached:
    """An embedder whose vectors are kept in a file, so that a text is embedded once in many runs.

    The vector of a probe text tells whether the embedder still is the one that made the file; if not,
    or when the file is damaged, the vectors are made anew. ``spent`` adds up the seconds in ``embed``.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self.name, self.file = embedder.name, folder / _file_name(embedder.name)
        self.spent, self.misses = 0.0, 0
        self._inner, self._unsaved = embedder, 0
        self._known: dict[str, np.ndarray] | None = None

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        return self._inner.dimensions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.save()

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """float32 (n, dimensions), unit length; a text not known yet is embedded now."""
        began = time.perf_counter()
        known = self._learnt(texts, kind)
        vectors = [known[_key(text, kind)] for text in texts]
        self.spent += time.perf_counter() - began
        return np.stack(vectors) if vectors else np.zeros((0, self.dimensions), np.float32)

    def warm(self, texts: Sequence[str], kind: EmbeddingKind, title: str = "embedding") -> None:
        """Embed ahead of a measurement what is not known yet."""
        known = self._vectors()
        fresh = [text for text in dict.fromkeys(texts) if _key(text, kind) not in known]
        with bar(title) as report:
            for start in range(0, len(fresh), _BATCH):
                self.embed(fresh[start : start + _BATCH], kind=kind)
                report(min(start + _BATCH, len(fresh)), len(fresh))
        self.save()

    def save(self) -> None:
        """Write what is new, in one step, beside what other processes have written meanwhile."""
        if self._unsaved and self._known is not None:
            self._known = _read(self.file, self.dimensions) | self._known
            _write(self.file, self._known)
            self._unsaved = 0

    def _learnt(self, texts: Sequence[str], kind: EmbeddingKind) -> dict[str, np.ndarray]:
        known = self._vectors()
        fresh = [text for text in dict.fromkeys(texts) if _key(text, kind) not in known]
        if fresh:
            made = embedded(self._inner, fresh, kind)
            known |= {_key(text, kind): vector for text, vector in zip(fresh, made, strict=True)}
            self.misses, self._unsaved = self.misses + len(fresh), self._unsaved + len(fresh)
            if self._unsaved >= _SAVE_EVERY:
                self.save()
        return known

    def _vectors(self) -> dict[str, np.ndarray]:
        """All vectors by key: the file's at first, unless the embedder has changed since."""
        if self._known is None:
            probe = embedded(self._inner, [_PROBE], "passage")[0]
            kept, key = _read(self.file, self.dimensions), _key(_PROBE, "passage")
            same = key in kept and bool(np.abs(kept[key] - probe).max() < _SAME)
            if not same:
                self.file.unlink(missing_ok=True)
            self._known = {**(kept if same else {}), key: probe}
        return self._known


def _file_name(name: str) -> str:
    readable = re.sub(r"[^\w.-]+", "-", name)[-60:]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.npz"


def _key(text: str, kind: EmbeddingKind) -> str:
    return f"{kind}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _read(file: Path, dimensions: int) -> dict[str, np.ndarray]:
    """The vectors of a file by key; none where it is missing, damaged or of other dimensions."""
    try:
        with file.open("rb") as source, np.load(source) as kept:
            keys, vectors = kept["keys"], kept["vectors"]
    except _DAMAGE:
        return {}
    fits = vectors.shape == (len(keys), dimensions) and vectors.dtype == np.float32 and np.isfinite(vectors).all()
    return dict(zip(map(str, keys), vectors, strict=True)) if fits else {}


def _write(file: Path, vectors: Mapping[str, np.ndarray]) -> None:
    """Replace a file in one step: whoever reads it sees the old one or the new one, whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}-", suffix=".part")
    try:
        with os.fdopen(number, "wb") as out:
            np.savez(out, keys=np.array(list(vectors)), vectors=np.stack(list(vectors.values())))
        os.replace(name, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


class Rewritten:
    """An embedder that is given other texts for some passages; queries stay as they are."""

    def __init__(self, inner: Embedder, texts: Mapping[str, str], name: str) -> None:
        self.name, self._inner, self._texts = f"{inner.name}, {name}", inner, texts

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        return self._inner.dimensions

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """float32 (n, dimensions)."""
        wanted = [self._texts.get(text, text) for text in texts] if kind == "passage" else texts
        return self._inner.embed(wanted, kind=kind)
