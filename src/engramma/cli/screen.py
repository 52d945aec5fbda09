"""The two ways out: stdout for people or as JSON, stderr for progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 100
_STEERING = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\n"), ord("\t")}
_VISIBLE = dict.fromkeys(_STEERING, "\ufffd")


def clean(text: str) -> str:
    """A text that cannot steer a terminal: control characters are shown as a mark."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


class Screen:
    """Lines for people on stdout. In a pipe they carry no colour and are not broken."""

    def __init__(self) -> None:
        self.console: Console = _console()
        self.terminal = self.console.is_terminal
        if not self.terminal:
            self.console.width = PIPE_WIDTH

    @property
    def width(self) -> int:
        """Columns to fill; a very wide terminal is not filled."""
        return min(self.console.width, 120)

    def line(self, *parts: str | tuple[str, str] | Text, indent: int = 0, hang: int = 0) -> None:
        """One paragraph of texts and (text, style) pairs; ``hang`` indents all lines but the first."""
        from rich.padding import Padding
        from rich.text import Text

        text = Text.assemble(*(part if isinstance(part, Text) else _cleaned(part) for part in parts))
        if not self.terminal:
            text = Text("\n" + " " * (indent + hang)).join(text.split("\n", allow_blank=True))
            self.console.print(Text(" " * indent) + text, soft_wrap=True)
        elif hang:
            self._hanging(text, indent, hang)
        else:
            self.console.print(Padding(text, (0, 0, 0, indent)))

    def _hanging(self, text: Text, indent: int, hang: int) -> None:
        """Word-wrapped with the first line further left: the rest is wrapped to the same width."""
        from rich.table import Table

        grid = Table.grid(padding=0)
        grid.add_column(width=indent + hang, no_wrap=True)
        grid.add_column(ratio=1)
        head, rest = text[:hang], text[hang:]
        head.pad_left(indent)
        grid.add_row(head, rest)
        self.console.print(grid)

    def cut(self, *parts: str | tuple[str, str] | Text) -> None:
        """One line: cut at the edge of a terminal, whole in a pipe."""
        from rich.text import Text

        text = Text.assemble(*(part if isinstance(part, Text) else _cleaned(part) for part in parts))
        if self.terminal:
            self.console.print(text, no_wrap=True, overflow="ellipsis")
        else:
            self.console.print(text, soft_wrap=True)

    def field(self, name: str, *parts: str | tuple[str, str] | Text, indent: int = 2, wide: int = 11) -> None:
        """A name and what belongs to it, under each other when there is much."""
        self.line((f"{name:<{wide}}", "dim"), *parts, indent=indent, hang=wide)

    def blank(self) -> None:
        """An empty line."""
        self.console.print()


def _console() -> Console:
    from rich.console import Console

    class _Patient(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # no failure: the reader of a pipe had enough

    return _Patient(highlight=False, emoji=False, markup=False)


def _cleaned(part: str | tuple[str, str]) -> str | tuple[str, str]:
    return clean(part) if isinstance(part, str) else (clean(part[0]), part[1])


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(value: Any) -> None:
    """A value of ours as JSON on stdout, and nothing else."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


def plain(value: Any) -> Any:
    """A value of ours as what JSON holds: times in ISO 8601, vectors left out."""
    if isinstance(value, date):  # datetime is one
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.name != "vector"}
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else "/".join(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value
