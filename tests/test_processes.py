"""Several processes and threads at one memory file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engramma import Commit, Memory, Note
from engramma.analysts.rules import RuleAnalyst
from engramma.errors import StoreClosed
from engramma.models import resolve_embedder
from engramma.note import NoteId
from engramma.store import SqliteStore
from engramma.store.base import Vectors

EACH = 60
HEAD = """
import os, sys
from engramma.memory import Memory

memory = Memory.open(sys.argv[1], embedder="hash:64")
print("open", flush=True)
sys.stdin.readline()
"""
ADD = """
for number in range(int(sys.argv[3])):
    memory.add(f"{sys.argv[2]} saw number {number} at the harbour, code {number * 7919}", session=sys.argv[2])
memory.close()
"""
UPDATE = """
for number in range(40):
    memory.update(sys.argv[2], tags=[f"{sys.argv[3]}{number}"])
memory.close()
"""
ADD_WITH_KEY = """
print(*[memory.add(f"The report of day {day}, by {sys.argv[2]}.", key=f"day-{day}").id for day in range(20)])
memory.close()
"""
ADD_ON_DEMAND = """
memory.add("The lighthouse keeper is called Marit.")
print("added", flush=True)
sys.stdin.readline()
print(*[hit.note.content for hit in memory.search("Who keeps bees?", min_relevance=0, k=1)], flush=True)
memory.close()
"""


class Worker:
    """A process with the memory open, waiting to be told to go on."""

    def __init__(self, body: str, path: Path, *arguments: object) -> None:
        command = [sys.executable, "-c", HEAD + body, str(path), *map(str, arguments)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, text=True, **pipes)
        assert self.line() == "open", self.finished()

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        """Let it pass the next wait."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finished(self) -> str:
        """What else it prints, once it has ended well."""
        out, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return out.strip()


@contextmanager
def workers(body: str, path: Path, *arguments: Sequence[object]) -> Iterator[list[Worker]]:
    """One process for each list of arguments; none outlives the test."""
    with ExitStack() as stack:
        started = []
        for each in arguments:
            worker = Worker(body, path, *each)
            stack.callback(worker.process.communicate)
            stack.callback(worker.process.kill)
            started.append(worker)
        yield started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def opened(path: Path | str) -> Memory:
    return Memory.open(path, embedder="hash:64")


def all_of(memory: Memory, **more: Any) -> list[Note]:
    return memory.list(include=("merged",), **more)


def add_some(memory: Memory, name: str, count: int = EACH) -> None:
    for number in range(count):
        memory.add(f"{name} saw number {number} at the harbour, code {number * 7919}", session=name)


def check_session(notes: Sequence[Note]) -> None:
    """The notes of one session follow each other in the order they were added, without a fork."""
    follows = {link.source: link.target for note in notes for link in note.links if link.kind == "follows"}
    assert follows == {after.id: before.id for before, after in pairwise(notes)}


class TestWriting:
    def test_processes_and_threads_at_once(self, path: Path) -> None:
        names = ["ann", "bob", "cyd", "dan", "eve", "fay", "gus"]
        with opened(path) as memory, workers(ADD, path, *[(name, EACH) for name in names[:3]]) as processes:
            for process in processes:
                process.go()
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda name: add_some(memory, name), names[3:]))
            assert [process.finished() for process in processes] == [""] * 3
            assert Counter(note.session for note in all_of(memory)) == dict.fromkeys(names, EACH)
            assert memory.check().problems == ()
            for name in names:
                notes = all_of(memory, where={"session": name})
                assert [note.content.split()[3] for note in notes] == [str(number) for number in range(EACH)]
                check_session(notes)
            assert len({commit.seq for commit in memory.log(limit=None)}) == len(memory.log(limit=None))

    def test_a_new_file_opened_by_many_at_once(self, path: Path) -> None:
        with ThreadPoolExecutor(8) as pool:
            memories = list(pool.map(lambda _: opened(path), range(8)))
        for number, memory in enumerate(memories):
            memory.add(f"Reader {number} was here.")
            memory.close()
        with opened(path) as memory:
            assert len(all_of(memory)) == 8
            assert memory.check().ok

    def test_two_processes_update_one_note(self, path: Path) -> None:
        with opened(path) as memory:
            note = memory.add("The boat is blue.")
            with workers(UPDATE, path, (note.id, "a"), (note.id, "b")) as processes:
                for process in processes:
                    process.go()
                assert [process.finished() for process in processes] == ["", ""]
            history = memory.history(note)
            assert [revision.revision for revision in history] == list(range(1, 82))
            assert sorted(revision.note.tags for revision in history[1:]) == sorted(
                (f"{name}{number}",) for name in "ab" for number in range(40)
            )
            for name in "ab":
                own = [tag for revision in history[1:] for tag in revision.note.tags if tag.startswith(name)]
                assert own == [f"{name}{number}" for number in range(40)]
            assert memory.check().ok

    def test_one_key_gives_one_note(self, path: Path) -> None:
        with opened(path) as memory, workers(ADD_WITH_KEY, path, ("Ann",), ("Bob",)) as processes:
            for process in processes:
                process.go()
            first, second = [process.finished().split() for process in processes]
            assert first == second
            assert [note.id for note in all_of(memory)] == first
            assert memory.check().ok

    def test_a_note_is_found_by_other_processes_at_once(self, path: Path) -> None:
        with opened(path) as memory, workers(ADD_ON_DEMAND, path, ()) as (process,):
            assert memory.search("Who keeps the lighthouse?") == []
            process.go()
            assert process.line() == "added"
            assert memory.search("Who is the lighthouse keeper?")[0].note.content == "The lighthouse keeper is called Marit."
            memory.add("Old Tom keeps bees.")
            process.go()
            assert process.line() == "Old Tom keeps bees."
            process.finished()

    def test_changes_and_removals_reach_other_openers(self, path: Path) -> None:
        with opened(path) as one, opened(path) as two:
            note, other = one.add_many(["The heron stands in the reeds.", "A stone lies in the moss."])
            assert two.search("heron")[0].note.id == note.id
            one.update(note, content="The stork stands on the chimney.")
            assert two.search("stork chimney")[0].note.id == note.id
            one.delete(note)
            assert note.id not in [hit.note.id for hit in two.search("stork chimney", min_relevance=0)]
            one.purge(other)
            assert two.search("stone moss", min_relevance=0) == []


class Interrupted(SqliteStore):
    """A store that lets something happen between the decision and the first write after ``arm``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._between: Callable[[], object] | None = None

    def arm(self, between: Callable[[], object]) -> None:
        self._between = between

    def apply(self, commits: Sequence[Commit], vectors: Vectors, embedder: str | None = None) -> list[Commit]:
        between, self._between = self._between, None
        if between is not None:
            between()
        return super().apply(commits, vectors, embedder)


class TestBetweenDecisionAndWrite:
    """One memory decides, another writes first."""

    @pytest.fixture
    def other(self, path: Path) -> Iterator[Memory]:
        with opened(path) as memory:
            yield memory

    @pytest.fixture
    def store(self, path: Path, other: Memory) -> Interrupted:
        return Interrupted(str(path))

    @pytest.fixture
    def memory(self, store: Interrupted) -> Iterator[Memory]:
        with Memory(store, embedder=resolve_embedder("hash:64"), analyst=RuleAnalyst()) as memory:
            yield memory

    def test_an_update_is_made_on_what_is_there_now(self, memory: Memory, other: Memory, store: Interrupted) -> None:
        note = memory.add("The boat is blue.")
        store.arm(lambda: other.update(note, tags=["seen"]))
        assert memory.update(note, context="at the harbour").tags == ("seen",)
        assert [revision.revision for revision in memory.history(note)] == [1, 2, 3]

    def test_a_key_taken_meanwhile(self, memory: Memory, other: Memory, store: Interrupted) -> None:
        taken: list[Note] = []
        store.arm(lambda: taken.append(other.add("The first report.", key="day-1")))
        assert memory.add("The second report.", key="day-1").id == taken[0].id
        assert len(all_of(memory)) == 1

    def test_a_neighbour_deleted_meanwhile(self, memory: Memory, other: Memory, store: Interrupted) -> None:
        note = memory.add("The red boat lies in the harbour of Bergen.", session="s")
        store.arm(lambda: other.delete(note))
        memory.add("The red boat lies in the harbour of Bergen again.", session="s")
        assert memory.check().ok

    def test_a_turn_added_meanwhile(self, memory: Memory, other: Memory, store: Interrupted) -> None:
        memory.add("How are you?", session="s")
        store.arm(lambda: other.add("Fine, we sailed to Bergen.", session="s"))
        memory.add("The mast broke on the way.", session="s")
        check_session(all_of(memory))

    def test_a_link_made_meanwhile(self, memory: Memory, other: Memory, store: Interrupted) -> None:
        one, two = memory.add_many(["The boat is blue.", "A stone lies in the moss."])
        store.arm(lambda: other.link(one, two))
        memory.delete(two)
        assert memory.check().problems == ()


class TestOneProcess:
    def test_two_memories_on_one_file(self, path: Path) -> None:
        with opened(path) as one, opened(path) as two:
            for number in range(10):
                (one, two)[number % 2].add(f"Turn {number} about harbour {number * 31}.", session="s")
            assert [note.id for note in all_of(one)] == [note.id for note in all_of(two)]
            check_session(all_of(one))
            one.close()
            two.add("Still open.")
            assert two.check().ok

    def test_two_memories_on_two_files(self, tmp_path: Path) -> None:
        with opened(tmp_path / "one.db") as one, opened(tmp_path / "two.db") as two:
            one.add("The heron stands in the reeds.")
            two.add("A stone lies in the moss.")
            assert [hit.note.content for hit in one.search("heron stone", min_relevance=0)] == ["The heron stands in the reeds."]
            assert [hit.note.content for hit in two.search("heron stone", min_relevance=0)] == ["A stone lies in the moss."]

    @pytest.mark.parametrize("where", ["file", "memory"])
    def test_searching_while_others_add(self, path: Path, where: str) -> None:
        with opened(path if where == "file" else ":memory:") as memory:
            done = threading.Event()

            def search() -> int:
                rounds = 0
                while not done.is_set() or rounds == 0:
                    hits = memory.search("Who saw number 7 at the harbour?", k=5)
                    assert all("harbour" in hit.note.content for hit in hits)
                    memory.list(limit=3)
                    rounds += 1
                return rounds

            with ThreadPoolExecutor(4) as pool:
                searching = [pool.submit(search) for _ in range(2)]
                adding = [pool.submit(add_some, memory, name, 30) for name in ("ann", "bob")]
                errors = [each.exception() for each in adding]
                done.set()
                assert errors == [None, None]
                assert all(each.result() > 0 for each in searching)
            assert Counter(note.session for note in all_of(memory)) == {"ann": 30, "bob": 30}
            assert memory.check().ok

    def test_threads_update_one_note(self, path: Path) -> None:
        with opened(path) as memory:
            note = memory.add("The boat is blue.")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda number: memory.update(note, tags=[f"t{number}"]), range(40)))
            assert [revision.revision for revision in memory.history(note)] == list(range(1, 42))

    def test_threads_on_a_memory_without_a_file(self) -> None:
        with opened(":memory:") as memory, opened(":memory:") as other:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda name: add_some(memory, name, 20), "abcd"))
            assert len(all_of(memory)) == 80
            assert memory.check().ok
            assert all_of(other) == []


class TestClosing:
    def test_twice(self, path: Path) -> None:
        memory = opened(path)
        memory.close()
        memory.close()

    def test_the_closed_file_stands_alone(self, path: Path) -> None:
        with opened(path) as memory:
            add_some(memory, "ann", 3)
            memory.search("harbour")
        assert list(path.parent.iterdir()) == [path]

    def test_use_afterwards(self, path: Path) -> None:
        memory = opened(path)
        note = memory.add("The boat is blue.")
        commit = memory.log()[0]
        memory.close()
        calls: list[Callable[[], object]] = [
            lambda: memory.add("x"), lambda: memory.add_many(["x"]), lambda: memory.update(note, tags=["x"]),
            lambda: memory.delete(note), lambda: memory.purge(note), lambda: memory.link(note, note), lambda: memory.get(note),
            lambda: memory.search("boat"), memory.list, memory.log, memory.spaces, memory.stats, memory.check, memory.catch_up,
            memory.reindex, lambda: memory.history(note), lambda: memory.neighbours(note), lambda: memory.revert(commit),
            lambda: memory.export(path.with_name("out.jsonl")), lambda: memory.delete_space("default"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(StoreClosed, match="was closed"):
                call()

    def test_the_unsaved_text_is_named(self, path: Path) -> None:
        memory = opened(path)
        memory.close()
        with pytest.raises(StoreClosed) as caught:
            memory.add_many(["one", "two"])
        assert caught.value.unsaved == ["one", "two"]

    def test_while_threads_add(self, path: Path) -> None:
        memory = opened(path)
        added: list[NoteId] = []

        def add(name: str) -> None:
            for number in range(1000):
                try:
                    added.append(memory.add(f"{name} {number} code {number * 7919}").id)
                except StoreClosed:
                    return

        with ThreadPoolExecutor(2) as pool:
            adding = [pool.submit(add, name) for name in "ab"]
            while len(added) < 10:
                threading.Event().wait(0.005)
            memory.close()
            assert [each.exception() for each in adding] == [None, None]
        with opened(path) as again:
            assert set(added) <= {note.id for note in all_of(again)}
            assert again.check().ok


# A fork is tried in a process of its own: pytest's has threads. The parent's part runs where os.fork returns.
FORK = """
def forked(child, parent):
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        child(lambda: os.write(up[1], b"."), lambda: os.read(down[0], 1))
        os._exit(0)
    parent(lambda: os.write(down[1], b"."), lambda: os.read(up[0], 1))
    assert os.waitpid(pid, 0)[1] == 0

memory.add("before the fork")
"""
FORK_BOTH = """
def child(tell, wait):
    memory.add("the child's own"); tell(); wait()
    assert [hit.note.content for hit in memory.search("parent reply", k=1)] == ["a reply of the parent"]
    memory.add("the child's second"); memory.close()

def parent(tell, wait):
    wait(); assert memory.search("child")[0].note.content == "the child's own"
    memory.add("a reply of the parent"); tell()

forked(child, parent)
memory.add("after the child"); memory.close()
"""
FORK_PARENT_CLOSES = """
def child(tell, wait):
    memory.add("the child's own"); tell(); wait()
    memory.add("the child's second"); memory.close()

def parent(tell, wait):
    wait(); memory.close(); tell()

forked(child, parent)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
class TestFork:
    def contents(self, path: Path, body: str) -> list[str]:
        with workers(FORK + body, path, ()) as (process,):
            process.go()
            process.finished()
        with opened(path) as memory:
            assert memory.check().ok
            return [note.content for note in all_of(memory)]

    def test_both_go_on(self, path: Path) -> None:
        assert self.contents(path, FORK_BOTH) == [
            "before the fork", "the child's own", "a reply of the parent", "the child's second", "after the child",
        ]  # fmt: skip

    def test_the_parent_closes_first(self, path: Path) -> None:
        assert self.contents(path, FORK_PARENT_CLOSES) == ["before the fork", "the child's own", "the child's second"]
