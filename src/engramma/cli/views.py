"""Notes and hits for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engramma.cli.screen import Screen

if TYPE_CHECKING:
    from engramma.note import Hit, Link, Note
    from engramma.recall import Hits

TITLE = 60


def title(note: Note, length: int = TITLE) -> str:
    """A note's text, cut to one line."""
    from engramma.words import excerpt

    return excerpt(note.content, length)


def moment_of(note: Note) -> str:
    """When it happened, to the minute."""
    return f"{note.at:%Y-%m-%d %H:%M}"


def marks(note: Note) -> str:
    """What is special about a note: its state, its pin, the end of its validity."""
    parts: list[str] = [] if note.state == "ready" else [note.state]
    parts += ["pinned"] if note.pinned else []
    parts += [f"held until {note.valid_until:%Y-%m-%d}"] if note.valid_until else []
    return ", ".join(parts)


def source(note: Note) -> str:
    """Who said it, when, in which session, and its id."""
    return "  ".join(filter(None, [note.speaker, moment_of(note), note.session, note.id, marks(note)]))


def note_line(screen: Screen, note: Note) -> None:
    """A note on one line of a list."""
    text = title(note, 200) if screen.terminal else " ".join(shown(note.content).split())
    tags = f"  [{', '.join(note.tags)}]" if note.tags else ""
    special = f"  ({marks(note)})" if marks(note) else ""
    speaker = f"{note.speaker}: " if note.speaker else ""
    screen.cut((note.id, "cyan"), "  ", (f"{note.at:%Y-%m-%d}", "dim"), "  ", (speaker, "bold"), text, (tags, "green"),
               (special, "yellow"))  # fmt: skip


def note_card(screen: Screen, note: Note, others: Mapping[str, Note]) -> None:
    """A note whole, with its links; ``others`` are the notes at their far ends."""
    screen.line((note.id, "cyan"), (f"  {marks(note)}", "yellow"))
    screen.line(note.content, indent=2)
    screen.blank()
    described(screen, note)
    rows = {
        "at": note.at.isoformat(), "speaker": note.speaker, "session": note.session, "space": _space(note),
        "category": note.category, "importance": f"{note.importance} of 5", "key": note.key,
        "metadata": _metadata(note), "error": note.error,
        "expires": note.expires_at.isoformat() if note.expires_at else None,
        "revision": f"{note.revision}, stored {note.created_at:%Y-%m-%d %H:%M}, recalled {note.uses} times",
    }  # fmt: skip
    for name, value in rows.items():
        if value:
            screen.field(name, value)
    for number, link in enumerate(sorted(note.links, key=lambda link: -link.strength)):
        link_line(screen, link, note, others.get(link.other(note.id)), "links" if number == 0 else "")


def described(screen: Screen, note: Note, indent: int = 2) -> None:
    """What the analyst made of a note: tags, keywords, context, dates."""
    if note.tags:
        screen.field("tags", (", ".join(note.tags), "green"), indent=indent)
    if note.keywords:
        screen.field("keywords", ", ".join(note.keywords), indent=indent)
    if note.context:
        screen.field("context", note.context, indent=indent)
    if note.dates:
        days = [said.text + " = " + " to ".join(dict.fromkeys((str(said.start), str(said.end)))) for said in note.dates]
        screen.field("dates", "; ".join(days), indent=indent)


def link_line(screen: Screen, link: Link, note: Note, other: Note | None, name: str = "", indent: int = 2) -> None:
    """A link seen from one of its notes: direction, kind, the other end, the reason."""
    arrow = "→" if link.source == note.id else "←"
    far = f"“{title(other)}”" if other else link.other(note.id)
    reason = f"  {link.reason}" if link.reason else ""
    screen.field(name, (f"{arrow} {link.kind} {link.strength:.2f}", "magenta"), f"  {far}", (reason, "dim"),
                 (f"  {link.other(note.id)}", "cyan"), indent=indent)  # fmt: skip


def hit_list(screen: Screen, hits: Hits | Sequence[Hit]) -> None:
    """Hits in order, direct ones numbered, linked ones marked by an arrow."""
    numbers: dict[str, int] = {}
    for hit in hits:
        if hit.why.direct:
            numbers[hit.note.id] = len(numbers) + 1
        hit_lines(screen, hit, numbers)


def shown(content: str, most: int = 1000) -> str:
    """A text as search shows it: of a long one the beginning, and where the rest is."""
    return content if len(content) <= most else f"{content[:most]} … ({len(content):,} characters, engramma show has them all)"


def hit_lines(screen: Screen, hit: Hit, numbers: Mapping[str, int], indent: int = 0) -> None:
    """One hit: score and text, then its source, then the evidence."""
    mark = f"{numbers[hit.note.id]:>2}" if hit.why.direct else " ↳"
    head = f"{mark}  {hit.score:.2f}  "
    screen.line((head, "bold green" if hit.why.direct else "magenta"), shown(hit.note.content), indent=indent, hang=len(head))
    screen.line((source(hit.note), "dim"), indent=indent + len(head))
    screen.line(("why  ", "dim"), (evidence(hit, numbers), "italic"), indent=indent + len(head), hang=5)


def evidence(hit: Hit, numbers: Mapping[str, int]) -> str:
    """Why a hit came back, with the number of the hit that it is linked to instead of an id."""
    text = str(hit.why)
    near = numbers.get(hit.why.source) if hit.why.source else None
    return text if near is None else text.replace(str(hit.why.source), f"number {near}", 1)


def _space(note: Note) -> str:
    return note.space if isinstance(note.space, str) else "/".join(note.space)


def _metadata(note: Note) -> str:
    import json

    return json.dumps(dict(note.metadata), ensure_ascii=False) if note.metadata else ""
