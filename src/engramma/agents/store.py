"""``EngrammaStore``: LangGraph's long-term store, kept in a ``Memory``.

A namespace is a space, an item is a note whose metadata holds the item's value. So what a graph puts
is linked, found by words and by meaning, logged and revertible like every other note.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Literal

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from engramma.agents.items import (
    ITEM,
    as_item,
    bounds,
    check_filter,
    checked_index,
    expiry,
    is_key,
    is_searchable,
    minutes_to_live,
    note_fields,
    passes,
    value_of,
)
from engramma.agents.run import checked_memory
from engramma.draft import checked_count, checked_space
from engramma.errors import Conflict, InvalidInput, UnknownId
from engramma.filters import Where
from engramma.memory import Memory
from engramma.note import Note, Space
from engramma.recall import Hits

Namespace = tuple[str, ...]
Place = tuple[Namespace, str]
Fields = dict[str, Any]
Scored = tuple[Note, float | None]

_SHOWN = ("merged",)
_FOUND = ("merged", "superseded")
_DEPTH = 50  # notes that the first step of a search looks at
_WIDER = 4  # times as many in each step after it
_INDEX, _MINUTES, _FLAGS = ("fields",), ("default_ttl", "sweep_interval_minutes"), ("refresh_on_read", "omit_expired")
_NAMED = 10_000  # items that the database is asked for by name
_FRESH = 0.99  # share of its time to live above which a read does not renew it: a commit for each read would be too many
_PATIENCE = 20  # times that a change is tried again while others write the same item


class EngrammaStore(BaseStore):
    """A LangGraph store over a memory. Safe for threads and processes; ``abatch`` works in a thread.

    Args:
        memory: an open ``Memory``. Closing it is yours.
        index: ``{"fields": [...]}`` says which parts of a value items are found by; all of it if not given.
            The embedder is the memory's own, so ``dims`` and ``embed`` are refused.
        ttl: LangGraph's ``TTLConfig``: ``default_ttl`` in minutes, ``refresh_on_read``, ``sweep_interval_minutes``
            (a write sweeps when so much time has passed). What has expired is never shown, ``omit_expired`` or not.
        min_relevance: 0 to 1. With 0, a search with a query ranks everything in its namespaces, as LangGraph's
            stores do; above 0 it leaves out what is less relevant.

    Namespaces match label by label. Notes that other parts of engramma wrote into a tuple space are items
    too, under their key or id. An item that another one supersedes is still an item. Each item is written
    as one commit: what of a batch is refused is refused before the first is written, but a batch that the
    disk stops half-way is half written. Raises InvalidInput for settings that it does not have.
    """

    supports_ttl = True

    def __init__(
        self, memory: Memory, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None, min_relevance: float = 0.0
    ) -> None:
        if isinstance(index, Mapping) and ("embed" in index or "dims" in index):
            raise InvalidInput("index: the memory has its own embedder, so give only 'fields' here: Memory.open(embedder=…)")
        if not isinstance(min_relevance, int | float) or not 0 <= min_relevance <= 1:
            raise InvalidInput(f"min_relevance={min_relevance!r} must be from 0 to 1")
        self.memory = checked_memory(memory)
        self.ttl_config = _checked_ttl(ttl)
        self._fields = checked_index(_settings("index", index, _INDEX).get("fields") or None)
        self._min_relevance = min_relevance
        self._swept = datetime.now(UTC)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads see what was there before, then the last put of each item is written."""
        results: list[Result] = []
        puts: dict[Place, PutOp] = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts[_namespace(op.namespace), str(op.key)] = op
                results.append(None)
            elif isinstance(op, GetOp):
                results.append(self._get(op))
            elif isinstance(op, SearchOp):
                results.append(self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._namespaces(op))
            else:
                raise InvalidInput(f"{op!r} is not an operation of a store")
        self._put({place: self._fields_of(op, *place) for place, op in puts.items()})
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """``batch`` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Delete what has expired; how many items. Their history stays, and ``revert`` brings one back."""
        self._swept = datetime.now(UTC)
        spaces = list(self._spaces(()))
        where = {"expires_at": {"$lte": self._swept}}
        gone = self.memory.list(where=where, space=spaces, include=_SHOWN) if spaces else []
        return sum(self._delete(note) for note in gone if minutes_to_live(note) is not None)

    # -- reads

    def _get(self, op: GetOp) -> Item | None:
        note = self._find(_namespace(op.namespace), str(op.key))
        if note is None or _expired(note):
            return None
        self._refresh([note], op.refresh_ttl)
        found = as_item(note)
        return Item(
            value=found.value, key=found.key, namespace=found.namespace, created_at=found.created_at, updated_at=found.updated_at
        )

    def _find(self, namespace: Namespace, key: str) -> Note | None:
        """The note of an item, expired ones included; a note without a key goes by its id."""
        if not namespace or not is_key(key):
            return None
        found = self.memory.list(where={"key": key}, space=[namespace], include=_SHOWN, limit=1)
        found = found or self.memory.list(where={"id": key, "key": None}, space=[namespace], include=_SHOWN, limit=1)
        return found[0] if found else None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        check_filter(op.filter)
        limit, offset = _count("limit", op.limit), _count("offset", op.offset)
        if not isinstance(op.query, str | None):
            raise InvalidInput(f"query={op.query!r} is neither a text nor None")
        spaces = list(self._spaces(_namespace(op.namespace_prefix)))
        if not spaces or not limit:
            return []
        ranks = op.query and op.query.strip()
        found = self._ranked(op, spaces) if ranks else self._listed(op, spaces, offset + limit, _where(op))
        page = found[offset : offset + limit]
        self._refresh([note for note, _ in page], op.refresh_ttl)
        return [as_item(note, score) for note, score in page]

    def _spaces(self, prefix: Namespace) -> dict[Space, int]:
        """The spaces below a prefix, label by label, with their notes. Spaces that are plain texts are not the store's."""
        try:
            return self.memory.spaces(prefix)
        except InvalidInput:  # no space has such a label
            return {}

    def _listed(self, op: SearchOp, spaces: list[Space], needed: int, where: Where | None) -> list[Scored]:
        """At least as many items as needed, where there are so many, in the order they were made."""
        limit = needed
        while True:
            notes = self.memory.list(where=_live(where), space=spaces, include=_SHOWN, limit=limit)
            found = [note for note in notes if _wanted(note, op)]
            if len(found) >= needed or len(notes) < limit:
                return [(note, None) for note in found]
            limit *= _WIDER

    def _ranked(self, op: SearchOp, spaces: list[Space]) -> list[Scored]:
        """What is relevant and what is linked to it by score, then the rest by score, then what no search ranks.

        Each step looks further and only adds to what the steps before it found, so that the pages of one
        query neither overlap nor leave anything out, however far one turns them.
        """
        needed, where, named = op.offset + op.limit, _where(op), False
        found: dict[Place, Scored] = {}
        for k, least, expand in self._steps():
            hits = self.memory.search(
                op.query or "", k=k, space=spaces, where=where, include=_FOUND, min_relevance=least, expand=expand
            )
            ranked = list(self._unfolded(hits))
            wanted = [(note, score) for note, score in ranked if _wanted(note, op)]
            for note, score in wanted:
                if is_searchable(note) and not _expired(note):
                    found.setdefault(_place(note), (note, score))
            seen = sum(1 + len(hit.why.copies) for hit in hits.direct)
            if len(found) >= needed or (least == self._min_relevance and seen < k):
                break
            if not named and len(wanted) < len(ranked) / 2:
                where, named = self._named(op, spaces, where), True
        if len(found) < needed and self._min_relevance == 0:
            rest = self._listed(op, spaces, needed + len(found), where)
            found |= {_place(note): (note, None) for note, _ in rest if _place(note) not in found}
        return list(found.values())

    def _named(self, op: SearchOp, spaces: list[Space], where: Where | None) -> Where | None:
        """What passes a filter that the database cannot decide, by name, where it is not too many."""
        passing = self._listed(op, spaces, _NAMED + 1, where)
        return {"id": {"$in": [note.id for note, _ in passing]}} if len(passing) <= _NAMED else where

    def _steps(self) -> Iterator[tuple[int, float | None, bool]]:
        """How many notes to look at, how relevant at least, and whether to follow their links."""
        k = _DEPTH
        yield k, self._min_relevance or None, True
        while True:
            yield k, self._min_relevance, False
            k *= _WIDER

    def _unfolded(self, hits: Hits) -> Iterator[tuple[Note, float]]:
        """The notes of hits by score, near copies after the one that stands for them."""
        for hit in sorted(hits, key=lambda hit: -hit.score):
            yield hit.note, hit.score
            for copy in hit.why.copies:
                with suppress(UnknownId):  # removed meanwhile
                    note = self.memory.get(copy)
                    if note.state != "archived":
                        yield note, hit.score

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        limit, offset = _count("limit", op.limit), _count("offset", op.offset)
        depth = checked_count("max_depth", op.max_depth)
        known = {tuple(space): count for space, count in self._spaces(_beginning(op.match_conditions or ())).items()}
        gone = Counter(note.space for note in self._gone(list(known)))
        names = {name for name in known if all(_matches(condition, name) for condition in op.match_conditions or ())}
        names = {name for name in names if known[name] > gone[name] or self._merged(name)}
        return sorted({name[:depth] for name in names})[offset : offset + limit]

    def _gone(self, spaces: Sequence[Space]) -> list[Note]:
        where = {"expires_at": {"$lte": datetime.now(UTC)}}
        return self.memory.list(where=where, space=list(spaces)) if spaces else []

    def _merged(self, space: Space) -> bool:
        """Whether a space in which nothing else is left holds items that were merged."""
        return any(not _expired(note) for note in self.memory.list(where={"state": "merged"}, space=space, include=_SHOWN))

    def _refresh(self, notes: Sequence[Note], wanted: bool) -> None:
        """Give items that were read their whole time again, where more than a hundredth of it has passed."""
        for note in notes:
            ttl = minutes_to_live(note)
            if not wanted or ttl is None or note.expires_at is None:
                continue
            if note.expires_at - datetime.now(UTC) < timedelta(minutes=ttl * _FRESH):
                with suppress(UnknownId, Conflict):  # deleted, or put anew, meanwhile
                    self._renew(note, ttl)

    def _renew(self, note: Note, ttl: float | None) -> None:
        now = self.memory.update(note, expires_at=expiry(ttl))
        if minutes_to_live(now) != ttl:  # put with another time to live meanwhile: that one holds
            self.memory.update(note, expires_at=expiry(minutes_to_live(now)))

    # -- writes

    def _put(self, puts: dict[Place, Fields | None]) -> None:
        """Write items, or delete those without fields. What others put or delete meanwhile is looked at again."""
        while puts:
            new = {place: fields for place, fields in puts.items() if not self._settled(place, fields)}
            notes = self.memory.add_many(fields for fields in new.values() if fields is not None)
            puts = {place: fields for (place, fields), note in zip(new.items(), notes, strict=True) if not _holds(note, fields)}
        self._sweep_when_due()

    def _settled(self, place: Place, fields: Fields | None) -> bool:
        """Delete an item, or revise the one that is there; False where one has to be added."""
        note = self._find(*place)
        if note is not None and (fields is None or _expired(note)):
            self._delete(note)
        elif note is not None and fields is not None:
            return self._revise(note, fields)
        return fields is None

    def _fields_of(self, op: PutOp, namespace: Namespace, key: str) -> Fields | None:
        if op.value is None:
            return None
        if not namespace:
            raise InvalidInput("a namespace needs at least one label, such as ('memories', 'alice')")
        fields = note_fields(op.value, key, op.index if op.index is not None else self._fields, op.ttl)
        return {**fields, "space": checked_space(namespace), "distinct": True}

    def _revise(self, note: Note, fields: Fields) -> bool:
        own = {"content": fields["content"], "expires_at": fields["expires_at"]}
        own |= {"metadata": {**note.metadata, **fields["metadata"]}, "at": datetime.now(UTC)}
        return _insist(lambda: self.memory.update(note, **own))

    def _delete(self, note: Note) -> bool:
        return _insist(lambda: self.memory.delete(note))

    def _sweep_when_due(self) -> None:
        minutes = (self.ttl_config or {}).get("sweep_interval_minutes")
        if minutes and datetime.now(UTC) - self._swept >= timedelta(minutes=minutes):
            self.sweep_ttl()


def _insist(change: Callable[[], Any]) -> bool:
    """Make a change of a note that others change at the same time; False when it was deleted meanwhile."""
    for attempt in range(_PATIENCE):
        try:
            change()
        except UnknownId:
            return False
        except Conflict:
            if attempt + 1 == _PATIENCE:
                raise
            time.sleep(random.random() * 0.01 * attempt)
        else:
            return True
    raise AssertionError("unreachable: the last attempt raises")


def _settings(name: str, given: Any, keys: Sequence[str]) -> Mapping[str, Any]:
    """A dict of settings, {} for None. Raises InvalidInput for other keys than these."""
    if not isinstance(given, Mapping | None):
        raise InvalidInput(f"{name}={given!r} is not a dict: its keys are {', '.join(keys)}")
    for key in given or {}:
        if key not in keys:
            raise InvalidInput(f"{name} has no {key!r}: its keys are {', '.join(keys)}")
    return given or {}


def _checked_ttl(ttl: Any) -> TTLConfig | None:
    for name, value in _settings("ttl", ttl, (*_MINUTES, *_FLAGS)).items():
        minutes = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if name in _MINUTES and not minutes and value is not None:
            raise InvalidInput(f"ttl: {name}={value!r} must be a number of minutes above 0, or None")
        if name in _FLAGS and not isinstance(value, bool):
            raise InvalidInput(f"ttl: {name}={value!r} must be True or False")
    return ttl  # type: ignore[no-any-return]


def _namespace(given: Any) -> Namespace:
    if not isinstance(given, tuple | list):
        raise InvalidInput(f"namespace={given!r} is not a tuple of texts, such as ('memories', 'alice')")
    return tuple(given)


def _count(name: str, given: Any) -> int:
    count = checked_count(name, given)
    if count is None:
        raise InvalidInput(f"{name}=None must be a whole number of at least 0")
    return count


def _holds(note: Note, fields: Fields | None) -> bool:
    """Whether a note holds an item as it was put; else somebody else put it first."""
    return fields is not None and note.key == fields["key"] and note.metadata.get(ITEM) == fields["metadata"][ITEM]


def _place(note: Note) -> Place:
    """Where the item of a note is: two notes of one place are an item that was deleted and put anew meanwhile."""
    return tuple(note.space), note.key or note.id


def _expired(note: Note) -> bool:
    return note.expires_at is not None and note.expires_at <= datetime.now(UTC)


def _wanted(note: Note, op: SearchOp) -> bool:
    if not op.filter:
        return True
    value = value_of(note)
    return all(passes(value.get(name), wanted) for name, wanted in op.filter.items())


def _where(op: SearchOp) -> Where | None:
    """What the database can leave out beforehand; what it lets pass is looked at again."""
    return {"$and": [bounds(op.filter)]} if op.filter else None


def _live(where: Where | None) -> Where:
    """What has not expired and passes another filter."""
    return {"$and": [{"$or": [{"expires_at": None}, {"expires_at": {"$gt": datetime.now(UTC)}}]}, where or {}]}


def _beginning(conditions: Iterable[MatchCondition]) -> Namespace:
    """Labels that all namespaces begin with that match."""
    paths = [tuple(condition.path) for condition in conditions if condition.match_type == "prefix"]
    return max((tuple(takewhile(lambda label: label != "*", path)) for path in paths), key=len, default=())


def _matches(condition: MatchCondition, name: Namespace) -> bool:
    path = tuple(condition.path)
    kind: Literal["prefix", "suffix"] = condition.match_type
    if kind not in ("prefix", "suffix"):
        raise InvalidInput(f"match_type={kind!r} is neither 'prefix' nor 'suffix'")
    part = name[: len(path)] if kind == "prefix" else name[len(name) - len(path) :]
    return len(name) >= len(path) and all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
