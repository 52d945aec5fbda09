"""Where the dots and labels of a picture go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top
_GAP = 0.9  # between groups, in the side of one note's square
_ASPECT = 1.6


@dataclass(frozen=True, slots=True)
class Layout:
    """A place for each note, and the size of the whole; the unit is the side of one note's square."""

    places: Mapping[str, Point]
    width: float
    height: float


def layout(graph: Any) -> Layout:
    """Each connected group by springs in a square of its own, the squares on shelves."""
    import networkx

    plain = _undirected(graph)
    groups = sorted(networkx.connected_components(plain), key=lambda group: (-len(group), min(group)))
    sides = [len(group) ** 0.5 for group in groups]
    corners, width, height = shelves(sides)
    places: dict[str, Point] = {}
    for group, side, (left, bottom) in zip(groups, sides, corners, strict=True):
        for note, (x, y) in _within(_springs(plain.subgraph(group)), side).items():
            places[note] = (left + x, bottom + y)
    return Layout(places, width, height)


def _undirected(graph: Any) -> Any:
    """One edge between two notes; the order of a session pulls less than a thought."""
    import networkx

    plain = networkx.Graph()
    plain.add_nodes_from(graph)
    for source, target, kind in graph.edges(keys=True):
        present = plain.get_edge_data(source, target, {}).get("weight", 0)
        plain.add_edge(source, target, weight=max(present, 0.5 if kind == "follows" else 1.0))
    return plain


def _springs(group: Any) -> dict[str, Point]:
    import networkx

    ordered = networkx.Graph()  # a subgraph's own order is that of a set, another in every run
    ordered.add_nodes_from(sorted(group))
    ordered.add_edges_from(sorted(group.edges(data=True), key=lambda edge: sorted(edge[:2])))
    found = networkx.spring_layout(ordered, k=3.2 / len(group) ** 0.5, iterations=400, seed=7)
    return {note: (float(x), float(y)) for note, (x, y) in found.items()}


def _within(places: Mapping[str, Point], side: float) -> dict[str, Point]:
    """The places stretched to fill a square."""
    xs, ys = [x for x, _ in places.values()], [y for _, y in places.values()]
    wide, high = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    return {note: ((x - min(xs)) / wide * side, (y - min(ys)) / high * side) for note, (x, y) in places.items()}


def shelves(sides: Sequence[float]) -> tuple[list[Point], float, float]:
    """The lower left corner of each square, largest first, and the width and height of all."""
    most = max([*sides, _ASPECT * sum((side + _GAP) ** 2 for side in sides) ** 0.5])
    corners: list[Point] = []
    left = bottom = shelf = width = 0.0
    for side in sides:
        if left and left + side > most:
            left, bottom, shelf = 0.0, bottom + shelf + _GAP, 0.0
        corners.append((left, bottom))
        width, shelf = max(width, left + side), max(shelf, side)
        left += side + _GAP
    return corners, width, bottom + shelf


def label_places(
    texts: Mapping[str, str], dots: Mapping[str, Point], line: float, letter: float, reach: float
) -> dict[str, Point]:  # fmt: skip
    """The middle of each label that finds room beside its dot, in the order of ``texts``.

    ``line`` is the height of a label, ``letter`` the width of a character, ``reach`` the distance
    from a dot; all in the units of ``dots``.
    """
    half = reach * 0.45
    taken: list[Box] = [(x - half, y - half, x + half, y + half) for x, y in dots.values()]
    found: dict[str, Point] = {}
    for note, text in texts.items():
        wide = sum(1.8 if ord(char) > 0x2E80 else 1.0 for char in text) * letter
        for x, y in _beside(dots[note], wide, reach):
            box = (x - wide / 2, y - line / 2, x + wide / 2, y + line / 2)
            if not _meets(box, taken):
                found[note] = (x, y)
                taken.append(box)
                break
    return found


def _beside(dot: Point, wide: float, reach: float) -> Iterable[Point]:
    x, y = dot
    aside = wide / 2 + reach * 0.7
    return (x, y + reach), (x, y - reach), (x + aside, y), (x - aside, y)


def _meets(box: Box, others: Sequence[Box]) -> bool:
    left, bottom, right, top = box
    return any(left < other[2] and other[0] < right and bottom < other[3] and other[1] < top for other in others)
