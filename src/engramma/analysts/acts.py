"""What a note does: report a problem, a fix, a decision, a plan, a taste, ask, or tell."""

from __future__ import annotations

import re
from functools import lru_cache

_CUES: tuple[tuple[str, str], ...] = (
    ("question", r"[?？]\s*$"),
    ("solution", r"\b(?:fixed|solved|resolved|repaired|the fix (?:is|was)|works now|work(?:ed)? around)\b|修好|修复|解决了|解决：|搞定"),
    ("problem", r"\b(?:fails?|failed|failing|crash(?:es|ed)?|bugs?|errors?|broken|doesn't work|does not work|exception|timed? ?out)\b"
                r"|报错|出错|坏了|失败|崩溃|故障|异常"),
    ("decision", r"\b(?:decided|we agreed|agreed (?:on|to)|we chose|chose to|decision)\b|决定|商定|选定|定了"),
    ("preference", r"\b(?:love|loves|(?<!look )(?<!looks )(?<!feels )(?<!sounds )(?<!seems )like|likes|prefer|prefers|hate|hates|dislike|dislikes|favou?rite|can't stand)\b"
                   r"|喜欢|讨厌|最爱|不爱|受不了"),
    ("plan", r"\b(?:plan(?:s|ning)? to|going to|(?<!the )(?<!The )will|next (?:week|month|year)|want to|hope to)\b"
             r"|打算|准备|计划|下周|下个月|明年|想要|暑假想"),
)  # fmt: skip
_COMPILED = tuple((act, re.compile(pattern, re.IGNORECASE)) for act, pattern in _CUES)
_IMPORTANT = re.compile(
    r"\b(?:allerg\w*|remember|(?<!not )important|never forget|must not|emergency|password|deadline|passport|diagnos\w*)\b"
    r"|过敏|记住|(?<!不)重要|千万|紧急|密码|截止|确诊",
    re.IGNORECASE,
)

SENTENCES = {
    "question": ("{who} asks{about}", "{who}问{about}的事"),
    "solution": ("{who} reports a fix{about}", "{who}说解决了{about}的问题"),
    "problem": ("{who} reports a problem{about}", "{who}说遇到了{about}的问题"),
    "decision": ("{who} states a decision{about}", "{who}说了关于{about}的决定"),
    "preference": ("{who} says what they like or not{about}", "{who}谈对{about}的喜好"),
    "plan": ("{who} speaks of a plan{about}", "{who}谈{about}的打算"),
    "fact": ("{who} speaks{about}", "{who}谈{about}的事"),
}


@lru_cache(maxsize=4096)
def act(text: str) -> str:
    """One of question, solution, problem, decision, preference, plan, fact."""
    part = text[:4000].strip()
    return next((name for name, cue in _COMPILED if cue.search(part)), "fact")


def importance(text: str, name: str, content_terms: int) -> int:
    """1 to 5: 4 for what must not be forgotten and decisions, 2 for small talk, else 3."""
    if _IMPORTANT.search(text[:4000]) or name == "decision":
        return 4
    return 2 if content_terms < 3 else 3
