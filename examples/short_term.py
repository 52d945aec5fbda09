"""One conversation under each short-term strategy: what reaches the model, and whether it still knows the name.

Runs without a network: the chat model and the one that sums up follow scripts. With a real one:

    running_summary("ollama:qwen2.5:7b", max_tokens=3000)
"""

from __future__ import annotations

import re

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from engramma.agents import keep_last, running_summary, summary_of_role, summary_of_summaries, token_budget
from engramma.agents.short_term import count_tokens
from engramma.testing.chat import ScriptedChatModel, tool_call

TURNS = 40
BUDGET = 800
NAME = "Cui Liang"


@tool
def timetable(place: str) -> str:
    """When things at a place are open."""
    return f"{place}: " + "open from nine to noon, and from two to six; " * 12


def user(turn: int) -> str:
    """What the user says."""
    if turn == 0:
        return f"Hello, my name is {NAME}, and I like learning. 你好，我喜欢学习。"
    return (
        f"When is place {turn} open?"
        if turn % 4 == 1
        else f"On day {turn} I sang, danced and played basketball. 我今天打了篮球。"
    )


def assistant(messages: list[BaseMessage]) -> object:
    """What the model answers: it looks places up, and is glad about everything else."""
    asked = re.match(r"When is (place \d+)", messages[-1].text)
    return tool_call("timetable", place=asked[1]) if asked else "That sounds like a good day, tell me more about it."


def summariser(messages: list[BaseMessage]) -> str:
    """What the model that sums up answers: the name, if it stands in what it is shown, and a sentence."""
    known = f"The user is called {NAME}. " if NAME in messages[-1].text else ""
    return f"{known}They sing, dance and play basketball, and ask when places are open."


def strategies() -> dict[str, AgentMiddleware]:
    """One of each."""
    return {
        "keep_last": keep_last(10),
        "token_budget": token_budget(BUDGET),
        "running_summary": running_summary(ScriptedChatModel(summariser), max_tokens=BUDGET),
        "summary_of_summaries": summary_of_summaries(ScriptedChatModel(summariser), max_tokens=BUDGET, fan_in=3),
        "summary_of_role": summary_of_role(ScriptedChatModel(summariser), max_tokens=BUDGET, role="human"),
    }


def last_request(strategy: AgentMiddleware) -> list[BaseMessage]:
    """Hold the conversation; the messages of its last request."""
    model = ScriptedChatModel(assistant)
    agent = create_agent(model, [timetable], middleware=[strategy], checkpointer=InMemorySaver())
    for turn in range(TURNS):
        agent.invoke({"messages": [HumanMessage(user(turn))]}, {"configurable": {"thread_id": "example"}})
    return model.calls[-1]


if __name__ == "__main__":
    print(f"{'strategy':22}{'messages':>10}{'tokens':>10}   name of turn 1 known")
    for name, strategy in strategies().items():
        sent = last_request(strategy)
        known = any(NAME in message.text for message in sent)
        print(f"{name:22}{len(sent):>10}{count_tokens(sent):>10}   {'yes' if known else 'no'}")
