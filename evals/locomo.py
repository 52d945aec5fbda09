"""The LoCoMo data set (arXiv 2402.17753): each turn an item, each question with its evidence; and its published errata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evals.sets import BadInput, Collection, Item, Question, loaded

KINDS = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop", 5: "5 adversarial"}
"""The categories of questions; the fifth has no answer."""
TRAP = 5
_TURN = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_NOT_LOCOMO = (
    "is no file of the LoCoMo data set: it is a list of conversations, each with sample_id, conversation and qa, as in "
    "data/locomo10.json of github.com/snap-research/locomo"
)


def read(path: Path) -> list[Collection]:
    """The conversations of a file, in order. Raises BadInput for anything else."""
    found = loaded(path)
    if not isinstance(found, list) or not found:
        raise BadInput(f"{str(path)!r} {_NOT_LOCOMO}")
    try:
        return [_conversation(sample, number) for number, sample in enumerate(found)]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{str(path)!r} {_NOT_LOCOMO} ({type(error).__name__}: {error})") from error


def _conversation(sample: Mapping[str, Any], number: int) -> Collection:
    items = tuple(_items(sample["conversation"]))
    known = {item.id for item in items}
    asked = [(entry["category"], _question(place, entry, known)) for place, entry in enumerate(sample["qa"])]
    return Collection(
        str(sample.get("sample_id", f"conversation {number + 1}")),
        items,
        tuple(question for category, question in asked if category != TRAP),
        tuple(question for category, question in asked if category == TRAP),
    )


def _items(talk: Mapping[str, Any]) -> list[Item]:
    """The turns of the sessions that exist; there are date keys without a session."""
    numbers = sorted(int(match[1]) for key in talk if (match := _SESSION.fullmatch(key)))
    return [
        _item(turn, f"session_{number}", talk[f"session_{number}_date_time"])
        for number in numbers
        for turn in talk[f"session_{number}"]
        if turn["text"].strip() or turn.get("blip_caption")
    ]


def _item(turn: Mapping[str, Any], session: str, said: str) -> Item:
    caption = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = f"{turn['text']}{caption}".strip()
    return Item(turn_ids([turn["dia_id"]])[0], text, turn["speaker"], session, local_time(said))


def _question(number: int, entry: Mapping[str, Any], known: set[str]) -> Question:
    evidence = tuple(turn for turn in turn_ids(entry.get("evidence") or ()) if turn in known)
    return Question(number, entry["question"], KINDS[entry["category"]], evidence)


def turn_ids(evidence: Sequence[str]) -> tuple[str, ...]:
    """The ids named by a list of evidence, each once, as turns write them.

    Several may stand in one text; "D:11:26" means D11:26 and "D30:05" means D30:5; "D" means nothing.
    """
    found = [match for text in evidence for match in _TURN.findall(str(text))]
    return tuple(dict.fromkeys(f"D{int(session)}:{int(turn)}" for session, turn in found))


def local_time(said: str) -> str:
    """The time of a session ("1:56 pm on 8 May, 2023") in ISO 8601, without a zone as it has none."""
    try:
        return datetime.strptime(said, "%I:%M %p on %d %B, %Y").isoformat()
    except ValueError as error:
        raise BadInput(f"the session time {said!r} is not written like '1:56 pm on 8 May, 2023'") from error


Errata = Mapping[tuple[str, str], tuple[str, ...]]
"""The right evidence of a question, by conversation and text of the question."""


def errata(path: Path) -> Errata:
    """The entries of an errata file, ``errors.json`` of github.com/dial481/locomo-audit or a part of it."""
    found = loaded(path)
    needed = ("sample_id", "question", "correct_evidence")
    if not isinstance(found, list) or not all(isinstance(one, dict) and set(needed) <= set(one) for one in found):
        raise BadInput(f"{str(path)!r} holds no errata of LoCoMo: it is a list of objects with {', '.join(needed)}")
    return {(one["sample_id"], one["question"]): turn_ids(one["correct_evidence"]) for one in found}


def errata_beside(path: Path) -> Path | None:
    """The file named like a file of conversations with ``-errata`` before the suffix, where there is one."""
    place = path.with_name(f"{path.stem}-errata{path.suffix}")
    return place if place.is_file() else None


def mended(conversations: Sequence[Collection], right: Errata) -> list[Collection]:
    """The conversations with the right evidence where an erratum gives some that exists."""
    return [replace(one, questions=tuple(_mended(one, question, right) for question in one.questions)) for one in conversations]


def _mended(conversation: Collection, question: Question, right: Errata) -> Question:
    known = {item.id for item in conversation.items}
    evidence = tuple(turn for turn in right.get((conversation.name, question.text), ()) if turn in known)
    return replace(question, evidence=evidence) if evidence else question


def limited(conversations: Sequence[Collection], most: int | None, questions: int | None) -> list[Collection]:
    """The first conversations, with the first questions of each kind, for a quick run."""
    return [
        replace(one, questions=_first(one.questions, questions), traps=_first(one.traps, questions))
        for one in conversations[:most]
    ]


def _first(asked: Sequence[Question], most: int | None) -> tuple[Question, ...]:
    seen: Counter[str] = Counter()
    kept: list[Question] = []
    for question in asked:
        seen[question.kind] += 1
        if most is None or seen[question.kind] <= most:
            kept.append(question)
    return tuple(kept)
