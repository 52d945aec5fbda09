"""Two pictures: recall against the number of hits, and notes on a plane by what their vectors say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engramma import Note
from evals.ablations import whole
from evals.asking import DEFAULT, Run, fill, memory_of
from evals.embeddings import Cached
from evals.sets import BadInput, Collection

KS = tuple(range(5, 51, 5))
_PERPLEXITY = 30.0
_COLOURS = {"full": "#4C78A8", "dense only": "#F58518", "words only": "#54A24B"}


def sweep(curves: Mapping[str, Mapping[int, float]], file: Path) -> None:
    """Write a PNG of recall against k, a line for each way to search."""
    figure = _figure(7, 4.5)
    axes = figure.add_subplot()
    for name, curve in curves.items():
        axes.plot(list(curve), [100 * share for share in curve.values()], marker="o", label=name, color=_COLOURS.get(name))
    axes.set(xlabel="direct hits (k)", ylabel="evidence found, %", xticks=KS, ylim=(0, 100))
    axes.grid(color="#E4E4E4")
    axes.legend(frameon=False, loc="lower right")
    _save(figure, file)


def picture(collection: Collection, embedder: Cached, file: Path, seed: int) -> int:
    """Write a PNG of a collection's notes by t-SNE, with what engramma adds and without (A-MEM, figure 4); how many notes.

    On the left the vector is that of content, keywords, tags and context after evolution, and links
    are drawn; on the right that of the content alone.
    """
    with memory_of(DEFAULT, [collection], embedder) as memory:
        fill(memory, DEFAULT, [collection], embedder, Run())
        notes = memory.list(space=collection.name)
    sessions = {name: number for number, name in enumerate(dict.fromkeys(note.session for note in notes), 1)}
    colours = [sessions[note.session] for note in notes]
    figure = _figure(12, 5.6)
    left = plane([whole(note) for note in notes], embedder, seed)
    _scatter(figure.add_subplot(1, 2, 1), "content, keywords, tags, context; links", left, colours, _lines(notes))
    right = plane([note.content for note in notes], embedder, seed)
    _scatter(figure.add_subplot(1, 2, 2), "content alone", right, colours)
    _save(figure, file)
    return len(notes)


def _lines(notes: Sequence[Note]) -> list[tuple[int, int]]:
    """The links between notes as pairs of places, without those that only say which turn follows."""
    place = {note.id: number for number, note in enumerate(notes)}
    ends = {(link.source, link.target) for note in notes for link in note.links if link.kind != "follows"}
    return sorted((place[source], place[target]) for source, target in ends if source in place and target in place)


def plane(texts: Sequence[str], embedder: Cached, seed: int) -> np.ndarray:
    """The texts' vectors laid out by t-SNE: float64 (n, 2), the same for the same seed. Raises BadInput."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise BadInput("--picture needs scikit-learn: pip install scikit-learn") from error
    if len(texts) < 4:
        raise BadInput(f"--picture needs at least four notes, there are {len(texts)}: leave it out")
    embedder.warm(texts, "passage", "embedding for the picture")
    vectors = embedder.embed(texts, kind="passage").astype(np.float64)
    perplexity = min(_PERPLEXITY, (len(texts) - 1) / 3)
    layout = TSNE(perplexity=perplexity, metric="cosine", init="random", random_state=seed, n_jobs=1)
    return np.asarray(layout.fit_transform(vectors), np.float64)


def _scatter(axes: Any, title: str, spots: np.ndarray, colours: Sequence[int], links: Sequence[tuple[int, int]] = ()) -> None:
    for first, second in links:
        axes.plot(*zip(spots[first], spots[second], strict=True), color="#D5D5D5", linewidth=0.3, zorder=1)
    dots = axes.scatter(spots[:, 0], spots[:, 1], c=colours, cmap="turbo", s=14, zorder=2)
    axes.set(title=title, xticks=[], yticks=[])
    axes.figure.colorbar(dots, ax=axes, label="session", shrink=0.8)


def _figure(width: float, height: float) -> Any:
    """An empty figure that needs no screen. Raises BadInput without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("a picture needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(width, height), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="png")
    print(f"drawn in {file}")
