"""One space in memory: vectors, words and session order, ready to score every note at once.

The store is the truth and this is a cache: it knows the last commit it has seen and reads the
notes of later ones before each search, so that a note is found as soon as ``add`` has returned,
whichever process added it. Nothing of it is kept on disk; there is nothing to go stale.

Arrays are aligned by *row*, one row a note for as long as the index lives; a revised note keeps its
row. Words, vectors and days have a module each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engramma.note import Note, NoteId, Space
from engramma.store.arrays import Grown
from engramma.store.base import IndexRow, Store
from engramma.store.calendar import Calendar
from engramma.store.lexicon import Lexicon
from engramma.store.meaning import Meaning
from engramma.words import denies, is_chinese, terms

VISIBLE, SUPERSEDED, ARCHIVED, MERGED = 0, 1, 2, 3
_QUESTIONS, _AGAIN = 500, 5  # questions that are looked at, and of those asked before that count
_STATES = {"archived": ARCHIVED, "merged": MERGED}


class SpaceIndex:
    """The notes of one space (or of it as it once was) as arrays."""

    def __init__(self, dimensions: int) -> None:
        self.seq = 0
        self.ids: list[NoteId] = []
        self.row_of: dict[NoteId, int] = {}
        self.lexicon, self.meaning, self.calendar = Lexicon(), Meaning(dimensions), Calendar()
        self.status = Grown("i1")
        self.expires = Grown("f8")
        self.before = Grown("i4")
        self.after = Grown("i4")
        self.speaker = Grown("i4")
        self.language = Grown("i1")
        self.asks = Grown("i1")
        self.denies = Grown("i1")
        self.revision = Grown("i4")
        self.speakers: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        self._sessions: list[str | None] = []
        self._around: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def worn(self) -> bool:
        """Whether so many slots are dead that a rebuild pays."""
        return self.lexicon.dead > 1000 and self.lexicon.dead * 2 > self.lexicon.lengths.size

    def put(self, rows: Iterable[IndexRow]) -> None:
        """Add notes, or take over their newest revision."""
        stale = moved = False
        for entry in rows:
            known = self.row_of.get(entry.note.id)
            row = self._new_row(entry.note) if known is None else known
            session = _session(entry.note)
            moved |= session != self._sessions[row]
            self._sessions[row] = session
            stale |= self._set(row, entry)
        if stale:
            self.meaning.gather()
        if moved:
            self._order_anew()

    def _new_row(self, note: Note) -> int:
        row = self.row_of[note.id] = len(self.ids)
        self.ids.append(note.id)
        self._sessions.append(_session(note))
        for grown, value in ((self.before, -1), (self.after, -1), (self.speaker, -1), (self.expires, np.inf)):
            grown.append(value)
        for grown in (self.status, self.language, self.asks, self.denies, self.revision):
            grown.append(0)
        for part in (self.lexicon, self.meaning, self.calendar):
            part.new_row()
        self._follow(row)
        return row

    def _follow(self, row: int) -> None:
        """Put a note at the end of its session."""
        session = self._sessions[row]
        if session is not None:
            if (previous := self._tails.get(session, -1)) >= 0:
                self.before.view[row], self.after.view[previous] = previous, row
            self._tails[session] = row

    def _order_anew(self) -> None:
        """Follow all sessions again, after a note moved to another one."""
        self.before.view[:], self.after.view[:] = -1, -1
        self._tails, self._around = {}, None
        for row in range(len(self)):
            self._follow(row)

    def _set(self, row: int, entry: IndexRow) -> bool:
        note = entry.note
        if self.revision.view[row] != note.revision:
            self.lexicon.put(row, note)
            self.calendar.put(row, note)
            self.revision.view[row] = note.revision
        self.status.view[row] = _STATES.get(note.state, SUPERSEDED if entry.superseded else VISIBLE)
        self.language.view[row] = is_chinese(note.content)
        self.asks.view[row] = note.content.rstrip().endswith(("?", "？"))
        self.denies.view[row] = denies(note.content)
        self.expires.view[row] = note.expires_at.timestamp() if note.expires_at else np.inf
        name = (note.speaker or "").casefold()
        self.speaker.view[row] = self.speakers.setdefault(name, len(self.speakers)) if name else -1
        return self.meaning.put(row, entry.vectors, note.state == "merged")

    def asked_again(self, text: str) -> list[int]:
        """The rows, a few at most, that are questions of just the words of a text."""
        words = [self.lexicon.term(term) for term in dict.fromkeys(terms(text))]
        if not words or None in words:
            return []
        numbers = {word.number for word in words if word is not None}
        rows = np.flatnonzero(self.asks.view[: len(self)])
        return [row for row in map(int, rows[:_QUESTIONS]) if self.lexicon.words_of(row) == numbers][:_AGAIN]

    def around(self) -> tuple[np.ndarray, ...]:
        """The rows of the turns around each in its session, -1 where there is none: one and two before,
        one and two after, each (n,)."""
        if self._around is None or len(self._around[0]) != len(self):
            before, after = self.before.view, self.after.view
            self._around = before, stepped(before, before, -1), after, stepped(after, after, -1)
        return self._around


def _session(note: Note) -> str | None:
    """The session a note has a place in: none once it was deleted or merged, for it is to say nothing more."""
    return None if note.state in _STATES else note.session


def stepped(values: np.ndarray, links: np.ndarray, missing: float) -> np.ndarray:
    """Each row's value taken from the row its link names, ``missing`` where there is none: (n,)."""
    return np.asarray(np.where(links >= 0, values[links], values.dtype.type(missing)))


class Indexes:
    """The indexes of a store's spaces, brought up to date on use. Recall's lock guards them."""

    def __init__(self, store: Store, dimensions: int) -> None:
        self._store, self.dimensions = store, dimensions
        self._spaces: dict[Space, SpaceIndex] = {}
        self._past: dict[tuple[Space, int], SpaceIndex] = {}

    def of(self, space: Space, as_of: int | None = None) -> SpaceIndex:
        """The index of a space, having seen every commit up to now (or up to ``as_of``)."""
        if as_of is not None and ((space, as_of) in self._past or self._store.changed(space, as_of)):
            return self._of_the_past(space, as_of)
        index = self._spaces.get(space)
        head = self._store.head()
        if index is None or index.worn:
            return self._built(space, head)
        if index.seq < head:
            changed = self._store.changed(space, index.seq)
            fresh = list(self._store.index_rows(space, changed)) if changed else []
            if len(fresh) < len(changed) and any(note in index.row_of for note in changed if note not in _ids(fresh)):
                return self._built(space, head)  # a note was removed for good
            index.put(fresh)
            index.seq = head
        return index

    def _built(self, space: Space, head: int) -> SpaceIndex:
        index = SpaceIndex(self.dimensions)
        index.put(self._store.index_rows(space))
        index.seq = head
        self._spaces[space], self._past = index, {}
        return index

    def _of_the_past(self, space: Space, as_of: int) -> SpaceIndex:
        if (space, as_of) not in self._past:
            index = SpaceIndex(self.dimensions)
            index.put(self._store.index_rows(space, as_of=as_of))
            index.seq = as_of
            self._past = {(space, as_of): index}  # the last one asked for is enough
        return self._past[space, as_of]


def _ids(rows: Sequence[IndexRow]) -> set[NoteId]:
    return {row.note.id for row in rows}
