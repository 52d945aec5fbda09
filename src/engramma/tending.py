"""Upkeep put to work: proposals from ``upkeep``, written as commits where they are wanted."""

from __future__ import annotations

from datetime import UTC, datetime

from engramma import plan
from engramma.commit import ArchiveNote, Commit, PutNote
from engramma.ledger import Decision, Ledger
from engramma.note import Note, NoteId, Space
from engramma.recall import Recall
from engramma.store import Query
from engramma.upkeep import forget, reflect
from engramma.upkeep.forget import Faded
from engramma.upkeep.reflect import Insight
from engramma.write import new_id


class Keeper:
    """Upkeep of one space at a time. ``Memory`` documents the verbs."""

    def __init__(self, ledger: Ledger, recall: Recall) -> None:
        self._ledger, self._store, self._recall = ledger, ledger.store, recall

    def _notes(self, space: Space) -> list[Note]:
        """The notes of a space in sight, with their links."""
        found = self._store.find(Query([space]))
        whole = self._store.notes([note.id for note in found])
        return [whole.get(note.id, note) for note in found]

    def forget(self, space: Space, dry_run: bool, threshold: float) -> list[Faded] | Commit | None:
        """Archive what has expired or faded."""
        faded = forget.faded(self._notes(space), datetime.now(UTC), threshold)
        if dry_run or not faded:
            return faded if dry_run else None

        def decide() -> Decision:
            notes = self._store.notes([one.note.id for one in faded])
            steps = [ArchiveNote(one.note.id, notes[one.note.id].revision, one.reason) for one in faded if one.note.id in notes]
            return space, plan.with_dropped_links(steps, notes), f"forget: {len(steps)} notes archived"

        return self._ledger.commit(decide)

    def reflect(self, space: Space, dry_run: bool) -> list[Insight] | Commit | None:
        """Write what groups of linked notes say together."""
        found = [one for one in reflect.insights(self._notes(space)) if self._store.by_key(one.space, one.key) is None]
        if dry_run or not found:
            return found if dry_run else None
        written = [plan.plan_insight(one, NoteId(new_id()), datetime.now(UTC)) for one in found]
        vectors = self._recall.embed([one.content for one in found], "passage")
        ids = [change.note.id for group in written for change in group if isinstance(change, PutNote)]
        by_id = {note_id: vectors[number : number + 1] for number, note_id in enumerate(ids)}
        changes = [change for group in written for change in group]
        return self._ledger.commit(lambda: (space, changes, f"reflect: {len(found)} insights"), vectors=lambda: by_id)
