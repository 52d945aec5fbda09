"""The words of a space: who holds them, how rare they are, and what a question's words find.

A revised note gets a new *slot* for its words; the old one stays in the postings, dead, until the
index is built anew. A note that is folded into another is found, but does not make its words less rare:
what somebody says ten times is no more common for that.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engramma.note import Note
from engramma.store.arrays import Grown
from engramma.words import has_han, is_common, looks_like, terms

# BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework"), with a weight a field.
K1, B = 1.2, 0.5
FIELD_WEIGHTS = {"keywords": 0.3, "tags": 0.3, "context": 0.3}

LONGEST = 4.0  # times the mean length, beyond which a note is not held to be longer: a word at its end counts
UNSEEN = 60  # notes that we imagine beside those there are
COMMON = 0.25  # the share of imagined notes that hold a common word
_COMPARED = 200  # content terms kept for telling near copies


def note_terms(note: Note) -> tuple[dict[str, float], int]:
    """Weighted term counts over all the fields that words can find, those of the content first, and how many those are.

    A keyword's word that the content lacks counts as if the content held it: somebody added it so
    that the note is found by it.
    """
    content = terms(note.content)
    said = set(content)
    counts: dict[str, float] = {}
    for term in content:
        counts[term] = counts.get(term, 0.0) + 1.0
    fields = {"keywords": " ".join(note.keywords), "tags": " ".join(note.tags), "context": note.context}
    for name, text in fields.items():
        for term in terms(text):
            weight = 1.0 if name == "keywords" and term not in said else FIELD_WEIGHTS[name]
            counts[term] = counts.get(term, 0.0) + weight
    return counts, len(said)


def idf(term: str, found: int, notes: int) -> float:
    """Inverse document frequency: ln(1 + (N - n + 0.5) / (n + 0.5)), with imagined notes in N and n.

    In a space of a few notes a word that stands in one of them is not common yet, and "use" or
    "thing" is no rare word.
    """
    held = found + (COMMON * UNSEEN if is_common(term) else 0.0)
    return math.log1p((max(notes + UNSEEN - held, 0.0) + 0.5) / (held + 0.5))


@dataclass(slots=True)
class Postings:
    """Slots and weights of one term, the term's number, and how many notes hold it now, folded ones not counted."""

    number: int
    held: int = 0
    slots: array[int] = field(default_factory=lambda: array("i"))
    weights: array[float] = field(default_factory=lambda: array("f"))


class Lexicon:
    """Postings with BM25 over them. Rows are the index's rows, one a note."""

    def __init__(self) -> None:
        self.slot = Grown("i4")
        self.lengths = Grown("f4")
        self._row_of = Grown("i4")
        self._folded = Grown("i1")
        self._terms: list[array[int]] = []  # numbers of each note's terms, those of its content first
        self._said: list[int] = []  # how many those are
        self._postings: dict[str, Postings] = {}
        self._numbered: list[Postings] = []
        self._shapes: dict[tuple[str, int], list[str]] = {}
        self._names: dict[str, list[tuple[frozenset[str], int]]] = {}
        self._han_names: dict[str, list[tuple[str, frozenset[str], int]]] = {}
        self._known_norms: dict[bool, tuple[int, np.ndarray]] = {}
        self.dead = self._apart = 0

    def new_row(self) -> None:
        """Add a note without words."""
        self.slot.append(-1)
        self._folded.append(0)
        self._apart += 1
        self._terms.append(array("i"))
        self._said.append(0)

    def put(self, row: int, note: Note) -> None:
        """Set a note's words."""
        self._forget(row)
        self._apart += int(self._folded.view[row]) - (note.state == "merged")
        self._folded.view[row] = note.state == "merged"
        slot = self.slot.view[row] = self.lengths.size
        counts, said = note_terms(note)
        self.lengths.append(sum(counts.values()))
        self._row_of.append(row)
        for term, weight in counts.items():
            postings = self._postings.get(term) or self._new(term)
            postings.slots.append(slot)
            postings.weights.append(weight)
            postings.held += not self._folded.view[row]
            self._terms[row].append(postings.number)
        self._said[row] = said
        for name in note.given.get("keywords", ()):
            self._put_name(name, slot)

    def _forget(self, row: int) -> None:
        self.dead += self.slot.view[row] >= 0
        for number in self._terms[row]:
            self._numbered[number].held -= not self._folded.view[row]
        self._terms[row] = array("i")

    def _new(self, term: str) -> Postings:
        found = self._postings[term] = Postings(len(self._numbered))
        self._numbered.append(found)
        self._shapes.setdefault((term[0], len(term)), []).append(term)
        return found

    def _put_name(self, name: str, slot: int) -> None:
        words = frozenset(terms(name))
        if words:
            self._names.setdefault(min(words), []).append((words, slot))
        if len(name) > 1 and has_han(name):
            self._han_names.setdefault(name[0].casefold(), []).append((name.casefold(), words, slot))

    def term(self, term: str) -> Postings | None:
        """Where a term occurs."""
        return self._postings.get(term)

    def words_of(self, row: int) -> set[int]:
        """Numbers of the terms of a note's content, for comparing two notes; at most 200 of them."""
        return set(self._terms[row][: min(self._said[row], _COMPARED)])

    def holds(self, row: int) -> Callable[[str], bool]:
        """A test whether a note holds a term, in any of its fields."""
        held, numbers = self._postings, set(self._terms[row])
        return lambda term: term in held and held[term].number in numbers

    def idf(self, term: str) -> float:
        """How rare a term is among the notes: its ``idf``."""
        return idf(term, self.held(term), self._notes())

    def _notes(self) -> int:
        """How many notes there are, folded ones not counted."""
        return self._apart

    def held(self, term: str) -> int:
        """How many notes hold a term."""
        return self._postings[term].held if term in self._postings else 0

    def spelt(self, term: str) -> str | None:
        """The term of this space that an unknown one is a slip of the keyboard from, if there is one: of several
        the one that most notes hold."""
        if self.held(term):
            return None
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import extract_iter

        near = (word for size in (-1, 0, 1) for word in self._shapes.get((term[0], len(term) + size), ()))
        alike = [word for word, _, _ in extract_iter(term, near, scorer=OSA.distance, score_cutoff=1)
                 if self.held(word) and looks_like(term, word)]  # fmt: skip
        return min(alike, key=lambda word: (-self.held(word), word), default=None)

    def named(self, words: Mapping[str, float], text: str = "") -> dict[int, float]:
        """Rows with an author's keyword that the question holds whole, and the keyword's idf.

        All words of it, in any order; of a Chinese one the characters as they stand, since a segmenter
        may cut the sentence around them otherwise.
        """
        text, found = text.casefold(), dict[int, float]()
        held = [(name, slot) for term in words for name, slot in self._names.get(term, ()) if name <= words.keys()]
        for place, char in enumerate(text):
            held += [(name, slot) for said, name, slot in self._han_names.get(char, ()) if text.startswith(said, place)]
        for name, slot in held:
            row = int(self._row_of.view[slot])
            if self.slot.view[row] == slot:
                found[row] = max(found.get(row, 0.0), max((self.idf(word) for word in name), default=self.idf("")))
        return found

    def bm25(self, weights: Mapping[str, float]) -> np.ndarray:
        """BM25 of each note for weighted query terms: float32 (n,)."""
        scores = np.zeros(self.slot.size, "f4")
        norms = self._norms(())
        for term, weight in weights.items():
            if (postings := self._postings.get(term)) is not None:
                rows, counts = self._holders(postings)
                scores[rows] += weight * self.idf(term) * counts * (K1 + 1) / (counts + norms[rows])
        return scores

    def bm25_around(self, weights: Mapping[str, float], around: Sequence[np.ndarray]) -> np.ndarray:
        """The same for each note taken together with the notes around it: float32 (n,).

        Each array of ``around`` (n,) has for each row the row of one of them, -1 where there is none.
        """
        rows, notes = self.slot.view.size, self._notes()
        scores = np.zeros(rows, "f4")
        norms = self._norms(around)
        for term, weight in weights.items():
            if (postings := self._postings.get(term)) is None:
                continue
            counts = self._counts_around(postings, around, rows)
            found = np.flatnonzero(counts)
            rare = weight * idf(term, int((self._folded.view[found] == 0).sum()), notes)
            scores[found] += rare * counts[found] * (K1 + 1) / (counts[found] + norms[found])
        return scores

    def _holders(self, postings: Postings) -> tuple[np.ndarray, np.ndarray]:
        """The rows that hold a term, and its weight in each."""
        slots = np.array(postings.slots, "i4")
        rows, weights = self._row_of.view[slots], np.array(postings.weights, "f4")
        if postings.held == len(slots):
            return rows, weights
        alive = self.slot.view[rows] == slots
        return rows[alive], weights[alive]

    def _counts_around(self, postings: Postings, around: Sequence[np.ndarray], rows: int) -> np.ndarray:
        held, counts = self._holders(postings)
        total = np.zeros(rows + 1, "f4")  # the last place takes what falls to no row
        np.add.at(total, held, counts)
        for near in around:
            np.add.at(total, near[held], counts)
        return total[:rows]

    def _norms(self, around: Sequence[np.ndarray]) -> np.ndarray:
        """What BM25 divides by for each note's length, that of the notes around it added: (n,). Kept until a note is put."""
        known = self._known_norms.get(bool(around))
        if known is not None and known[0] == self.lengths.size:
            return known[1]
        own = self.lengths.view[self.slot.view]
        lengths = own + sum(np.where(near >= 0, own[near], np.float32(0)) for near in around)
        mean = max(float(lengths.mean()) if lengths.size else 1.0, 1e-6)
        norms = np.asarray(K1 * (1 - B + B * np.minimum(lengths / mean, LONGEST)), np.float32)
        self._known_norms[bool(around)] = (self.lengths.size, norms)
        return norms
