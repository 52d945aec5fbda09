"""The examples run as they stand, without a network, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def printed(path: Path, folder: Path) -> str:
    """What an example prints, run in a folder of its own; a warning fails it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAMMA_")}
    env |= {"ENGRAMMA_DB": str(folder / "memory.db"), "PYTHONIOENCODING": "utf-8", "HOME": str(folder)}
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name: str) -> Path:
    return ROOT / "examples" / name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs_and_prints(path: Path, tmp_path: Path) -> None:
    assert printed(path, tmp_path).strip()


def test_the_middleware_fits_into_fifteen_lines() -> None:
    code = [line for line in example("middleware.py").read_text("utf-8").splitlines()[1:] if line.strip()]
    assert len(code) <= 15


def test_the_new_thread_is_told_the_fact(tmp_path: Path) -> None:
    said = printed(example("middleware.py"), tmp_path)
    assert "user: 我叫小夏，喜欢学习。" in said


def test_the_graph_recalls_calls_a_tool_and_saves_no_question(tmp_path: Path) -> None:
    first, second = printed(example("graph.py"), tmp_path).strip().split("\n\n")
    assert "saved:     ['I am Denial. My goal is to earn 50k per month.']" in first
    assert "recalled:  ['I am Denial. My goal is to earn 50k per month.']" in second
    assert "saved:     []" in second
