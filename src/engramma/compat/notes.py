"""``MemoryNote``, and notes in the words of the original A-MEM: out of the memory, and back into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from engramma.dates import moment
from engramma.errors import InvalidInput
from engramma.note import Hit, Note
from engramma.store.base import Revision
from engramma.write import new_id

NO_CONTEXT, NO_CATEGORY = "General", "Uncategorized"
GIVEN_CONTEXT = "author_context"
"""The metadata that keeps a context of the author's own: an analyst that reads the note later leaves it alone."""
_FIELDS = {"content": "content", "keywords": "keywords", "tags": "tags", "context": "context", "category": "category",
           "timestamp": "at"}  # fmt: skip
_COUNTED = ("retrieval_count", "last_accessed", "evolution_history")  # by the memory itself
_STAMPS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


class MemoryNote:
    """A note as the original shows it: a copy, which ``update`` takes back into the memory.

    ``timestamp`` and ``last_accessed`` are YYYYMMDDHHMM; ``links`` are the ids of the notes linked to
    it, in either direction; ``evolution_history`` has one dict a revision after the first.
    """

    def __init__(
        self, content: str, id: str | None = None, keywords: Iterable[str] | None = None, links: Iterable[str] | None = None,
        retrieval_count: int | None = None, timestamp: str | None = None, last_accessed: str | None = None,
        context: str | None = None, evolution_history: Iterable[Any] | None = None, category: str | None = None,
        tags: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        now = stamp(datetime.now())
        self.content = content
        self.id = id or new_id()
        self.keywords = list(keywords or ())
        self.links = list(links or ())
        self.retrieval_count = retrieval_count or 0
        self.timestamp = timestamp or now
        self.last_accessed = last_accessed or now
        self.context = context or NO_CONTEXT
        self.evolution_history = list(evolution_history or ())
        self.category = category or NO_CATEGORY
        self.tags = list(tags or ())

    def __repr__(self) -> str:
        return f"MemoryNote(id={self.id!r}, content={self.content!r}, timestamp={self.timestamp!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryNote) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.id)


# -- out of the memory


def stamp(at: datetime) -> str:
    """A moment as the original writes it: YYYYMMDDHHMM, on its own clock."""
    return f"{at.year:04}{at:%m%d%H%M}"


def name_of(note: Note) -> str:
    """The id that a script knows a note by: the one it gave, or engramma's."""
    return note.key or note.id


def memory_note(note: Note, linked: Iterable[Note], revisions: Iterable[Revision]) -> MemoryNote:
    """A note, given the notes linked to it and its later revisions."""
    return MemoryNote(
        note.content, name_of(note), _words(note, "keywords"), [name_of(other) for other in linked], note.uses,
        stamp(note.at), stamp((note.used_at or note.created_at).astimezone()), _context(note),
        [_occasion(revision) for revision in revisions], _category(note), _words(note, "tags"),
    )  # fmt: skip


def result(hit: Hit) -> dict[str, Any]:
    """A hit as the dict that the original returns."""
    note = hit.note
    return {
        "id": name_of(note), "content": note.content, "context": _context(note), "keywords": _words(note, "keywords"),
        "tags": _words(note, "tags"), "timestamp": stamp(note.at), "category": _category(note),
        "is_neighbor": not hit.why.direct, "score": hit.score,
    }  # fmt: skip


def line(note: Note, *, with_id: bool = False) -> str:
    """A note on one line, its parts between tabs; line breaks in them are folded, so that no text can pose as a note."""
    parts = {
        "talk start time:": stamp(note.at), "memory content: ": note.content, "memory context: ": _context(note),
        "memory keywords: ": str(_words(note, "keywords")), "memory tags: ": str(_words(note, "tags")),
    }  # fmt: skip
    parts = {"memory_id:": name_of(note), **parts} if with_id else parts
    return "\t".join(label + " ".join(text.split()) for label, text in parts.items()) + "\n"


def _words(note: Note, field: str) -> list[str]:
    """Keywords or tags. While a note waits to be read, the author's own stand alone."""
    own = note.given.get(field) if note.state == "pending" else None
    return list(own or getattr(note, field))


def _context(note: Note) -> str:
    own = note.metadata.get(GIVEN_CONTEXT) if note.state == "pending" else None
    return own if isinstance(own, str) else note.context or NO_CONTEXT


def _category(note: Note) -> str:
    return note.given.get("category") or NO_CATEGORY


def _occasion(revision: Revision) -> dict[str, str]:
    return {"timestamp": stamp(revision.at.astimezone()), "actor": revision.actor, "reason": revision.reason}


# -- and back


def check_names(fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput for what is no field of a note."""
    known = (*_FIELDS, "links", "id", *_COUNTED)
    if unknown := sorted(set(fields) - set(known)):
        raise InvalidInput(f"{', '.join(map(repr, unknown))}: no field of a note; there are {', '.join(known)}")


def spoken(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an author says of a new note, leaving out what is the original's way to say nothing."""
    silence: tuple[Any, ...] = (None, "", [], ())
    defaults = {"context": NO_CONTEXT, "category": NO_CATEGORY}
    return {name: value for name, value in fields.items()
            if name == "content" or (name in _FIELDS and value not in silence and value != defaults.get(name))}  # fmt: skip


def in_our_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields under engramma's names, without those that the memory counts itself."""
    wanted = {_FIELDS[name]: value for name, value in fields.items() if name in _FIELDS}
    return wanted | ({"at": _moment(wanted["at"])} if "at" in wanted else {})


def with_context(note: Note, context: str) -> dict[str, Any]:
    """A context of the author's own, kept in the metadata too so that a later reading leaves it alone."""
    return {"context": context, "metadata": {**note.metadata, GIVEN_CONTEXT: context}}


def _moment(value: Any) -> datetime:
    """A moment from YYYYMMDDHHMM (a day, or seconds too), a datetime or another text, on the local clock."""
    given = value
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{8}|[0-9]{12}|[0-9]{14}", value.strip()):
        value = _read_stamp(value.strip())
    if isinstance(value, datetime) and value.tzinfo is None:
        try:
            value = value.astimezone()
        except (OverflowError, ValueError, OSError) as error:
            raise InvalidInput(f"timestamp={given!r} lies outside of the calendar") from error
    return moment(value, "timestamp")


def _read_stamp(digits: str) -> datetime:
    try:
        return datetime.strptime(digits, _STAMPS[len(digits)])
    except ValueError as error:
        raise InvalidInput(f"timestamp={digits!r} is no moment: write YYYYMMDDHHMM, such as '202503021500'") from error
