"""Folding the log: what is older than a horizon becomes one commit a space, and earlier revisions go.

The state at the horizon and all that came after it stay as they were; tombstones of what was removed for good stay too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from ulid import ULID

from engramma.commit import FOLDING
from engramma.store.rows import from_json, instant, micros

_SETTING = "horizon"
_TOMBS = "SELECT seq FROM change WHERE kind = 'RemoveNote'"
_OLD = f"seq <= :last AND seq NOT IN ({_TOMBS})"
_MADE = "(SELECT m.seq FROM temp.fold m WHERE m.space = {table}.space)"
_FOLD = (
    f"CREATE TEMP TABLE fold AS SELECT space, max(seq) AS seq, count(*) AS commits, sum(actor = '{FOLDING}') AS folds, "
    f"sum(calls) AS calls, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out FROM commit_log WHERE {_OLD} GROUP BY space"
)
_OLD_VECTORS = (  # of contents that no kept revision of a note has
    "DELETE FROM vector WHERE EXISTS (SELECT 1 FROM vector v WHERE v.note = vector.note AND v.model = vector.model "
    "AND v.revision > vector.revision AND v.revision <= coalesce((SELECT min(h.revision) FROM note_history h "
    "WHERE h.id = vector.note), (SELECT n.revision FROM note n WHERE n.id = vector.note)))"
)


def horizon(db: sqlite3.Connection) -> tuple[int, datetime] | None:
    """The oldest commit that the memory can be asked as of, and its time; None while all history is kept."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (_SETTING,)).fetchone()
    if row is None:
        return None
    value = from_json(row[0])
    return value["seq"], instant(value["at"])


def fold(db: sqlite3.Connection, last: int) -> tuple[int, int]:
    """Fold the commits up to ``last``, inside a transaction; how many commits and earlier revisions went."""
    present = horizon(db)
    if last <= (present[0] if present else 0):
        return 0, 0
    db.execute("DROP TABLE IF EXISTS temp.fold")
    db.execute(_FOLD, {"last": last})
    commits = db.execute("SELECT coalesce(sum(commits - folds), 0) FROM temp.fold").fetchone()[0]
    revisions = sum(_go(db, f"DELETE FROM {table}_history WHERE until <= :last", last) for table in ("note", "link"))
    db.execute(_OLD_VECTORS)
    for table in ("note", "note_history", "link", "link_history"):
        _go(db, f"UPDATE {table} SET seq = {_MADE.format(table=table)} WHERE {_OLD} AND seq <> {_MADE.format(table=table)}", last)
    at = db.execute("SELECT at FROM commit_log WHERE seq = ?", (last,)).fetchone()[0]
    _go(db, f"DELETE FROM change WHERE {_OLD}", last)
    _go(db, f"DELETE FROM commit_log WHERE {_OLD} AND seq NOT IN (SELECT seq FROM temp.fold)", last)
    _mark(db, db.execute("SELECT * FROM temp.fold").fetchall())
    db.execute("DROP TABLE temp.fold")
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SETTING, json.dumps({"seq": last, "at": at})))
    return int(commits), revisions


def _go(db: sqlite3.Connection, text: str, last: int) -> int:
    return db.execute(text, {"last": last}).rowcount


def _mark(db: sqlite3.Connection, folds: Sequence[sqlite3.Row]) -> None:
    """Let the last folded commit of each space stand for all: its time, and what all of them cost."""
    for row in folds:
        at = db.execute("SELECT at FROM commit_log WHERE seq = ?", (row["seq"],)).fetchone()[0]
        reason = f"earlier history, up to {instant(at):%Y-%m-%d %H:%M} UTC, was folded away"
        values = (
            str(ULID.from_datetime(instant(at))),
            FOLDING,
            reason,
            row["calls"],
            row["tokens_in"],
            row["tokens_out"],
            row["seq"],
        )
        db.execute(
            "UPDATE commit_log SET id = ?, actor = ?, reason = ?, calls = ?, tokens_in = ?, tokens_out = ?, dropped = '[]', "
            "reverts = NULL WHERE seq = ?", values,
        )  # fmt: skip


def last_before(db: sqlite3.Connection, moment: datetime) -> int:
    """The newest commit not after a moment; 0 before the first."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM commit_log WHERE at <= ?", (micros(moment),)).fetchone()[0])
