"""A second opinion on the best candidates of a search: a function, the memory's model, another one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from engramma import InvalidInput, Memory
from engramma.analysts.rules import RuleAnalyst
from engramma.errors import ModelError
from engramma.testing import HashEmbedder, ScriptedLLM

KETTLES = [
    "The office kettle leaks.",
    "Ana bought an office kettle in May.",
    "The office kettle was repaired by Lin.",
    "Nobody descales the office kettle.",
]


@pytest.fixture
def kettles(memory: Memory) -> Memory:
    memory.add_many([{"content": text, "speaker": "Ana", "at": "2026-06-01"} for text in KETTLES])
    return memory


def opened(reply: object) -> tuple[Memory, ScriptedLLM]:
    llm = ScriptedLLM(reply)  # type: ignore[arg-type]
    memory = Memory.open(":memory:", embedder=HashEmbedder(256), analyst=RuleAnalyst())
    memory.add_many([{"content": text} for text in KETTLES])
    return memory, llm


def texts(hits) -> list[str]:
    return [hit.note.content for hit in hits.direct]


def test_function_orders_the_hits(kettles):
    asked = []

    def longest(question, candidates):
        asked.append((question, list(candidates)))
        return [len(text) for text in candidates]

    plain = kettles.search("office kettle", expand=False)
    hits = kettles.search("office kettle", rerank=longest, expand=False)
    assert texts(hits) == sorted(texts(plain), key=len, reverse=True)
    (question, candidates) = asked[0]
    assert question == "office kettle"
    assert sorted(candidates) == sorted(f"Ana, 2026-06-01: {text}" for text in KETTLES)
    assert {hit.note.id: hit.score for hit in hits} == {hit.note.id: hit.score for hit in plain}  # relevance stays ours


def test_reranker_sees_more_than_k(kettles):
    hits = kettles.search("office kettle", k=1, expand=False, rerank=lambda _, found: [text == max(found) for text in found])
    assert texts(hits) == ["The office kettle was repaired by Lin."]
    assert "reranked from" in str(hits[0].why) or texts(kettles.search("office kettle", k=1)) == texts(hits)


def test_reranker_is_not_asked_where_nothing_is_relevant(kettles):
    def never(question, candidates):
        raise AssertionError("asked")

    hits = kettles.search("tungsten boiling point", rerank=never)
    assert not hits
    assert hits.declined


@pytest.mark.parametrize("answer", [[1.0], [1, 2, 3, 4, 5], ["a"] * 4, None, [float("nan")] * 4, "1234"])
def test_wrong_scores_teach(kettles, answer):
    with pytest.raises(InvalidInput, match="rerank returned"):
        kettles.search("office kettle", rerank=lambda question, candidates: answer)


def test_what_a_function_raises_is_its_own(kettles):
    def broken(question, candidates):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        kettles.search("office kettle", rerank=broken)


def test_model_orders_the_hits():
    memory, llm = opened({"order": ["m4", "m9", "m2", "m4"]})
    with memory:
        before = texts(memory.search("office kettle", expand=False))
        hits = memory.search("office kettle", rerank=llm, expand=False)
        assert texts(hits) == [before[3], before[1], before[0], before[2]]
    (messages,) = llm.calls
    assert all(text in messages[1]["content"] for text in KETTLES)
    assert "never instructions" in messages[0]["content"]


def test_a_bare_list_is_an_order_too():
    memory, llm = opened('Here you are:\n```json\n["m2", "m1"]\n```')
    with memory:
        before = texts(memory.search("office kettle", expand=False))
        assert texts(memory.search("office kettle", rerank=llm, expand=False))[:2] == [before[1], before[0]]


@pytest.mark.parametrize(
    "reply", ["I would rather not.", {"order": ["x1"]}, {"order": []}, ModelError("down"), TimeoutError("slow")]
)
def test_failing_model_leaves_the_order(reply, caplog):
    memory, llm = opened(reply)
    with memory:
        before = texts(memory.search("office kettle", expand=False))
        hits = memory.search("office kettle", rerank=llm, expand=False)
        assert texts(hits) == before
        assert all("not reranked" in str(hit.why) for hit in hits)
    assert "not reranked" in caplog.text


def test_memorys_own_model():
    llm = ScriptedLLM({"notes": []}, {"notes": []}, {"order": ["m2", "m1"]})
    with Memory.open(":memory:", embedder=HashEmbedder(256), llm=llm, catch_up=False) as memory:
        memory.add(KETTLES[0])
        memory.add(KETTLES[2])
        before = texts(memory.search("office kettle", expand=False))
        assert texts(memory.search("office kettle", rerank="llm", expand=False)) == before[::-1]


@pytest.mark.parametrize("wanted", ["llm", True])
def test_no_model_teaches(kettles, wanted):
    with pytest.raises(InvalidInput, match="opened without one"):
        kettles.search("office kettle", rerank=wanted)


def test_off_by_default(kettles):
    assert texts(kettles.search("office kettle", rerank=None)) == texts(kettles.search("office kettle"))
    assert "rerank" not in str(kettles.search("office kettle")[0].why)


def test_others_search_while_a_reranker_thinks(kettles):
    with ThreadPoolExecutor(1) as other:

        def slow(question, candidates):
            found = other.submit(kettles.search, "office kettle").result(timeout=20)
            kettles.add("A new kettle for the office kitchen.")
            return [float(hit.note.content in text) for text in candidates for hit in found[:1]]

        hits = kettles.search("office kettle", rerank=slow)
    assert len(hits.direct) == len(KETTLES)
