"""``add`` before a slow model: as the rules read, with the model waited for, and with the model behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.corpus import Turn, turns
from bench.figures import Options, Row, growth, in_turn, milliseconds
from bench.shelf import SIZES
from engramma import Memory, Pace
from engramma.models.base import Completion, Message

ROUNDS = 40
MODEL_SECONDS = 0.2
TARGET_MS = 10
SIZE = SIZES[0]


class SlowLLM:
    """A model that thinks for a while and says the least that a reply may say of each of four drafts."""

    name = "slow"

    def complete(self, messages: Sequence[Message], *, schema: Mapping[str, Any] | None = None) -> Completion:
        """Sleep, then answer."""
        time.sleep(MODEL_SECONDS)
        notes = ", ".join(f'{{"label": "d{number}", "context": "Somebody says something."}}' for number in range(1, 5))
        return Completion(f'{{"notes": [{notes}]}}', 500, 50)


def run(options: Options) -> Iterator[Row]:
    """The same turns added in each way in turn; searches while a model reads behind."""
    fresh = turns(3 * ROUNDS, seed=61)
    options.shelf.know(fresh)
    ways: dict[str, dict[str, Any]] = {
        "rules": {}, "waited for": {"llm": SlowLLM()}, "behind": {"llm": SlowLLM(), "background": Pace(threads=2)},
    }  # fmt: skip
    with ExitStack() as stack:
        memories = {
            name: stack.enter_context(
                Memory.open(options.shelf.file(SIZE), embedder=options.shelf.embedder, catch_up=False, **more)
            )
            for name, more in ways.items()
        }
        for memory in memories.values():
            memory.search("warm up")
        times = in_turn({name: partial(_add, memory, fresh) for name, memory in memories.items()}, ROUNDS)
        behind = memories["behind"]
        behind.add_many([{**turn} for turn in fresh[ROUNDS:]])
        waiting = behind.stats().pending
        searches = {name: partial(_search, memories[name], options.shelf.texts) for name in ("rules", "behind")}
        found = in_turn(searches, ROUNDS)
        began = time.perf_counter()
        behind.wait()
        drained = time.perf_counter() - began
    yield milliseconds(f"add at {SIZE:,} notes, rules", times["rules"])
    yield milliseconds(f"add, a model of {MODEL_SECONDS * 1e3:.0f} ms waited for", times["waited for"])
    yield milliseconds("add, the same model behind", times["behind"], below=TARGET_MS)
    yield growth("  behind to rules", times["rules"], times["behind"])
    yield milliseconds("search while it reads behind", found["behind"], remark=f"{waiting} waited, read {drained:.1f} s later")
    yield growth("  to a search with nothing behind", found["rules"], found["behind"])


def _add(memory: Memory, fresh: Sequence[Turn], number: int) -> None:
    memory.add(**fresh[number])


def _search(memory: Memory, texts: Sequence[Turn], number: int) -> None:
    memory.search(" ".join(texts[number]["content"].split()[:4]))
