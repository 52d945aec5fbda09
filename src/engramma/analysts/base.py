"""What an analyst does: read a draft together with its nearest notes, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engramma.errors import ReplyInvalid
from engramma.note import Draft, Neighbour, NoteId, Reading


@dataclass(frozen=True, slots=True)
class Page:
    """What an analyst is shown for one note: the draft, its id, and the notes near it."""

    id: NoteId
    draft: Draft
    neighbours: tuple[Neighbour, ...] = ()


class Analyst(Protocol):
    """Reads pages. ``batch`` is how many pages one call may hold; ``slow`` says that reading may
    take long or fail, so that notes are stored before they are read."""

    name: str
    batch: int
    slow: bool

    def read(self, pages: Sequence[Page]) -> Sequence[Reading | ReplyInvalid]:
        """One reading a page, in order, or why one page has none. Raises ModelError (or OSError) when
        there is no answer to be had, ReplyInvalid when it is of no use for any page."""
