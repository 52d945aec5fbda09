"""From a model's reply to readings: repaired, checked part by part, used as far as it is valid.

Nothing of a reply is believed: labels must have been shown, types must fit, and every part that is
dropped is said, to be written on the commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import json_repair
from pydantic import BaseModel, TypeAdapter, ValidationError

from engramma.analysts.base import Page
from engramma.analysts.prompts import ChangePart, LinkPart, NotePart, Sheet
from engramma.analysts.rules import describe
from engramma.errors import ReplyInvalid
from engramma.note import LinkProposal, NeighbourChange, NoteId, Reading
from engramma.words import excerpt

P = TypeVar("P", bound=BaseModel)
_STRENGTHEN = 0.1
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
    data = json_repair.loads(_unfenced(text))
    if isinstance(data, Mapping):
        data = data.get("notes", [data])
    items = [item for item in (data if isinstance(data, list) else [data]) if isinstance(item, Mapping)]
    items = [item for item in items if set(item) & {*_OWN_FIELDS, "links", "changes"} and "properties" not in item]
    if len(items) == 1 and len(sheet.drafts) == 1 and "label" not in items[0]:
        return {next(iter(sheet.drafts)): items[0]}, []
    known = {str(item.get("label")): item for item in items if str(item.get("label")) in sheet.drafts}
    return known, [f"entry for {item.get('label')!r}, which is no draft" for item in items if item not in known.values()]


def _unfenced(text: str) -> str:
    """The inside of the first code fence that holds a brace, or the text from its first brace on."""
    for block in re.findall(r"```(?:\w+)?\s*(.*?)```", text, re.DOTALL):
        if "{" in block:
            return str(block)
    starts = [position for mark in "{[" if (position := text.find(mark)) >= 0]
    return text[min(starts) :] if starts else ""


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
        try:
            checked.own[name] = adapter.validate_python(entry[name], strict=True)
        except ValidationError as error:
            checked.dropped.append(f"{name}={excerpt(repr(entry[name]), 60)}: {error.errors()[0]['msg'].lower()}")
    return checked


def _parts(model: type[P], items: Any, name: str, checked: _Checked) -> list[P]:
    """The valid items of a list field."""
    if not isinstance(items, list):
        if items is not None:
            checked.dropped.append(f"{name} is not a list: {excerpt(repr(items), 60)}")
        return []
    valid = []
    for item in items:
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
            near[part.note], part.reason, part.context, tuple(part.add_keywords), tuple(part.add_tags),
            strengthen=dict.fromkeys(strengthen, _STRENGTHEN), prune=tuple(prune),
        )  # fmt: skip
    return list(changes.values())


def _shown(labels: Sequence[str], near: Mapping[str, NoteId], name: str, checked: _Checked) -> list[NoteId]:
    checked.dropped += [f"{name} names {label!r}, which was not shown" for label in labels if label not in near]
    return [near[label] for label in labels if label in near]
