"""Forgetting: what fades, what stays, what is removed for good only when somebody says so."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from engramma import Commit, Memory
from engramma.dates import period
from engramma.errors import Conflict, InvalidInput, UnknownId
from engramma.note import Note, NoteId
from engramma.upkeep.forget import FIRST_DAYS, faded, retention

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=100)


def aged(days: float, **fields: object) -> Note:
    then = NOW - timedelta(days=days)
    return Note(NoteId(f"n{days}"), "home", "a text", then, then, **fields)  # type: ignore[arg-type]


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [hit.note.content for hit in memory.search(query, min_relevance=0.0, **options)]  # type: ignore[arg-type]


def test_retention_falls_with_time_and_rises_with_use_and_importance() -> None:
    assert retention(aged(0), NOW) == 1
    assert retention(aged(FIRST_DAYS), NOW) == pytest.approx(math.exp(-1))
    assert retention(aged(60, uses=3), NOW) > retention(aged(60), NOW)
    assert retention(aged(60, importance=5), NOW) > retention(aged(60, importance=1), NOW)
    assert retention(aged(60, used_at=NOW), NOW) == 1


def test_important_notes_last_much_longer() -> None:
    lasted = {importance: next(days for days in range(1, 5000) if faded([aged(days, importance=importance)], NOW))
              for importance in range(1, 6)}  # fmt: skip
    assert lasted[1] < lasted[2] < lasted[3]
    assert lasted[4] > 3 * lasted[3]
    assert lasted[5] > 3 * lasted[4]


def test_pinned_notes_and_insights_stay_and_expired_ones_go() -> None:
    notes = [aged(900), aged(901, pinned=True), aged(902, level="insight"), aged(1, expires_at=NOW), aged(2)]
    assert [one.note.id for one in faded(notes, NOW)] == ["n900", "n1"]


def test_what_a_program_keeps_here_stays() -> None:
    assert faded([aged(900, given={"distinct": True})], NOW) == []
    assert len(faded([aged(901, given={"distinct": True}, expires_at=NOW)], NOW)) == 1


def test_an_expiry_holds_for_pinned_notes_and_insights_too() -> None:
    assert len(faded([aged(1, expires_at=NOW, pinned=True), aged(2, expires_at=NOW, level="insight")], NOW)) == 2


def test_what_was_recalled_within_a_week_stays_whatever_the_threshold() -> None:
    recent = aged(500, used_at=NOW - timedelta(days=6), importance=1)
    assert faded([recent], NOW, threshold=1.0) == []
    assert len(faded([aged(500, used_at=NOW - timedelta(days=8), importance=1)], NOW, threshold=1.0)) == 1


def test_forget_proposes_then_archives_and_can_be_reverted() -> None:
    with Memory.open(":memory:", embedder="hash:64") as memory:
        note = memory.add("The kettle leaks.", expires_at="2020-01-01")
        memory.add("The kettle is new.")
        (proposal,) = memory.forget()
        assert proposal.note.id == note.id
        assert len(memory.list()) == 2
        done = memory.forget(dry_run=False)
        assert isinstance(done, Commit)
        assert done.actor == "analyst:rules"
        assert [kept.content for kept in memory.list()] == ["The kettle is new."]
        assert found(memory, "kettle", include={"archived", "expired"}) != found(memory, "kettle")
        memory.revert(done)
        assert len(memory.list()) == 2
        assert memory.check().ok


def test_forget_looks_ahead_and_tells_why(memory: Memory) -> None:
    memory.add("The violin is in the attic.")
    assert memory.forget() == []
    (proposal,) = memory.forget(now=LATER)
    assert 0 < proposal.retention < 0.05
    assert "not recalled in 100 days" in proposal.reason
    assert len(memory.forget(now="2099-01-01")) == 1
    with pytest.raises(InvalidInput, match="now='someday'"):
        memory.forget(now="someday")


def test_what_was_just_recalled_is_not_forgotten_before_it_is_written_down(memory: Memory) -> None:
    memory.add("The violin is in the attic.")
    memory.add("The kettle leaks.")
    assert len(memory.forget(now=LATER)) == 2
    assert found(memory, "violin", k=1) == ["The violin is in the attic."]
    assert [one.note.content for one in memory.forget(now=LATER)] == ["The kettle leaks."]


def test_what_somebody_took_back_is_not_forgotten_again_at_once(memory: Memory) -> None:
    memory.add("The violin is in the attic.")
    done = memory.forget(dry_run=False, now=LATER)
    assert isinstance(done, Commit)
    memory.revert(done)
    soon = datetime.now(UTC) + timedelta(days=3)
    assert memory.forget(threshold=0.99, now=soon) == []


def test_a_forgotten_note_takes_along_what_was_folded_into_it(memory: Memory) -> None:
    first = memory.add("The violin is in the attic.")
    second = memory.add("The violin stands in the attic.")
    memory.merge([first, second])
    memory.forget(dry_run=False, now=LATER)
    assert memory.list() == []
    assert memory.check().ok


def test_nothing_is_removed_for_good_unless_a_period_is_set(memory: Memory) -> None:
    note = memory.add("The violin is in the attic.")
    deleted = memory.add("The kettle leaks.")
    memory.delete(deleted)
    memory.forget(dry_run=False, now=LATER)
    far = LATER + timedelta(days=3650)
    assert memory.forget(now=far) == []
    assert memory.forget(now=datetime.now(UTC), purge_after="1d") == []
    (proposal,) = memory.forget(now=far, purge_after="365d")
    assert (proposal.action, proposal.note.id) == ("purge", note.id)
    done = memory.forget(now=far, purge_after="365d", dry_run=False)
    assert isinstance(done, Commit)
    with pytest.raises(UnknownId):
        memory.get(note)
    assert memory.get(deleted).state == "archived"  # by hand: not forgetting's to remove
    with pytest.raises(Conflict, match="removed"):
        memory.revert(done)
    assert memory.check().ok


def test_what_was_forgotten_is_known_also_when_its_history_was_folded_away(memory: Memory) -> None:
    note = memory.add("The violin is in the attic.")
    deleted = memory.add("The kettle leaks.")
    memory.delete(deleted)
    memory.forget(dry_run=False, now=LATER)
    memory.compact(keep="0d")
    (proposal,) = memory.forget(now=LATER + timedelta(days=3650), purge_after="365d")
    assert proposal.note.id == note.id


@pytest.mark.parametrize("period", ["", "365", "d", "-1d", "one year", "1.5d", 365, True, "9999999d"])
def test_a_period_that_is_none_is_refused(memory: Memory, period: object) -> None:
    with pytest.raises(InvalidInput, match="purge_after"):
        memory.forget(purge_after=period)  # type: ignore[arg-type]


def test_periods_are_read() -> None:
    assert period("purge_after", "365d") == period("purge_after", "1 year") == timedelta(days=365)
    assert period("purge_after", "2w") == timedelta(days=14)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", True, float("nan")])
def test_a_threshold_that_is_none_is_refused(memory: Memory, threshold: object) -> None:
    with pytest.raises(InvalidInput, match="threshold"):
        memory.forget(threshold=threshold)  # type: ignore[arg-type]


def test_another_space_is_left_alone(opened) -> None:
    memory = opened(space="alice")
    memory.add("The violin is in the attic.", space="bob")
    assert memory.forget(now=LATER) == []
