"""Texts of the size of chat turns, and an embedder that looks vectors up, so that its time is not counted."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import count, takewhile
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from engramma.models.base import EmbeddingKind
from engramma.testing import HashEmbedder

_NAMES = ("Ana", "Ben", "Chen", "Dora", "Emil", "小夏")


class Turn(TypedDict):
    """What somebody says in a session: the arguments of ``Memory.add``."""

    content: str
    speaker: str
    session: str


def turns(count: int, seed: int = 7) -> list[Turn]:
    """``count`` different turns of about twenty words, in sessions of twenty.

    Their words are the sample diary's and a long tail of rare ones; every fifth is Chinese. Fewer turns of
    the same seed are the beginning of more.
    """
    english, chinese = _words()
    rng = random.Random(seed)
    rare = _rare_words(random.Random(1))
    made: list[Turn] = []
    for number in range(count):
        if number % 5 == 0:
            content = "，".join(rng.sample(chinese, 3)) + rng.choice(rare) + "。"
        else:
            words = rng.sample(english, rng.randint(8, 20)) + rng.choices(rare, weights=_ZIPF, k=rng.randint(3, 7))
            rng.shuffle(words)
            content = " ".join(words).capitalize() + "."
        made.append({"content": content, "speaker": _NAMES[number // 20 % 6], "session": f"s{seed}-{number // 20}"})
    return made


def questions(count: int, about: Sequence[Turn], seed: int = 11) -> list[str]:
    """``count`` questions of three to six words of a turn; every third names its speaker."""
    rng = random.Random(seed)
    asked = []
    for number in range(count):
        turn = about[rng.randrange(len(about))]
        words = turn["content"].strip(".。").replace("，", " ").split()
        few = " ".join(rng.sample(words, min(len(words), rng.randint(3, 6))))
        asked.append(f"What did {turn['speaker']} say of {few}?" if number % 3 == 0 else f"{few}?")
    return asked


def locomo(path: Path) -> list[Turn]:
    """The turns of all conversations in a file of the LoCoMo data set (arXiv 2402.17753), in order."""
    found: list[Turn] = []
    for number, sample in enumerate(json.loads(path.read_text("utf-8"))):
        talk: Mapping[str, Any] = sample["conversation"]
        for session in takewhile(talk.__contains__, (f"session_{day}" for day in count(1))):
            found += [
                {"content": turn["text"], "speaker": turn["speaker"], "session": f"{number}-{session}"}
                for turn in talk[session]
                if turn["text"].strip()
            ]
    return found


def passages(items: Sequence[Turn]) -> list[str]:
    """The texts that are embedded for some turns."""
    return [f"{item['speaker']}: {item['content']}" for item in items]


def _words() -> tuple[list[str], list[str]]:
    """The English words and the Chinese clauses of the sample diary."""
    lines = (files("engramma") / "sample" / "diary.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    english = [word for text in texts if text.isascii() for word in text.split()]
    chinese = [clause for text in texts if not text.isascii() for clause in text.rstrip("。").split("，")]
    return english, chinese


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
        # A space more, so that engramma does not find the terms of this very text cut already.
        self._known |= dict(zip(fresh, self._inner.embed([f"{text} " for text in fresh], kind="passage"), strict=True))

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """float32 (n, dimensions); a text not learnt before is computed now."""
        self.learn(texts)
        return np.stack([self._known[text] for text in texts])
