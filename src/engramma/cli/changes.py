"""Commits and revisions for people: what was, and what is since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engramma.cli.screen import Screen
from engramma.cli.views import title

if TYPE_CHECKING:
    from engramma.commit import Change, Commit
    from engramma.memory import Memory
    from engramma.note import Link, Note

_COMPARED = ("content", "context", "keywords", "tags", "category", "importance", "level", "state", "pinned", "valid_until",
             "expires_at", "speaker", "session", "at", "metadata", "key", "error")  # fmt: skip

_SHORT, _LONG, _AROUND = 60, 300, 40  # characters: "then → now" on a line; a text shown whole; around what differs


def notes_of(memory: Memory, commits: Iterable[Commit]) -> dict[str, Note]:
    """The notes that commits touch, as they are now; those removed for good are missing."""
    from engramma.errors import UnknownId

    found: dict[str, Note] = {}
    for note_id in dict.fromkeys(note for commit in commits for note in commit.notes()):
        try:
            found[note_id] = memory.get(note_id)
        except UnknownId:
            continue
    return found


def commit_line(screen: Screen, commit: Commit) -> None:
    """A commit on one line of the log."""
    cost = f"  {commit.tokens.total} tokens" if commit.tokens.total else ""
    screen.cut((commit.id, "yellow"), "  ", (f"{commit.at.astimezone():%Y-%m-%d %H:%M}", "dim"), "  ",
               (commit.actor, "bold"), "  ", commit.reason, (cost, "dim"))  # fmt: skip


def commit_card(screen: Screen, commit: Commit, notes: Mapping[str, Note]) -> None:
    """A commit whole: each change with what it replaced."""
    screen.line(("commit ", "dim"), (commit.id, "yellow"), ("  by ", "dim"), (commit.actor, "bold"),
                (f"  {commit.at.astimezone():%Y-%m-%d %H:%M:%S}", "dim"))  # fmt: skip
    screen.line(commit.reason, indent=2)
    if commit.reverts:
        screen.line(("reverts  ", "dim"), (commit.reverts, "yellow"), indent=2)
    if commit.tokens.calls:
        spent = commit.tokens
        screen.line((f"{spent.calls} calls, {spent.tokens_in} tokens in, {spent.tokens_out} out", "dim"), indent=2)
    for part in commit.dropped:
        screen.line(("left out  ", "dim"), part, indent=2, hang=10)
    for change in commit.changes:
        change_lines(screen, change, notes)


def change_lines(screen: Screen, change: Change, notes: Mapping[str, Note], indent: int = 2) -> None:
    """One change: what kind, of which note, why, and each field before and after."""
    from engramma.commit import ArchiveNote, DropLink, PutLink, PutNote, RemoveNote, ReviseNote

    match change:
        case PutNote(note=note):
            screen.line(("added     ", "green"), f"“{title(note)}”", (f"  {note.id}", "cyan"), indent=indent, hang=10)
        case ReviseNote(note=note_id, before=before, after=after):
            _head(screen, "revised", "yellow", note_id, change.reason, notes, indent)
            differences(screen, before, after, indent + 10)
        case ArchiveNote(note=note_id):
            _head(screen, "archived", "red", note_id, change.reason, notes, indent)
        case RemoveNote(note=note_id):
            _head(screen, "removed", "red", note_id, change.reason, notes, indent)
        case PutLink(link=link, before=old):
            _link(screen, "linked", "green", link, notes, indent)
            if old is not None:
                differences(screen, {"strength": old.strength, "reason": old.reason},
                            {"strength": link.strength, "reason": link.reason}, indent + 10)  # fmt: skip
        case DropLink(source=source, target=target, kind=kind, before=old):
            _drop(screen, source, target, kind, old, notes, indent)


def _head(
    screen: Screen, verb: str, style: str, note_id: str, reason: str, notes: Mapping[str, Note], indent: int
) -> None:  # fmt: skip
    why = f"  {reason}" if reason else ""
    screen.line((f"{verb:<10}", style), _named(note_id, notes), (why, "dim"), (f"  {note_id}", "cyan"), indent=indent, hang=10)


def _link(screen: Screen, verb: str, style: str, link: Link, notes: Mapping[str, Note], indent: int) -> None:
    ends = f"{_named(link.source, notes)} → {_named(link.target, notes)}"
    screen.line((f"{verb:<10}", style), (f"{link.kind} {link.strength:.2f}  ", "magenta"), ends, (f"  {link.reason}", "dim"),
                indent=indent, hang=10)  # fmt: skip


def _drop(
    screen: Screen, source: str, target: str, kind: str, old: Link | None, notes: Mapping[str, Note], indent: int
) -> None:  # fmt: skip
    was = f"  was: {old.reason}" if old and old.reason else ""
    ends = f"{_named(source, notes)} → {_named(target, notes)}"
    screen.line(("unlinked  ", "red"), (f"{kind}  ", "magenta"), ends, (was, "dim"), indent=indent, hang=10)


def _named(note_id: str, notes: Mapping[str, Note]) -> str:
    return f"“{title(notes[note_id])}”" if note_id in notes else f"{note_id} (removed for good)"


def note_differences(screen: Screen, before: Note, after: Note, indent: int = 2) -> None:
    """The fields in which two revisions of a note differ."""
    old = {name: getattr(before, name) for name in _COMPARED}
    new = {name: getattr(after, name) for name in _COMPARED}
    differences(screen, old, new, indent)


def differences(screen: Screen, before: Mapping[str, Any], after: Mapping[str, Any], indent: int = 2) -> None:
    """Fields that changed: of a list what came and went, of a text where it differs, of anything else "then → now"."""
    for name, old, new in _pairs(before, after):
        if isinstance(old, list | tuple) or isinstance(new, list | tuple):
            _list_line(screen, name, _words(old), _words(new), indent)
            continue
        was, now = worded(old), worded(new)
        if len(was) + len(now) <= _SHORT and "\n" not in was + now:
            screen.line((f"{name:<12}", "dim"), (was, "red"), " → ", (now, "green"), indent=indent, hang=12)
            continue
        was, now = _where_they_differ(was, now)
        screen.line((f"{name:<12}", "dim"), ("− ", "red"), (was, "red"), indent=indent, hang=14)
        screen.line((" " * 12, "dim"), ("+ ", "green"), (now, "green"), indent=indent, hang=14)


def _pairs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Names and values that differ; of metadata each key by itself. What an author gave shows in the field it is for."""
    for name, new in after.items():
        old = before.get(name)
        if name == "given" or old == new:
            continue
        if isinstance(new, Mapping):
            old = old or {}
            for key in {**old, **new}:
                if old.get(key) != new.get(key):
                    yield f"{name}.{key}", old.get(key), new.get(key)
        else:
            yield name.replace("_", " "), old, new


def _list_line(screen: Screen, name: str, old: list[str], new: list[str], indent: int) -> None:
    parts = [(f"+{word}", "green") for word in new if word not in old] + [(f"−{word}", "red") for word in old if word not in new]
    spaced = [part for one in parts for part in (("  ", ""), one)][1:]
    screen.line((f"{name:<12}", "dim"), *(spaced or [("in another order", "dim")]), indent=indent, hang=12)


def _words(value: Any) -> list[str]:
    """The items of a list as a person writes them, dates with the days they mean."""
    return [worded(item) for item in value or ()]


def worded(value: Any) -> str:
    """One value in words."""
    from engramma.note import SaidDate

    if value in (None, "", {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
    if isinstance(value, SaidDate):
        return f"{value.text} = {' to '.join(dict.fromkeys((str(value.start), str(value.end))))}"
    if isinstance(value, list | tuple):
        return ", ".join(_words(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {worded(item)}" for name, item in value.items())
    return str(value)


def _where_they_differ(old: str, new: str) -> tuple[str, str]:
    """Two texts, long ones cut to where they differ and a little around it."""
    if max(len(old), len(new)) <= _LONG:
        return old, new
    most = min(len(old), len(new))
    start = next((place for place in range(most) if old[place] != new[place]), most)
    end = next((place for place in range(most - start) if old[-1 - place] != new[-1 - place]), most - start)
    first = max(0, start - _AROUND)
    return _cut(old, first, len(old) - end + _AROUND), _cut(new, first, len(new) - end + _AROUND)


def _cut(text: str, first: int, last: int) -> str:
    """A stretch of a text, no longer than a screen, with marks where it goes on."""
    part = text[first:last]
    if len(part) > 2 * _LONG:
        part = f"{part[:_LONG]} … {part[-_LONG:]}"
    return ("… " if first else "") + part + (" …" if last < len(text) else "")
