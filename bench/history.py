"""Pages of the log, a note's history, and ``revert``, at growing numbers of commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from bench.figures import Options, Row, growth, in_turn, milliseconds
from bench.shelf import SIZES
from engramma import Memory

ROUNDS = 60
REVERTS = 40
SMALL, LARGE = SIZES[0], SIZES[-1]


def run(options: Options) -> Iterator[Row]:
    """The same questions to both sizes in turn, then the newest commits undone one by one."""
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
