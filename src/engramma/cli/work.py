"""``engramma work``: a worker that reads the notes that wait, for as long as it runs."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from engramma.cli.group import MODEL_FAILED
from engramma.cli.opening import opened
from engramma.errors import InvalidInput

if TYPE_CHECKING:
    from engramma.memory import Memory
    from engramma.write import Progress

_LOOK_SECONDS = 0.5


def work(
    ctx: typer.Context,
    threads: Annotated[int, typer.Option("--threads", metavar="N", help="Calls of the model at once.")] = 1,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", help="Notes in one call; the analyst's own if not given.")
    ] = None,
    calls: Annotated[
        float | None, typer.Option("--calls-per-minute", metavar="N", help="The most calls in a minute; no limit if not given.")
    ] = None,
    until_done: Annotated[bool, typer.Option("--until-done", help="Stop once nothing is left to read.")] = False,
) -> None:
    """Read the notes that wait, with --llm, until Ctrl-C; any number of workers share the work."""
    from engramma.cli.screen import progress
    from engramma.worker import Pace

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service is stopped so: end after the call under way
    pace = Pace(threads=threads, batch=batch, calls_per_minute=calls)
    with opened(ctx, background=pace, create=not until_done) as memory:
        if not memory.works:
            raise InvalidInput(
                "there is no model to read with: give --llm, or set ENGRAMMA_LLM; the rules read each note at once"
            )
        typer.echo(f"reading what waits in {memory.path}", err=True)
        with progress("reading") as report:
            _watch(memory, report, until_done)
        counted = memory.stats()
    typer.echo(f"{counted.pending} wait, of which {counted.failed} could not be read")
    if counted.failed:
        raise typer.Exit(MODEL_FAILED)


def _watch(memory: Memory, report: Progress | None, until_done: bool) -> None:
    """Show how far the reading is, until nothing waits or somebody stops it."""
    most = 0
    while True:
        idle = memory.wait(_LOOK_SECONDS)
        if idle and until_done:
            return
        if report:
            left = memory.stats().pending
            most = max(most, left) if left else 0
            report(most - left, most)
        if idle:
            time.sleep(_LOOK_SECONDS)
