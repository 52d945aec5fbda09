"""Conformance of a store: indexes, counts and the life of a store."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from engramma.commit import FOLDING, ArchiveNote, Change, DropLink, PutLink, PutNote, RemoveNote, ReviseNote, Tokens
from engramma.errors import StaleRevision, StoreClosed
from engramma.note import CommitId, Link, Note, NoteId
from engramma.store.base import Query, Store
from engramma.testing.conformance.values import EVERY_STATE, HOME, START, a_commit, a_note, a_vector, found, put, revise, write


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


class Folding:
    """``fold``: old history goes, what is and what was since stays."""

    def days(self, store: Store) -> tuple[Note, Note]:
        """Two linked notes with a commit a day: 1 put, 2 put, 3 link, 4 revise, 5 link anew, 6 new content, 7 elsewhere."""
        one, two, away = a_note("one"), a_note("two"), a_note("away", space="elsewhere")
        link = Link(one.id, two.id, strength=0.1)
        changes: list[list[Change]] = [
            [PutNote(one)], [PutNote(two)], [PutLink(link)], [ReviseNote(one.id, 1, {"tags": ("x",)}, "r")],
            [PutLink(replace(link, strength=0.9))], [ReviseNote(one.id, 2, {"content": "three"}, "r")],
        ]  # fmt: skip
        for day, some in enumerate(changes):
            write(store, *some, at=START + timedelta(days=day), tokens=Tokens(1, 10, 1))
        write(store, PutNote(away), at=START + timedelta(days=6), space="elsewhere")
        return one, two

    def seen(self, store: Store, as_of: int | None = None) -> list[Any]:
        """What a store holds in every space."""
        notes = store.find(Query((HOME, "elsewhere"), states=EVERY_STATE, as_of=as_of))
        rows = [(row.note, row.vectors.tolist(), row.superseded) for row in store.index_rows(HOME, as_of=as_of)]
        whole = store.notes([note.id for note in notes], as_of).values()
        return [*((note, note.links, note.vector is None or note.vector.tolist()) for note in whole), *rows]

    def test_one_commit_a_space_stands_for_what_went(self, store: Store) -> None:
        one, _ = self.days(store)
        assert store.horizon() is None
        then = {seq: self.seen(store, seq) for seq in (4, 5, 6, 7)}
        totals, newest = store.totals(), store.log(3)
        folded = store.fold(START + timedelta(days=3, hours=1))
        assert (folded.commits, folded.revisions, folded.dry_run) == (4, 1, False)
        assert store.horizon() == (4, START + timedelta(days=3))
        assert {seq: self.seen(store, seq) for seq in then} == then
        *kept, fold = store.log(None)
        assert kept == newest
        assert (fold.actor, fold.seq, fold.at, fold.changes) == (FOLDING, 4, START + timedelta(days=3), ())
        assert (store.totals().calls, store.totals().tokens_in) == (totals.calls, totals.tokens_in)
        assert [(r.revision, r.commit.seq) for r in store.history(one.id)] == [(2, 4), (3, 6)]

    def test_folding_again_and_everything(self, store: Store) -> None:
        self.days(store)
        before = self.seen(store)
        for day, commits in ((1, 2), (1, 0), (-9, 0), (4, 3), (99, 2), (99, 0)):
            assert store.fold(START + timedelta(days=day)).commits == commits
        assert self.seen(store) == before
        assert [(commit.actor, commit.space) for commit in store.log(None)] == [(FOLDING, "elsewhere"), (FOLDING, HOME)]
        assert [commit.tokens.calls for commit in store.log(None)] == [0, 6]

    def test_a_dry_run_counts_and_changes_nothing(self, store: Store) -> None:
        one, _ = self.days(store)
        log = store.log(None)
        would = store.fold(START + timedelta(days=5), dry_run=True)
        assert (would.commits, would.revisions, would.dry_run) == (6, 3, True)
        assert (store.log(None), store.horizon(), len(store.history(one.id))) == (log, None, 3)

    def test_an_index_that_saw_less_reads_all_anew(self, store: Store) -> None:
        one, two = self.days(store)
        store.fold(START + timedelta(days=5))
        assert set(store.changed(HOME, 2)) == {one.id, two.id}
        assert store.changed(HOME, 6) == []
        write(store, RemoveNote(two.id, "r"))
        store.fold(datetime.now(UTC) + timedelta(days=1))
        assert set(store.changed(HOME, 2)) == {one.id, two.id}

    def test_tombstones_stay(self, store: Store) -> None:
        one, two = self.days(store)
        removed = write(store, RemoveNote(two.id, "purged"), at=START + timedelta(days=7))
        revise(store, one, expects=3, tags=("y",))
        store.fold(datetime.now(UTC) + timedelta(days=1))
        assert store.commit(removed.id) == removed
        assert [commit.actor for commit in store.log(None, HOME)] == [FOLDING, "user"]

    def test_what_comes_after_is_as_ever(self, store: Store) -> None:
        one, two = self.days(store)
        store.fold(START + timedelta(days=6))
        revise(store, one, expects=3, content="one")  # as it was before: its vector is not there any more
        link = store.links([one.id])[0]
        write(store, DropLink(*link.ends, "r"))
        write(store, PutLink(link))
        write(store, ArchiveNote(a_put(store).id, 1, "r"))
        assert [revision.revision for revision in store.history(one.id)] == [3, 4]
        assert len(store.notes([two.id])[two.id].links) == 1

    def test_an_empty_store(self, store: Store) -> None:
        assert store.fold(datetime.now(UTC)).commits == 0
        assert store.horizon() is None


def a_put(store: Store) -> Note:
    """A note that was just added."""
    return put(store, "just added")[0]


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
            "commit": (CommitId("x"),), "commits_named": ("x", HOME, 1), "fold": (START,), "horizon": (),
            "spaces": (), "totals": (), "use": ({note.id: 1}, START), "meta": ("x",),
            "set_meta": ({"a": "b"},), "without_vectors": (1, 1), "put_vectors": (1, {}), "switch_model": (1, {}), "check": (),
        }  # fmt: skip
        for name, arguments in calls.items():
            with pytest.raises(StoreClosed):
                getattr(store, name)(*arguments)
        with pytest.raises(StoreClosed):
            list(store.index_rows(HOME))
