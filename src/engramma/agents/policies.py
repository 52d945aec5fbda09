"""The three policies of an agent's memory: what to write, what to retrieve, how to inject it.

Each is a small object that you can call; a function of yours with the same arguments will do too.

- write: ``(turn: Turn) -> list`` of what to remember: texts, or dicts with the arguments of ``Memory.add``.
- retrieve: ``(query: str, memory: Memory, place: Place) -> Hits``.
- inject: ``(system: SystemMessage | None, hits: Hits) -> SystemMessage | None``, the system message of one model call.
  One that has ``recalls = False`` needs no hits, so nothing is searched for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from langchain_core.messages import SystemMessage

from engramma.agents.run import Place
from engramma.analysts.asking import asks, only_asks, told
from engramma.analysts.chat import RECALLED, keep_messages, keep_schema, kept
from engramma.dates import bound
from engramma.errors import InvalidInput, ModelError, StoreError
from engramma.filters import Where
from engramma.memory import Memory
from engramma.models import resolve_llm
from engramma.models.base import LLM, foreign_model
from engramma.note import ASSISTANT, USER, Hit, Note, Why
from engramma.recall import LINKED_LEAST, Hits, Request
from engramma.scoring import DEFAULT_CUT_OFF
from engramma.words import denies, sentences, terms, tokens

log = logging.getLogger("engramma")
_SPARE = 3  # hits that are looked for beyond k, as some may only ask
_LOOKED_AT = 2000  # characters of a note, to see whether it only asks
_DOWN = (ModelError, ConnectionError, TimeoutError)  # an embedding model that cannot be asked now; StoreBusy is one too

Memo = str | Mapping[str, Any]
"""Something to remember: a text, or the arguments of ``Memory.add`` with ``content``."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what the user said, what the assistant answered, and the memory it may go to.

    ``said`` are the parts of ``user`` with who said them, where several people talk.
    """

    user: str
    assistant: str
    memory: Memory
    place: Place
    said: tuple[tuple[str, str], ...] = ()


WritePolicy = Callable[[Turn], Sequence[Memo]]
RetrievePolicy = Callable[[str, Memory, Place], Hits]
InjectPolicy = Callable[[SystemMessage | None, Hits], SystemMessage | None]


def checked_policy(name: str, given: Any, default: Any) -> Any:
    """A policy, the default for None. Raises InvalidInput for what cannot be called with what a policy is called with."""
    if given is None:
        return default
    kinds = {
        "then": "Everything(), Patterns()",
        "write": "Everything(), Patterns()",
        "retrieve": "Recalled(k=5)",
        "inject": "InSystemMessage(), ToolOnly()",
    }
    if isinstance(given, type):
        raise InvalidInput(f"{name}={given.__name__} is a class: give one of its objects, {given.__name__}()")
    if not callable(given):
        raise InvalidInput(f"{name}={given!r} is no policy: give {kinds[name]} or a function of yours")
    return given


def injected(inject: InjectPolicy, system: SystemMessage | None, hits: Hits) -> SystemMessage | None:
    """The system message that a policy makes. Raises InvalidInput for anything else."""
    made: Any = inject(system, hits)
    if made is not None and not isinstance(made, SystemMessage):
        raise InvalidInput(
            f"inject={inject!r} gave {made!r:.200}, not a SystemMessage: return SystemMessage(text), or None for none"
        )
    return made


# -- write


@dataclass(frozen=True, slots=True)
class Everything:
    """Keep all that was said: each side of the turn is a note. The default.

    >>> Everything(assistant=False)             # only what the user says
    Everything(assistant=False)
    """

    assistant: bool = True

    def __call__(self, turn: Turn) -> list[Memo]:
        """A memo for the user's words, and one for the answer."""
        said = list(turn.said or [(USER, turn.user)])
        said += [(ASSISTANT, turn.assistant)] if self.assistant else []
        return [{"content": text, "speaker": speaker} for speaker, text in said if text.strip()]


_ENGLISH = (
    r"\b(?:remember|don'?t forget|keep in mind|note that)\b",
    r"\bmy (?:full |first |last )?name(?:'s| is)\b", r"\bcall me\b",
    r"\bi(?: am|['’]m) (?!(?:so|just|really|very|a bit|looking|trying|going|wondering|thinking|asking|sorry|not sure|sure|"
    r"tired|fine|ok|okay|good|back|here|done|ready|afraid|glad|happy to)\b)",
    r"\bi (?:really |also |always |usually |often |never |don'?t |do not |can'?t )?"
    r"(?:like|love|enjoy|prefer|hate|dislike|want|need|live|work|study|speak|use|own|have|moved|grew)\b",
    r"\bi (?:was born|got married|started|quit|bought|adopted|decided|plan)\b",
    r"\bmy (?:goal|plan|job|dream|birthday|wife|husband|partner|son|daughter|mother|father|cat|dog|team|boss|favou?rite)\b",
    r"\bi(?:'ve| have) (?:been|got|had)\b", r"\bwe (?:have|live|moved|adopted|bought|got)\b", r"\bany ?more\b",
    r"\bmy new\b|\bnew (?:phone |mobile )?number\b", r"^(?:please )?(?:always|never)\b",
)  # fmt: skip
_CHINESE = (
    r"我(?:的名字)?叫", r"叫我", r"我(?:今年|其实|就)*是", r"我姓", r"我今年",
    r"我(?:从小|一直|平时|最|很|也|还|不|特别|非常|超级?|真的|都)*(?:喜[欢歡]|爱|愛|讨厌|討厭|想|要|会|會|怕|习惯|習慣)",
    r"我(?:现在|現在|以前)?(?:住|在|[来來]自|从|從|有|养|養)", r"我(?:的|家|们|們)",
    r"我(?:爸|妈|媽|哥|姐|弟|妹|女[儿兒友]|儿子|兒子|老[公婆]|妻子|丈夫|[男女]朋友|同事|老板)",
    r"我(?:决定|決定|打算|计划|計劃|搬|换|換|买|買|对.{0,8}过敏|對.{0,8}過敏|毕业|畢業|出生|结婚|結婚)",
    r"我不.{1,8}了", r"以后|以後", r"[请請]?一直(?:用|说|說)", r"(?:我的?|新)(?:电话|電話|号码|號碼|手机|手機)",
    r"[记記]住", r"[记記]得", r"别忘|別忘", r"不要忘", r"[记記]一下",
)  # fmt: skip


@dataclass(frozen=True)
class Patterns:
    """Keep what the user says of themselves or asks to be remembered: "my name is", "remember", "我叫", "记住".

    Clauses are looked at one by one, and a question is none of these: "what is my name?" is not kept,
    "I'm Ana, what is your name?" is.

    >>> Patterns(more=(r"\\bour project\\b",)).matches("Our project is called Wren.")
    True
    """

    more: tuple[str, ...] = ()
    patterns: tuple[str, ...] = (*_ENGLISH, *_CHINESE)

    def __post_init__(self) -> None:
        for name in ("more", "patterns"):
            if isinstance(given := getattr(self, name), str):
                raise InvalidInput(f"{name}={given!r} is one text: give a tuple of patterns, ({given!r},)")
        for pattern in (*self.patterns, *self.more):
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidInput(f"the pattern {pattern!r} is no regular expression: {error}") from error

    @cached_property
    def _cue(self) -> re.Pattern[str]:
        return re.compile("|".join((*self.patterns, *self.more)), re.IGNORECASE)

    def matches(self, text: str) -> bool:
        """Whether a clause of the text says something to keep."""
        if not self.patterns and not self.more:
            return False
        return any(self._cue.search(part) for sentence in sentences(text) for part in told(sentence))

    def __call__(self, turn: Turn) -> list[Memo]:
        """Each speaker's words, if a pattern matches them."""
        said = turn.said or [(USER, turn.user)]
        return [{"content": text, "speaker": speaker} for speaker, text in said if self.matches(text)]


@dataclass(frozen=True, slots=True)
class Novel:
    """Keep what another policy would, unless a note of the same speaker says it already.

    Such a note holds the same words in a row, or is as like in meaning as ``likeness`` (0 to 1; few but copies
    have a ``why.dense`` of 0.9), and neither asks nor denies it.

    >>> Novel(Everything(assistant=False), likeness=0.9)
    Novel(then=Everything(assistant=False), likeness=0.9)
    """

    then: WritePolicy = field(default_factory=Everything)
    likeness: float = 0.9

    def __post_init__(self) -> None:
        checked_policy("then", self.then, None)
        if not isinstance(self.likeness, int | float) or not 0 < self.likeness <= 1:
            raise InvalidInput(f"likeness={self.likeness!r} must be above 0 and at most 1")

    def __call__(self, turn: Turn) -> list[Memo]:
        """The memos that no note says already."""
        return [memo for memo in self.then(turn) if not self._known(memo, turn)]

    def _known(self, memo: Memo, turn: Turn) -> bool:
        text, speaker = (memo, "user") if isinstance(memo, str) else (str(memo.get("content", "")), memo.get("speaker"))
        if not text.strip():
            return True
        try:
            hits = turn.memory.search(text, k=3, space=turn.place.space, expand=False)
        except _DOWN as error:
            if isinstance(error, StoreError):
                raise
            log.warning("could not look for what is known already, so it is kept: %s", error)
            return False
        return any(self._says(hit, text) for hit in hits if speaker in (None, hit.note.speaker) or hit.note.speaker is None)

    def _says(self, hit: Hit, text: str) -> bool:
        said = hit.note.content
        if said.strip() == text.strip():
            return True
        if denies(said) != denies(text) or asks(said):
            return False
        return _holds(said, text) or hit.why.dense >= self.likeness


def _holds(said: str, text: str) -> bool:
    """Whether the words of a text, at least three, stand in a row in what was said; fewer must be all of it."""
    words, there = list(tokens(text)), list(tokens(said))
    return words == there if len(words) < 3 else f" {' '.join(words)} " in f" {' '.join(there)} "


@dataclass(frozen=True)
class Judged:
    """Keep what a model judges to be worth it, as sentences of its own: one call a turn.

    ``model`` is what ``Memory.open(llm=…)`` takes. When it is down or answers rubbish, what ``otherwise``
    says is kept, and a warning tells why: nothing is lost.

    >>> Judged("ollama:qwen2.5:7b").otherwise
    Everything(assistant=False)
    """

    model: Any
    otherwise: WritePolicy = field(default_factory=lambda: Everything(assistant=False))

    def __post_init__(self) -> None:
        _ = self._llm  # a model that is none shows here, not after the first answer

    @cached_property
    def _llm(self) -> LLM:
        llm = resolve_llm(self.model)
        if llm is None:
            raise InvalidInput(f"model={self.model!r} names no model: Judged needs one, such as 'ollama:qwen2.5:7b'")
        return llm

    def __call__(self, turn: Turn) -> Sequence[Memo]:
        """What the model wants kept, with the user's words beside it in ``metadata["said"]``."""
        if not turn.user.strip():
            return []
        try:
            known = [hit.note.content for hit in turn.memory.search(turn.user, k=5, space=turn.place.space)]
            said = "\n".join(text if who == USER else f"{who}: {text}" for who, text in turn.said) or turn.user
            with foreign_model(self._llm.name):
                reply = self._llm.complete(keep_messages(said, turn.assistant, known), schema=keep_schema())
            parts = kept(reply.text)
        except (ModelError, OSError) as error:
            if isinstance(error, StoreError):
                raise
            log.warning("%s did not judge what to keep, the user's words are kept: %s", self._llm.name, error)
            return self.otherwise(turn)
        more = {"speaker": USER, "metadata": {"said": turn.user}}
        return [{"content": part.content, "importance": part.importance, **more} for part in parts]


# -- retrieve


@dataclass(frozen=True)
class Recalled:
    """Recall with its options, and the ``last`` things that the user told where nothing matches.

    Notes that only ask, and answers without a word of content ("Nice!"), say nothing to a model: they are left
    out unless ``talk`` is True.

    >>> Recalled(k=3, last=0, where={"tags": {"$in": ["work"]}}).k
    3
    """

    k: int = 5
    last: int = 3
    talk: bool = False
    min_relevance: float | None = None
    expand: bool = True
    where: Where | None = None
    since: datetime | str | None = None
    include: tuple[str, ...] = ()
    rerank: Any = None

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("last", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"{name}={value!r} must be a whole number of at least {least}")
        cut_off = DEFAULT_CUT_OFF if self.min_relevance is None else self.min_relevance
        Request("?", (), where=self.where, min_relevance=cut_off, include=frozenset(self.include))  # raises now, not in a run
        bound("since", self.since)

    def __call__(self, query: str, memory: Memory, place: Place) -> Hits:
        """The hits; should the embedding model be down, the last notes, whose ``why`` says so."""
        remark = "nothing matched: one of the last notes"
        if query.strip():
            try:
                hits = memory.search(
                    query, k=self.k if self.talk else self.k + _SPARE, space=place.space, where=self.where, since=self.since,
                    expand=self.expand, min_relevance=self.min_relevance, include=self.include, rerank=self.rerank,
                )  # fmt: skip
            except _DOWN as error:
                if isinstance(error, StoreError):
                    raise
                log.warning("could not search the memory, the last notes are shown: %s", error)
                remark, hits = f"not searched ({error}): one of the last notes", Hits()
            if kept := self._kept(hits, query):
                return kept
        return self._last(memory, place, remark)

    def _kept(self, hits: Hits, query: str) -> Hits:
        """The hits that say something; that the same was asked before says nothing."""
        telling = [hit for hit in hits if hit.note.content.strip() != query.strip() and (self.talk or _tells(hit.note))]
        linked = [hit for hit in telling if not hit.why.direct][: max(self.k, LINKED_LEAST)]
        return Hits([*[hit for hit in telling if hit.why.direct][: self.k], *linked])

    def _last(self, memory: Memory, place: Place, remark: str) -> Hits:
        if not self.last:
            return Hits()
        notes = memory.list(space=place.space, where=self.where, since=self.since, limit=self._looked_at, newest_first=True)
        told = [note for note in notes if self.talk or (note.speaker != ASSISTANT and _tells(note, USER))]
        return Hits(Hit(note, 0.0, Why(remarks=(remark,))) for note in told[: self.last])

    @property
    def _looked_at(self) -> int:
        return self.last if self.talk else 10 * self.last


def _tells(note: Note, speaker: str = ASSISTANT) -> bool:
    """Whether a note says something to a model: more than a question or, of a speaker's, "Nice!"."""
    text = note.content[:_LOOKED_AT]
    if note.speaker in (speaker, ASSISTANT) and len(set(terms(text))) < 2 and not any(map(str.isdigit, text)):
        return False
    return not only_asks(text)


# -- inject


@dataclass(frozen=True, slots=True)
class InSystemMessage:
    """Put the notes behind the system message of the model call, fenced as data. The default.

    >>> InSystemMessage(max_tokens=400).max_tokens
    400
    """

    max_tokens: int = 800
    heading: str = RECALLED
    recalls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_tokens(self.max_tokens)

    def __call__(self, system: SystemMessage | None, hits: Hits) -> SystemMessage | None:
        """The system message with the notes; as it was where there are none."""
        block = hits.context(self.max_tokens)
        if not block:
            return system
        text = f"{self.heading}\n{block}"
        if system is None:
            return SystemMessage(text)
        if isinstance(system.content, str):
            return system.model_copy(update={"content": f"{system.content}\n\n{text}"})
        return system.model_copy(update={"content": [*system.content, {"type": "text", "text": text}]})


@dataclass(frozen=True, slots=True)
class InPrompt:
    """Write the whole system prompt anew for each call: a text with ``{memories}``, or a function of the notes' text.

    >>> str(InPrompt("Answer Ana briefly.\\n{memories}")(None, Hits()).content)
    'Answer Ana briefly.\\n'
    """

    prompt: str | Callable[[str], str]
    max_tokens: int = 800
    recalls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_tokens(self.max_tokens)
        if not isinstance(self.prompt, str) and not callable(self.prompt):
            raise InvalidInput(f"prompt={self.prompt!r} is neither a text with {{memories}} nor a function of the notes' text")
        if isinstance(self.prompt, str) and "{memories}" not in self.prompt:
            raise InvalidInput(f"prompt={self.prompt!r} has no place for the notes: write {{memories}} where they belong")

    def __call__(self, system: SystemMessage | None, hits: Hits) -> SystemMessage | None:
        """The prompt with the notes in their place, "" where there are none."""
        block = hits.context(self.max_tokens)
        text = self.prompt.replace("{memories}", block) if isinstance(self.prompt, str) else self.prompt(block)
        return SystemMessage(text)


def _check_tokens(given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidInput(f"max_tokens={given!r} must be a whole number of at least 1; ToolOnly() injects nothing")


@dataclass(frozen=True, slots=True)
class ToolOnly:
    """Inject nothing: the model has to call ``search_memory``.

    >>> ToolOnly().recalls
    False
    """

    recalls: ClassVar[bool] = False

    def __call__(self, system: SystemMessage | None, hits: Hits) -> SystemMessage | None:
        """The system message as it was."""
        return system
