"""A second opinion on the best candidates of a search, for those who have one. Off by default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engramma.analysts.base import Analyst
from engramma.errors import InvalidInput
from engramma.models import resolve_llm
from engramma.note import Note

Rerank = Callable[[str, Sequence[str]], Sequence[float]]
"""Given a question and texts, a score for each: the higher, the better. Any scale will do."""

CANDIDATES = 30
"""How many notes a reranker is shown at least, where so many pass the cut-off."""


def resolve_rerank(wanted: Any, analyst: Analyst) -> Rerank | None:
    """What ``rerank`` means: None; a function; "llm" for the model that reads notes; or a model of its own."""
    if wanted is None or wanted is False:
        return None
    if callable(wanted) and not hasattr(wanted, "complete") and not hasattr(wanted, "invoke"):
        return wanted  # type: ignore[no-any-return]
    from engramma.analysts.reranking import LLMReranker

    llm = getattr(analyst, "llm", None) if wanted is True or wanted == "llm" else resolve_llm(wanted)
    if llm is None:
        raise InvalidInput(
            f"rerank={wanted!r} needs a model, and this memory was opened without one: open it with llm='ollama:qwen2.5:7b', "
            "or give a function of (question, texts) that returns a score for each text"
        )
    return LLMReranker(llm)


def shown(note: Note) -> str:
    """A note as a reranker sees it."""
    who = f"{note.speaker}, " if note.speaker else ""
    return f"{who}{note.at:%Y-%m-%d}: {note.content}"


def opinions(rerank: Rerank, query: str, notes: Sequence[Note]) -> list[float]:
    """The reranker's scores, checked. Raises InvalidInput when they are not one finite number a note."""
    given = rerank(query, [shown(note) for note in notes])
    try:
        scores = [float(score) for score in np.asarray(given, dtype=np.float64).ravel()]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"rerank returned {given!r}: it returns a number for each of {len(notes)} texts") from error
    if len(scores) != len(notes) or not all(map(math.isfinite, scores)):
        raise InvalidInput(f"rerank returned {len(scores)} scores ({given!r}) for {len(notes)} texts: one number each")
    return scores
