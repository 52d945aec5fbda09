"""Merging: notes that say the same, each group folded into one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from engramma.commit import Change, PutLink
from engramma.note import Note, NoteId, SaidDate
from engramma.upkeep.near import Pair

LEAST_ALIKE = 0.6
"""Likeness below which no two notes are compared."""
LARGEST = 12
"""Notes of one group at most."""
REASON = "merge"


@dataclass(frozen=True, slots=True)
class Same:
    """Evidence that two notes say the same: how alike they are (0 to 1), why they do, and who judged it."""

    first: NoteId
    second: NoteId
    likeness: float
    reason: str
    judge: str = "rules"


@dataclass(frozen=True, slots=True)
class Merger:
    """A proposal: ``folded`` say what ``kept`` says, each of them what each other says. Nothing of them is lost."""

    kept: Note
    folded: tuple[Note, ...]
    reason: str
    evidence: tuple[Same, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """All of its notes, the one that is kept first: what ``Memory.merge`` takes."""
        return self.kept, *self.folded


SaysSame = Callable[[Pair], Same | None]


def may_merge(one: Note, other: Note) -> bool:
    """Whether two notes may become one at all, whatever they say.

    Never of different speakers, spaces or kinds; nor what its author called distinct, a summary, or notes that their
    author told apart by key or metadata; nor where one outlasts the other.
    """
    own = (one, other)
    if any(note.state != "ready" or note.level != "episode" or note.category == "summary" for note in own):
        return False
    if any(note.given.get("distinct") or note.valid_until is not None for note in own) or (one.pinned and other.pinned):
        return False
    if one.space != other.space or (one.speaker or "").casefold() != (other.speaker or "").casefold():
        return False
    apart = one.metadata and other.metadata and dict(one.metadata) != dict(other.metadata)
    keyed = one.key is not None and other.key is not None
    return not apart and not keyed and one.expires_at == other.expires_at and not _at_odds(one, other)


def _at_odds(one: Note, other: Note) -> bool:
    return any(x.kind in ("contradicts", "supersedes", "causes", "solves") and x.other(one.id) == other.id for x in one.links)


def mergers(pairs: Iterable[Pair], says_same: SaysSame) -> list[Merger]:
    """Groups in which every note says the same as every other one (complete linkage), the most alike first.

    A chain of notes each like the next is no group: a note joins only where it says what each of the others says.
    """
    same = {frozenset((s.first, s.second)): s for pair in pairs if may_merge(*pair.notes) and (s := says_same(pair)) is not None}
    notes = {note.id: note for pair in pairs for note in pair.notes}
    groups: dict[NoteId, list[NoteId]] = {}
    for ends in sorted(same, key=lambda ends: (-same[ends].likeness, *sorted(ends))):
        first, second = sorted(ends)
        mine, other = groups.get(first, [first]), groups.get(second, [second])
        if mine is not other and _together(mine, other, same, notes):
            joined = sorted([*mine, *other])
            groups |= dict.fromkeys(joined, joined)
    found = {tuple(group): group for group in groups.values()}
    return [_merger([notes[note] for note in group], same) for group in found.values()]


def _together(
    mine: Sequence[NoteId], other: Sequence[NoteId], same: Mapping[frozenset[NoteId], Same], notes: Mapping[NoteId, Note]
) -> bool:
    if len(mine) + len(other) > LARGEST or sum(notes[note].pinned for note in (*mine, *other)) > 1:
        return False
    return all(frozenset((one, two)) in same for one in mine for two in other)


def _merger(group: Sequence[Note], same: Mapping[frozenset[NoteId], Same]) -> Merger:
    kept = min(group, key=lambda note: (not note.pinned, note.key is None, note.created_at, note.id))
    folded = tuple(sorted((note for note in group if note is not kept), key=lambda note: (note.created_at, note.id)))
    ids = sorted(note.id for note in group)
    evidence = tuple(same[frozenset(pair)] for pair in combinations(ids, 2))
    reasons = "; ".join(dict.fromkeys(one.reason for one in evidence))
    days = ", ".join(dict.fromkeys(f"{note.at:%Y-%m-%d}" for note in folded))
    return Merger(kept, folded, f"says the same ({reasons}), said again on {days}", evidence)


def still_holds(merger: Merger, now: Mapping[NoteId, Note]) -> bool:
    """Whether the notes of a proposal are as they were when it was made, as far as it rests on them."""
    fresh = [now[note.id] for note in merger.notes if note.id in now]
    if [_basis(note) for note in fresh] != [_basis(note) for note in merger.notes]:
        return False
    return all(may_merge(one, other) for one, other in combinations(fresh, 2))


def _basis(note: Note) -> tuple[str, tuple[SaidDate, ...], str, str | None]:
    return note.content, note.dates, note.state, note.speaker


def redirected(changes: Sequence[Change], kept: Mapping[NoteId, NoteId]) -> list[Change]:
    """Changes whose links lead to the notes that are kept, where both ends are folded at once; each link once."""
    done: list[Change] = []
    seen: set[tuple[NoteId, NoteId, str]] = set()
    for change in changes:
        if isinstance(change, PutLink) and change.link.kind != "same_as":
            link = replace(change.link, source=kept.get(change.link.source, change.link.source),
                           target=kept.get(change.link.target, change.link.target))  # fmt: skip
            if link.source == link.target or link.ends in seen:
                continue
            seen.add(link.ends)
            change = replace(change, link=link)
        done.append(change)
    return done
