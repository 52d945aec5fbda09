"""Reflection: what linked notes say together, as notes that stand alone, rest on their sources, and follow them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from engramma import Commit, Memory
from engramma.note import Note
from engramma.testing import ScriptedLLM
from engramma.upkeep.reflect import groups
from engramma.upkeep.run import run_of

TEA = ("I love green tea.", "Green tea in the morning is what I like best.", "I really like green tea with jasmine.")


def told(memory: Memory, texts: tuple[str, ...], speaker: str | None = "Ana", **fields: Any) -> list[Note]:
    """Notes a month apart, each in a session of its own, each linked with the one before it."""
    notes = [memory.add(text, speaker=speaker, at=f"2026-{month:02}-03", session=f"s{month}", **fields)
             for month, text in enumerate(texts, 1)]  # fmt: skip
    for first, second in pairwise(notes):
        memory.link(second, first, kind="related", reason="the same subject")
    return notes


@pytest.fixture
def runner() -> Memory:
    memory = Memory.open(":memory:", embedder="hash:64")
    told(memory, ("I ran a marathon in Berlin.", "The marathon training hurts my knee.", "My next marathon is in Rome."),
         tags=["fitness"])  # fmt: skip
    return memory


def insights(memory: Memory) -> list[Note]:
    return memory.list(where={"level": "insight"})


def sources(insight: Note) -> set[str]:
    return {link.target for link in insight.links if link.kind == "derived_from" and link.source == insight.id}


def test_reflection_rests_on_its_sources_and_says_nothing_twice(runner: Memory) -> None:
    (proposal,) = runner.reflect()
    assert "Ana has spoken of fitness 3 times between 2026-01-03 and 2026-03-03" in proposal.content
    done = runner.reflect(dry_run=False)
    assert isinstance(done, Commit)
    assert done.actor == "analyst:rules"
    (insight,) = insights(runner)
    assert sources(insight) == {note.id for note in runner.list(where={"level": "episode"})}
    assert runner.reflect() == []
    assert runner.reflect(dry_run=False) is None
    assert runner.check().ok
    runner.revert(done)
    assert insights(runner) == []
    assert runner.check().ok


def test_reflection_knows_when_it_has_nothing_to_say(memory: Memory) -> None:
    assert memory.reflect() == []
    for text in ("The kettle leaks.", "I bought a violin.", "Rome was hot.", "你好", "Where is my violin?"):
        memory.add(text, speaker="Ana")
    assert memory.reflect() == []
    assert groups([]) == []


def test_two_notes_are_too_few_and_one_conversation_is_no_pattern(memory: Memory) -> None:
    told(memory, TEA[:2])
    assert memory.reflect() == []
    for text in ("The old kettle leaks.", "The kettle is on the stove.", "Put the kettle away."):
        memory.add(text, speaker="Bo", at="2026-05-01", session="one")
    assert memory.reflect() == []


def test_a_preference_stands_on_its_own(memory: Memory) -> None:
    told(memory, TEA)
    (proposal,) = memory.reflect()
    assert (proposal.kind, proposal.content) == (
        "preference",
        "Ana likes green tea: said 2 times between 2026-01-03 and 2026-03-03.",
    )
    assert proposal.speaker == "Ana"


def test_a_preference_without_a_name_is_mine(memory: Memory) -> None:
    told(memory, TEA, speaker=None)
    (proposal,) = memory.reflect()
    assert proposal.content.startswith("I like green tea: said 2 times")


def test_words_that_name_nothing_make_no_insight(memory: Memory) -> None:
    told(memory, ("Agreed, Caroline, that is lovely.", "Agreed, Melanie, it really is.", "Agreed, what a lovely day that was."))
    told(memory, ("I accepted it in the end.", "She accepted the letter.", "They accepted nothing."), speaker="Bo")
    assert memory.reflect() == []


def test_opposite_likings_make_no_preference(memory: Memory) -> None:
    told(memory, ("I love green tea.", "Some green tea is left in the tin.", "I hate green tea with sugar."))
    assert all(one.kind != "preference" for one in memory.reflect())


def test_chinese_notes_give_a_chinese_sentence(memory: Memory) -> None:
    told(memory, ("我喜欢绿茶。", "早上一杯绿茶让人清醒。", "我很喜欢绿茶。"), speaker="小王")
    (proposal,) = memory.reflect()
    assert proposal.content == "小王喜欢绿茶：从2026-01-03到2026-03-03说过2次。"
    told(memory, ("我每天早上在西湖边跑步。", "我周末经常去西湖边跑步。", "西湖边的荷花开了。"), speaker="小李")
    (habit,) = [one for one in memory.reflect() if one.speaker == "小李"]
    assert habit.kind == "habit"
    assert habit.content.startswith("小李的习惯")
    assert "我每天早上在西湖边跑步。" in habit.content


def test_habits_decisions_and_solved_problems_are_quoted(memory: Memory) -> None:
    habit = ("I go running every morning.", "On Sundays I go running along the lake.", "My running shoes are new.")
    told(memory, habit, keywords=["running"])
    decided = (
        "We decided to use PostgreSQL for the billing service.",
        "We agreed to deploy the billing service on Kubernetes.",
        "Decision: the billing service gets its own repository.",
    )
    told(memory, decided, speaker="Lin")
    found = {one.kind: one.content for one in memory.reflect()}
    assert found["habit"].startswith("A habit of Ana, running: “I go running every morning.” (2026-01-03)")
    assert found["decision"].startswith("Decided about billing service, 3 times: “We decided to use PostgreSQL")
    quoted = found["decision"].split("“")[1:]
    texts = {note.content for note in memory.list()}
    assert all(quote.split("”")[0] in texts for quote in quoted)


def test_what_says_nothing_lasting_is_no_source(memory: Memory) -> None:
    told(memory, ("Do you like green tea?", "Is green tea healthy?", "How long does green tea draw?"))
    told(memory, TEA, speaker="assistant")
    told(memory, ("green tea: bought", "green tea: drunk", "green tea: sold out"), distinct=True)
    assert memory.reflect() == []


def test_an_insight_follows_its_sources(memory: Memory) -> None:
    notes = told(memory, (*TEA, "I drink green tea every day at work."))
    memory.reflect(dry_run=False)
    (insight,) = insights(memory)
    memory.delete(notes[0])
    (proposal,) = memory.reflect()
    assert (proposal.action, proposal.id) == ("rewrite", insight.id)
    assert "deleted" in proposal.reason
    done = memory.reflect(dry_run=False)
    assert isinstance(done, Commit)
    assert sources(memory.get(insight)) == {note.id for note in notes[1:]}
    assert memory.get(insight).content != insight.content
    assert memory.search("green tea", min_relevance=0.0, where={"level": "insight"})[0].note.id == insight.id
    assert memory.reflect() == []
    memory.revert(done)
    assert memory.get(insight).content == insight.content
    assert memory.check().ok


def test_an_insight_without_enough_sources_is_taken_back(memory: Memory) -> None:
    notes = told(memory, TEA)
    memory.reflect(dry_run=False)
    memory.delete(notes[0])
    (proposal,) = memory.reflect()
    assert proposal.action == "archive"
    memory.reflect(dry_run=False)
    assert insights(memory) == []
    assert memory.reflect() == []
    assert memory.check().ok


def test_a_superseded_source_carries_nothing(memory: Memory) -> None:
    notes = told(memory, TEA)
    memory.reflect(dry_run=False)
    newer = memory.add("Coffee it is from now on.", speaker="Ana")
    memory.link(newer, notes[0], kind="supersedes")
    assert [one.action for one in memory.reflect()] == ["archive"]


def test_a_source_that_was_only_forgotten_goes_on_to_carry(memory: Memory) -> None:
    told(memory, TEA)
    memory.reflect(dry_run=False)
    memory.forget(dry_run=False, now=datetime.now(UTC) + timedelta(days=400))
    assert len(memory.list()) == 1
    assert memory.reflect() == []
    assert [note.content[:20] for note in insights(memory)] == ["Ana likes green tea:"]


def test_a_group_that_grows_is_written_anew(memory: Memory) -> None:
    *_, last = told(memory, TEA)
    memory.reflect(dry_run=False)
    more = memory.add("I love green tea from Kyoto most.", speaker="Ana", at="2026-07-01")
    memory.link(more, last, kind="related")
    (proposal,) = memory.reflect()
    assert proposal.action == "rewrite"
    assert len(proposal.sources) == 4
    memory.reflect(dry_run=False)
    assert len(insights(memory)) == 1
    assert memory.reflect() == []


def test_a_deleted_insight_does_not_come_back(memory: Memory) -> None:
    told(memory, TEA)
    memory.reflect(dry_run=False)
    memory.delete(insights(memory)[0])
    assert memory.reflect() == []


def test_insights_of_a_user_are_not_touched(memory: Memory) -> None:
    notes = told(memory, TEA)
    own = memory.add("Ana needs tea.", speaker="Bo")
    memory.update(own, level="insight")
    memory.link(own, notes[0], kind="derived_from")
    memory.delete(notes[0])
    assert [one.id for one in memory.reflect() if one.id == own.id] == []


def test_what_was_said_again_counts(memory: Memory) -> None:
    for month in (1, 2, 3):
        memory.add("I love green tea.", speaker="Ana", at=f"2026-{month:02}-03")
    (proposal,) = memory.reflect()
    assert proposal.content == "Ana likes green tea: said 3 times between 2026-01-03 and 2026-03-03."


def test_insights_about_insights(memory: Memory) -> None:
    for subject in ("marathon", "swimming", "climbing"):
        told(memory, (f"The {subject} in Rome was hard.", f"My knee hurts after {subject}.", f"New shoes for {subject}."),
             keywords=[subject], tags=[f"{subject} stuff"], category="sport")  # fmt: skip
        for note in memory.list(where={"keywords": subject}):
            memory.update(note, tags=["fitness"])
    done = memory.reflect(dry_run=False)
    assert isinstance(done, Commit)
    found = insights(memory)
    (theme,) = [note for note in found if note.metadata["height"] == 2]
    assert theme.content == "On fitness, Ana has spoken of climbing, marathon and swimming."
    assert sources(theme) == {note.id for note in found if note.id != theme.id}
    assert memory.reflect() == []
    assert memory.check().ok


def test_working_memory_episodes_and_insights_are_each_selectable(memory: Memory) -> None:
    told(memory, TEA)
    memory.reflect(dry_run=False)

    def found(**where: str) -> list[str]:
        return sorted(hit.note.content[:9] for hit in memory.search("green tea", where=where, min_relevance=0.0, expand=False))

    assert found(session="s2") == ["Green tea"]
    assert found(level="episode") == ["Green tea", "I love gr", "I really "]
    assert found(level="insight") == ["Ana likes"]


def test_two_that_reflect_at_once_write_an_insight_once(opened) -> None:
    one = opened("two.db")
    told(one, TEA)
    two = opened("two.db")
    run, now = run_of("default", False, None), datetime.now(UTC)
    decided = two._keeper.reflect(run_of("default", True, None), now).proposals
    one.reflect(dry_run=False)
    assert two._keeper._written(run, decided, now) == ()
    assert len(insights(two)) == 1


# -- with a model


def worded(opened, *replies: Any, texts: tuple[str, ...] = TEA) -> tuple[Memory, ScriptedLLM, list[Note]]:
    writer = opened("worded.db")
    notes = told(writer, texts)
    llm = ScriptedLLM(*replies)
    return opened("worded.db", llm=llm), llm, notes


GOOD = {"content": "Ana drinks green tea, best with jasmine.", "kind": "preference", "sources": ["n1", "n3", "n9"]}


def test_a_model_words_an_insight_from_the_notes_it_cites(opened) -> None:
    memory, llm, notes = worded(opened, GOOD)
    (proposal,) = memory.reflect()
    assert (proposal.content, proposal.kind, proposal.judge) == (GOOD["content"], "preference", "scripted")
    assert {note.id for note in proposal.sources} == {notes[0].id, notes[2].id}
    done = memory.reflect(dry_run=False)
    assert isinstance(done, Commit)
    assert done.actor == "analyst:scripted"
    assert done.tokens.calls == 0  # the dry run paid
    assert memory.reflect(dry_run=False) is None
    assert len(llm.calls) == 1


USELESS = [
    {"content": None}, {"content": ""}, {"insights": []}, {**GOOD, "sources": []}, {**GOOD, "sources": ["n9"]},
    {**GOOD, "content": "Ana drinks 17 cups a day."},
]  # fmt: skip


@pytest.mark.parametrize("reply", USELESS, ids=repr)
def test_a_model_that_says_nothing_of_use_is_asked_once(opened, reply: Any) -> None:
    memory, llm, _ = worded(opened, reply)
    assert memory.reflect(dry_run=False) is None
    memory.close()
    again = opened("worded.db", llm=llm)
    assert again.reflect(dry_run=False) is None
    assert len(llm.calls) == 1


def test_a_reply_that_cannot_be_read_is_asked_for_again(opened) -> None:
    memory, llm, _ = worded(opened, "no idea", GOOD)
    assert memory.reflect(dry_run=False) is None
    assert isinstance(memory.reflect(dry_run=False), Commit)
    assert len(llm.calls) == 2


def test_a_model_that_is_down_leaves_the_rest_for_later(opened) -> None:
    memory, _, _ = worded(opened, ConnectionError("refused"), GOOD)
    assert memory.reflect(dry_run=False) is None
    assert isinstance(memory.reflect(dry_run=False), Commit)


def test_calls_are_bounded(opened) -> None:
    memory, llm, _ = worded(opened, GOOD)
    assert memory.reflect(max_calls=0) == []
    assert llm.calls == []


def test_judgements_kept_with_the_store_hold_no_word_of_a_note(opened) -> None:
    memory, _, _ = worded(opened, {"content": None})
    memory.reflect(dry_run=False)
    kept = memory._store.meta("reflected:'default'")
    assert kept is not None
    assert "tea" not in kept
