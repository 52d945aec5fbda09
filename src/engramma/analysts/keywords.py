"""Keywords of one short text, by libraries.

English: YAKE (Campos et al. 2020) in the MIT-licensed Rust port ``yake-rust``; the original package
is GPL. Chinese: the words that rjieba's tagger calls names, nouns, foreign words and full verbs.
Chosen on the sample diary: yake-rust takes 0.1 ms a note and keeps phrases ("CSRF token"); RAKE
(rake-nltk) gives the same phrases after 0.85 s of import; TextRank (summa) finds one word or none
in a sentence; jieba's TF-IDF gives English function words.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from engramma.words import STOP_EN, is_chinese, is_stop, terms

MOST = 6
_READ = 4000  # characters: a keyword that only comes later is found by words all the same
_PLAIN = frozenset(
    """yesterday today tomorrow morning evening night week month year day time thing things lot lots bit kind way
    good great nice really actually maybe also still get got make made take took go went going come came know think
    want see look one two three first last next new old much many well back since exactly soon awesome cool thanks
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december 昨天 今天 明天 现在 时间 东西 事情 知道 觉得 开始 一起 可能 出来 起来 没有 一下 有点 比较 今年 去年 一共 太多
    顺便去 想带 上人 坐船去 出来 每天 每周 一次 晚上 早上 最近 全是 需要 进行 使用 成为 two three four five six seven eight
    nine ten half page people live lives living move moved fail fails failed build built start starts started open opened
    told tell ask asked show shows shown reached reach signed talk talked speak feel felt use used call called need needed try tried
    said add added change changed set put let keep kept became become happened help helped like likes love loves hate hates enjoy prefer good morning afternoon night hello thank happy glad sorry sure
    definitely wait bye congrats congratulations excited worth matter matters amazing proud yay haha whoa gonna wanna gotta btw pic
    appreciate cheer cheers absolutely totally agree guess bet mean means luck wish hope fun nice lovely wonderful fantastic
    everyone someone something anything everything nothing always never sometimes""".split()
)
_NOUNS = ("n", "nr", "ns", "nt", "nz", "vn", "eng", "l", "i", "j", "an")
_VERBS = ("v",)


@cache
def _yake() -> Any:
    import yake_rust

    return yake_rust.Yake(language="en", ngrams=2, deduplication_threshold=0.7)


@lru_cache(maxsize=4096)
def keywords(text: str, most: int = MOST) -> tuple[str, ...]:
    """Up to ``most`` keywords, the most telling first."""
    part = text[:_READ].replace("\0", " ")
    found = _chinese(part) if is_chinese(part) else _english(part)
    return _distinct(found, most)


def _english(text: str) -> list[str]:
    ranked = [word for word, _ in _yake().get_n_best(text, n=4 * MOST)]
    return [word for word in ranked if _telling(word)]


_VERB = re.compile(
    r"^(?:love|hate|like|told|lent|says?|said|makes?|writes?|talks?|shows?|works?|arrives?|counts?|needed|keeps?|runs?"
    r"|fails?|crashes|wearing|takes?|gets?|gives?|comes?|goes)$|ed$"
)


def is_plain(word: str) -> bool:
    """Whether a word is too common to say what a note is about: a number, a day, "thing"."""
    return word in _PLAIN or word.isdigit()


def _telling(phrase: str) -> bool:
    words = [word.casefold().strip("'’.,") for word in phrase.split()]
    if len(words) > 1 and any(_VERB.search(word) for word in words):
        return False  # "page fails": a subject with its verb, not a name for anything
    return all(len(word) > 1 and word not in _PLAIN and word not in STOP_EN for word in words) and not all(
        word.isdigit() for word in words
    )


def _chinese(text: str) -> list[str]:
    import rjieba

    tagged = [(word.strip(), tag) for word, tag in rjieba.tag(text)]
    kept = [(word, tag) for word, tag in tagged if len(word) > 1 and not is_stop(word) and word not in _PLAIN]
    nouns = [word for word, tag in kept if tag in _NOUNS]
    return nouns + [word for word, tag in kept if tag in _VERBS]


def _distinct(ranked: list[str], most: int) -> tuple[str, ...]:
    """The first ``most``, a single word left out where a phrase before it holds it."""
    chosen: list[str] = []
    seen: set[str] = set()
    for phrase in ranked:
        stems = set(terms(phrase))
        if stems and not stems <= seen:
            chosen.append(phrase)
            seen |= stems
        if len(chosen) == most:
            break
    return tuple(chosen)
