"""Messages to turns, hits to plain data: what goes into a graph's state and comes out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import groupby, takewhile
from typing import Any
from zlib import crc32

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from engramma.agents.policies import RetrievePolicy, Turn, WritePolicy
from engramma.agents.run import Place
from engramma.agents.tools import FORGOTTEN
from engramma.analysts.chat import RECALLED
from engramma.context import without_recalled
from engramma.errors import InvalidInput
from engramma.memory import Memory
from engramma.models.base import without_thoughts
from engramma.note import ASSISTANT, USER, Hit, Link, Note, NoteId, SaidDate, Why
from engramma.recall import Hits
from engramma.words import sentences, terms

SUMMARY = "summarization"
"""What LangChain, and our strategies, mark a summary message with: ``additional_kwargs["lc_source"]``."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The newest exchange of a thread: texts, and the ids of the messages they come from."""

    user: str = ""
    assistant: str = ""
    user_id: str | None = None
    assistant_id: str | None = None
    said: tuple[tuple[str, str], ...] = ()
    forgotten: tuple[str, ...] = ()
    """What the model forgot in it: that is not written again."""


def is_summary(message: BaseMessage) -> bool:
    """Whether a message is a summary, engramma's or LangChain's, that stands for older messages and was said by nobody."""
    return message.additional_kwargs.get("lc_source") == SUMMARY


def is_answer(message: BaseMessage) -> bool:
    """Whether a message is an assistant's answer and not a call of tools."""
    return isinstance(message, AIMessage) and not message.tool_calls and not message.invalid_tool_calls


def present_turn(messages: Sequence[BaseMessage], closed: Collection[str] = ()) -> list[BaseMessage]:
    """The messages of the newest turn that are no answer yet: all since the last answer.

    ``closed`` are ids of messages that a run ended with, where those are none of a model (the result of
    a tool that answers directly, structured output).
    """
    since = takewhile(lambda message: not is_answer(message) and message.id not in closed, reversed(messages))
    return [message for message in since if not isinstance(message, SystemMessage) and not is_summary(message)][::-1]


def newest_exchange(messages: Sequence[BaseMessage], closed: Collection[str] = ()) -> Exchange:
    """What the user said since the last answer, and the answer to it if it is there already."""
    answer = messages[-1] if messages and is_answer(messages[-1]) else None
    turn = present_turn(messages[:-1] if answer else messages, closed)
    said = [one for one in turn if isinstance(one, HumanMessage)]
    parts = list(dict.fromkeys((one.name or USER, text) for one in said if (text := own_text(one))))  # asked again: once
    user = "\n".join(text for _, text in parts)
    last = said[-1].id if said else None
    gone = [one.text.removeprefix(FORGOTTEN) for one in turn if isinstance(one, ToolMessage) and one.text.startswith(FORGOTTEN)]
    reply = own_text(answer) if answer else ""
    return Exchange(user, reply, last, answer.id if answer else None, _by_speaker(parts), tuple(gone))


def _by_speaker(parts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What was said, as one text for each run of messages by one speaker."""
    runs = [(name, [text for _, text in run]) for name, run in groupby(parts, key=lambda part: part[0])]
    return tuple((name, "\n".join(texts)) for name, texts in runs)


def with_result(turn: Exchange, messages: Sequence[BaseMessage], structured: Any = None) -> Exchange:
    """A turn that ended with structured output, or with the results of tools: that is its answer."""
    results = [*takewhile(lambda message: isinstance(message, ToolMessage), reversed(messages))][::-1]
    if turn.assistant or not results:
        return turn
    text = "\n".join(map(own_text, results)) if structured is None else own_words(str(structured))
    return replace(turn, assistant=text.strip(), assistant_id=results[-1].id)


def own_text(message: BaseMessage) -> str:
    """What was said in words, without what we put in a prompt: blocks of memories and what we say before them."""
    said = str(message.text)
    return own_words(without_thoughts(said) if isinstance(message, AIMessage) else said)


def own_words(text: str) -> str:
    """A text without the memories, and the heading over them, that a prompt held."""
    return without_recalled(text).replace(RECALLED, "").strip()


def recalled(query: str, messages: Sequence[BaseMessage], memory: Memory, place: Place, retrieve: RetrievePolicy) -> Hits:
    """What to remember at this point of a thread, without what the user has just said.

    What was found stays even where it is an earlier message of the thread, as a short-term strategy may
    have cut that off; notes that nothing was found in (the last ones) are left out then, and summaries of
    this very thread always.
    """
    found: Any = retrieve(query, memory, place)
    hits = list(found) if isinstance(found, Iterable) else [found]
    if any(not isinstance(hit, Hit) for hit in hits):
        raise InvalidInput(f"retrieve={retrieve!r} gave {found!r:.200}, not hits: return what memory.search() returns")
    thread = {own_text(message) for message in messages}
    now = {query, *query.splitlines()}
    told = [hit for hit in hits if hit.note.content.strip() not in (now if hit.score else thread)]
    return Hits(hit for hit in told if hit.note.category != "summary" or hit.note.session != place.session)


def persisted(turn: Exchange, memory: Memory, place: Place, write: WritePolicy) -> list[dict[str, Any]]:
    """Write what a policy wants kept of a turn; the notes that hold it. Twice the same turn is written once."""
    user, assistant = (_without(text, turn.forgotten) for text in (turn.user, turn.assistant))
    if not (user or assistant) or (turn.user and not user):  # or all that the user said is to be forgotten
        return []
    said = tuple((name, kept) for name, text in turn.said if (kept := _without(text, turn.forgotten)))
    memos = write(Turn(user, assistant, memory, place, said))
    if isinstance(memos, str | Mapping) or not isinstance(memos, Iterable):
        raise InvalidInput(
            f"write={write!r} gave {memos!r:.200}, not a list: return [] for nothing, [{{...}}] or [text] to keep one"
        )
    drafts = [_draft(memo, number, turn, place) for number, memo in enumerate(memos)]
    notes = memory.add_many([draft for draft in drafts if draft["content"].strip()])
    return [{"id": note.id, "content": note.content, "speaker": note.speaker} for note in notes]


def _without(text: str, forgotten: Sequence[str]) -> str:
    """A text without the sentences that say what was forgotten: at least half of its words."""
    gone = [words for one in forgotten if (words := set(terms(one)))]
    if not any(2 * len(words & set(terms(text))) >= len(words) for words in gone):
        return text
    return "\n".join(
        part for part in sentences(text) if not any(2 * len(words & set(terms(part))) >= len(words) for words in gone)
    )


def _draft(memo: str | Mapping[str, Any], number: int, turn: Exchange, place: Place) -> dict[str, Any]:
    """A memo as the arguments of ``add``, in the run's space."""
    if not isinstance(memo, str) and (not isinstance(memo, Mapping) or not isinstance(memo.get("content"), str)):
        raise InvalidInput(f"a write policy gave {memo!r:.200}: a memo is a text, or a dict with a text as 'content'")
    fields = {"content": memo, "speaker": USER} if isinstance(memo, str) else dict(memo)
    if fields.get("space", place.space) != place.space:
        raise InvalidInput(f"a write policy gave a memo with space={fields['space']!r}: this run writes to {place.space!r} alone")
    answered = fields.get("speaker") == ASSISTANT
    source, said = (turn.assistant_id, turn.assistant) if answered else (turn.user_id, turn.user)
    if source and "key" not in fields:  # a message that was edited keeps its id, and is another one all the same
        fields["key"] = f"{place.session or 'turn'}/{source}/{crc32(said.encode('utf-8', 'replace')):08x}/{number}"
    fields["content"] = own_words(str(fields["content"]))
    return {"session": place.session, **fields, "space": place.space}


# -- hits as plain data, for a graph's state


def as_data(hits: Hits) -> list[dict[str, Any]]:
    """Hits as JSON data: what a checkpoint can hold."""
    return [_hit_data(hit) for hit in hits]


def _hit_data(hit: Hit) -> dict[str, Any]:
    note = hit.note
    return {
        "id": note.id, "content": note.content, "speaker": note.speaker, "session": note.session, "at": note.at.isoformat(),
        "score": hit.score, "why": str(hit.why), "direct": hit.why.direct,
        "dates": [[said.text, said.start.isoformat(), said.end.isoformat()] for said in note.dates],
        "valid_until": note.valid_until and note.valid_until.isoformat(),
        "updates": [link.reason for link in note.links if link.kind == "updates" and link.target == note.id],
        "disputed": any(link.kind == "contradicts" for link in note.links),
        "along": [hit.why.path[-1].kind, hit.why.path[-1].reason] if hit.why.path else None,
    }  # fmt: skip


def as_hits(memories: Sequence[Mapping[str, Any]]) -> Hits:
    """Hits again, as far as a prompt shows them. A dict with ``content`` alone will do."""
    return Hits(_data_hit(data) for data in memories)


def _data_hit(data: Mapping[str, Any]) -> Hit:
    note_id = NoteId(str(data.get("id") or ""))
    at = datetime.fromisoformat(data["at"]) if data.get("at") else datetime.now().astimezone()
    until = data.get("valid_until")
    links = [Link(NoteId(""), note_id, "updates", reason) for reason in data.get("updates") or ()]
    links += [Link(note_id, NoteId(""), "contradicts")] if data.get("disputed") else []
    path = (Link(note_id, NoteId(""), *data["along"]),) if data.get("along") else ()
    note = Note(
        note_id, "", str(data["content"]), at, at, speaker=data.get("speaker"), session=data.get("session"),
        dates=tuple(SaidDate(text, date.fromisoformat(a), date.fromisoformat(b)) for text, a, b in data.get("dates") or ()),
        valid_until=datetime.fromisoformat(until) if until else None, links=tuple(links),
    )  # fmt: skip
    return Hit(note, float(data.get("score") or 0.0), Why(path=path))
