"""Applying commits to SQLite: one function a change, inside the store's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from engramma.commit import ArchiveNote, Change, Commit, DropLink, PutLink, PutNote, RemoveNote, ReviseNote
from engramma.errors import Conflict, InvalidInput, StaleRevision, UnknownId
from engramma.note import Link, Note, NoteId
from engramma.store.base import Vectors
from engramma.store.removal import Removed, forget_words, remove_rows
from engramma.store.rows import (
    LINK_COLUMNS,
    NOTE_COLUMNS,
    change_row,
    micros,
    note_row,
    row_link,
    row_note,
    space_key,
    to_json,
)

_NOTE = ", ".join(NOTE_COLUMNS)
_PUT_NOTE = f"INSERT INTO note ({_NOTE}, seq) VALUES ({', '.join(':' + name for name in NOTE_COLUMNS)}, :seq)"
_SET_NOTE = f"UPDATE note SET {', '.join(f'{name} = :{name}' for name in NOTE_COLUMNS)}, seq = :seq WHERE id = :id"
_KEEP_NOTE = f"INSERT INTO note_history (num, {_NOTE}, seq, until) SELECT num, {_NOTE}, seq, ? FROM note WHERE id = ?"
_LINK = ", ".join(LINK_COLUMNS)
_PUT_LINK = f"INSERT OR REPLACE INTO link ({_LINK}, space, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_LINK = (
    f"INSERT INTO link_history ({_LINK}, space, seq, until) "
    f"SELECT {_LINK}, space, seq, ? FROM link WHERE source = ? AND target = ? AND kind = ?"
)
_ONE_LINK = "WHERE source = ? AND target = ? AND kind = ?"
_REVISABLE = frozenset(f.name for f in fields(Note)) - {"id", "space", "created_at", "revision", "links", "vector"}


@dataclass(frozen=True, slots=True)
class Writing:
    """What every change of one commit needs."""

    db: sqlite3.Connection
    seq: int
    space: str
    vectors: Vectors
    model: int
    removed: Removed = field(default_factory=Removed)


def write_commit(db: sqlite3.Connection, commit: Commit, vectors: Vectors, model: int) -> Commit:
    """Write one commit and all its changes; the commit as applied comes back."""
    writing = Writing(db, log_commit(db, commit), space_key(commit.space), vectors, model)
    done = [applied for change in commit.changes if (applied := _apply(writing, change)) is not None]
    log_changes(db, writing.seq, done)
    if writing.removed.ids:
        forget_words(db, writing.seq, writing.space, writing.removed)
    return replace(commit, changes=tuple(done), seq=writing.seq)


def log_commit(db: sqlite3.Connection, commit: Commit) -> int:
    """Write a commit's own row; its sequence number."""
    cost = (commit.tokens.calls, commit.tokens.tokens_in, commit.tokens.tokens_out)
    head = (commit.id, space_key(commit.space), micros(commit.at), commit.actor, commit.reason)
    columns = "id, space, at, actor, reason, calls, tokens_in, tokens_out, dropped, reverts"
    text = f"INSERT INTO commit_log ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    return db.execute(text, (*head, *cost, to_json(commit.dropped), commit.reverts)).lastrowid or 0


def log_changes(db: sqlite3.Connection, seq: int, changes: Sequence[Change]) -> None:
    """Write what a commit changed, with what that replaced."""
    rows = [(seq, ord_, *change_row(change)) for ord_, change in enumerate(changes)]
    db.executemany("INSERT INTO change (seq, ord, kind, note, other, body) VALUES (?, ?, ?, ?, ?, ?)", rows)


def keep_note(writing: Writing, note: NoteId) -> None:
    """Keep a note as it is, before this commit revises it."""
    writing.db.execute(_KEEP_NOTE, (writing.seq, note))


def keep_link(writing: Writing, ends: tuple[NoteId, NoteId, str]) -> None:
    """Keep a link as it is, before this commit changes or drops it."""
    writing.db.execute(_KEEP_LINK, (writing.seq, *ends))


def _apply(writing: Writing, change: Change) -> Change | None:
    apply: Callable[[Writing, Any], Change | None] = _APPLY[type(change)]
    return apply(writing, change)


def _put_note(writing: Writing, change: PutNote) -> Change:
    if space_key(change.note.space) != writing.space:
        raise Conflict(f"note {change.note.id!r} belongs in space {change.note.space!r}, the commit is about another")
    try:
        writing.db.execute(_PUT_NOTE, note_row(change.note) | {"seq": writing.seq})
    except sqlite3.IntegrityError as error:
        if "note.key" in str(error):
            raise Conflict(f"key {change.note.key!r} is in use in space {change.note.space!r}") from error
        raise Conflict(f"note {change.note.id!r} is there already") from error
    _put_vectors(writing, change.note.id, change.note.revision)
    return change


def _put_vectors(writing: Writing, note: NoteId, revision: int) -> None:
    rows = vector_rows(note, revision, writing.model, writing.vectors.get(note))
    writing.db.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?)", rows)


def vector_rows(note: str, revision: int, model: int, vectors: np.ndarray | None) -> list[tuple[str, int, int, int, bytes]]:
    """The rows of table vector for one content of a note."""
    if vectors is None:
        return []
    return [(note, revision, model, part, vector.astype("<f4").tobytes()) for part, vector in enumerate(vectors)]


def _present(writing: Writing, note_id: NoteId) -> Note:
    row = writing.db.execute(f"SELECT {_NOTE} FROM note WHERE id = ?", (note_id,)).fetchone()
    if row is None:
        raise UnknownId(f"there is no note {note_id!r}")
    if row["space"] != writing.space:
        raise Conflict(f"note {note_id!r} is in another space than the commit: a space is a wall")
    return row_note(row)


def _revise(writing: Writing, change: ReviseNote) -> Change:
    note = _present(writing, change.note)
    if unknown := set(change.after) - _REVISABLE:
        raise InvalidInput(f"a note has no field {sorted(unknown)[0]!r} that can be revised")
    before = _rewrite(writing, note, change.expects, change.after)
    if note.id in writing.vectors:
        _put_vectors(writing, note.id, note.revision + 1)
    elif {"content", "speaker"} & set(change.after):
        _take_back_vectors(writing, replace(note, **change.after, revision=note.revision + 1))
    return replace(change, before=before)


def _take_back_vectors(writing: Writing, note: Note) -> None:
    """Give a note that has an earlier content again, as after a revert, the vectors it had then."""
    then = "SELECT max(revision) FROM note_history WHERE id = :id AND content = :content AND speaker IS :speaker"
    kept = f"SELECT max(revision) FROM vector WHERE note = :id AND model = :model AND revision <= ({then})"
    copied = f"SELECT note, :revision, model, part, data FROM vector WHERE note = :id AND model = :model AND revision = ({kept})"
    values = {"id": note.id, "content": note.content, "speaker": note.speaker, "model": writing.model, "revision": note.revision}
    writing.db.execute(f"INSERT OR REPLACE INTO vector {copied}", values)


def _archive(writing: Writing, change: ArchiveNote) -> Change:
    note = _present(writing, change.note)
    query = "SELECT 1 FROM link WHERE source = :note OR target = :note"
    if writing.db.execute(query, {"note": note.id}).fetchone():
        raise Conflict(f"note {note.id!r} was linked meanwhile: its links go first, or would point to nothing")
    return replace(change, before=_rewrite(writing, note, change.expects, {"state": "archived"}))


def _rewrite(writing: Writing, note: Note, expects: int, after: Mapping[str, Any]) -> dict[str, Any]:
    if note.revision != expects:
        raise StaleRevision(f"note {note.id!r} is at revision {note.revision}, the change was decided on {expects}")
    keep_note(writing, note.id)
    revised = replace(note, **after, revision=note.revision + 1)
    try:
        writing.db.execute(_SET_NOTE, note_row(revised) | {"seq": writing.seq})
    except sqlite3.IntegrityError as error:
        raise Conflict(f"key {revised.key!r} is in use in space {revised.space!r}") from error
    return {name: getattr(note, name) for name in after}


def _remove(writing: Writing, change: RemoveNote) -> Change:
    """Every row of the note goes; what others quote of it goes when all changes are written."""
    query = "SELECT 1 FROM note WHERE id = ? AND space = ?"
    if writing.db.execute(query, (change.note, writing.space)).fetchone() is None:
        raise UnknownId(f"there is no note {change.note!r}")
    remove_rows(writing.db, change.note, writing.removed)
    return change


def stored_link(db: sqlite3.Connection, source: str, target: str, kind: str) -> Link | None:
    """The link with these ends and kind as it is now."""
    row = db.execute(f"SELECT {_LINK} FROM link {_ONE_LINK}", (source, target, kind)).fetchone()
    return None if row is None else row_link(row)


def _put_link(writing: Writing, change: PutLink) -> Change:
    link = change.link
    if link.source == link.target:
        raise InvalidInput(f"a note cannot be linked to itself: {link.source!r}")
    for end in (link.source, link.target):
        if _present(writing, end).state == "archived":
            raise Conflict(f"note {end!r} was deleted: a link would point to nothing")
    before = stored_link(writing.db, *link.ends)
    if link.kind == "follows" and before is None:
        _check_last_turn(writing, link)
    put = replace(link, revision=before.revision + 1 if before else _next_revision(writing, link))
    if before:
        keep_link(writing, link.ends)
    writing.db.execute(_PUT_LINK, (*(getattr(put, name) for name in LINK_COLUMNS), writing.space, writing.seq))
    return replace(change, link=put, before=before)


def _check_last_turn(writing: Writing, link: Link) -> None:
    """A turn has one successor: two writers of a session must not both follow the same turn."""
    query = "SELECT source FROM link WHERE target = ? AND kind = 'follows'"
    if (row := writing.db.execute(query, (link.target,)).fetchone()) is not None:
        raise Conflict(f"note {link.target!r} is followed by {row[0]!r} already")


def _next_revision(writing: Writing, link: Link) -> int:
    """A link that comes back goes on counting where it was dropped."""
    query = f"SELECT coalesce(max(revision), 0) + 1 FROM link_history {_ONE_LINK}"
    return int(writing.db.execute(query, link.ends).fetchone()[0])


def _drop_link(writing: Writing, change: DropLink) -> Change | None:
    ends = (change.source, change.target, change.kind)
    before = stored_link(writing.db, *ends)
    if before is None:
        return None  # gone already: nothing to record
    keep_link(writing, ends)
    writing.db.execute(f"DELETE FROM link {_ONE_LINK}", ends)
    return replace(change, before=before)


_APPLY: dict[type, Callable[..., Change | None]] = {
    PutNote: _put_note, ReviseNote: _revise, ArchiveNote: _archive,
    RemoveNote: _remove, PutLink: _put_link, DropLink: _drop_link,
}  # fmt: skip
