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
from engramma.errors import InvalidInput
from engramma.memory import Memory

ShortTerm = AgentMiddleware[Any, Any, Any]


def build_agent(
    model: str | BaseChatModel, memory: Memory, *, tools: Sequence[Any] = (), system_prompt: str | None = ASSISTANT,
    short_term: ShortTerm | Sequence[ShortTerm] = (), checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    write: WritePolicy | None = None, retrieve: RetrievePolicy | None = None, inject: InjectPolicy | None = None,
    memory_tools: bool | Sequence[str] = True, space: SpaceOf | None = None, require_user: bool = False,
    middleware: Sequence[Any] = (), **more: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:  # fmt: skip
    """An agent that remembers: ``langchain.agents.create_agent`` with ``MemoryMiddleware`` and a store over the memory.

    Args:
        model: a LangChain chat model, or a text such as ``"ollama:qwen2.5:7b"`` (see ``chat_model``).
        memory: an open ``Memory``.
        tools: your own tools, beside the memory's; none may have the name of one of these.
        short_term: a strategy (``token_budget(4000)``, ``running_summary(model, max_tokens=4000)``), or several.
        checkpointer: keeps threads; in this process if not given, nowhere if False.
        write, retrieve, inject, space, require_user: as for ``MemoryMiddleware``.
        memory_tools: True for all of the memory's tools, False for none, or the names of those wanted.
        middleware: more of yours, after the memory's and before the short-term strategy.
        more: whatever else ``create_agent`` takes (``context_schema``, ``response_format``, ``name``, …).

    Invoke it with a thread and, where there are several users, a user:

        agent.invoke({"messages": "Hello"}, {"configurable": {"thread_id": "1", "user_id": "ana"}})

    Raises InvalidInput for what cannot be used, before any run.
    """
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise InvalidInput(f"tools={tools!r} is not a list of your tools; memory_tools=False leaves out the memory's own")
    remembering = MemoryMiddleware(
        memory, write=write, retrieve=retrieve, inject=inject, tools=memory_tools, space=space, require_user=require_user
    )
    others = [*_checked("middleware", middleware, _OF_YOURS), *_checked("short_term", short_term, _STRATEGIES)]
    _check_names(remembering, [*tools, *(tool for one in others for tool in getattr(one, "tools", ()))])
    more.setdefault("store", EngrammaStore(memory))
    saver = InMemorySaver() if checkpointer is None else checkpointer or None
    return create_agent(
        chat_model(model), list(tools), system_prompt=system_prompt, middleware=[remembering, *others],
        checkpointer=saver, **more,
    )  # fmt: skip


_OF_YOURS = "objects of LangChain's AgentMiddleware, such as ToolRetryMiddleware()"
_STRATEGIES = "keep_last(20), token_budget(4000) or running_summary(model, max_tokens=4000), of engramma.agents"


def _checked(name: str, given: Any, known: str) -> list[ShortTerm]:
    """One middleware or several, as a list. Raises InvalidInput for what is none."""
    several = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for one in several if given is not None else ():
        if not isinstance(one, AgentMiddleware):
            raise InvalidInput(f"{name}={one!r} is no middleware: give {known}")
    return several if given is not None else []


def _check_names(remembering: MemoryMiddleware, others: Sequence[Any]) -> None:
    """Raise InvalidInput for two tools of one name: only one of them would reach the model."""
    ours = [tool.name for tool in remembering.tools]
    names = [one.get("name") if isinstance(one, dict) else getattr(one, "name", getattr(one, "__name__", None)) for one in others]
    if twice := [name for name in names if name in ours]:
        rest = [name for name in ours if name not in twice]
        raise InvalidInput(
            f"two tools are called {twice[0]!r}, yours and the memory's: leave the memory's out with "
            f"memory_tools=False or memory_tools={rest!r}, or give yours another name"
        )
