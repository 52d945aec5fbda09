"""Texts of the size of chat turns, and an embedder that looks vectors up, so that its time is not counted."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from engramma.models.base import EmbeddingKind
from engramma.testing import HashEmbedder

_NAMES = ("Ana", "Ben", "Chen", "Dora", "Emil", "小夏")


def turns(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """``count`` different turns of about twenty words in sessions of twenty, recombined from the sample diary."""
    lines = (files("engramma") / "sample" / "diary.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    english = [text for text in texts if text.isascii()]
    chinese = [text for text in texts if not text.isascii()]
    rng = random.Random(seed)
    made = []
    for number in range(count):
        pool = english if number % 5 else chinese
        first, second = rng.choice(pool).split(), rng.choice(pool).split()
        words = first[: len(first) // 2 + 1] + second[len(second) // 2 :] + [f"item{number % 997}"]
        made.append({"content": " ".join(words), "speaker": _NAMES[number // 20 % 6], "session": f"s{number // 20}"})
    return made


class LookupEmbedder:
    """Hashed terms computed once per text and then looked up."""

    def __init__(self, dimensions: int = 384) -> None:
        self._inner = HashEmbedder(dimensions)
        self.name, self.dimensions = f"lookup:{dimensions}", dimensions
        self._known: dict[str, np.ndarray] = {}

    def learn(self, texts: Sequence[str]) -> None:
        """Compute vectors ahead of a measurement."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= dict(zip(fresh, self._inner.embed(fresh, kind="passage"), strict=True))

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """float32 (n, dimensions); a text not learnt before is computed now."""
        self.learn(texts)
        return np.stack([self._known[text] for text in texts])
