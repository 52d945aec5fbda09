"""What a chat shows, and the commands between the turns: each is a verb of ``Memory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engramma.cli.changes import commit_line
from engramma.cli.opening import note_id
from engramma.cli.screen import Screen, clean
from engramma.errors import InvalidInput, UnknownId

if TYPE_CHECKING:
    from engramma.agents.conversation import Conversation, Event
    from engramma.memory import Memory
    from engramma.note import Note

COMMANDS = {
    "/memories [QUESTION]": "the newest notes, or those that bear on a question",
    "/why": "the notes recalled for the last answer, and the evidence for each",
    "/forget ID": "forget a note: its id, the beginning of it, or its number in the last list",
    "/log [N]": "the last commits",
    "/undo": "take back what the last turn, or the last command, changed in the memory; the thread keeps what was said",
    "/thread [NAME]": "show the thread, go to another, or with 'new' begin one",
    "/help": "this list",
    "/exit": "leave; Ctrl-D does too",
}
_SHOWN = 10
_DIGITS = 9  # of a number that somebody means


@dataclass(slots=True)
class Desk:
    """A conversation and where it is shown."""

    screen: Screen
    memory: Memory
    talk: Conversation
    quiet: bool = False
    listed: list[str] = field(default_factory=list)
    _commanded: set[str] = field(default_factory=set)  # commits of commands; all others are of turns
    _speaking: bool = False

    # -- events of a turn

    def show(self, event: Event) -> None:
        """Show what happens in a turn as it happens."""
        from engramma.agents.conversation import Answered, Called, Kept, Remembered, Said

        match event:
            case Said(text=text):
                self._speaking = True
                self.screen.console.print(clean(text), end="", soft_wrap=True)
            case Remembered(memories=memories) if memories:
                self._aside(f"recalled {_counted(memories)}: " + " · ".join(_short(one) for one in memories))
            case Called(name=name, args=args):
                shown = ", ".join(f"{key}={value!r}" for key, value in args.items())
                self._aside(f"→ {name}({shown})")
            case Answered(name=name, text=text):
                self._aside(f"← {name}: {text}")
            case Kept(memories=memories) if memories:
                self._aside(f"remembered {len(memories)}")

    def _aside(self, text: str) -> None:
        if not self.quiet:
            self.end()
            self.screen.line((text, "dim"), hang=2)

    def end(self) -> None:
        """The answer is over: the next words stand on a line of their own."""
        if self._speaking:
            self.screen.blank()
        self._speaking = False

    def stopped(self, unfinished: bool) -> None:
        """The turn was stopped, ``unfinished`` if that was before its answer was whole."""
        self.end()
        self.screen.line(("stopped; this turn is not remembered" if unfinished else "stopped", "yellow"))

    def leave(self) -> None:
        """The last line."""
        self.end()
        if not self.quiet:
            self.screen.line((f"{self.count()} in {self.memory.path}", "dim"))

    def count(self) -> str:
        """How many notes there are, in words."""
        number = self.memory.spaces().get(self.memory.space, 0)
        return f"{number} note" if number == 1 else f"{number} notes"

    # -- commands

    def command(self, line: str) -> None:
        """Run one line that begins with a slash. Raises InvalidInput for one that cannot be understood."""
        name, _, rest = line.partition(" ")
        alone: Mapping[str, Callable[[], None]] = {"/why": self._why, "/undo": self._undo, "/help": self._help}
        verbs: Mapping[str, Callable[[str], None]] = {
            "/memories": self._memories, "/forget": self._forget, "/log": self._log, "/thread": self._thread,
        }  # fmt: skip
        if name in alone:
            if rest.strip():
                raise InvalidInput(f"{name} stands alone: {rest.strip()!r} means nothing to it")
            alone[name]()
        elif name in verbs:
            verbs[name](rest.strip())
        else:
            known = ", ".join(usage.partition(" ")[0] for usage in COMMANDS)
            raise InvalidInput(f"{name!r} is no command: there are {known}")

    def _memories(self, question: str) -> None:
        if question:
            notes = [hit.note for hit in self.memory.search(question, k=_SHOWN)]
        else:
            notes = self.memory.list(limit=_SHOWN, newest_first=True)
        if not notes:
            self.screen.line(("nothing", "dim"))
        self.listed = [note.id for note in notes]
        for number, note in enumerate(notes, 1):
            self._note(number, note)

    def _note(self, number: int, note: Note) -> None:
        """A note on one line of a numbered list."""
        from engramma.cli.views import marks, title

        text = title(note, 200) if self.screen.terminal else " ".join(note.content.split())
        more = f"  [{', '.join(note.tags)}]" if note.tags else ""
        special = f"  ({marks(note)})" if marks(note) else ""
        speaker = f"{note.speaker}: " if note.speaker else ""
        self.screen.cut((f"{number:>2}  ", "bold"), (note.id, "cyan"), "  ", (f"{note.at:%Y-%m-%d}", "dim"), "  ",
                        (speaker, "bold"), text, (more, "green"), (special, "yellow"))  # fmt: skip

    def _why(self) -> None:
        memories = self.talk.remembered
        if not memories:
            self.screen.line(("nothing was recalled for the last answer", "dim"))
        self.listed = [one["id"] for one in memories]
        for number, one in enumerate(memories, 1):
            self.screen.line((f"{number:>2}  {one['score']:.2f}  ", "bold green"), one["content"], hang=10)
            self.screen.line((f"why  {one['why']}  {one['id']}", "dim"), indent=10)

    def _forget(self, name: str) -> None:
        if not name:
            raise InvalidInput("/forget takes a note's id, or its number in the last list of /memories or /why")
        note = self.memory.get(self._listed(name) or note_id(self.memory, name))
        if note.space != self.memory.space:
            raise UnknownId(f"there is no note {name!r} in space {self.memory.space!r}: /memories shows those there are")
        with self.talk.changing():
            self._commanded.add(self.memory.delete(note).id)
        self.screen.line(f"forgotten: {note.content}", ("  /undo brings it back", "dim"))

    def _listed(self, name: str) -> str | None:
        if not name.isdecimal() or len(name) > len(str(_SHOWN)) + 1:
            return None
        if not 1 <= int(name) <= len(self.listed):
            raise InvalidInput(f"number {name} is not in the last list, which has {len(self.listed)} notes: /memories shows them")
        return self.listed[int(name) - 1]

    def _log(self, number: str) -> None:
        if number and not (number.isdecimal() and len(number) <= _DIGITS):
            raise InvalidInput(f"/log takes a number of commits, not {number!r:.40}")
        for commit in self.memory.log(limit=int(number or _SHOWN)):
            commit_line(self.screen, commit)

    def _undo(self) -> None:
        done = self.talk.undo()
        for line in [f"taken back: {commit.reason.partition(': ')[2]}" for commit in done] or ["there is nothing to take back"]:
            self.screen.line((line, "dim"))
        if not self.talk.fresh and any(commit.reverts not in self._commanded for commit in done):
            self.screen.line(("the thread keeps what was said, and the model sees it there; /thread new begins another", "dim"))

    def _thread(self, name: str) -> None:
        from ulid import ULID

        if name:
            self.talk.thread = str(ULID()) if name == "new" else name
            self.talk.fresh = False
        mode = " (a new one each turn)" if self.talk.fresh else ""
        self.screen.line(f"thread {self.talk.thread}{mode}")

    def _help(self) -> None:
        for usage, told in COMMANDS.items():
            self.screen.field(usage, told, wide=24)


def _counted(memories: Sequence[Mapping[str, Any]]) -> str:
    """How many notes were recalled, those that only a link led to apart."""
    direct = sum(bool(one.get("direct", True)) for one in memories)
    linked = len(memories) - direct
    return f"{direct} and {linked} linked" if linked else str(direct)


def _short(memory: Mapping[str, Any]) -> str:
    from engramma.words import excerpt

    return excerpt(memory["content"], 48)
