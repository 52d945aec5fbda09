"""What "unrelated" looks like to an embedder, so that its cosines can be compared with a fixed bar.

Cosines of an embedder mean nothing by themselves: multilingual-e5-small gives unrelated texts 0.72.
We embed a few texts about nothing in particular, once per embedder, and keep their vectors with the
store. A small space is whitened with them; and the mean cosine of a text with them is that text's own
zero, one for notes in Chinese and one for all others, which takes away the advantage of its own
language.
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
OTHER, CHINESE = 0, 1
_PASSAGE_LANGUAGE = np.array([OTHER] * 8 + [CHINESE] * 8)


@dataclass(frozen=True)
class Background:
    """``vectors`` (16, d) of PASSAGES."""

    vectors: np.ndarray

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
        data = base64.b64encode(self.vectors.astype("<f4").tobytes()).decode()
        return json.dumps({"vectors": data})


def load(text: str | None, dimensions: int) -> Background | None:
    """The inverse of ``Background.dump``; None for nothing and for what was damaged."""
    if text is None:
        return None
    try:
        value = json.loads(text)
        vectors = np.frombuffer(base64.b64decode(value["vectors"]), "<f4").reshape(len(PASSAGES), dimensions)
        return Background(vectors)
    except (ValueError, KeyError, TypeError):
        return None


def measure(embedder: Embedder) -> Background:
    """Embed the texts."""
    return Background(embedded(embedder, PASSAGES, "passage"))
