"""``engramma chat``: talk to a model that remembers, and see what it remembers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.group import WRONG_INPUT, complain, exit_code
from engramma.cli.opening import chosen, opened
from engramma.cli.screen import clean
from engramma.errors import EngrammaError, InvalidInput, MissingExtra

if TYPE_CHECKING:
    from engramma.cli.chat_commands import Desk
    from engramma.cli.screen import Screen
    from engramma.memory import Memory

_DIGITS = 9  # of a number that somebody means
LEAVE = ("/exit", "/quit", "exit", "quit", "退出")


def chat(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The chat model, such as ollama:qwen2.5:7b; the setting llm if not given."),
    ] = None,
    thread: Annotated[str, typer.Option("--thread", metavar="NAME", help="The thread to talk in.")] = "chat",
    new_threads: Annotated[
        bool, typer.Option("--new-threads", help="A new thread each turn: only long-term memory can answer.")
    ] = False,
    checkpoints: Annotated[
        str, typer.Option("--checkpoints", metavar="URL", help="Where threads are kept: memory, sqlite:///FILE, postgresql://….")
    ] = "memory",
    keep: Annotated[
        str, typer.Option("--keep", metavar="WHAT", help="What is remembered: everything, said, facts, judged or nothing.")
    ] = "everything",
    short_term: Annotated[
        str | None,
        typer.Option(
            "--short-term", metavar="HOW",
            help="What of a long thread the model sees: last:20, tokens:4000, summary:4000, summaries:4000 or user-summary:4000.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many notes are recalled each turn.")] = 5,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system prompt.")] = None,
    tools: Annotated[bool, typer.Option("--tools/--no-tools", help="Whether the model gets the memory tools.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the answers only.")] = False,
) -> None:  # fmt: skip
    """Talk to a model that remembers. /help lists what you can ask of the memory meanwhile.

    When the last turn failed, the exit code says how.
    """
    from engramma.cli.screen import Screen
    from engramma.settings import settings

    _bear_any_text()
    _need_agents()
    named = model or settings({"llm": chosen(ctx).llm})["llm"].value
    talking = _model(named)
    options: dict[str, Any] = {"keep": keep, "short_term": short_term, "k": k, "system": system, "tools": tools}
    _check(talking, thread, **options)
    with opened(ctx, create=True) as memory, asyncio.Runner(loop_factory=_loop()) as runner:
        code = _talk(runner, Screen(), memory, talking, str(named), thread, new_threads, checkpoints, quiet, options)
    if code:
        raise typer.Exit(code)


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """How to make the event loop: on Windows the usual one cannot speak to PostgreSQL."""
    return asyncio.SelectorEventLoop if sys.platform == "win32" else None


def _bear_any_text() -> None:
    """What is no UTF-8 in a pipe, or what a terminal cannot show, becomes a mark and no error."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _need_agents() -> None:
    """Raise MissingExtra, in the words of who typed this command, where the packages for agents are not installed."""
    try:
        from engramma.agents import build_agent  # noqa: F401  # needs all of them
    except MissingExtra as error:
        raise MissingExtra(error.package, error.extra, "engramma chat") from error


_FOR_GOOD = "ENGRAMMA_LLM, or llm in engramma.toml, sets it for good."


def _model(named: Any) -> Any:
    """The chat model of a setting; where none is set, say how to get one and stop."""
    from engramma.agents import chat_model
    from engramma.models.base import foreign_model

    if named in (None, "", "none"):
        from engramma.agents.chat_models import no_model

        typer.echo(f"engramma: {no_model('--model {}', _FOR_GOOD)}", err=True)
        raise typer.Exit(WRONG_INPUT)
    with foreign_model(str(named)):
        return chat_model(named)


def _check(model: Any, thread: str, *, keep: str, short_term: str | None, k: int, **more: Any) -> None:
    """Raise InvalidInput for options that cannot be used, before a file is made."""
    from engramma.agents import Recalled

    if not thread.strip():
        raise InvalidInput(f"--thread {thread!r} is empty: give the thread a name")
    _kept(keep, model), _shortened(short_term, model, None), Recalled(k=k)


def _talk(
    runner: asyncio.Runner, screen: Screen, memory: Memory, model: Any, name: str, thread: str, fresh: bool, url: str,
    quiet: bool, options: dict[str, Any],
) -> int:  # fmt: skip
    """Hold the conversation; the exit code."""
    from engramma.agents.checkpoints import async_checkpointer, without_password
    from engramma.agents.conversation import Conversation
    from engramma.cli.chat_commands import Desk

    stack = AsyncExitStack()
    saver = runner.run(stack.enter_async_context(async_checkpointer(url)))
    try:
        agent = _agent(model, memory, saver, **options)
        desk = Desk(screen, memory, Conversation(agent, memory, thread, fresh, without_password(name)), quiet)
        _greet(desk)
        code = 0
        for text in _lines(screen.terminal):
            if text.casefold() in LEAVE or text.partition(" ")[0] in ("/exit", "/quit"):
                break
            failure = _heard(runner, desk, text)
            if text and not text.startswith("/"):  # a command that failed is told and done with
                code = exit_code(failure) if failure else 0
        desk.leave()
        return code
    finally:
        runner.run(stack.aclose())


def _agent(model: Any, memory: Memory, saver: Any, *, keep: str, short_term: str | None, k: int, system: str | None,
           tools: bool) -> Any:  # fmt: skip
    from engramma.agents import Recalled, build_agent

    prompt: dict[str, Any] = {} if system is None else {"system_prompt": system.strip() or None}
    return build_agent(
        model, memory, checkpointer=saver, write=_kept(keep, model), retrieve=Recalled(k=k), memory_tools=tools,
        short_term=_shortened(short_term, model, None if keep == "nothing" else memory), **prompt,
    )  # fmt: skip


def _kept(keep: str, model: Any) -> Any:
    from engramma.agents import Everything, Judged, Patterns

    policies: dict[str, Callable[[], Any]] = {
        "everything": Everything, "said": lambda: Everything(assistant=False), "facts": Patterns,
        "judged": lambda: Judged(model), "nothing": lambda: lambda turn: [],
    }  # fmt: skip
    if keep not in policies:
        raise InvalidInput(f"--keep {keep!r} is not known: it takes {', '.join(policies)}")
    return policies[keep]()


def _shortened(how: str | None, model: Any, memory: Memory | None) -> Any:
    if how is None:
        return ()
    from engramma import agents

    kind, _, number = how.partition(":")
    strategies: dict[str, Callable[[int], Any]] = {
        "last": agents.keep_last, "tokens": agents.token_budget,
        "summary": lambda most: agents.running_summary(model, max_tokens=most, memory=memory),
        "summaries": lambda most: agents.summary_of_summaries(model, max_tokens=most, memory=memory),
        "user-summary": lambda most: agents.summary_of_role(model, max_tokens=most, memory=memory),
    }  # fmt: skip
    if kind not in strategies or not number.isdecimal() or len(number) > _DIGITS:
        known = ", ".join(f"{name}:N" for name in strategies)
        raise InvalidInput(f"--short-term {how!r:.60} is not known: it takes one of {known}")
    try:
        return strategies[kind](int(number))
    except InvalidInput as error:
        raise InvalidInput(f"--short-term {how!r}: {error}") from error


def _greet(desk: Desk) -> None:
    if desk.quiet:
        return
    memory, talk = desk.memory, desk.talk
    threads = "a new thread each turn" if talk.fresh else f"thread {talk.thread}"
    space = memory.space if isinstance(memory.space, str) else "/".join(memory.space)
    desk.screen.line((f"{talk.model_name} · {memory.path} · space {space}, {desk.count()} · {threads}", "dim"))
    desk.screen.line(("/help lists what you can ask of the memory; Ctrl-D leaves", "dim"))


def _lines(terminal: bool) -> Iterator[str]:
    """What is typed, line by line; Ctrl-C at the prompt drops the line, Ctrl-D ends."""
    prompt = "\nyou> " if sys.stdin.isatty() and terminal else ""
    if prompt:
        with suppress(ImportError):  # Windows has none
            import readline  # noqa: F401  # gives input() its history and arrow keys
    while True:
        try:
            line = input(prompt)
        except EOFError:
            typer.echo(nl=bool(prompt))
            return
        except KeyboardInterrupt:
            complain("Ctrl-D or /exit leaves")
            continue
        yield line.strip()


def _heard(runner: asyncio.Runner, desk: Desk, text: str) -> Exception | None:
    """A turn or a command. What goes wrong in it is told and given back, and the conversation goes on."""
    try:
        if text.startswith("/"):
            desk.command(text)
        elif text:
            _turn(runner, desk, text)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        complain("stopped")
    except (EngrammaError, OSError) as error:
        complain(clean(str(error)))
        return error
    return None


def _turn(runner: asyncio.Runner, desk: Desk, text: str) -> None:
    """One turn; Ctrl-C stops the answer and not the chat."""
    try:
        runner.run(_spoken(desk, text))
    except KeyboardInterrupt:
        desk.stopped(_mended(runner, desk))
    except BrokenPipeError:
        raise
    except (EngrammaError, OSError):
        desk.end()
        _mended(runner, desk)
        raise


def _mended(runner: asyncio.Runner, desk: Desk) -> bool:
    """Whether the turn had no answer yet. Should mending fail as well, the next turn does it."""
    with suppress(EngrammaError, OSError, KeyboardInterrupt):
        return runner.run(desk.talk.mend())
    return True


async def _spoken(desk: Desk, text: str) -> None:
    async with aclosing(desk.talk.say(text)) as events:
        async for event in events:
            desk.show(event)
    desk.end()
