"""The values everything else speaks of: notes, links, drafts, readings, hits.

All are frozen. A note is the paper's seven parts (A-MEM, arXiv 2502.12110, section 3.1:
``m = {c, t, K, G, X, e, L}``) and what engramma needs to keep it for years.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, NewType

if TYPE_CHECKING:
    import numpy as np

NoteId = NewType("NoteId", str)
CommitId = NewType("CommitId", str)
Space = str | tuple[str, ...]
Level = Literal["episode", "insight"]
State = Literal["pending", "ready", "archived", "merged"]

LINK_KINDS = (
    "related",
    "supports",
    "contradicts",
    "supersedes",
    "updates",
    "causes",
    "solves",
    "part_of",
    "example_of",
    "same_as",
    "follows",
    "derived_from",
)
"""Kinds that engramma gives a meaning to. Any other word is allowed too."""


USER, ASSISTANT = "user", "assistant"
"""The speakers of a chat with a model. "You" in its answers is the user, on whom they are no authority."""


@dataclass(frozen=True, slots=True)
class SaidDate:
    """A date said in a text, resolved against the note's ``at``.

    ``start`` and ``end`` are calendar days in the speaker's own time zone, both included:
    "yesterday" is one day, "last May" is 1 to 31 May. Days have no clock and no zone, so they
    cannot move when a zone is converted.
    """

    text: str
    start: date
    end: date


@dataclass(frozen=True, slots=True)
class Link:
    """A directed, reasoned connection between two notes of one space, walkable from both ends."""

    source: NoteId
    target: NoteId
    kind: str = "related"
    reason: str = ""
    strength: float = 0.5
    revision: int = 1

    def other(self, note: NoteId) -> NoteId:
        """The end that is not ``note``."""
        return self.target if note == self.source else self.source

    @property
    def ends(self) -> tuple[NoteId, NoteId, str]:
        """What names a link: source, target and kind."""
        return self.source, self.target, self.kind


@dataclass(frozen=True, slots=True)
class Note:
    """One memory. ``content`` is what was said and is never rewritten by evolution.

    ``vector`` is float32 of shape (d,), unit length (the mean of its pieces for a long text);
    ``importance`` is 1 to 5; ``at`` and ``created_at`` are aware datetimes with the offset they
    were given in.
    """

    id: NoteId
    space: Space
    content: str
    at: datetime
    created_at: datetime
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    context: str = ""
    dates: tuple[SaidDate, ...] = ()
    session: str | None = None
    speaker: str | None = None
    category: str | None = None
    importance: int = 3
    level: Level = "episode"
    state: State = "ready"
    pinned: bool = False
    valid_until: datetime | None = None
    expires_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    revision: int = 1
    uses: int = 0
    used_at: datetime | None = None
    links: tuple[Link, ...] = field(default=(), compare=False)
    vector: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Draft:
    """What the author gave, checked: a note before anybody has read it."""

    content: str
    at: datetime
    space: Space
    speaker: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    category: str | None = None
    importance: int | None = None
    pinned: bool = False
    expires_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    distinct: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An existing note near a draft, and how near: ``score`` is recall's relevance, 0 to 1;
    ``likeness`` is the cosine rescaled so that 0 is unrelated and 1 is the same text; ``shared``
    are the words that both hold and few other notes do, rarest first."""

    note: Note
    score: float = 0.0
    likeness: float = 0.0
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkProposal:
    """A link that an analyst wants between the draft and a note it was shown.

    ``inward`` turns the direction: the shown note becomes the source.
    """

    target: NoteId
    kind: str
    reason: str
    strength: float
    inward: bool = False


@dataclass(frozen=True, slots=True)
class NeighbourChange:
    """A change that an analyst wants in a note it was shown. None leaves a field as it is."""

    note: NoteId
    reason: str
    context: str | None = None
    add_keywords: tuple[str, ...] = ()
    add_tags: tuple[str, ...] = ()
    drop_tags: tuple[str, ...] = ()
    strengthen: Mapping[NoteId, float] = field(default_factory=dict)
    prune: tuple[NoteId, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """An analyst's one answer about a draft and the notes near it (DESIGN: one reading per note)."""

    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    context: str = ""
    category: str | None = None
    importance: int | None = None
    dates: tuple[SaidDate, ...] = ()
    links: tuple[LinkProposal, ...] = ()
    changes: tuple[NeighbourChange, ...] = ()
    duplicate_of: NoteId | None = None
    dropped: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Why:
    """The evidence for a hit: numbers for programs, ``str(why)`` for people.

    ``dense`` is the rescaled cosine (0 unrelated, 1 the same text), ``lexical`` the share of the
    question's word weight that the note answers, ``session`` the share of the evidence that the turns
    around it gave.
    ``evidence`` is what each kind of evidence added to the sum that ``score`` comes from, in standard
    deviations of what a note of this memory gets by chance. ``words`` are the question's words
    found in the note. ``path`` is empty for a direct hit; otherwise the links walked from one.
    """

    dense: float = 0.0
    lexical: float = 0.0
    session: float = 0.0
    words: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    path: tuple[Link, ...] = ()
    source: NoteId | None = None
    copies: tuple[NoteId, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether the question itself found the note, not a link from another hit."""
        return not self.path

    def __str__(self) -> str:
        parts = []
        if self.path:
            step = self.path[-1]
            parts.append(f"linked from {self.source} ({step.kind}: {step.reason})")
        if self.dense:
            parts.append(f"meaning {self.dense:.2f}")
        if self.words:
            parts.append(f"words {self.lexical:.2f} ({', '.join(self.words)})")
        if self.session:
            parts.append(f"session {self.session:.2f}")
        if self.copies:
            parts.append(f"{len(self.copies)} near {'copy' if len(self.copies) == 1 else 'copies'} left out")
        return "; ".join([*parts, *self.remarks])


@dataclass(frozen=True, slots=True)
class Hit:
    """A note that came back, its relevance (0 to 1) and the evidence for it."""

    note: Note
    score: float
    why: Why


def unique(*groups: Sequence[str]) -> tuple[str, ...]:
    """The strings of all groups in order, each once, ignoring case."""
    seen: dict[str, str] = {}
    for group in groups:
        for text in group:
            seen.setdefault(text.casefold(), text)
    return tuple(seen.values())
