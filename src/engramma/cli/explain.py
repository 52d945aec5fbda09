"""``engramma explain``: where a note came from, what it is linked to, what changed it, what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from engramma.cli.opening import note_id, opened
from engramma.cli.read import Id
from engramma.cli.search import Json

if TYPE_CHECKING:
    from engramma.cli.screen import Screen
    from engramma.commit import Change, Commit
    from engramma.memory import Memory
    from engramma.note import Note
    from engramma.past import Blame

Step = tuple["Commit", Sequence["Change"]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A note with its origin, each part's commit, and the changes to it and by it, oldest first."""

    note: Note
    origin: Commit
    why: str
    parts: Sequence[Blame]
    changed_by: Sequence[Step]
    changed: Sequence[Step]


def explain(ctx: typer.Context, name: Id, as_json: Json = False) -> None:
    """Tell where a note came from, what it is linked to and why, what changed it, and what it changed in others."""
    from engramma.cli.changes import notes_of
    from engramma.cli.screen import Screen, print_json

    with opened(ctx) as memory:
        told = explained(memory, note_id(memory, name))
        notes = notes_of(memory, [commit for commit, _ in (*told.changed_by, *told.changed)]) if not as_json else {}
        ends = {link.other(told.note.id) for link in told.note.links} - notes.keys()
        notes |= {told.note.id: told.note, **{end: memory.get(end) for end in ends}}
    if as_json:
        print_json(_as_json(told))
    else:
        _show(Screen(), told, notes)


def explained(memory: Memory, name: str) -> Explanation:
    """All that the history tells of a note."""
    from engramma.commit import FOLDING

    note, first = memory.get(name), memory.history(name)[0]
    folded = memory.log(limit=1, space=note.space, actor=FOLDING) if first.revision > 1 else []
    origin, why = (folded[0], folded[0].reason) if folded else (first.commit, first.reason)
    log = memory.log(limit=None, note=note.id)[::-1]
    by = [(commit, _about(commit.changes, note.id)) for commit in log if commit.id != origin.id]
    done = [(commit, _beside(commit.changes, note.id)) for commit in log if _reads(commit.changes, note.id)]
    return Explanation(note, origin, why, memory.blame(note), [one for one in by if one[1]], [one for one in done if one[1]])


def _about(changes: Iterable[Change], note: str) -> list[Change]:
    """The changes to a note and its links."""
    from engramma.commit import touched

    return [change for change in changes if note in touched(change)]


def _beside(changes: Iterable[Change], note: str) -> list[Change]:
    """The changes to other notes and to links between them."""
    from engramma.commit import touched

    return [change for change in changes if note not in touched(change)]


def _reads(changes: Iterable[Change], note: str) -> bool:
    """Whether a commit comes from a note itself: it was added, read, or its author gave it another content."""
    from engramma.commit import PutNote, ReviseNote

    for change in changes:
        if isinstance(change, PutNote) and change.note.id == note:
            return True
        if isinstance(change, ReviseNote) and change.note == note:
            return change.reason == "read" or "content" in change.after
    return False


def _show(screen: Screen, told: Explanation, notes: dict[str, Note]) -> None:
    from engramma.cli.views import marks, shown

    screen.line((told.note.id, "cyan"), (f"  {marks(told.note)}", "yellow"))
    screen.line(shown(told.note.content), indent=2)
    _origin(screen, told)
    _parts(screen, told)
    _links(screen, told, notes)
    _steps(screen, "changed since", told.changed_by, notes)
    _steps(screen, "changed in other notes", told.changed, notes)


def _heading(screen: Screen, text: str) -> None:
    screen.blank()
    screen.line((text, "bold"))


def _origin(screen: Screen, told: Explanation) -> None:
    from engramma.cli.views import moment_of

    note, origin = told.note, told.origin
    _heading(screen, "where it came from")
    said = [note.speaker, moment_of(note), f"session {note.session}" if note.session else ""]
    screen.field("said", "  ".join(filter(None, said)))
    screen.field("stored", f"{origin.at.astimezone():%Y-%m-%d %H:%M}", ("  by ", "dim"), (origin.actor, "bold"), f": {told.why}",
                 (f"  {origin.id}", "yellow"))  # fmt: skip
    screen.field("commit", origin.reason)


def _parts(screen: Screen, told: Explanation) -> None:
    """Each part that is not the note's own words, with what put it there."""
    from engramma.cli.changes import worded

    own = ("content", "speaker", "session", "at")
    parts = [one for one in told.parts if one.part not in own and not one.part.startswith("link")]
    if parts:
        _heading(screen, "what is noted of it")
    for one in parts:
        screen.line((f"{one.part.replace('_', ' '):<12}", "dim"), worded(one.value), *_put_by(one, told), indent=2, hang=12)


def _put_by(one: Blame, told: Explanation) -> list[tuple[str, str]]:
    """What put a part there, in few words where that was the note's own commit."""
    from engramma.commit import FOLDING

    if one.actor == FOLDING:
        return [("  folded away", "dim")]
    if one.commit.id == told.origin.id:
        return [("  when it came", "dim")]
    return [(f"  {one.at.astimezone():%Y-%m-%d} {one.actor}: {one.reason}", "dim"), (f"  {one.commit.id}", "yellow")]


def _links(screen: Screen, told: Explanation, notes: dict[str, Note]) -> None:
    from engramma.cli.views import link_line

    links = [one for one in told.parts if one.part == "link"]
    if links:
        _heading(screen, "what it is linked to")
    for one in links:
        link_line(screen, one.value, told.note, notes.get(one.value.other(told.note.id)))
        screen.field("", *_put_by(one, told))


def _steps(screen: Screen, heading: str, steps: Sequence[Step], notes: dict[str, Note]) -> None:
    from engramma.cli.changes import change_lines, commit_line

    if steps:
        _heading(screen, heading)
    for commit, changes in steps:
        commit_line(screen, commit)
        for change in changes:
            change_lines(screen, change, notes, indent=4)


def _as_json(told: Explanation) -> dict[str, Any]:
    parts = [one for one in told.parts if not one.part.startswith("link")]
    links = [one for one in told.parts if one.part.startswith("link")]
    return {
        "note": told.note, "origin": _commit(told.origin) | {"reason": told.why}, "parts": [_blame(one) for one in parts],
        "links": [_blame(one) for one in links], "changed_by": [_step(step) for step in told.changed_by],
        "changed": [_step(step) for step in told.changed],
    }  # fmt: skip


def _commit(commit: Commit) -> dict[str, Any]:
    return {"commit": commit.id, "at": commit.at, "actor": commit.actor, "reason": commit.reason}


def _blame(one: Blame) -> dict[str, Any]:
    return {"part": one.part, "value": one.value, **_commit(one.commit), "reason": one.reason}


def _step(step: Step) -> dict[str, Any]:
    from engramma.cli.shapes import commit_json

    commit, changes = step
    return _commit(commit) | {"changes": commit_json(replace(commit, changes=tuple(changes)))["changes"]}
