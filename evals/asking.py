"""Collections become spaces of one memory, questions become searches: what came back, and how long it took."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from engramma import Hit, Hits, Memory
from evals.embeddings import Cached
from evals.measures import DEEPEST, Outcome
from evals.progress import bar
from evals.sets import Collection, Item, Question

COUNT: Callable[[str], int] = inspect.signature(Hits.context).parameters["count"].default
"""How ``hits.context()`` itself counts tokens."""
EXACT: Mapping[str, Any] = {"min_relevance": 0.0, "expand": False}
"""Search options with which exactly k direct hits come back, where there are k notes."""

Opening = Callable[[Cached, Sequence[Collection]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use engramma: how items are made, how the memory is opened, how it is searched.

    ``opened`` gives the arguments of ``Memory.open`` for an embedder and the collections; ``searched``
    are options of the search that otherwise is left at its defaults.
    """

    made: Callable[[Item], Item] = lambda item: item
    opened: Opening = lambda embedder, collections: {}
    searched: Mapping[str, Any] = field(default_factory=dict)


DEFAULT = Variant()


@dataclass(frozen=True, slots=True)
class Reply:
    """What one question brought back, as ids of notes, and the cost with default settings.

    ``shown`` are the notes that the context of the default hits has room for.
    """

    exact: tuple[str, ...]
    direct: tuple[str, ...]
    linked: tuple[str, ...]
    shown: tuple[str, ...]
    tokens: int
    seconds: float


@dataclass(slots=True)
class Run:
    """All replies by collection and question number, and for each item the note that holds it.

    ``ingestion`` is in seconds by collection, embedding excluded.
    """

    replies: dict[str, dict[int, Reply]] = field(default_factory=dict)
    holders: dict[str, dict[str, str]] = field(default_factory=dict)
    ingestion: dict[str, float] = field(default_factory=dict)
    hidden: dict[str, set[str]] = field(default_factory=dict)
    """Ids of notes that search leaves out, since another supersedes them."""


def run(variant: Variant, collections: Sequence[Collection], embedder: Cached, title: str = "") -> Run:
    """Fill a memory that is not on disk and ask every question, traps included."""
    done = Run()
    with memory_of(variant, collections, embedder) as memory:
        fill(memory, variant, collections, embedder, done, title)
        ask(memory, variant, collections, embedder, done, title)
    return done


@contextmanager
def memory_of(variant: Variant, collections: Sequence[Collection], embedder: Cached) -> Iterator[Memory]:
    """An empty memory, opened as the variant says, whatever the machine's settings are."""
    options = {"embedder": embedder, "llm": "none", "space": "default", **variant.opened(embedder, collections)}
    with Memory.open(":memory:", **options) as memory:
        yield memory


def fill(
    memory: Memory, variant: Variant, collections: Sequence[Collection], embedder: Cached, done: Run, title: str = ""
) -> None:
    """Remember the items, each collection in a space of its own."""
    for collection in collections:
        items = [variant.made(item) for item in collection.items]
        embedder.warm([said(item) for item in items], "passage", f"{title} embedding {collection.name}".strip())
        with bar(f"{title} remembering {collection.name}".strip()) as report, clocked(embedder) as clock:
            notes = memory.add_many([item.fields(collection.name) for item in items], progress=report)
        done.ingestion[collection.name] = clock()
        done.holders[collection.name] = {item.id: note.id for item, note in zip(items, notes, strict=True)}
        done.hidden[collection.name] = {note.id for note in memory.list(space=collection.name) if note.valid_until}


def ask(
    memory: Memory, variant: Variant, collections: Sequence[Collection], embedder: Cached, done: Run, title: str = ""
) -> None:
    """Ask the questions and the traps of each collection in its space."""
    asked = [(collection.name, question) for collection in collections for question in (*collection.questions, *collection.traps)]
    embedder.warm([question.text for _, question in asked], "query", f"{title} embedding questions".strip())
    done.replies |= {collection.name: {} for collection in collections}
    with bar(f"{title} searching".strip()) as report:
        for number, (space, question) in enumerate(asked, 1):
            done.replies[space][question.number] = _reply(memory, variant, space, question, embedder)
            report(number, len(asked))


def said(item: Item) -> str:
    """The text that is embedded for an item; where engramma embeds another, only the cache is of less use."""
    return f"{item.speaker}: {item.content}" if item.speaker else item.content


def _reply(memory: Memory, variant: Variant, space: str, question: Question, embedder: Cached) -> Reply:
    exact = memory.search(question.text, k=DEEPEST, space=space, **EXACT)
    with clocked(embedder) as clock:
        hits = memory.search(question.text, space=space, **variant.searched)
    context = hits.context()
    return Reply(
        exact=_ids(exact),
        direct=_ids(hits.direct),
        linked=_ids(hit for hit in hits if not hit.why.direct),
        shown=_ids(hit for hit in hits if f"{{{hit.note.id}}}" in context),
        tokens=COUNT(context),
        seconds=clock(),
    )


def _ids(hits: Iterable[Hit]) -> tuple[str, ...]:
    return tuple(hit.note.id for hit in hits)


@contextmanager
def clocked(embedder: Cached) -> Iterator[Callable[[], float]]:
    """A clock that says, after the block, the seconds it took without those spent on embedding."""
    spent, began, ended = embedder.spent, time.perf_counter(), [0.0]
    yield lambda: ended[0]
    ended[0] = time.perf_counter() - began - (embedder.spent - spent)


def outcomes(done: Run, collections: Sequence[Collection]) -> list[Outcome]:
    """The questions that have evidence, measured. The collections may name other evidence than those that were asked."""
    return [
        _outcome(question, done.replies[collection.name][question.number], done.holders[collection.name])
        for collection in collections
        for question in collection.answerable
    ]


def traps(done: Run, collections: Sequence[Collection]) -> list[Outcome]:
    """The same for the questions that have no answer."""
    return outcomes(done, [replace(collection, questions=collection.traps) for collection in collections])


def _outcome(question: Question, reply: Reply, holders: Mapping[str, str]) -> Outcome:
    evidence = dict.fromkeys(holders[each] for each in question.evidence)
    place = {note: number for number, note in enumerate(reply.exact, 1)}
    return Outcome(
        question.kind,
        tuple(place.get(note) for note in evidence),
        direct=len(reply.direct),
        right=sum(note in evidence for note in reply.direct),
        linked=len(reply.linked),
        found=sum(note in evidence for note in (*reply.direct, *reply.linked)),
        shown=sum(note in evidence for note in reply.shown),
        tokens=reply.tokens,
        seconds=reply.seconds,
    )


def places(done: Run, collections: Sequence[Collection]) -> list[dict[str, Any]]:
    """Each question with the place of each item of its evidence, as data."""
    return [
        _places(collection, question, done.replies[collection.name][question.number], done.holders[collection.name])
        for collection in collections
        for question in (*collection.answerable, *collection.traps)
    ]


def _places(collection: Collection, question: Question, reply: Reply, holders: Mapping[str, str]) -> dict[str, Any]:
    place = {note: number for number, note in enumerate(reply.exact, 1)}
    found = {*reply.direct, *reply.linked}
    return {
        "collection": collection.name,
        "number": question.number,
        "kind": question.kind,
        "evidence": {each: place.get(holders[each]) for each in question.evidence},
        "came back": [each for each in question.evidence if holders[each] in found],
        "direct": len(reply.direct),
        "linked": len(reply.linked),
        "tokens": reply.tokens,
        "ms": round(reply.seconds * 1e3, 3),
    }
