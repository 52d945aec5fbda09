"""Which notes of a whole space are near each other: every pair is looked at, in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engramma.background import Background
from engramma.note import Note, NoteId
from engramma.words import is_chinese

BLOCK = 512
MOST = 12
"""Neighbours of one note that are looked at, the nearest."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two notes and how alike they are: the cosine rescaled so that 0 is unrelated and 1 the same text."""

    first: Note
    second: Note
    likeness: float

    @property
    def notes(self) -> tuple[Note, Note]:
        """Both notes, the one added first in front."""
        return self.first, self.second

    @property
    def ids(self) -> frozenset[NoteId]:
        """Which notes they are."""
        return frozenset((self.first.id, self.second.id))


def near_pairs(notes: Sequence[Note], vectors: np.ndarray, background: Background, least: float, most: int = MOST) -> list[Pair]:
    """The pairs at least so alike, nearest first; of each note at most ``most``.

    ``vectors`` is float32 (n, d), unit length, a row a note, zero where a note has none.
    """
    found: dict[tuple[int, int], float] = {}
    for row, column, alike in _near(notes, vectors, background, least, most):
        found[min(row, column), max(row, column)] = alike
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [Pair(notes[first], notes[second], round(alike, 3)) for (first, second), alike in ranked]


def _near(
    notes: Sequence[Note], vectors: np.ndarray, background: Background, least: float, most: int
) -> Iterator[tuple[int, int, float]]:
    if len(notes) < 2:
        return
    zeros = background.zeros(vectors)
    languages = np.array([int(is_chinese(note.content)) for note in notes])
    for start in range(0, len(notes), BLOCK):
        rows = slice(start, min(start + BLOCK, len(notes)))
        zero = zeros[rows][:, languages]
        alike = (vectors[rows] @ vectors.T - zero) / np.maximum(1 - zero, 1e-6)
        alike[np.arange(rows.stop - start), np.arange(start, rows.stop)] = -1.0
        if len(notes) > most:
            nearest = np.argpartition(-alike, most - 1, axis=1)[:, :most]
        else:
            nearest = np.broadcast_to(np.arange(len(notes)), alike.shape)
        values = np.take_along_axis(alike, nearest, axis=1)
        for row, place in zip(*np.nonzero(values >= least), strict=True):
            yield start + int(row), int(nearest[row, place]), float(min(values[row, place], 1.0))
