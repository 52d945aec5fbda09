"""What was: a scripted life of a memory and its past, who put what where, undoing in any order, and folding old history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import contents, entry, plain, reply
from typer.testing import CliRunner

from engramma import Memory
from engramma.cli.app import app
from engramma.commit import FOLDING, PutLink
from engramma.dates import period as read_period
from engramma.errors import Conflict, InvalidInput, UnknownId
from engramma.past import Blame
from engramma.store.sqlite import SqliteStore
from engramma.testing import HashEmbedder

EVERYTHING = ("superseded", "archived", "merged", "expired")
HIDDEN = ("archived", "merged")
LYON, BERLIN = "I live in Lyon, near Place Bellecour.", "I moved to Berlin in May."
ANA = {"speaker": "Ana"}


def add_home(memory: Memory) -> tuple[Any, Any]:
    """Ana's home, and the one that takes its place."""
    return memory.add(LYON, at="2026-01-05", **ANA), memory.add(BERLIN, at="2026-06-01", **ANA)


# -- the memory as it was


def steps(memory: Memory) -> Iterator[None]:
    """A life of a memory, step by step, each step a commit or two."""
    lyon = memory.add(LYON, at="2026-01-05", session="s", **ANA)
    yield
    berlin = memory.add(BERLIN, at="2026-06-01", session="s", **ANA)  # supersedes
    yield
    heron = memory.add("苍鹭站在芦苇里，不动。", session="s", tags=["bird"], key="heron")
    yield
    memory.add("苍鹭站在芦苇里，不动。")  # merged
    yield
    linked = memory.link(heron, berlin, kind="causes", reason="the bird was seen there")
    yield
    memory.link(heron, berlin, kind="causes", reason="the bird was seen there", strength=0.3)
    yield
    memory.update(heron, content="The heron left the reeds.", tags=["bird", "lake"])
    yield
    memory.update(heron, metadata={"seen": 2}, importance=5)
    yield
    memory.delete(berlin)  # Lyon holds again
    yield
    memory.revert(memory.log(limit=1)[0])
    yield
    memory.unlink(heron, berlin)
    yield
    other = memory.add("The heron was back in the reeds today.", **ANA)
    yield
    memory.merge([heron, other])
    yield
    memory.update(lyon, pinned=True)
    memory.delete(lyon)
    yield
    memory.add("A key again.", key="heron2", expires_at="2999-01-01")
    yield
    memory.revert(next(commit for commit in memory.log(limit=None) if linked in put_by(commit)))
    yield


def put_by(commit: Any) -> list[Any]:
    return [change.link for change in commit.changes if isinstance(change, PutLink)]


def held(memory: Memory, as_of: Any = None) -> dict[str, Any]:
    """All that a memory tells: every note with its links, each by itself too, and what searches bring back."""
    notes = memory.list(include=HIDDEN, as_of=as_of)
    asked = ("Where does Ana live?", "heron in the reeds", "苍鹭")
    return {
        "list": [plain(note) for note in notes],
        "in sight": contents(memory.list(as_of=as_of)),
        "get": [plain(memory.get(note.id, as_of=as_of)) for note in notes],
        "tagged": contents(memory.list(where={"tags": "bird"}, as_of=as_of)),
        "search": [hits(memory, text, as_of=as_of) for text in asked],
        "all": [hits(memory, text, as_of=as_of, include=EVERYTHING, min_relevance=0, k=99) for text in asked],
    }


def hits(memory: Memory, text: str, **more: Any) -> list[tuple[str, float, tuple[Any, ...]]]:
    return [(hit.note.id, pytest.approx(hit.score, abs=1e-3), hit.why.path) for hit in memory.search(text, **more)]


@pytest.mark.parametrize("how", ["number", "id", "time", "text"])
def test_as_of_each_commit_gives_what_the_memory_held_then(opened: Callable[..., Memory], how: str) -> None:
    memory = opened()
    then: list[tuple[Any, dict[str, Any]]] = []
    for _ in steps(memory):
        (commit,) = memory.log(limit=1)
        moments = {"number": commit.seq, "id": commit.id, "time": commit.at, "text": commit.at.isoformat()}
        then.append((moments[how], held(memory)))
    assert len(then) > 12
    again = opened()  # whose caches have seen nothing of it
    for moment, snapshot in then:
        for one in (memory, again):
            assert held(one, moment) == snapshot, moment
    assert memory.check().ok


def test_what_had_not_expired_then_comes_back_then(opened: Callable[..., Memory]) -> None:
    memory = opened()
    soon = datetime.now(UTC) + timedelta(seconds=1.2)
    note = memory.add("The kettle code is 4711.", expires_at=soon)
    before = memory.log()[0]
    assert contents(memory.search("kettle code")) == [note.content]
    while datetime.now(UTC) <= soon:
        time.sleep(0.05)
    assert memory.search("kettle code") == []
    for moment in (before, before.seq, before.at, before.id):
        assert contents(memory.search("kettle code", as_of=getattr(moment, "seq", moment))) == [note.content]
    memory.add("Something else.")
    assert memory.search("kettle code", as_of=memory.log()[0].id) == []
    assert memory.search("kettle code", as_of=datetime.now(UTC)) == []
    assert contents(memory.search("kettle code", as_of=memory.log()[0].id, include=["expired"])) == [note.content]


def test_what_will_have_expired(memory: Memory) -> None:
    memory.add("The kettle code is 4711.", expires_at="2900-01-01")
    assert len(memory.search("kettle code", as_of="2800-01-01")) == 1
    assert memory.search("kettle code", as_of="2950-01-01") == []


def test_before_the_first_commit_there_was_nothing(memory: Memory) -> None:
    note = memory.add(LYON)
    for moment in (0, -5, "2001-01-01", datetime(1, 1, 1, tzinfo=UTC)):
        assert memory.list(as_of=moment) == memory.search("Lyon", as_of=moment, min_relevance=0) == []
        with pytest.raises(UnknownId):
            memory.get(note, as_of=moment)


# -- the log


@pytest.fixture
def logged(opened: Callable[..., Memory]) -> Memory:
    """A memory with commits of several actors, days and spaces."""
    memory = opened(space="home")
    store = SqliteStore(memory.path)
    for number, (actor, space) in enumerate(
        [("user", "home"), ("analyst:rules", "home"), ("analyst:gpt*", "home"), ("agent:ana", "home"), ("agent:anabel", "home"),
         ("analyst", "home"), ("user", "away")]
    ):  # fmt: skip
        memory.add(f"text {number}", space=space)
        (commit,) = store.log(1)
        with closing(connection(memory.path)) as db, db:
            moment = datetime(2026, 1, 1 + number, tzinfo=UTC)
            db.execute(
                "UPDATE commit_log SET actor = ?, at = ? WHERE seq = ?",
                (actor, int(moment.timestamp()) * 1_000_000, commit.seq),
            )
    store.close()
    return memory


def connection(path: str) -> Any:
    import sqlite3

    return sqlite3.connect(path)


@pytest.mark.parametrize(("actor", "found"), [
    ("user", "0"), ("analyst:", "21"), ("analyst", "5"), ("analyst*", "521"), ("agent:ana", "3"), ("agent:ana*", "43"),
    ("analyst:gpt*", "2"), ("*", "543210"), ("nobody", ""), ("USER", ""), ("%", ""), ("机器人:", ""),
])  # fmt: skip
def test_the_log_of_an_actor(logged: Memory, actor: str, found: str) -> None:
    assert "".join(commit.reason.split()[2][0] for commit in logged.log(actor=actor)) == found


def test_the_log_between_two_times(logged: Memory) -> None:
    def numbers(**more: Any) -> list[int]:
        return [commit.seq for commit in logged.log(**more)]

    assert numbers(since="2026-01-03") == [6, 5, 4, 3]
    assert numbers(until="2026-01-03") == [3, 2, 1]  # to the end of that day
    assert numbers(since="2026-01-02", until=datetime(2026, 1, 4, tzinfo=UTC), limit=2) == [4, 3]
    assert numbers(since="2027-01-01") == numbers(until="2001-01-01") == []
    assert numbers(space=["home", "away"], since="2026-01-06") == [7, 6]
    assert numbers(note=logged.list()[0], until="2026-02-01") == [1]
    assert numbers(note=logged.list()[0], since="2026-02-01") == []
    assert numbers(note=logged.list()[0], actor="agent:") == []


@pytest.mark.parametrize("wrong", [{"actor": ""}, {"actor": 3}, {"since": "no time"}, {"until": "?"}, {"limit": -1}])
def test_a_log_of_nonsense(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        memory.log(**wrong)


def test_history_tells_who_why_and_when(memory: Memory) -> None:
    lyon, _ = add_home(memory)
    memory.update(lyon, importance=5)
    first, second, third = memory.history(lyon)
    assert (first.actor, first.reason) == ("analyst:rules", "added")
    assert (second.actor, second.reason) == ("analyst:rules", "home was Lyon, is now Berlin")
    assert (third.actor, third.reason, third.revision) == ("user", "updated importance", 3)
    assert first.at <= second.at <= third.at
    with pytest.raises(UnknownId):
        memory.history("nobody")


# -- blame


def blamed(memory: Memory, note: Any) -> dict[tuple[str, Any], Blame]:
    return {(one.part, one.value): one for one in memory.blame(note) if not isinstance(one.value, dict | list)}


def test_each_part_has_the_commit_that_put_it_there(modelled: Callable[..., Any]) -> None:
    change = {"note": "n1", "reason": "the new note says when", "context": "A heron, seen in May.", "add_tags": ["May"]}
    memory, _ = modelled(
        reply(context="A heron.", tags=["bird"], keywords=["heron"]),
        reply(entry(links=[{"to": "n1", "kind": "supports", "reason": "the same heron", "strength": 0.7}], changes=[change])),
    )
    heron = memory.add("The heron stands in the reeds.", tags=["mine"], metadata={"a": 1, "b": [2]})
    added, read = reversed(memory.log())
    memory.add("The heron of the reeds came in May.")
    evolved = memory.log()[0]
    memory.update(heron, importance=5, metadata={"a": 1, "b": [3]})
    by_hand = memory.log()[0]
    parts = blamed(memory, heron)
    assert parts["content", "The heron stands in the reeds."].commit == added
    assert parts["tag", "mine"].commit == added
    assert parts["tag", "bird"].commit == read
    assert parts["tag", "May"].commit == parts["context", "A heron, seen in May."].commit == evolved
    assert parts["tag", "May"].reason == "the new note says when"
    assert parts["importance", 5].commit == by_hand
    assert (parts["importance", 5].actor, parts["importance", 5].at) == ("user", by_hand.at)
    assert {one.part: one.commit for one in memory.blame(heron) if one.part.startswith("metadata")} == {
        "metadata.a": added, "metadata.b": by_hand,
    }  # fmt: skip
    (link,) = memory.get(heron).links
    assert (parts["link", link].commit, parts["link", link].reason) == (evolved, "the same heron")
    with pytest.raises(FrozenInstanceError):
        parts["link", link].part = "x"  # type: ignore[misc]


def test_blame_of_what_went_and_came_back(memory: Memory) -> None:
    note = memory.add("The kettle leaks.", tags=["home"])
    memory.update(note, tags=["office"])
    memory.update(note, tags=["office", "home"])
    third = memory.log()[0]
    assert blamed(memory, note)["tag", "home"].commit == third
    memory.revert(third)
    memory.revert(memory.log()[0])
    assert blamed(memory, note)["tag", "home"].commit == memory.log()[0]


def test_blame_of_links(memory: Memory) -> None:
    one, other = memory.add("The kettle leaks."), memory.add("苍鹭站在芦苇里。")
    memory.link(one, other, reason="first", strength=0.2)
    memory.unlink(one, other)
    memory.link(one, other, reason="again", strength=0.4)
    put = memory.log()[0]
    memory.link(one, other, reason="again", strength=0.9)
    made = [(blame.part, blame.commit) for blame in memory.blame(other) if blame.part.startswith("link")]
    assert made == [("link", put), ("link strength", memory.log()[0])]


def test_blame_of_state_and_validity(memory: Memory) -> None:
    lyon, berlin = add_home(memory)
    superseded = memory.log()[0]
    assert "state" not in {one.part for one in memory.blame(berlin)}
    parts = {one.part: one for one in memory.blame(lyon)}
    assert (parts["valid_until"].commit, parts["valid_until"].reason) == (superseded, "home was Lyon, is now Berlin")
    memory.delete(lyon)
    parts = {one.part: one for one in memory.blame(lyon)}
    assert (parts["state"].value, parts["state"].reason, "link" in parts) == ("archived", "deleted by hand", False)
    with pytest.raises(UnknownId):
        memory.blame("nobody")


# -- undoing


def notes_of(memory: Memory) -> dict[str, Any]:
    """All notes without what only counts changes."""
    found = [replace(note, revision=0) for note in memory.list(include=HIDDEN)]
    links = {note.id: sorted((*link.ends, link.reason, link.strength) for link in note.links) for note in found}
    return {note.id: (plain(replace(note, links=())), links[note.id]) for note in found}


def test_every_commit_undone_from_the_last_to_the_first_and_back(opened: Callable[..., Memory]) -> None:
    memory = opened()
    lives = [notes_of(memory) for _ in steps(memory)]
    log = memory.log(limit=None)
    undone = [memory.revert(commit) for commit in log]
    assert memory.list() == []
    assert {note.state for note in memory.list(include=HIDDEN)} == {"archived"}
    for commit in reversed(undone):
        memory.revert(commit)
    assert notes_of(memory) == lives[-1]
    assert memory.check().ok


def test_a_revert_out_of_order(memory: Memory) -> None:
    note, other = memory.add("The kettle leaks."), memory.add("苍鹭站在芦苇里。")
    memory.update(note, importance=5)
    first = memory.log()[0]
    memory.update(note, category="home")
    memory.link(note, other, reason="one house")
    linked = memory.log()[0]
    memory.update(other, tags=["bird"])
    memory.revert(first)
    assert (memory.get(note).importance, memory.get(note).category) == (note.importance, "home")
    memory.revert(linked)
    assert memory.get(note).links == ()
    memory.revert(memory.log()[0])
    assert [link.reason for link in memory.get(note).links] == ["one house"]


def unchanged(memory: Memory, commit: Any, *told: str) -> None:
    """Undoing is refused with these words, and nothing at all was changed."""
    before, head = notes_of(memory), memory.log()[0]
    with pytest.raises(Conflict) as refused:
        memory.revert(commit)
    for words in told:
        assert words in str(refused.value)
    assert (notes_of(memory), memory.log()[0]) == (before, head)


def test_conflicts_are_named_all_of_them(memory: Memory) -> None:
    note, other = memory.add("The kettle leaks."), memory.add("苍鹭站在芦苇里。")
    memory.update(note, importance=5, category="home", tags=["old"])
    first = memory.log()[0]
    memory.update(note, importance=1)
    second = memory.log()[0]
    memory.update(note, tags=["new"])
    third = memory.log()[0]
    unchanged(memory, first, f"importance of note {note.id!r} was changed again since by commit {second.id}", "to 1",
              f"tags of note {note.id!r} was changed again since by commit {third.id}", "to ('new',)")  # fmt: skip
    memory.link(note, other, strength=0.1)
    linked = memory.log()[0]
    memory.link(note, other, strength=0.2)
    again = memory.log()[0]
    unchanged(memory, linked, f"the link related from {note.id!r} to {other.id!r} was put anew since by commit {again.id}")
    memory.unlink(note, other)
    dropped = memory.log()[0]
    unchanged(memory, again, "was dropped since by commit", dropped.id)
    memory.link(note, other, reason="newer")
    unchanged(memory, dropped, "was put anew since by commit", memory.log()[0].id)
    memory.unlink(note, other)
    dropped = memory.log()[0]
    memory.delete(other)
    unchanged(memory, dropped, f"note {other.id!r} was deleted since by commit {memory.log()[0].id}")


def test_keys_of_metadata_are_undone_one_by_one(memory: Memory) -> None:
    note = memory.add("The kettle leaks.", metadata={"a": 1, "b": 1})
    memory.update(note, metadata={"a": 2, "b": 1, "c": 1})
    first = memory.log()[0]
    memory.update(note, metadata={"a": 2, "b": 2, "c": 1})
    second = memory.log()[0]
    memory.revert(first)
    assert memory.get(note).metadata == {"a": 1, "b": 2}
    memory.update(note, metadata={"a": 1, "b": 3})
    unchanged(memory, second, f"metadata.b of note {note.id!r} was changed again since by commit {memory.log()[0].id}", "to 3")


def test_what_was_undone_already(memory: Memory) -> None:
    note, other = memory.add("The kettle leaks."), memory.add("苍鹭站在芦苇里。")
    added = memory.log(note=note)[-1]
    undone = memory.revert(added)
    unchanged(memory, added, f"note {note.id!r} is deleted already by commit {undone.id}")
    memory.revert(undone)
    unchanged(memory, undone, f"note {note.id!r} is not deleted any more by commit {memory.log()[0].id}")
    memory.link(note, other)
    linked = memory.log()[0]
    memory.unlink(note, other)
    memory.revert(linked)  # the link is gone already: that is what undoing it means
    assert memory.get(note).links == ()


def test_undoing_a_note_takes_what_became_of_its_links(memory: Memory) -> None:
    """A link that a later commit made stronger goes with the note, and comes back with it."""
    lyon, berlin = add_home(memory)
    added = memory.log()[0]
    memory.link(berlin, lyon, kind="supersedes", reason="surely", strength=0.5)
    memory.link(berlin, lyon, kind="contradicts", reason="too")
    before = notes_of(memory)
    undone = memory.revert(added)
    assert contents(memory.list()) == [LYON]
    assert memory.get(lyon).valid_until is None
    memory.revert(undone)
    assert notes_of(memory) == before


def test_a_supersession_undone_in_the_middle(memory: Memory) -> None:
    paris = memory.add("I live in Paris.", at="2025-01-05", **ANA)
    memory.add("I moved to Lyon.", at="2025-06-01", **ANA)
    middle = memory.log()[0]
    berlin = memory.add("I moved to Berlin.", at="2026-06-01", **ANA)
    before = notes_of(memory)
    undone = memory.revert(middle)
    assert [(link.source, link.target) for link in memory.get(paris).links] == [(berlin.id, paris.id)]
    assert contents(memory.search("Where does Ana live?")) == ["I moved to Berlin."]
    memory.revert(undone)
    assert notes_of(memory) == before


def test_a_merge_undone_after_other_changes(memory: Memory) -> None:
    first = memory.add("The kettle leaks.", tags=["home"])
    second = memory.add("苍鹭站在芦苇里。", tags=["bird"])
    third = memory.add("The lamp is broken.", key="lamp")
    memory.link(second, third)
    before = notes_of(memory)
    merged = memory.merge([first, second])
    memory.update(third, importance=1)
    changed = memory.log()[0]
    undone = memory.revert(merged)
    memory.revert(changed)
    assert notes_of(memory) == before
    memory.revert(undone)
    assert memory.get(second).state == "merged"
    memory.update(first, tags=["something else"])
    unchanged(memory, memory.log(note=second)[0], f"tags of note {first.id!r} was changed again since")


def test_a_key_that_is_in_use_again(memory: Memory) -> None:
    note = memory.add("The kettle leaks.", key="k")
    gone = memory.delete(note)
    memory.add("苍鹭站在芦苇里。", key="k")
    unchanged(memory, gone, "key 'k' is in use")


def test_commits_that_are_not_there(memory: Memory) -> None:
    for wrong in ("nobody", "", "01" * 13, "苍鹭", 3):
        with pytest.raises(UnknownId):
            memory.revert(wrong)  # type: ignore[arg-type]


# -- folding


@pytest.fixture
def aged(opened: Callable[..., Memory]) -> tuple[Memory, list[Any]]:
    """The scripted life, a commit a day and the last one today, and what the memory held after each."""
    memory = opened()
    lives = []
    for _ in steps(memory):
        lives.append((memory.log(limit=1)[0].seq, held(memory)))
    memory.add("Of another space.", space=("team", "a"))
    head = memory.log(limit=1, space=("team", "a"))[0].seq
    now = int(time.time() * 1_000_000)
    with closing(connection(memory.path)) as db, db:
        db.execute("UPDATE commit_log SET at = ? - (? - seq) * 86400000000", (now, head))
    return memory, lives


def test_compact_keeps_what_is_and_what_was_since(aged: tuple[Memory, list[Any]]) -> None:
    memory, lives = aged
    log, costs = memory.log(limit=None), memory.stats()
    before = held(memory)
    report = memory.compact("6d")
    horizon = log[0].seq - 6
    assert (report.commits, report.dry_run) == (len([c for c in log if c.seq <= horizon + 1]), False)
    assert report.revisions > 5
    assert held(memory) == before
    assert memory.check().ok
    assert memory.stats().tokens == costs.tokens
    kept = memory.log(limit=None)
    assert [commit for commit in kept if commit.actor != FOLDING] == [commit for commit in log if commit.seq > horizon + 1]
    assert (kept[-1].actor, kept[-1].changes) == (FOLDING, ())
    assert "was folded away" in kept[-1].reason
    for seq, snapshot in lives:
        if seq > horizon:
            assert held(memory, seq) == snapshot
        elif seq < horizon:
            for ask in (memory.list, partial(memory.search, "heron")):
                with pytest.raises(InvalidInput, match=rf"as_of={seq} lies before .* folded away"):
                    ask(as_of=seq)


def test_what_is_older_than_the_horizon_says_so(aged: tuple[Memory, list[Any]]) -> None:
    memory, _ = aged
    log = memory.log(limit=None)
    memory.compact(timedelta(days=3))
    fold = memory.log(limit=None)[-1]
    for old in (log[-1], log[-1].id):
        with pytest.raises(UnknownId, match=r"there is no commit|folded away by compact"):
            memory.revert(old)
    with pytest.raises(Conflict, match=r"cannot revert: earlier history, up to .* was folded away"):
        memory.revert(fold)
    for moment in (log[-1].at, "2001-01-01", 0, fold.seq - 1):
        with pytest.raises(InvalidInput, match="lies before"):
            memory.get(memory.list()[0], as_of=moment)
    for note in memory.list(include=HIDDEN):
        history, parts = memory.history(note), memory.blame(note)
        assert all(one.commit.seq >= fold.seq for one in history)
        assert {one.commit.id for one in parts} <= {commit.id for commit in memory.log(limit=None)}
    first = memory.history(memory.list(include=HIDDEN)[0])[0]
    assert (first.actor, first.reason, first.at) == (FOLDING, fold.reason, fold.at)
    assert memory.revert(log[0].id if log[0].space == memory.space else memory.log()[0]) is not None
    assert memory.check().ok


def test_a_commit_that_was_folded_away_is_known_by_its_id(memory: Memory) -> None:
    memory.add(LYON)
    old = memory.log()[0].id
    memory.compact(0)
    with pytest.raises(UnknownId, match="was folded away by compact"):
        memory.revert(old)
    with pytest.raises(InvalidInput, match="lies before"):
        memory.list(as_of=old)
    with pytest.raises(UnknownId, match="there is no commit"):
        memory.revert("7ZZZZZZZZZZZZZZZZZZZZZZZZZ")


def test_compact_nothing_and_everything_and_again(opened: Callable[..., Memory]) -> None:
    memory = opened()
    assert memory.compact().commits == 0
    for _ in steps(memory):
        pass
    before = held(memory)
    assert (memory.compact("90d").commits, memory.compact("1000y").commits) == (0, 0)
    count = len(memory.log(limit=None))
    assert memory.compact(0).commits == count
    assert [commit.actor for commit in memory.log(limit=None)] == [FOLDING]
    assert memory.compact("0d").commits == memory.compact(0).commits == 0
    memory.add("One more.")
    assert memory.compact(timedelta(0)).commits == 1
    assert len(memory.log(limit=None)) == 1
    assert [note for note in held(memory)["list"] if note["content"] != "One more."] == before["list"]
    assert memory.check().ok


def test_a_dry_run_changes_nothing(aged: tuple[Memory, list[Any]]) -> None:
    memory, lives = aged
    log = memory.log(limit=None)
    would = memory.compact("3d", dry_run=True)
    assert would.dry_run
    assert (memory.log(limit=None), held(memory, lives[2][0])) == (log, lives[2][1])
    done = memory.compact("3d")
    assert (would.commits, would.revisions) == (done.commits, done.revisions)


def test_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=HashEmbedder(64)) as memory:
        note = memory.add("The kettle leaks.")
        for number in range(60):
            memory.update(note, context=f"{number} " + "reeds " * 3000)
        before = memory.stats().bytes
        report = memory.compact(0)
        after = memory.stats().bytes
        assert (report.bytes, report.revisions) == (before - after, 60)
        assert after < before / 4
        assert path.stat().st_size == after
        assert memory.get(note).context.startswith("59 ")


def test_another_memory_notices(opened: Callable[..., Memory]) -> None:
    """One whose index has seen less than what was folded reads all anew, and refuses the past that is gone."""
    one, other = opened(), opened()
    note = one.add("The kettle leaks.")
    assert len(other.search("kettle")) == 1
    one.update(note, content="The heron stands in the reeds.")
    lamp = one.add("The lamp in the hall is broken.")
    one.purge(lamp)
    one.add("The violin is in the garden.")
    one.compact(0)
    assert contents(other.search("heron reeds")) == ["The heron stands in the reeds."]
    assert contents(other.search("violin garden")) == ["The violin is in the garden."]
    assert other.search("kettle leaks") == other.search("lamp hall") == []
    with pytest.raises(InvalidInput, match="lies before"):
        other.search("kettle", as_of=1)


def test_a_note_of_before_can_be_changed_undone_and_purged(opened: Callable[..., Memory]) -> None:
    memory = opened()
    lyon, berlin = add_home(memory)
    memory.compact(0)
    memory.update(lyon, importance=5)
    changed = memory.log()[0]
    assert {one.part for one in memory.blame(lyon) if one.actor == "user"} == {"importance"}
    memory.revert(changed)
    assert memory.get(lyon).importance == 3
    memory.unlink(berlin, lyon)
    memory.revert(memory.log()[0])
    memory.update(lyon, content="I live in Lyon no more.")
    memory.revert(memory.log()[0])
    assert memory.get(lyon).vector is not None
    memory.purge(berlin)
    assert contents(memory.list(include=HIDDEN)) == [LYON]
    assert memory.check().ok


@pytest.mark.parametrize(("keep", "period"), [
    ("90d", timedelta(days=90)), ("12w", timedelta(weeks=12)), ("6m", timedelta(days=180)), ("1y", timedelta(days=365)),
    (" 36H ", timedelta(hours=36)), (0, timedelta(0)), ("0", timedelta(0)), (timedelta(days=2), timedelta(days=2)),
])  # fmt: skip
def test_periods(keep: Any, period: timedelta) -> None:
    assert read_period("keep", keep) == period


@pytest.mark.parametrize(
    "keep",
    [90, -1, "90", "-3d", "d", "", "three years", "九十天", "9999999d", None, True, False, 1.5, 0.0, timedelta(-1), [], "1.5d"],
)
def test_no_periods(memory: Memory, keep: Any) -> None:
    with pytest.raises(InvalidInput, match=r"keep=.* is not a period"):
        memory.compact(keep)


# -- the command line


class Shell:
    """Runs commands on one memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["--db", str(self.path), *words])
        assert done.exit_code == code, (words, done.output, done.exception)
        return done.output

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Ana's two homes, and some changes by hand."""
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder="hash:128") as memory:
        lyon, berlin = add_home(memory)
        memory.update(lyon, tags=["home", "past"], importance=5, pinned=True, metadata={"trust": 3})
        memory.update(lyon, content="I live in Lyon, near Place Bellecour. " + "It is a street. " * 40 + "No dogs.")
        memory.update(lyon, content="I live in Lyon, near Place Bellecour. " + "It is a street. " * 40 + "No cats.")
        memory.link(berlin, memory.add("苍鹭站在芦苇里。", session="s"), reason="一只鸟")
    return Shell(path)


def test_log_on_the_command_line(shell: Shell) -> None:
    lines = shell.run("log").splitlines()
    assert len(lines) == 7
    assert all("01" in line for line in lines)
    assert len(shell.run("log", "--actor", "analyst:").splitlines()) == 3
    assert len(shell.run("log", "--actor", "us*", "-n", "2").splitlines()) == 2
    assert shell.run("log", "--actor", "nobody") == shell.run("log", "--until", "2001-01-01") == ""
    assert len(shell.run("log", "--since", "1 hour ago").splitlines()) == 7
    assert "actor" in shell.run("log", "--actor", "", code=2)
    assert "since" in shell.run("log", "--since", "no time", code=2)


def test_differences_in_words(shell: Shell) -> None:
    lyon = shell.json("list", "--include", "superseded")[0]["id"]
    for shown in (shell.run("log", "--full", "--note", lyon), shell.run("history", lyon)):
        assert "tags        +past  −city" in shown
        assert "importance  3 → 5" in shown
        assert "pinned      no → yes" in shown
        assert "valid until none → 2026-06-01" in shown
        assert "metadata.trust" in shown
        assert "none → 3" in shown
        assert "street. No dogs." in shown
        assert "street. No cats." in shown
        assert shown.count("It is a street") < 100  # a long text is shown where it differs
        assert "{" not in shown
        assert "given" not in shown


def test_a_commit_by_the_beginning_of_its_id(shell: Shell) -> None:
    with Memory.open(shell.path) as memory:
        commits = memory.log()
        for commit in commits:
            starts = (commit.id[:size] for size in range(6, 27))
            start = next(start for start in starts if sum(one.id.startswith(start) for one in commits) == 1)
            assert memory.commit(start) == memory.commit(start.lower()) == memory.commit(commit.id) == commit
        with pytest.raises(InvalidInput, match="begins several ids"):
            memory.commit(commits[0].id[:6])
        for wrong in ("01", commits[0].id + "0", "nobody", "", "苍鹭站在芦苇里"):
            with pytest.raises(UnknownId, match="there is no commit"):
                memory.commit(wrong)
    assert "there is no" in shell.run("revert", "01ZZZZZZ", code=3)
    shell.run("show", commits[0].id, "--space", "away", code=3)
    reverted = shell.json("revert", commits[1].id[:25])
    assert f"reverts  {commits[1].id}" in shell.run("show", reverted["id"])


def test_show_as_of_names_the_notes_of_then(shell: Shell) -> None:
    berlin, heron = (note["id"] for note in shell.json("list", "--include", "superseded")[1:])
    then = shell.json("log")[0]["id"]
    shell.run("rm", "--yes", heron)
    assert "苍鹭" in shell.run("show", berlin, "--as-of", then)
    assert "苍鹭" not in shell.run("show", berlin)


def test_explain(shell: Shell) -> None:
    lyon, berlin, heron = (note["id"] for note in shell.json("list", "--include", "superseded"))
    told = shell.run("explain", berlin[:26].lower())
    parts = (
        "where it came from", "said       Ana  2026-06-01", "by analyst:rules: added", "supersedes 0.95",
        "home was Lyon, is now Berlin", "“苍鹭站在芦苇里。”  一只鸟", "changed since", "changed in other notes",
        "valid until none → 2026-06-01",
    )  # fmt: skip
    for part in parts:
        assert part in told, told
    told = shell.run("explain", lyon)
    assert "tag         past" in told
    assert "user: updated importance, metadata, pinned, tags" in told
    assert "changed in other notes" not in told
    value = shell.json("explain", heron)
    assert [link["value"]["reason"] for link in value["links"]] == ["一只鸟"]
    assert (value["note"]["id"], value["origin"]["actor"], len(value["changed_by"]), value["changed"]) == (
        heron,
        "analyst:rules",
        1,
        [],
    )
    assert {"part", "value", "commit", "at", "actor", "reason"} == set(value["parts"][0])
    assert "there is no note" in shell.run("explain", "nobody", code=3)


def test_explain_what_is_deleted_or_folded(shell: Shell) -> None:
    lyon, berlin, heron = (note["id"] for note in shell.json("list", "--include", "superseded"))
    shell.run("rm", "--yes", heron)
    assert "archived" in shell.run("explain", heron)
    shell.run("compact", "--keep", "0")
    told = shell.run("explain", lyon)
    assert "folded away" in told
    assert "“I moved to Berlin in May.”" in told
    assert "earlier revisions were folded away" in shell.run("history", lyon)
    shell.run("rm", "--yes", "--purge", berlin)
    assert "Berlin" not in shell.run("explain", lyon)


def test_compact_on_the_command_line(shell: Shell) -> None:
    assert shell.run("compact").startswith("0 commits and 0 earlier revisions folded away")
    assert shell.run("compact", "--keep", "0", "--dry-run").startswith(
        "7 commits and 6 earlier revisions would be folded away, about"
    )
    assert len(shell.run("log").splitlines()) == 7
    done = shell.json("compact", "--keep", "0d")
    assert (done["commits"], done["revisions"], done["dry_run"], done["bytes"] >= 0) == (7, 6, False, True)
    assert "was folded away" in shell.run("log")
    assert "is not a period" in shell.run("compact", "--keep", "90", code=2)
    assert "lies before" in shell.run("list", "--as-of", "2001-01-01", code=2)
