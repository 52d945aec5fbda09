"""A chat model and an embedder behind HTTP that answer by a script: Ollama's API and OpenAI's, on this machine."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from socketserver import TCPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self

import numpy as np

from engramma.errors import InvalidInput
from engramma.testing import wire
from engramma.testing.models import HashEmbedder

ServedReply = str | int | dict[str, Any] | list[Any] | Callable[[dict[str, Any]], Any]
"""A text, an HTTP status, tool calls, JSON data, or a function of the request's JSON that returns one of these."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A chat request that a ModelServer was sent: its path, and its JSON as sent."""

    path: str
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the conversation, as JSON."""
        return list(self.body["messages"])

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [str(tool.get("function", tool).get("name")) for tool in self.body.get("tools") or ()]


class ModelServer:
    """An HTTP server on a free port of this machine that answers by a script, in Ollama's API and in OpenAI's.

    A reply is a text, a tool call such as ``{"tool": "search_memory", "args": {"query": "tea"}}`` or a
    list of these, other JSON data (sent as text), an HTTP status from 400 to 599, or a function of the
    request's JSON that returns any of these. Replies come in order, and the last is repeated for ever.
    Tokens are counted as words, streams come word by word, and embeddings are a HashEmbedder's.

    Clients may try again at once after a scripted status (``Retry-After-Ms: 1``). What a reply function
    raises reaches the client as status 500, and is raised again where the ``with`` block ends.

        with ModelServer({"tool": "search_memory", "args": {"query": "tea"}}, "You like tea.") as server:
            model = ChatOllama(model="any", base_url=server.url)
    """

    def __init__(self, *replies: ServedReply, models: Sequence[str] = ("scripted",), dimensions: int = 256) -> None:
        if not replies:
            raise InvalidInput("a script needs at least one reply: ModelServer('Hello.')")
        self._replies = [reply if callable(reply) else wire.understood(reply, "the script holds") for reply in replies]
        self.models, self._embedder = tuple(models), HashEmbedder(dimensions)
        self._requests: list[ServedRequest] = []
        self._errors: list[Exception] = []
        self._lock = Lock()
        self._http = _Http(self._answer)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = Thread(target=self._http.serve_forever, args=(0.02,), name="engramma-model-server", daemon=True)
        self._thread.start()

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[ServedRequest]:
        """The chat requests so far, in order."""
        with self._lock:
            return list(self._requests)

    @property
    def calls(self) -> list[list[dict[str, Any]]]:
        """The messages of every chat request, in order."""
        return [request.messages for request in self.requests]

    def close(self) -> None:
        """Stop listening. Closing twice does no harm."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is None and self._errors:
            raise self._errors[0]

    def _answer(self, method: str, path: str, raw: bytes) -> _Answer:
        try:
            if (method, path) not in _ROUTES:
                known = ", ".join(" ".join(route) for route in _ROUTES)
                raise _Refused(404, f"{method} {path} is not known here; known: {known}")
            return _ROUTES[method, path](self, {} if method == "GET" else _parsed(raw))
        except _Refused as refused:
            return _error(path, refused)

    def _said(self, path: str, body: dict[str, Any]) -> wire.Said:
        """Record a chat request and say what the script says to it."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise _Refused(400, f"'messages' must be a list of messages, not {messages!r:.200}")
        with self._lock:
            self._requests.append(ServedRequest(path, body))
            reply = self._replies[min(len(self._requests), len(self._replies)) - 1]
        said = self._asked(reply, body) if callable(reply) else reply
        if isinstance(said, int):
            raise _Refused(said, f"status {said}, as the script says", **{"Retry-After-Ms": "1"})
        return said

    def _asked(self, function: Callable[[dict[str, Any]], Any], body: dict[str, Any]) -> wire.Said | int:
        """What a reply function returns. Its error is kept; a client need not try again."""
        with _Kept(self._errors) as kept:
            return wire.understood(function(body), "a reply function returned")
        raise _Refused(500, f"the reply function raised {kept.error!r}", **{"X-Should-Retry": "false"})

    def _ollama_chat(self, body: dict[str, Any]) -> _Answer:
        said = self._said("/api/chat", body)
        if not body.get("stream", True):
            return _json(wire.ollama_reply(body, said))
        return _Answer((_bytes(record) + b"\n" for record in wire.ollama_stream(body, said)), "application/x-ndjson")

    def _openai_chat(self, body: dict[str, Any]) -> _Answer:
        said = self._said("/v1/chat/completions", body)
        if not body.get("stream"):
            return _json(wire.openai_reply(body, said))
        events = (b"data: " + _bytes(chunk) + b"\n\n" for chunk in wire.openai_stream(body, said))
        return _Answer(chain(events, (b"data: [DONE]\n\n",)), "text/event-stream")

    def _ollama_embed(self, body: dict[str, Any]) -> _Answer:
        vectors, words = self._embedded(body)
        counts = {"total_duration": 1, "load_duration": 1, "prompt_eval_count": words}
        return _json({"model": wire.model_of(body), "embeddings": vectors.tolist(), **counts})

    def _openai_embeddings(self, body: dict[str, Any]) -> _Answer:
        vectors, words = self._embedded(body)
        packed = body.get("encoding_format") == "base64"
        shown = [base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else row.tolist() for row in vectors]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(shown)]
        usage = {"prompt_tokens": words, "total_tokens": words}
        return _json({"object": "list", "data": data, "model": wire.model_of(body), "usage": usage})

    def _embedded(self, body: dict[str, Any]) -> tuple[np.ndarray, int]:
        texts, dimensions = _texts_of(body), body.get("dimensions")
        if dimensions is not None and (not isinstance(dimensions, int) or dimensions < 1):
            raise _Refused(400, f"'dimensions' must be a positive number, not {dimensions!r}")
        embedder = HashEmbedder(dimensions) if dimensions else self._embedder
        return embedder.embed(texts, kind="passage"), sum(map(wire.word_count, texts))


# -- what the servers say of themselves

_DETAILS = {"format": "script", "family": "scripted", "families": ["scripted"], "parameter_size": "0B"}


def _ollama_tags(server: ModelServer, body: dict[str, Any]) -> _Answer:
    known = {"modified_at": wire.now(), "size": 1, "digest": "0" * 64, "details": _DETAILS}
    return _json({"models": [{"name": name, "model": name, **known} for name in server.models]})


def _ollama_show(server: ModelServer, body: dict[str, Any]) -> _Answer:
    known = {"details": _DETAILS, "model_info": {"general.architecture": "scripted"}}
    return _json({"modelfile": "", "template": "", **known, "capabilities": ["completion", "tools", "embedding"]})


def _ollama_version(server: ModelServer, body: dict[str, Any]) -> _Answer:
    return _json({"version": "0.12.0"})


def _openai_models(server: ModelServer, body: dict[str, Any]) -> _Answer:
    known = {"object": "model", "created": 1, "owned_by": "engramma"}
    return _json({"object": "list", "data": [{"id": name, **known} for name in server.models]})


_ROUTES: dict[tuple[str, str], Callable[[ModelServer, dict[str, Any]], _Answer]] = {
    ("POST", "/api/chat"): ModelServer._ollama_chat,
    ("POST", "/api/embed"): ModelServer._ollama_embed,
    ("POST", "/api/show"): _ollama_show,
    ("GET", "/api/tags"): _ollama_tags,
    ("GET", "/api/version"): _ollama_version,
    ("POST", "/v1/chat/completions"): ModelServer._openai_chat,
    ("POST", "/v1/embeddings"): ModelServer._openai_embeddings,
    ("GET", "/v1/models"): _openai_models,
}


# -- requests and answers


@dataclass(frozen=True, slots=True)
class _Answer:
    parts: Iterable[bytes]
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class _Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class _Kept:
    """Keeps the error of a reply function, which would otherwise end in a thread that nobody looks at."""

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        self._errors.append(error)
        return True


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:  # not JSON, or not UTF-8
        raise _Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _Refused(400, f"the body must be a JSON object, not {body!r:.200}")
    return body


def _texts_of(body: Mapping[str, Any]) -> list[str]:
    """The texts to embed. Token ids, which OpenAI's API takes as well, count as words."""
    given: Any = body.get("input")
    items = given if isinstance(given, list) and not all(isinstance(item, int) for item in given) else [given]
    texts = [" ".join(map(str, item)) if isinstance(item, list) and item else item for item in items]
    if not all(isinstance(text, str) for text in texts):
        raise _Refused(400, f"'input' must be a text or a list of texts, not {given!r:.200}")
    return texts


def _bytes(value: Any) -> bytes:
    """JSON as real servers send it: UTF-8, not escaped. Half a character, which no model says, becomes "?"."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _json(value: Any, status: int = 200, **headers: str) -> _Answer:
    body = _bytes(value)
    return _Answer((body,), status=status, headers={"Content-Length": str(len(body)), **headers})


def _error(path: str, refused: _Refused) -> _Answer:
    """An error in the shape of the API that was asked."""
    kind = "server_error" if refused.status >= 500 else "invalid_request_error"
    told = {"message": str(refused), "type": kind, "param": None, "code": None}
    return _json({"error": told if path.startswith("/v1") else str(refused)}, refused.status, **refused.headers)


# -- sockets


class _Connection(BaseHTTPRequestHandler):
    """One request, then the connection is closed: nothing is left open when a server or a client ends."""

    server: _Http
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length") or ""
        raw = self.rfile.read(int(length)) if length.isdecimal() else b""
        answer = self.server.answer(self.command, self.path.partition("?")[0], raw)
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.content_type, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for part in answer.parts:
            self.wfile.write(part)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[str, str, bytes], _Answer]) -> None:
        self.answer = answer
        super().__init__(("127.0.0.1", 0), _Connection)

    def server_bind(self) -> None:
        """Bind without asking a name server for our own name, which takes seconds on some machines."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
