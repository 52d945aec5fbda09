"""One score for every note of a space, against a question or a draft. Pure functions over arrays.

Each kind of *evidence* adds to a note's sum, in standard deviations of what notes of the space get
from a question by chance: what it means, its words, the words and the evidence of the turns around
it, who said it, the days it speaks of, the keywords its author gave it. The sum, through a logistic,
is the relevance from 0 to 1 that a hit shows. No model is called here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from functools import lru_cache, reduce
from heapq import nlargest
from itertools import islice

import numpy as np

from engramma.analysts.topics import asked_tags
from engramma.background import Background
from engramma.dates import of_the_past, said_dates
from engramma.errors import InvalidInput
from engramma.note import ASSISTANT, USER, SaidDate
from engramma.store.index import SpaceIndex, stepped
from engramma.store.lexicon import K1, UNSEEN
from engramma.words import bare, has_han, is_chinese, is_stop, term_of, terms, tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """How evidence adds up. Meaning counts as it is; the rest in its proportion.

    All but ``dense``, ``keyword`` and ``foreign`` were fitted by ``python -m evals fit``, over five
    conversations of LoCoMo and a Chinese set, each checked with weights from the others. A keyword
    that its author gave and a question holds whole is to pass the cut-off by itself.
    """

    dense: float = 1.0
    words: float = 5.0
    """Of the share of the question's word weight that the note answers, 0 to 1."""
    around: float = 14.0
    """Of the share that the note answers together with two turns on either side."""
    floor: float = 0.85
    """Evidence below this is noise: nothing is passed on from it, nor anything of form added to it."""
    near: float = 0.24
    """Share of their evidence above the floor that the turns before and after pass on."""
    answer: float = 0.4
    """What a turn that asks passes on beside to the turn after it, which answers."""
    speaker: float = 1.4
    """For notes of a speaker whom the question names."""
    asks: float = 1.7
    """Against notes that are questions themselves."""
    date: float = 2.5
    """For notes of a time that the question names, per unit of idf."""
    keyword: float = 10.0
    """For notes with a keyword, given by their author, that the question holds whole, if it is rare."""
    foreign: float = 1.2
    """For notes in another language than the question, which no word can match by chance."""
    middle: float = -3.5
    """The sum at which relevance is one half, for ln(1 + notes) = 0."""
    growth: float = 1.5
    """What each unit of ln(1 + notes) adds to it: among more notes more look relevant by chance."""
    least: float = 3.4
    """The least that it is, in a space of any size."""
    slope: float = 1.1
    """Sum per unit of the logistic."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InvalidInput(f"weights: {name}={value!r} must be a finite number")
        if self.slope <= 0:
            raise InvalidInput(f"weights: slope={self.slope!r} must be above 0")

    def bar(self, notes: int) -> float:
        """The sum at which relevance is one half among so many notes."""
        return max(self.least, self.middle + self.growth * math.log1p(notes))


WEIGHTS = Weights()
TOPIC_WEIGHT = 0.5
TOPIC_SHARE = 0.12
"""The most of a question's word weight that tags alone can answer."""
DEFAULT_CUT_OFF = 0.5
ASKED_WORDS = 3
"""A question's word weight is that of its rarest words, so many: a rambling one asks about no more."""
ASKED_SLIPS = 5
"""Unknown words of a question that are looked for under another spelling: a pasted page is no slip."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question ready for scoring. ``words`` are its terms, ``said`` its words with the term of each."""

    text: str
    vector: np.ndarray
    words: Mapping[str, float]
    said: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, float] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    dates: tuple[SaidDate, ...] = ()
    today: date = date.max


def question(text: str, vector: np.ndarray, *, now: datetime | None = None) -> Question:
    """Read a question: its terms, the topics they point to, the words that may be a speaker's name, and
    the times it speaks of, seen from ``now``."""
    spoken = list(tokens(text))
    said = {token: term_of(token) for token in spoken if not is_stop(token)}
    dates, today = (said_dates(text, now), date.max if of_the_past(text) else now.date()) if now else ((), date.max)
    words = dict.fromkeys(terms(reduce(lambda rest, day: rest.replace(day.text, " "), dates, text)), 1.0)
    asked = asked_tags(words)
    topics = {term: TOPIC_WEIGHT / len(terms(tag)) for tag in asked for term in terms(tag) if term not in words}
    vector = vector if any(char.isalnum() for char in text) else np.zeros_like(vector)  # "???" means nothing
    names = frozenset(map(bare, spoken)) | _roles(text, spoken)
    return Question(text, vector, words, said, topics, names, tags=asked, dates=dates, today=today)


def _roles(text: str, spoken: Sequence[str]) -> frozenset[str]:
    """Whose words a question of a chat is about: the assistant's where it asks what that has said, else the user's
    where it says I. Notes of a chat name their speakers so."""
    if _YOU_SAID.search(text):
        return frozenset({ASSISTANT})
    return frozenset({USER}) if _FIRST_PERSON & {word.casefold() for word in spoken} or "我" in text else frozenset()


_FIRST_PERSON = frozenset({"i", "me", "my", "mine", "myself"})
_YOU_SAID = re.compile(
    r"\bdid(?:n['’]t)? you\b"
    r"|\byou(?:['’]ve| have| had)? (?:just |already |ever |also )?"
    r"(?:said|told|suggested|recommended|answered|advised|promised|wrote)\b"
    r"|[你您](?:(?!能|可以|会|會).){0,4}(?:说|說|告诉|告訴|推荐|推薦|建议|建議|答应|答應|回答)我?[过過了的]",
    re.IGNORECASE,
)


def passage_question(text: str, vector: np.ndarray) -> Question:
    """A draft as the question that looks for its neighbours."""
    return Question(text, vector, dict.fromkeys(terms(text), 1.0))


@dataclass(frozen=True, slots=True)
class Signals:
    """What a space says to a question, before anything is weighed: float32 (n,) each.

    ``meaning`` is in standard deviations; ``share`` and ``around`` are the answered shares of the
    question's words, by a note alone and with the turns around it; ``keyword`` is the rarity, 0 to 1,
    of an author's keyword found whole; ``date`` the idf of the time asked for, in its notes; ``said``,
    ``asks`` and ``foreign`` are 1 for notes of a named speaker, for questions, and for notes in another
    language than the question. ``before`` and ``after`` are the rows of the turns around. ``respelt`` are
    words that the space knows under another spelling.
    """

    meaning: np.ndarray
    share: np.ndarray
    around: np.ndarray
    keyword: np.ndarray
    date: np.ndarray
    said: np.ndarray
    asks: np.ndarray
    foreign: np.ndarray
    before: np.ndarray
    after: np.ndarray
    respelt: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scores:
    """The evidence for each note of an index, float32 (n,) a kind, and its sum."""

    signals: Signals
    evidence: Mapping[str, np.ndarray]
    total: np.ndarray
    weights: Weights = WEIGHTS

    def relevance(self, row: int) -> float:
        """The calibrated relevance of one note, 0 to 1."""
        return relevance(float(self.total[row]), len(self.total), self.weights)


def relevance(total: float, notes: int, weights: Weights = WEIGHTS) -> float:
    """The calibrated relevance that a sum of evidence means among so many notes, 0 to 1."""
    over = (total - weights.bar(notes)) / weights.slope
    return 1 / (1 + math.exp(-max(min(over, 30.0), -30.0)))


def total_at(wanted: float, notes: int, weights: Weights = WEIGHTS) -> float:
    """The sum of evidence that a cut-off asks for among so many notes; the inverse of ``relevance``."""
    if wanted <= 0:
        return -math.inf
    return math.inf if wanted >= 1 else weights.bar(notes) + weights.slope * math.log(wanted / (1 - wanted))


def score(index: SpaceIndex, asked: Question, background: Background, weights: Weights = WEIGHTS) -> Scores:
    """Score every note of an index."""
    return weigh(signals(index, asked, background), weights)


def signals(index: SpaceIndex, asked: Question, background: Background) -> Signals:
    """What each note of an index says to a question."""
    meaning = index.meaning.evidence(asked.vector, background, index.asked_again(asked.text))
    nothing = np.zeros(len(index), np.float32)
    named = [name for name in index.speakers if _names(asked, name)]
    whole, respelt = _known(index, asked)
    words = _without_names(whole, named)
    most = _most(index, words)
    return Signals(
        meaning,
        _share(index, words, asked.topics, most),
        index.lexicon.bm25_around(words, index.around()) / np.float32(most),
        _keywords(index, asked.text, whole),
        _dates(index, asked),
        np.isin(index.speaker.view, [index.speakers[name] for name in named]).astype(np.float32) if named else nothing,
        index.asks.view.astype(np.float32),
        (index.language.view != is_chinese(asked.text)).astype(np.float32),
        index.before.view,
        index.after.view,
        respelt,
    )


def draft_totals(index: SpaceIndex, asked: Question, background: Background, weights: Weights = WEIGHTS) -> np.ndarray:
    """The sum of evidence of each note for a draft: its meaning and its words only, float32 (n,)."""
    meaning = index.meaning.evidence(asked.vector, background)
    share = _share(index, asked.words, {}, _most(index, asked.words))
    return np.asarray(weights.dense * meaning + np.float32(weights.words + weights.around) * share, np.float32)


def weigh(found: Signals, weights: Weights = WEIGHTS) -> Scores:
    """Add up what the notes say, each kind in its proportion."""
    evidence = {
        "meaning": weights.dense * found.meaning,
        "words": weights.words * found.share,
        "keyword": weights.keyword * found.keyword,
    }
    own = evidence["meaning"] + evidence["words"] + evidence["keyword"]
    strong = np.maximum(own - weights.floor, 0)
    earlier, later = stepped(strong, found.before, 0), stepped(strong, found.after, 0)
    evidence |= {
        "around": weights.around * found.around,
        "near": weights.near * (earlier + later),
        "answer": weights.answer * earlier * stepped(found.asks, found.before, 0),
        "speaker": weights.speaker * found.said * (strong > 0),
        "asks": -weights.asks * found.asks * (strong > 0),
        "date": weights.date * found.date,
        "foreign": weights.foreign * found.foreign,
    }
    return Scores(found, evidence, np.asarray(np.sum(list(evidence.values()), axis=0), np.float32), weights)


def _known(index: SpaceIndex, asked: Question) -> tuple[dict[str, float], dict[str, str]]:
    """The question's words as this space spells them, and which of them were spelt otherwise."""
    unknown = islice((word for word in asked.words if not index.lexicon.held(word)), ASKED_SLIPS)
    respelt = {word: like for word in unknown if (like := index.lexicon.spelt(word))}
    return {respelt.get(word, word): weight for word, weight in asked.words.items()}, respelt


def _most(index: SpaceIndex, words: Mapping[str, float]) -> float:
    """The most that BM25 could give for the words that a question is about: as much as for one rare word at
    least, so that everyday ones ("What did we do?") do not answer the whole question."""
    rarest = nlargest(ASKED_WORDS, (weight * index.lexicon.idf(term) for term, weight in words.items()))
    return max(sum(rarest), index.lexicon.idf("")) * (K1 + 1)


def _share(index: SpaceIndex, words: Mapping[str, float], topics: Mapping[str, float], most: float) -> np.ndarray:
    """BM25 as a share of the most that the question's words could give.

    The names of the topics that the words point to ("live": home) count beside the words, for
    notes tagged so in either language: up to a small share, since a topic is no answer.
    """
    topical = np.minimum(index.lexicon.bm25(topics), TOPIC_SHARE * most) if topics else np.float32(0)
    return np.asarray((index.lexicon.bm25(words) + topical) / np.float32(most))


def _keywords(index: SpaceIndex, text: str, words: Mapping[str, float]) -> np.ndarray:
    """How rare the rarest keyword of its author's is that the question holds whole: 0 (none, or everywhere) to 1."""
    found = np.zeros(len(index), np.float32)
    rarest = math.log1p((len(index) + UNSEEN) / 1.5)
    for row, idf in index.lexicon.named(words, text).items():
        found[row] = min(idf / rarest, 1.0)
    return found


@lru_cache(maxsize=1000)
def _name_words(name: str) -> frozenset[str]:
    """The words that name a speaker: of "Mary of Kent" two; grammar only where there is nothing else."""
    words = frozenset(tokens(name))
    return frozenset(word for word in words if not is_stop(word)) or words


def _names(asked: Question, name: str) -> bool:
    """Whether a question names a speaker: by a word of the name, or by a Chinese one as it stands."""
    return bool(asked.names & _name_words(name)) or (len(name) > 1 and has_han(name) and name in asked.text.casefold())


def _without_names(words: Mapping[str, float], named: Sequence[str]) -> Mapping[str, float]:
    """A question's words less the speakers' names, which say who spoke and not what about."""
    names = {term_of(token) for name in named for token in _name_words(name)}
    rest = {term: weight for term, weight in words.items() if term not in names}
    return rest or words


def _dates(index: SpaceIndex, asked: Question) -> np.ndarray:
    """The idf of the time that a question names, for the notes of that time: (n,)."""
    if not asked.dates:
        return np.zeros(len(index), np.float32)
    within = index.calendar.within(asked.dates, asked.today)
    found = int(within.sum())
    return within * np.float32(math.log1p((len(index) + UNSEEN - found + 0.5) / (found + 0.5)))
