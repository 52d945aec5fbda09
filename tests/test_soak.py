"""Much at once: threads and processes that do everything to one file, a disk that fills up, one that cannot be written."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engramma import Memory, Note
from engramma.commit import RemoveNote
from engramma.errors import Conflict, InvalidInput, StoreBusy, StoreError, StoreReadOnly, UnknownId
from engramma.testing import ScriptedLLM

EMBEDDER = "hash:64"
THREADS = 4
FEW, MANY = 800, 20_000
REFUSED = (Conflict, UnknownId, InvalidInput)  # somebody else was there first: the kinds that the docs name
VERBS = {
    "add": 30, "add_many": 4, "again": 4, "keyed": 4, "update": 14, "rewrite": 3, "link": 8, "unlink": 3, "merge": 3, "delete": 4,
    "revert": 6, "purge": 0.3, "forget": 1, "catch_up": 1, "search": 8, "list": 2, "get": 4, "history": 2, "log": 2, "stats": 1,
}  # fmt: skip
WORDS = "heron reed lake boat rain stone moss fish wind oar mist duck mud net bay 苍鹭 芦苇 湖 船 雨".split()
KINDS = ("related", "supports", "supersedes", "contradicts")
EVERYTHING = ("archived", "merged")


def mark(text: str) -> str:
    """The word that tells a text from all others, wherever it went."""
    return next(word for word in text.split() if word.startswith("w") and word.endswith("q"))


def reader() -> ScriptedLLM:
    """A model that reads every draft it is shown, and now and then answers nonsense."""

    def reply(messages: Sequence[Any]) -> Any:
        text = str(messages[-1])
        if len(text) % 11 == 0:
            return "no reading"
        labels = [f"d{number}" for number in range(1, 5) if f"d{number}" in text]
        links = [{"to": "n1", "kind": "related", "reason": "by the model", "strength": 0.5}] if "n1" in text else []
        return {"notes": [{"label": label, "keywords": ["read"], "context": "Read.", "links": links} for label in labels]}

    return ScriptedLLM(reply)


class Worker:
    """One thread that does whatever comes to its mind to a memory that others use too."""

    def __init__(self, memory: Memory, name: str) -> None:
        self.memory, self.name, self.chance = memory, name, random.Random(name)
        self.texts: list[str] = []
        self.added: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unsure = 0  # texts whose ``add`` was refused

    def work(self, operations: int) -> None:
        """Do some operations, each of a random kind."""
        for verb in ["add_many", *self.chance.choices(list(VERBS), list(VERBS.values()), k=operations - 1)]:
            before = self.added.total()
            try:
                getattr(self, f"_{verb}")()
            except REFUSED as error:
                self.refused[f"{verb}: {type(error).__name__}"] += 1
                self.unsure += self.added.total() - before

    def _text(self) -> str:
        """A text that nobody has said before."""
        self.texts.append(f"{' '.join(self.chance.sample(WORDS, 6))} w{self.name}{len(self.texts)}q")
        return self.texts[-1]

    def _said(self, text: str) -> str:
        """The text, which is counted: it is there from now on, also where somebody purges it before ``add`` returns."""
        self.added[mark(text)] += 1
        return text

    def _note(self) -> Note:
        """One of the notes that are known, mostly a new one."""
        notes = self.memory.list(limit=40, newest_first=True, include=EVERYTHING[: self.chance.random() < 0.1])
        if not (own := [note for note in notes if note.key is None]):
            raise UnknownId("there is no note yet")
        return self.chance.choice(own)

    def _add(self) -> None:
        session, speaker = self.chance.choice((None, "s1", "s2")), self.chance.choice((None, "Ana"))
        self.memory.add(self._said(self._text()), session=session, speaker=speaker)

    def _add_many(self) -> None:
        items = [{"content": self._said(self._text()), "session": "s3"} for _ in range(3)]
        self.memory.add_many(items)

    def _again(self) -> None:
        self.memory.add(self._said(self.chance.choice(self.texts)))

    def _keyed(self) -> None:
        number = self.chance.randrange(12)
        self.memory.add(f"The report of day {number}, wk{number}q", key=f"day-{number}")

    def _update(self) -> None:
        changes: dict[str, Any] = {"tags": [self.chance.choice(WORDS)], "importance": 5, "context": "Changed.", "session": "s2"}
        name = self.chance.choice(list(changes))
        self.memory.update(self._note(), **{name: changes[name]})

    def _rewrite(self) -> None:
        note = self._note()
        self.memory.update(note, content=f"{self.chance.choice(WORDS)} {mark(note.content)} again")

    def _link(self) -> None:
        self.memory.link(self._note(), self._note(), kind=self.chance.choice(KINDS), reason="by hand")

    def _unlink(self) -> None:
        note = self.memory.get(self._note())
        for link in note.links[:1]:
            self.memory.unlink(note, link.other(note.id))

    def _merge(self) -> None:
        self.memory.merge([self._note(), self._note()])

    def _delete(self) -> None:
        self.memory.delete(self._note())

    def _revert(self) -> None:
        for commit in self.chance.sample(self.memory.log(limit=30), 1):
            self.memory.revert(commit)

    def _purge(self) -> None:
        with suppress(StoreBusy):  # it is gone; that its words are still in a file which others read is tried again
            self.memory.purge(self._note())

    def _forget(self) -> None:
        self.memory.forget(dry_run=False)

    def _catch_up(self) -> None:
        self.memory.catch_up(limit=4)

    def _search(self) -> None:
        self.memory.search(" ".join(self.chance.sample(WORDS, 3)), k=5)

    def _list(self) -> None:
        self.memory.list(where={"importance": {"$gte": 3}}, limit=5)

    def _get(self) -> None:
        note = self._note()
        assert mark(self.memory.get(note).content) == mark(note.content)

    def _history(self) -> None:
        assert self.memory.history(self._note())[0].revision == 1

    def _log(self) -> None:
        self.memory.log(limit=5, note=self._note())

    def _stats(self) -> None:
        self.memory.stats()


def work(path: str, name: str, operations: str) -> dict[str, Any]:
    """What one process does, with several threads; what it has to tell."""
    with Memory.open(path, embedder=EMBEDDER, llm=reader() if name == "b" else None) as memory:
        workers = [Worker(memory, f"{name}{number}x") for number in range(THREADS)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda worker: worker.work(int(operations) // THREADS), workers))
    return {
        "added": dict(sum((worker.added for worker in workers), Counter())),
        "refused": dict(sum((worker.refused for worker in workers), Counter())),
        "unsure": sum(worker.unsure for worker in workers),
    }


def child(*arguments: object, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """This file run as a process of its own: ``main`` with these arguments."""
    command = [*before, sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str], seconds: float = 3600) -> dict[str, Any]:
    """What a process printed at its end."""
    out, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors[-4000:]
    return json.loads(out)


def soaked(path: Path, operations: int) -> tuple[Counter[str], Counter[str], int]:
    """Two processes at one file: how often each text was added, what was refused, and how many texts were."""
    processes = [child("work", path, name, operations // 2) for name in "ab"]
    try:
        reports = [told(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    added, refused = (sum((Counter(report[name]) for report in reports), Counter[str]()) for name in ("added", "refused"))
    return added, refused, sum(report["unsure"] for report in reports)


def check_soaked(path: Path, operations: int) -> None:
    """Nothing is lost, doubled or damaged after many operations."""
    added, refused, unsure = soaked(path, operations)
    with Memory.open(path, embedder=EMBEDDER, catch_up=False) as memory:
        assert memory.check().problems == ()
        notes = memory.list(include=EVERYTHING)
        keyed = [note for note in notes if note.key is not None]
        keys = [note.key for note in keyed if note.state != "archived"]
        assert len(set(keys)) == len(keys)
        left = added - Counter(mark(note.content) for note in notes if note.key is None)
        assert left.total() == added.total() - len(notes) + len(keyed), "a text that nobody has added"
        changes = [change for commit in memory.log(limit=None) for change in commit.changes]
        gone = {change.note for change in changes if isinstance(change, RemoveNote)} - {note.id for note in notes}
        lost = left.total() - len(gone)
        assert 0 <= lost <= unsure, "what is not there any more, and nothing else, was purged"
        check_found(memory, [note for note in notes if note.state in ("pending", "ready")])
    assert not [what for what in refused if what.startswith(("add", "again", "keyed")) and "UnknownId" not in what], refused
    assert sum(refused.values()) < operations / 5, refused


def check_found(memory: Memory, notes: Sequence[Note]) -> None:
    """Some of the notes in sight are found by the word that only they hold."""
    for note in random.Random(0).sample(list(notes), min(20, len(notes))):
        hits = memory.search(note.content, k=1000, min_relevance=0, include=("superseded",))
        assert note.id in {found for hit in hits for found in (hit.note.id, *hit.why.copies)}


def test_a_short_soak(tmp_path: Path) -> None:
    check_soaked(tmp_path / "memory.db", FEW)


@pytest.mark.long
def test_a_long_soak(tmp_path: Path) -> None:
    check_soaked(tmp_path / "memory.db", MANY)


# -- a disk that is full or cannot be written: in a process of its own, which may limit itself or mount what nobody else sees

SMALL = 300_000  # bytes that a file may have
MOUNT_SMALL = 'mount -t tmpfs -o size=1M tmpfs "$0" && exec "$@"'
MOUNT_LOCKED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def mounted(script: str, folder: Path, *arguments: object) -> dict[str, Any]:
    """What this file's ``main`` tells in a namespace of its own, where a script has mounted something at a folder."""
    apart = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(folder))
    if shutil.which("unshare") is None or subprocess.run([*apart, sys.executable, "-c", ""], capture_output=True).returncode:
        pytest.skip("a namespace to mount in is not to be had here")
    return told(child(*arguments, before=apart), 60)


def sentence(number: int) -> str:
    return f"{' '.join(random.Random(number).sample(WORDS, 6))} w{number}q"


def filled(memory: Memory) -> tuple[list[str], StoreError]:
    """The texts that fitted, and the error of the one that did not."""
    kept: list[str] = []
    while len(kept) < 5000:
        try:
            memory.add(sentence(len(kept)))
        except StoreError as error:
            return kept, error
        kept.append(sentence(len(kept)))
    raise AssertionError("the disk did not fill up")


def there(memory: Memory) -> list[str]:
    """The texts of a memory, whatever became of them."""
    return [note.content for note in memory.list(include=EVERYTHING)]


def refusals(memory: Memory) -> dict[str, str]:
    """What each verb that writes says on a full disk; the memory stays as it was."""
    one, two = memory.list()[:2]
    long, before = "does not fit " * 80_000, [(note, note.links) for note in memory.list(include=EVERYTHING)]
    verbs: dict[str, tuple[Callable[[], object], list[str]]] = {
        "update": (lambda: memory.update(one, context=long), []),
        "link": (lambda: memory.link(one, two, reason=long), []),
        "add": (lambda: memory.add(long), [long]),
        "add_many": (lambda: memory.add_many([long, "short"]), [long, "short"]),
    }
    said = {}
    for verb, (call, unsaved) in verbs.items():
        with pytest.raises(StoreError) as caught:
            call()
        said[verb] = type(caught.value).__name__
        assert list(caught.value.unsaved) == unsaved
        assert memory.check().problems == ()
    assert [(note, note.links) for note in memory.list(include=EVERYTHING)] == before
    return said


def fill(path: str, more_room: Callable[[], object]) -> dict[str, Any]:
    """A disk runs full under a memory, and has room again."""
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add_many(["The first note.", "The second note."])
        kept, error = filled(memory)
        assert there(memory)[2:] == kept
        said = refusals(memory)
    more_room()
    with Memory.open(path, embedder=EMBEDDER) as memory:
        assert there(memory)[2:] == kept
        assert list(error.unsaved) == [sentence(len(kept))]
        memory.add_many([*error.unsaved, "There is room again."])
        assert there(memory)[-2:] == [*error.unsaved, "There is room again."]
        assert memory.check().problems == ()
    return {"kept": len(kept), "error": type(error).__name__, "message": str(error), **said}


def full_disk(path: str) -> dict[str, Any]:
    """The file system is full."""
    return fill(path, lambda: subprocess.run(["mount", "-o", "remount,size=64M", str(Path(path).parent)], check=True))


def full_limit(path: str) -> dict[str, Any]:
    """Files may not grow any more, as with a quota."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))
    return fill(path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before))


def locked(path: str) -> dict[str, Any]:
    """Nothing in the folder can be written."""
    said = {}
    for name in ("memory.db", "new.db"):
        try:
            Memory.open(Path(path).with_name(name), embedder=EMBEDDER)
        except StoreReadOnly as error:
            said[name] = str(error)
    return said


def test_a_full_disk_loses_nothing_and_has_room_again(tmp_path: Path) -> None:
    said = mounted(MOUNT_SMALL, tmp_path, "full_disk", tmp_path / "memory.db")
    assert said["kept"] > 10
    assert "is full" in said["message"]
    assert [said[name] for name in ("error", "update", "link", "add", "add_many")] == ["StoreFull"] * 5


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of a file's size")
def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    said = told(child("full_limit", tmp_path / "memory.db"), 60)
    assert {said[name] for name in ("error", "update", "link", "add", "add_many")} <= {"StoreFull", "StoreError"}
    assert str(tmp_path / "memory.db") in said["message"]


def test_a_folder_that_cannot_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("The heron stands in the reeds.")
    before = path.read_bytes()
    said = mounted(MOUNT_LOCKED, tmp_path, "locked", path)
    assert set(said) == {"memory.db", "new.db"}
    assert all("write permission" in message for message in said.values())
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])
    with Memory.open(path, embedder=EMBEDDER) as memory:
        assert [note.content for note in memory.list()] == ["The heron stands in the reeds."]


if __name__ == "__main__":
    actions: dict[str, Callable[..., Any]] = {
        "work": work, "full_disk": full_disk, "full_limit": full_limit, "locked": locked,
    }  # fmt: skip
    sys.stdout.write(json.dumps(actions[sys.argv[1]](*sys.argv[2:])))
