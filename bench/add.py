"""``add`` read by the rules, embedding excluded, at growing sizes; and where its time goes."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from bench.corpus import Turn, turns
from bench.figures import Figure, Options, Row, Stopwatch, growth, in_turn, milliseconds
from bench.shelf import SIZES
from engramma import Memory, nearest
from engramma.analysts.rules import RuleAnalyst
from engramma.recall import Recall
from engramma.store import SqliteStore
from engramma.store.index import Indexes

ROUNDS = 150
TARGET_MS, TARGET_GROWTH = 5, 1.5
PARTS = {
    "neighbours": (Recall, "nearest"),
    "analyst": (RuleAnalyst, "read"),
    "store": (SqliteStore, "apply"),
}
WITHIN = {
    "neighbours: index brought up to date": (Indexes, "of"),
    "neighbours: scoring": (nearest, "draft_totals"),
    "neighbours: reading notes": (SqliteStore, "notes"),
}
Laps = dict[str, list[float]]


def run(options: Options) -> Iterator[Row]:
    """The same turns added to a memory of each size in turn."""
    fresh = turns(ROUNDS + 5, seed=101)
    options.shelf.know(fresh)
    laps: dict[int, Laps] = {size: defaultdict(list) for size in SIZES}
    with ExitStack() as stack:
        memories = {size: stack.enter_context(options.shelf.open(size)) for size in SIZES}
        for memory in memories.values():
            _add_all(memory, fresh[ROUNDS:])
        with Stopwatch({**PARTS, **WITHIN}) as watch:
            actions = {size: partial(_add, memory, fresh, watch, laps[size]) for size, memory in memories.items()}
            times = in_turn({**actions, 0: stack.enter_context(_bare_commits(options.shelf.folder))}, ROUNDS)
    for size in SIZES:
        yield milliseconds(f"add at {size:,} notes", times[size], below=TARGET_MS if size == SIZES[-1] else None)
    yield growth(f"add, {SIZES[-1]:,} to {SIZES[0]:,} notes", times[SIZES[0]], times[SIZES[-1]], below=TARGET_GROWTH)
    yield milliseconds("a bare SQLite commit of one page, on disk", times[0])
    for size in (SIZES[0], SIZES[-1]):
        yield from _shares(size, times[size], laps[size])
    yield from _filling(options.shelf.filling)


def _add_all(memory: Memory, items: list[Turn]) -> None:
    for turn in items:
        memory.add(**turn)


def _add(memory: Memory, fresh: list[Turn], watch: Stopwatch, laps: Laps, number: int) -> None:
    watch.take()
    memory.add(**fresh[number])
    for name, seconds in watch.take().items():
        laps[name].append(seconds)


@contextmanager
def _bare_commits(folder: Path) -> Iterator[Callable[[int], object]]:
    """A transaction of one row in a file of its own, forced to the disk: the least that a store can take."""
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE page (text TEXT)")
        yield lambda number: db.execute("INSERT INTO page VALUES (?)", (f"{number:3900}",))


def _shares(size: int, whole: list[float], laps: Laps) -> Iterator[Figure]:
    """The median time within each part, and its share of all time."""
    total = sum(whole)
    rest = [all_of_it - sum(laps[name][number] for name in PARTS) for number, all_of_it in enumerate(whole)]
    for name, seconds in ((name, laps[name]) for name in PARTS):
        yield _share(size, name, seconds, total)
        for inner in (inner for inner in WITHIN if inner.startswith(name)):
            yield _share(size, f"  {inner}", laps[inner], total)
    yield _share(size, "everything else", rest, total)


def _share(size: int, name: str, seconds: list[float], total: float) -> Figure:
    return milliseconds(f"  at {size:,}, {name}", seconds, remark=f"{sum(seconds) / total:.0%} of the time")


def _filling(filling: Mapping[int, float]) -> Iterator[Figure]:
    earlier = 0
    for size, seconds in filling.items():
        a_note = seconds / (size - earlier) * 1e3
        yield Figure(f"add_many from {earlier:,} to {size:,}, a note", a_note, remark=f"{seconds:.0f} s in all, taken once")
        earlier = size
