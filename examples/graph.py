"""A graph built by hand: retrieve, ask the model, call tools, persist. Each node's part of the state is explicit."""

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from engramma import Memory
from engramma.agents import MemoryState, Patterns, call_model, memory_tools, persist_turn, retrieve_context
from engramma.testing import ScriptedChatModel, tool_call

MODEL = ScriptedChatModel(
    "Nice to meet you, Denial!",
    tool_call("search_memory", query="goal"),
    "Your goal is to earn 50k per month, and your name is Denial.",
)


def build(memory: Memory):
    """retrieve → model ⇄ tools → persist."""
    tools = memory_tools(memory)
    graph = StateGraph(MemoryState)
    graph.add_node("retrieve", retrieve_context(memory))  # messages → current_user_text, memories
    graph.add_node("model", call_model(MODEL, tools=tools))  # messages, memories → messages, assistant_text
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("persist", persist_turn(memory, write=Patterns()))  # messages, current_user_text → saved_memories
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "persist"})
    graph.add_edge("tools", "model")
    graph.add_edge("persist", END)
    return graph.compile(checkpointer=InMemorySaver())


def main() -> None:
    """Two threads of one user."""
    with Memory.open(":memory:") as memory:
        app = build(memory)
        for thread, text in (("1", "I am Denial. My goal is to earn 50k per month."), ("2", "What is my name, and my goal?")):
            state = app.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread, "user_id": "denial"}})
            print(f"user:      {state['current_user_text']}")
            print(f"recalled:  {[one['content'] for one in state['memories']]}")
            print(f"assistant: {state['assistant_text']}")
            print(f"saved:     {[one['content'] for one in state['saved_memories']]}\n")


if __name__ == "__main__":
    main()
