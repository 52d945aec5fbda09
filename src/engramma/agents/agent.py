"""``build_agent``: a chatting agent with long-term and short-term memory, ready to invoke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph

from engramma.agents.chat_models import chat_model
from engramma.agents.middleware import MemoryMiddleware
from engramma.agents.policies import InjectPolicy, RetrievePolicy, WritePolicy
from engramma.agents.run import SpaceOf
from engramma.agents.store import EngrammaStore
from engramma.analysts.chat import ASSISTANT
from engramma.memory import Memory

ShortTerm = AgentMiddleware[Any, Any, Any]


def build_agent(
    model: str | BaseChatModel, memory: Memory, *, tools: Sequence[Any] = (), system_prompt: str | None = ASSISTANT,
    short_term: ShortTerm | Sequence[ShortTerm] = (), checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    write: WritePolicy | None = None, retrieve: RetrievePolicy | None = None, inject: InjectPolicy | None = None,
    memory_tools: bool | Sequence[str] = True, space: SpaceOf | None = None, middleware: Sequence[Any] = (), **more: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:  # fmt: skip
    """An agent that remembers: ``langchain.agents.create_agent`` with ``MemoryMiddleware`` and a store over the memory.

    Args:
        model: a LangChain chat model, or a text such as ``"ollama:qwen2.5:7b"`` (see ``chat_model``).
        memory: an open ``Memory``.
        tools: your own tools, beside the memory's.
        short_term: a strategy (``token_budget(4000)``, ``running_summary(model, max_tokens=4000)``), or several.
        checkpointer: keeps threads; in this process if not given, nowhere if False.
        write, retrieve, inject, memory_tools, space: as for ``MemoryMiddleware``.
        middleware: more of yours, after the memory's and before the short-term strategy.
        more: whatever else ``create_agent`` takes (``context_schema``, ``response_format``, ``name``, …).

    Invoke it with a thread and, where there are several users, a user:

        agent.invoke({"messages": "Hello"}, {"configurable": {"thread_id": "1", "user_id": "ana"}})
    """
    remembering = MemoryMiddleware(memory, write=write, retrieve=retrieve, inject=inject, tools=memory_tools, space=space)
    strategies = [short_term] if isinstance(short_term, AgentMiddleware) else list(short_term)
    more.setdefault("store", EngrammaStore(memory))
    saver = InMemorySaver() if checkpointer is None else checkpointer or None
    return create_agent(
        chat_model(model), list(tools), system_prompt=system_prompt, middleware=[remembering, *middleware, *strategies],
        checkpointer=saver, **more,
    )  # fmt: skip
