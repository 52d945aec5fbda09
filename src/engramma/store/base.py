"""What a store must do. Operations are data in, data out; no store decides anything.

A backend is one class with these methods; ``engramma.testing.conformance`` runs every backend
through one suite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np

from engramma.commit import Commit, DropLink, PutLink, touched
from engramma.filters import Filter
from engramma.note import CommitId, Link, Note, NoteId, Space

Vectors = Mapping[NoteId, np.ndarray]
"""float32 of shape (pieces, dimensions) for each note whose content is new."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A note as one commit left it, and that commit."""

    note: Note
    commit: Commit

    @property
    def revision(self) -> int:
        """The note's revision number."""
        return self.note.revision

    @property
    def at(self) -> datetime:
        """When the memory learnt it."""
        return self.commit.at

    @property
    def actor(self) -> str:
        """Who changed it."""
        return self.commit.actor

    @property
    def reason(self) -> str:
        """Why: the change's own reason, or the commit's."""
        own = [change for change in self.commit.changes if self.note.id in touched(change) and change.reason]
        own.sort(key=lambda change: isinstance(change, PutLink | DropLink))  # what was done to the note itself comes first
        return own[0].reason if own else self.commit.reason


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What an index keeps of a note. ``vectors`` is float32 (pieces, dimensions), maybe (0, d)."""

    note: Note
    vectors: np.ndarray
    superseded: bool


@dataclass(frozen=True, slots=True)
class Query:
    """Which notes to list. ``days`` bounds of ``since`` and ``until`` match ``at`` or a said date."""

    spaces: Sequence[Space]
    where: Filter | None = None
    since: datetime | None = None
    until: datetime | None = None
    states: Sequence[str] = ("pending", "ready")
    as_of: int | None = None
    limit: int | None = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class Folded:
    """What ``compact`` folded away, or would: commits, earlier revisions of notes and links, and bytes of the file."""

    commits: int
    revisions: int
    bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over one space or all."""

    notes: Mapping[str, int]
    links: int
    commits: int
    calls: int
    tokens_in: int
    tokens_out: int
    bytes: int


class Store(Protocol):
    """A place that keeps notes, links, vectors and the commit log."""

    path: str

    def apply(self, commits: Sequence[Commit], vectors: Vectors, embedder: str | None = None) -> list[Commit]:
        """Write commits in one transaction and return them with ``seq`` and ``before`` filled in.

        Raises StaleRevision when a note is not at the expected revision, Conflict for a key in use
        or a link to a note that is not there, UnknownId, EmbedderMismatch when ``embedder`` made the
        vectors and the store has come to hold another's; then nothing at all was written.

        A RemoveNote takes everything that the note said: rows, earlier revisions, what other notes and the log quote
        of it, down to the bytes of the files. Raises StoreBusy when the commit is written and somebody else kept
        the files from being cleaned; ``check`` reports it until that is done.
        """

    def notes(self, ids: Iterable[NoteId], as_of: int | None = None, *, vectors: bool = True) -> dict[NoteId, Note]:
        """The notes that exist, archived ones included, with links, use counts and, if asked, vectors."""

    def find(self, query: Query) -> list[Note]:
        """Notes in the order they were added, without links and vectors."""

    def matching(self, query: Query) -> set[NoteId]:
        """The ids that ``find`` would give without a limit."""

    def links(self, ids: Iterable[NoteId], as_of: int | None = None) -> list[Link]:
        """The links that have one of the notes at either end."""

    def head(self) -> int:
        """The sequence number of the newest commit; 0 for an empty store."""

    def seq_at(self, moment: datetime) -> int:
        """The newest commit not after a moment; 0 before the first."""

    def changed(self, space: Space, after: int) -> list[NoteId]:
        """The notes of a space that commits after ``after`` put, revised, archived or removed, or that a
        ``supersedes`` link came to or left: those whose index rows may differ."""

    def index_rows(self, space: Space, ids: Sequence[NoteId] | None = None, as_of: int | None = None) -> Iterator[IndexRow]:
        """What an index needs: of the whole space, or of some notes. Merged and archived included."""

    def by_key(self, space: Space, key: str) -> NoteId | None:
        """The note that has this key, unless it was archived."""

    def last_of_session(self, space: Space, session: str) -> NoteId | None:
        """The note added last to a session, archived ones left out."""

    def pending(self, spaces: Sequence[Space] | None, limit: int) -> list[NoteId]:
        """Notes that wait to be read, oldest first."""

    def claim(
        self, worker: str, until: datetime, limit: int, after: Space | None = None, ids: Sequence[NoteId] | None = None
    ) -> list[NoteId]:
        """Lease pending notes that nobody else reads, until a moment: some of ``ids``, or the most important
        of one space, the next one after ``after``. Leases whose moment is past, or whose process on this machine
        is gone, do not count."""

    def renew(self, worker: str, until: datetime) -> None:
        """Put off the end of a worker's leases."""

    def release(self, worker: str, notes: Sequence[NoteId], *, retry: timedelta | None = None) -> None:
        """Give leased notes back: at once, or to be claimed again after a pause that doubles each time."""

    def forgive(self) -> None:
        """End the pauses that ``release`` gave."""

    def waiting(self) -> bool:
        """Whether a note is pending and not in a pause."""

    def work(self, space: Space | None = None) -> tuple[int, int]:
        """How many notes are being read, and how many wait that could not be read before."""

    def history(self, note: NoteId) -> list[Revision]:
        """Every revision of a note, oldest first."""

    def log(
        self, limit: int | None, space: Space | None = None, note: NoteId | None = None, before: int | None = None, *,
        actor: str | None = None, since: datetime | None = None, until: datetime | None = None,
    ) -> list[Commit]:  # fmt: skip
        """Commits, newest first, that match all that is given; ``before`` is a sequence number.

        An actor that ends in ":" or "*" stands for all whose name begins so.
        """

    def commit(self, commit: CommitId) -> Commit | None:
        """One commit by its id."""

    def commits_named(self, start: str, space: Space, limit: int) -> list[CommitId]:
        """The ids of a space's commits that begin with a text, oldest first, at most so many."""

    def fold(self, until: datetime, *, dry_run: bool = False) -> Folded:
        """Fold the commits up to a moment: one commit a space, by ``FOLDING``, stands for them, and revisions
        that ended by then go. The state at the newest of them, and what removed notes for good, stays."""

    def horizon(self) -> tuple[int, datetime] | None:
        """The oldest commit that the store can be asked as of, and its time; None while all history is kept."""

    def spaces(self, prefix: Space | None = None) -> dict[Space, int]:
        """Every space that holds a note, with the number of notes in sight.

        With a tuple as prefix, those that begin with its labels (``()``: all tuples); with a text, that one.
        """

    def totals(self, space: Space | None = None) -> Totals:
        """Counts for ``stats``."""

    def use(self, uses: Mapping[NoteId, int], at: datetime) -> None:
        """Count that notes came back in a search."""

    def meta(self, key: str) -> str | None:
        """One setting kept with the store."""

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Keep settings with the store."""

    def without_vectors(self, model: int, limit: int) -> list[Note]:
        """Notes that have no vectors of a model yet."""

    def put_vectors(self, model: int, vectors: Mapping[tuple[NoteId, int], np.ndarray]) -> None:
        """Add vectors of a model, by note and revision."""

    def switch_model(self, model: int, meta: Mapping[str, str]) -> bool:
        """Make a model the one in force and drop all other vectors; False if some note has none yet."""

    def check(self) -> list[str]:
        """What is broken, one sentence each; empty when all is well."""

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
