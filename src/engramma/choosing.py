"""From scores to the few notes that come back: the cut-off, near copies once, and why each was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engramma.background import Background
from engramma.note import ASSISTANT, USER, Note, Why
from engramma.scoring import Question, Scores, total_at
from engramma.store.index import ARCHIVED, MERGED, SUPERSEDED, VISIBLE, SpaceIndex
from engramma.words import term_of, terms, tokens

SHARE_OF_BEST = 0.5
"""A hit has at least this share of the evidence of the best hit that is no question, unless the cut-off is switched off or the
question names it by a keyword of its author's."""
LATER_SHARE = 0.2
"""The same for what the user of a chat has said since: in other words, it may have changed what was found."""
_COPY_LIKENESS = 0.6  # of the way from unrelated to identical, for notes that also share their words
_COMPARED = 200  # rows among which copies are looked for: each is compared with each
_LEAST_SHOWN = 0.05  # of evidence, to be worth a word


@dataclass(slots=True)
class Pick:
    """A chosen row, the near copies it stands for, and the relevance of the best among them."""

    row: int
    score: float
    copies: list[int] = field(default_factory=list)


def visible(index: SpaceIndex, now: float, include: Iterable[str] = ()) -> np.ndarray:
    """Which rows may come back: bool (n,). Superseded, archived and expired ones only if included."""
    mask = np.asarray(index.status.view == VISIBLE)
    for word, status in (("superseded", SUPERSEDED), ("archived", ARCHIVED), ("merged", MERGED)):
        if word in include:
            mask |= index.status.view == status
    return mask if "expired" in include else mask & (index.expires.view > now)


Copies = Callable[[Sequence[int]], Callable[[int, int], bool]]
"""Given rows, a test whether two of them are near copies."""


def choose(
    index: SpaceIndex, scores: Scores, allowed: np.ndarray, k: int, cut_off: float, copies_among: Copies,
    share_of_best: float = SHARE_OF_BEST,
) -> list[Pick]:  # fmt: skip
    """The best k rows above the cut-off, near copies once. With cut-off 0 copies fill what is left."""
    bar = total_at(cut_off, len(index), scores.weights)
    rows = np.flatnonzero(allowed & (scores.total >= bar))
    if cut_off > 0 and len(rows) and scores.total[rows].max() > 0:
        best_row = _best(index, scores.total, rows)
        best = scores.total[best_row]
        later = (rows > best_row) & (index.speaker.view[rows] == index.speakers.get(USER, -2))
        enough = scores.total[rows] >= np.where(later, min(LATER_SHARE, share_of_best), share_of_best) * best
        rows = rows[enough | (scores.signals.keyword[rows] > 0)]
    order = rows[np.argsort(-scores.total[rows], kind="stable")]
    picks: list[Pick] = []
    best = [int(row) for row in order[: 4 * k + 20]]
    same = copies_among(best[:_COMPARED])
    for place, row in enumerate(best):
        if len(picks) == k:
            break
        twin = next((pick for pick in picks if same(pick.row, row)), None) if place < _COMPARED else None
        if twin is None:
            picks.append(Pick(row, scores.relevance(row)))
        else:
            copy, twin.row = sorted((twin.row, row), key=lambda one: (len(index.lexicon.words_of(one)), one))
            twin.copies.append(copy)  # what says more stands for both, of equals what was added last
    if cut_off <= 0 and len(picks) < k:
        rest = [row for row in map(int, order) if row not in {pick.row for pick in picks}]
        added = rest[: k - len(picks)]
        for pick in picks:
            pick.copies = [row for row in pick.copies if row not in added]
        picks += [Pick(row, scores.relevance(row)) for row in added]
        picks.sort(key=lambda pick: -pick.score)
    return picks


def _best(index: SpaceIndex, totals: np.ndarray, rows: np.ndarray) -> int:
    """The row of the best hit. A note that only asks the same is no measure for those that say something, nor is an
    assistant's answer for what its user said: it may repeat what held then."""
    telling = rows[(index.asks.view[rows] == 0) & (index.speaker.view[rows] != index.speakers.get(ASSISTANT, -2))]
    among = telling if len(telling) else rows
    return int(among[totals[among].argmax()])


def near_copies(index: SpaceIndex, background: Background) -> Copies:
    """What tells, for some rows, which pairs say the same thing: near in meaning, sharing their words."""

    def among(rows: Sequence[int]) -> Callable[[int, int], bool]:
        vectors = index.meaning.vectors.view[list(rows)]
        language = index.language.view[list(rows)]
        zeros = background.zeros(vectors)[:, language]
        likeness = (vectors @ vectors.T - zeros) / np.maximum(1 - zeros, 1e-6)
        place = {row: number for number, row in enumerate(rows)}
        words = {row: index.lexicon.words_of(row) for row in rows}
        form = list(zip(index.asks.view[list(rows)], index.denies.view[list(rows)], strict=True))

        def same(first: int, second: int) -> bool:
            if likeness[place[first], place[second]] < _COPY_LIKENESS or form[place[first]] != form[place[second]]:
                return False  # a question is no copy of its answer, nor a denial of what it denies
            mine, other = words[first], words[second]
            return mine <= other or other <= mine  # "runs on 14" is no copy of "runs on 16"

        return same

    return among


def likeness(index: SpaceIndex, vector: np.ndarray, rows: Sequence[int], background: Background) -> np.ndarray:
    """The cosines of a unit vector with some notes, rescaled: 0 is unrelated, 1 the same text. (len(rows),)"""
    zero = background.zero(vector)[index.language.view[list(rows)]]
    alike = (index.meaning.cosines(vector, rows) - zero) / np.maximum(1 - zero, 1e-6)
    return np.asarray(np.clip(alike, 0, 1))


def why(index: SpaceIndex, scores: Scores, pick: Pick, asked: Question, note: Note, alike: float) -> Why:
    """The evidence for a direct hit. ``alike`` is its likeness with the question."""
    respelt, holds = scores.signals.respelt, index.lexicon.holds(pick.row)
    words = [word for word, term in asked.said.items() if holds(respelt.get(term, term))]
    evidence = {kind: round(float(values[pick.row]), 2) for kind, values in scores.evidence.items()}
    return Why(
        dense=round(alike, 3),
        lexical=round(_covered(index, asked, scores, words), 3),
        session=round(_session(evidence), 3),
        words=tuple(words),
        evidence={kind: value for kind, value in evidence.items() if abs(value) >= _LEAST_SHOWN},
        copies=tuple(index.ids[row] for row in pick.copies),
        remarks=tuple(_remarks(evidence, asked, note, {word: respelt.get(asked.said[word]) for word in words})),
    )


def _covered(index: SpaceIndex, asked: Question, scores: Scores, words: Sequence[str]) -> float:
    """The share of the question's word weight (idf) that lies in some of its words, 0 to 1."""
    respelt = scores.signals.respelt
    weight = {word: index.lexicon.idf(respelt.get(term, term)) for word, term in asked.said.items()}
    return sum(weight[word] for word in words) / max(sum(weight.values()), 1e-6)


def _session(evidence: dict[str, float]) -> float:
    """The share of a hit's evidence that the turns around it gave, 0 to 1."""
    given = sum(evidence.get(kind, 0.0) for kind in ("around", "near", "answer"))
    return min(max(given, 0.0) / max(sum(value for value in evidence.values() if value > 0), 1e-6), 1.0)


def _remarks(evidence: Mapping[str, float], asked: Question, note: Note, respelt: Mapping[str, str | None]) -> Iterable[str]:
    if evidence.get("keyword"):
        known, said = {*asked.words, *filter(None, respelt.values())}, asked.text.casefold()
        named = [name for name in note.given.get("keywords", ()) if set(terms(name)) & known]
        named = [name for name in named if set(terms(name)) <= known or name.casefold() in said]
        yield f"named by its keyword {', '.join(named)} {evidence['keyword']:+.1f}"
    if evidence.get("date"):
        yield f"of the time asked for ({', '.join(date.text for date in asked.dates)}) {evidence['date']:+.1f}"
    if evidence.get("speaker"):
        yield f"said by {note.speaker} {evidence['speaker']:+.1f}"
    if evidence.get("answer", 0) >= _LEAST_SHOWN:
        yield f"answers the turn before it {evidence['answer']:+.1f}"
    for word, like in respelt.items():
        if like:
            spelling = next((token for token in tokens(note.content) if term_of(token) == like), like)
            yield f"{word} read as {spelling}"
    if topics := [tag for tag in note.tags if tag in asked.tags]:
        yield f"topic {', '.join(topics)}"
