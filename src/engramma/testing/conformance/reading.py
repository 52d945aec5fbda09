"""Conformance of a store: finding notes and remembering how they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from engramma.commit import ArchiveNote, DropLink, PutLink, PutNote
from engramma.filters import Every, Exact, Filter, Not, Some, Where, parse
from engramma.note import CommitId, Link, NoteId, SaidDate, Space
from engramma.store.base import Query, Store
from engramma.testing.conformance.values import (
    EVERY_STATE,
    HOME,
    SPACES,
    START,
    a_commit,
    a_note,
    a_vector,
    found,
    put,
    revise,
    write,
)

ODD = {"it's": 1, 'say "hi"': 2, "100%": 3, "😀": 4, "a b": 5, "back\\slash": 6, "$eq": 7, "记": 8}
LABELLED: tuple[Space, ...] = (
    ('team"',), ('team", "a',), ('team"]',), ("team]",), ("team,", "a"), ("team\\",), ('team\\"', "a"), ("team\n", "a"),
    ("team\x7f",), ("team", '"a'), ("team", "a\\"), ("team", "a", "]"), ("记忆",), ("记忆", "😀", "é"), ("😀",), ("[",),
    ("^",), ("~", "team"), "[", "\\",
)  # fmt: skip
NOTES: dict[str, dict[str, Any]] = {
    "a": {
        "speaker": "Ana", "category": "work", "importance": 5, "pinned": True, "tags": ("bug", "login"), "keywords": ("k",),
        "at": datetime(2024, 1, 1, tzinfo=UTC), "valid_until": datetime(2024, 6, 1, tzinfo=UTC), "session": "s1", "key": "one",
        "metadata": {"team": "web", "n": 3, "ok": True, "deep": {"er": {"x": 1}}, "list": ["a", 2, True], "nil": None, **ODD},
    },
    "b": {
        "speaker": "Bo", "importance": 3, "tags": ("bug", 'it\'s 100% "odd" \\ 😀'), "at": datetime(2025, 1, 1, tzinfo=UTC),
        "metadata": {"team": "ops", "n": 3.5, "ok": False, "deep": {"er": 7}, "list": [], "pct": "50%_x", "said": "b"},
        "level": "insight",
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
    ({"importance": {"$in": [1.0, 4, 5]}}, "ac"), ({"content": {"$nin": ["a", "x", "y"]}}, "bc"),
    ({"pinned": {"$in": [True, False]}}, "abc"), ({"at": {"$in": ["2024-01-01", "2026-01-01", "2027-01-01"]}}, "ac"),
]  # fmt: skip


def _json(test: Any, value: Any, *path: str | int, field: Any = "metadata") -> Filter:
    return Exact(field, path, test, value)


EXACT: list[tuple[Filter, str]] = [
    (_json("is", "web", "team"), "a"), (_json("is", "a", "list"), "c"), (_json("is", "a", "list", 0), "a"),
    (_json("is", True, "list", 2), "a"), (_json("is", 1, "list", 2), "a"), (_json("is", None, "list", 3), "abc"),
    (_json("is", 3, "n"), "a"), (_json("is", 3.0, "n"), "a"), (_json("is", 3.5, "n"), "b"), (_json("is", "3", "n"), "c"),
    (_json("is", True, "ok"), "ac"), (_json("is", 1.0, "ok"), "ac"), (_json("is", 0, "ok"), "b"), (_json("is", -0.0, "ok"), "b"),
    (_json("is", "true", "ok"), ""), (_json("is", None, "nil"), "abc"), (_json("is", None, "team"), "c"), (_json("is", None), ""),
    (_json("is", 1, "deep", "er", "x"), "a"), (_json("is", None, "deep", "er", "x"), "bc"), (_json("is", None, "list"), ""),
    (_json("is", 8, "记"), "a"), (_json("is", 4, "😀"), "a"), (_json("is", 3, "100%"), "a"), (_json("is", 7, "$eq"), "a"),
    (_json("is", 1, "it's"), "a"), (_json("is", 5, "a b"), "a"), (_json("is", "", "team"), ""), (_json("is", 2**70, "n"), ""),
    (_json("type", "object", "deep"), "ab"), (_json("type", "array", "list"), "ab"), (_json("type", "null", "nil"), "a"),
    (_json("type", "object"), "abc"), (_json("type", "object", "no"), ""), (Not(_json("type", "object", "deep", "er")), "bc"),
    (_json("size", 3, "list"), "a"), (_json("size", 0, "list"), "b"), (_json("size", 1, "deep"), "ab"), (_json("size", 4), "c"),
    (_json("size", 0, "no"), ""), (_json("$gte", 3, "n"), "ab"), (_json("$gte", 3.25, "n"), "b"), (_json("$lte", 3.0, "n"), "a"),
    (_json("$lte", "3", "n"), "c"), (_json("$gte", "p", "team"), "a"), (_json("$gte", 0, "ok"), "c"),
    (_json("$gte", "", "no"), ""), (_json("$gte", "a", "list"), "c"), (_json("$gte", 0, "list"), ""),
    (Not(_json("$gte", 3, "n")), "c"),
    (Not(_json("is", "web", "team")), "bc"),
    (Not(_json("is", "a", "list")), "ab"), (Not(_json("is", None, "team")), "ab"), (Not(_json("size", 3, "list")), "bc"),
    (_json("content", None, "said"), "b"), (Not(_json("content", None, "said")), "ac"), (_json("content", None, "list"), ""),
    (_json("is", "login", 1, field="tags"), "a"), (_json("type", "array", field="tags"), "abc"),
    (_json("size", 0, field="tags"), "c"), (_json("is", 'it\'s 100% "odd" \\ 😀', 1, field="tags"), "b"),
    (_json("is", "k", 0, field="keywords"), "a"), (Every((_json("is", 3, "n"), Not(_json("is", True, "pinned")))), "a"),
    (Some((_json("is", 3, "n"), _json("is", "3", "n"))), "ac"),
]  # fmt: skip
DIGITS: list[Any] = [
    0, 1, -1, True, False, None, 1.0, -0.0, 0.0, 0.1, 0.30000000000000004, 0.3, 2.9999999999999996, 3.0000000000000004, 3, 3.0,
    1e16, 10**16, 2**53, 2**53 + 1, float(2**53), 2**63, 2**70, float(2**70), 1e300, int(1e300), 5e-324, "", "0", "a", "a\0z",
    "a\0", "\n", "é", "e\u0301", '"', "\\", "null", "[1,1]", "😀", "\u2028", "\x7f", "</a>",
]  # fmt: skip


class Finding:
    """``find`` and ``matching``: filters, spaces, times and states."""

    @pytest.mark.parametrize(("where", "expected"), FILTERS, ids=[repr(where) for where, _ in FILTERS])
    def test_filters(self, store: Store, where: Where, expected: str) -> None:
        ids = self._written(store)
        assert "".join(found(store, where)) == expected
        assert store.matching(Query((HOME,), parse(where))) == {ids[name] for name in expected}
        assert "".join(found(store, where, as_of=store.head())) == expected

    @pytest.mark.parametrize(("tree", "expected"), EXACT, ids=[repr(tree) for tree, _ in EXACT])
    def test_exact_filters(self, store: Store, tree: Filter, expected: str) -> None:
        ids = self._written(store)
        assert [note.content for note in store.find(Query((HOME,), tree))] == [*expected]
        assert store.matching(Query((HOME,), tree, as_of=store.head())) == {ids[name] for name in expected}

    def _written(self, store: Store) -> dict[str, NoteId]:
        notes = [a_note(name, **more) for name, more in NOTES.items()]
        write(store, *map(PutNote, notes))
        put(store, "of another space", space="elsewhere")
        return {note.content: note.id for note in notes}

    def test_what_is_equal_to_the_digit(self, store: Store) -> None:
        """As Python sees it, not as a database reads a number or a text."""
        for number, value in enumerate(DIGITS):
            put(store, str(number), metadata={"x": {"y": [value]}})
        for wanted in DIGITS:
            same = [str(number) for number, value in enumerate(DIGITS) if value == wanted]
            test = Exact("metadata", ("x", "y", 0), "is", wanted)
            assert [note.content for note in store.find(Query((HOME,), test))] == same
            assert len(store.matching(Query((HOME,), Not(test)))) == len(DIGITS) - len(same)

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

    def test_spaces_below_a_prefix(self, store: Store) -> None:
        """Label by label, whatever the labels hold; a text is no prefix of any other space."""
        spaces = {*SPACES, *LABELLED}
        for space in spaces:
            put(store, "a text", space=space)
        for prefix in (*spaces, (), ("tea",), ("team", "a", "b", "c"), ("记",), "nobody"):
            below = {space for space in spaces if isinstance(space, tuple) and space[: len(prefix)] == prefix}
            assert store.spaces(prefix) == dict.fromkeys(below | {prefix} & spaces, 1)
        (note,) = put(store, "deleted", space=("gone", "a"))
        write(store, ArchiveNote(note.id, note.revision, "deleted"), space=("gone", "a"))
        assert store.spaces(("gone",)) == {("gone", "a"): 0}

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

    def test_the_log_of_actors_and_times(self, store: Store) -> None:
        for day, actor in enumerate(("user", "analyst:a", "analyst:b", "analyst", "agent*", "agent", "agents", "智能体:一")):
            write(store, PutNote(a_note()), actor=actor, at=START + timedelta(days=day))
        put(store, "elsewhere", space="elsewhere")

        def seqs(limit: int | None = None, **more: Any) -> list[int]:
            return [commit.seq for commit in store.log(limit, HOME, **more)]

        assert (seqs(actor="user"), seqs(actor="use"), seqs(actor="analyst"), seqs(actor="analyst:")) == ([1], [], [4], [3, 2])
        assert (seqs(actor="agent*"), seqs(actor="agent"), seqs(actor="智能体:")) == ([7, 6, 5], [6], [8])
        assert (seqs(2, actor="*"), seqs(actor="%:"), seqs(actor="*", before=3)) == ([8, 7], [], [2, 1])
        assert (seqs(since=START + timedelta(days=6)), seqs(until=START)) == ([8, 7], [1])
        within: dict[str, Any] = {"since": START + timedelta(hours=1), "until": START + timedelta(days=3)}
        assert (seqs(**within), seqs(actor="analyst:", **within), seqs(1, **within)) == ([4, 3, 2], [3, 2], [4])

    def test_commits_by_the_beginning_of_their_id(self, store: Store) -> None:
        commits = [
            replace(a_commit(PutNote(a_note(state="pending"))), id=CommitId(name)) for name in ("AB1", "AB2", "AC", "ab3", "A%")
        ]
        there = a_commit(PutNote(a_note(space="elsewhere", state="pending")), space="elsewhere")
        store.apply([*commits, replace(there, id=CommitId("AB0"))], {})
        assert store.commits_named("AB", HOME, 9) == ["AB1", "AB2"]
        assert store.commits_named("A", HOME, 2) == ["A%", "AB1"]
        assert store.commits_named("AB1", HOME, 9) == [commits[0].id]
        assert (
            store.commits_named("A_", HOME, 9) == store.commits_named("B", HOME, 9) == store.commits_named("AB1x", HOME, 9) == []
        )

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
