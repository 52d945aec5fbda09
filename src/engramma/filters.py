"""``where`` filters: checked once, turned into a small tree that a store translates.

    {"importance": {"$gte": 3}, "tags": {"$in": ["bug"]}, "metadata.team": "web"}

Operators are those that LangGraph and Chroma users know: $eq $ne $gt $gte $lt $lte $in $nin, and
$and $or $not around whole filters. On a list field (keywords, tags) every operator asks whether
*any* element satisfies it, $ne and $nin whether none does. None matches an absent value.

Code that has to ask more exactly than that builds a tree of its own; one may stand wherever a filter may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from engramma.dates import moment
from engramma.errors import InvalidInput

Where = Mapping[str, Any]
Operator = Literal["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"]

COMPARISONS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin")
TEXT_FIELDS = ("id", "content", "context", "session", "speaker", "category", "level", "state", "key")
NUMBER_FIELDS = ("importance", "revision")
FLAG_FIELDS = ("pinned",)
LIST_FIELDS = ("keywords", "tags")
TIME_FIELDS = ("at", "created_at", "valid_until", "expires_at")
FIELDS = TEXT_FIELDS + NUMBER_FIELDS + FLAG_FIELDS + LIST_FIELDS + TIME_FIELDS


@dataclass(frozen=True, slots=True)
class Compare:
    """One condition on one field. For ``metadata.a.b`` the field is "metadata", the path (a, b)."""

    field: str
    operator: Operator
    value: Any
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exact:
    """One test of the JSON of metadata, keywords or tags at a path of names and places, each value taken as a whole.

    ``is``: it equals a text or a finite number as in Python (True is 1, 1.0 is 1), or is None: null, or not there.
    ``type``: it is an "object", "array" or "null". ``size``: how much is in an object or array.
    ``$gte`` and ``$lte``: it is a text, or a number, not before or after the value. ``content``: it is the note's text.
    A store reads fractions as well as its database does where it orders them, and to the digit where it tests ``is``.
    Names in a path hold no quotation mark, backslash or control character.
    """

    field: Literal["metadata", "keywords", "tags"]
    path: tuple[str | int, ...]
    test: Literal["is", "type", "size", "$gte", "$lte", "content"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; with no parts, always true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Filter


Filter = Compare | Exact | Every | Some | Not


_DEEPEST = 50


def parse(where: Where | None, depth: int = 0) -> Filter | None:
    """The filter tree of a ``where``; None for none. Raises InvalidInput naming what is wrong."""
    return None if where is None else _parsed(where, depth)


def _parsed(where: Any, depth: int) -> Filter:
    if depth > _DEEPEST:
        raise InvalidInput(f"where is nested more than {_DEEPEST} deep")
    if isinstance(where, Filter):
        return where
    if not isinstance(where, Mapping):
        raise InvalidInput(f"where={where!r} is not a dict such as {{'tags': {{'$in': ['bug']}}}}")
    return Every(tuple(_entry(name, value, depth + 1) for name, value in where.items()))


def _entry(name: Any, value: Any, depth: int) -> Filter:
    if not isinstance(name, str):
        raise InvalidInput(f"a filter's keys are field names, not {name!r}")
    if name in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise InvalidInput(f"{name} takes a list of filters, not {value!r}")
        parts = tuple(_parsed(part, depth) for part in value)
        return Every(parts) if name == "$and" else Some(parts)
    if name == "$not":
        return Not(_parsed(value, depth))
    field, path = _field(name)
    if isinstance(value, Mapping):
        return Every(tuple(_condition(field, path, operator, operand, depth) for operator, operand in value.items()))
    return _compare(field, path, "$eq", value)


def _field(name: str) -> tuple[str, tuple[str, ...]]:
    if name.startswith("metadata.") and all(parts := tuple(name.split(".")[1:])):
        _check_storable("metadata", "a key", name)
        return "metadata", parts
    if name not in FIELDS:
        raise InvalidInput(f"cannot filter on {name!r}: the fields are {', '.join(FIELDS)} and metadata.<key>")
    return name, ()


def _condition(field: str, path: tuple[str, ...], operator: str, operand: Any, depth: int) -> Filter:
    if depth > _DEEPEST:
        raise InvalidInput(f"where is nested more than {_DEEPEST} deep")
    if operator == "$not":
        if not isinstance(operand, Mapping):
            raise InvalidInput(f"$not on {field!r} takes operators, not {operand!r}")
        return Not(Every(tuple(_condition(field, path, name, value, depth + 1) for name, value in operand.items())))
    if operator not in COMPARISONS:
        known = ", ".join((*COMPARISONS, "$not"))
        raise InvalidInput(f"unknown filter operator {operator!r} on {field!r}: the operators are {known}")
    return _compare(field, path, operator, operand)  # type: ignore[arg-type]


def _compare(field: str, path: tuple[str, ...], operator: Operator, value: Any) -> Filter:
    if operator in ("$in", "$nin"):
        if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
            raise InvalidInput(f"{operator} on {field!r} takes a list, not {value!r}")
        return Compare(field, operator, tuple(_scalar(field, operator, item) for item in value), path)
    if isinstance(value, list | tuple) and operator == "$eq" and field in LIST_FIELDS:
        return Every(tuple(Compare(field, "$eq", _scalar(field, operator, item), path) for item in value))
    return Compare(field, operator, _scalar(field, operator, value), path)


def _check_storable(field: str, operator: str, value: Any) -> None:
    """Refuse what no store can compare: NaN, whole numbers beyond 64 bits, NUL and lone surrogates."""
    text_bad = isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value))
    number_bad = isinstance(value, float) and value != value
    if text_bad or number_bad or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InvalidInput(f"{operator} on {field!r} cannot compare with {value!r}")


def _scalar(field: str, operator: Operator, value: Any) -> Any:
    if value is None and operator not in ("$gt", "$gte", "$lt", "$lte"):
        return None
    if field in TIME_FIELDS and isinstance(value, datetime | date | str):
        return moment(value, field)
    _check_storable(field, operator, value)
    allowed: tuple[type, ...] = {"metadata": (str, bool, int, float)}.get(field, (str,))
    if field in NUMBER_FIELDS:
        allowed = (int, float)
    if field in FLAG_FIELDS:
        allowed = (bool,)
    flag_as_number = isinstance(value, bool) and bool not in allowed
    if not isinstance(value, allowed) or field in TIME_FIELDS or flag_as_number:
        kinds = " or ".join(kind.__name__ for kind in allowed)
        raise InvalidInput(f"{operator} on {field!r} takes {'a time' if field in TIME_FIELDS else kinds}, not {value!r}")
    return value
