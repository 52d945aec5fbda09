"""Forgetting: which notes have faded, by Ebbinghaus' curve as MemoryBank uses it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from engramma.note import Note

FIRST_DAYS = 30.0
THRESHOLD = 0.05


@dataclass(frozen=True, slots=True)
class Faded:
    """A note that may be archived, how much of it is left (0 to 1), and why."""

    note: Note
    retention: float
    reason: str


def retention(note: Note, now: datetime) -> float:
    """What is left of a note, R = exp(-t / S), 0 to 1.

    t is days since the note was last recalled (or came), S its strength in days: FIRST_DAYS, once
    more for each recall, in proportion to its importance (3 is one). After MemoryBank (Zhong et al.,
    2023, arXiv 2305.10250, section 2.3), whose strength starts at one and grows by one a recall.
    """
    since = max(note.created_at, note.used_at or note.created_at)
    days = max(0.0, (now - since).total_seconds() / 86_400)
    return math.exp(-days / (FIRST_DAYS * (1 + note.uses) * note.importance / 3))


def faded(notes: Iterable[Note], now: datetime, threshold: float = THRESHOLD) -> list[Faded]:
    """The notes that have expired or fallen below the threshold, weakest first. Pinned ones and
    insights stay."""
    found = []
    for note in notes:
        left = retention(note, now)
        if note.expires_at is not None and note.expires_at <= now:
            found.append(Faded(note, left, f"expired on {note.expires_at:%Y-%m-%d}"))
        elif left < threshold and not note.pinned and note.level == "episode":
            found.append(Faded(note, left, f"{left:.1%} is left of it: unused for long, and of little weight"))
    return sorted(found, key=lambda one: one.retention)
