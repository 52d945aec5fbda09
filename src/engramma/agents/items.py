"""A store's item as a note and back: what its text is, when it expires, which filters it passes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from langgraph.store.base import SearchItem, get_text_at_path

from engramma.context import without_recalled
from engramma.draft import checked
from engramma.errors import InvalidInput
from engramma.note import Note
from engramma.words import excerpt

Index = Literal[False] | list[str] | None
ITEM = "item"
"""The key of a note's metadata that holds an item's value, index paths and minutes to live."""

_BARE = ("content", "text", "data", "memory", "fact", "page_content", "message", "note", "value")
_OWN = ("content", "context", "category", "speaker", "session")


def note_fields(value: Mapping[str, Any], key: str, index: Index, ttl: float | None) -> dict[str, Any]:
    """What a note holds of an item: its text, the value itself, and when it expires. Raises InvalidInput.

    An item whose text is one of its fields alone names that field: a note that is corrected by hand
    shows there.
    """
    _check_key(key)
    kept, expires_at = _as_json(value, key), expiry(ttl)
    paths = checked_index(index)
    text = "" if paths is False else without_recalled(text_of(kept, paths))
    item = {"value": kept, "index": paths if text.strip() else False, "ttl": None if expires_at is None else ttl}
    field = next((name for name, given in kept.items() if given == text and text.strip()), None)
    item |= {} if field is None else {"field": field}
    return {"content": text if text.strip() else _name(key), "key": key, "metadata": {ITEM: item}, "expires_at": expires_at}


def expiry(ttl: float | None) -> datetime | None:
    """When something used now expires, ``ttl`` in minutes. Raises InvalidInput for what is no positive number."""
    if ttl is None:
        return None
    if not _is_number(ttl) or not ttl > 0:
        raise InvalidInput(f"ttl={ttl!r} must be a number of minutes above 0, or None")
    try:
        return datetime.now(UTC) + timedelta(minutes=ttl)
    except OverflowError:  # longer than the calendar is: it does not expire
        return None


def is_key(key: str) -> bool:
    """Whether a key can name an item: a store keeps no empty text, no NUL and no half of a character."""
    return key != "" and "\0" not in key and not any("\ud800" <= char <= "\udfff" for char in key)


def _check_key(key: str) -> None:
    if not is_key(key):
        raise InvalidInput(f"key={excerpt(key)!r} cannot name an item: it needs a character, and no NUL or lone surrogate")


def _name(key: str) -> str:
    """What a note says that is to be found by nothing: its key."""
    return key if without_recalled(key).strip() else "item"


def checked_index(index: Any) -> Any:
    """The paths that an item is found by, None for all of it, False for none. Raises InvalidInput."""
    if index is None or index is False or (isinstance(index, list | tuple) and all(isinstance(path, str) for path in index)):
        return index
    raise InvalidInput(f"index={index!r} must be a list of paths such as ['text', 'notes[*].title'], False, or None")


def _as_json(value: Any, key: str) -> dict[str, Any]:
    """A copy of a value as JSON gives it back. Raises InvalidInput for what JSON would refuse or change silently."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"the value of {key!r} is {value!r}: it must be a dict, such as {{'text': …}}, or None to delete")
    plain = dict(value)
    try:
        checked("metadata", {ITEM: {"value": plain}})
    except ValueError as error:  # ours, or Python's word for a number of more digits than it will write
        raise InvalidInput(f"the value of {excerpt(key)!r} must be JSON: {error}") from error
    _check_names(plain, key)
    copy: dict[str, Any] = json.loads(json.dumps(plain))
    return copy


def _check_names(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise InvalidInput(f"the value of {excerpt(key)!r} has the key {name!r}, which is not text: a value is JSON")
            _check_names(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_names(inner, key)


def text_of(value: Mapping[str, Any], paths: Sequence[str] | None = None) -> str:
    """The text that a value is found by: of the given paths, or of all of it, sentences first, then ``name: value``."""
    if paths is not None and "$" not in paths:
        return "\n".join(text for path in paths for text in get_text_at_path(value, path))
    bare, named = [], []
    for path, leaf in _leaves(value):
        if path.rpartition(".")[2] in _BARE:
            bare.append(leaf)
        else:
            named.append(f"{path}: {leaf}")
    return "\n".join([*bare, *named])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(inner, str | int | float) for inner in value):
            yield path, ", ".join(str(inner) for inner in value)
        else:
            for inner in value:
                yield from _leaves(inner, path)
    elif value is not None:
        yield path, str(value)


def _put_of(note: Note) -> Mapping[str, Any] | None:
    """What a store put into a note; None for a note that another part of engramma wrote."""
    item = note.metadata.get(ITEM)
    return item if isinstance(item, Mapping) and isinstance(item.get("value"), dict) else None


def is_searchable(note: Note) -> bool:
    """Whether a search with a query may rank the note: not an item that was put with ``index=False``."""
    item = _put_of(note)
    return item is None or item.get("index") is not False


def value_of(note: Note) -> dict[str, Any]:
    """The value that was put; of a note that another part of engramma wrote, what it says."""
    item = _put_of(note)
    if item is not None:
        value: dict[str, Any] = item["value"]
        return value | {name: note.content for name in value if name == item.get("field")}
    own = {name: given for name in _OWN if (given := getattr(note, name))}
    own |= {"metadata": dict(note.metadata)} if note.metadata else {}
    return own | {"tags": list(note.tags), "keywords": list(note.keywords)}


def as_item(note: Note, score: float | None = None) -> SearchItem:
    """The item of a note in a tuple space. ``updated_at`` is when its value was last put."""
    put = note.created_at if _put_of(note) is None else max(note.at, note.created_at)
    return SearchItem(
        namespace=tuple(note.space), key=note.key or note.id, value=value_of(note),
        created_at=note.created_at.astimezone(UTC), updated_at=put.astimezone(UTC), score=score,
    )  # fmt: skip


def minutes_to_live(note: Note) -> float | None:
    """The item's time to live in minutes; None for what was put without one."""
    item = _put_of(note)
    return None if item is None else item.get("ttl")


# -- filters

_SAME = ("$eq", "$ne")
_LOW, _HIGH = ("$gt", "$gte"), ("$lt", "$lte")
_SIGNS = (*_SAME, *_LOW, *_HIGH)
_AT_LEAST, _AT_MOST = "$gte", "$lte"


def check_filter(wanted: Any) -> None:
    """Raise InvalidInput for what is no filter, before anything is searched."""
    if wanted is None:
        return
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f"filter={wanted!r} is not a dict such as {{'type': 'fact', 'score': {{'$gte': 3}}}}")
    for name, condition in wanted.items():
        if not isinstance(name, str) or name in (*_SIGNS, "$and", "$or", "$not", "$in", "$nin"):
            raise InvalidInput(f"filter={wanted!r} has {name!r} in the place of a field's name")
        _check_condition(condition)


def _check_condition(wanted: Any) -> None:
    if isinstance(wanted, list | tuple):
        for inner in wanted:
            _check_condition(inner)
    elif isinstance(wanted, Mapping) and _has_operators(wanted):
        for operator, operand in wanted.items():
            _check_operator(operator, operand)
    elif isinstance(wanted, Mapping):
        for inner in wanted.values():
            _check_condition(inner)


def _has_operators(wanted: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)


def _check_operator(operator: Any, operand: Any) -> None:
    if operator not in _SIGNS:
        raise InvalidInput(f"unknown filter operator {operator!r}: the operators are {', '.join(_SIGNS)}")
    if operator not in _SAME and not isinstance(operand, str) and not _is_number(operand):
        raise InvalidInput(f"{operator} compares with a number or a text (a time as ISO text), not with {operand!r}")


def passes(value: Any, wanted: Any) -> bool:
    """Whether a value satisfies a checked condition: the same value, nested conditions, or operators."""
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_compare(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, Mapping) and all(passes(value.get(name), inner) for name, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same_length and all(passes(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compare(value: Any, operator: str, operand: Any) -> bool:
    if operator in _SAME:
        return bool(value == operand) is (operator == "$eq")
    left, right = _comparable(value, operand)
    if left is None:
        return False
    return bool({"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[operator])


def _comparable(value: Any, operand: Any) -> tuple[Any, Any]:
    """Two numbers, or two texts (dates in ISO form compare so); (None, None) for what has no order."""
    alike = (_is_number(value) and _is_number(operand)) or (isinstance(value, str) and isinstance(operand, str))
    return (value, operand) if alike else (None, None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def coarse(wanted: Any) -> dict[str, Any]:
    """What a database can test of a condition, letting pass at least what ``passes`` does; {} for nothing."""
    conditions = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    bounds: dict[str, Any] = {}
    for operator, operand in conditions.items():
        if isinstance(operand, str) and operand.isprintable():
            bounds |= _text_bound(operator, operand)
        elif isinstance(operand, int | float) and abs(operand) < 2**62:
            bounds |= _number_bound(operator, operand)
    return bounds


def _text_bound(operator: Any, text: str) -> dict[str, Any]:
    if operator == "$eq":
        return {"$eq": text}
    return {_AT_LEAST: text} if operator in _LOW else {_AT_MOST: text} if operator in _HIGH else {}


def _number_bound(operator: Any, number: float) -> dict[str, Any]:
    """Bounds in whole numbers: what a database reads of a fraction may be off by a hair."""
    if operator == "$eq" and number in (0, 1):
        return {"$in": [bool(number), int(number)]}  # True is 1 in Python, and another thing in JSON
    low, high = {_AT_LEAST: math.floor(number)}, {_AT_MOST: math.ceil(number)}
    return low | high if operator == "$eq" else low if operator in _LOW else high if operator in _HIGH else {}
