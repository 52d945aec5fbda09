"""Checking what an author gives before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engramma.context import without_recalled
from engramma.dates import moment
from engramma.errors import EmptyText, InvalidInput, UnknownId
from engramma.note import Draft, Note, NoteId, Space
from engramma.store.rows import to_json

FIELDS = ("content", "at", "speaker", "session", "space", "tags", "keywords", "category", "importance", "pinned",
          "expires_at", "metadata", "key", "distinct", "priority")  # fmt: skip
UPDATABLE = ("content", "at", "speaker", "session", "tags", "keywords", "context", "category", "importance", "pinned",
             "valid_until", "expires_at", "metadata", "key", "level")  # fmt: skip


def make_draft(content: Any, default_space: Space, **fields: Any) -> Draft:
    """A checked draft. Raises EmptyText or InvalidInput, naming the field and the value."""
    text = checked_content(content)
    space = fields.pop("space", None)
    values = {name: checked(name, value) for name, value in fields.items() if value is not None}
    values["at"] = moment(fields.get("at"))
    return Draft(text, space=checked_space(default_space if space is None else space), **values)


def fields_of(item: Any) -> dict[str, Any]:
    """The fields of one item of ``add_many``: a text, a dict, or anything shaped like a note."""
    if isinstance(item, str):
        return {"content": item}
    if isinstance(item, Mapping):
        fields = dict(item)
        if "text" in fields and "content" not in fields:
            fields["content"] = fields.pop("text")
        if unknown := set(fields) - set(FIELDS):
            raise InvalidInput(f"unknown field {sorted(unknown)[0]!r} in {item!r}: the fields are {', '.join(FIELDS)}")
        return fields
    if hasattr(item, "content"):
        return {name: value for name in FIELDS if (value := getattr(item, name, None)) not in (None, ())}
    raise InvalidInput(f"{item!r} is not a note: give text, a dict with 'content', or a note")


def checked_content(content: Any) -> str:
    """The text to keep: whole, but for blocks of memories that we ourselves put in a prompt."""
    if not isinstance(content, str):
        raise InvalidInput(f"content={content!r} is not text")
    text = without_recalled(content)
    if not text.strip():
        recalled = "; only recalled memories were in it" if content.strip() else ""
        raise EmptyText(f"content={content[:80]!r} holds no text to remember{recalled}")
    return _encodable("content", text)


def _encodable(name: str, text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = text[error.start]
        raise InvalidInput(
            f"{name} holds the lone surrogate {bad!r} at position {error.start}, which no encoding can keep: "
            "decode the text correctly, or replace it with text.encode('utf-8', 'replace').decode()"
        ) from error
    return text


def checked_space(space: Any) -> Space:
    """A space: text, or a tuple of texts, none of them empty."""
    parts = space if isinstance(space, tuple) else (space,)
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise InvalidInput(f"space={space!r} is not a space: give a text such as 'alice' or a tuple of texts")
    for part in parts:
        _encodable("space", part)
    return space  # type: ignore[no-any-return]


def checked(name: str, value: Any) -> Any:
    """One field's value in the type that notes keep. None stays None."""
    if value is None:
        return None
    if name == "content":
        return checked_content(value)
    if name in ("tags", "keywords"):
        return _texts(name, value)
    if name in ("at", "expires_at", "valid_until"):
        return moment(value, name)
    if name == "importance":
        return _importance(value)
    if name == "priority":
        return _priority(value)
    if name in ("pinned", "distinct"):
        return _flag(name, value)
    if name == "metadata":
        return _metadata(value)
    if name == "level" and value not in ("episode", "insight"):
        raise InvalidInput(f"level={value!r} is not a level: 'episode' or 'insight'")
    if not isinstance(value, str):
        raise InvalidInput(f"{name}={value!r} is not text")
    return _encodable(name, value) or ("" if name == "context" else None)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise InvalidInput(f"{name}={value!r} is not a list of texts, such as ['bug', 'login']")
    texts = tuple(value)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidInput(f"{name}={value!r} holds something that is not a text, or an empty one")
    if any("\0" in text for text in texts):
        raise InvalidInput(f"{name}={value!r} holds a NUL character, which no filter could find again")
    return tuple(_encodable(name, text) for text in dict.fromkeys(texts))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name}={value!r} is neither True nor False")
    return value


def checked_count(name: str, value: Any, least: int = 0) -> int | None:
    """A bound such as ``limit``: a whole number of at least ``least``, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise InvalidInput(f"{name}={value!r} must be a whole number of at least {least}, or None")
    return value


def checked_id(note: Any) -> NoteId:
    """The id of a note, given the note or its id. Raises UnknownId for what can be no id."""
    value = note.id if isinstance(note, Note) else note
    if not isinstance(value, str):
        raise UnknownId(f"{value!r} is no note's id: give a note, or its id as text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UnknownId(f"there is no note {value!r}") from error
    return NoteId(value)


def _importance(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise InvalidInput(f"importance={value!r} is not a whole number from 1 to 5")
    return value


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1_000_000:
        raise InvalidInput(f"priority={value!r} is not a whole number; importance, 1 to 5, is what stands for it otherwise")
    return value


_DEEPEST = 100  # levels of metadata: what every store's JSON functions can walk


def _depth(value: Any) -> int:
    """How deep a value is nested, looked at no further than matters."""
    level, depth = [value], 0
    while level and depth <= _DEEPEST:
        inner = [one.values() if isinstance(one, Mapping) else one for one in level if isinstance(one, Mapping | list | tuple)]
        level, depth = [item for group in inner for item in group], depth + 1
    return depth


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInput(f"metadata={value!r} is not a dict with text keys")
    if _depth(value) > _DEEPEST:
        raise InvalidInput(f"metadata is nested more than {_DEEPEST} deep")
    _encodable("metadata", to_json(dict(value)))
    return dict(value)


def checked_update(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``update``, checked. An unknown field is an error, never ignored."""
    if unknown := set(fields) - set(UPDATABLE):
        name = sorted(unknown)[0]
        known = name in Note.__dataclass_fields__
        why = "cannot be changed by hand" if known else "is not a field of a note"
        raise InvalidInput(f"{name!r} {why}: update takes {', '.join(UPDATABLE)}")
    for name in ("content", "at", "tags", "keywords", "importance", "metadata", "pinned", "level", "context"):
        if name in fields and fields[name] is None:
            raise InvalidInput(f"{name} cannot be None")
    return {name: checked(name, value) for name, value in fields.items()}
