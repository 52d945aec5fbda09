"""engramma: long-term memory for LLM agents.

    >>> from engramma import Memory
    >>> memory = Memory.open(":memory:")
    >>> note = memory.add("I moved from Lyon to Berlin in May.", speaker="Ana")
    >>> memory.search("Where does Ana live?")[0].note.content
    'I moved from Lyon to Berlin in May.'

Names load when they are first used: importing the package costs milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Memory": "memory", "AsyncMemory": "aio", "Weights": "scoring", "Pace": "worker",
    "Note": "note", "Link": "note", "Hit": "note", "Why": "note", "SaidDate": "note", "Hits": "recall",
    "Commit": "commit", "Revision": "store", "Stats": "report", "Check": "report",
    "LLM": "models", "Embedder": "models", "Completion": "models",
    "EngrammaError": "errors", "InvalidInput": "errors", "EmptyText": "errors", "UnknownId": "errors", "Conflict": "errors",
    "MissingExtra": "errors", "StoreError": "errors", "EmbedderMismatch": "errors", "ModelError": "errors",
}  # fmt: skip

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from engramma.aio import AsyncMemory as AsyncMemory
    from engramma.commit import Commit as Commit
    from engramma.errors import Conflict as Conflict
    from engramma.errors import EmbedderMismatch as EmbedderMismatch
    from engramma.errors import EmptyText as EmptyText
    from engramma.errors import EngrammaError as EngrammaError
    from engramma.errors import InvalidInput as InvalidInput
    from engramma.errors import MissingExtra as MissingExtra
    from engramma.errors import ModelError as ModelError
    from engramma.errors import StoreError as StoreError
    from engramma.errors import UnknownId as UnknownId
    from engramma.memory import Memory as Memory
    from engramma.models import LLM as LLM
    from engramma.models import Completion as Completion
    from engramma.models import Embedder as Embedder
    from engramma.note import Hit as Hit
    from engramma.note import Link as Link
    from engramma.note import Note as Note
    from engramma.note import SaidDate as SaidDate
    from engramma.note import Why as Why
    from engramma.recall import Hits as Hits
    from engramma.report import Check as Check
    from engramma.report import Stats as Stats
    from engramma.scoring import Weights as Weights
    from engramma.store import Revision as Revision
    from engramma.worker import Pace as Pace


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'engramma' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"engramma.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
