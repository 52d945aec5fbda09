"""``AsyncMemory``: the verbs of ``Memory`` awaited, and what cancelling an await leaves behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from conftest import contents, plain, reply, within

from engramma import AsyncMemory, Check, EmptyText, InvalidInput, Memory, StoreError, UnknownId, Weights
from engramma.aio import Opening
from engramma.analysts.llm import LLMAnalyst
from engramma.errors import EmbedderMismatch, NotAMemory, StoreClosed
from engramma.models.base import EmbeddingKind
from engramma.testing import HashEmbedder, ScriptedLLM
from engramma.write import commits_made

KETTLE = "The kettle in the office leaks."
VIOLIN = "Violins are tuned in fifths."
HERON = "A heron stands in the lake."
HELD = "held back"  # in a text: embedding it waits
VERBS = sorted(name for name, value in vars(Memory).items() if inspect.isfunction(value) and not name.startswith("_"))
PROPERTIES = sorted(name for name, value in vars(Memory).items() if isinstance(value, property))


def looped(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own; one that hangs fails."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with within(90), asyncio.Runner() as runner:
            runner.run(test(*args, **kwargs))

    return run


class HeldEmbedder(HashEmbedder):
    """Takes its time with texts that hold HELD: until ``go`` is set. ``asked`` counts them."""

    def __init__(self) -> None:
        super().__init__(64)
        self.go, self.asked = threading.Event(), threading.Semaphore(0)

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        """As the hash embedder, later."""
        if any(HELD in text for text in texts):
            self.asked.release()
            assert self.go.wait(60), "nobody let it go"
        return super().embed(texts, kind=kind)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def held() -> Any:
    """An embedder that is let go at the end, whatever happens."""
    embedder = HeldEmbedder()
    yield embedder
    embedder.go.set()


def opening(path: Path | str = ":memory:", **settings: Any) -> Opening:
    settings.setdefault("embedder", HashEmbedder(64))
    return AsyncMemory.open(path, **settings)


@asynccontextmanager
async def of(memory: Memory, **settings: Any) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(memory, **settings) as wrapped:
        yield wrapped


async def begun(held: HeldEmbedder, times: int = 1) -> None:
    """Until the embedder has been asked for held texts."""
    for _ in range(times):
        assert await asyncio.to_thread(held.asked.acquire, timeout=30)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and see that it ends so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def kept(path: Path, embedder: Any = None) -> list[str]:
    """What a file holds, opened anew and sound."""
    with Memory.open(path, embedder=embedder or HashEmbedder(64)) as memory:
        assert memory.check().ok, memory.check().problems
        return contents(memory.list())


# -- the same verbs


def difference(name: str, sync: type, other: type) -> str:
    """What is to be done for ``other`` to have a verb as ``sync`` has it; "" for nothing."""
    verb, awaited = getattr(sync, name), getattr(other, name, None)
    stub = (
        f'    async def {name}{inspect.signature(verb)}:\n        """``{sync.__name__}.{name}``, awaited."""\n'
        f"        return await self._look(self.memory.{name}, …)  # or _change; with progress: _in_steps\n"
    ).replace("'", "")
    if awaited is None:
        return f"{other.__name__} lacks {name!r}. Put it into aio.py:\n\n{stub}"
    if not inspect.iscoroutinefunction(awaited):
        return f"{other.__name__}.{name} is not awaited. It is to look like this:\n\n{stub}"
    ours, theirs = described(awaited), described(verb)
    wrong = [part for part in {**theirs, **ours} if ours.get(part) != theirs.get(part)]
    lines = [f"  {part}: {ours.get(part, 'missing')}\n  and in {sync.__name__}: {theirs.get(part, 'missing')}" for part in wrong]
    if not lines and list(ours) != list(theirs):
        lines = [f"  the order: {', '.join(ours)}\n  and in {sync.__name__}: {', '.join(theirs)}"]
    return f"{other.__name__}.{name} differs:\n" + "\n".join(lines) + f"\n\n{stub}" if lines else ""


def described(verb: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """Each parameter, and the result: kind, default, and the type that its annotation means."""
    types = get_type_hints(verb)
    parameters = inspect.signature(verb).parameters
    found: dict[str, tuple[Any, ...]] = {name: (str(one.kind), one.default, types.get(name)) for name, one in parameters.items()}
    return found | {"result": (types.get("return"),)}


@pytest.mark.parametrize("name", VERBS)
def test_verbs_are_those_of_memory(name: str) -> None:
    assert not (told := difference(name, Memory, AsyncMemory)), told


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_are_those_of_memory(name: str) -> None:
    ours, theirs = getattr(AsyncMemory, name, None), getattr(Memory, name)
    assert isinstance(ours, property), f"AsyncMemory lacks the property {name!r}: return self.memory.{name}"
    assert get_type_hints(ours.fget) == get_type_hints(theirs.fget)


def test_open_takes_what_memory_takes() -> None:
    ours, theirs = described(AsyncMemory.open), described(Memory.open)
    assert ours.pop("result") == (Opening,)
    assert theirs.pop("result") == (Memory,)
    assert list(ours.items()) == list(theirs.items())


def test_there_is_nothing_else() -> None:
    public = {name for name in vars(AsyncMemory) if not name.startswith("_")}
    assert public == {*VERBS, *PROPERTIES, "open", "space"}


def test_every_verb_says_of_which_it_is() -> None:
    for name in [*VERBS, "open"]:
        assert f"``Memory.{name}``" in inspect.getdoc(getattr(AsyncMemory, name)), name


def test_what_differs_is_named() -> None:
    class Sync:
        def blame(self, note: str, *, depth: int = 1) -> str: ...

    class Nothing: ...

    class NotAwaited:
        def blame(self, note: str, *, depth: int = 1) -> str: ...

    class OtherDefault:
        async def blame(self, note: str, *, depth: int = 2) -> str: ...

    class OtherType:
        async def blame(self, note: bytes, *, depth: int = 1) -> str: ...

    class OtherResult:
        async def blame(self, note: str, *, depth: int = 1) -> bytes: ...

    class OneLess:
        async def blame(self, note: str) -> str: ...

    class Positional:
        async def blame(self, note: str, depth: int = 1) -> str: ...

    class Same:
        async def blame(self, note: str, *, depth: int = 1) -> str: ...

    assert difference("blame", Sync, Same) == ""
    lacking = difference("blame", Sync, Nothing)
    assert "lacks 'blame'" in lacking
    assert "async def blame(self, note: str, *, depth: int = 1) -> str:" in lacking
    assert "self.memory.blame" in lacking
    assert "not awaited" in difference("blame", Sync, NotAwaited)
    for other, word in [(OtherDefault, "depth"), (OtherType, "note"), (OtherResult, "result"), (OneLess, "depth: missing"),
                        (Positional, "POSITIONAL_OR_KEYWORD")]:  # fmt: skip
        assert word in difference("blame", Sync, other), other


def echo(name: str) -> Callable[..., Any]:
    """A verb that answers with what it was asked for."""
    signature = inspect.signature(getattr(Memory, name))

    def verb(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        if progress := given.pop("progress", None):
            progress(1, 2)
        return given

    return verb


Echo: Any = type("Echo", (Memory,), {name: echo(name) for name in VERBS if name != "close"})


@pytest.mark.parametrize("name", [name for name in VERBS if name != "close"])
@looped
async def test_every_argument_arrives(name: str) -> None:
    parameters = [one for one in inspect.signature(getattr(Memory, name)).parameters.values() if one.name != "self"]
    seen: list[tuple[int, int]] = []
    values: dict[str, Any] = {one.name: [one.name] for one in parameters if one.kind is not one.VAR_KEYWORD}
    if progress := "progress" in values:
        values["progress"] = lambda done, total: seen.append((done, total))
    fields = {"any": object()} if any(one.kind is one.VAR_KEYWORD for one in parameters) else {}
    async with of(Echo.open(":memory:", embedder="hash:8")) as memory:
        got = await getattr(memory, name)(**values, **fields)
        required = [values[one.name] for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
        least = await getattr(memory, name)(*required)
    values.pop("progress", None)
    assert got == values | ({"fields": fields} if fields else {})
    assert seen == ([(1, 2)] if progress else [])
    for one in parameters:
        if one.default is not one.empty and one.name != "progress":
            assert least[one.name] == one.default, one.name


@looped
async def test_every_argument_of_open_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = inspect.signature(Memory.open)
    real, got = Memory.open, {}

    def open_(*args: Any, **kwargs: Any) -> Memory:
        got.update(signature.bind(*args, **kwargs).arguments)
        return real(":memory:", embedder="hash:8")

    monkeypatch.setattr(Memory, "open", open_)
    values = {name: object() for name in signature.parameters}
    async with AsyncMemory.open(**values):
        assert callable(got.pop("reindex"))
        assert got == {name: value for name, value in values.items() if name != "reindex"}
    async with AsyncMemory.open():
        assert got["reindex"] is False


@looped
async def test_both_do_the_same(path: Path) -> None:
    weights = Weights(words=2.0)
    async with opening(path, space=("team", "a"), weights=weights) as memory:
        assert (memory.path, memory.space) == (str(path), ("team", "a"))
        first = await memory.add(KETTLE, speaker="Ana", at="2026-06-01", tags=["tea"], importance=4)
        second, third = await memory.add_many([VIOLIN, {"content": HERON, "session": "s"}])
        await memory.link(first, second, kind="supports", reason="both hum")
        await memory.update(third, tags=["bird"])
        deleted = await memory.delete(second)
        await memory.revert(deleted)
        sync = memory.memory
        assert [plain(note) for note in await memory.list()] == [plain(note) for note in sync.list()]
        assert contents(await memory.search("kettle office")) == contents(sync.search("kettle office"))
        assert plain(await memory.get(first)) == plain(sync.get(first))
        assert await memory.log(limit=None) == sync.log(limit=None)
        assert [one.note.id for one in await memory.history(third)] == [one.note.id for one in sync.history(third)]
        assert await memory.spaces() == sync.spaces() == {("team", "a"): 3}
        assert (await memory.stats()).notes == sync.stats().notes
        assert isinstance(await memory.check(), Check)
        assert await memory.forget() == sync.forget()
        assert await memory.reflect() == sync.reflect()
        assert (await memory.tend(dry_run=True)).read == 0
        await memory.merge([first, third])
        await memory.purge(second)
        assert await memory.delete_space(("team", "a"))
        assert await memory.list() == []


@looped
async def test_what_is_wrong_is_said_as_by_memory() -> None:
    async with opening() as memory:
        with pytest.raises(EmptyText):
            await memory.add("   ")
        with pytest.raises(UnknownId, match="nothing"):
            await memory.get("nothing")
        with pytest.raises(InvalidInput, match="colour"):
            await memory.update(await memory.add(KETTLE), colour="red")
        for wrong in ("a text", {"content": "a dict"}, 5, None):
            with pytest.raises(InvalidInput, match="is not a list of notes"):
                await memory.add_many(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="item 1"):
            await memory.add_many([KETTLE, ""])
        assert contents(await memory.list()) == [KETTLE]


@looped
async def test_chinese_and_long_texts() -> None:
    long = "她在湖边看见一只苍鹭。" * 3000
    async with opening() as memory:
        await memory.add_many(["我去年三月搬到了柏林。", long])
        assert contents(await memory.search("柏林", k=1))[0] == "我去年三月搬到了柏林。"
        assert len(await memory.list()) == 2


# -- open


@looped
async def test_open_is_awaited_or_entered(path: Path) -> None:
    memory = await opening(path)
    assert isinstance(memory, AsyncMemory)
    await memory.add(KETTLE)
    await memory.close()
    async with await opening(path) as memory:
        assert contents(await memory.list()) == [KETTLE]
    async with opening(path) as again:
        assert contents(await again.list()) == [KETTLE]
    for one in (memory, again):
        with pytest.raises(StoreClosed):
            await one.list()


@looped
async def test_an_open_memory_is_wrapped(memory: Memory) -> None:
    memory.add(KETTLE)
    wrapped = AsyncMemory(memory)
    assert wrapped.memory is memory
    assert repr(wrapped) == f"AsyncMemory({memory!r})"
    assert contents(await wrapped.list()) == [KETTLE]
    await wrapped.close()
    with pytest.raises(StoreClosed):
        memory.list()


def test_what_is_no_memory_is_refused(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match=r"AsyncMemory\.open\('memory.db'\)"):
        AsyncMemory("memory.db")  # type: ignore[arg-type]
    for threads in (0, -1, 1.5, True, "4", None):
        with pytest.raises(InvalidInput, match="threads"):
            AsyncMemory(memory, threads=threads)  # type: ignore[arg-type]


@looped
async def test_opening_that_fails(path: Path) -> None:
    with pytest.raises(StoreError, match="no memory at"):
        await opening(path, create=False)
    path.write_text("a diary")
    with pytest.raises(NotAMemory):
        async with opening(path):
            pass
    assert path.read_text() == "a diary"


@looped
async def test_opening_is_used_once() -> None:
    once = opening()
    await (await once).close()
    with pytest.raises(RuntimeError, match="already awaited"):
        await once


def test_opening_that_nobody_awaits_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        forgotten()


def forgotten() -> None:
    opening()
    gc.collect()


@looped
async def test_body_that_fails_closes(path: Path) -> None:
    async def body() -> None:
        async with opening(path) as memory:
            used.append(memory)
            await memory.add(KETTLE)
            raise ZeroDivisionError

    used: list[AsyncMemory] = []
    with pytest.raises(ZeroDivisionError):
        await body()
    with pytest.raises(StoreClosed):
        await used[0].list()
    assert kept(path) == [KETTLE]


@looped
async def test_open_can_embed_anew(path: Path) -> None:
    async with opening(path) as memory:
        await memory.add_many([KETTLE, VIOLIN])
    with pytest.raises(EmbedderMismatch):
        await opening(path, embedder="hash:32")
    seen: list[tuple[int, int, int]] = []
    async with opening(path, embedder="hash:32", reindex=lambda *at: seen.append((*at, threading.get_ident()))):
        assert seen == [(2, 2, threading.get_ident())]
    async with opening(path, embedder="hash:64", reindex=True) as memory:
        assert (await memory.stats()).embedder == "hash:64"


@looped
async def test_cancelled_open_lets_go_of_the_file(path: Path, held: HeldEmbedder) -> None:
    async with opening(path) as memory:
        await memory.add(f"{HELD}: {KETTLE}")
    held.name = "held"
    before = set(opened_memories(path))
    task = asyncio.ensure_future(waited(opening(path, embedder=held, reindex=True)))
    await begun(held)
    await cancelled(task)
    assert set(opened_memories(path)) > before, "it was not open"
    held.go.set()
    while set(opened_memories(path)) > before:
        await asyncio.sleep(0.01)
    assert kept(path) == [f"{HELD}: {KETTLE}"]


@looped
async def test_cancelled_open_closes_what_came_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, asked, closed = threading.Event(), threading.Event(), threading.Event()
    real = Memory.close

    def think(messages: Any) -> Any:
        asked.set()
        assert go.wait(60)
        return reply()

    def close(memory: Memory) -> None:
        real(memory)
        closed.set()

    async with opening(path, analyst=LLMAnalyst(ScriptedLLM(ConnectionError("down")), pause=0.001)) as memory:
        await memory.add(KETTLE)
    monkeypatch.setattr(Memory, "close", close)
    task = asyncio.create_task(waited(opening(path, analyst=LLMAnalyst(ScriptedLLM(think), pause=0.001))))
    assert await asyncio.to_thread(asked.wait, 30)  # opening reads what waits
    await cancelled(task)
    assert not closed.is_set()
    go.set()
    assert await asyncio.to_thread(closed.wait, 30)
    with Memory.open(path, embedder=HashEmbedder(64)) as found:
        assert (len(found.list()), found.stats().pending) == (1, 0)


async def waited(opening: Opening) -> AsyncMemory:
    return await opening


def opened_memories(path: Path) -> list[int]:
    """The file descriptors of this process that lead to a file."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not list a process's open files")
    return [int(one.name) for one in folder.iterdir() if one.exists() and one.resolve() == path.resolve()]


# -- the loop stays free


@looped
async def test_loop_goes_on_while_a_note_is_embedded(held: HeldEmbedder) -> None:
    events: list[str] = []
    async with opening(embedder=held) as memory:
        task = asyncio.create_task(memory.add(f"{HELD}: {KETTLE}"))
        task.add_done_callback(lambda _: events.append("added"))
        await begun(held)
        for number in range(3):
            await asyncio.sleep(0)
            events.append(f"step {number}")
        held.go.set()
        await task
    assert events == ["step 0", "step 1", "step 2", "added"]


@looped
async def test_search_does_not_wait_for_slow_additions(held: HeldEmbedder) -> None:
    async with opening(embedder=held) as memory:
        await memory.add(KETTLE)
        slow = [asyncio.create_task(memory.add(f"{HELD} {number}")) for number in range(20)]
        await begun(held, 4)
        assert contents(await memory.search("kettle"))[0] == KETTLE
        assert await memory.get((await memory.list())[0])
        assert not any(task.done() for task in slow)
        held.go.set()
        await asyncio.gather(*slow)
        assert len(await memory.list()) == 21


@looped
async def test_model_that_thinks_holds_nobody_up() -> None:
    go, asked = threading.Event(), threading.Event()

    def think(messages: Any) -> Any:
        asked.set()
        assert go.wait(60)
        return reply(context="Read by a model.")

    async with opening(analyst=LLMAnalyst(ScriptedLLM(think), pause=0.001)) as memory:
        task = asyncio.create_task(memory.add(KETTLE))
        assert await asyncio.to_thread(asked.wait, 30)
        (found,) = await memory.search("kettle")
        assert (found.note.state, task.done()) == ("pending", False)
        go.set()
        assert (await task).context == "Read by a model."


@looped
async def test_threads_of_the_loop_are_not_used() -> None:
    go = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, go.wait)
    async with opening() as memory:
        await memory.add(KETTLE)
        assert contents(await memory.search("kettle")) == [KETTLE]
    go.set()
    await busy


@looped
async def test_models_are_asked_in_threads_of_its_own() -> None:
    names: set[str] = set()

    class Named(HashEmbedder):
        def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
            names.add(threading.current_thread().name)
            return super().embed(texts, kind=kind)

    async with opening(embedder=Named(16)) as memory:
        await memory.add(KETTLE)
        await memory.search("kettle")
    assert {name.rpartition("_")[0] for name in names} == {"engramma-change", "engramma-look"}
    await threads_ended()


async def threads_ended() -> None:
    """Until no thread of ours is left; never, if one goes on."""
    while [thread for thread in threading.enumerate() if thread.name.startswith("engramma")]:
        await asyncio.sleep(0.01)


@looped
async def test_threads_end_with_a_memory_that_nobody_closed(memory: Memory) -> None:
    wrapped = AsyncMemory(memory)
    await wrapped.add(KETTLE)
    del wrapped
    gc.collect()
    await threads_ended()
    assert contents(memory.list()) == [KETTLE]


@looped
async def test_many_at_once(path: Path) -> None:
    async with opening(path) as memory:
        adding = [memory.add(f"Note {number} about the harbour, code {number * 7919}", session="s") for number in range(120)]
        asking = [memory.search(f"harbour code {number * 7919}", k=3) for number in range(120)]
        both = await asyncio.gather(*adding, *asking)
        assert len({note.id for note in both[:120]}) == 120
        assert len(await memory.list()) == 120
    assert len(kept(path)) == 120


def test_two_loops_share_one(path: Path) -> None:
    memory = asyncio.run(waited(opening(path)))
    start = threading.Barrier(2)

    async def adds(name: str) -> list[str]:
        start.wait(30)
        notes = await asyncio.gather(*(memory.add(f"{name} saw number {number}, code {number * 7919}") for number in range(40)))
        await memory.search("number")
        return [note.id for note in notes]

    with within(90), ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda name: asyncio.run(adds(name)), ["Ana", "Ben"]))
    assert len({*found[0], *found[1]}) == 80
    asyncio.run(memory.close())
    assert len(kept(path)) == 80


@looped
async def test_context_is_carried_over() -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")
    seen: list[str] = []

    class Asks(HashEmbedder):
        def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
            seen.append(name.get())
            return super().embed(texts, kind=kind)

    async def add(who: str) -> str:
        name.set(who)
        await memory.add(f"{who} likes tea.")
        return name.get()

    async with opening(embedder=Asks(16)) as memory:
        await memory.add(KETTLE)
        seen.clear()
        assert await asyncio.gather(add("Ana"), add("小夏")) == ["Ana", "小夏"]
        assert {"Ana", "小夏"} <= set(seen)
        with commits_made() as made:
            await memory.add(HERON)
        assert [commit.id for commit in await memory.log(limit=1)] == made


# -- cancelling


@looped
async def test_await_ends_at_once_and_the_note_is_there(path: Path, held: HeldEmbedder) -> None:
    async with opening(path, embedder=held) as memory:
        task = asyncio.create_task(memory.add(f"{HELD}: {KETTLE}"))
        await begun(held)
        await cancelled(task)  # while the embedder is still at it
        held.go.set()
    assert kept(path) == [f"{HELD}: {KETTLE}"]


@looped
async def test_timeout_is_a_timeout(path: Path, held: HeldEmbedder) -> None:
    async with opening(path, embedder=held) as memory:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(memory.add(f"{HELD}: {KETTLE}"), 0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await memory.search(f"{HELD}?")
        held.go.set()
    assert kept(path) in ([], [f"{HELD}: {KETTLE}"])


@looped
async def test_what_has_not_begun_is_dropped(path: Path, held: HeldEmbedder) -> None:
    async with of(Memory.open(path, embedder=held), threads=1) as memory:
        first = asyncio.create_task(memory.add(f"{HELD}: {KETTLE}"))
        await begun(held)
        waiting = [asyncio.create_task(memory.add(text)) for text in (VIOLIN, HERON)]
        await asyncio.sleep(0)
        await cancelled(waiting[0])
        held.go.set()
        await asyncio.gather(first, waiting[1])
    assert kept(path) == [f"{HELD}: {KETTLE}", HERON]


@pytest.mark.parametrize("model", [False, True], ids=["rules", "model"])
@looped
async def test_hundreds_of_adds_cancelled_at_random(path: Path, model: bool) -> None:
    chance = random.Random(11)
    settings = {"analyst": LLMAnalyst(ScriptedLLM(reply()), pause=0.001)} if model else {}
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(400)]
    returned: list[Any] = []

    async def add(text: str) -> None:
        await asyncio.sleep(chance.random() * 0.4)
        patience = None if chance.random() < 0.3 else chance.random() * 0.05
        try:
            returned.append(await asyncio.wait_for(memory.add(text, session="port"), patience))
        except TimeoutError:
            ended.append(text)

    ended: list[str] = []
    async with opening(path, **settings) as memory:
        await asyncio.gather(*map(add, texts))
    assert len(returned) + len(ended) == len(texts)
    assert len(returned) > 80
    assert ended, "nothing was cancelled"
    with Memory.open(path, embedder=HashEmbedder(64), catch_up=False) as found:
        assert found.check().ok, found.check().problems
        notes = found.list()
        assert len({note.content for note in notes}) == len(notes) == found.stats().notes
        assert found.stats().pending == 0
        assert {note.content for note in returned} <= {note.content for note in notes} <= set(texts)
        assert all(note.vector is not None and note.keywords for note in notes)
        assert contents(found.search(notes[-1].content, k=1))[:1] == [notes[-1].content]


@looped
async def test_failure_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    go, asked = threading.Event(), threading.Event()

    def fail(question: str, texts: Sequence[str]) -> list[float]:
        asked.set()
        assert go.wait(60)
        raise ZeroDivisionError("the reranker is broken")

    async with opening() as memory:
        await memory.add_many([KETTLE, "The kettle in the kitchen is new."])
        task = asyncio.create_task(memory.search("kettle", rerank=fail))
        assert await asyncio.to_thread(asked.wait, 30)
        await cancelled(task)
        go.set()
    assert "the reranker is broken" in caplog.text


@looped
async def test_cancelled_work_is_no_failure(caplog: pytest.LogCaptureFixture, held: HeldEmbedder) -> None:
    async with opening(embedder=held) as memory:
        for coroutine in (memory.add(f"{HELD}: {KETTLE}"), memory.add_many([f"{HELD} {number}" for number in range(3)])):
            task = asyncio.create_task(coroutine)
            await begun(held)
            await cancelled(task)
        held.go.set()
    assert not caplog.records


def test_loop_that_ends_leaves_the_work_to_its_end(path: Path, held: HeldEmbedder) -> None:
    memories: list[AsyncMemory] = []

    async def leave() -> None:
        memories.append(await opening(path, embedder=held))
        asyncio.create_task(memories[0].add(f"{HELD}: {KETTLE}"))  # noqa: RUF006
        await begun(held)

    asyncio.run(leave())
    held.go.set()
    asyncio.run(memories[0].close())
    assert kept(path) == [f"{HELD}: {KETTLE}"]


@looped
async def test_stop_iteration_of_a_model_does_not_hang() -> None:
    async with opening() as memory:
        await memory.add_many([KETTLE, "The kettle in the kitchen is new."])
        with pytest.raises(RuntimeError, match="StopIteration"):
            await memory.search("kettle", rerank=lambda question, texts: next(iter([])))


# -- closing


@looped
async def test_closed_memory_refuses(path: Path) -> None:
    memory = await opening(path)
    await memory.close()
    await memory.close()
    for call in (memory.add(KETTLE), memory.search("kettle"), memory.add_many([KETTLE]), memory.check()):
        with pytest.raises(StoreClosed, match=r"memory\.db' was closed: open it again with AsyncMemory\.open"):
            await call
    assert memory.path == str(path)


@looped
async def test_close_waits_for_what_was_asked_before(path: Path, held: HeldEmbedder) -> None:
    memory = AsyncMemory(Memory.open(path, embedder=held), threads=1)
    adding = [asyncio.create_task(memory.add(text)) for text in (f"{HELD}: {KETTLE}", VIOLIN, HERON)]
    await begun(held)
    closing = asyncio.create_task(memory.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    with pytest.raises(StoreClosed):
        await memory.add("Too late.")
    held.go.set()
    await closing
    assert contents(await asyncio.gather(*adding)) == [f"{HELD}: {KETTLE}", VIOLIN, HERON]
    assert kept(path) == [f"{HELD}: {KETTLE}", VIOLIN, HERON]


@looped
async def test_cancelled_close_goes_on(path: Path, held: HeldEmbedder) -> None:
    memory = await opening(path, embedder=held)
    adding = asyncio.create_task(memory.add(f"{HELD}: {KETTLE}"))
    await begun(held)
    for wait in (0.0, 0.02):  # before it has begun, and while it waits
        closing = asyncio.create_task(memory.close())
        await asyncio.sleep(wait)
        await cancelled(closing)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(memory.close(), 0.001)
    held.go.set()
    await asyncio.gather(memory.close(), memory.close())
    assert (await adding).content == f"{HELD}: {KETTLE}"
    with pytest.raises(StoreClosed):
        memory.memory.list()
    assert kept(path) == [f"{HELD}: {KETTLE}"]


@looped
async def test_close_that_is_cancelled_at_once_closes_all_the_same() -> None:
    for _ in range(100):
        memory = AsyncMemory(Memory.open(":memory:", embedder="hash:8"))
        closing = asyncio.create_task(memory.close())
        await asyncio.sleep(0)
        await cancelled(closing)
        await memory.close()
        with pytest.raises(StoreClosed):
            memory.memory.list()


@looped
async def test_close_waits_for_what_was_cancelled(path: Path, held: HeldEmbedder) -> None:
    memory = await opening(path, embedder=held)
    adding = asyncio.create_task(memory.add(f"{HELD}: {KETTLE}"))
    await begun(held)
    await cancelled(adding)
    closing = asyncio.create_task(memory.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    held.go.set()
    await closing
    assert kept(path) == [f"{HELD}: {KETTLE}"]


@looped
async def test_uses_are_written_on_close(path: Path) -> None:
    async with opening(path) as memory:
        note = await memory.add(KETTLE)
        await asyncio.gather(*(memory.search("kettle") for _ in range(10)))
    async with opening(path) as memory:
        assert (await memory.get(note)).uses == 10


def test_program_that_ends_in_between_loses_nothing(path: Path) -> None:
    code = f"""
import asyncio, sys, threading
from engramma import AsyncMemory
from engramma.testing import HashEmbedder

begun = threading.Event()

class Slow(HashEmbedder):
    def embed(self, texts, *, kind):
        if "slow" in texts[0]:
            begun.set()
            threading.Event().wait(0.3)
        return super().embed(texts, kind=kind)

async def main():
    memory = await AsyncMemory.open({str(path)!r}, embedder=Slow(64))
    task = asyncio.create_task(memory.add("slow kettle"))
    await asyncio.to_thread(begun.wait)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(path) == ["slow kettle"]


@pytest.mark.skipif(not hasattr(sys.modules["os"], "fork"), reason="this system does not fork")
def test_forked_process_has_threads_of_its_own(path: Path) -> None:
    code = f"""
import asyncio, os
from engramma import AsyncMemory
from engramma.testing import HashEmbedder

async def main(memory, text):
    await memory.add(text)
    return len(await memory.list())

async def opened():
    return await AsyncMemory.open({str(path)!r}, embedder=HashEmbedder(64))

memory = asyncio.run(opened())
asyncio.run(main(memory, "Before the fork."))
child = os.fork()
print(asyncio.run(main(memory, f"Of the {{'parent' if child else 'child'}}.")) >= 2, flush=True)
asyncio.run(memory.close())
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True", "True"], "")
    assert sorted(kept(path)) == ["Before the fork.", "Of the child.", "Of the parent."]


# -- progress


@looped
async def test_progress_is_told_on_the_loop_before_the_result(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        assert asyncio.get_running_loop() is loop
        assert threading.get_ident() == here
        seen.append((done, total))

    loop, here = asyncio.get_running_loop(), threading.get_ident()
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(70)]
    async with opening() as memory:
        await memory.add_many(texts, progress=progress)
        assert set(seen) == {(number, 70) for number in range(1, 71)}
        assert seen[-1] == (70, 70)
        for work in (memory.reindex(progress=progress), memory.export(tmp_path / "notes.jsonl", progress=progress)):
            seen.clear()
            assert await work == 70
            assert seen[-1] == (70, 70)
    async with opening() as other:
        seen.clear()
        assert await other.load(tmp_path / "notes.jsonl", progress=progress) == 70
        assert seen[-1] == (70, 70)


@looped
async def test_progress_that_fails_ends_the_work(path: Path) -> None:
    def progress(done: int, total: int) -> None:
        seen.append(done)
        raise ZeroDivisionError(f"at {done}")

    seen: list[int] = []
    async with opening(path) as memory:
        with pytest.raises(ZeroDivisionError, match="at 1"):
            await memory.add_many((f"Ship {number} has cargo {number * 7919}." for number in range(2000)), progress=progress)
        with pytest.raises(ZeroDivisionError, match="at 1"):
            await memory.add_many(["The last one, told when all is done."], progress=progress)
        assert seen == [1, 1]
    assert 1 <= len(kept(path)) < 2001


@looped
async def test_progress_that_fails_at_the_last_step_fails_the_await() -> None:
    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError(f"at {done} of {total}")

    async with opening() as memory:
        await memory.add(KETTLE)
        with pytest.raises(ZeroDivisionError, match="at 1 of 1"):
            await memory.reindex(progress=progress)
        assert await memory.reindex() == 1


@looped
async def test_progress_is_no_coroutine_function() -> None:
    async def progress(done: int, total: int) -> None: ...

    async with opening() as memory:
        with pytest.raises(InvalidInput, match="coroutine function"):
            await memory.add_many([KETTLE], progress=progress)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="coroutine function"):
            await opening(reindex=progress)
        assert await memory.list() == []


@looped
async def test_cancelled_add_many_stops_and_keeps_what_it_stored(path: Path, held: HeldEmbedder) -> None:
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(200)]
    texts[40] += HELD
    seen: list[int] = []
    async with opening(path, embedder=held) as memory:
        task = asyncio.create_task(memory.add_many(texts, progress=lambda done, total: seen.append(done)))
        await begun(held)  # the second chunk of 32
        await cancelled(task)
        told = len(seen)
        held.go.set()
    assert len(seen) == told, "progress was told to somebody who had gone"
    assert kept(path) == texts[:33]


@looped
async def test_cancelled_add_many_stops_without_progress(path: Path, held: HeldEmbedder) -> None:
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(200)]
    texts[40] += HELD
    async with opening(path, embedder=held) as memory:
        task = asyncio.create_task(memory.add_many(texts))
        await begun(held)
        await cancelled(task)
        held.go.set()
    assert kept(path) == texts[:33]


@looped
async def test_cancelled_catch_up_stops(path: Path) -> None:
    go, asked, calls = threading.Event(), threading.Event(), count(1)

    def think(messages: Any) -> Any:
        if next(calls) > 1:
            asked.set()
            assert go.wait(60)
        return reply()

    down = ScriptedLLM(ConnectionError("down"))
    async with opening(path, analyst=LLMAnalyst(down, pause=0.001, batch=1)) as memory:
        await memory.add_many([KETTLE, VIOLIN, HERON])
        assert (await memory.stats()).pending == 3
    async with opening(path, analyst=LLMAnalyst(ScriptedLLM(think), pause=0.001, batch=1), catch_up=False) as memory:
        task = asyncio.create_task(memory.catch_up())
        assert await asyncio.to_thread(asked.wait, 30)
        await cancelled(task)
        go.set()
    with Memory.open(path, embedder=HashEmbedder(64)) as found:
        assert found.check().ok
        assert (len(found.list()), found.stats().pending) == (3, 1)


@looped
async def test_cancelled_reindex_goes_on_next_time(path: Path, held: HeldEmbedder) -> None:
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(100)]
    texts[40] += HELD
    async with opening(path) as memory:
        await memory.add_many(texts)
        held.name = "held"
        task = asyncio.create_task(memory.reindex(embedder=held))
        await begun(held)
        await cancelled(task)
        held.go.set()
        while not (await memory.check()).ok:
            await asyncio.sleep(0.01)
    async with opening(path) as memory:
        assert (await memory.stats()).embedder == "hash:64"
        assert contents(await memory.search("ship 7", k=1))
        assert 0 < await memory.reindex(embedder=held) < 100
    assert kept(path, held) == texts


@looped
async def test_cancelled_export_writes_whole_or_nothing(tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        task.cancel()

    async with opening() as memory:
        await memory.add_many(f"Ship {number} came in with cargo {number * 7919}." for number in range(300))
        task = asyncio.create_task(memory.export(tmp_path / "notes.jsonl", progress=progress))
        with pytest.raises(asyncio.CancelledError):
            await task
    whole = (tmp_path / "notes.jsonl").read_text("utf-8") if (tmp_path / "notes.jsonl").exists() else ""
    assert whole.count("\n") in (0, 1 + whole.count('{"note"') + whole.count('{"link"'))
    assert not list(tmp_path.glob("*.part"))


@looped
async def test_cancelled_load_stops_and_can_be_run_again(tmp_path: Path, held: HeldEmbedder) -> None:
    texts = [f"Ship {number} came in with cargo {number * 7919}." for number in range(200)]
    texts[100] += HELD
    async with opening() as memory:
        await memory.add_many(texts)
        await memory.export(tmp_path / "notes.jsonl")
    path = tmp_path / "other.db"
    async with opening(path, embedder=held) as memory:
        task = asyncio.create_task(memory.load(tmp_path / "notes.jsonl"))
        await begun(held)
        await cancelled(task)
        held.go.set()
    assert kept(path, held) == texts[:128]
    async with opening(path, embedder=held) as memory:
        assert await memory.load(tmp_path / "notes.jsonl") == 72
    assert kept(path, held) == texts


@looped
async def test_items_are_read_on_the_loops_thread() -> None:
    def items() -> Any:
        for number in range(5):
            threads.add(threading.get_ident())
            yield f"Ship {number} came in with cargo {number * 7919}."

    threads: set[int] = set()
    texts = ["A list that grows", "while it is stored"]
    async with opening() as memory:
        assert len(await memory.add_many(items())) == 5
        assert threads == {threading.get_ident()}
        task = asyncio.create_task(memory.add_many(texts))
        await asyncio.sleep(0)
        texts.append("is stored as it was")
        assert contents(await task) == texts[:2]
        assert await memory.add_many([]) == []
