"""What a newcomer ran into, kept with its right outcome."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from engramma import Memory
from engramma.dates import said_dates
from engramma.errors import InvalidInput, ModelUnavailable
from engramma.models import EmbeddingKind
from engramma.testing import HashEmbedder, ScriptedLLM

EMBEDDER = "hash:256"


def test_an_export_never_overwrites_a_memory(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=EMBEDDER) as memory:
        memory.add("precious")
        with pytest.raises(InvalidInput, match="is a database"):
            memory.export(path)
        assert [note.content for note in memory.list()] == ["precious"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["memory.db"]


def test_a_question_is_no_copy_of_its_answer() -> None:
    with Memory.open(":memory:") as memory:
        memory.add("Where do I live?", speaker="Ana")
        memory.add("I live in Oslo.", speaker="Ana")
        assert "I live in Oslo." in [hit.note.content for hit in memory.search("Where does Ana live?").direct]


def test_a_denial_is_no_copy_of_what_it_denies() -> None:
    with Memory.open(":memory:") as memory:
        memory.add("I live in Lyon near the river.", speaker="Ana")
        memory.add("I no longer live in Lyon near the river.", speaker="Ben")
        found = [hit.note.content for hit in memory.search("Who lives in Lyon?").direct]
        assert len(found) == 2


def test_a_topic_does_not_outrank_the_answer() -> None:
    with Memory.open(":memory:") as memory:
        memory.add("数据库备份改成每天凌晨三点跑一次，保留十四天。", speaker="Lin")
        memory.add("We decided to use PostgreSQL instead of MySQL for Harbor, because we need range types.", speaker="Lin")
        hits = memory.search("Why Postgres?")
        assert "PostgreSQL" in hits[0].note.content
        assert "topic" in str(hits[0].why)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("The release is postponed to May 6.", date(2026, 5, 6)),
        ("We moved the deadline to July 1.", date(2026, 7, 1)),
        ("I booked a flight for August 4.", date(2026, 8, 4)),
        ("我订了七月一号的机票", date(2026, 7, 1)),
        ("三月底之前把支付做完", date(2026, 3, 1)),
        ("女儿报名了五月的钢琴比赛", date(2026, 5, 1)),
        ("We met on 3 January.", date(2026, 1, 3)),
        ("12月25日我们开会了", date(2025, 12, 25)),
    ],
)
def test_what_is_arranged_lies_ahead(text: str, start: date) -> None:
    assert said_dates(text, datetime(2026, 2, 10, tzinfo=UTC))[0].start == start


@pytest.mark.parametrize(("first", "second"), [("😀🎉🔥", "🐱"), ("...", "!!!")])
def test_texts_without_words_are_not_the_same(first: str, second: str) -> None:
    with Memory.open(":memory:", embedder=EMBEDDER) as memory:
        memory.add(first)
        assert memory.add(second).links == ()


def test_reverting_the_middle_of_a_chain_leaves_one_fact() -> None:
    with Memory.open(":memory:", embedder=EMBEDDER) as memory:
        places = [memory.add(f"I live in {place} now.", speaker="Ana") for place in ("Lyon", "Berlin", "Rome")]
        middle = memory.log(note=places[1])[-1]
        memory.revert(middle)
        assert [hit.note.content for hit in memory.search("Where does Ana live now?", min_relevance=0.0)] == [
            "I live in Rome now."
        ]
        assert memory.get(places[0]).valid_until is not None
        assert memory.check().ok


def test_a_model_that_is_down_is_not_asked_for_every_note() -> None:
    llm = ScriptedLLM(ModelUnavailable("down"))
    with Memory.open(":memory:", embedder=EMBEDDER, llm=llm) as memory:
        for number in range(5):
            assert memory.add(f"note {number}").state == "pending"
        assert len(llm.calls) == 1


def test_a_model_cannot_claim_session_order() -> None:
    entry = {"label": "d1", "keywords": ["kettle"], "tags": ["home"], "context": "A kettle."}
    claims = [{"to": "n1", "kind": "follows", "reason": "next"}, {"to": "n1", "kind": "related", "reason": "kettles"}]
    llm = ScriptedLLM({"notes": [entry]}, {"notes": [entry]}, {"notes": [{**entry, "links": claims}]})
    with Memory.open(":memory:", embedder=EMBEDDER, llm=llm) as memory:
        memory.add("The red kettle leaks.", session="s")
        memory.add("The blue kettle leaks.", session="s")
        third = memory.add("The red kettle leaks again.")
        assert third.state == "ready"
        assert [link.kind for link in third.links] == ["related"]
        assert any("follows" in remark for remark in memory.log()[0].dropped)


class CountingEmbedder(HashEmbedder):
    """Counts the texts that it embeds."""

    count = 0

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        self.count += len(texts)
        return super().embed(texts, kind=kind)


def test_an_update_embeds_its_text_once() -> None:
    embedder = CountingEmbedder(64)
    with Memory.open(":memory:", embedder=embedder) as memory:
        note = memory.add("The kettle leaks.")
        memory.add("The violin is out of tune.")
        before = embedder.count
        memory.update(note, content="The kettle is mended.")
        assert embedder.count == before + 1
