"""``engramma edit``, ``link``, ``rm`` and ``revert``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.group import NOTHING_FOUND, complain
from engramma.cli.opening import commit_named, note_id, opened
from engramma.cli.read import Id
from engramma.cli.search import Json
from engramma.errors import InvalidInput

if TYPE_CHECKING:
    from engramma.commit import Commit
    from engramma.memory import Memory
    from engramma.note import Note


def edit(
    ctx: typer.Context,
    name: Id,
    content: Annotated[str | None, typer.Option(help="A new text; the note is read anew.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="The tags from now on, repeatable; '' for none.")] = None,
    keyword: Annotated[list[str] | None, typer.Option(help="The keywords from now on, repeatable; '' for none.")] = None,
    context: Annotated[str | None, typer.Option(help="The sentence that says what it is about.")] = None,
    category: Annotated[str | None, typer.Option(help="One word for its kind.")] = None,
    importance: Annotated[int | None, typer.Option(metavar="1-5", help="How much it matters.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Who says it.")] = None,
    session: Annotated[str | None, typer.Option(help="The conversation that it belongs to.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="When it was said.")] = None,
    pin: Annotated[bool | None, typer.Option("--pin/--unpin", help="Keep it from being forgotten, or no longer.")] = None,
) -> None:
    """Change a note by hand; without options its text opens in your editor."""
    fields = {
        "content": content, "tags": _texts(tag), "keywords": _texts(keyword), "context": context, "category": category,
        "importance": importance, "speaker": speaker, "session": session, "at": at, "pinned": pin,
    }  # fmt: skip
    given = {field: value for field, value in fields.items() if value is not None}
    with opened(ctx, catch_up=True) as memory:
        note = memory.get(note_id(memory, name))
        if not given:
            given = _from_editor(note)
        if not given:
            complain("the text is as it was: nothing was changed")
            return
        _show_edit(note, memory.update(note, **given))


def _texts(values: list[str] | None) -> list[str] | None:
    return [] if values == [""] else values or None


def _from_editor(note: Note) -> dict[str, Any]:
    from engramma.cli.editor import edited

    text = edited(note.content)
    return {} if text in (None, note.content) else {"content": text}


def _show_edit(before: Note, after: Note) -> None:
    from engramma.cli.changes import note_differences
    from engramma.cli.screen import Screen

    screen = Screen()
    screen.line((after.id, "cyan"), f"  revision {after.revision}")
    note_differences(screen, before, after)


def rm(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="Notes' ids, or their beginnings.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Remove for good, history included: this cannot be reverted.")] = False,
) -> None:
    """Delete notes: out of sight, history kept, and revert brings them back."""
    with opened(ctx) as memory:
        notes = [memory.get(note_id(memory, name)) for name in names]
        if not yes and not _agreed(notes, purge):
            complain("nothing was deleted")
            raise typer.Exit(NOTHING_FOUND)
        commits = [memory.purge(note) if purge else memory.delete(note) for note in notes]
    _show_commits(commits, revertible=not purge)


def _agreed(notes: list[Note], purge: bool) -> bool:
    from engramma.cli.screen import clean
    from engramma.cli.views import title

    for note in notes:
        typer.echo(f"{note.id}  {clean(title(note))}", err=True)
    verb = "Remove for good, without a way back" if purge else "Delete"
    typer.echo(f"{verb}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        raise InvalidInput("nobody answered: give --yes to delete without a question")
    return answer.strip().lower() in ("y", "yes")


def _show_commits(commits: list[Commit], *, revertible: bool) -> None:
    from engramma.cli.screen import Screen

    screen = Screen()
    for commit in commits:
        back = "" if not revertible else f"  (engramma revert {commit.id} undoes it)"
        screen.line((commit.reason, "bold"), (back, "dim"))


def link(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="The note that the link starts from.", show_default=False)],
    second: Annotated[str | None, typer.Argument(metavar="[B]", help="The note that it leads to.", show_default=False)] = None,
    kind: Annotated[
        str | None, typer.Option(help="related, supports, contradicts, supersedes, causes, … or a word of yours.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why they belong together.")] = "",
    strength: Annotated[float, typer.Option(metavar="0-1", help="How strongly.")] = 0.8,
    remove: Annotated[bool, typer.Option("--remove", help="Drop the links between A and B; of --kind, if given.")] = False,
    as_json: Json = False,
) -> None:
    """Link two notes, or list the links of one."""
    with opened(ctx) as memory:
        source = note_id(memory, first)
        if second is None:
            _list_links(memory, memory.get(source), as_json)
            return
        target = note_id(memory, second)
        if remove:
            _unlink(memory, source, target, kind, as_json)
        else:
            made = memory.link(source, target, kind=kind or "related", reason=reason, strength=strength)
            _show_link(memory, made, as_json)


def _list_links(memory: Memory, note: Note, as_json: bool) -> None:
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.views import link_line

    if as_json:
        print_json(note.links)
        return
    screen, near = Screen(), {other.id: other for other in memory.neighbours(note)}
    for one in sorted(note.links, key=lambda one: -one.strength):
        link_line(screen, one, note, near.get(one.other(note.id)))


def _show_link(memory: Memory, made: Any, as_json: bool) -> None:
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.views import link_line

    if as_json:
        print_json(made)
    else:
        link_line(Screen(), made, memory.get(made.source), memory.get(made.target), "linked", indent=0)


def _unlink(memory: Memory, source: str, target: str, kind: str | None, as_json: bool) -> None:
    from engramma.cli.screen import print_json
    from engramma.cli.shapes import commit_json

    done = memory.unlink(source, target, kind=kind)
    if as_json:
        print_json(commit_json(done))
    else:
        _show_commits([done], revertible=True)


def revert(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="COMMIT", help="A commit's id, or its beginning.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Undo a commit, also an old one; reverting the revert brings it back."""
    from engramma.cli.changes import commit_card, notes_of
    from engramma.cli.screen import Screen, print_json
    from engramma.cli.shapes import commit_json

    with opened(ctx) as memory:
        done = memory.revert(commit_named(memory, name))
        notes = notes_of(memory, [done])
    if as_json:
        print_json(commit_json(done))
    else:
        commit_card(Screen(), done, notes)
