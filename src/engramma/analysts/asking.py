"""What asks instead of telling, in English and Chinese: of notes that only ask, a prompt has nothing."""

from __future__ import annotations

import re

from engramma.words import sentences

# What asks instead of telling. English often drops the question mark, so the order of words counts: "where do I live"
# asks, "where I live" tells. 什么都, 谁也 are no questions.
_WHO = "(?:i|you|we|he|she|it|they|my|your|our|there|anyone|somebody|someone)"
_DOES = "(?:do|does|did|is|are|am|was|were|can|could|will|would|should|have|has|may|might)(?:n['’]?t)?"
_ASKS = "what|who|whom|whose|where|when|why|which|how"
_ASKED_EN = (
    rf"^(?:(?:and|so|but|or|ok|okay|hey|hi|hello|well|then|also|btw|please)\W+)*(?:{_DOES}\s+{_WHO}\b"
    rf"|(?:{_ASKS})(?:['’]?s\s+(?:my|your|our)\b|(?:\s+(?!{_WHO}\b)\w+){{0,3}}?\s+{_DOES}\s+{_WHO}\b))",
    rf"\b(?:(?:tell|remind|show) me|you know|to know|i wonder|i forgot|guess)\s+(?:\w+\s+)?(?:{_ASKS}|if|whether)\b",
    r"\byou (?:still |even |also )?(?:remember|recall)\b",
)
_WH_ZH = r"(?:什[么麼]|啥|[谁誰]|哪[儿兒里裡个個天]?|怎[么麼])(?!.{0,2}[都也])|多少|为何|為何|[几幾][岁歲点點个個月号號]"
_ASKED_ZH = (_WH_ZH, r"[吗嗎呢][。！\s]*$", r"是不是|有[没沒]有|是否|[记記]不[记記]得")
_ASKED = re.compile("|".join((r"[?？]\s*$", *_ASKED_EN, *_ASKED_ZH)), re.IGNORECASE)
_ORDERED = re.compile(
    r"^\W*(?:please\W+)?(?:(?:can|could|will|would) you\W+(?:please\W+)?)?"
    r"(?:remember\W+(?:that|this|to|i|i['’]m|my\b.*\b(?:is|are))\b|don['’]?t forget\b|keep in mind\b|note that\b|call me\b)"
    r"|^[请請]?(?:务必|一定要?|你要|[帮幫]我)*(?:[记記]住|[记記]一下|[别別]忘)(?!了?[吗嗎没沒])"
    rf"|^(?!.*(?:{_WH_ZH})).*(?:能|可以|麻[烦煩])(?:[你您])?(?:[帮幫]我)?(?:[记記]住|[记記]一下|[记記]得)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，;；、]")


def asks(sentence: str) -> bool:
    """Whether a sentence, or a clause, asks."""
    return bool(_ASKED.search(sentence.strip()))


def told(sentence: str) -> list[str]:
    """The clauses of a sentence that tell or order, and the whole of it where none asks."""
    clauses = [part.strip() for part in _CLAUSE.split(sentence)]
    told = [part for part in clauses if not _ASKED.search(part) or _ORDERED.search(part)]
    return [*told, sentence] if len(told) == len(clauses) else told


def only_asks(text: str) -> bool:
    """Whether every clause of a text asks: "I eat no nuts, what may I order?" tells something too."""
    parts = sentences(text)
    return bool(parts) and not any(told(part) for part in parts)
