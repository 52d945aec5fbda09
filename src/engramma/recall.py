"""The recall path: a question against the spaces it may see.

    query → a score for every note → cut-off → [reranker] → expand (links, session) → hits

Scoring is in ``scoring``, expansion in ``expand``; here they are put together with the store, its
indexes and the embedder.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import SupportsIndex, overload

import numpy as np

from engramma import background as backgrounds
from engramma.background import Background
from engramma.choosing import SHARE_OF_BEST, Pick, choose, likeness, near_copies, visible, why
from engramma.context import CountTokens, context, estimate_tokens
from engramma.errors import InvalidInput, ModelError, ReplyInvalid
from engramma.expand import Reached, linked_hits, reach
from engramma.filters import Where, parse
from engramma.models.base import Embedder, EmbeddingKind, embedded
from engramma.nearest import as_neighbours, neighbours
from engramma.note import Hit, Neighbour, Note, NoteId, Space
from engramma.reranking import CANDIDATES, Rerank, opinions
from engramma.scoring import DEFAULT_CUT_OFF, WEIGHTS, Question, Scores, Weights, passage_question, question, score
from engramma.store.base import Query, Store
from engramma.store.index import Indexes, SpaceIndex
from engramma.tracing import span
from engramma.words import excerpt

INCLUDABLE = ("superseded", "archived", "merged", "expired")
QUERY_CHARACTERS = 2000
_GONE = ("archived", "merged")
LINKED_LEAST = 4  # linked notes that may follow, where k is smaller

log = logging.getLogger("engramma")


class Hits(list[Hit]):
    """The hits of one search in order: direct ones by relevance, then linked ones. A list.

    ``declined`` says why nothing came back, "" where something did.
    """

    declined: str = ""

    def context(self, max_tokens: int = 800, count: CountTokens = estimate_tokens) -> str:
        """The hits as a fenced block for a prompt, at most ``max_tokens`` tokens by ``count``."""
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise InvalidInput(f"max_tokens={max_tokens!r} must be a whole number of at least 0")
        return context(self, max_tokens, count)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Hit: ...
    @overload
    def __getitem__(self, index: slice, /) -> Hits: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Hit | Hits:
        """One hit, or a slice as hits again."""
        found = super().__getitem__(index)
        return Hits(found) if isinstance(found, list) else found

    @property
    def direct(self) -> list[Hit]:
        """The hits that the question itself found."""
        return [hit for hit in self if hit.why.direct]


@dataclass(frozen=True, slots=True)
class Request:
    """A checked search."""

    text: str
    spaces: tuple[Space, ...]
    k: int = 10
    where: Where | None = None
    since: datetime | None = None
    until: datetime | None = None
    as_of: int | None = None
    expand: bool = True
    min_relevance: float = DEFAULT_CUT_OFF
    include: frozenset[str] = field(default_factory=frozenset)
    rerank: Rerank | None = None
    moment: datetime | None = None
    """When it is asked: what has expired by then does not come back. None is now."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.strip()[:QUERY_CHARACTERS])
        parse(self.where)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidInput(f"k={self.k!r} must be a whole number of at least 1")
        if not isinstance(self.min_relevance, int | float) or not 0 <= self.min_relevance <= 1:
            raise InvalidInput(f"min_relevance={self.min_relevance!r} must be from 0 to 1")
        if unknown := set(self.include) - set(INCLUDABLE):
            raise InvalidInput(f"include holds {sorted(unknown)[0]!r}: it takes {', '.join(INCLUDABLE)}")


@dataclass(frozen=True, slots=True)
class _Found:
    """One direct candidate, with what is needed to show its evidence."""

    pick: Pick
    index: SpaceIndex
    scores: Scores
    remark: str = ""

    @property
    def note(self) -> NoteId:
        """The id of its note."""
        return self.index.ids[self.pick.row]


@dataclass(frozen=True, slots=True)
class _Sight:
    """An embedder, and what was made for it: they are exchanged together."""

    embedder: Embedder
    indexes: Indexes
    background: Background


@dataclass(frozen=True, slots=True)
class _Look:
    """A space's index, what each of its notes says to the question, and which may come back: bool (n,)."""

    index: SpaceIndex
    scores: Scores
    allowed: np.ndarray

    def relevance(self, note: NoteId) -> float | None:
        """How relevant a note is by itself, None where it may not come back."""
        row = self.index.row_of.get(note)
        return self.scores.relevance(row) if row is not None and row < len(self.allowed) and self.allowed[row] else None


def _alike(found: Sequence[_Found], asked: Question, background: Background) -> dict[NoteId, float]:
    """How like the question each candidate is, those of one index at once."""
    alike: dict[NoteId, float] = {}
    for index in {id(one.index): one.index for one in found}.values():
        mine = [one for one in found if one.index is index]
        values = likeness(index, asked.vector, [one.pick.row for one in mine], background)
        alike |= {one.note: float(value) for one, value in zip(mine, values, strict=True)}
    return alike


def _hit(found: _Found, asked: Question, note: Note, alike: float) -> Hit:
    evidence = why(found.index, found.scores, found.pick, asked, note, alike)
    disputed = "disputed by another note" if any(link.kind == "contradicts" for link in note.links) else ""
    remarks = (*evidence.remarks, *filter(None, (found.remark, disputed)))
    return Hit(note, round(found.pick.score, 4), replace(evidence, remarks=remarks))


def _moved(place: int, new: int) -> str:
    return f"reranked from {place + 1} to {new + 1}" if place != new else ""


class Recall:
    """Search over a store. Safe for threads."""

    def __init__(self, store: Store, embedder: Callable[[], Embedder], weights: Weights = WEIGHTS) -> None:
        if not isinstance(weights, Weights):
            raise InvalidInput(f"weights={weights!r} are no engramma.Weights: give Weights(words=…, …)")
        self._store, self._embedder, self._weights = store, embedder, weights
        self._lock = threading.RLock()
        self._sight: _Sight | None = None

    def forget(self) -> None:
        """Drop what is known of the store, after the embedder changed or notes were removed for good."""
        with self._lock:
            self._sight = None

    def sight(self) -> _Sight:
        """The indexes and the background of the embedder in use, made on first use and whenever it is another."""
        with self._lock:
            embedder = self._embedder()
            if self._sight is None or self._sight.embedder is not embedder:
                self._sight = _Sight(embedder, Indexes(self._store, embedder.dimensions), self._background(embedder))
            return self._sight

    def _background(self, embedder: Embedder) -> Background:
        """The embedder's background, kept with the store."""
        key = f"background:{embedder.name}"
        background = backgrounds.load(self._store.meta(key), embedder.dimensions)
        if background is None:
            background = backgrounds.measure(embedder)
            self._store.set_meta({key: background.dump()})
        return background

    @property
    def embedder_name(self) -> str:
        """The name of the embedder in use."""
        return self._embedder().name

    def embed(self, texts: Sequence[str], kind: EmbeddingKind) -> np.ndarray:
        """Unit vectors of texts, float32 (n, d). Raises ModelError when the embedder cannot."""
        with span("embed", embedder=self.embedder_name, texts=len(texts), kind=kind):
            return embedded(self._embedder(), texts, kind)

    def search(self, request: Request) -> Hits:
        """The hits of a search, with links and vectors of their notes."""
        text = request.text
        if not text:
            raise InvalidInput(f"query={request.text[:80]!r} asks nothing: give some words")
        with span("search", spaces=len(request.spaces), k=request.k, as_of=request.as_of) as told:
            hits = self._hits(request)
            told.set(hits=len(hits), direct=len(hits.direct), declined=bool(hits.declined))
            told.content(query=text)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("a search gives %s", ", ".join(f"note {hit.note.id} ({hit.score:.2f})" for hit in hits) or "nothing")
        return hits

    def _hits(self, request: Request) -> Hits:
        text = request.text
        while (seen := self._seen(request, asked := self._asked(text))) is None:
            log.debug("the embedder was exchanged while a question was embedded")
        looks, found, background = seen
        found = self._ranked(request, sorted(found, key=lambda candidate: -candidate.pick.score))
        reached = self._reached(request, looks, found) if request.expand and found else []
        notes = self._store.notes([*(one.note for one in found), *(step.note for step in reached)], request.as_of)
        shown = {note: whole for note, whole in notes.items() if whole.state not in _GONE or whole.state in request.include}
        alike = _alike(found, asked, background)
        hits = Hits(_hit(one, asked, shown[one.note], alike[one.note]) for one in found if one.note in shown)
        hits.extend(linked_hits(reached, shown, [hit.note for hit in hits]))
        if not hits:
            hits.declined = f"nothing here is relevant enough to {excerpt(request.text)!r}"
        return hits

    def _seen(self, request: Request, asked: Question) -> tuple[list[_Look], list[_Found], Background] | None:
        """What the spaces hold for a question and the candidates among it; None for a vector of other dimensions."""
        with self._lock:
            sight = self.sight()
            if len(asked.vector) != sight.indexes.dimensions:
                return None
            looks = [look for space in request.spaces if (look := self._look(request, space, asked, sight))]
            found = [one for look in looks for one in self._candidates(request, look, sight.background)]
            return looks, found, sight.background

    def _asked(self, text: str) -> Question:
        return question(text, self.embed([text], "query")[0], now=datetime.now().astimezone())

    def _look(self, request: Request, space: Space, asked: Question, sight: _Sight) -> _Look | None:
        index = sight.indexes.of(space, request.as_of)
        if len(index) == 0:
            return None
        scores = score(index, asked, sight.background, self._weights)
        return _Look(index, scores, self._allowed(request, space, index))

    def _candidates(self, request: Request, look: _Look, background: Background) -> list[_Found]:
        copies = near_copies(look.index, background)
        count, share = (max(request.k, CANDIDATES), 0.0) if request.rerank else (request.k, SHARE_OF_BEST)
        picks = choose(look.index, look.scores, look.allowed, count, request.min_relevance, copies, share)
        return [_Found(pick, look.index, look.scores) for pick in picks]

    def _ranked(self, request: Request, found: list[_Found]) -> list[_Found]:
        """The k best, in the reranker's order if there is one; in ours when its model is down or answers rubbish."""
        if request.rerank is None or len(found) < 2:
            return found[: request.k]
        pool = found[: max(request.k, CANDIDATES)]
        notes = self._store.notes([one.note for one in pool], request.as_of, vectors=False)
        pool = [one for one in pool if one.note in notes]
        try:
            scores = opinions(request.rerank, request.text, [notes[one.note] for one in pool])
        except (ModelError, ReplyInvalid) as error:
            log.warning("not reranked: %s", error)
            remark = f"not reranked: {excerpt(str(error), 80)}"
            best = max(one.scores.total[one.pick.row] for one in pool) * (SHARE_OF_BEST if request.min_relevance > 0 else -np.inf)
            return [replace(one, remark=remark) for one in pool if one.scores.total[one.pick.row] >= best][: request.k]
        order = sorted(range(len(pool)), key=lambda place: -scores[place])[: request.k]
        return [replace(pool[place], remark=_moved(place, new)) for new, place in enumerate(order)]

    def _allowed(self, request: Request, space: Space, index: SpaceIndex) -> np.ndarray:
        mask = visible(index, request.moment.timestamp() if request.moment else time.time(), request.include)
        if request.where is None and request.since is None and request.until is None:
            return mask
        states = ("pending", "ready", "archived", "merged")
        query = Query([space], parse(request.where), request.since, request.until, states, request.as_of)
        rows = [index.row_of[note] for note in self._store.matching(query) if note in index.row_of]
        wanted = np.zeros(len(index), bool)
        wanted[rows] = True
        return np.asarray(mask & wanted)

    def _reached(self, request: Request, looks: Sequence[_Look], found: Sequence[_Found]) -> list[Reached]:
        def relevance(note: NoteId) -> float | None:
            return next((own for look in looks if (own := look.relevance(note)) is not None), None)

        scores = {one.note: one.pick.score for one in found}
        return reach(scores, self._store.links(scores, request.as_of), relevance, max(request.k, LINKED_LEAST))

    def nearest(
        self, space: Space, text: str, vector: np.ndarray, k: int, leave_out: frozenset[NoteId] = frozenset()
    ) -> tuple[Neighbour, ...]:
        """The notes nearest a draft, for its analyst: hybrid, in the draft's own space."""
        with self._lock:
            sight = self.sight()
            if len(vector) != sight.indexes.dimensions:  # the embedder was exchanged meanwhile: the store refuses the note
                return ()
            asked = passage_question(text[:QUERY_CHARACTERS], vector)
            near = neighbours(sight.indexes.of(space), asked, sight.background, k, leave_out)
        return as_neighbours(near, self._store.notes([found.note for found in near], vectors=False))
