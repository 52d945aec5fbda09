"""Forgetting and reflection: proposals first, then commits that can be reverted."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from engramma import Commit, Memory
from engramma.note import Note, NoteId
from engramma.upkeep.forget import FIRST_DAYS, faded, retention
from engramma.upkeep.reflect import insights

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def aged(days: float, **fields: object) -> Note:
    then = NOW - timedelta(days=days)
    return Note(NoteId(f"n{days}"), "home", "a text", then, then, **fields)  # type: ignore[arg-type]


def test_retention_falls_with_time_and_rises_with_use_and_importance() -> None:
    assert retention(aged(0), NOW) == 1
    assert retention(aged(FIRST_DAYS), NOW) == pytest.approx(math.exp(-1))
    assert retention(aged(60, uses=3), NOW) > retention(aged(60), NOW)
    assert retention(aged(60, importance=5), NOW) > retention(aged(60, importance=1), NOW)
    assert retention(aged(60, used_at=NOW), NOW) == 1


def test_pinned_notes_and_insights_stay_and_expired_ones_go() -> None:
    notes = [aged(900), aged(901, pinned=True), aged(902, level="insight"), aged(1, expires_at=NOW), aged(2)]
    assert [one.note.id for one in faded(notes, NOW)] == ["n900", "n1"]


def test_forget_proposes_then_archives_and_can_be_reverted() -> None:
    with Memory.open(":memory:", embedder="hash:64") as memory:
        note = memory.add("The kettle leaks.", expires_at="2020-01-01")
        memory.add("The kettle is new.")
        (proposal,) = memory.forget()
        assert proposal.note.id == note.id
        assert len(memory.list()) == 2
        done = memory.forget(dry_run=False)
        assert isinstance(done, Commit)
        assert [kept.content for kept in memory.list()] == ["The kettle is new."]
        memory.revert(done)
        assert len(memory.list()) == 2
        assert memory.check().ok


@pytest.fixture
def runner() -> Memory:
    memory = Memory.open(":memory:", embedder="hash:64")
    texts = ("I ran a marathon in Berlin.", "The marathon training hurts my knee.", "My next marathon is in Rome.")
    ids = [memory.add(text, speaker="Ana", tags=["fitness"], at=f"2026-0{n}-01") for n, text in enumerate(texts, 1)]
    for first, second in pairwise(ids):
        memory.link(first, second, kind="related", reason="marathon")
    return memory


def test_reflection_rests_on_its_sources_and_says_nothing_twice(runner: Memory) -> None:
    (proposal,) = runner.reflect()
    assert "Ana has spoken of fitness 3 times between 2026-01-01 and 2026-03-01" in proposal.content
    done = runner.reflect(dry_run=False)
    assert isinstance(done, Commit)
    (insight,) = runner.list(where={"level": "insight"})
    assert sum(link.kind == "derived_from" for link in insight.links) == 3
    assert runner.reflect() == []
    assert runner.reflect(dry_run=False) is None
    assert runner.check().ok
    runner.revert(done)
    assert runner.list(where={"level": "insight"}) == []


def test_reflection_knows_when_it_has_nothing_to_say() -> None:
    assert insights([aged(1), aged(2)]) == []


def test_tend_does_all_of_it(runner: Memory) -> None:
    before = len(runner.list())
    trial = runner.tend(dry_run=True)
    assert (trial.read, trial.forgotten, len(trial.reflected)) == (0, [], 1)
    assert len(runner.list()) == before
    assert isinstance(runner.tend().reflected, Commit)
