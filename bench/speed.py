"""add, add_many and search at growing sizes, embedding time excluded."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.corpus import LookupEmbedder, turns
from engramma import Memory
from engramma.analysts.rules import RuleAnalyst

SIZES = (1_000, 10_000)
SAMPLES = 200
QUESTIONS = (
    "Where does Lin live now?",
    "How did we fix the CSRF error on Safari?",
    "小夏现在在哪里上班？",
    "When is the half marathon?",
    "What does the cat eat?",
)


@contextmanager
def memory_of(size: int, embedder: LookupEmbedder) -> Iterator[Memory]:
    """A memory file with ``size`` notes."""
    with tempfile.TemporaryDirectory() as folder:
        with Memory.open(Path(folder) / "memory.db", embedder=embedder, analyst=RuleAnalyst()) as memory:
            memory.add_many(turns(size))
            yield memory


def spread(times: list[float]) -> str:
    """Median, and the 10th and 90th percentile, in milliseconds."""
    cuts = statistics.quantiles(times, n=10)
    return f"{statistics.median(times) * 1e3:6.2f} ms  (p10 {cuts[0] * 1e3:.2f}, p90 {cuts[-1] * 1e3:.2f})"


def timed(action: Callable[[], Any]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _learn(embedder: LookupEmbedder, items: list[dict[str, Any]]) -> None:
    embedder.learn([f"{item['speaker']}: {item['content']}" for item in items])


def run() -> None:
    """Print medians at each size and the ratio of the largest to the smallest."""
    embedder = LookupEmbedder()
    embedder.learn(QUESTIONS)
    adds: dict[int, list[float]] = {}
    searches: dict[int, list[float]] = {}
    for size in SIZES:
        with memory_of(size, embedder) as memory:
            fresh = turns(SAMPLES, seed=size)
            _learn(embedder, fresh)
            memory.search(QUESTIONS[0])
            adds[size] = [timed(lambda item=item: memory.add(**item)) for item in fresh]
            searches[size] = [timed(lambda n=n: memory.search(QUESTIONS[n % 5])) for n in range(SAMPLES)]
    for name, times in (("add", adds), ("search", searches)):
        for size in SIZES:
            print(f"{name:7} at {size:6} notes: {spread(times[size])}")
        small, large = (statistics.median(times[size]) for size in (SIZES[0], SIZES[-1]))
        print(f"{name:7} ratio {SIZES[-1]} to {SIZES[0]}: {large / small:.2f}")


__all__ = ["memory_of", "run", "spread", "timed"]
