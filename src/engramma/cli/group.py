"""What all commands share: global options in any place, and errors as one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from engramma.errors import (
    EmbedderMismatch,
    EngrammaError,
    ModelError,
    StoreError,
    UnknownId,
)

GLOBAL = ("--db", "--space", "--llm", "--embedder")
NOTHING_FOUND, WRONG_INPUT, UNKNOWN, UNUSABLE, MODEL_FAILED, STOPPED = 1, 2, 3, 4, 5, 130
EPILOG = (
    "[bold]Exit codes:[/bold] 0 done · 1 nothing was found, or check found problems · 2 wrong input or usage · "
    "3 no note or commit has that id · 4 the memory, or a file, cannot be used · 5 a model failed · 130 stopped with Ctrl-C"
)
_UsageError: Any = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """The commands as one group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take global options from wherever they stand."""
        return super().parse_args(ctx, hoisted(args))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run; every error of ours becomes one line on stderr and an exit code."""
        _speak_of_warnings()
        try:
            code = super().main(*args, **extra | {"standalone_mode": False})
            if code == STOPPED:  # typer's word for Ctrl-C
                raise KeyboardInterrupt
        except _UsageError as error:
            code = _usage(error)
        except (typer.Abort, KeyboardInterrupt):
            complain("stopped; what was stored by then is kept")
            code = STOPPED
        except BrokenPipeError:  # the reader of a pipe had enough
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            code = 0
        except (EngrammaError, OSError) as error:
            code = _failure(error)
        sys.exit(code if isinstance(code, int) else 0)


def hoisted(args: Sequence[str]) -> list[str]:
    """The arguments with global options and their values in front, as far as a ``--``."""
    front: list[str] = []
    rest: list[str] = []
    todo = list(args)
    while todo and todo[0] != "--":
        arg = todo.pop(0)
        if arg.partition("=")[0] not in GLOBAL:
            rest.append(arg)
            continue
        front.append(arg)
        if "=" not in arg and todo:
            front.append(todo.pop(0))
    return [*front, *rest, *todo]


def exit_code(error: BaseException) -> int:
    """The exit code of an error, by its kind."""
    codes: tuple[tuple[type[BaseException], int], ...] = (
        (UnknownId, UNKNOWN),
        (ModelError, MODEL_FAILED),
        (StoreError, UNUSABLE),
        (EmbedderMismatch, UNUSABLE),
        (EngrammaError, WRONG_INPUT),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), UNUSABLE)


def complain(message: str) -> None:
    """One line on stderr."""
    from engramma.cli.screen import clean

    typer.echo(f"engramma: {clean(' '.join(message.split()))}", err=True)


def _failure(error: Any) -> int:
    plain = isinstance(error, EngrammaError) or error.strerror is None
    complain(str(error) if plain else f"{error.filename!r}: {error.strerror}")
    unsaved = getattr(error, "unsaved", ())
    if unsaved:
        complain("what was not stored follows, so that it is not lost")
        for text in unsaved:
            typer.echo(text, err=True)
    return exit_code(error)


def _usage(error: Any) -> int:
    where = error.ctx.command_path if error.ctx else "engramma"
    message = str(error.format_message()).rstrip(".")
    if not message:  # no_args_is_help has printed the help
        return WRONG_INPUT
    complain(f"{message} ({where} --help tells more)")
    return WRONG_INPUT


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _speak_of_warnings() -> None:
    """What the library warns of is said like an error; repeated calls change nothing."""
    log = logging.getLogger("engramma")
    if not any(isinstance(handler, _Warnings) for handler in log.handlers):
        log.addHandler(_Warnings(logging.WARNING))
