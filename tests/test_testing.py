"""What ships to test agents with: a scripted LangChain model, and a model server that real clients talk to."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import date
from threading import Barrier, Event
from typing import Any, TypedDict

import numpy as np
import ollama
import openai
import pytest
from conftest import entry, reply, within
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.tools import tool as as_tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

import engramma.testing
from engramma import Memory
from engramma.errors import InvalidInput, ModelError, ModelTimeout, ModelUnavailable
from engramma.models import resolve_embedder, resolve_llm
from engramma.models.openai_compatible import OpenAIChat
from engramma.testing import HashEmbedder, ModelServer, ScriptedChatModel, ServedRequest, tool_call
from engramma.testing.wire import pieces, word_count

ENGLISH = "You like tea, strong and black."
CHINESE = "你去年三月从里昂搬到柏林,喜欢喝浓茶。"
MIXED = "  She said:\n\n「我爱 Python 3.11」 — twice!  "
TEXTS = [ENGLISH, CHINESE, MIXED, "", " \n", "🙂", "a", "我", "字" * 3000, "word " * 3000]
SEARCH = {"tool": "search_memory", "args": {"query": "喝茶 tea", "k": 3}}


@as_tool
def search_memory(query: str, k: int = 5) -> str:
    """Search what is remembered."""
    return f"{k} notes about {query}"


class Verdict(BaseModel):
    """What to keep."""

    keep: bool


class Asked(TypedDict):
    """A question."""

    text: str


def plain_function(text: str) -> str:
    """Say it again."""
    return text


# -- four ways to ask, all giving a whole message


def summed(chunks: list[Any]) -> AIMessage:
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


async def collected(model: Any, shown: Any) -> list[Any]:
    return [chunk async for chunk in model.astream(shown)]


ASK: dict[str, Callable[[Any, Any], AIMessage]] = {
    "invoke": lambda model, shown: model.invoke(shown),
    "ainvoke": lambda model, shown: asyncio.run(model.ainvoke(shown)),
    "stream": lambda model, shown: summed(list(model.stream(shown))),
    "astream": lambda model, shown: summed(asyncio.run(collected(model, shown))),
}
CLIENT: dict[str, Callable[..., Any]] = {
    "ollama": lambda server, **settings: ChatOllama(model="qwen", base_url=server.url, **settings),
    "openai": lambda server, **settings: ChatOpenAI(
        model="qwen", base_url=server.openai_url, api_key="none", stream_usage=True, **settings
    ),
}
asked = pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
clients = pytest.mark.parametrize("client", CLIENT.values(), ids=CLIENT)


def calls_of(message: AIMessage) -> list[tuple[str, dict[str, Any]]]:
    return [(call["name"], call["args"]) for call in message.tool_calls]


# -- what is there


def test_all_can_be_imported() -> None:
    for name in engramma.testing.__all__:
        assert getattr(engramma.testing, name).__doc__
    assert set(engramma.testing.__all__) <= set(dir(engramma.testing))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = engramma.testing.nonsense


WITHOUT_LANGCHAIN = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith(("langchain", "langgraph")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from engramma.errors import MissingExtra
from engramma.testing import HashEmbedder, ModelServer, ScriptedLLM
for name in ("ScriptedChatModel", "tool_call"):
    try:
        getattr(__import__("engramma.testing").testing, name)
    except MissingExtra as error:
        print(error)
"""


def test_without_langchain() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_LANGCHAIN], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("'langchain_core'" in line and "pip install 'engramma[langgraph]'" in line for line in lines)
    assert "engramma.testing.tool_call" in lines[1]


def test_langchain_is_imported_only_when_it_is_used() -> None:
    code = "import sys, engramma.testing; from engramma.testing import ModelServer; print('langchain_core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# -- words


@settings(deadline=None)  # the first Chinese word loads a dictionary
@given(st.text() | st.text("我去年三月从里昂搬到柏林,。「」 \n　a1", max_size=60))
def test_pieces_joined_are_the_text(text: str) -> None:
    parts = list(pieces(text))
    assert "".join(parts) == text
    assert all(parts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENGLISH, 6),
        ("", 0),
        ("  \n", 0),
        ("  one\ttwo\n", 2),
        ("don't stop", 2),
        ("我搬到柏林。", 4),
        ("我爱Python。", 3),
        ("🙂", 1),
    ],
)
def test_words_are_counted(text: str, words: int) -> None:
    assert word_count(text) == words


def test_half_a_character_breaks_nothing() -> None:
    assert "".join(pieces("我\ud83d爱 a\udc00")) == "我\ud83d爱 a\udc00"


# -- ScriptedChatModel


@asked
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_said(ask, text) -> None:
    message = ask(ScriptedChatModel(text), "hello")
    assert (message.content, message.tool_calls) == (text, [])


@asked
def test_replies_come_in_order_and_the_last_repeats(ask) -> None:
    model = ScriptedChatModel("one", AIMessage("two"), lambda messages: f"I heard {messages[-1].content}")
    assert [ask(model, text).content for text in "abcd"] == ["one", "two", "I heard c", "I heard d"]
    assert [[message.content for message in call] for call in model.calls] == [["a"], ["b"], ["c"], ["d"]]


@asked
def test_a_function_may_return_any_reply(ask) -> None:
    outcomes = iter(["text", AIMessage("message"), tool_call("search_memory", query="x"), ValueError("no"), 7])
    model = ScriptedChatModel(lambda messages: next(outcomes))
    assert [ask(model, "q").content for _ in range(2)] == ["text", "message"]
    assert calls_of(ask(model, "q")) == [("search_memory", {"query": "x"})]
    with pytest.raises(ValueError, match="no"):
        ask(model, "q")
    with pytest.raises(InvalidInput, match="a reply function returned 7"):
        ask(model, "q")


def test_a_function_is_shown_messages() -> None:
    shown: list[list[type[BaseMessage]]] = []

    def look(messages: list[BaseMessage]) -> str:
        shown.append([type(message) for message in messages])
        return "ok"

    ScriptedChatModel(look).invoke([("system", "s"), ("user", "u")])
    assert shown == [[SystemMessage, HumanMessage]]


@asked
def test_an_exception_is_raised_as_it_is(ask) -> None:
    problem = ModelTimeout("too slow")
    model = ScriptedChatModel(problem, "fine")
    with pytest.raises(ModelTimeout) as raised:
        ask(model, "q")
    assert raised.value is problem
    assert ask(model, "q").content == "fine"
    assert len(model.calls) == 2


@asked
def test_every_answer_is_another_message(ask) -> None:
    given = AIMessage("yes", id="mine", tool_calls=[{"name": "a", "args": {"x": [1]}, "id": "call-1"}])
    model = ScriptedChatModel(given)
    answers = [ask(model, "q") for _ in range(3)]
    assert len({answer.id for answer in answers} | {"mine"}) == 4
    assert len({answer.tool_calls[0]["id"] for answer in answers}) == 3
    assert answers[0].tool_calls[0]["id"] == "call-1"
    answers[0].tool_calls[0]["args"]["x"].append(2)
    assert (ask(model, "q").tool_calls[0]["args"], given.id) == ({"x": [1]}, "mine")


def test_ids_among_content_blocks_are_renewed_too() -> None:
    blocks = [{"type": "text", "text": "Wait."}, {"type": "tool_call", "name": "a", "args": {}, "id": "one"}]
    model = ScriptedChatModel(AIMessage(content_blocks=blocks))
    model.invoke("q")
    again = model.invoke("q")
    (call,) = [block for block in again.content_blocks if block["type"] == "tool_call"]
    assert call["id"] == again.tool_calls[0]["id"] != "one"


@asked
def test_content_in_blocks(ask) -> None:
    blocks = [{"type": "text", "text": "one "}, {"type": "text", "text": "二"}, "three"]
    assert ask(ScriptedChatModel(AIMessage(blocks)), "q").content == blocks


@asked
def test_what_a_message_says_besides_is_kept(ask) -> None:
    usage = {"input_tokens": 70, "output_tokens": 9, "total_tokens": 79}
    given = AIMessage("a b", usage_metadata=usage, response_metadata={"k": 1}, additional_kwargs={"reasoning_content": "hm"})
    message = ask(ScriptedChatModel(given), "q")
    assert message.usage_metadata == usage
    assert message.response_metadata == {"model_name": "scripted", "k": 1}
    assert message.additional_kwargs == {"reasoning_content": "hm"}


@asked
def test_broken_tool_arguments(ask) -> None:
    given = AIMessage("", invalid_tool_calls=[{"name": "a", "args": "not json", "id": "1", "error": None}])
    (broken,) = ask(ScriptedChatModel(given), "q").invalid_tool_calls
    assert (broken["name"], broken["args"]) == ("a", "not json")


@asked
def test_tool_calls(ask) -> None:
    both = AIMessage("Both.", tool_calls=[*tool_call("a", x={"深": [1, None]}).tool_calls, *tool_call("b").tool_calls])
    message = ask(ScriptedChatModel(both), "q")
    assert calls_of(message) == [("a", {"x": {"深": [1, None]}}), ("b", {})]
    assert message.content == "Both."
    assert [call["id"] for call in message.tool_calls] == [call["id"] for call in both.tool_calls]


def test_tool_call_takes_an_argument_named_name() -> None:
    assert calls_of(tool_call("greet", name="Ana", self=1)) == [("greet", {"name": "Ana", "self": 1})]
    assert tool_call("a").tool_calls[0]["id"] != tool_call("a").tool_calls[0]["id"]


@asked
def test_tokens_are_words(ask) -> None:
    shown = [
        SystemMessage("Be brief."),
        HumanMessage([{"type": "text", "text": "我搬到柏林。"}]),
        ToolMessage("one two", tool_call_id="1"),
    ]
    message = ask(ScriptedChatModel("three little words"), shown)
    assert message.usage_metadata == {"input_tokens": 2 + 4 + 2, "output_tokens": 3, "total_tokens": 11}
    assert ask(ScriptedChatModel(tool_call("a", query="x y")), "q").usage_metadata["output_tokens"] == 4


def test_usage_reaches_callbacks() -> None:
    model = ScriptedChatModel("one two", model="small")
    with get_usage_metadata_callback() as counted:
        model.invoke("a")
        list(model.stream("a"))
    assert counted.usage_metadata["small"]["output_tokens"] == 4


@pytest.mark.parametrize(("text", "least"), [(ENGLISH, 6), (CHINESE, 8)])
def test_a_stream_comes_word_by_word(text, least) -> None:
    chunks = list(ScriptedChatModel(text).stream("q"))
    assert len([chunk for chunk in chunks if chunk.content]) >= least
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.chunk_position for chunk in chunks if chunk.chunk_position] == ["last"]


def test_tool_calls_are_streamed_as_chunks() -> None:
    chunks = list(ScriptedChatModel(tool_call("a", query="one two")).stream("q"))
    parts = [part for chunk in chunks for part in chunk.tool_call_chunks]
    assert [part["name"] for part in parts if part["name"]] == ["a"]
    assert len(parts) > 2
    assert json.loads("".join(part["args"] for part in parts)) == {"query": "one two"}


def test_events_of_a_stream() -> None:
    stream = ScriptedChatModel(AIMessage("Wait.", tool_calls=tool_call("a", x=1).tool_calls)).stream_events("q", version="v3")
    assert [event["event"] for event in stream][-1] == "message-finish"
    assert (stream.output.text, calls_of(stream.output)) == ("Wait.", [("a", {"x": 1})])


@pytest.mark.parametrize("wrong", [None, 3, HumanMessage("no"), ["a"], {"tool": "a"}, b"a"], ids=repr)
def test_what_cannot_be_a_reply(wrong) -> None:
    with pytest.raises(InvalidInput, match="give a text, an AIMessage") as raised:
        ScriptedChatModel("fine", wrong)
    assert repr(wrong) in str(raised.value)


def test_a_script_is_needed() -> None:
    with pytest.raises(InvalidInput, match="at least one reply"):
        ScriptedChatModel()
    with pytest.raises(InvalidInput, match="at least one reply"):
        ModelServer()


@asked
def test_arguments_that_are_not_json(ask) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
        ask(ScriptedChatModel(tool_call("a", day=date(2026, 1, 5))), "q")


TOOLS = [search_memory, plain_function, Verdict, Asked, StructuredTool.from_function(plain_function, name="other"),
         {"type": "function", "function": {"name": "written", "parameters": {}}}, {"name": "short", "input_schema": {}},
         {"title": "titled", "type": "object", "properties": {}}, {"type": "web_search_20250305"}]  # fmt: skip


def test_bind_tools_takes_what_agents_pass() -> None:
    model = ScriptedChatModel("one", "two")
    bound = model.bind_tools(TOOLS, tool_choice="any", parallel_tool_calls=False, strict=True)
    names = ["search_memory", "plain_function", "Verdict", "Asked", "other", "written", "short", "titled", "web_search_20250305"]
    assert model.bound_tools == names
    assert (bound.invoke("a").content, model.invoke("b").content) == ("one", "two")
    assert bound.calls is model.calls
    assert len(model.calls) == 2
    model.bind_tools([])
    assert (model.bound_tools, bound.bound_tools) == ([], [])


@pytest.mark.parametrize("ask", [ASK["invoke"], ASK["ainvoke"]], ids=["invoke", "ainvoke"])
def test_with_retry_tries_again(ask) -> None:
    model = ScriptedChatModel(ConnectionError("gone"), "back")
    patient = model.with_retry(retry_if_exception_type=(ConnectionError,), wait_exponential_jitter=False, stop_after_attempt=2)
    assert ask(patient, "a").content == "back"
    assert len(model.calls) == 2


def test_with_fallbacks() -> None:
    first, second = ScriptedChatModel(ConnectionError("gone")), ScriptedChatModel("here")
    assert first.with_fallbacks([second]).invoke("a").content == "here"


def test_threads_share_a_script() -> None:
    model, together = ScriptedChatModel(*map(str, range(40)), "end"), Barrier(8)

    def ask_five(_: int) -> list[str]:
        together.wait(10)
        return [str(model.invoke("a").content) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        said = [text for texts in pool.map(ask_five, range(8)) for text in texts]
    assert sorted(said, key=int) == [str(number) for number in range(40)]
    assert len(model.calls) == 40


def test_agent_calls_its_tool() -> None:
    model = ScriptedChatModel(tool_call("search_memory", query="tea"), ENGLISH)
    agent = create_agent(model, [search_memory], system_prompt="Be brief.")
    messages = agent.invoke({"messages": [("user", "What do I drink?")]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert (messages[2].content, messages[2].tool_call_id) == ("5 notes about tea", messages[1].tool_calls[0]["id"])
    assert model.bound_tools == ["search_memory"]
    assert [message.type for message in model.calls[1]] == ["system", "human", "ai", "tool"]


def test_agent_repeats_a_call_under_new_ids() -> None:
    once = tool_call("search_memory", query="tea")
    agent = create_agent(ScriptedChatModel(once, once, once, "Enough."), [search_memory])
    messages = agent.invoke({"messages": [("user", "q")]})["messages"]
    assert len({message.id for message in messages}) == len(messages) == 8
    assert len({message.tool_call_id for message in messages if isinstance(message, ToolMessage)}) == 3


def test_agent_streams_words() -> None:
    async def words() -> list[str]:
        agent = create_agent(ScriptedChatModel(tool_call("search_memory", query="茶"), CHINESE), [search_memory])
        stream = agent.astream({"messages": [("user", "q")]}, stream_mode="messages")
        return [chunk.content async for chunk, _ in stream if isinstance(chunk, AIMessageChunk) and chunk.content]

    found = asyncio.run(words())
    assert len(found) > 8
    assert "".join(found) == CHINESE


def test_agent_with_a_response_format() -> None:
    model = ScriptedChatModel(tool_call("Verdict", keep=True))
    state = create_agent(model, [], response_format=ToolStrategy(Verdict)).invoke({"messages": [("user", "q")]})
    assert state["structured_response"] == Verdict(keep=True)
    assert model.bound_tools == ["Verdict"]


def test_a_memory_reads_with_it(opened) -> None:
    model = ScriptedChatModel(json.dumps(reply(entry(context="Tea again."))))
    note = opened(":memory:", llm=model).add("I drink tea.")
    assert (note.state, note.context) == ("ready", "Tea again.")
    assert "I drink tea." in model.calls[0][-1].text


# -- ModelServer: LangChain's clients


@clients
@asked
@pytest.mark.parametrize("text", [ENGLISH, CHINESE, MIXED, "", "字 word\n" * 2000])
def test_client_is_told_a_text(client, ask, text) -> None:
    with ModelServer(text) as server:
        message = ask(client(server), "你好")
    assert (message.content, message.tool_calls) == (text, [])
    assert message.usage_metadata["output_tokens"] == word_count(text)
    assert message.usage_metadata["input_tokens"] == 1
    assert server.calls == [[{"role": "user", "content": "你好"}]]


@clients
@asked
def test_client_is_told_to_call_tools(client, ask) -> None:
    with ModelServer(SEARCH, [SEARCH, {"tool": "stop"}], "Done.") as server:
        model = client(server).bind_tools([search_memory, plain_function])
        answers = [ask(model, "q") for _ in range(3)]
    assert [calls_of(answer) for answer in answers] == [
        [("search_memory", SEARCH["args"])], [("search_memory", SEARCH["args"]), ("stop", {})], []
    ]  # fmt: skip
    ids = [call["id"] for answer in answers for call in answer.tool_calls]
    assert len(set(ids)) == 3
    assert answers[0].usage_metadata["output_tokens"] > 3
    assert [request.tools for request in server.requests] == [["search_memory", "plain_function"]] * 3


@clients
def test_client_streams_word_by_word(client) -> None:
    with ModelServer(CHINESE) as server:
        chunks = [chunk.content for chunk in client(server).stream("q") if chunk.content]
    assert len(chunks) > 8
    assert "".join(chunks) == CHINESE


@clients
@asked
@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_client_is_refused(client, ask, status) -> None:
    with ModelServer(status) as server, pytest.raises((ollama.ResponseError, openai.APIStatusError)) as raised:
        ask(client(server), "q")
    assert raised.value.status_code == status
    assert f"status {status}, as the script says" in str(raised.value)


@pytest.mark.parametrize("status", [429, 500])
def test_openai_client_tries_again_at_once(status) -> None:
    with ModelServer(status, status, "fine") as server, within(3):
        assert CLIENT["openai"](server).invoke("q").content == "fine"
        assert len(server.requests) == 3
        with pytest.raises(urllib.error.HTTPError) as raised, ModelServer(status) as other:
            urllib.request.urlopen(f"{other.url}/api/chat", json.dumps(HELLO).encode(), timeout=5)
        with raised.value as answer:
            assert answer.headers["Retry-After-Ms"] == "1"


@clients
@asked
def test_function_of_the_request(client, ask) -> None:
    with ModelServer(lambda body: f"{body['model']} heard {body['messages'][-1]['content']}") as server:
        assert ask(client(server), "茶").content == "qwen heard 茶"


@clients
def test_agent_behind_http(client) -> None:
    with ModelServer(SEARCH, lambda body: f"I found {body['messages'][-1]['content']}.") as server:
        agent = create_agent(client(server), [search_memory])
        messages = agent.invoke({"messages": [("user", "喝什么?")]})["messages"]
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[-1].content == "I found 3 notes about 喝茶 tea."
    assert [[message["role"] for message in call] for call in server.calls] == [["user"], ["user", "assistant", "tool"]]


def test_ollama_client_checks_the_model() -> None:
    with ModelServer("hi", models=["qwen2.5:7b"]) as server:
        ChatOllama(model="qwen2.5", base_url=server.url, validate_model_on_init=True)
        with pytest.raises(ValueError, match="not found"):
            ChatOllama(model="llama", base_url=server.url, validate_model_on_init=True)


def test_ollama_package() -> None:
    with ModelServer("one two", SEARCH) as server, ollama.Client(server.url) as client:
        told = client.chat("m", [{"role": "user", "content": "a b c"}])
        assert (told.message.content, told.done, told.done_reason) == ("one two", True, "stop")
        assert (told.prompt_eval_count, told.eval_count) == (3, 2)
        *_, call, last = client.chat("m", [{"role": "user", "content": "a"}], stream=True)
        assert (call.message.tool_calls[0].function.arguments, call.done, last.done) == (SEARCH["args"], False, True)
        assert [model.model for model in client.list().models] == ["scripted"]
        assert "tools" in client.show("m").capabilities


@pytest.mark.parametrize("wanted", [True, False])
def test_usage_in_a_stream_only_where_it_is_asked_for(wanted) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wanted else {}
    with ModelServer("one two") as server, openai.OpenAI(base_url=server.openai_url, api_key="none") as client:
        asked = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}], stream=True, **options)
        chunks = list(asked)
        assert client.models.list().data[0].id == "scripted"
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == ([2] if wanted else [])
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"


# -- ModelServer: our own clients


def test_own_client_with_a_schema() -> None:
    schema = {"title": "Verdict", "type": "object", "properties": {"keep": {"type": "boolean"}}}
    with ModelServer({"keep": True}) as server:
        told = resolve_llm(f"{server.openai_url}#m").complete([{"role": "user", "content": "茶 yes"}], schema=schema)
    assert (json.loads(told.text), told.tokens_in, told.tokens_out) == ({"keep": True}, 2, 2)
    (request,) = server.requests
    assert (request.path, request.body["model"]) == ("/v1/chat/completions", "m")
    assert request.body["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_own_client_of_ollama(monkeypatch, scheme) -> None:
    with ModelServer(CHINESE) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.replace("http://", scheme))
        assert resolve_llm("ollama:qwen").complete([{"role": "user", "content": "q"}]).text == CHINESE
        assert resolve_embedder("ollama:e").embed(["茶"], kind="query").shape == (1, 256)
    assert server.requests[0].body["model"] == "qwen"


def test_own_client_is_refused() -> None:
    with ModelServer(401, 503) as server:
        model = OpenAIChat("m", base_url=server.openai_url, api_key="none", retries=0)
        with pytest.raises(ModelError, match="status 401"):
            model.complete([{"role": "user", "content": "q"}])
        with pytest.raises(ModelUnavailable, match="status 503"):
            model.complete([{"role": "user", "content": "q"}])


def test_own_client_without_a_schema_where_it_is_refused() -> None:
    def unable(body: dict[str, Any]) -> Any:
        return 400 if "response_format" in body else "plain"

    with ModelServer(unable) as server:
        model = resolve_llm(f"{server.openai_url}#m")
        assert model.complete([{"role": "user", "content": "q"}], schema={"type": "object"}).text == "plain"
    assert ["response_format" in request.body for request in server.requests] == [True, False]


def test_a_memory_with_both_models_behind_http(tmp_path) -> None:
    with ModelServer(reply(entry(keywords=["茶"]))) as server:
        url = f"{server.openai_url}#m"
        with Memory.open(tmp_path / "m.db", llm=url, embedder=url) as memory:
            assert memory.add("我喜欢喝茶。").keywords == ("茶",)
            assert [hit.note.content for hit in memory.search("喝茶")] == ["我喜欢喝茶。"]


# -- ModelServer: embeddings


def rows(vectors: Any) -> np.ndarray:
    return np.asarray(vectors, np.float32)


EMBEDDED = ["green tea", "我喜欢喝茶。", "!!!"]
EXPECTED = HashEmbedder().embed(EMBEDDED, kind="passage")


@pytest.fixture(scope="module")
def embeddings():
    with ModelServer("unused") as server:
        yield server


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_openai_embeddings(embeddings, form) -> None:
    asked: dict[str, Any] = {"encoding_format": form} if form else {}
    with openai.OpenAI(base_url=embeddings.openai_url, api_key="none") as client:
        told = client.embeddings.create(model="e", input=EMBEDDED, **asked)
        (one,) = client.embeddings.create(model="e", input=EMBEDDED[0], **asked).data
    found = [
        np.frombuffer(base64.b64decode(item.embedding, validate=True), "<f4") if form == "base64" else item.embedding
        for item in told.data
    ]
    np.testing.assert_allclose(rows(found), EXPECTED, atol=1e-7)
    assert [item.index for item in told.data] == [0, 1, 2]
    assert told.usage.prompt_tokens == 2 + 3 + 1
    assert len(one.embedding) > 0


def test_langchain_embeddings(embeddings) -> None:
    ours = [OpenAIEmbeddings(model="e", base_url=embeddings.openai_url, api_key="none", check_embedding_ctx_length=False),
            OllamaEmbeddings(model="e", base_url=embeddings.url)]  # fmt: skip
    for model in ours:
        np.testing.assert_allclose(rows(model.embed_documents(EMBEDDED)), EXPECTED, atol=1e-6)
        np.testing.assert_allclose(rows(asyncio.run(model.aembed_query(EMBEDDED[1]))), EXPECTED[1], atol=1e-6)


def test_own_embedder(embeddings) -> None:
    embedder = resolve_embedder(f"{embeddings.openai_url}#e")
    assert embedder.dimensions == 256
    np.testing.assert_allclose(embedder.embed(EMBEDDED, kind="query"), EXPECTED, atol=1e-6)


def test_dimensions_of_embeddings() -> None:
    with ModelServer("unused", dimensions=16) as server, openai.OpenAI(base_url=server.openai_url, api_key="none") as client:
        assert len(client.embeddings.create(model="e", input="a").data[0].embedding) == 16
        assert len(client.embeddings.create(model="e", input="a", dimensions=9).data[0].embedding) == 9


def test_token_ids_are_embedded_as_words(embeddings) -> None:
    with openai.OpenAI(base_url=embeddings.openai_url, api_key="none") as client:
        told = client.embeddings.create(model="e", input=[[11, 12, 13], [11, 12, 14], [900, 901]])
        assert len(client.embeddings.create(model="e", input=[11, 12]).data) == 1
    near, far, *_ = (np.dot(told.data[0].embedding, told.data[other].embedding) for other in (1, 2))
    assert near > 0.5 > far


# -- ModelServer: the server itself


def fetched(server: ModelServer, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
    """Status and JSON of a request; a body of bytes is sent as it is."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": False}


@pytest.mark.parametrize(
    "asked", ["GET /", "POST /nothing", "GET /api/chat", "PUT /v1/models", "DELETE /api/pull", "POST /v1/responses"]
)
def test_unknown_paths_name_the_known_ones(asked) -> None:
    method, path = asked.split()
    with ModelServer("hi") as server:
        status, told = fetched(server, path, b"{}" if method == "POST" else None, method)
    message = told["error"]["message"] if path.startswith("/v1") else told["error"]
    assert status == 404
    assert asked in message
    assert all(known in message for known in ("POST /api/chat", "GET /api/tags", "POST /v1/chat/completions", "GET /v1/models"))
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [(b"{not json", "not JSON"), (b"\xff\xfe", "not JSON"), (b"", "not JSON"), ([1], "must be a JSON object"), ({}, "'messages'"),
     ({"messages": "hello"}, "'hello'"), ({"messages": ["hello"]}, "list of messages")],
)  # fmt: skip
def test_requests_that_make_no_sense(body, complaint) -> None:
    with ModelServer("first", "second") as server:
        status, told = fetched(server, "/api/chat", body)
        assert (status, complaint in told["error"]) == (400, True)
        assert fetched(server, "/api/chat", HELLO)[1]["message"]["content"] == "first"


@pytest.mark.parametrize("wrong", [{}, {"input": None}, {"input": []}, {"input": [None]}, {"input": {"a": 1}},
                                   {"input": "a", "dimensions": 0}, {"input": "a", "dimensions": "9"}], ids=str)  # fmt: skip
def test_embeddings_that_make_no_sense(embeddings, wrong) -> None:
    assert fetched(embeddings, "/v1/embeddings", wrong)[0] == 400
    assert fetched(embeddings, "/api/embed", wrong)[0] == 400


def test_only_ollama_streams_unless_told_not_to() -> None:
    body = json.dumps({"messages": HELLO["messages"]}).encode()
    with ModelServer("one two") as server:
        with urllib.request.urlopen(f"{server.url}/api/chat", body, timeout=5) as answer:
            records = [json.loads(line) for line in answer]
        assert fetched(server, "/v1/chat/completions", body)[1]["choices"][0]["message"]["content"] == "one two"
    assert [record["message"]["content"] for record in records] == ["one ", "two", ""]
    assert [record["done"] for record in records] == [False, False, True]


def test_requests_are_kept_with_their_paths() -> None:
    with ModelServer("hi") as server:
        fetched(server, "/api/chat?x=1", HELLO)
        fetched(server, "/v1/chat/completions", HELLO)
        fetched(server, "/api/tags")
    assert server.requests == [ServedRequest("/api/chat", HELLO), ServedRequest("/v1/chat/completions", HELLO)]
    assert server.calls == [HELLO["messages"]] * 2
    assert server.requests[0].tools == []
    with pytest.raises(FrozenInstanceError):
        server.requests[0].path = "/other"


WRONG = [None, 200, 42, True, 1.5, {"tool": ""}, {"tool": 3}, {"tool": "a", "arguments": {}}, {"tool": "a", "args": "x"},
         [{"tool": "a"}, "b"], {"when": date(2026, 1, 5)}, {"tool": "a", "args": {"s": {1}}}]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_cannot_be_served(wrong) -> None:
    with pytest.raises(InvalidInput, match=r"give|cannot be sent as JSON"):
        ModelServer("fine", wrong)


@pytest.mark.parametrize(("data", "text"), [({"notes": []}, '{"notes": []}'), ([], "[]"), (["茶"], '["茶"]')])
def test_other_data_is_sent_as_json_text(data, text) -> None:
    with ModelServer(data) as server:
        assert fetched(server, "/api/chat", HELLO)[1]["message"]["content"] == text


@clients
def test_error_of_a_reply_function_is_not_lost(client) -> None:
    def wrong(body: dict[str, Any]) -> str:
        assert body["model"] == "other", "the model is wrong"
        return "never"

    def session() -> None:
        with ModelServer(wrong) as server:
            with pytest.raises((ollama.ResponseError, openai.InternalServerError), match="the model is wrong"):
                client(server).invoke("q")
            assert len(server.requests) == 1, "asked again in vain"

    with pytest.raises(AssertionError, match="the model is wrong"):
        session()


def test_reply_function_that_returns_nonsense() -> None:
    with pytest.raises(InvalidInput, match="a reply function returned None"), ModelServer(lambda body: None) as server:
        assert fetched(server, "/api/chat", HELLO)[0] == 500


def test_error_of_the_block_is_not_hidden() -> None:
    def wrong(body: dict[str, Any]) -> Any:
        raise KeyError("inner")

    def session() -> None:
        with ModelServer(wrong) as server:
            fetched(server, "/api/chat", HELLO)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        session()


def test_threads_are_answered_together() -> None:
    together = Barrier(20)

    def meet(body: dict[str, Any]) -> str:
        together.wait(10)
        return str(body["messages"][0]["content"])

    with ModelServer(*map(str, range(200)), meet) as server, ThreadPoolExecutor(20) as pool, within(60):
        said = list(pool.map(lambda _: fetched(server, "/api/chat", HELLO)[1]["message"]["content"], range(200)))
        assert sorted(said, key=int) == sorted(map(str, range(200)), key=int)
        asked = [{**HELLO, "messages": [{"role": "user", "content": str(number)}]} for number in range(20)]
        replies = list(pool.map(lambda body: fetched(server, "/v1/chat/completions", body)[1], asked))
    assert [told["choices"][0]["message"]["content"] for told in replies] == [str(number) for number in range(20)]
    assert len(server.requests) == 220


def test_client_that_hangs_up_is_no_trouble(capfd) -> None:
    body = json.dumps({**HELLO, "stream": True}).encode()
    head = f"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with ModelServer("word " * 100_000) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head + body)
            assert connection.recv(10)
        assert fetched(server, "/api/version")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_closing() -> None:
    server = ModelServer("hi")
    assert fetched(server, "/api/version")[1]["version"]
    with within(5):
        server.close()
        server.close()
    with pytest.raises(urllib.error.URLError):
        fetched(server, "/api/version")


def test_closing_does_not_wait_for_a_slow_reply() -> None:
    asked, go_on = Event(), Event()

    def slow(body: dict[str, Any]) -> str:
        asked.set()
        go_on.wait(20)
        return "late"

    server = ModelServer(slow)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fetched, server, "/api/chat", HELLO)
        assert asked.wait(10)
        with within(5):
            server.close()
        go_on.set()
        assert answer.result(10)[1]["message"]["content"] == "late"


def test_servers_stand_beside_each_other() -> None:
    with ModelServer("one") as first, ModelServer("two") as second:
        assert first.url != second.url
        said = [fetched(server, "/api/chat", HELLO)[1]["message"]["content"] for server in (first, second)]
    assert said == ["one", "two"]


def test_nothing_is_printed(capfd) -> None:
    with ModelServer("hi", 500) as server:
        for _ in range(2):
            fetched(server, "/api/chat", HELLO)
        fetched(server, "/nothing")
    assert capfd.readouterr() == ("", "")


def test_big_request_and_big_reply() -> None:
    text = "很长的一句话 and more. " * 40_000
    with ModelServer(lambda body: body["messages"][0]["content"]) as server, within(30):
        told = fetched(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})[1]
    assert told["choices"][0]["message"]["content"] == text
    assert told["usage"]["prompt_tokens"] == word_count(text)


def test_half_a_character_is_not_sent() -> None:
    with ModelServer("我\ud83d") as server:
        assert fetched(server, "/api/chat", HELLO)[1]["message"]["content"] == "我?"
