"""PrecisionMemBench's rules, on beliefs and cases of our own; its 77 cases only where the data set is there."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from evals import precision
from evals.precision import Beliefs
from evals.precision_rules import Case, Context, Found, Rates, case_rates, expected, failures, in_tiers, kind_of, turn_rates

from engramma import Memory
from engramma.testing import HashEmbedder

ROOT = Path(__file__).resolve().parents[1]
HOME, GARDEN = "domain:home", "domain:garden"


def belief(name: str, content: str, **fields: Any) -> dict[str, Any]:
    """One belief in upstream's format."""
    usual = {
        "_id": name, "user_id": "lin", "type": "preference", "canonical_name": name.replace("-", "_"), "aliases": [],
        "content": content, "why_it_matters": "Shapes zeppelins.", "scope": [HOME], "epistemic_status": "active",
        "pinned": False, "resolved_at": None, "superseded_by": None, "created_at": "2026-03-01T00:00:00Z",
    }  # fmt: skip
    return usual | fields


BELIEFS = [
    belief("green-tea", "Drinks sencha in the morning.", aliases=["sencha", "Gyokuro"]),
    belief("kettle", "Owns a gooseneck kettle made of copper.", type="entity"),
    belief("brewing", "Brewing depends on a thermometer.", type="relation", participants=["thermo", "water-q"]),
    belief("thermo", "A probe that beeps.", type="entity"),
    belief("water-q", "Evaluating bottled against filtered water.", type="open_question", pinned=True),
    belief("mug-q", "Was evaluating ceramic mugs.", type="open_question", pinned=True, resolved_at="2026-04-01T00:00:00Z"),
    belief("cups-old", "Used porcelain cups.", superseded_by="cups"),
    belief("cups", "Uses enamel cups.", pinned=True),
    belief("moss", "Grows moss under the maple.", scope=[GARDEN, HOME], type="entity"),
    belief("manner", "Likes brief replies.", scope=[precision.UNIVERSAL], pinned=True),
    belief("cocoa", "Drinks cocoa only.", user_id="bo", pinned=True),
]


def case(query: str, *scope: str, user: str = "lin", most: int = 20, **expect: Any) -> Case:
    """A case over our beliefs."""
    return Case("one", "any", user, scope or (HOME,), query, expect, most)


@pytest.fixture
def beliefs(memory: Memory) -> Beliefs:
    """Our beliefs in a memory."""
    found = Beliefs(memory)
    found.seed(BELIEFS)
    return found


def note_of(beliefs: Beliefs, name: str, scope: str = HOME, user: str = "lin") -> Any:
    """The note that a belief became in one space."""
    return beliefs.memory.list(where={"key": name}, space=[(user, scope)], include=["archived"])[0]


# -- the rules


@pytest.mark.parametrize(
    ("wanted", "relevant", "rates"),
    [
        ("", "", (None, None)),
        ("a", "", (0.0, 0.0)),
        ("", "a", (0.0, None)),
        ("a", "a", (1.0, 1.0)),
        ("a", "ab", (0.5, 1.0)),
        ("ab", "ac", (0.5, 0.5)),
    ],
)
def test_the_rates_of_a_case(wanted: str, relevant: str, rates: Rates) -> None:
    assert case_rates(frozenset(wanted), Context(relevant=tuple(relevant))) == rates


@pytest.mark.parametrize(
    ("wanted", "relevant", "pinned", "rates"),
    [("a", "", "", (None, 0.0)), ("a", "", "a", (None, 1.0)), ("", "b", "", (0.0, None)), ("ab", "bc", "a", (1.0, 1.0))],
)
def test_the_rates_of_a_turn_count_what_is_pinned(wanted: str, relevant: str, pinned: str, rates: Rates) -> None:
    assert turn_rates(frozenset(wanted), Context(relevant=tuple(relevant), pinned=tuple(pinned))) == rates


def test_what_must_be_included_and_is_pinned_is_not_expected_among_the_relevant() -> None:
    assert expected({"relevantBeliefs": {"mustInclude": ["a", "b"]}}, frozenset("b")) == {"a"}
    assert expected({"relevantBeliefs": {"mustInclude": ["a"], "shouldOnlyInclude": []}}) == frozenset()
    assert expected({"relevantBeliefs": {"shouldOnlyInclude": ["b"]}}, frozenset("b")) == {"b"}
    assert expected({}) == frozenset()


@pytest.mark.parametrize(
    ("expect", "kind"),
    [
        ({"relevantBeliefs": {"shouldOnlyInclude": ["a"]}}, "active"),
        ({"relevantBeliefs": {"shouldOnlyInclude": []}}, "trivially empty"),
        ({"relevantBeliefs": {"shouldOnlyInclude": []}, "pinnedFacts": {"mustInclude": []}}, "trivially empty"),
        ({"relevantBeliefs": {"shouldOnlyInclude": []}, "openQuestions": {"mustExclude": ["a"]}}, "structural"),
        ({"relevantBeliefs": {"mustExclude": ["a"]}}, "structural"),
        ({"personaPrelude": {"isNull": True}}, "structural"),
    ],
)
def test_the_three_kinds_of_case(expect: Mapping[str, Any], kind: str) -> None:
    assert kind_of(expect, expected(expect)) == kind


FULL = Context("brief and honest", pinned=("p",), relevant=("a", "b"), questions=("q",))


@pytest.mark.parametrize(
    ("tier", "rules", "broken"),
    [
        ("relevantBeliefs", {"mustInclude": ["a", "p"], "mustExclude": ["c"], "shouldInclude": ["b"]}, []),
        ("relevantBeliefs", {"mustInclude": ["c"]}, ["missing: c"]),
        ("relevantBeliefs", {"shouldInclude": ["c"]}, ["missing: c"]),
        ("relevantBeliefs", {"mustExclude": ["p"]}, ["forbidden: p"]),
        ("relevantBeliefs", {"shouldOnlyInclude": ["a", "b"]}, []),
        ("relevantBeliefs", {"shouldOnlyInclude": ["a", "p"]}, ["unexpected: b", "missing: p"]),
        ("relevantBeliefs", {"shouldOnlyInclude": []}, ["unexpected: a", "unexpected: b"]),
        ("relevantBeliefs", {"minCount": 2, "maxCount": 2}, []),
        ("relevantBeliefs", {"maxCount": 1}, ["2 relevant beliefs: at least 0 and at most 1 expected"]),
        ("relevantBeliefs", {"minCount": 3}, ["2 relevant beliefs: at least 3 and at most any expected"]),
        ("relevantBeliefs", {"orderedBefore": [["a", "b"]]}, []),
        ("relevantBeliefs", {"orderedBefore": [["b", "a"]]}, ["b should come before a"]),
        ("relevantBeliefs", {"orderedBefore": [["a", "c"]]}, ["missing from an order: c"]),
        ("pinnedFacts", {"mustInclude": ["p"], "mustExclude": ["a"]}, []),
        ("pinnedFacts", {"mustInclude": ["a"]}, ["pinned belief missing: a"]),
        ("pinnedFacts", {"mustExclude": ["p"]}, ["forbidden among the pinned: p"]),
        ("openQuestions", {"mustInclude": ["q"], "mustExclude": ["a"]}, []),
        ("openQuestions", {"mustInclude": ["a"], "mustExclude": ["q"]}, ["question missing: a", "forbidden question: q"]),
        ("noiseCheck", {"mustNotSurface": ["a", "p", "c"]}, ["noise surfaced: a", "noise surfaced: p"]),
        ("personaPrelude", {"nonEmpty": True, "contains": ["brief"], "mustNotContain": ["rude"]}, []),
        ("personaPrelude", {"isNull": True}, ["the prelude is not empty"]),
        ("personaPrelude", {"contains": ["long"]}, ["not in the prelude: long"]),
        ("personaPrelude", {"mustNotContain": ["brief"]}, ["in the prelude: brief"]),
    ],
)  # fmt: skip
def test_what_breaks_an_expectation(tier: str, rules: dict[str, Any], broken: list[str]) -> None:
    assert failures({tier: rules}, FULL) == broken


def test_an_empty_prelude_is_said() -> None:
    assert failures({"personaPrelude": {"nonEmpty": True}}, Context()) == ["the prelude is empty"]


def test_pinned_beliefs_take_their_room_first() -> None:
    found = Found(pinned=("p", "r"), hits=("a", "p", "b"), participants=("b", "c"))
    assert in_tiers(found, 20) == Context(pinned=("p", "r"), relevant=("a", "b", "c"))
    assert in_tiers(found, 3) == Context(pinned=("p", "r"), relevant=("a",))
    assert in_tiers(found, 1) == Context(pinned=("p",))
    assert in_tiers(found, 0) == Context()


def test_questions_that_search_found_are_left_to_their_own_tier() -> None:
    found = Found(questions=("q",), hits=("q", "a"), of_questions=frozenset("q"))
    assert in_tiers(found, 20).relevant == ("a",)
    assert in_tiers(found, 20, route_questions=False).relevant == ("q", "a")


# -- beliefs as notes


def test_a_belief_becomes_a_note(beliefs: Beliefs) -> None:
    note = note_of(beliefs, "green-tea")
    assert note.content == "Drinks sencha in the morning."
    assert {"sencha", "Gyokuro", "green tea"} <= set(note.keywords)
    assert (note.space, note.pinned, note.at.isoformat()) == (("lin", HOME), False, "2026-03-01T00:00:00+00:00")
    assert (note.metadata["type"], note.metadata["status"]) == ("preference", "active")


def test_a_belief_of_two_scopes_is_a_note_in_each_and_comes_once(beliefs: Beliefs) -> None:
    assert note_of(beliefs, "moss").id != note_of(beliefs, "moss", GARDEN).id
    assert beliefs.find(case("moss under the maple", HOME, GARDEN)).hits.count("moss") == 1


def test_why_a_belief_matters_is_not_searched(beliefs: Beliefs) -> None:
    assert beliefs.find(case("zeppelins")).hits == ()


def test_what_was_replaced_or_resolved_does_not_come_back(beliefs: Beliefs) -> None:
    assert "cups-old" not in beliefs.find(case("porcelain cups")).hits
    assert note_of(beliefs, "mug-q").state == "archived"
    found = beliefs.find(case("ceramic mugs"))
    assert "mug-q" not in (*found.hits, *found.questions, *found.pinned)


def test_replaced_by_what_is_in_no_common_scope_is_deleted(memory: Memory) -> None:
    beliefs = Beliefs(memory)
    beliefs.seed([belief("old", "Sleeps late.", superseded_by="new"), belief("new", "Wakes early.", scope=[GARDEN])])
    assert note_of(beliefs, "old").state == "archived"


def test_pinned_beliefs_and_questions_have_tiers_of_their_own(beliefs: Beliefs) -> None:
    found = beliefs.find(case("bottled or filtered water in enamel cups"))
    assert (found.pinned, found.questions) == (("cups",), ("water-q",))
    assert found.of_questions == {"water-q"}
    assert not {"cups", "water-q"} & set(in_tiers(found, 20).relevant)


def test_a_relation_brings_its_participants_but_no_question(beliefs: Beliefs) -> None:
    found = beliefs.find(case("What does brewing depend on?"))
    assert "brewing" in found.hits
    assert found.participants == ("thermo",)
    assert beliefs.find(case("gooseneck kettle")).participants == ()


def test_a_user_sees_what_is_in_the_named_scopes(beliefs: Beliefs) -> None:
    assert beliefs.find(case("cocoa", user="bo")).pinned == ("cocoa",)
    assert "cocoa" not in beliefs.find(case("cocoa only")).hits
    assert beliefs.find(case("brief replies")).hits == ()
    assert beliefs.find(case("brief replies", precision.UNIVERSAL)).hits == ("manner",)


def test_the_prelude_is_what_is_pinned_for_all_scopes(beliefs: Beliefs) -> None:
    assert beliefs.find(case("kettle")).prelude == "Likes brief replies."


def test_nothing_to_ask_is_no_error(beliefs: Beliefs) -> None:
    assert beliefs.find(case("  ")).hits == beliefs.find(case("kettle", most=0)).hits == ()
    assert beliefs.find(case("kettle", user="nobody")) == Found()
    assert beliefs.whole(case("")) == {}


def test_new_names_are_found_at_once(beliefs: Beliefs) -> None:
    before = beliefs.whole(case("matcha"))["green-tea"]
    beliefs.add_aliases("lin", "green-tea", [" Matcha "])
    after = beliefs.whole(case("matcha"))["green-tea"]
    assert (before.why.words, after.why.words) == ((), ("matcha",))
    assert after.score > before.score
    assert {"matcha", "sencha"} <= set(note_of(beliefs, "green-tea").keywords)


# -- a whole run


def _written(folder: Path, cases: list[dict[str, Any]], turns: list[dict[str, Any]]) -> Path:
    sessions = [{"caseId": "talk", "turns": turns}]
    for name, data in ((precision.BELIEFS, BELIEFS), (precision.CASES, cases), (precision.SESSIONS, sessions)):
        (folder / name).write_text(json.dumps(data), "utf-8")
    return folder


def _raw(name: str, query: str, relevant: list[str], **fields: Any) -> dict[str, Any]:
    expect = {"relevantBeliefs": {"shouldOnlyInclude": relevant}, **fields.pop("expect", {})}
    return {"caseId": name, "category": "Small", "scope": [HOME], "query": query, "expect": expect, **fields}


def _turn(number: int, message: str, relevant: list[str], **fields: Any) -> dict[str, Any]:
    expect = {"relevantBeliefs": {"shouldOnlyInclude": relevant}}
    return {"turnIndex": number, "label": "turn", "scope": [HOME], "userMessage": message, "expect": expect, **fields}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small benchmark: three cases that pass, two that fail, and a session that changes the memory."""
    cases = [
        _raw("finds", "sencha", ["green-tea"]),
        _raw("declines", "submarine warfare", []),
        _raw("others", "kettle", [], userId="nobody", expect={"personaPrelude": {"isNull": True}}),
        _raw("too-much", "gooseneck kettle", []),
        _raw("too-little", "submarine warfare", ["kettle"], budget={"maxBeliefs": 4}),
    ]
    hojicha = belief("hojicha", "Buys roasted hojicha leaves.")
    turns = [
        _turn(0, "hojicha leaves", [], createBeliefAtTurn=hojicha),
        _turn(1, "hojicha leaves", ["hojicha"]),
        _turn(2, "submarine warfare", ["hojicha"]),
        _turn(3, "gooseneck kettle", []),
    ]
    return _written(tmp_path, cases, turns)


@pytest.fixture
def result(folder: Path) -> dict[str, Any]:
    """The result of a run over it."""
    return precision.run(folder, HashEmbedder(256))


def test_the_summary_counts_kinds_and_means(result: dict[str, Any]) -> None:
    summary = result["summary"]
    assert {kind: (of["passed"], of["of"]) for kind, of in summary["kinds"].items()} == {
        "active": (1, 2), "structural": (1, 1), "trivially empty": (1, 2),
    }  # fmt: skip
    assert (summary["passed"], summary["precision"], summary["recall"]) == (3, 0.3333, 0.5)
    assert [(row["category"], row["of"]) for row in result["categories"]] == [("Small", 5)]


def test_a_session_lives(result: dict[str, Any]) -> None:
    rows = result["turns"]
    assert [row["relevant"] for row in rows] == [[], ["hojicha"], [], ["kettle"]]
    assert [row["passed"] for row in rows] == [True, True, False, False]
    assert [row["drift"] for row in rows] == [0, 0, 0, 1]
    session = result["session summary"]
    assert (session["of"], session["sessions"], session["passed"]) == (4, 1, 2)
    assert (session["drift"], session["precision"], session["recall"]) == (0.25, 0.5, 0.5)


def test_new_names_of_a_turn_are_searched_in_the_next(tmp_path: Path) -> None:
    more = {"beliefId": "kettle", "addAliases": ["Tetsubin"]}
    wanted = ["kettle", "thermo"]  # the second never comes, so that the evidence is shown
    turns = [_turn(0, "tetsubin", wanted, updateBeliefAtTurn=more), _turn(1, "tetsubin", wanted)]
    before, after = precision.run(_written(tmp_path, [_raw("any", "kettle", [])], turns), HashEmbedder(256))["turns"]
    assert [row["evidence"][0]["id"] for row in (before, after)] == ["kettle", "kettle"]
    assert "tetsubin" not in before["evidence"][0]["why"]
    assert "tetsubin" in after["evidence"][0]["why"]


def test_a_failed_case_shows_the_scores(result: dict[str, Any]) -> None:
    rows = {row["id"]: row for row in result["cases"]}
    assert rows["finds"]["evidence"] == []
    [much] = rows["too-much"]["evidence"]
    [little] = rows["too-little"]["evidence"]
    assert (much["sign"], much["id"], little["sign"], little["id"]) == ("+", "kettle", "-", "kettle")
    assert much["score"] >= 0.5 > little["score"]
    assert "gooseneck" in much["why"]


def test_the_result_is_json_and_its_text_says_what_failed(result: dict[str, Any]) -> None:
    assert json.loads(json.dumps(result)) == result
    text = precision.table(result)
    assert "active 1 of 2, structural 1 of 1, trivially empty 1 of 2" in text
    assert "too-much (Small; domain:home)\n  ? gooseneck kettle\n  +" in text
    assert "finds (" not in text
    assert "Failed turns: 2 of 4" in text


def test_the_command_prints_and_writes(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(path: Path, embedder: Any) -> dict[str, Any]:
        assert embedder == "hash"
        return original(path, HashEmbedder(256))

    original: Callable[..., dict[str, Any]] = precision.run
    monkeypatch.setattr(precision, "run", run)
    precision.main([str(folder), "--embedder", "hash", "--json", str(folder / "out.json")])
    assert "5 cases and 4 turns of 1 sessions over 11 beliefs" in capsys.readouterr().out
    assert json.loads((folder / "out.json").read_text("utf-8"))["summary"]["passed"] == 3


def test_a_folder_without_the_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError, match="give the folder that holds"):
        precision.run(tmp_path, HashEmbedder(64))
    with pytest.raises(SystemExit):
        precision.main([str(tmp_path)])
    assert "is not there" in capsys.readouterr().err


# -- the data set


@pytest.fixture
def real() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """The benchmark's beliefs, cases and sessions, where they are on this machine."""
    folder = Path(os.environ.get("ENGRAMMA_EVAL_DATA") or ROOT / "../shared/data") / "precisionmembench"
    if not (folder / precision.CASES).is_file():
        pytest.skip("PrecisionMemBench is not here: set ENGRAMMA_EVAL_DATA to the folder that holds precisionmembench")
    seed, cases, sessions = (
        json.loads((folder / name).read_text("utf-8")) for name in (precision.BELIEFS, precision.CASES, precision.SESSIONS)
    )
    return seed, cases, sessions


def _perfect(one: Case, wanted: frozenset[str]) -> Context:
    """What a case asks for, and nothing else."""
    tiers = {name: one.expect.get(name) or {} for name in ("personaPrelude", "pinnedFacts", "relevantBeliefs", "openQuestions")}
    prelude = "" if tiers["personaPrelude"].get("isNull") else " ".join(["is", *(tiers["personaPrelude"].get("contains") or ())])
    pinned = {*(tiers["pinnedFacts"].get("mustInclude") or ()), *(tiers["relevantBeliefs"].get("mustInclude") or ())} - wanted
    questions = tuple(tiers["openQuestions"].get("mustInclude") or ())
    return Context(prelude, tuple(sorted(pinned)), tuple(sorted(wanted)), questions)


def _everything(one: Case, perfect: Context, seed: list[dict[str, Any]]) -> Context:
    """Every belief of the user, as far as there is room: a memory that never says no."""
    active = [raw for raw in seed if raw["user_id"] == one.user and not raw["superseded_by"] and not raw["resolved_at"]]
    questions = {raw["_id"] for raw in active if raw["type"] == "open_question"}
    pinned = [
        raw["_id"] for raw in active if raw["pinned"] and set(raw["scope"]) & set(one.scope) and raw["_id"] not in questions
    ]
    hits = tuple(raw["_id"] for raw in active) if one.query.strip() else ()
    return in_tiers(Found(perfect.prelude, tuple(pinned), perfect.questions, hits), one.most)


def test_the_data_set_has_cases_of_the_three_kinds_that_were_published(real: Any) -> None:
    seed, cases, sessions = real
    user = precision.usual_user(seed)
    pinned = frozenset(raw["_id"] for raw in seed if raw["pinned"] and raw["user_id"] == user)
    perfect, everything, rates = Counter[str](), Counter[str](), set()
    for one in (precision.case_of(raw, user) for raw in cases):
        wanted = expected(one.expect, pinned)
        context = _perfect(one, wanted)
        rates.add(case_rates(wanted, context))
        perfect[kind_of(one.expect, wanted)] += not failures(one.expect, context)
        everything[kind_of(one.expect, wanted)] += not failures(one.expect, _everything(one, context, seed))
    assert len(cases) == 77
    assert perfect == {"active": 43, "structural": 25, "trivially empty": 9}
    assert rates == {(1.0, 1.0), (None, None)}
    assert everything == {"active": 0, "structural": 6, "trivially empty": 3}
    assert (len(sessions), sum(len(session["turns"]) for session in sessions)) == (2, 12)
