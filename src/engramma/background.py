"""What "unrelated" looks like to an embedder, so that its cosines can be compared with a fixed bar.

Cosines of an embedder mean nothing by themselves: multilingual-e5-small gives unrelated texts 0.72.
We embed a few texts about nothing in particular, once per embedder, and keep their vectors with the
store. A small space is whitened with them; what a few questions about nothing find in a note is no
evidence for it; and the mean cosine of a text with them is that text's own zero, one for notes in
Chinese and one for all others, which takes away the advantage of its own language.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engramma.models.base import Embedder, embedded

PASSAGES = (
    "The committee approved the annual budget for road repairs.",
    "Photosynthesis turns light into chemical energy.",
    "The museum is closed on public holidays.",
    "Add two spoons of sugar and stir slowly.",
    "The striker scored twice in the second half.",
    "A new law regulates the import of used cars.",
    "The algorithm sorts the list in linear time.",
    "Heavy rain is expected along the coast.",
    "公司公布了第三季度的财务报表。",
    "这种植物喜欢阴凉潮湿的环境。",
    "列车将于下午三点到达。",
    "他把钥匙忘在办公室了。",
    "科学家发现了一颗新的行星。",
    "请在表格里填写您的地址。",
    "这首歌在年轻人中很流行。",
    "医生建议每天多喝水。",
)
QUESTIONS = (
    "What did the council decide about the bridge?",
    "How does a cactus store water?",
    "When does the ferry leave?",
    "Who won the match?",
    "这家店的利润是多少？",
    "图书馆几点关门？",
    "怎么做番茄炒蛋？",
    "那颗恒星有多远？",
)
OTHER, CHINESE = 0, 1
_PASSAGE_LANGUAGE = np.array([OTHER] * 8 + [CHINESE] * 8)


@dataclass(frozen=True)
class Background:
    """``vectors`` (16, d) of PASSAGES and ``questions`` (8, d) of QUESTIONS."""

    vectors: np.ndarray
    questions: np.ndarray

    def zero(self, vector: np.ndarray) -> np.ndarray:
        """The mean cosine of a unit vector with unrelated texts: (2,), other languages and Chinese."""
        return np.asarray(self.zeros(vector[None, :])[0])

    def zeros(self, vectors: np.ndarray) -> np.ndarray:
        """The same for many unit vectors: (n, 2)."""
        return np.asarray(vectors @ self._means.T, np.float32)

    @cached_property
    def _means(self) -> np.ndarray:
        return np.stack([self.vectors[language == _PASSAGE_LANGUAGE].mean(axis=0) for language in (OTHER, CHINESE)])

    def dump(self) -> str:
        """As text, for the store's settings."""
        return json.dumps({"vectors": _text(self.vectors), "questions": _text(self.questions)})


def _text(vectors: np.ndarray) -> str:
    return base64.b64encode(vectors.astype("<f4").tobytes()).decode()


def load(text: str | None, dimensions: int) -> Background | None:
    """The inverse of ``Background.dump``; None for nothing and for what was damaged."""
    if text is None:
        return None
    try:
        value = json.loads(text)
        vectors, questions = (np.frombuffer(base64.b64decode(value[name]), "<f4") for name in ("vectors", "questions"))
        return Background(vectors.reshape(len(PASSAGES), dimensions), questions.reshape(len(QUESTIONS), dimensions))
    except (ValueError, KeyError, TypeError):
        return None


def measure(embedder: Embedder) -> Background:
    """Embed the texts."""
    return Background(embedded(embedder, PASSAGES, "passage"), embedded(embedder, QUESTIONS, "query"))
