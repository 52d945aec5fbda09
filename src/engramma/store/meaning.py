"""The vectors of a space, and how far each note stands out from the rest for a question.

Sentence embedders crowd their vectors into a narrow cone: all chat about one family looks alike, and
a note like "Thanks, that means a lot!" is near every question. So a question is compared with what
sets a note apart from the others: the space's own mean is taken off, and directions in which its
notes differ anyway count less (a ridge-regularised whitening; Mu and Viswanath 2018, "All-but-the-
top", and Su et al. 2021, "Whitening sentence representations", do the like with fixed corpora). It
costs one small matrix, made anew whenever the space has grown by a fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock

import numpy as np
from threadpoolctl import ThreadpoolController

from engramma.background import Background
from engramma.store.arrays import Grown

RIDGE = 10.0  # times the mean variance of a direction, added to each
_FIRST, _GROWTH = 2, 1.2
_UNRELATED = 2  # notes that an unrelated text counts as: with more, small spaces decline less that is foreign
_SIGMA = 1.4826  # times the median of absolute deviations: the standard deviation of what is normal
_MAKING = Lock()  # the limit on threads is the process's: two that overlap would leave it as it is
_FEW = 500  # notes among which one alone is part of the common ground
_MOST = 20_000  # notes that a matrix is made from, evenly chosen


@dataclass(frozen=True, slots=True)
class Whitening:
    """What takes a space's common ground away: the mean (d,), the inverse of its covariance with the
    ridge added (d, d), the standard deviation of a score by chance, and how many vectors it is made from."""

    mean: np.ndarray
    inverse: np.ndarray
    scale: float
    count: int

    def direction(self, vector: np.ndarray) -> np.ndarray:
        """Where to look for a unit vector: (d,). A note's score is its product with this, less the mean's."""
        apart = vector - self.mean
        towards = self.inverse @ apart
        length = np.sqrt(max(float(apart @ towards), 1e-12))
        return np.asarray(towards / (length * self.scale), np.float32)

    def without(self, vector: np.ndarray) -> Whitening:
        """As if a vector (d,) that it is made from had not been there (the Sherman-Morrison formula; the ridge stays)."""
        apart = vector - self.mean
        towards = self.inverse @ apart
        rest = max(self.count - 1 - float(apart @ towards), 1e-6)
        inverse = self.inverse + np.outer(towards, towards) / np.float32(rest)
        return Whitening(self.mean - apart / np.float32(self.count - 1), inverse, self.scale, self.count - 1)


def whitening(vectors: np.ndarray, unrelated: np.ndarray) -> Whitening:
    """The whitening of unit vectors (n, d). ``unrelated`` (m, d), vectors of texts about nothing in
    particular, stand for all that a small space has not met yet: each counts as a few notes.

    What is said ten times counts once: else it would become the common ground, and stand out no more.
    """
    step = -(-len(vectors) // _MOST) or 1
    told = vectors[::step]
    told = told[list({row.tobytes(): place for place, row in enumerate(told)}.values())]
    found = np.concatenate([told[told.any(axis=1)], np.repeat(unrelated, _UNRELATED, axis=0)]).astype(np.float64)
    mean = found.mean(axis=0)
    apart = found - mean
    dimensions = len(mean)
    ridge = max(RIDGE * float((apart**2).sum()) / found.size, 1e-9)
    # In one thread: with matrices this small several only wait for one another, up to ten times as long.
    with _MAKING, _threads().limit(limits=1, user_api="blas"):
        inverse = _inverse(apart, ridge)
    kept = 1 - ridge * float(np.trace(inverse)) / dimensions
    scale = max(float(np.sqrt(max(kept, 0.0))), 1e-3)
    return Whitening(mean.astype(np.float32), inverse.astype(np.float32), scale, len(found))


@cache
def _threads() -> ThreadpoolController:
    """The numerical libraries of this process, found once."""
    return ThreadpoolController()


def _inverse(apart: np.ndarray, ridge: float) -> np.ndarray:
    """The inverse of the covariance of centred vectors (n, d) with the ridge added: (d, d).

    Of fewer vectors than dimensions by way of a matrix (n, n), Woodbury's identity, which is much less work.
    """
    count, dimensions = apart.shape
    if count < dimensions:
        small = np.linalg.inv(apart @ apart.T + count * ridge * np.eye(count))
        return np.asarray((np.eye(dimensions) - apart.T @ small @ apart) / ridge)
    narrow = apart.astype(np.float32)
    covariance = (narrow.T @ narrow / count).astype(np.float64)
    return np.asarray(np.linalg.inv(covariance + ridge * np.eye(dimensions)))


class Meaning:
    """Unit vectors, one row a note, and the further pieces of long notes."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.vectors = Grown("f4", dimensions)
        self._told = Grown("i1")
        self._folded = Grown("i1")
        self._more: dict[int, np.ndarray] = {}
        self._more_rows = np.zeros(0, "i4")
        self._more_vectors = np.zeros((0, dimensions), "f4")
        self._whitening: Whitening | None = None
        self._aimless: np.ndarray | None = None
        self._any = np.zeros(0, "f4")
        self._usual = np.float32(0)
        self._made_from = 0

    def new_row(self) -> None:
        """Add a note without a vector."""
        self.vectors.append(np.zeros(self.dimensions, "f4"))
        self._told.append(0)
        self._folded.append(0)

    def put(self, row: int, pieces: np.ndarray, folded: bool = False) -> bool:
        """Set a note's vectors, float32 (p, d), and whether it is folded into another note, so that it is no part of what
        sets notes apart; whether ``gather`` must be called after."""
        had = row in self._more
        if self._folded.view[row] != folded:
            self._whitening = None if row < self._made_from else self._whitening
            self._folded.view[row] = folded
        if row < len(self._any) and self._differs(row, pieces):
            self._any = self._any[:0]
        self._more.pop(row, None)
        if len(pieces) and pieces.shape[1] == self.dimensions:
            if not np.array_equal(self.vectors.view[row], pieces[0]):
                self._whitening = None if row < self._made_from else self._whitening
            self.vectors.view[row], self._told.view[row] = pieces[0], pieces.any()
            if len(pieces) > 1:
                self._more[row] = pieces[1:]
        return had or row in self._more

    def _differs(self, row: int, pieces: np.ndarray) -> bool:
        """Whether vectors are others than those that a note has."""
        more = self._more.get(row, pieces[:0])
        return not (len(pieces) and np.array_equal(self.vectors.view[row], pieces[0]) and np.array_equal(more, pieces[1:]))

    def gather(self) -> None:
        """Take the pieces of long notes together, after some were put."""
        owners = [np.full(len(pieces), row, "i4") for row, pieces in self._more.items()]
        self._more_rows = np.concatenate(owners) if owners else np.zeros(0, "i4")
        self._more_vectors = np.concatenate(list(self._more.values())) if owners else np.zeros((0, self.dimensions), "f4")

    def _products(self, vector: np.ndarray, start: int) -> np.ndarray:
        # einsum: one thread. A threaded product waits for its threads, up to 8 ms where both cores are busy.
        scores = np.einsum("ij,j->i", self.vectors.view[start:], vector)
        late = self._more_rows >= start
        if late.any():
            np.maximum.at(scores, self._more_rows[late] - start, self._more_vectors[late] @ vector)
        return np.asarray(scores, np.float32)

    def cosines(self, vector: np.ndarray, rows: Sequence[int]) -> np.ndarray:
        """The cosine of a unit vector with some notes: float32 (len(rows),), a long note's best piece."""
        scores = self.vectors.view[list(rows)] @ vector
        for place, row in enumerate(rows):
            if row in self._more:
                scores[place] = max(scores[place], float((self._more[row] @ vector).max()))
        return np.asarray(scores, np.float32)

    def standing_out(self, vector: np.ndarray, unrelated: np.ndarray, again: Sequence[int] = ()) -> np.ndarray:
        """How far each note stands out towards a unit vector: float32 (n,), in standard deviations.

        A text without a vector (all zeros: its embedder found no word in it) stands out nowhere. ``again`` are
        rows that ask just this: no common ground of what is known, or a question asked twice finds less.
        """
        if not vector.any():
            return np.zeros(self.vectors.size, np.float32)
        whitening = self._whitened(unrelated)
        rows = [row for row in again if row < self._made_from <= _FEW and not self._folded.view[row]]
        for asked in {self.vectors.view[row].tobytes(): self.vectors.view[row] for row in rows}.values():  # each counted once
            if asked.any():
                whitening = whitening.without(asked)
        return self._towards(whitening, whitening.direction(vector))

    def evidence(self, vector: np.ndarray, background: Background, again: Sequence[int] = ()) -> np.ndarray:
        """The same, less what questions about nothing find in a note beyond what they find in most.

        The one long note among short ones stands out towards any question: that is no evidence.
        """
        found = self.standing_out(vector, background.vectors, again)
        return np.asarray(found - np.where(found > 0, self._found_by_any(background), np.float32(0)), np.float32)

    def _towards(self, whitening: Whitening, direction: np.ndarray, start: int = 0) -> np.ndarray:
        """How far the notes from row ``start`` on stand out towards a direction."""
        products = self._products(direction, start)
        return np.asarray((products - np.float32(whitening.mean @ direction)) * self._told.view[start:], np.float32)

    def _found_by_any(self, background: Background) -> np.ndarray:
        whitening = self._whitened(background.vectors)
        if self._aimless is None:
            self._aimless = np.stack([whitening.direction(question) for question in background.questions]).mean(axis=0)
        if (known := len(self._any)) != self.vectors.size:  # only what came since has to be looked at
            found = self._towards(whitening, self._aimless, known)
            self._usual = self._usual if known else _usual(found[: self._made_from or None])
            self._any = np.concatenate([self._any, np.maximum(found - self._usual, 0)])
        return self._any

    def _whitened(self, unrelated: np.ndarray) -> Whitening:
        size = stage(self.vectors.size)
        if self._whitening is None or size != self._made_from:
            apart = self.vectors.view[:size][self._folded.view[:size] == 0]
            self._whitening, self._made_from = whitening(apart, unrelated), size
            self._aimless, self._any = None, np.zeros(0, "f4")
        return self._whitening


def _usual(found: np.ndarray) -> np.float32:
    """How far notes stand out towards any question, but for the few that do so more than others."""
    middle = float(np.median(found))
    return np.float32(max(middle, 0.0) + _SIGMA * float(np.median(np.abs(found - middle))))


@cache
def stage(size: int) -> int:
    """The size at which a space of ``size`` notes was last whitened: every one up to ten, then a fifth more each time.

    A memory that is opened again comes to the same matrix, from the same notes, and so to the same scores.
    """
    last = 0
    following = _FIRST
    while following <= size:
        last, following = following, max(following + 1, int(following * _GROWTH))
    return last
