"""The scenes of ``engramma demo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engramma.cli.changes import commit_line, note_differences
from engramma.cli.screen import Screen
from engramma.cli.views import described, hit_lines, title

if TYPE_CHECKING:
    from engramma.commit import Commit
    from engramma.memory import Memory
    from engramma.note import Link, Note
    from engramma.recall import Hits

_TOP = 3  # hits shown for a question
_EVOLVING = ("supersedes", "updates", "solves")


def _heading(screen: Screen, text: str, remark: str = "") -> None:
    from rich.rule import Rule
    from rich.text import Text

    screen.blank()
    name = Text.assemble((text, "bold cyan"), (f"  {remark}" if remark else "", "dim"))
    screen.console.print(Rule(name, align="left", style="cyan"), width=screen.width)
    screen.blank()


def opening(screen: Screen, memory: Memory, seconds: float) -> None:
    """What was loaded, with what, in which time."""
    counted = memory.stats()
    _heading(screen, "engramma", "a diary of two friends, in English and Chinese")
    screen.line((str(counted.notes), "bold"), " notes and ", (str(counted.links), "bold"), " links from ",
                (str(counted.commits), "bold"), " entries in ", (f"{seconds:.1f} s", "bold"),
                f", with no model but the embedder {counted.embedder}", indent=2)  # fmt: skip
    if counted.merged:
        screen.line(f"{counted.merged} entry said what was said before: it was merged, not stored twice", indent=2)


def descriptions(screen: Screen, memory: Memory) -> None:
    """Two notes, one in each language, with what the analyst made of them."""
    from engramma.words import is_chinese

    _heading(screen, "Notes describe themselves", "tags, keywords, context and dates")
    notes = [note for note in memory.list() if note.dates and len(note.tags) > 1 and note.revision == 1]
    for chinese in (False, True):
        for note in [note for note in notes if is_chinese(note.content) == chinese][:1]:
            screen.line((f"{note.speaker}: ", "bold"), note.content, indent=2)
            described(screen, note, indent=4)
            screen.blank()


def _links(memory: Memory, kinds: Sequence[str]) -> list[tuple[Link, Note, Note]]:
    """Links of these kinds with the notes at both ends, the first kind first."""
    notes = {note.id: note for note in memory.list()}
    links = {link.ends: link for note in notes.values() for link in note.links if link.kind in kinds}
    ordered = sorted(links.values(), key=lambda link: (kinds.index(link.kind), -link.strength))
    return [(link, notes[link.source], notes[link.target]) for link in ordered if {link.source, link.target} <= set(notes)]


def link(screen: Screen, memory: Memory) -> None:
    """One link with its reason."""
    _heading(screen, "Notes link", "each link has a kind and a reason")
    for found, source, target in _links(memory, ("solves", "supersedes", "related"))[:1]:
        screen.line((f"{source.at:%Y-%m-%d}  ", "dim"), source.content, indent=2, hang=12)
        screen.line((f"↓ {found.kind} {found.strength:.2f}", "magenta"), (f"  {found.reason}", "italic"), indent=14)
        screen.line((f"{target.at:%Y-%m-%d}  ", "dim"), target.content, indent=2, hang=12)


def evolution(screen: Screen, memory: Memory) -> None:
    """One note that a later one changed, before and after."""
    _heading(screen, "Memory evolves", "a new note changes what an old one means, never what it says")
    for _, newer, older in _links(memory, _EVOLVING)[:1]:
        revisions = memory.history(older)
        screen.line(("then  ", "dim"), older.content, indent=2, hang=6)
        screen.line(("now   ", "dim"), newer.content, indent=2, hang=6)
        screen.line(("why   ", "dim"), (revisions[-1].reason, "italic"), indent=2, hang=6)
        note_differences(screen, revisions[0].note, revisions[-1].note, indent=8)


def questions(screen: Screen, memory: Memory, asked: Sequence[Mapping[str, Any]]) -> None:
    """Questions in both languages: hits, evidence, time, and whether the expected note is there."""
    _heading(screen, "Questions", "the top hits with their evidence; ✓ the expected note is among them, ✗ it is not")
    memory.search("warm up")
    times, right = [], 0
    for one in asked:
        started = perf_counter()
        hits = memory.search(one["question"])
        times.append((perf_counter() - started) * 1000)
        right += _answer(screen, one, hits, times[-1])
        screen.blank()
    screen.line((f"{right} of {len(asked)} as expected", "bold"), f", {sum(times) / len(times):.0f} ms a question", indent=2)


def _answer(screen: Screen, asked: Mapping[str, Any], hits: Hits, milliseconds: float) -> bool:
    wanted = asked["finds"]
    place = next((number for number, hit in enumerate(hits, 1) if wanted and wanted in hit.note.content), 0)
    fine = bool(place) if wanted else not hits
    mark = ("✓ ", "bold green") if fine else ("✗ ", "bold red")
    screen.line(mark, (str(asked["question"]), "bold"), (f"  {milliseconds:.0f} ms", "dim"), indent=2, hang=2)
    numbers: dict[str, int] = {hit.note.id: number for number, hit in enumerate(hits.direct, 1)}
    for hit in hits[:_TOP]:
        hit_lines(screen, hit, numbers, indent=4)
    if not hits:
        screen.line((hits.declined, "italic"), indent=4)
    if place > _TOP:
        screen.line((f"the expected note is hit {place} of {len(hits)}", "dim"), indent=4)
    if not fine:
        screen.line((f"expected: {wanted or 'nothing'}", "red"), indent=4)
    return fine


def log(screen: Screen, memory: Memory) -> None:
    """The last commits."""
    _heading(screen, "Every change is a commit", "who, what and why; engramma log --full shows each before and after")
    for commit in memory.log(limit=6):
        commit_line(screen, commit)


def _changing(commits: Sequence[Commit]) -> Commit | None:
    """The newest commit that changed a note beside the one it added."""
    from engramma.commit import ReviseNote

    return next((commit for commit in commits if any(isinstance(change, ReviseNote) for change in commit.changes)), None)


def revert(screen: Screen, memory: Memory) -> None:
    """The newest commit that changed another note, undone."""
    from engramma.commit import ReviseNote

    _heading(screen, "Any commit can be reverted", "and so can the revert")
    found = _changing(memory.log(limit=None))
    if found is None:
        return
    changed = next(change.note for change in found.changes if isinstance(change, ReviseNote))
    before = memory.get(changed)
    done = memory.revert(found)
    screen.line((f"$ engramma revert {found.id}", "bold"), indent=2)
    screen.line((found.reason, "dim"), indent=2)
    screen.line(f"“{title(before, 80)}” is again what it was:", indent=2)
    note_differences(screen, before, memory.get(changed), indent=4)
    screen.line((f"done by commit {done.id}", "dim"), indent=2)


def _program() -> str:
    """How this program is called from here: by its name where the shell finds it, else by its path."""
    if shutil.which("engramma"):
        return "engramma"
    called = Path(sys.argv[0]).absolute()
    return str(called.relative_to(Path.cwd())) if called.is_relative_to(Path.cwd()) else str(called)


def closing(screen: Screen, path: Path) -> None:
    """Where the file lies and how to go on."""
    place = shlex.quote(str(path)) if sys.platform != "win32" else f'"{path}"'
    _heading(screen, "Go on", f"the memory is the file {path}")
    for rest in ('search "When is the half marathon?"', 'search "豆豆现在多重？"', "log --full -n 3", "graph memories.png"):
        screen.line((f"{_program()} --db {place} {rest}", "bold"), indent=2)
    screen.blank()
