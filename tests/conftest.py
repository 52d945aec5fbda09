"""What the tests share: memories that close themselves, scripted replies, a guard against endless loops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

import pytest

from engramma import Memory, Note
from engramma.analysts.llm import LLMAnalyst
from engramma.testing import HashEmbedder, ScriptedLLM


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ENGRAMMA_* variable of the machine reaches a test."""
    for name in ("DB", "SPACE", "LLM", "EMBEDDER"):
        monkeypatch.delenv(f"ENGRAMMA_{name}", raising=False)


@pytest.fixture
def opened(tmp_path) -> Iterator[Callable[..., Memory]]:
    """Opens memories (the same file unless another is named) and closes them after the test."""
    memories: list[Memory] = []

    def open_(name: str = "memory.db", **settings: Any) -> Memory:
        settings.setdefault("embedder", HashEmbedder(128))
        memories.append(Memory.open(name if name == ":memory:" else tmp_path / name, **settings))
        return memories[-1]

    yield open_
    for memory in memories:
        memory.close()


@pytest.fixture
def memory(opened) -> Memory:
    """A memory that is not on disk, with the rules and the hash embedder."""
    return opened(":memory:")


@pytest.fixture
def modelled(opened) -> Callable[..., tuple[Memory, ScriptedLLM]]:
    """A memory whose notes are read by a script, and the script; retries do not wait."""

    def open_(*replies: Any, **settings: Any) -> tuple[Memory, ScriptedLLM]:
        llm = ScriptedLLM(*replies)
        analyst = LLMAnalyst(llm, pause=0.001)
        settings.setdefault("name", ":memory:")
        return opened(analyst=analyst, **settings), llm

    return open_


def entry(label: str = "d1", **fields: Any) -> dict[str, Any]:
    """One entry of a model's reply, valid unless told otherwise."""
    valid = {"keywords": ["kettle"], "tags": ["home"], "context": "A sentence of the model.", "importance": 3}
    return {"label": label, **valid, **fields}


def reply(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A whole reply: the entries, or one with these fields."""
    return {"notes": list(entries) or [entry(**fields)]}


def plain(note: Note) -> dict[str, Any]:
    """All of a note but its use counts, links and the bytes of its vector included, as values that compare."""
    fields = asdict(note)
    vector, *_ = fields.pop("vector"), fields.pop("uses"), fields.pop("used_at")
    fields["links"] = sorted(map(repr, note.links))
    return fields | {"vector": None if vector is None else vector.tobytes()}


def contents(found: Any) -> list[str]:
    """The texts of notes or hits, in order."""
    return [getattr(one, "note", one).content for one in found]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of hanging, where the platform has an alarm for it."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Faults of the product that a test already shows, by the test's name: why it fails, and for which parameters (all, if
# none are named). Each is strict: a fault that is mended makes its test fail until its line here is removed.
OPEN_FAULTS: dict[str, tuple[str, ...]] = {}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that show an open fault."""
    for item in items:
        name, _, parameters = item.name.partition("[")
        reason, *which = OPEN_FAULTS.get(name, ("",))
        if reason and (not which or parameters.startswith(tuple(which))):
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
