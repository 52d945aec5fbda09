"""Forgetting: which notes have faded, by Ebbinghaus' curve as MemoryBank uses it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from engramma.errors import InvalidInput
from engramma.note import Note, NoteId

FIRST_DAYS = 30.0
THRESHOLD = 0.05
RECENT_DAYS = 7.0
WEIGHTS = {1: 0.25, 2: 0.5, 3: 1.0, 4: 4.0, 5: 16.0}
"""How many times as long a note of an importance lasts as one of importance 3."""
REASON = "forget"
"""How the reason of a commit that forgets begins."""


@dataclass(frozen=True, slots=True)
class Faded:
    """A note that may be archived or, long after that, removed for good; how much of it is left (0 to 1), and why."""

    note: Note
    retention: float
    reason: str
    action: Literal["archive", "purge"] = "archive"


def strength(note: Note) -> float:
    """How slowly a note fades, in days: after so many unused ones 37 % of it is left."""
    return FIRST_DAYS * (1 + note.uses) * WEIGHTS[min(5, max(1, note.importance))]


def idle_days(note: Note, now: datetime) -> float:
    """Days since a note came or was last recalled, at least 0."""
    since = max(note.created_at, note.used_at or note.created_at)
    return max(0.0, (now - since).total_seconds() / 86_400)


def retention(note: Note, now: datetime) -> float:
    """What is left of a note, R = exp(-t / S), 0 to 1.

    t is days since the note was last recalled (or came), S its strength in days: FIRST_DAYS, once more for each
    recall, times the weight of its importance (3 is one). The curve is Ebbinghaus' (Über das Gedächtnis, 1885), its
    use here after MemoryBank (Zhong et al., 2023, arXiv 2305.10250, section 2.3), whose strength starts at one, grows
    by one with each recall, and starts the time anew; importance is ours.
    """
    return math.exp(-idle_days(note, now) / strength(note))


def faded(notes: Iterable[Note], now: datetime, threshold: float = THRESHOLD) -> list[Faded]:
    """The notes that have expired or fallen below the threshold, weakest first.

    Pinned notes stay, those that came or were recalled within RECENT_DAYS, distinct ones (what a program keeps here it lets
    go of itself), and insights, which reflection takes back when their sources go; an expiry that was set holds for all.
    """
    found = [one for note in notes if (one := _faded(note, now, threshold)) is not None]
    return sorted(found, key=lambda one: (one.retention, one.note.id))


def _faded(note: Note, now: datetime, threshold: float) -> Faded | None:
    left = retention(note, now)
    if note.expires_at is not None and note.expires_at <= now:
        return Faded(note, left, f"expired on {note.expires_at:%Y-%m-%d}")
    if note.pinned or note.level == "insight" or note.given.get("distinct"):
        return None
    if left >= threshold or idle_days(note, now) < RECENT_DAYS:
        return None
    days = f"{idle_days(note, now):.0f} days"
    used = f"recalled {note.uses} times, not for {days}" if note.uses else f"not recalled in {days}"
    return Faded(note, left, f"{left:.1%} is left of it: {used}, importance {note.importance}")


def with_uses(notes: Iterable[Note], uses: Mapping[NoteId, int], now: datetime) -> list[Note]:
    """Notes with uses that are counted and not written yet: they were used just now."""
    return [replace(n, uses=n.uses + uses[n.id], used_at=now) if uses.get(n.id) else n for n in notes]


Archived = Callable[[NoteId], tuple[datetime, str] | None]
"""When a note was archived, and the reason of that commit."""


def overdue(notes: Iterable[Note], now: datetime, period: timedelta, archived: Archived) -> list[Faded]:
    """The forgotten notes that were archived longer ago than a period. What somebody deleted is not among them."""
    found = []
    for note in notes:
        if note.created_at + period > now:
            continue
        when, why = archived(note.id) or (now, "")
        if why.startswith(f"{REASON}:") and when + period <= now:
            found.append(Faded(note, retention(note, now), f"forgotten on {when:%Y-%m-%d}, and not missed since", "purge"))
    return found


def checked_threshold(value: float) -> float:
    """A share from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(f"threshold={value!r} must be a number from 0 to 1")
    return float(value)
