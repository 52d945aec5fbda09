"""Tags from a lexicon of topics: what a person would file a note under.

``topics.toml`` beside this module holds the topics, their words in English and Chinese, and the tag
in each language. A topic counts the distinct words of a note that it lists.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from engramma.words import is_chinese, stem, terms

MOST = 3


@cache
def _lexicon() -> tuple[dict[str, list[int]], list[tuple[str, str]]]:
    """Topics by term, and each topic's English and Chinese name."""
    data = tomllib.loads((files("engramma.analysts") / "topics.toml").read_text("utf-8"))
    topics_of: dict[str, list[int]] = {}
    for number, topic in enumerate(data["topic"]):
        for word in {stem(word) for word in topic["en_words"]} | set(topic["zh_words"]):
            topics_of.setdefault(word, []).append(number)
    return topics_of, [(topic["name"], topic["zh"]) for topic in data["topic"]]


@cache
def _asked() -> dict[str, set[int]]:
    """Topics by the words that point to them in a question."""
    data = tomllib.loads((files("engramma.analysts") / "topics.toml").read_text("utf-8"))
    found: dict[str, set[int]] = {}
    for number, topic in enumerate(data["topic"]):
        for word in topic.get("asks", ()):
            found.setdefault(stem(word), set()).add(number)
    return found


def asked_tags(words: Iterable[str]) -> tuple[str, ...]:
    """The tags, in both languages, of the topics that a question's terms point to."""
    topics_of, names = _lexicon()
    numbers = {number for word in words for number in (*topics_of.get(word, ()), *_asked().get(word, ()))}
    return tuple(name for number in sorted(numbers) for name in names[number])


def tag_name(topic: str, chinese: bool) -> str:
    """A topic's tag in the language wanted."""
    return translations()[topic] if chinese else topic


def topics(text: str, most: int = MOST) -> tuple[str, ...]:
    """Up to ``most`` tags, the best supported first, in the language of the text."""
    topics_of, names = _lexicon()
    counts: Counter[int] = Counter()
    for term in dict.fromkeys(terms(text[:20_000])):
        for number in topics_of.get(term, ()):
            counts[number] += 1
    best = counts.most_common(1)[0][1] if counts else 0
    ranked = [number for number, count in counts.most_common(most) if count * 2 >= best]
    return tuple(names[number][is_chinese(text)] for number in ranked)


@cache
def translations() -> dict[str, str]:
    """Each tag of the lexicon in the other language."""
    _, names = _lexicon()
    return {zh: en for en, zh in names} | dict(names)
