"""The network of notes as a picture: a dot a note, coloured by its first tag, a line a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engramma.cli.group import complain
from engramma.cli.layout import Layout, label_places, layout
from engramma.errors import MissingExtra

MOST = 400  # notes in one picture; above, nobody can read it
_UNIT = 1.25  # inches for the side of one note's square
_WIDEST = 26.0  # inches
_MARGIN = 0.8  # inches
_LEGEND = 1.0  # inches
_FONT = 7.5  # points
_CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans", "Microsoft YaHei", "PingFang SC", "Hiragino Sans GB",
            "Heiti SC", "WenQuanYi", "SimHei", "Noto Sans CJK", "Droid Sans Fallback", "Arial Unicode MS")  # fmt: skip
_DOTS = ("#4C78A8", "#F58518", "#54A24B", "#E45756", "#B279A2", "#72B7B2", "#EECA3B", "#9D755D", "#FF9DA6", "#2F4B7C",
         "#A05195", "#88A096", "#C44E00", "#6B8E23")  # fmt: skip
_OTHER = "#C4C4C4"
_KINDS = {
    "follows": "#DADADA", "related": "#9A9A9A", "supports": "#2F7D4F", "contradicts": "#C0392B", "supersedes": "#D35400",
    "updates": "#E59866",
    "solves": "#1E8449", "causes": "#7D3C98", "same_as": "#2471A3", "part_of": "#117A65", "example_of": "#B7950B",
    "derived_from": "#5D6D7E",
}  # fmt: skip
_OWN_KIND = "#34495E"


def draw(graph: Any, file: Path) -> None:
    """Write a PNG of a networkx MultiDiGraph. Raises MissingExtra without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "graph", "drawing a graph") from error
    graph = _best_connected(graph)
    plan = layout(graph)
    unit = min(_UNIT, (_WIDEST - 2 * _MARGIN) / max(plan.width, 1.0))
    width = max(7.0, plan.width * unit + 2 * _MARGIN)
    height = max(4.0, plan.height * unit + 2 * _MARGIN + _LEGEND)
    with matplotlib.rc_context({"font.family": _families()}):
        figure = Figure(figsize=(width, height), dpi=110, facecolor="white")
        axes = _axes(figure, plan, unit, width, height)
        kinds = _draw_links(axes, graph, plan)
        tags = _draw_dots(axes, graph, plan)
        _draw_labels(axes, graph, plan, unit)
        _draw_legends(figure, kinds, tags)
        figure.savefig(file, format="png")


def _best_connected(graph: Any) -> Any:
    if len(graph) <= MOST:
        return graph
    complain(f"a picture shows {MOST} of {len(graph)} notes, those with the most links; .graphml and .json hold all")
    ranked = sorted(graph.degree, key=lambda pair: -pair[1])
    return graph.subgraph([note for note, _ in ranked[:MOST]])


def _axes(figure: Any, plan: Layout, unit: float, width: float, height: float) -> Any:
    """The whole figure above the legends, in the layout's units."""
    axes = figure.add_axes((0, _LEGEND / height, 1, 1 - _LEGEND / height))
    axes.set_axis_off()
    beside, below = (width / unit - plan.width) / 2, ((height - _LEGEND) / unit - plan.height) / 2
    axes.set_xlim(-beside, plan.width + beside)
    axes.set_ylim(-below, plan.height + below)
    return axes


def _draw_links(axes: Any, graph: Any, plan: Layout) -> list[str]:
    """The links; the kinds that there are, most frequent first."""
    kinds = [kind for kind, _ in Counter(kind for _, _, kind in graph.edges(keys=True)).most_common()]
    for source, target, kind, strength in graph.edges(keys=True, data="strength"):
        follows = kind == "follows"
        style = {
            "arrowstyle": "-" if kind in ("follows", "related", "same_as") else "-|>",
            "color": _KINDS.get(kind, _OWN_KIND), "linewidth": 1.0 if follows else 0.8 + 1.4 * strength,
            "shrinkA": 7, "shrinkB": 7, "connectionstyle": "arc3,rad=0" if follows else "arc3,rad=0.12",
        }  # fmt: skip
        ends = {"xy": plan.places[target], "xytext": plan.places[source]}
        axes.annotate("", **ends, arrowprops=style, zorder=1 if follows else 2)
    return kinds


def _first_tag(graph: Any, note: str) -> str:
    return str(graph.nodes[note].get("tags", "")).split(", ")[0]


def _draw_dots(axes: Any, graph: Any, plan: Layout) -> dict[str, str]:
    """The notes, larger when they matter more; the colour of each frequent tag."""
    frequent = Counter(tag for note in graph if (tag := _first_tag(graph, note))).most_common(len(_DOTS))
    tags = {tag: colour for (tag, _), colour in zip(frequent, _DOTS, strict=False)}
    colours = [tags.get(_first_tag(graph, note), _OTHER) for note in graph]
    sizes = [50 + 35 * int(graph.nodes[note].get("importance", 3)) for note in graph]
    xs, ys = [plan.places[note][0] for note in graph], [plan.places[note][1] for note in graph]
    axes.scatter(xs, ys, s=sizes, c=colours, edgecolors="white", linewidths=1.2, zorder=3)
    return tags


def _draw_labels(axes: Any, graph: Any, plan: Layout, unit: float) -> None:
    """A label where there is room, the best connected notes first."""
    shown, point = _glyphs(), 1 / (72 * unit)
    best = sorted(graph.degree, key=lambda pair: -pair[1])
    texts = {note: label(graph.nodes[note], note, shown) for note, _ in best}
    places = label_places(texts, plan.places, 1.5 * _FONT * point, 0.58 * _FONT * point, 13 * point)
    halo = {"boxstyle": "round,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.6}
    for note, (x, y) in places.items():
        axes.text(x, y, _escaped(texts[note]), ha="center", va="center", fontsize=_FONT, color="#2B2B2B", zorder=4, bbox=halo)


def label(attributes: Mapping[str, Any], note: str, shown: frozenset[int]) -> str:
    """A keyword or two for a note in characters that the fonts have, else the end of its id."""
    words = [word for word in str(attributes.get("keywords", "")).split(", ") if word and _legible(word, shown)]
    short = [word for word in words if len(word) <= 22]
    two = " · ".join(short[:2])
    return (two if len(two) <= 26 else short[0]) if short else f"…{note[-6:]}"


def _legible(text: str, shown: frozenset[int]) -> bool:
    return all(ord(char) in shown for char in text)


def _escaped(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would read mathematics


def _draw_legends(figure: Any, kinds: Sequence[str], tags: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    shown = _glyphs()
    named = {tag: colour for tag, colour in tags.items() if _legible(tag, shown)}
    rest = "other" if len(named) == len(tags) else "other; grey and the colours that are not here"
    lines = [Line2D([], [], color=_KINDS.get(kind, _OWN_KIND), linewidth=2, label=_escaped(kind)) for kind in kinds
             if _legible(kind, shown)]  # fmt: skip
    dots = [Line2D([], [], color=colour, marker="o", linestyle="", label=_escaped(tag)) for tag, colour in named.items()]
    dots.append(Line2D([], [], color=_OTHER, marker="o", linestyle="", label=rest))
    for handles, place, columns in ((lines, "lower left", 3), (dots, "lower right", 5)):
        figure.legend(handles=handles, loc=place, ncols=columns, fontsize=8, frameon=False)
    if len(named) < len(tags):
        complain("no font here has the characters of some words: ids stand for them (Noto Sans CJK has Chinese)")


def _families() -> list[str]:
    """The fonts to draw with: matplotlib's own, and one with Chinese if there is one."""
    from matplotlib.font_manager import fontManager

    installed = sorted({font.name for font in fontManager.ttflist})
    chinese = [name for wanted in _CHINESE for name in installed if name.startswith(wanted)]
    return ["DejaVu Sans", *chinese[:1]]


def _glyphs() -> frozenset[int]:
    """The characters that these fonts can show."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(code for name in _families() for code in get_font(findfont(FontProperties(family=name))).get_charmap())
