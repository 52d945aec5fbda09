"""Where the rule analyst decides which notes are linked, how, and why: ``decide_links``.

For each neighbour the first rule that applies decides, from the strictest to the loosest:

    the same text              same_as      (and the draft is a restatement of it)
    a fact that replaces one   supersedes   the newer by ``at`` supersedes the older
                               updates      where the older one tells other things too: it stays in sight
    a fix for a problem        solves
    nearly the same words      same_as
    words or meaning shared    related
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from engramma.analysts.acts import act
from engramma.analysts.base import Page
from engramma.analysts.facts import Fact, facts, opposed, replacement, says_more
from engramma.analysts.keywords import is_plain, keywords
from engramma.note import ASSISTANT, LinkProposal, Neighbour, Note, unique
from engramma.words import denies, excerpt, is_chinese, term_of, terms

MOST_LINKS = 5
_ALIKE = 0.85  # share of words in common for "nearly the same words"
_NEAR = 0.52  # likeness that links notes with one rare keyword in common
_SOMEWHAT = 0.40  # likeness that links notes with two rare words in common, one of them a keyword
_HUB = 24  # related links after which a note is left alone
_CLOSE = 0.80  # likeness that links notes with none


@lru_cache(maxsize=4096)
def normal(text: str) -> str:
    """A text without case, punctuation and spacing: what makes two sayings the same."""
    expanded = text.casefold().replace("’", "'").replace("i'm", "i am").replace("it's", "it is").replace("i've", "i have")
    return re.sub(r"[\W_]+", " ", expanded).strip() or text.strip()  # of emoji, themselves


def restated(page: Page) -> Neighbour | None:
    """The neighbour that says exactly this already, by the same speaker; not for small talk."""
    draft = page.draft
    if len(set(terms(draft.content[:2000]))) < 2:
        return None
    text = normal(draft.content)
    return next((n for n in page.neighbours if _same_speaker(page, n) and normal(n.note.content) == text), None)


def _same_speaker(page: Page, neighbour: Neighbour) -> bool:
    return (page.draft.speaker or "").casefold() == (neighbour.note.speaker or "").casefold()


def decide_links(page: Page) -> tuple[LinkProposal, ...]:
    """The links between a draft and its neighbours, strongest first, at most five."""
    rules = (_same_text, _replaced_fact, _fix, _nearly_same, _related)
    new_facts = facts(page.draft.content, page.draft.speaker)
    proposals = [link for n in page.neighbours if (link := _first(rules, page, n, new_facts)) is not None]
    firm = [link for link in proposals if link.kind != "related"]
    loose = sorted((link for link in proposals if link.kind == "related"), key=lambda link: -link.strength)
    return tuple((firm + loose)[: max(MOST_LINKS, len(firm))])


Rule = Callable[[Page, Neighbour, Sequence[Fact]], LinkProposal | None]


def _first(rules: Sequence[Rule], page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    return next((link for rule in rules if (link := rule(page, neighbour, new_facts)) is not None), None)


def _say(page: Page, english: str, chinese: str) -> str:
    return chinese if is_chinese(page.draft.content) else english


def _same_text(page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    if not _same_speaker(page, neighbour) or normal(neighbour.note.content) != normal(page.draft.content):
        return None
    return LinkProposal(neighbour.note.id, "same_as", _say(page, "says the same again", "又说了一遍同样的话"), 1.0)


def _replaced_fact(page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    old = neighbour.note
    pair = replacement(new_facts, facts(old.content, old.speaker)) if new_facts else None
    if pair is None and not (_same_speaker(page, neighbour) and opposed(page.draft.content, old.content)):
        return None
    told, answered = page.draft.speaker != ASSISTANT, old.speaker == ASSISTANT
    if not told and not answered and old.valid_until is not None:
        return None
    inward = page.draft.at < old.at if told != answered else not told  # what a user says holds against any answer
    newer, older = (page.draft.content, old.content) if not inward else (old.content, page.draft.content)
    kind = "supersedes" if pair is None or not _outlives(page, old, pair, inward) else "updates"
    if pair is not None and pair[0].holds is None:
        now, then = (pair[0].value, pair[1].value) if not inward else (pair[1].value, pair[0].value)
        reason = _say(page, f"{pair[0].attribute} was {then}, is now {now}", f"{_zh(pair[0].attribute)}原来是{then}，现在是{now}")
    else:
        says = (excerpt(newer, 50), excerpt(older, 50))
        reason = _say(page, f'now says "{says[0]}", before: "{says[1]}"', f"现在说“{says[0]}”，以前说“{says[1]}”")
    return LinkProposal(old.id, kind, reason, 0.95, inward)


def _outlives(page: Page, old: Note, pair: tuple[Fact, Fact], inward: bool) -> bool:
    """Whether the note whose fact is replaced tells other things too, so that it must stay in sight; an answer of an
    assistant must not."""
    speaker, fact = (page.draft.speaker, pair[0]) if inward else (old.speaker, pair[1])
    return speaker != ASSISTANT and says_more(fact)


_ZH_ATTRIBUTES = {"home": "住处", "employer": "工作单位", "job": "职业", "name": "名字"}


def _zh(attribute: str) -> str:
    for english, chinese in (("favourite ", "最喜欢的"), ("date of ", "日期：")):
        if attribute.startswith(english):
            return chinese + attribute.removeprefix(english)
    return _ZH_ATTRIBUTES.get(attribute, attribute)


def _fix(page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    if act(page.draft.content) != "solution" or act(neighbour.note.content) != "problem":
        return None
    if len(neighbour.shared) < 2 or neighbour.likeness < _SOMEWHAT:
        return None
    words = ", ".join(neighbour.shared[:4])
    return LinkProposal(
        neighbour.note.id, "solves", _say(page, f"reports the fix: both name {words}", f"说明已解决，都提到{words}"), 0.9
    )


def _nearly_same(page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    draft, note = page.draft, neighbour.note
    mine, other = set(terms(draft.content[:4000])), set(terms(note.content[:4000]))
    alike = len(mine & other) / max(1, len(mine | other))
    if len(mine) < 3 or alike < _ALIKE or _numbers(draft.content) != _numbers(note.content):
        return None
    if not _same_speaker(page, neighbour) or denies(draft.content) != denies(note.content):
        return None
    return LinkProposal(note.id, "same_as", _say(page, "says nearly the same", "说法几乎相同"), round(alike, 2))


def _numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text[:4000]))


def _central(page: Page, neighbour: Neighbour) -> set[str]:
    """The terms that are keywords of both notes: what they are about, not what they happen to say."""
    mine = unique(page.draft.keywords, keywords(page.draft.content))
    return set(terms(" ".join(mine))) & set(terms(" ".join(neighbour.note.keywords)))


def _is_hub(neighbour: Neighbour) -> bool:
    """Whether a note has so many related ones that one more would say nothing, and slow each add."""
    return sum(link.kind == "related" for link in neighbour.note.links) >= _HUB


def _related(page: Page, neighbour: Neighbour, new_facts: Sequence[Fact]) -> LinkProposal | None:
    shared, likeness = [word for word in neighbour.shared if not is_plain(word)], neighbour.likeness
    central = _central(page, neighbour)
    named = sum(term_of(word) in central for word in shared)
    enough = named > 0 and ((len(shared) >= 2 and likeness >= _SOMEWHAT) or likeness >= _NEAR)
    telling = len(set(terms(page.draft.content[:2000]))) >= 3  # "I like tea" is near "I like coffee", and says no more
    if not (enough or (telling and likeness >= _CLOSE)) or _is_hub(neighbour):
        return None
    strength = round(min(0.9, 0.6 * likeness + 0.1 * min(len(shared), 4)), 2)
    words = ", ".join(shared[:4])
    english = f"both speak of {words}" if words else "both are about the same thing"
    chinese = f"都提到{words.replace(', ', '、')}" if words else "说的是同一件事"
    return LinkProposal(neighbour.note.id, "related", _say(page, english, chinese), strength)
