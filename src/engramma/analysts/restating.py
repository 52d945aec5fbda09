"""Whether two notes say the same in other words, by rules: word for word but for what carries nothing.

A wrong merge costs more than a missed one. So every word counts, with its order, but for fillers, contractions, and
where in the sentence a time stands; or both state the same plain fact and nothing else. What happened is told again
only within one conversation, since the next failed build is another one; what lasts may be said on any day.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from engramma.analysts.acts import act
from engramma.analysts.asking import only_asks
from engramma.analysts.facts import facts
from engramma.note import Note
from engramma.words import denies, is_chinese, is_common, sentences, terms, tokens

_READ = 20_000
_SAME_HOUR = 3600.0
_CONTRACTED = (
    (r"\bcan(?:no|')t\b", "can not"), (r"\bwon't\b", "will not"), (r"n't\b", " not"), (r"\bi'm\b", "i am"),
    (r"\b(it|that|he|she|there|what|where)'s\b", r"\1 is"), (r"'re\b", " are"), (r"'ve\b", " have"), (r"'ll\b", " will"),
    (r"\ba (few|little|bit|lot)\b", r"a\1"), (r"\btoo[.!]*$", ""), (r"\bha(?:ve|s) (?=(?:decided|agreed|chosen)\b)", ""), (r"对(?=[^，。！？；,.!?;]{1,8}过敏)", ""),
)  # fmt: skip
_LEAD_INS = re.compile(
    r"^\W*(?:(?:as|like) i (?:have )?(?:said|told you)|as you know|just so you know|by the way|remember that|note that|fyi|btw"
    r"|请?记住|顺便说一句|顺便说|我说过|你知道|如我所说)\b[\s,:，：。]*|[\s,，]+(?:remember|you know|as i said|by the way|btw|记住)\W*$"
)
_FILLERS = frozenset(
    """the a an really very just also well oh hey hi actually so ok okay please definitely indeed quite anyway honestly
    basically simply currently still yes yeah um uh 的 啊 呀 哦 嗯 呢 很 非常 真的 特别 挺 其实 也 都 还 还是 就 请 目前 一直 那个 嘛 哈""".split()
)
_EVERY = re.compile(
    r"\b(?:every|each) (?:other )?(?:single )?\w+(?: (?:morning|afternoon|evening|night))?(?: at \d{1,2}(?::\d\d)?(?: ?[ap]m)?)?\b|每(?:天|周|月|年|个?星期[一二三四五六日天]?|周[一二三四五六日天])"
    r"(?:早上|晚上|上午|下午|中午)?"
)
_PLACING = frozenset("in on at since for from with during after before by until 在 从".split())
_SYMBOLS = re.compile(r"[+#$€£¥%<>=@/\\*&^~|°°℃℉√≤≥≠±×÷]|(?<!\w)-(?=\d)|[\u2190-\u21ff\u2600-\u27bf\U0001f300-\U0001faff]")
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")

_PAST = re.compile(
    r"\b(?:was|were|went|ran|had|did|got|made|took|saw|met|came|said|told|bought|found|lost|left|began|broke|fell|felt|gave"
    r"|kept|knew|paid|sent|slept|spent|thought|wrote|ate|drank|drove|flew|forgot|grew|heard|held|hit|read|rode|sang|sold|sat"
    r"|stood|swam|taught|threw|woke|won|wore|(?!need|embed|bed|red|shed|speed|indeed|feed|seed)\w{2,}ed)\b"
    r"|了|过(?!敏)|刚|正在|起来"
)
_PASSING = re.compile(
    r"\b(?:today|tonight|yesterday|tomorrow|now|again|just|this|that|these|those|it|soon|ago|last|next|already|\w+ing|hungry|tired|sick|ill"
    r"|busy|late|bored|happy|sad|angry|sorry|ready|headache|cold|fever|meeting|appointment|exam|question|idea|down|up|broken|here"
    r"|open|closed|full|empty|free)\b"
    r"|[今昨明前后]天|[今昨明]晚|这|那|刚才|马上|又|再|上周|下周"
    r"|累|饿|困|忙|病(?!毒)|发烧|感冒|疼|开会|会议|难过|高兴|开心|坏|空"
)
_LASTS = re.compile(
    r"\b(?:am|is|are|has|have|likes?|loves?|lives?|works?|prefers?|needs?|hates?|dislikes?|wants?|uses?|speaks?|owns?|plays?"
    r"|enjoys?|drinks?|eats?|runs?|stud(?:y|ies)|teach(?:es)?|believes?|every|always|never|usually|costs?|means?|called|allergic)\b"
    r"|是|有|喜欢|住|爱|会|叫|讨厌|需要|过敏|习惯|每|总是|从不|工作|上班|想|吃|喝|用"
)
_FRAME = frozenset(
    """i we my our am is are was in at for by to as live lives living based settled work works working employed like likes love
    loves enjoy enjoys adore adores fond fan of favourite favorite be being name called now currently 现在 我 我们 住 在 住在 是 喜欢 爱 热爱 最 上班 工作
    叫 名字""".split()
)


def restates(one: Note, other: Note) -> str | None:
    """Why one note says just what the other says, in a few words; None where it does not, or that is in doubt."""
    if not _agree(one, other):
        return None
    chinese = is_chinese(one.content)
    if _same_fact(one, other):
        return "说的是同一个事实" if chinese else "the same plain fact"
    if not _one_occasion(one, other):
        return None
    mine, theirs = _said(one.content), _said(other.content)
    if mine == theirs:
        return "用词相同" if chinese else "the same words"
    if _turned(mine, theirs) or _untimed(one) == _untimed(other):
        return "用词相同，只是语序不同" if chinese else "the same words in another order"
    return None


def comparable(one: Note, other: Note) -> bool:
    """Whether two notes can say the same in other words: numbers, days, denial, asking, symbols and names agree."""
    if not _agree(one, other):
        return False
    held = [set(terms(note.content[:_READ])) | _names(note.content) for note in (one, other)]
    return _names(one.content) <= held[1] and _names(other.content) <= held[0]


@lru_cache(maxsize=16384)
def _names(text: str) -> frozenset[str]:
    """The names in a text, as far as they can be told: capitalised words that are no everyday ones, or what the tagger says."""
    if is_chinese(text):
        import rjieba

        return frozenset(word for word, tag in rjieba.tag(text[:_READ]) if tag.startswith(("nr", "ns", "nt", "eng")))
    words = re.findall(r"\b[A-Z][\w'’-]*", text[:_READ])
    return frozenset(term for word in words for term in terms(word) if not is_common(term))


def _turned(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether two texts differ in nothing but where one phrase with a preposition stands, in front or at the end."""
    if len(mine) != len(theirs) or sorted(mine) != sorted(theirs):
        return False
    cuts = [cut for cut in range(1, len(mine)) if mine[cut:] + mine[:cut] == theirs]
    return any(mine[0] in _PLACING or mine[cut] in _PLACING for cut in cuts)


def _agree(one: Note, other: Note) -> bool:
    texts = one.content[:_READ], other.content[:_READ]
    if max(len(one.content), len(other.content)) > _READ and one.content != other.content:
        return False
    return _marks(texts[0]) == _marks(texts[1]) and _days(one) == _days(other)


@lru_cache(maxsize=16384)
def _marks(text: str) -> tuple[object, ...]:
    """What two texts that say the same must have in common to the letter."""
    plain = unicodedata.normalize("NFKC", text)
    shouted = plain.isupper()
    return (
        tuple(sorted(re.findall(r"\d+(?:[.,:]\d+)*", plain))), denies(text), only_asks(text) or plain.rstrip().endswith("?"),
        tuple(_SYMBOLS.findall(plain)), () if shouted else tuple(sorted(_ACRONYM.findall(plain))), is_chinese(text),
    )  # fmt: skip


def _days(note: Note) -> frozenset[tuple[object, object]]:
    return frozenset((said.start, said.end) for said in note.dates)


def _one_occasion(one: Note, other: Note) -> bool:
    """Whether both speak of what lasts, of the same days, or within one conversation."""
    if len(set(terms(one.content[:2000]))) < 2:
        return False  # "Good morning!" says nothing twice
    if all(lasts(note.content) or act(note.content) == "decision" for note in (one, other)):
        return True  # what is decided twice in the same words was decided once
    if one.dates:  # the same days, which were compared before
        return True
    apart = abs((one.at - other.at).total_seconds())
    return one.session == other.session and apart <= (_SAME_HOUR if one.session is None else 24 * _SAME_HOUR)


@lru_cache(maxsize=16384)
def lasts(text: str) -> bool:
    """Whether a text states what holds on other days too, rather than what happened or passes."""
    part = re.sub(r"\b(?:am|is|are) \w+ed\b", "is", _expanded(text[:2000]))  # "is called" is no past
    return bool(_LASTS.search(part)) and not _PAST.search(part) and not _PASSING.search(part)


def _expanded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text[:_READ]).casefold().replace("’", "'")
    for short, full in _CONTRACTED:
        plain = re.sub(short, full, plain)
    return _LEAD_INS.sub("", plain)


def _words(plain: str) -> tuple[str, ...]:
    if is_chinese(plain):
        import rjieba

        found = [token.strip() for token in rjieba.cut(plain)]
        found = [token for token in found if token and not re.fullmatch(r"[\W_]+", token)]
    else:
        found = list(tokens(plain))
    return tuple(token for token in found if token not in _FILLERS)


@lru_cache(maxsize=16384)
def _said(text: str) -> tuple[str, ...]:
    """The words of a text in order, contractions written out and fillers left out."""
    words = _words(_expanded(text))
    return words or (text,)


def _untimed(note: Note) -> tuple[tuple[str, ...], ...]:
    """The words of a note without its times, and the times, each with the word before it that places it."""
    plain, times = _expanded(note.content), []
    for text in sorted(
        {said.text.casefold() for said in note.dates} | set(_EVERY.findall(plain)), key=lambda one: (-len(one), one)
    ):
        placed = re.compile(rf"(?:\b(?:in|on|at|since|from|by|until|before|after|during)\s+)?{re.escape(text)}")
        times += placed.findall(plain)
        plain = placed.sub(" ", plain)
    return _words(plain), tuple(sorted(times))


def _same_fact(one: Note, other: Note) -> bool:
    """Whether both are one sentence that states one fact, the same, and holds no word besides."""
    if len(sentences(one.content)) != 1 or len(sentences(other.content)) != 1:
        return False
    mine, theirs = facts(one.content, one.speaker), facts(other.content, other.speaker)
    if len(mine) != 1 or len(theirs) != 1:
        return False
    first, second = mine[0], theirs[0]
    same = (first.subject, first.attribute, first.value.casefold(), first.holds)
    if same != (second.subject, second.attribute, second.value.casefold(), second.holds):
        return False
    known = _FRAME | set(_words(first.value.casefold())) | set(_words(first.attribute)) | {first.subject}
    return all(word in known for word in (*_said(one.content), *_said(other.content)))
