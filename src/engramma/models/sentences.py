"""Models of the package sentence-transformers as an embedder. It brings torch, so nothing here needs it by default."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from engramma.errors import MissingExtra
from engramma.models.base import EmbeddingKind, foreign_model

PROVIDER = "sentence-transformers"


class SentenceTransformersEmbedder:
    """A model of the package sentence-transformers, loaded at once."""

    def __init__(self, model: str) -> None:
        self.name = f"{PROVIDER}:{model}"
        if not find_spec("sentence_transformers"):
            raise MissingExtra(PROVIDER, PROVIDER, f"the embedder {self.name!r}")
        with foreign_model(self.name):
            self._model = import_module("sentence_transformers").SentenceTransformer(model)
        self.dimensions = int(self.embed(["dimensions"], kind="query").shape[1])

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """The vectors of texts, float32 (n, dimensions)."""
        encode = getattr(self._model, "encode_query" if kind == "query" else "encode_document", self._model.encode)
        return np.asarray(encode(list(texts), show_progress_bar=False), np.float32)
