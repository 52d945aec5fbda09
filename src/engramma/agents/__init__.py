"""engramma for LangGraph and LangChain: a store, tools, nodes, middleware, short-term strategies, an agent.

Needs the extra ``langgraph``. Whose memory a run sees comes from the run, never from the model:
``context.user_id``, else ``configurable.user_id``, else a function that you give, else the memory's
own space. The session is the thread.

    from langchain.agents import create_agent
    from engramma import Memory
    from engramma.agents import MemoryMiddleware

    agent = create_agent("ollama:qwen2.5:7b", middleware=[MemoryMiddleware(Memory.open("memory.db"))])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engramma.errors import MissingExtra

_HOMES = {
    "EngrammaStore": "store",
    "memory_tools": "tools",
    "MemoryState": "nodes", "retrieve_context": "nodes", "call_model": "nodes", "persist_turn": "nodes",
    "MemoryMiddleware": "middleware",
    "Turn": "policies", "Everything": "policies", "Patterns": "policies", "Novel": "policies", "Judged": "policies",
    "Recalled": "policies", "InSystemMessage": "policies", "InPrompt": "policies", "ToolOnly": "policies",
    "keep_last": "short_term", "token_budget": "short_term", "is_summary": "turns", "summary_text": "summaries",
    "running_summary": "summaries",
    "summary_of_summaries": "summaries", "summary_of_role": "summaries",
    "build_agent": "agent", "chat_model": "chat_models", "checkpointer": "checkpoints", "async_checkpointer": "checkpoints",
    "EngrammaRetriever": "retriever", "EngrammaChatMessageHistory": "message_history",
    "Run": "run", "Place": "run", "current_run": "run", "place_of": "run",
}  # fmt: skip

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604

if TYPE_CHECKING:
    from engramma.agents.agent import build_agent as build_agent
    from engramma.agents.chat_models import chat_model as chat_model
    from engramma.agents.checkpoints import async_checkpointer as async_checkpointer
    from engramma.agents.checkpoints import checkpointer as checkpointer
    from engramma.agents.message_history import EngrammaChatMessageHistory as EngrammaChatMessageHistory
    from engramma.agents.middleware import MemoryMiddleware as MemoryMiddleware
    from engramma.agents.nodes import MemoryState as MemoryState
    from engramma.agents.nodes import call_model as call_model
    from engramma.agents.nodes import persist_turn as persist_turn
    from engramma.agents.nodes import retrieve_context as retrieve_context
    from engramma.agents.policies import Everything as Everything
    from engramma.agents.policies import InPrompt as InPrompt
    from engramma.agents.policies import InSystemMessage as InSystemMessage
    from engramma.agents.policies import Judged as Judged
    from engramma.agents.policies import Novel as Novel
    from engramma.agents.policies import Patterns as Patterns
    from engramma.agents.policies import Recalled as Recalled
    from engramma.agents.policies import ToolOnly as ToolOnly
    from engramma.agents.policies import Turn as Turn
    from engramma.agents.retriever import EngrammaRetriever as EngrammaRetriever
    from engramma.agents.run import Place as Place
    from engramma.agents.run import Run as Run
    from engramma.agents.run import current_run as current_run
    from engramma.agents.run import place_of as place_of
    from engramma.agents.short_term import keep_last as keep_last
    from engramma.agents.short_term import token_budget as token_budget
    from engramma.agents.store import EngrammaStore as EngrammaStore
    from engramma.agents.summaries import running_summary as running_summary
    from engramma.agents.summaries import summary_of_role as summary_of_role
    from engramma.agents.summaries import summary_of_summaries as summary_of_summaries
    from engramma.agents.summaries import summary_text as summary_text
    from engramma.agents.tools import memory_tools as memory_tools
    from engramma.agents.turns import is_summary as is_summary


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engramma.agents' has no attribute {name!r}")
    try:
        module = import_module(f"engramma.agents.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("langgraph", "langchain", "langchain_core"):
            raise
        raise MissingExtra(package, "langgraph", f"engramma.agents.{name}") from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
