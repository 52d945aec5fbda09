"""Short-term memory that sums up: older messages leave the thread and a summary of them takes their place.

    running_summary         one summary, which each further part of the conversation extends
    summary_of_summaries    a summary of each part; several of one level become one of the next
    summary_of_role         one summary of what one side said; what the others said just leaves

Each is middleware for ``create_agent`` and a token budget at the same time: what reaches the model is
inside ``max_tokens`` as with ``token_budget``, which need not be added. Put it last in the list of middleware.
Messages leave when the thread has three quarters of the budget; a system message longer than the rest
hides the oldest of them from the model until then, so give more.

LangChain's ``SummarizationMiddleware`` finds the place to cut, where no tool call loses its results,
and makes the call. What is added here: the user message that is being answered and the newest tool
results never leave; an earlier summary is always read again; summaries are bounded, and what remains
fits; system messages stay first; and a model that fails costs nothing but the try: the thread
stays as it is until a later call. A summary is a message of the thread (``is_summary``,
``summary_text``) and, with ``memory``, a note there, whose history holds the summaries before it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents.middleware import AgentState, SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime

from engramma.agents.chat_models import chat_model
from engramma.agents.run import Place, SpaceOf, checked_memory, checked_space_of, current_run, place_of
from engramma.agents.short_term import (
    Messages,
    TokenBudget,
    TokenCounter,
    checked_size,
    count_tokens,
    cut_text,
    divided,
    flat,
    greatest,
)
from engramma.agents.turns import is_summary
from engramma.analysts import summaries as prompts
from engramma.analysts.summaries import Bound, Pieces, Role, Steps, Summaries, Summary
from engramma.errors import EngrammaError, InvalidInput, ReplyInvalid
from engramma.memory import Memory
from engramma.models.base import foreign_model, without_thoughts
from engramma.write import MODEL_FAILURES

log = logging.getLogger("engramma")

MAX_TOKENS = 3000  # leaves room for an answer in 4096 tokens, which is what Ollama gives a model by default
_PIECE = 2000  # tokens of messages that any model can read at once
_LEAST = 48  # tokens of a summary's message, below which nothing is said
_NONE = Summaries(())


@dataclass(frozen=True, slots=True)
class Shares:
    """How the budget is divided. At ``trigger`` tokens of the thread, older messages leave until
    the summaries have ``summary`` tokens or less and the newest messages ``keep`` or a little more."""

    max_tokens: int
    summary: int
    keep: int
    piece: int

    @property
    def trigger(self) -> int:
        """Three quarters: the last one is for the system message and recalled memories."""
        return self.max_tokens - self.max_tokens // 4


def shares(max_tokens: int, summary_tokens: int | None, keep_tokens: int | None, input_tokens: int | None, part: int) -> Shares:
    """The shares given, checked, or else a ``part``-th for summaries and a quarter to keep."""
    checked_size("max_tokens", max_tokens, least=4 * _LEAST)
    summary = (
        max(_LEAST, max_tokens // part) if summary_tokens is None else checked_size("summary_tokens", summary_tokens, _LEAST)
    )
    keep = max_tokens // 4 if keep_tokens is None else checked_size("keep_tokens", keep_tokens)
    piece = max(_PIECE, max_tokens) if input_tokens is None else checked_size("input_tokens", input_tokens, 2 * _LEAST)
    found = Shares(max_tokens, summary, keep, piece)
    if summary + keep > found.trigger:
        raise InvalidInput(
            f"summary_tokens={summary!r} and keep_tokens={keep!r} are more than {found.trigger} together, "
            f"three quarters of max_tokens={max_tokens!r}: nothing would leave"
        )
    return found


Notes = tuple[Memory | None, SpaceOf | None, bool]
"""Where summaries are kept as notes: the memory if any, and what ``place_of`` needs to know beside the run."""


def _notes(memory: Any, space: Any, require_user: bool) -> Notes:
    return None if memory is None else checked_memory(memory), checked_space_of(space), require_user


# -- the three strategies


def running_summary(
    model: str | Runnable[Any, Any], *, max_tokens: int = MAX_TOKENS, summary_tokens: int | None = None,
    keep_tokens: int | None = None, input_tokens: int | None = None, token_counter: TokenCounter = count_tokens,
    memory: Memory | None = None, space: SpaceOf | None = None, require_user: bool = False,
) -> RunningSummary:  # fmt: skip
    """Middleware that keeps one summary of all that has left the thread.

    ``model`` is a LangChain chat model or a name such as "ollama:qwen2.5:7b". A quarter of
    ``max_tokens`` is for the summary (``summary_tokens``), a quarter for the newest messages
    (``keep_tokens``). The model reads ``input_tokens`` of messages at once at most (as many as
    ``max_tokens``, but at least 2000), so a long thread takes several calls; a longer message is cut.
    With ``memory`` the summary is also a note in the space of the run's user, or else the one that ``space``
    names; ``require_user`` refuses a run without a user.
    """
    given = shares(max_tokens, summary_tokens, keep_tokens, input_tokens, 4)
    return RunningSummary(model, given, token_counter, _notes(memory, space, require_user))


def summary_of_summaries(
    model: str | Runnable[Any, Any], *, max_tokens: int = MAX_TOKENS, fan_in: int = 4, summary_tokens: int | None = None,
    keep_tokens: int | None = None, input_tokens: int | None = None, token_counter: TokenCounter = count_tokens,
    memory: Memory | None = None, space: SpaceOf | None = None, require_user: bool = False,
) -> SummaryOfSummaries:  # fmt: skip
    """Middleware that sums up each part of a long thread by itself; ``fan_in`` summaries of one level
    become one of the next.

    What was said recently is kept in more detail than what is long past. All summaries together have
    ``summary_tokens`` (a third of ``max_tokens``); where they come to more, the two oldest become one.
    The other options are those of ``running_summary``; with ``memory`` there is a note for each level.
    """
    given = shares(max_tokens, summary_tokens, keep_tokens, input_tokens, 3)
    return SummaryOfSummaries(checked_size("fan_in", fan_in, 2), model, given, token_counter, _notes(memory, space, require_user))


def summary_of_role(
    model: str | Runnable[Any, Any], role: Role = "human", *, max_tokens: int = MAX_TOKENS, summary_tokens: int | None = None,
    keep_tokens: int | None = None, input_tokens: int | None = None, token_counter: TokenCounter = count_tokens,
    memory: Memory | None = None, space: SpaceOf | None = None, require_user: bool = False,
) -> SummaryOfRole:  # fmt: skip
    """Middleware that keeps one summary of what one side said: "human", "ai" or "tool".

    What the others said leaves without a trace. The other options are those of ``running_summary``.
    """
    if role not in prompts.ROLES:
        raise InvalidInput(f"role={role!r} is not a role: give one of {', '.join(map(repr, prompts.ROLES))}")
    given = shares(max_tokens, summary_tokens, keep_tokens, input_tokens, 4)
    return SummaryOfRole(role, model, given, token_counter, _notes(memory, space, require_user))


# -- summaries as messages


def summary_text(message: BaseMessage) -> str:
    """What a summary message says, without its heading."""
    return prompts.without_heading(message.text)


def _summary(message: BaseMessage) -> Summary:
    level = message.additional_kwargs.get("summary_level")
    return Summary(summary_text(message), level if isinstance(level, int) else 1)


def _message(summary: Summary, role: Role | None) -> BaseMessage:
    marks = {"lc_source": "summarization", "summary_level": summary.level}
    return HumanMessage(prompts.under_heading(summary.text, role), additional_kwargs=marks)


# -- one time that messages leave


@dataclass(slots=True)
class _Leaving:
    """What stays in any case, what may leave, and, once written, the summaries of what left."""

    systems: Messages
    earlier: tuple[Summary, ...]
    movable: Messages
    fixed: Messages
    summaries: Summaries = _NONE


def _leaving(messages: Sequence[BaseMessage]) -> _Leaving:
    """The current user message and the newest block after it are fixed, all else said may leave."""
    thread = divided(messages)
    current = [] if thread.current is None else [thread.current]
    fixed = [*current, *flat(thread.present()[-1:])]
    own = {id(message) for message in fixed}
    said = [one for one in messages if not isinstance(one, SystemMessage) and not is_summary(one)]
    earlier = tuple(map(_summary, thread.summaries))
    return _Leaving(thread.systems, earlier, [one for one in said if id(one) not in own], fixed)


class SummaryMiddleware(TokenBudget, ABC):
    """What the three have in common: when to sum up, how to ask, what becomes of the answer."""

    role: Role | None = None

    def __init__(self, model: str | Runnable[Any, Any], shares: Shares, token_counter: TokenCounter, notes: Notes) -> None:
        super().__init__(shares.max_tokens, token_counter)
        self.model: Runnable[Any, Any] = chat_model(model) if isinstance(model, str) else model
        if not isinstance(self.model, Runnable):
            raise InvalidInput(
                f"model={model!r} is no chat model: give one of LangChain's, or a name such as 'ollama:qwen2.5:7b'"
            )
        label = getattr(self.model, "model_name", None) or getattr(self.model, "model", None)
        self._label = str(label or type(self.model).__name__)
        self.shares, self._notes = shares, notes

    @abstractmethod
    def steps(self, earlier: Sequence[Summary], pieces: Pieces) -> Steps:
        """The questions that turn earlier summaries and the lines of what leaves into new summaries."""

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Sum up where the thread has grown too long; the new thread, or None."""
        place, leaving = self._place(), self._due(state["messages"])
        if leaving is None:
            return None
        try:
            update = self._langchain(leaving).before_model(_shown(leaving), runtime)
        except MODEL_FAILURES as error:
            _put_off(error)
            return None
        self._remember(place, leaving.summaries)
        return self._thread(leaving, update, state["messages"])

    async def abefore_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Sum up where the thread has grown too long; the new thread, or None."""
        place, leaving = self._place(), self._due(state["messages"])
        if leaving is None:
            return None
        try:
            update = await self._langchain(leaving).abefore_model(_shown(leaving), runtime)
        except MODEL_FAILURES as error:
            _put_off(error)
            return None
        await asyncio.to_thread(self._remember, place, leaving.summaries)
        return self._thread(leaving, update, state["messages"])

    def _due(self, messages: Sequence[BaseMessage]) -> _Leaving | None:
        leaving = _leaving(messages)
        return leaving if leaving.movable and self.token_counter(list(messages)) > self.shares.trigger else None

    def _langchain(self, leaving: _Leaving) -> SummarizationMiddleware[Any, Any]:
        """LangChain's middleware for this one time, told how much of what may leave has room beside the rest."""
        fixed = self.token_counter(leaving.fixed)
        room = self.shares.trigger - self.shares.summary - fixed - self.token_counter(leaving.systems)

        def write(messages: Messages, config: RunnableConfig) -> str:
            leaving.summaries = self._asked(self._steps(leaving, messages), config)
            return ""  # LangChain would make its own message of it

        async def awrite(messages: Messages, config: RunnableConfig) -> str:
            leaving.summaries = await self._aasked(self._steps(leaving, messages), config)
            return ""

        return SummarizationMiddleware(
            cast("Any", self.model),
            trigger=("tokens", 1),
            keep=("tokens", max(1, fixed + min(max(0, room), self.shares.keep))),
            token_counter=cast("Any", self.token_counter),
            trim_tokens_to_summarize=None,
            summarizer=cast("Any", RunnableLambda(cast("Any", write), afunc=cast("Any", awrite))),
        )

    def _thread(self, leaving: _Leaving, update: dict[str, Any] | None, before: Sequence[BaseMessage]) -> dict[str, Any] | None:
        """The thread from now on: system messages, summaries, and in their old order what LangChain kept."""
        if update is None:
            return None
        kept = {id(message) for message in update["messages"]}
        rest = [message for message in before if id(message) in kept]
        summaries = [_message(one, self.role) for one in leaving.summaries.standing]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *leaving.systems, *summaries, *rest]}

    # -- asking

    def _steps(self, leaving: _Leaving, messages: Messages) -> Steps:
        chosen = [one for one in messages if self.role in (None, one.type)]
        return self.steps(leaving.earlier, list(self._pieces(chosen)))

    def _asked(self, steps: Steps, config: RunnableConfig) -> Summaries:
        """Ask what the steps want to know, one question after another; what they return."""
        try:
            question = next(steps)
            while True:
                with foreign_model(self._label):
                    reply = self.model.invoke(question, config)
                question = steps.send(self._read(reply))
        except StopIteration as done:
            return cast("Summaries", done.value)

    async def _aasked(self, steps: Steps, config: RunnableConfig) -> Summaries:
        try:
            question = next(steps)
            while True:
                with foreign_model(self._label):
                    reply = await self.model.ainvoke(question, config)
                question = steps.send(self._read(reply))
        except StopIteration as done:
            return cast("Summaries", done.value)

    def _read(self, reply: Any) -> str:
        """The summary in a reply. Raises ReplyInvalid for one that says nothing."""
        text = without_thoughts(str(reply.text if isinstance(reply, BaseMessage) else reply)).strip()
        if not text:
            raise ReplyInvalid(f"{self._label} answered with an empty summary")
        return text

    # -- bounds

    def _pieces(self, messages: Iterable[BaseMessage]) -> Iterator[list[str]]:
        """The messages as lines, as many at once as the model reads; a tool's result is at most a quarter of that."""
        piece: list[str] = []
        for message in messages:
            line = self._line(message, self.shares.piece // 4 if isinstance(message, ToolMessage) else self.shares.piece)
            if piece and self._size("\n".join([*piece, line])) > self.shares.piece:
                yield piece
                piece = []
            piece.append(line)
        if piece:
            yield piece

    def _line(self, message: BaseMessage, tokens: int) -> str:
        return _fitted(_line(message), lambda text: self._size(text) <= tokens)

    def _size(self, text: str) -> int:
        return self.token_counter([HumanMessage(text)])

    def _bound(self, tokens: int) -> Bound:
        """What cuts a summary so that its message has at most so many tokens."""

        def bound(summary: Summary) -> Summary:
            def fits(text: str) -> bool:
                return self.token_counter([_message(Summary(text, summary.level), self.role)]) <= tokens

            return Summary(_fitted(summary.text, fits), summary.level)

        return bound

    # -- notes

    def _place(self) -> Place | None:
        memory, space, require_user = self._notes
        return None if memory is None else place_of(current_run(), memory, space, require_user)

    def _remember(self, place: Place | None, summaries: Summaries) -> None:
        """Keep what was written as notes. That a memory fails costs only the note."""
        memory, *_ = self._notes
        if memory is None or place is None:
            return
        try:
            for one in summaries.written:
                key = f"summary:{self.role or 'all'}:{one.level}:{place.session}" if place.session else None
                _keep(memory, place, one.text, key)
        except (EngrammaError, OSError) as error:
            log.warning("the summary stands in the thread, but not in the memory: %s", error)


def _keep(memory: Memory, place: Place, text: str, key: str | None) -> None:
    """One note for a key, with the newest text; where its author has deleted it, it stays deleted."""
    known = memory.list(where={"key": key}, space=place.space, include=("archived", "merged")) if key else []
    if not known:
        memory.add(text, space=place.space, session=place.session, category="summary", tags=("summary",), key=key)
    elif known[0].state != "archived" and known[0].content != text:
        memory.update(known[0], content=text)


def _put_off(error: Exception) -> None:
    log.warning("no summary could be written, the thread stays as it is until the next call: %s", error)


def _shown(leaving: _Leaving) -> AgentState[Any]:
    """What LangChain is shown. What is fixed comes last, where it never cuts."""
    return {"messages": cast("Any", [*leaving.movable, *leaving.fixed])}


def _fitted(text: str, fits: Callable[[str], bool]) -> str:
    """As much of a text as fits; where some is left out, it ends in a mark."""
    return text if fits(text) else cut_text(text, greatest(0, len(text) - 1, lambda length: fits(cut_text(text, length))))


_NAMES = {"human": "user", "ai": "assistant"}
_SILENT = ("text", "tool_use", "tool_call", "thinking", "reasoning")  # parts of a content that are shown otherwise, or not


def _line(message: BaseMessage) -> str:
    """A message as the model that sums up is shown it: who, what, which tools were called."""
    kinds = [part.get("type") for part in message.content if isinstance(part, dict)]
    parts = [message.text, *(f"[{kind}]" for kind in kinds if kind not in _SILENT)]
    for call in message.tool_calls if isinstance(message, AIMessage) else ():
        parts.append(f"[calls {call['name']} {json.dumps(call['args'], ensure_ascii=False, default=str)}]")
    who = " ".join(filter(None, [_NAMES.get(message.type, message.type), message.name]))
    return prompts.line(who, " ".join(filter(None, parts)))


# -- what each asks


class RunningSummary(SummaryMiddleware):
    """What ``running_summary`` makes."""

    def steps(self, earlier: Sequence[Summary], pieces: Pieces) -> Steps:
        """Extend the summary so far by each piece."""
        return prompts.extended(earlier, pieces, self.shares.summary // 2, self._bound(self.shares.summary), self.role)


class SummaryOfRole(RunningSummary):
    """What ``summary_of_role`` makes."""

    def __init__(self, role: Role, *given: Any) -> None:
        super().__init__(*given)
        self.role = role


class SummaryOfSummaries(SummaryMiddleware):
    """What ``summary_of_summaries`` makes."""

    def __init__(self, fan_in: int, *given: Any) -> None:
        super().__init__(*given)
        self.fan_in = fan_in

    def steps(self, earlier: Sequence[Summary], pieces: Pieces) -> Steps:
        """Sum up each piece alone, and fold. Two full levels have room, so each has its part of that."""
        each = max(_LEAST, self.shares.summary // (2 * (self.fan_in - 1)))
        return prompts.layered(earlier, pieces, each // 2, self._bound(each), self.fan_in, self._crowded)

    def _crowded(self, standing: Sequence[Summary]) -> bool:
        return self.token_counter([_message(one, self.role) for one in standing]) > self.shares.summary
