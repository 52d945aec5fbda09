"""One run of upkeep: what it may do, what it has looked at, and what came of a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engramma.commit import Commit
from engramma.models.base import LLM
from engramma.note import Note, Space
from engramma.upkeep.budget import Budget
from engramma.upkeep.near import Pair

RULES = "analyst:rules"


@dataclass(frozen=True, slots=True)
class View:
    """Notes with their links, and a vector for each: float32 (n, d), zero where there is none."""

    notes: list[Note]
    vectors: np.ndarray


@dataclass(slots=True)
class Look:
    """What was seen of a space up to a commit: its notes, and the pairs that are near each other."""

    head: int
    view: View
    pairs: list[Pair]


@dataclass(slots=True)
class Run:
    """One run: in which space, for show only or not, by which model (none: by rules), at what cost."""

    space: Space
    dry_run: bool = True
    llm: LLM | None = None
    budget: Budget = field(default_factory=Budget)
    look: Look | None = None

    @property
    def judge(self) -> str:
        """Who judges: the name of the model, or "rules"."""
        return self.llm.name if self.llm is not None else "rules"

    @property
    def actor(self) -> str:
        """The actor of a commit that this run's judge decides."""
        return f"analyst:{self.judge}"


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one part: the proposals, the commits made of them, what is left to do and why."""

    proposals: Sequence[Any] = ()
    commits: tuple[Commit, ...] = ()
    left: str = ""
    read: int = 0

    def outcome(self, run: Run) -> Any:
        """What a verb gives back: the proposals of a dry run as a list, else the commit that was made, or None."""
        return list(self.proposals) if run.dry_run else next(iter(self.commits), None)


def run_of(
    space: Space, dry_run: bool, analyst: Any, max_calls: int | None = None, max_seconds: float | None = None
) -> Run:  # fmt: skip
    """A run inside some bounds, which asks the model of an analyst, if it has one."""
    return Run(space, dry_run, getattr(analyst, "llm", None), Budget(max_calls, max_seconds))


def counted(number: int, noun: str) -> str:
    """A number and a noun: "1 note", "2 notes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
