"""Leases on pending notes: who reads which, so that several workers share the work and none does it twice.

The queue is the notes' own state; a lease only says that somebody is at it. One that is not renewed
runs out, and the note is anybody's again.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from engramma.note import NoteId
from engramma.store.rows import micros

LONGEST_PAUSE = timedelta(hours=1)
_FREE = "n.state = 'pending' AND (l.note IS NULL OR l.until <= :now)"
_WAITING = f"FROM note n LEFT JOIN lease l ON l.note = n.id WHERE {_FREE}"
_FIRST = "n.error IS NOT NULL, coalesce(json_extract(n.given, '$.priority'), n.importance) DESC, n.num"


def worker_name(number: str) -> str:
    """A name for a worker of this process, by which others on this machine see whether it still runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{number}"


def claim(
    db: sqlite3.Connection, worker: str, now: datetime, until: datetime, limit: int, after: str | None, ids: Sequence[str] | None
) -> list[NoteId]:
    """Lease notes of one space that wait: the spaces take turns, in each the most important note comes first.

    A note that could not be read before comes alone, after the others.
    """
    _free_the_dead(db)
    values: dict[str, Any] = {"now": micros(now), "after": after or "", "limit": limit}
    if ids is not None:
        marks = ", ".join(f":id{number}" for number in range(len(ids)))
        rows = db.execute(
            f"SELECT n.id, n.error {_WAITING} AND n.id IN ({marks}) ORDER BY n.num",
            values | {f"id{number}": one for number, one in enumerate(ids)},
        ).fetchall()
    else:
        values["space"] = _next_space(db, values)
        rows = db.execute(
            f"SELECT n.id, n.error {_WAITING} AND n.space = :space ORDER BY {_FIRST} LIMIT :limit", values
        ).fetchall()
        rows = rows[:1] if rows and rows[0]["error"] is not None else [row for row in rows if row["error"] is None]
    put = (
        "INSERT INTO lease VALUES (?, ?, ?, 0) ON CONFLICT (note) DO UPDATE SET worker = excluded.worker, until = excluded.until"
    )
    db.executemany(put, [(row["id"], worker, micros(until)) for row in rows])
    return [NoteId(row["id"]) for row in rows]


def _next_space(db: sqlite3.Connection, values: dict[str, Any]) -> str | None:
    """The next space, in order, where a note waits; after the last one the first again."""
    for more in ("AND n.space > :after", ""):
        row = db.execute(f"SELECT n.space {_WAITING} {more} ORDER BY n.space LIMIT 1", values).fetchone()
        if row is not None:
            return str(row[0])
    return None


def _free_the_dead(db: sqlite3.Connection) -> None:
    """Drop the leases of workers on this machine whose process is gone, and those of notes that wait no more."""
    workers = [str(row[0]) for row in db.execute("SELECT DISTINCT worker FROM lease WHERE worker <> ''")]
    gone = [(worker,) for worker in workers if _is_dead(worker)]
    db.executemany("DELETE FROM lease WHERE worker = ?", gone)
    db.execute("DELETE FROM lease WHERE NOT EXISTS (SELECT 1 FROM note WHERE id = lease.note AND state = 'pending')")


def _is_dead(worker: str) -> bool:
    host, _, rest = worker.rpartition(":")[0].rpartition(":")
    if os.name != "posix" or host != socket.gethostname() or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's, so it runs
        return False
    return False


def renew(db: sqlite3.Connection, worker: str, until: datetime) -> None:
    """Put off the end of all of a worker's leases."""
    db.execute("UPDATE lease SET until = ? WHERE worker = ?", (micros(until), worker))


def release(db: sqlite3.Connection, worker: str, notes: Sequence[NoteId], now: datetime, retry: timedelta | None) -> None:
    """Give notes back: at once, or to be tried again after a pause that doubles each time, up to an hour."""
    if retry is None:
        db.executemany("DELETE FROM lease WHERE note = ? AND worker = ?", [(note, worker) for note in notes])
        return
    pause, longest = (int(span / timedelta(microseconds=1)) for span in (retry, LONGEST_PAUSE))
    again = "until = ? + min(? * (1 << min(tries, 20)), ?), tries = tries + 1"
    text = f"UPDATE lease SET worker = '', {again} WHERE note = ? AND worker = ?"
    db.executemany(text, [(micros(now), pause, longest, note, worker) for note in notes])


def waiting(db: sqlite3.Connection, now: datetime) -> bool:
    """Whether a note is pending and not in a pause."""
    text = (
        "SELECT EXISTS (SELECT 1 FROM note n LEFT JOIN lease l ON l.note = n.id "
        "WHERE n.state = 'pending' AND (l.note IS NULL OR l.worker <> '' OR l.until <= ?))"
    )
    return bool(db.execute(text, [micros(now)]).fetchone()[0])


def forgive(db: sqlite3.Connection) -> None:
    """End the pauses: what could not be read may be tried at once."""
    db.execute("DELETE FROM lease WHERE worker = ''")


def counted(db: sqlite3.Connection, now: datetime, space: str | None) -> tuple[int, int]:
    """How many notes are being read, and how many wait that could not be read before."""
    here, values = ("", []) if space is None else (" AND n.space = ?", [space])
    held = "SELECT count(*) FROM lease l JOIN note n ON n.id = l.note"
    reading = f"{held} WHERE l.worker <> '' AND l.until > ? AND n.state = 'pending'{here}"
    failed = f"SELECT count(*) FROM note n WHERE n.state = 'pending' AND n.error IS NOT NULL{here}"
    return int(db.execute(reading, [micros(now), *values]).fetchone()[0]), int(db.execute(failed, values).fetchone()[0])
