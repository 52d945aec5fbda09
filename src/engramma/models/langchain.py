"""LangChain chat models and embeddings as ours. LangChain itself is never imported here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from engramma.models.base import Completion, EmbeddingKind, Message
from engramma.models.openai_compatible import joined_text

NOT_STREAMED = "nostream"
"""LangGraph's tag for calls whose words are none of the answer: inside a graph's run nobody sees them stream."""


class LangChainChat:
    """A LangChain chat model object. Its own retries and time-outs apply."""

    def __init__(self, model: Any) -> None:
        self._model = model.with_config({"tags": [NOT_STREAMED]}) if hasattr(model, "with_config") else model
        label = getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__
        self.name = f"langchain:{label}"

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """One answer. The schema stands in the prompt too, so that any model can follow it."""
        reply = self._model.invoke([(message["role"], message["content"]) for message in messages])
        usage = getattr(reply, "usage_metadata", None) or {}
        text = joined_text(reply.content)
        return Completion(text, usage.get("input_tokens", 0), usage.get("output_tokens", 0))


class LangChainEmbedder:
    """A LangChain embeddings object."""

    def __init__(self, embeddings: Any) -> None:
        self._embeddings = embeddings
        label = getattr(embeddings, "model", None) or getattr(embeddings, "model_name", None) or type(embeddings).__name__
        self.name = f"langchain:{label}"

    @cached_property
    def dimensions(self) -> int:
        """Length of the vectors, found by embedding one word."""
        return len(self._embeddings.embed_query("dimensions"))

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        if kind == "query":
            return np.asarray([self._embeddings.embed_query(text) for text in texts], np.float32)
        return np.asarray(self._embeddings.embed_documents(list(texts)), np.float32)
