"""The write path, decided first and written once.

    text → Draft → neighbours → Analyst.read → Reading → plan → Commit → Store.apply

With an analyst that may be slow or fail, the note is stored (described by the rules, ``pending``)
before the analyst is asked, so that no text waits for a model. No transaction is open while anybody
thinks; a plan that the memory has outrun is made again from what is there now.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from ulid import ULID

from engramma.analysts.base import Analyst, Page
from engramma.analysts.rules import describe
from engramma.commit import Change, Commit, PutLink, PutNote, ReviseNote, Tokens, summarise
from engramma.errors import Conflict, ModelError, ReplyInvalid, StoreError, UnknownId
from engramma.note import CommitId, Draft, Neighbour, Note, NoteId, Reading, Space
from engramma.plan import IN_SIGHT, draft_of, follow, merges, new_note, plan_add, plan_reading
from engramma.recall import Recall
from engramma.store.base import Store, Vectors
from engramma.tracing import noted, span
from engramma.words import excerpt, pieces

log = logging.getLogger("engramma")

NEIGHBOURS = 8
ATTEMPTS = 20  # at a change by hand, which may conflict for good
PATIENCE = 100  # at an addition, which only others that add at the same time can hold up
REST_SECONDS = 30.0  # that a model which was down is left alone while notes are added
MODEL_FAILURES = (ModelError, OSError)  # a model that is down, in our words or in Python's
Progress = Callable[[int, int], None]


_made: ContextVar[list[CommitId] | None] = ContextVar("made", default=None)


@contextmanager
def commits_made() -> Iterator[list[CommitId]]:
    """The ids of the commits that are decided on inside: here, and in threads and tasks that this context starts.

    Some of them may never have been written.
    """
    made: list[CommitId] = []
    _made.set(made)
    try:
        yield made
    finally:
        _made.set(None)


def make_commit(
    space: Space, changes: Sequence[Change], actor: str, reason: str, *, cost: Reading | None = None,
    reverts: CommitId | None = None,
) -> Commit:  # fmt: skip
    """A commit of now. ``cost`` is the reading whose tokens and dropped parts it carries."""
    spent = Tokens(cost.calls, cost.tokens_in, cost.tokens_out) if cost else Tokens()
    dropped = cost.dropped if cost else ()
    commit_id = CommitId(str(ULID()))
    if (made := _made.get()) is not None:
        made.append(commit_id)
    return Commit(commit_id, space, datetime.now(UTC), actor, reason, tuple(changes), spent, dropped, reverts)


def new_id() -> str:
    """A new ULID: sortable by the time it was made."""
    return str(ULID())


def passage(draft: Draft | Note) -> str:
    """The text that is embedded: who says it, and what. Without the name, questions about a person
    find half as much (LoCoMo: 25 % of the evidence in ten notes instead of 52 %)."""
    return f"{draft.speaker}: {draft.content}" if draft.speaker else draft.content


@dataclass(frozen=True, slots=True)
class Prepared:
    """A draft with its future id and the vectors of its pieces, float32 (p, d)."""

    id: NoteId
    draft: Draft
    vectors: np.ndarray | None
    error: str | None = None


class Writer:
    """Adds notes to a store and reads those that wait."""

    def __init__(
        self, store: Store, recall: Recall, analyst: Analyst, neighbours: int = NEIGHBOURS, hand_over: bool = False
    ) -> None:
        self._store, self._recall, self._analyst, self._neighbours = store, recall, analyst, neighbours
        self.slow = analyst.slow or hand_over
        """Whether notes are stored before they are read, here or by another process."""
        self._rest_until = 0.0
        self.on_stored: Callable[[Sequence[NoteId]], object] = self.read
        """What becomes of notes that a slow analyst is to read, once they are stored."""

    @property
    def batch(self) -> int:
        """Notes in one call of the analyst."""
        return max(1, self._analyst.batch)

    @property
    def resting(self) -> bool:
        """Whether the model was down a moment ago, and is left alone."""
        return time.monotonic() < self._rest_until

    def add(self, drafts: Sequence[Draft], progress: Progress | None = None) -> list[NoteId]:
        """Store drafts in order; the ids of the notes that hold them now, one a draft."""
        with span("add", notes=len(drafts)) as told:
            ids = self._add(drafts, progress)
            told.content(content="\n".join(draft.content for draft in drafts))
            return ids

    def _add(self, drafts: Sequence[Draft], progress: Progress | None) -> list[NoteId]:
        ids: list[NoteId] = []
        stored = 0
        size = max(32, self._analyst.batch)
        try:
            for start in range(0, len(drafts), size):
                chunk: list[NoteId] = []
                for note_id in self._put_chunk(drafts[start : start + size]):
                    chunk.append(note_id)
                    stored += 1
                    if progress and not self.slow:
                        progress(stored, len(drafts))
                ids += self._read_chunk(chunk) if self.slow else chunk
                if progress:
                    progress(stored, len(drafts))
        except StoreError as error:
            error.unsaved = [draft.content for draft in drafts[stored:]]
            raise
        return ids

    def _put_chunk(self, drafts: Sequence[Draft]) -> Iterator[NoteId]:
        for one in self._prepare(drafts):
            yield self._put_pending(one) if self.slow or one.error else self._put_read(one)

    def _read_chunk(self, ids: Sequence[NoteId]) -> list[NoteId]:
        """Let a slow analyst read what was stored; the ids of the notes that hold it now."""
        waiting = [note.id for note in self._store.notes(ids).values() if note.state == "pending" and note.vector is not None]
        if not self.resting:
            self.on_stored(waiting)
        return [self._current(note_id) for note_id in ids]

    def _prepare(self, drafts: Sequence[Draft]) -> list[Prepared]:
        cut = [pieces(passage(draft)) for draft in drafts]
        ids = [NoteId(str(ULID())) for _ in drafts]
        try:
            vectors = self._recall.embed([piece for texts in cut for piece in texts], "passage")
        except MODEL_FAILURES as error:  # an embedding server that is down must not lose the text
            log.warning("stored without a vector, will be embedded later: %s", error)
            return [Prepared(note_id, draft, None, str(error)) for note_id, draft in zip(ids, drafts, strict=True)]
        ends = np.cumsum([len(texts) for texts in cut])[:-1]
        return [Prepared(*one) for one in zip(ids, drafts, np.split(vectors, ends), strict=True)]

    def _known(self, draft: Draft) -> NoteId | None:
        return None if draft.key is None else self._store.by_key(draft.space, draft.key)

    def _previous(self, draft: Draft) -> NoteId | None:
        return None if draft.session is None else self._store.last_of_session(draft.space, draft.session)

    def _put_read(self, one: Prepared) -> NoteId:
        """Read with the analyst and store in one commit."""
        draft = one.draft
        for attempt in range(PATIENCE):
            if (known := self._known(draft)) is not None:
                return self._current(known)
            page = self._page(one)
            reading = self._asked([page])[0]
            if isinstance(reading, ReplyInvalid):
                raise reading
            note = new_note(one.id, draft, reading, "ready", datetime.now(UTC).astimezone(draft.at.tzinfo))
            changes = plan_add(note, reading, _shown(page), self._previous(draft))
            if self._apply(draft.space, changes, self._analyst.name, _reason("add", draft, changes), one, reading, attempt):
                return _canonical(note, reading, _shown(page))
        raise AssertionError("unreachable: the last attempt raises")

    def _put_pending(self, one: Prepared) -> NoteId:
        """Store before anybody has read it, described by the rules."""
        draft = one.draft
        for attempt in range(PATIENCE):
            if (known := self._known(draft)) is not None:
                return known
            now = datetime.now(UTC).astimezone(draft.at.tzinfo)
            note = replace(new_note(one.id, draft, describe(draft), "pending", now), error=one.error)
            previous = self._previous(draft)
            changes: list[Change] = [PutNote(note, one.error or "waits to be read")]
            changes += [PutLink(follow(one.id, previous))] if previous else []
            if self._apply(draft.space, changes, "user", _reason("add", draft, changes), one, None, attempt):
                break
        return one.id

    def reread(
        self, note: Note, vectors: np.ndarray, judged: Sequence[Note] = ()
    ) -> tuple[Reading | None, Mapping[NoteId, Note]]:
        """The reading of a note whose content is new, and the notes it was read with: those near it, and those that its
        old content had ``judged``, as if it had not.

        With an analyst that may be slow it is described by the rules for now: None says so.
        """
        if self.slow:
            return None, {}
        page = self._page(Prepared(note.id, draft_of(note), vectors))
        near = {one.note.id for one in page.neighbours}
        again = [Neighbour(replace(one, valid_until=None), 0.0, 0.0, ()) for one in judged if one.id not in near]
        page = replace(page, neighbours=(*page.neighbours, *again))
        reading = self._analyst.read([page])[0]
        if isinstance(reading, ReplyInvalid):
            raise reading
        return replace(reading, duplicate_of=None), _shown(page)

    def _page(self, one: Prepared) -> Page:
        near: tuple[Neighbour, ...] = ()
        if one.vectors is not None and len(one.vectors):
            near = self._recall.nearest(one.draft.space, one.draft.content, one.vectors[0], self._neighbours, frozenset({one.id}))
        return Page(one.id, one.draft, near)

    def _apply(
        self, space: Space, changes: Sequence[Change], actor: str, reason: str, one: Prepared | None,
        reading: Reading | None, attempt: int,
    ) -> bool:  # fmt: skip
        """Write a planned commit; False when the memory has changed and it must be planned again."""
        vectors: Vectors = {one.id: one.vectors} if one is not None and one.vectors is not None else {}
        try:
            commit = make_commit(space, changes, actor, reason, cost=reading)
            noted(self._store.apply([commit], vectors, self._recall.embedder_name))
        except (Conflict, UnknownId):  # a neighbour changed, or was removed for good, meanwhile
            if attempt + 1 == PATIENCE:
                raise
            time.sleep(random.random() * min(0.05, 0.003 * attempt))
            return False
        return True

    def _current(self, note_id: NoteId) -> NoteId:
        """The note that a restatement was merged into, or the note itself."""
        note = self._store.notes([note_id]).get(note_id)
        for _ in range(100):  # a chain of merges is short
            if note is None or note.state != "merged":
                break
            same = [link for link in note.links if link.kind == "same_as" and link.source == note.id]
            if not same:
                break
            target = max(same, key=lambda link: link.strength).target  # a merge is the surest of them
            note = self._store.notes([target]).get(target)
        return note_id if note is None else note.id

    def read(self, ids: Sequence[NoteId], progress: Progress | None = None) -> int:
        """Let the analyst read stored notes; how many were. Those it cannot read stay pending.

        A model that is down is asked once: after that the rest is left for later. Notes whose
        reading failed before are read one at a time, so that one cannot spoil the others again.
        """
        done = seen = 0
        for batch in self._batches(ids):
            notes = self._with_vectors([note for note in self._store.notes(batch).values() if note.state == "pending"])
            answered, read = self._read_batch(notes)
            done, seen = done + read, seen + len(batch)
            if not answered:
                break
            if progress:
                progress(seen, len(ids))
        return done

    def _batches(self, ids: Sequence[NoteId]) -> Iterator[list[NoteId]]:
        """What one call holds: notes of one space, since a space is a wall; each that failed before alone."""
        for start in range(0, len(ids), self.batch):
            notes = self._store.notes(ids[start : start + self.batch], vectors=False).values()
            fresh: dict[Space, list[NoteId]] = {}
            for note in notes:
                if not note.error:
                    fresh.setdefault(note.space, []).append(note.id)
            yield from fresh.values()
            yield from ([note.id] for note in notes if note.error)

    def _with_vectors(self, notes: Sequence[Note]) -> list[Note]:
        """Embed notes that were stored while the embedder was down."""
        lacking = [note for note in notes if note.vector is None]
        if not lacking:
            return list(notes)
        try:
            vectors = {(n.id, n.revision): self._recall.embed(pieces(passage(n)), "passage") for n in lacking}
        except MODEL_FAILURES as error:
            log.warning("still without a vector: %s", error)
            for note in lacking:
                self._note_error(note, error)
            return [note for note in notes if note.vector is not None]
        self._store.put_vectors(int(self._store.meta("model") or 0), vectors)
        self._recall.forget()
        return list(self._store.notes([note.id for note in notes]).values())

    def _read_batch(self, notes: Sequence[Note]) -> tuple[bool, int]:
        """Whether the model answered at all, and how many notes were read."""
        if not notes:
            return True, 0
        pages = [self._stored_page(note) for note in notes]
        try:
            readings = self._asked(pages)
        except ReplyInvalid as error:
            readings = [error] + [ReplyInvalid(str(error)) for _ in pages[1:]]
        except MODEL_FAILURES as error:
            if isinstance(error, OSError):  # down, not displeased with this request
                self._rest_until = time.monotonic() + REST_SECONDS
            log.warning("%s cannot be asked, notes stay pending until 'engramma catch-up': %s", self._analyst.name, error)
            for note in notes:
                self._note_error(note, error)
            return False, 0
        self._rest_until = 0.0
        for note, page, reading in zip(notes, pages, readings, strict=True):
            if isinstance(reading, ReplyInvalid):
                log.warning("%s did not read note %s, it stays pending: %s", self._analyst.name, note.id, reading)
                self._note_error(note, reading)
            else:
                self._write_reading(page, reading)
        return True, sum(isinstance(reading, Reading) for reading in readings)

    def _asked(self, pages: Sequence[Page]) -> Sequence[Reading | ReplyInvalid]:
        """The analyst's readings."""
        log.debug("%s reads note %s", self._analyst.name, ", ".join(page.id for page in pages))
        with span("read", analyst=self._analyst.name, notes=len(pages)) as told:
            readings = self._analyst.read(pages)
            whole = [one for one in readings if isinstance(one, Reading)]
            told.set(failed=len(readings) - len(whole), links=sum(len(one.links) for one in whole))
            told.set(**{name: sum(getattr(one, name) for one in whole) for name in ("calls", "tokens_in", "tokens_out")})
            return readings

    def _stored_page(self, note: Note) -> Page:
        assert note.vector is not None
        draft = draft_of(note)
        near = self._recall.nearest(note.space, note.content, note.vector, self._neighbours, frozenset({note.id}))
        return Page(note.id, draft, near)

    def _write_reading(self, page: Page, reading: Reading) -> None:
        for attempt in range(PATIENCE):
            wanted = [page.id, *(near.note.id for near in page.neighbours)]
            notes = self._store.notes(wanted)
            note = notes.pop(page.id, None)
            if note is None or note.state != "pending":
                return  # deleted, or read by another process meanwhile
            shown = {note_id: other for note_id, other in notes.items() if other.state in IN_SIGHT}
            changes = plan_reading(note, reading, shown)
            reason = _reason("read", page.draft, changes)
            if self._apply(note.space, changes, self._analyst.name, reason, None, reading, attempt):
                return

    def _note_error(self, note: Note, error: Exception) -> None:
        """Keep with the note why it could not be read, and what the attempt cost."""
        cost = error.cost if isinstance(error, ReplyInvalid) else None
        if note.error == str(error) and cost is None:
            return
        change = ReviseNote(note.id, note.revision, {"error": str(error)}, "could not be read yet")
        reason = f"not read: {excerpt(str(error), 80)}"
        with suppress(Conflict):  # somebody else has read or changed it meanwhile
            self._store.apply([make_commit(note.space, [change], self._analyst.name, reason, cost=cost)], {})


def _canonical(note: Note, reading: Reading, shown: Mapping[NoteId, Note]) -> NoteId:
    """The note that a text was merged into, or its own."""
    return reading.duplicate_of if reading.duplicate_of and merges(note, reading, shown) else note.id


def _shown(page: Page) -> Mapping[NoteId, Note]:
    return {neighbour.note.id: neighbour.note for neighbour in page.neighbours}


def _reason(verb: str, draft: Draft, changes: Sequence[Change]) -> str:
    return f'{verb} "{excerpt(draft.content, 48)}": {summarise(changes)}'
