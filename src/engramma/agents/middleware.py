"""``MemoryMiddleware``: a memory for ``langchain.agents.create_agent``.

Before a run it recalls what bears on what the user says; each model call then sees the notes in its
system message; after the run the turn is written. The notes live in a channel that no checkpoint
keeps, so the saved thread holds what was said and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    OmitFromSchema,
    PrivateStateAttr,
)
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.runtime import Runtime

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
from engramma.agents.run import Place, SpaceOf, checked_memory, checked_space_of, current_run, place_of
from engramma.agents.tools import memory_tools
from engramma.agents.turns import Exchange, as_data, as_hits, is_answer, newest_exchange, persisted, recalled, with_result
from engramma.memory import Memory

_OfThisRun = OmitFromSchema(input=True, output=False)
Update = dict[str, Any]


class MemoryAgentState(AgentState[Any]):
    """What the middleware knows of the present run. In a checkpoint are only the ids of the last two messages, at most,
    that a run ended with though no model said them."""

    closed: NotRequired[Annotated[list[str], PrivateStateAttr]]
    current_user_text: NotRequired[Annotated[str, UntrackedValue, _OfThisRun]]
    memories: NotRequired[Annotated[list[dict[str, Any]], UntrackedValue, _OfThisRun]]
    saved_memories: NotRequired[Annotated[list[dict[str, Any]], UntrackedValue, _OfThisRun]]


class MemoryMiddleware(AgentMiddleware[MemoryAgentState, Any, Any]):
    """Recalls before, injects during, and writes after each run of an agent; adds the memory tools.

    Args:
        memory: an open ``Memory``.
        write, retrieve, inject: the policies (``engramma.agents.policies``): everything is kept, five notes
            and what is linked to them are recalled, and they stand in the system message.
        tools: True for all memory tools, False for none, or the names of those wanted.
        space: says whose memory it is in a run without ``user_id``.
        name: tells it from another one in the same agent, with another memory; give that one ``tools=False``,
            as tools of one name cannot stand twice.
        require_user: refuse a run without ``user_id``, instead of working in the memory's own space.

    The result of a run holds ``memories`` (recalled) and ``saved_memories`` beside ``messages``.
    """

    state_schema = MemoryAgentState

    def __init__(
        self, memory: Memory, *, write: WritePolicy | None = None, retrieve: RetrievePolicy | None = None,
        inject: InjectPolicy | None = None, tools: bool | Sequence[str] = True, space: SpaceOf | None = None,
        name: str | None = None, require_user: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._memory, self._space, self._name, self._require_user = (
            checked_memory(memory),
            checked_space_of(space),
            name,
            require_user,
        )
        self._resumed: dict[tuple[Place, str], list[dict[str, Any]]] = {}
        self._write: WritePolicy = checked_policy("write", write, Everything())
        self._retrieve: RetrievePolicy = checked_policy("retrieve", retrieve, Recalled())
        self._inject: InjectPolicy = checked_policy("inject", inject, InSystemMessage())
        only = None if tools is True else (tools or ())
        self.tools: Sequence[BaseTool] = memory_tools(memory, space=space, only=only, require_user=require_user)

    @property
    def name(self) -> str:
        """What it goes by in an agent."""
        return self._name or super().name

    def _place(self) -> Place:
        return place_of(current_run(), self._memory, self._space, self._require_user)

    # -- before: recall

    def before_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> Update:
        """Recall. Reads ``messages``; returns ``current_user_text``, ``memories``, ``saved_memories`` (none yet)."""
        asked = self._asked(state)
        self._resumed.pop((self._place(), asked), None)  # of a run that was resumed and never came to its end
        memories = [*(state.get("memories") or []), *self._recall(asked, state["messages"])]
        return {"current_user_text": asked, "memories": memories, "saved_memories": []}

    async def abefore_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> Update:
        """``before_agent`` in a thread."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def _asked(self, state: Any) -> str:
        return newest_exchange(state["messages"], state.get("closed") or ()).user

    def _recall(self, asked: str, messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
        if not asked or not getattr(self._inject, "recalls", True):
            return []
        found = as_data(recalled(asked, messages, self._memory, self._place(), self._retrieve))
        return found if self._name is None else [{**one, "by": self._name} for one in found]

    # -- during: inject

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the notes to the model in this call's system message, and only there."""
        return handler(self._injected(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same for an agent that is awaited."""
        return await handler(await asyncio.to_thread(self._injected, request))

    def _injected(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        memories: list[dict[str, Any]] | None = request.state.get("memories")  # type: ignore[assignment]
        if memories is None:  # the run goes on from a checkpoint, which holds no notes
            key = (self._place(), self._asked(request.state))
            if key not in self._resumed:
                self._resumed[key] = self._recall(key[1], request.state["messages"])
            memories = self._resumed[key]
        own = [one for one in memories if one.get("by") == self._name]
        return request.override(system_message=injected(self._inject, request.system_message, as_hits(own)))

    # -- after: write

    def after_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> Update:
        """Write the turn. Reads ``messages``, ``current_user_text``; returns ``saved_memories``."""
        messages, place = state["messages"], self._place()
        last = messages[-1].id if messages else None
        earlier = [one for one in state.get("closed") or () if one != last]  # another memory may have closed this turn already
        turn = with_result(newest_exchange(messages, earlier), messages, state.get("structured_response"))
        update: Update = {}
        if (again := self._resumed.pop((place, turn.user), None)) is not None:
            update["memories"] = [*(state.get("memories") or []), *again]
        if not turn.user and (told := state.get("current_user_text")):  # a strategy has shortened the thread meanwhile
            turn = Exchange(told, turn.assistant, turn.user_id, turn.assistant_id)
        saved = persisted(turn, self._memory, place, self._write)
        update["saved_memories"] = [*(state.get("saved_memories") or []), *saved]
        if last and not is_answer(messages[-1]):
            update["closed"] = [*earlier[-1:], last]
        return update

    async def aafter_agent(self, state: MemoryAgentState, runtime: Runtime[Any]) -> Update:
        """``after_agent`` in a thread."""
        return await asyncio.to_thread(self.after_agent, state, runtime)
