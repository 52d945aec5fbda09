"""Whose memory a run of a graph sees: the space and the session, from the run and never from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langgraph.config import get_config
from langgraph.runtime import get_runtime

from engramma.draft import checked_space
from engramma.errors import InvalidInput
from engramma.memory import Memory
from engramma.note import Space


@dataclass(frozen=True, slots=True)
class Run:
    """What a run says of itself: the ``context`` and the ``configurable`` it was invoked with."""

    context: Any = None
    configurable: Mapping[str, Any] = field(default_factory=dict)

    @property
    def user_id(self) -> Any:
        """``context.user_id`` (an attribute or a key), else ``configurable["user_id"]``, else None."""
        own = self.context
        found = own.get("user_id") if isinstance(own, Mapping) else getattr(own, "user_id", None)
        return self.configurable.get("user_id") if found is None else found

    @property
    def thread_id(self) -> str | None:
        """The thread, which is a memory's session; None for a run without one."""
        thread = self.configurable.get("thread_id")
        return None if thread in (None, "") else str(thread)


SpaceOf = Callable[[Run], Space | None]
"""Says which space a run works in that names no user; None leaves it to the memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run reads and writes."""

    space: Space
    session: str | None = None


def current_run(config: Mapping[str, Any] | None = None) -> Run:
    """The run that this is called in, or that of a given config; an empty one outside of any run."""
    try:
        given = config or get_config()
        runtime = get_runtime()
    except RuntimeError:  # langgraph's word for "not in a run"
        given, runtime = config or {}, None
    return Run(getattr(runtime, "context", None), given.get("configurable") or {})


def place_of(run: Run, memory: Memory, space: SpaceOf | None = None) -> Place:
    """The space and the session of a run. Raises InvalidInput for a user id that can be no space.

    A user id that is given but empty is an error: falling back would show one user another's memory.
    """
    user: Any = run.user_id
    named: Any = user if user is not None or space is None else space(run)
    if named is None:
        return Place(memory.space, run.thread_id)
    try:
        return Place(checked_space(_as_space(named)), run.thread_id)
    except InvalidInput as error:
        source = f"space(run)={named!r}" if user is None else f"user_id={user!r}"
        raise InvalidInput(f"{source} names no space: give a text, a whole number, a UUID or a tuple of texts") from error


def _as_space(named: Any) -> Any:
    """What programs name users by, as a space: numbers and UUIDs as text, what came through JSON as a tuple again."""
    if isinstance(named, UUID) or (isinstance(named, int) and not isinstance(named, bool)):
        return str(named)
    return tuple(named) if isinstance(named, list) else named
