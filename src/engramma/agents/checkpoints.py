"""``checkpointer``: a LangGraph checkpoint saver by URL, in memory, in an SQLite file or in PostgreSQL.

    with checkpointer("sqlite:///threads.db") as saver:
        graph = builder.compile(checkpointer=saver)

``async_checkpointer`` does the same for graphs that are awaited. Both set the tables up, so that what is
wrong with a URL shows when it is opened, not in the middle of a run.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from engramma.draft import checked
from engramma.errors import InvalidInput, MissingExtra, StoreBusy, StoreError, StoreFull, StoreReadOnly
from engramma.words import excerpt

Saver = BaseCheckpointSaver[str]

WAIT_SECONDS = 30.0  # for another process that writes the same file, or makes the same tables
CONNECT_SECONDS = 10  # for a server to answer, unless the URL says otherwise
_ACCEPTED = "'memory', 'sqlite:///threads.db' (or a path that ends in .db or .sqlite), 'postgresql://user@host/database'"
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SCHEME = re.compile(r"([A-Za-z][\w+.-]+):(//)?")
_SECRET = re.compile(r"((?:ssl)?password\s*=\s*)('[^']*'|[^&\s]*)", re.IGNORECASE)
_ENCODE = "in a user name or a password write @ as %40, / as %2F, : as %3A and % as %25"

_ADVICE: dict[str, tuple[type[StoreError], str]] = {
    "SQLITE_BUSY": (StoreBusy, f"another process has been writing it for {WAIT_SECONDS:.0f} s; try again"),
    "SQLITE_READONLY": (StoreReadOnly, "check the permissions of the file and its folder"),
    "SQLITE_FULL": (StoreFull, "free some space on its disk"),
}
_OTHERWISE = (StoreError, "give the path of a new file, or of one that was made here, in a folder that can be written")


@contextmanager
def checkpointer(url: str | Path | None = None) -> Iterator[Saver]:
    """A saver for the checkpoints of graphs: None or "memory", an SQLite file, a PostgreSQL server.

    Safe for threads. Any number of processes may open the same file or server. Raises InvalidInput for
    a URL that names no place, StoreError for one that cannot be used, MissingExtra.
    """
    target = _target(url)
    if target.kind == "memory":
        yield InMemorySaver()
        return
    opened = _sqlite(target) if target.kind == "sqlite" else _postgres(target)
    with opened as saver:
        yield saver


@asynccontextmanager
async def async_checkpointer(url: str | Path | None = None) -> AsyncIterator[Saver]:
    """``checkpointer`` for graphs that are awaited (``ainvoke``, ``astream``); the same places and errors."""
    target = _target(url)
    if target.kind == "memory":
        yield InMemorySaver()
        return
    opened = _async_sqlite(target) if target.kind == "sqlite" else _async_postgres(target)
    async with opened as saver:
        yield saver


# -- what a URL names


@dataclass(frozen=True, slots=True)
class _Target:
    """Where checkpoints are kept: a path or a connection URL, and how to show it (without a password)."""

    kind: Literal["memory", "sqlite", "postgres"]
    place: str = ""
    shown: str = ""


def _target(url: Any) -> _Target:
    """What a URL names. Raises InvalidInput for what names nothing."""
    if url is None or url in ("memory", ":memory:"):
        return _Target("memory")
    if not isinstance(url, str | Path) or "\0" in str(url):
        raise _refused(url)
    text, shown = checked("url", str(url)) or "", without_password(str(url))
    found = _SCHEME.match(text) if isinstance(url, str) else None
    scheme, slashes = (found[1].lower(), found[2]) if found else ("", None)
    if slashes and scheme in ("postgresql", "postgres"):
        return _Target("postgres", f"postgresql://{text.partition('://')[2]}", shown)
    if slashes and scheme == "sqlite":
        return _sqlite_target(text, shown)
    if isinstance(url, Path) or (not scheme and text.lower().endswith(_SUFFIXES)):
        return _Target("sqlite", text, text)
    raise _refused(url)


def _refused(url: Any) -> InvalidInput:
    shown = without_password(url) if isinstance(url, str) else url
    return InvalidInput(f"url={shown!r} is no place that checkpoints can be kept in: give {_ACCEPTED}")


def _sqlite_target(url: str, shown: str) -> _Target:
    rest = url.partition("://")[2]
    path = rest.removeprefix("/")
    if path == ":memory:":
        return _Target("memory")
    if not path or path == rest or "?" in path:
        raise InvalidInput(
            f"url={shown!r} names no file: write 'sqlite:///threads.db' for a file in this folder, "
            "'sqlite:////data/threads.db' for a path from the root, and no options"
        )
    return _Target("sqlite", path, shown)


def without_password(url: str) -> str:
    """A URL or a connection string as it may be shown: *** in the place of a password."""
    head, at, tail = url.rpartition("@")
    start = head.find("://") + 3 if "://" in head else 0
    user, colon, _ = head[start:].partition(":")
    safe = f"{head[:start]}{user}:***" if colon else head
    return _SECRET.sub(r"\1***", safe + at + tail)


# -- SQLite


@contextmanager
def _sqlite(target: _Target) -> Iterator[Saver]:
    path, (saver_of, _) = _checked_path(target), _sqlite_savers()
    with closing(_connected(target, path)) as db:
        saver = saver_of(db)
        with _explained(target):
            _when_free(saver.setup)
        yield saver


@asynccontextmanager
async def _async_sqlite(target: _Target) -> AsyncIterator[Saver]:
    path, (_, saver_of) = _checked_path(target), _sqlite_savers()
    import aiosqlite

    await asyncio.to_thread(_make_file, target)
    async with aiosqlite.connect(path, timeout=WAIT_SECONDS) as db:
        yield saver_of(db)


def _make_file(target: _Target) -> None:
    with _sqlite(target):
        pass


def _sqlite_savers() -> tuple[Callable[..., Any], Callable[..., Any]]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    except ImportError as error:
        raise MissingExtra("langgraph-checkpoint-sqlite", "langgraph", "keeping checkpoints in SQLite") from error
    return SqliteSaver, AsyncSqliteSaver


def _checked_path(target: _Target) -> str:
    path = Path(target.place).expanduser()
    if path.is_dir():
        raise StoreError(f"{target.shown!r} is a folder: name a file in it, such as {str(path / 'threads.db')!r}")
    if not path.parent.is_dir():
        raise StoreError(f"{target.shown!r}: there is no folder {str(path.parent)!r}: create it first")
    return str(path)


def _connected(target: _Target, path: str) -> sqlite3.Connection:
    with _explained(target):
        return sqlite3.connect(path, timeout=WAIT_SECONDS, check_same_thread=False)


@contextmanager
def _explained(target: _Target) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        kind, advice = next((_ADVICE[start] for start in _ADVICE if name.startswith(start)), _OTHERWISE)
        raise kind(f"{target.shown!r} cannot keep checkpoints ({error}): {advice}") from error


def _when_free(make: Callable[[], None]) -> None:
    """Make tables, again and again while another process makes the same ones: SQLite does not wait for that."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return make()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(0.02)


# -- PostgreSQL


@contextmanager
def _postgres(target: _Target) -> Iterator[Saver]:
    saver_of = _postgres_savers()[0]
    from psycopg_pool import ConnectionPool

    _set_up(target)
    with ConnectionPool(target.place, open=False, check=ConnectionPool.check_connection, **_pool_settings(target)) as pool:
        yield saver_of(pool)


@asynccontextmanager
async def _async_postgres(target: _Target) -> AsyncIterator[Saver]:
    saver_of = _postgres_savers()[1]
    from psycopg_pool import AsyncConnectionPool

    await asyncio.to_thread(_set_up, target)
    check = AsyncConnectionPool.check_connection
    async with AsyncConnectionPool(target.place, open=False, check=check, **_pool_settings(target)) as pool:
        yield saver_of(pool)


def _postgres_savers() -> tuple[Callable[..., Any], Callable[..., Any]]:
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    except ImportError as error:  # psycopg without its library raises the plain kind
        raise MissingExtra("langgraph-checkpoint-postgres", "postgres", "keeping checkpoints in PostgreSQL") from error
    return PostgresSaver, AsyncPostgresSaver


def _set_up(target: _Target) -> None:
    """Connect once and make the tables, so that what is wrong shows in words of ours and now."""
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    settings = _connection_settings(target)
    try:
        with psycopg.connect(target.place, **settings) as connection:
            _made_together(PostgresSaver(connection).setup)
    except psycopg.Error as error:
        raise StoreError(
            f"{target.shown!r} cannot keep checkpoints ({excerpt(str(error), 300)}): the URL must name a server that runs, "
            "and a database and a user that may make tables there"
        ) from error


def _made_together(make: Callable[[], None]) -> None:
    """Make tables that other processes may be making: what they were faster at is there the next time one looks."""
    from psycopg import errors

    twice = (errors.UniqueViolation, errors.DuplicateObject, errors.DuplicateTable)
    outrun = (*twice, errors.DeadlockDetected, errors.InternalError_)  # the last is "tuple concurrently updated"
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return make()
        except outrun:
            if time.monotonic() > end:
                raise
        time.sleep(random.random() * 0.05)


def _pool_settings(target: _Target) -> dict[str, Any]:
    """One connection, as a saver uses one at a time; a pool makes another when the server has dropped it."""
    return {"min_size": 1, "max_size": 1, "kwargs": _connection_settings(target)}


def _connection_settings(target: _Target) -> dict[str, Any]:
    """What savers want of a connection, and an end to waiting for a server. Raises InvalidInput for a URL that
    PostgreSQL cannot read or reads amiss: its own words could hold parts of the password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.rows import dict_row

    try:
        named = conninfo_to_dict(target.place)
    except ProgrammingError:
        named = {"host": "@"}
    ports = str(named.get("port", "0")).replace(",", "")
    if "@" in f"{named.get('host')}{named.get('dbname')}" or not ports.isdecimal():
        raise InvalidInput(f"url={target.shown!r} is not postgresql://user:password@host:5432/database; {_ENCODE}")
    patience = {} if "connect_timeout" in named else {"connect_timeout": CONNECT_SECONDS}
    return {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, **patience}
