"""Commits: the only way memory changes, and how one is undone.

A commit is an ordered list of typed changes with an actor, a reason and a cost. The store applies
one in one transaction and fills in what each change replaced (``before``), so that the inverse of
an applied commit follows from the commit alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


def inverse(commit: Commit, now: Mapping[NoteId, Note]) -> tuple[Change, ...]:
    """The changes that undo an applied commit, last change first.

    ``now`` holds the touched notes as they are. Raises Conflict, naming what is in the way, when
    a later commit changed the same field or removed the note for good.
    """
    reason = f"revert of {commit.id}"
    expected = {note_id: note.revision for note_id, note in now.items()}
    undo: list[Change] = []
    for change in reversed(commit.changes):
        step = _undo(change, now, expected, reason)
        undo.append(step)
        if isinstance(step, ReviseNote | ArchiveNote):
            expected[step.note] += 1
    return tuple(undo)


def _undo(change: Change, now: Mapping[NoteId, Note], expected: Mapping[NoteId, int], reason: str) -> Change:
    for note_id in touched(change):
        if note_id not in now:
            raise Conflict(f"cannot revert: note {note_id!r} was removed for good")
    match change:
        case PutNote(note=note):
            if now[note.id].state == "archived":
                raise Conflict(f"cannot revert: note {note.id!r} is deleted already")
            return ArchiveNote(note.id, expected[note.id], reason)
        case ReviseNote(note=note_id, after=after, before=before):
            _check_untouched(now[note_id], after)
            return ReviseNote(note_id, expected[note_id], before, reason)
        case ArchiveNote(note=note_id, before=before):
            if now[note_id].state != "archived":
                raise Conflict(f"cannot revert: note {note_id!r} is not deleted any more")
            return ReviseNote(note_id, expected[note_id], before, reason)
        case PutLink(link=link, before=None):
            return DropLink(*link.ends, reason)
        case PutLink(before=before) | DropLink(before=before) if before is not None:
            return PutLink(before, reason)
        case _:
            raise Conflict("cannot revert: the commit removed content for good, nothing of it was kept")


def _check_untouched(note: Note, after: Mapping[str, Any]) -> None:
    for name, value in after.items():
        present = getattr(note, name)
        if present != value:
            raise Conflict(
                f"cannot revert: {name} of note {note.id!r} was changed again since, to {present!r}; "
                "revert the later commit first"
            )


def summarise(changes: Sequence[Change]) -> str:
    """What a list of changes does, in a few words: "1 note added, 2 links, 1 note revised"."""
    words = {
        PutNote: "{} added", ReviseNote: "{} revised", ArchiveNote: "{} archived", RemoveNote: "{} removed",
        PutLink: "{} linked", DropLink: "{} unlinked",
    }  # fmt: skip
    counts = {kind: sum(isinstance(change, kind) for change in changes) for kind in words}
    return ", ".join(words[kind].format(count) for kind, count in counts.items() if count)
