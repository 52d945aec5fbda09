"""What engramma asks of a language model and of an embedder: two small protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

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

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion: ...


@runtime_checkable
class Embedder(Protocol):
    """Text to vectors: float32 of shape (n, dimensions); unit length is made sure of by us."""

    name: str

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray: ...


def embedded(embedder: Embedder, texts: Sequence[str], kind: EmbeddingKind) -> np.ndarray:
    """The vectors of texts, float32 (n, d), each of length one (a zero vector stays zero)."""
    if not texts:
        return np.zeros((0, embedder.dimensions), np.float32)
    vectors = np.asarray(embedder.embed(texts, kind=kind), np.float32).reshape(len(texts), -1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
