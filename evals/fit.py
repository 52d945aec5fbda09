"""Fit the table of weights in ``engramma.scoring``: what each kind of evidence counts, and where the cut-off lies.

Weights are climbed to one coordinate at a time, on recall of evidence, and checked by leaving out
each conversation in turn. The cut-off is a line over the logarithm of a memory's size, chosen on
whole memories and parts of them: as many questions about nothing in them declined as possible,
while hardly a question that they answer is. Unlike the other parts this one looks inside: it needs
the evidence before it is weighed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product

import numpy as np

from engramma import Note
from engramma.background import Background
from engramma.background import measure as measure_background
from engramma.choosing import visible
from engramma.scoring import Signals, Weights, question, signals, weigh
from engramma.store.base import IndexRow
from engramma.store.index import SpaceIndex
from evals.asking import DEFAULT, Run, fill, memory_of
from evals.embeddings import Cached
from evals.progress import bar
from evals.sets import Collection, Question

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""When the questions are asked, so that "last week" in one means the same in each run."""
DEPTHS = (5, 10, 20)
FITTED = ("words", "around", "floor", "near", "answer", "speaker", "asks", "date")
MOST = {"speaker": 1.5, "date": 2.5}
"""Limits that recall does not set: who speaks, or when, is not what about, and must not lift a note over the bar alone."""
STEPS = (0.5, 0.7, 0.85, 1.2, 1.4, 2.0)
START = Weights(words=10.0, around=10.0, floor=1.0, near=0.2, answer=0.2, speaker=1.0, asks=1.0, date=1.0)
"""Where each climb begins: round numbers, not those that stand in the table."""
ROUNDS = 4
GAIN = 1e-3  # of recall, 0 to 1: what a step must bring, so that noise is not followed
SIZES = (10, 30, 100, 300)
PARTS = 3  # random runs of notes of each size
LOST = 0.02  # of a memory's answerable questions that may be declined; parts of one size count together
MIDDLES, GROWTHS, LEASTS = np.arange(-6.0, 4.01, 0.1), np.arange(0.0, 1.61, 0.05), np.arange(2.0, 6.01, 0.2)
SLOPES = np.arange(0.4, 3.01, 0.1)


@dataclass(frozen=True, slots=True)
class Case:
    """A question with what every note of a memory says to it, and the rows of its evidence."""

    found: Signals
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Shelf:
    """One memory (or a part of one) as fitting sees it. ``shown`` are the rows that may come back."""

    name: str
    size: int
    shown: np.ndarray
    cases: tuple[Case, ...]
    off_topic: tuple[Case, ...] = ()


def shelves(collections: Sequence[Collection], off_topic: Sequence[Question], embedder: Cached) -> list[Shelf]:
    """Each collection as a shelf, and then parts of each as shelves of their own."""
    asked = [each.text for one in collections for each in one.answerable] + [each.text for each in off_topic]
    embedder.warm(asked, "query", "embedding questions")
    background, kept = measure_background(embedder), []
    with memory_of(DEFAULT, collections, embedder) as memory:
        done = Run()
        fill(memory, DEFAULT, collections, embedder, done)
        for one in collections:
            notes = memory.list(space=one.name, include={"archived", "merged"})
            rows = [(each, frozenset(done.holders[one.name][item] for item in each.evidence)) for each in one.answerable]
            kept.append((one.name, notes, rows))
    made = partial(_shelf, background=background, off_topic=off_topic, embedder=embedder)
    parts = [cut for one in kept for size in SIZES for cut in _cuts(one, size)]
    with bar("reading questions") as report:
        return [made(*one) for one in _reported([*kept, *parts], report)]


Kept = tuple[str, Sequence[Note], Sequence[tuple[Question, frozenset[str]]]]


def _reported(found: Sequence[Kept], report: Callable[[int, int], None]) -> Iterable[Kept]:
    for number, one in enumerate(found):
        report(number, len(found))
        yield one


def _cuts(whole: Kept, size: int) -> list[Kept]:
    """Runs of so many notes, with the questions that they answer."""
    name, notes, asked = whole
    if len(notes) < 1.5 * size:
        return []
    chance = random.Random(f"{name} {size}")
    cuts: list[Kept] = []
    for number in range(PARTS):
        start = chance.randrange(len(notes) - size)
        part = notes[start : start + size]
        ids = {note.id for note in part}
        cuts.append((f"{name} {size}/{number}", part, [(each, held) for each, held in asked if held <= ids]))
    return cuts


def _shelf(
    name: str, notes: Sequence[Note], asked: Sequence[tuple[Question, frozenset[str]]], *,
    background: Background, off_topic: Sequence[Question], embedder: Cached,
) -> Shelf:  # fmt: skip
    index = SpaceIndex(embedder.dimensions)
    index.put(IndexRow(note, _vectors(note), note.valid_until is not None) for note in notes)

    def case(text: str, evidence: Iterable[str] = ()) -> Case:
        vector = embedder.embed([text], kind="query")[0]
        found = signals(index, question(text, vector, now=NOW), background)
        return Case(found, frozenset(row for note, row in index.row_of.items() if note in evidence))

    return Shelf(
        name, len(index), visible(index, NOW.timestamp()),
        tuple(case(each.text, held) for each, held in asked), tuple(case(each.text) for each in off_topic),
    )  # fmt: skip


def _vectors(note: Note) -> np.ndarray:
    return np.zeros((0, 0), np.float32) if note.vector is None else note.vector[None, :]


def recalls(shelf: Shelf, weights: Weights) -> np.ndarray:
    """The share of its evidence among the best 5, 10 and 20 notes, a row a question: (q, 3)."""
    rows = []
    for case in shelf.cases:
        total = np.where(shelf.shown, weigh(case.found, weights).total, -np.inf)
        best = np.argsort(-total, kind="stable")[: DEPTHS[-1]].tolist()
        rows.append([len(case.evidence.intersection(best[:depth])) / len(case.evidence) for depth in DEPTHS])
    return np.array(rows).reshape(-1, len(DEPTHS))


def recall(found: Sequence[Shelf], weights: Weights) -> np.ndarray:
    """The same, the mean over all questions: (3,)."""
    return np.asarray(np.concatenate([recalls(shelf, weights) for shelf in found]).mean(axis=0))


def climbed(found: Sequence[Shelf], start: Weights = START) -> Weights:
    """The weights that no step of one of them betters."""
    best, weights = float(recall(found, start).mean()), start
    for _ in range(ROUNDS):
        before = best
        for name, step in product(FITTED, STEPS):
            tried = replace(weights, **{name: min(getattr(weights, name) * step, MOST.get(name, np.inf))})
            reached = float(recall(found, tried).mean())
            if reached > best + GAIN:
                best, weights = reached, tried
        if best - before < GAIN:
            break
    return rounded(weights)


def rounded(weights: Weights) -> Weights:
    """Two digits: more would be a claim to know better."""
    return Weights(**{name: float(f"{value:.2g}") for name, value in asdict(weights).items()})


def left_out(found: Sequence[Shelf]) -> dict[str, dict[str, float]]:
    """For each memory, recall with weights fitted on the others."""
    rows: dict[str, dict[str, float]] = {}
    with bar("leaving one out") as report:
        for number, shelf in enumerate(found):
            weights = climbed([other for other in found if other is not shelf])
            rows[shelf.name] = recalled(shelf, weights)
            report(number + 1, len(found))
    parts = np.array([[row[f"R@{depth}"] for depth in DEPTHS] for row in rows.values()])
    counts = [row["questions"] for row in rows.values()]
    rows["all"] = {"questions": sum(counts)} | _named(np.average(parts, axis=0, weights=counts))
    return rows


def recalled(shelf: Shelf, weights: Weights) -> dict[str, float]:
    """Recall in one memory."""
    found = recalls(shelf, weights)
    return {"questions": len(found)} | _named(found.mean(axis=0))


def _named(values: Iterable[float]) -> dict[str, float]:
    return {f"R@{depth}": float(value) for depth, value in zip(DEPTHS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class Bests:
    """The best sum that each question reaches in a memory: of those that it answers, and the others."""

    name: str
    size: int
    answerable: np.ndarray
    off_topic: np.ndarray


def bests(shelf: Shelf, weights: Weights) -> Bests:
    """What the cut-off is fitted on."""

    def best(cases: Sequence[Case]) -> np.ndarray:
        return np.array([weigh(case.found, weights).total[shelf.shown].max() for case in cases])

    return Bests(shelf.name, shelf.size, best(shelf.cases), best(shelf.off_topic))  # fmt: skip


def bar_fitted(found: Sequence[Bests], weights: Weights) -> Weights:
    """The weights with the line and the least bar that decline most off-topic questions, within what may be lost."""
    best, chosen = -1.0, weights
    for growth, least, level in product(GROWTHS, LEASTS, MIDDLES):
        tried = replace(weights, middle=float(level), growth=float(growth), least=float(least))
        lines = np.array([tried.bar(one.size) for one in found])
        if _lost(found, lines) > LOST:
            continue
        declined = _declined([(one, line) for one, line in zip(found, lines, strict=True)])
        if declined > best + GAIN:
            best, chosen = declined, tried
    line = {name: round(getattr(chosen, name), 2) for name in ("middle", "growth", "least")}
    return replace(chosen, slope=round(_slope(found, chosen), 1), **line)


def _declined(found: Sequence[tuple[Bests, float]]) -> float:
    """The share of off-topic questions below the bar: the mean over memories, and over parts of them, as much."""
    shares: tuple[list[float], list[float]] = ([], [])
    for one, line in found:
        shares["/" in one.name].append(float((one.off_topic < line).mean()))
    return float(np.mean([np.mean(group) for group in shares if group]))


def _lost(found: Sequence[Bests], lines: np.ndarray) -> float:
    """The largest share of answerable questions below the bar, over memories and over their parts of each size."""
    below: dict[str, list[np.ndarray]] = {}
    for one, line in zip(found, lines, strict=True):
        below.setdefault(one.name.partition("/")[0], []).append(one.answerable < line)
    return max(float(np.concatenate(group).mean()) for group in below.values() if sum(map(len, group)))


def _slope(found: Sequence[Bests], weights: Weights) -> float:
    """The slope at which relevance is the likeliest probability that a question's best note is of use."""
    over = np.concatenate([np.concatenate([one.answerable, one.off_topic]) - weights.bar(one.size) for one in found])
    truth = np.concatenate([np.repeat([1.0, -1.0], [len(one.answerable), len(one.off_topic)]) for one in found])
    losses = [float(np.logaddexp(0, -truth * over / slope).mean()) for slope in SLOPES]
    return float(SLOPES[int(np.argmin(losses))])


def bars(found: Sequence[Bests], weights: Weights) -> dict[str, dict[str, float]]:
    """What a bar declines in each memory."""
    return {
        one.name: {
            "notes": one.size,
            "bar": weights.bar(one.size),
            "off topic": float((one.off_topic < weights.bar(one.size)).mean()),
            "answerable": float((one.answerable < weights.bar(one.size)).mean()) if len(one.answerable) else 0.0,
        }
        for one in found
    }
