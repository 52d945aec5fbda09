"""From direct hits to the notes they are linked to, and to the turns around them.

The paper's last step (A-MEM section 3.4): what a hit is linked to comes back with it. A linked note
is worth the hit's relevance, less for a weak link and for a kind that says little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from engramma.note import Hit, Link, Note, NoteId, Why

KIND_WORTH = {"supersedes": 1.0, "updates": 1.0, "contradicts": 1.0, "solves": 1.0, "causes": 0.95, "supports": 0.9,
              "derived_from": 0.9,
              "part_of": 0.85, "example_of": 0.85, "related": 0.8, "same_as": 0.3, "follows": 0.45}  # fmt: skip
_FEW = 3
_BREAKS = re.compile(r"[\W_]+")
OWN_SHARE = 0.8
"""How much of a reached note's worth hangs on what it says to the question itself."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A note reached along links from a hit."""

    note: NoteId
    score: float
    path: tuple[Link, ...]
    source: NoteId


def reach(
    hits: Mapping[NoteId, float], links: Iterable[Link], relevance: Callable[[NoteId], float | None], limit: int
) -> list[Reached]:
    """The best notes one link from the hits, that are not hits themselves, best first.

    ``hits`` are notes with their scores, best first. A reached note is worth what its link is, and what
    it says to the question itself: ``relevance`` is 0 to 1, or None for a note that may not come back.
    ``follows`` links are walked from the first three hits only: the turns around every hit would
    fill the answer.
    """
    followed = set(islice(hits, _FEW))
    best: dict[NoteId, Reached] = {}
    for link in links:
        for end, other in ((link.source, link.target), (link.target, link.source)):
            if end not in hits or other in hits or (link.kind == "follows" and end not in followed):
                continue
            worth = hits[end] * KIND_WORTH.get(link.kind, 0.8) * (0.5 + link.strength / 2)
            if (other in best and best[other].score >= worth) or (own := relevance(other)) is None:
                continue
            score = worth * (1 - OWN_SHARE * (1 - own))
            if other not in best or best[other].score < score:
                best[other] = Reached(other, score, (link,), end)
    return sorted(best.values(), key=lambda reached: -reached.score)[:limit]


def linked_hits(reached: Sequence[Reached], notes: Mapping[NoteId, Note], direct: Iterable[Note] = ()) -> list[Hit]:
    """The reached notes as hits whose ``why`` shows the path; none that says what another hit says word for word."""
    said = {_plain(note.content) for note in direct}
    found = []
    for one in reached:
        if one.note in notes and (words := _plain(notes[one.note].content)) not in said:
            said.add(words)
            found.append(Hit(notes[one.note], round(one.score, 4), Why(path=one.path, source=one.source)))
    return found


def _plain(text: str) -> str:
    return _BREAKS.sub(" ", text.casefold()).strip() or text.strip()
