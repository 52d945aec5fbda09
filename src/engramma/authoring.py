"""What a person changes by hand: a note, its links, what was changed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engramma import plan
from engramma.commit import Change, Commit, PutLink, RemoveNote, inverse, summarise, touched
from engramma.dates import said_dates
from engramma.draft import checked, checked_id, checked_space, checked_update
from engramma.errors import InvalidInput, UnknownId
from engramma.ledger import Decision, Ledger
from engramma.note import Link, Note, NoteId, Space
from engramma.past import Past
from engramma.recall import Recall
from engramma.store import Query
from engramma.upkeep import reflect
from engramma.words import excerpt, pieces
from engramma.write import Writer, passage


class Author:
    """Changes by hand, each one commit. ``Memory`` documents the verbs."""

    def __init__(self, ledger: Ledger, recall: Recall, writer: Writer) -> None:
        self._ledger, self._store, self._recall, self._writer = ledger, ledger.store, recall, writer
        self._past = Past(ledger)

    def update(self, note: Note | str, **fields: Any) -> Note:
        """Change fields of a note; a new content is read anew."""
        wanted = checked_update(fields)
        reason = f"updated {', '.join(sorted(fields))}"
        vectors: dict[NoteId, Any] = {}

        def decide() -> Decision:
            current = self._ledger.in_sight(note)
            revised = replace(current, **wanted)
            if passage(revised) != passage(current):
                vectors[current.id] = self._recall.embed(pieces(passage(revised)), "passage")
            others = self._ledger.others(current)
            if revised.content == current.content:
                dates = {"dates": said_dates(current.content, revised.at)} if "at" in wanted else {}
                changes = plan.plan_update(current, wanted | dates, None, others, reason)
            else:
                before = [others[one] for one in plan.judged(current) if one in others]
                reading, shown = self._writer.reread(revised, vectors[current.id], before)
                changes = plan.plan_rewrite(current, wanted, reading, shown, others, reason)
            return current.space, changes, f'{reason} of "{excerpt(current.content, 40)}"'

        decided = decide()
        if decided[1]:
            self._ledger.commit(decide, vectors=lambda: vectors, decided=decided)
        current = self._ledger.note(note)
        if decided[1] and current.state == "pending":
            self._writer.on_stored([current.id])
        return self._ledger.note(current.id)

    def delete(self, note: Note | str) -> Commit:
        """Archive a note."""

        def decide() -> Decision:
            current = self._ledger.in_sight(note)
            others = self._ledger.others(current)
            changes = plan.plan_archive(current, others, "deleted by hand")
            return current.space, changes, f'delete "{excerpt(current.content, 48)}"'

        return self._ledger.commit(decide)

    def purge(self, note: Note | str) -> Commit:
        """Remove a note for good, with what was merged into it and the insights that rest on it."""

        def decide() -> Decision:
            going = self._with_what_rests_on(self._ledger.note(note))
            freed = [change for one in going.values() for change in (*self._freed(one, going), *_rejoined(one, going))]
            once = {(type(change), touched(change)): change for change in freed}
            said = "one note" if len(going) == 1 else f"{len(going)} notes, merged into one or insights from it,"
            removed = [RemoveNote(note_id, "purged") for note_id in going]
            return going[next(iter(going))].space, [*removed, *once.values()], f"purge: {said} removed for good"

        return self._removing(decide)

    def _with_what_rests_on(self, note: Note) -> dict[NoteId, Note]:
        """A note, the notes that were ever merged into it and are nowhere else, and the insights made from any of them."""
        going = {note.id: note}
        waiting = [note]
        while waiting:
            one = waiting.pop()
            links = {link.ends: link for link in one.links}
            for commit in self._store.log(None, None, one.id):
                links |= {change.link.ends: change.link for change in commit.changes if isinstance(change, PutLink)}
            ends = [link.source for link in links.values() if link.target == one.id and link.source not in going]
            for near in self._store.notes(ends).values():
                if _rests_on(near, links.values(), going):
                    going[near.id] = near
                    waiting.append(near)
        return going

    def _freed(self, note: Note, going: Mapping[NoteId, Note]) -> list[Change]:
        """What becomes of the notes that a vanishing one superseded. No reason of a link is passed on: it may quote the note."""
        why = "what superseded it was removed for good"
        freed = plan.released(note, {**self._ledger.others(note), **going}, why)
        stay = [change for change in freed if going.keys().isdisjoint(touched(change))]
        return [replace(one, link=replace(one.link, reason="")) if isinstance(one, PutLink) else one for one in stay]

    def _removing(self, decide: Callable[[], Decision]) -> Commit:
        try:
            return self._ledger.commit(decide)
        finally:
            self._recall.forget()

    def delete_space(self, space: Space) -> Commit | None:
        """Remove everything in a space for good."""
        query = Query([checked_space(space)], states=("pending", "ready", "archived", "merged"))
        if not self._store.find(replace(query, limit=1)):
            return None

        def decide() -> Decision:
            changes = [RemoveNote(note.id, "space deleted") for note in self._store.find(query)]
            return space, changes, f"delete space: {len(changes)} notes removed for good"

        return self._removing(decide)

    def link(self, source: Note | str, target: Note | str, kind: str, reason: str, strength: float) -> Link:
        """Link two notes of one space."""
        if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength <= 1:
            raise InvalidInput(f"strength={strength!r} must be a number from 0 to 1")
        if not isinstance(reason, str):
            raise InvalidInput(f"reason={reason!r} is not text")
        if not isinstance(kind, str) or not kind.strip():
            raise InvalidInput(f"kind={kind!r} must be a word such as 'related'")
        link = Link(
            checked_id(source), checked_id(target), checked("kind", kind), checked("reason", reason) or "", float(strength)
        )

        def decide() -> Decision:
            shown = {note.id: note for note in (self._ledger.in_sight(link.source), self._ledger.in_sight(link.target))}
            return shown[link.source].space, plan.plan_link(link, shown), f"link: {kind}"

        done = self._ledger.commit(decide).changes[0]
        assert isinstance(done, PutLink)
        return done.link

    def unlink(self, source: Note | str, target: Note | str, kind: str | None) -> Commit:
        """Drop the links between two notes."""

        def decide() -> Decision:
            first, second = self._ledger.note(source), self._ledger.note(target)
            between = [link for link in first.links if link.other(first.id) == second.id and kind in (None, link.kind)]
            if not between:
                which = "" if kind is None else f"{kind!r} "
                raise UnknownId(f"there is no link {which}between {first.id!r} and {second.id!r}")
            return first.space, plan.plan_unlink(between, {first.id: first, second.id: second}, "unlinked by hand"), "unlink"

        return self._ledger.commit(decide)

    def revert(self, commit: Commit | str) -> Commit:
        """Undo a commit."""
        found = self._past.commit(commit)

        def later(note: NoteId) -> list[Commit]:
            return [one for one in self._store.log(None, found.space, note) if one.seq > found.seq]

        def decide() -> Decision:
            notes = self._store.notes(found.notes(), vectors=False)
            around = self._store.notes([link.other(note.id) for note in notes.values() for link in note.links], vectors=False)
            changes = plan.with_dropped_links(inverse(found, notes, later), around | notes)
            return found.space, changes, f"revert {found.id}: {excerpt(found.reason, 60)}"

        return self._ledger.commit(decide, reverts=found.id)

    def merge(self, notes: Sequence[Note | str]) -> Commit:
        """Fold notes of one space into the first."""

        def decide() -> Decision:
            found = [self._ledger.in_sight(note) for note in notes]
            changes = plan.plan_merge(found, "merged by hand")
            return found[0].space, changes, f"merge {len(found)} notes: {summarise(changes)}"

        return self._ledger.commit(decide)


def _rests_on(near: Note, links: Iterable[Link], going: Mapping[NoteId, Note]) -> bool:
    """Whether a note would be nothing without those that go: merged into one of them, or an insight made from one."""
    led = [link for link in links if link.source == near.id and link.target in going]
    if near.state == "merged":
        stays = any(link.kind == "same_as" and link.source == near.id and link.target not in going for link in near.links)
        return not stays and any(link.kind == "same_as" for link in led)
    return reflect.is_ours(near) and any(link.kind == "derived_from" for link in led)


def _rejoined(note: Note, going: Mapping[NoteId, Note]) -> list[Change]:
    """The turns before and after a vanishing one, joined."""
    before = [link.target for link in note.links if link.kind == "follows" and link.source == note.id]
    after = [link.source for link in note.links if link.kind == "follows" and link.target == note.id]
    ends = [(one, other) for one in after[:1] for other in before[:1]]
    return [PutLink(plan.follow(*both)) for both in ends if going.keys().isdisjoint(both)]
