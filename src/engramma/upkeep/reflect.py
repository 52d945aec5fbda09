"""Reflection: which linked notes belong together, and which insights must be written, rewritten or taken back.

Pure: what a group says together is worded elsewhere, by rules or by a model. A group is held together by a *subject*
(a keyword or tag that at least three notes share) and by links among those notes, so that a large memory, in which
everything hangs together somehow, still falls into groups that a person would make.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from engramma.commit import Change, DropLink, PutLink, PutNote, ReviseNote
from engramma.note import Link, Note, NoteId, Space, unique
from engramma.upkeep.near import Pair
from engramma.words import is_common, terms

FEWEST = 3
MOST_SOURCES = 32
_BROADEST = MOST_SOURCES  # notes that share a subject; what more notes share is a theme, for insights about insights
_ABOUT = 4  # keywords of a note that say what it is about
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
    ``seen`` are the notes that were looked at; those that do not carry the sentence are no sources.
    """

    space: Space
    content: str
    tags: tuple[str, ...]
    sources: tuple[Note, ...]
    key: str
    id: NoteId
    subject: str = ""
    kind: str = "pattern"
    speaker: str | None = None
    height: int = 1
    action: Action = "write"
    replaces: Note | None = None
    reason: str = ""
    judge: str = "rules"
    seen: tuple[NoteId, ...] = ()

    @property
    def keywords(self) -> tuple[str, ...]:
        """The subject, then what its sources are mostly about."""
        return unique((self.subject,) if self.subject else (), *(source.keywords[:2] for source in self.sources))[:6]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What an insight keeps of how it came about: subject, kind, height, each source with a digest of its text, and
        which notes were looked at."""
        sources = {source.id: said(source) for source in self.sources}
        return {"subject": self.subject, "kind": self.kind, "height": self.height, "sources": sources, "seen": list(self.seen)}


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


def seen_by(insight: Note) -> frozenset[NoteId]:
    """The notes that were looked at when an insight was made."""
    found = insight.metadata.get("seen")
    return frozenset(sources_of(insight)) | frozenset(found if isinstance(found, Sequence) else ())


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
    words: int = 1
    rank: int = 0
    """3 for a keyword of the author's, 2 for a tag of theirs, 1 for a keyword and 0 for a tag that an analyst gave."""


def groups(notes: Sequence[Note]) -> list[Group]:
    """The groups of some notes that are worth a look, none of which holds half of another."""
    chosen: list[Group] = []
    for subject in sorted(_subjects(notes), key=lambda one: (-one.rank, -len(one.rows), -one.words, one.label)):
        linked = [note for part in _connected([notes[row] for row in sorted(subject.rows)]) for note in part]
        chosen += [group for group in _by_speaker(subject.label, linked) if not _told_already(group, chosen)]
    return chosen


def _told_already(group: Group, chosen: Sequence[Group]) -> bool:
    return any(2 * len(group.ids & other.ids) >= min(len(group.ids), len(other.ids)) for other in chosen)


def _subjects(notes: Sequence[Note]) -> list[_Subject]:
    told = [" \n ".join((*note.keywords, *note.tags, note.content[:2000])).casefold() for note in notes]
    holding: dict[str, set[int]] = {}
    for row, text in enumerate(told):
        for term in set(terms(text)):
            holding.setdefault(term, set()).add(row)
    subjects: dict[tuple[str, ...], _Subject] = {}
    for note in notes:
        for label, rank in _labels(note):
            words = tuple(dict.fromkeys(terms(label)))
            if words not in subjects and (rank > 1 or not all(map(is_common, words))):
                subjects[words] = _Subject(label, _rows(label, words, holding, told), words=len(words))
            if words in subjects and rank > subjects[words].rank:
                subjects[words].label, subjects[words].rank = label, rank
    found = [one for words, one in subjects.items() if FEWEST <= len(one.rows) <= _BROADEST
             and (one.rank > 1 or _is_central(words, one.rows, notes))]  # fmt: skip
    for one in found:  # a keyword from the head of a sentence has its capital
        one.label = one.label.lower() if any(one.label.lower() in notes[row].content for row in one.rows) else one.label
    return found


def _rows(label: str, words: Sequence[str], holding: Mapping[str, set[int]], told: Sequence[str]) -> set[int]:
    """The notes that speak of a subject: by a word in any form, by a phrase as it stands."""
    if not words:
        return set()
    rows = set.intersection(*(holding.get(word, set()) for word in words))
    if len(words) == 1 or len(rows) < FEWEST:
        return rows
    phrase = label.casefold()
    return {row for row in rows if phrase in told[row]}


def _is_central(words: Sequence[str], rows: Collection[int], notes: Sequence[Note]) -> bool:
    """Whether a subject is what most of some notes are about, and no word that they happen to hold."""
    wanted = set(words)
    about = (set(terms(" ".join((*notes[row].keywords[:_ABOUT], *notes[row].tags)))) for row in rows)
    return 3 * sum(wanted <= one for one in about) >= 2 * len(rows)


def _labels(note: Note) -> Iterable[tuple[str, int]]:
    given = {text.casefold() for name in ("tags", "keywords") for text in note.given.get(name, ())}
    for text in note.keywords:
        yield text, 3 if text.casefold() in given else 1
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
    if len(notes) < FEWEST:
        return []
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
        group = _matching(insight, left)
        left = [one for one in left if one is not group]
        old = sources_of(insight)
        gone = [why for source, text in old.items() if (why := fate(source, text)) is not None]
        if gone:
            why = f"{len(gone)} of {len(old)} notes it rested on were {' or '.join(dict.fromkeys(gone))}"
            todo.append(Task(group, insight, why, must=True))
        elif group is not None and grown(group, insight):
            todo.append(Task(group, insight, f"{len(group.ids - seen_by(insight))} more notes speak of it"))
    return todo + [Task(group) for group in left]


def standing(here: Mapping[NoteId, Note], now: datetime) -> list[Note]:
    """The notes that hold: not superseded, not expired, or folded into one that holds."""
    return [note for note in here.values() if fate_of(note, None, here, now) is None]


def fate_of(note: Note | None, text: str | None, here: Mapping[NoteId, Note], now: datetime) -> str | None:
    """Why a note carries nothing, or not what it said when ``text`` was its digest; None where it does."""
    if note is None:
        return "removed for good"
    if note.expires_at is not None and note.expires_at <= now:
        return "expired"
    holder = next((here.get(x.target) for x in note.links if x.kind == "same_as" and x.source == note.id), None)
    if note.valid_until is not None or (note.state == "merged" and (holder is None or holder.valid_until is not None)):
        return "superseded"
    return None if text in (None, said(note)) else "changed"


def is_of(group: Group, insight: Note) -> bool:
    """Whether a group is what an insight is about: it holds half of the insight's notes at least, or they half of it."""
    seen = seen_by(insight)
    return 2 * len(group.ids & seen) >= max(1, min(len(group.ids), len(seen)))


def grown(group: Group, insight: Note) -> bool:
    """Whether a group holds so much that is new that its insight should be written anew."""
    seen = seen_by(insight)
    new = group.ids - seen
    return bool(new) and _GROWN * len(new) >= len(seen)


def _matching(insight: Note, left: Sequence[Group]) -> Group | None:
    own = [group for group in left if is_of(group, insight)]
    return max(own, key=lambda group: len(group.ids & seen_by(insight)), default=None)


def proposal(task: Task, content: str, sources: Sequence[Note], note: NoteId, *, kind: str, judge: str) -> Insight:
    """The insight that words a task's group; ``note`` is its id if it is a new one."""
    assert task.group is not None
    group, old = task.group, task.replaces
    tags = Counter(tag for source in sources for tag in source.tags)
    common = tuple(tag for tag, count in tags.most_common(2) if 2 * count >= len(sources))
    key = old.key if old is not None and old.key else f"{KEY}{digest(*sorted(group.ids))}"
    return Insight(
        group.notes[0].space, content, common, tuple(sources), key, note if old is None else old.id, group.subject, kind,
        group.speaker, group.height, "write" if old is None else "rewrite", old,
        task.reason or f"{len(group.notes)} linked notes about {group.subject}", judge, tuple(sorted(group.ids)),
    )  # fmt: skip


def taken_back(task: Task) -> Insight:
    """The proposal to take an insight out of sight."""
    old = task.replaces
    assert old is not None
    return Insight(old.space, old.content, old.tags, (), old.key or "", old.id, speaker=old.speaker, height=height_of(old),
                   action="archive", replaces=old, reason=task.reason)  # fmt: skip


def as_note(insight: Insight, now: datetime) -> Note:
    """The note of an insight: a new one, or the one that it replaces with what is new."""
    last = max(insight.sources, key=lambda note: note.at, default=None)
    fields: dict[str, Any] = {
        "content": insight.content, "context": insight.content, "tags": insight.tags, "keywords": insight.keywords,
        "speaker": insight.speaker, "metadata": insight.metadata,
    }  # fmt: skip
    if insight.replaces is not None:
        kept = insight.replaces
        return kept if insight.action == "archive" else replace(kept, **fields, at=last.at if last else kept.at)
    return Note(insight.id, insight.space, at=last.at if last else now, created_at=now, category="insight", level="insight",
                key=insight.key, importance=4, **fields)  # fmt: skip


def changes_of(insight: Insight, old: Note | None, now: datetime) -> list[Change]:
    """What writing an insight changes; ``old`` is the note that it replaces, as it is now."""
    note, sources = as_note(insight, now), {source.id for source in insight.sources}
    links: list[Change] = [PutLink(link) for link in source_links(note.id, insight.sources)]
    if old is None:
        return [PutNote(note, f"reflected: {insight.reason}"), *links]
    after = {name: value for name in _REWRITTEN if (value := getattr(note, name)) != getattr(old, name)}
    rested = [link for link in old.links if link.kind == "derived_from" and link.source == old.id]
    drops = [DropLink(*link.ends, insight.reason) for link in rested if link.target not in sources]
    held = {link.target for link in rested}
    return [ReviseNote(old.id, old.revision, after, insight.reason), *drops,
            *(step for step in links if isinstance(step, PutLink) and step.link.target not in held)]  # fmt: skip


_REWRITTEN = ("content", "context", "tags", "keywords", "metadata", "at")


def source_links(note: NoteId, sources: Iterable[Note]) -> list[Link]:
    """The links from an insight to what it rests on."""
    return [Link(note, source.id, "derived_from", "one of the notes it rests on", 0.9) for source in sources]


# -- over all


def of_height(insights: Iterable[Note], height: int) -> list[Note]:
    """The insights about notes (1), or about insights (2)."""
    return [note for note in insights if height_of(note) == height]


def present(insights: Iterable[Note], found: Sequence[Insight], here: Mapping[NoteId, Note]) -> list[Note]:
    """The first-level insights as they will be once what was found is written. ``here`` holds them all."""
    gone = {one.id for one in found if one.action == "archive"}
    old = [note.id for note in of_height(insights, 1) if note.id not in gone]
    return [here[note] for note in (*old, *(one.id for one in found if one.action == "write"))]


def was_refused(group: Group, refused: Iterable[Note]) -> bool:
    """Whether somebody took an insight about a group back, and little has come since."""
    return any(height_of(note) == group.height and is_of(group, note) and not grown(group, note) for note in refused)


def pair_key(pair: Pair) -> str:
    """A text that is the same for the same two notes with the same contents."""
    return digest(*sorted(f"{note.id} {said(note)}" for note in pair.notes))
