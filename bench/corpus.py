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
    """``count`` different turns of about twenty words in sessions of twenty, of the sample diary's words and a long tail of rare ones."""
    lines = (files("engramma") / "sample" / "diary.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    english = [word for text in texts if text.isascii() for word in text.split()]
    chinese = [clause for text in texts if not text.isascii() for clause in text.rstrip("。").split("，")]
    rng = random.Random(seed)
    rare = _rare_words(random.Random(1))
    made = []
    for number in range(count):
        if number % 5 == 0:
            content = "，".join(rng.sample(chinese, 3)) + rng.choice(rare) + "。"
        else:
            words = rng.sample(english, rng.randint(8, 20)) + rng.choices(rare, weights=_ZIPF, k=rng.randint(3, 7))
            rng.shuffle(words)
            content = " ".join(words).capitalize() + "."
        made.append({"content": content, "speaker": _NAMES[number // 20 % 6], "session": f"s{number // 20}"})
    return made


_ZIPF = [1 / (rank + 10) for rank in range(5000)]


def _rare_words(rng: random.Random) -> list[str]:
    """Five thousand made-up words: real chat has a long tail of names and things."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    return ["".join(rng.sample(syllables, rng.randint(2, 4))) for _ in range(5000)]


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
