"""The memory as tools for a model: save, search, update, forget.

Whose memory it is comes from the run; no argument of a model can name a space. What a model does
wrong comes back as a sentence it can act on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engramma.agents.run import Place, SpaceOf, checked_memory, checked_space_of, current_run, place_of
from engramma.errors import Conflict, InvalidInput, ModelError, StoreError, UnknownId
from engramma.memory import Memory
from engramma.note import Hit, Note
from engramma.words import excerpt

SHOWN_CHARACTERS = 300  # of each note in a result
FORGOTTEN = "Forgotten: "
"""How the result of ``forget_memory`` begins."""
MOST = 20

NAMES = ("save_memory", "search_memory", "update_memory", "forget_memory")
Verb = Callable[..., str]
"""One of the tools' doings: ``(place, **arguments)`` to the sentence that the model reads."""


def _listed(value: Any) -> Any:
    """Small models write a list as one text, "work, travel" or '["work"]', or null for none."""
    if isinstance(value, str):
        parts = (part.strip(" []\"'") for part in re.split(r"[,，、;；]", value))
        return [part for part in parts if part]
    return [] if value is None else value


def _five(value: Any) -> Any:
    return 5 if value is None else value


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore")


class SaveArguments(_Arguments):
    """What ``save_memory`` takes."""

    content: str = Field(description="The fact to remember, as one complete sentence in the user's language.")
    tags: Annotated[list[str], BeforeValidator(_listed)] = Field(default=[], description="A few topic words, such as ['travel'].")
    importance: int | None = Field(default=None, description="1 (trifle) to 5 (must never be forgotten). Leave out if unsure.")


class SearchArguments(_Arguments):
    """What ``search_memory`` takes."""

    query: str = Field(description="What you want to know, as a question or a few words.")
    k: Annotated[int, BeforeValidator(_five)] = Field(default=5, description=f"How many notes, 1 to {MOST}; linked ones follow.")


class UpdateArguments(_Arguments):
    """What ``update_memory`` takes."""

    note_id: str = Field(description="The id of the note, as search_memory showed it in {braces}.")
    content: str = Field(description="The corrected fact, as one complete sentence.")


class ForgetArguments(_Arguments):
    """What ``forget_memory`` takes."""

    note_id: str = Field(description="The id of the note, as search_memory showed it in {braces}.")


def memory_tools(
    memory: Memory, *, space: SpaceOf | None = None, require_user: bool = False, only: Sequence[str] | None = None
) -> list[BaseTool]:
    """The tools for a model, in the space and session of the run they are called in.

    ``only`` lists those wanted of save_memory, search_memory, update_memory, forget_memory; ``space`` and
    ``require_user`` say what becomes of a run that names no user (see ``place_of``). Raises InvalidInput for
    another name, or what is no open memory.
    """
    use = _Use(checked_memory(memory), checked_space_of(space), require_user)
    return [use.tool(name) for name in (NAMES if only is None else _wanted(only))]


def _wanted(only: Any) -> list[str]:
    """The names of tools, each once. Raises InvalidInput."""
    if isinstance(only, str) or not isinstance(only, Iterable):
        known = only in NAMES if isinstance(only, str) else False
        raise InvalidInput(f"only={only!r} is not a list of names: give {[only] if known else list(NAMES)!r}")
    names = list(only)
    if unknown := [name for name in names if name not in NAMES]:
        raise InvalidInput(f"only={unknown[0]!r} is no memory tool: they are {', '.join(NAMES)}")
    return list(dict.fromkeys(names))


class _Use:
    """The verbs behind the tools."""

    def __init__(self, memory: Memory, space: SpaceOf | None, require_user: bool) -> None:
        self._memory, self._space, self._require_user = memory, space, require_user

    def tool(self, name: str) -> BaseTool:
        """One of the tools by its name."""
        verbs: dict[str, tuple[Verb, type[BaseModel], str]] = {
            "save_memory": (
                self.save, SaveArguments,
                "Remember a fact about the user or the work for later conversations. Use it when the user asks you to remember "
                "something, or tells something that will matter later. One fact a call.",
            ),
            "search_memory": (
                self.search, SearchArguments,
                "Look up what is known from earlier conversations. Use it when the user refers to something that is not in this "
                "conversation. Returns notes, each with its id in {braces}.",
            ),
            "update_memory": (
                self.update, UpdateArguments, "Correct a note that is wrong or out of date. Search for its id first.",
            ),
            "forget_memory": (
                self.forget, ForgetArguments,
                "Forget a note, when the user asks for it or it is wrong. Search for its id first.",
            ),
        }  # fmt: skip
        verb, arguments, description = verbs[name]
        return StructuredTool.from_function(
            self._told(verb), name=name, description=description, args_schema=arguments, handle_tool_error=True,
            handle_validation_error=_explain,
        )  # fmt: skip

    def _place(self) -> Place:
        return place_of(current_run(), self._memory, self._space, self._require_user)

    def _told(self, verb: Verb) -> Callable[..., str]:
        """A verb whose mistakes come back as a sentence. Those of the run and damage of the store are not
        the model's, and are raised."""

        def called(**arguments: Any) -> str:
            place = self._place()
            try:
                return verb(place, **arguments)
            except StoreError:
                raise
            except UnknownId as error:
                raise ToolException(f"{error}. Use search_memory: it shows the id of each note in braces.") from error
            except (InvalidInput, Conflict, ModelError, ConnectionError, TimeoutError) as error:
                raise ToolException(f"Not done: {error}") from error

        return called

    def save(self, place: Place, content: str, tags: list[str] | None = None, importance: int | None = None) -> str:
        level = None if importance is None else min(5, max(1, importance))
        kept = [tag for tag in tags or () if tag.strip()]
        note = self._memory.add(content, tags=kept, importance=level, space=place.space, session=place.session, speaker="user")
        return f"Saved: {_short(note.content)} {{{note.id}}}"

    def search(self, place: Place, query: str, k: int = 5) -> str:
        most = min(MOST, max(1, k))
        found = self._memory.search(query, k=most, space=place.space)
        linked = [hit for hit in found if not hit.why.direct]
        hits = [*found.direct, *linked[: min(most, MOST - len(found.direct))]]
        return "\n".join(_line(hit) for hit in hits) or f"Nothing in memory matches {excerpt(query)!r}."

    def update(self, place: Place, note_id: str, content: str) -> str:
        note = self._memory.update(self._own(place, note_id), content=content)
        return f"Updated: {_short(note.content)} {{{note.id}}}"

    def forget(self, place: Place, note_id: str) -> str:
        note = self._own(place, note_id)
        self._memory.delete(note)
        return f"{FORGOTTEN}{_short(note.content)}"

    def _own(self, place: Place, note_id: str) -> Note:
        """A note of the run's own space: what lies in another one does not exist."""
        note = self._memory.get(note_id.strip().strip("{}[]<>\"' "))
        if note.space != place.space or note.state == "archived":
            raise UnknownId(f"there is no note {note_id!r}")
        return note


def _explain(error: Any) -> str:
    parts = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
    return f"Not done, the arguments do not fit: {'; '.join(parts)}."


def _line(hit: Hit) -> str:
    note = hit.note
    who = f" {note.speaker}:" if note.speaker else ""
    more = f" (held until {note.valid_until:%Y-%m-%d})" if note.valid_until else ""
    more += "" if hit.why.direct else f" ({hit.why.path[-1].kind} one above)"
    return f"- {note.at:%Y-%m-%d}{who} {_short(note.content)}{more} {{{note.id}}}"


def _short(text: str) -> str:
    return excerpt(text, SHOWN_CHARACTERS)
