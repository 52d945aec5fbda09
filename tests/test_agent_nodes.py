"""Nodes for graphs built by hand: what each reads and returns, whose memory it is, and which chat model answers."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from conftest import contents
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from engramma import Memory
from engramma.agents import (
    Everything,
    InPrompt,
    MemoryState,
    Patterns,
    Place,
    Recalled,
    Run,
    ToolOnly,
    build_agent,
    call_model,
    chat_model,
    current_run,
    keep_last,
    memory_tools,
    persist_turn,
    place_of,
    retrieve_context,
)
from engramma.errors import InvalidInput, UnknownId
from engramma.testing import ModelServer, ScriptedChatModel, tool_call

HUMAN, AI = HumanMessage, AIMessage
TOLD, ASKED = "我叫小夏，喜欢学习。", "我叫什么？我喜欢做什么？"


def graph_of(memory: Memory, model: Any, *, saver: Any = None, context: Any = None, space: Any = None, **policies: Any) -> Any:
    """Recall, ask, write: the graph of the handbook, with the memory's tools where ``tools`` is true."""
    tools = memory_tools(memory, space=space) if policies.pop("tools", False) else []
    settings = {name: policies.pop(name) for name in ("interrupt_before",) if name in policies}
    builder = StateGraph(MemoryState, context_schema=context)
    builder.add_node("recall", retrieve_context(memory, retrieve=policies.get("retrieve"), space=space))
    builder.add_node("model", call_model(model, tools=tools, inject=policies.get("inject"), system_prompt=policies.get("prompt")))
    builder.add_node("persist", persist_turn(memory, write=policies.get("write"), space=space))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "model")
    if tools:
        builder.add_node("tools", ToolNode(tools))
        builder.add_conditional_edges("model", tools_condition, {"tools": "tools", "__end__": "persist"})
        builder.add_edge("tools", "model")
    else:
        builder.add_edge("model", "persist")
    builder.add_edge("persist", END)
    return builder.compile(checkpointer=saver, **settings)


def run_of(thread: str = "1", user: Any = None) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, **({} if user is None else {"user_id": user})}}


def asked(graph: Any, how: str, text: Any, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Invoke a graph, in either of two ways."""
    given = None if text is None else {"messages": text}
    if how == "sync":
        return graph.invoke(given, run, **more)
    return asyncio.run(graph.ainvoke(given, run, **more))


both_ways = pytest.mark.parametrize("how", ["sync", "async"])


def prompt_of(model: ScriptedChatModel) -> str:
    """All that the model was shown last."""
    return "\n".join(message.text for message in model.calls[-1])


# -- each node by itself


def state_of(**more: Any) -> dict[str, Any]:
    messages = [
        HUMAN("My name is Ana.", id="h1"),
        AI("Hello Ana.", id="a1"),
        HUMAN("I like tea.", id="h2"),
        AI("Noted.", id="a2"),
    ]
    return {"messages": messages, **more}


def nodes_of(memory: Memory) -> dict[str, tuple[Any, Any]]:
    """Every node with the function whose docstring speaks of it."""
    return {
        "retrieve_context": (retrieve_context(memory), retrieve_context),
        "call_model": (call_model(ScriptedChatModel("Hello.")), call_model),
        "persist_turn": (persist_turn(memory), persist_turn),
    }


def done(node: Any, state: Any) -> dict[str, Any]:
    return node.invoke(state) if hasattr(node, "invoke") else node(state)


ALL = ("retrieve_context", "call_model", "persist_turn")


@pytest.mark.parametrize("name", ALL)
def test_a_node_says_what_it_reads_and_returns(memory, name) -> None:
    """It is given what it says it reads, and nothing else; it returns what it says, and all of it."""
    node, maker = nodes_of(memory)[name]
    reads, returns = re.search(r"Reads: (.*?)\. Returns: (.*?)\.(?:\s|$)", maker.__doc__, re.DOTALL).groups()
    whole = state_of(current_user_text="I like tea.", memories=[], assistant_text="Noted.", saved_memories=[])
    update = done(node, {field: whole[field] for field in re.findall(r"``(\w+)``", reads)})
    assert set(update) == set(re.findall(r"``(\w+)``", returns))
    assert set(update) <= set(MemoryState.__annotations__)


@pytest.mark.parametrize("name", ALL)
def test_no_node_changes_the_state(memory, name) -> None:
    node, _ = nodes_of(memory)[name]
    memory.add("Ana likes tea.")
    memories = retrieve_context(memory)({"messages": [HUMAN("What does Ana like?")]})["memories"]
    state = state_of(current_user_text="I like tea.", memories=memories)
    before = copy.deepcopy(state)
    update = done(node, MappingProxyType(state))
    assert state == before
    assert update.get("messages") is not state["messages"]
    assert update.get("memories") is not memories


def test_state_names_what_the_nodes_share() -> None:
    assert set(MemoryState.__annotations__) == {"messages", "current_user_text", "memories", "assistant_text", "saved_memories"}


def test_a_node_by_itself_works_in_the_memorys_own_space(memory) -> None:
    persist_turn(memory)(state_of(current_user_text="I like tea."))
    assert memory.spaces() == {"default": 2}
    assert [note.session for note in memory.list()] == [None, None]


@pytest.mark.parametrize(
    "messages", [[], [AI("Welcome.")], [HUMAN("")], [HUMAN(" \n ")], [HUMAN([{"type": "image", "url": "x"}])]]
)
def test_nothing_asked_nothing_recalled(memory, messages) -> None:
    memory.add("Ana likes tea.")
    assert retrieve_context(memory)({"messages": messages}) == {"current_user_text": "", "memories": []}


def test_what_a_recalled_note_is(memory) -> None:
    note = memory.add("Ana moved to Lyon in May.", speaker="Ana", session="s1", at="2026-06-01")
    (found,) = retrieve_context(memory)({"messages": [HUMAN("Where is Lyon?")]})["memories"]
    shown = {name: found[name] for name in ("id", "content", "speaker", "session")}
    assert shown == {"id": note.id, "content": note.content, "speaker": "Ana", "session": "s1"}
    assert (found["at"], found["score"] > 0, bool(found["why"])) == ("2026-06-01T00:00:00+00:00", True, True)
    assert found["dates"] == [["in May", "2026-05-01", "2026-05-31"]]
    assert json.loads(json.dumps(found)) == found


def test_a_prompt_shows_what_a_search_would(memory) -> None:
    """Dates, ends of validity, disputes and links survive the way through the state."""
    memory.add("I live in Lyon.", speaker="Ana", at="2026-01-05")
    second = memory.add("I moved to Berlin in May.", speaker="Ana", at="2026-06-01")
    other = memory.add("Berlin has no sea.", speaker="Ana", session="s", at="2026-06-02")
    memory.link(second, other, kind="contradicts", reason="which is it")
    memory.link(other, memory.add("The Baltic is near.", at="2026-06-03"), kind="supports", reason="a map")
    options: dict[str, Any] = {"k": 5, "include": ("superseded",)}
    hits = memory.search("Berlin Lyon", **options)
    memories = retrieve_context(memory, retrieve=Recalled(**options))({"messages": [HUMAN("Berlin Lyon")]})["memories"]
    model = ScriptedChatModel("Ok.")
    call_model(model, inject=InPrompt("{memories}")).invoke({"messages": [HUMAN("?")], "memories": memories})
    assert "disputed by another note" in hits.context()
    assert "held until" in hits.context()
    assert model.calls[0][0].content == hits.context()


def test_memories_of_ones_own_making(memory) -> None:
    """A recalling node of yours needs to give texts only."""
    model = ScriptedChatModel("Ok.")
    call_model(model).invoke(
        {"messages": [HUMAN("Hi")], "memories": [{"content": "Ana likes tea."}, {"content": "小夏喜欢学习。"}]}
    )
    assert "Ana likes tea." in model.calls[0][0].text
    assert "小夏喜欢学习。" in model.calls[0][0].text


@pytest.mark.parametrize("field", [{}, {"memories": []}, {"memories": None}])
def test_no_memories_no_system_message(field) -> None:
    model = ScriptedChatModel("Ok.")
    call_model(model).invoke({"messages": [HUMAN("Hi")], **field})
    assert [message.type for message in model.calls[0]] == ["human"]


MEMORIES = [{"content": "Ana likes tea."}]


@pytest.mark.parametrize(
    ("messages", "prompt", "begins"),
    [
        ([HUMAN("Hi")], None, "Notes from"),
        ([HUMAN("Hi")], "Be brief.", "Be brief.\n\nNotes from"),
        ([SystemMessage("Be kind."), HUMAN("Hi")], None, "Be kind.\n\nNotes from"),
        ([SystemMessage("Be kind."), HUMAN("Hi")], "Be brief.", "Be kind.\n\nNotes from"),
    ],
)
def test_one_system_message_leads_the_prompt(messages, prompt, begins) -> None:
    model = ScriptedChatModel("Ok.")
    update = call_model(model, system_prompt=prompt).invoke({"messages": messages, "memories": MEMORIES})
    assert [message.type for message in model.calls[0]] == ["system", "human"]
    assert model.calls[0][0].text.startswith(begins)
    assert update["messages"][0].text == update["assistant_text"] == "Ok."
    assert messages[0].text in ("Hi", "Be kind.")


def test_system_message_in_blocks() -> None:
    model = ScriptedChatModel("Ok.")
    system = SystemMessage([{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}])
    call_model(model).invoke({"messages": [system, HUMAN("Hi")], "memories": MEMORIES})
    shown = model.calls[0][0].content
    assert shown[0] == system.content[0]
    assert "Ana likes tea." in shown[1]["text"]
    assert len(system.content) == 1


def test_a_call_of_tools_is_no_answer(memory) -> None:
    model = ScriptedChatModel(tool_call("search_memory", query="tea"))
    update = call_model(model, tools=memory_tools(memory)).invoke({"messages": [HUMAN("Hi")]})
    assert update["assistant_text"] == ""
    assert model.bound_tools == ["save_memory", "search_memory", "update_memory", "forget_memory"]


def test_a_runnable_as_the_model(memory) -> None:
    """A chain of yours answers; tools that nobody could bind are an error and not dropped in silence."""
    chain = RunnableLambda(lambda messages: AI(f"{len(messages)} messages"))
    assert call_model(chain).invoke({"messages": [HUMAN("Hi")], "memories": MEMORIES})["assistant_text"] == "2 messages"
    with pytest.raises(InvalidInput, match=r"bind_tools\(tools\)"):
        call_model(chain, tools=memory_tools(memory))


# -- what is written


@pytest.mark.parametrize(
    ("messages", "user", "assistant"),
    [
        ([HUMAN("I like tea."), AI("Noted.")], "I like tea.", "Noted."),
        ([HUMAN("One."), AI("1."), HUMAN("Two."), AI("2.")], "Two.", "2."),
        ([HUMAN("I like tea."), HUMAN("And chess."), AI("Noted.")], "I like tea.\nAnd chess.", "Noted."),
        ([HUMAN("Again."), HUMAN("Again."), AI("Noted.")], "Again.", "Noted."),
        ([SystemMessage("Be kind."), HUMAN("I like tea."), AI("Noted.")], "I like tea.", "Noted."),
        ([HUMAN([{"type": "text", "text": "我爱"}, {"type": "image", "url": "x"}, {"type": "text", "text": "茶"}]), AI("好。")],
         "我爱茶", "好。"),
        ([HUMAN("Hi"), AI([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Hello."}])], "Hi", "Hello."),
        ([HUMAN("Look it up."), tool_call("search_memory", query="tea"), ToolMessage("tea", tool_call_id="c"), AI("It is tea.")],
         "Look it up.", "It is tea."),
        ([HUMAN("Summary of old talk", additional_kwargs={"lc_source": "summarization"}), HUMAN("I like tea."), AI("Ok.")],
         "I like tea.", "Ok."),
        ([HUMAN([{"type": "image", "url": "x"}]), AI("A cat.")], None, "A cat."),
        ([HUMAN("Hi"), AI("")], "Hi", None),
    ],
)  # fmt: skip
def test_what_a_turn_is(memory, messages, user, assistant) -> None:
    update = persist_turn(memory)({"messages": messages})
    saved = {one["speaker"]: one["content"] for one in update["saved_memories"]}
    assert saved == {who: text for who, text in (("user", user), ("assistant", assistant)) if text}
    assert update["assistant_text"] == (assistant or "")
    assert sorted(contents(memory.list())) == sorted(saved.values())


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HUMAN("Hi")],
        [HUMAN("Hi"), tool_call("search_memory", query="tea")],
        [HUMAN("Hi"), tool_call("a"), ToolMessage("b", tool_call_id="c")],
        [HUMAN("Hi"), AI("", invalid_tool_calls=[{"name": "a", "args": "{", "id": "1", "error": None}])],
    ],
    ids=["empty", "unanswered", "calling", "called", "broken call"],
)
def test_nothing_is_written_before_the_answer(memory, messages) -> None:
    assert persist_turn(memory)({"messages": messages}) == {"assistant_text": "", "saved_memories": []}
    assert memory.list() == []


def test_text_that_recall_found_out_is_the_text_that_is_kept(memory) -> None:
    """A node of yours may clean what the user says, or a strategy may have cut the message off."""
    persist_turn(memory)(
        {"messages": [HUMAN("umm i like, like, tea", id="h"), AI("Ok.", id="a")], "current_user_text": "I like tea."}
    )
    persist_turn(memory)({"messages": [AI("Sure.", id="b")], "current_user_text": "I like chess."})
    assert contents(memory.list()) == ["I like tea.", "Ok.", "I like chess.", "Sure."]


def test_twice_the_same_turn_is_written_once(memory) -> None:
    node = persist_turn(memory)
    first, second = node(state_of(current_user_text="I like tea.")), node(state_of(current_user_text="I like tea."))
    assert first == second
    assert len(memory.log(limit=None)) == 2


def test_the_same_words_in_another_turn_are_the_same_note(memory) -> None:
    node = persist_turn(memory)
    state = {"messages": [HUMAN("I like tea."), AI("Noted.")]}  # no ids, as in a state of one's own
    first, second = node(state), node(state)
    assert first["saved_memories"][0] == second["saved_memories"][0]
    assert contents(memory.list()).count("I like tea.") == 1


def block_of(memory: Memory) -> str:
    return memory.search("Lyon").context()


@pytest.mark.parametrize("where", ["before", "behind", "alone"])
def test_pasted_and_echoed_memories_are_not_stored_again(memory, where) -> None:
    memory.add("I live in Lyon.")
    block = block_of(memory)
    texts = {"before": f"{block}\nI like tea.", "behind": f"I like tea.\n{block}", "alone": block}
    messages = [HUMAN(texts[where]), AI(texts[where].replace("I like tea.", "You like tea."))]
    found = retrieve_context(memory)({"messages": messages[:1]})
    update = persist_turn(memory)({"messages": messages, "current_user_text": found["current_user_text"]})
    expected = [] if where == "alone" else ["I like tea.", "You like tea."]
    assert [one["content"] for one in update["saved_memories"]] == expected
    assert contents(memory.list()) == ["I live in Lyon.", *expected]
    assert "memories" not in found["current_user_text"]


def test_pasted_memories_of_ones_own_state(memory) -> None:
    memory.add("I live in Lyon.")
    state = {"messages": [HUMAN("x"), AI("Ok.")], "current_user_text": f"I like tea. {block_of(memory)}"}
    persist_turn(memory)(state)
    assert contents(memory.list())[1] == "I like tea."


def test_big_texts(memory) -> None:
    big = "我在日记里写了很多关于茶的事。" * 20_000
    state = {"messages": [HUMAN(big, id="h"), AI("word " * 50_000, id="a")]}
    persist_turn(memory)({**state, **retrieve_context(memory)({"messages": state["messages"][:1]})})
    assert [len(note.content) for note in memory.list()] == [len(big), 249_999]


# -- in a graph


@both_ways
def test_told_in_one_thread_asked_in_another(memory, how) -> None:
    model = ScriptedChatModel("你好，小夏！", "你叫小夏，喜欢学习。", "我不知道。")
    graph = graph_of(memory, model, saver=InMemorySaver())
    first = asked(graph, how, TOLD, run_of("1", "夏"))
    assert (first["current_user_text"], first["memories"], first["assistant_text"]) == (TOLD, [], "你好，小夏！")
    assert [one["content"] for one in first["saved_memories"]] == [TOLD, "你好，小夏！"]
    second = asked(graph, how, ASKED, run_of("2", "夏"))
    assert TOLD in prompt_of(model)
    assert TOLD in [one["content"] for one in second["memories"]]
    assert second["assistant_text"] == "你叫小夏，喜欢学习。"
    asked(graph, how, ASKED, run_of("3", "秋"))
    assert prompt_of(model) == ASKED
    assert {note.session for note in memory.list(space="夏")} == {"1", "2"}


def saved_thread(graph: Any, run: dict[str, Any]) -> str:
    return "\n".join(message.text for message in graph.get_state(run).values["messages"])


@both_ways
def test_the_messages_of_a_thread_hold_no_recalled_text(memory, how) -> None:
    memory.add("小夏对花生过敏。")
    model = ScriptedChatModel("别吃花生。")
    graph = graph_of(memory, model, saver=InMemorySaver())
    asked(graph, how, "小夏能吃花生吗？", run_of())
    assert "小夏对花生过敏" in prompt_of(model)
    assert saved_thread(graph, run_of()) == "小夏能吃花生吗？\n别吃花生。"


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What langgraph says of values that a checkpoint cannot hold well."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("langgraph")]


def test_state_goes_through_sqlite(memory, tmp_path, caplog) -> None:
    """All of the state is plain data: it comes back from a file as it was, and the next turn goes on."""
    memory.add("Ana moved to Lyon in May.", at="2026-06-01")
    with closing(sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)) as connection:
        graph = graph_of(memory, ScriptedChatModel("In May."), saver=SqliteSaver(connection))
        result = graph.invoke({"messages": "When did Ana move to Lyon?"}, run_of())
    with closing(sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)) as connection:
        again = graph_of(memory, ScriptedChatModel("Yes."), saver=SqliteSaver(connection))
        values = again.get_state(run_of()).values
        assert values == result
        assert again.invoke({"messages": "Sure?"}, run_of())["assistant_text"] == "Yes."
    assert complaints(caplog) == []


def test_state_goes_through_sqlite_awaited(memory, tmp_path, caplog) -> None:
    memory.add("Ana moved to Lyon in May.", at="2026-06-01")

    async def talk() -> tuple[dict[str, Any], dict[str, Any]]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            graph = graph_of(memory, ScriptedChatModel("In May."), saver=saver)
            result = await graph.ainvoke({"messages": "When did Ana move to Lyon?"}, run_of())
            return result, (await graph.aget_state(run_of())).values

    result, values = asyncio.run(talk())
    assert values == result
    assert complaints(caplog) == []
    assert result["memories"][0]["content"] == "Ana moved to Lyon in May."


@both_ways
def test_with_tools(memory, how) -> None:
    """Recall once, as many calls of tools as it takes, one turn written."""
    memory.add("I like tea.", space="ana")
    script = [tool_call("search_memory", query="tea"), tool_call("save_memory", content="Ana likes green tea."), "You like tea."]
    model = ScriptedChatModel(*script)
    graph = graph_of(memory, model, saver=InMemorySaver(), tools=True)
    result = asked(graph, how, "What do I like? Green tea, by the way.", run_of("1", "ana"))
    assert [call[0].text.count("I like tea.") for call in model.calls] == [1, 1, 1]
    assert result["assistant_text"] == "You like tea."
    assert [one["speaker"] for one in result["saved_memories"]] == ["user", "assistant"]
    assert contents(memory.list(space="ana")) == [
        "I like tea.", "Ana likes green tea.", "What do I like? Green tea, by the way.", "You like tea.",
    ]  # fmt: skip


@both_ways
def test_interrupted_and_resumed(memory, how) -> None:
    """What was recalled is in the state, so that the model sees it after the break too; the turn is written once."""
    memory.add("I like tea.")
    model = ScriptedChatModel(tool_call("search_memory", query="tea"), "You like tea.")
    graph = graph_of(memory, model, saver=InMemorySaver(), tools=True, interrupt_before=["tools"])
    asked(graph, how, "What tea do I like?", run_of())
    assert graph.get_state(run_of()).next == ("tools",)
    assert len(memory.list()) == 1
    result = asked(graph, how, None, run_of())
    assert "I like tea." in model.calls[-1][0].text
    assert [one["content"] for one in result["saved_memories"]] == ["What tea do I like?", "You like tea."]
    assert len(memory.list()) == 3


@both_ways
def test_failing_model(memory, how) -> None:
    """Nothing is written of a turn that failed; the next one works and keeps both."""
    graph = graph_of(memory, ScriptedChatModel(ConnectionError("the model is down"), "Hello Ana."), saver=InMemorySaver())
    with pytest.raises(ConnectionError, match="down"):
        asked(graph, how, "My name is Ana.", run_of())
    assert memory.list() == []
    result = asked(graph, how, "Are you there?", run_of())
    assert result["current_user_text"] == "My name is Ana.\nAre you there?"
    assert contents(memory.list()) == ["My name is Ana.\nAre you there?", "Hello Ana."]


def test_policies_of_ones_own(memory) -> None:
    seen: list[Any] = []

    def write(turn: Any) -> list[Any]:
        seen.append((turn.user, turn.assistant, turn.place))
        return [turn.user.upper(), {"content": turn.assistant, "speaker": "assistant", "tags": ["reply"]}]

    def retrieve(query: str, memory: Memory, place: Place) -> Any:
        seen.append((query, place))
        return memory.search("tea", space=place.space, min_relevance=0.0)

    def inject(system: Any, hits: Any) -> SystemMessage:
        return SystemMessage(f"{len(hits)} notes, {system}")

    memory.add("I like tea.", space="ana")
    model = ScriptedChatModel("Noted.")
    graph = graph_of(memory, model, write=write, retrieve=retrieve, inject=inject)
    graph.invoke({"messages": "hello"}, run_of("t", "ana"))
    assert seen == [("hello", Place("ana", "t")), ("hello", "Noted.", Place("ana", "t"))]
    assert model.calls[0][0].text == "1 notes, None"
    assert contents(memory.list(space="ana")) == ["I like tea.", "HELLO", "Noted."]
    assert memory.list(space="ana")[2].tags[0] == "reply"
    assert list(memory.spaces()) == ["ana"]


def test_policies_of_ours(memory) -> None:
    model = ScriptedChatModel("I cannot say.")
    graph = graph_of(memory, model, write=Patterns(), inject=ToolOnly(), retrieve=Recalled(k=1, last=0))
    for text in ("What is my name?", "My name is Ana.", "What is my name?"):
        result = graph.invoke({"messages": text}, run_of())
    assert contents(memory.list()) == ["My name is Ana."]
    assert prompt_of(model) == "What is my name?"
    assert len(result["memories"]) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("I like tea.", "not a list"),
        (None, "not a list"),
        ({"content": "I like tea."}, "not a list"),
        ([{"text": "I like tea."}], "a text, or a dict with a text as 'content'"),
        ([{"content": None}], "a text, or a dict with a text as 'content'"),
        ([None], "a text, or a dict with a text as 'content'"),
        ([{"content": "I like tea.", "colour": "green"}], "unknown field 'colour'"),
    ],
    ids=["text", "none", "dict", "other key", "no text", "no memo", "unknown field"],
)
def test_write_policy_that_gives_something_else(memory, given, told) -> None:
    """Nothing of it is kept by accident, letter by letter say, and nothing is dropped in silence."""
    with pytest.raises(InvalidInput, match=told):
        persist_turn(memory, write=lambda turn: given)(state_of())
    assert memory.list() == []


@pytest.mark.parametrize("given", [None, "I like tea.", ["I like tea."], [{"content": "I like tea."}]])
def test_retrieve_policy_that_gives_something_else(memory, given) -> None:
    with pytest.raises(InvalidInput, match=r"not hits: return what memory\.search\(\) returns"):
        retrieve_context(memory, retrieve=lambda query, memory, place: given)(state_of())


# -- whose memory: Run and Place


@dataclass
class Context:
    user_id: Any = None


@pytest.mark.parametrize(
    ("context", "configurable", "user"),
    [
        (None, {}, None),
        (None, {"user_id": "ana"}, "ana"),
        ({"user_id": "bo"}, {"user_id": "ana"}, "bo"),
        ({"other": 1}, {"user_id": "ana"}, "ana"),
        (Context("bo"), {"user_id": "ana"}, "bo"),
        (Context(), {"user_id": "ana"}, "ana"),
        (Context(0), {"user_id": "ana"}, 0),
        (Context(""), {"user_id": "ana"}, ""),
        (object(), {"user_id": "ana"}, "ana"),
        ("text", {}, None),
    ],
)
def test_user_of_a_run(context, configurable, user) -> None:
    assert Run(context, configurable).user_id == user


@pytest.mark.parametrize(("thread", "session"), [(None, None), ("", None), ("t", "t"), (5, "5"), (0, "0"), ("线", "线")])
def test_session_of_a_run(memory, thread, session) -> None:
    assert place_of(Run(None, {"thread_id": thread}), memory) == Place("default", session)


def test_order_of_what_names_a_space(opened) -> None:
    memory = opened(":memory:", space="own")
    by_team = lambda run: run.configurable.get("team")  # noqa: E731
    full = {"user_id": "configured", "team": "web"}
    assert place_of(Run(Context("context"), full), memory, by_team).space == "context"
    assert place_of(Run(Context(), full), memory, by_team).space == "configured"
    assert place_of(Run(Context(), {"team": "web"}), memory, by_team).space == "web"
    assert place_of(Run(Context(), {}), memory, lambda run: memory.space).space == "own"
    assert place_of(Run(Context(), {}), memory, ("team", "web")).space == ("team", "web")
    assert place_of(Run(), memory).space == "own"


NONE, MISSPELT = {"user_id": None}, {"userId": "ana"}


@pytest.mark.parametrize(
    ("run", "space", "told"),
    [
        (Run(None, NONE), None, "user_id=None names no user: give the user's id, as in {'configurable': {'user_id': 'ana'}}"),
        (Run(NONE), None, "which works in the memory's own space, leaves the key 'user_id' out"),
        (Run(NONE, NONE), "team", "which works in the one that space= says, leaves the key"),
        (Run(Context(), NONE), None, "user_id=None names no user"),
        (Run(None, MISSPELT), None, "the run has 'userId', which names no user: write 'user_id'"),
        (Run({"user-id": "ana"}), None, "'user-id'"),
        (Run(type("Given", (), {"__init__": lambda self: vars(self).update(userid=5)})()), None, "'userid'"),
        (Run(), lambda run: None, "space(run)=None names no space: give a text, a whole number, a UUID or a tuple of texts; "
         "memory.space is the memory's own"),
        (Run(None, {"thread_id": "1", "__pregel_x": 1}), lambda run: ("team", run.configurable["team"]),
         "space(run) failed with KeyError('team'); the run's configurable holds thread_id: give the run what the function "
         "reads, as in {'configurable': {'team': …}}"),
        (Run(), lambda run: run.context.team, "space(run) failed with AttributeError("),
    ],
)  # fmt: skip
def test_no_run_falls_back_to_a_shared_memory_by_mistake(memory, run, space, told) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        place_of(run, memory, space)


def test_runs_that_mean_no_user(memory) -> None:
    assert place_of(Run(Context()), memory).space == "default"  # an Optional field that is not filled in
    assert place_of(Run(NONE, {"user_id": "ana"}), memory).space == "ana"
    assert place_of(Run(None, MISSPELT), memory, lambda run: run.configurable["userId"]).space == "ana"


@pytest.mark.parametrize("run", [Run(), Run(Context(), {"thread_id": "1"}), Run(NONE, NONE), Run("text")])
@pytest.mark.parametrize("space", [None, "team", lambda run: "team"])
def test_a_user_can_be_required(memory, run, space) -> None:
    with pytest.raises(InvalidInput, match=r"this run names no user, and require_user=True; invoke it with \{'configurable'"):
        place_of(run, memory, space, require_user=True)
    assert place_of(Run(Context("ana")), memory, space, require_user=True).space == "ana"


def test_errors_of_ones_own_space_function_come_through(memory) -> None:
    with pytest.raises(UnknownId, match="01ABC"):
        place_of(Run(), memory, lambda run: memory.get("01ABC").space)
    with pytest.raises(ZeroDivisionError):
        place_of(Run(), memory, lambda run: 1 // 0)


@both_ways
@pytest.mark.parametrize("node", ["retrieve_context", "persist_turn"])
def test_a_node_can_require_a_user(memory, how, node) -> None:
    made = {"retrieve_context": retrieve_context, "persist_turn": persist_turn}[node](memory, require_user=True)
    graph = StateGraph(MemoryState).add_node("node", made).add_edge(START, "node").compile()
    turn = [HUMAN("I like tea."), AI("Noted.")] if node == "persist_turn" else "I like tea."
    with pytest.raises(InvalidInput, match="this run names no user, and require_user=True"):
        asked(graph, how, turn, run_of("1"))
    asked(graph, how, turn, run_of("1", "ana"))
    assert set(memory.spaces()) <= {"ana"}


@pytest.mark.parametrize("node", [retrieve_context, persist_turn])
def test_wrong_arguments_of_a_node_are_told_at_once(memory, node) -> None:
    with pytest.raises(InvalidInput, match=r"memory='memory.db' is not an open memory"):
        node("memory.db")
    with pytest.raises(InvalidInput, match=r"space=\['team'\] is not a space"):
        node(memory, space=["team"])
    policy = "write" if node is persist_turn else "retrieve"
    with pytest.raises(InvalidInput, match=f"{policy}=Patterns is a class: give one of its objects"):
        node(memory, **{policy: Patterns})
    with pytest.raises(InvalidInput, match="inject=InPrompt is a class"):
        call_model(ScriptedChatModel("ok"), inject=InPrompt)


# -- an agent that is built


@tool
def search_memory(query: str) -> str:
    """Another package's tool of the same name."""
    return query


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"memory": "memory.db"}, "memory='memory.db' is not an open memory: give Memory.open('memory.db')"),
        ({"short_term": "last:20"}, "short_term='last:20' is no middleware: give keep_last(20), token_budget(4000)"),
        ({"short_term": keep_last}, "is no middleware: give keep_last(20)"),
        ({"short_term": [keep_last(2), 20]}, "short_term=20 is no middleware"),
        ({"middleware": [ScriptedChatModel("x")]}, "is no middleware: give objects of LangChain's AgentMiddleware"),
        ({"memory_tools": "search_memory"}, "'search_memory' is not a list of names: give ['search_memory']"),
        ({"memory_tools": ["search"]}, "'search' is no memory tool: they are save_memory,"),
        ({"space": ["team"]}, "space=['team'] is not a space"),
        ({"model": None}, "no chat model is set"),
        ({"tools": [search_memory]}, "two tools are called 'search_memory', yours and the memory's: leave the memory's out with "
         "memory_tools=False or memory_tools=['save_memory', 'update_memory', 'forget_memory']"),
        ({"tools": [{"name": "save_memory"}]}, "two tools are called 'save_memory'"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_be_built(memory, given, told) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)):
        build_agent(**{"model": ScriptedChatModel("x"), "memory": memory, **given})


def test_a_tool_of_the_same_name_in_place_of_the_memorys(memory) -> None:
    for kept, shown in ((False, []), (["save_memory"], ["save_memory"])):
        model = ScriptedChatModel("ok")
        agent = build_agent(model, memory, tools=[search_memory], memory_tools=kept, short_term=None)
        assert sorted(agent.nodes["tools"].bound.tools_by_name) == [*shown, "search_memory"]
        agent.invoke({"messages": "Hello!"}, run_of("1"))


@both_ways
def test_an_agent_can_require_a_user(memory, how) -> None:
    model = ScriptedChatModel("Noted.")
    agent = build_agent(model, memory, require_user=True, space="team")
    with pytest.raises(InvalidInput, match="this run names no user"):
        asked(agent, how, "I like tea.", run_of("1"))
    assert (model.calls, memory.spaces()) == ([], {})
    asked(agent, how, "I like tea.", run_of("1", "ana"))
    assert memory.spaces() == {"ana": 2}


@pytest.mark.parametrize("user", ["", (), ("a", ""), True, 1.5, [""], b"ana", {"id": 1}, "a\ud800"])
@pytest.mark.parametrize("how", ["context", "configurable", "function"])
def test_unusable_space_is_never_the_default(memory, user, how) -> None:
    run = Run(Context(user)) if how == "context" else Run(None, {"user_id": user} if how == "configurable" else {})
    with pytest.raises(InvalidInput, match=re.escape(repr(user)) + " names no space: give a text, a whole number, a UUID"):
        place_of(run, memory, (lambda run: user) if how == "function" else lambda run: "function")


def test_no_run(memory) -> None:
    assert current_run() == Run()
    assert current_run(run_of("t", "ana")) == Run(None, {"thread_id": "t", "user_id": "ana"})


@both_ways
@pytest.mark.parametrize("user", ["ana", 7, ("team", "web"), "ana@example.com", "小夏"])
def test_users_of_a_graph(memory, how, user) -> None:
    memory.add("The memory's own secret about tea.")
    model = ScriptedChatModel("Noted.")
    graph = graph_of(memory, model, saver=InMemorySaver(), context=Context)
    asked(graph, how, "I like tea.", run_of("1"), context=Context(user))
    asked(graph, how, "What about tea?", run_of("2"), context=Context(user))
    assert "I like tea." in prompt_of(model)
    assert "secret" not in prompt_of(model)
    assert memory.spaces() == {"default": 1, (str(user) if isinstance(user, int) else user): 4}


@both_ways
def test_unusable_user_of_a_graph(memory, how) -> None:
    memory.add("The memory's own secret about tea.")
    model = ScriptedChatModel("Noted.")
    with pytest.raises(InvalidInput, match="user_id='' names no space"):
        asked(graph_of(memory, model), how, "What about tea?", run_of("1", ""))
    assert (model.calls, memory.spaces()) == ([], {"default": 1})


def test_space_from_a_function_in_a_graph(memory) -> None:
    graph = graph_of(memory, ScriptedChatModel("Noted."), space=lambda run: ("team", run.configurable["team"]))
    graph.invoke({"messages": "The release is on Friday."}, {"configurable": {"team": "web"}})
    assert memory.spaces() == {("team", "web"): 2}


def test_two_users_at_once(memory) -> None:
    """Ten users in one graph, awaited together: each sees their own notes and nobody else's."""
    model = ScriptedChatModel(lambda messages: " ".join(re.findall(r"user\d-word", messages[0].text)))
    graph = graph_of(memory, model, write=Everything(assistant=False))
    users = [f"user{number}" for number in range(10)]

    async def talk() -> list[dict[str, Any]]:
        await asyncio.gather(*(graph.ainvoke({"messages": f"My code word is {user}-word."}, run_of("1", user)) for user in users))
        rounds = [user for user in users for _ in range(5)]
        return await asyncio.gather(*(graph.ainvoke({"messages": "What is my code word?"}, run_of("2", user)) for user in rounds))

    for number, result in enumerate(asyncio.run(talk())):
        assert set(result["assistant_text"].split()) == {f"{users[number // 5]}-word"}


# -- which model answers


def test_a_chat_model_is_itself() -> None:
    model = ScriptedChatModel("Hi")
    assert chat_model(model) is model


def test_ollama() -> None:
    model = chat_model("ollama:qwen2.5:7b")
    assert isinstance(model, ChatOllama)
    assert (model.model, model.base_url) == ("qwen2.5:7b", "http://localhost:11434")


def test_ollama_elsewhere(monkeypatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "box:9999")
    assert chat_model("ollama:qwen2.5:7b").base_url == "http://box:9999"
    assert chat_model("ollama:qwen2.5:7b", base_url="http://other:1", temperature=0).base_url == "http://other:1"


@pytest.mark.parametrize(("url", "name"), [("http://127.0.0.1:9/v1#qwen", "qwen"), ("https://box/v1", "default")])
def test_openai_compatible_server(monkeypatch, url, name) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = chat_model(url)
    assert isinstance(model, ChatOpenAI)
    assert (model.model_name, model.openai_api_base) == (name, url.partition("#")[0])


@pytest.mark.parametrize("name", ["openai:gpt-4o-mini", "gpt-4o-mini"])
def test_openai_needs_a_key(monkeypatch, name) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match=f"model='{name}' needs OPENAI_API_KEY"):
        chat_model(name)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert isinstance(chat_model(name), ChatOpenAI)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "no chat model is set. Three ways to get one"),
        ("", "ollama pull"),
        ("none", "gguf:"),
        ("nonsense:x", "model='nonsense:x' is not known: use 'ollama:qwen2.5:7b'"),
        ("nonsense", "model='nonsense' is not known"),
        (" ", "model=' ' is not known"),
        ("ollama:", "model='ollama:' lacks the name of the model"),
        ("openai: ", "model='openai: ' lacks the name"),
        ("gguf:", "lacks the name"),
        ("gguf:/nowhere/model.gguf", "there is no GGUF file at '/nowhere/model.gguf'"),
        ("deepseek:deepseek-chat", "pip install langchain-deepseek"),
        (5, "model=5 is neither a text nor a chat model"),
        (["ollama:qwen"], "neither a text nor a chat model"),
    ],
)
def test_no_model(name, told) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)) as raised:
        chat_model(name)
    assert "--model" not in str(raised.value)


def test_without_a_model_one_is_told_what_to_write_in_python() -> None:
    with pytest.raises(InvalidInput) as raised:
        chat_model(None)
    named = re.findall(r'model="(.+?)"', str(raised.value))
    assert [one.partition(":")[0] for one in named] == ["ollama", "openai", "http", "gguf"]
    assert "ENGRAMMA_LLM" not in str(raised.value)  # Python code names its model


@pytest.mark.parametrize("name", ["ollama:qwen", "http://{url}#qwen"])
def test_model_by_name_in_a_graph(memory, monkeypatch, name) -> None:
    """The names work where a model is asked for, and the prompt reaches the server they mean."""
    memory.add(TOLD)
    with ModelServer("你叫小夏。") as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        model = name.replace("http://{url}", server.openai_url)
        result = graph_of(memory, model, prompt="Be brief.").invoke({"messages": ASKED}, run_of())
        (request,) = server.requests
    assert result["assistant_text"] == "你叫小夏。"
    system, user = request.messages
    assert (system["role"], user) == ("system", {"role": "user", "content": ASKED})
    assert system["content"].startswith("Be brief.")
    assert TOLD in system["content"]
    assert [one["content"] for one in result["saved_memories"]] == [ASKED, "你叫小夏。"]
