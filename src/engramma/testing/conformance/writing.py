"""Conformance of a store: applying commits: what is written, what is refused, what is removed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from engramma.commit import ArchiveNote, Change, DropLink, PutLink, PutNote, RemoveNote, ReviseNote, Tokens, inverse
from engramma.errors import Conflict, InvalidInput, StaleRevision, UnknownId
from engramma.note import CommitId, Link, Note, NoteId, Space
from engramma.store.base import Query, Store
from engramma.testing.conformance.values import (
    EVERY_STATE,
    HOME,
    START,
    a_commit,
    a_full_note,
    a_note,
    a_vector,
    found,
    put,
    revise,
    write,
)


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

    def test_what_others_quote_of_it_goes_too(self, store: Store) -> None:
        """What its own commits wrote into other notes, and reasons that name what only it says; not what others say."""
        (other,) = put(store, "the zither", context="a zither", keywords=("zither",), given={"keywords": ["zither"]})
        note = a_note("xylophone and 木琴", keywords=("木琴",))
        write(store, PutNote(note), reason="add xylophone")
        after = {"context": "a zither\nbeside 木琴", "keywords": ("zither", "木琴", "wood")}
        write(store, PutLink(Link(note.id, other.id, "supports", "木琴 too")), ReviseNote(other.id, 1, after, "a xylophone came"))
        revise(store, other, expects=2, importance=5, context="a zither\nbeside 木琴\nand strings")
        third = a_note("of strings, and of no 木琴 at all", context="strings and 木琴", keywords=("strings", "木琴"))
        write(store, PutNote(third), PutLink(Link(third.id, note.id, "causes", "r")), reason="add strings")
        write(store, PutLink(Link(third.id, other.id, "causes", "a xylophone it is")), DropLink(third.id, note.id, "causes", "r"))
        write(store, RemoveNote(note.id, "purged"))
        now = store.notes([other.id, third.id])
        assert (now[other.id].context, now[other.id].keywords, now[other.id].importance) == (
            "a zither\nand strings", ("zither", "wood"), 5,
        )  # fmt: skip
        assert (now[third.id].context, now[third.id].keywords) == ("strings and 木琴", ("strings", "木琴"))
        seen = str([store.history(other.id), store.log(None), store.links([other.id])]).replace(repr(now[third.id]), "")
        assert "xylophone" not in seen
        assert "木琴" not in str([revision.note for revision in store.history(other.id)])
        assert [revision.note.importance for revision in store.history(other.id)] == [3, 3, 5]

    def test_the_last_note_of_a_space_takes_the_words_of_its_log_along(self, store: Store) -> None:
        one, two = put(store, "xylophone", "violoncello")
        write(store, PutLink(Link(one.id, two.id)), reason="both wooden")
        put(store, "stays", space="elsewhere")
        write(store, RemoveNote(one.id, "purged"), RemoveNote(two.id, "purged"), reason="all of it")
        log = store.log(None, HOME)
        assert (log[0].reason, {commit.reason for commit in log[1:]}) == ("all of it", {"(content removed for good)"})
        assert "xylophone" not in str(log)
        assert store.log(1, "elsewhere")[0].reason == "a test"

    def test_the_others_are_as_they_were(self, store: Store) -> None:
        one, two, three = put(store, "a", "b", "c")
        write(store, PutLink(Link(one.id, three.id)))
        write(store, RemoveNote(two.id, "r"))
        assert found(store) == ["a", "c"]
        assert len(store.links([one.id])) == 1
        put(store, "d")
        assert found(store) == ["a", "c", "d"]
