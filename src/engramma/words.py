"""Text to words: what the lexical index, the rule analyst and the questions share.

Segmentation (rjieba) and stemming (PyStemmer, Snowball English) are libraries'; both load with the
first text that needs them. A *term* is a stem or a Chinese word, case-folded, stop words left out.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_HAN = re.compile(f"[{_CJK}]")
_TOKEN = re.compile(rf"[{_CJK}]+|\d+(?:[.,:/\-]\d+)+|[^\W{_CJK}]+(?:['’][^\W\d_{_CJK}]+)?")

# Closed-class words: they carry grammar, not content.
STOP_EN = frozenset(
    """a about above after again all also am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for from
    further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself him himself his
    how how's i i'd i'll i'm i've if in into is isn't it it's its itself just let's me more most my myself no nor not
    of off on once only or other ought our ours ourselves out over own same shan't she she'd she'll she's should
    shouldn't so some such than that that's the their theirs them themselves then there there's these they they'd
    they'll they're they've this those through to too under until up very was wasn't we we'd we'll we're we've were
    weren't what what's when when's where where's which while who who's whom why why's will with won't would wouldn't
    you you'd you'll you're you've your yours yourself yourselves s t re ve ll d m may might must shall oh hey hi
    yeah yes ok okay wow please now""".split()
)
STOP_ZH = frozenset(
    """的 了 和 是 就 都 而 及 与 着 或 一个 一 没有 我们 你们 他们 她们 它们 我 你 您 他 她 它 自己 这 那 这个 那个 这些
    那些 这里 那里 在 于 从 到 对 把 被 让 给 向 以 为 因为 所以 但 但是 如果 虽然 然后 而且 也 又 还 很 太 更 最 不 没 吗 呢 吧
    啊 呀 哦 嗯 哪 谁 什么 怎么 怎样 怎么样 为什么 多少 几 哪里 哪儿 哪个 哪些 哪天 时候 什么时候 会 能 可以 要 想 有 个 之 其
    上 下 中 里 去 来 说 得 地 过 吗 请 问 请问 些 每 各 该 此 并 等 以及 只 才 再 已 已经 曾 曾经 是不是 有没有 是否
    现在 目前""".split()
)

# Everyday words: they carry content, but little. Written down by us; a space of a few notes cannot count them yet.
COMMON_EN = frozenset(
    """able across add ago allow almost already always another answer anything around ask away back bad become begin
    best better big bit bring build call came care case change check choose come complete consider current day
    decide different done easy end enough even ever every everything example explain fact far feel felt few figure find
    fine first follow found full fun gave get give go going gone good got great guess hand handle happen hard hear help
    high hold hope however idea important instead issue keep kind knew know large last late later learn least leave
    left less let like line list little long look lot love made main make many matter maybe mean mention mind minute
    moment month morning move much need never new next nice night nothing number often old one open option order other
    part pattern people perhaps person pick place plan play point possible prefer pretty problem put question quick
    quite rather read ready real really reason recent remember rest right run said same say see seem seen sense set
    several share should show side similar since small somebody someone something sometimes soon sort sound special
    start state stay still stop story stuff such suggest support sure take talk tell thank thing think though
    thought thousand three time today together told tomorrow took toward tried true try turn two type understand
    until upon use used using usual very view wait walk want watch way week well went whatever whether whole without
    wonder word work world worth would write year yesterday yet""".split()
)
COMMON_ZH = frozenset(
    """今天 明天 昨天 觉得 知道 看 看到 喜欢 东西 事 事情 人 大家 朋友 问题 开始 需要 应该 可能 一下 一些 一点 一直 一起 一样
    一次 这样 那样 这么 那么 特别 非常 真的 其实 还是 或者 比较 时间 地方 好 好的 新 大 小 多 少 做 用 找 买 吃 走 回 打 拿 放 给
    叫 让 带 天 年 月 星期 次 家 现在 以前 以后 后来 最近 第一 别人 方法 办法 情况 部分 样子 感觉 希望 准备 发现 决定
    继续 介绍 解释 告诉 记得 工作""".split()
)


def is_chinese(text: str) -> bool:
    """Whether the text reads as Chinese: at least a fifth of its letters are Han characters."""
    han = len(_HAN.findall(text[:4000]))
    return han > 0 and han * 5 >= sum(char.isalpha() for char in text[:4000])


@cache
def _stemmer() -> object:
    import Stemmer

    return Stemmer.Stemmer("english", 50_000)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The Snowball stem of one case-folded word; words outside ASCII come back as they are."""
    return str(_stemmer().stemWord(word)) if word.isascii() else word  # type: ignore[attr-defined]


def segment(text: str) -> list[str]:
    """Chinese words of a run of Han characters, overlapping finer words included."""
    import rjieba

    return list(rjieba.cut_for_search(text))


def tokens(text: str) -> Iterator[str]:
    """The words of a text in order, case-folded and unstemmed, stop words included."""
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        token = match.group().casefold().replace("’", "'")
        if _HAN.match(token):
            yield from segment(token)
            continue
        yield token
        if "_" in token:
            yield from filter(None, token.split("_"))


def has_han(text: str) -> bool:
    """Whether a text holds a Han character."""
    return _HAN.search(text) is not None


def is_stop(token: str) -> bool:
    """Whether a token carries grammar rather than content."""
    return token in STOP_EN or token in STOP_ZH


@cache
def _common_terms() -> frozenset[str]:
    return frozenset(term_of(word) for word in COMMON_EN) | COMMON_ZH


def is_common(term: str) -> bool:
    """Whether an index term is an everyday word, which tells little in any memory."""
    return term in _common_terms()


_SLIP = 4  # letters that a word has at least to be looked for under another spelling
_LONG_SLIP = 7  # from here on a wrong letter is a slip too; in a short word it makes another word, "lane" of "lake"


def looks_like(typed: str, word: str) -> bool:
    """Whether one stem is a slip of the keyboard away from another: a letter doubled, swapped with the
    next one, dropped or added, or, in a long one, a wrong one. Both begin with the same letter.

    The shorter a stem, the fewer slips are believed: "compon" and "compos" are two words.
    """
    from rapidfuzz.distance import OSA

    size = max(len(typed), len(word))
    if size < _SLIP or not (typed.isalpha() and typed.isascii() and word.isalpha()) or typed[0] != word[0]:
        return False
    if _undoubled(typed) == _undoubled(word):
        return True
    if OSA.distance(typed, word, score_cutoff=1) != 1:
        return False
    if sorted(typed) == sorted(word):
        return size > _SLIP
    return size >= (_LONG_SLIP if len(typed) == len(word) else _LONG_SLIP - 1)


def _undoubled(word: str) -> str:
    return re.sub(r"(.)\1+", r"\1", word)


def bare(token: str) -> str:
    """A token without its possessive ending."""
    return token.removesuffix("'s")


def term_of(token: str) -> str:
    """The index term of one token: possessive off, stemmed."""
    return stem(bare(token))


_CACHED = 2000  # characters up to which a text's terms are kept: a turn is compared many times


def terms(text: str) -> Sequence[str]:
    """The index terms of a text in order, with repeats: stems and Chinese words, no stop words."""
    return _kept_terms(text) if len(text) <= _CACHED else _terms(text)


def _terms(text: str) -> tuple[str, ...]:
    return tuple(term_of(token) for token in tokens(text) if not is_stop(token) and token.strip("_"))


_kept_terms = lru_cache(maxsize=4096)(_terms)


_NOT = re.compile(r"\b(?:not(?! only)|never|no longer|cannot|without)\b|n't\b|不(?!错|仅|但|过|久)|没|未(?!来)", re.IGNORECASE)


def without_denials(text: str) -> str:
    """A text without its words of negation."""
    return _NOT.sub(" ", text)


def denies(text: str) -> bool:
    """Whether a text says that something is not so: an odd number of negations in its first 4,000 characters."""
    return len(_NOT.findall(text[:4000].replace("’", "'"))) % 2 == 1


_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, split at end marks and line breaks, white space trimmed."""
    return [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]


def pieces(text: str, *, most: int = 8, size: int = 900) -> list[str]:
    """A text cut for an embedder: itself, or up to ``most`` pieces of about ``size`` characters.

    Han characters weigh three, since a piece of them holds more. Of a text with more pieces than
    ``most``, the first half of the pieces and an even sample of the rest, the last one always
    among them, are kept: words still find what lies between.
    """
    text = text.replace("\0", " ")
    weight = size // 3 if is_chinese(text) else size
    if len(text) <= weight * 3 // 2:
        return [text]
    cuts = [text[start : start + weight] for start in range(0, len(text), weight)]
    if len(cuts) <= most:
        return cuts
    head = most // 2
    step = (len(cuts) - 1 - head) / (most - head - 1)
    return cuts[:head] + [cuts[round(head + step * i)] for i in range(most - head)]


def excerpt(text: str, length: int = 60) -> str:
    """The beginning of a text on one line, for reasons and logs."""
    line = " ".join(text[: length * 4].split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
