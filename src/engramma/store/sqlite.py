"""The embedded store: one SQLite file in WAL mode, or one in memory.

One connection behind one lock serves all threads of a process; processes share the file through
SQLite's own locks. Every commit is on disk (fsync) before ``apply`` returns.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np

from engramma.commit import Commit, RemoveNote
from engramma.errors import EmbedderMismatch, NotAMemory, StoreClosed
from engramma.note import CommitId, Link, Note, NoteId, Space
from engramma.store import folding, leases, logbook
from engramma.store.base import Folded, IndexRow, Query, Revision, Totals, Vectors
from engramma.store.check import problems
from engramma.store.connection import connect, file_size, scour, spare_bytes, translated
from engramma.store.logbook import by_ids
from engramma.store.rows import (
    LINK_COLUMNS,
    NOTE_COLUMNS,
    instant,
    key_space,
    micros,
    row_note,
    space_key,
)
from engramma.store.sql_filter import condition, space_range
from engramma.store.writes import vector_rows, write_commit

_NOTE = ", ".join(f"n.{name}" for name in NOTE_COLUMNS)
_LINK = ", ".join(LINK_COLUMNS)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _then(table: str, columns: Sequence[str], as_of: int | None) -> str:
    """The rows of a table as they are, or as they were after a commit."""
    if as_of is None:
        return table
    names = ", ".join([*columns, "seq"])
    return (
        f"(SELECT {names} FROM {table} WHERE seq <= {int(as_of)} UNION ALL "
        f"SELECT {names} FROM {table}_history WHERE seq <= {int(as_of)} AND until > {int(as_of)})"
    )


class SqliteStore:
    """A store in one SQLite file; ``SqliteStore(":memory:")`` lives as long as the object."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = connect(path)
        self._closed = False
        _OPEN.add(self)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self.path):
            if self._closed:
                raise StoreClosed(f"the memory {self.path!r} was closed: open it again with Memory.open")
            if self._db is None:  # let go of for a fork
                self._db = connect(self.path)
            yield self._db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def apply(self, commits: Sequence[Commit], vectors: Vectors, embedder: str | None = None) -> list[Commit]:
        with self._transaction() as db:
            model = _model(db)
            if vectors and embedder is not None:
                _check_embedder(db, embedder)
            applied = [write_commit(db, commit, vectors, model) for commit in commits]
        if any(isinstance(change, RemoveNote) for commit in commits for change in commit.changes):
            self._scour()
        return applied

    def _scour(self) -> None:
        """Write the file anew, so that no word of what was removed is left in it or beside it."""
        with self._open() as db:
            scour(db, self.path)

    def notes(self, ids: Iterable[NoteId], as_of: int | None = None, *, vectors: bool = True) -> dict[NoteId, Note]:
        wanted = list(dict.fromkeys(ids))
        with self._open() as db:
            table = _then("note", ["num", *NOTE_COLUMNS], as_of)
            rows = by_ids(db, f"SELECT {_NOTE} FROM {table} n WHERE n.id IN ({{}})", wanted)
            linked = _grouped(self.links(wanted, as_of))
            means = self._mean_vectors(db, rows) if vectors else {}
            uses = {row["note"]: row for row in by_ids(db, "SELECT * FROM note_use WHERE note IN ({})", wanted)}
        found = {}
        for row in rows:
            use = uses.get(row["id"])
            more = {"uses": use["uses"], "used_at": instant(use["used_at"])} if use else {}
            note_links = tuple(linked.get(row["id"], ()))
            found[NoteId(row["id"])] = row_note(row, links=note_links, vector=means.get(row["id"]), **more)
        return found

    def _mean_vectors(self, db: sqlite3.Connection, rows: Sequence[sqlite3.Row]) -> dict[str, np.ndarray]:
        revisions = {row["id"]: row["revision"] for row in rows}
        text = (
            f"SELECT note, revision, data FROM vector WHERE model = {_model(db)} AND note IN ({{}}) ORDER BY note, revision, part"
        )
        means = {}
        for (note, revision), group in groupby(by_ids(db, text, list(revisions)), lambda row: (row["note"], row["revision"])):
            if revision <= revisions[note]:  # the newest content not after the note's revision wins
                means[note] = _mean([unpacked(row["data"]) for row in group])
        return means

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        marks = ", ".join("?" * len(query.spaces))
        texts, values = [f"n.space IN ({marks})"], [space_key(space) for space in query.spaces]
        texts.append(f"n.state IN ({', '.join('?' * len(query.states))})")
        values += list(query.states)
        if query.since is not None or query.until is not None:
            since, until = query.since or _FIRST, query.until or _LAST
            texts.append("n.at BETWEEN ? AND ? OR (n.last_day >= ? AND n.first_day <= ?)")
            values += [micros(since), micros(until), since.toordinal(), until.toordinal()]  # type: ignore[list-item]
        if query.where is not None:
            text, more = condition(query.where)
            texts.append(text)
            values += more
        return " AND ".join(f"({text})" for text in texts), values

    def find(self, query: Query) -> list[Note]:
        where, values = self._where(query)
        order = "DESC" if query.newest_first else "ASC"
        limit = -1 if query.limit is None else query.limit
        table = _then("note", ["num", *NOTE_COLUMNS], query.as_of)
        with self._open() as db:
            rows = db.execute(f"SELECT {_NOTE} FROM {table} n WHERE {where} ORDER BY n.num {order} LIMIT ?", [*values, limit])
            return [row_note(row) for row in rows]

    def matching(self, query: Query) -> set[NoteId]:
        where, values = self._where(query)
        table = _then("note", ["num", *NOTE_COLUMNS], query.as_of)
        with self._open() as db:
            return {NoteId(row[0]) for row in db.execute(f"SELECT n.id FROM {table} n WHERE {where}", values)}

    def links(self, ids: Iterable[NoteId], as_of: int | None = None) -> list[Link]:
        wanted = list(ids)
        table = _then("link", LINK_COLUMNS, as_of)
        found: dict[tuple[str, ...], Link] = {}
        with self._open() as db:
            for column in ("source", "target"):
                for row in by_ids(db, f"SELECT {_LINK} FROM {table} WHERE {column} IN ({{}})", wanted):
                    link = Link(*row)  # the columns are in the order of the fields
                    found[link.ends] = link
        return list(found.values())

    def head(self) -> int:
        with self._open() as db:
            return int(db.execute("SELECT coalesce(max(seq), 0) FROM commit_log").fetchone()[0])

    def seq_at(self, moment: datetime) -> int:
        with self._open() as db:
            return folding.last_before(db, moment)

    def changed(self, space: Space, after: int) -> list[NoteId]:
        text = (
            "SELECT c.note, c.other FROM change c JOIN commit_log l ON l.seq = c.seq WHERE c.seq > :after AND l.space = :space "
            "AND (c.kind NOT IN ('PutLink', 'DropLink') OR c.body LIKE '%\"supersedes\"%') ORDER BY c.seq, c.ord"
        )
        with self._open() as db:
            known = folding.horizon(db)
            if known is not None and after < known[0]:  # what changed since then is not in the log any more
                text = f"SELECT id, NULL FROM note WHERE space = :space UNION ALL SELECT * FROM ({text})"
            rows = db.execute(text, {"after": after, "space": space_key(space)}).fetchall()
        return list(dict.fromkeys(NoteId(note) for row in rows for note in row if note is not None))

    def index_rows(self, space: Space, ids: Sequence[NoteId] | None = None, as_of: int | None = None) -> Iterator[IndexRow]:
        with self._open() as db:
            text = f"SELECT n.num, {_NOTE} FROM {_then('note', ['num', *NOTE_COLUMNS], as_of)} n WHERE n.space = ?"
            if ids is None:
                rows = db.execute(text + " ORDER BY n.num", (space_key(space),)).fetchall()
            else:
                found = by_ids(db, text.replace("?", "{space}") + " AND n.id IN ({})", list(ids), space_key(space))
                rows = sorted(found, key=lambda row: row["num"])
            vectors = self._piece_vectors(db, space, ids)
            replaced = self._superseded(db, space, as_of) if ids is None else self._superseded_of(db, ids, as_of)
        for row in rows:
            kept = [group for revision, group in vectors.get(row["id"], ()) if revision <= row["revision"]]
            data = np.stack([unpacked(piece) for piece in kept[-1]]) if kept else _NOTHING
            yield IndexRow(row_note(row), data, row["id"] in replaced)

    def _piece_vectors(
        self, db: sqlite3.Connection, space: Space, ids: Sequence[NoteId] | None
    ) -> dict[str, list[tuple[int, list[bytes]]]]:
        columns = f"SELECT v.note, v.revision, v.data FROM vector v WHERE v.model = {_model(db)} AND v.note IN"
        if ids is None:
            rows = db.execute(
                f"{columns} (SELECT id FROM note WHERE space = ?) ORDER BY v.note, v.revision, v.part", (space_key(space),)
            ).fetchall()
        else:
            rows = by_ids(db, f"{columns} ({{}}) ORDER BY v.note, v.revision, v.part", list(ids))
        found: dict[str, list[tuple[int, list[bytes]]]] = {}
        for (note, revision), group in groupby(rows, lambda row: (row["note"], row["revision"])):
            found.setdefault(note, []).append((revision, [row["data"] for row in group]))
        return found

    def _superseded(self, db: sqlite3.Connection, space: Space, as_of: int | None) -> set[str]:
        table = _then("link", [*LINK_COLUMNS, "space"], as_of)
        text = f"SELECT target FROM {table} WHERE kind = 'supersedes' AND space = ?"
        return {row[0] for row in db.execute(text, (space_key(space),))}

    def _superseded_of(self, db: sqlite3.Connection, ids: Sequence[NoteId], as_of: int | None) -> set[str]:
        table = _then("link", LINK_COLUMNS, as_of)
        text = f"SELECT target FROM {table} WHERE kind = 'supersedes' AND target IN ({{}})"
        return {row[0] for row in by_ids(db, text, ids)}

    def by_key(self, space: Space, key: str) -> NoteId | None:
        text = "SELECT id FROM note WHERE space = ? AND key = ? AND state <> 'archived'"
        return self._one_id(text, (space_key(space), key))

    def last_of_session(self, space: Space, session: str) -> NoteId | None:
        turns = "SELECT id FROM note n WHERE space = ? AND session = ? AND state <> 'archived'"
        free = "AND NOT EXISTS (SELECT 1 FROM link WHERE target = n.id AND kind = 'follows')"
        values = (space_key(space), session)
        newest = self._one_id(f"{turns} ORDER BY num DESC LIMIT 1", values)
        if newest is None or self._one_id("SELECT source FROM link WHERE target = ? AND kind = 'follows'", (newest,)) is None:
            return newest
        return self._one_id(f"{turns} {free} ORDER BY num DESC LIMIT 1", values) or newest  # a file brought a turn back

    def _one_id(self, text: str, values: tuple[Any, ...]) -> NoteId | None:
        with self._open() as db:
            row = db.execute(text, values).fetchone()
        return None if row is None else NoteId(row[0])

    def pending(self, spaces: Sequence[Space] | None, limit: int) -> list[NoteId]:
        text, values = "SELECT id FROM note WHERE state = 'pending'", []
        if spaces is not None:
            text += f" AND space IN ({', '.join('?' * len(spaces))})"
            values = [space_key(space) for space in spaces]
        with self._open() as db:
            return [NoteId(row[0]) for row in db.execute(f"{text} ORDER BY num LIMIT ?", [*values, limit])]

    def claim(
        self, worker: str, until: datetime, limit: int, after: Space | None = None, ids: Sequence[NoteId] | None = None
    ) -> list[NoteId]:
        last = None if after is None else space_key(after)
        with self._transaction() as db:
            return leases.claim(db, worker, datetime.now(UTC), until, limit, last, ids)

    def renew(self, worker: str, until: datetime) -> None:
        with self._transaction() as db:
            leases.renew(db, worker, until)

    def release(self, worker: str, notes: Sequence[NoteId], *, retry: timedelta | None = None) -> None:
        if notes:
            with self._transaction() as db:
                leases.release(db, worker, notes, datetime.now(UTC), retry)

    def forgive(self) -> None:
        with self._transaction() as db:
            leases.forgive(db)

    def waiting(self) -> bool:
        with self._open() as db:
            return leases.waiting(db, datetime.now(UTC))

    def work(self, space: Space | None = None) -> tuple[int, int]:
        with self._open() as db:
            return leases.counted(db, datetime.now(UTC), None if space is None else space_key(space))

    def history(self, note: NoteId) -> list[Revision]:
        with self._open() as db:
            return logbook.history(db, note)

    def log(
        self, limit: int | None, space: Space | None = None, note: NoteId | None = None, before: int | None = None, *,
        actor: str | None = None, since: datetime | None = None, until: datetime | None = None,
    ) -> list[Commit]:  # fmt: skip
        with self._open() as db:
            return logbook.page(db, limit, space, note, before, actor, since, until)

    def commit(self, commit: CommitId) -> Commit | None:
        with self._open() as db:
            return next(iter(logbook.commits(db, "id", [commit])), None)

    def commits_named(self, start: str, space: Space, limit: int) -> list[CommitId]:
        with self._open() as db:
            return logbook.named(db, start, space, limit)

    def fold(self, until: datetime, *, dry_run: bool = False) -> Folded:
        with self._open() as db:
            size = file_size(db)
            db.execute("BEGIN IMMEDIATE")
            try:
                commits, revisions = folding.fold(db, folding.last_before(db, until))
                spare = spare_bytes(db)
            finally:
                db.execute("ROLLBACK" if dry_run else "COMMIT")
            if not dry_run:
                scour(db, self.path)
                spare = size - file_size(db)
            return Folded(commits, revisions, max(0, spare), dry_run)

    def horizon(self) -> tuple[int, datetime] | None:
        with self._open() as db:
            return folding.horizon(db)

    def spaces(self, prefix: Space | None = None) -> dict[Space, int]:
        where, values = ("", ()) if prefix is None else ("WHERE space >= ? AND space < ?", space_range(prefix))
        text = f"SELECT space, sum(state IN ('pending', 'ready')) AS seen FROM note {where} GROUP BY space ORDER BY space"
        with self._open() as db:
            return {key_space(row["space"]): row["seen"] for row in db.execute(text, values)}

    def totals(self, space: Space | None = None) -> Totals:
        where, values = ("", []) if space is None else (" WHERE space = ?", [space_key(space)])
        with self._open() as db:
            notes = dict(db.execute(f"SELECT state, count(*) FROM note{where} GROUP BY state", values).fetchall())
            links = db.execute(f"SELECT count(*) FROM link{where}", values).fetchone()[0]
            sums = "count(*), coalesce(sum(calls), 0), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0)"
            cost = db.execute(f"SELECT {sums} FROM commit_log{where}", values).fetchone()
            size = file_size(db)
        commits, calls, tokens_in, tokens_out = cost
        by_state = {str(state): count for state, count in notes.items()}
        return Totals(by_state, links, commits, calls, tokens_in, tokens_out, size)

    def use(self, uses: Mapping[NoteId, int], at: datetime) -> None:
        text = (
            "INSERT INTO note_use SELECT id, ?, ? FROM note WHERE id = ? "
            "ON CONFLICT (note) DO UPDATE SET uses = uses + excluded.uses, used_at = excluded.used_at"
        )
        with self._transaction() as db:
            db.executemany(text, [(count, micros(at), note) for note, count in uses.items()])

    def meta(self, key: str) -> str | None:
        with self._open() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, values: Mapping[str, str]) -> None:
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def without_vectors(self, model: int, limit: int) -> list[Note]:
        with self._open() as db:
            return _without_vectors(db, model, limit)

    def put_vectors(self, model: int, vectors: Mapping[tuple[NoteId, int], np.ndarray]) -> None:
        with self._transaction() as db:
            present = _model(db)
            for (note, revision), data in vectors.items():
                since = _content_since(db, note, present if present != model else -1)
                if since <= revision:  # else its content has changed since it was read
                    db.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?)", vector_rows(note, since, model, data))

    def switch_model(self, model: int, meta: Mapping[str, str]) -> bool:
        with self._transaction() as db:
            if _without_vectors(db, model, 1):
                return False
            db.execute("DELETE FROM vector WHERE model <> ?", (model,))
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("model", str(model)), *meta.items()])
            return True

    def check(self) -> list[str]:
        with self._open() as db:
            return problems(db, _model(db))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.let_go()

    def let_go(self) -> None:
        """Close the connection for now; the next use connects again. Waits for a running operation."""
        with self._lock:
            if self._db is not None and (self._closed or self.path != ":memory:"):
                self._db.close()
                self._db = None


# SQLite keeps a process's locks in memory that a fork would copy: two processes would then believe
# in the same locks, and lose commits. So no connection to a file crosses a fork.
_OPEN: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _before_fork() -> None:
    for store in list(_OPEN):
        store.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def _mean(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """The unit vector in the middle of a text's pieces; of one piece, itself."""
    if len(pieces) == 1:
        return pieces[0]
    mean = np.mean(pieces, axis=0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), np.float32)


def unpacked(data: bytes) -> np.ndarray:
    """The vector of a row. Raises NotAMemory where it was damaged."""
    if len(data) % 4:
        raise NotAMemory("a vector of the memory is damaged: run 'engramma reindex'")
    return np.frombuffer(data, "<f4")


_NOTHING = np.zeros((0, 0), np.float32)


def _check_embedder(db: sqlite3.Connection, embedder: str) -> None:
    row = db.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()
    if row is not None and row[0] != embedder:
        raise EmbedderMismatch(f"the memory was embedded anew with {row[0]}, this one still uses {embedder}: open it again")


def _model(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT value FROM meta WHERE key = 'model'").fetchone()
    return int(row[0]) if row else 0


def _without_vectors(db: sqlite3.Connection, model: int, limit: int) -> list[Note]:
    since = "coalesce((SELECT max(revision) FROM vector WHERE note = n.id AND model = :present), 1)"
    there = f"SELECT 1 FROM vector v WHERE v.note = n.id AND v.model = :model AND v.revision >= {since}"
    text = f"SELECT {_NOTE} FROM note n WHERE NOT EXISTS ({there}) LIMIT :limit"
    return [row_note(row) for row in db.execute(text, {"model": model, "present": _model(db), "limit": limit})]


def _content_since(db: sqlite3.Connection, note: str, model: int) -> int:
    """The revision that has held a note's content, by the vectors of the model in force; else the first."""
    query = "SELECT coalesce(max(revision), 1) FROM vector WHERE note = ? AND model = ?"
    return int(db.execute(query, (note, model)).fetchone()[0])


def _grouped(links: Sequence[Link]) -> dict[str, list[Link]]:
    grouped: dict[str, list[Link]] = {}
    for link in links:
        grouped.setdefault(link.source, []).append(link)
        grouped.setdefault(link.target, []).append(link)
    return grouped
