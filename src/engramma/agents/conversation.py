"""A conversation with an agent, turn by turn: what happens in a turn as events, and what a turn changed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.graph.state import CompiledStateGraph
from ulid import ULID

from engramma.agents.turns import is_answer, present_turn
from engramma.commit import Commit
from engramma.errors import EngrammaError, ModelError, ModelTimeout, ModelUnavailable, StoreError
from engramma.memory import Memory
from engramma.models.base import foreign_model
from engramma.note import CommitId, Space
from engramma.store.rows import space_key
from engramma.write import commits_made


@dataclass(frozen=True, slots=True)
class Remembered:
    """Notes that were recalled for this turn (``engramma.agents.turns.as_data``)."""

    memories: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """The model called a tool."""

    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a tool gave back."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The notes that now hold the turn."""

    memories: list[dict[str, Any]]


Event = Remembered | Said | Called | Answered | Kept


@dataclass(slots=True)
class _Span:
    """The commits of one turn or command, all of them after ``start``."""

    start: int
    made: list[CommitId]


@dataclass(slots=True)
class Conversation:
    """Talks to an agent of ``build_agent``: in one thread, or with ``fresh`` in a new one each turn.

    Each space of a memory has threads of its own. ``remembered`` are the notes recalled for the last turn.
    """

    agent: CompiledStateGraph[Any, Any, Any, Any]
    memory: Memory
    thread: str = "chat"
    fresh: bool = False
    model_name: str = "the model"
    remembered: list[dict[str, Any]] = field(default_factory=list)
    _spans: list[_Span] = field(default_factory=list)

    @property
    def config(self) -> RunnableConfig:
        """The config of a run in the present thread."""
        return {"configurable": {"thread_id": _thread_id(self.memory.space, self.thread)}}

    async def say(self, text: str) -> AsyncGenerator[Event, None]:
        """One turn, as events. Raises ModelError when the model fails; the thread stays usable."""
        if self.fresh:
            self.thread = str(ULID())
        self.remembered = []
        with self.changing():
            await self.mend()
            async with aclosing(self._run(text)) as events:
                async for event in events:
                    yield event

    async def _run(self, text: str) -> AsyncGenerator[Event, None]:
        said = {"messages": [("user", text)]}
        mode: str
        data: Any
        with _explained(self.model_name, self.thread):
            async for mode, data in self.agent.astream(said, self.config, stream_mode=["messages", "updates"]):
                for event in _pieces(*data) if mode == "messages" else _events(data):
                    if isinstance(event, Remembered):
                        self.remembered = event.memories
                    yield event

    async def mend(self) -> bool:
        """Take a turn that got no answer (stopped, failed, killed) out of the thread, and say whether there was one.

        No model accepts calls of tools without results, and a question left there would be kept with the
        next one as if both were one.
        """
        with _explained(self.model_name, self.thread):
            state = await self.agent.aget_state(self.config)
            messages: list[BaseMessage] = state.values.get("messages", [])
            ended = bool(messages) and (is_answer(messages[-1]) or _only_unwritten(messages[-1], state.next))
            gone = [] if ended else present_turn(messages, state.values.get("closed") or ())
            if gone:  # all are written anew: after a kill some of them are in no checkpoint yet, and cannot be removed by id
                kept = [message for message in messages if message not in gone]
                whole = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]
                await self.agent.aupdate_state(self.config, {"messages": whole}, as_node="model")
        return bool(gone)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """What is changed in the memory meanwhile, ``undo`` takes back at once."""
        with commits_made() as made:
            self._spans.append(_Span(self._head(), made))
            yield

    def undo(self) -> list[Commit]:
        """Take back what the last turn or change did, newest commit first; nothing to take back gives []."""
        while self._spans:
            done = [self.memory.revert(commit) for commit in self._standing(self._spans[-1])]
            self._spans.pop()
            if done:
                return done
        return []

    def _standing(self, span: _Span) -> list[Commit]:
        """The commits of a span that have not been taken back, newest first."""
        since = self.memory.log(limit=self._head() - span.start)
        undone = {commit.reverts for commit in since}
        return [one for one in since if one.id in span.made and not one.reverts and one.id not in undone]

    def _head(self) -> int:
        newest = self.memory.log(limit=1)
        return newest[0].seq if newest else 0


def _only_unwritten(last: BaseMessage, left: Sequence[str]) -> bool:
    """Whether a tool has ended a turn, and all that its run still had to do was to write it."""
    return isinstance(last, ToolMessage) and bool(left) and all(node.endswith(".after_agent") for node in left)


def _thread_id(space: Space, thread: str) -> str:
    """A thread as checkpoints name it. They know no spaces, and what is said in one is not for another to read."""
    if space == "default" and "/" not in thread:
        return thread
    return f"{space_key(space).replace('%', '%25').replace('/', '%2F')}/{thread}"


@contextmanager
def _explained(model: str, thread: str) -> Iterator[None]:
    """Whatever a run raises comes out as an error of ours that says what failed."""
    try:
        with foreign_model(model):
            yield
    except ModelError as error:
        raise _named(error, model, thread) from error.__cause__


def _named(error: ModelError, model: str, thread: str) -> EngrammaError:
    """A failure by its kind: the place where threads are kept, a server that is not there, or the model.

    The clients of models share no classes of errors, but their names: those of httpx.
    """
    for cause in _causes(error):
        kinds = {kind.__name__ for kind in type(cause).__mro__}
        if isinstance(cause, sqlite3.Error) or type(cause).__module__.startswith("psycopg"):
            return StoreError(f"the thread {thread!r} cannot be read or kept: {cause}")
        if "TimeoutException" in kinds:
            return ModelTimeout(f"{model} did not answer in time")
        if "ConnectError" in kinds and hasattr(cause, "request"):
            url = cause.request.url
            return ModelUnavailable(f"{model} cannot be reached at {url.scheme}://{url.netloc.decode()}: is its server running?")
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _pieces(message: BaseMessage, metadata: Mapping[str, Any]) -> list[Event]:
    """The text of the answer; what other nodes or a summary say is none of it."""
    if metadata.get("langgraph_node") != "model" or not isinstance(message, AIMessage | AIMessageChunk):
        return []
    return [Said(str(message.text))] if message.text else []


def _events(update: Mapping[str, Any]) -> list[Event]:
    events: list[Event] = []
    for node, values in update.items():
        if not isinstance(values, Mapping):
            continue
        if node.endswith(".before_agent") and "memories" in values:
            events.append(Remembered(values["memories"]))
        if node.endswith(".after_agent") and "saved_memories" in values:
            events.append(Kept(values["saved_memories"]))
        for message in values.get("messages", []) if node in ("model", "tools") else []:
            if isinstance(message, AIMessage):
                events += [Called(call["name"], call["args"]) for call in message.tool_calls]
            elif isinstance(message, ToolMessage):
                events.append(Answered(message.name or "tool", str(message.text)))
    return events
