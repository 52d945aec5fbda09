"""What engramma asks of a language model and of an embedder: two small protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from engramma.errors import EngrammaError, ModelError

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": …}``"""

EmbeddingKind = Literal["query", "passage"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer and what it cost."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0


@runtime_checkable
class LLM(Protocol):
    """A chat model. ``complete`` raises ModelError (or OSError) when the model does not answer."""

    name: str

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """One answer to a conversation, held to a JSON schema where the model can do that."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Text to vectors: float32 of shape (n, dimensions); unit length is made sure of by us."""

    name: str

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        ...

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """The vectors of texts, float32 (n, dimensions)."""
        ...


_THOUGHT = re.compile(r"\A.*</think>|<think>.*", re.DOTALL)


def without_thoughts(text: str) -> str:
    """A model's answer without what a reasoning model says to itself before it."""
    return _THOUGHT.sub("", text) if "think>" in text else text


class foreign_model:
    """Whatever a model object of another library raises comes out as ModelError, cause attached.

    Python's own network errors pass as they are: they say whether asking again may help.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, EngrammaError | OSError):
            raise ModelError(f"{self._name} failed with {type(error).__name__}: {error}") from error


def embedded(embedder: Embedder, texts: Sequence[str], kind: EmbeddingKind) -> np.ndarray:
    """The vectors of texts, float32 (n, d), each of length one (a zero vector stays zero)."""
    if not texts:
        return np.zeros((0, embedder.dimensions), np.float32)
    with foreign_model(embedder.name):
        vectors = np.asarray(embedder.embed(texts, kind=kind), np.float32)
    if vectors.shape != (len(texts), embedder.dimensions) or not np.isfinite(vectors).all():
        wanted = (len(texts), embedder.dimensions)
        raise ModelError(f"{embedder.name} gave vectors of shape {vectors.shape}, or not finite; {wanted} was expected")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
