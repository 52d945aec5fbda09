"""The rules of PrecisionMemBench: what a case asks for, what of it failed, and its rates. Pure functions.

``evals.precision`` says what they mean and runs them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["active", "structural", "trivially empty"]
Space = str | tuple[str, ...]
Rates = tuple[float | None, float | None]

QUESTION = "open_question"
MOST_BELIEFS, MOST_QUESTIONS = 20, 15


@dataclass(frozen=True, slots=True)
class Case:
    """One question: a case of the file, or a turn of a session. ``most`` is the room for beliefs."""

    id: str
    category: str
    user: str
    scope: tuple[str, ...]
    query: str
    expect: Mapping[str, Any]
    most: int = MOST_BELIEFS

    @property
    def spaces(self) -> list[Space]:
        """The spaces it may see."""
        return [(self.user, scope) for scope in self.scope]


@dataclass(frozen=True, slots=True)
class Context:
    """What the four tiers hold: ids of beliefs, and the prelude's text."""

    prelude: str = ""
    pinned: tuple[str, ...] = ()
    relevant: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @property
    def surfaced(self) -> frozenset[str]:
        """Pinned and relevant together."""
        return frozenset({*self.pinned, *self.relevant})


def expected(expect: Mapping[str, Any], pinned: Set[str] = frozenset()) -> frozenset[str]:
    """The beliefs that the relevant tier should hold. ``pinned`` are those of another tier."""
    rules = expect.get("relevantBeliefs") or {}
    only = rules.get("shouldOnlyInclude")
    return frozenset(rules.get("mustInclude") or ()) - pinned if only is None else frozenset(only)


def kind_of(expect: Mapping[str, Any], wanted: Set[str]) -> Kind:
    """Which of the three kinds of case this is; ``wanted`` are the expected relevant beliefs."""
    if wanted:
        return "active"
    tiers = [rules for rules in expect.values() if isinstance(rules, Mapping)]
    said = any(value for rules in tiers for name, value in rules.items() if name != "shouldOnlyInclude")
    return "structural" if said else "trivially empty"


def failures(expect: Mapping[str, Any], context: Context) -> list[str]:
    """Every broken expectation, in words; none for a pass."""
    pinned, questions = expect.get("pinnedFacts") or {}, expect.get("openQuestions") or {}
    noise = (expect.get("noiseCheck") or {}).get("mustNotSurface")
    return [
        *_relevant_failures(expect.get("relevantBeliefs") or {}, context),
        *_missing(pinned.get("mustInclude"), context.pinned, "pinned belief missing"),
        *_present(pinned.get("mustExclude"), context.pinned, "forbidden among the pinned"),
        *_missing(questions.get("mustInclude"), context.questions, "question missing"),
        *_present(questions.get("mustExclude"), context.questions, "forbidden question"),
        *_present(noise, context.surfaced, "noise surfaced"),
        *_prelude_failures(expect.get("personaPrelude") or {}, context.prelude),
    ]


def _relevant_failures(rules: Mapping[str, Any], context: Context) -> Iterator[str]:
    only, relevant = rules.get("shouldOnlyInclude"), context.relevant
    yield from _missing([*(rules.get("mustInclude") or ()), *(rules.get("shouldInclude") or ())], context.surfaced, "missing")
    yield from _present(rules.get("mustExclude"), context.surfaced, "forbidden")
    if only is not None:
        yield from (f"unexpected: {one}" for one in relevant if one not in only)
        yield from _missing(only, relevant, "missing")
    least, most = rules.get("minCount"), rules.get("maxCount")
    if (least is not None and len(relevant) < least) or (most is not None and len(relevant) > most):
        yield f"{len(relevant)} relevant beliefs: at least {least or 0} and at most {'any' if most is None else most} expected"
    for first, second in rules.get("orderedBefore") or ():
        yield from _order_failures(first, second, relevant)


def _missing(wanted: Iterable[str] | None, there: Container[str], words: str) -> list[str]:
    return [f"{words}: {one}" for one in wanted or () if one not in there]


def _present(unwanted: Iterable[str] | None, there: Container[str], words: str) -> list[str]:
    return [f"{words}: {one}" for one in unwanted or () if one in there]


def _order_failures(first: str, second: str, relevant: Sequence[str]) -> list[str]:
    absent = _missing([first, second], relevant, "missing from an order")
    ordered = absent or relevant.index(first) < relevant.index(second)
    return absent if ordered else [f"{first} should come before {second}"]


def _prelude_failures(rules: Mapping[str, Any], prelude: str) -> Iterator[str]:
    if rules.get("nonEmpty") and not prelude:
        yield "the prelude is empty"
    if rules.get("isNull") and prelude:
        yield "the prelude is not empty"
    yield from _missing(rules.get("contains"), prelude, "not in the prelude")
    yield from _present(rules.get("mustNotContain"), prelude, "in the prelude")


def case_rates(wanted: Set[str], context: Context) -> Rates:
    """Precision and recall of the relevant tier in a case, None where they say nothing."""
    found = set(context.relevant)
    if not found:
        return (0.0, 0.0) if wanted else (None, None)
    shared = len(wanted & found)
    return shared / len(found), shared / len(wanted) if wanted else None


def turn_rates(wanted: Set[str], context: Context) -> Rates:
    """Precision and recall of a turn of a session, where pinned beliefs count as found."""
    shared, found = len(wanted & context.surfaced), set(context.relevant)
    return shared / len(found) if found else None, shared / len(wanted) if wanted else None


@dataclass(frozen=True, slots=True)
class Found:
    """What a memory gave for one question: ids, before tiers are separated and cut to the room there is.

    ``hits`` are what search brought, best first; ``of_questions`` those among them that are questions.
    """

    prelude: str = ""
    pinned: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    hits: tuple[str, ...] = ()
    of_questions: frozenset[str] = frozenset()
    participants: tuple[str, ...] = ()


def in_tiers(found: Found, most: int, *, route_questions: bool = True) -> Context:
    """The tiers as the benchmark fills them: pinned beliefs take their room first."""
    elsewhere = {*found.pinned, *(found.of_questions if route_questions else ())}
    relevant = [one for one in dict.fromkeys([*found.hits, *found.participants]) if one not in elsewhere]
    pinned = found.pinned[:most]
    return Context(found.prelude, pinned, tuple(relevant[: max(0, most - len(pinned))]), found.questions[:MOST_QUESTIONS])
