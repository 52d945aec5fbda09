"""The ``engramma`` command: its options, its commands, its exit codes in the help."""

from __future__ import annotations

from typing import Annotated

import typer

from engramma import __version__
from engramma.cli import add, change, chat, demo, explain, graph, log, read, search, store, tend, work
from engramma.cli.group import EPILOG, Commands
from engramma.cli.opening import Options

app = typer.Typer(
    cls=Commands,
    name="engramma",
    help="Long-term memory for LLM agents: notes that describe themselves, link, evolve, and can be reverted.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"engramma {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    db: Annotated[str | None, typer.Option("--db", metavar="PATH", help="The memory file.")] = None,
    space: Annotated[str | None, typer.Option("--space", metavar="NAME", help="The space to work in.")] = None,
    llm: Annotated[str | None, typer.Option("--llm", metavar="MODEL", help="The chat model that reads notes.")] = None,
    embedder: Annotated[str | None, typer.Option("--embedder", metavar="MODEL", help="The embedding model.")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Global options: they may stand before the command or after it."""
    ctx.obj = Options(db, space, llm, embedder)


WRITE, READ, KEEP = "Write", "Read", "Keep in order"

app.command("add", rich_help_panel=WRITE)(add.add)
app.command("chat", rich_help_panel=WRITE)(chat.chat)
app.command("edit", rich_help_panel=WRITE)(change.edit)
app.command("link", rich_help_panel=WRITE)(change.link)
app.command("rm", rich_help_panel=WRITE)(change.rm)
app.command("revert", rich_help_panel=WRITE)(change.revert)
app.command("search", rich_help_panel=READ)(search.search)
app.command("show", rich_help_panel=READ)(read.show)
app.command("list", rich_help_panel=READ)(read.list_notes)
app.command("history", rich_help_panel=READ)(log.history)
app.command("explain", rich_help_panel=READ)(explain.explain)
app.command("log", rich_help_panel=READ)(log.log)
app.command("graph", rich_help_panel=READ)(graph.graph)
app.command("stats", rich_help_panel=KEEP)(store.stats)
app.command("check", rich_help_panel=KEEP)(store.check)
app.command("catch-up", rich_help_panel=KEEP)(store.catch_up)
app.command("work", rich_help_panel=KEEP)(work.work)
app.command("tend", rich_help_panel=KEEP)(tend.tend)
app.command("compact", rich_help_panel=KEEP)(log.compact)
app.command("reindex", rich_help_panel=KEEP)(store.reindex)
app.command("export", rich_help_panel=KEEP)(store.export)
app.command("load", rich_help_panel=KEEP)(store.load)
app.command("config", rich_help_panel=KEEP)(store.config)
app.command("demo", rich_help_panel=KEEP)(demo.demo)
