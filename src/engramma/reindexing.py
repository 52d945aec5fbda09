"""Embedding every note anew. Interrupted, it goes on where it stopped; searches work meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engramma.models.base import Embedder, embedded
from engramma.store.base import Store
from engramma.words import pieces
from engramma.write import passage

_BATCH = 32


def reindex(store: Store, embedder: Embedder, progress: Callable[[int, int], None] | None = None) -> int:
    """Give every note vectors of ``embedder`` and make it the store's; how many notes were embedded.

    New vectors lie beside the old ones under the next model number until no note lacks one; then
    the switch is one transaction. A run of the same embedder that was interrupted is continued.
    """
    model = _model_for(store, embedder)
    totals = store.totals().notes
    total, done = sum(totals.values()), 0
    meta = {"embedder": embedder.name, "dimensions": str(embedder.dimensions), "reindexing": ""}
    while True:
        notes = store.without_vectors(model, _BATCH)
        if not notes and store.switch_model(model, meta):
            return done
        cut = [pieces(passage(note)) for note in notes]
        vectors = embedded(embedder, [piece for texts in cut for piece in texts], "passage")
        ends = np.cumsum([len(texts) for texts in cut])[:-1]
        rows = zip(notes, np.split(vectors, ends) if notes else [], strict=True)
        store.put_vectors(model, {(note.id, note.revision): part for note, part in rows})
        done += len(notes)
        if progress:
            progress(min(done, total), total)


def _model_for(store: Store, embedder: Embedder) -> int:
    """The number of the run to continue, or of a new one."""
    started = store.meta("reindexing") or ""
    number, _, name = started.partition(" ")
    if number and name == embedder.name:
        return int(number)
    model = max(int(store.meta("model") or 0), int(number or 0)) + 1
    store.set_meta({"reindexing": f"{model} {embedder.name}"})
    return model
