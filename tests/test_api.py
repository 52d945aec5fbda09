"""The public API as its description gives it: every verb, every argument, nothing of the inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import contents, plain, reply

import engramma
from engramma import LLM, Completion, Embedder, EngrammaError, InvalidInput, Memory, UnknownId
from engramma.testing import HashEmbedder, ScriptedLLM

LYON = "I live in Lyon, near the river."
BERLIN = "I moved from Lyon to Berlin in May."
KETTLE = "The kettle in the office leaks."
VIOLIN = "Violins are tuned in fifths."
HERON = "A heron stands in the lake."
ZONE = timezone(timedelta(hours=5, minutes=45))
READ = {"keywords": ["kettle"], "tags": ["home"], "context": "Read by a model."}


@pytest.fixture
def three(memory) -> tuple[Any, ...]:
    """Three notes without links."""
    return tuple(memory.add(text, at=f"2026-06-0{day}T10:00:00+02:00") for day, text in enumerate((KETTLE, VIOLIN, HERON), 1))


# -- open


def test_open_makes_a_file_and_finds_it_again(tmp_path):
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder="hash:64") as memory:
        note = memory.add(KETTLE)
    assert path.is_file()
    with Memory.open(str(path), embedder="hash:64") as memory:
        assert memory.get(note.id) == note


def test_the_first_example():
    with Memory.open(":memory:") as memory:
        memory.add(BERLIN, speaker="Ana")
        hits = memory.search("Where does Ana live?")
        assert contents(hits) == [BERLIN]


def test_space_of_open_is_where_notes_go(opened):
    memory = opened(space="alice")
    assert memory.add(KETTLE).space == "alice"
    assert memory.add(VIOLIN, space=("team", "support")).space == ("team", "support")
    assert opened().search("kettle") == []


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder of its own to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_from_the_file(workplace):
    (workplace / "engramma.toml").write_text('db = "file.db"\nspace = ["team", "a"]\nembedder = "hash:32"\n', "utf-8")
    with Memory.open() as memory:
        assert memory.add(KETTLE).space == ("team", "a")
        assert memory.stats().embedder == "hash:32"
    assert (workplace / "file.db").is_file()


def test_settings_from_variables_before_the_file(workplace, monkeypatch):
    (workplace / "engramma.toml").write_text('db = "file.db"\nspace = "file"\nembedder = "hash:32"\n', "utf-8")
    monkeypatch.setenv("ENGRAMMA_DB", "variable.db")
    monkeypatch.setenv("ENGRAMMA_SPACE", "variable")
    monkeypatch.setenv("ENGRAMMA_EMBEDDER", "hash:48")
    with Memory.open() as memory:
        assert memory.add(KETTLE).space == "variable"
        assert memory.stats().embedder == "hash:48"
    assert (workplace / "variable.db").is_file()
    assert not (workplace / "file.db").exists()


def test_settings_from_arguments_before_all(workplace, monkeypatch):
    (workplace / "engramma.toml").write_text('db = "file.db"\nspace = "file"\nllm = "nonsense:x"\n', "utf-8")
    monkeypatch.setenv("ENGRAMMA_DB", "variable.db")
    monkeypatch.setenv("ENGRAMMA_SPACE", "variable")
    monkeypatch.setenv("ENGRAMMA_EMBEDDER", "nonsense")
    llm = ScriptedLLM({"notes": [{"label": "d1", **READ}]})
    with Memory.open("argument.db", llm=llm, embedder=HashEmbedder(64), space="argument") as memory:
        note = memory.add(KETTLE)
        assert (note.space, note.context) == ("argument", READ["context"])
    assert [path.name for path in workplace.glob("*.db")] == ["argument.db"]


@pytest.mark.parametrize("name", ["llm", "embedder"])
@pytest.mark.parametrize("bad", ["nonsense", "openai:", 5, object()])
def test_setting_that_means_nothing(name, bad):
    with pytest.raises(ValueError, match=name) as raised:
        Memory.open(":memory:", **{name: bad})
    assert isinstance(raised.value, EngrammaError)


@pytest.mark.parametrize("bad", ["hash:many", "hash:0", "hash:-5"])
def test_hash_embedder_of_no_length(bad):
    with pytest.raises(EngrammaError, match="embedder"):
        Memory.open(":memory:", embedder=bad)


# -- models as objects


class CountingEmbedder:
    """An embedder of somebody else: no base class, vectors of any length."""

    name = "counting"
    dimensions = 26

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def embed(self, texts: Sequence[str], *, kind: str) -> np.ndarray:
        self.kinds.append(kind)
        return np.array([[text.lower().count(chr(97 + n)) for n in range(26)] for text in texts], np.float32)


def test_embedder_object(opened):
    embedder = CountingEmbedder()
    assert isinstance(embedder, Embedder)
    memory = opened(embedder=embedder)
    note = memory.add(KETTLE)
    assert np.linalg.norm(memory.get(note).vector) == pytest.approx(1)
    assert memory.search(KETTLE)[0].note.id == note.id
    assert {"query", "passage"} <= set(embedder.kinds)
    assert memory.stats().embedder == "counting"


class Answering:
    """A chat model of somebody else."""

    name = "answering"

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def complete(self, messages: Any, *, schema: dict[str, Any] | None = None) -> Completion:
        assert schema is None or isinstance(schema, dict)
        self.messages.append(messages)
        return Completion(json.dumps({"notes": [{"label": "d1", **READ}]}), 30, 4)


def test_llm_object(opened):
    llm = Answering()
    assert isinstance(llm, LLM)
    memory = opened(llm=llm)
    note = memory.add(KETTLE)
    assert (note.keywords, note.tags, note.context, note.state) == (("kettle",), ("home",), "Read by a model.", "ready")
    (spent,) = [commit for commit in memory.log() if commit.tokens.total]
    assert (spent.actor, spent.tokens.total, memory.stats().tokens) == ("analyst:answering", 34, 34)
    assert any(message["role"] == "user" and KETTLE in message["content"] for message in llm.messages[0])


class LangChainLike:
    """A chat model with LangChain's one verb."""

    model_name = "claude"

    def __init__(self, content: Any, usage: Any = None) -> None:
        self.content, self.usage, self.seen = content, usage, []

    def invoke(self, messages: Any) -> Any:
        self.seen.append(messages)
        return SimpleNamespace(content=self.content, usage_metadata=self.usage)


ANSWER = json.dumps({"notes": [{"label": "d1", **READ}]})


@pytest.mark.parametrize("content", [ANSWER, [{"type": "text", "text": ANSWER}], [ANSWER[:9], ANSWER[9:]]])
@pytest.mark.parametrize("usage", [None, {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}])
def test_langchain_chat_model(opened, content, usage):
    model = LangChainLike(content, usage)
    memory = opened(":memory:", llm=model)
    note = memory.add(KETTLE)
    assert (note.context, note.state) == ("Read by a model.", "ready")
    assert [role for role, _ in model.seen[0]] == ["system", "user"]
    assert memory.stats().tokens == (25 if usage else 0)
    assert "claude" in memory.stats().analyst


class LangChainEmbeddings:
    """Embeddings with LangChain's two verbs, which differ."""

    model = "bge"

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.documents: list[str] = []

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return [float(value) for value in HashEmbedder(32).embed([text], kind="query")[0]]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        assert type(texts) is list
        self.documents += texts
        return HashEmbedder(32).embed(texts, kind="passage").tolist()


def test_langchain_embeddings(opened):
    embeddings = LangChainEmbeddings()
    memory = opened(embedder=embeddings)
    memory.add(KETTLE)
    assert contents(memory.search("office kettle")) == [KETTLE]
    assert any(KETTLE in text for text in embeddings.documents)
    assert "office kettle" in embeddings.queries
    assert "bge" in memory.stats().embedder


# -- add


def test_add_keeps_every_argument(memory):
    at = datetime(2026, 6, 1, 9, 30, tzinfo=ZONE)
    note = memory.add(
        KETTLE, speaker="Ana", session="2026-06-01", at=at, space="alice", tags=["mine"], keywords=["samovar"],
        category="complaint", importance=5, metadata={"team": "web", "deep": {"n": [1, None]}}, key="k1",
    )  # fmt: skip
    assert memory.get(note.id) == note
    assert (note.content, note.speaker, note.session, note.space) == (KETTLE, "Ana", "2026-06-01", "alice")
    assert (note.at, note.category, note.importance, note.key) == (at, "complaint", 5, "k1")
    assert (note.tags[0], note.keywords[0]) == ("mine", "samovar")
    assert note.metadata == {"team": "web", "deep": {"n": [1, None]}}
    assert (note.level, note.state, note.revision, note.pinned) == ("episode", "ready", 1, False)
    assert note.valid_until is None
    assert len(note.id) == 26
    assert memory.get(note).vector is not None


def test_add_with_nothing_but_text(memory):
    before = datetime.now(UTC)
    note = memory.add("  " + KETTLE + "\n")
    assert note.content == "  " + KETTLE + "\n"
    assert before - timedelta(seconds=1) <= note.at <= datetime.now(UTC)
    assert note.at.tzinfo is not None
    assert 1 <= note.importance <= 5
    assert note.keywords
    assert note.context
    assert (note.speaker, note.session, note.key, dict(note.metadata)) == (None, None, None, {})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-06-01T09:30:00+05:45", "2026-06-01T09:30:00+05:45"),
        ("2026-06-01T09:30:00Z", "2026-06-01T09:30:00+00:00"),
        ("2026-06-01T09:30:00.123456-11:00", "2026-06-01T09:30:00.123456-11:00"),
        (datetime(2026, 6, 1, 9, 30, tzinfo=timezone(timedelta(hours=14))), "2026-06-01T09:30:00+14:00"),
        (datetime(2026, 6, 1, 9, 30), "2026-06-01T09:30:00+00:00"),
        (date(2026, 6, 1), "2026-06-01T00:00:00+00:00"),
        ("2026-06-01", "2026-06-01T00:00:00+00:00"),
    ],
)
def test_at_keeps_its_offset(opened, given, kept):
    note = opened().add(KETTLE, at=given)
    assert note.at.isoformat() == kept
    assert opened().get(note).at.isoformat() == kept


def test_two_times(memory):
    note = memory.add("I went there yesterday.", at="2020-02-29T23:00:00-11:00")
    learnt = memory.log()[0].at
    assert abs(datetime.now(UTC) - learnt) < timedelta(minutes=1)
    assert abs(note.created_at - learnt) < timedelta(minutes=1)
    assert note.at.year == 2020
    assert [(said.text, said.start, said.end) for said in note.dates] == [("yesterday", date(2020, 2, 28), date(2020, 2, 28))]
    assert contents(memory.list(until="2020-12-31")) == [note.content]  # when it happened
    with pytest.raises(KeyError):
        memory.get(note, as_of="2020-12-31")  # when we learnt it


@pytest.mark.parametrize("empty", ["", " ", "\n\t", "\u3000"])
def test_empty_text_is_a_value_error(memory, empty):
    with pytest.raises(ValueError, match="content"):
        memory.add(empty)
    assert memory.log() == []


def test_key_makes_add_idempotent(memory):
    first = memory.add(KETTLE, key="k1")
    again = memory.add("Something else altogether.", key="k1")
    assert again == first
    assert len(memory.list()) == len(memory.log()) == 1
    assert memory.add(VIOLIN, key="k1", space="alice").id != first.id  # a key belongs to its space


def test_add_many_takes_texts_dicts_and_notes(opened):
    other = opened("other.db")
    given = other.add(HERON, speaker="Ben", at="2026-06-01T09:30:00+05:45", tags=["birds"], metadata={"n": 1}, key="h")
    memory = opened()
    seen: list[tuple[int, int]] = []
    shaped = SimpleNamespace(content="Reed grows by the lake.", speaker="Cem")
    notes = memory.add_many(
        [KETTLE, {"content": VIOLIN, "speaker": "Ana", "importance": 5}, given, shaped],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert contents(notes) == [KETTLE, VIOLIN, HERON, "Reed grows by the lake."]
    assert [note.speaker for note in notes] == [None, "Ana", "Ben", "Cem"]
    assert notes[1].importance == 5
    assert (notes[2].at, notes[2].metadata, notes[2].key) == (given.at, {"n": 1}, "h")
    assert "birds" in notes[2].tags
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)
    assert contents(memory.list()) == contents(notes)


def test_add_many_of_a_generator_without_progress(memory):
    assert contents(memory.add_many(text for text in (KETTLE, VIOLIN))) == [KETTLE, VIOLIN]


def test_add_many_checks_all_before_it_stores_one(memory):
    with pytest.raises(ValueError, match="item 1"):
        memory.add_many([KETTLE, {"content": VIOLIN, "importance": 9}])
    assert memory.list() == []


def test_add_many_with_keys_twice_adds_once(memory):
    items = [{"content": KETTLE, "key": "a"}, {"content": VIOLIN, "key": "b"}]
    first, second = memory.add_many(items), memory.add_many(items)
    assert [note.id for note in first] == [note.id for note in second]
    assert len(memory.list()) == 2


# -- search


def test_hit_has_a_note_a_score_and_a_reason(memory, three):
    hits = memory.search("office kettle")
    assert hits[0].note.id == three[0].id
    assert 0 < hits[0].score <= 1
    assert set(hits[0].why.words) == {"office", "kettle"}
    assert hits[0].why.dense > 0
    assert hits[0].why.lexical > 0
    assert hits[0].why.path == ()
    assert str(hits[0].why)


def test_hits_as_text_for_a_prompt(memory, three):
    text = memory.search("office kettle").context(max_tokens=800)
    assert KETTLE in text
    assert three[0].id in text
    assert memory.search("office kettle").context(max_tokens=0) == ""
    assert memory.search("xylophone").context() == ""


@pytest.mark.parametrize("k", [1, 2, 3, 7, 12, 30])
@pytest.mark.parametrize("copies", [False, True])
def test_without_a_cut_off_exactly_k_direct_hits_come(memory, k, copies):
    there = 12
    texts = [
        f"The kettle number {n} leaks." if copies else f"{'heron reed boat moss'.split()[n % 4]} {n * 7919}" for n in range(there)
    ]
    memory.add_many([{"content": text, "speaker": f"s{n}"} for n, text in enumerate(texts)])
    for query in ("kettle", "nothing of the kind", "的"):
        hits = memory.search(query, k=k, min_relevance=0.0)
        direct = [hit for hit in hits if not hit.why.path]
        assert len(direct) == min(k, there), query
        assert len({hit.note.id for hit in hits}) == len(hits)
        assert [hit.score for hit in direct] == sorted((hit.score for hit in direct), reverse=True)


def test_a_bar_that_nothing_reaches(memory, three):
    assert memory.search("office kettle", min_relevance=1.0) == []
    assert memory.search("the price of tin in Peru") == []


def test_linked_notes_follow_the_direct_ones(memory, three):
    kettle, violin, heron = three
    memory.link(kettle, violin, kind="supports", reason="by hand")
    memory.link(heron, kettle, kind="causes", reason="by hand too")
    hits = memory.search("office kettle", k=1)
    assert [hit.note.id for hit in hits[:1]] == [kettle.id]
    assert {hit.note.id for hit in hits[1:]} == {violin.id, heron.id}  # a link is walked from both ends
    for hit in hits[1:]:
        (step,) = hit.why.path
        assert {step.source, step.target} == {kettle.id, hit.note.id}
        assert step.reason in str(hit.why)
        assert hit.score < hits[0].score
    assert len(memory.search("office kettle", k=1, expand=False)) == 1


def test_a_note_that_is_a_direct_hit_is_not_linked_again(memory):
    first, second = memory.add("The kettle in the office leaks."), memory.add("A new kettle for the office kitchen.")
    memory.link(first, second)
    hits = memory.search("office kettle", k=5, min_relevance=0.0)
    assert [hit.why.path for hit in hits] == [(), ()]


def test_superseded_notes_stay_out_unless_asked_for(memory):
    old = memory.add(LYON, speaker="Ana", at="2026-01-05")
    new = memory.add(BERLIN, speaker="Ana", at="2026-06-01")
    assert [(link.source, link.target, link.kind) for link in new.links] == [(new.id, old.id, "supersedes")]
    assert memory.get(old).valid_until is not None
    assert contents(memory.search("live Lyon Berlin", min_relevance=0.0)) == [BERLIN]
    assert set(contents(memory.search("live Lyon Berlin", min_relevance=0.0, include={"superseded"}))) == {LYON, BERLIN}


def test_superseding_by_hand(memory, three):
    kettle, violin, _ = three
    memory.link(violin, kettle, kind="supersedes", reason="of no use any more")
    assert KETTLE not in contents(memory.search("kettle", min_relevance=0.0))
    assert KETTLE in contents(memory.search("kettle", min_relevance=0.0, include={"superseded"}))
    memory.unlink(violin, kettle)
    assert KETTLE in contents(memory.search("kettle", min_relevance=0.0))


def test_deleted_notes_stay_out_unless_asked_for(memory, three):
    memory.delete(three[0])
    assert KETTLE not in contents(memory.search("kettle", min_relevance=0.0))
    assert KETTLE in contents(memory.search("kettle", min_relevance=0.0, include={"archived"}))
    assert KETTLE in contents(memory.list(include={"archived"}))
    assert KETTLE not in contents(memory.list())


FILTERS = [
    ({"speaker": "Ana"}, {KETTLE, HERON}),
    ({"speaker": {"$ne": "Ana"}}, {VIOLIN}),
    ({"importance": {"$gte": 3}, "tags": {"$in": ["bug", "fun"]}}, {KETTLE, VIOLIN}),
    ({"importance": {"$gt": 3, "$lt": 5}}, {VIOLIN}),
    ({"importance": {"$lte": 3}}, {HERON}),
    ({"tags": {"$nin": ["bug"]}}, {VIOLIN, HERON}),
    ({"metadata.team": "web"}, {KETTLE}),
    ({"metadata.deep.n": {"$eq": 2}}, {HERON}),
    ({"$or": [{"speaker": "Ben"}, {"metadata.team": "web"}]}, {KETTLE, VIOLIN}),
    ({"$and": [{"speaker": "Ana"}, {"importance": 5}]}, {KETTLE}),
    ({"$not": {"speaker": "Ana"}}, {VIOLIN}),
    ({"at": {"$gte": "2026-06-02"}}, {VIOLIN, HERON}),
    ({}, {KETTLE, VIOLIN, HERON}),
]


@pytest.fixture
def sorted_out(memory) -> Memory:
    """Three notes that differ in every field."""
    memory.add(KETTLE, speaker="Ana", importance=5, tags=["bug"], metadata={"team": "web"}, at="2026-06-01")
    memory.add(VIOLIN, speaker="Ben", importance=4, tags=["fun"], metadata={"team": "app"}, at="2026-06-02")
    memory.add(HERON, speaker="Ana", importance=2, tags=["birds"], metadata={"deep": {"n": 2}}, at="2026-06-03")
    return memory


@pytest.mark.parametrize(("where", "wanted"), FILTERS, ids=[json.dumps(where) for where, _ in FILTERS])
def test_where(sorted_out, where, wanted):
    assert set(contents(sorted_out.search("heron kettle", where=where, min_relevance=0.0))) == wanted
    assert set(contents(sorted_out.list(where=where))) == wanted


@pytest.mark.parametrize(
    "bad", [{"nonsense": 1}, {"speaker": {"$like": "A%"}}, {"$or": []}, {"importance": {"$gt": "x"}}, "speaker"]
)
def test_bad_filter_is_a_value_error(sorted_out, bad):
    for ask in (lambda: sorted_out.search("kettle", where=bad), lambda: sorted_out.list(where=bad)):
        with pytest.raises(ValueError) as raised:
            ask()
        assert isinstance(raised.value, EngrammaError)


def test_where_holds_for_linked_notes_too(sorted_out):
    kettle, violin, heron = sorted_out.list()
    sorted_out.link(kettle, violin)
    sorted_out.link(kettle, heron)
    assert contents(sorted_out.search("kettle", where={"speaker": "Ana"})) == [KETTLE, HERON]


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({"since": "2026-06-02"}, {VIOLIN, HERON}),
        ({"until": "2026-06-02"}, {KETTLE, VIOLIN}),
        ({"since": "2026-06-02", "until": "2026-06-02"}, {VIOLIN}),
        ({"since": datetime(2026, 6, 1, 0, 0, 1, tzinfo=UTC), "until": datetime(2026, 6, 2, tzinfo=UTC)}, {VIOLIN}),
        ({"since": "2026-06-04"}, set()),
        ({"until": "2026-05-31T23:00:00-11:00"}, {KETTLE}),  # ten in the morning of the first, in UTC
    ],
)
def test_since_and_until(sorted_out, bounds, wanted):
    assert set(contents(sorted_out.search("heron kettle", min_relevance=0.0, **bounds))) == wanted
    assert set(contents(sorted_out.list(**bounds))) == wanted


def test_as_of(memory):
    first = memory.add(KETTLE, tags=["old"])
    then = memory.log()[0]
    memory.update(first, tags=["new"])
    second = memory.add(VIOLIN)
    memory.delete(first)
    for moment in (then.id, then.at):
        assert contents(memory.search("kettle violin", as_of=moment, min_relevance=0.0)) == [KETTLE]
        assert contents(memory.list(as_of=moment)) == [KETTLE]
        assert "old" in memory.get(first, as_of=moment).tags
        assert memory.get(first.id, as_of=moment).state == "ready"
        with pytest.raises(KeyError):
            memory.get(second, as_of=moment)
    assert contents(memory.list()) == [VIOLIN]
    assert memory.list(as_of=then.at - timedelta(days=1)) == []


def test_several_spaces(memory):
    for space in ("alice", "alice2", ("alice", "x"), "bob"):
        memory.add(KETTLE, space=space)
    assert memory.search("kettle") == []
    assert [hit.note.space for hit in memory.search("kettle", space="alice")] == ["alice"]
    assert [hit.note.space for hit in memory.search("kettle", space=("alice", "x"))] == [("alice", "x")]
    both = memory.search("kettle", space=["alice", "bob"])
    assert {hit.note.space for hit in both} == {"alice", "bob"}
    assert {note.space for note in memory.list(space=["alice", ("alice", "x")])} == {"alice", ("alice", "x")}
    assert memory.search("kettle", space="ali") == memory.search("kettle", space="alice%") == []
    assert memory.spaces() == {"alice": 1, "alice2": 1, ("alice", "x"): 1, "bob": 1}


# -- get, list, update


def test_get_takes_an_id_or_a_note(memory, three):
    assert memory.get(three[0]) == memory.get(three[0].id) == three[0]


UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ASKING = {
    "get": lambda m: m.get(UNKNOWN),
    "update": lambda m: m.update(UNKNOWN, tags=["x"]),
    "delete": lambda m: m.delete(UNKNOWN),
    "purge": lambda m: m.purge(UNKNOWN),
    "history": lambda m: m.history(UNKNOWN),
    "neighbours": lambda m: m.neighbours(UNKNOWN),
    "link": lambda m: m.link(m.list()[0], UNKNOWN),
    "unlink": lambda m: m.unlink(m.list()[0], UNKNOWN),
    "merge": lambda m: m.merge([m.list()[0], UNKNOWN]),
    "revert": lambda m: m.revert(UNKNOWN),
}


@pytest.mark.parametrize("verb", ASKING)
def test_unknown_id_is_a_key_error(memory, three, verb):
    before = len(memory.log())
    with pytest.raises(KeyError) as raised:
        ASKING[verb](memory)
    assert isinstance(raised.value, EngrammaError)
    assert UNKNOWN in str(raised.value)
    assert len(memory.log()) == before


def test_list_is_in_the_order_of_adding(memory, three):
    assert [note.id for note in memory.list()] == [note.id for note in three]
    assert [note.id for note in memory.list(limit=2)] == [note.id for note in three[:2]]


def test_update(memory, three):
    note = memory.update(three[0], tags=["kitchen"], importance=5, metadata={"n": 1}, speaker="Ana", category="chore")
    assert memory.get(note) == note
    assert (note.tags, note.importance, note.metadata, note.speaker, note.category) == (("kitchen",), 5, {"n": 1}, "Ana", "chore")
    assert (note.id, note.content, note.revision) == (three[0].id, KETTLE, 2)
    assert memory.log()[0].actor == "user"


def test_update_of_the_content_is_found_by_its_new_words(memory, three):
    note = memory.update(three[0].id, content="The samovar on the balcony shines.")
    assert note.id == three[0].id
    assert memory.search("samovar balcony")[0].note.id == note.id
    assert note.id not in {hit.note.id for hit in memory.search("office kettle")}
    assert "samovar" in {word.casefold() for word in note.keywords}
    assert note.state == "ready"


@pytest.mark.parametrize(
    "fields", [{"nonsense": 1}, {"id": "x"}, {"space": "b"}, {"content": " "}, {"importance": 6}, {"tags": "a"}]
)
def test_update_that_cannot_be(memory, three, fields):
    with pytest.raises(ValueError) as raised:
        memory.update(three[0], **fields)
    assert isinstance(raised.value, EngrammaError)
    assert memory.get(three[0]) == three[0]


# -- delete, purge, delete_space


def test_delete_and_revert(memory, three):
    kettle, violin, _ = three
    link = memory.link(kettle, violin, kind="supports", reason="by hand", strength=0.7)
    before = [plain(memory.get(note)) for note in three]
    gone = memory.delete(kettle)
    assert memory.get(kettle).state == "archived"
    assert memory.get(violin).links == ()
    assert {type(change).__name__ for change in gone.changes} == {"ArchiveNote", "DropLink"}
    assert memory.neighbours(violin) == []
    memory.revert(gone)
    (back,) = memory.get(violin).links
    assert (back.ends, back.reason, back.strength) == (link.ends, "by hand", 0.7)
    assert contents(memory.search("office kettle", k=1, expand=False)) == [KETTLE]

    def apart(note: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in note.items() if name not in ("revision", "links")}

    assert [apart(plain(memory.get(note))) for note in three] == [apart(note) for note in before]


def test_purge_is_for_good(memory, three):
    memory.link(three[0], three[1])
    done = memory.purge(three[0].id)
    for ask in (memory.get, memory.history, memory.delete):
        with pytest.raises(KeyError):
            ask(three[0])
    assert memory.get(three[1]).links == ()
    assert len(memory.search("kettle", min_relevance=0.0, include={"archived", "superseded"})) == 2
    with pytest.raises(EngrammaError):
        memory.revert(done)
    assert KETTLE not in repr(memory.log(limit=None))
    assert memory.check().ok


def test_delete_space(memory, three):
    memory.add(KETTLE, space="alice")
    memory.delete_space("alice")
    assert "alice" not in memory.spaces()
    assert memory.list(space="alice") == []
    assert len(memory.list()) == 3
    assert memory.search("kettle")[0].note.space == "default"


# -- links


def test_link_unlink_neighbours(memory, three):
    kettle, violin, heron = three
    link = memory.link(kettle, violin.id, kind="supports", reason="both are old")
    memory.link(violin, heron, kind="my own kind")
    assert (link.source, link.target, link.kind, link.reason) == (kettle.id, violin.id, "supports", "both are old")
    assert 0 <= link.strength <= 1
    assert link in memory.get(kettle).links
    assert link in memory.get(violin).links
    assert contents(memory.neighbours(kettle)) == [VIOLIN]
    assert contents(memory.neighbours(heron, depth=1)) == [VIOLIN]
    assert contents(memory.neighbours(kettle.id, depth=2)) == [VIOLIN, HERON]
    memory.unlink(violin, kettle)  # either way round
    assert memory.neighbours(kettle) == []
    assert contents(memory.neighbours(violin)) == [HERON]


def test_link_twice_is_one_link(memory, three):
    memory.link(three[0], three[1], kind="supports", reason="first")
    memory.link(three[0], three[1], kind="supports", reason="second")
    assert [link.reason for link in memory.get(three[0]).links] == ["second"]
    memory.revert(memory.log()[0])
    assert [link.reason for link in memory.get(three[0]).links] == ["first"]


def test_link_across_spaces_is_refused(memory, three):
    other = memory.add(KETTLE, space="alice")
    with pytest.raises(EngrammaError):
        memory.link(three[0], other)
    assert memory.get(other).links == ()


def test_turns_of_a_session_follow_each_other(memory):
    first, second = (memory.add(text, session="s1") for text in (KETTLE, VIOLIN))
    assert [(link.source, link.target, link.kind) for link in memory.get(first).links] == [(second.id, first.id, "follows")]


# -- history, log, revert


def test_log_is_newest_first(memory, three):
    memory.update(three[0], tags=["x"])
    log = memory.log(limit=20)
    assert len(log) == 4
    assert [commit.at for commit in log] == sorted((commit.at for commit in log), reverse=True)
    assert memory.log(limit=2) == log[:2]
    for commit in log:
        assert commit.id
        assert commit.at.tzinfo is not None
        assert commit.actor
        assert commit.reason
        assert commit.changes
        assert commit.tokens.total == 0
    assert log[0].actor == "user"
    assert log[-1].actor == "analyst:rules"


def test_history_shows_each_revision(memory, three):
    memory.update(three[0], tags=["x"])
    memory.update(three[0], tags=["y"], importance=1)
    revisions = memory.history(three[0].id)
    assert [revision.note.tags for revision in revisions][1:] == [("x",), ("y",)]
    assert [revision.note.revision for revision in revisions] == [1, 2, 3]
    assert [revision.commit.id for revision in revisions] == [
        commit.id for commit in reversed(memory.log()) if three[0].id in commit.notes()
    ]
    assert revisions[0].note == three[0]


def untouched(note: Any) -> dict[str, Any]:
    """All of a note, links and the bytes of its vector included, but not the number of its revision."""
    return {name: value for name, value in plain(note).items() if name != "revision"}


def test_revert_of_an_update(memory, three):
    before = untouched(memory.get(three[0]))
    memory.update(three[0], tags=["x"], importance=1, metadata={"n": 1}, category="chore")
    memory.update(three[1], tags=["y"])
    memory.revert(memory.log()[1].id)
    assert untouched(memory.get(three[0])) == before
    assert memory.get(three[1]).tags == ("y",)


def test_revert_of_a_new_content(memory, three):
    memory.update(three[0], content="The samovar on the balcony shines.")
    memory.revert(memory.log()[0])
    assert (memory.get(three[0]).content, memory.get(three[0]).state) == (KETTLE, "ready")


_VECTOR = "after a revert the vector of the later content stays with the earlier one"


@pytest.mark.parametrize("look", ["as_of", "search", "revert"])
def test_vector_goes_back_with_the_content(memory, three, look):
    before, then = memory.get(three[0]).vector.tolist(), memory.log()[0]
    memory.update(three[0], content="The samovar on the balcony shines.")
    if look == "search":
        assert memory.search(KETTLE, as_of=then.id)[0].why.dense == pytest.approx(1.0, abs=0.01)
        return
    if look == "revert":
        for commit in memory.log(note=three[0])[:2]:
            memory.revert(commit)
    found = memory.get(three[0], as_of=then.id if look == "as_of" else None)
    assert found.content == KETTLE
    assert found.vector.tolist() == before


def test_evolution_is_seen_in_history_and_reverted_byte_for_byte(memory):
    old = memory.add(LYON, speaker="Ana", at="2026-01-05T10:00:00+01:00", metadata={"n": 1})
    before = untouched(memory.get(old))
    new = memory.add(BERLIN, speaker="Ana", at="2026-06-01T10:00:00+02:00")
    changed = memory.get(old)
    assert changed.content == LYON
    assert changed.context != old.context
    assert changed.valid_until is not None
    assert [revision.note.context for revision in memory.history(old)] == [old.context, changed.context]
    cause = memory.history(old)[-1].commit
    assert new.id in cause.notes()
    memory.revert(cause)
    assert untouched(memory.get(old)) == before
    assert memory.get(new).state == "archived"
    assert contents(memory.search("live Lyon", min_relevance=0.0)) == [LYON]


def test_reverting_a_revert_brings_it_back(memory):
    old = memory.add(LYON, speaker="Ana", at="2026-01-05")
    new = memory.add(BERLIN, speaker="Ana", at="2026-06-01")

    def state() -> list[dict[str, Any]]:
        found = []
        for note in (old, new):
            fields = untouched(memory.get(note)) | {
                "links": [(link.ends, link.reason, link.strength) for link in memory.get(note).links]
            }
            found.append(fields)
        return found

    there = state()
    commit = memory.log()[0]
    for _ in range(3):
        undone = memory.revert(commit)
        assert memory.get(old).valid_until is None
        commit = memory.revert(undone)
        assert state() == there
    assert memory.check().ok


def test_revert_of_a_link_and_of_an_unlink(memory, three):
    memory.link(three[0], three[1], kind="supports", reason="r")
    memory.unlink(three[0], three[1])
    memory.revert(memory.log()[0])
    assert [link.reason for link in memory.get(three[0]).links] == ["r"]
    memory.revert(memory.log()[0])
    assert memory.get(three[0]).links == ()


def test_revert_of_an_add(memory, three):
    memory.revert(memory.log()[0])
    assert contents(memory.list()) == [KETTLE, VIOLIN]


def test_revert_of_what_changed_since_is_a_conflict_that_names_it(memory, three):
    memory.update(three[0], tags=["x"])
    commit = memory.log()[0]
    memory.update(three[0], tags=["y"])
    with pytest.raises(engramma.Conflict, match="tags"):
        memory.revert(commit)
    assert memory.get(three[0]).tags == ("y",)


# -- merge


def test_merge_and_revert(memory, three):
    kettle, violin, heron = three
    memory.link(violin, heron, kind="supports", reason="r")
    before = [untouched(memory.get(note)) for note in three]
    commit = memory.merge([kettle, violin.id])
    assert memory.get(violin).state == "merged"
    assert memory.get(kettle).state == "ready"
    assert memory.get(kettle).content == KETTLE
    assert set(violin.keywords) <= set(memory.get(kettle).keywords)
    assert any(link.other(kettle.id) == heron.id for link in memory.get(kettle).links)
    assert contents(memory.list()) == [KETTLE, HERON]
    assert VIOLIN not in contents(memory.search("violins tuned", min_relevance=0.0))
    memory.revert(commit.id)
    after = [untouched(memory.get(note)) for note in three]
    assert after == before
    assert VIOLIN in contents(memory.search("violins tuned", min_relevance=0.0))


# -- the whole memory


def test_stats(memory, three):
    memory.link(three[0], three[1])
    memory.delete(three[2])
    memory.add(KETTLE, space="alice")
    stats = memory.stats()
    assert (stats.notes, stats.archived, stats.pending, stats.links) == (3, 1, 0, 1)
    assert (stats.commits, stats.tokens) == (6, 0)
    assert stats.spaces == {"default": 2, "alice": 1}


def test_check(memory, three):
    found = memory.check()
    assert found.ok
    assert list(found.problems) == []


def test_close_twice_and_then_nothing(opened):
    memory = opened()
    memory.add(KETTLE)
    memory.close()
    memory.close()
    for ask in (lambda: memory.add(VIOLIN), lambda: memory.search("kettle"), lambda: memory.list()):
        with pytest.raises(OSError) as raised:
            ask()
        assert isinstance(raised.value, EngrammaError)


def test_catch_up(opened):
    llm = ScriptedLLM("no idea", {"notes": [{"label": "d1", **READ}]})
    memory = opened(llm=llm)
    note = memory.add(KETTLE)
    assert (note.state, note.content) == ("pending", KETTLE)
    assert contents(memory.search("office kettle")) == [KETTLE]
    assert memory.catch_up() == 1
    assert (memory.get(note).state, memory.get(note).context) == ("ready", "Read by a model.")
    assert memory.catch_up() == 0


def test_reindex_with_another_embedder(opened):
    memory = opened()
    notes = memory.add_many([KETTLE, VIOLIN, HERON])
    before = [(note.content, note.keywords, note.links, note.revision) for note in memory.list()]
    assert memory.reindex(embedder=CountingEmbedder()) == 3
    assert {memory.get(note).vector.shape for note in notes} == {(26,)}
    assert [(note.content, note.keywords, note.links, note.revision) for note in memory.list()] == before
    assert contents(memory.search("office kettle"))[0] == KETTLE
    assert memory.stats().embedder == "counting"
    assert memory.reindex() == 3
    memory.close()
    with pytest.raises(ValueError, match="counting"):
        opened()
    assert opened(embedder=CountingEmbedder()).search("office kettle")[0].note.content == KETTLE


def test_export_and_load(opened, tmp_path):
    memory = opened()
    kettle = memory.add(KETTLE, speaker="Ana", at="2026-06-01T09:30:00+05:45", metadata={"n": 1}, tags=["mine"], key="k")
    violin = memory.add(VIOLIN, space=("team", "a"))
    heron = memory.add(HERON, space=("team", "a"))
    memory.link(violin, heron, kind="supports", reason="r")
    assert memory.export(tmp_path / "memory.jsonl") == 3
    other = opened("other.db")
    assert other.load(str(tmp_path / "memory.jsonl")) == 3
    for note in (kettle, violin, heron):
        assert plain(other.get(note)) == plain(memory.get(note))
    assert other.get(kettle).at.isoformat() == "2026-06-01T09:30:00+05:45"
    assert other.spaces() == memory.spaces()
    assert contents(other.search("office kettle")) == [KETTLE]
    assert other.load(tmp_path / "memory.jsonl") == 0
    assert other.check().ok


def test_load_into_the_memory_it_came_from_after_changes_there(opened, tmp_path):
    """A link to a note that was deleted since is left out; a fact that comes back as superseded holds no more."""
    memory = opened(":memory:")
    texts = ["The heron stands in the reeds.", "The heron flew to the sea.", "A stone lies in the moss."]
    old, new, gone = memory.add_many(texts)
    memory.link(new, old, kind="supersedes")
    memory.link(new, gone)
    memory.export(tmp_path / "notes.jsonl")
    memory.unlink(new, old)
    memory.delete(gone)
    assert memory.load(tmp_path / "notes.jsonl") == 0
    assert memory.get(gone).links == ()
    assert memory.get(old).valid_until is not None
    assert [link.kind for link in memory.get(old).links] == ["supersedes"]
    assert memory.check().ok


def test_load_gives_what_was_exported(opened, tmp_path):
    memory, other = opened(":memory:"), opened(":memory:")
    old, new = memory.add_many(["The heron stands in the reeds.", "The heron flew to the sea."])
    memory.link(new, old, kind="supersedes")
    memory.update(old, valid_until=None)
    memory.export(tmp_path / "notes.jsonl")
    assert other.load(tmp_path / "notes.jsonl") == 2
    assert other.get(old.id).valid_until is None


def test_add_many_says_so_where_a_note_is_purged_meanwhile(opened, tmp_path):
    one, two = opened(tmp_path / "m.db"), opened(tmp_path / "m.db")

    def purge(done, total):
        if done == total and len(two.list()) == 2:
            two.purge(two.list()[0])

    with pytest.raises(UnknownId):
        one.add_many(["The heron stands in the reeds.", "A stone lies in the moss."], progress=purge)
    assert [note.content for note in one.list()] == ["A stone lies in the moss."]


def test_load_of_plain_lines(memory, tmp_path):
    (tmp_path / "lines.txt").write_text(f'{KETTLE}\n\n{{"content": "{VIOLIN}", "speaker": "Ana"}}\n', "utf-8")
    assert memory.load(tmp_path / "lines.txt") == 2
    assert [(note.content, note.speaker) for note in memory.list()] == [(KETTLE, None), (VIOLIN, "Ana")]


def test_load_of_what_is_not_there(memory, tmp_path):
    with pytest.raises(OSError):
        memory.load(tmp_path / "nothing.jsonl")


def test_load_of_what_is_not_there_is_our_error(memory, tmp_path):
    with pytest.raises(EngrammaError):
        memory.load(tmp_path / "nothing.jsonl")


def test_error_kinds():
    kinds = {"InvalidInput": ValueError, "EmptyText": ValueError, "UnknownId": KeyError, "StoreError": OSError}
    for name, kind in kinds.items():
        assert issubclass(getattr(engramma, name), (EngrammaError, kind))
        assert issubclass(getattr(engramma, name), kind)


def test_a_file_that_is_no_memory(tmp_path):
    path = tmp_path / "memory.db"
    path.write_text("Dear diary, " * 200, "utf-8")
    with pytest.raises(OSError) as raised:
        Memory.open(path, embedder="hash:64")
    assert isinstance(raised.value, EngrammaError)
    assert path.read_text("utf-8").startswith("Dear diary")


def test_notes_are_frozen(memory, three):
    with pytest.raises(AttributeError):
        three[0].content = "changed"
    assert memory.get(three[0]).content == KETTLE


# -- notes that say the same


def test_a_distinct_note_is_kept_beside_one_that_says_the_same(memory: Memory) -> None:
    first = memory.add("I am allergic to peanuts.", speaker="Ana")
    again = memory.add("I am allergic to peanuts.", speaker="Ana")
    apart = memory.add("I am allergic to peanuts.", speaker="Ana", distinct=True)
    assert again.id == first.id
    assert apart.id != first.id
    assert {note.id for note in memory.list()} == {first.id, apart.id}


def test_a_distinct_note_stays_apart_when_a_model_reads_it(modelled) -> None:
    memory, _ = modelled(reply(), reply(same_as="n1"))
    first = memory.add("I am allergic to peanuts.")
    assert memory.add("I am allergic to peanuts.", distinct=True).id != first.id


def test_a_distinct_flag_must_be_one(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="distinct='yes' is neither True nor False"):
        memory.add("Something.", distinct="yes")


def test_a_merged_note_that_says_something_else_is_found_again(memory: Memory) -> None:
    memory.add("I am allergic to peanuts.", key="a")
    memory.add("I am allergic to peanuts.", key="b")
    merged = memory.list(where={"key": "b"}, include=("merged",))[0]
    assert merged.state == "merged"
    assert memory.update(merged, content="The violin is tuned in fifths.").state == "ready"
    assert contents(memory.search("How is a violin tuned?")) == ["The violin is tuned in fifths."]
    assert memory.check().ok


def test_a_context_can_be_emptied(memory: Memory) -> None:
    note = memory.add("The kettle in the office leaks.")
    assert note.context
    assert memory.update(note, context="").context == ""


def test_what_lasts_is_not_merged_into_what_expires(memory: Memory) -> None:
    soon = memory.add("I am allergic to peanuts.", expires_at=datetime.now(UTC) + timedelta(hours=1))
    lasting = memory.add("I am allergic to peanuts.")
    assert lasting.id != soon.id
    sooner = memory.add("I am allergic to peanuts.", expires_at=datetime.now(UTC) + timedelta(minutes=5))
    assert sooner.id in (soon.id, lasting.id)


def test_what_is_said_again_is_not_merged_into_a_distinct_note(memory: Memory) -> None:
    """It may be deleted alone, as a store's item is."""
    item = memory.add("I am allergic to peanuts.", distinct=True)
    said = memory.add("I am allergic to peanuts.")
    memory.delete(item)
    assert contents(memory.search("What am I allergic to? Peanuts?")) == [said.content]
