"""The tests that every store has to pass, to be run by whoever writes one.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            store = MyStore(...)          # empty, and its own for each test
            yield store
            store.close()

The methods are plain pytest tests. What a store does beyond the protocol (files, servers, locks)
is tested beside that store.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from ulid import ULID

from engramma.commit import ArchiveNote, Change, Commit, DropLink, PutLink, PutNote, RemoveNote, ReviseNote, Tokens, inverse
from engramma.errors import Conflict, InvalidInput, StaleRevision, StoreClosed, UnknownId
from engramma.filters import Where, parse
from engramma.note import CommitId, Link, Note, NoteId, SaidDate, Space
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


class Applying:
    """``apply``: what each kind of change does, and what is refused."""

    def test_an_empty_store(self, store: Store) -> None:
        assert store.head() == 0
        assert store.apply([], {}) == []
        assert store.notes([NoteId("nobody")]) == {}
        assert (store.log(None), store.spaces(), store.pending(None, 10)) == ([], {}, [])
        assert (store.totals().commits, store.totals().links) == (0, 0)

    def test_put_keeps_every_field(self, store: Store) -> None:
        note = a_full_note()
        applied = write(store, PutNote(note, "added"))
        kept = store.notes([note.id])[note.id]
        assert kept == note
        assert [(m.utcoffset(), m) for m in (kept.at,)] == [(timedelta(hours=5, minutes=30), note.at)]
        assert applied.changes == (PutNote(note, "added"),)
        assert applied.seq == store.head() > 0
        assert store.find(Query((HOME,))) == [note]

    def test_vectors_come_back_whole_and_as_a_mean(self, store: Store) -> None:
        note = a_note("a long text")
        pieces = a_vector("a long text", 3)
        store.apply([a_commit(PutNote(note))], {note.id: pieces})
        vector = store.notes([note.id])[note.id].vector
        assert vector is not None
        mean = pieces.mean(axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
        assert vector.dtype == np.float32
        assert vector.shape == (4,)
        assert np.array_equal(next(iter(store.index_rows(HOME))).vectors, pieces)
        assert store.notes([note.id], vectors=False)[note.id].vector is None

    def test_revise_changes_only_what_it_names(self, store: Store) -> None:
        note = a_full_note()
        write(store, PutNote(note))
        after: dict[str, Any] = {"tags": ("c",), "speaker": None, "metadata": {"n": 2}}
        change = revise(store, note, **after).changes[0]
        assert isinstance(change, ReviseNote)
        assert change.before == {"tags": note.tags, "speaker": "Ana", "metadata": note.metadata}
        assert store.notes([note.id])[note.id] == replace(note, **after, revision=2)

    def test_every_field_can_be_revised(self, store: Store) -> None:
        (note,) = put(store, "plain")
        kept = {f.name for f in fields(Note)} - {"id", "space", "created_at", "revision", "uses", "used_at", "links", "vector"}
        after = {name: getattr(a_full_note(), name) for name in kept}
        applied = revise(store, note, **after)
        assert store.notes([note.id])[note.id] == replace(note, **after, revision=2)
        assert store.commit(applied.id) == applied

    def test_a_new_content_has_a_new_vector(self, store: Store) -> None:
        (note,) = put(store, "old words")
        revise(store, note, content="new words")
        revise(store, note, expects=2, tags=("t",))
        vector = store.notes([note.id])[note.id].vector
        assert vector is not None
        assert np.allclose(vector, a_vector("new words")[0], atol=1e-6)

    def test_archive_and_bring_back(self, store: Store) -> None:
        (note,) = put(store, "a")
        applied = write(store, ArchiveNote(note.id, 1, "not needed"))
        assert applied.changes == (ArchiveNote(note.id, 1, "not needed", {"state": "ready"}),)
        assert found(store) == []
        assert store.notes([note.id])[note.id].state == "archived"
        revise(store, note, expects=2, state="ready")
        assert found(store) == ["a"]

    def test_links_are_put_replaced_and_dropped(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        first = Link(one.id, two.id, "supports", 'it\'s "so"', 0.25)
        assert write(store, PutLink(first, "seen")).changes == (PutLink(first, "seen"),)
        second = replace(first, strength=0.75, revision=2)
        assert write(store, PutLink(replace(first, strength=0.75))).changes == (PutLink(second, "", first),)
        assert store.links([one.id]) == [second]
        assert write(store, DropLink(*first.ends, "no")).changes == (DropLink(*first.ends, "no", second),)
        assert store.links([one.id]) == []

    def test_a_link_that_comes_back_counts_on(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        link = Link(one.id, two.id)
        for revision in (1, 2, 3):
            change = write(store, PutLink(link)).changes[0]
            assert isinstance(change, PutLink)
            assert (change.link.revision, change.before) == (revision, None)
            write(store, DropLink(*link.ends, "no"))

    def test_dropping_a_link_that_is_gone_is_not_recorded(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        applied = write(store, DropLink(one.id, two.id, "related", "no"))
        assert applied.changes == ()
        assert store.commit(applied.id) == applied

    def test_a_link_kind_and_direction_make_it_another_link(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        links = [Link(one.id, two.id), Link(two.id, one.id), Link(one.id, two.id, "causes")]
        write(store, *map(PutLink, links))
        assert sorted(store.links([two.id]), key=str) == sorted(links, key=str)

    def test_all_kinds_of_change_in_one_commit_and_undone(self, store: Store) -> None:
        old, gone, third = put(store, "old", "gone", "third")
        write(store, PutLink(Link(old.id, gone.id)))
        before = store.notes([old.id, gone.id, third.id])
        new = a_note("new")
        applied = write(
            store, PutNote(new), ReviseNote(old.id, 1, {"tags": ("x",)}, "r"), DropLink(old.id, gone.id, "related", "r"),
            ArchiveNote(gone.id, 1, "r"), PutLink(Link(new.id, old.id, "follows", "r", 1.0)),
        )  # fmt: skip
        assert store.commit(applied.id) == applied
        assert applied.notes() == (new.id, old.id, gone.id)
        write(store, *inverse(applied, store.notes(applied.notes())))
        after = store.notes(before)
        assert [replace(note, revision=1) for note in after.values()] == list(before.values())
        assert [link.ends for link in after[old.id].links] == [(old.id, gone.id, "related")]
        assert store.notes([new.id])[new.id].state == "archived"

    def test_changes_of_one_commit_see_each_other(self, store: Store) -> None:
        note = a_note("a")
        write(store, PutNote(note), ReviseNote(note.id, 1, {"tags": ("x",)}, "r"), ReviseNote(note.id, 2, {"tags": ()}, "r"))
        assert [revision.revision for revision in store.history(note.id)] == [1, 2, 3]

    def test_commits_of_one_call_are_numbered_in_order(self, store: Store) -> None:
        commits = store.apply([a_commit(PutNote(a_note(text, state="pending"))) for text in "abc"], {})
        assert [commit.seq for commit in commits] == sorted({commit.seq for commit in commits})
        assert commits[-1].seq == store.head()
        assert found(store) == ["a", "b", "c"]

    def test_a_commit_comes_back_as_it_was_applied(self, store: Store) -> None:
        more: dict[str, Any] = {
            "tokens": Tokens(1, 20, 3),
            "dropped": ("link to 'n9'", "ü"),
            "reverts": CommitId("01J"),
            "actor": "agent:é",
        }
        applied = write(store, PutNote(a_note()), at=START, reason='why "so"', **more)
        assert store.commit(applied.id) == applied
        assert store.commit(CommitId("no such")) is None


class Refusing:
    """``apply``: what is refused leaves nothing at all behind."""

    def refused(self, store: Store, error: type[Exception], *changes: Change, space: Space = HOME) -> None:
        """Applying raises, and neither these changes nor a note before them were written."""
        head, log = store.head(), store.log(None)
        extra = a_note("written before the failure", space, state="pending", key="extra")
        with pytest.raises(error):
            store.apply([a_commit(PutNote(extra), space=space), a_commit(*changes, space=space)], {})
        with pytest.raises(error):
            write(store, PutNote(extra), *changes, space=space)
        assert (store.head(), store.log(None)) == (head, log)
        assert store.notes([extra.id]) == {}
        assert store.by_key(space, "extra") is None
        assert extra.id not in store.changed(space, 0)

    def test_stale_revisions(self, store: Store) -> None:
        (note,) = put(store, "a")
        revise(store, note, tags=("x",))
        for expects in (0, 1, 3):
            self.refused(store, StaleRevision, ReviseNote(note.id, expects, {"tags": ()}, "r"))
            self.refused(store, StaleRevision, ArchiveNote(note.id, expects, "r"))
        assert store.notes([note.id])[note.id].tags == ("x",)

    def test_unknown_notes(self, store: Store) -> None:
        (note,) = put(store, "a")
        nobody = NoteId("nobody")
        for change in (
            ReviseNote(nobody, 1, {"tags": ()}, "r"), ArchiveNote(nobody, 1, "r"), RemoveNote(nobody, "r"),
            PutLink(Link(note.id, nobody)), PutLink(Link(nobody, note.id)),
        ):  # fmt: skip
            self.refused(store, UnknownId, change)

    def test_a_key_in_use(self, store: Store) -> None:
        (note,) = put(store, "a", key="k")
        (other,) = put(store, "b")
        self.refused(store, Conflict, PutNote(a_note("c", key="k")))
        self.refused(store, Conflict, ReviseNote(other.id, 1, {"key": "k"}, "r"))
        assert store.by_key(HOME, "k") == note.id

    def test_a_key_is_free_in_another_space_and_after_archiving(self, store: Store) -> None:
        (note,) = put(store, "a", key="k")
        put(store, "b", space="elsewhere", key="k")
        write(store, ArchiveNote(note.id, 1, "r"))
        assert store.by_key(HOME, "k") is None
        (heir,) = put(store, "c", key="k")
        assert store.by_key(HOME, "k") == heir.id
        self.refused(store, Conflict, ReviseNote(note.id, 2, {"state": "ready"}, "r"))

    def test_links_to_archived_notes(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        write(store, ArchiveNote(two.id, 1, "r"))
        self.refused(store, Conflict, PutLink(Link(one.id, two.id)))
        self.refused(store, Conflict, PutLink(Link(two.id, one.id)))

    def test_a_link_to_itself(self, store: Store) -> None:
        (note,) = put(store, "a")
        self.refused(store, InvalidInput, PutLink(Link(note.id, note.id)))

    def test_changes_in_another_space_than_the_commit(self, store: Store) -> None:
        (one,) = put(store, "a")
        (two,) = put(store, "b", space="elsewhere")
        for change in (ReviseNote(two.id, 1, {"tags": ()}, "r"), ArchiveNote(two.id, 1, "r"), PutLink(Link(one.id, two.id))):
            self.refused(store, Conflict, change)
        self.refused(store, UnknownId, RemoveNote(two.id, "r"))

    def test_a_note_put_in_another_space_than_the_commit(self, store: Store) -> None:
        self.refused(store, Conflict, PutNote(a_note("a", "elsewhere", state="pending")))

    def test_an_id_in_use(self, store: Store) -> None:
        (note,) = put(store, "a")
        self.refused(store, Conflict, PutNote(replace(note, content="b")))

    def test_fields_that_nobody_may_revise(self, store: Store) -> None:
        (note,) = put(store, "a")
        for name in ("id", "space", "created_at", "revision", "links", "vector", "colour"):
            self.refused(store, InvalidInput, ReviseNote(note.id, 1, {name: "x"}, "r"))

    def test_what_json_cannot_hold(self, store: Store) -> None:
        for value in (object(), float("nan"), {1, 2}):
            self.refused(store, InvalidInput, PutNote(a_note(metadata={"x": value})))

    def test_archiving_leaves_no_link_behind(self, store: Store) -> None:
        """The planner drops the links it knows; one that another process adds meanwhile is the store's matter."""
        one, two = put(store, "a", "b")
        write(store, PutLink(Link(one.id, two.id)))
        with suppress(Conflict):
            write(store, ArchiveNote(two.id, 1, "r"))
        assert store.check() == []


class Removing:
    """``RemoveNote``: no row and no word stays."""

    def test_nothing_of_the_note_stays(self, store: Store) -> None:
        note = a_note("xylophone", keywords=("xylophone",), key="xylophone", session="xylophone", metadata={"xylophone": 1})
        (other,) = put(store, "stays")
        write(store, PutNote(note, "xylophone"), reason="add xylophone", dropped=("xylophone",))
        write(store, PutLink(Link(note.id, other.id, "supports", "xylophone"), "xylophone"), reason="link xylophone")
        write(store, DropLink(note.id, other.id, "supports", "xylophone"))
        write(store, PutLink(Link(other.id, note.id, "supports", "xylophone")))
        store.use({note.id: 1}, START)
        before = store.head()
        write(store, RemoveNote(note.id, "purged"), reason="purge")
        assert store.notes([note.id]) == store.notes([note.id], before) == {}
        assert store.links([note.id, other.id]) == store.links([note.id, other.id], before) == []
        assert store.history(note.id) == []
        assert (store.by_key(HOME, "xylophone"), store.last_of_session(HOME, "xylophone")) == (None, None)
        assert found(store, states=EVERY_STATE) == found(store, states=EVERY_STATE, as_of=before) == ["stays"]
        assert [row.note.content for row in store.index_rows(HOME, as_of=before)] == ["stays"]
        assert "xylophone" not in str(store.log(None))
        assert note.id in store.changed(HOME, before)

    def test_earlier_revisions_are_not_in_the_log_either(self, store: Store) -> None:
        (note,) = put(store, "xylophone")
        revise(store, note, content="violoncello", context="xylophone")
        write(store, ArchiveNote(note.id, 2, "xylophone"))
        write(store, RemoveNote(note.id, "purged"))
        log = str(store.log(None))
        assert "xylophone" not in log
        assert "violoncello" not in log

    def test_the_log_still_says_that_something_was_removed(self, store: Store) -> None:
        (note,) = put(store, "a")
        removed = write(store, RemoveNote(note.id, "purged"), reason="by request")
        assert store.commit(removed.id) == removed
        assert [commit.seq for commit in store.log(None, note=note.id)] == [2, 1]
        with pytest.raises(Conflict):
            inverse(store.log(1)[0], store.notes([note.id]))

    def test_the_others_are_as_they_were(self, store: Store) -> None:
        one, two, three = put(store, "a", "b", "c")
        write(store, PutLink(Link(one.id, three.id)))
        write(store, RemoveNote(two.id, "r"))
        assert found(store) == ["a", "c"]
        assert len(store.links([one.id])) == 1
        put(store, "d")
        assert found(store) == ["a", "c", "d"]


ODD = {"it's": 1, 'say "hi"': 2, "100%": 3, "😀": 4, "a b": 5, "back\\slash": 6, "$eq": 7, "记": 8}
NOTES: dict[str, dict[str, Any]] = {
    "a": {
        "speaker": "Ana", "category": "work", "importance": 5, "pinned": True, "tags": ("bug", "login"), "keywords": ("k",),
        "at": datetime(2024, 1, 1, tzinfo=UTC), "valid_until": datetime(2024, 6, 1, tzinfo=UTC), "session": "s1", "key": "one",
        "metadata": {"team": "web", "n": 3, "ok": True, "deep": {"er": {"x": 1}}, "list": ["a", 2, True], "nil": None, **ODD},
    },
    "b": {
        "speaker": "Bo", "importance": 3, "tags": ("bug", 'it\'s 100% "odd" \\ 😀'), "at": datetime(2025, 1, 1, tzinfo=UTC),
        "metadata": {"team": "ops", "n": 3.5, "ok": False, "deep": {"er": 7}, "list": [], "pct": "50%_x"}, "level": "insight",
        "context": 'O\'Brien said "no"',
    },
    "c": {"importance": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "metadata": {"n": "3", "deep": "er", "list": "a", "ok": 1}},
}  # fmt: skip
FILTERS: list[tuple[Where, str]] = [
    ({}, "abc"), ({"speaker": "Ana"}, "a"), ({"speaker": "ana"}, ""), ({"speaker": {"$ne": "Ana"}}, "bc"),
    ({"speaker": None}, "c"), ({"speaker": {"$ne": None}}, "ab"), ({"speaker": {"$in": ["Bo", None]}}, "bc"),
    ({"speaker": {"$in": []}}, ""), ({"speaker": {"$nin": []}}, "abc"), ({"speaker": {"$nin": ["Bo", None]}}, "a"),
    ({"speaker": {"$gt": "Ana"}}, "b"), ({"speaker": {"$gte": "Ana", "$lt": "Bo"}}, "a"), ({"speaker": {"$lte": "B"}}, "a"),
    ({"speaker": "%"}, ""), ({"speaker": "_o"}, ""), ({"speaker": "' OR 1=1 --"}, ""), ({"speaker": ""}, ""),
    ({"context": 'O\'Brien said "no"'}, "b"), ({"context": ""}, "ac"), ({"content": {"$in": ["a", "c"]}}, "ac"),
    ({"category": "work"}, "a"), ({"session": "s1"}, "a"), ({"key": "one"}, "a"), ({"level": "insight"}, "b"),
    ({"state": "ready"}, "abc"), ({"state": {"$ne": "ready"}}, ""), ({"importance": 5}, "a"), ({"importance": 5.0}, "a"),
    ({"importance": {"$ne": 5}}, "bc"), ({"importance": {"$gt": 3}}, "a"), ({"importance": {"$gte": 3}}, "ab"),
    ({"importance": {"$lt": 3}}, "c"), ({"importance": {"$lte": 2.5}}, "c"), ({"importance": {"$in": [1, 5]}}, "ac"),
    ({"importance": {"$nin": [1, 5]}}, "b"), ({"importance": {"$gt": 1, "$lt": 5}}, "b"), ({"revision": 1}, "abc"),
    ({"revision": {"$gt": 1}}, ""), ({"pinned": True}, "a"), ({"pinned": False}, "bc"), ({"pinned": {"$ne": True}}, "bc"),
    ({"pinned": {"$in": [True]}}, "a"), ({"tags": "bug"}, "ab"), ({"tags": ["bug", "login"]}, "a"),
    ({"tags": {"$eq": "login"}}, "a"), ({"tags": "bu"}, ""), ({"tags": {"$ne": "login"}}, "bc"),
    ({"tags": {"$in": ["login", "x"]}}, "a"), ({"tags": {"$nin": ["bug"]}}, "c"), ({"tags": None}, "c"),
    ({"tags": {"$ne": None}}, "ab"), ({"tags": {"$in": [None, "login"]}}, "ac"), ({"tags": {"$gt": "c"}}, "ab"),
    ({"tags": {"$gte": "login"}}, "a"), ({"tags": {"$lt": "c"}}, "ab"), ({"tags": {"$lte": "a"}}, ""),
    ({"tags": 'it\'s 100% "odd" \\ 😀'}, "b"), ({"keywords": "k"}, "a"), ({"keywords": {"$nin": ["k"]}}, "bc"),
    ({"at": datetime(2025, 1, 1, tzinfo=UTC)}, "b"), ({"at": "2025-01-01T01:00:00+01:00"}, "b"),
    ({"at": {"$gt": "2024-01-01"}}, "bc"), ({"at": {"$gte": date(2025, 1, 1)}}, "bc"), ({"at": {"$lt": "2025-01-01"}}, "a"),
    ({"at": {"$lte": "2025-01-01"}}, "ab"), ({"at": {"$in": ["2024-01-01", "2026-01-01"]}}, "ac"),
    ({"at": {"$nin": ["2024-01-01"]}}, "bc"), ({"at": {"$ne": "2024-01-01"}}, "bc"), ({"valid_until": None}, "bc"),
    ({"valid_until": {"$lt": "2030-01-01"}}, "a"), ({"valid_until": {"$ne": "2024-06-01"}}, "bc"),
    ({"expires_at": None}, "abc"), ({"created_at": {"$gte": START}}, "abc"), ({"metadata.team": "web"}, "a"),
    ({"metadata.team": {"$ne": "web"}}, "bc"), ({"metadata.team": None}, "c"), ({"metadata.team": {"$ne": None}}, "ab"),
    ({"metadata.team": {"$in": ["web", None]}}, "ac"), ({"metadata.team": {"$nin": ["web"]}}, "bc"),
    ({"metadata.team": {"$gt": "p"}}, "a"), ({"metadata.team": {"$lte": "ops"}}, "b"), ({"metadata.nil": None}, "abc"),
    ({"metadata.n": 3}, "a"), ({"metadata.n": "3"}, "c"), ({"metadata.n": {"$gt": 3}}, "b"),
    ({"metadata.n": {"$gte": 3}}, "ab"), ({"metadata.n": {"$lt": 3.5}}, "a"),
    ({"metadata.n": {"$lte": 3.5, "$gt": 3}}, "b"), ({"metadata.n": {"$in": [3.5, "3"]}}, "bc"),
    ({"metadata.n": {"$nin": [3, 3.5]}}, "c"), ({"metadata.n": {"$ne": 3}}, "bc"), ({"metadata.ok": True}, "a"),
    ({"metadata.ok": False}, "b"), ({"metadata.ok": 1}, "c"), ({"metadata.ok": {"$ne": True}}, "bc"),
    ({"metadata.ok": {"$gt": False}}, ""), ({"metadata.deep.er.x": 1}, "a"), ({"metadata.deep.er": 7}, "b"),
    ({"metadata.deep": "er"}, "c"), ({"metadata.deep.er": None}, "c"), ({"metadata.deep.er.x": None}, "bc"),
    ({"metadata.deep.er.x": {"$ne": 1}}, "bc"), ({"metadata.deep.no": "x"}, ""), ({"metadata.list": "a"}, "ac"),
    ({"metadata.list": 2}, "a"), ({"metadata.list": True}, "a"), ({"metadata.list": None}, ""),
    ({"metadata.list": {"$gt": 1}}, "a"), ({"metadata.list": {"$in": ["b", 2]}}, "a"),
    ({"metadata.list": {"$nin": ["a"]}}, "b"), ({"metadata.list": {"$ne": 2}}, "bc"), ({"metadata.pct": "50%_x"}, "b"),
    ({"metadata.pct": "50%%x"}, ""), ({"metadata.pct": "%"}, ""),
    *[({f"metadata.{key}": value}, "a") for key, value in ODD.items()], ({"metadata.100_": 3}, ""), ({"metadata.%": 3}, ""),
    ({"$and": [{"speaker": "Ana"}, {"importance": 5}]}, "a"), ({"$or": [{"speaker": "Ana"}, {"importance": 1}]}, "ac"),
    ({"$not": {"speaker": "Ana"}}, "bc"), ({"$not": {"metadata.team": "web"}}, "bc"), ({"$not": {"tags": "bug"}}, "c"),
    ({"$not": {}}, ""), ({"speaker": {"$not": {"$eq": "Ana"}}}, "bc"), ({"$not": {"$not": {"speaker": "Ana"}}}, "a"),
    ({"importance": {"$not": {"$gt": 1, "$lt": 5}}}, "ac"), ({"tags": "bug", "importance": {"$lt": 5}}, "b"),
    ({"$or": [{"$and": [{"tags": "bug"}, {"$not": {"pinned": True}}]}, {"metadata.n": "3"}]}, "bc"),
]  # fmt: skip


class Finding:
    """``find`` and ``matching``: filters, spaces, times and states."""

    @pytest.mark.parametrize(("where", "expected"), FILTERS, ids=[repr(where) for where, _ in FILTERS])
    def test_filters(self, store: Store, where: Where, expected: str) -> None:
        notes = [a_note(name, **more) for name, more in NOTES.items()]
        ids = {note.content: note.id for note in notes}
        write(store, *map(PutNote, notes))
        put(store, "of another space", space="elsewhere")
        assert "".join(found(store, where)) == expected
        assert store.matching(Query((HOME,), parse(where))) == {ids[name] for name in expected}
        assert "".join(found(store, where, as_of=store.head())) == expected

    def test_spaces_match_exactly(self, store: Store) -> None:
        for number, space in enumerate(SPACES):
            put(store, str(number), space=space, key="same", session="same")
        assert store.spaces() == dict.fromkeys(SPACES, 1)
        for number, space in enumerate(SPACES):
            (note,) = store.find(Query((space,)))
            assert (note.content, note.space) == (str(number), space)
            assert store.matching(Query((space,))) == {note.id}
            assert store.by_key(space, "same") == store.last_of_session(space, "same") == note.id
            assert [row.note.id for row in store.index_rows(space)] == store.changed(space, 0) == [note.id]
            assert [commit.space for commit in store.log(None, space)] == [space]
            assert (store.totals(space).commits, dict(store.totals(space).notes)) == (1, {"ready": 1})

    def test_several_spaces_and_none(self, store: Store) -> None:
        for space in ("x", ("x",), "y"):
            put(store, str(space), space=space)
        assert [note.content for note in store.find(Query(("y", "x")))] == ["x", "y"]
        assert store.find(Query(())) == store.find(Query(("x y",))) == []

    def test_states_order_and_limit(self, store: Store) -> None:
        for state in EVERY_STATE:
            put(store, state, state=state)
        assert found(store) == ["pending", "ready"]
        assert found(store, states=EVERY_STATE, newest_first=True) == list(reversed(EVERY_STATE))
        assert found(store, states=EVERY_STATE, limit=2) == ["pending", "ready"]
        assert found(store, states=EVERY_STATE, limit=1, newest_first=True) == ["merged"]
        assert found(store, limit=0) == []

    def test_order_is_that_of_adding(self, store: Store) -> None:
        notes = put(store, "a", "b", "c")
        revise(store, notes[0], at=START + timedelta(days=9))
        assert found(store) == ["a", "b", "c"]

    def test_matching_takes_no_limit(self, store: Store) -> None:
        ids = {note.id for note in put(store, "a", "b", "c")}
        assert store.matching(Query((HOME,), limit=2)) == ids

    def test_since_and_until(self, store: Store) -> None:
        said = (SaidDate("in May", date(2020, 5, 1), date(2020, 5, 31)),)
        put(store, "old", at=datetime(2019, 1, 1, tzinfo=UTC))
        put(store, "says", at=datetime(2024, 1, 1, tzinfo=UTC), dates=said)
        put(store, "new", at=datetime(2025, 1, 1, tzinfo=UTC))
        at = {year: datetime(year, 1, 1, tzinfo=UTC) for year in range(2018, 2027)}
        assert found(store, since=at[2024]) == ["says", "new"]
        assert found(store, since=at[2024] + timedelta(microseconds=1)) == ["new"]
        assert found(store, until=at[2019]) == ["old"]
        assert found(store, since=at[2020], until=at[2021]) == ["says"]
        assert found(store, until=at[2018]) == found(store, since=at[2026]) == []


class Remembering:
    """The memory as of an earlier commit, histories and the log."""

    def test_notes_as_they_were(self, store: Store) -> None:
        (note,) = put(store, "first")
        revise(store, note, content="second", tags=("x",))
        write(store, ArchiveNote(note.id, 2, "r"))
        seen = [store.notes([note.id], seq).get(note.id) for seq in range(4)]
        assert [then and (then.content, then.state, then.revision) for then in seen] == [
            None, ("first", "ready", 1), ("second", "ready", 2), ("second", "archived", 3),
        ]  # fmt: skip
        vectors = [then.vector for then in seen if then and then.vector is not None]
        assert np.allclose(vectors, [a_vector(text)[0] for text in ("first", "second", "second")], atol=1e-6)

    def test_finding_as_it_was(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        revise(store, one, tags=("x",))
        write(store, ArchiveNote(two.id, 1, "r"))
        assert [found(store, as_of=seq) for seq in range(5)] == [[], ["a"], ["a", "b"], ["a", "b"], ["a"]]
        assert [found(store, {"tags": "x"}, as_of=seq) for seq in (2, 3, 4)] == [[], ["a"], ["a"]]
        assert store.matching(Query((HOME,), as_of=1)) == {one.id}

    def test_links_as_they_were(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        link = Link(one.id, two.id, strength=0.1)
        write(store, PutLink(link))
        write(store, PutLink(replace(link, strength=0.9)))
        write(store, DropLink(*link.ends, "r"))
        write(store, PutLink(link))
        strengths = [[then.strength for then in store.links([two.id], seq)] for seq in range(2, 7)]
        assert strengths == [[], [0.1], [0.9], [], [0.1]]
        assert [len(store.notes([one.id], seq)[one.id].links) for seq in range(2, 7)] == [0, 1, 1, 0, 1]

    def test_links_from_both_ends(self, store: Store) -> None:
        one, two, three = put(store, "a", "b", "c")
        links = [Link(one.id, two.id, "supports"), Link(three.id, one.id, "causes")]
        write(store, *map(PutLink, links))
        assert sorted(store.links([one.id]), key=str) == sorted(links, key=str)
        assert store.links([two.id]) == [links[0]]
        assert len(store.links([one.id, two.id, three.id])) == 2
        assert store.links([]) == []
        kept = store.notes([one.id, two.id, three.id])
        assert [len(kept[note.id].links) for note in (one, two, three)] == [2, 1, 1]

    def test_seq_at(self, store: Store) -> None:
        for day in range(3):
            write(store, PutNote(a_note()), at=START + timedelta(days=day))
        moments = [START - timedelta(microseconds=1), START, START + timedelta(days=1, hours=1), START + timedelta(days=99)]
        assert [store.seq_at(moment) for moment in moments] == [0, 1, 2, 3]

    def test_history(self, store: Store) -> None:
        (note,) = put(store, "a")
        revise(store, note, tags=("x",))
        applied = write(store, ArchiveNote(note.id, 2, "out of date"), actor="analyst:rules", at=START)
        history = store.history(note.id)
        assert [revision.revision for revision in history] == [1, 2, 3]
        assert [revision.note.tags for revision in history] == [(), ("x",), ("x",)]
        assert (history[2].commit, history[2].at, history[2].actor) == (applied, START, "analyst:rules")
        assert [revision.reason for revision in history] == ["a test", "revised", "out of date"]
        assert store.history(NoteId("nobody")) == []

    def test_the_log_is_newest_first_and_can_be_paged(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        put(store, "c", space="elsewhere")
        write(store, PutLink(Link(one.id, two.id)))
        revise(store, one, tags=("x",))

        def seqs(limit: int | None = None, **more: Any) -> list[int]:
            return [commit.seq for commit in store.log(limit, **more)]

        assert seqs() == [5, 4, 3, 2, 1]
        assert (seqs(2), seqs(2, before=4), seqs(2, before=2), seqs(2, before=1)) == ([5, 4], [3, 2], [1], [])
        assert (seqs(space=HOME), seqs(space="elsewhere"), seqs(space="els")) == ([5, 4, 2, 1], [3], [])
        assert (seqs(note=one.id), seqs(note=two.id), seqs(note=NoteId("nobody"))) == ([5, 4, 1], [4, 2], [])
        assert seqs(1, space=HOME, note=two.id, before=4) == [2]
        assert seqs(0) == []

    def test_the_log_shows_notes_as_they_were_added(self, store: Store) -> None:
        (note,) = put(store, "first")
        revise(store, note, content="second")
        assert store.log(None)[-1].changes == (PutNote(note),)

    def test_changed(self, store: Store) -> None:
        one, two, three = put(store, "a", "b", "c")
        head = store.head()
        write(store, PutLink(Link(two.id, one.id)))
        assert store.changed(HOME, head) == []
        revise(store, two, tags=("x",))
        put(store, "d", space="elsewhere")
        write(store, ArchiveNote(three.id, 1, "r"))
        assert store.changed(HOME, head) == [two.id, three.id]
        assert store.changed(HOME, head + 2) == [three.id]
        assert store.changed(HOME, store.head()) == []
        assert store.changed(HOME, 0) == [one.id, two.id, three.id]

    def test_changed_tells_of_notes_that_were_superseded(self, store: Store) -> None:
        old, new = put(store, "a", "b")
        link = Link(new.id, old.id, "supersedes")
        for change in (PutLink(link), DropLink(*link.ends, "r")):
            head = store.head()
            write(store, change)
            assert old.id in store.changed(HOME, head)


class Indexing:
    """What indexes and embedders need."""

    def rows(self, store: Store, *args: Any, **more: Any) -> list[tuple[str, bool]]:
        """Content of each index row, and whether another note replaced it."""
        return [(row.note.content, row.superseded) for row in store.index_rows(HOME, *args, **more)]

    def test_rows_of_a_space_and_of_some_notes(self, store: Store) -> None:
        for state in EVERY_STATE:
            put(store, state, state=state)
        put(store, "x", space="elsewhere")
        assert [text for text, _ in self.rows(store)] == list(EVERY_STATE)
        one, *_, last = store.find(Query((HOME,), states=EVERY_STATE))
        assert [text for text, _ in self.rows(store, [last.id, NoteId("nobody"), one.id])] == ["pending", "merged"]
        assert self.rows(store, []) == []
        assert list(store.index_rows("elsewhere", [one.id])) == []

    def test_rows_hold_the_newest_vectors(self, store: Store) -> None:
        (note,) = put(store, "a")
        revise(store, note, content="b")
        bare = a_note("no vector", state="pending")
        store.apply([a_commit(PutNote(bare))], {})
        first, second = store.index_rows(HOME)
        assert np.array_equal(first.vectors, a_vector("b"))
        assert len(second.vectors) == 0
        (then,) = store.index_rows(HOME, as_of=1)
        assert np.array_equal(then.vectors, a_vector("a"))

    def test_superseded_now_and_then(self, store: Store) -> None:
        old, new = put(store, "old", "new")
        link = Link(new.id, old.id, "supersedes")
        write(store, PutLink(link))
        assert self.rows(store) == [("old", True), ("new", False)]
        assert self.rows(store, [old.id]) == [("old", True)]
        assert self.rows(store, as_of=2) == [("old", False), ("new", False)]
        write(store, DropLink(*link.ends, "r"))
        assert self.rows(store) == [("old", False), ("new", False)]
        assert self.rows(store, as_of=3) == [("old", True), ("new", False)]

    def test_many_ids_at_once(self, store: Store) -> None:
        notes = [a_note(str(number)) for number in range(1200)]
        store.apply([a_commit(*map(PutNote, notes))], {note.id: a_vector(note.content) for note in notes})
        ids = [note.id for note in notes]
        assert list(store.notes(ids)) == list(dict.fromkeys(store.notes(ids))) != []
        assert store.notes(ids).keys() == set(ids)
        assert [row.note.id for row in store.index_rows(HOME, ids)] == ids

    def new_model(self, store: Store, *notes: Note, revision: int = 1) -> None:
        """Vectors of model 2 for some notes."""
        store.put_vectors(2, {(note.id, revision): a_vector("model 2 " + note.content) for note in notes})

    def reindexed(self, store: Store) -> list[Note]:
        """Two notes under model 1."""
        store.set_meta({"model": "1"})
        return put(store, "a", "b")

    def test_switching_waits_for_every_note(self, store: Store) -> None:
        one, two = self.reindexed(store)
        assert {note.id for note in store.without_vectors(2, 10)} == {one.id, two.id}
        assert len(store.without_vectors(2, 1)) == 1
        assert store.without_vectors(1, 10) == []
        self.new_model(store, one)
        assert [note.id for note in store.without_vectors(2, 10)] == [two.id]
        assert not store.switch_model(2, {"embedder": "new"})
        assert (store.meta("model"), store.meta("embedder")) == ("1", None)
        assert np.array_equal(next(iter(store.index_rows(HOME))).vectors, a_vector("a"))

    def test_switching_drops_the_other_vectors(self, store: Store) -> None:
        one, two = self.reindexed(store)
        self.new_model(store, one, two)
        self.new_model(store, one)  # once more is fine
        assert store.switch_model(2, {"embedder": "new"})
        assert (store.meta("model"), store.meta("embedder")) == ("2", "new")
        assert [row.vectors.tolist() for row in store.index_rows(HOME)] == [a_vector("model 2 " + text).tolist() for text in "ab"]
        assert len(store.without_vectors(1, 10)) == 2
        assert store.without_vectors(2, 10) == []
        put(store, "c")
        assert store.without_vectors(2, 10) == []

    def test_a_revision_that_keeps_the_content_keeps_the_vector(self, store: Store) -> None:
        one, two = self.reindexed(store)
        self.new_model(store, one, two)
        revise(store, one, tags=("x",))
        assert store.switch_model(2, {})

    def test_a_content_that_came_after_the_new_vectors_is_embedded_too(self, store: Store) -> None:
        one, two = self.reindexed(store)
        self.new_model(store, one, two)
        revise(store, one, content="newer words")
        assert [note.content for note in store.without_vectors(2, 10)] == ["newer words"]
        assert not store.switch_model(2, {})


class Counting:
    """Sessions, keys, waiting notes, settings, uses and totals."""

    def test_last_of_session(self, store: Store) -> None:
        one, two = put(store, "a", "b", session="s")
        put(store, "c", session="s", space="elsewhere")
        put(store, "d", session="S")
        put(store, "e")
        assert store.last_of_session(HOME, "s") == two.id
        write(store, ArchiveNote(two.id, 1, "r"))
        assert store.last_of_session(HOME, "s") == one.id
        assert store.last_of_session(HOME, "%") is None

    def test_by_key(self, store: Store) -> None:
        (note,) = put(store, "a", key='it\'s 100% "odd" 😀')
        assert store.by_key(HOME, 'it\'s 100% "odd" 😀') == note.id
        assert store.by_key(HOME, "it's 100% ") is None
        revise(store, note, state="merged")
        assert store.by_key(HOME, 'it\'s 100% "odd" 😀') == note.id

    def test_pending(self, store: Store) -> None:
        one, two = put(store, "a", "b", state="pending")
        (there,) = put(store, "c", state="pending", space=("x", "y"))
        put(store, "d")
        assert store.pending(None, 10) == [one.id, two.id, there.id]
        assert store.pending(None, 2) == [one.id, two.id]
        assert store.pending([("x", "y"), "nowhere"], 10) == [there.id]
        assert store.pending([], 10) == []
        revise(store, one, state="ready")
        assert store.pending([HOME], 10) == [two.id]

    def test_uses(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        store.use({one.id: 2, NoteId("nobody"): 1}, START)
        store.use({one.id: 3, two.id: 1}, START + timedelta(days=1))
        notes = store.notes([one.id, two.id])
        assert [(note.uses, note.used_at, note.revision) for note in notes.values()] == [
            (uses, START + timedelta(days=1), 1) for uses in (5, 1)
        ]
        assert store.head() == 2
        store.use({}, START)

    def test_meta(self, store: Store) -> None:
        assert store.meta("it's") is None
        store.set_meta({"it's": "1", "b": "😀"})
        store.set_meta({"it's": "2"})
        assert (store.meta("it's"), store.meta("b"), store.meta("it")) == ("2", "😀", None)

    def test_totals(self, store: Store) -> None:
        one, two = put(store, "a", "b")
        put(store, "c", space="elsewhere", state="pending")
        write(store, PutLink(Link(one.id, two.id)), tokens=Tokens(1, 20, 3))
        everything, home = store.totals(), store.totals(HOME)
        assert dict(everything.notes) == {"ready": 2, "pending": 1}
        assert dict(home.notes) == {"ready": 2}
        assert (everything.commits, home.commits, home.links, store.totals("elsewhere").links) == (4, 3, 1, 0)
        assert (home.calls, home.tokens_in, home.tokens_out, store.totals("elsewhere").tokens_in) == (1, 20, 3, 0)
        assert everything.bytes > 0

    def test_spaces_count_what_is_in_sight(self, store: Store) -> None:
        for state in EVERY_STATE:
            put(store, state, state=state)
        put(store, "gone", space="hidden", state="archived")
        assert store.spaces() == {HOME: 2, "hidden": 0}


class Living:
    """Threads and the end."""

    def test_threads_write_and_read_at_once(self, store: Store) -> None:
        def work(name: int) -> int:
            put(store, *[f"{name} {number}" for number in range(10)], session=str(name))
            return len(found(store, {"session": str(name)}))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [10] * 4
        assert store.head() == len(store.log(None)) == 40
        assert len(set(store.changed(HOME, 0))) == 40

    def test_of_two_threads_one_revises(self, store: Store) -> None:
        (note,) = put(store, "a")

        def attempt(tag: int) -> bool:
            try:
                revise(store, note, tags=(str(tag),))
            except StaleRevision:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(attempt, range(8))) == 1
        assert store.notes([note.id])[note.id].revision == 2

    def test_after_close_everything_is_refused(self, store: Store) -> None:
        (note,) = put(store, "a")
        store.close()
        store.close()
        calls: Mapping[str, tuple[Any, ...]] = {
            "apply": ([a_commit(PutNote(a_note()))], {}), "notes": ([note.id],), "find": (Query((HOME,)),),
            "matching": (Query((HOME,)),), "links": ([note.id],), "head": (), "seq_at": (START,), "changed": (HOME, 0),
            "by_key": (HOME, "k"), "last_of_session": (HOME, "s"), "pending": (None, 1), "history": (note.id,), "log": (1,),
            "commit": (CommitId("x"),), "spaces": (), "totals": (), "use": ({note.id: 1}, START), "meta": ("x",),
            "set_meta": ({"a": "b"},), "without_vectors": (1, 1), "put_vectors": (1, {}), "switch_model": (1, {}), "check": (),
        }  # fmt: skip
        for name, arguments in calls.items():
            with pytest.raises(StoreClosed):
                getattr(store, name)(*arguments)
        with pytest.raises(StoreClosed):
            list(store.index_rows(HOME))


class StoreConformance(Applying, Refusing, Removing, Finding, Remembering, Indexing, Counting, Living):
    """All of it. Give a fixture ``store`` with an empty store; ``check`` is called after each test."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store under test."""
        raise NotImplementedError("a subclass of StoreConformance gives the fixture 'store'")

    @pytest.fixture(autouse=True)
    def sound(self, store: Store) -> Iterator[None]:
        """Nothing is broken when a test has ended."""
        yield
        with suppress(StoreClosed):
            assert store.check() == []
