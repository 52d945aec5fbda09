"""``Memory``: everything engramma does, as verbs on one object.

It composes the write path, recall and the store, and checks what comes in. Safe for threads; any
number of processes may open the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from engramma import exchange, plan, reindexing, settings
from engramma.analysts.base import Analyst
from engramma.commit import ArchiveNote, Change, Commit, PutLink, PutNote, RemoveNote, inverse, summarise
from engramma.dates import bound, last_moment, said_dates
from engramma.draft import checked, checked_count, checked_id, checked_space, checked_update, fields_of, make_draft
from engramma.errors import Conflict, InvalidInput, StoreError, UnknownId
from engramma.filters import Where, parse
from engramma.models import resolve_embedder, resolve_llm
from engramma.models.base import Embedder
from engramma.note import CommitId, Link, Note, NoteId, Space
from engramma.opening import analyst_for, embedder_for, open_store
from engramma.recall import INCLUDABLE, Hits, Recall, Request
from engramma.report import Check, Stats, Tended, stats_of
from engramma.reranking import resolve_rerank
from engramma.scoring import DEFAULT_CUT_OFF, WEIGHTS, Weights
from engramma.store import Query, Revision, Store
from engramma.upkeep import forget as forgetting
from engramma.upkeep import reflect as reflection
from engramma.upkeep.forget import Faded
from engramma.upkeep.reflect import Insight
from engramma.words import excerpt, pieces
from engramma.write import ATTEMPTS, Progress, Writer, make_commit, new_id, passage

Moment = datetime | str | int | None
Spaces = Space | list[Space]
Notes = list[Note]
Revisions = list[Revision]
Commits = list[Commit]
FadedNotes = list[Faded]
Insights = list[Insight]
Decision = tuple[Space, Sequence[Change], str]
_AT_OPEN = 8  # pending notes that opening reads; the rest waits for catch_up


class Memory:
    """Long-term memory for agents. Make one with ``Memory.open``."""

    def __init__(
        self, store: Store, *, embedder: Embedder, analyst: Analyst, space: Space = "default", weights: Weights = WEIGHTS
    ) -> None:
        self._store, self._embedder, self._analyst = store, embedder, analyst
        self.space = checked_space(space)
        self._recall = Recall(store, lambda: self._embedder, weights)
        self._writer = Writer(store, self._recall, analyst)
        self._uses: Counter[NoteId] = Counter()
        self._uses_lock = Lock()

    @classmethod
    def open(
        cls, path: str | Path | None = None, *, llm: Any = None, embedder: Any = None, space: Space | None = None,
        analyst: Analyst | None = None, catch_up: bool = True, create: bool = True, reindex: bool | Progress = False,
        weights: Weights = WEIGHTS,
    ) -> Memory:  # fmt: skip
        """Open a memory file, or create it; ":memory:" for one that lives as long as the object.

        ``llm`` and ``embedder`` take a string ("ollama:qwen2.5:7b"), the URL of an OpenAI-compatible
        server, an object of our protocols, or a LangChain object. What is not given comes from
        ENGRAMMA_* variables, then engramma.toml. With a model, up to eight notes that wait to be
        read are read now, unless ``catch_up`` is False. ``reindex`` embeds all notes anew where the
        file's vectors come from another embedder (True, or a function to show progress with).
        ``weights`` say what each kind of evidence counts in recall, for trying out others than the
        fitted ones.

        Raises StoreError and its kinds for a file that cannot be used (or is not there, when
        ``create`` is False), EmbedderMismatch when the vectors come from another embedder.
        """
        given = {"db": None if path is None else str(path), "llm": llm, "embedder": embedder, "space": space}
        force = {name: setting.value for name, setting in settings.settings(given).items()}
        reader = analyst or analyst_for(resolve_llm(force["llm"]))
        with ExitStack() as unless_opened:
            store = open_store(str(force["db"]), create)
            unless_opened.callback(store.close)
            chosen = embedder_for(store, force["embedder"], reindex)
            memory = cls(store, embedder=chosen, analyst=reader, space=force["space"], weights=weights)
            if catch_up and reader.slow:
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

    # -- write

    def add(
        self, content: str, *, speaker: str | None = None, session: str | None = None, at: datetime | str | None = None,
        space: Space | None = None, tags: Sequence[str] = (), keywords: Sequence[str] = (), category: str | None = None,
        importance: int | None = None, metadata: Mapping[str, Any] | None = None, key: str | None = None,
        pinned: bool = False, expires_at: datetime | str | None = None, distinct: bool = False,
    ) -> Note:  # fmt: skip
        """Remember a text; the note that holds it now.

        ``at`` is when it was said (now, if not given). A second ``add`` with the same ``key`` gives
        the first note. A text that its speaker has said before is kept, merged into the note that
        says it already, and that note comes back, unless it is ``distinct``. Raises EmptyText,
        InvalidInput, StoreError.
        """
        draft = make_draft(
            content, self.space, speaker=speaker, session=session, at=at, space=space, tags=tags, keywords=keywords,
            category=category, importance=importance, metadata=metadata, key=key, pinned=pinned, expires_at=expires_at,
            distinct=distinct,
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
        return [notes[note_id] for note_id in ids]

    def update(self, note: Note | str, **fields: Any) -> Note:
        """Change a note by its author's hand; an unknown field is an error. A new content is read anew."""
        wanted = checked_update(fields)
        reason = f"updated {', '.join(sorted(fields))}"
        vectors: dict[NoteId, Any] = {}

        def decide() -> Decision:
            current = self._in_sight(checked_id(note))
            revised = replace(current, **wanted)
            if passage(revised) != passage(current):
                vectors[current.id] = self._recall.embed(pieces(passage(revised)), "passage")
            others = self._store.notes([link.other(current.id) for link in current.links])
            if revised.content == current.content:
                dates = {"dates": said_dates(current.content, revised.at)} if "at" in wanted else {}
                changes = plan.plan_update(current, wanted | dates, None, others, reason)
            else:
                reading, shown = self._writer.reread(revised, vectors[current.id])
                changes = plan.plan_rewrite(current, wanted, reading, shown, others, reason)
            return current.space, changes, f'{reason} of "{excerpt(current.content, 40)}"'

        decided = decide()
        if decided[1]:
            self._commit(decide, vectors=lambda: vectors, decided=decided)
        current = self.get(checked_id(note))
        if decided[1] and current.state == "pending":
            self._writer.read([current.id])
        return self.get(current.id)

    def delete(self, note: Note | str) -> Commit:
        """Archive a note: out of sight, its links dropped, its history kept. ``revert`` undoes it."""

        def decide() -> Decision:
            current = self._in_sight(checked_id(note))
            others = self._store.notes([link.other(current.id) for link in current.links])
            changes = plan.plan_archive(current, others, "deleted by hand")
            return current.space, changes, f'delete "{excerpt(current.content, 48)}"'

        return self._commit(decide)

    def purge(self, note: Note | str) -> Commit:
        """Remove a note for good, with revisions, vectors and links. This cannot be reverted."""

        def decide() -> Decision:
            current = self.get(note)
            others = self._store.notes([link.other(current.id) for link in current.links])
            freed = plan.released(current, others, "what superseded it was removed for good")
            return current.space, [RemoveNote(current.id, "purged"), *freed], "purge: one note removed for good"

        done = self._commit(decide)
        self._recall.forget()
        return done

    def delete_space(self, space: Space) -> Commit | None:
        """Remove everything in a space for good; None when there was nothing."""
        states = ("pending", "ready", "archived", "merged")
        notes = self._store.find(Query([checked_space(space)], states=states))
        if not notes:
            return None
        changes = [RemoveNote(note.id, "space deleted") for note in notes]
        done = self._commit(lambda: (space, changes, f"delete space: {len(notes)} notes removed for good"))
        self._recall.forget()
        return done

    def link(
        self, source: Note | str, target: Note | str, *, kind: str = "related", reason: str = "", strength: float = 0.8
    ) -> Link:
        """Link two notes of one space by hand. ``supersedes`` also takes the target out of search."""
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
            shown = {note.id: note for note in (self._in_sight(link.source), self._in_sight(link.target))}
            return shown[link.source].space, plan.plan_link(link, shown), f"link: {kind}"

        done = self._commit(decide).changes[0]
        assert isinstance(done, PutLink)
        return done.link

    def unlink(self, source: Note | str, target: Note | str, *, kind: str | None = None) -> Commit:
        """Drop the links between two notes, in either direction; of one kind, if given."""

        def decide() -> Decision:
            first, second = self.get(source), self.get(target)
            between = [link for link in first.links if link.other(first.id) == second.id and kind in (None, link.kind)]
            if not between:
                which = "" if kind is None else f"{kind!r} "
                raise UnknownId(f"there is no link {which}between {first.id!r} and {second.id!r}")
            return first.space, plan.plan_unlink(between, {first.id: first, second.id: second}, "unlinked by hand"), "unlink"

        return self._commit(decide)

    def revert(self, commit: Commit | str) -> Commit:
        """Undo any commit, also out of order; reverting a revert works. Raises Conflict, naming what
        a later commit changed, or what was removed for good; then nothing is changed."""
        commit_id = commit.id if isinstance(commit, Commit) else CommitId(checked_id(commit))
        found = self._store.commit(commit_id)
        if found is None:
            raise UnknownId(f"there is no commit {commit_id!r}: engramma log shows them")

        def decide() -> Decision:
            notes = self._store.notes(found.notes())
            changes = plan.with_dropped_links(inverse(found, notes), notes)
            return found.space, changes, f"revert {found.id}: {excerpt(found.reason, 60)}"

        return self._commit(decide, reverts=found.id)

    def merge(self, notes: Sequence[Note | str]) -> Commit:
        """Fold notes of one space into the first: it stays current, the others are kept as merged."""

        def decide() -> Decision:
            found = [self._in_sight(checked_id(note)) for note in notes]
            changes = plan.plan_merge(found, "merged by hand")
            return found[0].space, changes, f"merge {len(found)} notes: {summarise(changes)}"

        return self._commit(decide)

    def forget(self, *, dry_run: bool = True, threshold: float = forgetting.THRESHOLD) -> FadedNotes | Commit | None:
        """Archive what has expired or faded in this memory's space (``upkeep.forget`` has the formula).

        A dry run gives the proposal; otherwise the commit, which can be reverted, or None.
        """
        faded = forgetting.faded(self.list(), datetime.now(UTC), threshold)
        if dry_run or not faded:
            return faded if dry_run else None

        def decide() -> Decision:
            notes = self._store.notes([one.note.id for one in faded])
            steps = [ArchiveNote(one.note.id, notes[one.note.id].revision, one.reason) for one in faded if one.note.id in notes]
            return self.space, plan.with_dropped_links(steps, notes), f"forget: {len(steps)} notes archived"

        return self._commit(decide)

    def reflect(self, *, dry_run: bool = True) -> Insights | Commit | None:
        """Say what groups of linked notes of this space say together, each as one ``insight`` note.

        A dry run gives the proposals; otherwise the commit, which can be reverted, or None when
        there is nothing new to say.
        """
        found = [one for one in reflection.insights(self.list()) if self._store.by_key(one.space, one.key) is None]
        if dry_run or not found:
            return found if dry_run else None
        written = [plan.plan_insight(one, NoteId(new_id()), datetime.now(UTC)) for one in found]
        vectors = self._recall.embed([one.content for one in found], "passage")
        ids = [change.note.id for group in written for change in group if isinstance(change, PutNote)]
        by_id = {note_id: vectors[number : number + 1] for number, note_id in enumerate(ids)}
        changes = [change for group in written for change in group]
        return self._commit(lambda: (self.space, changes, f"reflect: {len(found)} insights"), vectors=lambda: by_id)

    def tend(self, *, dry_run: bool = False) -> Tended:
        """All upkeep at once: read what waits, forget what has faded, reflect on what is left."""
        read = 0 if dry_run else self.catch_up()
        return Tended(read, self.forget(dry_run=dry_run), self.reflect(dry_run=dry_run))

    def _commit(
        self, decide: Callable[[], Decision], reverts: CommitId | None = None,
        vectors: Callable[[], Mapping[NoteId, Any]] = dict, decided: Decision | None = None,
    ) -> Commit:  # fmt: skip
        """Decide on what is there and write it; where the memory has changed in between, decide again.

        ``decided`` is a decision that was made a moment ago, and is tried first.
        """
        for attempt in range(ATTEMPTS):
            space, changes, reason = decided or decide()
            decided = None
            try:
                return self._apply(make_commit(space, changes, "user", reason, reverts=reverts), vectors())
            except Conflict:
                if attempt + 1 == ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt raises")

    def _apply(self, commit: Commit, vectors: Mapping[NoteId, Any]) -> Commit:
        return self._store.apply([commit], vectors, self._embedder.name)[0]

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
            self._seq(as_of), expand, DEFAULT_CUT_OFF if min_relevance is None else min_relevance, frozenset(include),
            resolve_rerank(rerank, self._analyst),
        )  # fmt: skip
        hits = self._recall.search(request)
        if as_of is None:
            with self._uses_lock:
                self._uses.update(hit.note.id for hit in hits.direct)
        return hits

    def get(self, note: Note | str, *, as_of: Moment = None) -> Note:
        """One note, deleted ones included (``state`` tells), now or as it was. Raises UnknownId."""
        note_id = checked_id(note)
        found = self._store.notes([note_id], self._seq(as_of)).get(note_id)
        if found is None:
            then = "" if as_of is None else f" as of {as_of}"
            raise UnknownId(f"there is no note {note_id!r}{then}")
        return found

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
        seq = self._seq(as_of)
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
        """Every revision of a note, oldest first, each with the commit that made it."""
        note_id = checked_id(note)
        revisions = self._store.history(note_id)
        if not revisions:
            raise UnknownId(f"there is no note {note_id!r}")
        return revisions

    def log(self, *, limit: int | None = 20, space: Spaces | None = None, note: Note | str | None = None) -> Commits:
        """The commits of a space, newest first; those that touched one note, if given."""
        checked_count("limit", limit)
        note_id = None if note is None else self.get(note).id
        if note_id is not None:
            return self._store.log(limit, None, note_id)
        found = [commit for one in self._spaces(space) for commit in self._store.log(limit, one)]
        return sorted(found, key=lambda commit: -commit.seq)[:limit]

    def spaces(self) -> dict[Space, int]:
        """Every space with the number of notes in sight."""
        return self._store.spaces()

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
        waiting = self._store.pending(None, 2**31 if most is None else most)
        return self._writer.read(waiting, progress)

    def reindex(self, *, embedder: Any = None, progress: Progress | None = None) -> int:
        """Embed every note anew, with another embedder if given; how many were. Resumable."""
        chosen = self._embedder if embedder is None else resolve_embedder(embedder)
        done = reindexing.reindex(self._store, chosen, progress)
        self._embedder = chosen
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
        """Write what is counted and let go of the file. Closing twice is fine."""
        with self._uses_lock:
            uses, self._uses = self._uses, Counter()
        if uses:
            with suppress(StoreError):  # use counts are not worth failing to close
                self._store.use(uses, datetime.now(UTC))
        self._store.close()

    def _in_sight(self, note_id: NoteId) -> Note:
        note = self.get(note_id)
        if note.state == "archived":
            raise UnknownId(f"note {note_id!r} was deleted: revert its deletion first (engramma log {note_id})")
        return note

    def _spaces(self, space: Spaces | None) -> tuple[Space, ...]:
        if space is None:
            return (self.space,)
        wanted = space if isinstance(space, list) else [space]
        if not wanted:
            raise InvalidInput("space=[] names no space")
        return tuple(dict.fromkeys(checked_space(one) for one in wanted))

    def _seq(self, as_of: Moment) -> int | None:
        """The commit that ``as_of`` means: a moment, a commit's id or its sequence number."""
        if as_of is None:
            return None
        if isinstance(as_of, int):
            return max(0, min(as_of, self._store.head()))
        if isinstance(as_of, str):
            checked("as_of", as_of)
            if (commit := self._store.commit(CommitId(as_of))) is not None:
                return commit.seq
        return self._store.seq_at(last_moment(as_of, "as_of"))
