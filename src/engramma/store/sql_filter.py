"""A filter tree as an SQLite condition on the table alias ``n``, all values bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from engramma.filters import LIST_FIELDS, Compare, Every, Filter, Not, Some
from engramma.store.rows import micros

Sql = tuple[str, list[Any]]

_SIGNS = {"$eq": "=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<=", "$in": "=", "$ne": "=", "$nin": "="}
_OPPOSITE = ("$ne", "$nin")


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
    value = micros(operand) if isinstance(operand, datetime) else operand
    return f"n.{part.field} IS NOT NULL AND n.{part.field} {sign} ?", [value]


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
