"""What a scripted reply looks like on the wire: the JSON of Ollama's chat API and of OpenAI's, whole and word by word.

Plain functions of a request's JSON and of what the model says to it; no socket is touched here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import uuid4

from engramma.errors import InvalidInput

_HAN = r"\u3400-\u9fff\U00020000-\U0002fa1f"
_PIECE = re.compile(rf"(\s*)([{_HAN}]+)([^\w\s]*\s*)|\s*[^\s{_HAN}]+\s*|\s+")
_ASSISTANT = "assistant"


def pieces(text: str) -> Iterator[str]:
    """A text word by word, Chinese too; the pieces joined are the text again."""
    import rjieba

    for match in _PIECE.finditer(text):
        before, han, after = match.groups()
        if han is None:
            yield match.group()
            continue
        *most, last = rjieba.cut(han)
        first, *rest = [*most, last + after]
        yield from (before + first, *rest)


def word_count(text: str) -> int:
    """How many words a text has; they stand for tokens."""
    return sum(len(line.split()) if line.isascii() else _words(line) for line in text.splitlines())


def _words(line: str) -> int:
    return sum(1 for piece in pieces(line) if not piece.isspace())


def json_text(value: Any) -> str:
    """A value as JSON, Chinese unescaped. Raises InvalidInput for what JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{value!r} cannot be sent as JSON: {error}") from error


# -- what is said


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model asks for; ``json`` is its arguments as text."""

    tool: str
    args: dict[str, Any]
    json: str


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says: a text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def words(self) -> int:
        """The words of the text, or of the calls' names and arguments."""
        return word_count(self.text) + sum(word_count(f"{call.tool} {call.json}") for call in self.calls)


def understood(reply: Any, where: str) -> Said | int:
    """A reply as its author wrote it, as what is said or as an HTTP status. Raises InvalidInput for anything else."""
    match reply:
        case str():
            return Said(reply)
        case int() if 400 <= reply <= 599:
            return reply
        case {"tool": _}:
            return Said(calls=(_call(reply),))
        case list() if any(isinstance(item, dict) and "tool" in item for item in reply):
            return Said(calls=tuple(map(_call, reply)))
        case dict() | list():
            return Said(json_text(reply))
    raise InvalidInput(
        f"{where} {reply!r}: give a text, {{'tool': 'name', 'args': {{}}}} or a list of these, other JSON data, "
        "an HTTP status from 400 to 599, or a function of the request"
    )


def _call(item: Any) -> Call:
    match item:
        case {"tool": str(tool), **rest} if tool and set(rest) <= {"args"}:
            args: Any = rest.get("args", {})
            if isinstance(args, dict):
                return Call(tool, args, json_text(args))
    raise InvalidInput(f"{item!r} is no tool call: give {{'tool': 'search_memory', 'args': {{'query': 'tea'}}}}")


# -- what was asked


def model_of(body: Mapping[str, Any]) -> str:
    """The model that a request names."""
    return str(body.get("model") or "scripted")


def words_shown(body: Mapping[str, Any]) -> int:
    """The words of a request's messages."""
    return sum(word_count(_text_of(message.get("content"))) for message in body["messages"])


def _text_of(content: Any) -> str:
    """The text of a message whose content may come in parts, such as pictures beside text."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return " ".join(text for text in texts if isinstance(text, str))


# -- Ollama's API


def ollama_reply(body: Mapping[str, Any], said: Said) -> dict[str, Any]:
    """A whole reply of /api/chat."""
    return _ollama_record(body, said) | _ollama_done(body, said)


def ollama_stream(body: Mapping[str, Any], said: Said) -> Iterator[dict[str, Any]]:
    """One record for each word or tool call, and an empty one that says it is done."""
    words = (Said(piece) for piece in pieces(said.text))
    for part in chain(words, (Said(calls=(call,)) for call in said.calls)):
        yield _ollama_record(body, part)
    yield ollama_reply(body, Said()) | _ollama_done(body, said)


def _ollama_record(body: Mapping[str, Any], said: Said) -> dict[str, Any]:
    calls = [{"function": {"name": call.tool, "arguments": call.args}} for call in said.calls]
    message = {"role": _ASSISTANT, "content": said.text} | ({"tool_calls": calls} if calls else {})
    return {"model": model_of(body), "created_at": now(), "message": message, "done": False}


def _ollama_done(body: Mapping[str, Any], said: Said) -> dict[str, Any]:
    """What the last record says besides; durations are in nanoseconds."""
    durations = dict.fromkeys(("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"), 1)
    counts = {"prompt_eval_count": words_shown(body), "eval_count": said.words}
    return {"done": True, "done_reason": "stop", **durations, **counts}


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


# -- OpenAI's API


def openai_reply(body: Mapping[str, Any], said: Said) -> dict[str, Any]:
    """A whole reply of /v1/chat/completions."""
    calls = _openai_calls(said)
    message: dict[str, Any] = {"role": _ASSISTANT, "content": None if calls else said.text, "refusal": None}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(said)}
    return _openai_frame(body, "chat.completion") | {"choices": [choice], "usage": _openai_usage(body, said)}


def openai_stream(body: Mapping[str, Any], said: Said) -> Iterator[dict[str, Any]]:
    """The chunks of a reply; the usage comes last, and only where it is asked for."""
    options = body.get("stream_options")
    told = isinstance(options, dict) and bool(options.get("include_usage"))
    frame = _openai_frame(body, "chat.completion.chunk") | ({"usage": None} if told else {})
    for delta in _openai_deltas(said):
        yield frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(said)}]}
    if told:
        yield frame | {"choices": [], "usage": _openai_usage(body, said)}


def _openai_deltas(said: Said) -> Iterator[dict[str, Any]]:
    """The role, the words, and for each tool call its name and then its arguments piece by piece."""
    yield {"role": _ASSISTANT, "content": None if said.calls else ""}
    for piece in pieces(said.text):
        yield {"content": piece}
    for index, call in enumerate(_openai_calls(said)):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": function | {"arguments": ""}}]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _openai_calls(said: Said) -> list[dict[str, Any]]:
    """The tool calls, each under an id of its own."""
    functions = [{"name": call.tool, "arguments": call.json} for call in said.calls]
    return [{"id": f"call_{uuid4().hex}", "type": "function", "function": function} for function in functions]


def _openai_frame(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": model_of(body)}


def _openai_usage(body: Mapping[str, Any], said: Said) -> dict[str, int]:
    read, written = words_shown(body), said.words
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _finish(said: Said) -> str:
    return "tool_calls" if said.calls else "stop"
