"""``search`` in one space at growing sizes, embedding excluded; and the first one after opening a file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpus import questions
from bench.figures import Figure, Options, Row, Stopwatch, growth, in_turn, milliseconds
from bench.shelf import SIZES
from engramma import Memory, recall
from engramma.recall import Recall
from engramma.store import SqliteStore
from engramma.store.index import Indexes
from engramma.store.lexicon import Lexicon
from engramma.store.meaning import Meaning

ROUNDS = 150
OPENINGS = 5
TARGET_MS = 5
DIMENSIONS = 384
SMALL, LARGE = SIZES[0], SIZES[-1]
KINDS: dict[str, dict[str, Any]] = {
    "search": {},
    "search, no links followed": {"expand": False},
    "search, a filter that few notes pass": {"where": {"importance": {"$gte": 4}}},
    "search, a filter that most notes pass": {"where": {"importance": {"$gte": 1}}},
    "search, exactly ten hits": {"min_relevance": 0.0},
}
PARTS = {
    "scoring": (recall, "score"),
    "  scoring: words": (Lexicon, "bm25"),
    "  scoring: words of the turns around": (Lexicon, "bm25_around"),
    "  scoring: vectors": (Meaning, "evidence"),
    "choosing": (recall, "choose"),
    "following links": (Recall, "_reached"),
    "reading notes": (SqliteStore, "notes"),
    "asking whether the index is up to date": (Indexes, "of"),
}


def run(options: Options) -> Iterator[Row]:
    """The same questions in turn to both sizes and in every kind."""
    with ExitStack() as stack:
        memories = {size: stack.enter_context(options.shelf.open(size)) for size in (SMALL, LARGE)}
        asked = questions(ROUNDS, options.shelf.texts[:SMALL])
        options.shelf.embedder.learn(asked)
        actions = {
            (name, size): partial(_search, memory, asked, kind)
            for name, kind in KINDS.items()
            for size, memory in memories.items()
        }
        times = in_turn(actions, ROUNDS)
        laps, whole = _laps(memories[LARGE], asked)
    for name in KINDS:
        target = TARGET_MS if name == "search" else None
        yield milliseconds(f"{name}, {SMALL:,} notes", times[name, SMALL])
        yield milliseconds(f"{name}, {LARGE:,} notes", times[name, LARGE], below=target)
    yield growth(f"search, {LARGE:,} to {SMALL:,} notes", times["search", SMALL], times["search", LARGE])
    for name, seconds in laps.items():
        yield milliseconds(f"  at {LARGE:,}, {name}", seconds, remark=f"{sum(seconds) / whole:.0%} of the time")
    yield from _products()
    yield from _first(options.shelf.file(LARGE))


def _search(memory: Memory, asked: list[str], kind: dict[str, Any], number: int) -> None:
    memory.search(asked[number], **kind)


def _laps(memory: Memory, asked: list[str]) -> tuple[dict[str, list[float]], float]:
    """Times within the parts of a search, and the time of all searches."""
    laps: dict[str, list[float]] = defaultdict(list)
    with Stopwatch(PARTS) as watch:

        def search(number: int) -> None:
            memory.search(asked[number])
            for name, seconds in watch.take().items():
                laps[name].append(seconds)

        whole = sum(in_turn({"search": search}, len(asked))["search"])
    return laps, whole


def _products() -> Iterator[Figure]:
    """The one large product of a search, over all cores as BLAS does it and in one thread, in turn."""
    vectors = np.random.default_rng(1).random((LARGE, DIMENSIONS), np.float32)
    ways: dict[str, Callable[[int], object]] = {
        "matmul (BLAS, maybe several threads)": lambda number: vectors @ vectors[number],
        "einsum (one thread)": lambda number: np.einsum("ij,j->i", vectors, vectors[number]),
    }
    for name, seconds in in_turn(ways, ROUNDS).items():
        yield milliseconds(f"  product of {LARGE:,} vectors, {name}", seconds)


def _first(file: Path) -> Iterator[Figure]:
    """Opening and the first search in processes of their own, imports excluded; a second search beside it."""
    command = [sys.executable, "-m", "bench.first", str(file)]
    done = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(OPENINGS)]
    yield milliseconds(f"opening a file of {LARGE:,} notes", [one["open"] for one in done])
    yield milliseconds("first search after opening it", [one["first"] for one in done])
    yield milliseconds("second search", [one["second"] for one in done])
