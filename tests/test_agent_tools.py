"""The memory as tools for a model: what small models send, what they read back, and whose memory it is."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import pytest
from conftest import contents
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from engramma import AsyncMemory, Memory
from engramma.agents import memory_tools
from engramma.errors import InvalidInput, ModelUnavailable, StoreBusy, StoreClosed
from engramma.testing import HashEmbedder, ModelServer, ScriptedChatModel, tool_call

NAMES = ("save_memory", "search_memory", "update_memory", "forget_memory")
ID = re.compile(r"\{(\w{26})\}")


def run_of(user: Any = None, thread: str | None = None) -> dict[str, Any]:
    """The config of a run."""
    given = {"user_id": user, "thread_id": thread}
    return {"configurable": {name: value for name, value in given.items() if value is not None}}


def used(memory: Memory, name: str, /, *, run: dict[str, Any] | None = None, **args: Any) -> ToolMessage:
    """What a model gets to read for one call."""
    (tool,) = memory_tools(memory, only=[name])
    return tool.invoke({"type": "tool_call", "id": "call-1", "name": name, "args": args}, run or {})


def saved_id(message: ToolMessage) -> str:
    (found,) = ID.findall(message.text)
    return found


class Down(HashEmbedder):
    """An embedder that fails for as long as it has an error."""

    error: BaseException | None = None

    def embed(self, texts: Any, *, kind: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().embed(texts, kind=kind)


# -- what the model is told


def test_all_four_in_order(memory) -> None:
    assert tuple(tool.name for tool in memory_tools(memory)) == NAMES


def test_only_some(memory) -> None:
    assert [tool.name for tool in memory_tools(memory, only=["search_memory"])] == ["search_memory"]
    assert memory_tools(memory, only=[]) == []


@pytest.mark.parametrize("name", ["recall", "", "Save_memory", "save memory"])
def test_unknown_tool(memory, name) -> None:
    with pytest.raises(InvalidInput, match="save_memory, search_memory, update_memory, forget_memory") as raised:
        memory_tools(memory, only=["search_memory", name])
    assert repr(name) in str(raised.value)


@pytest.mark.parametrize(
    ("only", "told"),
    [("search_memory", "only='search_memory' is not a list of names: give ['search_memory']"),
     ("search", "only='search' is not a list of names: give ['save_memory',"), (5, "only=5 is not a list of names"),
     ([["search_memory"]], "is no memory tool")],
)  # fmt: skip
def test_names_that_are_no_list(memory, only, told) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        memory_tools(memory, only=only)


def test_a_name_twice_is_one_tool(memory) -> None:
    assert [tool.name for tool in memory_tools(memory, only=["search_memory", "search_memory"])] == ["search_memory"]


@pytest.mark.parametrize("given", ["memory.db", Path("notes/记忆.db"), None, 5, Memory])
def test_what_is_no_open_memory(given) -> None:
    shown = str(given) if isinstance(given, str | Path) else "memory.db"
    with pytest.raises(InvalidInput, match=re.escape(f"memory={given!r} is not an open memory: give Memory.open({shown!r})")):
        memory_tools(given)


def test_the_awaited_memory_is_told_to_give_its_own(memory) -> None:
    with pytest.raises(InvalidInput, match=r"is awaited: give its Memory, which is \.memory"):
        memory_tools(AsyncMemory(memory))


def schemas(memory: Memory) -> dict[str, dict[str, Any]]:
    return {tool.name: convert_to_openai_tool(tool)["function"] for tool in memory_tools(memory)}


def test_arguments_on_offer(memory) -> None:
    offered = {
        name: (set(one["parameters"]["properties"]), set(one["parameters"]["required"])) for name, one in schemas(memory).items()
    }
    assert offered == {
        "save_memory": ({"content", "tags", "importance"}, {"content"}),
        "search_memory": ({"query", "k"}, {"query"}),
        "update_memory": ({"note_id", "content"}, {"note_id", "content"}),
        "forget_memory": ({"note_id"}, {"note_id"}),
    }


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_fit_a_small_model(memory, name) -> None:
    told = schemas(memory)[name]
    assert 40 < len(told["description"]) < 260
    for argument in told["parameters"]["properties"].values():
        assert 10 < len(argument["description"]) < 120
    assert not re.search(r"space|session|thread|user_id|namespace", json.dumps(told))


# -- save, search, update, forget


@pytest.mark.parametrize(
    ("fact", "question"),
    [("Ana is allergic to peanuts.", "What is Ana allergic to?"), ("小夏对花生过敏。", "小夏对什么过敏？")],
)
def test_saved_and_found(memory, fact, question) -> None:
    done = used(memory, "save_memory", content=fact)
    assert done.text == f"Saved: {fact} {{{saved_id(done)}}}"
    found = used(memory, "search_memory", query=question)
    assert re.fullmatch(rf"- \d{{4}}-\d\d-\d\d user: {re.escape(fact)} \{{{saved_id(done)}\}}", found.text)
    assert found.status == "success"


def test_fields_of_a_saved_note(memory) -> None:
    done = used(memory, "save_memory", run=run_of(thread="t1"), content="I like tea.", tags=["drink"], importance=5)
    note = memory.get(saved_id(done))
    assert (note.content, note.speaker, note.importance, note.session, note.space) == ("I like tea.", "user", 5, "t1", "default")
    assert "drink" in note.tags


@pytest.mark.parametrize(("query", "shown"), [("quantum physics", "'quantum physics'"), ("税法\n第几条？", "'税法 第几条？'")])
def test_nothing_found(memory, query, shown) -> None:
    memory.add("Ana lives in Lyon.")
    assert used(memory, "search_memory", query=query).text == f"Nothing in memory matches {shown}."


def test_empty_memory(memory) -> None:
    assert used(memory, "search_memory", query="tea").text == "Nothing in memory matches 'tea'."


def test_results_are_short(memory) -> None:
    long = "Ana keeps a diary about Lyon.\n\n" + "She wrote a line in Lyon. " * 400
    for number in range(30):
        memory.add(f"{number}: {long}", speaker="Ana")
    lines = used(memory, "search_memory", query="Ana's diary about Lyon", k=99).text.splitlines()
    assert 1 < len(lines) <= 20
    assert all(line.startswith("- ") and len(line) < 370 and ID.search(line) for line in lines)


def test_what_is_saved_is_whole_though_it_is_shown_short(memory) -> None:
    done = used(memory, "save_memory", content="字" * 5000)
    assert len(done.text) < 350
    assert memory.get(saved_id(done)).content == "字" * 5000


@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_notes_match_and_what_is_linked_to_them_follows(memory, k) -> None:
    for text in ("My cat Tom is ill.", "Tom sees the vet on Friday.", "I live in Lyon.", "The cat is better."):
        memory.add(text, speaker="user", session="s")
    lines = used(memory, "search_memory", query="cat Tom", k=k).text.splitlines()
    linked = [line for line in lines if " one above)" in line]
    assert len(lines) - len(linked) == k
    assert len(linked) <= k
    assert linked == lines[k:]


@pytest.mark.parametrize("k", [0, -3, 10**9, "3", None, 2.0])
def test_k_out_of_its_bounds(memory, k) -> None:
    memory.add("I like tea.")
    assert "I like tea." in used(memory, "search_memory", query="tea", k=k).text


def test_updated(memory) -> None:
    note = memory.add("I live in Lyon.")
    done = used(memory, "update_memory", note_id=note.id, content="I live in Berlin.")
    assert done.text == f"Updated: I live in Berlin. {{{note.id}}}"
    assert memory.get(note).content == "I live in Berlin."
    assert memory.history(note)[0].note.content == "I live in Lyon."


def test_forgotten_and_back(memory) -> None:
    note = memory.add("I live in Lyon.")
    assert used(memory, "forget_memory", note_id=note.id).text == "Forgotten: I live in Lyon."
    assert memory.list() == []
    memory.revert(memory.log()[0])
    assert contents(memory.list()) == ["I live in Lyon."]


@pytest.mark.parametrize("written", ["{%s}", " %s ", "[%s]", "'%s'", "<%s>", '"{%s}"'])
def test_ids_as_models_write_them(memory, written) -> None:
    note = memory.add("I live in Lyon.")
    assert used(memory, "forget_memory", note_id=written % note.id).status == "success"


def test_superseded_facts_are_not_shown(memory) -> None:
    memory.add("I live in Lyon.", speaker="user", at="2026-01-05")
    memory.add("I moved to Berlin in May.", speaker="user", at="2026-06-01")
    found = used(memory, "search_memory", query="Berlin or Lyon?").text
    assert "I moved to Berlin in May." in found
    assert "I live in Lyon." not in found


@pytest.mark.parametrize(
    ("tags", "kept"),
    [
        ("work, travel", {"work", "travel"}),
        ("工作，旅行", {"工作", "旅行"}),
        ("工作、旅行", {"工作", "旅行"}),
        ('["work", "travel"]', {"work", "travel"}),
        ("", set()),
        (None, set()),
        (["work", " "], {"work"}),
    ],
)
def test_tags_as_small_models_write_them(memory, tags, kept) -> None:
    note = memory.get(saved_id(used(memory, "save_memory", content="Ana flies on Monday.", tags=tags)))
    assert kept <= set(note.tags)
    assert not {tag for tag in note.tags if set(tag) & set('[]",，、 ')}


@pytest.mark.parametrize(("given", "kept"), [(5, 5), ("4", 4), (9, 5), (-1, 1), (3.0, 3)])
def test_importance_as_small_models_write_it(memory, given, kept) -> None:
    assert memory.get(saved_id(used(memory, "save_memory", content="I like tea.", importance=given))).importance == kept


def test_recalled_block_is_not_saved_again(memory) -> None:
    memory.add("I live in Lyon.")
    block = memory.search("Lyon").context()
    assert used(memory, "save_memory", content=block).status == "error"
    used(memory, "save_memory", content=f"I like tea.\n{block}")
    assert [text.strip() for text in contents(memory.list())] == ["I live in Lyon.", "I like tea."]


# -- what a model does wrong


@pytest.mark.parametrize(
    ("name", "args", "told"),
    [
        ("save_memory", {}, "content: Field required"),
        ("save_memory", {"text": "I like tea."}, "content: Field required"),
        ("save_memory", {"content": ""}, "content='' holds no text"),
        ("save_memory", {"content": " \n"}, "holds no text"),
        ("save_memory", {"content": ["tea"]}, "content: Input should be a valid string"),
        ("save_memory", {"content": None}, "content: Input should be a valid string"),
        ("save_memory", {"content": "tea", "importance": "high"}, "importance: Input should be a valid integer"),
        ("save_memory", {"content": "tea", "tags": [1]}, "tags.0: Input should be a valid string"),
        ("save_memory", {"content": "tea \ud83d"}, "lone surrogate"),
        ("search_memory", {}, "query: Field required"),
        ("search_memory", {"query": ""}, "query='' asks nothing: give some words"),
        ("search_memory", {"query": "tea", "k": "many"}, "k: Input should be a valid integer"),
        ("update_memory", {"content": "tea"}, "note_id: Field required"),
        ("update_memory", {"note_id": "1", "content": "tea"}, "there is no note '1'. Use search_memory"),
        ("forget_memory", {"note_id": "n1"}, "there is no note 'n1'. Use search_memory"),
        ("forget_memory", {"note_id": ""}, "there is no note ''. Use search_memory"),
        ("forget_memory", {"note_id": "不存在"}, "there is no note '不存在'. Use search_memory"),
        ("forget_memory", {"note_id": 5}, "note_id: Input should be a valid string"),
    ],
)
def test_mistakes_come_back_as_a_sentence(memory, name, args, told) -> None:
    done = used(memory, name, **args)
    assert done.status == "error"
    assert told in done.text
    assert "pydantic" not in done.text
    assert len(done.text) < 300
    assert memory.spaces() == {}


def test_update_to_nothing(memory) -> None:
    note = memory.add("I live in Lyon.")
    assert "holds no text" in used(memory, "update_memory", note_id=note.id, content=" ").text
    assert memory.get(note).content == "I live in Lyon."


def test_forgotten_note_is_gone_for_the_model(memory) -> None:
    note = memory.add("I live in Lyon.")
    used(memory, "forget_memory", note_id=note.id)
    for name, args in (("forget_memory", {}), ("update_memory", {"content": "I live in Berlin."})):
        assert f"there is no note '{note.id}'" in used(memory, name, note_id=note.id, **args).text
    assert memory.get(note).content == "I live in Lyon."


@pytest.mark.parametrize("error", [ModelUnavailable("no embedder today"), ConnectionError("refused"), RuntimeError("bug")])
def test_embedder_down(opened, error) -> None:
    embedder = Down(64)
    memory = opened(":memory:", embedder=embedder)
    memory.add("I live in Lyon.")
    embedder.error = error
    assert used(memory, "save_memory", content="I like tea.").status == "success"
    done = used(memory, "search_memory", query="tea")
    assert (done.status, str(error) in done.text) == ("error", True)
    embedder.error = None
    assert contents(memory.list()) == ["I live in Lyon.", "I like tea."]


@pytest.mark.parametrize(("name", "args"), [("save_memory", {"content": "tea"}), ("search_memory", {"query": "tea"})])
def test_a_broken_store_is_no_mistake_of_the_model(opened, name, args) -> None:
    memory = opened()
    memory.close()
    with pytest.raises(StoreClosed):
        used(memory, name, **args)


def test_a_busy_store_is_no_embedder_that_timed_out(opened) -> None:
    """StoreBusy is a TimeoutError too."""
    embedder = Down(64)
    memory = opened(":memory:", embedder=embedder)
    embedder.error = StoreBusy("another process writes")
    with pytest.raises(StoreBusy):
        used(memory, "search_memory", query="tea")


# -- whose memory


@pytest.mark.parametrize(
    ("user", "space"),
    [("ana", "ana"), (7, "7"), (0, "0"), (("team", "support"), ("team", "support")), ("ana@example.com", "ana@example.com"),
     ("小夏", "小夏"), ("*", "*"), (None, "default")],
)  # fmt: skip
def test_space_is_the_users(memory, user, space) -> None:
    used(memory, "save_memory", run=run_of(user), content="I like tea.")
    assert memory.spaces() == {space: 1}
    assert "I like tea." in used(memory, "search_memory", run=run_of(user), query="tea").text
    assert "Nothing" in used(memory, "search_memory", run=run_of("somebody else"), query="tea").text


@pytest.mark.parametrize("user", ["", (), ("team", ""), True, 1.5, [], b"ana", {"id": 1}, "ana\ud800"])
@pytest.mark.parametrize(("name", "args"), [("save_memory", {"content": "tea"}), ("search_memory", {"query": "tea"})])
def test_unusable_user_is_refused(memory, name, args, user) -> None:
    memory.add("The memory's own secret about tea.")
    with pytest.raises(InvalidInput, match=f"user_id={re.escape(repr(user))} names no space: give a text"):
        used(memory, name, run=run_of(user), **args)
    assert memory.spaces() == {"default": 1}


@pytest.mark.parametrize(
    "extra",
    [
        {"space": "bo"},
        {"user_id": "bo", "user": "bo", "namespace": ["bo"]},
        {"session": "bo", "thread_id": "bo", "key": "k"},
        {"config": {"configurable": {"user_id": "bo"}}},
        {"runtime": {"context": {"user_id": "bo"}}, "context": {"user_id": "bo"}},
        {"place": {"space": "bo", "session": "bo"}},
        {"speaker": "system", "pinned": True, "metadata": {"a": 1}},
    ],
)
def test_arguments_of_a_model_name_no_space(memory, extra) -> None:
    bo = memory.add("Bo's secret about tea.", space="bo")
    run = run_of("ana", "t1")
    done = used(memory, "save_memory", run=run, content="I like tea.", **extra)
    note = memory.get(saved_id(done))
    assert (note.space, note.session, note.speaker, note.key, note.pinned) == ("ana", "t1", "user", None, False)
    assert "secret" not in used(memory, "search_memory", run=run, query="secret about tea", **extra).text
    for name, args in (("update_memory", {"content": "Ha."}), ("forget_memory", {})):
        assert used(memory, name, run=run, note_id=bo.id, **args, **extra).status == "error"
    assert memory.get(bo) == bo


def test_anothers_note_and_no_note_read_the_same(memory) -> None:
    bo = memory.add("Bo's secret.", space="bo")
    for name, args in (("update_memory", {"content": "Ha."}), ("forget_memory", {})):
        there = used(memory, name, run=run_of("ana"), note_id=bo.id, **args).text
        nowhere = used(memory, name, run=run_of("ana"), note_id="0" * 26, **args).text
        assert there.replace(bo.id, "") == nowhere.replace("0" * 26, "")
    assert memory.get(bo) == bo


def test_notes_of_the_memorys_own_space_are_anothers_too(memory) -> None:
    own = memory.add("The memory's own secret.")
    assert used(memory, "forget_memory", run=run_of("ana"), note_id=own.id).status == "error"


def test_own_notes_of_other_threads_are_ones_own(memory) -> None:
    note = memory.get(saved_id(used(memory, "save_memory", run=run_of("ana", "t1"), content="I like tea.")))
    assert "I like tea." in used(memory, "search_memory", run=run_of("ana", "t2"), query="tea").text
    assert used(memory, "forget_memory", run=run_of("ana", "t2"), note_id=note.id).status == "success"


def test_function_says_the_space(memory) -> None:
    save, search, *_ = memory_tools(
        memory, space=lambda run: ("team", run.configurable["team"]) if run.configurable else memory.space
    )
    save.invoke({"content": "The release is on Friday."}, {"configurable": {"team": "web"}})
    save.invoke({"content": "Ana likes tea."}, {"configurable": {"team": "web", "user_id": "ana"}})
    save.invoke({"content": "Nobody's note."})
    assert memory.spaces() == {("team", "web"): 1, "ana": 1, "default": 1}
    assert "Friday" in search.invoke({"query": "release"}, {"configurable": {"team": "web"}})


@pytest.mark.parametrize(("given", "space"), [(12, "12"), ("小夏", "小夏"), (["a", "b"], ("a", "b"))])
def test_what_a_function_may_give(memory, given, space) -> None:
    save, *_ = memory_tools(memory, space=lambda run: given)
    save.invoke({"content": "I like tea."})
    assert memory.spaces() == {space: 1}


@pytest.mark.parametrize("given", [None, "", False, [""]])
def test_function_that_gives_no_space(memory, given) -> None:
    save, *_ = memory_tools(memory, space=lambda run: given)
    with pytest.raises(InvalidInput, match=re.escape(f"space(run)={given!r} names no space")):
        save.invoke({"content": "I like tea."})
    assert memory.spaces() == {}


def test_a_space_by_its_name(memory) -> None:
    for space, user in (("team", None), (("team", "web"), None), ("team", "ana")):
        save, *_ = memory_tools(memory, space=space)
        save.invoke({"content": "I like tea."}, run_of(user))
    assert memory.spaces() == {"team": 1, ("team", "web"): 1, "ana": 1}


@pytest.mark.parametrize("space", ["", (), ["team", "web"], 5, ("team", "")])
def test_a_space_that_is_none_is_refused_at_once(memory, space) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"space={space!r} is not a space: give a text such as 'team'")):
        memory_tools(memory, space=space)


@pytest.mark.parametrize("space", [None, "team", lambda run: "team"])
def test_a_user_can_be_required(memory, space) -> None:
    save, *_ = memory_tools(memory, space=space, require_user=True)
    for run in ({}, run_of(thread="t1"), {"configurable": {"user_id": None}}):
        with pytest.raises(InvalidInput, match=re.escape("invoke it with {'configurable': {'user_id': 'ana'}}")):
            save.invoke({"content": "I like tea."}, run)
    with pytest.raises(InvalidInput, match="it has 'userId': write 'user_id'"):
        save.invoke({"content": "I like tea."}, {"configurable": {"userId": "ana"}})
    save.invoke({"content": "I like tea."}, run_of("ana"))
    assert memory.spaces() == {"ana": 1}


# -- in graphs


@dataclass(frozen=True)
class DataclassContext:
    user_id: Any


class PydanticContext(BaseModel):
    user_id: Any


class DictContext(TypedDict, total=False):
    user_id: Any


def asked(graph: Any, how: str, messages: Any, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Invoke a graph, in either of two ways."""
    if how == "sync":
        return graph.invoke({"messages": messages}, run, **more)
    return asyncio.run(graph.ainvoke({"messages": messages}, run, **more))


both_ways = pytest.mark.parametrize("how", ["sync", "async"])
CONTEXTS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "dataclass": (DataclassContext, DataclassContext),
    "pydantic": (PydanticContext, lambda user: PydanticContext(user_id=user)),
    "dict": (DictContext, lambda user: {"user_id": user}),
}
SAVE_TEA = tool_call("save_memory", content="I like tea.")


@both_ways
@pytest.mark.parametrize("kind", CONTEXTS)
def test_context_comes_before_configurable(memory, how, kind) -> None:
    schema, make = CONTEXTS[kind]
    agent = create_agent(ScriptedChatModel(SAVE_TEA, "Saved."), memory_tools(memory), context_schema=schema)
    asked(agent, how, "Remember that I like tea.", run_of("from configurable", "t1"), context=make("ana"))
    assert memory.spaces() == {"ana": 1}
    assert memory.list(space="ana")[0].session == "t1"


@pytest.mark.parametrize("kind", CONTEXTS)
def test_context_without_a_user(memory, kind) -> None:
    schema, make = CONTEXTS[kind]
    agent = create_agent(ScriptedChatModel(SAVE_TEA, "Saved."), memory_tools(memory), context_schema=schema)
    agent.invoke({"messages": "Remember that I like tea."}, run_of("bo"), context=make(None))
    assert memory.spaces() == {"bo": 1}


@pytest.mark.parametrize("kind", CONTEXTS)
def test_empty_user_in_the_context_is_refused(memory, kind) -> None:
    schema, make = CONTEXTS[kind]
    agent = create_agent(ScriptedChatModel(SAVE_TEA, "Saved."), memory_tools(memory), context_schema=schema)
    with pytest.raises(InvalidInput, match="user_id='' names no space"):
        agent.invoke({"messages": "Remember that I like tea."}, run_of("bo"), context=make(""))
    assert memory.spaces() == {}


def calls(*messages: AIMessage) -> AIMessage:
    """One message with the tool calls of several."""
    return AIMessage("", tool_calls=[call for message in messages for call in message.tool_calls])


@both_ways
def test_parallel_calls(memory, how) -> None:
    """As many saves at once as a model may ask for, a search and two mistakes among them."""
    saves = [tool_call("save_memory", content=f"Fact number {number} about tea.") for number in range(12)]
    mistakes = [tool_call("forget_memory", note_id="n1"), tool_call("save_memory")]
    model = ScriptedChatModel(calls(*saves, *mistakes, tool_call("search_memory", query="tea")), "Done.")
    agent = create_agent(model, memory_tools(memory))
    result = asked(agent, how, "Remember all that.", run_of("ana", "t1"))
    answers = [message for message in result["messages"] if isinstance(message, ToolMessage)]
    assert [message.status for message in answers].count("error") == 2
    assert len(answers) == 15
    assert sorted(contents(memory.list(space="ana"))) == sorted(f"Fact number {number} about tea." for number in range(12))
    assert {note.session for note in memory.list(space="ana")} == {"t1"}
    assert result["messages"][-1].text == "Done."


@both_ways
def test_tool_node_of_ones_own_graph(memory, how) -> None:
    builder = StateGraph(MessagesState, context_schema=DataclassContext)
    builder.add_node("tools", ToolNode(memory_tools(memory)))
    builder.add_edge(START, "tools")
    builder.add_edge("tools", END)
    result = asked(builder.compile(), how, [SAVE_TEA], run_of(thread="t9"), context=DataclassContext("小夏"))
    assert result["messages"][-1].text.startswith("Saved: I like tea.")
    assert [(note.space, note.session) for note in memory.list(space="小夏")] == [("小夏", "t9")]


def test_model_corrects_itself(memory) -> None:
    """A wrong id, then the search that the error speaks of, then the right id."""
    memory.add("I live in Lyon.", space="ana")

    def forget_what_was_found(messages: Any) -> AIMessage:
        return tool_call("forget_memory", note_id=saved_id(messages[-1]))

    model = ScriptedChatModel(
        tool_call("forget_memory", note_id="the address"),
        tool_call("search_memory", query="live Lyon"),
        forget_what_was_found,
        "Ok.",
    )
    create_agent(model, memory_tools(memory)).invoke({"messages": "Forget where I live."}, run_of("ana"))
    assert memory.list(space="ana") == []
    assert model.calls[-1][-1].text == "Forgotten: I live in Lyon."


CLIENTS = {
    "ollama": lambda server: ChatOllama(model="qwen", base_url=server.url),
    "openai": lambda server: ChatOpenAI(model="qwen", base_url=server.openai_url, api_key="none"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_through_a_real_client(memory, client) -> None:
    """What a server is sent: the schemas without a space, and the result of the call."""
    script = [{"tool": "save_memory", "args": {"content": "小夏喜欢喝茶。", "tags": "饮料", "user_id": "bo"}}, "记住了。"]
    with ModelServer(*script) as server:
        agent = create_agent(CLIENTS[client](server), memory_tools(memory))
        result = agent.invoke({"messages": "记住：我喜欢喝茶。"}, run_of("小夏", "一"))
        first, second = server.requests
    assert sorted(first.tools) == sorted(NAMES)
    assert "user_id" not in json.dumps(first.body["tools"])
    assert "Saved: 小夏喜欢喝茶。" in second.messages[-1]["content"]
    assert result["messages"][-1].text == "记住了。"
    assert [(note.space, note.session) for note in memory.list(space="小夏")] == [("小夏", "一")]
    assert list(memory.spaces()) == ["小夏"]


@pytest.mark.parametrize(
    ("user", "space"),
    [
        (UUID("11111111-2222-3333-4444-555555555555"), "11111111-2222-3333-4444-555555555555"),
        (42, "42"),
        (["team", "web"], ("team", "web")),  # a tuple that went through JSON
    ],
)
def test_users_as_programs_name_them(memory, user, space) -> None:
    used(memory, "save_memory", run=run_of(user), content="I like tea.")
    assert memory.spaces() == {space: 1}
