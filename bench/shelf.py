"""Memory files of growing size, filled once in a run and copied for each part that needs one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from bench.corpus import LookupEmbedder, Turn, passages, turns
from engramma import Memory
from engramma.analysts.rules import RuleAnalyst

SIZES = (1_000, 3_000, 10_000)


class Shelf:
    """``file(size)`` is a fresh copy of a memory with that many notes; ``embedder`` knows their vectors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.embedder = LookupEmbedder()
        self.texts: list[Turn] = []
        self.filling: dict[int, float] = {}
        """Seconds that ``add_many`` took to come to a size from the one before."""
        self._copies = 0

    def know(self, items: Sequence[Turn]) -> None:
        """Learn the vectors of some turns ahead of a measurement."""
        self.embedder.learn(passages(items))

    def file(self, size: int) -> Path:
        """A copy of the memory with ``size`` notes, one of SIZES."""
        for wanted in SIZES:
            if wanted <= size and wanted not in self.filling:
                self._grow(wanted)
        self._copies += 1
        return Path(shutil.copy(self._at(size), self.folder / f"{size}-copy-{self._copies}.db"))

    def open(self, size: int) -> Memory:
        """A copy of the memory with ``size`` notes, open, its index built."""
        memory = open_memory(self.file(size), self.embedder)
        memory.search("warm up")
        return memory

    def _at(self, size: int) -> Path:
        return self.folder / f"{size}.db"

    def _grow(self, size: int) -> None:
        print(f"  (filling a memory up to {size:,} notes)", flush=True)
        done = len(self.texts)
        self.texts = turns(size)
        self.know(self.texts[done:])
        if done:
            shutil.copy(self._at(done), self._at(size))
        start = time.perf_counter()
        with open_memory(self._at(size), self.embedder) as memory:
            memory.add_many([{**turn} for turn in self.texts[done:]])
        self.filling[size] = time.perf_counter() - start


def open_memory(path: Path, embedder: LookupEmbedder) -> Memory:
    """A memory that is read by the rules and embedded by look-up."""
    return Memory.open(path, embedder=embedder, analyst=RuleAnalyst())
