"""``engramma add``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.group import complain
from engramma.cli.opening import json_option, opened
from engramma.cli.search import Json
from engramma.errors import EmptyText, InvalidInput, StoreError

if TYPE_CHECKING:
    from engramma.commit import Commit
    from engramma.memory import Memory
    from engramma.note import Note


def add(
    ctx: typer.Context,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to remember; standard input if not given, or '-'.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PATH", help="Read the text from a file.", exists=True, dir_okay=False)
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Make every line a note of its own.")] = False,
    speaker: Annotated[str | None, typer.Option(help="Who says it.")] = None,
    session: Annotated[str | None, typer.Option(help="The conversation that it belongs to.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="When it was said; now if not given.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag. Repeatable.")] = None,
    keyword: Annotated[list[str] | None, typer.Option(help="A keyword. Repeatable.")] = None,
    category: Annotated[str | None, typer.Option(help="One word for its kind.")] = None,
    importance: Annotated[int | None, typer.Option(metavar="1-5", help="How much it matters.")] = None,
    key: Annotated[str | None, typer.Option(help="A name of your own: a second add with it stores nothing.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="Anything else, as a JSON object.")] = None,
    as_json: Json = False,
) -> None:
    """Remember a text, and say what the analyst made of it."""
    fields = {
        "speaker": speaker, "session": session, "at": at, "tags": tag or (), "keywords": keyword or (), "key": key,
        "category": category, "importance": importance, "metadata": json_option("metadata", metadata),
    }  # fmt: skip
    whole = _text(text or [], file)
    texts = [line for line in whole.splitlines() if line.strip()] if lines else [whole]
    if not texts:
        raise EmptyText("there is no line to remember")
    _remember(ctx, texts, fields, lines, as_json)


def _remember(ctx: typer.Context, texts: Sequence[str], fields: dict[str, Any], many: bool, as_json: bool) -> None:
    try:
        with opened(ctx, catch_up=True, create=True) as memory:
            _add_lines(memory, texts, fields, as_json) if many else _add_one(memory, texts[0], fields, as_json)
    except StoreError as error:
        error.unsaved = error.unsaved or texts
        raise


def _text(words: Sequence[str], file: Path | None) -> str:
    """The text from the arguments, the file, or standard input."""
    if file is not None:
        if words:
            raise InvalidInput("give a text or --file, not both")
        return _decoded(file.read_bytes(), str(file))
    if words and list(words) != ["-"]:
        return " ".join(words)
    if sys.stdin.isatty():
        complain("reading from the terminal, end with Ctrl-D")
    return _decoded(typer.get_binary_stream("stdin").read(), "standard input").rstrip("\n")


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 text: {error}") from error


def _add_one(memory: Memory, text: str, fields: dict[str, Any], as_json: bool) -> None:
    from engramma.cli.screen import print_json
    from engramma.cli.shapes import commit_json

    newest = memory.log(limit=1)
    note = memory.add(text, **fields)
    seen = newest[0].seq if newest else 0
    commits = [commit for commit in memory.log(note=note) if commit.seq > seen]
    if as_json:
        print_json({"id": note.id, "note": note, "commits": [commit_json(commit) for commit in commits]})
    else:
        _show(memory, note, commits)


def _show(memory: Memory, note: Note, commits: Sequence[Commit]) -> None:
    from engramma.cli.changes import change_lines, notes_of
    from engramma.cli.screen import Screen
    from engramma.cli.views import described, marks
    from engramma.commit import PutNote

    screen = Screen()
    screen.line((note.id, "cyan"), (f"  {marks(note)}" if marks(note) else "", "yellow"))
    new = {change.note.id for commit in commits for change in commit.changes if isinstance(change, PutNote)}
    if not commits:
        complain(f"the key {note.key!r} is in use: this is the note that has it")
    elif note.id not in new:
        complain("said before: merged into the note that says it already")
    described(screen, note)
    notes = notes_of(memory, commits)
    for change in (change for commit in commits for change in commit.changes):
        if not (isinstance(change, PutNote) and change.note.id == note.id):
            change_lines(screen, change, notes)


def _add_lines(memory: Memory, texts: Sequence[str], fields: dict[str, Any], as_json: bool) -> None:
    from engramma.cli.screen import Screen, print_json, progress
    from engramma.cli.views import note_line

    if fields["key"] is not None and len(texts) > 1:
        raise InvalidInput("--key names one note: it cannot be given with --lines")
    with progress("remembering") as report:
        notes = memory.add_many([{"content": text, **fields} for text in texts], progress=report)
    if as_json:
        print_json([{"id": note.id, "note": note} for note in notes])
        return
    screen = Screen()
    for note in notes:
        note_line(screen, note)
