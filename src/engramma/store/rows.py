"""Notes, links and changes as rows and JSON, and back. Shared by the SQL backends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Protocol

from engramma.commit import ArchiveNote, Change, DropLink, PutLink, PutNote, RemoveNote, ReviseNote
from engramma.errors import InvalidInput, NotAMemory
from engramma.note import Link, Note, NoteId, SaidDate, Space

NOTE_COLUMNS = (
    "id", "space", "key", "session", "speaker", "content", "at", "at_offset", "created_at", "context", "keywords",
    "tags", "dates", "first_day", "last_day", "category", "importance", "level", "state", "pinned", "valid_until",
    "expires_at", "metadata", "given", "error", "revision",
)  # fmt: skip
LINK_COLUMNS = ("source", "target", "kind", "reason", "strength", "revision")


class Row(Protocol):
    """Anything with columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def space_key(space: Space) -> str:
    """The text that stands for a space; equal only for equal spaces."""
    if isinstance(space, tuple) or space.startswith(("[", '"')):
        return json.dumps(space, ensure_ascii=False)
    return space


def key_space(key: str) -> Space:
    """The inverse of ``space_key``."""
    if not key.startswith(("[", '"')):
        return key
    value = from_json(key)
    return tuple(value) if isinstance(value, list) else str(value)


def micros(moment: datetime) -> int:
    """Microseconds since 1970 in UTC, exact."""
    return (moment - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=256)
def _zone(offset: int) -> timezone:
    return timezone(timedelta(seconds=offset))


def instant(value: int, offset: int = 0) -> datetime:
    """The aware datetime of ``micros``, shown with an offset in seconds."""
    utc = _EPOCH + timedelta(microseconds=value)
    try:
        return utc.astimezone(_zone(offset)) if offset else utc
    except OverflowError:  # a moment within hours of year 1 or 9999
        return utc


def to_json(value: Any) -> str:
    """JSON text; refuses what JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise InvalidInput("the value is nested too deeply to be kept as JSON") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{value!r} cannot be kept as JSON: {error}") from error


def from_json(text: str) -> Any:
    """The value of JSON that a store kept. Raises NotAMemory where it was damaged."""
    if text == "[]" or text == "{}":  # what most notes hold in most fields
        return [] if text == "[]" else {}
    try:
        return json.loads(text)
    except ValueError as error:
        raise NotAMemory(f"the memory is damaged: {text[:60]!r} was kept as JSON and is not; load your last export") from error


def _dates_json(dates: Sequence[SaidDate]) -> list[list[str]]:
    return [[said.text, said.start.isoformat(), said.end.isoformat()] for said in dates]


def _dates(value: Sequence[Sequence[str]]) -> tuple[SaidDate, ...]:
    return tuple(SaidDate(text, date.fromisoformat(start), date.fromisoformat(end)) for text, start, end in value)


def note_row(note: Note) -> dict[str, Any]:
    """The columns of a note."""
    return {
        "id": note.id, "space": space_key(note.space), "key": note.key, "session": note.session,
        "speaker": note.speaker, "content": note.content,
        "at": micros(note.at), "at_offset": _offset(note.at), "created_at": micros(note.created_at),
        "context": note.context, "keywords": to_json(note.keywords), "tags": to_json(note.tags),
        "dates": to_json(_dates_json(note.dates)),
        "first_day": min((said.start.toordinal() for said in note.dates), default=None),
        "last_day": max((said.end.toordinal() for said in note.dates), default=None),
        "category": note.category, "importance": note.importance, "level": note.level, "state": note.state,
        "pinned": int(note.pinned),
        "valid_until": note.valid_until and micros(note.valid_until),
        "expires_at": note.expires_at and micros(note.expires_at),
        "metadata": to_json(note.metadata), "given": to_json(note.given), "error": note.error,
        "revision": note.revision,
    }  # fmt: skip


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset()
    return int(offset.total_seconds()) if offset else 0


def row_note(row: Row, **more: Any) -> Note:
    """The note of a row with NOTE_COLUMNS."""
    return Note(
        id=NoteId(row["id"]), space=key_space(row["space"]), content=row["content"],
        at=instant(row["at"], row["at_offset"]), created_at=instant(row["created_at"], row["at_offset"]),
        keywords=tuple(from_json(row["keywords"])), tags=tuple(from_json(row["tags"])), context=row["context"],
        dates=_dates(from_json(row["dates"])), session=row["session"], speaker=row["speaker"],
        category=row["category"], importance=row["importance"], level=row["level"], state=row["state"],
        pinned=bool(row["pinned"]),
        valid_until=None if row["valid_until"] is None else instant(row["valid_until"], row["at_offset"]),
        expires_at=None if row["expires_at"] is None else instant(row["expires_at"], row["at_offset"]),
        metadata=from_json(row["metadata"]), key=row["key"], given=from_json(row["given"]), error=row["error"],
        revision=row["revision"], **more,
    )  # fmt: skip


def row_link(row: Row) -> Link:
    """The link of a row with LINK_COLUMNS."""
    return Link(NoteId(row["source"]), NoteId(row["target"]), *(row[name] for name in LINK_COLUMNS[2:]))


def fields_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Note fields as JSON values, for the log."""
    return {name: _field_json(value) for name, value in fields.items()}


def _field_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple) and value and isinstance(value[0], SaidDate):
        return _dates_json(value)
    return value


def json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of ``fields_json``."""
    return {name: _json_field(name, value) for name, value in fields.items()}


def _json_field(name: str, value: Any) -> Any:
    if name in ("at", "created_at", "valid_until", "expires_at") and value is not None:
        return datetime.fromisoformat(value)
    if name == "dates":
        return _dates(value)
    return tuple(value) if name in ("keywords", "tags") else value


def link_json(link: Link | None) -> dict[str, Any] | None:
    """A link as a JSON value."""
    return None if link is None else {name: getattr(link, name) for name in LINK_COLUMNS}


def change_row(change: Change) -> tuple[str, str, str | None, str]:
    """Kind, note, other note and JSON body of a change, for the log."""
    match change:
        case PutNote(note=note, reason=reason):
            return "PutNote", note.id, None, to_json({"reason": reason})
        case ReviseNote() | ArchiveNote():
            after = fields_json(change.after) if isinstance(change, ReviseNote) else {}
            body = {"expects": change.expects, "reason": change.reason}
            body |= {"after": after, "before": fields_json(change.before)}
            return type(change).__name__, change.note, None, to_json(body)
        case RemoveNote(note=note_id, reason=reason):
            return "RemoveNote", note_id, None, to_json({"reason": reason})
        case PutLink(link=link, reason=reason, before=before):
            body = {"link": link_json(link), "reason": reason, "before": link_json(before)}
            return "PutLink", link.source, link.target, to_json(body)
        case DropLink(before=before):
            body = {"kind": change.kind, "reason": change.reason, "before": link_json(before)}
            return "DropLink", change.source, change.target, to_json(body)


def row_change(row: Row, note: Note | None) -> Change:
    """The change of a log row; ``note`` is the first revision, for a PutNote that is still there."""
    body, note_id, other = from_json(row["body"]), NoteId(row["note"]), row["other"]
    match row["kind"]:
        case "PutNote" if note is not None and "reason" in body:  # else it was purged, and brought back by a file
            return PutNote(note, body["reason"])
        case "ReviseNote" if "after" in body:
            after, before = json_fields(body["after"]), json_fields(body["before"])
            return ReviseNote(note_id, body["expects"], after, body["reason"], before)
        case "ArchiveNote" if "expects" in body:
            return ArchiveNote(note_id, body["expects"], body["reason"], json_fields(body["before"]))
        case "PutLink" if "link" in body:
            before_link = body["before"] and row_link(body["before"])
            return PutLink(row_link(body["link"]), body["reason"], before_link)
        case "DropLink" if "kind" in body:
            before_link = body["before"] and row_link(body["before"])
            return DropLink(note_id, NoteId(other), body["kind"], body["reason"], before_link)
        case _:
            return RemoveNote(note_id, body.get("reason", "its content was removed for good"))
