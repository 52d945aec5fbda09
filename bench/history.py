"""Pages of the log, a note's history and blame, ``revert``, the memory as it was, and what keeping history costs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpus import questions, turns
from bench.figures import Options, Row, figure, growth, in_turn, milliseconds
from bench.shelf import SIZES, open_memory
from engramma import Memory
from engramma.commit import Change, Commit, PutLink, PutNote, ReviseNote
from engramma.note import CommitId, Link, Note, NoteId
from engramma.store import Query, SqliteStore, writes
from engramma.write import new_id

ROUNDS = 60
REVERTS = 40
ADDS = 150
COMMITS = 100_000
PAGE_MS, AS_OF_TIMES, SHARE = 20, 3, 0.30
SMALL, LARGE = SIZES[0], SIZES[-1]
START = datetime(2024, 1, 1, tzinfo=UTC)
RARE = "agent:rare"


def run(options: Options) -> Iterator[Row]:
    """The same questions to both sizes in turn; then to a long log; then the past, and what it costs."""
    yield from _by_size(options)
    yield from _long_log(options)
    yield from _as_it_was(options)
    yield from _cost(options)


def _by_size(options: Options) -> Iterator[Row]:
    """Both sizes in turn, then the newest commits undone one by one."""
    with ExitStack() as stack:
        memories = {size: stack.enter_context(options.shelf.open(size)) for size in (SMALL, LARGE)}
        kinds = {"log, a page of 20": _page, "log of one note": _log_of_note, "history of one note": _history}
        actions = {
            (name, size): partial(action, memory, [note.id for note in memory.list(limit=ROUNDS)])
            for name, action in kinds.items()
            for size, memory in memories.items()
        }
        times = in_turn(actions, ROUNDS)
        undo = {("revert", size): partial(_revert, memory, _newest(memory)) for size, memory in memories.items()}
        times |= in_turn(undo, REVERTS)
    for name in (*kinds, "revert"):
        for size in (SMALL, LARGE):
            yield milliseconds(f"{name}, {size:,} commits", times[name, size])
        yield growth(f"  {name}, {LARGE:,} to {SMALL:,} commits", times[name, SMALL], times[name, LARGE])


def _page(memory: Memory, notes: list[str], number: int) -> None:
    del notes, number
    memory.log(limit=20)


def _log_of_note(memory: Memory, notes: list[str], number: int) -> None:
    memory.log(limit=20, note=notes[number])


def _history(memory: Memory, notes: list[str], number: int) -> None:
    memory.history(notes[number])


def _newest(memory: Memory) -> list[str]:
    """The newest commits, the newest first: none of them has a later change in its way."""
    return [commit.id for commit in memory.log(limit=REVERTS)]


def _revert(memory: Memory, commits: list[str], number: int) -> None:
    memory.revert(commits[number])


# -- a long log


def _long_log(options: Options) -> Iterator[Row]:
    """Every way to ask a log of 100,000 commits, the worst for the index among them."""
    path = options.shelf.folder / "long.db"
    print(f"  (writing {COMMITS:,} commits)", flush=True)
    _fill(path, options.shelf.embedder.dimensions)
    with open_memory(path, options.shelf.embedder) as memory:
        notes = [note.id for note in memory.list(limit=ROUNDS)]
        old = START + timedelta(days=3)
        asked: dict[str, Callable[[int], Any]] = {
            "log, a page of 20": lambda number: memory.log(limit=20),
            "log, an actor of one commit": lambda number: memory.log(actor=RARE),
            "log, all actors that begin so": lambda number: memory.log(actor="analyst:"),
            "log, a day of long ago": lambda number: memory.log(since=START, until=START + timedelta(days=1)),
            "log of one note": lambda number: memory.log(limit=20, note=notes[number]),
            "history of one note": lambda number: memory.history(notes[number]),
            "blame of one note": lambda number: memory.blame(notes[number]),
            "one note, as of long ago": lambda number: memory.get(notes[0], as_of=old),
        }
        times = in_turn(asked, ROUNDS)
    for name, seconds in times.items():
        yield milliseconds(f"{name}, {COMMITS:,} commits", seconds, below=PAGE_MS)


def _fill(path: Path, dimensions: int) -> None:
    """A fifth of the commits add a note with a link, the others revise one."""
    store, made = SqliteStore(str(path)), _Made(random.Random(3))
    vector = np.ones((1, dimensions), np.float32) / dimensions**0.5
    for first in range(0, COMMITS, 1000):
        commits = [made.commit(number) for number in range(first, first + 1000)]
        notes = [change.note.id for commit in commits for change in commit.changes if isinstance(change, PutNote)]
        store.apply(commits, dict.fromkeys(notes, vector))
    store.close()


class _Made:
    """Commits made up one after the other, and the notes that they have made."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.notes: list[NoteId] = []
        self.revisions: list[int] = []

    def commit(self, number: int) -> Commit:
        """The next commit, five minutes after the one before it."""
        at = START + timedelta(minutes=5 * number)
        actor = RARE if number == 500 else self.chance.choice(("user", "analyst:rules", "analyst:model"))
        changes = self._revised(number) if number % 5 else self._added(number, at)
        return Commit(CommitId(new_id()), "default", at, actor, f'add "turn {number} of a talk": 1 added', changes)

    def _revised(self, number: int) -> tuple[Change, ...]:
        place = self.chance.randrange(len(self.notes))
        self.revisions[place] += 1
        after = {"context": f"Ana speaks about home, turn {number}"}
        return (ReviseNote(self.notes[place], self.revisions[place] - 1, after, "evolved"),)

    def _added(self, number: int, at: datetime) -> tuple[Change, ...]:
        text = f"turn {number} about the kettle and the garden"
        note = Note(NoteId(new_id()), "default", text, at, at, speaker="Ana", tags=("home",))
        links = [PutLink(Link(note.id, self.chance.choice(self.notes), "related", "the kettle"))] if self.notes else []
        self.notes.append(note.id)
        self.revisions.append(1)
        return (PutNote(note, "added"), *links)


# -- the memory as it was


def _as_it_was(options: Options) -> Iterator[Row]:
    """Searches now and as of the middle of the log in turn; and the first of each, which builds an index."""
    file = options.shelf.file(LARGE)
    asked = questions(ROUNDS, options.shelf.texts[:SMALL])
    options.shelf.embedder.learn(asked)
    firsts: dict[str, list[float]] = defaultdict(list)
    for _ in range(5):
        with open_memory(file, options.shelf.embedder) as memory:
            middle = memory.log(limit=1)[0].seq // 2
            ways = {"now": partial(_search, memory, asked, None), "then": partial(_search, memory, asked, middle)}
            for name, seconds in in_turn(ways, 1).items():
                firsts[name] += seconds
    with open_memory(file, options.shelf.embedder) as memory:
        ways = {"now": partial(_search, memory, asked, None), "then": partial(_search, memory, asked, middle)}
        in_turn(ways, 2)
        times = in_turn(ways, ROUNDS)
    yield milliseconds(f"search, {LARGE:,} notes", times["now"])
    yield milliseconds(f"search as of the middle of {LARGE:,} commits", times["then"])
    yield growth("  as it was to now", times["now"], times["then"], below=AS_OF_TIMES)
    yield milliseconds("first search after opening", firsts["now"])
    yield milliseconds("first search as of a moment", firsts["then"])
    yield growth("  the first as it was to the first now", firsts["now"], firsts["then"], below=AS_OF_TIMES)


def _search(memory: Memory, asked: list[str], as_of: int | None, number: int) -> None:
    memory.search(asked[number], as_of=as_of)


# -- what history costs


def _cost(options: Options) -> Iterator[Row]:
    """Additions in turn with the same commits written to a store with history and without, to which nobody listens."""
    texts = turns(LARGE + ADDS)[LARGE:]
    options.shelf.know(texts)
    with ExitStack() as stack:
        memory = stack.enter_context(options.shelf.open(LARGE))
        stores = [stack.enter_context(closing(SqliteStore(str(options.shelf.file(LARGE))))) for _ in range(2)]
        commits, vectors = _additions(stores[0]), np.ones((1, options.shelf.embedder.dimensions), np.float32)

        def write(store: SqliteStore, number: int) -> None:
            store.apply([commits[number]], {commits[number].notes()[0]: vectors})

        def bare(number: int) -> None:
            with _no_history(number):
                write(stores[1], number)

        ways: dict[str, Callable[[int], Any]] = {
            "add": lambda number: memory.add(**texts[number]), "with": partial(write, stores[0]), "without": bare,
        }  # fmt: skip
        times = in_turn(ways, ADDS)
    shares = [(kept - without) / (add - kept + without) for add, kept, without in zip(*times.values(), strict=True)]
    yield milliseconds(f"add at {LARGE:,} notes", times["add"])
    yield milliseconds("  of it, writing to the store", times["with"])
    yield milliseconds("  the same without history", times["without"])
    yield figure("  history to the rest of an add", shares, "times", below=SHARE)


def _additions(store: SqliteStore) -> list[Commit]:
    """Commits as additions make them: a note and its place in a session; every fourth revises another note too."""
    last, *others = store.find(Query(["default"], newest_first=True, limit=ADDS + 1))
    commits, previous = [], last.id
    for number, other in enumerate(others):
        now = datetime.now(UTC)
        note = Note(NoteId(new_id()), "default", f"turn {number} about the kettle", now, now, speaker="Ana", tags=("home",))
        changes: list[Change] = [PutNote(note, "added"), PutLink(Link(note.id, previous, "follows", "next in the session", 1.0))]
        if number % 4 == 0:
            changes.append(ReviseNote(other.id, other.revision, {"context": "Ana speaks about home"}, "evolved"))
        commits.append(Commit(CommitId(new_id()), "default", now, "analyst:rules", "add: 1 added, 1 linked", tuple(changes)))
        previous = note.id
    return commits


@contextmanager
def _no_history(number: int) -> Iterator[None]:
    """Write notes and links alone: no log, and nothing of what they replace."""
    nothing: dict[str, Callable[..., Any]] = {
        "log_commit": lambda *given: 10**9 + number, "log_changes": lambda *given: None, "keep_note": lambda *given: None,
        "keep_link": lambda *given: None,
    }  # fmt: skip
    kept = {name: getattr(writes, name) for name in nothing}
    for name, function in nothing.items():
        setattr(writes, name, function)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(writes, name, function)
