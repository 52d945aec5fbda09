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
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from engramma import Memory
from engramma.errors import Conflict, InvalidInput, UnknownId
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


def stir(memory: Memory, chance: random.Random) -> None:
    """Change what is there in a random way; what cannot be done is left."""
    notes = memory.list(limit=30, newest_first=True, include=("archived", "merged"))
    one, two = chance.choice(notes), chance.choice(notes)
    verbs = {
        "update": lambda: memory.update(one, tags=[chance.choice(("lake", "rain"))], importance=chance.randint(1, 5)),
        "rewrite": lambda: memory.update(one, content=f"{chance.choice(('wind', 'oar'))} again {one.content.split()[-1]}"),
        "link": lambda: memory.link(one, two, kind=chance.choice(("related", "supersedes")), reason="by hand"),
        "merge": lambda: memory.merge([one, two]),
        "delete": lambda: memory.delete(one),
        "revert": lambda: memory.revert(chance.choice(memory.log(limit=10))),
    }
    with suppress(Conflict, InvalidInput, UnknownId):
        verbs[chance.choice(list(verbs))]()


# An id goes straight to the pipe when ``add`` has returned, so that every id that arrives was promised.
HEAD = """
import os, random, sys, time
from contextlib import suppress
from engramma.errors import Conflict, InvalidInput, UnknownId
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
    "add with background work": """
memory = Memory.open(sys.argv[1], embedder="hash:64", llm=slow_model(), background=True)
for number in range(int(sys.argv[2])):
    report([memory.add(text(number))])
""",
}
STORM = """
memory = Memory.open(sys.argv[1], embedder="hash:64", llm=slow_model() if {model} else None, background={model})
chance = random.Random(os.getpid())
for number in range({first}, {first} + int(sys.argv[2])):
    report([memory.add(text(number), session=f"s{{number % 3}}")])
    stir(memory, chance)
    stir(memory, chance)
"""


@contextmanager
def writing(path: Path, writer: str) -> Iterator[subprocess.Popen[str]]:
    """A process that adds notes and says their ids: one of ``WRITERS``, or a script of its own."""
    shared = map(inspect.getsource, (text, slow_model, stir))
    parts = ["from __future__ import annotations", HEAD, *shared, WRITERS.get(writer, writer)]
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


@pytest.mark.long
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


@pytest.mark.parametrize("writer", ["add with a model", "add_many with a model", "add with background work"])
def test_what_waited_is_read_later(tmp_path: Path, writer: str) -> None:
    path = tmp_path / "memory.db"
    ids = killed(path, writer, 7)
    with closing(Memory.open(path, embedder="hash:64", llm=slow_model(), catch_up=False)) as memory:
        assert memory.stats().pending == len(memory.list(where={"state": "pending"}))
        memory.catch_up()
        assert memory.stats().pending == 0
        assert {memory.get(note_id).context for note_id in ids} == {"read by the model"}
        assert memory.check().ok


def check_storm(path: Path, promised: Sequence[str], numbers: Sequence[int]) -> None:
    """After a kill in the middle of changes: whatever ``add`` had returned is there once, whatever became of it since."""
    with Memory.open(path, embedder="hash:64", catch_up=False) as memory:
        assert memory.check().problems == ()
        notes = {note.id: note for note in memory.list(include=("archived", "merged"))}
        marks = [note.content.split()[-1] for note in notes.values()]
        assert len(set(marks)) == len(marks) >= len(promised)
        for note_id, number in zip(promised, numbers, strict=False):
            assert notes[note_id].content.endswith(text(number).split()[-1])
            last = memory.history(note_id)[-1]
            assert (last.revision, last.note.content) == (notes[note_id].revision, notes[note_id].content)
        check_seen(memory)
        with suppress(Conflict):
            memory.revert(memory.log(limit=1)[0])
        memory.add("A memory goes on after a crash.")
        assert memory.check().problems == ()


def check_seen(memory: Memory) -> None:
    """Every note in sight that nothing supersedes is found, and no other."""
    hits = memory.search("heron reed lake boat", k=1000, min_relevance=0, expand=False)
    found = {note for hit in hits for note in (hit.note.id, *hit.why.copies)}
    replaced = {link.target for note in memory.list() for link in note.links if link.kind == "supersedes"}
    assert found == {note.id for note in memory.list()} - replaced


def check_storms(folder: Path, seeds: Sequence[int]) -> None:
    """Kill writers that add, update, link, merge, delete and revert, one a seed, half of them with a model."""

    def one(seed: int) -> None:
        path = folder / f"{seed}.db"
        ids = killed(path, STORM.format(model=bool(seed % 2), first=0), seed)
        check_storm(path, ids, range(len(ids)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, seeds))


def test_storms_of_changes(tmp_path: Path) -> None:
    check_storms(tmp_path, range(FEW))


@pytest.mark.long
def test_many_storms_of_changes(tmp_path: Path) -> None:
    check_storms(tmp_path, range(100, 100 + MANY))


def test_one_of_two_writers_is_killed(tmp_path: Path) -> None:
    """The other goes on, and loses nothing either."""
    path = tmp_path / "memory.db"
    with writing(path, STORM.format(model=False, first=10_000)) as other:
        ids = killed(path, STORM.format(model=False, first=0), 3)
        assert other.stdout is not None
        theirs = [other.stdout.readline().strip() for _ in range(10)]
        assert other.poll() is None
    check_storm(path, ids, range(len(ids)))
    check_storm(path, theirs, range(10_000, 10_010))
