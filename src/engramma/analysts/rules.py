"""The analyst that needs no model: deterministic, English and Chinese, a few milliseconds a note."""

from __future__ import annotations

from collections.abc import Sequence

from engramma.analysts import acts
from engramma.analysts.base import Page
from engramma.analysts.facts import facts
from engramma.analysts.keywords import keywords
from engramma.analysts.linking import decide_links, restated
from engramma.analysts.topics import tag_name, topics
from engramma.dates import said_dates
from engramma.note import Draft, LinkProposal, Neighbour, NeighbourChange, Note, NoteId, Reading, unique
from engramma.words import is_chinese, terms

_NAMED = 3  # keywords in the one-sentence context


class RuleAnalyst:
    """Reads by statistics, word lists and sentence frames. Same text and neighbours, same reading."""

    name = "analyst:rules"
    batch = 1
    slow = False

    def read(self, pages: Sequence[Page]) -> list[Reading]:
        """One reading a page; never fails."""
        return [read_page(page) for page in pages]


def describe(draft: Draft) -> Reading:
    """What the draft says of itself (the paper's K, G and X): nothing about other notes."""
    name = acts.act(draft.content)
    words = keywords(draft.content)
    tags = unique(_fact_tags(draft), topics(draft.content))
    weight = acts.importance(draft.content, name, len(set(terms(draft.content[:4000]))))
    context = _context(draft, name, unique(draft.keywords, words), unique(draft.tags, tags))
    return Reading(words, tags, context, name, weight, said_dates(draft.content[:20_000], draft.at))


_TAG_OF = {"home": "home", "employer": "job", "job": "job"}


def _fact_tags(draft: Draft) -> tuple[str, ...]:
    """The topics of the plain facts that a draft states."""
    found = [_TAG_OF[fact.attribute] for fact in facts(draft.content, draft.speaker) if fact.attribute in _TAG_OF]
    return tuple(tag_name(topic, is_chinese(draft.content)) for topic in dict.fromkeys(found))


def _context(draft: Draft, name: str, words: Sequence[str], tags: Sequence[str]) -> str:
    """One sentence: who does what, about which topics, naming which things."""
    chinese = is_chinese(draft.content)
    who = draft.speaker or ("有人" if chinese else "Someone")
    named = list(words[:_NAMED])
    if chinese:
        sentence = acts.SENTENCES[name][1].format(who=who, about="和".join(tags[:2]) or "日常")
        return sentence + (f"：{'、'.join(named)}" if named else "") + "。"
    about = f" about {' and '.join(tags[:2])}" if tags else ""
    about += f": {', '.join(named)}" if named else ""
    return acts.SENTENCES[name][0].format(who=who, about=about) + "."


def read_page(page: Page) -> Reading:
    """The whole reading: the draft's description, its links, and what they change in neighbours."""
    own = describe(page.draft)
    twin = restated(page)
    links = decide_links(page)
    changes = evolve(page, links, own)
    return Reading(own.keywords, own.tags, own.context, own.category, own.importance, own.dates, links, changes,
                   duplicate_of=twin.note.id if twin else None)  # fmt: skip


def evolve(page: Page, links: Sequence[LinkProposal], own: Reading) -> tuple[NeighbourChange, ...]:
    """What the new note changes in the notes that it is linked to (memory evolution, paper 3.3)."""
    notes = {neighbour.note.id: neighbour for neighbour in page.neighbours}
    related = [link.target for link in links if link.kind in ("related", "solves")]
    changes = [_evolved(page, link, notes[link.target], own, related) for link in links]
    return tuple(change for change in changes if change is not None)


def _evolved(
    page: Page, link: LinkProposal, neighbour: Neighbour, own: Reading, related: Sequence[NoteId]
) -> NeighbourChange | None:
    note, day = neighbour.note, f"{page.draft.at:%Y-%m-%d}"
    chinese = is_chinese(note.content)
    match link.kind:
        case "solves":
            said = f"{day} 已解决：{link.reason}" if chinese else f"Solved on {day}: {link.reason}"
            tag = "已解决" if chinese else "solved"
            return NeighbourChange(note.id, link.reason, _extended(note, said), add_tags=(tag,))
        case "supersedes" | "updates" if not link.inward:
            said = f"{day} 起不再成立：{link.reason}" if chinese else f"Replaced on {day}: {link.reason}"
            return NeighbourChange(note.id, link.reason, _extended(note, said))
        case "same_as":
            said = f"{day} 又说了一遍。" if chinese else f"Said again on {day}."
            return NeighbourChange(note.id, link.reason, _extended(note, said))
        case "related":
            return _enriched(note, neighbour, own, link, related)
        case _:
            return None


def _extended(note: Note, sentence: str) -> str:
    """The context with one more sentence, kept to a few: the first, and the latest."""
    end = "。" if is_chinese(note.content) else "."
    sentence = sentence if sentence.endswith(("。", ".")) else sentence + end
    first, *later = note.context.split("\n") if note.context else [""]
    kept = [first, *later[-2:], sentence] if first else [*later[-2:], sentence]
    return "\n".join(kept)


def _enriched(
    note: Note, neighbour: Neighbour, own: Reading, link: LinkProposal, related: Sequence[NoteId]
) -> NeighbourChange | None:
    """A topic that the neighbour lacks, and more strength for links that the new note confirms."""
    lacking = own.tags[:1] if not note.tags and neighbour.likeness >= 0.5 else ()
    confirmed = {other.other(note.id): 0.1 for other in note.links
                 if other.kind == "related" and other.other(note.id) in related and other.strength < 0.95}  # fmt: skip
    if not lacking and not confirmed:
        return None
    return NeighbourChange(note.id, link.reason, add_tags=tuple(lacking), strengthen=confirmed)
