"""What was: the log, the revisions of a note, which commit put each part of it there, and what a moment means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ulid import ULID

from engramma.commit import FOLDING, Commit, PutLink
from engramma.dates import last_moment, period
from engramma.draft import checked, checked_count, checked_id
from engramma.errors import InvalidInput, UnknownId
from engramma.ledger import Ledger
from engramma.note import CommitId, Link, Note, Space
from engramma.store import Revision
from engramma.store.base import Folded

Moment = datetime | str | int | None
"""A time, a commit's id or its sequence number; None is now."""
_LISTS = {"tags": "tag", "keywords": "keyword", "dates": "date"}
_FIELDS = ("content", "context", "speaker", "session", "at", "category", "importance", "level", "state", "pinned", "valid_until",
           "expires_at", "key", "error")  # fmt: skip
_SHORTEST = 6  # characters that an id may be shortened to
_FIRST = {"level": "episode", "state": "ready", "pinned": False}
"""What a note has of itself: no part worth a line until somebody changes it."""


@dataclass(frozen=True, slots=True)
class Blame:
    """One part of a note as it is now, and the commit that put it there.

    ``part`` is a field's name; "tag", "keyword" or "date" for one of a list; "metadata.…" for one of its keys; "link"
    for a link, and "link strength" where a later commit changed its strength or reason. ``value`` is what it holds:
    for a link, the ``Link``. ``reason`` is why that commit did so.
    """

    part: str
    value: Any
    commit: Commit
    reason: str

    @property
    def at(self) -> datetime:
        """When the memory learnt it."""
        return self.commit.at

    @property
    def actor(self) -> str:
        """Who put it there; "compact" where that was folded away."""
        return self.commit.actor


class Past:
    """The history of a memory. ``Memory`` documents the verbs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._store = ledger, ledger.store

    def seq(self, as_of: Moment) -> int | None:
        """The sequence number of the commit that a moment means, None for now. Raises InvalidInput before the horizon."""
        if as_of is None:
            return None
        seq = self._meant(as_of)
        horizon = self._store.horizon()
        if horizon is not None and seq < horizon[0]:
            raise InvalidInput(
                f"as_of={as_of!r} lies before {horizon[1]:%Y-%m-%d %H:%M:%S} UTC (commit number {horizon[0]}): what is older was "
                "folded away by compact, and nobody can tell any more what the memory held; ask for that moment or a later one"
            )
        return seq

    def _meant(self, as_of: datetime | str | int) -> int:
        if isinstance(as_of, int):
            return max(0, min(as_of, self._store.head()))
        if isinstance(as_of, str):
            checked("as_of", as_of)
            if (commit := self._store.commit(CommitId(as_of))) is not None:
                return commit.seq
            if self._folded(as_of):
                return -1
        return self._store.seq_at(last_moment(as_of, "as_of"))

    def time(self, as_of: Moment) -> datetime | None:
        """The time that a moment means, None for now."""
        if as_of is None:
            return None
        if isinstance(as_of, int):
            found = self._store.log(1, before=self._meant(as_of) + 1)
            return found[0].at if found else datetime.min.replace(tzinfo=UTC)
        commit = self._store.commit(CommitId(as_of)) if isinstance(as_of, str) else None
        return commit.at if commit else last_moment(as_of, "as_of")

    def _folded(self, commit: str) -> bool:
        """Whether the id of a commit that is not in the log is as old as what was folded away."""
        horizon = self._store.horizon()
        if horizon is None or not re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", commit):
            return False
        return ULID.from_str(commit).timestamp <= horizon[1].timestamp() + 0.001

    def commit(self, commit: Commit | str, space: Space | None = None) -> Commit:
        """One commit, of a space also by the beginning of its id. Raises UnknownId, which says so when it may have been
        folded away."""
        commit_id = commit.id if isinstance(commit, Commit) else CommitId(checked_id(commit))
        if (found := self._store.commit(commit_id)) is not None:
            return found
        if space is not None and len(commit_id) >= _SHORTEST:
            named = self._store.commits_named(commit_id.upper(), space, 3)
            if len(named) > 1:
                raise InvalidInput(f"{commit_id!r} begins several ids ({', '.join(named)}): give more of the one you mean")
            if named and (found := self._store.commit(named[0])) is not None:
                return found
        if self._folded(commit_id):
            raise UnknownId(
                f"commit {commit_id!r} was folded away by compact: what is as old as that cannot be reverted any more"
            )
        raise UnknownId(f"there is no commit {commit_id!r}: engramma log shows them")

    def history(self, note: Note | str) -> list[Revision]:
        """Every revision of a note, oldest first."""
        note_id = checked_id(note)
        revisions = self._store.history(note_id)
        if not revisions:
            raise UnknownId(f"there is no note {note_id!r}")
        return revisions

    def log(
        self, limit: int | None, spaces: Sequence[Space] | None, note: Note | str | None = None, actor: str | None = None,
        since: datetime | None = None, until: datetime | None = None,
    ) -> list[Commit]:  # fmt: skip
        """Commits, newest first: of a note, or of some spaces."""
        checked_count("limit", limit)
        if actor is not None and (not isinstance(actor, str) or not actor):
            raise InvalidInput(f"actor={actor!r} is not a name such as 'user', or the beginning of one, as 'analyst:'")
        note_id = None if note is None else self._ledger.note(note).id
        found = [
            commit
            for one in spaces or (None,)
            for commit in self._store.log(limit, one, note_id, actor=actor, since=since, until=until)
        ]
        return sorted(found, key=lambda commit: -commit.seq)[:limit]

    def blame(self, note: Note | str) -> list[Blame]:
        """The parts of a note, each with the commit that put it there."""
        current = self._ledger.note(note)
        revisions = self.history(current)
        older = self._fold(current) if revisions[0].revision > 1 else None
        fields = [_blamed(name, value, revisions, older) for name, value in _parts(revisions[-1].note)]
        return [*fields, *self._blamed_links(current)]

    def _blamed_links(self, note: Note) -> Iterator[Blame]:
        log = self._store.log(None, None, note.id) if note.links else []
        for link in sorted(note.links, key=lambda link: -link.strength):
            puts = list(_puts(link, log))
            if not puts or puts[-1].before is not None:  # the commit that put it was folded away
                folded = self._fold(note)
                yield Blame("link", link, folded, folded.reason)
            elif puts:
                yield Blame("link", link, puts[-1].commit, puts[-1].reason)
            if puts and puts[0].before is not None:
                yield Blame("link strength", link, puts[0].commit, puts[0].reason)

    def _fold(self, note: Note) -> Commit:
        """The commit that stands for what was folded away in a note's space."""
        found = self._store.log(1, note.space, actor=FOLDING)
        return found[0] if found else self._store.history(note.id)[0].commit

    def compact(self, keep: Any, dry_run: bool) -> Folded:
        """Fold away what is older than a period."""
        until = datetime.now(UTC) - period("keep", keep)
        return self._store.fold(until, dry_run=dry_run)


def _parts(note: Note) -> Iterator[tuple[str, Any]]:
    """What a note holds, part by part, links left out."""
    for name in _FIELDS:
        value = getattr(note, name)
        if value not in (None, "", ()) and _FIRST.get(name) != value:
            yield name, value
    for name, part in _LISTS.items():
        for item in getattr(note, name):
            yield part, item
    for key, value in note.metadata.items():
        yield f"metadata.{key}", value


def _holds(note: Note, part: str, value: Any) -> bool:
    """Whether a revision of a note has a part."""
    if part.startswith("metadata."):
        key = part.removeprefix("metadata.")
        return key in note.metadata and note.metadata[key] == value
    name = next((name for name, one in _LISTS.items() if one == part), None)
    return value in getattr(note, name) if name else getattr(note, part) == value


def _blamed(part: str, value: Any, revisions: Sequence[Revision], older: Commit | None) -> Blame:
    """The part of the last revision, and the first of those before it that have held it without a break; ``older`` stands
    for what is not kept."""
    first = revisions[-1]
    for revision in reversed(revisions):
        if not _holds(revision.note, part, value):
            break
        first = revision
    if older is not None and first is revisions[0]:
        return Blame(part, value, older, older.reason)
    return Blame(part, value, first.commit, first.reason)


@dataclass(frozen=True, slots=True)
class _Put:
    """A commit that put a link or changed one, why, and the link that it changed."""

    commit: Commit
    reason: str
    before: Link | None


def _puts(link: Link, log: Iterable[Commit]) -> Iterator[_Put]:
    """The commits that put or changed a link since it is there, newest first."""
    for commit in log:
        for change in reversed(commit.changes):
            if isinstance(change, PutLink) and change.link.ends == link.ends:
                yield _Put(commit, change.reason or change.link.reason or commit.reason, change.before)
                if change.before is None:
                    return
