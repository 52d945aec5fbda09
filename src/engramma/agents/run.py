"""Whose memory a run of a graph sees: the space and the session, from the run and never from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from langgraph.config import get_config
from langgraph.runtime import get_runtime

from engramma.draft import checked_space
from engramma.errors import EngrammaError, InvalidInput
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


SpaceOf = Space | Callable[[Run], Space]
"""The space of runs that name no user: its name, or a function of the run that says it."""


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


def place_of(run: Run, memory: Memory, space: SpaceOf | None = None, require_user: bool = False) -> Place:
    """The space and the session of a run: the user's, else what ``space`` says, else the memory's own.

    Raises InvalidInput rather than show one user another's memory: for a user id that is empty or can be
    no space, for a ``None`` written under the key ``user_id``, for a key such as ``userId`` where no
    ``space`` is given, for a function that gives no space, and with ``require_user`` for every run
    without a user. An attribute ``user_id`` of a context may be None, which is no user.
    """
    user: Any = run.user_id
    if user is not None:
        return Place(_named(user, f"user_id={user!r}"), run.thread_id)
    _check_without_user(run, memory, space, require_user)
    if space is None:
        return Place(memory.space, run.thread_id)
    named = _asked(space, run) if callable(space) else space
    return Place(_named(named, f"space(run)={named!r}" if callable(space) else f"space={named!r}"), run.thread_id)


def _named(value: Any, source: str) -> Space:
    if isinstance(value, str) and value != value.strip():
        raise InvalidInput(f"{source} has white space around it, so it would be another space than {value.strip()!r}: strip it")
    try:
        return checked_space(_as_space(value))
    except InvalidInput as error:
        hint = "; memory.space is the memory's own" if value is None else ""
        raise InvalidInput(f"{source} names no space: give a text, a whole number, a UUID or a tuple of texts{hint}") from error


def _as_space(named: Any) -> Any:
    """What programs name users by, as a space: numbers and UUIDs as text, what came through JSON as a tuple again."""
    if isinstance(named, UUID) or (isinstance(named, int) and not isinstance(named, bool)):
        return str(named)
    return tuple(named) if isinstance(named, list) else named


def _asked(space: Callable[[Run], Any], run: Run) -> Any:
    """What a function says; that the run lacks what it reads is said in words."""
    try:
        return space(run)
    except EngrammaError:
        raise
    except (KeyError, AttributeError) as error:
        given = ", ".join(sorted(str(name) for name in run.configurable if not str(name).startswith(("__", "checkpoint"))))
        missing = repr(error.args[0]) if isinstance(error, KeyError) and error.args else "'team'"
        raise InvalidInput(
            f"space(run) failed with {error!r}; the run's configurable holds {given or 'nothing'}: "
            f"give the run what the function reads, as in {{'configurable': {{{missing}: …}}}}"
        ) from error


# -- runs without a user


_WITH_USER = "{'configurable': {'user_id': 'ana'}}"


def _check_without_user(run: Run, memory: Memory, space: SpaceOf | None, require_user: bool) -> None:
    """Raise InvalidInput where a run should name a user, or seems to have meant one."""
    wrong = next((name for name in _names(run) if _meant(name)), None)
    if require_user:
        hint = f"it has {wrong!r}: write 'user_id'" if wrong else f"invoke it with {_WITH_USER}, or with a context that has one"
        raise InvalidInput(f"this run names no user, and require_user=True; {hint}")
    if any("user_id" in keys for keys in (run.configurable, _keys(run.context))):
        own = "the memory's own space" if space is None else "the one that space= says"
        raise InvalidInput(
            f"user_id=None names no user: give the user's id, as in {_WITH_USER}. A run for no user in particular, "
            f"which works in {own}, leaves the key 'user_id' out"
        )
    if wrong and space is None:
        raise InvalidInput(
            f"the run has {wrong!r}, which names no user: write 'user_id'. Where {wrong!r} is something else, "
            f"say with space={memory.space!r} where runs without a user work"
        )


def _keys(context: Any) -> Mapping[str, Any]:
    return context if isinstance(context, Mapping) else {}


def _names(run: Run) -> list[str]:
    """What a run's context and configurable call things."""
    attributes = getattr(run.context, "__dict__", {})
    return [str(name) for given in (_keys(run.context), attributes, run.configurable) for name in given]


def _meant(name: str) -> bool:
    """Whether somebody who wrote this name meant ``user_id``: userid, userId, User-ID."""
    return name != "user_id" and name.replace("_", "").replace("-", "").casefold() == "userid"


# -- what is checked before any run


def checked_memory(memory: Any) -> Memory:
    """An open memory. Raises InvalidInput for anything else."""
    if isinstance(memory, Memory):
        return memory
    if isinstance(getattr(memory, "memory", None), Memory):
        raise InvalidInput(f"memory={memory!r:.200} is awaited: give its Memory, which is .memory; agents run it in threads")
    shown = str(memory) if isinstance(memory, str | Path) else "memory.db"
    raise InvalidInput(f"memory={memory!r:.200} is not an open memory: give Memory.open({shown!r})")


def checked_space_of(space: Any) -> SpaceOf | None:
    """What says a space: its name, a function of a run, or None for the memory's own. Raises InvalidInput."""
    if space is None or callable(space):
        return space  # type: ignore[no-any-return]
    try:
        return checked_space(space)
    except InvalidInput as error:
        raise InvalidInput(
            f"space={space!r} is not a space: give a text such as 'team', a tuple of texts, or a function of the run, "
            "such as lambda run: ('team', run.configurable['team'])"
        ) from error
