"""Plain statements of facts that change, so that a newer one can replace an older one.

Only sentence frames that leave no doubt are read ("I live in …", "my phone number is …", "the
release is on …", "我住在…", "我喜欢…"); everything else is left alone. A fact is about a subject, an
attribute of which a subject has one, and a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from engramma.analysts.topics import topics
from engramma.note import ASSISTANT, USER
from engramma.words import denies, is_chinese, sentences, terms, without_denials

_READ = 4000


@dataclass(frozen=True, slots=True)
class Fact:
    """One plain statement. ``holds`` is None for a value, False for one that is none any more; of liking or being, whether."""

    subject: str
    attribute: str
    value: str
    holds: bool | None = None
    rest: str = field(default="", compare=False, repr=False)
    """What its text says beside it."""


_I = r"(?P<s>I|you|(?!We\b)[A-Z][a-z]+)"
_WE = r"(?P<s>I|We|we|you|[A-Z][a-z]+)"
_MY = r"\b(?P<s>[Mm]y|[Yy]our)"
_ADV = r"(?:(?:now|currently|still|just|really|absolutely|totally|actually|have|has|had|have just) )*"
_NAME = r"(?P<v>[A-Z][\w'’-]*(?: (?:de |la |le |of )?[A-Z][\w'’-]*){0,3})"
_END = r"(?: (?:now|anymore|any more|these days|again|instead))?(?=[.,;:!?()]|$| (?:and|but|because|since|so|when|while)\b)"
_VALUE = rf"(?P<v>(?!(?:this|that|it|them|one)\b)[^.,;:!?()]{{1,60}}?){_END}"
_TELLING = rf"(?P<v>(?!not\b)(?=[^.,;:!?()]*\d|[A-Z]|\S+@)[^,;:!?()]{{1,60}}?)(?=[.]?(?:\s|$)|[,;:!?()]){_END}"
_ATTRIBUTES = (
    "phone number|mobile number|number|e-?mail(?: address)?|address|name|nickname|birthday|password|pin|pin code|boss|manager|"
    "doctor|dentist|landlord|bank|rent|age|weight|height|shoe size|size|time ?zone|deadline|budget|school|team lead|"
    "username|user name|native language|hometown|blood type"
)
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_DATE = rf"(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{_MONTHS})\b(?: \d{{4}})?|(?:{_MONTHS}) \d{{1,2}}\b(?:, \d{{4}})?|\d{{4}}-\d\d-\d\d|(?:{_DAYS})\b)"
_TIME = r"(?:\d{1,2}(?::\d\d)? ?(?:am|pm)\b|\d{1,2}:\d\d\b)"
_STATES = "vegetarian|vegan|pregnant|unemployed|retired|a smoker|left-handed"
_STATUS = "married|single|divorced|engaged|widowed"
_SHIFT = r"(?:(?:is|was|has been|have been|got) )?(?:now )?(?:moved|postponed|pushed|rescheduled|delayed|brought forward)(?: back)? (?:to|until)"
_STANDS = r"(?:is|are|will be)(?: now| due| set| planned| scheduled)* (?:on|at|for)"

_EN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("home", re.compile(rf"\b{_WE}(?:'ve|'m| am| are| is)? {_ADV}(?:lives?|living|based|settled) (?:back )?in {_NAME}")),
    ("home", re.compile(rf"\b{_I}(?:'ve)? {_ADV}(?:moved|relocated)(?: back)?(?: from {_NAME.replace('?P<v>', '?:')})? to {_NAME}")),
    ("employer", re.compile(rf"\b{_I}(?:'m| am| is)? {_ADV}(?:works?|working|started(?: working| work| an?(?: new)? job)?) (?:at|for) {_NAME}(?!['’]s)\b")),
    ("employer", re.compile(rf"\b{_I} (?:have |has |just |finally )*(?:quit|left|resigned from) [^.,;:!?]{{1,40}}? and (?:now |currently )?"
                            rf"(?:am |is )?(?:works?|working|started|started working) (?:now )?(?:at|for) {_NAME}")),
    ("employer", re.compile(rf"\b{_I} (?:have |has |just |finally )*(?:quit|left) {_NAME.replace('?P<v>', '?:')} for {_NAME}")),
    ("job", re.compile(rf"\b{_I}(?:'m| am| is)? {_ADV}(?:works?|working) as (?:an? |the ){_VALUE}")),
    ("favourite {a}", re.compile(rf"{_MY} favou?rite (?P<a>[a-z]+(?: [a-z]+)?) (?:is|are|became) (?:now )?(?!(?:not|on|in|at|here|gone|lost|broken)\b){_VALUE}")),
    ("{a}", re.compile(rf"{_MY} (?:new |current )?(?P<a>{_ATTRIBUTES}) (?:is|(?:has )?changed to) (?:now )?{_TELLING}")),
    ("phone number", re.compile(rf"\b{_I}(?:'ve| have)? (?:got|have) a new (?:phone |mobile )?number(?:, it's|, it is|:| is)? (?P<v>[+\d][\d ()/-]{{4,20}}\d)")),
    ("name of {a}", re.compile(rf"{_MY} (?P<a>[a-z]+(?: [a-z]+)?) is (?:now )?called (?P<v>[A-Z]\w+)(?!, the (?:younger|older|elder|other|first|second))")),
    ("relationship", re.compile(rf"\b{_I}(?:'m| am| is) (?:now )?(?P<v>{_STATUS})\b")),
    ("date of {a}", re.compile(rf"\b[Tt]he (?P<s>)(?P<a>\w+(?: \w+)?) (?:{_STANDS}|{_SHIFT}) (?P<v>{_DATE})", re.IGNORECASE)),
    ("time of {a}", re.compile(rf"\b[Tt]he (?P<s>)(?P<a>\w+(?: \w+)?) (?:{_STANDS}|{_SHIFT}) (?P<v>{_TIME})", re.IGNORECASE)),
    ("port of {a}", re.compile(r"\b[Tt]he (?P<s>)(?P<a>\w+(?: \w+)?) (?:now )?(?:runs|listens|is) on port (?P<v>\d+)")),
)  # fmt: skip
_LIKES = r"love|loves|like|likes|enjoy|enjoys|adore|adores|am fond of|am a fan of|prefer|prefers"
_HATES = r"hate|hates|dislike|dislikes|detest|detests|loathe|loathes|can't stand|cannot stand|don't like|do not like|doesn't like|don't enjoy|no longer like|no longer likes|no longer enjoy|don't love|never liked|no longer (?:drink|eat|smoke)s?|(?:stopped|quit|gave up) (?:drinking|eating|smoking)|gave up"
_TASTE = re.compile(rf"\b(?P<s>I|We|we|[A-Z][a-z]+) {_ADV}(?:(?P<no>{_HATES})|(?P<yes>{_LIKES})) {_VALUE}")
_STATE = re.compile(
    rf"\b{_I}(?:'m| am| is|'re| are) (?:now )?(?P<no>not |no longer )?(?:an? )?(?P<v>{_STATES}|allergic to \w+)\b"
)

_GONE = (
    ("home", re.compile(rf"\b{_WE} (?:have |has )?(?:never|no longer|don't|doesn't|do not|does not|didn't) lived? in {_NAME}")),
    ("employer", re.compile(rf"\b{_I} (?:have |has )?(?:never|no longer|don't|doesn't|do not|does not|didn't) work(?:s|ed)? (?:at|for) {_NAME}")),
)  # fmt: skip

_HAN_VALUE = r"(?P<v>(?!个|一|很|非常|在|不|了)[^，。！？；、,.!?\s]{1,16}?)(?=了|[，。！？；、,.!?\s]|$)"
_WHO = r"(?P<s>我们|[我你您])"
_COUNT = "[0-9〇一二三四五六七八九十两]"
_NOW = (
    r"(?:现在|已经|目前|一直|最近|刚刚?|后来|终于|又|[今去前]年|[这上]个?月|[这上]周|"
    rf"{_COUNT}{{1,4}}[年月日号]份?|{_COUNT}{{1,3}}个?[月天周年]前|从[^，。！？；\s]{{1,8}}?(?=搬))*"
)
_ZH: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("home", re.compile(rf"(?:{_WHO}|^|，){_NOW}(?:住在?了?|搬家?[到去来]了?|定居在?了?){_HAN_VALUE}")),
    ("employer", re.compile(rf"(?:{_WHO}|^|，){_NOW}在(?:一[家个所])?(?P<v>[^，。！？；\s在]{{1,16}}?)(?:上班|工作(?![室日人量])|任职)")),
    ("employer", re.compile(rf"(?:{_WHO}|^|，){_NOW}(?:跳槽到|入职|加入)了?(?:一[家个所])?{_HAN_VALUE}")),
    ("favourite {a}", re.compile(rf"{_WHO}?(?:现在)?最(?:喜欢|爱)的(?P<a>[^是，。]{{1,6}})(?:现在)?(?:是|变成了?){_HAN_VALUE}")),
    ("{a}", re.compile(rf"{_WHO}的(?:新)?(?P<a>电话号码|手机号码?|电话|邮箱|地址|名字|生日|密码|身高|体重|年龄|血型|预算|时区)(?:现在)?(?:是|改成了?|换成了?){_HAN_VALUE}")),
    ("name", re.compile(r"(?P<s>[我你您])(?:现在)?(?:叫|改名叫)(?P<v>(?![了他她它你外车人起来])[\u4e00-\u9fff]{2,4})(?=[，。！,.!\s]|$)")),
    ("date of {a}", re.compile(r"(?P<s>)(?P<a>[\u4e00-\u9fff]{2,6}?)(?:定在|改到|改在|推迟到|提前到|延期到|改成)了?(?P<v>[^，。！？；]{0,4}(?:[0-9一二三四五六七八九十]+[月日号]|周[一二三四五六日天])[^，。！？；]{0,8})")),
)  # fmt: skip
_ZH_GONE = (("home", re.compile(rf"{_WHO}(?:已经|现在|其实|早就)*(?:不再|从来?没有?|没有?|不)住(?:在|过)?{_HAN_VALUE}")),)
_ZH_TASTE = re.compile(
    rf"{_WHO}(?:现在|其实|一直|已经|非常|特别|真的|超级?|很|最|挺|也|都|还是)*"
    rf"(?:(?P<no>讨厌|恨|受不了|不再喜欢|再也不喜欢|不太喜欢|不喜欢|不爱|戒掉?了?)|(?P<yes>喜欢|爱|热爱)){_HAN_VALUE}"
)
_ZH_ALLERGY = re.compile(
    rf"{_WHO}(?:现在|其实|一直|已经|也)*对(?P<v>[^，。！？；、不再\s]{{1,8}}?)(?:已经)?(?P<no>不再?|没有?)?过敏"
)
# What is supposed, quoted, past or passing is no fact of today.
_UNSURE_EN = re.compile(
    r"\?\s*$|[\"“”]|\b(?:translat\w+|kidding|joking|came back|office on|on (?:mon|tues|wednes|thurs|fri|satur|sun)days|if|would|wish|used to|might|maybe|perhaps|suppose|imagine|dream(?:t|ed)?|pretend|said|says|told|asked|heard|"
    r"thinks?|game|novel|story|as a child|back then|when I was|for a (?:year|month|week|while|few)|for now|temporarily|"
    r"this (?:week|month|weekend)|until|almost|nearly)\b",
    re.IGNORECASE,
)
_UNSURE_ZH = re.compile(
    "[?？吗“”「」]\\s*$|[“”「」：]|如果|要是|假如|以前|曾经|小时候|那时|可能|也许|希望|梦|说|听|游戏|小说|故事|差点|暂时|这周|这个月"
)
_NO_PLACES = frozenset("家 努力 这里 那里 外面 隔壁 网上 远程 楼上 楼下 认真 加班 周末".split())
_PLACE_TAGS = ("ns", "nt", "nz", "nr")
_PRONOUNS = frozenset({"i", "we", "my", "我", "我们", ""})
_ADDRESSED = frozenset({"you", "your", "你", "您"})
_NOT_NAMES = frozenset(
    """they she he it this that there what who everyone everybody someone somebody nobody people you the a when where if and
    but so then mom mum mother dad father brother sister boss friend wife husband son daughter we""".split()
)
_TECHNICAL = frozenset({"programming", "database", "frontend", "backend", "deployment", "security", "testing", "data-ml"})


@lru_cache(maxsize=4096)
def facts(text: str, speaker: str | None) -> tuple[Fact, ...]:
    """The plain statements in a text; "I" is the speaker."""
    read = _chinese_facts if is_chinese(text) else _english_facts
    found: list[Fact] = []
    parts = [sentence.replace("’", "'") for sentence in sentences(text[:_READ])[:40]]
    for number, sentence in enumerate(parts):
        others = [*parts[:number], *parts[number + 1 :]]
        found += [replace(fact, rest="\n".join([fact.rest, *others])) for fact in read(sentence, speaker)]
    return tuple(dict.fromkeys(found))


# Of what a text says beside a fact: who or what else it speaks of, and what only tells more of the same.
_ELSE_EN = re.compile(
    r"\b(?:i|i'm|i've|my|me|we|we're|our|us|he|she|his|her|him)\b"
    r"|\b(?:am|have|has|had|got|bought|adopted|own|owns|love|loves|like|likes|hate|hates|prefer|allergic|called|named|married|study|studies|"
    r"work|works|play|plays|speak|speaks|drink|eat|born|children|kids|wife|husband|son|daughter|cat|dog)\b",
    re.IGNORECASE,
)
_SAME_ZH = re.compile(
    r"^(?:就?在|靠近|离|位于|挨着|附近|旁边|因为|所以|那里|那边|这里|这边|环境|房子|很|非常|特别|真|挺|太|终于|现在|了|的|啦|呢|…)"
)


def says_more(fact: Fact) -> bool:
    """Whether the text of a fact tells other things too, which hold on when the fact does not: "I live in Leeds and I'm
    allergic to nuts". What only tells more of the same does not count: "I live in Lyon, near Place Bellecour"."""
    if not is_chinese(fact.rest):
        sentence, *others = fact.rest.split("\n")
        return bool(_ELSE_EN.search(sentence)) or any(len(set(terms(other))) > 1 for other in others)
    clauses = [part.strip() for part in re.split(r"[\s，。！？；、,.!?;\n]|…", fact.rest)]
    return any(len(set(terms(part))) > 0 and len(part) > 2 and not _SAME_ZH.match(part) for part in clauses)


def _subject(name: str | None, speaker: str | None) -> str | None:
    """Who a statement is about; None for a pronoun that we cannot resolve."""
    word = (name or "").strip().casefold()
    if word in _PRONOUNS:
        return (speaker or "").casefold()
    if word in _ADDRESSED:
        return USER if speaker == ASSISTANT else None
    return None if word in _NOT_NAMES else word


def _matched(frames: Sequence[tuple[str, re.Pattern[str]]], sentence: str, speaker: str | None) -> list[Fact]:
    found = []
    for attribute, frame in frames:
        for match in frame.finditer(sentence):
            groups = match.groupdict()
            subject, value = _subject(groups.get("s"), speaker), groups["v"].strip()
            if subject is not None and value and not value.endswith("的"):
                named = attribute.format(a=(groups.get("a") or "").casefold())
                found.append(Fact(subject, named, value, rest=_without(sentence, match)))
    return found


def _english_facts(sentence: str, speaker: str | None) -> list[Fact]:
    if _UNSURE_EN.search(sentence):
        return []
    found = [fact for fact in _matched(_EN, sentence, speaker) if fact.attribute != "home" or not _is_technical(fact.value)]
    found += [replace(fact, holds=False) for fact in _matched(_GONE, sentence, speaker)]
    for frame, attribute in ((_TASTE, "taste"), (_STATE, "being")):
        for match in frame.finditer(sentence):
            subject = _subject(match["s"], speaker)
            if subject is not None:
                found.append(Fact(subject, attribute, match["v"].strip(), not match["no"], _without(sentence, match)))
    return found


def _chinese_facts(sentence: str, speaker: str | None) -> list[Fact]:
    if _UNSURE_ZH.search(sentence):
        return []
    found = [fact for fact in _matched(_ZH, sentence, speaker) if _names_a_place(fact)]
    found += [replace(fact, holds=False) for fact in _matched(_ZH_GONE, sentence, speaker) if _names_a_place(fact)]
    for match in _ZH_TASTE.finditer(sentence):
        subject = _subject(match["s"], speaker)
        if subject is not None:
            found.append(Fact(subject, "taste", match["v"], not match["no"], _without(sentence, match)))
    for match in _ZH_ALLERGY.finditer(sentence):
        subject = _subject(match["s"], speaker)
        if subject is not None:
            found.append(Fact(subject, "being", f"对{match['v']}过敏", not match["no"], _without(sentence, match)))
    return found


def _without(sentence: str, match: re.Match[str]) -> str:
    return sentence[: match.start()] + " … " + sentence[match.end() :]


def _is_technical(value: str) -> bool:
    """Whether somebody "moved to" a tool, not to a place."""
    return bool(_TECHNICAL & set(topics(value)))


def _names_a_place(fact: Fact) -> bool:
    """Whether a Chinese home is a place name, and an employer a noun, by the tagger; others pass."""
    if fact.attribute not in ("home", "employer"):
        return True
    import rjieba

    if fact.value in _NO_PLACES:
        return False
    tags = [tag for _, tag in rjieba.tag(fact.value)]
    return any(tag.startswith(_PLACE_TAGS) for tag in tags) if fact.attribute == "home" else tags[-1].startswith("n")


def replacement(new: Sequence[Fact], old: Sequence[Fact]) -> tuple[Fact, Fact] | None:
    """The first new fact that cannot hold together with an old one, and that old one."""
    for fresh in new:
        for stale in old:
            if (fresh.subject, fresh.attribute) == (stale.subject, stale.attribute) and _replaces(fresh, stale):
                return fresh, stale
    return None


def _replaces(fresh: Fact, stale: Fact) -> bool:
    mine, other = set(terms(fresh.value)), set(terms(stale.value))
    if not mine or not other:
        return False
    if ("without" in fresh.value) != ("without" in stale.value):
        return False
    same = mine <= other or other <= mine
    if (fresh.holds is None) != (stale.holds is None):  # a home, and that it is none
        return mine == other
    if fresh.holds is None:
        return not same and fresh.value.casefold() != stale.value.casefold()
    return fresh.holds != stale.holds and (mine == other or len(mine & other) * 3 >= 2 * len(mine | other))


_PASSING = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|this|that|last|next|ago|o'clock)\b|[昨今明前后]天|[昨今明]晚|这|那|上周|下周|刚才",
    re.IGNORECASE,
)


def _is_passing(text: str) -> bool:
    """Whether a text asks, supposes, or speaks of one day or thing, so that its opposite may hold too."""
    part = text[:_READ].replace("’", "'").strip()
    return bool(_UNSURE_EN.search(part) or _UNSURE_ZH.search(part) or _PASSING.search(part) or re.search(r"\b[Uu]nless\b", part))


def opposed(first: str, second: str) -> bool:
    """Whether two texts use the same words, at least two, and one of them denies."""
    if denies(first) == denies(second) or any(_is_passing(text) for text in (first, second)):
        return False
    mine, other = set(terms(without_denials(first[:_READ]))), set(terms(without_denials(second[:_READ])))
    shared = mine & other
    return len(shared) >= 2 and len(shared) * 5 >= 4 * len(mine | other)
