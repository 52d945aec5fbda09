"""What happens, told to whoever listens: one note's life in the log at DEBUG, and OpenTelemetry spans.

Neither holds what a note or a question says. ``ENGRAMMA_TRACE_CONTENT=1`` lets spans hold it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self

from engramma.commit import ArchiveNote, Change, Commit, DropLink, PutLink, PutNote, RemoveNote, ReviseNote

log = logging.getLogger("engramma")


class Span:
    """An operation under way, ``engramma.<name>``, as a context; nothing where the program does not use OpenTelemetry.

    Attributes are numbers, flags and names; None is left out. An exception is told by its kind alone, since
    its message may quote what somebody said.
    """

    def __init__(self, name: str, attributes: Mapping[str, Any]) -> None:
        self._name, self._attributes = name, attributes
        self._inner: Any = None
        self._around: Any = None

    def __enter__(self) -> Self:
        if "opentelemetry.trace" in sys.modules:
            start = _tracer().start_as_current_span
            self._around = start(f"engramma.{self._name}", record_exception=False, set_status_on_exception=False)
            self._inner = self._around.__enter__()
            self.set(**self._attributes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._around is None:
            return
        if kind is not None:
            from opentelemetry.trace import Status, StatusCode

            self._inner.set_attribute("error.type", kind.__name__)
            self._inner.set_status(Status(StatusCode.ERROR))
        self._around.__exit__(kind, error, trace)

    def set(self, **attributes: Any) -> None:
        """Add attributes, as ``engramma.<name>``."""
        if self._inner is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._inner.set_attribute(f"engramma.{name}", value)

    def content(self, **texts: str) -> None:
        """Add attributes that quote a user, if that is asked for."""
        if self._inner is not None and os.environ.get("ENGRAMMA_TRACE_CONTENT", "0") not in ("", "0"):
            self.set(**texts)


def span(name: str, **attributes: Any) -> Span:
    """A span around what is inside a ``with``."""
    return Span(name, attributes)


@cache
def _tracer() -> Any:
    from opentelemetry import trace

    from engramma import __version__

    return trace.get_tracer("engramma", __version__)


def noted(commits: Iterable[Commit]) -> None:
    """Tell the log, at DEBUG, what was written of each note."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for commit in commits:
        for change in commit.changes:
            log.debug("%s, in commit %s by %s", _told(change), commit.id, commit.actor)


def _told(change: Change) -> str:
    match change:
        case PutNote(note=note):
            return f"note {note.id} is stored, {note.state}, in space {note.space!r}"
        case ReviseNote(note=note_id, after=after):
            became = f" and is {after['state']} now" if "state" in after else ""
            return f"note {note_id} changes in {', '.join(sorted(after))}{became}"
        case ArchiveNote(note=note_id):
            return f"note {note_id} is archived"
        case RemoveNote(note=note_id):
            return f"note {note_id} is removed for good"
        case PutLink(link=link):
            return f"note {link.source} {link.kind} note {link.target} ({link.strength:.2f})"
        case DropLink(source=source, target=target, kind=kind):
            return f"note {source} no longer {kind} note {target}"
