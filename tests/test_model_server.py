"""A chat model and an embedder behind HTTP: a real server on this machine that answers by a script, well or badly."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest
from conftest import contents, entry, reply, within

from engramma import EngrammaError, Memory, ModelError
from engramma.errors import ModelTimeout, ModelUnavailable
from engramma.models.openai_compatible import OpenAIChat, OpenAIEmbedder
from engramma.testing import HashEmbedder

KETTLE = "The kettle in the office leaks."
VIOLIN = "Violins are tuned in fifths."
SOON = {"Retry-After-Ms": "2"}  # the client waits as long as the server asks
EMBEDDER = HashEmbedder(16)


def mended(*values: Any, why: str) -> Any:
    """A row of a table that failed once; ``why`` says what was wrong."""
    return pytest.param(*values)


class Server:
    """Speaks two routes of OpenAI's API on a free port. A reply is a status, a body and headers, or a function of the request
    that gives these; the last one is repeated for ever."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Message] = []
        self.paths: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body, headers = server.answer(self.path, self.headers, request)
                try:
                    self.send_response(status)
                    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except (BrokenPipeError, ConnectionResetError):  # the client has waited long enough
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def answer(self, path: str, headers: Message, request: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        self.paths.append(path)
        self.headers.append(headers)
        self.requests.append(request)
        answer = self.replies[min(len(self.requests), len(self.replies)) - 1]
        status, body, more = answer(request) if callable(answer) else answer
        return status, body if isinstance(body, bytes) else json.dumps(body).encode(), more

    @property
    def calls(self) -> int:
        return len(self.requests)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Starts servers and stops them after the test."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    servers: list[Server] = []

    def serve(*replies: Any) -> Server:
        servers.append(Server(replies))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def ok(body: Any, **headers: str) -> tuple[int, Any, dict[str, str]]:
    return 200, body, headers


def chat(content: Any, usage: Any = None) -> tuple[int, Any, dict[str, str]]:
    """A chat completion that holds a content; JSON data is written as text."""
    text = content if isinstance(content, str | None) else json.dumps(content)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 700, "completion_tokens": 90, "total_tokens": 790} if usage is None else usage
    return ok({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})


def error(status: int, message: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
    return status, {"error": {"message": message, "type": "error"}}, headers


def reader(request: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
    """Reads every draft that it is shown."""
    shown = request["messages"][-1]["content"]
    return chat(reply(*(entry(f"d{number}") for number in range(1, 9) if f"Draft d{number} " in shown)))


BUSY = (429, {"error": {"message": "slow down"}}, SOON)
BROKEN = (500, {"error": {"message": "out of memory"}}, SOON)
GOOD = chat(reply())


def impatient(server: Server, **settings: Any) -> OpenAIChat:
    """The client of a server, not asking twice unless told."""
    settings = {"retries": 0, "timeout": 5.0, **settings}
    return OpenAIChat("model", base_url=server.url, api_key="k", **settings)


def pending(memory: Memory) -> list[str]:
    return [note.content for note in memory.list() if note.state == "pending"]


# -- what is asked


def test_good_reply_describes_the_note(opened, served):
    server = served(GOOD)
    note = opened(llm=f"{server.url}#qwen").add(KETTLE)
    assert (note.state, note.error) == ("ready", None)
    assert (note.keywords, note.tags, note.context) == (("kettle",), ("home",), "A sentence of the model.")
    assert server.paths == ["/v1/chat/completions"]


def test_request_is_a_system_and_one_user_message(opened, served):
    server = served(GOOD)
    opened(llm=f"{server.url}#qwen").add(KETTLE, speaker="Ana")
    (request,) = server.requests
    system, user = request["messages"]
    assert (request["model"], system["role"], user["role"]) == ("qwen", "system", "user")
    assert KETTLE in user["content"]
    assert "Ana" in user["content"]
    assert KETTLE not in system["content"]
    assert request["temperature"] == 0
    assert request["max_tokens"] > 0
    assert request["response_format"]["type"] == "json_schema"
    assert not request.get("stream")


def test_system_message_is_the_same_for_every_note(opened, served):
    server = served(reader)
    memory = opened(llm=f"{server.url}#qwen")
    memory.add(KETTLE, speaker="Ana", tags=["one"])
    memory.add("小提琴按五度定弦。", session="two")
    first, second = (request["messages"][0] for request in server.requests)
    assert first == second


def test_neighbours_are_shown_under_labels_and_never_by_id(opened, served):
    server = served(reader)
    memory = opened(llm=f"{server.url}#qwen")
    old = memory.add(KETTLE)
    new = memory.add("The office kettle was mended.")
    shown = server.requests[-1]["messages"][1]["content"]
    assert KETTLE in shown
    assert "n1" in shown
    assert not {old.id, new.id} & set(shown.replace(":", " ").split())


def test_notes_of_another_space_are_not_shown(opened, served):
    server = served(reader)
    memory = opened(llm=f"{server.url}#qwen")
    memory.add(KETTLE, space="alice")
    memory.add("The office kettle was mended.", space="bob")
    assert KETTLE not in json.dumps(server.requests[-1])


@pytest.mark.parametrize("key", ["sk-secret", None])
def test_authorization(opened, served, monkeypatch, key):
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    server = served(GOOD)
    memory = opened(llm=f"{server.url}#qwen")
    memory.add(KETTLE)
    assert server.headers[0]["Authorization"] == f"Bearer {key or 'none'}"
    assert "sk-secret" not in repr(memory) + memory.stats().analyst


def test_key_of_an_object_wins(opened, served, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    server = served(GOOD)
    opened(llm=impatient(server)).add(KETTLE)
    assert server.headers[0]["Authorization"] == "Bearer k"


def test_url_without_a_model(opened, served):
    server = served(GOOD)
    assert opened(llm=server.url).add(KETTLE).state == "ready"
    assert server.requests[0]["model"] == "default"


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_calls_of_add_many(opened, served, count):
    server = served(reader)
    notes = opened(":memory:", llm=f"{server.url}#qwen").add_many(
        [f"Heron {number} stands in lake {number * 7}." for number in range(count)]
    )
    assert [note.state for note in notes] == ["ready"] * count
    assert server.calls <= math.ceil(count / 4)


def test_calls_of_add(opened, served):
    server = served(reader)
    memory = opened(llm=f"{server.url}#qwen")
    for number in range(3):
        memory.add(f"Heron {number} stands in lake {number * 7}.")
        assert server.calls == number + 1
    memory.search("heron")
    memory.list()
    memory.get(memory.list()[0])
    assert server.calls == 3


def test_usage_is_counted(opened, served):
    server = served(reader)
    memory = opened(llm=f"{server.url}#qwen")
    memory.add(KETTLE)
    (spent,) = [commit for commit in memory.log() if commit.tokens.calls]
    assert (spent.tokens.calls, spent.tokens.tokens_in, spent.tokens.tokens_out) == (1, 700, 90)
    assert "qwen" in spent.actor
    memory.add_many([VIOLIN, "Herons eat fish.", "Reed grows by the lake."])
    stats = memory.stats()
    assert (stats.calls, stats.tokens_in, stats.tokens_out) == (2, 1400, 180)
    assert sum(commit.tokens.total for commit in memory.log(limit=None)) == stats.tokens


@pytest.mark.parametrize("usage", [{}, [], {"prompt_tokens": None, "completion_tokens": None}, {"prompt_tokens": 7}])
def test_usage_that_is_not_told(opened, served, usage):
    memory = opened(":memory:", llm=f"{served(chat(reply(), usage)).url}#qwen")
    assert memory.add(KETTLE).state == "ready"
    assert memory.stats().calls == 1


_NO_NUMBER = "token counts that are no numbers raise TypeError"


@pytest.mark.parametrize(
    "usage",
    [mended({"prompt_tokens": "700", "completion_tokens": "90"}, why=_NO_NUMBER), mended({"prompt_tokens": [1]}, why=_NO_NUMBER)],
)
def test_usage_that_is_no_number(opened, served, usage):
    memory = opened(":memory:", llm=f"{served(chat(reply(), usage)).url}#qwen")
    assert memory.add(KETTLE).content == KETTLE
    assert contents(memory.list()) == [KETTLE]


# -- asked again


@pytest.mark.parametrize("before", [[BUSY], [BUSY, BUSY], [BROKEN] * 3, [BUSY, BROKEN, (503, {}, SOON)]])
def test_passing_failure_is_asked_again(opened, served, before):
    server = served(*before, GOOD)
    assert opened(llm=f"{server.url}#qwen").add(KETTLE).keywords == ("kettle",)
    assert server.calls == len(before) + 1


def test_dropped_connection_is_asked_again(opened, served):
    server = served(ok(b"", **{"Content-Length": "500"}), GOOD)
    assert opened(llm=impatient(server, retries=1)).add(KETTLE).state == "ready"


def test_time_out(opened, served):
    released = Event()

    def slow(request: Any) -> Any:
        released.wait(5)
        return GOOD

    server = served(slow)
    memory = opened(llm=impatient(server, timeout=0.15))
    with within(4):
        note = memory.add(KETTLE)
    released.set()
    assert note.state == "pending"
    assert "did not answer" in (note.error or "")
    assert contents(memory.search("kettle")) == [KETTLE]


def test_time_out_then_good(opened, served):
    waits = iter([0.4])

    def first_slow(request: Any) -> Any:
        time.sleep(next(waits, 0))
        return GOOD

    server = served(first_slow)
    assert opened(llm=impatient(server, timeout=0.15, retries=1)).add(KETTLE).state == "ready"
    assert server.calls == 2


def test_time_out_names_how_long_it_was(served):
    def slow(request: Any) -> Any:
        time.sleep(0.4)
        return GOOD

    with pytest.raises(ModelTimeout, match=r"0\.2 s"):
        impatient(served(slow), timeout=0.2).complete([{"role": "user", "content": "hello"}])


OPTION = {
    "response_format": "'response_format' of type json_schema is not supported",
    "temperature": "Unsupported value: temperature",
}


@pytest.mark.parametrize("status", [400, 422])
def test_option_that_the_server_does_not_take_is_left_out(opened, served, status):
    def picky(request: Any) -> Any:
        refused = next((name for name in OPTION if name in request), None)
        return error(status, OPTION[refused]) if refused else reader(request)

    server = served(picky)
    memory = opened(llm=f"{server.url}#qwen")
    assert memory.add(KETTLE).state == "ready"
    assert [set(OPTION) & set(request) for request in server.requests] == [set(OPTION), {"temperature"}, set()]
    assert memory.add(VIOLIN).state == "ready"
    assert server.calls == 4  # it is remembered


def test_option_that_is_taken_stays(opened, served):
    def picky(request: Any) -> Any:
        return error(400, OPTION["temperature"]) if "temperature" in request else reader(request)

    server = served(picky)
    assert opened(llm=f"{server.url}#qwen").add(KETTLE).state == "ready"
    assert "response_format" in server.requests[-1]
    assert "max_tokens" in server.requests[-1]


def test_refusal_that_names_no_option_ends(opened, served):
    server = served(error(400, "the prompt is too long"))
    memory = opened(llm=f"{server.url}#qwen")
    with within(5):
        note = memory.add(KETTLE)
    assert (note.state, contents(memory.list())) == ("pending", [KETTLE])
    assert "too long" in (note.error or "")
    assert server.calls <= 4


def test_refusal_that_names_no_option_changes_no_later_request(opened, served):
    server = served(*[error(400, "the prompt is too long")] * 4, GOOD)
    memory = opened(llm=f"{server.url}#qwen")
    memory.add("heron " * 3000)
    server.replies = [reader]
    memory.add(KETTLE)
    assert {"response_format", "temperature", "max_tokens"} <= set(server.requests[-1])


# -- not to be had


@pytest.mark.parametrize(("status", "calls"), [(401, 1), (403, 1), (404, 1), (413, 1), (500, 4), (503, 4), (429, 4)])
def test_server_that_always_refuses(opened, served, status, calls):
    server = served(error(status, "not today", **SOON))
    memory = opened(":memory:", llm=f"{server.url}#qwen")
    note = memory.add(KETTLE)
    assert (note.state, server.calls) == ("pending", calls)
    assert "not today" in (note.error or "")
    assert contents(memory.search("kettle")) == [KETTLE]
    assert memory.stats().pending == 1
    assert memory.check().ok


def test_server_that_is_gone(opened, served):
    server = served(GOOD)
    memory = opened(llm=impatient(server))
    server.close()
    note = memory.add(KETTLE)
    assert note.state == "pending"
    assert "is the server running?" in (note.error or "")
    assert contents(memory.search("kettle")) == [KETTLE]
    with pytest.raises(ModelUnavailable):
        impatient(server).complete([{"role": "user", "content": "hello"}])
    server.close = lambda: None  # type: ignore[method-assign]


def test_server_that_is_down_is_asked_once_for_many(opened, served):
    server = served(error(500, "out of memory"))
    memory = opened(llm=impatient(server))
    memory.add_many([f"Heron {number} stands in lake {number * 7}." for number in range(20)])
    assert len(pending(memory)) == 20
    assert server.calls == 1


def test_note_is_findable_while_the_model_thinks(opened, served):
    asked, released = Event(), Event()

    def thinking(request: Any) -> Any:
        asked.set()
        released.wait(10)
        return GOOD

    memory = opened(llm=f"{served(thinking).url}#qwen")
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(memory.add, KETTLE)
        try:
            assert asked.wait(5)
            (hit,) = memory.search("kettle")
            assert (hit.note.content, hit.note.state) == (KETTLE, "pending")
            assert contents(opened(catch_up=False).list()) == [KETTLE]
            opened(catch_up=False).add(VIOLIN)  # nobody is kept from writing
        finally:
            released.set()
        assert adding.result(10).state == "ready"
    assert memory.search("kettle")[0].note.context == "A sentence of the model."


def test_note_deleted_while_the_model_thinks(opened, served):
    asked, released = Event(), Event()

    def thinking(request: Any) -> Any:
        asked.set()
        released.wait(10)
        return GOOD

    memory = opened(llm=f"{served(thinking).url}#qwen")
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(memory.add, KETTLE)
        try:
            assert asked.wait(5)
            memory.delete(memory.list()[0])
        finally:
            released.set()
        adding.result(10)
    assert memory.list() == []
    assert memory.search("kettle", min_relevance=0.0) == []
    assert memory.check().ok


def test_next_open_reads_what_waits(opened, served):
    server = served(BROKEN, GOOD)
    memory = opened(llm=impatient(server))
    note = memory.add(KETTLE)
    assert note.state == "pending"
    memory.close()
    later = opened(llm=f"{server.url}#qwen")
    assert (later.get(note).state, later.get(note).error, later.get(note).keywords) == ("ready", None, ("kettle",))
    assert later.catch_up() == 0
    assert server.calls == 2


def test_catch_up_reads_what_waits(opened, served):
    server = served(BROKEN, reader)
    memory = opened(llm=impatient(server))
    memory.add_many([KETTLE, VIOLIN, "Herons eat fish.", "Reed grows by the lake.", "Moss is soft."])
    assert len(pending(memory)) == 5
    seen: list[tuple[int, int]] = []
    assert memory.catch_up(progress=lambda done, total: seen.append((done, total))) == 5
    assert pending(memory) == []
    assert seen[-1] == (5, 5)
    assert sorted(seen) == seen


# -- rubbish

SCHEMA = {"title": "reading", "type": "object", "properties": {"notes": {"type": "array", "items": {}}}, "required": ["notes"]}
RUBBISH = {
    "prose": chat("I am sorry, but as a language model I cannot keep a memory."),
    "nothing": chat(""),
    "blank": chat(" \n\t "),
    "null": chat(None),
    "an empty list": chat([]),
    "an empty object": chat({}),
    "a list of words": chat(["kettle", "office"]),
    "a number": chat("42"),
    "the schema": chat(SCHEMA),
    "the schema in a list": chat({"notes": [SCHEMA]}),
    "notes of nothing": chat({"notes": []}),
    "a note of nothing": chat({"notes": [{"label": "d1"}]}),
    "another draft": chat(reply(entry("d7"))),
    "broken at once": chat('{"notes": [{"label": "d1", "keyw'),
    "brackets": chat("[" * 5000),
    "braces": chat('{"a":' * 5000),
    "five megabytes of prose": chat("lorem ipsum " * 400_000),
    "a page": ok(b"<html><body>It works!</body></html>", **{"Content-Type": "text/html"}),
    "a page that is said to be JSON": ok(b"<html><body>It works!</body></html>"),
    "no choices": ok({"id": "c1", "object": "chat.completion"}),
    "choices of none": ok({"choices": []}),
    "null for choices": ok({"choices": None}),
    "a choice without a message": ok({"choices": [{"index": 0}]}),
    "null for a message": ok({"choices": [{"index": 0, "message": None}]}),
    "words for choices": ok({"choices": "none"}),
    "a bare list": ok([1, 2]),
    "a bare number": ok(7),
    "a bare null": ok(None),
    "no body": ok(b""),
    "bytes that are no text": ok(b"\xff\xfe\x00{"),
    "content in parts": ok({"choices": [{"message": {"role": "assistant", "content": [{"type": "text", "text": "{}"}]}}]}),
    "content that is a number": ok({"choices": [{"message": {"role": "assistant", "content": 5}}]}),
    "content that is an object": ok({"choices": [{"message": {"role": "assistant", "content": reply()}}]}),
    "an error with 200": ok({"error": {"message": "model not loaded"}}),
}


_NO_TEXT = "content that is not text raises TypeError"
NO_TEXT = ("content in parts", "content that is a number", "content that is an object")


@pytest.mark.parametrize("kind", [mended(kind, why=_NO_TEXT) if kind in NO_TEXT else kind for kind in RUBBISH])
def test_rubbish_leaves_the_note_pending(opened, served, kind):
    server = served(RUBBISH[kind])
    memory = opened(":memory:", llm=impatient(server))
    with within(10):
        note = memory.add(KETTLE)
    assert (note.content, note.state) == (KETTLE, "pending")
    assert note.error
    assert len(note.error) < 2000
    assert contents(memory.search("kettle")) == [KETTLE]
    assert server.calls <= 2
    assert memory.check().ok
    server.replies = [GOOD]
    assert memory.catch_up() == 1
    assert memory.get(note).keywords == ("kettle",)


@pytest.mark.parametrize("kind", NO_TEXT)
def test_rubbish_does_not_keep_a_memory_shut(opened, served, kind):
    server = served(BROKEN)
    opened(llm=impatient(server)).add(KETTLE)
    server.replies = [RUBBISH[kind]]
    assert contents(opened(llm=impatient(server)).list()) == [KETTLE]


USABLE = {
    "in a fence": chat(f"Here you are:\n```json\n{json.dumps(reply())}\n```\nAnything else?"),
    "after thinking": chat(f"<think>The kettle leaks, so {{home}}.</think>\n{json.dumps(reply())}"),
    "cut off after the first fields": chat(json.dumps(reply())[:-20]),
    "with a comma too many": chat(json.dumps(reply())[:-2] + ",]}"),
    "without the list": chat(entry()),
    "without the label": chat({key: value for key, value in entry().items() if key != "label"}),
    "with more beside it": chat({**reply(), "thoughts": "the user likes tea " * 10}),
    "a huge list of keywords": chat(reply(keywords=["kettle", *(f"word{number}" for number in range(20_000))])),
    "five megabytes after it": chat(json.dumps(reply()) + "\n" + "lorem ipsum " * 400_000),
    "with finish_reason null": ok({"choices": [{"finish_reason": None, "message": {"content": json.dumps(reply())}}]}),
}


@pytest.mark.parametrize("kind", USABLE)
def test_reply_that_can_be_used(opened, served, kind):
    memory = opened(":memory:", llm=impatient(served(USABLE[kind])))
    with within(10):
        note = memory.add(KETTLE)
    assert note.state == "ready"
    assert "kettle" in note.keywords
    assert len(note.keywords) <= 20


def test_rubbish_is_paid_for(opened, served):
    memory = opened(llm=impatient(served(chat("no idea"))))
    memory.add(KETTLE)
    assert (memory.stats().calls, memory.stats().tokens) == (1, 790)


def test_rubbish_for_one_of_four(opened, served):
    server = served(chat(reply(entry("d1"), entry("d2"), {"label": "d3", "context": 5}, entry("d4"))), GOOD)
    memory = opened(llm=impatient(server))
    memory.add_many([KETTLE, VIOLIN, "Herons eat fish.", "Reed grows by the lake."])
    assert pending(memory) == ["Herons eat fish."]
    assert memory.catch_up() == 1


def test_reply_is_checked_against_what_was_shown(opened, served):
    links = [{"to": "n1", "kind": "related", "reason": "both leak"}, {"to": "n9", "reason": "made up"}]
    server = served(GOOD, chat(reply(entry(links=links, changes=[{"note": "0", "reason": "a rank", "context": "wrong"}]))))
    memory = opened(llm=impatient(server))
    old = memory.add(KETTLE)
    new = memory.add("The office kettle was mended.")
    assert [(link.kind, link.target, link.reason) for link in new.links] == [("related", old.id, "both leak")]
    assert memory.get(old).context == old.context
    dropped = next(commit for commit in memory.log() if commit.dropped).dropped
    assert any("n9" in part for part in dropped)
    assert any("'0'" in part for part in dropped)


# -- embeddings


def embeddings(request: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
    """Vectors of the texts of a request."""
    vectors = EMBEDDER.embed(request["input"], kind="passage").tolist()
    data = [{"object": "embedding", "index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return ok({"object": "list", "data": data, "model": request["model"], "usage": {"prompt_tokens": 3, "total_tokens": 3}})


def bent(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[dict[str, Any]], Any]:
    """An embedding reply whose data is changed."""

    def answer(request: dict[str, Any]) -> Any:
        _, body, headers = embeddings(request)
        return 200, {**body, "data": change(body["data"])}, headers

    return answer


def gentle(server: Server) -> OpenAIEmbedder:
    return OpenAIEmbedder("embed", base_url=server.url, api_key="k", retries=0, timeout=5.0)


def test_embedder_by_url(opened, served, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = served(embeddings)
    memory = opened(embedder=f"{server.url}#embed")
    memory.add(KETTLE, speaker="Ana")
    memory.add(VIOLIN)
    assert memory.search("kettle", k=1, min_relevance=0.0)[0].note.content == KETTLE
    assert set(server.paths) == {"/v1/embeddings"}
    assert {request["model"] for request in server.requests} == {"embed"}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-secret"}
    assert any(KETTLE in text for request in server.requests for text in request["input"])
    assert memory.get(memory.list()[0]).vector.shape == (16,)


def test_embedder_is_asked_once_for_a_batch(opened, served):
    server = served(embeddings)
    memory = opened(embedder=f"{server.url}#embed")
    memory.add(KETTLE)
    memory.search("kettle")
    before = server.calls
    memory.add_many([f"Heron {number} stands in lake {number * 7}." for number in range(20)])
    assert server.calls == before + 1


def test_embedder_and_model_of_one_server(opened, served):
    server = served(lambda request: embeddings(request) if "input" in request else reader(request))
    memory = opened(llm=f"{server.url}#qwen", embedder=f"{server.url}#embed")
    assert memory.add(KETTLE).state == "ready"
    assert {"/v1/chat/completions", "/v1/embeddings"} == set(server.paths)


def test_embeddings_in_any_order(opened, served):
    straight = opened("a.db", embedder=gentle(served(embeddings))).add_many([KETTLE, VIOLIN])
    turned = opened("b.db", embedder=gentle(served(bent(lambda data: data[::-1])))).add_many([KETTLE, VIOLIN])
    assert [note.vector.tolist() for note in straight] == [note.vector.tolist() for note in turned]


BENT = {
    "shorter": bent(lambda data: [{**item, "embedding": item["embedding"][:7]} for item in data]),
    "longer": bent(lambda data: [{**item, "embedding": item["embedding"] * 2} for item in data]),
    "empty": bent(lambda data: [{**item, "embedding": []} for item in data]),
    "uneven": bent(lambda data: [{**item, "embedding": item["embedding"][: 16 - item["index"] % 2]} for item in data * 2]),
    "one too few": bent(lambda data: data[:-1]),
    "one too many": bent(lambda data: [*data, data[0]]),
    "none": bent(lambda data: []),
    "null": bent(lambda data: None),
    "null for a vector": bent(lambda data: [{**item, "embedding": None} for item in data]),
    "words": bent(lambda data: [{**item, "embedding": "AAAA"} for item in data]),
    "not a number": bent(lambda data: [{**item, "embedding": [float("nan")] * 16} for item in data]),
    "without an index": bent(lambda data: [{"embedding": item["embedding"]} for item in data] * 2),
    "a page": lambda request: ok(b"<html>It works!</html>", **{"Content-Type": "text/html"}),
    "no data": lambda request: ok({"object": "list"}),
    "no body": lambda request: ok(b""),
    "500": lambda request: error(500, "out of memory"),
    "401": lambda request: error(401, "no key"),
}


@pytest.mark.parametrize("kind", BENT)
def test_embedder_that_fails_loses_no_text(opened, served, kind):
    server = served(embeddings)
    memory = opened(":memory:", embedder=gentle(server))
    memory.add(VIOLIN)
    memory.search("violin")
    server.replies = [BENT[kind]]
    note = memory.add(KETTLE)
    assert (note.content, note.state, note.vector) == (KETTLE, "pending", None)
    assert contents(memory.list()) == [VIOLIN, KETTLE]
    assert memory.catch_up() == 0
    with pytest.raises(ModelError):
        memory.search("kettle")
    server.replies = [embeddings]
    assert memory.catch_up() == 1
    later = memory.get(note)
    assert (later.state, later.error, later.vector.shape) == ("ready", None, (16,))
    assert contents(memory.search("kettle"))[0] == KETTLE
    assert memory.check().ok


def test_note_without_a_vector_says_why(opened, served):
    server = served(embeddings)
    memory = opened(embedder=gentle(server))
    server.replies = [error(500, "out of memory")]
    assert "out of memory" in (memory.add(KETTLE).error or "")


def test_embedder_that_fails_for_many(opened, served):
    server = served(embeddings)
    memory = opened(embedder=gentle(server))
    server.replies = [BENT["one too few"]]
    memory.add_many([f"Heron {number} stands in lake {number * 7}." for number in range(40)])
    assert len(pending(memory)) == 40
    server.replies = [embeddings]
    assert memory.catch_up() == 40
    assert pending(memory) == []


_AT_OPEN = "the first question to the embedder lets errors through that are not ours"
AT_OPEN = ("null", "none", "no data", "a page", "no body", "null for a vector", "without an index")


@pytest.mark.parametrize("kind", ["500", "401", *(mended(kind, why=_AT_OPEN) for kind in AT_OPEN)])
def test_embedder_that_fails_when_a_memory_is_made(opened, served, kind):
    server = served(BENT[kind])
    with pytest.raises(ModelError):
        opened(embedder=gentle(server))
    server.replies = [embeddings]
    assert opened(embedder=gentle(server)).add(KETTLE).state == "ready"


def test_embedder_that_is_asked_again(opened, served):
    server = served(BUSY, BROKEN, embeddings)
    assert opened(embedder=f"{server.url}#embed").add(KETTLE).state == "ready"


def test_errors_are_all_of_one_tree(served):
    server = served(error(403, "no"))
    for ask in (lambda: impatient(server).complete([]), lambda: gentle(server).embed(["a"], kind="query")):
        with pytest.raises(EngrammaError) as raised:
            ask()
        assert isinstance(raised.value, ModelError)
        assert raised.value.__cause__ is not None
