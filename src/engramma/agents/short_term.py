"""Short-term memory that needs no model: the last messages, or those that a token budget holds.

``keep_last`` and ``token_budget`` are middleware for ``create_agent``. They shorten what is sent to
the model; the saved thread stays whole. Put them last in the list of middleware, so that they count
what the others have added. ``last_messages`` and ``within_budget`` are the same for a graph of your own.

A message list becomes a *lead* (system messages, then summaries), which always comes first, and
*blocks*: an AI message that calls tools together with all its results, or any other message alone.
Blocks stay whole or leave whole. What no chat model accepts leaves in any case: results that
nobody asked for, and calls that were never answered.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately

from engramma.agents.turns import is_summary
from engramma.errors import InvalidInput

TokenCounter = Callable[[list[BaseMessage]], int]
Messages = list[BaseMessage]
Block = list[BaseMessage]

MARK = "[…]"
_LEGIBLE = 200  # characters that a shortened content keeps while others can still be shortened


def count_tokens(messages: Iterable[BaseMessage]) -> int:
    """LangChain's approximate count, which takes four characters for a token, with Chinese and other
    scripts counted as models see them: three UTF-8 bytes, which is one Han character, a token."""
    listed = list(messages)
    return count_tokens_approximately(listed) + sum(map(_uncounted, listed))


def _uncounted(message: BaseMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    text = "".join([*_texts(message.content), repr(calls) if calls else ""])
    if text.isascii():
        return 0
    ascii_count = len(text.encode("ascii", "ignore"))
    wide_bytes = len(text.encode("utf-8", "replace")) - ascii_count
    return math.ceil(wide_bytes / 3 - (len(text) - ascii_count) / 4)


# -- the two strategies


def keep_last(n: int) -> KeepLast:
    """Middleware that sends the last ``n`` messages (see ``last_messages``)."""
    return KeepLast(n)


def token_budget(max_tokens: int, token_counter: TokenCounter = count_tokens) -> TokenBudget:
    """Middleware that sends what fits in ``max_tokens`` (see ``within_budget``).

    The system message counts too, recalled memories in it included; descriptions of tools do not.
    """
    return TokenBudget(max_tokens, token_counter)


class _Shortening(AgentMiddleware[AgentState[Any], Any, Any]):
    """Sends a shorter request than the thread would make."""

    def shortened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request to send."""
        raise NotImplementedError

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the shortened request."""
        return handler(self.shortened(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Send the shortened request."""
        return await handler(self.shortened(request))


class KeepLast(_Shortening):
    """What ``keep_last`` makes."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = checked_size("n", n)

    def shortened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with the last messages."""
        kept: list[Any] = last_messages(request.messages, self.n)
        return request.override(messages=kept)


class TokenBudget(_Shortening):
    """What ``token_budget`` makes."""

    def __init__(self, max_tokens: int, token_counter: TokenCounter = count_tokens) -> None:
        super().__init__()
        if not callable(token_counter):
            raise InvalidInput(f"token_counter={token_counter!r} cannot be called: give a function of a list of messages")
        self.max_tokens = checked_size("max_tokens", max_tokens)
        self.token_counter = token_counter

    def shortened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request inside the budget, its system message counted and at the very last shortened too."""
        system = [] if request.system_message is None else [request.system_message]
        kept: list[Any] = within_budget([*system, *request.messages], self.max_tokens, self.token_counter)
        if not system:
            return request.override(messages=kept)
        return request.override(system_message=kept[0], messages=kept[1:])


def checked_size(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least ``least``. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name}={value!r} must be a whole number of at least {least}")
    return value


# -- the same as plain functions


def last_messages(messages: Sequence[MessageLikeRepresentation], n: int) -> Messages:
    """The newest ``n`` messages, in whole blocks, from a user's message on.

    System messages and summaries come first and are not counted. The current user message always
    stays, and so does the newest block after it, even where that alone is more than ``n`` messages.
    """
    checked_size("n", n)
    thread = divided(messages)
    return [*thread.lead, *_newest(thread, n, len, len)]


def within_budget(
    messages: Sequence[MessageLikeRepresentation], max_tokens: int, token_counter: TokenCounter = count_tokens
) -> Messages:
    """The newest messages that fit in ``max_tokens``, in whole blocks, from a user's message on.

    System messages and summaries come first and count. The newest turn that does not fit stays all
    the same if it does with the results of its tools shortened, to end in "[…]". Where the present
    turn alone is too long, its user message stays with the newest blocks that fit, at least the last;
    where that is too long too, contents are shortened: results of tools first, then what was said,
    then summaries, then the system message. The messages given stay as they are.

    Raises InvalidInput for a budget in which not even that has room.
    """
    checked_size("max_tokens", max_tokens)
    thread = divided(messages)

    def fits(some: Messages) -> bool:
        return token_counter(some) <= max_tokens

    talk = _newest(thread, max_tokens, lambda some: token_counter([*thread.lead, *some]), token_counter)
    if fits([*thread.lead, *talk]):
        return [*thread.lead, *_turn_before(thread, talk, fits), *talk]
    shortened = _squeezed([*thread.lead, *talk], fits)
    if not fits(shortened) and thread.current is not None:
        shortened = _squeezed([*thread.lead, thread.current], fits)
    if fits(shortened):
        return shortened
    raise InvalidInput(
        f"max_tokens={max_tokens!r} has no room for the current message, even shortened: give at least {token_counter(shortened)}"
    )


# -- the parts of a thread


@dataclass(frozen=True, slots=True)
class Thread:
    """A message list by its parts, each in order."""

    systems: Messages
    summaries: Messages
    blocks: list[Block]

    @property
    def lead(self) -> Messages:
        """What always comes first."""
        return [*self.systems, *self.summaries]

    @property
    def current(self) -> BaseMessage | None:
        """The newest user message, which the model is to answer; None where nobody asked."""
        return next((block[0] for block in reversed(self.blocks) if isinstance(block[0], HumanMessage)), None)

    def present(self) -> list[Block]:
        """The blocks after the current user message; all of them where there is none."""
        current = self.current
        starts = [number for number, block in enumerate(self.blocks) if block[0] is current]
        return self.blocks[starts[-1] + 1 :] if starts else self.blocks


def divided(messages: Sequence[MessageLikeRepresentation]) -> Thread:
    """The parts of a message list. Raises InvalidInput for what is no list."""
    if isinstance(messages, str | BaseMessage | dict):
        raise InvalidInput(f"messages={messages!r} is not a list of messages: give [{messages!r}]")
    listed = convert_to_messages(messages)
    systems: Messages = [one for one in listed if isinstance(one, SystemMessage)]
    summaries = [one for one in listed if is_summary(one) and not isinstance(one, SystemMessage)]
    talk = [one for one in listed if not isinstance(one, SystemMessage) and not is_summary(one)]
    return Thread(systems, summaries, _blocks(talk))


def _blocks(talk: Messages) -> list[Block]:
    """Messages with what belongs to them; results that nobody asked for and unanswered calls left out."""
    found: list[Block] = []
    asked: dict[str | None, Block] = {}
    for message in talk:
        if isinstance(message, ToolMessage):
            asked.get(message.tool_call_id, []).append(message)
            continue
        found.append([message])
        if isinstance(message, AIMessage):
            asked |= {call["id"]: found[-1] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    return [block for block in found if _is_answered(block)]


def _is_answered(block: Block) -> bool:
    calls = block[0].tool_calls if isinstance(block[0], AIMessage) else []
    return {call["id"] for call in calls} <= {one.tool_call_id for one in block[1:] if isinstance(one, ToolMessage)}


def flat(blocks: Iterable[Block]) -> Messages:
    """The messages of blocks, in order."""
    return [message for block in blocks for message in block]


# -- what stays


def _newest(thread: Thread, most: int, count: TokenCounter, weight: TokenCounter) -> Messages:
    """The newest whole blocks of which ``count`` is at most ``most``, the current user message among them."""
    start = ("human", "ai") if thread.summaries else "human"  # a summary is a human message already
    kept = trim_messages(
        flat(_tail(thread.blocks, 2 * most, weight)), max_tokens=most, token_counter=count, strategy="last", start_on=start
    )
    current = thread.current
    if current is not None and any(message is current for message in kept):
        return kept
    return _of_present_turn(thread, most, count)


def _tail(blocks: list[Block], most: int, weight: TokenCounter) -> list[Block]:
    """The newest blocks until they weigh more than ``most``, so that a long thread is not counted whole."""
    total, start = 0, len(blocks)
    while start and total <= most:
        start -= 1
        total += weight(blocks[start])
    return blocks[start:]


def _of_present_turn(thread: Thread, most: int, count: TokenCounter) -> Messages:
    """The current user message and the newest whole blocks after it, the last of them in any case:
    a model that does not see its last call would make it again."""
    first = [] if thread.current is None else [thread.current]
    kept: Messages = []
    for block in reversed(thread.present()):
        if kept and count([*first, *block, *kept]) > most:
            break
        kept = [*block, *kept]
    return [*first, *kept]


def _turn_before(thread: Thread, talk: Messages, fits: Callable[[Messages], bool]) -> Messages:
    """The turn before those that stay whole, with the results of its tools shortened; nothing where that is not enough."""
    starts = [number for number, block in enumerate(thread.blocks) if talk and block[0] is talk[0]]
    if not starts or len(flat(thread.blocks[starts[-1] :])) > len(talk):
        return []
    older = thread.blocks[: starts[-1]]
    turn = next((older[number:] for number in reversed(range(len(older))) if isinstance(older[number][0], HumanMessage)), [])
    own = {id(message) for message in flat(turn)}
    squeezed = _capped([*thread.lead, *flat(turn), *talk], lambda one: _is_result(one) and id(one) in own, _LEGIBLE, fits)
    return squeezed[len(thread.lead) : len(squeezed) - len(talk)] if fits(squeezed) else []


# -- shortening


def _squeezed(messages: Messages, fits: Callable[[Messages], bool]) -> Messages:
    """The messages with contents shortened until they fit, or as short as they can be."""
    if fits(messages):
        return messages
    messages = [_without_giants(message, fits) for message in messages]
    for chosen, least in _SACRIFICES:
        messages = _capped(messages, chosen, least, fits)
    return messages if fits(messages) else [_bare(message) for message in messages]


def _is_result(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage)


def _is_system(message: BaseMessage) -> bool:
    return isinstance(message, SystemMessage)


def _is_said(message: BaseMessage) -> bool:
    return not (_is_result(message) or _is_system(message) or is_summary(message))


_SACRIFICES = (
    (_is_result, _LEGIBLE), (_is_said, _LEGIBLE), (is_summary, _LEGIBLE), (_is_result, 0),
    (_is_system, _LEGIBLE), (is_summary, 0), (_is_said, 0), (_is_system, 0),
)  # fmt: skip
"""Whose contents are shortened, in order, and how many characters they keep at that point."""


def _capped(messages: Messages, chosen: Callable[[BaseMessage], bool], least: int, fits: Callable[[Messages], bool]) -> Messages:
    """The chosen messages cut to the greatest length, the same for all, with which everything fits."""
    longest = max((sum(map(len, _texts(one.content))) for one in messages if chosen(one)), default=0)

    def cut_to(length: int) -> Messages:
        return [_cut(one, length) if chosen(one) else one for one in messages]

    return cut_to(greatest(min(least, longest), longest, lambda length: fits(cut_to(length))))


def greatest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The greatest number from ``low`` to ``high`` that fits; ``low`` where none does."""
    low = high if fits(high) else low
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def cut_text(text: str, length: int) -> str:
    """A text of at most ``length`` characters; where some are left out, it ends in the mark, which always has room."""
    return text if len(text) <= length else f"{text[: max(0, length - len(MARK) - 1)]} {MARK}".strip()


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content, which may be a list of parts."""
    for part in [content] if isinstance(content, str) else content:
        if isinstance(part, str):
            yield part
        elif part.get("type") == "text":
            yield str(part.get("text", ""))


def _cut(message: BaseMessage, length: int) -> BaseMessage:
    """A copy whose texts have at most ``length`` characters together; other parts stay."""
    if sum(map(len, _texts(message.content))) <= length:
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": cut_text(message.content, length)})
    parts, room = [], length
    for part in message.content:
        text = "".join(_texts([part]))
        shorter = cut_text(text, room)
        room -= min(room, len(text))
        parts.append(part if shorter == text else shorter if isinstance(part, str) else {**part, "text": shorter})
    return message.model_copy(update={"content": parts})


def _without_giants(message: BaseMessage, fits: Callable[[Messages], bool]) -> BaseMessage:
    """A copy without those parts, texts aside, which alone are over the budget (a file, a recording)."""
    if isinstance(message.content, str):
        return message

    def fitting(part: Any) -> Any:
        alone = message.model_copy(update={"content": [part]})
        return part if any(_texts([part])) or fits([alone]) else {"type": "text", "text": MARK}

    return message.model_copy(update={"content": [fitting(part) for part in message.content]})


def _bare(message: BaseMessage) -> BaseMessage:
    """A copy that is down to the mark where it had parts."""
    return message if isinstance(message.content, str) else message.model_copy(update={"content": MARK})
