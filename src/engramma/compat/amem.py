"""The classes of the original A-MEM over engramma: ``AgenticMemorySystem``, ``MemoryNote``, ``AgenticMemory``.

A script written for the original runs with one import line changed. What it adds is on disk, what it
deletes leaves no link behind, and what evolution changes is found at once. ``docs/amem.md`` says
what differs.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn, Self

from engramma.analysts.base import Analyst, Page
from engramma.analysts.rules import describe
from engramma.compat.notes import (
    GIVEN_CONTEXT,
    NO_CONTEXT,
    MemoryNote,
    check_names,
    in_our_words,
    line,
    memory_note,
    name_of,
    result,
    spoken,
    with_context,
)
from engramma.compat.opening import backend_and_model, chat_model, embedder_for, place
from engramma.draft import checked, make_draft
from engramma.errors import InvalidInput, ReplyInvalid, UnknownId
from engramma.memory import Memory
from engramma.models import LLM
from engramma.note import Draft, Note, NoteId, Reading, Space, unique
from engramma.opening import analyst_for
from engramma.plan import IN_SIGHT
from engramma.recall import Hits
from engramma.write import MODEL_FAILURES, new_id

__all__ = ["AgenticMemory", "AgenticMemorySystem", "MemoryNote"]

log = logging.getLogger("engramma")

SPACE = "amem"


class _Gone:
    """An attribute of the original that engramma has no counterpart of: touching it says what to use."""

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, system: object | None, owner: type) -> Self:
        if system is not None:
            self._refuse()
        return self

    def __set__(self, system: object, value: object) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise AttributeError(f"AgenticMemorySystem has no {self._name!r} over engramma: {self._instead}")


class AgenticMemorySystem:
    """The original's memory system: the same calls and return shapes, kept by engramma.

    ``model_name`` names a sentence-transformers model, or one of engramma's embedders ("hash:128", an
    object). ``llm_backend`` is "openai", "ollama", "sglang", "gguf", the URL of an OpenAI-compatible
    server, None for what engramma's settings name, or a model object. A model that cannot be reached
    stops nothing: notes are kept, described by the rules, and read later. ``persist_directory`` None
    is the memory that ``Memory.open()`` opens, ":memory:" one that lives as long as the object.
    ``memory`` is the ``engramma.Memory`` below. Raises InvalidInput for a backend or a directory that
    cannot be used, EmbedderMismatch for a file whose embedder is not to be had here.
    """

    retriever = _Gone("search() and find_related_memories() ask the memory; there is no index to load or to reset")
    llm_controller = _Gone("analyze_content() asks the model; give AgenticMemorySystem(llm_backend=…) another one")
    process_memory = _Gone("add_note() links and evolves in one step; analyze_content() reads without storing")

    def __init__(
        self, model_name: Any = "all-MiniLM-L6-v2", llm_backend: Any = "openai", llm_model: Any = "gpt-4o-mini",
        evo_threshold: int = 100, api_key: str | None = None, persist_directory: str | os.PathLike[str] | None = None, *,
        api_base: str | None = None, sglang_host: str = "http://localhost", sglang_port: int = 30000, space: Space = SPACE,
    ) -> None:  # fmt: skip
        self.model_name, self.llm_backend, self.llm_model = model_name, llm_backend, llm_model
        self.evo_threshold = evo_threshold
        server = api_base or (f"{sglang_host.rstrip('/')}:{sglang_port}/v1" if llm_backend == "sglang" else None)
        self._analyst = _Filling(analyst_for(chat_model(llm_backend, llm_model, api_key, server)))
        path = place(persist_directory)
        embedder = embedder_for(path, model_name, own=persist_directory is not None)
        self.memory = Memory.open(path, embedder=embedder, analyst=self._analyst, space=space)
        self._close = weakref.finalize(self, self.memory.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AgenticMemorySystem({self.memory.path!r}, space={self.memory.space!r})"

    def close(self) -> None:
        """Let go of the file. Closing twice is fine; what is left open is closed when the program ends."""
        self._close()

    @property
    def memories(self) -> Memories:
        """Every note by its id. What is set or deleted here is added, updated or deleted in the memory."""
        return Memories(self)

    # -- write

    def analyze_content(self, content: str) -> dict[str, Any]:
        """What the model in force, or the rules, make of a text: keywords, context and tags. Nothing is stored."""
        draft = make_draft(content, self.memory.space)
        reading = self._read(draft)
        return {"keywords": list(reading.keywords), "context": reading.context or NO_CONTEXT, "tags": list(reading.tags)}

    def _read(self, draft: Draft) -> Reading:
        try:
            reading = self._analyst.read([Page(NoteId(new_id()), draft)])[0]
            if isinstance(reading, ReplyInvalid):
                raise reading
        except MODEL_FAILURES as error:
            log.warning("read by the rules: %s", error)
            return describe(draft)
        return reading

    def add_note(self, content: str, time: str | datetime | None = None, **fields: Any) -> str:
        """Remember a text; the id of the note that holds it.

        ``time`` (or ``timestamp``) is YYYYMMDDHHMM on the local clock, a datetime or another way to write
        one. ``keywords``, ``tags``, ``context`` and ``category`` stand as given; what is left out, the
        analyst fills in. ``links`` are ids; those that no note has are dropped with a warning. A note
        that has the given ``id`` already is updated. Raises EmptyText, InvalidInput, StoreError.
        """
        fields = {"content": content, **fields, **({} if time is None else {"timestamp": time})}
        check_names(fields)
        given, name = spoken(fields), checked("id", fields.get("id"))
        if name is not None and self._find(name) is not None:
            self.update(name, **given, links=fields.get("links"))
            return str(name)
        others, wanted = self._others(fields.get("links")), in_our_words(given)
        context = checked("context", wanted.pop("context", None))
        note = self.memory.add(**wanted, metadata={GIVEN_CONTEXT: context} if context else None, key=name)
        self._complete(note, wanted, context)
        self._link(note.id, others)
        return name_of(note)

    def _complete(self, note: Note, wanted: Mapping[str, Any], context: str | None) -> None:
        """Give a note that says the text already what the author says about it this time."""
        after: dict[str, Any] = {}
        for name in ("keywords", "tags"):
            if len(both := unique(getattr(note, name), wanted.get(name, ()))) > len(getattr(note, name)):
                after[name] = both
        if context is not None and note.metadata.get(GIVEN_CONTEXT) != context:
            after |= with_context(note, context)
        if "category" in wanted and not note.given.get("category"):
            after["category"] = wanted["category"]
        if after:
            self.memory.update(note.id, **after)

    def update(self, memory_id: str, **fields: Any) -> bool:
        """Change a note: content, keywords, tags, context, category, timestamp, links. False for an unknown id.

        A new content is read anew. ``links`` becomes the whole list. Raises InvalidInput for an unknown field.
        """
        note = self._find(memory_id)
        check_names(fields)
        if note is None:
            return False
        current = vars(self._shown(note))
        changed = {field: value for field, value in fields.items() if value != current[field]}
        if changed.get("id", memory_id) != memory_id:
            raise InvalidInput(f"id={changed['id']!r}: the id of note {memory_id!r} cannot be changed; add_note(id=…) sets one")
        others, wanted = self._others(changed.get("links")), in_our_words(changed)
        if "context" in wanted:
            wanted |= with_context(note, wanted["context"] or NO_CONTEXT)
        if wanted:
            self.memory.update(note.id, **wanted)
        self._link(note.id, others, only=True)
        return True

    def delete(self, memory_id: str) -> bool:
        """Delete a note and its links; ``memory.revert`` undoes it. False for an unknown id."""
        note = self._find(memory_id)
        if note is None:
            return False
        try:
            self.memory.delete(note.id)
        except UnknownId:  # somebody else has deleted it just now
            return False
        return True

    def consolidate_memories(self) -> None:
        """Read the notes that wait for the model. There is no index to build anew: none is ever stale."""
        self.memory.catch_up()

    def _others(self, links: Any) -> set[NoteId] | None:
        """The notes that a list of ids names, None for no list. What names none is left out, with a warning."""
        if links is None:
            return None
        if isinstance(links, str | bytes) or not isinstance(links, Iterable):
            raise InvalidInput(f"links={links!r} is not a list of ids")
        found = [(name, self._find(name)) for name in links]
        if unknown := [repr(name) for name, other in found if other is None]:
            log.warning("not linked, as there are no such notes: %s", ", ".join(unknown))
        return {other.id for _, other in found if other is not None}

    def _link(self, note: NoteId, others: set[NoteId] | None, *, only: bool = False) -> None:
        """Link a note to others, and where ``only`` drop its links to any more."""
        if others is None:
            return
        linked = {other.id for other in self._linked(note)}
        for other in sorted(others - linked - {note}):
            self.memory.link(note, other, reason="linked by hand")
        for other in sorted(linked - others) if only else ():
            self.memory.unlink(note, other)

    # -- read

    def read(self, memory_id: str) -> MemoryNote | None:
        """A note by its id, None for one that is not there."""
        note = self._find(memory_id)
        return None if note is None else self._shown(note)

    def search(self, query: str, k: int = 5, *, min_relevance: float = 0.0) -> list[dict[str, Any]]:
        """The k notes nearest a query: dicts with id, content, context, keywords, tags, score and more.

        ``score`` is a relevance from 0 to 1, the higher the better. ``min_relevance`` above 0 (engramma's
        own is 0.5) lets the memory answer with fewer, or with none.
        """
        return [result(hit) for hit in self._hits(query, k, min_relevance, expand=False)]

    def search_agentic(self, query: str, k: int = 5, *, min_relevance: float = 0.0) -> list[dict[str, Any]]:
        """The k notes nearest a query, then those linked to them (``is_neighbor``): at most k more, or four.

        Dicts with id, content, context, keywords, tags, timestamp, category, is_neighbor and score.
        """
        return [result(hit) for hit in self._hits(query, k, min_relevance)]

    def find_related_memories(self, query: str, k: int = 5, *, min_relevance: float = 0.0) -> tuple[str, list[str]]:
        """The k notes nearest a query as text, one line a note, and their ids in the same order."""
        notes = [hit.note for hit in self._hits(query, k, min_relevance, expand=False)]
        return "".join(line(note, with_id=True) for note in notes), [name_of(note) for note in notes]

    def find_related_memories_raw(self, query: str, k: int = 5, *, min_relevance: float = 0.0) -> str:
        """The k notes nearest a query and the notes linked to them as text, one line a note."""
        return "".join(line(hit.note) for hit in self._hits(query, k, min_relevance))

    def _hits(self, query: str, k: int, min_relevance: float, expand: bool = True) -> Hits:
        return self.memory.search(query, k=k, expand=expand, min_relevance=min_relevance)

    def _find(self, memory_id: Any) -> Note | None:
        """The note in sight that an id means: engramma's, or one that ``add_note`` was given."""
        try:
            note: Note | None = self.memory.get(memory_id)
        except UnknownId:
            note = self._named(memory_id)
        for _ in range(100):  # a chain of merges is short
            if note is None or note.state != "merged":
                break
            holder = next((link.target for link in note.links if link.kind == "same_as" and link.source == note.id), None)
            note = None if holder is None else self.memory.get(holder)
        return note if note is not None and note.state in IN_SIGHT and note.space == self.memory.space else None

    def _named(self, name: Any) -> Note | None:
        if not isinstance(name, str):
            return None
        try:
            found = self.memory.list(where={"key": name}, include={"merged"}, limit=1)
        except InvalidInput:  # what no key can be
            return None
        return found[0] if found else None

    def _linked(self, note: Note | NoteId) -> list[Note]:
        return [other for other in self.memory.neighbours(note) if other.state in IN_SIGHT]

    def _shown(self, note: Note) -> MemoryNote:
        return memory_note(note, self._linked(note), self.memory.history(note)[1:])


class Memories(MutableMapping[str, MemoryNote]):
    """The notes of a system by id, read from the memory each time: what others add is there at once."""

    def __init__(self, system: AgenticMemorySystem) -> None:
        self._system = system

    def __getitem__(self, memory_id: str) -> MemoryNote:
        note = self._system.read(memory_id)
        if note is None:
            raise KeyError(memory_id)
        return note

    def __setitem__(self, memory_id: str, note: MemoryNote) -> None:
        if not isinstance(note, MemoryNote):
            raise InvalidInput(f"memories[{memory_id!r}] = {note!r}: give a MemoryNote")
        if not self._system.update(memory_id, **(vars(note) | {"id": memory_id})):
            self._system.add_note(**(vars(note) | {"id": memory_id}))

    def __delitem__(self, memory_id: str) -> None:
        if not self._system.delete(memory_id):
            raise KeyError(memory_id)

    def __iter__(self) -> Iterator[str]:
        return iter([name_of(note) for note in self._system.memory.list()])

    def __len__(self) -> int:
        memory = self._system.memory
        return memory.spaces().get(memory.space, 0)

    def clear(self) -> None:
        """Delete every note. Each deletion can be reverted."""
        for memory_id in self:
            del self[memory_id]

    def __repr__(self) -> str:
        return f"<{len(self)} notes of {self._system!r}>"


class AgenticMemory:
    """The short form: ``AgenticMemory(llm_backend="gpt-4o-mini", encoder="all-MiniLM-L6-v2")``.

    ``llm_backend`` is a model of OpenAI's, ``provider:model`` ("ollama:qwen2.5:7b"), a URL, None or a
    model object; ``encoder`` is what ``model_name`` is to AgenticMemorySystem, which ``system`` is.
    """

    def __init__(
        self, llm_backend: Any = "gpt-4o-mini", encoder: Any = "all-MiniLM-L6-v2", *, api_key: str | None = None,
        persist_directory: str | os.PathLike[str] | None = None, space: Space = SPACE,
    ) -> None:  # fmt: skip
        backend, model = backend_and_model(llm_backend)
        self.system = AgenticMemorySystem(
            encoder, backend, model, api_key=api_key, persist_directory=persist_directory, space=space
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, text: str, timestamp: str | datetime | None = None) -> str:
        """Remember a text; the id of the note that holds it."""
        return self.system.add_note(text, time=timestamp)

    def retrieve(self, query: str, k: int = 10, *, min_relevance: float = 0.0) -> str:
        """The k notes nearest a query and the notes linked to them, as text for a prompt."""
        return self.system.find_related_memories_raw(query, k, min_relevance=min_relevance)

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
        self.system.close()


# -- what reads the notes


class _Filling:
    """An analyst that only fills in what the author left open, as the original does."""

    def __init__(self, analyst: Analyst) -> None:
        self._analyst = analyst
        self.name, self.batch, self.slow = analyst.name, analyst.batch, analyst.slow
        self.llm: LLM | None = getattr(analyst, "llm", None)

    def read(self, pages: Sequence[Page]) -> list[Reading | ReplyInvalid]:
        """The analyst's readings without what the authors said themselves."""
        readings = self._analyst.read(pages)
        return [_without_given(page.draft, reading) for page, reading in zip(pages, readings, strict=True)]


def _without_given(draft: Draft, reading: Reading | ReplyInvalid) -> Reading | ReplyInvalid:
    if isinstance(reading, ReplyInvalid):
        return reading
    context = draft.metadata.get(GIVEN_CONTEXT)
    return replace(
        reading,
        keywords=() if draft.keywords else reading.keywords,
        tags=() if draft.tags else reading.tags,
        context=context if isinstance(context, str) else reading.context,
    )
