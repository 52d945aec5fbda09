"""Background work: notes are read behind ``add``, shared by threads and processes, and never twice in effect."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engramma import InvalidInput, Memory, Pace
from engramma.errors import ModelUnavailable, StoreClosed
from engramma.store.leases import worker_name
from engramma.store.sqlite import SqliteStore
from engramma.testing import ModelServer, ScriptedLLM
from engramma.worker import Reader

SOON = 30.0
FAST = Pace(retry_seconds=0.05, lease_seconds=5)
_DRAFT = re.compile(r"^Draft (d\d+) \[[^\]]*\][^\n]*\n(.*)$", re.MULTILINE)


def drafts(messages: Any) -> list[tuple[str, str]]:
    """The labels and texts of the notes that a prompt asks to read."""
    return _DRAFT.findall(str(messages[-1]["content"]))


def reading(messages: Any) -> dict[str, Any]:
    """A reply that describes each note."""
    return {"notes": [{"label": label, "keywords": ["read"], "context": f"Read: {text}"} for label, text in drafts(messages)]}


class Gate:
    """A model that waits until it may answer, and counts the calls that wait at the same time."""

    def __init__(self) -> None:
        self.open, self.asked = threading.Event(), threading.Semaphore(0)
        self.texts: list[list[str]] = []
        self.now = self.most = 0
        self._lock = threading.Lock()
        self.llm = ScriptedLLM(self)

    def __call__(self, messages: Any) -> dict[str, Any]:
        with self._lock:
            self.texts.append([text for _, text in drafts(messages)])
            self.now, self.most = self.now + 1, max(self.most, self.now + 1)
        self.asked.release()
        assert self.open.wait(SOON)
        with self._lock:
            self.now -= 1
        return reading(messages)


class Broken:
    """An analyst with a fault of its own, which is no failure of a model."""

    name, batch, slow = "broken", 1, True

    def read(self, pages: Any) -> Any:
        raise ZeroDivisionError("a fault")


@pytest.fixture
def gate() -> Iterator[Gate]:
    one = Gate()
    yield one
    one.open.set()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    memories: list[Memory] = []

    def make(llm: Any, pace: bool | Pace = FAST, name: str = "m.db", **more: Any) -> Memory:
        memories.append(Memory.open(tmp_path / name, llm=llm, embedder="hash:64", background=pace, **more))
        return memories[-1]

    yield make
    for memory in memories:
        memory.close()


def states(memory: Memory, space: str | None = None) -> Counter[str]:
    return Counter(note.state for note in memory.list(space=space))


def readings(memory: Memory) -> Counter[str]:
    """How often the log says that each note was read."""
    return Counter(
        commit.changes[0].note
        for commit in memory.log(limit=None)
        if commit.actor.startswith("analyst:scripted") and commit.changes
    )  # type: ignore[union-attr]


def test_add_returns_before_the_model_has_answered(started, gate) -> None:
    memory = started(gate.llm)
    note = memory.add("I live in Lyon.")
    assert note.state == "pending"
    assert [hit.note.id for hit in memory.search("Lyon")] == [note.id]
    assert gate.asked.acquire(timeout=SOON)
    assert memory.get(note.id).state == "pending"
    assert memory.stats().reading == 1
    gate.open.set()
    assert memory.wait(SOON)
    assert memory.get(note.id).context.startswith("Read:")
    assert (memory.stats().pending, memory.stats().reading) == (0, 0)


def test_true_is_the_default_pace_and_no_model_reads_at_once(started) -> None:
    with Memory.open(":memory:", embedder="hash:64", background=True) as memory:
        assert not memory.works
        assert memory.add("I live in Lyon.").state == "ready"
        assert memory.wait()
    assert started(ScriptedLLM(reading), True).works


def test_a_new_content_is_read_behind_too(started) -> None:
    memory = started(ScriptedLLM(reading))
    note = memory.add("I live in Lyon.")
    assert memory.wait(SOON)
    assert memory.update(note, content="I live in Bern.").content == "I live in Bern."
    assert memory.wait(SOON)
    assert memory.get(note.id).context == "Read: I live in Bern."


def test_important_notes_first_and_what_was_given_a_priority_before_them(started, gate) -> None:
    memory = started(gate.llm, Pace(batch=1))
    memory.add("The first is under way.")
    assert gate.asked.acquire(timeout=SOON)
    for text, fields in [("low", {"importance": 1}), ("high", {"importance": 5}), ("now", {"importance": 1, "priority": 9})]:
        memory.add(f"Of {text} weight.", **fields)
    gate.open.set()
    assert memory.wait(SOON)
    assert [texts[0] for texts in gate.texts[1:]] == ["Of now weight.", "Of high weight.", "Of low weight."]


def test_spaces_take_turns_and_no_call_holds_notes_of_two(started, gate) -> None:
    memory = started(gate.llm, Pace(batch=4))
    memory.add("The first is under way.", space="a")
    assert gate.asked.acquire(timeout=SOON)
    memory.add_many([{"content": f"Much of b, {number}.", "space": "b"} for number in range(12)])
    memory.add("One of c.", space="c")
    memory.add("One of d.", space="d")
    gate.open.set()
    assert memory.wait(SOON)
    spaces = [{text.split(",")[0].split(" ")[-1].strip(".") for text in texts} for texts in gate.texts[1:]]
    assert spaces == [{"b"}, {"c"}, {"d"}, {"b"}, {"b"}]
    assert max(map(len, gate.texts)) == 4


def test_catch_up_shows_no_model_the_notes_of_two_spaces_at_once(tmp_path) -> None:
    with Memory.open(tmp_path / "m.db", llm=ScriptedLLM(ModelUnavailable("down")), embedder="hash:64") as memory:
        memory.add_many([{"content": f"Note {number}.", "space": "ab"[number % 2]} for number in range(8)])
    llm = ScriptedLLM(reading)
    with Memory.open(tmp_path / "m.db", llm=llm, embedder="hash:64", catch_up=False) as memory:
        assert memory.catch_up() == 8
    for messages in llm.calls:
        assert len({int(text.split()[1].strip(".")) % 2 for _, text in drafts(messages)}) == 1


def test_so_many_calls_at_once(started, gate) -> None:
    memory = started(gate.llm, Pace(threads=3, batch=1))
    memory.add_many([f"Note {number} of many." for number in range(9)])
    for _ in range(3):
        assert gate.asked.acquire(timeout=SOON)
    assert not gate.asked.acquire(timeout=0.2)
    gate.open.set()
    assert memory.wait(SOON)
    assert gate.most == 3
    assert states(memory) == {"ready": 9}
    assert set(readings(memory).values()) == {1}


def test_calls_keep_their_distance(started) -> None:
    at: list[float] = []

    def timed(messages: Any) -> dict[str, Any]:
        at.append(time.monotonic())
        return reading(messages)

    memory = started(ScriptedLLM(timed), Pace(threads=2, batch=1, calls_per_minute=600))
    start = time.monotonic()
    memory.add_many([f"Note {number} of a few." for number in range(5)])
    assert memory.wait(SOON)
    assert len(at) == 5
    assert max(at) - start >= 0.4  # the fifth has its turn no sooner than four tenths after the first


def test_close_ends_the_call_under_way_and_leaves_the_rest(started, gate, tmp_path) -> None:
    memory = started(gate.llm, Pace(batch=1))
    memory.add_many(["The first note.", "The second note.", "The third note."])
    assert gate.asked.acquire(timeout=SOON)
    closing = threading.Thread(target=memory.close)
    closing.start()
    gate.open.set()
    closing.join(SOON)
    assert not closing.is_alive()
    with pytest.raises(StoreClosed):
        memory.list()
    with Memory.open(tmp_path / "m.db", embedder="hash:64") as later:
        assert states(later) == {"ready": 1, "pending": 2}
    next_one = started(ScriptedLLM(reading))
    assert next_one.wait(SOON)
    assert states(next_one) == {"ready": 3}
    memory.close()


def test_wait_says_when_the_time_is_over(started, gate) -> None:
    memory = started(gate.llm)
    memory.add("I live in Lyon.")
    assert not memory.wait(0.05)
    gate.open.set()
    assert memory.wait(SOON)


def test_a_model_that_was_down_is_asked_again(started) -> None:
    memory = started(ScriptedLLM(ModelUnavailable("down"), ModelUnavailable("down"), reading))
    note = memory.add("I live in Lyon.")
    end = time.monotonic() + SOON
    while memory.get(note.id).state == "pending" and time.monotonic() < end:
        time.sleep(0.02)
    assert memory.get(note.id).context == "Read: I live in Lyon."
    assert memory.get(note.id).error is None


def test_rubbish_does_not_hold_up_the_others(started) -> None:
    def answer(messages: Any) -> Any:
        return "no JSON at all" if any("bad" in text for _, text in drafts(messages)) else reading(messages)

    memory = started(ScriptedLLM(answer), Pace(retry_seconds=60, batch=1))
    memory.add_many(["A bad note.", "A good note.", "Another good note."])
    assert memory.wait(SOON)
    assert states(memory) == {"pending": 1, "ready": 2}
    assert (memory.stats().failed, memory.stats().reading) == (1, 0)
    assert "no JSON" in str(memory.list(where={"state": "pending"})[0].error) or memory.list(where={"state": "pending"})[0].error


def test_catch_up_tries_at_once_what_is_in_a_pause(started) -> None:
    memory = started(ScriptedLLM("no JSON", reading), Pace(retry_seconds=600))
    memory.add("I live in Lyon.")
    assert memory.wait(SOON)
    assert states(memory) == {"pending": 1}
    assert memory.catch_up() == 1
    assert states(memory) == {"ready": 1}


def test_a_thread_that_dies_makes_nobody_wait_for_ever(started, monkeypatch) -> None:
    died = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: died.set())
    memory = started(None, analyst=Broken())
    memory.add_many(["I live in Lyon.", "I like tea."])
    assert died.wait(SOON)
    assert not memory.wait()
    assert states(memory) == {"pending": 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": -1},
        {"threads": True},
        {"batch": 0},
        {"calls_per_minute": 0},
        {"lease_seconds": -1},
        {"retry_seconds": float("inf")},
    ],
)
def test_wrong_paces(wrong) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))}="):
        Pace(**wrong)


@pytest.mark.parametrize("wrong", ["yes", 2, None])
def test_what_background_takes(wrong) -> None:
    with pytest.raises(InvalidInput, match=re.escape("must be True, False, or engramma.Pace(threads=2)")):
        Memory.open(":memory:", embedder="hash:64", background=wrong)


@pytest.mark.parametrize("wrong", [True, 1.5, "high", 10**9])
def test_wrong_priorities(wrong) -> None:
    with Memory.open(":memory:", embedder="hash:64") as memory, pytest.raises(InvalidInput, match="priority="):
        memory.add("I live in Lyon.", priority=wrong)


# -- leases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with Memory.open(tmp_path / "m.db", llm=ScriptedLLM(ModelUnavailable("down")), embedder="hash:64") as memory:
        memory.add_many([f"Note {number} waits." for number in range(3)])
    one = SqliteStore(str(tmp_path / "m.db"))
    one.forgive()
    yield one
    one.close()


def soon(seconds: float = 60) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def claimed(store: SqliteStore, worker: str, until: datetime, limit: int = 9) -> int:
    """How many notes a worker gets; those that failed come one at a time."""
    return sum(bool(store.claim(worker, until, limit)) for _ in range(4))


def test_a_lease_is_one_workers_until_it_runs_out(store) -> None:
    assert claimed(store, "other:1:a", soon()) == 3
    assert claimed(store, "other:2:b", soon()) == 0
    assert store.waiting()
    store.renew("other:1:a", soon(-1))
    assert claimed(store, "other:2:b", soon()) == 3
    store.release("other:1:a", store.pending(None, 9))  # no longer its own
    assert claimed(store, "other:3:c", soon()) == 0
    store.release("other:2:b", store.pending(None, 9))
    assert claimed(store, "other:3:c", soon()) == 3


def test_a_pause_doubles_up_to_an_hour_and_can_be_ended(store) -> None:
    (note, *_) = store.pending(None, 1)
    for _ in range(30):
        assert store.claim("other:1:a", soon(), 1, ids=[note]) == [note]
        store.release("other:1:a", [note], retry=timedelta(microseconds=1))
        time.sleep(0.001) if _ < 6 else store.forgive()
    store.claim("other:1:a", soon(), 1, ids=[note])
    store.release("other:1:a", [note], retry=timedelta(hours=9))
    assert store.claim("other:1:a", soon(), 1, ids=[note]) == []
    store.forgive()
    assert store.claim("other:1:a", soon(), 1, ids=[note]) == [note]


def test_a_worker_whose_process_is_gone_holds_nothing(store) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    name = worker_name("x").replace(f":{worker_name('x').split(':')[1]}:", f":{gone.pid}:")
    assert len(store.claim(name, soon(), 1)) == 1
    assert claimed(store, worker_name("own"), soon()) == 3
    assert claimed(store, worker_name("second"), soon()) == 0  # the first is this very process, which runs


def test_a_note_is_held_for_as_long_as_it_is_read(started, gate, tmp_path) -> None:
    """Also where no worker runs: the model takes longer than a lease."""
    memory = started(gate.llm, Pace(threads=0))
    note = memory.add("I live in Lyon.")
    reader = Reader(memory._store, memory._writer, Pace(lease_seconds=0.3))
    reading_it = threading.Thread(target=reader.now, args=([note.id],))
    reading_it.start()
    assert gate.asked.acquire(timeout=SOON)
    time.sleep(0.8)
    other = SqliteStore(str(tmp_path / "m.db"))
    assert other.claim("other:1:a", soon(), 9) == []
    gate.open.set()
    reading_it.join(SOON)
    assert memory.get(note.id).state == "ready"
    assert other.claim("other:1:a", soon(), 9) == []
    other.close()


# -- several processes

WORK = """
import sys
from engramma import Memory, Pace
pace = Pace(batch=1, lease_seconds=1, retry_seconds=0.1)
with Memory.open(sys.argv[1], llm=sys.argv[2], embedder="hash:64", background=pace) as memory:
    print("ready", flush=True)
    while True:
        memory.wait(0.2)
"""


def texts_of(server: ModelServer) -> Counter[str]:
    return Counter(text for request in server.requests for _, text in drafts(request.messages))


def test_reading_can_be_left_to_another_process(started, tmp_path) -> None:
    with Memory.open(tmp_path / "m.db", embedder="hash:64", background=Pace(threads=0)) as memory:
        note = memory.add("I live in Lyon.")
        assert (memory.works, note.state) == (False, "pending")
        assert memory.update(note, content="I live in Bern.").state == "pending"
        assert not memory.wait(0.05)
        worker = started(ScriptedLLM(reading))
        assert memory.wait(SOON)
        assert worker.get(note.id).context == "Read: I live in Bern."


@pytest.mark.parametrize("killed", [False, True])
def test_two_workers_read_every_note_once(tmp_path, killed) -> None:
    """One is killed in the middle of its calls: what it held is read by the other, and in effect once."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)
        return reading(body["messages"])

    path, count = tmp_path / "m.db", 40
    with Memory.open(path, llm=ScriptedLLM(ModelUnavailable("down")), embedder="hash:64") as memory:
        memory.add("This one fails at first.")
    with ModelServer(answer) as server, Memory.open(path, embedder="hash:64") as memory:
        llm = f"{server.openai_url}#scripted"
        workers = [subprocess.Popen([sys.executable, "-c", WORK, path, llm], stdout=subprocess.PIPE, text=True) for _ in range(2)]
        try:
            assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 2  # type: ignore[union-attr]
            with Memory.open(path, llm=llm, embedder="hash:64", background=Pace(threads=1, calls_per_minute=1)) as adding:
                for number in range(count):
                    adding.add(f"Note {number} tells of tea {number}.")
                    if killed and number == count // 2:
                        workers[0].send_signal(signal.SIGKILL)
            end = time.monotonic() + SOON
            while memory.stats().pending and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
        assert states(memory) == {"ready": count + 1}
        done = Counter(commit.changes[0].note for commit in memory.log(limit=None) if commit.reason.startswith("read "))  # type: ignore[union-attr]
        assert set(done.values()) == {1}
        assert len(done) == count + 1
        assert memory.check().ok
        calls = texts_of(server)
        assert len(calls) == count + 1
        assert sum(calls.values()) <= count + 1 + (2 if killed else 0)  # what was under way when it was killed is paid again


def test_work_reads_what_waits_and_stops(tmp_path) -> None:
    path = tmp_path / "m.db"
    with Memory.open(path, llm=ScriptedLLM(ModelUnavailable("down")), embedder="hash:64") as memory:
        memory.add_many([f"Note {number} waits." for number in range(5)])
    with ModelServer(lambda body: reading(body["messages"])) as server:
        options = ["--db", path, "--llm", f"{server.openai_url}#scripted", "--embedder", "hash:64"]
        command = [sys.executable, "-c", "from engramma.cli import main; main()", "work", *options]
        done = subprocess.run([*command, "--until-done", "--threads", "2"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "0 wait, of which 0 could not be read\n"), done.stderr
        for stop in (signal.SIGINT, signal.SIGTERM):
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert "reading what waits" in running.stderr.readline()  # type: ignore[union-attr]
            with Memory.open(path, embedder="hash:64", catch_up=False) as memory:
                assert states(memory) == {"ready": 5}
            running.send_signal(stop)
            said = running.communicate(timeout=SOON)[1]
            assert (running.returncode, "stopped" in said, "Traceback" in said) == (130, True, False)


def test_work_without_a_model(tmp_path) -> None:
    options = ["--db", tmp_path / "m.db", "--embedder", "hash:64"]
    command = [sys.executable, "-c", "from engramma.cli import main; main()", "work", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no model to read with: give --llm" in done.stderr


def test_adding_from_many_threads_with_work_behind(started) -> None:
    memory = started(ScriptedLLM(reading), Pace(threads=2))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: memory.add(f"Note {number} of thread work."), range(60)))
    assert memory.wait(SOON)
    assert states(memory) == {"ready": 60}
    assert set(readings(memory).values()) == {1}
    assert memory.check().ok


def test_a_note_that_is_purged_before_it_is_read(started) -> None:
    memory = started(ScriptedLLM(reading), False)
    kept = memory.add("I live in Lyon.")
    memory._reader.read(["01M8NQ9DGMWW0WH5D86PZHTQ21"])
    assert memory.list() == [kept]
