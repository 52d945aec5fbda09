"""The data of evals/: ids, order of time, evidence that exists, counts."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

EVALS = Path(__file__).parent.parent / "evals"
CHINESE = EVALS / "chinese"
KINDS = {"single-hop", "multi-hop", "temporal", "changed", "near-duplicate", "paraphrase", "english"}
HAN = re.compile(r"[\u4e00-\u9fff]")

Row = dict[str, Any]


@pytest.fixture(scope="module")
def notes() -> list[Row]:
    return [json.loads(line) for line in (CHINESE / "notes.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def questions() -> list[Row]:
    return list(json.loads((CHINESE / "questions.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def off_topic() -> list[Row]:
    return list(json.loads((EVALS / "off_topic.json").read_text("utf-8"))["questions"])


def at(note: Row) -> datetime:
    return datetime.fromisoformat(note["at"])


def spaceless(row: Row) -> str:
    """A question without what does not tell two apart."""
    return re.sub(r"[\W_]+", "", row["question"]).casefold()


# -- notes


def test_there_are_enough_notes(notes: list[Row]) -> None:
    assert len(notes) >= 130
    assert len({note["speaker"] for note in notes}) >= 4
    assert any(note["speaker"] == "助手" for note in notes)


def test_every_note_has_the_same_fields_and_none_is_empty(notes: list[Row]) -> None:
    for note in notes:
        assert list(note) == ["id", "content", "speaker", "session", "at"]
        assert all(isinstance(value, str) and value == value.strip() != "" for value in note.values()), note["id"]


def test_notes_are_as_long_as_what_people_say(notes: list[Row]) -> None:
    lengths = [len(note["content"]) for note in notes]
    assert min(lengths) >= 5
    assert 80 <= max(lengths) <= 150


def test_no_note_is_there_twice(notes: list[Row]) -> None:
    assert max(Counter(note["content"] for note in notes).values()) == 1


def test_ids_count_up_and_time_never_goes_back(notes: list[Row]) -> None:
    assert [note["id"] for note in notes] == [f"n{number:03}" for number in range(1, len(notes) + 1)]
    assert all(at(one) <= at(other) for one, other in pairwise(notes))
    assert all(at(note).utcoffset() == timedelta(hours=8) for note in notes)
    assert timedelta(days=600) < at(notes[-1]) - at(notes[0]) < timedelta(days=900)


def test_a_session_is_one_stretch_of_one_day(notes: list[Row]) -> None:
    stretches = [(session, list(rows)) for session, rows in groupby(notes, key=lambda note: note["session"])]
    assert max(Counter(session for session, _ in stretches).values()) == 1
    for session, rows in stretches:
        assert {row["at"][:10] for row in rows} == {session[:10]}
        assert at(rows[-1]) - at(rows[0]) < timedelta(hours=1)


def test_some_sessions_are_dialogues_and_some_are_single_notes(notes: list[Row]) -> None:
    sizes = Counter(Counter(note["session"] for note in notes).values())
    assert sizes[1] >= 10
    assert sum(count for size, count in sizes.items() if size >= 3) >= 10


# -- questions


def test_there_are_enough_questions_of_every_kind(questions: list[Row]) -> None:
    kinds = Counter(question["kind"] for question in questions)
    assert len(questions) >= 70
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 6


def test_every_question_has_evidence_that_exists(questions: list[Row], notes: list[Row]) -> None:
    ids = {note["id"] for note in notes}
    for question in questions:
        assert list(question) == ["question", "evidence", "kind"]
        assert question["question"].strip()
        evidence = question["evidence"]
        assert set(evidence) <= ids, question["question"]
        assert evidence == sorted(set(evidence)) != [], question["question"]


def test_what_needs_several_notes_is_a_quarter_and_is_called_so(questions: list[Row]) -> None:
    several = [question for question in questions if len(question["evidence"]) > 1]
    assert 0.2 <= len(several) / len(questions) <= 0.35
    assert max(len(question["evidence"]) for question in several) <= 5
    assert all(len(question["evidence"]) > 1 for question in questions if question["kind"] == "multi-hop")


def test_english_questions_are_english_and_the_others_chinese(questions: list[Row]) -> None:
    for question in questions:
        assert bool(HAN.search(question["question"])) == (question["kind"] != "english"), question["question"]


def test_no_question_is_asked_twice(questions: list[Row]) -> None:
    assert max(Counter(map(spaceless, questions)).values()) == 1


def test_a_paraphrase_shares_few_words_with_its_evidence(questions: list[Row], notes: list[Row]) -> None:
    said = {note["id"]: note["content"] for note in notes}
    for question in questions:
        if question["kind"] == "paraphrase":
            text = "".join(said[id_] for id_ in question["evidence"])
            assert shared(question["question"], text) <= 0.25, question["question"]


def shared(question: str, text: str) -> float:
    """The share of a question's pairs of Chinese characters that stand in a text too."""
    pairs = set(re.findall(r"(?=([\u4e00-\u9fff]{2}))", question))
    return sum(pair in text for pair in pairs) / len(pairs)


def test_the_readme_counts_right(questions: list[Row], notes: list[Row]) -> None:
    page = (CHINESE / "README.md").read_text("utf-8")
    assert f"{len(notes)} notes and {len(questions)} questions" in page
    told = {kind: int(count) for kind, count in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", page, re.MULTILINE)}
    assert told == Counter(question["kind"] for question in questions)


# -- off topic


def test_off_topic_questions_are_enough_in_both_languages(off_topic: list[Row]) -> None:
    languages = Counter(question["language"] for question in off_topic)
    assert set(languages) == {"en", "zh"}
    assert languages["en"] >= 80
    assert languages["zh"] >= 40
    for question in off_topic:
        assert list(question) == ["question", "language", "kind"]
        assert bool(HAN.search(question["question"])) == (question["language"] == "zh"), question["question"]


def test_about_a_third_of_the_off_topic_questions_share_words(off_topic: list[Row]) -> None:
    kinds = Counter(question["kind"] for question in off_topic)
    assert set(kinds) == {"foreign", "shares-words"}
    assert 0.25 <= kinds["shares-words"] / len(off_topic) <= 0.45


def test_no_off_topic_question_is_there_twice(off_topic: list[Row], questions: list[Row]) -> None:
    assert max(Counter(map(spaceless, off_topic + questions)).values()) == 1
