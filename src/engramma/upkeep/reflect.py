"""Reflection: which linked notes belong together, and which insights must be written, rewritten or taken back.

Pure: what a group says together is worded elsewhere, by rules or by a model. A group is held together by a *subject*
(a keyword or tag that at least three notes share) and by links among those notes, so that a large memory, in which
everything hangs together somehow, still falls into groups that a person would make.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engramma.note import Link, Note, NoteId, Space, unique
from engramma.words import is_common, terms

FEWEST = 3
MOST_SOURCES = 12
_BROADEST = 40  # notes that share a subject; what more notes share is a theme, for insights about insights
_GROWN = 3  # an insight is written anew when its group has grown by one in so many
REASON = "reflect"
KEY = "insight:"
_JOINING = ("related", "solves", "supports", "causes", "part_of", "example_of", "same_as")
Action = Literal["write", "rewrite", "archive"]


@dataclass(frozen=True, slots=True)
class Group:
    """Linked notes about one subject, oldest first, of one speaker where at least three of them are."""

    subject: str
    notes: tuple[Note, ...]
    speaker: str | None = None
    height: int = 1

    @property
    def ids(self) -> frozenset[NoteId]:
        """Which notes they are."""
        return frozenset(note.id for note in self.notes)

    @property
    def basis(self) -> str:
        """A text that is the same for the same notes with the same contents."""
        return digest(*(f"{note.id} {said(note)}" for note in sorted(self.notes, key=lambda note: note.id)))


@dataclass(frozen=True, slots=True)
class Task:
    """What has to be done: word a group, word it anew (``replaces``), or take an insight back (no group)."""

    group: Group | None
    replaces: Note | None = None
    reason: str = ""
    must: bool = False


@dataclass(frozen=True, slots=True)
class Insight:
    """A proposed insight, the notes it rests on, and a key that is the same for the same notes.

    ``action`` "rewrite" gives ``replaces`` this content and these sources; "archive" takes ``replaces`` out of sight.
    """

    space: Space
    content: str
    tags: tuple[str, ...]
    sources: tuple[Note, ...]
    key: str
    subject: str = ""
    kind: str = "pattern"
    speaker: str | None = None
    height: int = 1
    action: Action = "write"
    replaces: Note | None = None
    reason: str = ""
    judge: str = "rules"

    @property
    def keywords(self) -> tuple[str, ...]:
        """The subject, then what its sources are mostly about."""
        return unique((self.subject,) if self.subject else (), *(source.keywords[:2] for source in self.sources))[:6]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What an insight keeps of how it came about: subject, kind, height, and each source with a digest of its text."""
        sources = {source.id: said(source) for source in self.sources}
        return {"subject": self.subject, "kind": self.kind, "height": self.height, "sources": sources}


def digest(*texts: str) -> str:
    """Sixteen hexadecimal digits that stand for some texts."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def said(note: Note) -> str:
    """Eight digits that stand for what a note says and who says it."""
    return digest(note.speaker or "", note.content)[:8]


def sources_of(insight: Note) -> Mapping[NoteId, str]:
    """The sources that an insight of ours was made from, each with the digest of its text then."""
    found = insight.metadata.get("sources")
    return found if isinstance(found, Mapping) else {}


def is_ours(note: Note) -> bool:
    """Whether reflection wrote a note, so that reflection may change it."""
    return note.level == "insight" and (note.key or "").startswith(KEY)


def height_of(insight: Note) -> int:
    """1 for an insight about notes, 2 for one about insights."""
    height = insight.metadata.get("height", 1)
    return height if isinstance(height, int) else 1


# -- groups


@dataclass(slots=True)
class _Subject:
    label: str
    rows: set[int] = field(default_factory=set)
    rank: int = 0
    """2 for what an author called it, 1 for a keyword, 0 for a tag that an analyst gave."""


def groups(notes: Sequence[Note]) -> list[Group]:
    """The groups of some notes that are worth a look, none of which holds half of another."""
    chosen: list[Group] = []
    for subject in sorted(_subjects(notes), key=lambda one: (-one.rank, -len(one.rows), one.label)):
        for part in _connected([notes[row] for row in sorted(subject.rows)]):
            chosen += [group for group in _by_speaker(subject.label, part) if not _told_already(group, chosen)]
    return chosen


def _told_already(group: Group, chosen: Sequence[Group]) -> bool:
    return any(2 * len(group.ids & other.ids) >= min(len(group.ids), len(other.ids)) for other in chosen)


def _subjects(notes: Sequence[Note]) -> list[_Subject]:
    holding: dict[str, set[int]] = {}
    for row, note in enumerate(notes):
        for term in set(terms(" ".join((*note.keywords, *note.tags, note.content[:2000])))):
            holding.setdefault(term, set()).add(row)
    subjects: dict[tuple[str, ...], _Subject] = {}
    for note in notes:
        for label, rank in _labels(note):
            words = tuple(dict.fromkeys(terms(label)))
            known = subjects.get(words)
            if known is None and words and not all(map(is_common, words)):
                rows = set.intersection(*(holding.get(word, set()) for word in words))
                known = subjects[words] = _Subject(label, rows)
            if known is not None and rank > known.rank:
                known.label, known.rank = label, rank
    return [one for one in subjects.values() if FEWEST <= len(one.rows) <= _BROADEST]


def _labels(note: Note) -> Iterable[tuple[str, int]]:
    given = {text.casefold() for name in ("tags", "keywords") for text in note.given.get(name, ())}
    for text in note.keywords:
        yield text, 2 if text.casefold() in given else 1
    for text in note.tags:
        yield text, 2 if text.casefold() in given else 0


def _connected(notes: Sequence[Note]) -> list[list[Note]]:
    """The parts of some notes that hang together by links that join subjects, each of at least three."""
    left = {note.id: note for note in notes}
    found = []
    while left:
        start = left.pop(next(iter(left)))
        part, frontier = [start], [start]
        while frontier:
            ends = [link.other(note.id) for note in frontier for link in note.links if link.kind in _JOINING]
            frontier = [left.pop(end) for end in dict.fromkeys(ends) if end in left]
            part += frontier
        if len(part) >= FEWEST:
            found.append(sorted(part, key=lambda note: (note.at, note.id)))
    return found


def _by_speaker(subject: str, notes: Sequence[Note]) -> list[Group]:
    """A group for each speaker of at least three notes; one of all where no speaker has so many."""
    counts = Counter((note.speaker or "").casefold() for note in notes)
    own = []
    for name in sorted(name for name, count in counts.items() if count >= FEWEST):
        mine = [note for note in notes if (note.speaker or "").casefold() == name]
        own.append(Group(subject, _weightiest(mine), mine[0].speaker))
    return own or [Group(subject, _weightiest(notes))]


def _weightiest(notes: Sequence[Note]) -> tuple[Note, ...]:
    """At most MOST_SOURCES notes: the important ones, then the latest; oldest first."""
    best = sorted(notes, key=lambda note: (-note.importance, -note.at.timestamp(), note.id))[:MOST_SOURCES]
    return tuple(sorted(best, key=lambda note: (note.at, note.id)))


def higher_groups(insights: Sequence[Note]) -> list[Group]:
    """Insights of one speaker that share a tag, at least three: what a second-level insight rests on."""
    sharing: dict[tuple[str, str], list[Note]] = {}
    for note in insights:
        if is_ours(note) and height_of(note) == 1:
            for tag in note.tags:
                sharing.setdefault(((note.speaker or "").casefold(), tag), []).append(note)
    chosen: list[Group] = []
    for (_, tag), notes in sorted(sharing.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(notes) >= FEWEST:
            group = Group(tag, _weightiest(notes), notes[0].speaker, 2)
            chosen += [] if _told_already(group, chosen) else [group]
    return chosen


# -- what has to be done


Fate = Callable[[NoteId, str], str | None]
"""Why a source no longer carries an insight (given its id and the digest of its text then), or None where it does."""


def tasks(found: Sequence[Group], insights: Sequence[Note], fate: Fate) -> list[Task]:
    """What is new, what has grown, and what lost a source; nothing where nothing changed."""
    left = list(found)
    todo: list[Task] = []
    for insight in sorted((note for note in insights if is_ours(note)), key=lambda note: note.id):
        old = sources_of(insight)
        group = _matching(insight, old, left)
        left = [one for one in left if one is not group]
        gone = [why for source, text in old.items() if (why := fate(source, text)) is not None]
        if gone:
            why = f"{len(gone)} of {len(old)} notes it rested on no longer do: {'; '.join(dict.fromkeys(gone))}"
            todo.append(Task(group, insight, why, must=True))
        elif group is not None and (new := group.ids - set(old)) and _GROWN * len(new) >= len(old):
            todo.append(Task(group, insight, f"{len(new)} more notes say something of it"))
    return todo + [Task(group) for group in left]


def _matching(insight: Note, old: Mapping[NoteId, str], left: Sequence[Group]) -> Group | None:
    """The group that an insight is about: it holds half of its sources at least, or they half of it."""
    own = [group for group in left if group.height == height_of(insight) and group.ids & set(old)]
    best = max(own, key=lambda group: len(group.ids & set(old)), default=None)
    if best is None or 2 * len(best.ids & set(old)) < min(len(best.ids), len(old)):
        return None
    return best


def proposal(
    task: Task, content: str, sources: Sequence[Note], *, kind: str, judge: str, speaker: str | None = None
) -> Insight:  # fmt: skip
    """The insight that words a task's group."""
    assert task.group is not None
    group, old = task.group, task.replaces
    tags = Counter(tag for source in sources for tag in source.tags)
    common = tuple(tag for tag, count in tags.most_common(2) if 2 * count >= len(sources))
    key = old.key if old is not None and old.key else f"{KEY}{digest(*sorted(note.id for note in group.notes))}"
    return Insight(
        group.notes[0].space, content, common, tuple(sources), key, group.subject, kind, speaker or group.speaker, group.height,
        "rewrite" if old is not None else "write", old, task.reason or f"{len(sources)} linked notes about {group.subject}", judge,
    )  # fmt: skip


def taken_back(task: Task) -> Insight:
    """The proposal to take an insight out of sight."""
    old = task.replaces
    assert old is not None
    return Insight(old.space, old.content, old.tags, (), old.key or "", action="archive", replaces=old, reason=task.reason)


def source_links(note: NoteId, sources: Iterable[Note]) -> list[Link]:
    """The links from an insight to what it rests on."""
    return [Link(note, source.id, "derived_from", "one of the notes it rests on", 0.9) for source in sources]
