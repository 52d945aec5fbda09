"""What is measured on: notes, and questions with the notes that answer them. Two small sets are read here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

CHINESE = Path(__file__).parent / "chinese"


class BadInput(ValueError):
    """A file, folder or option that cannot be measured on; the message says what would do."""


@dataclass(frozen=True, slots=True)
class Item:
    """One text to remember, under the id that its data set gives it."""

    id: str
    content: str
    speaker: str | None = None
    session: str | None = None
    at: str | None = None
    tags: tuple[str, ...] = ()

    def fields(self, space: str) -> dict[str, Any]:
        """The arguments of ``Memory.add``."""
        given = {"speaker": self.speaker, "session": self.session, "at": self.at, "tags": self.tags}
        return {"content": self.content, "space": space, **{name: value for name, value in given.items() if value}}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the ids of the items that answer it (none: it cannot be measured), and its kind."""

    number: int
    text: str
    kind: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collection:
    """Items that become the notes of one space, and what is asked of them.

    ``traps`` are questions that have no answer, with what they lure to as evidence.
    """

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]
    traps: tuple[Question, ...] = field(default=())

    @property
    def answerable(self) -> tuple[Question, ...]:
        """The questions that have evidence."""
        return tuple(question for question in self.questions if question.evidence)


def loaded(path: Path) -> Any:
    """What a JSON file holds, or of ``.jsonl`` its lines. Raises BadInput."""
    try:
        text = path.read_text("utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else json.loads(text)
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {str(path)!r}: give the path of one") from error
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read ({error.strerror}): give the path of a file") from error
    except ValueError as error:
        raise BadInput(f"{str(path)!r} is not JSON: {error}") from error


def chinese(place: Path = CHINESE) -> Collection:
    """The set in a folder with ``notes.jsonl`` and ``questions.json`` (or named by one of the two)."""
    folder = place.parent if place.is_file() else place
    items = tuple(_item(line, folder) for line in _objects(folder / "notes.jsonl", ("id", "content")))
    wanted = _objects(folder / "questions.json", ("question", "evidence"))
    known = {item.id for item in items}
    asked = tuple(_question(number, one, known, folder) for number, one in enumerate(wanted))
    return Collection("chinese", items, asked)


def _objects(path: Path, needed: Sequence[str]) -> list[Mapping[str, Any]]:
    found = loaded(path)
    if not isinstance(found, list):
        raise BadInput(f"{str(path)!r} holds no list: each entry is an object with {', '.join(needed)}")
    for number, one in enumerate(found, 1):
        if not isinstance(one, dict) or not set(needed) <= set(one):
            raise BadInput(f"{str(path)!r}: entry {number} is not an object with {', '.join(needed)}")
    return found


def _item(line: Mapping[str, Any], folder: Path) -> Item:
    if not isinstance(line["content"], str):
        raise BadInput(f"{str(folder)!r}: the content of note {line['id']!r} is no text")
    speaker, session, at = (line.get(name) for name in ("speaker", "session", "at"))
    return Item(str(line["id"]), line["content"], speaker, session, at)


def _question(number: int, one: Mapping[str, Any], known: set[str], folder: Path) -> Question:
    evidence = tuple(str(each) for each in one["evidence"])
    if lacking := [each for each in evidence if each not in known]:
        raise BadInput(f"{str(folder)!r}: the question {one['question']!r} names the note {lacking[0]!r}, which is not there")
    return Question(number, one["question"], str(one.get("kind", "")), evidence)


def diary() -> Collection:
    """The sample diary that comes with engramma, with the questions of its demo."""
    folder = files("engramma") / "sample"
    lines = [json.loads(line) for line in (folder / "diary.jsonl").read_text("utf-8").splitlines()]
    items = tuple(
        Item(
            f"line {number}", line["text"], line.get("speaker"), line.get("session"), line.get("at"), tuple(line.get("tags", ()))
        )
        for number, line in enumerate(lines, 1)
    )
    asked = json.loads((folder / "questions.json").read_text("utf-8"))
    return Collection("diary", items, tuple(_found_by(number, one, items) for number, one in enumerate(asked)))


def _found_by(number: int, one: Mapping[str, Any], items: Sequence[Item]) -> Question:
    evidence = tuple(item.id for item in items if one["finds"] and one["finds"] in item.content)
    return Question(number, one["question"], one["lang"], evidence)
