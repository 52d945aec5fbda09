"""``engramma show`` and ``list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engramma.cli.opening import json_option, note_or_commit, opened
from engramma.cli.search import AsOf, Include, Json, Since, Until, WhereOption

if TYPE_CHECKING:
    from engramma.commit import Commit
    from engramma.memory import Memory
    from engramma.note import Note

Id = Annotated[str, typer.Argument(metavar="ID", help="A note's id, or its beginning.", show_default=False)]


def show(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a note or a commit, or its beginning.", show_default=False)
    ],
    as_of: AsOf = None,
    as_json: Json = False,
) -> None:
    """Show a note with its links, or a commit with each change before and after."""
    from engramma.note import Note

    with opened(ctx) as memory:
        found = note_or_commit(memory, name)
        if isinstance(found, Note):
            _show_note(memory, memory.get(found, as_of=as_of), as_of, as_json)
        else:
            _show_commit(memory, found, as_json)


def _show_note(memory: Memory, note: Note, as_of: str | None, as_json: bool) -> None:
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.views import note_card

    if as_json:
        print_json(note)
    else:
        ends = dict.fromkeys(link.other(note.id) for link in note.links)
        note_card(Screen(), note, {end: memory.get(end, as_of=as_of) for end in ends})


def _show_commit(memory: Memory, commit: Commit, as_json: bool) -> None:
    from engramma.cli.changes import commit_card, notes_of
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.shapes import commit_json

    if as_json:
        print_json(commit_json(commit))
    else:
        commit_card(Screen(), commit, notes_of(memory, [commit]))


def list_notes(
    ctx: typer.Context,
    limit: Annotated[int | None, typer.Option("-n", "--limit", metavar="N", help="At most so many; all if not given.")] = None,
    where: WhereOption = None,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    include: Include = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    as_json: Json = False,
) -> None:
    """List notes in the order they were added, one a line."""
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.views import note_line

    with opened(ctx) as memory:
        notes = memory.list(
            where=json_option("where", where), limit=limit, as_of=as_of, since=since, until=until,
            include=include or (), newest_first=newest,
        )  # fmt: skip
    if as_json:
        print_json(notes)
        return
    screen = Screen()
    for note in notes:
        note_line(screen, note)
