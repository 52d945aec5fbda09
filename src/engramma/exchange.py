"""Memories as JSON lines: out, and in again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engramma.commit import Change, PutLink, PutNote, ReviseNote
from engramma.errors import InvalidInput, NotAMemory, StoreError
from engramma.note import Link, Note, NoteId, Space
from engramma.recall import Recall
from engramma.store.base import Query, Store
from engramma.store.rows import LINK_COLUMNS, NOTE_COLUMNS, link_json, note_row, row_link, row_note
from engramma.words import pieces
from engramma.write import make_commit, passage

_FORMAT = 1
_BATCH = 64
Progress = Callable[[int, int], None]


def export(store: Store, spaces: Sequence[Space], path: Path, progress: Progress | None = None) -> int:
    """Write a header, every note of the spaces (deleted ones left out) and every link."""
    notes = store.find(Query(spaces, states=("pending", "ready", "merged"))) if spaces else []
    links = {link.ends: link for link in store.links([note.id for note in notes])}
    lines = [json.dumps({"engramma": _FORMAT, "notes": len(notes), "links": len(links)})]
    for done, note in enumerate(notes, 1):
        lines.append(json.dumps({"note": note_row(note)}, ensure_ascii=False))
        if progress:
            progress(done, len(notes))
    lines += [json.dumps({"link": link_json(link)}, ensure_ascii=False) for link in links.values()]
    _write_whole(path, "\n".join(lines) + "\n")
    return len(notes)


def _write_whole(path: Path, text: str) -> None:
    """Write a file at once or not at all, and never over a database."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(16).startswith(b"SQLite format 3"):
                raise InvalidInput(
                    f"{str(path)!r} is a database, maybe a memory: give the export another name, such as notes.jsonl"
                )
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def load(store: Store, recall: Recall, add_many: Callable[..., list[Note]], path: Path, progress: Progress | None = None) -> int:
    """Take in a file; the number of notes that were not there before."""
    before = sum(store.totals().notes.values())
    rows = list(_lines(path))
    notes = [row["note"] for row in rows if isinstance(row, dict) and "note" in row]
    links = [row["link"] for row in rows if isinstance(row, dict) and "link" in row]
    others = [row for row in rows if not isinstance(row, dict) or not {"note", "link", "engramma"} & set(row)]
    fresh = _put_notes(store, recall, [_note(row) for row in notes], progress)
    _put_links(store, [_link(row) for row in links], fresh)
    if others:
        add_many(others, progress=progress)
    return sum(store.totals().notes.values()) - before


def _lines(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise StoreError(f"there is no file {str(path)!r} to load") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{str(path)!r} is not UTF-8 text: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if not line.lstrip().startswith("{"):
            yield line.strip()
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"line {number} of {str(path)!r} is not valid JSON: {error}; nothing was loaded") from error


def _note(row: Mapping[str, Any]) -> Note:
    if missing := set(NOTE_COLUMNS) - set(row if isinstance(row, dict) else ()):
        raise InvalidInput(f"a note in the file lacks {sorted(missing)[0]!r}: it was not written by engramma export")
    if not isinstance(row["id"], str) or not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", row["id"]):
        raise InvalidInput(f"a note in the file has the id {row['id']!r}: ids are letters, digits, - and _")
    try:
        return row_note({**row, "revision": 1})
    except (TypeError, ValueError, NotAMemory) as error:
        raise InvalidInput(f"note {row['id']!r} in the file is not as engramma export wrote it: {error}") from error


def _link(row: Any) -> Link:
    if missing := set(LINK_COLUMNS) - set(row if isinstance(row, dict) else ()):
        raise InvalidInput(f"a link in the file lacks {sorted(missing)[0]!r}: it was not written by engramma export")
    return row_link(row)


def _put_notes(store: Store, recall: Recall, notes: Sequence[Note], progress: Progress | None) -> set[NoteId]:
    """Put notes that are not there; their ids."""
    put: set[NoteId] = set()
    for start in range(0, len(notes), _BATCH):
        known = store.notes([note.id for note in notes[start : start + _BATCH]])
        fresh = list({note.id: note for note in notes[start : start + _BATCH] if note.id not in known}.values())
        cut = [pieces(passage(note)) for note in fresh]
        vectors = recall.embed([piece for texts in cut for piece in texts], "passage")
        parts = np.split(vectors, np.cumsum([len(texts) for texts in cut])[:-1]) if fresh else []
        by_id: dict[NoteId, np.ndarray] = {note.id: part for note, part in zip(fresh, parts, strict=True)}
        commits = [make_commit(note.space, [PutNote(note, "loaded")], "user", "load: 1 added") for note in fresh]
        store.apply(commits, by_id)
        put |= set(by_id)
        if progress:
            progress(min(start + _BATCH, len(notes)), len(notes))
    return put


def _put_links(store: Store, links: Sequence[Link], new: set[NoteId]) -> None:
    """Put links that are not there; none to a note that was deleted here. What one supersedes holds no more, but for
    notes that are ``new`` with the links: they are as they were exported."""
    for start in range(0, len(links), _BATCH):
        some = links[start : start + _BATCH]
        notes = store.notes([link.source for link in some] + [link.target for link in some])
        there = {link.ends for note in notes.values() for link in note.links}
        alive = {note.id for note in notes.values() if note.state != "archived"}
        fresh = {link.ends: link for link in some if link.ends not in there and {link.source, link.target} <= alive}
        by_space: dict[Space, list[Change]] = {}
        for link in fresh.values():
            by_space.setdefault(notes[link.source].space, []).append(PutLink(link, "loaded"))
        for target, newer in {link.target: notes[link.source] for link in fresh.values() if link.kind == "supersedes"}.items():
            older = notes[target]
            if older.valid_until is None and target not in new:
                ended = {"valid_until": max(newer.at, older.at)}
                by_space[older.space].append(ReviseNote(older.id, older.revision, ended, "loaded with what supersedes it"))
        reason = "load: {} links"
        store.apply([make_commit(space, made, "user", reason.format(len(made))) for space, made in by_space.items()], {})
