"""Background work: notes are read behind ``add``, by threads of this process and by other processes.

The queue is the notes' own ``pending`` state in the store, so a crash loses nothing. A lease says
that somebody reads a note, so that no two pay for it; one that is not renewed runs out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ulid import ULID

from engramma.draft import checked_count
from engramma.errors import InvalidInput, StoreClosed, StoreError
from engramma.note import NoteId, Space
from engramma.store.base import Store
from engramma.store.leases import worker_name
from engramma.write import REST_SECONDS, Progress, Writer

log = logging.getLogger("engramma")
_POLL_SECONDS = 1.0  # after which a worker looks for what other processes have added
_MANY = 32  # notes that an analyst which is not slow is given at once
_LONGEST_WAIT = 0.2  # of one that waits for work to end


@dataclass(frozen=True, slots=True)
class Pace:
    """How background work goes.

    Args:
        threads: calls of the model at once; 0 leaves all reading to other processes (``engramma work``), and needs no model.
        calls_per_minute: the most calls in a minute, of all threads of this process together; None for no limit.
        batch: notes in one call; the analyst's own number if not given. All notes of a call are of one space.
        lease_seconds: for how long a worker that has stopped, on another machine, still holds its notes.
        retry_seconds: the pause before a note that could not be read is tried again; it doubles each time, up to an hour.
    """

    threads: int = 1
    calls_per_minute: float | None = None
    batch: int | None = None
    lease_seconds: float = 30.0
    retry_seconds: float = 30.0

    def __post_init__(self) -> None:
        if checked_count("threads", self.threads) is None:
            raise InvalidInput("threads=None must be a whole number of at least 0")
        checked_count("batch", self.batch, least=1)
        for name in ("calls_per_minute", "lease_seconds", "retry_seconds"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value < float("inf")) and (name, value) != ("calls_per_minute", None):
                raise InvalidInput(f"{name}={value!r} must be a number above 0")


def resolve_pace(wanted: bool | Pace) -> Pace | None:
    """What ``background`` means: False, True for the default pace, or a ``Pace``."""
    if isinstance(wanted, Pace):
        return wanted
    if isinstance(wanted, bool):
        return Pace() if wanted else None
    raise InvalidInput(f"background={wanted!r} must be True, False, or engramma.Pace(threads=2)")


@dataclass(frozen=True, slots=True)
class Step:
    """One batch: the notes that were read, and those that could not be."""

    read: int
    failed: int


class Reader:
    """Takes notes that wait, a batch at a time, reads them, and gives them back. Safe for threads."""

    def __init__(self, store: Store, writer: Writer, pace: Pace) -> None:
        self._store, self._writer, self._pace = store, writer, pace
        self.name = worker_name(str(ULID()))
        self._last: Space | None = None
        self._free_at = 0.0
        self._lock = threading.Lock()

    def step(self, limit: int | None = None) -> Step | None:
        """Read the next batch, of at most so many notes; None when no note is free."""
        most = self._pace.batch or (self._writer.batch if self._writer.slow else _MANY)
        until = self._until()
        ids = self._store.claim(self.name, until, most if limit is None else min(most, limit), self._last)
        if ids:
            log.debug("%s takes note %s", self.name, ", ".join(ids))
        return self.read(ids) if ids else None

    def now(self, ids: Sequence[NoteId]) -> None:
        """Read some notes, as far as nobody else does."""
        if ids and (leased := self._store.claim(self.name, self._until(), len(ids), ids=ids)):
            self.read(leased)

    def read(self, ids: Sequence[NoteId]) -> Step:
        """Read notes that are leased already."""
        failed: list[NoteId] = list(ids)
        try:
            with self._held():
                for note in self._store.notes(ids[:1], vectors=False).values():  # none, if it was removed for good meanwhile
                    self._last = note.space
                self._writer.read(ids)
            failed = [note.id for note in self._store.notes(ids, vectors=False).values() if note.state == "pending"]
        finally:
            self._store.release(self.name, [one for one in ids if one not in failed])
            self._store.release(self.name, failed, retry=timedelta(seconds=self._pace.retry_seconds))
        return Step(len(ids) - len(failed), len(failed))

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The leases are renewed, however long a model takes."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(self._pace.lease_seconds / 3):
                try:
                    self._store.renew(self.name, self._until())
                except StoreError as error:
                    log.warning("leases could not be renewed: %s", error)

        thread = threading.Thread(target=renew, name="engramma-leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _until(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._pace.lease_seconds)

    def turn(self) -> float:
        """Seconds to wait before the next call, which is booked; ``give_back`` what was not made."""
        if self._pace.calls_per_minute is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            at = max(now, self._free_at)
            self._free_at = at + 60.0 / self._pace.calls_per_minute
            return at - now

    def give_back(self) -> None:
        """A call that was booked and not made: somebody else has read what waited."""
        if self._pace.calls_per_minute is not None:
            with self._lock:
                self._free_at -= 60.0 / self._pace.calls_per_minute

    def all(self, limit: int | None, progress: Progress | None, total: int) -> int:
        """Read what is free now, in this thread; how many notes were read. A model that is down is asked once."""
        self._store.forgive()
        read = seen = 0
        while (limit is None or seen < limit) and (done := self.step(None if limit is None else limit - seen)):
            read, seen = read + done.read, seen + done.read + done.failed
            if progress:
                progress(min(seen, total), total)
            if not done.read and self._writer.resting:
                break
        return read


class Worker:
    """Threads that read behind ``add`` until they are stopped."""

    def __init__(self, store: Store, writer: Writer, reader: Reader, pace: Pace) -> None:
        self._store, self._writer, self._reader, self._pace = store, writer, reader, pace
        self._more = threading.Condition()
        self._stopping = threading.Event()
        self._busy = self._woken = 0
        names = [f"engramma-reader-{number}" for number in range(pace.threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    @property
    def threads(self) -> int:
        """How many threads read."""
        return len(self._threads)

    def start(self) -> None:
        """Begin, with what could not be read before as well."""
        self._store.forgive()
        for thread in self._threads:
            thread.start()

    def wake(self, ids: Sequence[NoteId] = ()) -> None:
        """Say that there is something to read."""
        with self._more:
            self._woken += 1
            self._more.notify_all()

    def stop(self) -> None:
        """End after the calls that are under way. What still waits stays with the store, for the next worker."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to read, but what could not be read; False when the time was over first."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._busy or self._store.waiting():
            left = None if end is None else end - time.monotonic()
            over = left is not None and left <= 0
            dead = self._threads and not any(thread.is_alive() for thread in self._threads)
            if over or dead or self._stopping.is_set():
                return False
            with self._more:
                self._more.wait(_LONGEST_WAIT if left is None else min(_LONGEST_WAIT, left))
        return True

    def _work(self) -> None:
        while not self._stopping.is_set():
            woken = self._woken
            try:
                done = self._next()
            except StoreClosed:
                return
            except StoreError as error:  # a full disk, say: the notes wait in the store
                log.warning("background reading pauses: %s", error)
                self._stopping.wait(self._pace.retry_seconds)
                continue
            if done is None:
                with self._more:
                    self._more.wait_for(lambda: self._woken != woken or self._stopping.is_set(), _POLL_SECONDS)  # noqa: B023
            elif self._writer.resting:
                self._stopping.wait(min(REST_SECONDS, self._pace.retry_seconds))

    def _next(self) -> Step | None:
        """Read one batch at its turn."""
        if not self._store.waiting() or self._stopping.wait(self._reader.turn()):
            return None
        with self._more:
            self._busy += 1
        try:
            if (done := self._reader.step()) is None:
                self._reader.give_back()
            return done
        finally:
            with self._more:
                self._busy -= 1
                self._more.notify_all()
