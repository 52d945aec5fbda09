"""What a memory adds to a turn of an agent, model and embedding excluded: the same turns with it and without, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from bench.corpus import Turn, questions, turns
from bench.figures import Options, Row, Skipped, figure, in_turn, milliseconds
from bench.shelf import SIZES

ROUNDS = 100
TURNS_A_THREAD = 10
TARGET_MS = 15
SMALL, LARGE = SIZES[0], SIZES[-1]

Ask = Callable[[int], Any]


def run(options: Options) -> Iterator[Row]:
    """Turns of a scripted model: a bare agent, and one with a memory of each size."""
    if find_spec("langchain") is None:
        yield Skipped("a turn of an agent", "pip install 'engramma[langgraph]'")
        return
    with ExitStack() as stack:
        memories = {size: stack.enter_context(options.shelf.open(size)) for size in (SMALL, LARGE)}
        said = _said(options.shelf.texts[:SMALL])
        answers = [turn["content"] for turn in turns(ROUNDS + 1, seed=29)]
        options.shelf.embedder.learn([*said, *(f"user: {text}" for text in said), *(f"assistant: {text}" for text in answers)])
        agents: dict[Any, Ask] = {"bare": _asking(_bare(answers), said)}
        agents |= {size: _asking(_remembering(memory, answers), said) for size, memory in memories.items()}
        agents |= {("store", size): _storing(memory, said) for size, memory in memories.items()}
        times = in_turn(agents, ROUNDS)
    yield milliseconds("turn of a bare agent", times["bare"])
    for size in (SMALL, LARGE):
        yield milliseconds(f"turn with a memory of {size:,} notes", times[size])
        added = [(whole - bare) * 1e3 for whole, bare in zip(times[size], times["bare"], strict=True)]
        yield figure(f"  what the memory adds, {size:,} notes", added, "ms", below=TARGET_MS)
        yield milliseconds(f"  store: put, get, search of ten, beside {size:,} notes", times["store", size])


def _said(about: list[Turn]) -> list[str]:
    """What users say: every other line asks for what is known, the others tell something new."""
    asked, told = questions(ROUNDS, about), [turn["content"] for turn in turns(ROUNDS, seed=23)]
    return [asked[number] if number % 2 else told[number] for number in range(ROUNDS)]


def _bare(answers: list[str]) -> Any:
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    from engramma.testing import ScriptedChatModel

    return create_agent(ScriptedChatModel(*answers), checkpointer=InMemorySaver())


def _remembering(memory: Any, answers: list[str]) -> Any:
    from engramma.agents import build_agent
    from engramma.testing import ScriptedChatModel

    return build_agent(ScriptedChatModel(*answers), memory)


def _asking(agent: Any, said: list[str]) -> Ask:
    def ask(number: int) -> None:
        config = {"configurable": {"thread_id": f"t{number // TURNS_A_THREAD}"}}
        agent.invoke({"messages": said[number]}, config)

    ask(0)
    return ask


def _storing(memory: Any, said: list[str]) -> Ask:
    from engramma.agents import EngrammaStore

    store = EngrammaStore(memory)

    def use(number: int) -> None:
        store.put(("bench", "items"), str(number), {"text": said[number]})
        store.get(("bench", "items"), str(number))
        store.search(("bench",), query=said[number // 2])

    use(0)
    return use
