"""What came back against what should have: pure functions over the places of the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

CUTS = (5, 10, 20)
DEEPEST = 50
"""How many hits are asked for where exactly k are wanted: the first k of them are those of a search for k."""

Places = Sequence[int | None]
"""The place of each note of a question's evidence among the hits, from 1; None where it did not come back."""


def recall(places: Places, k: int) -> float:
    """The share of the evidence among the first k."""
    return sum(place is not None and place <= k for place in places) / len(places)


def hit(places: Places, k: int) -> float:
    """1 if any of the evidence is among the first k, else 0."""
    return float(any(place is not None and place <= k for place in places))


def ndcg(places: Places, k: int) -> float:
    """Discounted gain of the evidence among the first k, as a share of the best order's (Järvelin and Kekäläinen, 2002)."""
    gained = sum(1 / math.log2(place + 1) for place in places if place is not None and place <= k)
    return gained / sum(1 / math.log2(place + 1) for place in range(1, min(len(places), k) + 1))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question measured.

    ``places`` are those of its evidence among exactly k direct hits. The rest is what a search with
    default settings gave: how many direct and linked hits, how much evidence among each, the
    tokens of its context, and the seconds it took without embedding.
    """

    kind: str
    places: tuple[int | None, ...]
    direct: int = 0
    right: int = 0
    linked: int = 0
    found: int = 0
    shown: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def declined(self) -> bool:
        """Whether nothing came back."""
        return self.direct == 0


Summary = Mapping[str, float]


def exact(outcomes: Sequence[Outcome]) -> Summary:
    """Means over questions of what exactly k direct hits hold."""
    of = [outcome.places for outcome in outcomes]
    return {
        "questions": len(of),
        **{f"R@{k}": fmean(recall(places, k) for places in of) for k in CUTS},
        "hit@10": fmean(hit(places, 10) for places in of),
        "nDCG@10": fmean(ndcg(places, 10) for places in of),
    }


def default(outcomes: Sequence[Outcome]) -> Summary:
    """What default settings bring back: means over questions. Precision is over those not declined."""
    answered = [outcome.right / outcome.direct for outcome in outcomes if not outcome.declined]
    return {
        "questions": len(outcomes),
        "direct": fmean(outcome.direct for outcome in outcomes),
        "linked": fmean(outcome.linked for outcome in outcomes),
        "recall": fmean(outcome.found / len(outcome.places) for outcome in outcomes),
        "in context": fmean(outcome.shown / len(outcome.places) for outcome in outcomes),
        "precision": fmean(answered) if answered else 0.0,
        "declined": fmean(outcome.declined for outcome in outcomes),
        "tokens": fmean(outcome.tokens for outcome in outcomes),
        "tokens p95": percentile((outcome.tokens for outcome in outcomes), 95),
    }


def by_kind(outcomes: Sequence[Outcome], measure: Callable[[Sequence[Outcome]], Summary]) -> dict[str, Summary]:
    """A measure over all questions, then over those of each kind; empty where there are none."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    parts = {"all": list(outcomes), **{kind: [one for one in outcomes if one.kind == kind] for kind in kinds}}
    return {name: measure(part) for name, part in parts.items() if part}


def curve(outcomes: Sequence[Outcome], ks: Iterable[int]) -> dict[int, float]:
    """Mean recall at each k."""
    return {k: fmean(recall(outcome.places, k) for outcome in outcomes) for k in ks}


def percentile(values: Iterable[float], share: float) -> float:
    """The value that ``share`` per cent stay at or below, interpolated."""
    return float(np.percentile(list(values), share))
