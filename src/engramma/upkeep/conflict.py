"""Conflicts: notes that cannot hold together, found by a look over the whole space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engramma.note import Note, NoteId
from engramma.upkeep.near import Pair

LEAST_ALIKE = 0.5
"""Likeness from which two notes may be about the same thing."""
REASON = "conflicts"
_SETTLED = ("supersedes", "contradicts", "same_as", "solves", "derived_from")


@dataclass(frozen=True, slots=True)
class Clash:
    """A proposal: ``newer`` supersedes ``older``, or both contradict each other and it is open which one holds."""

    newer: Note
    older: Note
    kind: Literal["supersedes", "contradicts"]
    reason: str
    likeness: float = 0.0
    judge: str = "rules"
    strength: float = 0.95

    @property
    def notes(self) -> tuple[Note, Note]:
        """Both notes, the newer one first."""
        return self.newer, self.older


def in_order(one: Note, other: Note) -> tuple[Note, Note]:
    """Two notes, the newer one first: by when they were said, then by when they came."""
    newer, older = sorted((one, other), key=lambda note: (note.at, note.created_at, note.id), reverse=True)
    return newer, older


def open_pair(one: Note, other: Note) -> bool:
    """Whether two notes both hold, and nothing has been decided between them."""
    own = (one, other)
    if any(note.state != "ready" or note.level != "episode" or note.valid_until is not None for note in own):
        return False
    if any(note.given.get("distinct") or note.category == "summary" for note in own) or one.space != other.space:
        return False
    return not any(link.kind in _SETTLED and link.other(one.id) == other.id for link in one.links)


Judge = Callable[[Pair], Clash | None]


def clashes(pairs: Iterable[Pair], judge: Judge) -> list[Clash]:
    """What is at odds, at most one verdict for each note that no longer holds: the newest one replaces it."""
    found = [clash for pair in pairs if open_pair(*pair.notes) and (clash := judge(pair)) is not None]
    return settled(found)


def settled(found: Sequence[Clash]) -> list[Clash]:
    """Verdicts that go together: of what replaces a note the earliest, and no dispute about a note that is replaced."""
    first: dict[NoteId, Clash] = {}
    for clash in sorted((one for one in found if one.kind == "supersedes"), key=_age):
        first.setdefault(clash.older.id, clash)
    disputes = [one for one in found if one.kind == "contradicts" and not {note.id for note in one.notes} & set(first)]
    return [*sorted(first.values(), key=_age), *disputes]


def _age(clash: Clash) -> tuple[float, float, str]:
    return clash.newer.at.timestamp(), clash.newer.created_at.timestamp(), clash.newer.id


def bucket_pairs(buckets: Iterable[Sequence[Note]]) -> list[Pair]:
    """The pairs to look at among notes that state the same attribute of the same subject: each with the one after it.

    A value that held twice, with another in between, is replaced twice: neighbours in time are enough.
    """
    found: dict[frozenset[NoteId], Pair] = {}
    for bucket in buckets:
        ordered = sorted({note.id: note for note in bucket}.values(), key=lambda note: (note.at, note.created_at, note.id))
        for place, older in enumerate(ordered):
            for newer in ordered[place + 1 : place + 1 + _AHEAD]:
                found.setdefault(frozenset((older.id, newer.id)), Pair(older, newer, 0.0))
    return list(found.values())


_AHEAD = 8
