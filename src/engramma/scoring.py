"""One score for every note of a space, against a question or a draft. Pure functions over arrays.

What a note's own words and meaning say is *evidence*, in units of the
embedder's spread over unrelated texts. A note also gets a share of the evidence of the turns around
it in its session. The sum, through a logistic, is the relevance from 0 to 1 that a hit shows.
No model is called here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from engramma.analysts.topics import asked_tags
from engramma.background import Background
from engramma.note import Neighbour, Note, NoteId, Why
from engramma.store.index import ARCHIVED, K1, MERGED, SUPERSEDED, VISIBLE, SpaceIndex
from engramma.words import is_stop, term_of, terms, tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """How evidence adds up. Chosen by hand on LoCoMo's five development conversations."""

    words: float = 24.0
    """Weight of the answered share of the question's word weight, against one spread of cosine."""
    near: float = 0.35
    """Share of the evidence above ``floor`` that the turns before and after pass on."""
    far: float = 0.18
    """The same for the turns two away."""
    floor: float = 4.0
    """Evidence below this is noise and is not passed on."""
    speaker: float = 1.6
    """For notes of a speaker whom the question names, where there is other evidence."""
    length: float = 0.8
    """For longer notes, per unit of ln(1 + terms)."""
    question: float = 0.8
    """Against notes that are questions themselves."""
    middle: float = 3.9
    """The sum at which relevance is one half, in a space of one note."""
    growth: float = 0.5
    """What each unit of ln(1 + notes) adds to it: among more notes more look relevant by chance."""
    slope: float = 1.2
    """Sum per unit of the logistic."""


WEIGHTS = Weights()
TOPIC_WEIGHT = 0.5
TOPIC_SHARE = 0.12
"""The most of a question's word weight that tags alone can answer."""
DEFAULT_CUT_OFF = 0.5
SHARE_OF_BEST = 0.5
"""A hit has at least this share of the best hit's evidence, unless the cut-off is switched off."""
_COPY_LIKENESS = 0.6  # of the way from unrelated to identical, for notes that also share their words
_COPY_WORDS = 0.7


@dataclass(frozen=True, slots=True)
class Question:
    """A question ready for scoring."""

    text: str
    vector: np.ndarray
    words: Mapping[str, float]
    topics: Mapping[str, float] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    passage: bool = False
    tags: tuple[str, ...] = ()


def question(text: str, vector: np.ndarray, *, passage: bool = False) -> Question:
    """Read a question: its terms, and the words that may be a speaker's name."""
    words = dict.fromkeys(terms(text), 1.0)
    if passage:
        return Question(text, vector, words, passage=True)
    asked = asked_tags(words)
    weights = {term: TOPIC_WEIGHT / len(terms(tag)) for tag in asked for term in terms(tag) if term not in words}
    return Question(text, vector, words, weights, frozenset(tokens(text)), tags=asked)


@dataclass(frozen=True, slots=True)
class Scores:
    """Per note of an index, float32 (n,): ``dense`` and ``lexical`` evidence, the turns' share, the sum."""

    dense: np.ndarray
    lexical: np.ndarray
    session: np.ndarray
    total: np.ndarray
    likeness: np.ndarray

    def relevance(self, row: int) -> float:
        """The calibrated relevance of one note, 0 to 1."""
        return float(1 / (1 + np.exp(-np.clip((self.total[row] - _middle(len(self.total))) / WEIGHTS.slope, -30, 30))))


def _middle(notes: int) -> float:
    return WEIGHTS.middle + WEIGHTS.growth * math.log1p(notes)


def total_at(wanted: float, notes: int) -> float:
    """The sum of evidence that a cut-off asks for among so many notes; the inverse of ``relevance``."""
    if wanted <= 0:
        return -math.inf
    return math.inf if wanted >= 1 else _middle(notes) + WEIGHTS.slope * math.log(wanted / (1 - wanted))


def score(index: SpaceIndex, asked: Question, background: Background, weights: Weights = WEIGHTS) -> Scores:
    """Score every note of an index."""
    cosines = index.cosines(asked.vector)
    zero, language = background.zero(asked.vector), index.language.view
    dense = (cosines - zero[language]) / background.spreads[language]
    likeness = np.clip((cosines - zero[language]) / np.maximum(1 - zero[language], 1e-6), 0, 1)
    named = [name for name in index.speakers if asked.names & _name_words(name)]
    lexical = _lexical(index, _without_names(asked.words, named), asked.topics)
    own = dense + weights.words * lexical
    session = np.zeros_like(own) if asked.passage else _session_share(index, own, weights)
    total = own + session + _shape(index, named, own, weights)
    return Scores(dense, lexical, session, total, likeness)


def _lexical(index: SpaceIndex, words: Mapping[str, float], topics: Mapping[str, float]) -> np.ndarray:
    """BM25 as a share of the most that the question's words could give: 0 to 1.

    The names of the topics that the words point to ("live": home) count beside the words, for
    notes tagged so in either language: up to a small share, since a topic is no answer.
    """
    most = sum(weight * index.idf(term) for term, weight in words.items()) * (K1 + 1)
    topical = np.minimum(index.bm25(dict(topics)), TOPIC_SHARE * most) if topics else np.float32(0)
    return (index.bm25(dict(words)) + topical) / np.float32(max(most, 1e-6))


def _session_share(index: SpaceIndex, own: np.ndarray, weights: Weights) -> np.ndarray:
    strong = np.maximum(own - weights.floor, 0).astype(np.float32)
    before, after = index.before.view, index.after.view
    near = [index.shifted(strong, before), index.shifted(strong, after)]
    far = index.shifted(near[0], before) + index.shifted(near[1], after)
    return np.asarray(weights.near * (near[0] + near[1]) + weights.far * far, np.float32)


@lru_cache(maxsize=1000)
def _name_words(name: str) -> frozenset[str]:
    return frozenset(tokens(name))


def _without_names(words: Mapping[str, float], named: Sequence[str]) -> Mapping[str, float]:
    """A question's words less the speakers' names, which say who spoke and not what about."""
    names = {term_of(token) for name in named for token in _name_words(name)}
    rest = {term: weight for term, weight in words.items() if term not in names}
    return rest or words


def _shape(index: SpaceIndex, named: Sequence[str], own: np.ndarray, weights: Weights) -> np.ndarray:
    """What a note's form adds: length, being a question, being said by somebody the question names."""
    lengths = index.lengths.view[index.slot.view]
    shape = weights.length * (np.log1p(lengths) - 2.3) - weights.question * index.asks.view
    shape = np.clip(shape, -1, 1) * np.clip((own - 2) / 2, 0, 1)  # form is no evidence by itself
    if named:
        said = np.isin(index.speaker.view, [index.speakers[name] for name in named])
        shape = shape + weights.speaker * (said & (own > weights.floor))
    return np.asarray(shape, np.float32)


@dataclass(slots=True)
class Pick:
    """A chosen row, its relevance, and the near copies it stands for."""

    row: int
    score: float
    copies: list[int] = field(default_factory=list)


def visible(index: SpaceIndex, now: float, include: Iterable[str] = ()) -> np.ndarray:
    """Which rows may come back: bool (n,). Superseded, archived and expired ones only if included."""
    shown = [VISIBLE]
    for word, status in (("superseded", SUPERSEDED), ("archived", ARCHIVED), ("merged", MERGED)):
        shown += [status] if word in include else []
    mask = np.isin(index.status.view, shown)
    return mask if "expired" in include else mask & (index.expires.view > now)


Copies = Callable[[Sequence[int]], Callable[[int, int], bool]]
"""Given rows, a test whether two of them are near copies."""


def choose(index: SpaceIndex, scores: Scores, allowed: np.ndarray, k: int, cut_off: float, copies_among: Copies) -> list[Pick]:
    """The best k rows above the cut-off, near copies once. With cut-off 0 copies fill what is left."""
    bar = total_at(cut_off, len(index))
    rows = np.flatnonzero(allowed & (scores.total >= bar))
    if cut_off > 0 and len(rows):
        rows = rows[scores.total[rows] >= SHARE_OF_BEST * float(scores.total[rows].max())]
    order = rows[np.argsort(-scores.total[rows], kind="stable")]
    picks: list[Pick] = []
    best = [int(row) for row in order[: 4 * k + 20]]
    same = copies_among(best)
    for row in best:
        if len(picks) == k:
            break
        twin = next((pick for pick in picks if same(pick.row, row)), None)
        if twin is None:
            picks.append(Pick(row, scores.relevance(row)))
        else:
            twin.copies.append(row)
    if cut_off <= 0 and len(picks) < k:
        rest = [row for row in map(int, order) if row not in {pick.row for pick in picks}]
        picks += [Pick(row, scores.relevance(row)) for row in rest[: k - len(picks)]]
        picks.sort(key=lambda pick: -pick.score)
    return picks


def near_copies(index: SpaceIndex, background: Background) -> Copies:
    """What tells, for some rows, which pairs say the same thing: near in meaning, sharing their words."""

    def among(rows: Sequence[int]) -> Callable[[int, int], bool]:
        vectors = index.vectors.view[list(rows)]
        language = index.language.view[list(rows)]
        zeros = background.zeros(vectors)[:, language]
        likeness = (vectors @ vectors.T - zeros) / np.maximum(1 - zeros, 1e-6)
        place = {row: number for number, row in enumerate(rows)}
        words = {row: index.words_of(row) for row in rows}
        form = list(zip(index.asks.view[list(rows)], index.denies.view[list(rows)], strict=True))

        def same(first: int, second: int) -> bool:
            if likeness[place[first], place[second]] < _COPY_LIKENESS or form[place[first]] != form[place[second]]:
                return False  # a question is no copy of its answer, nor a denial of what it denies
            mine, other = words[first], words[second]
            return len(mine & other) >= _COPY_WORDS * max(1, min(len(mine), len(other)))

        return same

    return among


def why(scores: Scores, row: int, asked: Question, note: Note, copies: Sequence[NoteId] = ()) -> Why:
    """The evidence for a direct hit."""
    found = set(terms(" ".join([note.content, note.context, *note.keywords, *note.tags])))
    words = [token for token in tokens(asked.text) if not is_stop(token) and term_of(token) in found]
    session = float(scores.session[row]) / max(float(scores.total[row]), 1e-6) if scores.session[row] > 0 else 0.0
    topics = [tag for tag in note.tags if tag in asked.tags]
    return Why(
        remarks=(f"topic {', '.join(topics)}",) if topics else (),
        dense=round(float(scores.likeness[row]), 3),
        lexical=round(min(float(scores.lexical[row]), 1.0), 3),
        session=round(min(session, 1.0), 3),
        words=tuple(dict.fromkeys(words)),
        copies=tuple(copies),
    )


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
    scores = score(index, asked, background)
    mask = index.status.view == VISIBLE
    for note in leave_out:
        if note in index.row_of:
            mask[index.row_of[note]] = False
    rows = np.flatnonzero(mask)
    if len(rows) > k:
        rows = rows[np.argpartition(-scores.total[rows], k)[:k]]
    rows = rows[np.argsort(-scores.total[rows], kind="stable")]
    rare = _rare_words(index, asked.text)
    return [
        Near(index.ids[row], scores.relevance(row), float(scores.likeness[row]), _shared(index, row, rare))
        for row in map(int, rows)
    ]


def _rare_words(index: SpaceIndex, text: str) -> dict[int, str]:
    """Words of a text that at most 8 % of the notes (or three) hold, rarest first, by term number."""
    words: dict[int, str] = {}
    ranked = sorted({term_of(token): token for token in tokens(text) if not is_stop(token)}.items(),
                    key=lambda item: -index.idf(item[0]))  # fmt: skip
    for term, token in ranked:
        found = index.term(term)
        if found is not None and len(found.slots) <= max(3, 0.08 * len(index)):
            words[found.number] = token
    return words


def _shared(index: SpaceIndex, row: int, rare: Mapping[int, str]) -> tuple[str, ...]:
    held = index.words_of(row)
    return tuple(word for number, word in rare.items() if number in held)


def as_neighbours(found: Sequence[Near], notes: Mapping[NoteId, Note]) -> tuple[Neighbour, ...]:
    """Neighbours with their notes; a note that vanished in between is left out."""
    return tuple(Neighbour(notes[near.note], near.score, near.likeness, near.shared) for near in found if near.note in notes)
