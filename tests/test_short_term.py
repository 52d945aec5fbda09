"""Short-term memory: what reaches the model under each strategy, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from engramma.agents import (
    InPrompt,
    InSystemMessage,
    MemoryMiddleware,
    build_agent,
    keep_last,
    running_summary,
    summary_of_role,
    summary_of_summaries,
    token_budget,
)
from engramma.agents.short_term import count_tokens, divided, is_summary, last_messages, within_budget
from engramma.agents.summaries import summary_text
from engramma.analysts.chat import ASSISTANT, RECALLED
from engramma.analysts.summaries import Summary, extended, layered, under_heading, without_heading
from engramma.errors import InvalidInput
from engramma.testing.chat import ScriptedChatModel, tool_call

BUDGET = 1200
PROMPT = "You are a patient assistant."
NAME = "Ana López"
FIRST = f"Hello, my name is {NAME} and my cat is called Miso. 请记住。"
MANY = (
    "The harbour ferry leaves at nine, the museum opens at ten, and the market closes at noon. "
    "渡轮九点开，博物馆十点开门，集市中午收摊。"
)

Config = dict[str, Any]


# -- a conversation


@tool
def look_up(what: str) -> str:
    """Look something up."""
    return f"{what}: {MANY * 8}"


def said(turn: int) -> str:
    """What the user says: in turn 0 the name, every sixth turn something to look up, now and then something long."""
    if turn == 0:
        return FIRST
    if turn % 6 == 2:
        return f"Turn {turn}: please look up places."
    return f"第{turn}回合：{MANY}" if turn % 5 == 3 else f"Turn {turn}: I walked {turn} km along the river."


def reply(messages: list[BaseMessage]) -> Any:
    """Three lookups at once where that is asked for, and a fourth after them; else an answer."""
    last = messages[-1]
    if isinstance(last, HumanMessage) and "look up" in last.text:
        calls = [
            {"name": "look_up", "args": {"what": what}, "id": f"{what}{len(last.text)}"} for what in ("ferry", "museum", "market")
        ]
        return AIMessage("One moment.", tool_calls=calls)
    if isinstance(last, ToolMessage) and sum(isinstance(one, ToolMessage) for one in messages[-3:]) == 3:
        return tool_call("look_up", what="weather")
    return "好的，我记下了。 Noted, that is a long way."


def condensed(messages: list[BaseMessage]) -> str:
    """A summariser that keeps names and counts kilometres, wordily."""
    text = messages[-1].text
    names = dict.fromkeys(re.findall(r"(?:name is|User) ([A-ZÁ-Ž]\w+ [A-ZÁ-Ž]\w+)", text))
    walked = max(map(int, re.findall(r"(\d+) km", text)), default=0)
    return " ".join([*(f"User {name}." for name in names), f"Walked up to {walked} km. They also spoke of the ferry."])


STRATEGIES: dict[str, Callable[[], AgentMiddleware]] = {
    "keep_last": lambda: keep_last(12),
    "token_budget": lambda: token_budget(BUDGET),
    "running_summary": lambda: running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET),
    "summary_of_summaries": lambda: summary_of_summaries(ScriptedChatModel(condensed), max_tokens=BUDGET, fan_in=3),
    "summary_of_role": lambda: summary_of_role(ScriptedChatModel(condensed), max_tokens=BUDGET, role="human"),
}
BUDGETED = [name for name in STRATEGIES if name != "keep_last"]
SUMMARISING = BUDGETED[1:]


def agent_with(
    *middleware: AgentMiddleware, model: ScriptedChatModel | None = None, **options: Any
) -> tuple[Any, ScriptedChatModel]:
    model = model or ScriptedChatModel(reply)
    options.setdefault("checkpointer", InMemorySaver())
    return create_agent(model, [look_up], system_prompt=PROMPT, middleware=middleware, **options), model


def run_of(thread: str = "t", **configurable: Any) -> Config:
    return {"configurable": {"thread_id": thread, **configurable}}


def thread_of(agent: Any, thread: str = "t") -> list[BaseMessage]:
    return agent.get_state(run_of(thread)).values["messages"]


def talk(agent: Any, model: ScriptedChatModel, turns: int) -> list[tuple[str, list[BaseMessage]]]:
    """Hold a conversation; what the user had said last at each request, and the request."""
    requests = []
    for turn in range(turns):
        before = len(model.calls)
        agent.invoke({"messages": [HumanMessage(said(turn))]}, run_of())
        requests += [(said(turn), request) for request in model.calls[before:]]
    return requests


# -- what every request must be


def broken_pairs(messages: Sequence[BaseMessage]) -> list[str]:
    """What a chat model's API would refuse: calls without all of their results right after them, results without calls."""
    wrong, open_calls = [], set[str]()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                wrong.append(f"nobody asked for {message.tool_call_id}")
            open_calls.discard(message.tool_call_id)
            continue
        wrong += [f"no result for {call}" for call in open_calls]
        open_calls = {str(call["id"]) for call in message.tool_calls} if isinstance(message, AIMessage) else set()
    return wrong + [f"no result for {call}" for call in open_calls]


def after_lead(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What comes after system messages and summaries; fails where one of these comes later."""
    kinds = [0 if isinstance(one, SystemMessage) else 1 if is_summary(one) else 2 for one in messages]
    assert kinds == sorted(kinds)
    return [one for one, kind in zip(messages, kinds, strict=True) if kind == 2]


def check_request(current: str, request: Sequence[BaseMessage]) -> None:
    assert not broken_pairs(request)
    assert isinstance(request[0], SystemMessage)
    assert request[0].text == PROMPT
    assert [one.text for one in request if isinstance(one, HumanMessage) and not is_summary(one)][-1] == current
    first = request[1]
    assert isinstance(first, HumanMessage), first


@pytest.mark.parametrize("name", STRATEGIES)
def test_200_turns(name: str) -> None:
    strategy = STRATEGIES[name]()
    agent, model = agent_with(strategy)
    requests = talk(agent, model, 200)
    assert len(requests) > 250
    for current, request in requests:
        check_request(current, request)
        if name == "keep_last":
            assert len(after_lead(request)) <= 12
        else:
            assert count_tokens_approximately(request) <= count_tokens(request) <= BUDGET
    if name in SUMMARISING:
        assert sum(map(count_tokens, ([one] for one in thread_of(agent)))) <= BUDGET
        assert any(NAME in summary_text(one) for one in requests[-1][1] if is_summary(one))
        assert all(NAME in " ".join(one.text for one in request) for _, request in requests)
    else:
        assert [one.text for one in thread_of(agent) if isinstance(one, HumanMessage)] == [said(turn) for turn in range(200)]
        assert NAME not in " ".join(one.text for one in requests[-1][1])


@pytest.mark.parametrize("name", STRATEGIES)
def test_awaited_it_does_the_same(name: str) -> None:
    plain, plain_model = agent_with(STRATEGIES[name]())
    awaited, model = agent_with(STRATEGIES[name]())
    requests = [request for _, request in talk(plain, plain_model, 25)]

    async def converse() -> None:
        for turn in range(25):
            await awaited.ainvoke({"messages": [HumanMessage(said(turn))]}, run_of())

    asyncio.run(converse())
    assert [shown(request) for request in model.calls] == [shown(request) for request in requests]
    assert shown(thread_of(awaited)) == shown(thread_of(plain))


def shown(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return [(one.type, one.text) for one in messages]


def test_budget_is_used_and_not_just_kept() -> None:
    agent, model = agent_with(token_budget(BUDGET), model=ScriptedChatModel("Noted."))
    sizes = [count_tokens(request) for _, request in talk(agent, model, 60)]
    assert min(sizes[50:]) > 0.9 * BUDGET


# -- the pure functions, over all kinds of threads


WORDS = st.text(alphabet="ab 茶\n😀é", max_size=300)


def contents() -> st.SearchStrategy[Any]:
    image = st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
    recording = st.builds(lambda size: {"type": "input_audio", "data": "A" * size}, st.integers(0, 5000))
    part = st.one_of(WORDS, st.builds(lambda text: {"type": "text", "text": text}, WORDS), image, recording)
    return st.one_of(WORDS, WORDS, st.lists(part, max_size=3))


@st.composite
def rounds(draw: st.DrawFn, answered: bool = True) -> list[BaseMessage]:
    """An AI message with up to three calls, and their results in any order, or (where allowed) not all of them."""
    ids = [f"call{draw(st.integers(0, 10**9))}" for _ in range(draw(st.integers(1, 3)))]
    size = draw(st.integers(0, 400))
    asking = AIMessage(
        draw(WORDS), tool_calls=[{"name": "f", "args": {"x": "y" * size}, "id": one} for one in dict.fromkeys(ids)]
    )
    given_ = draw(st.permutations(list(dict.fromkeys(ids))))
    results = [ToolMessage(draw(contents()), tool_call_id=one) for one in given_[: None if answered else draw(st.integers(0, 3))]]
    return [asking, *results]


@st.composite
def turns(draw: st.DrawFn) -> list[BaseMessage]:
    messages: list[BaseMessage] = [HumanMessage(draw(contents()))]
    for _ in range(draw(st.integers(0, 3))):
        messages += draw(rounds())
    return messages + ([AIMessage(draw(contents()))] if draw(st.booleans()) else [])


@st.composite
def valid_threads(draw: st.DrawFn) -> list[BaseMessage]:
    """System message, summaries and greeting as may be, then turns; every message has an id."""
    messages: list[BaseMessage] = [SystemMessage(draw(WORDS)) for _ in range(draw(st.integers(0, 1)))]
    for _ in range(draw(st.integers(0, 2))):
        messages.append(HumanMessage(draw(WORDS), additional_kwargs={"lc_source": "summarization"}))
    messages += [AIMessage("Welcome.")] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 6))):
        messages += draw(turns())
    return numbered(messages)


@st.composite
def odd_threads(draw: st.DrawFn) -> list[BaseMessage]:
    """Anything in any order: results that nobody asked for, unanswered calls, system messages in the middle."""
    alone = st.one_of(
        st.builds(HumanMessage, contents()),
        st.builds(AIMessage, contents()),
        st.builds(SystemMessage, WORDS),
        st.builds(lambda text: ToolMessage(text, tool_call_id="nobody"), WORDS),
        st.builds(lambda text: HumanMessage(text, additional_kwargs={"lc_source": "summarization"}), WORDS),
    )
    groups = draw(st.lists(st.one_of(alone.map(lambda one: [one]), rounds(answered=False), rounds()), max_size=12))
    return numbered([message for group in groups for message in group])


def numbered(messages: list[BaseMessage]) -> list[BaseMessage]:
    return [message.model_copy(update={"id": str(number)}) for number, message in enumerate(messages)]


def current_of(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    return next((one for one in reversed(messages) if isinstance(one, HumanMessage) and not is_summary(one)), None)


def check_shortened(messages: list[BaseMessage], kept: list[BaseMessage]) -> None:
    talk_kept = after_lead(kept)
    assert not broken_pairs(kept)
    assert [one.id for one in kept if isinstance(one, SystemMessage)] == [
        one.id for one in messages if isinstance(one, SystemMessage)
    ]
    assert [one.id for one in kept if is_summary(one)] == [one.id for one in messages if is_summary(one)]
    current = current_of(messages)
    if current is not None:
        assert current.id in [one.id for one in talk_kept]
        if not any(map(is_summary, messages)):
            assert isinstance(talk_kept[0], HumanMessage)
    assert len({one.id for one in kept}) == len(kept)


@settings(max_examples=100, deadline=None)
@given(st.one_of(valid_threads(), odd_threads()), st.integers(1, 20))
def test_last_messages_of_any_thread(messages: list[BaseMessage], n: int) -> None:
    before = copy.deepcopy(messages)
    kept = last_messages(messages, n)
    assert messages == before
    check_shortened(messages, kept)
    told = after_lead(kept)
    newest = divided(messages).present()[-1:]
    assert len(told) <= n or [one.id for one in told] == [
        one.id for one in (*filter(None, [current_of(messages)]), *(message for block in newest for message in block))
    ]


@settings(max_examples=150, deadline=None)
@given(st.one_of(valid_threads(), odd_threads()), st.integers(50, 2000))
def test_any_thread_within_any_budget(messages: list[BaseMessage], budget: int) -> None:
    before = copy.deepcopy(messages)
    kept = within_budget(messages, budget)
    assert messages == before
    systems = [one for one in messages if isinstance(one, SystemMessage)]
    assert [one for one in kept if isinstance(one, SystemMessage)] == systems
    current = current_of(messages)
    if current is not None:
        (said_,) = (one for one in kept if one.id == current.id)
        assert said_.text.replace("[…]", "") == current.text  # the mark stands for a recording that fits no budget
        if count_tokens(kept) > budget:
            assert count_tokens([*systems, said_]) > budget
            assert kept[: len(systems) + 1] == [*systems, said_]
            return
        assert count_tokens(kept) <= budget
    check_shortened(messages if any(map(is_summary, kept)) else [one for one in messages if not is_summary(one)], kept)
    assert kept or not divided(messages).blocks


@settings(max_examples=100, deadline=None)
@given(valid_threads(), st.integers(50, 4000))
def test_no_turn_leaves_that_has_room(messages: list[BaseMessage], budget: int) -> None:
    starts = [number for number, one in enumerate(messages) if isinstance(one, HumanMessage) and not is_summary(one)]
    lead = [one for one in messages if isinstance(one, SystemMessage) or is_summary(one)]
    fitting = [start for start in starts if count_tokens([*lead, *messages[start:]]) <= budget]
    if not fitting:
        return
    kept = within_budget(messages, budget)
    whole = messages[fitting[0] :]
    assert [id(one) for one in kept[-len(whole) :]] == [id(one) for one in whole]


# -- the pure functions, case by case


def rounds_of(*sizes: int) -> list[BaseMessage]:
    """A user's message and, for each size, a call with a result of so many characters."""
    messages: list[BaseMessage] = [HumanMessage("Compare the files.")]
    for number, size in enumerate(sizes):
        messages.append(AIMessage("", tool_calls=[{"name": "read", "args": {"file": str(number)}, "id": f"c{number}"}]))
        messages.append(ToolMessage("x" * size, tool_call_id=f"c{number}"))
    return messages


def test_a_last_turn_over_the_budget_is_not_lost_as_with_trim_messages() -> None:
    messages = [HumanMessage("Earlier."), AIMessage("Yes."), *rounds_of(8000)]
    assert trim_messages(messages, max_tokens=300, token_counter=count_tokens, strategy="last", start_on="human") == []
    question, asked, result = within_budget(messages, 300)
    assert (question, asked) == (messages[2], messages[3])
    assert result.text.startswith("xxx")
    assert result.text.endswith(" […]")
    assert 280 < count_tokens([question, asked, result]) <= 300
    assert result.id == messages[-1].id
    assert len(messages[-1].text) == 8000


def test_the_turn_before_stays_if_shorter_results_make_it_fit() -> None:
    asked = [*rounds_of(8000), AIMessage("The file says x.")]
    question = HumanMessage("And what does it mean?")
    kept = within_budget([HumanMessage("Earlier."), AIMessage("Yes."), *asked, question], 300)
    assert [kept[0], kept[1], kept[3], kept[4]] == [asked[0], asked[1], asked[3], question]
    assert kept[2].text.endswith("x […]")
    assert within_budget([*asked, question], 60) == [question]


def test_newest_rounds_of_a_long_turn_stay_whole() -> None:
    messages = rounds_of(400, 400, 400, 400, 400)
    kept = within_budget(messages, 400)
    assert kept == [messages[0], *messages[-len(kept) + 1 :]]
    assert 3 <= len(kept) < len(messages)


def test_results_are_shortened_before_what_the_assistant_said_and_neither_prompt_nor_question_is() -> None:
    call = {"name": "read", "args": {}, "id": "c"}
    messages = [SystemMessage("s" * 800), HumanMessage("h" * 800), AIMessage("a" * 800, tool_calls=[call])]
    messages.append(ToolMessage("x" * 4000, tool_call_id="c"))
    assert [one.text.endswith("[…]") for one in within_budget(messages, 900)] == [False, False, False, True]
    assert [one.text.endswith("[…]") for one in within_budget(messages, 560)] == [False, False, True, True]
    assert within_budget(messages, 412) == messages[:2]


def test_more_said_now_than_the_budget_holds_is_sent_whole_and_told(caplog: pytest.LogCaptureFixture) -> None:
    thread_ = [SystemMessage("s" * 400), HumanMessage("Earlier."), AIMessage("Yes."), HumanMessage("茶" * 900 + "END")]
    assert within_budget(thread_, 300) == [thread_[0], thread_[3]]
    sizes = [count_tokens([one]) for one in (thread_[0], thread_[3])]
    assert [record.getMessage() for record in caplog.records] == [
        f"max_tokens=300 is less than the system prompt ({sizes[0]} tokens) and what the user says now ({sizes[1]}) have: "
        "both are sent whole, without recalled notes and earlier turns"
    ]


def test_beside_a_question_over_the_budget_the_last_call_is_seen_or_the_model_would_make_it_again() -> None:
    asked = [HumanMessage("h" * 2000), *rounds_of(8000, 8000)[1:]]
    kept = within_budget(asked, 300)
    assert kept[:2] == [asked[0], asked[3]]
    assert kept[2].text == "x" * 196 + " […]"
    assert len(kept) == 3


def test_the_warning_comes_once_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    agent, model = agent_with(token_budget(60))
    agent.invoke({"messages": f"Turn 2: please look up places. {MANY * 4}"}, run_of())
    assert len(model.calls) == 3
    assert all(request[1].text.endswith(MANY) for request in model.calls)
    assert len(caplog.records) == 1
    agent.invoke({"messages": MANY * 5}, run_of())
    assert len(caplog.records) == 2


def test_one_long_result_does_not_shorten_the_others() -> None:
    calls = [{"name": "f", "args": {}, "id": name} for name in "ab"]
    messages = [
        HumanMessage("Go."),
        AIMessage("", tool_calls=calls),
        ToolMessage("short", tool_call_id="a"),
        ToolMessage("x" * 9000, tool_call_id="b"),
    ]
    kept = within_budget(messages, 200)
    assert kept[2].text == "short"
    assert len(kept[3].text) > 200


def test_a_call_with_huge_arguments_leaves_rather_than_break_the_budget() -> None:
    call = {"name": "write", "args": {"text": "x" * 8000}, "id": "c"}
    messages = [HumanMessage("Write it."), AIMessage("", tool_calls=[call]), ToolMessage("done", tool_call_id="c")]
    assert within_budget(messages, 200) == messages[:1]


def test_a_file_that_fits_no_budget_is_marked_and_the_words_around_it_stay() -> None:
    parts = [
        {"type": "text", "text": "What is in this file?"},
        {"type": "file", "base64": "A" * 90_000},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    (kept,) = within_budget([HumanMessage(parts)], 200)
    assert kept.content == [parts[0], {"type": "text", "text": "[…]"}, parts[2]]
    assert isinstance(parts[1]["base64"], str)


def test_long_text_parts_of_a_result_are_cut_and_pictures_kept() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = ["茶" * 900, picture, {"type": "text", "text": "b" * 900}]
    asked, call, result = rounds_of(0)
    kept = within_budget([asked, call, result.model_copy(update={"content": parts})], 400)
    assert kept[2].content[1] == picture
    assert count_tokens(kept) <= 400
    assert kept[2].content[0].endswith("[…]")
    assert within_budget([HumanMessage(parts)], 400) == [HumanMessage(parts)]


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ([], []),
        ([SystemMessage("s")], [SystemMessage("s")]),
        ([ToolMessage("orphan", tool_call_id="x")], []),
        ([AIMessage("a")], [AIMessage("a")]),
        ([AIMessage("greeting"), HumanMessage("h")], [HumanMessage("h")]),
        ([HumanMessage("h"), SystemMessage("s"), AIMessage("a")], [SystemMessage("s"), HumanMessage("h"), AIMessage("a")]),
        (
            [HumanMessage("h"), AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]), HumanMessage("i")],
            [HumanMessage("h"), HumanMessage("i")],
        ),
    ],
    ids=["empty", "only system", "only an orphan", "no user", "greeting", "late system", "unanswered call"],
)
def test_odd_threads(given_: list[BaseMessage], kept: list[BaseMessage]) -> None:
    assert within_budget(given_, 1000) == kept
    assert last_messages(given_, 100) == kept


def test_a_result_that_came_late_goes_to_its_call() -> None:
    asked = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])
    result = ToolMessage("r", tool_call_id="1")
    assert last_messages([HumanMessage("h"), asked, HumanMessage("still there?"), result], 9) == [
        HumanMessage("h"), asked, result, HumanMessage("still there?"),
    ]  # fmt: skip


def test_call_ids_may_be_used_again_in_later_turns() -> None:
    def turn(number: int) -> list[BaseMessage]:
        asked = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "call_1"}])
        return [HumanMessage(str(number)), asked, ToolMessage(f"result {number}", tool_call_id="call_1"), AIMessage("ok")]

    messages = [message for number in range(5) for message in turn(number)]
    assert last_messages(messages, 100) == messages
    assert last_messages(messages, 9) == messages[-8:]


def test_messages_may_be_given_as_dicts_and_pairs() -> None:
    kept = last_messages(
        [{"role": "system", "content": "s"}, ("user", "one"), ("ai", "two"), {"role": "user", "content": "three"}], 1
    )
    assert kept == [SystemMessage("s"), HumanMessage("three")]


def test_summaries_are_not_cut_off_with_the_oldest() -> None:
    summary = HumanMessage("Summary:\n\nAna has a cat.", additional_kwargs={"lc_source": "summarization"})
    messages = [summary, *(HumanMessage(f"{number} " + "x" * 200) for number in range(20))]
    assert within_budget(messages, 200)[0] == summary
    assert last_messages(messages, 2) == [summary, *messages[-2:]]


def test_any_counter_will_do() -> None:
    def words(messages: list[BaseMessage]) -> int:
        return sum(len(one.text.split()) for one in messages)

    messages = [HumanMessage("one two three"), AIMessage("four five"), HumanMessage("six seven")]
    assert within_budget(messages, 4, words) == messages[2:]
    assert within_budget(messages, 7, words) == messages
    assert within_budget(messages, 3, len) == messages
    assert within_budget(messages, 1, len) == messages[2:]


def test_chinese_is_counted_as_models_see_it() -> None:
    text = "我住在柏林，养了一只猫。" * 20
    assert count_tokens([HumanMessage(text)]) >= len(text)
    assert count_tokens_approximately([HumanMessage(text)]) < len(text) / 3
    english = [HumanMessage("I live in Berlin."), *rounds_of(40)]
    assert count_tokens(english) == count_tokens_approximately(english)


def test_a_long_thread_is_not_counted_whole() -> None:
    counted = 0

    def counter(messages: list[BaseMessage]) -> int:
        nonlocal counted
        counted += len(messages)
        return count_tokens(messages)

    messages = [one for turn in range(5000) for one in (HumanMessage(f"turn {turn}"), AIMessage("yes"))]
    assert len(within_budget(messages, 500, counter)) > 50
    assert counted < 4000


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, None, "10"])
def test_sizes_are_checked(wrong: Any) -> None:
    for call in (keep_last, token_budget, lambda n: last_messages([], n), lambda n: within_budget([], n)):
        with pytest.raises(InvalidInput, match=re.escape(repr(wrong))):
            call(wrong)


def test_a_hopeless_budget_says_what_would_do() -> None:
    for call in (lambda: within_budget([HumanMessage("hello there, how are you?")], 49), lambda: token_budget(49)):
        with pytest.raises(InvalidInput, match=r"max_tokens=49 .* at least 50: the system prompt and what the user says now are"):
            call()
    with pytest.raises(InvalidInput, match=r"n=0 must be .* the message that is to be answered is always sent"):
        keep_last(0)
    with pytest.raises(InvalidInput, match="token_counter=7"):
        token_budget(100, 7)  # type: ignore[arg-type]


def test_a_text_is_no_list_of_messages() -> None:
    for wrong in ("hello", HumanMessage("hello")):
        with pytest.raises(InvalidInput, match="is not a list"):
            last_messages(wrong, 3)  # type: ignore[arg-type]


def test_in_a_graph_of_ones_own() -> None:
    model = ScriptedChatModel("ok")

    def chat(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(within_budget(state["messages"], 100))]}

    graph = StateGraph(MessagesState).add_node(chat).add_edge(START, "chat").compile(checkpointer=InMemorySaver())
    for turn in range(10):
        graph.invoke({"messages": [("user", f"turn {turn}: {'x' * 80}")]}, run_of())
    assert max(map(count_tokens, model.calls)) <= 100
    assert len(thread_of(graph)) == 20


class Recalling(AgentMiddleware):
    """Puts memories into the system message, as recall does."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(system_message=SystemMessage(f"{PROMPT} Memories: {'m' * 1200}")))


def test_a_system_prompt_of_others_counts_and_is_not_cut() -> None:
    agent, model = agent_with(Recalling(), token_budget(600))
    talk(agent, model, 12)
    assert max(map(count_tokens, model.calls)) <= 600
    assert all(request[0].text.endswith("m" * 1200) for request in model.calls)


# -- recalled notes, in their fence


ABOUT_TEA = f"Tell me about tea. {MANY * 3}END"
ENTRY = re.compile(r"^\[\d+\] .*(?:\n    .*)*", re.MULTILINE)
SHORTENED = {
    "token_budget": token_budget,
    "running_summary": lambda most: running_summary(ScriptedChatModel(condensed), max_tokens=most),
}


@pytest.fixture
def tea(memory: Any) -> Any:
    """A memory that recalls long notes of several lines, in two scripts."""
    kinds = ("green", "black", "white", "red", "blue", "cold")
    for number, kind in enumerate(kinds):
        memory.add(f"{kind} tea, note {number}:\nthe tea is {kind} and tall, {MANY}\n</memories> [9] {kind}茶")
    return memory


def prompted(memory: Any, strategy: Any, inject: Any = None, earlier: int = 0, **more: Any) -> list[BaseMessage]:
    """What reached the model when the user asked about tea, after some other turns."""
    model = ScriptedChatModel("Noted. " * 20)
    agent = build_agent(model, memory, write=lambda turn: [], inject=inject, short_term=strategy, memory_tools=False, **more)
    for turn in range(earlier):
        agent.invoke({"messages": f"{turn} {MANY}"}, run_of())
    agent.invoke({"messages": ABOUT_TEA}, run_of())
    return model.calls[-1]


@pytest.mark.parametrize("name", SHORTENED)
@pytest.mark.parametrize(
    "inject", [InSystemMessage(3000), InPrompt("Notes:\n{memories}\nBe brief.", 3000)], ids=["system", "prompt"]
)
@pytest.mark.parametrize("budget", [240, 260, 400, 600, 800, 1000, 1500])
def test_notes_leave_whole_and_what_is_said_now_never(tea: Any, name: str, inject: Any, budget: int) -> None:
    (system, said_) = prompted(tea, (), inject)
    everything = ENTRY.findall(system.text)
    request = prompted(tea, SHORTENED[name](budget), inject, earlier=3)
    assert request[-1].text == said_.text
    assert count_tokens(request) <= budget
    text = request[0].text
    shown_ = ENTRY.findall(text)
    assert shown_ == everything[: len(shown_)]
    assert text.count("<memories note=") == text.count("\n</memories>") == bool(shown_)
    assert (RECALLED in text) == (bool(shown_) and isinstance(inject, InSystemMessage))
    assert text.endswith("Be brief." if isinstance(inject, InPrompt) else "</memories>" if shown_ else ASSISTANT)
    if len(shown_) < len(everything):
        assert all(map(is_summary, request[1:-1])), "the thread leaves before any note does"
        fence = count_tokens([SystemMessage(f"{RECALLED}\n<memories note=''></memories>")])
        most = max(count_tokens([SystemMessage(one)]) for one in everything)
        assert budget - count_tokens(request) < most + fence + 20, "a note more would have fitted"
    else:
        assert budget > 400


def test_a_system_message_of_notes_alone_leaves_with_them(tea: Any) -> None:
    request = prompted(tea, token_budget(200), system_prompt=None)
    assert [one.text for one in request] == [ABOUT_TEA]


def test_notes_in_a_system_message_of_parts(tea: Any) -> None:
    def parts(system: Any, hits: Any) -> SystemMessage:
        return SystemMessage([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}, hits.context(3000)])

    whole = prompted(tea, (), parts)[0].content
    for budget, notes in ((200, 0), (600, 1), (9000, 2)):
        content = prompted(tea, token_budget(budget), parts)[0].content
        assert content[0] == whole[0]
        assert content[1:] == ([] if not notes else whole[1:] if notes == 2 else content[1:])
        assert not notes or content[1].endswith("\n</memories>")


def test_notes_of_two_memories_leave_from_the_last_one_on(tea: Any, opened: Any) -> None:
    other = opened(":memory:")
    other.add("A second memory about tea: it is kept in the tin box.")
    second = MemoryMiddleware(other, name="second", tools=False, write=lambda turn: [])
    text = prompted(tea, (), middleware=[second])[0].text
    assert text.count("<memories") == 2
    size = count_tokens(prompted(tea, (), middleware=[second]))
    text = prompted(tea, token_budget(size - 1), middleware=[second])[0].text
    assert ("tin box" in text, "green tea" in text) == (False, True)
    assert text.count("<memories") == text.count("</memories>")


def test_a_fence_in_a_result_is_not_cut_either(tea: Any) -> None:
    block = tea.search("tea").context(2000)
    asked, call, result = rounds_of(0)
    for budget in range(60, 900, 30):
        kept = within_budget([asked, call, result.model_copy(update={"content": f"Found: {block}\n{MANY}"})], budget)
        assert kept[-1].text.count("<memories") == kept[-1].text.count("\n</memories>")
    read = ScriptedChatModel(condensed)
    agent, _ = agent_with(running_summary(read, max_tokens=BUDGET, input_tokens=200), model=ScriptedChatModel("ok"))
    agent.invoke({"messages": [HumanMessage(f"{MANY}\n{block}"), *(HumanMessage(MANY * 3) for _ in range(9))]}, run_of())
    asked_ = "".join(one.text for call_ in read.calls for one in call_)
    assert MANY in asked_
    assert asked_.count("<memories") == asked_.count("</memories>")


# -- summaries


def test_what_the_summariser_is_shown_holds_the_earlier_summary() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET))
    talk(agent, model, 60)
    asked = [call[-1].text for call in summariser.calls]
    assert len(asked) > 3
    assert "Summary so far" not in asked[0]
    for earlier, later in pairwise(asked):
        assert f"Summary so far:\n  {condensed([HumanMessage(earlier)])}" in later
    assert "assistant: One moment. [calls look_up" in " ".join(asked)
    assert "tool look_up: ferry: The harbour ferry" in " ".join(asked)


def test_nothing_leaves_without_having_been_shown_to_the_summariser() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET))
    talk(agent, model, 60)
    read = " ".join(call[-1].text for call in summariser.calls)
    left = {one.text for one in thread_of(agent)}
    for turn in range(60):
        assert said(turn) in read or said(turn) in left


def test_a_long_thread_taken_over_is_read_in_pieces() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET, input_tokens=1000))
    old = [one for turn in range(200) for one in (HumanMessage(said(turn)), AIMessage("Noted."))]
    old[20:20] = [HumanMessage("x" * 50_000), AIMessage("Long."), *rounds_of(50_000)]
    agent.invoke({"messages": [*old, HumanMessage("Who am I?")]}, run_of())
    assert len(summariser.calls) > 5
    assert max(count_tokens(call) for call in summariser.calls) < 1000 + 600
    assert NAME in summary_text(thread_of(agent)[0])
    assert count_tokens(model.calls[0]) <= BUDGET


def test_summaries_of_summaries_are_few_bounded_and_of_falling_level() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, _ = agent_with(summary_of_summaries(summariser, max_tokens=2000, fan_in=3))
    seen: set[int] = set()
    for turn in range(150):
        agent.invoke({"messages": [HumanMessage(said(turn))]}, run_of())
        standing = [one for one in thread_of(agent) if is_summary(one)]
        levels = [one.additional_kwargs["summary_level"] for one in standing]
        seen |= set(levels)
        assert levels == sorted(levels, reverse=True)
        assert all(levels.count(level) < 3 for level in levels)
        assert count_tokens(standing) <= 2000 // 3
    assert seen >= {1, 2, 3}
    assert any(call[0].text.startswith("You join summaries") for call in summariser.calls)


def test_layers_fold_like_digits() -> None:
    def steps(earlier: Sequence[Summary], number: int, crowded: bool = False) -> Sequence[Summary]:
        work = layered(earlier, [[f"user: {number}"]], 50, lambda one: one, 3, lambda standing: crowded)
        question = next(work)
        try:
            while True:
                parts = re.findall(
                    r"<?\b[\d+]+\b>?",
                    question[1]["content"].replace("Summary 1", "").replace("Summary 2", "").replace("Summary 3", ""),
                )
                question = work.send("+".join(parts))
        except StopIteration as done:
            return done.value.standing

    standing: Sequence[Summary] = ()
    for number in range(10, 24):
        standing = steps(standing, number)
    assert [(one.level, one.text) for one in standing] == [
        (3, "10+11+12+13+14+15+16+17+18"), (2, "19+20+21"), (1, "22"), (1, "23"),
    ]  # fmt: skip
    assert [one.text for one in steps(standing, 24, crowded=True)] == ["+".join(map(str, range(10, 25)))]


def test_a_summary_that_is_too_long_is_asked_for_again_and_then_cut() -> None:
    def bound(summary: Summary) -> Summary:
        return Summary(summary.text[:20], summary.level)

    work = extended([], [["user: hello"]], 10, bound)
    next(work)
    again = work.send("much too long a summary of a short hello")
    assert "much too long" in again[1]["content"]
    assert again[0]["content"].startswith("You shorten")
    with pytest.raises(StopIteration) as done:
        work.send("still a little too long for it")
    assert done.value.value.standing == (Summary("still a little too l"),)


@pytest.mark.parametrize(("name", "share"), [("running_summary", 4), ("summary_of_summaries", 3), ("summary_of_role", 4)])
def test_a_summariser_without_measure_is_cut_to_its_share(name: str, share: int) -> None:
    make = {"running_summary": running_summary, "summary_of_summaries": summary_of_summaries, "summary_of_role": summary_of_role}[
        name
    ]
    agent, model = agent_with(make(ScriptedChatModel(lambda messages: f"{condensed(messages)} {MANY * 100}"), max_tokens=BUDGET))
    for _, request in talk(agent, model, 40):
        assert count_tokens([one for one in request if is_summary(one)]) <= BUDGET // share
        assert NAME in " ".join(one.text for one in request)
    assert count_tokens(thread_of(agent)) <= BUDGET
    assert all(one.text.endswith("[…]") for one in thread_of(agent) if is_summary(one))


def test_only_the_users_words_are_summed_up() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(summary_of_role(summariser, max_tokens=BUDGET))
    talk(agent, model, 60)
    asked = " ".join(call[-1].text for call in summariser.calls)
    assert FIRST.split("。")[0] in asked
    assert "assistant:" not in asked
    assert "tool look_up" not in asked
    assert "what the user said" in summariser.calls[0][0].text
    assert thread_of(agent)[0].text.startswith("Summary of what the user said so far:\n\nUser Ana López.")


def test_a_role_that_said_nothing_costs_no_call() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(summary_of_role(summariser, max_tokens=600, role="tool"), model=ScriptedChatModel("Fine. " * 20))
    for turn in range(40):
        agent.invoke({"messages": [HumanMessage(f"Turn {turn}: {MANY}")]}, run_of())
    assert summariser.calls == []
    assert not any(map(is_summary, thread_of(agent)))
    assert max(map(count_tokens, model.calls)) <= 600


def test_one_endless_turn_keeps_its_question_and_its_newest_results() -> None:
    def work(messages: list[BaseMessage]) -> Any:
        done = int(re.findall(r"step (\d+)", messages[-1].text)[-1]) if isinstance(messages[-1], ToolMessage) else 0
        return tool_call("look_up", what=f"step {done + 1}") if done < 30 else "Done."

    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET), model=ScriptedChatModel(work))
    agent.invoke({"messages": [HumanMessage("Do thirty steps.")]}, {**run_of(), "recursion_limit": 200})
    assert len(model.calls) == 31
    for number, request in enumerate(model.calls):
        check_request("Do thirty steps.", request)
        assert count_tokens(request) <= BUDGET
        assert not number or f"step {number}" in request[-1].text
    assert len(summariser.calls) > 10


def test_system_messages_of_the_thread_stay_first_and_are_not_summed_up() -> None:
    summariser = ScriptedChatModel(condensed)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET))
    agent.invoke({"messages": [SystemMessage("Answer in rhymes."), HumanMessage(FIRST)]}, run_of())
    talk(agent, model, 30)
    assert [one.text for one in thread_of(agent) if isinstance(one, SystemMessage)] == ["Answer in rhymes."]
    assert thread_of(agent)[0].text == "Answer in rhymes."
    assert is_summary(thread_of(agent)[1])
    assert "rhymes" not in " ".join(call[-1].text for call in summariser.calls)


def test_chinese_is_summed_up_in_chinese() -> None:
    summariser = ScriptedChatModel("用户叫崔亮，喜欢唱、跳、篮球。")
    agent, _ = agent_with(running_summary(summariser, max_tokens=400), model=ScriptedChatModel("好的。"))
    for turn in range(12):
        agent.invoke({"messages": [HumanMessage(f"第{turn}次：我叫崔亮，我喜欢做的事是打篮球，周末常去公园。")]}, run_of())
    assert "用中文写" in summariser.calls[0][0].text
    assert thread_of(agent)[0].text == "此前对话的摘要：\n\n用户叫崔亮，喜欢唱、跳、篮球。"


def test_headings_come_off_again() -> None:
    for role in (None, "human", "ai", "tool"):
        for text in ("Ana has a cat.\n\nShe likes: tea.", "安娜有一只猫。"):
            assert without_heading(under_heading(text, role)) == text
    assert without_heading("No heading.\n\nAt all.") == "No heading.\n\nAt all."


def test_a_thread_that_langchain_summed_up_before_goes_on() -> None:
    saver, summariser = InMemorySaver(), ScriptedChatModel(condensed)
    langchain = SummarizationMiddleware(ScriptedChatModel("User Ana López."), trigger=("tokens", 400), keep=("messages", 4))
    agent, model = agent_with(langchain, checkpointer=saver)
    talk(agent, model, 12)
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET), checkpointer=saver)
    talk(agent, model, 20)
    assert NAME in summary_text(thread_of(agent)[0])
    assert sum(map(is_summary, thread_of(agent))) == 1


def test_what_a_model_thinks_aloud_is_no_summary() -> None:
    summariser = ScriptedChatModel("<think>\nThe user is… let me see.\n</think>\n\nUser Ana López.")
    agent, model = agent_with(running_summary(summariser, max_tokens=BUDGET))
    talk(agent, model, 20)
    assert summary_text(thread_of(agent)[0]) == "User Ana López."


@pytest.mark.parametrize(
    "failure",
    [ConnectionError("refused"), TimeoutError("too slow"), RuntimeError("CUDA out of memory"), "", "<think>hm"],
    ids=repr,
)
@pytest.mark.parametrize("name", SUMMARISING)
def test_a_summariser_that_fails_costs_only_the_try(name: str, failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    make = {"running_summary": running_summary, "summary_of_summaries": summary_of_summaries, "summary_of_role": summary_of_role}[
        name
    ]
    down = True
    summariser = ScriptedChatModel(lambda messages: failure if down else condensed(messages))
    agent, model = agent_with(make(summariser, max_tokens=BUDGET))
    with caplog.at_level(logging.WARNING, "engramma"):
        requests = talk(agent, model, 20)
    assert "no summary could be written" in caplog.text
    assert str(failure) in caplog.text or "empty" in caplog.text
    assert [one.text for one in thread_of(agent) if isinstance(one, HumanMessage)] == [said(turn) for turn in range(20)]
    for current, request in requests:
        check_request(current, request)
        assert count_tokens(request) <= BUDGET
    down = False
    agent.invoke({"messages": [HumanMessage("And now?")]}, run_of())
    assert any(NAME in one.text for one in thread_of(agent) if is_summary(one))


def unreachable() -> list[Any]:
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI

    openai = ChatOpenAI(model="gpt", base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)
    return [openai, ChatOllama(model="qwen2.5:7b", base_url="http://127.0.0.1:9")]


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
@pytest.mark.parametrize("number", [0, 1], ids=["openai", "ollama"])
def test_a_server_that_is_down_costs_only_the_try(number: int, awaited: bool, caplog: pytest.LogCaptureFixture) -> None:
    agent, model = agent_with(running_summary(unreachable()[number], max_tokens=BUDGET))
    question = {"messages": [HumanMessage(said(turn)) for turn in range(60)]}
    asyncio.run(agent.ainvoke(question, run_of())) if awaited else agent.invoke(question, run_of())
    assert "no summary could be written" in caplog.text
    assert len(thread_of(agent)) == 61
    assert count_tokens(model.calls[0]) <= BUDGET


def test_a_stream_shows_nothing_of_the_summariser() -> None:
    agent, model = agent_with(running_summary(ScriptedChatModel("SECRET words of the summariser"), max_tokens=BUDGET))
    talk(agent, model, 14)
    calls, streamed = len(thread_of(agent)), []
    for turn in range(14, 24):
        stream = agent.stream({"messages": [HumanMessage(said(turn))]}, run_of(), stream_mode="messages")
        streamed += [piece.text for piece, _ in stream if isinstance(piece, AIMessage)]
    assert any(map(is_summary, thread_of(agent)))
    assert calls
    assert "Noted" in "".join(streamed)
    assert "SECRET" not in "".join(streamed)


class Started(BaseCallbackHandler):
    """Keeps what each call of a chat model was started with."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], dict[str, Any]]] = []

    def on_chat_model_start(self, *given: Any, tags: list[str], metadata: dict[str, Any], **others: Any) -> None:
        self.calls.append((tags, metadata))


def test_calls_of_the_summariser_are_marked_as_langchain_marks_its_own() -> None:
    agent, model = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET))
    talk(agent, model, 14)
    started = Started()
    for turn in range(14, 24):
        agent.invoke({"messages": [HumanMessage(said(turn))]}, run_of() | {"callbacks": [started]})
    marked = [tags for tags, metadata in started.calls if metadata.get("lc_source") == "summarization"]
    assert 0 < len(marked) < len(started.calls)
    assert all("nostream" in tags for tags in marked)
    assert sum("nostream" in tags for tags, _ in started.calls) == len(marked)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: running_summary(ScriptedChatModel("x"), max_tokens=50), "max_tokens=50"),
        (lambda: running_summary(ScriptedChatModel("x"), summary_tokens=3000), "summary_tokens=3000"),
        (lambda: running_summary(ScriptedChatModel("x"), keep_tokens=0), "keep_tokens=0"),
        (lambda: running_summary(ScriptedChatModel("x"), input_tokens=1), "input_tokens=1"),
        (lambda: running_summary(None), "model=None"),
        (lambda: running_summary(ScriptedChatModel("x"), token_counter="approximate"), "token_counter='approximate'"),
        (lambda: summary_of_summaries(ScriptedChatModel("x"), fan_in=1), "fan_in=1"),
        (lambda: summary_of_role(ScriptedChatModel("x"), role="user"), "role='user'"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(named)):
        call()


def test_the_smallest_budget_works() -> None:
    for make in (running_summary, summary_of_summaries, summary_of_role):
        agent, model = agent_with(make(ScriptedChatModel(condensed), max_tokens=192))
        for _, request in talk(agent, model, 30):
            assert count_tokens(request) <= 192
            assert not broken_pairs(request)


# -- summaries as notes


def summaries_of(memory: Any, **where: Any) -> list[Any]:
    return memory.list(where={"category": "summary", **where})


def test_a_summary_can_be_read_in_the_memory_with_those_before_it(memory: Any) -> None:
    agent, model = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory))
    talk(agent, model, 60)
    (note,) = summaries_of(memory)
    assert note.content == summary_text(thread_of(agent)[0])
    assert note.session == "t"
    assert "summary" in note.tags
    earlier = [revision.note.content for revision in memory.history(note)]
    walked = [int(re.findall(r"up to (\d+) km", text)[0]) for text in dict.fromkeys(earlier)]
    assert len(walked) > 3
    assert walked == sorted(walked)
    assert [hit.note.id for hit in memory.search("What is Ana's name?", min_relevance=0, where={"category": "summary"})] == [
        note.id
    ]


def test_each_level_and_each_thread_has_a_note(memory: Any) -> None:
    agent, model = agent_with(summary_of_summaries(ScriptedChatModel(condensed), max_tokens=BUDGET, fan_in=2, memory=memory))
    talk(agent, model, 40)
    agent.invoke({"messages": [HumanMessage(f"{number}. {MANY}") for number in range(30)]}, run_of("other"))
    keys = [note.key for note in memory.list(where={"category": "summary"}, include=["merged"])]
    assert len(keys) == len(set(keys))
    assert {key.rpartition(":")[2] for key in keys} == {"t", "other"}
    assert len([key for key in keys if key.endswith(":t")]) >= 2


def test_a_summary_goes_to_the_space_of_its_user(memory: Any) -> None:
    agent, _ = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory))
    for user in ("alice", "bob"):
        for turn in range(20):
            agent.invoke({"messages": [HumanMessage(f"{user}: {said(turn)}")]}, run_of(user, user_id=user))
    assert {space: len(memory.list(space=space)) for space in memory.spaces()} == {"alice": 1, "bob": 1}
    named, _ = agent_with(
        running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory, space=lambda run: ("team", run.thread_id))
    )
    for turn in range(20):
        named.invoke({"messages": [HumanMessage(said(turn))]}, run_of("red"))
    assert len(memory.list(space=("team", "red"))) == 1


def test_awaited_it_is_kept_too(memory: Any) -> None:
    agent, _ = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory))

    async def converse() -> None:
        for turn in range(20):
            await agent.ainvoke({"messages": [HumanMessage(said(turn))]}, run_of(user_id="alice"))

    asyncio.run(converse())
    assert len(memory.list(space="alice")) == 1


def test_a_wrong_user_id_is_said_at_once(memory: Any) -> None:
    agent, _ = agent_with(running_summary(ScriptedChatModel(condensed), memory=memory))
    with pytest.raises(InvalidInput, match="user_id=''"):
        agent.invoke({"messages": [HumanMessage("Hello.")]}, run_of(user_id=""))


def test_a_deleted_summary_stays_deleted(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    agent, model = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory))
    talk(agent, model, 20)
    memory.delete(summaries_of(memory)[0])
    talk(agent, model, 20)
    assert summaries_of(memory) == []
    assert is_summary(thread_of(agent)[0])
    assert caplog.text == ""


def test_without_a_thread_it_is_a_note_all_the_same(memory: Any) -> None:
    agent, _ = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory), checkpointer=None)
    agent.invoke({"messages": [HumanMessage(said(turn)) for turn in range(60)]})
    assert [note.session for note in summaries_of(memory)] == [None]


def test_a_memory_that_fails_costs_only_the_note(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    memory = opened()
    memory.close()
    agent, model = agent_with(running_summary(ScriptedChatModel(condensed), max_tokens=BUDGET, memory=memory))
    talk(agent, model, 20)
    assert is_summary(thread_of(agent)[0])
    assert "not in the memory" in caplog.text


# -- the example


def test_the_example_runs() -> None:
    script = Path(__file__).parent.parent / "examples" / "short_term.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120)
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert {name: rows[name].endswith("yes") for name in STRATEGIES} == {name: name in SUMMARISING for name in STRATEGIES}
