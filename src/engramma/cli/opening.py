"""From the global options to an open memory, and from what people type to ids."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import typer

from engramma.errors import InvalidInput, UnknownId

if TYPE_CHECKING:
    import numpy as np

    from engramma.commit import Commit
    from engramma.memory import Memory
    from engramma.note import Note
    from engramma.worker import Pace

SHORTEST_PREFIX = 6
_SHOWN = 3  # of the ids that an ambiguous prefix could mean


@dataclass(frozen=True, slots=True)
class Options:
    """The global options as given; None leaves the choice to the settings."""

    db: str | None = None
    space: str | None = None
    llm: str | None = None
    embedder: str | None = None


def chosen(ctx: typer.Context) -> Options:
    """The global options of this run."""
    return cast("Options | None", ctx.find_object(Options)) or Options()


@contextmanager
def opened(
    ctx: typer.Context, *, catch_up: bool = False, create: bool = False, background: bool | Pace = False
) -> Iterator[Memory]:
    """The memory that the options and settings name; a mistyped path makes one only if ``create``."""
    from engramma.memory import Memory

    given = chosen(ctx)
    with Memory.open(
        given.db, llm=given.llm, embedder=given.embedder, space=given.space, catch_up=catch_up, create=create,
        background=background,
    ) as memory:  # fmt: skip
        yield memory


@dataclass(frozen=True, slots=True)
class _Kept:
    """Stands for the embedder that a file was made with; it is there to be replaced."""

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str], *, kind: str) -> np.ndarray:
        raise InvalidInput(f"{self.name} is being replaced")


@contextmanager
def opened_to_reindex(ctx: typer.Context) -> Iterator[tuple[Memory, str | None]]:
    """The memory whatever its embedder is, and the embedder that it shall have; None for its own."""
    from engramma.memory import Memory
    from engramma.opening import open_store
    from engramma.settings import settings

    given = chosen(ctx)
    force = settings({"db": given.db, "embedder": given.embedder})
    store = open_store(str(force["db"].value))
    try:
        name, dimensions = store.meta("embedder"), store.meta("dimensions")
    finally:
        store.close()
    wanted: str | None = force["embedder"].value
    present: Any = _Kept(name, int(dimensions)) if wanted and name and dimensions else wanted
    with Memory.open(given.db, llm=given.llm, embedder=present, space=given.space, catch_up=False) as memory:
        yield memory, wanted


def note_id(memory: Memory, text: str) -> str:
    """The id of the note that a whole id or a unique beginning of one names."""
    found = _note(memory, text)
    if found is None:
        raise UnknownId(f"there is no note {text!r} in space {memory.space!r}: engramma list shows them")
    return found


def commit_named(memory: Memory, text: str) -> Commit:
    """The commit of this space that a whole id or a unique beginning of one names."""
    found = _commit(memory, text)
    if found is None:
        raise UnknownId(f"there is no commit {text!r} in space {memory.space!r}: engramma log shows them")
    return found


def note_or_commit(memory: Memory, text: str) -> Note | Commit:
    """The note, else the commit, that an id or a beginning of one names."""
    found = _note(memory, text)
    if found is not None:
        return memory.get(found)
    commit = _commit(memory, text)
    if commit is None:
        raise UnknownId(f"there is no note and no commit {text!r} in space {memory.space!r}")
    return commit


def _note(memory: Memory, text: str) -> str | None:
    try:
        return memory.get(text).id
    except UnknownId:
        if len(text) < SHORTEST_PREFIX:
            return None
    start = text.upper()
    where = {"id": {"$gte": start, "$lt": start + "~"}}
    return _only(text, [note.id for note in memory.list(where=where, include=("archived", "merged"))])


def _commit(memory: Memory, text: str) -> Commit | None:
    try:
        found = memory.commit(text.upper())
    except UnknownId:
        return None
    return found if found.space == memory.space else None


def _only(text: str, ids: Sequence[str]) -> str | None:
    if len(ids) > 1:
        more = ", …" if len(ids) > _SHOWN else ""
        raise InvalidInput(f"{text!r} begins {len(ids)} ids ({', '.join(ids[:_SHOWN])}{more}): give more of the one you mean")
    return ids[0] if ids else None


def json_option(name: str, text: str | None) -> dict[str, Any] | None:
    """An option that holds a JSON object. Raises InvalidInput, naming the place of the mistake."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{name}={text!r} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f'{name}={text!r} is not a JSON object such as {{"tags": "bug"}}')
    return value
