"""A LangChain chat model that follows a script (extra ``langgraph``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolCallChunk, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from engramma.errors import InvalidInput
from engramma.testing.wire import json_text, pieces, word_count

ChatReply = str | AIMessage | BaseException | Callable[[list[BaseMessage]], Any]
"""A text, a message, an exception to raise, or a function of the messages that returns one of these."""

_Tool = dict[str, Any] | type | Callable[..., Any] | BaseTool


def tool_call(name: str, /, **args: Any) -> AIMessage:
    """A message that asks for one tool; the call has an id of its own.

    >>> tool_call("search_memory", query="tea").tool_calls[0]["args"]
    {'query': 'tea'}
    """
    return AIMessage("", tool_calls=[ToolCall(name=name, args=args, id=_call_id())])


def _call_id() -> str:
    return f"call_{uuid4().hex}"


class _Script:
    """The replies and the records of a model and of all that its ``bind_tools`` made."""

    def __init__(self, replies: Sequence[ChatReply]) -> None:
        self._replies = [_checked(reply) for reply in replies]
        self.calls: list[list[BaseMessage]] = []
        self.bound_tools: list[str] = []
        self._used: set[str] = set()
        self._lock = Lock()

    def play(self, messages: list[BaseMessage]) -> AIMessage:
        """The next reply, as a message nobody else holds. Raises it if it is an exception."""
        with self._lock:
            self.calls.append(list(messages))
            reply = self._replies[min(len(self.calls), len(self._replies)) - 1]
        if callable(reply):
            reply = _checked(reply(list(messages)), "a reply function returned")
        if isinstance(reply, BaseException):
            raise reply.with_traceback(None)  # the frames of an earlier call would pile up
        return self._fresh(AIMessage(reply) if isinstance(reply, str) else reply)

    def _fresh(self, message: AIMessage) -> AIMessage:
        """A copy with an id of its own, and with new ids for tool calls that this script has made before."""
        ids: dict[str, str] = {}
        calls = []
        for call in message.tool_calls:
            json_text(call["args"])  # else a stream would break off where a whole reply does not
            new = self._unused(call["id"])
            ids |= {call["id"]: new} if call["id"] else {}
            calls.append({**call, "id": new})
        own: dict[str, Any] = {"id": f"scripted-{uuid4()}", "tool_calls": calls, "content": _renamed(message.content, ids)}
        own["additional_kwargs"] = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
        return message.model_copy(update=own).model_copy(deep=True)

    def _unused(self, given: str | None) -> str:
        with self._lock:
            own = given if given and given not in self._used else _call_id()
            self._used.add(own)
        return own


def _checked(reply: Any, where: str = "the script holds") -> Any:
    """A reply as it is; a streamed message is made whole."""
    if isinstance(reply, AIMessageChunk):
        return message_chunk_to_message(reply)
    if isinstance(reply, str | AIMessage | BaseException) or callable(reply):
        return reply
    raise InvalidInput(f"{where} {reply!r}: give a text, an AIMessage, an exception or a function of the messages")


def _renamed(content: str | list[str | dict[Any, Any]], ids: dict[str, str]) -> str | list[str | dict[Any, Any]]:
    """Content with the tool calls among its blocks under their new ids."""
    if isinstance(content, str):
        return content
    return [{**part, "id": ids[part["id"]]} if isinstance(part, dict) and part.get("id") in ids else part for part in content]


class ScriptedChatModel(BaseChatModel):
    """Answers with what it was given, in order, and repeats the last answer for ever.

    A reply is a text, an AIMessage (see ``tool_call``), an exception to raise, or a function of the
    messages that returns any of these. Each answer is a copy with an id of its own, so that a repeated
    one is another message; the ids of its tool calls are kept once, then renewed. Tokens are counted
    as words, and a stream comes word by word, in Chinese too.

    >>> model = ScriptedChatModel(tool_call("search_memory", query="tea"), "You like tea.")
    >>> model.invoke("What do I drink?").tool_calls[0]["name"], model.invoke("And?").content
    ('search_memory', 'You like tea.')
    """

    model: str = "scripted"
    _script: _Script = PrivateAttr()

    def __init__(self, *replies: ChatReply, **settings: Any) -> None:
        if not replies:
            raise InvalidInput("a script needs at least one reply: ScriptedChatModel('Hello.')")
        super().__init__(**settings)
        self._script = _Script(replies)

    @property
    def calls(self) -> list[list[BaseMessage]]:
        """The messages of every call, also of those through ``bind_tools``."""
        return self._script.calls

    @property
    def bound_tools(self) -> list[str]:
        """The names of the tools of the last ``bind_tools``."""
        return self._script.bound_tools

    def bind_tools(
        self, tools: Sequence[_Tool], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The same script with tools on offer; it decides alone whether one is called."""
        offered = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
        self._script.bound_tools = [_tool_name(tool) for tool in offered]
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=offered, **choice, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._answer(messages)):
            yield ChatGenerationChunk(message=chunk)

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        message = self._script.play(messages)
        message.usage_metadata = message.usage_metadata or _usage(messages, message)
        message.response_metadata = {"model_name": self.model, **message.response_metadata}
        return message

    @property
    def _llm_type(self) -> str:
        return "scripted"


def _tool_name(tool: dict[str, Any]) -> str:
    """What a tool is called, in the words of whichever provider it is written for."""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or named.get("title") or named.get("type") or "unnamed")


def _usage(shown: Sequence[BaseMessage], message: AIMessage) -> UsageMetadata:
    """Words for tokens: those of all messages, and those of the reply with its tool calls."""
    read = sum(word_count(one.text) for one in shown)
    calls = [f"{call['name']} {json_text(call['args'])}" for call in message.tool_calls]
    written = sum(map(word_count, (message.text, *calls)))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    """A message word by word, then its tool calls, then an empty chunk with the usage."""
    for content in _contents(message.content):
        yield AIMessageChunk(content=content, id=message.id)
    for call in _call_chunks(message):
        yield AIMessageChunk(content="", tool_call_chunks=[call], id=message.id)
    yield AIMessageChunk(
        content="",
        id=message.id,
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        additional_kwargs=message.additional_kwargs,
        chunk_position="last",
    )


def _contents(content: str | list[str | dict[Any, Any]]) -> Iterator[str | list[str | dict[Any, Any]]]:
    if isinstance(content, str):
        yield from pieces(content)
    else:
        yield from ([part] for part in content)


def _call_chunks(message: AIMessage) -> Iterator[ToolCallChunk]:
    """Each call's name and id first, its arguments piece by piece after them."""
    calls = [(call, json_text(call["args"])) for call in message.tool_calls]
    broken = [(call, call["args"] or "") for call in message.invalid_tool_calls]
    for index, (call, args) in enumerate([*calls, *broken]):
        yield ToolCallChunk(name=call["name"], args="", id=call["id"], index=index, type="tool_call_chunk")
        for piece in pieces(args):
            yield ToolCallChunk(name=None, args=piece, id=None, index=index, type="tool_call_chunk")
