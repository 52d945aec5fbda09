"""The notes nearest a draft, for its analyst: by its meaning and its words, as a search weighs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engramma.background import Background
from engramma.choosing import likeness
from engramma.note import Neighbour, Note, NoteId
from engramma.scoring import Question, draft_totals, relevance
from engramma.store.index import VISIBLE, SpaceIndex
from engramma.words import is_stop, term_of, tokens


@dataclass(frozen=True, slots=True)
class Near:
    """A row near a draft, before its note is fetched."""

    note: NoteId
    score: float
    likeness: float
    shared: tuple[str, ...]


def neighbours(
    index: SpaceIndex, asked: Question, background: Background, k: int, leave_out: frozenset[NoteId] = frozenset()
) -> list[Near]:
    """The k visible notes nearest a draft, best first. Hybrid, as any search is."""
    if len(index) == 0:
        return []
    totals = draft_totals(index, asked, background)
    mask = index.status.view == VISIBLE
    for note in leave_out:
        if note in index.row_of:
            mask[index.row_of[note]] = False
    found = np.flatnonzero(mask)
    if len(found) > k:
        found = found[np.argpartition(-totals[found], k)[:k]]
    rows = [int(row) for row in found[np.argsort(-totals[found], kind="stable")]]
    rare, alike = _rare_words(index, asked.text), likeness(index, asked.vector, rows, background)
    return [
        Near(index.ids[row], relevance(float(totals[row]), len(index)), float(near), _shared(index, row, rare))
        for row, near in zip(rows, alike, strict=True)
    ]


def _rare_words(index: SpaceIndex, text: str) -> dict[int, str]:
    """Words of a text that at most 8 % of the notes (or three) hold, rarest first, by term number."""
    words: dict[int, str] = {}
    ranked = sorted({term_of(token): token for token in tokens(text) if not is_stop(token)}.items(),
                    key=lambda item: -index.lexicon.idf(item[0]))  # fmt: skip
    for term, token in ranked:
        found = index.lexicon.term(term)
        if found is not None and found.held <= max(3, 0.08 * len(index)):
            words[found.number] = token
    return words


def _shared(index: SpaceIndex, row: int, rare: Mapping[int, str]) -> tuple[str, ...]:
    held = index.lexicon.words_of(row)
    return tuple(word for number, word in rare.items() if number in held)


def as_neighbours(found: Sequence[Near], notes: Mapping[NoteId, Note]) -> tuple[Neighbour, ...]:
    """Neighbours with their notes; a note that vanished in between is left out."""
    return tuple(Neighbour(notes[near.note], near.score, near.likeness, near.shared) for near in found if near.note in notes)
