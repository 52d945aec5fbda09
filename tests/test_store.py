"""The SQLite store: the conformance suite, and what is a matter of files."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from engramma import Memory
from engramma.commit import RemoveNote
from engramma.errors import NotAMemory, StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from engramma.store import SqliteStore, Store, connection
from engramma.testing import ScriptedLLM
from engramma.testing.conformance import StoreConformance, put, revise, write

EMBEDDER = "hash:64"


class TestSqliteStore(StoreConformance):
    @pytest.fixture(params=["memory", "file"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(":memory:" if request.param == "memory" else str(tmp_path / "memory.db"))
        yield store
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def opened(path: Path | str, **more: Any) -> Memory:
    return Memory.open(path, embedder=EMBEDDER, **more)


def made(path: Path, *texts: str) -> list[str]:
    """A memory file with some notes; their ids."""
    with opened(path) as memory:
        return [note.id for note in memory.add_many(texts or ("The heron stands in the reeds.",))]


def dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return "\n".join(db.iterdump())


class TestMigrations:
    def test_numbered_from_one_without_gaps(self) -> None:
        steps = connection.migrations()
        assert [number for number, _ in steps] == list(range(1, len(steps) + 1))
        assert all(sqlite3.complete_statement(script.rstrip()) for _, script in steps)

    def test_idempotent(self, path: Path) -> None:
        made(path)
        before = dump(path)
        for _ in range(3):
            SqliteStore(str(path)).close()
        assert dump(path) == before

    def test_the_file_says_whose_it_is(self, path: Path) -> None:
        made(path)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA application_id").fetchone() == (connection.APPLICATION_ID,)
            assert db.execute("PRAGMA user_version").fetchone() == (connection.migrations()[-1][0],)
            assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_a_newer_file_is_left_alone(self, path: Path) -> None:
        made(path)
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 999")
        before = path.read_bytes()
        with pytest.raises(StoreTooNew, match=r"999.*upgrade"):
            opened(path)
        assert path.read_bytes() == before


class TestOtherFiles:
    def test_another_applications_database(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE note (id TEXT)")
            db.execute("INSERT INTO note VALUES ('mine')")
            db.commit()
        before = path.read_bytes()
        with pytest.raises(NotAMemory, match="not an engramma memory"):
            opened(path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_another_applications_database_with_a_wal(self, path: Path) -> None:
        theirs = path.with_name("theirs.db")
        with closing(sqlite3.connect(theirs)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE t (x)")
            for end in ("", "-wal"):  # as after a crash of that application
                shutil.copy(f"{theirs}{end}", f"{path}{end}")
        before = path.read_bytes()
        with pytest.raises(NotAMemory):
            opened(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "content",
        [b"hi", b"Dear diary,\n" * 500, random.Random(1).randbytes(9000), b"SQLite format 3\0", b"SQLite format 3\0" * 900],
    )  # fmt: skip
    def test_text_and_garbage(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(NotAMemory):
            opened(path)
        assert path.read_bytes() == content

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="is a folder"):
            opened(tmp_path)

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="create it first"):
            opened(tmp_path / "no" / "memory.db")
        assert list(tmp_path.iterdir()) == []

    def test_an_empty_file_is_new(self, path: Path) -> None:
        path.touch()
        made(path, "A first note.")
        with opened(path) as memory:
            assert [note.content for note in memory.list()] == ["A first note."]

    @pytest.mark.parametrize("name", ["with space.db", "100%?#&.db", "记忆😀.db", "file:x.db", "'quoted\".db"])
    def test_odd_names(self, tmp_path: Path, name: str) -> None:
        made(tmp_path / name)
        assert [entry.name for entry in tmp_path.iterdir()] == [name]


class TestRemoval:
    WORDS = ("xylophone", "violoncello")

    def removed(self, path: Path) -> SqliteStore:
        """A store in which everything with these words was removed."""
        store = SqliteStore(str(path))
        put(store, "stays")
        (note,) = put(store, self.WORDS[0], tags=("xylophone",), key="xylophone", metadata={"xylophone": ["xylophone"]})
        revise(store, note, content=self.WORDS[1], context="xylophone")
        write(store, RemoveNote(note.id, "purged"))
        return store

    def words_in(self, path: Path) -> list[str]:
        return [word for file in path.parent.iterdir() for word in self.WORDS if word.encode() in file.read_bytes()]

    def test_no_word_is_left_in_the_closed_file(self, path: Path) -> None:
        self.removed(path).close()
        assert self.words_in(path) == []
        assert not [word for word in self.WORDS if word in dump(path)]

    def test_no_word_is_left_while_the_store_is_open(self, path: Path) -> None:
        with closing(self.removed(path)):
            assert self.words_in(path) == []


class TestLocks:
    def test_a_lock_held_too_long(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
        made(path)
        with opened(path) as memory, closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy) as caught:
                memory.add("A text that must not be lost.")
            assert caught.value.unsaved == ["A text that must not be lost."]
            assert isinstance(caught.value, TimeoutError)
            assert len(memory.list()) == 1  # reading goes on
            other.execute("ROLLBACK")
            memory.add("A text that must not be lost.")
            assert memory.check().ok


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, gone afterwards."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield folder
    finally:
        if subprocess.run(["umount", folder], capture_output=True).returncode:  # a file is still open
            subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def text(number: int) -> str:
    words = random.Random(number).sample(["heron", "reed", "lake", "boat", "rain", "stone", "moss", "fish", "wind", "oar"], 6)
    return f"{number} {' '.join(words)} {number * number}"


class TestDisk:
    def test_a_read_only_disk(self, small_disk: Path) -> None:
        made(small_disk / "memory.db")
        remount(small_disk, "ro")
        for name in ("memory.db", "new.db"):
            with pytest.raises(StoreReadOnly, match="write permission"):
                opened(small_disk / name)
        assert issubclass(StoreReadOnly, PermissionError)

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    @pytest.mark.parametrize("which", ["file", "folder"])
    def test_a_read_only_file_or_folder(self, path: Path, which: str) -> None:
        made(path)
        locked = path if which == "file" else path.parent
        mode = locked.stat().st_mode
        locked.chmod(0o500)
        try:
            with pytest.raises(StoreReadOnly, match="write permission"):
                opened(path)
        finally:
            locked.chmod(mode)

    def filled(self, memory: Memory) -> tuple[list[str], StoreFull]:
        """Texts that fitted, and the error of the one that did not."""
        kept: list[str] = []
        for number in range(5000):
            try:
                memory.add(text(number))
            except StoreFull as error:
                return kept, error
            kept.append(text(number))
        pytest.fail("the disk did not fill up")

    def test_a_full_disk_loses_nothing(self, small_disk: Path) -> None:
        path = small_disk / "memory.db"
        with opened(path) as memory:
            kept, error = self.filled(memory)
            assert error.unsaved == [text(len(kept))]
            assert "nothing was lost" in str(error)
            assert [note.content for note in memory.list(include=("merged",))] == kept
            assert memory.check().ok
            with pytest.raises(StoreFull):
                memory.update(memory.list()[0], context="does not fit either " * 20000)
        remount(small_disk, "size=8M")
        with opened(path) as memory:
            assert [note.content for note in memory.list(include=("merged",))] == kept
            assert memory.check().ok
            for unsaved in error.unsaved:
                memory.add(unsaved)
            assert memory.check().ok

    def test_many_texts_on_a_full_disk(self, small_disk: Path) -> None:
        texts = [text(number) for number in range(500)]
        with opened(small_disk / "memory.db") as memory:
            with pytest.raises(StoreFull) as caught:
                memory.add_many(texts)
            kept = [note.content for note in memory.list(include=("merged",))]
        assert kept + list(caught.value.unsaved) == texts
        assert kept

    def test_many_texts_with_a_model_on_a_full_disk(self, small_disk: Path) -> None:
        texts = [text(number) for number in range(500)]
        with opened(small_disk / "memory.db", llm=ScriptedLLM("no reading")) as memory:
            with pytest.raises(StoreFull) as caught:
                memory.add_many(texts)
            kept = [note.content for note in memory.list(include=("merged",))]
        assert kept + list(caught.value.unsaved) == texts


PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sound memory file."""
    path = tmp_path_factory.mktemp("whole") / "memory.db"
    with opened(path) as memory:
        notes = memory.add_many({"content": text(number), "session": "s"} for number in range(60))
        memory.update(notes[0], tags=["x"])
        memory.search("heron")
    return path.read_bytes()


def uses(memory: Memory, folder: Path) -> dict[str, Any]:
    """Every verb that reads, and two that write."""
    return {
        "check": memory.check, "list": memory.list, "search": lambda: memory.search("heron and reed"),
        "then": lambda: memory.list(as_of=9), "log": lambda: memory.log(limit=None), "stats": memory.stats,
        "spaces": memory.spaces, "export": lambda: memory.export(folder / "out.jsonl"),
        "history": lambda: memory.history(memory.list(limit=1)[0]), "add": lambda: memory.add("A new note."),
        "update": lambda: memory.update(memory.list(limit=1)[0], tags=["y"]), "reindex": memory.reindex,
    }  # fmt: skip


def errors_of(path: Path) -> dict[str, Exception]:
    """What the verbs raise on a damaged file."""
    found: dict[str, Exception] = {}
    try:
        memory = opened(path)
    except StoreError as error:
        return {"open": error}
    with memory:
        for name, use in uses(memory, path.parent).items():
            try:
                use()
            except Exception as error:  # noqa: BLE001  any kind, to be looked at
                found[name] = error
    return found


def problems_of(path: Path) -> tuple[str, ...]:
    """What ``check`` says, or raises, of a file."""
    with opened(path) as memory:
        try:
            return memory.check().problems
        except NotAMemory as error:
            return (str(error),)


class TestDamage:
    def damaged(self, path: Path, whole: bytes, start: int, garbage: bytes) -> dict[str, Exception]:
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{path}{end}").unlink()
        path.write_bytes(whole[:start] + garbage + whole[start + len(garbage) :])
        return errors_of(path)

    def test_garbage_in_the_middle_is_noticed_and_named(self, path: Path, whole: bytes) -> None:
        middle = len(whole) // 2 // PAGE * PAGE
        path.write_bytes(whole[:middle] + random.Random(2).randbytes(4 * PAGE) + whole[middle + 4 * PAGE :])
        assert problems_of(path)

    def test_overwritten_pages_give_our_errors(self, path: Path, whole: bytes) -> None:
        for number in range(1, len(whole) // PAGE, 3):
            for error in self.damaged(path, whole, number * PAGE, random.Random(number).randbytes(PAGE)).values():
                assert isinstance(error, StoreError), (number, error)

    def test_a_file_cut_short_gives_our_errors(self, path: Path, whole: bytes) -> None:
        for size in (PAGE // 2, PAGE, 5 * PAGE, len(whole) // 2):
            path.write_bytes(whole[:size])
            assert all(isinstance(error, StoreError) for error in errors_of(path).values())

    @pytest.mark.parametrize(
        "change",
        ["UPDATE change SET body = substr(body, 3)", "UPDATE note SET keywords = 'x' || keywords",
         "UPDATE meta SET value = substr(value, 2) WHERE key LIKE 'background:%'", "UPDATE vector SET data = x'000102'"],
    )  # fmt: skip
    def test_damaged_values_give_our_errors(self, path: Path, whole: bytes, change: str) -> None:
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute(change).rowcount > 0
            db.commit()
        for name, error in errors_of(path).items():
            assert isinstance(error, StoreError), (name, error)
