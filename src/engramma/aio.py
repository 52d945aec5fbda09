"""``AsyncMemory``: the verbs of ``Memory``, awaited.

One implementation, two ways to call it: each verb runs the method of the same name in a thread. The
threads belong to the object, so the loop's own stay free, and nobody else's work stands before ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

from engramma.analysts.base import Analyst
from engramma.commit import Commit
from engramma.draft import checked_count
from engramma.errors import InvalidInput, StoreClosed
from engramma.filters import Where
from engramma.memory import Blames, Commits, FadedNotes, Insights, Memory, Mergers, Notes, Revisions, Spaces
from engramma.note import Link, Note, Space
from engramma.past import Moment
from engramma.recall import Hits
from engramma.report import Check, Stats, Step, Tended
from engramma.scoring import WEIGHTS, Weights
from engramma.store.base import Folded
from engramma.upkeep import forget as forgetting
from engramma.worker import Pace
from engramma.write import Progress

log = logging.getLogger("engramma")

P = ParamSpec("P")
T = TypeVar("T")


class AsyncMemory:
    """A ``Memory`` whose verbs are awaited. Make one with ``AsyncMemory.open``, or of an open memory.

    Verbs that look and verbs that change have ``threads`` threads each, so that a search does not wait
    for additions that a slow model reads. What is awaited at the same time is done in any order.

    An await that is cancelled ends at once. Work that has not begun is dropped; work that has begun goes
    on to its end, or, where a verb takes ``progress``, to its next step. Either way the memory is sound.
    ``progress`` is called on the loop's thread; models, embedders and rerankers are called in ours.
    Any number of event loops, each in a thread of its own, may share one object.
    """

    def __init__(self, memory: Memory, *, threads: int = 4) -> None:
        if not isinstance(memory, Memory):
            raise InvalidInput(f"memory={memory!r} is not an open Memory: AsyncMemory.open({memory!r}) opens a file")
        if checked_count("threads", threads, least=1) is None:
            raise InvalidInput("threads=None must be a whole number of at least 1")
        self.memory = memory
        self._threads = threads
        self._closing: Future[None] | None = None
        self._renew()
        _ALL.add(self)

    def _renew(self) -> None:
        self._lock = Lock()
        self._looking = ThreadPoolExecutor(self._threads, "engramma-look")
        self._changing = ThreadPoolExecutor(self._threads, "engramma-change")

    @classmethod
    def open(
        cls, path: str | Path | None = None, *, llm: Any = None, embedder: Any = None, space: Space | None = None,
        analyst: Analyst | None = None, catch_up: bool = True, create: bool = True, reindex: bool | Progress = False,
        weights: Weights = WEIGHTS, background: bool | Pace = False,
    ) -> Opening:  # fmt: skip
        """``Memory.open``, awaited, or entered: ``async with AsyncMemory.open(…) as memory``.

        Cancelled, it closes again what it has opened; ``reindex`` stops at its next step and can be resumed.
        """

        def opened(told: _Told) -> Memory:
            return Memory.open(
                path, llm=llm, embedder=embedder, space=space, analyst=analyst, catch_up=catch_up, create=create,
                reindex=reindex is not False and told, weights=weights, background=background,
            )  # fmt: skip

        return Opening(cls._opened(opened, reindex if callable(reindex) else None))

    @classmethod
    async def _opened(cls, opened: Callable[[_Told], Memory], progress: Progress | None) -> Self:
        told = _Told(progress)
        return cls(await _result(_in_a_thread(partial(opened, told)), told, _let_go))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncMemory({self.memory!r})"

    @property
    def path(self) -> str:
        """The file the memory lies in."""
        return self.memory.path

    @property
    def space(self) -> Space:
        """The space of what names none."""
        return self.memory.space

    @property
    def works(self) -> bool:
        """Whether background work in this process reads the notes that wait."""
        return self.memory.works

    # -- write

    async def add(
        self, content: str, *, speaker: str | None = None, session: str | None = None, at: datetime | str | None = None,
        space: Space | None = None, tags: Sequence[str] = (), keywords: Sequence[str] = (), category: str | None = None,
        importance: int | None = None, metadata: Mapping[str, Any] | None = None, key: str | None = None,
        pinned: bool = False, expires_at: datetime | str | None = None, distinct: bool = False,
        priority: int | None = None,
    ) -> Note:  # fmt: skip
        """``Memory.add``, awaited. Cancelled, the note is wholly there or not at all."""
        return await self._change(
            self.memory.add, content, speaker=speaker, session=session, at=at, space=space, tags=tags, keywords=keywords,
            category=category, importance=importance, metadata=metadata, key=key, pinned=pinned, expires_at=expires_at,
            distinct=distinct, priority=priority,
        )  # fmt: skip

    async def add_many(self, items: Iterable[str | Mapping[str, Any] | Note], *, progress: Progress | None = None) -> Notes:
        """``Memory.add_many``, awaited. Cancelled, it stops at the next note, with a model at the next 32; what was
        stored stays. ``items`` is read to its end on the loop's thread before anything else."""
        given = list(items) if isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping) else items
        return await self._in_steps(progress, lambda told: self.memory.add_many(given, progress=told))

    async def update(self, note: Note | str, **fields: Any) -> Note:
        """``Memory.update``, awaited."""
        return await self._change(self.memory.update, note, **fields)

    async def delete(self, note: Note | str) -> Commit:
        """``Memory.delete``, awaited."""
        return await self._change(self.memory.delete, note)

    async def purge(self, note: Note | str) -> Commit:
        """``Memory.purge``, awaited."""
        return await self._change(self.memory.purge, note)

    async def delete_space(self, space: Space) -> Commit | None:
        """``Memory.delete_space``, awaited."""
        return await self._change(self.memory.delete_space, space)

    async def link(
        self, source: Note | str, target: Note | str, *, kind: str = "related", reason: str = "", strength: float = 0.8
    ) -> Link:
        """``Memory.link``, awaited."""
        return await self._change(self.memory.link, source, target, kind=kind, reason=reason, strength=strength)

    async def unlink(self, source: Note | str, target: Note | str, *, kind: str | None = None) -> Commit:
        """``Memory.unlink``, awaited."""
        return await self._change(self.memory.unlink, source, target, kind=kind)

    async def revert(self, commit: Commit | str) -> Commit:
        """``Memory.revert``, awaited."""
        return await self._change(self.memory.revert, commit)

    @overload
    async def merge(self, notes: Sequence[Note | str], *, dry_run: None = None, max_calls: int | None = None) -> Commit:
        """By hand: the commit."""

    @overload
    async def merge(
        self, notes: Sequence[Note | str] | None = None, *, dry_run: bool | None = None, max_calls: int | None = None
    ) -> Mergers | Commit | None:
        """Found: the proposals, or the commit of them."""

    async def merge(
        self, notes: Sequence[Note | str] | None = None, *, dry_run: bool | None = None, max_calls: int | None = None
    ) -> Mergers | Commit | None:
        """``Memory.merge``, awaited."""
        return await self._change(lambda: self.memory.merge(notes, dry_run=dry_run, max_calls=max_calls))

    async def forget(
        self, *, dry_run: bool = True, threshold: float = forgetting.THRESHOLD, purge_after: timedelta | str | None = None,
        now: datetime | str | None = None,
    ) -> FadedNotes | Commit | None:  # fmt: skip
        """``Memory.forget``, awaited."""
        return await self._change(
            self.memory.forget, dry_run=dry_run, threshold=threshold, purge_after=purge_after, now=now
        )  # fmt: skip

    async def reflect(self, *, dry_run: bool = True, max_calls: int | None = None) -> Insights | Commit | None:
        """``Memory.reflect``, awaited."""
        return await self._change(self.memory.reflect, dry_run=dry_run, max_calls=max_calls)

    async def tend(
        self, *, dry_run: bool = False, only: str | Iterable[str] | None = None, max_calls: int | None = None,
        max_seconds: float | None = None, threshold: float = forgetting.THRESHOLD,
        purge_after: timedelta | str | None = None, progress: Callable[[Step], None] | None = None,
    ) -> Tended:  # fmt: skip
        """``Memory.tend``, awaited. ``progress`` is called in the thread that works."""
        return await self._change(
            self.memory.tend, dry_run=dry_run, only=only, max_calls=max_calls, max_seconds=max_seconds, threshold=threshold,
            purge_after=purge_after, progress=progress,
        )  # fmt: skip

    # -- read

    async def search(
        self, query: str, *, k: int = 10, space: Spaces | None = None, where: Where | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None, as_of: Moment = None,
        expand: bool = True, min_relevance: float | None = None, include: Iterable[str] = (), rerank: Any = None,
    ) -> Hits:  # fmt: skip
        """``Memory.search``, awaited."""
        return await self._look(
            self.memory.search, query, k=k, space=space, where=where, since=since, until=until, as_of=as_of, expand=expand,
            min_relevance=min_relevance, include=include, rerank=rerank,
        )  # fmt: skip

    async def get(self, note: Note | str, *, as_of: Moment = None) -> Note:
        """``Memory.get``, awaited."""
        return await self._look(self.memory.get, note, as_of=as_of)

    async def list(
        self, *, where: Where | None = None, limit: int | None = None, as_of: Moment = None, space: Spaces | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None, include: Iterable[str] = (),
        newest_first: bool = False,
    ) -> Notes:  # fmt: skip
        """``Memory.list``, awaited."""
        return await self._look(
            self.memory.list, where=where, limit=limit, as_of=as_of, space=space, since=since, until=until, include=include,
            newest_first=newest_first,
        )  # fmt: skip

    async def neighbours(self, note: Note | str, *, depth: int = 1) -> Notes:
        """``Memory.neighbours``, awaited."""
        return await self._look(self.memory.neighbours, note, depth=depth)

    async def history(self, note: Note | str) -> Revisions:
        """``Memory.history``, awaited."""
        return await self._look(self.memory.history, note)

    async def blame(self, note: Note | str) -> Blames:
        """``Memory.blame``, awaited."""
        return await self._look(self.memory.blame, note)

    async def log(
        self, *, limit: int | None = 20, space: Spaces | None = None, note: Note | str | None = None, actor: str | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None,
    ) -> Commits:  # fmt: skip
        """``Memory.log``, awaited."""
        return await self._look(self.memory.log, limit=limit, space=space, note=note, actor=actor, since=since, until=until)

    async def commit(self, commit: str) -> Commit:
        """``Memory.commit``, awaited."""
        return await self._look(self.memory.commit, commit)

    async def spaces(self, prefix: Space | None = None) -> dict[Space, int]:
        """``Memory.spaces``, awaited."""
        return await self._look(self.memory.spaces, prefix)

    async def stats(self, *, space: Space | None = None) -> Stats:
        """``Memory.stats``, awaited."""
        return await self._look(self.memory.stats, space=space)

    async def check(self) -> Check:
        """``Memory.check``, awaited."""
        return await self._look(self.memory.check)

    # -- upkeep of the store

    async def catch_up(self, *, limit: int | None = None, progress: Progress | None = None) -> int:
        """``Memory.catch_up``, awaited. Cancelled, it stops after the batch that the model reads."""
        return await self._in_steps(progress, lambda told: self.memory.catch_up(limit=limit, progress=told))

    async def wait(self, timeout: float | None = None) -> bool:
        """``Memory.wait``, awaited."""
        return await self._look(self.memory.wait, timeout)

    async def compact(self, keep: timedelta | str | int = "90d", *, dry_run: bool = False) -> Folded:
        """``Memory.compact``, awaited."""
        return await self._change(self.memory.compact, keep, dry_run=dry_run)

    async def reindex(self, *, embedder: Any = None, progress: Progress | None = None) -> int:
        """``Memory.reindex``, awaited. Cancelled, it stops at the next batch; the next run goes on from there."""
        return await self._in_steps(progress, lambda told: self.memory.reindex(embedder=embedder, progress=told))

    async def export(self, path: str | Path, *, space: Spaces | None = None, progress: Progress | None = None) -> int:
        """``Memory.export``, awaited. Cancelled, the file is written whole or not at all."""
        return await self._in_steps(progress, lambda told: self.memory.export(path, space=space, progress=told))

    async def load(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """``Memory.load``, awaited. Cancelled, it stops at the next batch; what was loaded stays."""
        return await self._in_steps(progress, lambda told: self.memory.load(path, progress=told))

    async def close(self) -> None:
        """Wait for work that is under way, then ``Memory.close``. Closing twice is fine.

        No call is taken from here on. Cancelled, it goes on behind; another ``close`` waits for it.
        """
        await asyncio.shield(asyncio.wrap_future(self._closed()))  # or it could be dropped before its thread begins

    def _closed(self) -> Future[None]:
        with self._lock:
            if self._closing is None:
                self._closing = _in_a_thread(self._close)
            return self._closing

    def _close(self) -> None:
        self._looking.shutdown()
        self._changing.shutdown()
        self.memory.close()

    # -- threads

    async def _look(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._done(self._looking, partial(verb, *args, **kwargs), _Told())

    async def _change(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._done(self._changing, partial(verb, *args, **kwargs), _Told())

    async def _in_steps(self, progress: Progress | None, verb: Callable[[Progress], T]) -> T:
        told = _Told(progress)
        return await self._done(self._changing, partial(verb, told), told)

    async def _done(self, threads: ThreadPoolExecutor, work: Callable[[], T], told: _Told) -> T:
        with self._lock:
            if self._closing is not None:
                raise StoreClosed(f"the memory {self.path!r} was closed: open it again with AsyncMemory.open")
            future = threads.submit(copy_context().run, _outcome, work)
        return await _result(future, told, _heard)


class Opening:
    """A memory that is being opened: await it, or enter it with ``async with``; once, as any coroutine."""

    def __init__(self, opening: Coroutine[Any, Any, AsyncMemory]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._opening.__await__()

    async def __aenter__(self) -> AsyncMemory:
        self._memory = await self._opening
        return self._memory

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        await self._memory.close()


class _Unwanted(Exception):
    """Ends work that nobody waits for any more."""


class _Told:
    """Progress as the work in a thread sees it: calls reach the loop's thread; what happens there ends the work."""

    def __init__(self, progress: Progress | None = None) -> None:
        if iscoroutinefunction(progress):
            raise InvalidInput(f"progress={progress!r} is a coroutine function: give a plain one, it runs on the loop's thread")
        self._progress, self._loop = progress, asyncio.get_running_loop()
        self._error: BaseException | None = None
        self.unwanted = False

    def __call__(self, done: int, total: int) -> None:
        if self.unwanted or self._loop.is_closed():
            raise _Unwanted
        self.complain()
        if self._progress is not None:
            self._loop.call_soon_threadsafe(self._pass_on, self._progress, done, total)

    def _pass_on(self, progress: Progress, done: int, total: int) -> None:
        if self._error is None and not self.unwanted:
            with self:
                progress(done, total)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._error = error
        return isinstance(error, Exception)

    def complain(self) -> None:
        """Raise what the user's function has raised."""
        if self._error is not None:
            raise self._error


async def _result(future: Future[T], told: _Told, left: Callable[[Future[T]], None]) -> T:
    """Wait for work in a thread. Cancelled, ``left`` gets what becomes of it."""
    try:
        result = await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        told.unwanted = True
        future.cancel()
        future.add_done_callback(left)
        raise
    told.complain()
    return result


def _outcome(work: Callable[[], T]) -> T:
    try:
        return work()
    except StopIteration as error:  # no future takes it: the await would never end
        raise RuntimeError(f"StopIteration came out of {work!r}") from error


def _in_a_thread(work: Callable[[], T]) -> Future[T]:
    """Do something in a thread that ends with it."""
    threads = ThreadPoolExecutor(1, "engramma")
    future = threads.submit(copy_context().run, _outcome, work)
    threads.shutdown(wait=False)
    return future


def _heard(future: Future[Any]) -> None:
    """Log why work failed that nobody waits for any more."""
    error = None if future.cancelled() else future.exception()
    if error is not None and not isinstance(error, _Unwanted):
        log.warning("a call that was cancelled failed: %r", error)


def _let_go(future: Future[Memory]) -> None:
    """Close what was opened for somebody who has gone."""
    _heard(future)
    if not future.cancelled() and future.exception() is None:
        future.result().close()


# Threads do not live on in a forked process: the child begins with new ones.
_ALL: weakref.WeakSet[AsyncMemory] = weakref.WeakSet()


def _after_fork() -> None:
    for memory in list(_ALL):
        memory._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
