"""Upkeep put to work: proposals from ``upkeep``, judged and worded by rules or a model, written as commits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from engramma import plan
from engramma.analysts import judging, reflecting
from engramma.analysts.judging import Verdict
from engramma.analysts.reflecting import Worded
from engramma.analysts.restating import comparable, restates
from engramma.commit import FOLDING, ArchiveNote, Change, Commit, RemoveNote
from engramma.errors import ReplyInvalid
from engramma.ledger import Decision, Ledger
from engramma.models.base import LLM
from engramma.note import ASSISTANT, Link, Note, NoteId, Space
from engramma.recall import Recall
from engramma.report import PARTS, Part, Step, Tended
from engramma.store import Query
from engramma.upkeep import conflict, forget, merge, reflect
from engramma.upkeep.conflict import Clash
from engramma.upkeep.forget import Faded
from engramma.upkeep.merge import Merger, Same
from engramma.upkeep.near import Pair, near_pairs
from engramma.upkeep.reflect import Group, Insight, Task
from engramma.upkeep.run import RULES, Done, Look, Run, View, counted
from engramma.words import denies, pieces
from engramma.write import new_id, passage

MOST_JUDGED = 160
"""Pairs that a model judges in one run; what is left is judged in the next."""
_JUDGED_ALIKE = 0.6
_KEPT = 20_000  # judgements of a model remembered with the store
_IN_SIGHT = ("pending", "ready")
_BEFORE = "as judged before"
_SAID = "said"
_FORGOTTEN = "forgotten"
_UNREADABLE = "a reply could not be read"


class Keeper:
    """Upkeep of one space at a time. ``Memory`` documents the verbs."""

    def __init__(self, ledger: Ledger, recall: Recall) -> None:
        self._ledger, self._store, self._recall = ledger, ledger.store, recall
        self._judgements: dict[str, dict[str, Any]] = {}

    # -- what there is

    def _look(self, run: Run) -> Look:
        """What may conflict or say the same: the notes of a space that were read, their links, and which are near each other."""
        head = self._store.head()
        if run.look is None or run.look.head != head:
            background = self._recall.sight().background
            view = self._view(run.space, background.vectors.shape[1])
            run.look = Look(head, view, near_pairs(view.notes, view.vectors, background, conflict.LEAST_ALIKE))
        return run.look

    def _view(self, space: Space, dimensions: int) -> View:
        rows = [row for row in self._store.index_rows(space) if row.note.state == "ready" and row.note.level == "episode"]
        vectors = np.zeros((len(rows), dimensions), np.float32)
        for place, row in enumerate(rows):
            if len(row.vectors) and row.vectors.shape[1] == dimensions:
                vectors[place] = row.vectors[0] if len(row.vectors) == 1 else row.vectors.mean(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return View(self._linked([row.note for row in rows]), np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32))

    def _linked(self, notes: Sequence[Note]) -> list[Note]:
        """Notes with their links."""
        links: dict[NoteId, list[Link]] = {note.id: [] for note in notes}
        for link in self._store.links(links):
            for end in {link.source, link.target} & links.keys():
                links[end].append(link)
        return [replace(note, links=tuple(links[note.id])) for note in notes]

    def _found(self, space: Space, states: Sequence[str] = _IN_SIGHT) -> list[Note]:
        return self._store.find(Query([space], states=states))

    def _reverted(self, notes: Iterable[NoteId], verb: str) -> datetime | None:
        """When somebody took back what a verb of upkeep did to all of some notes; None where nobody did."""
        ids = set(notes)
        for commit in self._store.log(20, note=min(ids)):
            undone = self._store.commit(commit.reverts) if commit.reverts else None
            if undone is not None and undone.reason.startswith(f"{verb}:") and ids <= set(undone.notes()):
                return commit.at
        return None

    # -- what is written

    def _commit(
        self, run: Run, decide: Callable[[], Decision], vectors: Mapping[NoteId, Any] | None = None, actor: str = RULES
    ) -> Commit | None:
        """Write what was decided, with what it cost; None where nothing is left of it."""
        decided = decide()
        if not decided[1]:
            return None
        return self._ledger.commit(decide, actor=actor, vectors=lambda: vectors or {}, decided=decided, cost=run.budget.take())

    # -- merge

    def merge(self, run: Run) -> Done:
        """Fold notes that say the same into one, each group."""
        near = self._look(run).pairs
        pairs = [pair for pair in near if pair.likeness >= merge.LEAST_ALIKE and merge.may_merge(*pair.notes)]
        alike = {pair.ids: why for pair in pairs if (why := restates(*pair.notes)) is not None}
        unsure = [p for p in pairs if run.llm and p.ids not in alike and p.likeness >= _JUDGED_ALIKE and comparable(*p.notes)]
        verdicts, left = self._verdicts(run, unsure)

        def same(pair: Pair) -> Same | None:
            first, second = pair.notes
            if (why := alike.get(pair.ids)) is not None:
                return Same(first.id, second.id, pair.likeness, why)
            verdict = verdicts.get(reflect.pair_key(pair))
            if verdict is None or verdict.relation != "same":
                return None
            return Same(first.id, second.id, pair.likeness, verdict.reason, run.judge)

        found = [one for one in merge.mergers(pairs, same) if not self._merge_was_taken_back(one)]
        judged = any(one.judge != "rules" for merger in found for one in merger.evidence)
        return self._done(run, found, left, self._merged, run.actor if judged else RULES)

    def _merge_was_taken_back(self, found: Merger) -> bool:
        return any(note.revision > 2 and self._reverted((note.id, found.kept.id), merge.REASON) for note in found.notes)

    def _merged(self, found: Sequence[Merger]) -> tuple[list[Change], str]:
        now = self._store.notes([note.id for one in found for note in one.notes], vectors=False)
        held = [one for one in found if merge.still_holds(one, now)]
        changes = [change for one in held for change in plan.plan_merge([now[note.id] for note in one.notes], one.reason)]
        kept = {note.id: one.kept.id for one in held for note in one.folded}
        return merge.redirected(changes, kept), f"{merge.REASON}: {counted(len(kept), 'note')} folded into {len(held)}"

    def _done(
        self, run: Run, found: Sequence[Any], left: str, change: Callable[[Sequence[Any]], tuple[list[Change], str]], actor: str
    ) -> Done:  # fmt: skip
        """Proposals as they are in a dry run, else as one commit."""
        if run.dry_run or not found:
            return Done(found, left=left)

        def decide() -> Decision:
            changes, reason = change(found)
            return run.space, changes, reason

        made = self._commit(run, decide, actor=actor)
        return Done(found, (made,) if made else (), left)

    # -- conflicts

    def conflicts(self, run: Run) -> Done:
        """Let facts that replace others end their validity, and mark what is disputed."""
        look = self._look(run)
        near = [pair for pair in look.pairs if conflict.open_pair(*pair.notes)]
        stated = [pair for pair in conflict.bucket_pairs(judging.buckets(look.view.notes)) if conflict.open_pair(*pair.notes)]
        denied = [pair for pair in near if denies(pair.first.content) != denies(pair.second.content)]
        found = conflict.clashes([*stated, *denied], _by_rules)
        decided = {frozenset((one.newer.id, one.older.id)) for one in found}
        unsure = [p for p in near if run.llm and p.ids not in decided]
        verdicts, left = self._verdicts(run, [pair for pair in unsure if restates(*pair.notes) is None])
        found += [clash for pair in unsure if (clash := _by_model(pair, verdicts.get(reflect.pair_key(pair)), run)) is not None]
        kept = [one for one in conflict.settled(found) if not self._reverted((one.newer.id, one.older.id), conflict.REASON)]
        judged = any(one.judge != "rules" for one in kept)
        return self._done(run, kept, left, self._settled, run.actor if judged else RULES)

    def _settled(self, found: Sequence[Clash]) -> tuple[list[Change], str]:
        now = self._store.notes([note.id for one in found for note in one.notes], vectors=False)
        held = [one for one in found if {one.newer.id, one.older.id} <= set(now)]
        held = [one for one in held if conflict.open_pair(now[one.newer.id], now[one.older.id])]
        changes: list[Change] = []
        for one in held:
            link = Link(one.newer.id, one.older.id, one.kind, one.reason, one.strength)
            changes += plan.plan_link(link, now)
        replaced = sum(one.kind == "supersedes" for one in held)
        return (
            changes,
            f"{conflict.REASON}: {counted(replaced, 'note')} superseded, {counted(len(held) - replaced, 'pair')} disputed",
        )

    # -- what a model judges

    def _verdicts(self, run: Run, pairs: Sequence[Pair]) -> tuple[dict[str, Verdict], str]:
        """A model's verdicts on pairs, those that it gave before included, and what is left to judge."""
        if run.llm is None:
            return {}, ""
        known = self._remembered("judged", run.space)
        fresh = list({reflect.pair_key(pair): pair for pair in pairs if reflect.pair_key(pair) not in known}.values())
        try:
            for start in range(0, min(len(fresh), MOST_JUDGED), judging.BATCH):
                if not self._judge(run, run.llm, fresh[start : min(start + judging.BATCH, MOST_JUDGED)], known):
                    break
        finally:
            self._remember("judged", run, known)
        left = sum(reflect.pair_key(pair) not in known for pair in fresh)
        why = run.budget.stopped or (f"at most {MOST_JUDGED} in one run" if len(fresh) > MOST_JUDGED else _UNREADABLE)
        keys = {reflect.pair_key(pair) for pair in pairs} & known.keys()
        verdicts = {key: Verdict(known[key][0], known[key][1] if len(known[key]) > 1 else _BEFORE) for key in keys}
        return verdicts, f"{counted(left, 'pair')} not judged: {why}" if left else ""

    def _judge(self, run: Run, llm: LLM, batch: Sequence[Pair], known: dict[str, Any]) -> bool:
        """Ask about some pairs; False where no answer is to be had. What a reply leaves out is "none"."""
        text = run.budget.ask(llm, judging.judge_messages([conflict.in_order(*p.notes) for p in batch]), judging.judge_schema())
        if text is None:
            return False
        try:
            found, dropped = judging.verdicts_of(text, len(batch))
        except ReplyInvalid as error:
            run.budget.doubt(str(error))
            return True
        for remark in dropped:
            run.budget.doubt(remark)
        for place, pair in enumerate(batch):
            verdict = found.get(place, Verdict("none", ""))
            known[reflect.pair_key(pair)] = [verdict.relation, verdict.reason]
        return True

    def _remembered(self, what: str, space: Space) -> dict[str, Any]:
        """What a model has judged before, by digests of texts: with the store, and in this process with its words."""
        name = f"{what}:{space!r}"
        kept = self._store.meta(name)
        return (json.loads(kept) if kept else {}) | self._judgements.get(name, {})

    def _remember(self, what: str, run: Run, known: Mapping[str, Any]) -> None:
        """Keep judgements: with the store no word of a note, so that nothing outlives its removal."""
        name = f"{what}:{run.space!r}"
        self._judgements[name] = dict(list(known.items())[-_KEPT:])
        text = json.dumps({key: value[:1] for key, value in self._judgements[name].items() if value[0] != _SAID})
        if not run.dry_run and text != (self._store.meta(name) or "{}"):
            self._store.set_meta({name: text})

    # -- forget

    def forget(
        self, run: Run, threshold: float, purge_after: timedelta | None, uses: Mapping[NoteId, int], now: datetime
    ) -> Done:  # fmt: skip
        """Archive what has expired or faded; remove for good what was forgotten long ago."""
        whole = self._store.notes([note.id for note in self._found(run.space)], vectors=False)
        notes = forget.with_uses(whole.values(), uses, now)
        found = forget.faded((self._reprieved(one.note) for one in forget.faded(notes, now, threshold)), now, threshold)
        old = [] if purge_after is None else self._overdue(run.space, purge_after, now)
        archived = self._done(run, found, "", self._forgotten, RULES)
        removed = self._done(run, old, "", self._removed, RULES)
        if made := archived.commits + removed.commits:
            self._write_down(made)
        if removed.commits:
            self._recall.forget()
        return Done([*found, *old], made)

    def _reprieved(self, note: Note) -> Note:
        """A note, used when somebody took its forgetting back."""
        back = self._reverted((note.id,), forget.REASON) if note.revision > 2 else None
        return note if back is None else replace(note, used_at=max(back, note.used_at or back))

    def _forgotten(self, found: Sequence[Faded]) -> tuple[list[Change], str]:
        notes = self._store.notes([one.note.id for one in found], vectors=False)
        held = [one for one in found if one.note.id in notes and notes[one.note.id].state in _IN_SIGHT]
        held = [one for one in held if one.note.expires_at is not None or not notes[one.note.id].pinned]
        others = self._store.notes([link.other(note.id) for note in notes.values() for link in note.links], vectors=False) | notes
        gone = {one.note.id: (notes[one.note.id], one.reason) for one in held}
        gone |= {
            copy.id: (copy, "folded into a note that was forgotten")
            for one in held
            for copy in plan.folded(notes[one.note.id], others)
        }
        steps = [ArchiveNote(note.id, note.revision, reason) for note, reason in gone.values()]
        return list(plan.with_dropped_links(steps, others)), f"{forget.REASON}: {counted(len(steps), 'note')} archived"

    def _overdue(self, space: Space, period: timedelta, now: datetime) -> list[Faded]:
        return forget.overdue(self._found(space, ("archived",)), now, period, self._archived)

    def _archived(self, note: NoteId) -> tuple[datetime, str]:
        """When and why a note that is archived was; of what was folded away, what forgetting wrote down itself."""
        last = self._store.history(note)[-1]
        if last.commit.actor != FOLDING:
            return last.at, last.commit.reason
        kept = json.loads(self._store.meta(_FORGOTTEN) or "{}").get(note)
        return (datetime.fromisoformat(kept), f"{forget.REASON}: long ago") if kept else (last.at, "")

    def _write_down(self, commits: Sequence[Commit]) -> None:
        """Keep when notes were forgotten, or let go of those that are removed for good."""
        kept = json.loads(self._store.meta(_FORGOTTEN) or "{}")
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, ArchiveNote):
                    kept[change.note] = commit.at.isoformat(timespec="seconds")
                elif isinstance(change, RemoveNote):
                    kept.pop(change.note, None)
        self._store.set_meta({_FORGOTTEN: json.dumps(kept)})

    def _removed(self, found: Sequence[Faded]) -> tuple[list[Change], str]:
        notes = self._store.notes([one.note.id for one in found], vectors=False)
        gone = [note.id for note in notes.values() if note.state == "archived"]
        return [
            RemoveNote(note, "forgotten, and the period set for it is over") for note in gone
        ], f"purge: {counted(len(gone), 'note')} removed for good"

    # -- reflect

    def reflect(self, run: Run, now: datetime) -> Done:
        """Write what linked notes say together; rewrite or take back what rests on notes that are gone."""
        notes = self._linked(self._found(run.space, (*_IN_SIGHT, "merged")))  # what was said again counts again
        here = {note.id: note for note in notes}
        standing = reflect.standing(here, now)
        episodes = [note for note in standing if note.level == "episode" and reflecting.tells(note)]
        insights = [note for note in standing if note.level == "insight"]
        found: list[Insight] = []
        try:
            left = self._worded(
                run, reflect.tasks(reflect.groups(episodes), reflect.of_height(insights, 1), self._fate(here, now)), found
            )
            here |= {one.id: reflect.as_note(one, now) for one in found}
            first = reflect.present([note for note in insights if reflect.height_of(note) == 1], found, here)
            todo = reflect.tasks(reflect.higher_groups(first), reflect.of_height(insights, 2), self._fate(here, now))
            left += self._worded(run, todo, found)
        except KeyboardInterrupt:
            self._written(run, found, now)
            raise
        why = f"{counted(left, 'group')} not looked at: {run.budget.stopped or _UNREADABLE}" if left else ""
        return Done(found, self._written(run, found, now), why)

    def _fate(self, here: Mapping[NoteId, Note], now: datetime) -> Callable[[NoteId, str], str | None]:
        def fate(source: NoteId, text: str) -> str | None:
            note = here.get(source) or self._store.notes([source], vectors=False).get(source)
            if note is not None and note.state == "archived":  # what was only forgotten lives on in what was learnt from it
                _, why = self._archived(source)
                expired = note.expires_at is not None and note.expires_at <= now
                return None if why.startswith(f"{forget.REASON}:") and not expired else "deleted"
            return reflect.fate_of(note, text, here, now)

        return fate

    def _worded(self, run: Run, todo: Sequence[Task], found: list[Insight]) -> int:
        """Word tasks, adding to what was found; how many could not be looked at."""
        known = self._remembered("reflected", run.space) if run.llm is not None else {}
        refused = self._refused(run.space) if todo else []
        left = 0
        try:
            for task in todo:
                if task.group is not None and task.replaces is None and reflect.was_refused(task.group, refused):
                    continue
                answered, insight = self._word(run, task, known)
                left += not answered
                found += [insight] if insight is not None else []
        finally:
            if run.llm is not None:
                self._remember("reflected", run, known)
        return left

    def _word(self, run: Run, task: Task, known: dict[str, Any]) -> tuple[bool, Insight | None]:
        """Whether a task was looked at, and the proposal that came of it."""
        group = task.group
        if group is None:
            return True, reflect.taken_back(task)
        if run.llm is None:
            said = reflecting.worded(group.subject, group.notes, group.speaker, group.height)
        else:
            if group.basis not in known and not self._ask(run, run.llm, group, known):
                return False, None
            said = _remembered_words(known[group.basis], group)
        if said is None:
            return True, reflect.taken_back(task) if task.must else None
        return True, reflect.proposal(task, said.content, said.sources, NoteId(new_id()), kind=said.kind, judge=run.judge)

    def _ask(self, run: Run, llm: LLM, group: Group, known: dict[str, Any]) -> bool:
        """Ask a model about a group; False where no answer is to be had. A sentence that is refused is none."""
        text = run.budget.ask(llm, reflecting.insight_messages(group.subject, group.notes), reflecting.insight_schema())
        if text is None:
            return False
        try:
            said, refusal = reflecting.insight_of(text, group.notes)
        except ReplyInvalid as error:
            run.budget.doubt(str(error))
            return False
        if refusal:
            run.budget.doubt(refusal)
        known[group.basis] = [""] if said is None else [_SAID, said.content, said.kind, [note.id for note in said.sources]]
        return True

    def _refused(self, space: Space) -> list[Note]:
        """Insights of ours that somebody deleted, or whose commit somebody took back: they are not written again."""
        gone = [note for note in self._store.find(Query([space], states=("archived",))) if reflect.is_ours(note)]
        return [note for note in gone if not self._store.history(note.id)[-1].actor.startswith("analyst:")]

    def _written(self, run: Run, found: Sequence[Insight], now: datetime) -> tuple[Commit, ...]:
        if run.dry_run or not found:
            return ()
        fresh = [reflect.as_note(one, now) for one in found if one.action != "archive"]
        vectors = {note.id: self._recall.embed(pieces(passage(note)), "passage") for note in fresh}
        actor = RULES if all(one.judge == "rules" for one in found) else run.actor
        made = self._commit(run, lambda: self._insight_changes(run.space, found, now), vectors, actor)
        return (made,) if made else ()

    def _insight_changes(self, space: Space, found: Sequence[Insight], now: datetime) -> Decision:
        olds = self._store.notes([one.replaces.id for one in found if one.replaces is not None], vectors=False)
        lost = {one.id for one in found if one.replaces is not None and (one.id not in olds or olds[one.id].state != "ready")}
        lost |= {one.id for one in found if one.replaces is None and self._store.by_key(space, one.key) is not None}
        held = [one for one in found if one.id not in lost]
        others = self._store.notes([link.other(old.id) for old in olds.values() for link in old.links], vectors=False) | olds
        steps: list[Change] = [ArchiveNote(one.id, olds[one.id].revision, one.reason) for one in held if one.action == "archive"]
        changes = list(plan.with_dropped_links(steps, others))
        for one in sorted((one for one in held if one.action != "archive"), key=lambda one: one.height):
            changes += reflect.changes_of(one, olds.get(one.id), now)
        kinds = {action: sum(one.action == action for one in held) for action in ("write", "rewrite", "archive")}
        written, rewritten, gone = kinds.values()
        return (
            space,
            changes,
            f"{reflect.REASON}: {counted(written, 'insight')} written, {rewritten} rewritten, {gone} taken back",
        )

    # -- all of it

    def tend(
        self, run: Run, only: Sequence[Part], work: Mapping[Part, Callable[[Run], Done]], progress: Callable[[Step], None] | None
    ) -> Tended:  # fmt: skip
        """Do the parts in their order, until the time is up."""
        steps = []
        for part in PARTS:
            if part in only:
                steps.append(self._step(run, part, work[part]))
                if progress is not None:
                    progress(steps[-1])
        return Tended(tuple(steps), run.dry_run)

    def _step(self, run: Run, part: Part, work: Callable[[Run], Done]) -> Step:
        budget = run.budget
        began, calls, tokens_in, tokens_out = time.monotonic(), budget.calls, budget.tokens_in, budget.tokens_out
        done = Done(left="not done: the time is up") if budget.late() else work(run)
        return Step(
            part, tuple(done.proposals), done.commits, done.read, budget.calls - calls, budget.tokens_in - tokens_in,
            budget.tokens_out - tokens_out, round(time.monotonic() - began, 3), done.left,
            bool(done.left) and budget.failed,
        )  # fmt: skip

    def read(self, run: Run, read: Callable[[int | None], int], batch: int) -> Done:
        """Let the analyst read the notes that wait, in steps of a call where there is a bound."""
        waiting = len(self._store.pending(None, 2**31 - 1))
        if run.dry_run or not waiting:
            return Done(left=f"{counted(waiting, 'note')} to be read" if waiting else "")
        before, done, some = self._store.totals(), 0, 1
        while some and (run.budget.open() if run.llm is not None else not run.budget.late()):
            some = read(batch if run.budget.bounded else None)
            after = self._store.totals()
            run.budget.spent(after.calls - before.calls, after.tokens_in - before.tokens_in, after.tokens_out - before.tokens_out)
            before, done = after, done + some
        run.budget.take()  # it stands on the commits of the readings
        left = len(self._store.pending(None, 2**31 - 1))
        why = run.budget.stopped or "they could not be read, engramma list shows why"
        return Done(read=done, left=f"{counted(left, 'note')} to be read: {why}" if left else "")


def _by_rules(pair: Pair) -> Clash | None:
    newer, older = conflict.in_order(*pair.notes)
    verdict = judging.by_rules(newer, older)
    return None if verdict is None else _clash(newer, older, pair, verdict, "rules")


def _by_model(pair: Pair, verdict: Verdict | None, run: Run) -> Clash | None:
    """What a model's verdict on a pair comes to; an assistant's answer replaces nothing that somebody told."""
    newer, older = conflict.in_order(*pair.notes)
    if verdict is None or (newer.speaker == ASSISTANT and older.speaker != ASSISTANT):
        return None
    return _clash(newer, older, pair, verdict, run.judge)


def _clash(newer: Note, older: Note, pair: Pair, verdict: Verdict, judge: str) -> Clash | None:
    if verdict.relation == "supersedes":
        return Clash(newer, older, "supersedes", verdict.reason, pair.likeness, judge)
    if verdict.relation == "contradicts":
        return Clash(newer, older, "contradicts", verdict.reason, pair.likeness, judge, 0.8)
    return None


def _remembered_words(value: Sequence[Any], group: Group) -> Worded | None:
    """What a model said of a group, None where it had nothing to say or its words are not here any more."""
    if len(value) < 4:
        return None
    return Worded(value[1], value[2], tuple(note for note in group.notes if note.id in value[3]))
