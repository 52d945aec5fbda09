"""A store's item as a note and back: what its text is, when it expires, which filters it passes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal

from langgraph.store.base import SearchItem, get_text_at_path

from engramma.context import without_recalled
from engramma.draft import checked
from engramma.errors import InvalidInput
from engramma.filters import Compare, Every, Exact, Filter, Not, Some
from engramma.note import Note
from engramma.words import excerpt

Index = Literal[False] | list[str] | None
ITEM = "item"
"""The key of a note's metadata that holds an item's value, index paths and minutes to live."""

_BARE = ("content", "text", "data", "memory", "fact", "page_content", "message", "note", "value")
_OWN = ("content", "context", "category", "speaker", "session")
_LISTS: Mapping[str, Literal["tags", "keywords"]] = {"tags": "tags", "keywords": "keywords"}


def note_fields(value: Mapping[str, Any], key: str, index: Index, ttl: float | None) -> dict[str, Any]:
    """What a note holds of an item: its text, the value itself, and when it expires. Raises InvalidInput.

    The text is kept beside the value as well: a note with another one was corrected by hand.
    """
    _check_key(key)
    kept, expires_at = _as_json(value, key), expiry(ttl)
    paths = checked_index(index)
    text = "" if paths is False else without_recalled(text_of(kept, paths))
    content = text if text.strip() else _name(key)
    item = {"value": kept, "index": paths if text.strip() else False, "ttl": None if expires_at is None else ttl}
    item["text"] = without_recalled(content)  # as the note will keep it
    return {"content": content, "key": key, "metadata": {ITEM: item}, "expires_at": expires_at}


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
    """The value that was put; of a note that another part of engramma wrote, what it says.

    A text that was corrected by hand (``Memory.update``) shows in the field that was the item's text, or in its one
    sentence (a field named ``text``, ``content``, ``data``, …) where the lines of the other fields were all kept or all
    left out. Any other correction is added as the field ``corrected``, and the rest is as it was put.
    """
    item = _put_of(note)
    if item is not None:
        value: dict[str, Any] = item["value"]
        text = item.get("text", note.content)
        return value if note.content == text else _corrected(value, text, note.content)
    own = {name: given for name in _OWN if (given := getattr(note, name))}
    own |= {"metadata": dict(note.metadata)} if note.metadata else {}
    return own | {"tags": list(note.tags), "keywords": list(note.keywords)}


def _corrected(value: dict[str, Any], text: str, content: str) -> dict[str, Any]:
    """A value whose text was corrected to another content."""
    fields = [(path, leaf) for path, leaf in _texts(value) if leaf.strip()]
    whole = [path for path, leaf in fields if leaf == text]
    if whole:
        return _replaced(value, whole[0], content)
    sentences = [leaf for name, leaf in _leaves(value) if name.rpartition(".")[2] in _BARE]
    for path, leaf in fields:
        if [leaf] == sentences and path[-1] in _BARE and (said := _said(text, leaf, content)):
            return _replaced(value, path, said)
    return {"corrected": content} | value


def _texts(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts of a value and of the dicts in it, each with its path."""
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _texts(inner, (*path, name))
        elif isinstance(inner, str):
            yield (*path, name), inner


def _replaced(value: Mapping[str, Any], path: Sequence[str], leaf: str) -> dict[str, Any]:
    name, *deeper = path
    return {**value, name: _replaced(value[name], deeper, leaf) if deeper else leaf}


def _said(text: str, sentence: str, content: str) -> str:
    """What a corrected content has in the place of a sentence of the text; "" where that is not plain."""
    before, found, after = f"\n{text}\n".partition(f"\n{sentence}\n")
    before, after, content = f"{before}\n"[1:], f"\n{after}"[:-1], content.rstrip("\n") if after else content
    if content.startswith(before) and content.endswith(after) and len(content) > len(before + after):
        return content[len(before) : len(content) - len(after)]
    others = [line for line in (*before.splitlines(), *after.splitlines()) if line]
    names = tuple(line[: line.index(": ") + 2] for line in others if ": " in line)
    mixed = any(line in others or line.startswith(names) for line in content.splitlines())
    return "" if mixed or not found else content


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

_SAME, _LOW, _HIGH = ("$eq", "$ne"), ("$gt", "$gte"), ("$lt", "$lte")
_SIGNS = (*_SAME, *_LOW, *_HIGH)
_DEEPEST = 100  # levels, as of metadata


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


def _check_condition(wanted: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise InvalidInput(f"filter is nested more than {_DEEPEST} deep, and no value is")
    if isinstance(wanted, Mapping) and _has_operators(wanted):
        for operator, operand in wanted.items():
            _check_operator(operator, operand)
    elif isinstance(wanted, Mapping | list | tuple):
        for inner in wanted.values() if isinstance(wanted, Mapping) else wanted:
            _check_condition(inner, depth + 1)


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


# -- filters as a database tests them

Field = Literal["metadata", "keywords", "tags"]
Path = tuple[str | int, ...]
_MOST = 30  # tests that a database is asked to make of one filter, and of one list or dict in it
_WHOLE = 2**1000  # above it a whole number may have no float
_NEVER = Some(())


def bounds(wanted: Mapping[str, Any]) -> Filter:
    """A filter for the database that lets pass at least the notes whose value passes a checked filter, and few others."""
    is_put = Exact("metadata", (ITEM, "value"), "type", "object")
    corrected = Not(Exact("metadata", (ITEM, "text"), "content"))
    put = _every(test for name, one in wanted.items() for test in _tests("metadata", (ITEM, "value", name), one))
    own = _every(test for name, one in wanted.items() for test in _own_tests(name, one))
    return Some((Every((is_put, Some((put, corrected)))), Every((Not(is_put), own))))


def _every(tests: Iterable[Filter | None]) -> Filter:
    """All tests, or as many as a database is asked to make; None is what it cannot tell."""
    return Every(tuple(islice((test for test in tests if test is not None), _MOST)))


def _tests(field: Field, path: Path, wanted: Any) -> Iterator[Filter | None]:
    """What holds of the JSON at a path, if it passes a condition."""
    if isinstance(wanted, Mapping) and _has_operators(wanted):
        for operator, operand in wanted.items():
            yield from _operator_tests(field, path, operator, operand)
    elif isinstance(wanted, Mapping):
        yield _exact(field, path, "type", "object")
        for name, inner in wanted.items():
            yield from _tests(field, (*path, name), inner)
    elif isinstance(wanted, list | tuple):
        yield from (_exact(field, path, "type", "array"), _exact(field, path, "size", len(wanted)))
        for place, inner in enumerate(wanted):
            yield from _tests(field, (*path, place), inner)
    else:
        yield from _equal(field, path, wanted)


def _operator_tests(field: Field, path: Path, operator: str, operand: Any) -> Iterator[Filter | None]:
    if operator == "$eq":
        yield from _equal(field, path, operand)
    elif operator == "$ne":
        same = list(islice(_equal(field, path, operand), _MOST))
        yield Not(_every(same)) if None not in same and len(same) < _MOST else None
    elif operand != operand:  # NaN: nothing is before or after it
        yield _NEVER
    else:
        edge = _edge(operator, operand)
        yield None if edge is None else _exact(field, path, "$gte" if operator in _LOW else "$lte", edge)
        if operator in ("$gt", "$lt"):
            yield from _operator_tests(field, path, "$ne", operand)


def _equal(field: Field, path: Path, operand: Any) -> Iterator[Filter | None]:
    """What holds together of a value that equals an operand, and of no other."""
    if isinstance(operand, dict | list):
        yield _exact(field, path, "type", "object" if isinstance(operand, dict) else "array")
        yield _exact(field, path, "size", len(operand))
        for step, inner in operand.items() if isinstance(operand, dict) else enumerate(operand):
            here = (*path, step)
            yield from [_exact(field, here, "type", "null")] if inner is None else _equal(field, here, inner)
    elif isinstance(operand, float) and not math.isfinite(operand):
        yield _NEVER
    else:
        number = isinstance(operand, int | float) and abs(operand) < _WHOLE
        told = operand is None or number or (isinstance(operand, str) and _is_text(operand))
        yield _exact(field, path, "is", operand) if told else None


def _exact(field: Field, path: Path, test: Literal["is", "type", "size", "$gte", "$lte"], value: Any) -> Exact | None:
    """A test, or None for a path that a database cannot be asked to take."""
    return Exact(field, path, test, value) if all(map(_is_step, path)) else None


def _is_step(step: Any) -> bool:
    if isinstance(step, str):
        return step.isprintable() and step != "" and not set(step) & {'"', "\\"}
    return type(step) is int and 0 <= step < 2**31


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _edge(operator: str, operand: Any) -> Any:
    """What a value is compared with at least or at most: what a database reads of a fraction may be off by a hair."""
    if isinstance(operand, str):
        return operand if _is_text(operand) and "\0" not in operand else None
    if abs(operand) >= _WHOLE:
        return None
    hair = abs(operand) * 1e-12 + 1e-300
    return operand - hair if operator in _LOW else operand + hair


def _own_tests(name: str, wanted: Any) -> Iterator[Filter | None]:
    """What holds of a note that another part of engramma wrote, if the field of this name passes a condition."""
    if name in _LISTS:
        yield from _tests(_LISTS[name], (), wanted)
    elif name not in (*_OWN, "metadata"):
        yield None if passes(None, wanted) else _NEVER
    else:
        text = name in _OWN
        there = _every(_text_tests(name, wanted) if text else _tests("metadata", (), wanted))
        absent: Filter = Compare(name, "$in", ("", None)) if text else Exact("metadata", (), "size", 0)
        yield Some((absent, there)) if passes(None, wanted) else there


def _text_tests(name: str, wanted: Any) -> Iterator[Filter | None]:
    """What holds of a text, if it passes a condition."""
    alone = isinstance(wanted, list | tuple) or (isinstance(wanted, Mapping) and not _has_operators(wanted))
    operators: Mapping[Any, Any] = wanted if isinstance(wanted, Mapping) and not alone else {"$eq": wanted}
    for operator, operand in operators.items():
        if isinstance(operand, str):
            yield Compare(name, operator, operand) if _is_text(operand) else None
        elif operand is None or isinstance(operand, int | float | list | tuple | dict):
            yield None if passes("", {operator: operand}) else _NEVER
