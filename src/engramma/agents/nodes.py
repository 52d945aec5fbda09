"""Nodes for a graph built by hand, over an explicit state.

    retrieve_context → call_model (or yours) → persist_turn

Each node says what it reads and what it returns; none changes the state it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph import MessagesState

from engramma.agents.chat_models import chat_model
from engramma.agents.policies import (
    Everything,
    InjectPolicy,
    InSystemMessage,
    Recalled,
    RetrievePolicy,
    WritePolicy,
    checked_policy,
    injected,
)
from engramma.agents.run import SpaceOf, checked_memory, checked_space_of, current_run, place_of
from engramma.agents.turns import Exchange, as_data, as_hits, is_answer, newest_exchange, own_text, own_words, persisted, recalled
from engramma.errors import InvalidInput
from engramma.memory import Memory

Update = dict[str, Any]
Node = Callable[["MemoryState"], Update]


class MemoryState(MessagesState, total=False):
    """The state of a graph with memory: what one node finds out stands here, so that no other must guess it.

    ``messages`` are the thread's; ``current_user_text`` is what the user says in this turn; ``memories``
    are the recalled notes (dicts with ``id``, ``content``, ``speaker``, ``at``, ``score``, ``why``);
    ``assistant_text`` is the answer; ``saved_memories`` are the notes that now hold the turn (dicts with
    ``id``, ``content``, ``speaker``).
    """

    current_user_text: str
    memories: list[dict[str, Any]]
    assistant_text: str
    saved_memories: list[dict[str, Any]]


def retrieve_context(
    memory: Memory, *, retrieve: RetrievePolicy | None = None, space: SpaceOf | None = None, require_user: bool = False
) -> Node:
    """A node that recalls what bears on what the user says.

    Reads: ``messages``. Returns: ``current_user_text``, ``memories``. ``space`` and ``require_user`` say what
    becomes of a run that names no user (see ``place_of``).
    """
    policy: RetrievePolicy = checked_policy("retrieve", retrieve, Recalled())
    checked_memory(memory), checked_space_of(space)

    def retrieve_context(state: MemoryState) -> Update:
        place = place_of(current_run(), memory, space, require_user)
        messages = state["messages"]
        asked = newest_exchange(messages).user
        hits = recalled(asked, messages, memory, place, policy) if asked else as_hits([])
        return {"current_user_text": asked, "memories": as_data(hits)}

    return retrieve_context


def call_model(
    model: str | BaseChatModel | Runnable[Any, Any], *, tools: Sequence[Any] = (), inject: InjectPolicy | None = None,
    system_prompt: str | None = None,
) -> Runnable[MemoryState, Update]:  # fmt: skip
    """A node that asks a chat model, with the recalled notes in its system message and nowhere else.

    Reads: ``messages``, ``memories``. Returns: ``messages`` (the reply), ``assistant_text`` ("" when the
    reply calls tools). Raises InvalidInput for tools beside a runnable that is no chat model: bind them yourself.
    """
    policy: InjectPolicy = checked_policy("inject", inject, InSystemMessage())
    resolved = chat_model(model) if isinstance(model, str | BaseChatModel) else model
    if tools and not isinstance(resolved, BaseChatModel):
        raise InvalidInput(f"tools={list(tools)!r} cannot be bound to {resolved!r}: give model.bind_tools(tools) as the model")
    bound = resolved.bind_tools(list(tools)) if isinstance(resolved, BaseChatModel) and tools else resolved

    def prompt(state: MemoryState) -> list[BaseMessage]:
        own, rest = _parted(state["messages"], system_prompt)
        system = injected(policy, own, as_hits(state.get("memories") or []))
        return [*([system] if system else []), *rest]

    def update(reply: BaseMessage) -> Update:
        return {"messages": [reply], "assistant_text": own_text(reply) if is_answer(reply) else ""}

    def call(state: MemoryState, config: RunnableConfig) -> Update:
        return update(bound.invoke(prompt(state), config))

    async def acall(state: MemoryState, config: RunnableConfig) -> Update:
        return update(await bound.ainvoke(prompt(state), config))

    return RunnableLambda(call, afunc=acall, name="call_model")


def _parted(messages: Sequence[BaseMessage], system_prompt: str | None) -> tuple[SystemMessage | None, list[BaseMessage]]:
    """The system message that leads the prompt, and the other messages."""
    if messages and isinstance(messages[0], SystemMessage):
        return messages[0], list(messages[1:])
    return (SystemMessage(system_prompt) if system_prompt else None), list(messages)


def persist_turn(
    memory: Memory, *, write: WritePolicy | None = None, space: SpaceOf | None = None, require_user: bool = False
) -> Node:
    """A node that writes what a policy wants kept of the turn, once the assistant has answered.

    Reads: ``messages``, ``current_user_text``. Returns: ``assistant_text``, ``saved_memories``. ``space`` and
    ``require_user`` are those of ``retrieve_context``.
    """
    policy: WritePolicy = checked_policy("write", write, Everything())
    checked_memory(memory), checked_space_of(space)

    def persist_turn(state: MemoryState) -> Update:
        messages = cast("list[BaseMessage]", state["messages"])
        if not messages or not isinstance(messages[-1], AIMessage) or not is_answer(messages[-1]):
            return {"assistant_text": "", "saved_memories": []}
        turn = newest_exchange(messages)
        told = own_words(state.get("current_user_text") or "") or turn.user
        exchange = turn if told == turn.user else Exchange(told, turn.assistant, turn.user_id, turn.assistant_id)
        saved = persisted(exchange, memory, place_of(current_run(), memory, space, require_user), policy)
        return {"assistant_text": turn.assistant, "saved_memories": saved}

    return persist_turn
