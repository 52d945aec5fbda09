"""What ``Memory.open`` opens: the store of a path, the analyst of a model, the embedder of a file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from engramma import reindexing
from engramma.analysts.base import Analyst
from engramma.analysts.rules import RuleAnalyst
from engramma.errors import EmbedderMismatch, InvalidInput, StoreError
from engramma.models import resolve_embedder
from engramma.models.base import Embedder
from engramma.store import SqliteStore, Store
from engramma.write import Progress


def open_store(path: str, create: bool = True) -> Store:
    """The store that a path or URL means."""
    if path.startswith(("postgresql://", "postgres://")):
        raise InvalidInput(f"{path!r}: this version keeps memories in SQLite files only; give a file path")
    place = Path(path).expanduser()
    if path != ":memory:" and not create and not place.exists():
        raise StoreError(f"there is no memory at {path!r}: engramma add makes one, or give another --db")
    return SqliteStore(path if path == ":memory:" else str(place))


def analyst_for(model: Any) -> Analyst:
    """The rules without a model, else an analyst that asks it."""
    if model is None:
        return RuleAnalyst()
    from engramma.analysts.llm import LLMAnalyst

    return LLMAnalyst(model)


def embedder_for(store: Store, wanted: Any, reindex: bool | Progress) -> Embedder:
    """The embedder to use: the one asked for, else the one the file was made with, else the default."""
    kept = store.meta("embedder")
    if wanted is None and kept is not None:
        with suppress(InvalidInput):
            return resolve_embedder(kept)
    embedder = resolve_embedder(wanted)
    if kept is None:
        store.set_meta({"embedder": embedder.name, "dimensions": str(embedder.dimensions), "model": "1"})
    elif kept != embedder.name or store.meta("dimensions") != str(embedder.dimensions):
        if reindex is False:
            raise EmbedderMismatch(
                f"{store.path!r} holds vectors of {kept} ({store.meta('dimensions')} dimensions), but the embedder is "
                f"{embedder.name} ({embedder.dimensions} dimensions): open it with {kept}, or embed all notes anew with "
                f"'engramma reindex --embedder {embedder.name}' or Memory.open(…, reindex=True)"
            )
        reindexing.reindex(store, embedder, None if reindex is True else reindex)
    return embedder
