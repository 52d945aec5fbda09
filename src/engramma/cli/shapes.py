"""The JSON of hits, commits and revisions, where it is more than their fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from engramma.cli.screen import plain

if TYPE_CHECKING:
    from engramma.commit import Change, Commit
    from engramma.note import Hit
    from engramma.recall import Hits
    from engramma.store import Revision


def hits_json(query: str, hits: Hits) -> dict[str, Any]:
    """A search: the question, the hits in order, why there are none."""
    return {"query": query, "hits": [hit_json(hit) for hit in hits], "declined": hits.declined}


def hit_json(hit: Hit) -> dict[str, Any]:
    """A hit with its evidence, in numbers and in words."""
    why = plain(hit.why) | {"direct": hit.why.direct, "text": str(hit.why)}
    return {"score": hit.score, "why": why, "note": plain(hit.note)}


def commit_json(commit: Commit) -> dict[str, Any]:
    """A commit; each change names its type."""
    return {**plain(commit), "changes": [_change(change) for change in commit.changes]}


def _change(change: Change) -> dict[str, Any]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(change).__name__).lower()
    return {"type": name, **plain(change)}


def revision_json(revision: Revision) -> dict[str, Any]:
    """A revision: who made it, when, why, and the note as it was then."""
    return {
        "revision": revision.revision, "at": plain(revision.at), "actor": revision.actor, "reason": revision.reason,
        "commit": revision.commit.id, "note": plain(revision.note),
    }  # fmt: skip
