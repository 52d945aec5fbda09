"""The parts of ``python -m evals``: each measures, prints its tables, and hands over what goes into the file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from evals import asking, locomo, measures, results, sets
from evals.ablations import ABLATIONS, SWEPT
from evals.asking import DEFAULT, Run, outcomes
from evals.embeddings import Cached
from evals.measures import Outcome, by_kind, curve, percentile
from evals.sets import BadInput, Collection, Question

Data = dict[str, Any]
OFF_TOPIC = Path(__file__).parent / "off_topic.json"


def run_locomo(args: Namespace, embedder: Cached) -> Data:
    """A file of LoCoMo: default tables, and what else is asked for."""
    every = locomo.read(args.file)
    right = _errata(args)
    conversations = locomo.limited(every, args.conversations, args.questions)
    done = asking.run(DEFAULT, conversations, embedder)
    kept = _reported(done, conversations, "as published")
    if right is not None:
        mended = locomo.mended(conversations, right)
        kept["errata"] = _with_errata(done, conversations, mended)
    kept["traps"] = _traps(done, conversations)
    kept["cost"] = _cost(done, conversations)
    ways = _ways(args, conversations, embedder, done)
    kept |= _ablations(ways, conversations) if args.ablations else {}
    kept |= _sweep(ways, conversations, args.json) if args.sweep else {}
    if args.picture:
        _picture(conversations[0], embedder, args)
    kept["per question"] = asking.places(done, conversations)
    return kept


def _errata(args: Namespace) -> locomo.Errata | None:
    path = args.errata or locomo.errata_beside(args.file)
    return None if path is None else locomo.errata(path)


def _reported(done: Run, collections: Sequence[Collection], title: str) -> Data:
    """Print and hand over the two tables of a run: exactly k hits, and default settings."""
    found = _some(outcomes(done, collections))
    kept = {"exact": by_kind(found, measures.exact), "default": by_kind(found, measures.default)}
    print(results.table(f"{title}: evidence among exactly k direct hits, %", kept["exact"]))
    print(results.table(f"{title}: default settings, %", kept["default"]))
    return kept


def _some(found: list[Outcome]) -> list[Outcome]:
    if not found:
        raise BadInput("no question has evidence among the notes: nothing can be measured")
    return found


def _with_errata(done: Run, published: Sequence[Collection], mended: Sequence[Collection]) -> Data:
    pairs = [
        pair for one, other in zip(published, mended, strict=True) for pair in zip(one.questions, other.questions, strict=True)
    ]
    changed = sum(set(before.evidence) != set(after.evidence) for before, after in pairs)
    return {"changed": changed, **_reported(done, mended, f"errata applied ({changed} questions with other evidence)")}


def _traps(done: Run, conversations: Sequence[Collection]) -> Data:
    """How often the evidence that a question without an answer lures to comes back, and how often nothing does."""
    found = asking.traps(done, conversations)
    if not found:
        return {}
    row = {
        "questions": len(found),
        "hit@10": fmean(measures.hit(one.places, 10) for one in found),
        "R@10": fmean(measures.recall(one.places, 10) for one in found),
        "declined": fmean(one.declined for one in found),
    }
    print(
        results.table(
            "questions without an answer: the evidence of the trap, and how often nothing comes back, %", {"traps": row}
        )
    )
    return row


def _cost(done: Run, collections: Sequence[Collection]) -> Data:
    """Time without embedding, by collection."""
    rows = {one.name: _times(done, [one]) for one in collections}
    rows["all"] = _times(done, collections)
    print(results.table("cost, embedding excluded: ingestion, and a search with default settings", rows))
    merged = sum(len(held) - len(set(held.values())) for held in done.holders.values())
    hidden = sum(map(len, done.hidden.values()))
    print(f"  {merged} items were merged into a note that says the same; {hidden} notes are superseded and left out of search")
    return {"by collection": rows, "merged": merged, "superseded": hidden}


def _times(done: Run, collections: Sequence[Collection]) -> Data:
    ms = [reply.seconds * 1e3 for one in collections for reply in done.replies[one.name].values()]
    seconds = sum(done.ingestion[one.name] for one in collections)
    notes = sum(len(one.items) for one in collections)
    return {"notes": notes, "seconds": seconds, "asked": len(ms), "ms": percentile(ms, 50), "ms p95": percentile(ms, 95)}


Ways = Mapping[str, Run]


def _ways(args: Namespace, conversations: Sequence[Collection], embedder: Cached, full: Run) -> Ways:
    """The runs that the tables and pictures asked for need."""
    wanted = list(ABLATIONS) if args.ablations else list(SWEPT) if args.sweep else []
    return {name: full if ABLATIONS[name] is DEFAULT else _way(name, conversations, embedder) for name in wanted}


def _way(name: str, collections: Sequence[Collection], embedder: Cached) -> Run:
    untrapped = [replace(one, questions=one.answerable, traps=()) for one in collections]
    return asking.run(ABLATIONS[name], untrapped, embedder, name)


def _ablations(ways: Ways, conversations: Sequence[Collection]) -> Data:
    rows: dict[str, dict[str, float]] = {}
    for name, done in ways.items():
        found = outcomes(done, conversations)
        rows[name] = results.ablation_row(by_kind(found, measures.exact), by_kind(found, measures.default))
    print(
        results.table("one part changed at a time: evidence among k direct hits, and of all that came back by default, %", rows)
    )
    return {"ablations": rows}


def _sweep(ways: Ways, conversations: Sequence[Collection], file: Path) -> Data:
    from evals import plots

    curves = {name: curve(outcomes(ways[name], conversations), plots.KS) for name in SWEPT}
    print(results.table("evidence among k direct hits, %", {name: _named(line) for name, line in curves.items()}))
    plots.sweep(curves, file.with_name(f"{file.stem}-sweep.png"))
    return {"sweep": curves}


def _named(line: Mapping[int, float]) -> dict[str, float]:
    return {f"k={k}": share for k, share in line.items()}


def _picture(conversation: Collection, embedder: Cached, args: Namespace) -> None:
    from evals import plots

    file = args.json.with_name(f"{args.json.stem}-notes.png")
    count = plots.picture(conversation, embedder, file, args.seed)
    print(f"  {count} notes of {conversation.name}")


def run_chinese(args: Namespace, embedder: Cached) -> Data:
    """The Chinese set, three ways."""
    collection = sets.chinese(args.file)
    kept: Data = {}
    for name in SWEPT:
        done = asking.run(ABLATIONS[name], [collection], embedder, name)
        kept[name] = _reported(done, [collection], name)
        if ABLATIONS[name] is DEFAULT:
            kept["cost"] = _cost(done, [collection])
            kept["per question"] = asking.places(done, [collection])
    return kept


def run_off_topic(args: Namespace, embedder: Cached) -> Data:
    """Questions that no memory here can answer, asked of each; beside them those that it can."""
    asked = off_topic(args.file)
    memories = [replace(one, traps=asked) for one in _memories(args)]
    done = asking.run(DEFAULT, memories, embedder)
    rows = {one.name: _declines(done, [one]) for one in memories} | {"all": _declines(done, memories)}
    print(results.table("share of questions to which nothing comes back with default settings, %", rows))
    return {"declined": rows, "answered off topic": [found for one in memories for found in _answered(done, one)]}


def _memories(args: Namespace) -> list[Collection]:
    """The collections to ask: LoCoMo's where its file is given, the Chinese set, the sample diary."""
    conversations = locomo.limited(locomo.read(args.locomo), args.conversations, args.questions) if args.locomo else []
    return [*conversations, sets.chinese(), sets.diary()]


def off_topic(path: Path) -> tuple[Question, ...]:
    """The questions of a file, numbered below those of any collection."""
    found = sets.loaded(path)
    asked = found.get("questions") if isinstance(found, dict) else None
    needed = {"question", "language", "kind"}
    if not isinstance(asked, list) or not all(isinstance(one, dict) and needed <= set(one) for one in asked):
        raise BadInput(f"{str(path)!r} is no object with a list 'questions' of objects with question, language, kind")
    return tuple(Question(-number, one["question"], f"{one['language']}, {one['kind']}") for number, one in enumerate(asked, 1))


def _declines(done: Run, memories: Sequence[Collection]) -> dict[str, float | None]:
    """Shares that are declined: off-topic questions, in all and by kind, and answerable ones."""
    off = [(one.name, question) for one in memories for question in one.traps]
    own = [(one.name, question) for one in memories for question in one.answerable]
    kinds = sorted({question.kind for _, question in off})
    by_kind_of = {kind: _declined(done, [pair for pair in off if pair[1].kind == kind]) for kind in kinds}
    return {
        "notes": sum(len(one.items) for one in memories),
        "off topic: asked": len(off),
        "off topic": _declined(done, off),
        **by_kind_of,
        "answerable: asked": len(own),
        "answerable": _declined(done, own),
    }


def _declined(done: Run, asked: Sequence[tuple[str, Question]]) -> float | None:
    empty = [not done.replies[space][question.number].direct for space, question in asked]
    return fmean(empty) if empty else None


def _answered(done: Run, one: Collection) -> list[Data]:
    """The off-topic questions to which something came back, and how many direct hits."""
    counts = [(question, len(done.replies[one.name][question.number].direct)) for question in one.traps]
    return [{"memory": one.name, "question": question.text, "direct": direct} for question, direct in counts if direct]


def run_precision(args: Namespace, embedder: Cached) -> Data:
    """PrecisionMemBench, from a folder with its fixtures."""
    from evals import precision

    if not args.folder.is_dir():
        raise BadInput(f"there is no folder {str(args.folder)!r}: give the one with the fixtures of tenurehq/precisionMemBench")
    for name in (precision.BELIEFS, precision.CASES, precision.SESSIONS):
        if not isinstance(found := sets.loaded(args.folder / name), list) or not found:
            raise BadInput(f"{str(args.folder / name)!r} holds no list: give the fixtures of tenurehq/precisionMemBench")
    result: Data = precision.run(args.folder, embedder)
    print(precision.table(result))
    return result


def run_fit(args: Namespace, embedder: Cached) -> Data:
    """The weights of recall, fitted: the table to put into ``engramma.scoring``, and how far to trust it."""
    from evals import fit

    memories = [*locomo.limited(locomo.read(args.file), args.conversations, args.questions), sets.chinese(), sets.diary()]
    found = fit.shelves(memories, off_topic(OFF_TOPIC), embedder)
    whole = found[: len(memories)]
    weights = fit.climbed(whole)
    fitted = fit.bar_fitted([fit.bests(one, weights) for one in found], weights)
    kept = {
        "weights": asdict(fitted),
        "fitted on all": {one.name: fit.recalled(one, fitted) for one in whole},
        "left out": fit.left_out(whole),
        "bars": fit.bars([fit.bests(one, fitted) for one in found], fitted),
    }
    print(results.table("recall with weights fitted on all, %", kept["fitted on all"]))
    print(results.table("recall of each with weights fitted on the others, %", kept["left out"]))
    print(results.table("declined, %", kept["bars"]))
    print("\n".join(f"{name}: {value}" for name, value in kept["weights"].items()))
    return kept


Part = Callable[[Namespace, Cached], Data]
PARTS: dict[str, Part] = {
    "locomo": run_locomo,
    "chinese": run_chinese,
    "off-topic": run_off_topic,
    "precision": run_precision,
    "fit": run_fit,
}
