"""A chat model that follows a script and an embedder that needs no model."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engramma.models.base import Completion, EmbeddingKind, Message
from engramma.words import terms

Reply = str | dict[str, Any] | list[Any] | BaseException | Callable[[Sequence[Message]], Any]


class ScriptedLLM:
    """Answers with what it was given, in order, and repeats the last answer for ever.

    A reply is text, JSON data, an exception to raise, or a function of the messages that returns
    any of these. ``calls`` keeps the messages of every call.

    >>> llm = ScriptedLLM({"notes": []})
    >>> llm.complete([{"role": "user", "content": "hello"}]).text
    '{"notes": []}'
    """

    def __init__(self, *replies: Reply, name: str = "scripted") -> None:
        if not replies:
            raise ValueError("a script needs at least one reply")
        self.name = name
        self._replies = list(replies)
        self.calls: list[list[Message]] = []

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """The next reply; tokens are counted as words."""
        self.calls.append(list(messages))
        reply = self._replies[min(len(self.calls), len(self._replies)) - 1]
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
        return Completion(text, sum(len(message["content"].split()) for message in messages), len(text.split()))


class HashEmbedder:
    """Counts hashed terms: texts that share words are near, in any language; nothing is learned."""

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions < 1:
            raise ValueError(f"dimensions={dimensions!r} must be at least 1")
        self.dimensions = dimensions
        self.name = f"hash:{dimensions}"

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """float32 (n, dimensions), unit length; a text without words is the zero vector."""
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for term in terms(text):
                code = zlib.crc32(term.encode("utf-8", "surrogatepass"))
                vectors[row, code % self.dimensions] += 1.0 if code & 0x8000_0000 else -1.0
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
