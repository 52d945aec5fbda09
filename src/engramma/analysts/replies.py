"""From a model's reply to readings: repaired, checked part by part, used as far as it is valid.

Nothing of a reply is believed: labels must have been shown, types must fit, and every part that is
dropped is said, to be written on the commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import json_repair
from pydantic import BaseModel, TypeAdapter, ValidationError

from engramma.analysts.base import Page
from engramma.analysts.prompts import EXAMPLE, ChangePart, LinkPart, NotePart, Sheet
from engramma.analysts.rules import describe
from engramma.errors import ReplyInvalid
from engramma.note import LinkProposal, NeighbourChange, NoteId, Reading
from engramma.words import excerpt

P = TypeVar("P", bound=BaseModel)
_KEPT_KINDS = ("follows", "derived_from")  # session order and insights: never a model's to claim
_STRENGTHEN = 0.1
_MOST_WORDS = 16  # of one list in a reply
_LONGEST = 100_000  # characters of a reply that are looked at
_PLACES = 20  # brackets tried as the beginning of the JSON
_OWN_FIELDS = ("keywords", "tags", "context", "category", "importance")
_ADAPTERS = {name: TypeAdapter(NotePart.model_fields[name].rebuild_annotation()) for name in (*_OWN_FIELDS, "same_as")}


@dataclass(slots=True)
class _Checked:
    """What of one entry is valid, and what was dropped."""

    own: dict[str, Any] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


def readings(text: str, pages: Sequence[Page], sheet: Sheet) -> list[Reading | ReplyInvalid]:
    """One reading a page, or why there is none. Raises ReplyInvalid when nothing can be used."""
    entries, strangers = _entries(text, sheet)
    if not entries:
        raise ReplyInvalid(f"the reply holds no reading of any draft: {excerpt(text, 120)!r}")
    found: list[Reading | ReplyInvalid] = []
    for label, page in zip(sheet.drafts, pages, strict=True):
        if label not in entries:
            found.append(ReplyInvalid(f"the reply says nothing of draft {label}"))
        else:
            found.append(_reading(entries[label], page, label, sheet, strangers))
    return found


def _entries(text: str, sheet: Sheet) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The reply's entries by label, and remarks on entries that belong to no draft."""
    items = next((items for data in parsed(text) if (items := _items(data))), [])
    if len(items) == 1 and len(sheet.drafts) == 1 and "label" not in items[0]:
        return {next(iter(sheet.drafts)): items[0]}, []
    known = {str(item.get("label")): item for item in items if str(item.get("label")) in sheet.drafts}
    return known, [f"entry for {item.get('label')!r}, which is no draft" for item in items if item not in known.values()]


def _candidates(text: str) -> Iterator[str]:
    """Where the JSON of a reply may stand: in a code fence, or from one of its brackets on."""
    text = text[:_LONGEST]
    yield from (block for block in re.findall(r"```(?:\w+)?\s*(.*?)```", text, re.DOTALL) if "{" in block)
    yield from (text[match.start() :] for match in islice(re.finditer(r"[\[{](?=\s*[\[{\"])", text), _PLACES))


def parsed(text: str) -> Iterator[Any]:
    """What JSON a reply may hold, repaired, the likeliest first."""
    for part in _candidates(text):
        with suppress(RecursionError, ValueError):  # nested beyond what the parser follows
            yield json_repair.loads(part)


def _items(data: Any) -> list[Mapping[str, Any]]:
    """The entries in what a reply holds: those that have a field of a reading."""
    while isinstance(data, Mapping) and len(data) == 1 and isinstance(next(iter(data.values())), Mapping | list):
        data = next(iter(data.values()))  # {"notes": […]}, {"reading": {"notes": …}}
    if isinstance(data, Mapping):
        data = data.get("notes", [data])
    items = [item for item in (data if isinstance(data, list) else [data]) if isinstance(item, Mapping)]
    return [item for item in items if set(item) & {*_OWN_FIELDS, "links", "changes"} and "properties" not in item]


def _reading(entry: Mapping[str, Any], page: Page, label: str, sheet: Sheet, strangers: Sequence[str]) -> Reading | ReplyInvalid:
    checked = _own_fields(entry)
    checked.dropped += strangers
    near = {sheet_label: note for sheet_label, note in sheet.notes.items() if note in {n.note.id for n in page.neighbours}}
    links = _links(entry.get("links", []), near, checked)
    changes = _changes(entry.get("changes", []), near, page, checked)
    if not {"keywords", "tags", "context"} & set(checked.own):
        return ReplyInvalid(f"nothing of the reply's entry for {label} is valid: {'; '.join(checked.dropped)}")
    same = checked.own.pop("same_as", None)
    if same is not None and same not in near:
        checked.dropped.append(f"same_as names {same!r}, which was not shown")
    rules = describe(page.draft)
    return Reading(
        keywords=tuple(checked.own.get("keywords") or rules.keywords),
        tags=tuple(checked.own.get("tags") or rules.tags),
        context=checked.own.get("context") or rules.context,
        category=checked.own.get("category") or rules.category,
        importance=checked.own.get("importance") or rules.importance,
        dates=rules.dates,
        links=tuple(_with_duplicate(links, near.get(same or ""))),
        changes=tuple(changes),
        duplicate_of=near.get(same or ""),
        dropped=tuple(checked.dropped),
    )


def _with_duplicate(links: list[LinkProposal], twin: NoteId | None) -> list[LinkProposal]:
    if twin is None or any(link.target == twin and link.kind == "same_as" for link in links):
        return links
    return [*links, LinkProposal(twin, "same_as", "says exactly the same", 1.0)]


def _own_fields(entry: Mapping[str, Any]) -> _Checked:
    checked = _Checked()
    for name, adapter in _ADAPTERS.items():
        if entry.get(name) in (None, "", []):
            continue
        if name in EXAMPLE and entry[name] == EXAMPLE[name]:
            checked.dropped.append(f"{name} repeats the prompt's example")
            continue
        try:
            checked.own[name] = _bounded(name, adapter.validate_python(entry[name], strict=True), checked)
        except ValidationError as error:
            checked.dropped.append(f"{name}={excerpt(repr(entry[name]), 60)}: {error.errors()[0]['msg'].lower()}")
    return checked


def _bounded(name: str, value: Any, checked: _Checked) -> Any:
    if isinstance(value, list) and len(value) > _MOST_WORDS:
        checked.dropped.append(f"{len(value) - _MOST_WORDS} of {len(value)} {name}: at most {_MOST_WORDS} are kept")
        return value[:_MOST_WORDS]
    return value


def _parts(model: type[P], items: Any, name: str, checked: _Checked) -> list[P]:
    """The valid items of a list field."""
    if not isinstance(items, list):
        if items is not None:
            checked.dropped.append(f"{name} is not a list: {excerpt(repr(items), 60)}")
        return []
    valid = []
    if len(items) > _MOST_WORDS:
        checked.dropped.append(f"{len(items) - _MOST_WORDS} of {len(items)} {name}s: at most {_MOST_WORDS} are kept")
    for item in items[:_MOST_WORDS]:
        try:
            valid.append(model.model_validate(item))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            checked.dropped.append(f"{name} {excerpt(repr(item), 60)}: {where} {first['msg'].lower()}")
    return valid


def _links(items: Any, near: Mapping[str, NoteId], checked: _Checked) -> list[LinkProposal]:
    links: dict[tuple[NoteId, str], LinkProposal] = {}
    for part in _parts(LinkPart, items, "link", checked):
        if part.to not in near:
            checked.dropped.append(f"link to {part.to!r}, which was not shown")
            continue
        kind = re.sub(r"\W+", "_", part.kind.casefold()).strip("_") or "related"
        if kind in _KEPT_KINDS:
            checked.dropped.append(f"link to {part.to!r} of kind {kind!r}, which is ours to make")
            continue
        links.setdefault((near[part.to], kind), LinkProposal(near[part.to], kind, part.reason, part.strength))
    return list(links.values())


def _changes(items: Any, near: Mapping[str, NoteId], page: Page, checked: _Checked) -> list[NeighbourChange]:
    changes: dict[NoteId, NeighbourChange] = {}
    for part in _parts(ChangePart, items, "change", checked):
        if part.note not in near:
            checked.dropped.append(f"change of {part.note!r}, which was not shown")
            continue
        strengthen = _shown(part.strengthen, near, "strengthen", checked)
        prune = _shown(part.prune, near, "prune", checked)
        changes[near[part.note]] = NeighbourChange(
            near[part.note], part.reason, part.context, tuple(part.add_keywords[:_MOST_WORDS]), tuple(part.add_tags[:_MOST_WORDS]),
            strengthen=dict.fromkeys(strengthen, _STRENGTHEN), prune=tuple(prune),
        )  # fmt: skip
    return list(changes.values())


def _shown(labels: Sequence[str], near: Mapping[str, NoteId], name: str, checked: _Checked) -> list[NoteId]:
    checked.dropped += [f"{name} names {label!r}, which was not shown" for label in labels if label not in near]
    return [near[label] for label in labels if label in near]
