"""``engramma demo``: what engramma does, shown on a bilingual diary in a few seconds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engramma.errors import InvalidInput

if TYPE_CHECKING:
    from engramma.memory import Memory


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Keep the memory in this new file.", show_default=False)
    ] = None,
) -> None:
    """Load a diary of two friends, in English and Chinese, and show what a memory does with it."""
    from engramma.cli import scenes
    from engramma.cli.screen import Screen

    path = _fresh(keep)
    screen = Screen()
    with _memory(path) as memory:
        seconds = _fill(memory)
        scenes.opening(screen, memory, seconds)
        scenes.descriptions(screen, memory)
        scenes.link(screen, memory)
        scenes.evolution(screen, memory)
        scenes.questions(screen, memory, json.loads(_sample("questions.json")))
        scenes.log(screen, memory)
        scenes.revert(screen, memory)
        scenes.closing(screen, path)


@contextmanager
def _memory(path: Path) -> Iterator[Memory]:
    """A memory with the default embedder and the rules, whatever the settings say."""
    from engramma.analysts.rules import RuleAnalyst
    from engramma.memory import Memory

    with Memory.open(path, llm="none", embedder="", space="default", analyst=RuleAnalyst()) as memory:
        yield memory


def _fill(memory: Memory) -> float:
    """Remember the sample; the seconds it took."""
    from time import perf_counter

    from engramma.cli.screen import progress

    started = perf_counter()
    with progress("remembering") as report:
        memory.add_many([json.loads(line) for line in _sample("diary.jsonl").splitlines()], progress=report)
    return perf_counter() - started


def _sample(name: str) -> str:
    from importlib.resources import files

    return (files("engramma") / "sample" / name).read_text("utf-8")


def _fresh(keep: Path | None) -> Path:
    """A path without a file: the one asked for, or the demo's own, whose last file is replaced."""
    if keep is not None:
        if keep.exists():
            raise InvalidInput(f"{str(keep)!r} is there already: the demo writes a new file only")
        return keep
    path = _folder() / "memory.db"
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    return path


def _folder() -> Path:
    import tempfile

    folder = Path(".cache") / "demo"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="engramma-demo-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="engramma-demo-"))
