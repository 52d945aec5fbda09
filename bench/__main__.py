"""``python -m bench [PART …]``: measure, print a table with the targets beside the figures."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import add, add_many, agents, background, history, llm, peers, search, start, table
from bench.figures import Options, Row
from bench.shelf import SIZES, Shelf

PARTS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "start": start.run,
    "add": add.run,
    "search": search.run,
    "history": history.run,
    "add_many": add_many.run,
    "agents": agents.run,
    "background": background.run,
    "llm": llm.run,
    "peers": peers.run,
}


def main() -> None:
    """Run the parts asked for, all if none."""
    parser = _arguments()
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]!r}: the parts are {', '.join(PARTS)}")
    parts = {name: PARTS[name] for name in args.parts or PARTS}
    around = table.surroundings()
    print(", ".join(f"{name} {found}" for name, found in around["packages"].items()))
    print(f"Python {around['python']}, {around['system']}, {around['cores']} cores\n{table.heading()}")
    with tempfile.TemporaryDirectory() as folder:
        options = Options(Shelf(Path(folder)), args.full, args.locomo)
        results = {name: _measured(name, part, options) for name, part in parts.items()}
        filling = options.shelf.filling
    missed = [row["name"] for result in results.values() for row in result["rows"] if row.get("met") is False]
    print(f"\nTargets missed: {'; '.join(missed) if missed else 'none'}")
    if args.json:
        settings = {"sizes": SIZES, "full": args.full, "locomo": args.locomo is not None, "seconds to fill": filling}
        args.json.write_text(json.dumps({**around, "settings": settings, "parts": results}, indent=1), "utf-8")


def _measured(name: str, part: Callable[[Options], Iterator[Row]], options: Options) -> dict[str, Any]:
    """Run one part, printing each row as it comes."""
    print(f"\n{name}", flush=True)
    began, rows = time.perf_counter(), []
    for row in part(options):
        rows.append(row)
        print(table.line(row), flush=True)
    seconds = time.perf_counter() - began
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    busy = "" if load is None else f", {load:.1f} processes wanted the cores on average"
    print(f"  ({seconds:.0f} s{busy})", flush=True)
    return {"seconds": round(seconds, 1), "load": load, "rows": table.as_data(rows)}


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all if none")
    parser.add_argument("--full", action="store_true", help=f"{add_many.ALL_TURNS:,} turns in add_many, which takes minutes")
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="take real turns from a file of the LoCoMo data set")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    return parser


if __name__ == "__main__":
    main()
