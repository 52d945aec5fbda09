"""``Memory``: everything engramma does, as verbs on one object.

It composes the write path, recall and the store, and checks what comes in. Safe for threads; any
number of processes may open the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self, cast, overload

from engramma import exchange, reindexing, settings
from engramma.analysts.base import Analyst
from engramma.authoring import Author
from engramma.commit import Commit
from engramma.dates import bound, moment, period
from engramma.draft import checked, checked_count, checked_space, fields_of, make_draft
from engramma.errors import InvalidInput, StoreError
from engramma.filters import Where, parse
from engramma.ledger import Ledger
from engramma.models import resolve_embedder, resolve_llm
from engramma.models.base import Embedder
from engramma.note import Link, Note, NoteId, Space
from engramma.opening import analyst_for, embedder_for, open_store
from engramma.past import Blame, Moment, Past
from engramma.recall import INCLUDABLE, Hits, Recall, Request
from engramma.report import Check, Part, Stats, Step, Tended, parts_of, stats_of
from engramma.reranking import resolve_rerank
from engramma.scoring import DEFAULT_CUT_OFF, WEIGHTS, Weights
from engramma.store import Query, Revision, Store
from engramma.store.base import Folded
from engramma.tending import Keeper
from engramma.upkeep import forget as forgetting
from engramma.upkeep.forget import Faded
from engramma.upkeep.merge import Merger
from engramma.upkeep.reflect import Insight
from engramma.upkeep.run import Done, Run, run_of
from engramma.worker import Pace, Reader, Worker, resolve_pace
from engramma.write import Progress, Writer

Spaces = Space | list[Space]
Notes = list[Note]
Revisions = list[Revision]
Commits = list[Commit]
Blames = list[Blame]
FadedNotes = list[Faded]
Insights = list[Insight]
Mergers = list[Merger]
_AT_OPEN = 8  # pending notes that opening reads; the rest waits for catch_up


class Memory:
    """Long-term memory for agents. Make one with ``Memory.open``."""

    def __init__(
        self, store: Store, *, embedder: Embedder, analyst: Analyst, space: Space = "default", weights: Weights = WEIGHTS,
        pace: Pace | None = None,
    ) -> None:  # fmt: skip
        self._store, self._embedder, self._analyst = store, embedder, analyst
        self.space = checked_space(space)
        self._recall = Recall(store, lambda: self._embedder, weights)
        self._writer = Writer(store, self._recall, analyst, hand_over=pace is not None and pace.threads == 0)
        self._ledger = Ledger(store, lambda: self._embedder.name)
        self._author = Author(self._ledger, self._recall, self._writer)
        self._keeper = Keeper(self._ledger, self._recall)
        self._past = Past(self._ledger)
        self._uses: Counter[NoteId] = Counter()
        self._uses_lock = Lock()
        self._reader = Reader(store, self._writer, pace or Pace())
        self._worker = Worker(store, self._writer, self._reader, pace) if pace and self._writer.slow else None
        self._writer.on_stored = self._reader.now
        if self._worker is not None:
            self._writer.on_stored = self._worker.wake
            self._worker.start()

    @classmethod
    def open(
        cls, path: str | Path | None = None, *, llm: Any = None, embedder: Any = None, space: Space | None = None,
        analyst: Analyst | None = None, catch_up: bool = True, create: bool = True, reindex: bool | Progress = False,
        weights: Weights = WEIGHTS, background: bool | Pace = False,
    ) -> Memory:  # fmt: skip
        """Open a memory file, or create it; ":memory:" for one that lives as long as the object.

        ``llm`` and ``embedder`` take a string ("ollama:qwen2.5:7b"), the URL of an OpenAI-compatible
        server, an object of our protocols, or a LangChain object. What is not given comes from
        ENGRAMMA_* variables, then engramma.toml. With a model, up to eight notes that wait to be
        read are read now, unless ``catch_up`` is False. ``reindex`` embeds all notes anew where the
        file's vectors come from another embedder (True, or a function to show progress with).
        With ``background`` (True, or a ``Pace``), ``add`` returns once a note is stored and findable, and
        the model reads it behind; without a model there is nothing to read behind. ``Pace(threads=0)`` leaves
        the reading to other processes (``engramma work``).
        ``weights`` say what each kind of evidence counts in recall, for trying out others than the
        fitted ones.

        Raises StoreError and its kinds for a file that cannot be used (or is not there, when
        ``create`` is False), EmbedderMismatch when the vectors come from another embedder.
        """
        given = {"db": None if path is None else str(path), "llm": llm, "embedder": embedder, "space": space}
        force = {name: setting.value for name, setting in settings.settings(given).items()}
        reader, pace = analyst or analyst_for(resolve_llm(force["llm"])), resolve_pace(background)
        with ExitStack() as unless_opened:
            store = open_store(str(force["db"]), create)
            unless_opened.callback(store.close)
            chosen = embedder_for(store, force["embedder"], reindex)
            memory = cls(store, embedder=chosen, analyst=reader, space=force["space"], weights=weights, pace=pace)
            if catch_up and reader.slow and not pace:
                memory.catch_up(limit=_AT_OPEN)
            unless_opened.pop_all()
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        names = f"embedder={self._embedder.name!r}, analyst={self._analyst.name!r}"
        return f"Memory({self._store.path!r}, space={self.space!r}, {names})"

    @property
    def path(self) -> str:
        """The file the memory lies in."""
        return self._store.path

    @property
    def works(self) -> bool:
        """Whether background work in this process reads the notes that wait."""
        return self._worker is not None and self._worker.threads > 0

    # -- write

    def add(
        self, content: str, *, speaker: str | None = None, session: str | None = None, at: datetime | str | None = None,
        space: Space | None = None, tags: Sequence[str] = (), keywords: Sequence[str] = (), category: str | None = None,
        importance: int | None = None, metadata: Mapping[str, Any] | None = None, key: str | None = None,
        pinned: bool = False, expires_at: datetime | str | None = None, distinct: bool = False,
        priority: int | None = None,
    ) -> Note:  # fmt: skip
        """Remember a text; the note that holds it now.

        ``at`` is when it was said (now, if not given). A second ``add`` with the same ``key`` gives
        the first note. A text that its speaker has said before is kept, merged into the note that
        says it already, and that note comes back, unless it is ``distinct``. Notes that wait for
        a model are read by ``priority``, the highest first; it is the importance where none is given. Raises EmptyText,
        InvalidInput, StoreError.
        """
        draft = make_draft(
            content, self.space, speaker=speaker, session=session, at=at, space=space, tags=tags, keywords=keywords,
            category=category, importance=importance, metadata=metadata, key=key, pinned=pinned, expires_at=expires_at,
            distinct=distinct, priority=priority,
        )  # fmt: skip
        return self.get(self._writer.add([draft])[0])

    def add_many(self, items: Iterable[str | Mapping[str, Any] | Note], *, progress: Progress | None = None) -> Notes:
        """Remember many texts in order: strings, dicts with the arguments of ``add``, or notes.

        All are checked before the first is stored. ``progress`` is called with (done, total).
        """
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise InvalidInput(f"items={items!r} is not a list of notes: give [{items!r}] to add one")
        drafts = []
        for number, item in enumerate(items):
            fields = fields_of(item)
            try:
                drafts.append(make_draft(fields.pop("content", None), self.space, **fields))
            except InvalidInput as error:
                raise type(error)(f"item {number}: {error}") from error
        ids = self._writer.add(drafts, progress)
        notes = self._store.notes(ids)
        return [notes.get(note_id) or self.get(note_id) for note_id in ids]  # one that was purged meanwhile raises UnknownId

    def update(self, note: Note | str, **fields: Any) -> Note:
        """Change a note by its author's hand; an unknown field is an error. A new content is read anew."""
        return self._author.update(note, **fields)

    def delete(self, note: Note | str) -> Commit:
        """Archive a note: out of sight, its links dropped, its history kept. ``revert`` undoes it."""
        return self._author.delete(note)

    def purge(self, note: Note | str) -> Commit:
        """Remove a note for good: content, revisions, vectors, links, and what the log and other notes quote of it.

        With it go the notes that were merged into it and the insights made from it. The file is written anew, so that no
        byte of the text is left in it; a commit stays that says that something was removed, and cannot be reverted. Raises
        StoreBusy when that is done and another process kept the file from being cleaned (``check`` tells until when).
        """
        return self._author.purge(note)

    def delete_space(self, space: Space) -> Commit | None:
        """Remove everything in a space for good, its log's words included, as ``purge`` does; None when there was nothing.

        Of the log, the space's name, times and actors stay.
        """
        return self._author.delete_space(space)

    def link(
        self, source: Note | str, target: Note | str, *, kind: str = "related", reason: str = "", strength: float = 0.8
    ) -> Link:
        """Link two notes of one space by hand. ``supersedes`` also takes the target out of search."""
        return self._author.link(source, target, kind, reason, strength)

    def unlink(self, source: Note | str, target: Note | str, *, kind: str | None = None) -> Commit:
        """Drop the links between two notes, in either direction; of one kind, if given."""
        return self._author.unlink(source, target, kind)

    def revert(self, commit: Commit | str) -> Commit:
        """Undo any commit, also out of order; reverting a revert works. Raises Conflict, naming all that
        later commits changed, or what was removed for good; then nothing is changed. Raises UnknownId for a
        commit that is not there, or was folded away by ``compact``."""
        return self._author.revert(commit)

    @overload
    def merge(self, notes: Sequence[Note | str], *, dry_run: None = None, max_calls: int | None = None) -> Commit:
        """By hand: the commit."""

    @overload
    def merge(
        self, notes: Sequence[Note | str] | None = None, *, dry_run: bool | None = None, max_calls: int | None = None
    ) -> Mergers | Commit | None:
        """Found: the proposals, or the commit of them."""

    def merge(
        self, notes: Sequence[Note | str] | None = None, *, dry_run: bool | None = None, max_calls: int | None = None
    ) -> Mergers | Commit | None:
        """Fold notes of one space into the first: it stays current, the others are kept as merged.

        Without notes, those of this space that say the same are found: groups in which each says what each other one says,
        never a chain. A dry run (the default then) gives them as a list of ``Merger``, ``dry_run=False`` the one commit
        that folds each group, or None. By rules notes say the same that agree word for word, but for fillers and the place
        of a time, or state one plain fact; a model, asked ``max_calls`` times at most, judges restatements as well.
        Numbers, days, denials, questions and speakers must agree, and what happens twice is told twice.
        """
        if notes is None:
            run = run_of(self.space, dry_run is not False, self._analyst, max_calls)
            return cast("Mergers | Commit | None", self._keeper.merge(run).outcome(run))
        if dry_run:
            raise InvalidInput("merge takes notes or dry_run=True: notes given by hand are merged, and revert undoes it")
        return self._author.merge(notes)

    # -- upkeep

    def forget(
        self, *, dry_run: bool = True, threshold: float = forgetting.THRESHOLD, purge_after: timedelta | str | None = None,
        now: datetime | str | None = None,
    ) -> FadedNotes | Commit | None:  # fmt: skip
        """Archive what has expired or faded in this memory's space: found again with ``include={"archived"}``.

        What is left of a note is R = exp(-t / S): t days since it came or was last recalled, S its strength, which grows by
        its first 30 days with each recall and with importance (Ebbinghaus' curve as in MemoryBank, arXiv 2305.10250;
        ``upkeep.forget`` has the formula). Below ``threshold`` it goes. Pinned notes, what was recalled within a week and
        insights stay. With ``purge_after`` ("365d"), what was forgotten longer ago than that is removed
        for good, which nothing can revert. ``now`` looks ahead: what would be forgotten by then.

        A dry run gives the proposals, a list of ``Faded``; otherwise the commit, which can be reverted, or None.
        """
        run, period = run_of(self.space, dry_run, self._analyst), _purging(purge_after)
        share, then = forgetting.checked_threshold(threshold), moment(now, "now")
        with self._uses_lock:
            uses = dict(self._uses)
        return cast("FadedNotes | Commit | None", self._keeper.forget(run, share, period, uses, then).outcome(run))

    def reflect(self, *, dry_run: bool = True, max_calls: int | None = None) -> Insights | Commit | None:
        """Say what groups of linked notes of this space say together, each as one ``insight`` note.

        A group shares a subject (a keyword or tag of three notes or more) and hangs together by links; three insights of one
        tag give an insight about them. An insight is ``derived_from`` each of its sources. It is written anew when its
        group has grown by a third or a source was changed, deleted or superseded, and taken back when too few are left.
        With a model each group that is new or changed is one call, at most ``max_calls``; by rules it is a template.

        A dry run gives the proposals, a list of ``Insight``; otherwise the commit, which can be reverted, or None when
        there is nothing new to say. What was deleted or reverted is not said again.
        """
        run = run_of(self.space, dry_run, self._analyst, max_calls)
        return cast("Insights | Commit | None", self._keeper.reflect(run, moment(None)).outcome(run))

    def tend(
        self, *, dry_run: bool = False, only: str | Iterable[str] | None = None, max_calls: int | None = None,
        max_seconds: float | None = None, threshold: float = forgetting.THRESHOLD,
        purge_after: timedelta | str | None = None, progress: Callable[[Step], None] | None = None,
    ) -> Tended:  # fmt: skip
        """All upkeep of this space at once: read what waits, settle conflicts, merge, forget, reflect.

        ``only`` names the parts wanted: "read", "conflicts", "merge", "forget", "reflect". Each is one commit, so that
        what was done stays done where ``max_calls`` of the model or ``max_seconds`` end the run; ``Tended.left`` names the
        rest. ``progress`` is called after each part. A dry run changes nothing and gives the proposals; with a model it
        asks it, and the run that follows in this process does not ask again.
        """
        run = run_of(self.space, dry_run, self._analyst, max_calls, max_seconds)
        share, period, parts = forgetting.checked_threshold(threshold), _purging(purge_after), parts_of(only)
        with self._uses_lock:
            uses = dict(self._uses)
        work: dict[Part, Callable[[Run], Done]] = {
            "read": lambda run: self._keeper.read(run, lambda limit: self.catch_up(limit=limit), self._analyst.batch),
            "conflicts": self._keeper.conflicts,
            "merge": self._keeper.merge,
            "forget": lambda run: self._keeper.forget(run, share, period, uses, moment(None)),
            "reflect": lambda run: self._keeper.reflect(run, moment(None)),
        }
        return self._keeper.tend(run, parts, work, progress)

    # -- read

    def search(
        self, query: str, *, k: int = 10, space: Spaces | None = None, where: Where | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None, as_of: Moment = None,
        expand: bool = True, min_relevance: float | None = None, include: Iterable[str] = (), rerank: Any = None,
    ) -> Hits:  # fmt: skip
        """The notes that bear on a question: up to ``k`` direct hits, then notes linked to them.

        Nothing comes back below ``min_relevance`` (0 to 1; 0 switches the cut-off off). ``space`` is
        one space or a list of them; ``since`` and ``until`` bound when it happened, ``as_of`` asks the
        memory as it was. ``include`` takes "superseded", "archived", "merged", "expired".

        ``rerank`` orders the best 30 or more anew: a function of the question and the texts that returns
        a score for each (a cross-encoder's, say), "llm" for the model this memory was opened with, or
        another model. Should a model fail, hits come in engramma's own order, and ``why`` says so.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"query={query!r} is not text")
        request = Request(
            checked("query", query) or "", self._spaces(space), k, where, bound("since", since), bound("until", until),
            self._past.seq(as_of), expand, DEFAULT_CUT_OFF if min_relevance is None else min_relevance, frozenset(include),
            resolve_rerank(rerank, self._analyst), self._past.time(as_of),
        )  # fmt: skip
        hits = self._recall.search(request)
        if as_of is None:
            with self._uses_lock:
                self._uses.update(hit.note.id for hit in hits.direct)
        return hits

    def get(self, note: Note | str, *, as_of: Moment = None) -> Note:
        """One note, deleted ones included (``state`` tells), now or as it was. Raises UnknownId."""
        return self._ledger.note(note, self._past.seq(as_of), "" if as_of is None else f" as of {as_of}")

    def list(
        self, *, where: Where | None = None, limit: int | None = None, as_of: Moment = None, space: Spaces | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None, include: Iterable[str] = (),
        newest_first: bool = False,
    ) -> Notes:  # fmt: skip
        """Notes in the order they were added, archived and merged ones only if included."""
        checked_count("limit", limit)
        if unknown := set(include) - set(INCLUDABLE):
            raise InvalidInput(f"include holds {sorted(unknown)[0]!r}: it takes {', '.join(INCLUDABLE)}")
        states = ["pending", "ready", *(state for state in ("archived", "merged") if state in include)]
        seq = self._past.seq(as_of)
        query = Query(
            self._spaces(space), parse(where), bound("since", since), bound("until", until), states, seq, limit, newest_first
        )
        found = self._store.find(query)
        whole = self._store.notes([note.id for note in found], seq)
        return [whole.get(note.id, note) for note in found]

    def neighbours(self, note: Note | str, *, depth: int = 1) -> Notes:
        """The notes reached along up to ``depth`` links from a note, nearest first."""
        if checked_count("depth", depth, least=1) is None:
            raise InvalidInput("depth=None must be a whole number of at least 1")
        start = self.get(note)
        found: dict[NoteId, Note] = {start.id: start}
        frontier = [start]
        for _ in range(depth):
            if not frontier:
                break
            ids = [link.other(near.id) for near in frontier for link in sorted(near.links, key=lambda link: -link.strength)]
            frontier = list(self._store.notes([i for i in ids if i not in found]).values())
            found |= {n.id: n for n in frontier}
        return list(found.values())[1:]

    def history(self, note: Note | str) -> Revisions:
        """Every revision of a note that is kept, oldest first, each with the commit that made it."""
        return self._past.history(note)

    def blame(self, note: Note | str) -> Blames:
        """For each part of a note (content, context, each tag, each link, …) the commit that put it there."""
        return self._past.blame(note)

    def log(
        self, *, limit: int | None = 20, space: Spaces | None = None, note: Note | str | None = None, actor: str | None = None,
        since: datetime | str | None = None, until: datetime | str | None = None,
    ) -> Commits:  # fmt: skip
        """The commits of a space, newest first; those that touched one note, if given, whatever its space.

        ``actor`` is a whole name ("user"), or the beginning of one where it ends in ":" or "*" ("analyst:", "agent:res*").
        ``since`` and ``until`` bound when the memory learnt it. What ``compact`` folded away is one commit, by "compact".
        """
        spaces = None if note is not None else self._spaces(space)
        return self._past.log(limit, spaces, note, actor, bound("since", since), bound("until", until))

    def commit(self, commit: str) -> Commit:
        """One commit by its id, or, of this memory's space, by a beginning of six characters or more that no other has."""
        return self._past.commit(commit, self.space)

    def spaces(self, prefix: Space | None = None) -> dict[Space, int]:
        """Every space with the number of notes in sight; those that begin with the labels of a tuple, if given."""
        return self._store.spaces(prefix if prefix in (None, ()) else checked_space(prefix))

    def stats(self, *, space: Space | None = None) -> Stats:
        """Counts and costs, of one space or of the whole store."""
        return stats_of(self._store, self._embedder.name, self._analyst.name, None if space is None else checked_space(space))

    def check(self) -> Check:
        """Look for damage: ``.ok``, and ``.problems`` with one sentence each."""
        return Check(tuple(self._store.check()))

    # -- upkeep of the store

    def catch_up(self, *, limit: int | None = None, progress: Progress | None = None) -> int:
        """Read the notes that wait; how many were read. The rest stays pending with its error."""
        most = checked_count("limit", limit)
        total = len(self._store.pending(None, 2**31 if most is None else most)) if progress else 0
        return self._reader.all(most, progress, total)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until background work has read what waits, but what could not be read; False when ``timeout`` seconds
        were over first. Without ``background`` it says at once whether nothing waits."""
        return not self._store.waiting() if self._worker is None else self._worker.wait(timeout)

    def reindex(self, *, embedder: Any = None, progress: Progress | None = None) -> int:
        """Embed every note anew, with another embedder if given; how many were. Resumable."""
        chosen = self._embedder if embedder is None else resolve_embedder(embedder)
        done = reindexing.reindex(self._store, chosen, progress)
        self._embedder = chosen
        self._recall.forget()
        return done

    def compact(self, keep: timedelta | str | int = "90d", *, dry_run: bool = False) -> Folded:
        """Fold away the history of all spaces that is older than a period, and make the file smaller.

        ``keep`` is "90d", "12w", "6m" (months of 30 days), "1y", "36h", a timedelta, or 0. Notes stay as they are; their
        earlier revisions and the commits from before go, one commit a space standing for them. What is older can no
        longer be reverted, nor asked ``as_of``. A dry run tells what would go, and changes nothing.
        """
        done = self._past.compact(keep, dry_run)
        self._recall.forget()
        return done

    def export(self, path: str | Path, *, space: Spaces | None = None, progress: Progress | None = None) -> int:
        """Write notes and links as JSON lines; how many notes. ``space``: all spaces if not given."""
        spaces = list(self.spaces()) if space is None else self._spaces(space)
        return exchange.export(self._store, spaces, Path(path), progress)

    def load(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Take in a file of JSON lines or plain text lines; how many notes are new.

        Lines that ``export`` wrote come back with ids, links and descriptions; other JSON objects
        take the arguments of ``add``; any other line is a text to remember.
        """
        return exchange.load(self._store, self._recall, self.add_many, Path(path), progress)

    def close(self) -> None:
        """Write what is counted and let go of the file. Closing twice is fine.

        Background work ends with the calls that are under way; what still waits is read by the next worker
        (``wait`` first, to have all of it read).
        """
        if self._worker is not None:
            self._worker.stop()
        with self._uses_lock:
            uses, self._uses = self._uses, Counter()
        if uses:
            with suppress(StoreError):  # use counts are not worth failing to close
                self._store.use(uses, datetime.now(UTC))
        self._store.close()

    def _spaces(self, space: Spaces | None) -> tuple[Space, ...]:
        if space is None:
            return (self.space,)
        wanted = space if isinstance(space, list) else [space]
        if not wanted:
            raise InvalidInput("space=[] names no space")
        return tuple(dict.fromkeys(checked_space(one) for one in wanted))


def _purging(after: timedelta | str | None) -> timedelta | None:
    return None if after is None else period("purge_after", after)
