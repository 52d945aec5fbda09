"""The commit log read from SQLite: a page of it, one commit, the revisions of a note."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engramma.commit import Commit, Tokens
from engramma.note import CommitId, Note, NoteId, Space
from engramma.store.base import Revision
from engramma.store.rows import NOTE_COLUMNS, from_json, instant, key_space, micros, row_change, row_note, space_key

_COLUMNS = ", ".join(NOTE_COLUMNS)
_NOTE = ", ".join(f"n.{name}" for name in NOTE_COLUMNS)
_MANY = 500  # ids a statement
_LAST = "\U0010ffff"  # after every text that goes on


def by_ids(db: sqlite3.Connection, text: str, ids: Sequence[Any], space: str | None = None) -> list[sqlite3.Row]:
    """Run a statement with ``{}`` for the ids, in runs that SQLite's limit of bound values allows."""
    rows: list[sqlite3.Row] = []
    for start in range(0, len(ids), _MANY):
        some = list(ids[start : start + _MANY])
        marks = ", ".join("?" * len(some))
        values = some if space is None else [space, *some]
        rows += db.execute(text.format(marks, space="?"), values).fetchall()
    return rows


def page(
    db: sqlite3.Connection, limit: int | None, space: Space | None, note: NoteId | None, before: int | None,
    actor: str | None, since: datetime | None, until: datetime | None,
) -> list[Commit]:  # fmt: skip
    """Commits, newest first, that match all that is given."""
    texts: list[str] = ["seq < ?"]
    values: list[Any] = [before if before is not None else 2**62]
    for text, value in (("space = ?", None if space is None else space_key(space)), ("at >= ?", since), ("at <= ?", until)):
        if value is not None:
            texts.append(text)
            values.append(micros(value) if isinstance(value, datetime) else value)
    if actor is not None:
        text, more = _actor(actor)
        texts.append(text)
        values += more
    if note is not None:
        texts.append("seq IN (SELECT seq FROM change WHERE note = ? UNION SELECT seq FROM change WHERE other = ?)")
        values += [note, note]
    found = f"SELECT seq FROM commit_log WHERE {' AND '.join(texts)} ORDER BY seq DESC LIMIT ?"
    seqs = [row[0] for row in db.execute(found, [*values, -1 if limit is None else limit])]
    return sorted(commits(db, "seq", seqs), key=lambda commit: -commit.seq)


def _actor(actor: str) -> tuple[str, list[str]]:
    """One actor, or, ending in ":" or "*", all whose name begins so."""
    if not actor.endswith((":", "*")):
        return "actor = ?", [actor]
    start = actor.removesuffix("*")
    return "actor >= ? AND actor < ?", [start, start + _LAST]


def commits(db: sqlite3.Connection, column: str, keys: Sequence[Any]) -> list[Commit]:
    """The commits whose "seq" or "id" is among some keys, in no order."""
    rows = by_ids(db, f"SELECT * FROM commit_log WHERE {column} IN ({{}})", keys)
    changes = by_ids(db, "SELECT * FROM change WHERE seq IN ({}) ORDER BY seq, ord", [row["seq"] for row in rows])
    put = _first_revisions(db, [row["note"] for row in changes if row["kind"] == "PutNote"])
    by_seq: dict[int, list[Any]] = {}
    for row in changes:
        by_seq.setdefault(row["seq"], []).append(row_change(row, put.get(row["note"])))
    return [_commit(row, tuple(by_seq.get(row["seq"], ()))) for row in rows]


def _first_revisions(db: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Note]:
    found = {}
    for table in ("note", "note_history"):
        for row in by_ids(db, f"SELECT {_NOTE} FROM {table} n WHERE n.revision = 1 AND n.id IN ({{}})", ids):
            found[row["id"]] = row_note(row)
    return found


def _commit(row: sqlite3.Row, changes: tuple[Any, ...]) -> Commit:
    tokens = Tokens(row["calls"], row["tokens_in"], row["tokens_out"])
    dropped = tuple(from_json(row["dropped"]))
    base = Commit(CommitId(row["id"]), key_space(row["space"]), instant(row["at"]), row["actor"], row["reason"], changes, tokens)
    return replace(base, dropped=dropped, reverts=row["reverts"] and CommitId(row["reverts"]), seq=row["seq"])


def history(db: sqlite3.Connection, note: NoteId) -> list[Revision]:
    """Every revision of a note that is kept, oldest first."""
    both = f"SELECT {_COLUMNS}, seq FROM note_history UNION ALL SELECT {_COLUMNS}, seq FROM note"
    rows = db.execute(f"SELECT n.seq, {_NOTE} FROM ({both}) n WHERE n.id = ? ORDER BY n.revision", (note,)).fetchall()
    made = {commit.seq: commit for commit in commits(db, "seq", list({row["seq"] for row in rows}))}
    return [Revision(row_note(row), made[row["seq"]]) for row in rows]


def named(db: sqlite3.Connection, start: str, space: Space, limit: int) -> list[CommitId]:
    """The ids of a space's commits that begin with a text, at most so many."""
    text = "SELECT id FROM commit_log WHERE id >= ? AND id < ? AND space = ? ORDER BY id LIMIT ?"
    return [CommitId(row[0]) for row in db.execute(text, (start, start + _LAST, space_key(space), limit))]
