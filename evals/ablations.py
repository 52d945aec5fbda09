"""What each part of engramma is worth: the same questions with one part changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from engramma import Memory, Note, Weights
from engramma.analysts.base import Page
from engramma.analysts.rules import RuleAnalyst
from engramma.note import Reading
from evals.asking import DEFAULT, Opening, Run, Variant, fill, said
from evals.embeddings import Cached, Rewritten
from evals.sets import Collection, Item

Change = Callable[[Reading], Reading]


class ChangedRules:
    """The rules, their readings changed before engramma acts on them."""

    name, batch, slow = RuleAnalyst.name, RuleAnalyst.batch, RuleAnalyst.slow

    def __init__(self, change: Change) -> None:
        self._rules, self._change = RuleAnalyst(), change

    def read(self, pages: Sequence[Page]) -> list[Reading]:
        """One reading a page."""
        return [self._change(reading) for reading in self._rules.read(pages)]


def without_links(reading: Reading) -> Reading:
    """A reading that links to nothing but the note it repeats, and so changes no other."""
    kept = tuple(link for link in reading.links if link.target == reading.duplicate_of)
    return replace(reading, links=kept, changes=())


def without_evolution(reading: Reading) -> Reading:
    """A reading that leaves its neighbours as they are."""
    return replace(reading, changes=())


def without_session(item: Item) -> Item:
    """An item that stands for itself: no turn comes before or after it."""
    return replace(item, session=None)


def read_with(change: Change) -> Opening:
    """Open with the rules, their readings changed."""
    return lambda embedder, collections: {"analyst": ChangedRules(change)}


SHAPE = ("floor", "middle", "growth", "least", "slope")
"""What of ``engramma.Weights`` weighs no evidence: what counts as noise, and how a sum becomes a relevance."""
EVIDENCE = tuple(field.name for field in fields(Weights) if field.name not in SHAPE)
WORDS = ("words", "around", "keyword")


def without(*kinds: str) -> Opening:
    """Open with some kinds of evidence worth nothing."""
    return lambda embedder, collections: {"weights": Weights(**dict.fromkeys(kinds, 0.0))}


def alone(kind: str) -> Opening:
    """Open with one kind of evidence only."""
    return without(*(other for other in EVIDENCE if other != kind))


def one_text(embedder: Cached, collections: Sequence[Collection]) -> Mapping[str, Any]:
    """Open with an embedder that is given all of a note (A-MEM, section 3.1: content, keywords, tags, context).

    The descriptions are those of a memory filled before, evolution included.
    """
    with Memory.open(":memory:", embedder=embedder, llm="none", space="default") as memory:
        fill(memory, DEFAULT, collections, embedder, Run(), "(to be described)")
        notes = [note for one in collections for note in memory.list(space=one.name, include={"merged"})]
    texts = {said(Item(note.id, note.content, note.speaker)): whole(note) for note in notes}
    embedder.warm(list(texts.values()), "passage", "embedding whole notes")
    return {"embedder": Rewritten(embedder, texts, "whole notes")}


def whole(note: Note) -> str:
    """A note as one text: who says what, its keywords, tags and context."""
    spoken = said(Item(note.id, note.content, note.speaker))
    described = f"keywords: {', '.join(note.keywords)} tags: {', '.join(note.tags)} context: {note.context}"
    return f"{spoken} {described}"


SWEPT = ("full", "dense only", "words only")
ABLATIONS: dict[str, Variant] = {
    "full": DEFAULT,
    "dense only": Variant(opened=without(*WORDS)),
    "words only": Variant(opened=without("dense")),
    "meaning alone": Variant(opened=alone("dense")),
    "links made, not followed": Variant(searched={"expand": False}),
    "no links made": Variant(opened=read_with(without_links)),
    "no evolution": Variant(opened=read_with(without_evolution)),
    "no session order": Variant(made=without_session),
    "no speaker": Variant(opened=without("speaker")),
    "no dates": Variant(opened=without("date")),
    "all of a note as one text": Variant(opened=one_text),
}
"""How engramma is used, by name. The first is how it comes."""
