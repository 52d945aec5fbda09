"""Killing a writer at any moment: whatever ``add`` has returned is there, can be found, and nothing is damaged."""

from __future__ import annotations

import inspect
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engramma import Memory
from engramma.testing import ScriptedLLM

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL"),
]

NOTES = 200
FEW, MANY = 6, 50
SECONDS = (0.1, 1.0)  # from the first id to the kill
SEARCHED = 25  # notes looked for in a round of many


def text(number: int) -> str:
    """The text of one note, unlike all others."""
    words = "heron reed lake boat rain stone moss fish wind oar mist duck mud net bay".split()
    return f"{' '.join(random.Random(number).sample(words, 7))} w{number * 7919}q"


def slow_model() -> ScriptedLLM:
    """A model that reads every draft it is shown, and takes its time."""

    def reply(messages: Sequence[object]) -> object:
        time.sleep(0.004)
        labels = [f"d{number}" for number in range(1, 5) if f"d{number}" in str(messages[-1])]
        return {"notes": [{"label": label, "keywords": ["read"], "context": "read by the model"} for label in labels]}

    return ScriptedLLM(reply)


# An id goes straight to the pipe when ``add`` has returned, so that every id that arrives was promised.
HEAD = """
import os, random, sys, time
from engramma.memory import Memory
from engramma.testing import ScriptedLLM

def report(added):
    os.write(1, "".join(f"{note.id}\\n" for note in added).encode())

"""
WRITERS = {
    "add": """
memory = Memory.open(sys.argv[1], embedder="hash:64")
for number in range(int(sys.argv[2])):
    report([memory.add(text(number), session=f"s{number % 3}")])
""",
    "add_many": """
memory = Memory.open(sys.argv[1], embedder="hash:64")
for start in range(0, int(sys.argv[2]), 10):
    report(memory.add_many([text(number) for number in range(start, start + 10)]))
""",
    "add with a model": """
memory = Memory.open(sys.argv[1], embedder="hash:64", llm=slow_model())
for number in range(int(sys.argv[2])):
    report([memory.add(text(number))])
""",
    "add_many with a model": """
memory = Memory.open(sys.argv[1], embedder="hash:64", llm=slow_model())
for start in range(0, int(sys.argv[2]), 10):
    report(memory.add_many([text(number) for number in range(start, start + 10)]))
""",
}


@contextmanager
def writing(path: Path, writer: str) -> Iterator[subprocess.Popen[str]]:
    """A process that adds notes and says their ids."""
    parts = ["from __future__ import annotations", HEAD, inspect.getsource(text), inspect.getsource(slow_model), WRITERS[writer]]
    process = subprocess.Popen([sys.executable, "-c", "\n".join(parts), str(path), str(NOTES)], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(path: Path, writer: str, seed: int) -> list[str]:
    """The ids that a writer reported before it was killed at a random moment."""
    with writing(path, writer) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(random.Random(f"{writer} {seed}").triangular(*SECONDS, SECONDS[0]))
        process.send_signal(signal.SIGKILL)
        return [first.strip(), *process.stdout.read().split()]


def check_all_there(path: Path, ids: Sequence[str], searched: int) -> None:
    """Every reported note is there, in order, whole and findable; what was not reported is whole or absent."""
    with Memory.open(path, embedder="hash:64") as memory:
        notes = memory.list(include=("merged",))
        contents = {note.id: note.content for note in notes}
        assert list(contents)[: len(ids)] == list(ids) != [""]
        assert list(contents.values()) == [text(number) for number in range(len(notes))]
        assert memory.check().problems == ()
        for note_id in random.Random(0).sample(ids, min(searched, len(ids))):
            hits = memory.search(contents[note_id], k=3, expand=False, include=("merged",))
            assert note_id in {found for hit in hits for found in (hit.note.id, *hit.why.copies)}
        memory.add("A memory goes on after a crash.")
        assert memory.check().ok


def check_rounds(folder: Path, writer: str, seeds: Sequence[int], searched: int = NOTES) -> list[int]:
    """Kill one writer a seed, four at a time; how many notes each had reported."""

    def one(seed: int) -> int:
        path = folder / f"{seed}.db"
        ids = killed(path, writer, seed)
        check_all_there(path, ids, searched)
        return len(ids)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one, seeds))


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_reported_is_lost(tmp_path: Path, writer: str) -> None:
    counts = check_rounds(tmp_path, writer, range(FEW))
    assert min(counts) < NOTES, "every writer was done before it was killed"


@pytest.mark.slow
def test_nothing_reported_is_lost_in_many_rounds(tmp_path: Path) -> None:
    check_rounds(tmp_path, "add", range(100, 100 + MANY), SEARCHED)


def test_killed_twice_and_again(tmp_path: Path) -> None:
    """One file through several crashes: what the first writer promised outlives the others."""
    path, promised = tmp_path / "memory.db", []
    for seed in range(3):
        promised += killed(path, "add", seed)
    with Memory.open(path, embedder="hash:64") as memory:
        assert memory.check().ok
        assert {memory.get(note_id).id for note_id in promised} == set(promised)


@pytest.mark.parametrize("writer", ["add with a model", "add_many with a model"])
def test_what_waited_is_read_later(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "memory.db"
    ids = killed(path, writer, 7)
    with closing(Memory.open(path, embedder="hash:64", llm=slow_model(), catch_up=False)) as memory:
        assert memory.stats().pending == len(memory.list(where={"state": "pending"}))
        memory.catch_up()
        assert memory.stats().pending == 0
        assert {memory.get(note_id).context for note_id in ids} == {"read by the model"}
        assert memory.check().ok
