"""Any sequence of verbs leaves a sound memory: its past stays as it was, its indexes agree with the store, and all of it
can be undone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import contents, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engramma import Memory, Note
from engramma.analysts.base import Analyst, Page
from engramma.analysts.rules import RuleAnalyst
from engramma.commit import RemoveNote
from engramma.errors import Conflict, EngrammaError, InvalidInput, ReplyInvalid, UnknownId
from engramma.note import LinkProposal, NeighbourChange, Reading
from engramma.testing import HashEmbedder

TEXTS = (
    "I live in Lyon.", "I live in Berlin.", "I moved from Lyon to Berlin in May.", "My favourite tea is oolong.",
    "My favourite tea is sencha.", "The heron stands in the reeds.", "The heron left the reeds yesterday.",
    "The server runs on port 14.", "The server runs on port 16.", "What tea do I like?", "I prefer tea without milk.",
    "我住在里昂。", "我住在柏林。", "我去年三月从里昂搬到柏林。", "我最喜欢的茶是乌龙。", "苍鹭站在芦苇里。",
    "服务器的端口是多少？",
)  # fmt: skip
WORDS = ("tea", "heron", "server", "Lyon", "Berlin", "茶", "苍鹭", "home")
SPEAKERS = (None, "Ana", "Ben")
SESSIONS = (None, "s1", "s2")
KEYS = (None, None, None, "k1", "k2")
SPACES = ("default", "default", "default", ("team", "blue"))
KINDS = ("related", "supports", "contradicts", "supersedes", "solves", "same_as", "part_of")
LONG_AGO, LATER = "2020-01-01", "2999-01-01"
MOMENTS = (None, "2023-03-08 10:00", "2024-05-01T12:00+08:00", "2025-06-01")
EVERYTHING = ("superseded", "archived", "merged", "expired")
ENOUGH = 1000

# What a verb may refuse to do. Whatever it refuses, nothing changes.
REFUSALS: dict[str, tuple[type[EngrammaError], ...]] = {
    "update": (Conflict, UnknownId),  # a key in use; a deleted note
    "link": (Conflict, InvalidInput, UnknownId),  # another space; itself; a deleted note
    "unlink": (UnknownId,),
    "merge": (InvalidInput, UnknownId),
    "delete": (UnknownId,),
    "revert": (Conflict,),
    "load": (Conflict,),  # a key in use
}


# What the product does not do yet; a line goes when it does.
NOT_YET = {"load of a purged note"}


class ChanceAnalyst:
    """Proposes whatever a reading may hold, by chance; where it is slow, it fails now and then."""

    name, batch = "analyst:chance", 3

    def __init__(self, slow: bool) -> None:
        self.slow, self.chance = slow, random.Random(0)

    def read(self, pages: Sequence[Page]) -> list[Reading | ReplyInvalid]:
        """One reading a page, or none."""
        return [self._reading(page) for page in pages]

    def _reading(self, page: Page) -> Reading | ReplyInvalid:
        if self.slow and self.chance.random() < 0.2:
            return ReplyInvalid("nothing of it can be used")
        shown = [near.note for near in page.neighbours]
        twin = self.chance.choice(shown).id if shown and self.chance.random() < 0.25 else None
        links = {(link.target, link.kind): link for link in self._links(shown)}
        if twin is not None:
            links.setdefault((twin, "same_as"), LinkProposal(twin, "same_as", "says exactly the same", 1.0))
        changes = tuple(self._change(note, {other.id for other in shown}) for note in self._some(shown))
        return Reading(
            self._some(WORDS), self._some(WORDS), f"Said {self.chance.randrange(4)}.", importance=self.chance.randint(1, 5),
            links=tuple(links.values()), changes=changes, duplicate_of=twin, calls=1, tokens_in=3, tokens_out=2,
        )  # fmt: skip

    def _some(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self.chance.sample(values, self.chance.randint(0, min(2, len(values)))))

    def _links(self, shown: Sequence[Note]) -> Iterator[LinkProposal]:
        for note in self._some(shown):
            inward = self.chance.random() < 0.3
            yield LinkProposal(note.id, self.chance.choice(KINDS), "by chance", self.chance.random(), inward)

    def _change(self, note: Note, shown: set[str]) -> NeighbourChange:
        context = f"{note.context}\nThen {self.chance.randrange(9)}." if self.chance.random() < 0.5 else None
        others = self._some(sorted({link.other(note.id) for link in note.links} & shown))
        strengthen = {other: self.chance.uniform(-0.2, 0.2) for other in others[:1]}
        return NeighbourChange(
            note.id, "by chance", context, self._some(WORDS), self._some(WORDS), self._some(note.tags), strengthen, others[1:]
        )


Held = Mapping[str, Mapping[str, Any]]


def held(memory: Memory, as_of: int | None = None) -> Held:
    """Every note of all spaces as values, by id, deleted ones included."""
    notes = memory.list(space=list(dict.fromkeys(SPACES)), as_of=as_of, include=("archived", "merged"))
    return {note.id: values(note) for note in notes}


def values(note: Note) -> dict[str, Any]:
    """All of a note but its use counts, with its links as tuples."""
    return plain(note) | {"links": sorted(map(astuple, note.links))}


def found(memory: Memory, query: str, **more: Any) -> dict[str, float]:
    """The notes that a search without a cut-off gives or leaves out as copies, each with its hit's score."""
    spaces = list(dict.fromkeys(SPACES))
    hits = memory.search(query, k=ENOUGH, min_relevance=0, include=EVERYTHING, space=spaces, **more)
    return {note: hit.score for hit in hits for note in (hit.note.id, *hit.why.copies)}


def shown(memory: Memory, query: str) -> list[tuple[str, float, str]]:
    """What a common search gives, in order."""
    return [(hit.note.id, hit.score, str(hit.why)) for hit in memory.search(query, space=list(dict.fromkeys(SPACES)))]


@dataclass
class Step:
    """A verb and the numbers that choose what it is done to."""

    verb: str
    numbers: tuple[int, ...]

    def one(self, place: int, values: Sequence[Any]) -> Any:
        """One of some values."""
        return values[self.numbers[place] % len(values)]


@dataclass
class Snapshot:
    """What a memory held after one of its commits."""

    seq: int
    held: Held
    found: Mapping[str, float]
    query: str


@dataclass
class Life:
    """A memory in a file, the steps that it goes through, and what it held after each."""

    folder: Path
    analyst: Analyst
    past: list[Snapshot] = field(default_factory=list)
    purged: set[str] = field(default_factory=set)
    dated: set[str] = field(default_factory=set)  # notes whose validity their author has set

    def __post_init__(self) -> None:
        self.memory = self.opened()
        self.keep(TEXTS[0])

    def opened(self, folder: Path | str | None = None) -> Memory:
        """The memory once more, or one in another folder."""
        path = Path(folder or self.folder) / "memory.db"
        return Memory.open(path, embedder=HashEmbedder(64), analyst=self.analyst, catch_up=False)

    @property
    def head(self) -> int:
        """The sequence number of the newest commit."""
        return max((commit.seq for commit in self.memory.log(limit=1, space=list(dict.fromkeys(SPACES)))), default=0)

    def keep(self, query: str) -> None:
        """Remember what the memory holds now."""
        snapshot = Snapshot(self.head, held(self.memory), found(self.memory, query), query)
        if self.past and self.past[-1].seq == snapshot.seq:
            self.past[-1] = snapshot
        else:
            self.past.append(snapshot)

    # -- the verbs

    def do(self, step: Step) -> None:
        """Take one step, and see that all is as it must be."""
        if isinstance(self.analyst, ChanceAnalyst):
            self.analyst.chance = random.Random(repr(step))
        before = self.past[-1]
        try:
            getattr(self, f"_{step.verb}")(step)
        except REFUSALS.get(step.verb, ()):
            assert self.head == before.seq
            assert held(self.memory) == before.held
        assert self.memory.check().problems == ()
        self.check_meanings()
        self.check_sessions()
        self.check_indexes(step.one(0, TEXTS))
        self.check_past(self.past[-1])
        self.keep(step.one(0, TEXTS))

    def notes(self) -> list[Note]:
        return self.memory.list(space=list(dict.fromkeys(SPACES)), include=("archived", "merged"))

    def some(self, step: Step, place: int) -> Note | None:
        """Mostly a note in sight, now and then one that is not; None where there is none."""
        notes = self.notes()
        in_sight = [note for note in notes if note.state in ("pending", "ready")]
        pool = in_sight if in_sight and step.numbers[place] % 7 else notes
        return step.one(place, pool) if pool else None

    def _add(self, step: Step) -> None:
        text = step.one(0, TEXTS)
        fields = {
            "speaker": step.one(1, SPEAKERS), "session": step.one(2, SESSIONS), "key": step.one(3, KEYS),
            "at": step.one(4, MOMENTS), "space": step.one(5, SPACES), "distinct": step.one(4, (False, False, True)),
            "expires_at": step.one(3, (None, None, LATER, LONG_AGO)),
        }  # fmt: skip
        note = self.memory.add(text, **fields)
        assert note.state != "archived"
        if fields["key"] is None and isinstance(self.analyst, RuleAnalyst):
            assert note.content == text

    def _add_many(self, step: Step) -> None:
        texts = [step.one(place, TEXTS) for place in range(4)]
        notes = self.memory.add_many([{"content": text, "session": step.one(4, SESSIONS)} for text in texts])
        assert len(notes) == len(texts)

    def _update(self, step: Step) -> None:
        choices: dict[str, Sequence[Any]] = {
            "content": TEXTS, "tags": ([], ["tea"], ["home", "茶"]), "context": ("", "About the house."), "key": KEYS,
            "importance": (1, 5), "session": SESSIONS, "speaker": SPEAKERS, "pinned": (True, False), "at": MOMENTS[1:],
            "expires_at": (None, LATER, LONG_AGO), "valid_until": (None, LATER), "keywords": ([], ["heron"]),
            "metadata": ({}, {"a": ["b"]}),
        }  # fmt: skip
        name = step.one(1, list(choices))
        if (note := self.some(step, 2)) is not None:
            wanted = step.one(0, choices[name])
            self.dated |= {note.id} if name == "valid_until" else set()
            updated = self.memory.update(note, **{name: wanted})
            assert updated.state in ("pending", "ready") or name != "content" or self.analyst.slow
            if name in ("content", "context", "speaker", "session", "key", "importance"):
                assert getattr(updated, name) == wanted

    def _link(self, step: Step) -> None:
        source, target = self.some(step, 0), self.some(step, 1)
        if source is not None and target is not None:
            link = self.memory.link(source, target, kind=step.one(2, KINDS), reason="by hand", strength=step.one(3, (0.2, 0.9)))
            assert link in self.memory.get(source).links
            assert link in self.memory.get(target).links

    def _unlink(self, step: Step) -> None:
        notes = [note for note in self.notes() if note.links] or self.notes()
        if notes:
            note = step.one(0, notes)
            other = step.one(1, note.links).other(note.id) if note.links else note.id
            self.memory.unlink(note, other)
            assert all(link.other(note.id) != other for link in self.memory.get(note).links)

    def _merge(self, step: Step) -> None:
        notes = [note for place in range(2 + step.numbers[3] % 2) if (note := self.some(step, place)) is not None]
        if notes:
            self.memory.merge(notes)
            assert {self.memory.get(note).state for note in notes[1:]} == {"merged"}

    def _forget(self, step: Step) -> None:
        self.memory.forget(dry_run=False)

    def _reflect(self, step: Step) -> None:
        self.memory.reflect(dry_run=False)

    def _tend(self, step: Step) -> None:
        self.memory.tend()

    def _delete(self, step: Step) -> None:
        if (note := self.some(step, 0)) is not None:
            self.memory.delete(note)
            gone = self.memory.get(note)
            assert (gone.state, gone.links) == ("archived", ())

    def _revert(self, step: Step) -> None:
        commits = self.memory.log(limit=None, space=list(dict.fromkeys(SPACES)))
        if commits:
            self.memory.revert(step.one(0, commits))

    def _purge(self, step: Step) -> None:
        notes = self.notes()
        if notes:
            note = step.one(0, notes)
            done = self.memory.purge(note)
            gone = {change.note for change in done.changes if isinstance(change, RemoveNote)}
            assert note.id in gone
            assert not gone & {note.id for note in self.notes()}
            self.purged |= gone

    def _catch_up(self, step: Step) -> None:
        waiting = self.memory.stats().pending
        assert self.memory.catch_up() == waiting - self.memory.stats().pending

    def _export(self, step: Step) -> None:
        """Write everything to a file, and see that another memory that takes it in holds the same."""
        self.memory.export(self.folder / "notes.jsonl")
        with TemporaryDirectory() as folder, self.opened(folder) as other:
            other.load(self.folder / "notes.jsonl")
            assert in_sight(held(other)) == in_sight(held(self.memory))
            assert other.check().problems == ()

    def _load(self, step: Step) -> None:
        path = self.folder / "notes.jsonl"
        left_out = self.purged if "load of a purged note" in NOT_YET else set()
        if path.exists() and not any(note in path.read_text("utf-8") for note in left_out):
            self.memory.load(path)
            now = held(self.memory)
            self.memory.load(path)
            assert held(self.memory) == now

    # -- what must hold

    def check_meanings(self) -> None:
        """What states and links say of notes fits together."""
        notes = {note.id: note for note in self.notes()}
        for note in notes.values():
            assert len([link for link in note.links if link.kind == "follows" and link.source == note.id]) <= 1
            assert len([link for link in note.links if link.kind == "follows" and link.target == note.id]) <= 1
            if note.state == "merged":
                assert is_held(note, notes), "a merged note that no note in sight holds"
            elif note.state != "archived" and note.id not in self.dated:
                replaced = any(link.kind == "supersedes" and link.target == note.id for link in note.links)
                assert replaced == (note.valid_until is not None), "what is superseded has ended, and nothing else has"

    def check_sessions(self) -> None:
        """Every session can be gone on with: nothing follows its last turn."""
        last = {(note.space, note.session): note for note in self.notes() if note.session and note.state != "archived"}
        for note in last.values():
            assert not [link for link in note.links if link.kind == "follows" and link.target == note.id], note.session

    def check_indexes(self, query: str) -> None:
        """What the indexes have seen one by one is what a new opener sees at once."""
        with self.opened() as fresh:
            assert found(fresh, query) == pytest.approx(found(self.memory, query), abs=2e-3)
            assert [hit[0] for hit in shown(fresh, query)] == [hit[0] for hit in shown(self.memory, query)]

    def check_own_texts(self) -> None:
        """Every note is found by its own text."""
        for note in self.notes():
            assert note.id in found(self.memory, note.content)

    def check_past(self, snapshot: Snapshot) -> None:
        """The memory as of a commit is what it was then, but for what was purged since."""
        then = held(self.memory, snapshot.seq)
        assert without(then, self.purged) == without(snapshot.held, self.purged)
        assert found(self.memory, snapshot.query, as_of=snapshot.seq).keys() - self.purged == snapshot.found.keys() - self.purged

    def check_all(self) -> None:
        """All of it, at the end."""
        self.check_own_texts()
        for snapshot in self.past:
            self.check_past(snapshot)
            for note_id, note in held(self.memory, snapshot.seq).items():
                assert values(self.memory.get(note_id, as_of=snapshot.seq)) == note

    def undo_all(self) -> None:
        """Revert every commit, newest first: the memory goes back through all that it was, to nothing."""
        snapshots = {snapshot.seq: snapshot for snapshot in self.past}
        for commit in self.memory.log(limit=None, space=list(dict.fromkeys(SPACES))):
            if commit.seq in snapshots:
                assert in_sight(held(self.memory)) == in_sight(snapshots[commit.seq].held)
            self.memory.revert(commit)
            assert self.memory.check().problems == ()
        assert in_sight(held(self.memory)) == {}
        assert self.memory.stats().links == 0
        self.check_indexes(TEXTS[0])


def is_held(note: Note, notes: Mapping[str, Note]) -> bool:
    """Whether mergers lead from a merged note to one in sight."""
    reached, seen = [note], {note.id}
    while reached:
        one = reached.pop()
        if one.state in ("pending", "ready"):
            return True
        into = {link.target for link in one.links if link.kind == "same_as" and link.source == one.id} - seen
        seen |= into
        reached += [notes[target] for target in into]
    return False


def in_sight(notes: Held) -> dict[str, Any]:
    """Notes that are not deleted, as they are whatever their number of revisions."""
    return {note_id: unnumbered(note) for note_id, note in notes.items() if note["state"] != "archived"}


def unnumbered(note: Mapping[str, Any]) -> dict[str, Any]:
    """A note without its and its links' revisions."""
    return {**note, "links": [link[:-1] for link in note["links"]], "revision": None}


def without(notes: Held, purged: set[str]) -> dict[str, Any]:
    """Notes and links but the purged; once something was purged, also without what its words may have been in."""
    told = ("context", "keywords", "tags", "dates", "valid_until") if purged else ()
    return {
        note_id: {name: value for name, value in note.items() if name not in told}
        | {"links": [link for link in note["links"] if not purged & set(link[:2])]}
        for note_id, note in notes.items()
        if note_id not in purged
    }


@contextmanager
def living(reader: str) -> Iterator[Life]:
    """A life in a folder of its own."""
    analyst: Analyst = RuleAnalyst() if reader == "rules" else ChanceAnalyst(reader == "slow")
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), analyst)
        try:
            yield life
        finally:
            life.memory.close()


OFTEN = ("add",) * 6 + ("add_many", "update", "update", "update", "link", "link", "unlink", "merge", "merge", "delete", "delete")
VERBS = (*OFTEN, "revert", "revert", "revert", "forget", "reflect", "tend", "catch_up", "export", "load")
NUMBERS = st.lists(st.integers(0, 40), min_size=6, max_size=6).map(tuple)


def steps(verbs: Sequence[str], least: int, most: int) -> st.SearchStrategy[list[Step]]:
    """Lists of steps."""
    return st.lists(st.builds(Step, st.sampled_from(verbs), NUMBERS), min_size=least, max_size=most)


def by_chance(seed: int, verbs: Sequence[str], most: int) -> list[Step]:
    """A way as a die throws it: livelier than the small ones that hypothesis begins with."""
    chance = random.Random(seed)
    return [
        Step(chance.choice(verbs), tuple(chance.randrange(41) for _ in range(6))) for _ in range(chance.randint(most // 2, most))
    ]


def live(reader: str, way: Sequence[Step]) -> None:
    """Take all steps; where nothing was purged, undo them all."""
    with living(reader) as life:
        for step in way:
            life.do(step)
        life.check_all()
        if not life.purged:
            life.undo_all()


QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example)
BASE = settings(deadline=None, database=None, derandomize=True, suppress_health_check=QUIET)
PURGING = (*VERBS, "purge", "purge")
THREE = ("rules", "fast", "slow")


@settings(BASE, max_examples=10)
@given(st.sampled_from(THREE), steps(PURGING, 4, 10))
def test_any_sequence_can_be_looked_back_on_and_undone(reader: str, way: list[Step]) -> None:
    live(reader, way)


@pytest.mark.parametrize("reader", THREE)
@pytest.mark.parametrize("seed", range(3))
def test_a_way_by_chance(reader: str, seed: int) -> None:
    live(reader, by_chance(seed, VERBS, 24))


@pytest.mark.parametrize("reader", THREE)
def test_a_way_by_chance_with_purges(reader: str) -> None:
    live(reader, by_chance(4, PURGING, 24))


@pytest.mark.long
@settings(BASE, max_examples=200)
@given(st.sampled_from(THREE), steps(PURGING, 10, 40))
def test_any_long_sequence_can_be_looked_back_on_and_undone(reader: str, way: list[Step]) -> None:
    live(reader, way)


@pytest.mark.long
@pytest.mark.parametrize("reader", THREE)
@pytest.mark.parametrize("verbs", [VERBS, PURGING], ids=["kept", "purged"])
def test_many_ways_by_chance(reader: str, verbs: Sequence[str]) -> None:
    for seed in range(100, 160):
        live(reader, by_chance(seed, verbs, 40))


class TestFound:
    """What sequences have found, one by one."""

    def test_a_session_goes_on_after_its_last_turn_has_moved(self, memory: Memory) -> None:
        one, two, three = (memory.add(text, session="s") for text in TEXTS[5:8])
        memory.update(two, session="t")
        memory.update(three, session="t")
        four = memory.add("A new turn.", session="s")
        assert [link.ends for link in memory.get(four).links if link.kind == "follows"] == [(four.id, one.id, "follows")]

    def test_a_session_goes_on_after_its_last_turn_has_come_back(self, memory: Memory) -> None:
        one = memory.add("The heron stands in the reeds.", session="s")
        memory.update(one, session="t")
        moved = memory.log(limit=1)[0]
        memory.add("A stone lies in the moss.", session="t")
        memory.revert(moved)
        assert memory.get(memory.add("Tea is hot.", session="s")).links[0].target == one.id

    def test_a_deletion_that_comes_back_takes_the_links_made_since(self, memory: Memory) -> None:
        one = memory.add("The heron stands in the reeds.", session="s")
        undone = memory.revert(memory.revert(memory.log(limit=1)[0]))
        memory.add("A stone lies in the moss.", session="s")
        memory.revert(undone)
        assert memory.get(one).state == "archived"
        assert memory.check().problems == ()
        memory.revert(memory.log(limit=1)[0])
        assert memory.get(one).links != ()

    def test_what_was_folded_into_a_note_goes_and_comes_back_with_it(self, memory: Memory) -> None:
        one, two, three = memory.add_many(["The heron stands in the reeds.", "A stone lies in the moss.", "Tea is hot."])
        memory.merge([one, two, three])
        before = in_sight(held(memory))
        memory.delete(one)
        assert {memory.get(note).state for note in (one, two, three)} == {"archived"}
        memory.revert(memory.log(limit=1)[0])
        assert in_sight(held(memory)) == before

    def test_a_merger_of_a_fact_with_what_replaced_it_is_current(self, memory: Memory) -> None:
        old, new = memory.add_many(["The heron stands in the reeds.", "The heron flew to the sea."])
        memory.link(new, old, kind="supersedes")
        memory.merge([old, new])
        assert memory.get(old).valid_until is None
        assert "The heron stands in the reeds." in contents(memory.search("heron reeds"))

    def test_a_merger_of_notes_that_are_linked_as_the_same_can_be_undone(self, memory: Memory) -> None:
        one, two = memory.add_many(["The heron stands in the reeds.", "A stone lies in the moss."])
        memory.link(two, one, kind="same_as", reason="by hand", strength=0.4)
        memory.link(one, two, kind="same_as")
        before = in_sight(held(memory))
        memory.revert(memory.merge([one, two]))
        assert in_sight(held(memory)) == before

    def test_what_a_folded_note_had_replaced_holds_again_when_it_is_unlinked(self, memory: Memory) -> None:
        old, one, two = memory.add_many(["The heron stands in the reeds.", "The heron flew to the sea.", "Tea is hot."])
        memory.link(one, old, kind="supersedes")
        memory.merge([two, one])
        memory.unlink(two, old)
        assert (memory.get(old).valid_until, memory.get(old).links) == (None, ())

    def test_what_two_notes_supersede_holds_again_when_neither_does(self, memory: Memory) -> None:
        old, one, two = memory.add_many(
            ["The heron stands in the reeds.", "The heron flew to the sea.", "The heron is in the park."]
        )
        memory.link(one, old, kind="supersedes")
        memory.link(two, old, kind="supersedes")
        memory.unlink(one, old)
        assert memory.get(old).valid_until is not None
        memory.delete(two)
        assert memory.get(old).valid_until is None

    def test_what_is_unlinked_from_the_note_it_was_folded_into_is_in_sight_again(self, memory: Memory) -> None:
        one, two = memory.add_many(["The heron stands in the reeds.", "A stone lies in the moss."])
        memory.merge([one, two])
        memory.unlink(two, one)
        assert memory.get(two).state == "ready"

    def test_a_context_given_to_a_note_that_waits_is_not_read_over(self, opened: Callable[..., Memory]) -> None:
        analyst = ChanceAnalyst(slow=True)
        memory = opened(":memory:", analyst=analyst)
        while (note := memory.add("The heron stands in the reeds.", distinct=True)).state != "pending":
            continue
        memory.update(note, context="About the lake.")
        while memory.stats().pending:
            memory.catch_up()
        assert memory.get(note).context == "About the lake."

    def test_a_restatement_is_linked_to_the_note_that_holds_it(self, opened: Callable[..., Memory]) -> None:
        class Twin(ChanceAnalyst):
            def _reading(self, page: Page) -> Reading:
                return Reading(context="Read.", duplicate_of=page.neighbours[0].note.id if page.neighbours else None)

        memory = opened(":memory:", analyst=Twin(slow=False))
        one = memory.add("The heron stands in the reeds.")
        assert memory.add("In the reeds the heron stands.").id == one.id
        merged = memory.list(where={"state": "merged"}, include=("merged",))
        assert [link.ends[1:] for note in merged for link in note.links] == [(one.id, "same_as")]

    def test_a_link_strengthened_from_both_ends_is_changed_once(self, opened: Callable[..., Memory]) -> None:
        class Both(ChanceAnalyst):
            def _reading(self, page: Page) -> Reading:
                ids = [near.note.id for near in page.neighbours]
                pairs = zip(ids, ids[::-1], strict=True) if len(ids) == 2 else ()
                changes = tuple(NeighbourChange(one, "near", strengthen={two: 0.1}) for one, two in pairs)
                return Reading(context="Read.", changes=changes)

        memory = opened(":memory:", analyst=Both(slow=False))
        one, two = memory.add("The heron stands in the reeds."), memory.add("A stone lies in the moss.")
        memory.link(one, two, strength=0.5)
        memory.add("Tea is hot.")
        assert [link.strength for link in memory.get(one).links] == [0.6]
        memory.revert(memory.log(limit=1)[0])
        assert [link.strength for link in memory.get(one).links] == [0.5]
