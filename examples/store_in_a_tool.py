"""An agent whose tools read and write ``runtime.store``, kept in an engramma memory. Runs offline.

The chat model follows a script, so that this runs anywhere: put "ollama:qwen2.5:7b" in its place.
"""

from dataclasses import dataclass

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langgraph.checkpoint.memory import InMemorySaver

from engramma import Memory
from engramma.agents import EngrammaStore
from engramma.testing import HashEmbedder, ScriptedChatModel, tool_call


@dataclass
class User:
    user_id: str


@tool
def remember(topic: str, fact: str, runtime: ToolRuntime[User]) -> str:
    """Keep a fact about the user, under a topic of one word."""
    runtime.store.put(("facts", runtime.context.user_id), topic, {"text": fact})
    return f"Kept under {topic!r}."


@tool
def look_up(question: str, runtime: ToolRuntime[User]) -> str:
    """Find what is known about the user."""
    found = runtime.store.search(("facts", runtime.context.user_id), query=question, limit=3)
    return "\n".join(item.value["text"] for item in found) or "Nothing is known."


asked = tool_call("look_up", question="What does the user eat?")
script = [tool_call("remember", topic="food", fact="I am vegetarian."), "I'll keep that in mind.", asked]
model = ScriptedChatModel(*script, lambda shown: f"My notes say: {shown[-1].text}", asked, lambda shown: shown[-1].text)

with Memory.open(":memory:", embedder=HashEmbedder()) as memory:
    agent = create_agent(
        model, [remember, look_up], store=EngrammaStore(memory), context_schema=User, checkpointer=InMemorySaver()
    )  # fmt: skip
    for user, thread, text in [("ana", "1", "I am vegetarian."), ("ana", "2", "What do I eat?"), ("bob", "3", "What do I eat?")]:
        done = agent.invoke({"messages": text}, {"configurable": {"thread_id": thread}}, context=User(user))
        print(f"thread {thread}, {user}: {text}\n       agent: {done['messages'][-1].text}")
    print("as notes:", [note.content for note in memory.list(space=("facts", "ana"))])
