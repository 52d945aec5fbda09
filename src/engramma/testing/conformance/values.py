"""Notes, commits and short ways to write and find them, for the conformance tests."""

from __future__ import annotations

import zlib
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
from ulid import ULID

from engramma.commit import Change, Commit, PutNote, ReviseNote
from engramma.filters import Where, parse
from engramma.note import CommitId, Note, NoteId, SaidDate, Space
from engramma.store.base import Query, Store

HOME: Space = "home"
EVERY_STATE = ("pending", "ready", "archived", "merged")
START = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
SPACES: tuple[Space, ...] = (
    "team", "team ", "Team", "team/a", "team%", "team_", "te", ("team",), ("team", "a"), ("team/a",), ("team", "a", "b"),
    ("", "team"), '["team"]', '"team"', "[", "{}", "*", "'; DROP TABLE note; --", "\\", "é", "e\u0301", "记忆", ("记忆", "😀"),
    "\n",
)  # fmt: skip


def a_note(content: str = "a text", space: Space = HOME, **more: Any) -> Note:
    """A note with a new id; ``more`` are any of its fields."""
    values: dict[str, Any] = {"id": NoteId(str(ULID())), "at": START, "created_at": START, **more}
    return Note(space=space, content=content, **values)


def a_full_note() -> Note:
    """A note with a value in every field that a store keeps."""
    there = timezone(timedelta(hours=5, minutes=30))
    return a_note(
        'Sie sagte: "it\'s 100 % done" \\ 完成了 😀\n', at=START.astimezone(there), created_at=START + timedelta(microseconds=1),
        keywords=("one", "zwei 'drei'"), tags=("b", "a", "ü"), context="said at lunch", session="s-1", speaker="Ana",
        dates=(SaidDate("last May", date(2023, 5, 1), date(2023, 5, 31)), SaidDate("今天", date(2024, 5, 1), date(2024, 5, 1))),
        category="work", importance=5, level="insight", pinned=True, valid_until=START + timedelta(days=1),
        expires_at=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), key="k/1", error="the model was down",
        metadata={"n": 1.5, "deep": {"list": [1, "two", None, True]}, "none": None}, given={"tags": ["b"], "importance": 5},
    )  # fmt: skip


def a_commit(*changes: Change, space: Space = HOME, **more: Any) -> Commit:
    """A commit of now; ``more`` are any of its fields."""
    values: dict[str, Any] = {"at": datetime.now(UTC), "actor": "user", "reason": "a test", **more}
    return Commit(CommitId(str(ULID())), space, changes=changes, **values)


def a_vector(text: str, pieces: int = 1) -> np.ndarray:
    """Unit vectors that belong to a text: float32 (pieces, 4)."""
    data = np.random.default_rng(zlib.crc32(text.encode())).normal(size=(pieces, 4))
    return np.asarray(data / np.linalg.norm(data, axis=1, keepdims=True), np.float32)


def write(store: Store, *changes: Change, space: Space = HOME, **more: Any) -> Commit:
    """Apply changes as one commit, with a vector for each new content."""
    vectors = {}
    for change in changes:
        if isinstance(change, PutNote):
            vectors[change.note.id] = a_vector(change.note.content)
        elif isinstance(change, ReviseNote) and "content" in change.after:
            vectors[change.note] = a_vector(change.after["content"])
    return store.apply([a_commit(*changes, space=space, **more)], vectors)[0]


def put(store: Store, *contents: str, space: Space = HOME, **more: Any) -> list[Note]:
    """Add one note a text, each in its own commit; the notes."""
    notes = [a_note(content, space, **more) for content in contents]
    for note in notes:
        write(store, PutNote(note), space=space)
    return notes


def revise(store: Store, note: Note, expects: int = 1, **after: Any) -> Commit:
    """Apply one revision."""
    return write(store, ReviseNote(note.id, expects, after, "revised"), space=note.space)


def found(store: Store, where: Where | None = None, **more: Any) -> list[str]:
    """The contents that a query finds in the home space."""
    values: dict[str, Any] = {"spaces": (HOME,), "where": parse(where), **more}
    return [note.content for note in store.find(Query(**values))]
