"""A filter tree as an SQLite condition on the table alias ``n``, all values bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from engramma.filters import LIST_FIELDS, Compare, Every, Exact, Filter, Not, Some
from engramma.note import Space
from engramma.store.rows import micros, space_key, to_json

Sql = tuple[str, list[Any]]

_SIGNS = {"$eq": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<=", "$in": "=", "$ne": "=", "$nin": "="}
_OPPOSITE = ("$ne", "$nin")


def space_range(prefix: Space) -> tuple[str, str]:
    """The least key of a space and of those that begin with its labels, and what is above them all.

    The JSON of a tuple goes on after a label with "," or ends with "]"; a text begins nothing but itself.
    """
    key = space_key(prefix)
    if not isinstance(prefix, tuple):
        return key, key + "\0"
    if not prefix:
        return "[", chr(ord("[") + 1)
    labels = key.removesuffix("]")
    return labels + ",", labels + chr(ord("]") + 1)


def condition(part: Filter) -> Sql:
    """The SQL text and its bound values."""
    match part:
        case Every(parts=parts):
            return _joined(parts, " AND ", "1")
        case Some(parts=parts):
            return _joined(parts, " OR ", "0")
        case Not(part=inner):
            text, values = condition(inner)
            return f"NOT ({text})", values
        case Exact():
            return _exact(part)
        case Compare():
            text, values = _compare(part)
            return (f"NOT ({text})" if part.operator in _OPPOSITE else text), values


def _joined(parts: tuple[Filter, ...], word: str, empty: str) -> Sql:
    return _balanced([condition(part) for part in parts], word) if parts else (empty, [])


def _balanced(sides: Sequence[Sql], word: str) -> Sql:
    """Conditions joined as a balanced tree: SQLite bounds the depth of an expression, not its width."""
    if len(sides) == 1:
        return sides[0]
    half = len(sides) // 2
    (left, before), (right, after) = _balanced(sides[:half], word), _balanced(sides[half:], word)
    return f"({left}){word}({right})", [*before, *after]


def _compare(part: Compare) -> Sql:
    operands = part.value if part.operator in ("$in", "$nin") else (part.value,)
    if len(operands) > 1 and None not in operands and part.field not in ("metadata", *LIST_FIELDS):
        marks = ", ".join("?" * len(operands))
        return f"n.{part.field} IS NOT NULL AND n.{part.field} IN ({marks})", [_bound(operand) for operand in operands]
    return _balanced([_one(part, operand) for operand in operands], " OR ") if operands else ("0", [])


def _one(part: Compare, operand: Any) -> Sql:
    sign = _SIGNS[part.operator]
    if part.field == "metadata":
        return _metadata(part.path, sign, operand)
    if part.field in LIST_FIELDS:
        if operand is None:
            return f"n.{part.field} = '[]'", []
        return f"EXISTS (SELECT 1 FROM json_each(n.{part.field}) e WHERE e.value {sign} ?)", [operand]
    if operand is None:
        return f"n.{part.field} IS NULL", []
    return f"n.{part.field} IS NOT NULL AND n.{part.field} {sign} ?", [_bound(operand)]


def _bound(operand: Any) -> Any:
    return micros(operand) if isinstance(operand, datetime) else operand


def _metadata(path: tuple[str, ...], sign: str, operand: Any) -> Sql:
    """Walk ``path`` key by key (keys stay bound values), then test the value or a list's elements."""
    last = f"j{len(path)}"
    sources = ["json_each(n.metadata) j1"]
    for depth in range(1, len(path)):
        inner = f"CASE WHEN j{depth}.type = 'object' THEN j{depth}.value ELSE '{{}}' END"
        sources.append(f"json_each({inner}) j{depth + 1}")
    where = " AND ".join(f"j{depth}.key = ?" for depth in range(1, len(path) + 1))
    if operand is None:
        present = f"SELECT 1 FROM {', '.join(sources)} WHERE {where} AND {last}.type <> 'null'"
        return f"NOT EXISTS ({present})", list(path)
    test, values = _json_test(last, sign, operand)
    inside, _ = _json_test("e", sign, operand)
    elements = f"CASE WHEN {last}.type = 'array' THEN {last}.value ELSE '[]' END"
    any_element = f"EXISTS (SELECT 1 FROM json_each({elements}) e WHERE {inside})"
    text = f"EXISTS (SELECT 1 FROM {', '.join(sources)} WHERE {where} AND ({test} OR {any_element}))"
    return text, [*path, *values, *values]


def _json_test(alias: str, sign: str, operand: Any) -> Sql:
    if isinstance(operand, bool):
        return f"({alias}.type = ? AND '=' = '{sign}')", ["true" if operand else "false"]
    types = "('text')" if isinstance(operand, str) else "('integer', 'real')"
    return f"({alias}.type IN {types} AND {alias}.atom {sign} ?)", [operand]


def _exact(part: Exact) -> Sql:
    column, path = f"n.{part.field}", "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in part.path)
    kind = f"coalesce(json_type({column}, ?), '')"
    match part.test:
        case "is":  # of two paths comes an array, and in it the digits as they were written
            written = [f"[{text},{text}]" for text in _written(part.value)]
            return f"json_extract({column}, ?, ?) IN ({', '.join('?' * len(written))})", [path, path, *written]
        case "type":
            return f"{kind} = ?", [path, part.value]
        case "size":
            count = f"SELECT count(*) FROM json_each({column}, ?)"
            return f"({kind} IN ('array', 'object') AND ({count}) = ?)", [path, path, part.value]
        case "content":
            return f"n.content = coalesce(json_extract({column}, ?), '')", [path]
        case test:
            types = "('text')" if isinstance(part.value, str) else "('integer', 'real')"
            return f"({kind} IN {types} AND json_extract({column}, ?) {_SIGNS[test]} ?)", [path, path, part.value]


def _written(value: Any) -> list[str]:
    """All texts of JSON, as Python writes it, that mean an equal value."""
    if value is None or isinstance(value, str):
        return [to_json(value)]
    whole, nearest = int(value), float(value)
    texts = [str(whole)] if whole == value else []
    texts += [to_json(nearest)] if nearest == value else []
    return texts + {0: ["0.0", "-0.0", "false"], 1: ["true"]}.get(value, [])
