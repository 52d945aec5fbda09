"""What ``stats`` and ``check`` give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engramma.note import Space
from engramma.store.base import Store


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and costs. ``notes`` counts those in sight; ``bytes`` is the size of the file."""

    notes: int
    pending: int
    archived: int
    merged: int
    links: int
    commits: int
    calls: int
    tokens_in: int
    tokens_out: int
    bytes: int
    spaces: Mapping[Space, int]
    path: str
    embedder: str
    analyst: str

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        return self.tokens_in + self.tokens_out

    @property
    def tokens_per_note(self) -> float:
        """Mean tokens per note that ever entered."""
        return self.tokens / max(1, self.notes + self.archived + self.merged)


def stats_of(store: Store, embedder: str, analyst: str, space: Space | None) -> Stats:
    """The statistics of one space, or of all."""
    totals = store.totals(space)
    seen = {state: totals.notes.get(state, 0) for state in ("ready", "pending", "archived", "merged")}
    spaces = {name: count for name, count in store.spaces().items() if space in (None, name)}
    return Stats(
        seen["ready"] + seen["pending"], seen["pending"], seen["archived"], seen["merged"], totals.links, totals.commits,
        totals.calls, totals.tokens_in, totals.tokens_out, totals.bytes, spaces, store.path, embedder, analyst,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tended:
    """What ``tend`` did: notes read, and for forgetting and reflection the proposal or the commit."""

    read: int
    forgotten: Any
    reflected: Any


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of ``Memory.check``."""

    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems
