"""``EngrammaChatMessageHistory``: the messages of a thread, kept as notes and given back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import Any
from uuid import UUID

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from engramma.agents.run import checked_memory, current_run, place_of
from engramma.context import without_recalled
from engramma.draft import checked, checked_count, checked_space
from engramma.errors import InvalidInput, UnknownId
from engramma.memory import Memory
from engramma.note import Note, Space
from engramma.words import excerpt

CATEGORY = "message"
"""The category of a note that is a message; its metadata holds the message itself under the same name."""

SPEAKERS = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
"""Who says a message of a type that names nobody."""

_SHOWN = ("merged", "superseded")  # what memory has folded or replaced was said all the same
_RESULTS = ("tool", "function")


class EngrammaChatMessageHistory(BaseChatMessageHistory):
    """The messages of one thread, in the order they were added. Other processes see the same ones.

    Every message is a note of the session: its text, who said it, and the whole message in its metadata.
    So search finds the conversation, and ``messages`` gives back what was added: ids, tool calls and
    content blocks included, as far as JSON holds them. ``last`` bounds how many of the newest are
    loaded; results of tools whose call lies before them are left out, as no model would take them.

    Without a ``space`` it is the one of the run that reads or writes, outside of a run the memory's
    own; with ``require_user`` that run has to name a user. A ``space`` that is given comes before the run.
    Raises InvalidInput for a thread or a space that names nothing.
    """

    def __init__(
        self, memory: Memory, session_id: str | int | UUID, *, space: Space | None = None, last: int | None = None,
        require_user: bool = False,
    ) -> None:  # fmt: skip
        self.memory, self.session_id = checked_memory(memory), checked_session(session_id)
        self._given = None if space is None else _given_space(space)
        self.require_user = require_user
        self.last = checked_count("last", last, least=1)

    def __repr__(self) -> str:
        return f"EngrammaChatMessageHistory({self.memory!r}, {self.session_id!r}, space={self._given!r}, last={self.last!r})"

    @property
    def space(self) -> Space:
        """Where the messages lie now: LangChain makes a history before the run that uses it is known."""
        if self._given is not None:
            return self._given
        return place_of(current_run(), self.memory, require_user=self.require_user).space

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first, equal to those that were added."""
        notes = self._notes(self.last)
        found = messages_from_dict([dict(note.metadata[CATEGORY]) for note in reversed(notes)])
        cut = self.last is not None and len(found) == self.last
        return list(dropwhile(lambda message: message.type in _RESULTS, found)) if cut else found

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Keep messages, all of them or, where one cannot be kept, none.

        Raises InvalidInput for what is no message, or holds what neither UTF-8 nor JSON can.
        """
        self.memory.add_many([self._fields(message) for message in _checked(messages)])

    def clear(self) -> None:
        """Archive the messages, newest first: each deletion is a commit that ``Memory.revert`` undoes."""
        for note in self._notes():
            with suppress(UnknownId):  # another process clears the same thread
                self.memory.delete(note)

    def _notes(self, limit: int | None = None) -> list[Note]:
        """The notes of this thread that are messages, newest first."""
        where = {"session": self.session_id, "category": CATEGORY, f"metadata.{CATEGORY}.type": {"$ne": None}}
        return self.memory.list(where=where, space=self.space, include=_SHOWN, limit=limit, newest_first=True)

    def _fields(self, message: BaseMessage) -> dict[str, Any]:
        return {
            "content": text_of(message), "speaker": speaker_of(message), "session": self.session_id, "space": self.space,
            "category": CATEGORY, "metadata": {CATEGORY: message_to_dict(message)}, "distinct": True,
        }  # fmt: skip


def _given_space(space: Any) -> Space:
    if callable(space):
        raise InvalidInput(
            f"space={space!r} is a function: give its result, a text or a tuple of texts, or no space for the run's"
        )
    return checked_space(space)


def checked_session(session: Any) -> str:
    """The name of a session: a text; numbers and UUIDs, which ids of threads often are, as text."""
    if isinstance(session, bool) or not isinstance(session, str | int | UUID) or not str(session).strip():
        raise InvalidInput(f"session_id={session!r} names no thread: give a text such as 'thread-1'")
    return str(checked("session_id", str(session)))


def _checked(messages: Any) -> Sequence[BaseMessage]:
    if isinstance(messages, str | BaseMessage) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages={messages!r} is not a list of messages: give [HumanMessage('hello')], say")
    for number, message in enumerate(messages):
        if not isinstance(message, BaseMessage) or message.type == "remove":
            raise InvalidInput(f"message {number} is {message!r}: a history keeps messages, such as HumanMessage('hello')")
    return messages


def speaker_of(message: BaseMessage) -> str:
    """Who says a message: its name, else what its type or role says."""
    name = (message.name or "").strip()
    return name or SPEAKERS.get(message.type.removesuffix("MessageChunk").lower()) or str(getattr(message, "role", message.type))


def text_of(message: BaseMessage) -> str:
    """What a note says of a message: its text; where it has none, the tools it calls or the kind of what it shows."""
    text = str(message.text)
    if without_recalled(text).strip():
        return text
    if text.strip():
        return "[recalled memories]"
    return "; ".join(_calls(message)) or " ".join(_kinds(message)) or "[empty message]"


def _calls(message: BaseMessage) -> list[str]:
    """The tool calls of a message, as one would write them."""
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    return [f"{call['name'] or 'unnamed'}({_arguments(call['args'])})" for call in calls]


def _arguments(given: Any) -> str:
    if isinstance(given, dict):
        return ", ".join(f"{name}={excerpt(repr(value), 120)}" for name, value in given.items())
    return excerpt(given or "", 120)


def _kinds(message: BaseMessage) -> list[str]:
    """The kinds of content blocks in a message: ``image_url`` is an image."""
    blocks = [block for block in message.content if isinstance(block, dict)]
    kinds = [str(block.get("type", "")).removeprefix("input_").removesuffix("_url") for block in blocks]
    return [f"[{kind}]" for kind in kinds if kind not in ("", "text")]
