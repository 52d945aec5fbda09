"""Things to test with, engramma's own and its users': no mocks, no network, no model.

``ScriptedLLM`` and ``HashEmbedder`` stand in for models in the same process, ``ScriptedChatModel``
and ``tool_call`` do for LangChain and LangGraph (extra ``langgraph``), and ``ModelServer`` answers by
a script over HTTP, to whatever client speaks Ollama's or OpenAI's API.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engramma.errors import MissingExtra
from engramma.testing.models import HashEmbedder, ScriptedLLM

_HOMES = {"ScriptedChatModel": "chat", "tool_call": "chat", "ModelServer": "server", "ServedRequest": "server"}

__all__ = ["HashEmbedder", "ModelServer", "ScriptedChatModel", "ScriptedLLM", "ServedRequest", "tool_call"]

if TYPE_CHECKING:
    from engramma.testing.chat import ScriptedChatModel as ScriptedChatModel
    from engramma.testing.chat import tool_call as tool_call
    from engramma.testing.server import ModelServer as ModelServer
    from engramma.testing.server import ServedRequest as ServedRequest


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engramma.testing' has no attribute {name!r}")
    try:
        module = import_module(f"engramma.testing.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "langchain_core":
            raise
        raise MissingExtra(package, "langgraph", f"engramma.testing.{name}") from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
