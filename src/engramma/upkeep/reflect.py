"""Reflection: what several linked notes say together, as one note that stands above them. By rules:
it counts, dates and quotes, and says nothing that the notes do not."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engramma.note import Note, NoteId, Space
from engramma.words import excerpt, is_chinese

FEWEST = 3
_JOINING = ("related", "solves", "supports", "causes", "part_of", "example_of")


@dataclass(frozen=True, slots=True)
class Insight:
    """A proposed insight, the notes it rests on, and a key that is the same for the same notes."""

    space: Space
    content: str
    tags: tuple[str, ...]
    sources: tuple[Note, ...]
    key: str


def insights(notes: Sequence[Note]) -> list[Insight]:
    """One insight for each group of at least three linked notes of one speaker that share a tag."""
    episodes = {note.id: note for note in notes if note.level == "episode" and note.valid_until is None}
    found = []
    for group in _groups(episodes):
        for speaker in sorted({note.speaker for note in group if note.speaker}):
            own = [note for note in group if note.speaker == speaker]
            tags = Counter(tag for note in own for tag in note.tags)
            tag, count = tags.most_common(1)[0] if tags else ("", 0)
            if count >= FEWEST:
                found.append(_insight(speaker, tag, sorted((n for n in own if tag in n.tags), key=lambda n: n.at)))
    return found


def _groups(notes: Mapping[NoteId, Note]) -> Iterable[list[Note]]:
    """The connected components of the notes under links that join subjects."""
    left = dict(notes)
    while left:
        start = left.pop(next(iter(left)))
        group, frontier = [start], [start]
        while frontier:
            ends = [link.other(note.id) for note in frontier for link in note.links if link.kind in _JOINING]
            frontier = [left.pop(end) for end in dict.fromkeys(ends) if end in left]
            group += frontier
        if len(group) >= FEWEST:
            yield group


def _insight(speaker: str, tag: str, sources: Sequence[Note]) -> Insight:
    first, last = f"{sources[0].at:%Y-%m-%d}", f"{sources[-1].at:%Y-%m-%d}"
    quote = excerpt(sources[-1].content, 80)
    if is_chinese(tag):
        content = f"{speaker}从{first}到{last}有{len(sources)}次谈到{tag}，最近一次：“{quote}”"
    else:
        content = f'{speaker} has spoken of {tag} {len(sources)} times between {first} and {last}, the last time: "{quote}"'
    digest = hashlib.sha256("".join(sorted(note.id for note in sources)).encode()).hexdigest()[:16]
    return Insight(sources[0].space, content, (tag,), tuple(sources), f"insight:{digest}")
