"""``engramma log``, ``history`` and ``compact``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from engramma.cli.opening import note_id, opened
from engramma.cli.read import Id
from engramma.cli.search import Json

if TYPE_CHECKING:
    from engramma.store import Revision


def log(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("-n", "--limit", metavar="N", help="How many commits; 0 for all.")] = 20,
    note: Annotated[str | None, typer.Option("--note", metavar="ID", help="Only commits that touched this note.")] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only commits by this actor; by all that begin so, where it ends in : or *."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only commits at or after this time.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only commits at or before this time.")] = None,
    full: Annotated[bool, typer.Option("--full", help="With every change, before and after.")] = False,
    as_json: Json = False,
) -> None:
    """Show the commits, newest first: who changed what, and why."""
    from engramma.cli.changes import commit_card, commit_line, notes_of
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.shapes import commit_json

    with opened(ctx) as memory:
        touched = note_id(memory, note) if note else None
        commits = memory.log(limit=limit or None, note=touched, actor=actor, since=since, until=until)
        notes = notes_of(memory, commits) if full and not as_json else {}
    if as_json:
        print_json([commit_json(commit) for commit in commits])
        return
    screen = Screen()
    for number, commit in enumerate(commits):
        if not full:
            commit_line(screen, commit)
            continue
        if number:
            screen.blank()
        commit_card(screen, commit, notes)


def history(ctx: typer.Context, name: Id, as_json: Json = False) -> None:
    """Show every revision of a note, oldest first, and what each changed."""
    from engramma.cli.screen import print_json
    from engramma.cli.shapes import revision_json

    with opened(ctx) as memory:
        revisions = memory.history(note_id(memory, name))
    if as_json:
        print_json([revision_json(revision) for revision in revisions])
    else:
        _show(revisions)


def _show(revisions: Sequence[Revision]) -> None:
    from engramma.cli.changes import note_differences
    from engramma.cli.screen import Screen
    from engramma.cli.views import described

    screen = Screen()
    screen.line((revisions[0].note.id, "cyan"), f"  {revisions[0].note.content}")
    if revisions[0].revision > 1:
        screen.line(("earlier revisions were folded away", "dim"))
    for number, revision in enumerate(revisions):
        screen.blank()
        screen.line((f"revision {revision.revision}", "bold"), (f"  {revision.at.astimezone():%Y-%m-%d %H:%M}", "dim"),
                    f"  {revision.actor}: {revision.reason}", (f"  {revision.commit.id}", "yellow"))  # fmt: skip
        if number == 0:
            described(screen, revision.note)
        else:
            note_differences(screen, revisions[number - 1].note, revision.note)


def compact(
    ctx: typer.Context,
    keep: Annotated[
        str, typer.Option(metavar="90d", help="How much stays: hours h, days d, weeks w, months m, years y; 0 for none.")
    ] = "90d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would go, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Fold away the history that is older than a period, of all spaces, and make the file smaller."""
    from engramma.cli.screen import print_json

    with opened(ctx) as memory:
        done = memory.compact(keep, dry_run=dry_run)
    if as_json:
        print_json(done)
        return
    verb, about = ("would be folded away", "about ") if dry_run else ("folded away", "")
    typer.echo(f"{done.commits} commits and {done.revisions} earlier revisions {verb}, {about}{done.bytes:,} bytes freed")
