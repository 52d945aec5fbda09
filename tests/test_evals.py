"""The measuring of evals/: reading the data sets, the measures against figures by hand, the cache, whole commands."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evals import asking, locomo, measures, results, sets
from evals.__main__ import main
from evals.ablations import (
    ABLATIONS,
    EVIDENCE,
    SHAPE,
    WORDS,
    ChangedRules,
    alone,
    without,
    without_evolution,
    without_links,
    without_session,
)
from evals.embeddings import Cached, Rewritten
from evals.measures import Outcome
from evals.sets import BadInput, Collection, Item, Question

from engramma import Memory, Weights
from engramma.testing import HashEmbedder

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("ENGRAMMA_EVAL_DATA") or ROOT.parent / "shared" / "data")
LOCOMO = DATA / "locomo-dev.json"
needs_data = pytest.mark.skipif(
    not LOCOMO.is_file(), reason=f"the LoCoMo data set is not at {LOCOMO}: ENGRAMMA_EVAL_DATA may name its folder"
)


def turn(number: str, speaker: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"dia_id": number, "speaker": speaker, "text": text, **fields}


TALK = {
    "speaker_a": "Ana",
    "speaker_b": "Ben",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        turn("D1:1", "Ana", "Hello Ben, how was the harvest festival?"),
        turn("D1:2", "Ben", "Splendid, I won a copper kettle at the raffle."),
        turn("D1:3", "Ana", "Look at my new pottery wheel!", blip_caption="a photo of a pottery wheel", img_url=["x"]),
        turn("D1:4", "Ben", "Your cousin Dora repairs violins, does she not?"),
    ],
    "session_2_date_time": "12:09 am on 13 September, 2023",
    "session_2": [
        turn("D2:1", "Ana", "I adopted a greyhound named Comet."),
        turn("D2:2", "Ben", "Comet is a lovely name for a greyhound."),
        turn("D2:3", "Ana", "I adopted a greyhound named Comet."),
        turn("D2:4", "Ben", "My kettle leaks already, the copper is thin."),
    ],
    "session_3_date_time": "4:04 pm on 20 January, 2024",
}
ASKED = [
    {"question": "What did Ben win at the raffle?", "answer": "a kettle", "evidence": ["D1:2"], "category": 4},
    {"question": "What is wrong with Ben's copper kettle?", "answer": "it leaks", "evidence": ["D2:4; D1:02"], "category": 1},
    {"question": "When did Ana adopt a greyhound?", "answer": 2023, "evidence": ["D:2:1", "D"], "category": 2},
    {"question": "Would Ana like a zoo?", "answer": "no", "evidence": [], "category": 3},
    {"question": "Which wheel did Ben buy?", "adversarial_answer": "a pottery wheel", "evidence": ["D1:3"], "category": 5},
]
TINY = [{"sample_id": "conv-1", "conversation": TALK, "qa": ASKED}]
ERRATA = [{"sample_id": "conv-1", "question": ASKED[0]["question"], "correct_evidence": ["D1:2", "D2:4"]}]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file shaped like LoCoMo's."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY), "utf-8")
    return path


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    return Cached(HashEmbedder(64), tmp_path / "vectors")


# -- LoCoMo


@pytest.mark.parametrize(
    ("evidence", "ids"),
    [
        (["D8:6; D9:17"], ("D8:6", "D9:17")),
        (["D9:1 D4:4 D4:6"], ("D9:1", "D4:4", "D4:6")),
        (["D"], ()),
        (["D:11:26"], ("D11:26",)),
        (["D30:05"], ("D30:5",)),
        (["D1:18", "D", "D1:20"], ("D1:18", "D1:20")),
        (["D1:2", "D1:02"], ("D1:2",)),
        ([], ()),
    ],
)
def test_evidence_is_read_however_it_is_written(evidence: list[str], ids: tuple[str, ...]) -> None:
    assert locomo.turn_ids(evidence) == ids


def test_session_times_keep_their_wall_clock() -> None:
    assert locomo.local_time("12:09 am on 13 September, 2023") == "2023-09-13T00:09:00"
    with pytest.raises(BadInput, match="'yesterday' is not written like"):
        locomo.local_time("yesterday")


def test_conversation_becomes_items_and_questions(tiny: Path) -> None:
    (one,) = locomo.read(tiny)
    assert (one.name, len(one.items)) == ("conv-1", 8)
    assert one.items[2] == Item("D1:3", "Look at my new pottery wheel! [shares a photo of a pottery wheel]", "Ana", "session_1",
                                "2023-05-08T13:56:00")  # fmt: skip
    assert [question.evidence for question in one.questions] == [("D1:2",), ("D2:4", "D1:2"), ("D2:1",), ()]
    assert [question.kind for question in one.answerable] == ["4 single-hop", "1 multi-hop", "2 temporal"]
    assert [trap.evidence for trap in one.traps] == [("D1:3",)]


def test_evidence_that_names_no_turn_is_left_out(tmp_path: Path) -> None:
    asked = [{"question": "Who?", "answer": "Ana", "evidence": ["D1:1", "D9:99"], "category": 1}]
    path = tmp_path / "one.json"
    path.write_text(json.dumps([{"conversation": TALK, "qa": asked}]), "utf-8")
    (one,) = locomo.read(path)
    assert (one.name, one.questions[0].evidence) == ("conversation 1", ("D1:1",))


def test_errata_give_other_evidence(tiny: Path) -> None:
    errata = tiny.with_name("tiny-errata.json")
    assert locomo.errata_beside(tiny) is None
    errata.write_text(json.dumps(ERRATA), "utf-8")
    assert locomo.errata_beside(tiny) == errata
    (one,) = locomo.mended(locomo.read(tiny), locomo.errata(errata))
    assert [question.evidence for question in one.questions] == [("D1:2", "D2:4"), ("D2:4", "D1:2"), ("D2:1",), ()]
    assert one.traps[0].evidence == ("D1:3",)


def test_limits_keep_the_first_of_each_kind(tiny: Path) -> None:
    one = locomo.read(tiny)[0]
    doubled = replace(one, questions=one.questions + one.questions)
    (kept,) = locomo.limited([doubled, one], 1, 1)
    assert kept.questions == one.questions
    assert locomo.limited([doubled, one], None, None) == [doubled, one]


# -- the other sets


def test_the_diary_answers_the_questions_of_the_demo() -> None:
    diary = sets.diary()
    assert len(diary.items) == 84
    assert [len(question.evidence) for question in diary.questions] == [1, 1, 1, 1, 1, 2, 0]
    assert "decision" in diary.items[1].tags


def test_a_chinese_set_is_read_from_its_folder(tmp_path: Path) -> None:
    folder = chinese(tmp_path)
    one = sets.chinese(folder)
    assert sets.chinese(folder / "questions.json") == one
    assert one.items[0].fields("zh") == {"content": "我在南京做编辑。", "space": "zh", "speaker": "佳宁", "session": "1",
                                         "at": "2024-01-06T20:31:00+08:00"}  # fmt: skip
    assert one.questions[0] == Question(0, "佳宁在哪里做编辑？", "single-hop", ("n1",))


def chinese(folder: Path) -> Path:
    """A small set as evals/chinese is written."""
    said = {"speaker": "佳宁", "session": "1"}
    notes = [{"id": "n1", "content": "我在南京做编辑。", "at": "2024-01-06T20:31:00+08:00", **said},
             {"id": "n2", "content": "芝麻是一只橘猫。", "at": "2024-01-06T20:32:00+08:00", **said}]  # fmt: skip
    asked = [{"question": "佳宁在哪里做编辑？", "evidence": ["n1"], "kind": "single-hop"},
             {"question": "橘猫叫什么？", "evidence": ["n2"], "kind": "paraphrase"}]  # fmt: skip
    (folder / "notes.jsonl").write_text("\n".join(json.dumps(note, ensure_ascii=False) for note in notes), "utf-8")
    (folder / "questions.json").write_text(json.dumps(asked, ensure_ascii=False), "utf-8")
    return folder


# -- measures


def test_recall_and_hit_count_places_up_to_k() -> None:
    places = (1, 7, None, 20)
    assert [measures.recall(places, k) for k in (1, 5, 10, 20)] == [0.25, 0.25, 0.5, 0.75]
    assert [measures.hit((None, 7), k) for k in (5, 10)] == [0.0, 1.0]
    assert measures.recall((None,), 10) == measures.hit((None,), 10) == 0.0


def test_ndcg_is_one_for_the_best_order_and_less_for_others() -> None:
    assert measures.ndcg((2, 1), 10) == pytest.approx(1)
    assert measures.ndcg((2,), 10) == pytest.approx(1 / math.log2(3))
    assert measures.ndcg((1, None), 10) == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert measures.ndcg((11,), 10) == 0
    assert measures.ndcg(tuple(range(1, 13)), 10) == pytest.approx(1)


OUTCOMES = [
    Outcome("a", (1, None), direct=4, right=1, linked=2, found=2, shown=1, tokens=100),
    Outcome("a", (6,), direct=0, tokens=0),
    Outcome("b", (15,), direct=2, right=1, linked=0, found=1, shown=1, tokens=40),
]


def test_exact_figures_are_means_over_questions() -> None:
    found = measures.by_kind(OUTCOMES, measures.exact)
    assert list(found) == ["all", "a", "b"]
    assert found["all"] == pytest.approx({
        "questions": 3, "R@5": 1 / 6, "R@10": 0.5, "R@20": 2.5 / 3, "hit@10": 2 / 3,
        "nDCG@10": (1 / (1 + 1 / math.log2(3)) + 1 / math.log2(7)) / 3,
    })  # fmt: skip
    assert found["b"]["R@20"] == 1


def test_default_figures_leave_declined_questions_out_of_precision() -> None:
    found = measures.default(OUTCOMES)
    assert found == pytest.approx({
        "questions": 3, "direct": 2, "linked": 2 / 3, "recall": 2 / 3, "in context": 0.5, "precision": 0.375, "declined": 1 / 3,
        "tokens": 140 / 3, "tokens p95": 94,
    })  # fmt: skip
    assert measures.default(OUTCOMES[1:2])["precision"] == 0


def test_curve_rises_with_k() -> None:
    assert measures.curve(OUTCOMES, (5, 10, 15)) == pytest.approx({5: 1 / 6, 10: 0.5, 15: 2.5 / 3})


def test_table_writes_shares_in_per_cent_and_counts_as_they_are() -> None:
    text = results.table("title", {"one": {"questions": 1200, "R@10": 0.7512, "ms": 3.21}, "two": {"questions": 3, "R@10": None}})
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["title"], ["questions", "R@10", "ms"], ["one", "1,200", "75.1", "3.2"], ["two", "3"],
    ]  # fmt: skip


# -- asking


def test_exactly_k_come_back_and_the_first_of_many_are_those_of_few(cached: Cached) -> None:
    items = tuple(
        Item(f"i{number}", f"kettle {' '.join(f'word{number}n{part}' for part in range(number % 9 + 2))}", "Ana", "s")
        for number in range(60)
    )
    collection = Collection("many", items, ())
    with asking.memory_of(asking.DEFAULT, [collection], cached) as memory:
        asking.fill(memory, asking.DEFAULT, [collection], cached, asking.Run())
        first = [
            [hit.note.id for hit in memory.search("a kettle and word1n1", k=k, space="many", **asking.EXACT)] for k in (5, 20, 50)
        ]
    assert [len(ids) for ids in first] == [5, 20, 50]
    assert first[0] == first[2][:5]
    assert first[1] == first[2][:20]


def test_a_turn_that_was_merged_is_found_in_the_note_that_holds_it(tiny: Path, cached: Cached) -> None:
    (one,) = locomo.read(tiny)
    said_again = replace(one, questions=(Question(0, "greyhound named Comet", "4", ("D2:1", "D2:3")),), traps=())
    done = asking.run(asking.DEFAULT, [said_again], cached)
    assert done.holders["conv-1"]["D2:1"] == done.holders["conv-1"]["D2:3"]
    (outcome,) = asking.outcomes(done, [said_again])
    (place,) = outcome.places
    assert place is not None
    assert asking.places(done, [said_again])[0]["evidence"] == {"D2:1": place, "D2:3": place}


def test_each_conversation_is_asked_in_its_own_space(tiny: Path, cached: Cached) -> None:
    (one,) = locomo.read(tiny)
    other = Collection("other", (Item("x", "Ben won a copper kettle at the raffle."),), ())
    done = asking.run(asking.DEFAULT, [other, one], cached)
    assert set(done.replies["conv-1"][0].exact) <= set(done.holders["conv-1"].values())


def test_counting_of_tokens_is_that_of_the_context() -> None:
    assert asking.COUNT("abc" * 100) == 100


def held(changed: Any, items: Sequence[Item] = ()) -> list[Any]:
    with Memory.open(":memory:", embedder=HashEmbedder(128), llm="none", analyst=changed) as memory:
        memory.add("I live in Lyon, near the river.", speaker="Ana", at="2026-01-01")
        memory.add("I moved from Lyon to Berlin.", speaker="Ana", at="2026-02-01")
        memory.add("I moved from Lyon to Berlin.", speaker="Ana", at="2026-03-01")
        return memory.list(include={"merged"})


def test_readings_without_links_and_without_evolution() -> None:
    unlinked, unchanged = held(ChangedRules(without_links)), held(ChangedRules(without_evolution))
    assert [link.kind for note in unlinked for link in note.links] == ["same_as", "same_as"]
    assert [note.state for note in unlinked] == ["ready", "ready", "merged"]
    assert "supersedes" in {link.kind for link in unchanged[0].links}
    assert "Replaced" not in unchanged[0].context
    assert without_session(Item("a", "b", session="s")).session is None


def test_evidence_is_taken_away_by_its_weight(cached: Cached) -> None:
    plain, found = asdict(Weights()), asdict(without("speaker")(cached, ())["weights"])
    assert found == plain | {"speaker": 0}
    found = asdict(alone("dense")(cached, ())["weights"])
    assert found == {name: value if name == "dense" or name in SHAPE else 0 for name, value in plain.items()}
    assert {*WORDS, "dense", "near"} <= set(EVIDENCE)


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_way_runs(name: str, tiny: Path, cached: Cached) -> None:
    conversations = locomo.read(tiny)
    done = asking.run(ABLATIONS[name], conversations, cached)
    assert measures.exact(asking.outcomes(done, conversations))["R@10"] > 0.5


# -- embedders


class Counting:
    """A hash embedder that keeps the texts it was given."""

    def __init__(self, name: str = "counting", factor: float = 1.0) -> None:
        self.name, self.dimensions, self.asked = name, 32, list[str]()
        self._inner, self._factor = HashEmbedder(32), factor

    def embed(self, texts: Sequence[str], *, kind: Any) -> np.ndarray:
        self.asked += texts
        return np.roll(self._inner.embed(texts, kind=kind), int(self._factor), axis=1)


def test_cache_embeds_a_text_once_over_many_runs(tmp_path: Path) -> None:
    first = Counting()
    with Cached(first, tmp_path) as cached:
        made = cached.embed(["a kettle", "a violin", "a kettle"], kind="passage")
        assert cached.misses == 2
    assert first.asked.count("a kettle") == 1
    again = Counting()
    with Cached(again, tmp_path) as cached:
        assert np.array_equal(cached.embed(["a violin", "a kettle"], kind="passage"), made[[1, 0]])
        assert (cached.misses, cached.name, cached.dimensions) == (0, "counting", 32)
    assert "a kettle" not in again.asked
    assert np.allclose(made, HashEmbedder(32).embed(["a kettle", "a violin", "a kettle"], kind="passage")[:, [-1, *range(31)]])


def test_cache_keeps_queries_apart_from_passages_and_embedders_from_each_other(tmp_path: Path) -> None:
    with Cached(Counting(), tmp_path) as cached:
        cached.embed(["a kettle"], kind="passage")
        cached.embed(["a kettle"], kind="query")
        assert cached.misses == 2
    with Cached(Counting("other"), tmp_path) as other:
        other.embed(["a kettle"], kind="passage")
        assert other.misses == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 rubbish", b"not vectors"])
def test_damaged_cache_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    with Cached(Counting(), tmp_path) as cached:
        cached.embed(["a kettle"], kind="passage")
    cached.file.write_bytes(damage)
    with Cached(Counting(), tmp_path) as again:
        again.embed(["a kettle"], kind="passage")
        assert again.misses == 1
    with Cached(Counting(), tmp_path) as whole:
        whole.embed(["a kettle"], kind="passage")
        assert whole.misses == 0


def test_cut_off_cache_is_made_anew(tmp_path: Path) -> None:
    with Cached(Counting(), tmp_path) as cached:
        cached.embed(["a kettle", "a violin"], kind="passage")
    cached.file.write_bytes(cached.file.read_bytes()[:-200])
    with Cached(Counting(), tmp_path) as again:
        again.embed(["a kettle"], kind="passage")
        assert again.misses == 1


def test_cache_of_an_embedder_that_has_changed_is_not_used(tmp_path: Path) -> None:
    with Cached(Counting(), tmp_path) as cached:
        cached.embed(["a kettle"], kind="passage")
    with Cached(Counting(factor=3), tmp_path) as changed:
        assert np.array_equal(changed.embed(["a kettle"], kind="passage"), Counting(factor=3).embed(["a kettle"], kind="passage"))
        assert changed.misses == 1


def test_two_that_fill_one_cache_lose_nothing(tmp_path: Path) -> None:
    first, second = Cached(Counting(), tmp_path), Cached(Counting(), tmp_path)
    first.embed(["a kettle"], kind="passage")
    second.embed(["a violin"], kind="passage")
    first.save()
    second.save()
    third = Cached(Counting(), tmp_path)
    third.embed(["a kettle", "a violin"], kind="passage")
    assert third.misses == 0
    assert [file.suffix for file in tmp_path.iterdir()] == [".npz"]


def test_no_text_is_no_vector(cached: Cached) -> None:
    assert cached.embed([], kind="query").shape == (0, 64)


def test_rewritten_passages_leave_queries_alone() -> None:
    inner = HashEmbedder(64)
    other = Rewritten(inner, {"kettle": "violin"}, "other")
    assert np.array_equal(other.embed(["kettle"], kind="passage"), inner.embed(["violin"], kind="passage"))
    assert np.array_equal(other.embed(["kettle"], kind="query"), inner.embed(["kettle"], kind="query"))
    assert (other.dimensions, other.name) == (64, "hash:64, other")


# -- whole commands


def run(tmp_path: Path, *words: object) -> dict[str, Any]:
    """Run a part with the hash embedder; what it wrote."""
    place = tmp_path / "kept" / "found.json"
    given = [*map(str, words), "--embedder", "hash:64", "--cache", str(tmp_path / "vectors"), "--json", str(place)]
    assert main(given) == 0
    kept: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return kept


def test_locomo_prints_tables_and_keeps_results(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.with_name("tiny-errata.json").write_text(json.dumps(ERRATA), "utf-8")
    kept = run(tmp_path, "locomo", tiny)
    shown = capsys.readouterr().out
    assert "errata applied (1 questions with other evidence)" in shown
    assert {"engramma", "numpy"} <= set(kept["packages"])
    assert (kept["part"], kept["settings"]["file"], kept["settings"]["seed"]) == ("locomo", "tiny.json", 7)
    found = kept["results"]
    assert list(found["exact"]) == ["all", "1 multi-hop", "2 temporal", "4 single-hop"]
    assert found["exact"]["all"] | {"nDCG@10": 0, "R@5": 0} == {
        "questions": 3,
        "R@5": 0,
        "R@10": 1,
        "R@20": 1,
        "hit@10": 1,
        "nDCG@10": 0,
    }
    assert found["errata"]["changed"] == 1
    assert found["traps"]["questions"] == 1
    assert found["cost"]["merged"] == 1
    assert found["cost"]["by collection"]["all"]["notes"] == 8
    assert [set(one["evidence"]) for one in found["per question"]] == [{"D1:2"}, {"D2:4", "D1:2"}, {"D2:1"}, {"D1:3"}]
    assert "raffle" not in json.dumps(kept), "no text of the data set is kept"


def test_locomo_draws_a_sweep(tmp_path: Path, tiny: Path) -> None:
    pytest.importorskip("matplotlib")
    kept = run(tmp_path, "locomo", tiny, "--sweep")
    assert kept["results"]["sweep"]["full"]["50"] == 1
    assert (tmp_path / "kept" / "found-sweep.png").read_bytes().startswith(b"\x89PNG")


def test_locomo_draws_notes(tmp_path: Path, tiny: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    run(tmp_path, "locomo", tiny, "--picture")
    picture = tmp_path / "kept" / "found-notes.png"
    drawn = picture.read_bytes()
    run(tmp_path, "locomo", tiny, "--picture")
    assert drawn.startswith(b"\x89PNG")
    assert picture.read_bytes() == drawn


def test_locomo_compares_ways(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = run(tmp_path, "locomo", tiny, "--ablations", "--conversations", 1, "--questions", 1)
    rows = kept["results"]["ablations"]
    assert list(rows) == list(ABLATIONS)
    assert list(rows["full"]) == ["R@5", "R@10", "R@20", "R@10: multi-hop", "R@10: temporal", "R@10: single-hop", "came back"]
    assert rows["full"]["R@10"] == rows["links made, not followed"]["R@10"]
    assert "no session order" in capsys.readouterr().out


def test_chinese_is_measured_three_ways(tmp_path: Path) -> None:
    found = run(tmp_path, "chinese", chinese(tmp_path))["results"]
    assert found["full"]["exact"]["all"]["R@10"] == 1
    assert list(found["full"]["exact"]) == ["all", "paraphrase", "single-hop"]
    assert {"full", "dense only", "words only"} <= set(found)


def test_off_topic_counts_what_is_declined(tmp_path: Path, tiny: Path) -> None:
    file = tmp_path / "off.json"
    asked = [{"question": "Who wrote the sonatas for harpsichord?", "language": "en", "kind": "foreign"},
             {"question": "木星有多少颗卫星？", "language": "zh", "kind": "foreign"}]  # fmt: skip
    file.write_text(json.dumps({"questions": asked}), "utf-8")
    found = run(tmp_path, "off-topic", file, "--locomo", tiny)["results"]
    assert list(found["declined"]) == ["conv-1", "chinese", "diary", "all"]
    row = found["declined"]["conv-1"]
    assert (row["notes"], row["off topic: asked"], row["answerable: asked"]) == (8, 2, 3)
    assert row["off topic"] == (row["en, foreign"] + row["zh, foreign"]) / 2
    assert all(one["direct"] for one in found["answered off topic"])


def test_wrong_input_teaches(tmp_path: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}', "utf-8")
    text = tmp_path / "text.json"
    text.write_text("hello", "utf-8")
    nothing = tmp_path / "nothing.json"
    nothing.write_text(json.dumps([{**TINY[0], "qa": ASKED[3:4]}]), "utf-8")
    for words, said in {
        ("loco", tiny): "there is no part 'loco': the parts are locomo, chinese, off-topic, precision",
        ("locomo", tmp_path / "none.json"): "none.json': give the path of one",
        ("locomo", tmp_path): "cannot be read",
        ("locomo", text): "is not JSON",
        ("locomo", other): "is no file of the LoCoMo data set: it is a list of conversations",
        ("locomo", tiny, "--errata", other): "holds no errata of LoCoMo: it is a list of objects with sample_id",
        ("locomo", nothing): "no question has evidence",
        ("chinese", tmp_path): "notes.jsonl': give the path of one",
        ("off-topic", other): "is no object with a list 'questions'",
        ("precision", tmp_path / "none"): "give the one with the fixtures",
        ("locomo", tiny, "--embedder", "cube"): "embedder='cube' is not known",
    }.items():
        options = () if "--embedder" in words else ("--embedder", "hash:64")
        assert main([*map(str, words), *options, "--cache", str(tmp_path / "v"), "--json", str(tmp_path / "r.json")]) == 2, said
        assert said in capsys.readouterr().err


def test_options_that_are_no_numbers_are_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["locomo", str(tiny), "--questions", "0"])
    assert "'0' is not a whole number of at least 1" in capsys.readouterr().err


def test_a_question_of_a_set_names_notes_that_exist(tmp_path: Path) -> None:
    folder = chinese(tmp_path)
    (folder / "questions.json").write_text('[{"question": "谁？", "evidence": ["n9"]}]', "utf-8")
    with pytest.raises(BadInput, match="names the note 'n9', which is not there"):
        sets.chinese(folder)


# -- the data set, where it is there


@needs_data
def test_the_five_conversations_are_read_whole() -> None:
    conversations = locomo.read(LOCOMO)
    counts = {one.name: (len(one.items), len(one.questions), len(one.answerable), len(one.traps)) for one in conversations}
    assert counts == {"conv-26": (419, 152, 150, 47), "conv-30": (369, 81, 81, 24), "conv-42": (629, 199, 199, 61),
                      "conv-44": (675, 123, 123, 35), "conv-48": (681, 191, 191, 48)}  # fmt: skip
    for one in conversations:
        assert len({item.id for item in one.items}) == len(one.items)
        assert not [trap for trap in one.traps if not trap.evidence]


@needs_data
def test_every_erratum_finds_its_question() -> None:
    conversations = locomo.read(LOCOMO)
    path = locomo.errata_beside(LOCOMO)
    assert path is not None
    right = locomo.errata(path)
    assert right.keys() <= {(one.name, question.text) for one in conversations for question in one.questions}
    mended = locomo.mended(conversations, right)
    before = [question.evidence for one in conversations for question in one.questions]
    after = [question.evidence for one in mended for question in one.questions]
    assert sum(set(old) != set(new) for old, new in zip(before, after, strict=True)) == 51
