"""Other stores beside engramma: the same texts and vectors, in the same run, each asked in turn.

They are measured with what they are given: a vector for each text, no model. What engramma does
beyond them in an ``add`` (neighbours, a reading, links, history) is in its figure.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from bench.corpus import LookupEmbedder, Turn, passages, questions, turns
from bench.figures import Options, Row, Skipped, in_turn, milliseconds
from bench.shelf import SIZES
from engramma import Memory

ROUNDS = 100
SMALL, LARGE = SIZES[0], SIZES[-1]
HITS = 10
USER = "ana"


class Verbs(Protocol):
    """What is compared."""

    def add(self, text: str) -> None:
        """Take in one text, found at once."""

    def search(self, text: str) -> None:
        """The ten nearest."""


class Peer(Verbs, Protocol):
    """A store of somebody else's."""

    def __init__(self, folder: Path, embedder: LookupEmbedder) -> None: ...

    def fill(self, texts: Sequence[str]) -> None:
        """Take in many texts in the fastest way there is."""


class Chroma:
    """A persistent collection; vectors are handed over."""

    def __init__(self, folder: Path, embedder: LookupEmbedder) -> None:
        chromadb = import_module("chromadb")
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._embedder, self._count = embedder, 0
        client = chromadb.PersistentClient(path=str(folder), settings=settings)
        self._notes = client.create_collection("notes", metadata={"hnsw:space": "cosine"}, embedding_function=None)

    def fill(self, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 1000):
            self._put(texts[start : start + 1000])

    def add(self, text: str) -> None:
        self._put([text])

    def search(self, text: str) -> None:
        self._notes.query(query_embeddings=self._embedder.embed([text], kind="query"), n_results=HITS)

    def _put(self, texts: Sequence[str]) -> None:
        ids = [str(self._count + number) for number in range(len(texts))]
        self._count += len(texts)
        vectors = self._embedder.embed(texts, kind="passage")
        self._notes.add(ids=ids, documents=list(texts), embeddings=vectors, metadatas=[{"user": USER}] * len(texts))


class LangGraph:
    """A SqliteStore with an index on the text."""

    def __init__(self, folder: Path, embedder: LookupEmbedder) -> None:
        sqlite = import_module("langgraph.store.sqlite")
        index = {"dims": embedder.dimensions, "embed": _lists(embedder), "fields": ["text"]}
        self._stack, self._count = ExitStack(), 0
        self._store = self._stack.enter_context(sqlite.SqliteStore.from_conn_string(str(folder / "store.db"), index=index))
        self._store.setup()
        self._put = import_module("langgraph.store.base").PutOp

    def fill(self, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 500):
            self._store.batch([self._put((USER, "notes"), self._key(), {"text": text}) for text in texts[start : start + 500]])

    def add(self, text: str) -> None:
        self._store.put((USER, "notes"), self._key(), {"text": text})

    def search(self, text: str) -> None:
        self._store.search((USER, "notes"), query=text, limit=HITS)

    def _key(self) -> str:
        self._count += 1
        return str(self._count)


def _lists(embedder: LookupEmbedder) -> Callable[[Sequence[str]], list[list[float]]]:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [list(map(float, vector)) for vector in embedder.embed(texts, kind="passage")]

    return embed


class LookedUp:
    """An embedder of the shape that mem0 asks for, over vectors learnt ahead."""

    def __init__(self, embedder: LookupEmbedder) -> None:
        self._embed = _lists(embedder)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of one text."""
        return self._embed([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        """The vectors of some texts."""
        return self._embed(texts)


class Mem0:
    """Memory with inference off over a local qdrant; its model is never asked."""

    def __init__(self, folder: Path, embedder: LookupEmbedder) -> None:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder / "home"))
        self._memory = import_module("mem0").Memory.from_config(_mem0_config(folder, embedder.dimensions))
        self._memory.embedding_model = LookedUp(embedder)

    def fill(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self._memory.add(text, user_id=USER, infer=False)

    def search(self, text: str) -> None:
        self._memory.search(text, filters={"user_id": USER}, top_k=HITS)


def _mem0_config(folder: Path, dimensions: int) -> dict[str, Any]:
    place = {"path": str(folder / "qdrant"), "embedding_model_dims": dimensions, "on_disk": True}
    unused = {"provider": "openai", "config": {"api_key": "none"}}
    vectors = {"provider": "qdrant", "config": place}
    return {"vector_store": vectors, "embedder": unused, "llm": unused, "history_db_path": str(folder / "history.db")}


class Ours:
    """engramma, filled ahead."""

    def __init__(self, memory: Memory, known: Mapping[str, Turn]) -> None:
        self._memory, self._known = memory, known

    def add(self, text: str) -> None:
        self._memory.add(**self._known[text])

    def search(self, text: str) -> None:
        self._memory.search(text, k=HITS)


PEERS: dict[str, tuple[str, type[Peer], tuple[str, ...]]] = {
    "chromadb": ("chromadb", Chroma, ("chromadb",)),
    "mem0ai": ("mem0ai", Mem0, ("mem0",)),
    "langgraph SqliteStore": ("langgraph-checkpoint-sqlite", LangGraph, ("langgraph", "langgraph.store.sqlite")),
}


def run(options: Options) -> Iterator[Row]:
    """All that can run here, at both sizes."""
    lacking = {name: _lacking(*peer) for name, peer in PEERS.items()}
    yield from (Skipped(name, reason) for name, reason in lacking.items() if reason)
    there = {name: peer for name, peer in PEERS.items() if not lacking[name]}
    if there:
        for size in (SMALL, LARGE):
            yield from _compared(options, there, size)


def _lacking(package: str, make: type[Peer], modules: Sequence[str]) -> str:
    """Why a peer cannot run here; "" where it can."""
    if not all(map(_importable, modules)):
        return f"not installed: pip install {package}"
    if make is LangGraph and not hasattr(sqlite3.Connection, "enable_load_extension"):
        return "its index loads an extension into SQLite, and this Python was built without that"
    return ""


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def _compared(options: Options, there: Mapping[str, tuple[str, type[Peer], tuple[str, ...]]], size: int) -> Iterator[Row]:
    shelf = options.shelf
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, shelf.open(size) as memory:
        fresh = turns(ROUNDS, seed=202)
        asked = questions(ROUNDS, shelf.texts[:SMALL], seed=303)
        shelf.know(fresh)
        shelf.embedder.learn(asked)
        texts = passages(fresh)
        stores: dict[str, Verbs] = {"engramma": Ours(memory, dict(zip(texts, fresh, strict=True)))}
        for name, (package, make, _) in there.items():
            place = Path(folder) / package
            place.mkdir()
            peer = make(place, shelf.embedder)
            peer.fill(passages(shelf.texts[:size]))
            peer.search(asked[0])
            stores[f"{name} {version(package)}"] = peer
        searches = in_turn({name: partial(_nth, store.search, asked) for name, store in stores.items()}, ROUNDS)
        adds = in_turn({name: partial(_nth, store.add, texts) for name, store in stores.items()}, ROUNDS)
    for verb, times in (("add", adds), ("search", searches)):
        for name, seconds in times.items():
            yield milliseconds(f"{verb} at {size:,} notes, {name}", seconds)


def _nth(action: Callable[[str], None], texts: Sequence[str], number: int) -> None:
    action(texts[number])
