"""From direct hits to the notes they are linked to, and to the turns around them.

The paper's last step (A-MEM section 3.4): what a hit is linked to comes back with it. A linked note
is worth the hit's relevance, less for a weak link and for a kind that says little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engramma.note import Hit, Link, Note, NoteId, Why

KIND_WORTH = {"supersedes": 1.0, "contradicts": 1.0, "solves": 1.0, "causes": 0.95, "supports": 0.9, "derived_from": 0.9,
              "part_of": 0.85, "example_of": 0.85, "related": 0.8, "same_as": 0.3, "follows": 0.45}  # fmt: skip
_FEW = 3


@dataclass(frozen=True, slots=True)
class Reached:
    """A note reached along links from a hit."""

    note: NoteId
    score: float
    path: tuple[Link, ...]
    source: NoteId


def reach(hits: Sequence[Hit], shown: Callable[[NoteId], bool], limit: int) -> list[Reached]:
    """The best notes one link from the hits, that are not hits themselves, best first.

    ``follows`` links are walked from the first three hits only: the turns around every hit would
    fill the answer.
    """
    direct = {hit.note.id: hit for hit in hits}
    followed = {hit.note.id for hit in hits[:_FEW]}
    best: dict[NoteId, Reached] = {}
    for link in (link for hit in hits for link in hit.note.links):
        for end in (link.source, link.target):
            hit, other = direct.get(end), link.other(end)
            if hit is None or other in direct or not shown(other):
                continue
            if link.kind == "follows" and end not in followed:
                continue
            score = hit.score * KIND_WORTH.get(link.kind, 0.8) * (0.5 + link.strength / 2)
            if other not in best or best[other].score < score:
                best[other] = Reached(other, score, (link,), end)
    return sorted(best.values(), key=lambda reached: -reached.score)[:limit]


def linked_hits(reached: Sequence[Reached], notes: Mapping[NoteId, Note]) -> list[Hit]:
    """The reached notes as hits whose ``why`` shows the path."""
    return [Hit(notes[r.note], round(r.score, 4), Why(path=r.path, source=r.source)) for r in reached if r.note in notes]
