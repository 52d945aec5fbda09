"""Commits: the only way memory changes, and how one is undone.

A commit is an ordered list of typed changes with an actor, a reason and a cost. The store applies
one in one transaction and fills in what each change replaced (``before``), so that the inverse of
an applied commit follows from the commit alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engramma.errors import Conflict
from engramma.note import CommitId, Link, Note, NoteId, Space

FOLDING = "compact"
"""The actor of the commit that stands for all older ones, once they were folded away."""


@dataclass(frozen=True, slots=True)
class PutNote:
    """A new note enters the memory."""

    note: Note
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReviseNote:
    """Fields of a note change. ``expects`` is the revision that the change was decided on."""

    note: NoteId
    expects: int
    after: Mapping[str, Any]
    reason: str
    before: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchiveNote:
    """A note leaves sight. Its revisions stay; a revert brings it back."""

    note: NoteId
    expects: int
    reason: str
    before: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveNote:
    """A note is gone for good, with its revisions and vectors. This cannot be reverted."""

    note: NoteId
    reason: str


@dataclass(frozen=True, slots=True)
class PutLink:
    """A link appears, or its reason and strength change. ``before`` is the link it replaces."""

    link: Link
    reason: str = ""
    before: Link | None = None


@dataclass(frozen=True, slots=True)
class DropLink:
    """A link disappears. ``before`` is the link as it was."""

    source: NoteId
    target: NoteId
    kind: str
    reason: str
    before: Link | None = None


Change = PutNote | ReviseNote | ArchiveNote | RemoveNote | PutLink | DropLink


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a commit cost at a model: calls, prompt tokens, reply tokens."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def total(self) -> int:
        """Prompt and reply tokens together."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of memory as a whole. ``seq`` is 0 until the store has applied it."""

    id: CommitId
    space: Space
    at: datetime
    actor: str
    reason: str
    changes: tuple[Change, ...]
    tokens: Tokens = Tokens()
    dropped: tuple[str, ...] = ()
    reverts: CommitId | None = None
    seq: int = 0

    def notes(self) -> tuple[NoteId, ...]:
        """Ids of all notes that the commit touches, links' ends included, each once."""
        return tuple(dict.fromkeys(note for change in self.changes for note in touched(change)))


def touched(change: Change) -> tuple[NoteId, ...]:
    """The notes that one change is about."""
    match change:
        case PutNote(note=note):
            return (note.id,)
        case PutLink(link=link):
            return link.source, link.target
        case DropLink(source=source, target=target):
            return source, target
        case _:
            return (change.note,)


Later = Callable[[NoteId], Sequence[Commit]]
"""The commits that touched a note after the one that is undone, newest first."""
_SHOWN = 5  # conflicts that a message names


def inverse(commit: Commit, now: Mapping[NoteId, Note], later: Later = lambda note: ()) -> tuple[Change, ...]:
    """The changes that undo an applied commit, last change first.

    ``now`` holds the touched notes as they are, with their links. What a later commit undid already is left as it is.
    Raises Conflict, naming everything that is in the way and, by ``later``, the commits that put it there, when one
    changed the same field or link, or removed a note for good.
    """
    if commit.actor == FOLDING:
        raise Conflict(f"cannot revert: {commit.reason}, and what it changed is not kept")
    undoing = _Undoing(commit, now, later)
    for change in reversed(commit.changes):
        undoing.undo(change)
    if undoing.conflicts:
        more = len(undoing.conflicts) - _SHOWN
        named = "; ".join(undoing.conflicts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise Conflict(f"cannot revert: {named}")
    return tuple(undoing.steps)


class _Undoing:
    """The steps back, decided one after the other on what the steps before will have left."""

    def __init__(self, commit: Commit, now: Mapping[NoteId, Note], later: Later) -> None:
        self.notes, self.later, self.reason = dict(now), later, f"revert of {commit.id}"
        self.links = {link.ends: link for note in now.values() for link in note.links}
        self.leaving = {change.note.id for change in commit.changes if isinstance(change, PutNote)}
        self.steps: list[Change] = []
        self.conflicts: list[str] = []

    def undo(self, change: Change) -> None:
        """Add the step that undoes one change, or what is in its way."""
        gone = [note_id for note_id in touched(change) if note_id not in self.notes]
        if gone or isinstance(change, RemoveNote):
            self._conflict(f"note {(gone or touched(change))[0]!r} was removed for good, nothing of it was kept")
        elif isinstance(change, PutNote):
            self._take_away(change.note.id)
        elif isinstance(change, ReviseNote):
            self._take_back(change)
        elif isinstance(change, ArchiveNote):
            self._bring_back(change)
        elif self.leaving.isdisjoint(touched(change)):
            self._relink(change)
        elif isinstance(change, PutLink) and change.link.ends in self.links:
            self._step(DropLink(*change.link.ends, self.reason))  # it goes with its note, whatever became of it
            del self.links[change.link.ends]

    def _step(self, step: Change) -> None:
        self.steps.append(step)

    def _conflict(self, sentence: str) -> None:
        if sentence not in self.conflicts:
            self.conflicts.append(sentence)

    def _take_away(self, note_id: NoteId) -> None:
        note = self.notes[note_id]
        if note.state == "archived":
            self._conflict(f"note {note_id!r} is deleted already{self._by(note_id, 'state')}")
            return
        self._step(ArchiveNote(note_id, note.revision, self.reason))
        self.notes[note_id] = replace(note, state="archived", revision=note.revision + 1)

    def _take_back(self, change: ReviseNote) -> None:
        note, fields = self.notes[change.note], dict(change.before)
        for name, value in change.after.items():
            present, before = getattr(note, name), change.before.get(name)
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                named = {key for key in change.after if getattr(note, key) != change.after[key]} if name == "given" else set()
                fields[name] = self._key_by_key(note.id, name, (before, value, present), named)
            elif present != value:
                self._conflict_of(note.id, name, name, present)
        self._revise(note, fields)

    def _key_by_key(self, note: NoteId, name: str, values: tuple[Mapping[str, Any], ...], named: Set[str]) -> dict[str, Any]:
        """A mapping with the keys that changed as they were, the others as they are; of ``named`` a conflict is told already."""
        before, after, present = values
        kept = dict(present)
        for key in [key for key in {**before, **after} if _pair(before, key) != _pair(after, key)]:
            if _pair(present, key) != _pair(after, key) and key not in named:
                self._conflict_of(note, f"{name}.{key}", name, present.get(key))
            kept.pop(key, None)
            kept |= _pair(before, key)
        return kept

    def _conflict_of(self, note: NoteId, what: str, name: str, present: Any) -> None:
        by = self._by(note, name)
        self._conflict(f"{what} of note {note!r} was changed again since{by}, to {present!r}: revert that first")

    def _bring_back(self, change: ArchiveNote) -> None:
        note = self.notes[change.note]
        if note.state != "archived":
            self._conflict(f"note {note.id!r} is not deleted any more{self._by(note.id, 'state')}")
        self._revise(note, change.before)

    def _revise(self, note: Note, fields: Mapping[str, Any]) -> None:
        """Set fields; a note that leaves sight by that and was linked since is archived, so that those links go too."""
        dropped = {(step.source, step.target, step.kind) for step in self.steps if isinstance(step, DropLink)}
        linked = any(note.id in ends[:2] for ends in self.links.keys() - dropped)
        if leaves := linked and fields.get("state") == "archived" != note.state:
            fields = {name: value for name, value in fields.items() if name != "state"}
        if fields:
            self._step(ReviseNote(note.id, note.revision, fields, self.reason))
            self.notes[note.id] = note = replace(note, **fields, revision=note.revision + 1)
        if leaves:
            self._take_away(note.id)

    def _relink(self, change: PutLink | DropLink) -> None:
        """Give a link between notes that stay what it was before the change."""
        after = change.link if isinstance(change, PutLink) else None
        ends = after.ends if after else (change.source, change.target, change.kind)  # type: ignore[union-attr]
        present, before = self.links.get(ends), change.before
        if _same(present, before):
            return
        if not _same(present, after):
            became = "dropped" if present is None else "put anew"
            self._conflict(f"the link {ends[2]} from {ends[0]!r} to {ends[1]!r} was {became} since{self._by(ends[0], ends)}")
        elif before is None:
            self._step(DropLink(*ends, self.reason))
            del self.links[ends]
        elif deleted := [end for end in ends[:2] if self.notes[end].state == "archived"]:
            self._conflict(f"note {deleted[0]!r} was deleted since{self._by(deleted[0], 'state')}: its link cannot come back")
        else:
            self._step(PutLink(before, self.reason))
            self.links[ends] = before

    def _by(self, note: NoteId, what: str | tuple[NoteId, NoteId, str]) -> str:
        """The newest later commit that changed a field of a note, or a link of it."""
        found = next((one for one in self.later(note) if any(_changes(change, note, what) for change in one.changes)), None)
        return "" if found is None else f" by commit {found.id} ({found.reason})"


def _pair(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A mapping with one key of another, empty where it is not there."""
    return {key: values[key]} if key in values else {}


def _same(one: Link | None, other: Link | None) -> bool:
    """Whether two links say the same, or neither is there."""
    if one is None or other is None:
        return one is other
    return (one.ends, one.reason, one.strength) == (other.ends, other.reason, other.strength)


def _changes(change: Change, note: NoteId, what: str | tuple[NoteId, NoteId, str]) -> bool:
    """Whether a change is about a field of a note, or about the link with these ends."""
    match change:
        case ReviseNote():
            return change.note == note and what in change.after
        case ArchiveNote():
            return change.note == note and what == "state"
        case PutLink(link=link):
            return link.ends == what
        case DropLink():
            return (change.source, change.target, change.kind) == what
        case _:
            return False


def summarise(changes: Sequence[Change]) -> str:
    """What a list of changes does, in a few words: "1 note added, 2 links, 1 note revised"."""
    words = {
        PutNote: "{} added", ReviseNote: "{} revised", ArchiveNote: "{} archived", RemoveNote: "{} removed",
        PutLink: "{} linked", DropLink: "{} unlinked",
    }  # fmt: skip
    counts = {kind: sum(isinstance(change, kind) for change in changes) for kind in words}
    return ", ".join(words[kind].format(count) for kind, count in counts.items() if count)
