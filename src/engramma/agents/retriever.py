"""``EngrammaRetriever``: a memory as a LangChain retriever, for chains that answer from what they look up."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, run_in_executor
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from engramma.agents.run import Place, SpaceOf, checked_memory, checked_space_of, current_run, place_of
from engramma.dates import bound
from engramma.errors import InvalidInput
from engramma.filters import Where, parse
from engramma.memory import Memory
from engramma.note import Hit
from engramma.recall import INCLUDABLE

OPTIONS = ("k", "min_relevance", "expand", "where", "since", "until", "include", "rerank")
"""What ``Memory.search`` is given; each can also be given to one call: ``retriever.invoke(query, k=3)``."""


class EngrammaRetriever(BaseRetriever):
    """The notes that bear on a query, as documents, the most relevant first.

    The fields are the arguments of ``Memory.search``. ``k`` is the number of notes that the query
    itself finds; with ``expand`` notes linked to them follow. A query without words finds nothing:
    [] comes back, as from any other retriever.

    Whose memory is searched comes from the run: ``context.user_id``, else ``configurable["user_id"]``,
    else ``space`` (a space, or a function of the run that names one), else the memory's own. With
    ``require_user`` a run that names no user is refused.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: Memory
    k: int = Field(default=5, ge=1, strict=True)
    min_relevance: float | None = Field(default=None, ge=0, le=1)
    expand: bool = True
    where: Where | None = None
    since: datetime | date | str | None = None
    until: datetime | date | str | None = None
    include: tuple[str, ...] = ()
    rerank: Any = None
    space: SpaceOf | None = None
    require_user: bool = False

    def __init__(self, memory: Memory, **fields: Any) -> None:
        """The memory, by position or by name, and any of the fields by name."""
        super().__init__(**fields | {"memory": memory})

    @field_validator("memory", mode="plain")
    @classmethod
    def _check_memory(cls, value: Any) -> Memory:
        return checked_memory(value)

    @field_validator("where", mode="plain")
    @classmethod
    def _check_where(cls, value: Any) -> Any:
        parse(value)
        return value

    @field_validator("since", "until", mode="plain")
    @classmethod
    def _check_bound(cls, value: Any, info: ValidationInfo) -> Any:
        bound(str(info.field_name), value)
        return value

    @field_validator("include", mode="plain")
    @classmethod
    def _check_include(cls, value: Any) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else tuple(value or ())
        if unknown := set(names) - set(INCLUDABLE):
            raise InvalidInput(f"include holds {sorted(unknown)[0]!r}: it takes {', '.join(INCLUDABLE)}")
        return names

    @field_validator("space", mode="plain")
    @classmethod
    def _check_space(cls, value: Any) -> Any:
        return checked_space_of(value)

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """The documents for a query, from the memory of the run that the config names."""
        return super().invoke(input, config, place=self._place(config), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """``invoke``, awaited: the search runs in a thread."""
        return await super().ainvoke(input, config, place=self._place(config), **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, place: Place | None = None, **options: Any
    ) -> list[Document]:
        if unknown := set(options) - set(OPTIONS):
            raise InvalidInput(f"unknown option {sorted(unknown)[0]!r}: a call of a retriever takes {', '.join(OPTIONS)}")
        if isinstance(query, str) and not query.strip():
            return []
        wanted = {name: getattr(self, name) for name in OPTIONS} | options
        hits = self.memory.search(query, space=(place or self._place()).space, **wanted)
        return [as_document(hit) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        search = partial(self._get_relevant_documents, run_manager=run_manager.get_sync(), **options)
        return await run_in_executor(None, search, query)

    def _place(self, config: RunnableConfig | None = None) -> Place:
        """Where a call searches. A config of its own adds to what the run around it says, and hides none of it."""
        around, run = current_run(), current_run(ensure_config(config))
        given = {name: value for name, value in run.configurable.items() if value is not None}
        run = replace(run, configurable={**run.configurable, **around.configurable, **given})
        return place_of(run, self.memory, self.space, self.require_user)


def as_document(hit: Hit) -> Document:
    """A hit as a document: the note's content, and in its metadata the source and the evidence, as JSON values."""
    note = hit.note
    space = list(note.space) if isinstance(note.space, tuple) else note.space
    metadata = {
        "id": note.id, "score": hit.score, "why": str(hit.why), "direct": hit.why.direct, "at": note.at.isoformat(),
        "speaker": note.speaker, "session": note.session, "space": space, "category": note.category,
        "tags": list(note.tags), "keywords": list(note.keywords), "context": note.context, "metadata": dict(note.metadata),
    }  # fmt: skip
    return Document(id=note.id, page_content=note.content, metadata=metadata)
