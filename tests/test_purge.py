"""What is removed for good is gone: from every row, and from every byte of the files."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import contents, entry, reply

from engramma import Memory
from engramma.errors import Conflict, StoreBusy, UnknownId
from engramma.store import connection
from engramma.testing import HashEmbedder

SECRET = "My locker at the Xylovian harbour opens with quetzalcoatl-77."
GEHEIM = "我在翡翠岛的保险箱密码是麒麟七七八九。"
LONG = " ".join(f"Chapter {n}: the Wrzoszczyk ledger lists parcel zq{n:04d}k for nobody." for n in range(400))
LANG = "".join(f"第{n}章：饕餮账簿记下了第{n}号包裹。" for n in range(400))
WORDS = ("Xylovian", "quetzalcoatl", "翡翠岛", "麒麟七七", "Wrzoszczyk", "zq0000k", "zq0399k", "饕餮账簿")
PLAIN = ("The heron stands in the reeds.", "The kettle leaks.", "苍鹭站在芦苇里。")


def raw(path: Path) -> bytes:
    """The bytes of the database, its write-ahead log and its shared memory."""
    files = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", "-journal")]
    return b"".join(file.read_bytes() for file in files if file.exists())


def left(path: Path, *words: str) -> list[str]:
    """Which of some words stand in the files, in any encoding that SQLite knows."""
    data = raw(path).lower()
    encodings = ("utf-8", "utf-16-le", "utf-16-be")
    escaped = {word: word.encode("ascii", "backslashreplace") for word in words}
    return [word for word in words if any(word.lower().encode(one) in data for one in encodings) or escaped[word].lower() in data]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@contextmanager
def opened(path: Path, **more: object) -> Iterator[Memory]:
    memory = Memory.open(path, embedder=HashEmbedder(64), **more)
    try:
        yield memory
    finally:
        memory.close()


def test_the_search_of_files_finds_what_is_there(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many([SECRET, GEHEIM, LONG, LANG])
        assert left(path, *WORDS, "nowhere") == list(WORDS)


@pytest.mark.parametrize("text", [SECRET, GEHEIM, LONG, LANG], ids=["short", "kurz", "pages", "Seiten"])
def test_no_byte_of_a_purged_note_is_left(path: Path, text: str) -> None:
    with opened(path) as memory:
        memory.add_many(PLAIN)
        note = memory.add(text, speaker="Ana", session="s", key="k", metadata={"more": text[:60]}, keywords=[text[:20]])
        memory.update(note, tags=["harbour"])
        memory.update(note, content=text + " And more.")
        memory.update(note, content=text)
        memory.delete(note)
        memory.revert(memory.log()[0])
        done = memory.purge(note)
        assert left(path, *WORDS) == []
        assert memory.check().ok
        assert (done.reason, [type(change).__name__ for change in done.changes]) == (
            "purge: one note removed for good", ["RemoveNote"],
        )  # fmt: skip
        assert contents(memory.list()) == list(PLAIN)
        assert memory.search(text[:200], min_relevance=0, k=9) != []
    assert left(path, *WORDS) == []


def test_vectors_go_too(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many(PLAIN)
        note = memory.get(memory.add(SECRET))
        assert note.vector is not None
        data = note.vector.tobytes()
        assert data in raw(path)
        memory.purge(note)
        assert data not in raw(path)


def test_copies_that_stay_behind_where_pages_split_go_too(path: Path) -> None:
    """Deleting zeroes a row, but not the copies of it that a page keeps when it was split."""
    chance = random.Random(1)
    with opened(path) as memory:
        notes = [memory.add(f"Item {number}: {'reeds ' * chance.choice([3, 20, 100])}", distinct=True, key=f"key{number:04d}")
                 for number in range(250)]  # fmt: skip
        for _ in range(150):
            memory.update(chance.choice(notes), context="reeds " * chance.choice([1, 50, 150]))
        doubled = copies(path, [note.key or "" for note in notes])
        assert doubled, "this SQLite leaves no copies behind: the test shows nothing"
        for note in notes:
            if note.key in doubled[:5]:
                memory.purge(note)
        assert left(path, *doubled[:5]) == []


def copies(path: Path, keys: list[str]) -> list[str]:
    """The keys that stand in the file more often than in its tables and their index."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = "\n".join(db.iterdump())
    data = raw(path)
    return [key for key in keys if data.count(key.encode()) > rows.count(key) + 1]


@pytest.mark.parametrize("text", [SECRET, LANG], ids=["short", "Seiten"])
def test_another_memory_has_the_file_open(path: Path, text: str) -> None:
    with opened(path) as one, opened(path) as other:
        one.add_many(PLAIN)
        note = one.add(text)
        assert text in contents(other.search(text[:300], min_relevance=0))
        assert text in contents(other.list())
        one.purge(note)
        assert left(path, *WORDS) == []
        assert contents(other.list()) == list(PLAIN)
        assert set(contents(other.search(text[:300], min_relevance=0))) <= set(PLAIN)


READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "reading":
    db.execute("BEGIN")
print(db.execute("SELECT count(*) FROM note").fetchone()[0], flush=True)
sys.stdin.readline()
"""


@contextmanager
def another_process(path: Path, doing: str) -> Iterator[Callable[[], None]]:
    process = subprocess.Popen(
        [sys.executable, "-c", READER, path, doing], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()

    def end() -> None:
        process.communicate("\n")

    try:
        yield end
    finally:
        end() if process.poll() is None else None


def test_another_process_has_the_file_open(path: Path) -> None:
    with opened(path) as memory:
        note = memory.add(SECRET)
        with another_process(path, "idle"):
            memory.purge(note)
            assert left(path, *WORDS) == []


def test_what_another_process_keeps_from_being_cleaned_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SCOUR_SECONDS", 0.1)
    with opened(path) as memory:
        memory.add_many(PLAIN)
        note = memory.add(SECRET)
        with another_process(path, "reading") as end:
            with pytest.raises(StoreBusy, match="words may still stand in"):
                memory.purge(note)
            assert contents(memory.list()) == list(PLAIN)  # gone from the memory all the same
            assert any("may still stand" in problem for problem in memory.check().problems)
            end()
    with opened(path) as memory:
        assert memory.check().ok
        assert left(path, *WORDS) == []


def test_a_process_that_was_stopped_before_it_cleaned_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as memory:
        note = memory.add(SECRET)
        monkeypatch.setattr("engramma.store.sqlite.scour", lambda *given: None)
        memory.purge(note)
        assert not memory.check().ok
    monkeypatch.undo()
    with opened(path) as memory:
        assert memory.check().ok
    assert left(path, *WORDS) == []


# -- quotations


def test_reasons_of_the_log_and_of_links(path: Path) -> None:
    with opened(path) as memory:
        lyon = memory.add("I live in Lyon, near Place Bellecour.", speaker="Ana", at="2026-01-05")
        berlin = memory.add("I moved to Berlin in May.", speaker="Ana", at="2026-06-01")
        assert memory.get(berlin).links[0].reason == "home was Lyon, is now Berlin"
        memory.purge(lyon)
        assert left(path, "Lyon", "Bellecour") == []
        assert "Berlin" in memory.get(berlin).content
        memory.purge(berlin)
        assert left(path, "Berlin", "I moved") == []
        assert {commit.reason for commit in memory.log()} == {"(content removed for good)", "purge: one note removed for good"}


def test_purging_the_newer_leaves_the_older_as_it_was(path: Path) -> None:
    with opened(path) as memory:
        lyon = memory.add("I live in Lyon, near Place Bellecour.", speaker="Ana", at="2026-01-05")
        berlin = memory.add("I moved to Berlin in May.", speaker="Ana", at="2026-06-01")
        memory.purge(berlin)
        assert left(path, "Berlin") == []
        kept = memory.get(lyon)
        assert (kept.context, kept.keywords, kept.valid_until) == (lyon.context, lyon.keywords, None)
        assert [revision.reason for revision in memory.history(lyon)] == [
            "added", "(content removed for good)", "what superseded it was removed for good",
        ]  # fmt: skip


@pytest.mark.parametrize("deleted_first", [False, True])
def test_the_middle_of_a_chain_leaves_no_name_behind(path: Path, deleted_first: bool) -> None:
    with opened(path) as memory:
        first = memory.add("I live in Paris.", speaker="Ana", at="2025-01-05")
        middle = memory.add("I moved to Lyon.", speaker="Ana", at="2025-06-01")
        last = memory.add("I moved to Berlin.", speaker="Ana", at="2026-06-01")
        if deleted_first:
            memory.delete(middle)
        memory.purge(middle)
        assert left(path, "Lyon") == []
        assert memory.check().ok
        assert [(link.source, link.target) for link in memory.get(last).links] == [(last.id, first.id)]
        assert memory.get(first).valid_until is not None


def test_the_turns_around_it_are_joined(path: Path) -> None:
    with opened(path) as memory:
        first, note, last = (memory.add(text, session="s") for text in (*PLAIN[:2], "The violin is new."))
        memory.purge(note)
        assert [link.ends for link in memory.get(last).links] == [(last.id, first.id, "follows")]
        assert memory.check().ok


def test_a_revert_that_quotes_it(path: Path) -> None:
    with opened(path) as memory:
        note = memory.add(SECRET)
        undone = memory.revert(memory.log()[0])
        memory.revert(undone)
        memory.purge(note)
        assert left(path, *WORDS) == []


def test_what_evolution_wrote_elsewhere(modelled, path: Path) -> None:
    """A context, keywords and reasons that a model gave to another note because of the one that is purged."""
    change = {
        "note": "n1", "reason": "Ana keeps a quetzalcoatl there", "context": "The harbour, where the Xylovian locker is.",
        "add_keywords": ["quetzalcoatl", "boats"],
    }  # fmt: skip
    link = {"to": "n1", "kind": "related", "reason": "the harbour of the Xylovian locker", "strength": 0.8}
    memory, _ = modelled(
        reply(context="A harbour.", keywords=["harbour"]), reply(entry(links=[link], changes=[change])), name="memory.db"
    )
    harbour = memory.add("The harbour is quiet in winter.")
    assert memory.get(harbour).context == "A harbour."
    note = memory.add(SECRET)
    assert "Xylovian" in memory.get(harbour).context, memory.log()
    assert memory.get(harbour).keywords == ("harbour", "quetzalcoatl", "boats")
    memory.update(harbour, importance=5)
    memory.purge(note)
    assert left(path, *WORDS) == []
    assert memory.check().ok
    kept = memory.get(harbour)
    assert (kept.content, kept.importance, kept.keywords) == ("The harbour is quiet in winter.", 5, ("harbour", "boats"))
    memory.revert(next(commit for commit in memory.log() if commit.reason.startswith("updated importance")))
    assert memory.get(harbour).importance == 3


def test_a_later_note_keeps_what_it_says_itself(path: Path) -> None:
    """The log of a note that was linked to the purged one is not emptied for that."""
    with opened(path) as memory:
        note = memory.add("The heron stands in the reeds by the Xylovian lake.", speaker="Ana")
        other = memory.add("The heron of the lake was gone today, says Ben.", speaker="Ana")
        memory.link(other, note, kind="related", reason="both about the heron")
        before = memory.get(other)
        memory.purge(note)
        after = memory.get(other)
        assert (after.context, after.keywords, after.tags) == (before.context, before.keywords, before.tags)
        assert [revision.note.context for revision in memory.history(other)] == [before.context]
        assert left(path, "Xylovian") == []


def test_restatements_and_insights_go_with_it(path: Path) -> None:
    with opened(path) as memory:
        note = memory.add(SECRET, speaker="Ana")
        assert memory.add(SECRET, speaker="Ana").id == note.id
        assert len(memory.list(include=("merged",))) == 2
        memory.purge(note)
        assert memory.list(include=("merged", "archived")) == []
        assert left(path, *WORDS) == []


def test_insights_made_from_it_go_too(path: Path) -> None:
    """Ours, at any height; a note that an author links to it by hand stays."""
    with opened(path) as memory:
        note = memory.add(SECRET, speaker="Ana")
        insight = memory.update(memory.add(f'Ana spoke of it: "{SECRET}"', key="insight:1", distinct=True), level="insight")
        higher = memory.update(memory.add("Ana has a Xylovian locker.", key="insight:2", distinct=True), level="insight")
        mine = memory.add("A summary of my own.", distinct=True)
        for source, target in ((insight, note), (higher, insight), (mine, note)):
            memory.link(source, target, kind="derived_from")
        memory.delete(higher)
        memory.purge(note)
        assert contents(memory.list(include=("merged", "archived"))) == ["A summary of my own."]
        assert left(path, *WORDS) == []
        assert memory.check().ok


def test_what_was_loaded_or_deleted_before(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(tmp_path / "first.db") as first:
        first.add(SECRET)
        first.export(out)
    with opened(path) as memory:
        memory.load(out)
        (note,) = memory.list()
        memory.delete(note)
        memory.purge(note)
        assert left(path, *WORDS) == []


def test_after_the_history_was_folded(path: Path) -> None:
    with opened(path) as memory:
        lyon = memory.add("I live in Lyon, near Place Bellecour.", speaker="Ana", at="2026-01-05")
        berlin = memory.add("I moved to Berlin in May.", speaker="Ana", at="2026-06-01")
        memory.compact(0)
        memory.purge(lyon)
        assert left(path, "Lyon", "Bellecour") == []
        assert memory.get(berlin).content == "I moved to Berlin in May."
        assert memory.check().ok


# -- tombstones, spaces


def test_the_tombstone_cannot_be_reverted(path: Path) -> None:
    with opened(path) as memory:
        note = memory.add(SECRET)
        added = memory.log()[0]
        done = memory.purge(note)
        for commit in (done, added):
            with pytest.raises(Conflict, match="removed for good"):
                memory.revert(commit)
        with pytest.raises(UnknownId):
            memory.history(note)
        with pytest.raises(UnknownId):
            memory.blame(note)
        memory.compact(0)
        assert [commit.id for commit in memory.log()][:1] == [done.id]  # a tombstone outlives the log
        with pytest.raises(Conflict, match="removed for good"):
            memory.revert(done)


def test_delete_space(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many(PLAIN)
        texts = (SECRET, GEHEIM, LONG, LANG)
        notes = [memory.add(text, space=("team", "a"), speaker="Ana") for text in texts]
        memory.link(notes[0], notes[1], reason="both about 麒麟七七")
        memory.update(notes[2], context="The Wrzoszczyk ledger.")
        memory.delete(notes[3])
        done = memory.delete_space(("team", "a"))
        assert done is not None
        assert left(path, *WORDS) == []
        assert memory.check().ok
        assert memory.delete_space(("team", "a")) is None
        assert contents(memory.list()) == list(PLAIN)
        assert [commit.reason for commit in memory.log()] == [
            'add "苍鹭站在芦苇里。": 1 added',
            'add "The kettle leaks.": 1 added', 'add "The heron stands in the reeds.": 1 added',
        ]  # fmt: skip
        log = memory.log(space=("team", "a"))
        assert (log[0].id, {commit.reason for commit in log[1:]}) == (done.id, {"(content removed for good)"})
        with pytest.raises(Conflict, match="removed for good"):
            memory.revert(done)


def test_delete_space_while_another_process_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SCOUR_SECONDS", 0.1)
    with opened(path) as memory:
        memory.add(SECRET, space="alice")
        with another_process(path, "reading") as end:
            with pytest.raises(StoreBusy):
                memory.delete_space("alice")
            end()
        memory.compact("90d")  # cleans the file as well
        assert memory.check().ok
        assert left(path, *WORDS) == []


def test_the_words_of_other_spaces_stay(path: Path) -> None:
    with opened(path) as memory:
        mine = memory.add(SECRET)
        memory.add(SECRET, space="bob")
        memory.purge(mine)
        assert contents(memory.list(space="bob")) == [SECRET]
        assert SECRET[:20] in memory.log(space="bob")[0].reason


def test_a_purge_in_a_memory_that_lies_nowhere() -> None:
    with Memory.open(":memory:", embedder=HashEmbedder(64)) as memory:
        note = memory.add(SECRET)
        memory.purge(note)
        assert memory.check().ok


def test_no_setting_is_left_behind(path: Path) -> None:
    with opened(path) as memory:
        memory.purge(memory.add(SECRET))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM meta WHERE key = 'unscoured'").fetchone()[0] == 0
