"""What ``stats``, ``check`` and ``tend`` give back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from engramma.commit import Commit
from engramma.errors import InvalidInput
from engramma.note import Space
from engramma.store.base import Store


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and costs. ``notes`` counts those in sight; ``bytes`` is the size of the file.

    Of the ``pending`` notes ``reading`` are being read, here or by another process, and ``failed`` could not be
    read before and are tried again.
    """

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
    reading: int = 0
    failed: int = 0

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
        *store.work(space),
    )  # fmt: skip


Part = Literal["read", "conflicts", "merge", "forget", "reflect"]
PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of ``tend``, in the order in which it does them."""


def parts_of(only: str | Iterable[str] | None) -> tuple[Part, ...]:
    """The parts of ``tend`` that are asked for. Raises InvalidInput for another word."""
    wanted = PARTS if only is None else [only] if isinstance(only, str) else list(only)
    if unknown := [part for part in wanted if part not in PARTS]:
        raise InvalidInput(f"only={unknown[0]!r} is no part of upkeep: it takes {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in wanted)


@dataclass(frozen=True, slots=True)
class Step:
    """One part of ``tend``: what it proposes, the commits it made, what it cost, and what is left to do and why."""

    part: Part
    proposals: tuple[Any, ...] = ()
    commits: tuple[Commit, ...] = ()
    read: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    left: str = ""
    failed: bool = False
    """Whether something is left because a model did not answer."""

    @property
    def summary(self) -> str:
        """What is proposed, or was done, in a few words; "" for nothing."""
        if self.commits:
            return "; ".join(commit.reason.partition(": ")[2] for commit in self.commits)
        count = len(self.proposals)
        return f"{count} proposal{'s' if count > 1 else ''}" if count else ""


@dataclass(frozen=True, slots=True)
class Tended:
    """What ``tend`` did, step by step. ``left`` names what a bound, or a model that failed, left undone."""

    steps: tuple[Step, ...]
    dry_run: bool

    def step(self, part: Part) -> Step:
        """The step of one part; an empty one where that part was not asked for."""
        return next((step for step in self.steps if step.part == part), Step(part))

    def _outcome(self, part: Part) -> Any:
        step = self.step(part)
        return list(step.proposals) if self.dry_run else next(iter(step.commits), None)

    @property
    def read(self) -> int:
        """How many notes were read that had waited."""
        return self.step("read").read

    @property
    def conflicts(self) -> Any:
        """What replaces what, and what is disputed: the proposals of a dry run, else the commit, or None."""
        return self._outcome("conflicts")

    @property
    def merged(self) -> Any:
        """What says the same: the proposals of a dry run, else the commit, or None."""
        return self._outcome("merge")

    @property
    def forgotten(self) -> Any:
        """What has faded: the proposals of a dry run, else the commit, or None."""
        return self._outcome("forget")

    @property
    def reflected(self) -> Any:
        """What notes say together: the proposals of a dry run, else the commit, or None."""
        return self._outcome("reflect")

    @property
    def commits(self) -> tuple[Commit, ...]:
        """Every commit that was made, in order."""
        return tuple(commit for step in self.steps for commit in step.commits)

    @property
    def left(self) -> tuple[str, ...]:
        """What was not done, a sentence each."""
        return tuple(f"{step.part}: {step.left}" for step in self.steps if step.left)

    @property
    def failed(self) -> bool:
        """Whether something is left because a model did not answer."""
        return any(step.failed for step in self.steps)

    @property
    def calls(self) -> int:
        """Calls of a model."""
        return sum(step.calls for step in self.steps)

    @property
    def tokens(self) -> int:
        """Prompt and reply tokens together."""
        return sum(step.tokens_in + step.tokens_out for step in self.steps)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of ``Memory.check``."""

    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems
