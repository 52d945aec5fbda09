"""What was: the log, the revisions of a note, and the commit that a moment means."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engramma.commit import Commit
from engramma.dates import last_moment
from engramma.draft import checked, checked_count, checked_id
from engramma.errors import UnknownId
from engramma.ledger import Ledger
from engramma.note import CommitId, Note, Space
from engramma.store import Revision

Moment = datetime | str | int | None
"""A time, a commit's id or its sequence number; None is now."""


class Past:
    """The history of a memory. ``Memory`` documents the verbs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._store = ledger, ledger.store

    def seq(self, as_of: Moment) -> int | None:
        """The sequence number of the commit that a moment means, None for now."""
        if as_of is None:
            return None
        if isinstance(as_of, int):
            return max(0, min(as_of, self._store.head()))
        if isinstance(as_of, str):
            checked("as_of", as_of)
            if (commit := self._store.commit(CommitId(as_of))) is not None:
                return commit.seq
        return self._store.seq_at(last_moment(as_of, "as_of"))

    def history(self, note: Note | str) -> list[Revision]:
        """Every revision of a note, oldest first."""
        note_id = checked_id(note)
        revisions = self._store.history(note_id)
        if not revisions:
            raise UnknownId(f"there is no note {note_id!r}")
        return revisions

    def log(self, limit: int | None, spaces: Sequence[Space] | None, note: Note | str | None) -> list[Commit]:
        """Commits, newest first: of a note, or of some spaces."""
        checked_count("limit", limit)
        if note is not None:
            return self._store.log(limit, None, self._ledger.note(note).id)
        found = [commit for one in spaces or () for commit in self._store.log(limit, one)]
        return sorted(found, key=lambda commit: -commit.seq)[:limit]
