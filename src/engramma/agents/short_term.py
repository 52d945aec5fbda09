"""Short-term memory that needs no model: the last messages, or those that a token budget holds.

``keep_last`` and ``token_budget`` are middleware for ``create_agent``. They shorten what is sent to
the model; the saved thread stays whole. Put them last in the list of middleware, so that they count
what the others have added. ``last_messages`` and ``within_budget`` are the same for a graph of your own.

A message list becomes a *lead* (system messages, then summaries), which always comes first, and
*blocks*: an AI message that calls tools together with all its results, or any other message alone.
Blocks stay whole or leave whole. What no chat model accepts leaves in any case: results that
nobody asked for, and calls that were never answered.

What the user says now and the system prompt are never cut. Where a budget has no room for all, the oldest
turns leave first, then the rest gives way as ``within_budget`` says, recalled notes among it: one whole
note after another, and their fence stays closed.
"""

from __future__ import annotations

import logging
import math
import re
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
from engramma.analysts.chat import RECALLED
from engramma.errors import InvalidInput

log = logging.getLogger("engramma")

TokenCounter = Callable[[list[BaseMessage]], int]
Messages = list[BaseMessage]
Block = list[BaseMessage]

MARK = "[…]"
LEAST = 50  # tokens of a budget, below which there is room for nothing but the present words
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
    """Middleware that sends what fits in ``max_tokens``, at least 50 (see ``within_budget``).

    The system message counts too, recalled memories in it included; descriptions of tools do not. With a
    ``token_counter`` of your own, which may count anything, any whole number will do.
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
        self.n = checked_size("n", n, why=_ANSWERED)

    def shortened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with the last messages."""
        kept: list[Any] = last_messages(request.messages, self.n)
        return request.override(messages=kept)


class TokenBudget(_Shortening):
    """What ``token_budget`` makes."""

    def __init__(self, max_tokens: int, token_counter: TokenCounter = count_tokens) -> None:
        super().__init__()
        self.max_tokens = checked_budget(max_tokens, token_counter)
        self.token_counter = token_counter
        self._told = ""

    def shortened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request inside the budget, its system message counted; where it cannot be, one warning a turn says so."""
        system = [] if request.system_message is None else [request.system_message]
        found, remark = fitted([*system, *request.messages], self.max_tokens, self.token_counter)
        kept: list[Any] = found
        if remark and remark != self._told:
            log.warning(remark)
        self._told = remark
        if system and kept and isinstance(kept[0], SystemMessage):
            return request.override(system_message=kept[0], messages=kept[1:])
        return request.override(system_message=None, messages=kept)


_ANSWERED = ": the message that is to be answered is always sent"


def checked_size(name: str, value: Any, least: int = 1, why: str = "") -> int:
    """A whole number of at least ``least``. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name}={value!r} must be a whole number of at least {least}{why}")
    return value


def checked_budget(max_tokens: Any, token_counter: Any) -> int:
    """A budget that something fits in. Raises InvalidInput."""
    if not callable(token_counter):
        raise InvalidInput(f"token_counter={token_counter!r} cannot be called: give a function of a list of messages")
    if token_counter is not count_tokens:
        return checked_size("max_tokens", max_tokens, why=_ANSWERED)
    why = ": the system prompt and what the user says now are never cut, and in less nothing stands beside them"
    return checked_size("max_tokens", max_tokens, LEAST, why)


# -- the same as plain functions


def last_messages(messages: Sequence[MessageLikeRepresentation], n: int) -> Messages:
    """The newest ``n`` messages, in whole blocks, from a user's message on.

    System messages and summaries come first and are not counted. The current user message always
    stays, and so does the newest block after it, even where that alone is more than ``n`` messages.
    """
    checked_size("n", n, why=_ANSWERED)
    thread = divided(messages)
    return [*thread.lead, *_newest(thread, n, len, len)]


def within_budget(
    messages: Sequence[MessageLikeRepresentation], max_tokens: int, token_counter: TokenCounter = count_tokens
) -> Messages:
    """The newest messages that fit in ``max_tokens``, in whole blocks, from a user's message on.

    System messages and summaries come first and count. The newest turn that does not fit stays all
    the same if it does with the results of its tools shortened, to end in "[…]". Where the present
    turn alone is too long, its user message stays with the newest blocks that fit, at least the last;
    where that is too long too, something gives way: results of tools first, which are shortened, then
    what the assistant said, then summaries, then the recalled notes, which leave from the last one on.

    The words of the user's message and the system prompt stay whole in any case. Where these alone are
    over the budget they are sent all the same, with the last call of tools and 200 characters of each
    result, and a warning in the log says the figures. The messages given stay as they are.
    """
    kept, remark = fitted(messages, checked_budget(max_tokens, token_counter), token_counter)
    if remark:
        log.warning(remark)
    return kept


def fitted(messages: Sequence[MessageLikeRepresentation], max_tokens: int, token_counter: TokenCounter) -> tuple[Messages, str]:
    """What ``within_budget`` keeps, and what is to be said where that is over the budget, else ""."""
    thread = divided(messages)

    def fits(some: Messages) -> bool:
        return token_counter(some) <= max_tokens

    talk = _newest(thread, max_tokens, lambda some: token_counter([*thread.lead, *some]), token_counter)
    if fits([*thread.lead, *talk]):
        return [*thread.lead, *_turn_before(thread, talk, fits), *talk], ""
    now = talk if thread.current is None else [thread.current]
    for some in ([*thread.lead, *talk], [*thread.lead, *now], [*thread.systems, *now]):
        shortened = _squeezed(some, fits)
        if fits(shortened):
            return shortened, ""
    own, said = shortened[: len(shortened) - len(now)], shortened[len(shortened) - len(now) :]
    remark = (
        f"max_tokens={max_tokens!r} is less than the system prompt ({token_counter(own)} tokens) and what the user says now "
        f"({token_counter(said)}) have: both are sent whole, without recalled notes and earlier turns"
    )
    return [*shortened, *_last_step(thread)], remark


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


def _last_step(thread: Thread) -> Messages:
    """The newest block after the user's message, its results short: without it a model would make the same call for ever."""
    block = [] if thread.current is None else flat(thread.present()[-1:])
    return _capped(block, _is_result, _LEGIBLE, lambda _: False)


# -- shortening


def _squeezed(messages: Messages, fits: Callable[[Messages], bool]) -> Messages:
    """The messages with contents shortened until they fit, or as short as they may be."""
    if fits(messages):
        return messages
    messages = [_without_giants(message, fits) for message in messages]
    for chosen, least in _SACRIFICES:
        messages = _capped(messages, chosen, least, fits) if chosen else _with_fewer_notes(messages, fits)
    return messages if fits(messages) else [message if _is_whole(message) else _bare(message) for message in messages]


def _is_result(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage)


def _is_whole(message: BaseMessage) -> bool:
    """Whether a message is never cut: system prompts, and what the user says."""
    return isinstance(message, SystemMessage) or (isinstance(message, HumanMessage) and not is_summary(message))


def _is_answered_text(message: BaseMessage) -> bool:
    return not (_is_result(message) or _is_whole(message) or is_summary(message))


_SACRIFICES: tuple[tuple[Callable[[BaseMessage], bool] | None, int], ...] = (
    (_is_result, _LEGIBLE), (_is_answered_text, _LEGIBLE), (is_summary, _LEGIBLE), (None, 0),
    (_is_result, 0), (is_summary, 0), (_is_answered_text, 0),
)  # fmt: skip
"""Whose contents are shortened, in order, and how many characters they keep at that point; at None notes leave."""


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
    """A text of at most ``length`` characters; where some are left out, it ends in the mark, which always has room.

    A block of recalled notes that has no room leaves whole, as one without its end would let a note pose as a prompt.
    """
    if len(text) <= length:
        return text
    end = max(0, length - len(MARK) - 1)
    end = next((block.start() for block in _BLOCK.finditer(text) if block.start() < end < block.end()), end)
    return f"{text[:end].rstrip()} {MARK}".strip()


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


# -- recalled notes in a system message


_BLOCK = re.compile(rf"(?:{re.escape(RECALLED)}\n)?<memories note=\"[^\"\n]*\">\n(?P<notes>.*?)\n *</memories>\n?", re.DOTALL)
_NEXT_NOTE = re.compile(r"\n(?=\[\d+\] )")


def _with_fewer_notes(messages: Messages, fits: Callable[[Messages], bool]) -> Messages:
    """The system messages with as many recalled notes, from the first one on, as have room."""
    texts = [text for one in messages if isinstance(one, SystemMessage) for text in _texts(one.content)]
    total = sum(len(_NEXT_NOTE.split(block["notes"])) for text in texts for block in _BLOCK.finditer(text))
    return _with_notes(messages, greatest(0, total, lambda number: fits(_with_notes(messages, number))))


def _with_notes(messages: Messages, number: int) -> Messages:
    """The system messages with the first ``number`` notes: a block without any leaves whole, and so does a message."""
    left = number

    def shorter(block: re.Match[str]) -> str:
        nonlocal left
        notes = _NEXT_NOTE.split(block["notes"])
        kept, left = notes[:left], max(0, left - len(notes))
        return block[0].replace(block["notes"], "\n".join(kept)) if kept else ""

    def changed(text: str) -> str:
        new = _BLOCK.sub(shorter, text)
        return text if new == text else new.strip()

    found = [_changed(one, changed) if isinstance(one, SystemMessage) else one for one in messages]
    return [new for new, old in zip(found, messages, strict=True) if new is old or new.content]


def _changed(message: BaseMessage, change: Callable[[str], str]) -> BaseMessage:
    """A copy with each text changed, and without the parts that come to nothing; itself where nothing changes."""
    if isinstance(message.content, str):
        content: Any = change(message.content)
    else:
        content = []
        for part in message.content:
            text = "".join(_texts([part]))
            new = change(text)
            same = part if new == text else new if isinstance(part, str) else {**part, "text": new}
            content += [same] if new or not text else []
    return message if content == message.content else message.model_copy(update={"content": content})
