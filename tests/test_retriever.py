"""``EngrammaRetriever`` where LangChain's users put retrievers: alone, in chains, in tools, in graphs."""

from __future__ import annotations

import asyncio
import contextvars
import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pytest
from langchain_core._api import LangChainBetaWarning
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import ValidationError

from engramma import InvalidInput, Memory
from engramma.agents import EngrammaRetriever
from engramma.testing import HashEmbedder, ScriptedChatModel, tool_call

ANA, BOB = "I live in Berlin, near the canal.", "I live in Lyon, near the river."
QUESTION = "Who lives near water, in which city do I live?"


@pytest.fixture
def homes(memory: Memory) -> Memory:
    """Who lives where: alice's and bob's spaces, one of a team, and the memory's own."""
    memory.add(ANA, speaker="Ana", space="alice", session="s1", at="2026-01-05T10:00:00+01:00", metadata={"source": {"page": 3}})
    memory.add(BOB, speaker="Bob", space="bob")
    memory.add("We live in tents.", space=("team", "野营"))
    memory.add("Nobody lives here.")
    return memory


def run_of(user: Any, **more: Any) -> dict[str, Any]:
    return {"configurable": {"user_id": user, **more}}


def texts(found: list[Document]) -> list[str]:
    return [document.page_content for document in found]


# -- documents


def test_document_holds_the_note_and_the_evidence(homes: Memory) -> None:
    [found] = EngrammaRetriever(memory=homes).invoke(QUESTION, run_of("alice"))
    [note] = homes.list(space="alice")
    assert (found.page_content, found.id) == (ANA, note.id)
    evidence = {name: found.metadata.pop(name) for name in ("score", "why", "context", "keywords", "tags", "category")}
    assert found.metadata == {
        "id": note.id, "direct": True, "at": "2026-01-05T10:00:00+01:00", "speaker": "Ana", "session": "s1", "space": "alice",
        "metadata": {"source": {"page": 3}},
    }  # fmt: skip
    assert 0.5 <= evidence["score"] <= 1
    assert "words" in evidence["why"]
    assert evidence["context"] == note.context
    assert (evidence["keywords"], evidence["tags"]) == ([*note.keywords], [*note.tags])
    assert evidence["category"] == note.category


def test_document_is_json(homes: Memory) -> None:
    [found] = EngrammaRetriever(memory=homes, space=("team", "野营")).invoke("Who lives in tents?")
    assert found.metadata["space"] == ["team", "野营"]
    assert json.loads(json.dumps(found.metadata)) == found.metadata


def test_linked_notes_follow_unless_not_wanted(memory: Memory) -> None:
    first = memory.add("The kettle in the office leaks.")
    other = memory.add("Violins are tuned in fifths.")
    memory.link(first, other, kind="causes", reason="the leak dripped on a violin")
    followed = EngrammaRetriever(memory=memory, k=1).invoke("Which kettle leaks in the office?")
    alone = EngrammaRetriever(memory=memory, k=1, expand=False).invoke("Which kettle leaks in the office?")
    assert [document.metadata["direct"] for document in followed] == [True, False]
    assert "dripped" in followed[1].metadata["why"]
    assert texts(alone) == [first.content]


def test_order_and_number_are_those_of_search(memory: Memory) -> None:
    memory.add_many([f"Meeting number {number} was about the harbour." for number in range(12)])
    wanted = memory.search("harbour meeting", k=5, min_relevance=0)
    found = EngrammaRetriever(memory=memory, min_relevance=0).invoke("harbour meeting")
    assert [document.id for document in found] == [hit.note.id for hit in wanted]
    assert [document.metadata["score"] for document in found] == [hit.score for hit in wanted]


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "。？"])
def test_query_without_words(homes: Memory, query: str) -> None:
    assert EngrammaRetriever(memory=homes, space="alice").invoke(query) == []


def test_query_that_nothing_answers(homes: Memory) -> None:
    assert EngrammaRetriever(memory=homes, space="alice").invoke("How is inheritance taxed?") == []


@pytest.mark.parametrize("query", [{"question": "x"}, None, 3, "a\ud800b"])
def test_query_that_is_no_text(homes: Memory, query: Any) -> None:
    with pytest.raises(InvalidInput, match="query"):
        EngrammaRetriever(memory=homes).invoke(query)


def test_chinese_and_long_queries(memory: Memory) -> None:
    memory.add("我去年三月搬到了柏林。", speaker="小林")
    retriever = EngrammaRetriever(memory=memory)
    assert texts(retriever.invoke("小林什么时候搬到柏林？")) == ["我去年三月搬到了柏林。"]
    assert texts(retriever.invoke("搬到柏林 " * 50_000)) == ["我去年三月搬到了柏林。"]


# -- options


def test_options_reach_the_search(homes: Memory) -> None:
    old = homes.add("I live in Rome.", space="alice", at="2020-02-02", tags=["old"])
    wanted: list[dict[str, Any]] = [
        {"where": {"tags": "old"}}, {"until": "2021-01-01"}, {"since": date(2020, 2, 2), "until": date(2020, 2, 2)},
        {"since": datetime(2020, 2, 1), "until": "2020-02-03"}, {"rerank": lambda _, notes: ["Rome" in note for note in notes]},
    ]  # fmt: skip
    for options in wanted:
        found = EngrammaRetriever(memory=homes, k=1, min_relevance=0, **options).invoke(QUESTION, run_of("alice"))
        assert texts(found) == [old.content], options
    homes.delete(old)
    shown = EngrammaRetriever(memory=homes, where={"tags": "old"}, min_relevance=0, include=["archived"])
    assert texts(shown.invoke(QUESTION, run_of("alice"))) == [old.content]


def test_options_of_one_call(homes: Memory) -> None:
    homes.add("I live in Rome.", space="alice", tags=["old"])
    retriever = EngrammaRetriever(memory=homes, space="alice", min_relevance=0, expand=False)
    assert len(retriever.invoke(QUESTION)) == 2
    assert len(retriever.invoke(QUESTION, k=1)) == 1
    assert texts(retriever.bind(where={"tags": "old"}).invoke(QUESTION)) == ["I live in Rome."]
    assert len(asyncio.run(retriever.ainvoke(QUESTION, k=1))) == 1
    chosen = retriever.configurable_fields(k=ConfigurableField(id="notes"))
    assert len(chosen.invoke(QUESTION, {"configurable": {"notes": 1}})) == 1


@pytest.mark.parametrize("name", ["kk", "space", "as_of"])
def test_unknown_option_of_one_call(homes: Memory, name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        EngrammaRetriever(memory=homes).invoke(QUESTION, **{name: 1})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("memory", "memory.db", r"memory='memory.db' is not an open memory: give Memory.open\('memory.db'\)"),
        ("k", 0, "greater than or equal to 1"), ("k", "3", "integer"), ("k", True, "integer"),
        ("min_relevance", 2, "less than or equal to 1"), ("where", {"colour": "red"}, "cannot filter on 'colour'"),
        ("since", "not a day", "is not a time"), ("include", ["nonsense"], "superseded"), ("include", "nonsense", "'nonsense'"),
        ("space", "", "is not a space"), ("space", ["alice", "bob"], "is not a space"), ("min_relevence", 0.2, "min_relevence"),
    ],
)  # fmt: skip
def test_field_that_cannot_be_used(memory: Memory, field: str, value: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EngrammaRetriever(**{"memory": memory, field: value})


# -- whose memory


@dataclass
class Context:
    user_id: str | None = None


class State(MessagesState):
    found: list[str]


def graph_of(node: Any) -> Any:
    return StateGraph(State, context_schema=Context).add_node("look", node).add_edge(START, "look").compile()


def test_space_outside_of_a_run(homes: Memory) -> None:
    assert texts(EngrammaRetriever(memory=homes).invoke("Who lives here?")) == ["Nobody lives here."]
    assert texts(EngrammaRetriever(memory=homes, space="bob").invoke(QUESTION)) == [BOB]
    assert texts(EngrammaRetriever(memory=homes, space=lambda run: "alice").invoke(QUESTION)) == [ANA]
    with pytest.raises(InvalidInput, match=r"space\(run\)=None names no space"):
        EngrammaRetriever(memory=homes, space=lambda run: None).invoke("Who lives here?")


def test_memory_by_position(homes: Memory) -> None:
    assert texts(EngrammaRetriever(homes, space="bob", k=1).invoke(QUESTION)) == [BOB]
    for wrong in ("memory.db", None):
        with pytest.raises(ValidationError, match=r"is not an open memory: give Memory\.open"):
            EngrammaRetriever(wrong)
    with pytest.raises(TypeError, match="memory"):
        EngrammaRetriever()
    with pytest.raises(TypeError, match="memory"):
        EngrammaRetriever(homes, memory=homes)


def test_a_user_can_be_required(homes: Memory) -> None:
    retriever = EngrammaRetriever(homes, require_user=True, space="bob")
    for config in (None, {"configurable": {"thread_id": "1"}}):
        with pytest.raises(InvalidInput, match="this run names no user, and require_user=True"):
            retriever.invoke(QUESTION, config)
    assert texts(retriever.invoke(QUESTION, run_of("alice"))) == [ANA]


def test_a_user_id_that_is_none_is_no_way_into_the_shared_memory(homes: Memory) -> None:
    with pytest.raises(InvalidInput, match="user_id=None names no user: give the user's id"):
        EngrammaRetriever(homes).invoke(QUESTION, run_of(None))
    graph = graph_of(lambda state: {"found": texts(EngrammaRetriever(homes).invoke("Who lives here?", run_of(None)))})
    with pytest.raises(InvalidInput, match="user_id=None names no user"):
        graph.invoke({"messages": []}, context=Context())


def test_user_of_the_run_comes_before_the_space(homes: Memory) -> None:
    for space in (None, "bob", lambda run: "bob"):
        retriever = EngrammaRetriever(memory=homes, space=space)
        assert texts(retriever.invoke(QUESTION, run_of("alice"))) == [ANA]
        assert texts(asyncio.run(retriever.ainvoke(QUESTION, run_of("alice")))) == [ANA]


def test_function_of_the_run_sees_its_config(homes: Memory) -> None:
    retriever = EngrammaRetriever(memory=homes, space=lambda run: run.configurable["tenant"])
    assert texts(retriever.invoke(QUESTION, {"configurable": {"tenant": "bob"}})) == [BOB]


def test_user_id_that_is_given_but_empty(homes: Memory) -> None:
    for config in (run_of(""), run_of([""])):
        with pytest.raises(InvalidInput, match="names no space"):
            EngrammaRetriever(memory=homes).invoke(QUESTION, config)


def test_space_in_a_batch_is_of_each_run(homes: Memory) -> None:
    retriever = EngrammaRetriever(memory=homes)
    found = retriever.batch([QUESTION] * 2, [run_of("alice"), run_of("bob")])
    awaited = asyncio.run(retriever.abatch([QUESTION] * 2, [run_of("alice"), run_of("bob")]))
    assert [texts(one) for one in found] == [texts(one) for one in awaited] == [[ANA], [BOB]]


def test_space_in_a_chain(homes: Memory) -> None:
    chain = RunnableLambda(str.strip) | EngrammaRetriever(memory=homes) | texts
    assert chain.invoke(QUESTION, run_of("bob")) == [BOB]
    assert asyncio.run(chain.ainvoke(QUESTION, run_of("alice"))) == [ANA]


def test_user_bound_to_a_step_stands_in_for_none(homes: Memory) -> None:
    step = EngrammaRetriever(memory=homes).with_config(run_of("bob"))
    assert (RunnableLambda(str.strip) | step | texts).invoke(QUESTION) == [BOB]
    assert (RunnableLambda(str.strip) | step | texts).invoke(QUESTION, run_of("alice")) == [ANA]


def test_call_in_a_run_can_name_another_user(homes: Memory) -> None:
    retriever = EngrammaRetriever(memory=homes)
    chain = RunnableLambda(lambda query: texts(retriever.invoke(query, run_of("bob"))))
    assert chain.invoke(QUESTION, run_of("alice")) == [BOB]


@pytest.mark.parametrize("given", [None, {"configurable": {"other": 1}}, {"tags": ["x"]}, run_of(None)])
def test_space_in_a_node(homes: Memory, given: Any) -> None:
    retriever = EngrammaRetriever(memory=homes)
    graph = graph_of(lambda state: {"found": texts(retriever.invoke(QUESTION, given))})
    assert graph.invoke({"messages": []}, context=Context("alice"))["found"] == [ANA]
    assert graph.invoke({"messages": []}, run_of("bob"))["found"] == [BOB]
    assert graph.invoke({"messages": []}, run_of("bob"), context=Context("alice"))["found"] == [ANA]


def test_space_in_an_awaited_node(homes: Memory) -> None:
    retriever = EngrammaRetriever(memory=homes)

    async def look(state: State) -> dict[str, Any]:
        return {"found": texts(await retriever.ainvoke(QUESTION))}

    graph = graph_of(look)
    assert asyncio.run(graph.ainvoke({"messages": []}, context=Context("alice")))["found"] == [ANA]
    assert asyncio.run(graph.ainvoke({"messages": []}, run_of("bob")))["found"] == [BOB]


def test_context_variables_reach_the_thread_of_an_awaited_search(opened: Any) -> None:
    seen: list[str] = []
    marked = contextvars.ContextVar("marked", default="")

    class Watched(HashEmbedder):
        def embed(self, texts: Any, *, kind: Any) -> Any:
            seen.append(marked.get())
            return super().embed(texts, kind=kind)

    memory = opened(":memory:", embedder=Watched(64))
    memory.add(ANA)

    async def search() -> None:
        marked.set("here")
        await EngrammaRetriever(memory=memory).ainvoke("Berlin")

    asyncio.run(search())
    assert seen[-1] == "here"


# -- where retrievers are put


def test_chain_answers_from_the_memory(homes: Memory) -> None:
    def answer(messages: list[BaseMessage]) -> str:
        return "Berlin" if ANA in str(messages[-1].content) else "I do not know"

    prompt = ChatPromptTemplate.from_template("Notes: {notes}\nQuestion: {question}")
    notes = EngrammaRetriever(memory=homes) | (lambda found: "\n".join(texts(found)))
    chain = {"notes": notes, "question": RunnablePassthrough()} | prompt | ScriptedChatModel(answer) | StrOutputParser()
    assert chain.invoke(QUESTION, run_of("alice")) == "Berlin"
    assert asyncio.run(chain.ainvoke(QUESTION, run_of("alice"))) == "Berlin"
    assert chain.invoke(QUESTION, run_of("bob")) == "I do not know"


def test_retriever_tool_of_an_agent(homes: Memory) -> None:
    look_up = create_retriever_tool(
        EngrammaRetriever(memory=homes), "look_up", "Looks things up.",
        document_prompt=PromptTemplate.from_template("[{at}] {speaker}: {page_content}"), response_format="content_and_artifact",
    )  # fmt: skip
    graph = StateGraph(State, context_schema=Context).add_node("tools", ToolNode([look_up])).add_edge(START, "tools").compile()
    asked = {"messages": [tool_call("look_up", query=QUESTION)]}
    by_context = graph.invoke(asked, context=Context("alice"))["messages"][-1]
    by_config = asyncio.run(graph.ainvoke(asked, run_of("bob")))["messages"][-1]
    assert by_context.content == f"[2026-01-05T10:00:00+01:00] Ana: {ANA}"
    assert texts(by_context.artifact) == [ANA]
    assert texts(by_config.artifact) == [BOB]


def test_as_tool(homes: Memory) -> None:
    with pytest.warns(LangChainBetaWarning):
        tool = EngrammaRetriever(memory=homes).as_tool(name="look_up", description="Looks things up.")
    assert texts(tool.invoke(QUESTION, run_of("alice"))) == [ANA]
    assert texts(asyncio.run(tool.ainvoke(QUESTION, run_of("bob")))) == [BOB]


def test_callbacks_hear_of_documents_and_errors(homes: Memory) -> None:
    heard: list[Any] = []

    class Ear(BaseCallbackHandler):
        def on_retriever_end(self, documents: Any, **_: Any) -> None:
            heard.append(texts(documents))

        def on_retriever_error(self, error: BaseException, **_: Any) -> None:
            heard.append(type(error))

    retriever = EngrammaRetriever(memory=homes, space="alice")
    retriever.invoke(QUESTION, {"callbacks": [Ear()]})
    asyncio.run(retriever.ainvoke(QUESTION, {"callbacks": [Ear()]}))
    with pytest.raises(InvalidInput):
        retriever.invoke(QUESTION, {"callbacks": [Ear()]}, where={"colour": 1})
    assert heard == [[ANA], [ANA], InvalidInput]


def test_document_that_came_back_counts_as_used(opened: Any) -> None:
    with opened("memory.db") as memory:
        note = memory.add(ANA)
        EngrammaRetriever(memory=memory).invoke("Berlin")
    assert opened("memory.db").get(note).uses == 1
