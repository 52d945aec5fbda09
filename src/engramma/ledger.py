"""Where every decided change is written: decide on what is there, write once, decide again where it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engramma.commit import Change, Commit
from engramma.draft import checked_id
from engramma.errors import Conflict, UnknownId
from engramma.note import CommitId, Note, NoteId, Reading, Space
from engramma.store import Store
from engramma.tracing import noted
from engramma.write import ATTEMPTS, make_commit

Decision = tuple[Space, Sequence[Change], str]
"""The space, the changes, and the reason of a commit to be."""


class Ledger:
    """Commits to a store, and the notes that they are decided on."""

    def __init__(self, store: Store, embedder_name: Callable[[], str]) -> None:
        self.store, self._embedder_name = store, embedder_name

    def note(self, note: Note | str, as_of: int | None = None, said: str = "") -> Note:
        """One note, deleted ones included. Raises UnknownId, with what was ``said`` of the time."""
        note_id = checked_id(note)
        found = self.store.notes([note_id], as_of).get(note_id)
        if found is None:
            raise UnknownId(f"there is no note {note_id!r}{said}")
        return found

    def in_sight(self, note: Note | str) -> Note:
        """One note that was not deleted. Raises UnknownId."""
        found = self.note(note)
        if found.state == "archived":
            raise UnknownId(f"note {found.id!r} was deleted: revert its deletion first (engramma log {found.id})")
        return found

    def others(self, note: Note) -> dict[NoteId, Note]:
        """The notes that one is linked to."""
        return self.store.notes([link.other(note.id) for link in note.links])

    def commit(
        self, decide: Callable[[], Decision], *, actor: str = "user", reverts: CommitId | None = None,
        vectors: Callable[[], Mapping[NoteId, Any]] = dict, decided: Decision | None = None, cost: Reading | None = None,
    ) -> Commit:  # fmt: skip
        """Decide on what is there and write it; where the memory has changed in between, decide again.

        ``decided`` is a decision that was made a moment ago, and is tried first. ``cost`` is what the commit carries of a
        model's tokens.
        """
        for attempt in range(ATTEMPTS):
            space, changes, reason = decided or decide()
            decided = None
            try:
                commit = make_commit(space, changes, actor, reason, cost=cost, reverts=reverts)
                applied = self.store.apply([commit], vectors(), self._embedder_name())
                noted(applied)
                return applied[0]
            except Conflict:
                if attempt + 1 == ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt raises")
