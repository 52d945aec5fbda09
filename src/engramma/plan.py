"""From a draft and its reading to a commit's changes. Pure: nothing here reads or writes a store.

Each revision names the revision that it was decided on, so that a note which changed meanwhile is
planned again and never overwritten blindly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engramma.analysts.rules import describe
from engramma.commit import ArchiveNote, Change, DropLink, PutLink, PutNote, ReviseNote
from engramma.errors import InvalidInput
from engramma.note import Draft, Link, LinkProposal, NeighbourChange, Note, NoteId, Reading, State, unique


def new_note(note_id: NoteId, draft: Draft, reading: Reading, state: State, now: datetime) -> Note:
    """The note of a draft, described by a reading. What the author gave comes first and stays."""
    given = {
        name: value
        for name in ("keywords", "tags", "category", "importance", "distinct", "priority")
        if (value := getattr(draft, name)) not in (None, (), False)
    }
    return Note(
        id=note_id, space=draft.space, content=draft.content, at=draft.at, created_at=now,
        session=draft.session, speaker=draft.speaker, state=state, pinned=draft.pinned, expires_at=draft.expires_at,
        metadata=dict(draft.metadata), key=draft.key,
        given={name: list(value) if isinstance(value, tuple) else value for name, value in given.items()},
        **described(given, reading),
    )  # fmt: skip


def described(given: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The descriptive fields of a note: the author's own, then the reading's."""
    return {
        "keywords": unique(tuple(given.get("keywords", ())), reading.keywords),
        "tags": unique(tuple(given.get("tags", ())), reading.tags),
        "context": given.get("context", reading.context),
        "category": given.get("category") or reading.category,
        "importance": given.get("importance") or reading.importance or 3,
        "dates": reading.dates,
    }


def draft_of(note: Note) -> Draft:
    """The draft that a note was made from, for reading it again."""
    given = note.given
    return Draft(
        content=note.content, at=note.at, space=note.space, speaker=note.speaker, session=note.session,
        tags=tuple(given.get("tags", ())), keywords=tuple(given.get("keywords", ())), category=given.get("category"),
        importance=given.get("importance"), pinned=note.pinned, expires_at=note.expires_at, metadata=note.metadata,
        key=note.key, distinct=bool(given.get("distinct")), priority=given.get("priority"),
    )  # fmt: skip


IN_SIGHT = ("pending", "ready")


@dataclass(slots=True)
class _Revision:
    after: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def plan_add(note: Note, reading: Reading, shown: Mapping[NoteId, Note], previous: NoteId | None) -> tuple[Change, ...]:
    """All that a new note, read together with its neighbours, changes."""
    links, revisions = _consequences(note, reading, shown)
    note = replace(note, state="merged") if merges(note, reading, shown) else note
    note = replace(note, **revisions.pop(note.id, _Revision()).after)
    follows = [] if previous is None else [PutLink(follow(note.id, previous))]
    return (PutNote(note, "added"), *follows, *links, *_revised(revisions, shown))


def plan_reading(note: Note, reading: Reading, shown: Mapping[NoteId, Note]) -> tuple[Change, ...]:
    """All that reading a stored note changes: the note itself, its links, its neighbours."""
    links, revisions = _consequences(note, reading, shown)
    own = revisions.pop(note.id, _Revision())
    state: State = "merged" if merges(note, reading, shown) else "ready"
    after = described(note.given, reading) | own.after | {"state": state, "error": None}
    changed = {name: value for name, value in after.items() if getattr(note, name) != value}
    read = [ReviseNote(note.id, note.revision, changed, "read")] if changed else []
    passed_on = _passed_on([note], shown[reading.duplicate_of], "merged") if state == "merged" and reading.duplicate_of else []
    return (*read, *links, *passed_on, *_revised(revisions, shown))


def follow(note: NoteId, previous: NoteId) -> Link:
    """The link from a turn to the one before it."""
    return Link(note, previous, "follows", "next in the session", 1.0)


def merges(note: Note, reading: Reading, shown: Mapping[NoteId, Note]) -> bool:
    """Whether a note is folded into the one that says the same already; never where its author said it is distinct."""
    if note.given.get("distinct"):
        return False
    twin = shown.get(reading.duplicate_of) if reading.duplicate_of else None
    return twin is not None and twin.state in IN_SIGHT and _lasts(twin, note)


def _lasts(twin: Note, note: Note) -> bool:
    """Whether a note stays as long as one that would be folded into it: it is nobody's to delete alone, nor expires sooner."""
    sooner = twin.expires_at is not None and (note.expires_at is None or note.expires_at > twin.expires_at)
    return not sooner and not twin.given.get("distinct")


def _consequences(note: Note, reading: Reading, shown: Mapping[NoteId, Note]) -> tuple[list[Change], dict[NoteId, _Revision]]:
    """Link changes, and revisions by note, of one reading."""
    barred = {link.target for link in reading.links if link.target in shown and _sums_up(link, note, shown[link.target])}
    proposals = [link for link in reading.links if link.target in shown and link.target not in barred]
    changes = [change for change in reading.changes if change.note in shown and change.note not in barred]
    if reading.duplicate_of and merges(note, reading, shown):  # a restatement gets one link, to the note that stays current
        same = [link for link in proposals if (link.target, link.kind, link.inward) == (reading.duplicate_of, "same_as", False)]
        proposals = same or [LinkProposal(shown[reading.duplicate_of].id, "same_as", "says exactly the same", 1.0)]
        changes = [change for change in changes if change.note == reading.duplicate_of]
    revisions: dict[NoteId, _Revision] = {}
    links: list[Change] = []
    for proposal in proposals:
        link = _link(note.id, proposal)
        links.append(PutLink(link))
        if link.kind == "supersedes":
            _end_validity(link, note, shown, revisions, proposal.reason)
    for change in changes:
        seen = {_ends(step) for step in links}
        links += [step for step in _link_changes(shown[change.note], change) if _ends(step) not in seen]
        _evolve(shown[change.note], change, revisions)
    return links, revisions


def _ends(change: Change) -> tuple[NoteId, NoteId, str] | None:
    """What names the link that a change is about, if it is about one."""
    if isinstance(change, DropLink):
        return change.source, change.target, change.kind
    return change.link.ends if isinstance(change, PutLink) else None


def superseded(note: Note, changes: Iterable[Change]) -> bool:
    """Whether a newer note supersedes a note once some changes are made."""
    newer = {link.source for link in note.links if link.kind == "supersedes" and link.target == note.id}
    for change in changes:
        if isinstance(change, PutLink) and (change.link.target, change.link.kind) == (note.id, "supersedes"):
            newer.add(change.link.source)
        elif isinstance(change, DropLink) and (change.target, change.kind) == (note.id, "supersedes"):
            newer.discard(change.source)
    return bool(newer)


def _sums_up(link: LinkProposal, note: Note, other: Note) -> bool:
    """Whether a fact would be replaced by a summary, which repeats what once was, or a summary of much by one fact."""
    return link.kind in ("supersedes", "contradicts") and "summary" in (note.category, other.category)


def _link(note: NoteId, proposal: LinkProposal) -> Link:
    ends = (proposal.target, note) if proposal.inward else (note, proposal.target)
    return Link(*ends, proposal.kind, proposal.reason, min(1.0, max(0.0, proposal.strength)))


def _end_validity(link: Link, note: Note, shown: Mapping[NoteId, Note], revisions: dict[NoteId, _Revision], reason: str) -> None:
    notes = {**shown, note.id: note}
    newer, older = notes[link.source], notes[link.target]
    revision = revisions.setdefault(older.id, _Revision())
    revision.after["valid_until"] = max(newer.at, older.at)
    revision.reasons.append(reason)


def _link_changes(note: Note, change: NeighbourChange) -> list[Change]:
    changes: list[Change] = []
    for link in note.links:
        other = link.other(note.id)
        if other in change.prune and link.kind not in ("follows", "supersedes"):
            changes.append(DropLink(*link.ends, change.reason))
        elif other in change.strengthen and link.kind != "follows":
            strength = round(min(1.0, max(0.0, link.strength + change.strengthen[other])), 3)
            changes.append(PutLink(replace(link, strength=strength), change.reason))
    return changes


def _evolve(note: Note, change: NeighbourChange, revisions: dict[NoteId, _Revision]) -> None:
    kept = tuple(tag for tag in note.tags if tag not in change.drop_tags or tag in note.given.get("tags", ()))
    wanted = {
        "context": note.context if change.context is None else change.context,
        "keywords": unique(note.keywords, change.add_keywords),
        "tags": unique(kept, change.add_tags),
    }
    after = {name: value for name, value in wanted.items() if getattr(note, name) != value}
    if after:
        revision = revisions.setdefault(note.id, _Revision())
        revision.after |= after
        revision.reasons.append(change.reason)


def _revised(revisions: Mapping[NoteId, _Revision], shown: Mapping[NoteId, Note]) -> list[Change]:
    return [
        ReviseNote(note_id, shown[note_id].revision, revision.after, "; ".join(dict.fromkeys(revision.reasons)))
        for note_id, revision in revisions.items()
    ]


def plan_archive(note: Note, others: Mapping[NoteId, Note], reason: str) -> tuple[Change, ...]:
    """A note leaves sight, and what was folded into it: their links go, the notes before and after
    them in the session are joined, and what they had superseded holds again. What is ``distinct`` was
    folded by hand and is nobody's to delete but its own author's: it comes back."""
    apart = [one for one in folded(note, others) if one.given.get("distinct")]
    gone = [note, *(one for one in folded(note, others) if one not in apart)]
    ids = {one.id for one in gone}
    ends = dict.fromkeys(link.ends for one in gone for link in one.links)
    changes: list[Change] = [DropLink(*one, reason) for one in ends]
    changes += [ArchiveNote(one.id, one.revision, reason) for one in gone]
    freed: list[Change] = [ReviseNote(one.id, one.revision, {"state": "ready"}, reason) for one in apart]
    freed += [change for one in gone for change in released(one, others, reason, ids)]
    return _joined((*changes, *_rejoined(gone), *freed))


def folded(note: Note, others: Mapping[NoteId, Note]) -> list[Note]:
    """The notes, among some, that were merged into a note."""
    ids = [link.source for link in note.links if link.kind == "same_as" and link.target == note.id]
    return [others[one] for one in ids if one in others and others[one].state == "merged"]


def released(
    note: Note, others: Mapping[NoteId, Note], reason: str, gone: Collection[NoteId] | None = None
) -> list[Change]:  # fmt: skip
    """What becomes of the notes that a vanishing note supersedes: the note that supersedes it takes
    them over; without one they hold again. Those that are ``gone`` too supersede nothing more: the
    notes folded into it, if not given."""
    left_out = {note.id, *([one.id for one in folded(note, others)] if gone is None else gone)}
    heirs = [link for link in note.links if link.kind == "supersedes" and link.source not in left_out]
    changes: list[Change] = []
    for link in note.links:
        old = others.get(link.target)
        if link.kind != "supersedes" or old is None or old.id in left_out:
            continue
        taken = [PutLink(replace(heir, target=old.id, revision=1), reason) for heir in heirs if heir.source != old.id]
        changes += taken
        ends = [DropLink(*one.ends, reason) for one in old.links if one.source in left_out]
        if not superseded(old, [*ends, *taken]) and old.valid_until is not None:
            changes.append(ReviseNote(old.id, old.revision, {"valid_until": None}, reason))
    return changes


def _rejoined(gone: Sequence[Note]) -> list[Change]:
    """New links between the turns on either side of those that are gone."""
    before = {link.source: link.target for note in gone for link in note.links if link.kind == "follows"}
    ids = {note.id for note in gone}
    joined: list[Change] = []
    for following in before.keys() - ids:
        previous: NoteId | None = before[following]
        for _ in ids:
            previous = before.get(previous) if previous in ids else previous
        if previous and previous not in ids:
            joined.append(PutLink(follow(following, previous)))
    return joined


def plan_update(
    note: Note, after: Mapping[str, Any], reading: Reading | None, others: Mapping[NoteId, Note], reason: str
) -> tuple[Change, ...]:
    """The author changes a note: what is given is set as given; a new content is described anew, and
    what its old content had judged of other notes is taken back, to be judged again."""
    given = {name: value for name, value in note.given.items() if name != "context" or "content" not in after}
    waits = "pending" in (note.state, after.get("state"))  # then a reading is to come, and leaves alone what is given
    for name in ("keywords", "tags", "category", "importance", *(["context"] if waits else [])):
        if name in after:
            given[name] = list(after[name]) if isinstance(after[name], tuple) else after[name]
    wanted: dict[str, Any] = dict(after)
    if reading is not None:
        again = {"state": "ready"} if note.state == "merged" else {}  # it says something else now
        wanted = described(given, reading) | again | wanted
    if given != dict(note.given):
        wanted["given"] = given
    changed = {name: value for name, value in wanted.items() if getattr(note, name) != value}
    revise = [ReviseNote(note.id, note.revision, changed, reason)] if changed else []
    moved = _out_of_session(note, reason) if "session" in changed else []
    if reading is None:
        return (*revise, *moved)
    judged = [link for link in note.links if link.source == note.id and link.kind in _JUDGED]
    return (*revise, *moved, *plan_unlink(judged, others, reason))


def _out_of_session(note: Note, reason: str) -> list[Change]:
    """A turn leaves its session: nothing follows it there any more."""
    return [*(DropLink(*link.ends, reason) for link in note.links if link.kind == "follows"), *_rejoined([note])]


def plan_rewrite(
    note: Note, after: Mapping[str, Any], reading: Reading | None, shown: Mapping[NoteId, Note], others: Mapping[NoteId, Note],
    reason: str,
) -> tuple[Change, ...]:  # fmt: skip
    """The author gives a note a new content: it is described, linked and lets its neighbours evolve anew.

    Without a reading it is described by the rules and waits to be read.
    """
    revised = replace(note, **after)
    if reading is None:
        return plan_update(note, {**after, "state": "pending"}, describe(draft_of(revised)), others, reason)
    changes = plan_update(note, after, reading, others, reason)
    links, revisions = _consequences(revised, reading, shown)
    return _joined((*changes, *links, *_revised(revisions, {**shown, note.id: note})))


def _joined(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Changes with one revision a note: a later one for the same note is added to the first. A link that
    is dropped and put again is put."""
    put = {_ends(change) for change in changes if isinstance(change, PutLink)}
    changes = [change for change in changes if not isinstance(change, DropLink) or _ends(change) not in put]
    joined: list[Change] = []
    first: dict[NoteId, int] = {}
    for change in changes:
        if isinstance(change, ReviseNote) and change.note in first:
            earlier = joined[first[change.note]]
            assert isinstance(earlier, ReviseNote)
            joined[first[change.note]] = replace(earlier, after={**earlier.after, **change.after})
            continue
        if isinstance(change, ReviseNote):
            first[change.note] = len(joined)
        joined.append(change)
    return tuple(joined)


def judged(note: Note) -> list[NoteId]:
    """The notes of which a note's content says something: what it replaces, disputes, solves, repeats."""
    return [link.target for link in note.links if link.source == note.id and link.kind in _JUDGED]


_JUDGED = ("supersedes", "updates", "contradicts", "solves", "same_as")


def plan_link(link: Link, shown: Mapping[NoteId, Note]) -> tuple[Change, ...]:
    """A link made by hand; ``supersedes`` also ends the older note's validity."""
    if link.kind != "supersedes":
        return (PutLink(link, link.reason),)
    revisions: dict[NoteId, _Revision] = {}
    _end_validity(link, shown[link.source], shown, revisions, link.reason or "superseded by hand")
    return (PutLink(link, link.reason), *_revised(revisions, shown))


def plan_unlink(links: Sequence[Link], shown: Mapping[NoteId, Note], reason: str) -> tuple[Change, ...]:
    """Links removed by hand; what a removed ``supersedes`` had ended holds again, and what a removed
    ``same_as`` had folded is in sight again."""
    changes: list[Change] = [DropLink(*link.ends, reason) for link in links]
    for link in links:
        older, twin = shown[link.target], shown.get(link.source)
        if link.kind == "supersedes" and older.valid_until is not None and not superseded(older, changes):
            changes.append(ReviseNote(older.id, older.revision, {"valid_until": None}, reason))
        if link.kind == "same_as" and twin is not None and twin.state == "merged" and not _is_folded(twin, changes):
            changes.append(ReviseNote(twin.id, twin.revision, {"state": "ready"}, reason))
    return _joined(changes)


def _is_folded(note: Note, changes: Sequence[Change]) -> bool:
    """Whether a merged note still has a note that it was folded into, once some links are dropped."""
    gone = {(change.source, change.target, change.kind) for change in changes if isinstance(change, DropLink)}
    return any(link.kind == "same_as" and link.source == note.id and link.ends not in gone for link in note.links)


def plan_merge(notes: Sequence[Note], reason: str) -> tuple[Change, ...]:
    """Fold notes into the first: it takes on their keywords, tags and dates, and their links."""
    if len({note.id for note in notes}) < max(2, len(notes)) or len({str(note.space) for note in notes}) > 1:
        raise InvalidInput("merge takes two or more different notes of one space")
    for note in notes:
        if note.state not in IN_SIGHT:
            raise InvalidInput(f"note {note.id!r} is {note.state} already: merge the note that holds it now")
    first, *rest = notes
    ids = {note.id for note in notes}
    wanted = {
        "keywords": unique(*(note.keywords for note in notes)),
        "tags": unique(*(note.tags for note in notes)),
        "dates": tuple(dict.fromkeys(said for note in notes for said in note.dates)),
        "importance": max(note.importance for note in notes),
    }
    after = {name: value for name, value in wanted.items() if getattr(first, name) != value}
    inner = {x.ends for note in notes for x in note.links if x.kind in _JUDGED and {x.source, x.target} <= ids}
    inner -= {(note.id, first.id, "same_as") for note in rest}
    changes: list[Change] = [DropLink(*ends, reason) for ends in inner]
    ended = {note.id: {"valid_until": None} for note in notes if superseded(note, ()) and not superseded(note, changes)}
    after |= ended.get(first.id, {})
    changes += [ReviseNote(first.id, first.revision, after, reason)] if after else []
    changes += _passed_on(rest, first, reason)
    for note in rest:
        changes += [
            ReviseNote(note.id, note.revision, {"state": "merged", **ended.get(note.id, {})}, reason),
            PutLink(Link(note.id, first.id, "same_as", reason, 1.0)),
        ]
    return tuple(changes)


def _passed_on(rest: Sequence[Note], first: Note, reason: str) -> list[Change]:
    """The links of notes that are folded into one, for that one to have as well, but for what
    supersedes them: it stays current. What they supersede, it supersedes in their place."""
    ids, taken = {first.id, *(note.id for note in rest)}, {link.ends for link in first.links}
    changes: list[Change] = []
    for note in rest:
        for link in note.links:
            outward, replaces = link.source == note.id, link.kind == "supersedes"
            if link.other(note.id) in ids or link.kind == "follows" or (replaces and not outward):
                continue
            changes += [DropLink(*link.ends, reason)] if replaces else []
            moved = replace(link, source=first.id) if outward else replace(link, target=first.id)
            if moved.ends not in taken:
                taken.add(moved.ends)
                changes.append(PutLink(replace(moved, revision=1), reason))
    return changes


def with_dropped_links(changes: Sequence[Change], notes: Mapping[NoteId, Note]) -> tuple[Change, ...]:
    """Changes in which a note that is archived loses all its links first, also those that came later,
    and in which what it had superseded, folded or parted finds its place again, as far as it is among ``notes``."""
    changes = [_archiving(change) for change in changes]
    gone = [notes[change.note] for change in changes if isinstance(change, ArchiveNote)]
    ids = {note.id for note in gone}
    moved = [(notes[change.note], change) for change in changes if isinstance(change, ReviseNote) and "session" in change.after]
    turns = [(link, change) for note, change in moved for link in note.links if link.kind == "follows"]
    full: list[Change] = [DropLink(*link.ends, change.reason) for link, change in turns]
    freed: list[Change] = []
    for change in changes:
        if isinstance(change, ArchiveNote):
            note = notes[change.note]
            dropped = {(step.source, step.target, step.kind) for step in full if isinstance(step, DropLink)}
            full += [DropLink(*link.ends, change.reason) for link in note.links if link.ends not in dropped]
            stayed = [link for link in note.links if link.source == note.id or link.ends not in dropped]
            freed += released(replace(note, links=tuple(stayed)), notes, change.reason, ids)
            freed += _unfolded(note, notes, change.reason, ids)
        full.append(change)
    full += [*_rejoined([*gone, *(note for note, _ in moved)]), *(step for step in freed if isinstance(step, PutLink))]
    steps = [_without_validity(change, notes, full) for change in full]
    return (*steps, *_at_last([step for step in freed if isinstance(step, ReviseNote)], steps, notes))


def _archiving(change: Change) -> Change:
    """The archiving that giving a note back the state it had when it was deleted comes to."""
    if isinstance(change, ReviseNote) and change.after == {"state": "archived"}:
        return ArchiveNote(change.note, change.expects, change.reason)
    return change


def _unfolded(note: Note, notes: Mapping[NoteId, Note], reason: str, gone: Collection[NoteId]) -> list[Change]:
    """What becomes of the notes folded into one that vanishes: the first is in sight again and holds the others."""
    left = [one for one in folded(note, notes) if one.id not in gone and note.state in IN_SIGHT]
    if not left:
        return []
    first, *rest = left
    held = [PutLink(Link(one.id, first.id, "same_as", reason, 1.0), reason) for one in rest]
    return [ReviseNote(first.id, first.revision, {"state": "ready"}, reason), *held]


def _without_validity(change: Change, notes: Mapping[NoteId, Note], changes: Sequence[Change]) -> Change:
    """A revision that leaves alone the validity of a note which a newer one supersedes still."""
    if not isinstance(change, ReviseNote) or change.after.get("valid_until", change) is not None:
        return change
    if not superseded(notes[change.note], changes):
        return change
    return replace(change, after={name: value for name, value in change.after.items() if name != "valid_until"})


def _at_last(revisions: Sequence[ReviseNote], steps: Sequence[Change], notes: Mapping[NoteId, Note]) -> list[Change]:
    """Revisions to be made after some steps, but for what those have settled: each expects what they leave."""
    made = [step for step in steps if isinstance(step, ReviseNote | ArchiveNote)]
    last: list[Change] = []
    for change in _joined(revisions):
        assert isinstance(change, ReviseNote)
        settled = {name for step in made if isinstance(step, ReviseNote) and step.note == change.note for name in step.after}
        after = {name: value for name, value in change.after.items() if name not in settled}
        earlier = sum(step.note == change.note for step in made)
        last += [replace(change, expects=change.expects + earlier, after=after)] if after else []
    return last
