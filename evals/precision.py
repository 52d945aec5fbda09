"""PrecisionMemBench (arXiv 2605.11325, github.com/tenurehq/precisionMemBench): does the right note come back, and only it?

``python -m evals.precision DIR`` runs it, where DIR holds ``beliefs.seed.json``, ``retrieval.cases.json`` and
``session-retrieval.cases.json``. Everything goes through the public API of ``Memory``.

A belief is one note in each of its scopes. The space is (user, scope), the content is the belief's, keywords are its
aliases and its canonical name, ``at`` is when it was made, ``pinned`` is kept; type, status and ``why_it_matters`` go to
the metadata, which is not searched. What replaced a belief is linked to it as ``supersedes``, a relation's participants
are ``part_of`` it, and a resolved question is deleted.

A question is one search of the user's named scopes with the default cut-off. Pinned beliefs and open questions have
tiers of their own and come from ``list``; a search hit that belongs there is left out of the relevant tier. Upstream
routes only the pinned beliefs so: what that would change is in the summary as ``unrouted``. Linked notes are not asked
for (``expand=False``): as upstream, a relation that was found brings its participants and nothing else does. The prelude,
a fixed text upstream, is what the user has pinned in the universal scope. An empty question, or room for no belief, asks
nothing.

Precision and recall are of the relevant tier. Precision is 0 where something was expected and nothing came, and none
where nothing was expected and nothing came; recall is none where nothing was expected.

A case that expects relevant beliefs is *active*. One that expects none is *structural* when it asserts anything else
(another tier, a belief that must not surface), and *trivially empty* when it asserts nothing but the emptiness. With this
rule, published by its outcomes only, a system that passes everything gets 43, 25 and 9, and one that brings back everything
gets 0, 6 and 3, as upstream's tables say.

In a session the store is alive: beliefs are added and get aliases between turns, and the cases of the file share one
memory. Precision is none where nothing came, pinned beliefs count as found, and drift is 1 - precision, or 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import engramma
from engramma import Hit, Memory, Note
from evals.precision_rules import (
    MOST_BELIEFS,
    QUESTION,
    Case,
    Context,
    Found,
    Kind,
    Rates,
    Space,
    case_rates,
    expected,
    failures,
    in_tiers,
    kind_of,
    turn_rates,
)

Json = dict[str, Any]

BELIEFS, CASES, SESSIONS = "beliefs.seed.json", "retrieval.cases.json", "session-retrieval.cases.json"
UNIVERSAL = "user:universal"
RELATION = "relation"
PART_OF = "part_of"
WHOLE = 1000
KINDS: tuple[Kind, ...] = ("active", "structural", "trivially empty")

PEERS = (
    ("tenure", 43, 77, 1.00, 1.00, 12, 0.00),
    ("open-knowledge-format", 18, 36, 0.47, 0.91, 2, 0.22),
    ("supermemory", 17, 44, 0.43, 0.55, 2, 0.17),
    ("agentmemory", 0, 7, 0.17, 0.97, 0, 0.81),
    ("yourmemory", 0, 21, 0.17, 0.88, 1, 0.74),
    ("zep", 0, 9, 0.09, 0.95, 0, 0.89),
    ("hindsight", 0, 9, 0.06, 1.00, 0, 0.93),
    ("mem0", 0, 9, 0.06, 0.99, 0, 0.94),
    ("a-mem", 0, 9, 0.06, 0.99, 0, 0.93),
)
"""Published: name, active passes of 43, passes of 77, precision, recall; session turns passed of 12, drift."""


# -- the memory


class Beliefs:
    """The benchmark's beliefs as notes of a memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def seed(self, beliefs: Sequence[Json]) -> None:
        """Add beliefs, then what they say about each other."""
        for belief in beliefs:
            self._write(belief)
        for belief in beliefs:
            self._settle(belief)

    def add_aliases(self, user: str, belief: str, aliases: Sequence[str]) -> None:
        """More names for a belief, lower-cased as upstream does it."""
        more = [alias.strip().lower() for alias in aliases]
        spaces = [space for space in self.memory.spaces() if space[0] == user]
        for note in self._notes(belief, spaces):
            self.memory.update(note, keywords=list(dict.fromkeys([*note.keywords, *more])))

    def find(self, case: Case) -> Found:
        """Everything that the tiers of a case are made of."""
        pinned = self._pinned(case.spaces, {"metadata.type": {"$ne": QUESTION}})
        questions = self._pinned(case.spaces, {"metadata.type": QUESTION})
        prelude = self._pinned([(case.user, UNIVERSAL)], {"metadata.type": {"$ne": QUESTION}})
        hits = self._search(case, case.most)
        joined = self._participants([hit.note for hit in hits if not hit.note.pinned])
        of_questions = frozenset(_key(hit.note) for hit in hits if hit.note.metadata.get("type") == QUESTION)
        text = " ".join(note.content for note in prelude)
        return Found(text, _keys(pinned), _keys(questions), _keys([hit.note for hit in hits]), of_questions, _keys(joined))

    def whole(self, case: Case) -> dict[str, Hit]:
        """Every note a case may see, with its score, whatever the cut-off: to see why it came or did not."""
        return {_key(hit.note): hit for hit in reversed(self._search(case, WHOLE, min_relevance=0))}

    def _search(self, case: Case, k: int, **options: Any) -> list[Hit]:
        if not case.query.strip() or k < 1:
            return []
        return self.memory.search(case.query, k=k, space=case.spaces, expand=False, **options)

    def _pinned(self, spaces: list[Space], where: Json) -> list[Note]:
        return self.memory.list(where={"pinned": True, "valid_until": None, **where}, space=spaces)

    def _participants(self, notes: Sequence[Note]) -> list[Note]:
        relations = [note for note in notes if note.metadata.get("type") == RELATION]
        ends = [link.source for note in relations for link in note.links if link.kind == PART_OF and link.target == note.id]
        return [note for note in map(self.memory.get, ends) if note.metadata.get("type") != QUESTION]

    def _write(self, belief: Json) -> None:
        names = [*belief["aliases"], belief["canonical_name"].replace("_", " ")]
        metadata = {"type": belief["type"], "status": belief.get("epistemic_status"), "why": belief.get("why_it_matters")}
        for space in _spaces(belief):
            self.memory.add(
                belief["content"], space=space, keywords=list(dict.fromkeys(names)), at=belief["created_at"],
                pinned=belief["pinned"], key=belief["_id"], metadata=metadata,
            )  # fmt: skip

    def _settle(self, belief: Json) -> None:
        """Say what a belief says of others: its participants, what replaced it, that it is resolved."""
        for note in self._notes(belief["_id"], _spaces(belief)):
            for participant in self._notes(belief.get("participants") or (), [note.space]):
                self.memory.link(participant, note, kind=PART_OF, reason="participant")
            newer = self._notes(belief.get("superseded_by"), [note.space])
            if newer:
                self.memory.link(newer[0], note, kind="supersedes", reason="replaced")
            elif belief.get("superseded_by") or belief.get("resolved_at"):
                self.memory.delete(note)

    def _notes(self, beliefs: str | Sequence[str] | None, spaces: list[Space]) -> list[Note]:
        ids = [beliefs] if isinstance(beliefs, str) else list(beliefs or ())
        return self.memory.list(where={"key": {"$in": ids}}, space=spaces) if ids and spaces else []


def _spaces(belief: Json) -> list[Space]:
    return [(belief["user_id"], scope) for scope in belief["scope"]]


def _key(note: Note) -> str:
    return note.key or note.id


def _keys(notes: Sequence[Note]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_key, notes)))


# -- the run


def run(folder: Path, embedder: Any = None) -> Json:
    """Run all cases and sessions; a dict ready for JSON. ``embedder`` is what ``Memory.open`` takes."""
    seed, cases, sessions = (_read(Path(folder) / name) for name in (BELIEFS, CASES, SESSIONS))
    rows, settings = _run_cases(seed, cases, embedder)
    turns = _run_sessions(seed, sessions, embedder)
    return {
        "settings": settings,
        "summary": summarise(rows),
        "categories": by_category(rows),
        "cases": rows,
        "session summary": summarise_session(turns, len(sessions)),
        "turns": turns,
    }


def _read(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: give the folder that holds {BELIEFS}, {CASES} and {SESSIONS}")
    return json.loads(path.read_text("utf-8"))


def usual_user(beliefs: Sequence[Json]) -> str:
    """The user whom the cases mean when they name none: the one with the most beliefs."""
    return str(Counter(belief["user_id"] for belief in beliefs).most_common(1)[0][0])


def case_of(raw: Json, user: str) -> Case:
    """A case of the file; ``user`` is whom it means when it names none."""
    most = (raw.get("budget") or {}).get("maxBeliefs", MOST_BELIEFS)
    return Case(raw["caseId"], raw["category"], raw.get("userId") or user, tuple(raw["scope"]), raw["query"], raw["expect"], most)


def turn_of(raw: Json, session: str, user: str) -> Case:
    """A turn of a session as a case."""
    name = f"{session} #{raw['turnIndex']}"
    return Case(name, raw["label"], user, tuple(raw["scope"]), raw["userMessage"], raw["expect"])


def _run_cases(seed: Sequence[Json], cases: Sequence[Json], embedder: Any) -> tuple[list[Json], Json]:
    user = usual_user(seed)
    pinned = frozenset(belief["_id"] for belief in seed if belief["pinned"] and belief["user_id"] == user)
    with Memory.open(":memory:", embedder=embedder) as memory:
        beliefs = Beliefs(memory)
        began = time.perf_counter()
        beliefs.seed(seed)
        settings = _settings(memory, len(seed), time.perf_counter() - began)
        rows = [_case_row(beliefs, case_of(raw, user), pinned) for raw in cases]
    return rows, settings


def _settings(memory: Memory, beliefs: int, seconds: float) -> Json:
    stats = memory.stats()
    return {
        "engramma": engramma.__version__, "embedder": stats.embedder, "analyst": stats.analyst, "beliefs": beliefs,
        "k": MOST_BELIEFS, "cut-off": "default", "expand": False, "seconds to seed": round(seconds, 3),
    }  # fmt: skip


def _case_row(beliefs: Beliefs, case: Case, pinned: Set[str]) -> Json:
    wanted = expected(case.expect, pinned)
    return {**_row(beliefs, case, wanted, case_rates), "kind": kind_of(case.expect, wanted)}


def _turn_row(beliefs: Beliefs, turn: Case) -> Json:
    row = _row(beliefs, turn, expected(turn.expect), turn_rates)
    return {**row, "drift": 0.0 if row["precision"] is None else 1 - row["precision"]}


def _row(beliefs: Beliefs, case: Case, wanted: Set[str], rates: Callable[[Set[str], Context], Rates]) -> Json:
    began = time.perf_counter()
    found = beliefs.find(case)
    seconds = time.perf_counter() - began
    context = in_tiers(found, case.most)
    broken = failures(case.expect, context)
    precision, recall = rates(wanted, context)
    tiers = {name: list(getattr(context, name)) for name in ("pinned", "relevant", "questions")}
    return {
        "id": case.id, "category": case.category, "scope": list(case.scope), "query": case.query,
        "passed": not broken, "failures": broken, "precision": precision, "recall": recall, **tiers,
        "passed unrouted": not failures(case.expect, in_tiers(found, case.most, route_questions=False)),
        "evidence": _evidence(beliefs.whole(case), wanted, context, found) if broken else [],
        "ms": round(1000 * seconds, 2),
    }  # fmt: skip


def _evidence(whole: Mapping[str, Hit], wanted: Set[str], context: Context, found: Found) -> list[Json]:
    """The scores of what was missing (-), found (=) and too much (+), for a case that failed."""
    signs = {one: "=" if one in context.relevant else "-" for one in sorted(wanted)}
    signs |= {one: "+" for one in context.relevant if one not in wanted}
    joined = {*found.participants} - {*found.hits}
    return [{"sign": sign, "id": one, **_scored(whole.get(one), one in joined)} for one, sign in signs.items()]


def _scored(hit: Hit | None, joined: bool) -> Json:
    by = "; participant of a relation that was found" if joined else ""
    return {"score": hit and hit.score, "why": (str(hit.why) if hit else "not in sight of this search") + by}


def _run_sessions(seed: Sequence[Json], sessions: Sequence[Json], embedder: Any) -> list[Json]:
    user, rows = usual_user(seed), []
    with Memory.open(":memory:", embedder=embedder) as memory:
        beliefs = Beliefs(memory)
        beliefs.seed(seed)
        for session in sessions:
            for turn in session["turns"]:
                rows.append(_turn_row(beliefs, turn_of(turn, session["caseId"], user)))
                _change(beliefs, turn, user)
    return rows


def _change(beliefs: Beliefs, turn: Json, user: str) -> None:
    """What a turn leaves in the memory: a new belief, or more names for an old one."""
    if created := turn.get("createBeliefAtTurn"):
        beliefs.seed([created])
    if (updated := turn.get("updateBeliefAtTurn")) and updated.get("addAliases"):
        beliefs.add_aliases(user, updated["beliefId"], updated["addAliases"])


# -- the figures


def _mean(rows: Sequence[Json], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return round(statistics.fmean(values), 4) if values else None


def figures(rows: Sequence[Json]) -> Json:
    """How many passed, of how many, and the means of the precisions and recalls there are."""
    passed = sum(row["passed"] for row in rows)
    return {"passed": passed, "of": len(rows), "precision": _mean(rows, "precision"), "recall": _mean(rows, "recall")}


def summarise(rows: Sequence[Json]) -> Json:
    """Figures of all cases and of each kind; the median time of a case."""
    of_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    unrouted = [row["kind"] for row in rows if row["passed unrouted"]]
    return {
        **figures(rows),
        "kinds": {kind: figures(of) for kind, of in of_kind.items()},
        "unrouted": {"passed": len(unrouted), "active": unrouted.count("active")},
        "ms": round(statistics.median(row["ms"] for row in rows), 2),
    }


def by_category(rows: Sequence[Json]) -> list[Json]:
    """Figures of each category, the largest first."""
    names = Counter(row["category"] for row in rows).most_common()
    return [{"category": name, **figures([row for row in rows if row["category"] == name])} for name, _ in names]


def summarise_session(rows: Sequence[Json], sessions: int) -> Json:
    """Figures of all turns of all sessions, mean drift, the median time of a turn."""
    return {
        **figures(rows),
        "sessions": sessions,
        "drift": _mean(rows, "drift"),
        "passed unrouted": sum(row["passed unrouted"] for row in rows),
        "ms": round(statistics.median(row["ms"] for row in rows), 2),
    }


# -- the text


def table(result: Json) -> str:
    """The result as text: the summary beside what others published, categories, and what failed and why."""
    parts = [_heading(result), _peers(result), _details(result), _categories(result["categories"])]
    parts += [_failed(name, result[name]) for name in ("cases", "turns")]
    return "\n\n".join(part for part in parts if part)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _heading(result: Json) -> str:
    found, cases, session = result["settings"], result["summary"]["of"], result["session summary"]
    return (
        f"PrecisionMemBench: {cases} cases and {session['of']} turns of {session['sessions']} sessions "
        f"over {found['beliefs']} beliefs\n"
        f"engramma {found['engramma']}, embedder {found['embedder']}, analyst {found['analyst']}"
    )


def _peers(result: Json) -> str:
    summary, session = result["summary"], result["session summary"]
    active, turns = summary["kinds"]["active"]["passed"], (session["passed"], session["drift"])
    own = ("engramma", active, summary["passed"], summary["precision"], summary["recall"], *turns)
    heading = f"{'':24}{'active':>8}{'passed':>8}{'precision':>11}{'recall':>8}{'turns':>8}{'drift':>7}"
    return "\n".join([heading, *map(_peer, (own, *PEERS)), "All but the first row are the published figures."])


def _peer(row: tuple[Any, ...]) -> str:
    name, active, passed, precision, recall, turns, drift = row
    return f"{name:24}{active:>8}{passed:>8}{_number(precision):>11}{_number(recall):>8}{turns:>8}{_number(drift):>7}"


def _details(result: Json) -> str:
    summary, session, unrouted = result["summary"], result["session summary"], result["summary"]["unrouted"]
    kinds = ", ".join(f"{kind} {of['passed']} of {of['of']}" for kind, of in summary["kinds"].items())
    return (
        f"Passes: {kinds}.\n"
        f"With open questions left among the relevant: {unrouted['active']} active, {unrouted['passed']} in all, "
        f"{session['passed unrouted']} turns.\n"
        f"Session: precision {_number(session['precision'])}, recall {_number(session['recall'])}.\n"
        f"Median time: {_number(summary['ms'], 1)} ms a case, {_number(session['ms'], 1)} ms a turn; "
        f"{result['settings']['seconds to seed']:.1f} s to seed."
    )


def _categories(rows: Sequence[Json]) -> str:
    lines = [f"{'category':36}{'passed':>8}{'of':>5}{'precision':>11}{'recall':>8}"]
    for row in rows:
        means = f"{_number(row['precision']):>11}{_number(row['recall']):>8}"
        lines.append(f"{row['category']:36}{row['passed']:>8}{row['of']:>5}{means}")
    return "\n".join(lines)


def _failed(name: str, rows: Sequence[Json]) -> str:
    broken = [row for row in rows if not row["passed"]]
    return "\n".join([f"Failed {name}: {len(broken)} of {len(rows)}", *map(_failure, broken)]) if broken else ""


def _failure(row: Json) -> str:
    """A case with its question, its failures, and the scores of what was missing (-), found (=) and too much (+)."""
    lines = [f"\n{row['id']} ({row['category']}; {', '.join(row['scope'])})", f"  ? {row['query'].strip()}"]
    shown = {one["id"] for one in row["evidence"]}
    lines += [f"  ! {failure}" for failure in row["failures"] if failure.rpartition(": ")[2] not in shown]
    lines += [f"  {one['sign']} {_number(one['score']):>5} {one['id']}: {one['why']}" for one in row["evidence"]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m evals.precision DIR``: run, print the table."""
    parser = argparse.ArgumentParser(prog="python -m evals.precision", description="PrecisionMemBench over engramma.")
    parser.add_argument("folder", type=Path, help=f"the folder with {BELIEFS}, {CASES} and {SESSIONS}")
    parser.add_argument("--embedder", help="what Memory.open takes; the default embedder if not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    args = parser.parse_args(arguments)
    try:
        result = run(args.folder, args.embedder)
    except FileNotFoundError as error:
        parser.error(str(error))
    sys.stdout.write(table(result) + "\n")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
