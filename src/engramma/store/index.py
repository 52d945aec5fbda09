"""One space in memory: vectors, words and session order, ready to score every note at once.

The store is the truth and this is a cache: it knows the last commit it has seen and reads the
notes of later ones before each search, so that a note is found as soon as ``add`` has returned,
whichever process added it. Nothing of it is kept on disk; there is nothing to go stale.

Arrays are aligned by *row*, one row a note for as long as the index lives. A revised note keeps
its row; its old words stay in the postings as a dead *slot* until the next rebuild.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from engramma.note import Note, NoteId, Space
from engramma.store.base import IndexRow, Store
from engramma.words import denies, is_chinese, terms

# BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework"), with a weight a field.
K1, B = 1.2, 0.5
FIELD_WEIGHTS = {"content": 1.0, "keywords": 0.3, "tags": 0.3, "context": 0.3}

LONGEST = 4.0  # times the mean length, beyond which a note is not held to be longer: a word at its end counts
UNSEEN = 20  # notes that we imagine beside those there are
_COMPARED = 200  # content terms kept for telling near copies

VISIBLE, SUPERSEDED, ARCHIVED, MERGED = 0, 1, 2, 3
_STATES = {"archived": ARCHIVED, "merged": MERGED}


def note_terms(note: Note) -> tuple[dict[str, float], set[str]]:
    """Weighted term counts over all the fields that words can find, and the terms of the content."""
    content = terms(note.content)
    counts: dict[str, float] = {}
    for term in content:
        counts[term] = counts.get(term, 0.0) + FIELD_WEIGHTS["content"]
    fields = {"keywords": " ".join(note.keywords), "tags": " ".join(note.tags), "context": note.context}
    for name, text in fields.items():
        for term in terms(text):
            counts[term] = counts.get(term, 0.0) + FIELD_WEIGHTS[name]
    return counts, set(content)


class _Grown:
    """A numpy array that grows by doubling; ``view`` is the used part."""

    def __init__(self, dtype: str, width: int | None = None) -> None:
        shape = (64,) if width is None else (64, width)
        self._data, self.size = np.zeros(shape, dtype), 0

    @property
    def view(self) -> np.ndarray:
        return self._data[: self.size]

    def append(self, value: object) -> None:
        if self.size == len(self._data):
            self._data = np.concatenate([self._data, np.zeros_like(self._data)])
        self._data[self.size] = value
        self.size += 1


@dataclass(slots=True)
class Postings:
    """Slots and weights of one term, and the term's number."""

    number: int
    slots: array[int] = field(default_factory=lambda: array("i"))
    weights: array[float] = field(default_factory=lambda: array("f"))


class SpaceIndex:
    """The notes of one space (or of it as it once was) as arrays."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.seq = 0
        self.ids: list[NoteId] = []
        self.row_of: dict[NoteId, int] = {}
        self.vectors = _Grown("f4", dimensions)
        self.status = _Grown("i1")
        self.at = _Grown("f8")
        self.expires = _Grown("f8")
        self.before = _Grown("i4")
        self.after = _Grown("i4")
        self.speaker = _Grown("i4")
        self.slot = _Grown("i4")
        self.language = _Grown("i1")
        self.asks = _Grown("i1")
        self.denies = _Grown("i1")
        self.revision = _Grown("i4")
        self.lengths = _Grown("f4")
        self.speakers: dict[str, int] = {}
        self._words: list[array[int]] = []
        self._tails: dict[str, int] = {}
        self._postings: dict[str, Postings] = {}
        self._dead = 0
        self._more: dict[int, np.ndarray] = {}
        self._more_rows = np.zeros(0, "i4")
        self._more_vectors = np.zeros((0, dimensions), "f4")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def worn(self) -> bool:
        """Whether so many slots are dead that a rebuild pays."""
        return self._dead > 1000 and self._dead * 2 > self.lengths.size

    def put(self, rows: Iterable[IndexRow]) -> None:
        """Add notes, or take over their newest revision."""
        stale = False
        for entry in rows:
            row = self.row_of.get(entry.note.id)
            stale |= self._set_vectors(self._new_row(entry.note) if row is None else row, entry)
        if stale:
            self._gather_more()

    def _new_row(self, note: Note) -> int:
        row = self.row_of[note.id] = len(self.ids)
        self.ids.append(note.id)
        previous = self._tails.get(note.session, -1) if note.session is not None else -1
        for grown, value in ((self.before, previous), (self.after, -1), (self.status, 0), (self.at, 0.0)):
            grown.append(value)
        for grown, value in ((self.expires, np.inf), (self.speaker, -1), (self.slot, -1)):
            grown.append(value)
        for grown in (self.language, self.asks, self.denies, self.revision):
            grown.append(0)
        self._words.append(array("i"))
        self.vectors.append(np.zeros(self.dimensions, "f4"))
        if note.session is not None:
            if previous >= 0:
                self.after.view[previous] = row
            self._tails[note.session] = row
        return row

    def _set_vectors(self, row: int, entry: IndexRow) -> bool:
        note, pieces = entry.note, entry.vectors
        if self.revision.view[row] != note.revision:
            self._set_words(row, note)
            self.revision.view[row] = note.revision
        self.status.view[row] = _STATES.get(note.state, SUPERSEDED if entry.superseded else VISIBLE)
        self.at.view[row] = note.at.timestamp()
        self.language.view[row] = is_chinese(note.content)
        self.asks.view[row] = note.content.rstrip().endswith(("?", "？"))
        self.denies.view[row] = denies(note.content)
        self.expires.view[row] = note.expires_at.timestamp() if note.expires_at else np.inf
        name = (note.speaker or "").casefold()
        self.speaker.view[row] = self.speakers.setdefault(name, len(self.speakers)) if name else -1
        had = self._more.pop(row, None) is not None
        if len(pieces) and pieces.shape[1] == self.dimensions:
            self.vectors.view[row] = pieces[0]
            if len(pieces) > 1:
                self._more[row] = pieces[1:]
        return had or row in self._more

    def _set_words(self, row: int, note: Note) -> None:
        self._dead += self.slot.view[row] >= 0
        slot = self.slot.view[row] = self.lengths.size
        counts, content = note_terms(note)
        self.lengths.append(sum(counts.values()))
        for term, weight in counts.items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = Postings(len(self._postings))
            postings.slots.append(slot)
            postings.weights.append(weight)
        self._words[row] = array("i", (self._postings[term].number for term in islice(content, _COMPARED)))

    def _gather_more(self) -> None:
        owners = [np.full(len(pieces), row, "i4") for row, pieces in self._more.items()]
        self._more_rows = np.concatenate(owners) if owners else np.zeros(0, "i4")
        self._more_vectors = np.concatenate(list(self._more.values())) if owners else np.zeros((0, self.dimensions), "f4")

    def cosines(self, vector: np.ndarray) -> np.ndarray:
        """The cosine of a unit vector with each note: float32 (n,), a long note's best piece."""
        # einsum: one thread. A threaded product waits for its threads, up to 8 ms where both cores are busy.
        scores = np.einsum("ij,j->i", self.vectors.view, vector)
        if len(self._more_rows):
            np.maximum.at(scores, self._more_rows, self._more_vectors @ vector)
        return np.asarray(scores, np.float32)

    def term(self, term: str) -> Postings | None:
        """Where a term occurs."""
        return self._postings.get(term)

    def words_of(self, row: int) -> set[int]:
        """Numbers of the terms of a note's content, for comparing two notes; at most 200 of them."""
        return set(self._words[row])

    def idf(self, term: str) -> float:
        """Inverse document frequency: ln(1 + (N - n + 0.5) / (n + 0.5)), with ``UNSEEN`` in N.

        In a space of a few notes a word that stands in one of them is not common yet.
        """
        found = len(self._postings[term].slots) if term in self._postings else 0
        return float(np.log1p((self.lengths.size + UNSEEN - found + 0.5) / (found + 0.5)))

    def bm25(self, weights: dict[str, float]) -> np.ndarray:
        """BM25 of each note for weighted query terms: float32 (n,)."""
        scores = np.zeros(self.lengths.size, "f4")
        mean = max(float(self.lengths.view.mean()) if self.lengths.size else 1.0, 1e-6)
        norms = K1 * (1 - B + B * np.minimum(self.lengths.view / mean, LONGEST))
        for term, weight in weights.items():
            if (postings := self._postings.get(term)) is not None:
                slots = np.array(postings.slots, "i4")
                counts = np.array(postings.weights, "f4")
                scores[slots] += weight * self.idf(term) * counts * (K1 + 1) / (counts + norms[slots])
        return np.asarray(scores[self.slot.view])

    def shifted(self, scores: np.ndarray, links: np.ndarray) -> np.ndarray:
        """The scores of each note's predecessor (``before``) or successor (``after``), 0 where none."""
        return np.where(links >= 0, scores[links], np.float32(0))


class Indexes:
    """The indexes of a store's spaces, brought up to date on use. Safe for threads."""

    def __init__(self, store: Store, dimensions: int) -> None:
        self._store, self.dimensions = store, dimensions
        self._spaces: dict[Space, SpaceIndex] = {}
        self._past: dict[tuple[Space, int], SpaceIndex] = {}
        self.lock = threading.RLock()

    def of(self, space: Space, as_of: int | None = None) -> SpaceIndex:
        """The index of a space, having seen every commit up to now (or up to ``as_of``)."""
        if as_of is not None:
            return self._of_the_past(space, as_of)
        index = self._spaces.get(space)
        head = self._store.head()
        if index is None or index.worn:
            return self._built(space, head)
        if index.seq < head:
            changed = self._store.changed(space, index.seq)
            fresh = list(self._store.index_rows(space, changed)) if changed else []
            if len(fresh) < len(changed) and any(note in index.row_of for note in changed if note not in _ids(fresh)):
                return self._built(space, head)  # a note was removed for good
            index.put(fresh)
            index.seq = head
        return index

    def _built(self, space: Space, head: int) -> SpaceIndex:
        index = SpaceIndex(self.dimensions)
        index.put(self._store.index_rows(space))
        index.seq = head
        self._spaces[space], self._past = index, {}
        return index

    def _of_the_past(self, space: Space, as_of: int) -> SpaceIndex:
        if (space, as_of) not in self._past:
            index = SpaceIndex(self.dimensions)
            index.put(self._store.index_rows(space, as_of=as_of))
            index.seq = as_of
            self._past = {(space, as_of): index}  # the last one asked for is enough
        return self._past[space, as_of]

    def forget(self) -> None:
        """Drop everything; the next search builds anew."""
        with self.lock:
            self._spaces, self._past = {}, {}


def _ids(rows: Sequence[IndexRow]) -> set[NoteId]:
    return {row.note.id for row in rows}
