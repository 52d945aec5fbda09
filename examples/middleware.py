"""A memory for an agent of LangChain, in fifteen lines. Replace the scripted model by yours: "ollama:qwen2.5:7b"."""

from langchain.agents import create_agent

from engramma import Memory
from engramma.agents import MemoryMiddleware
from engramma.testing import ScriptedChatModel

model = ScriptedChatModel("很高兴认识你，小夏！", lambda messages: f"What I was told:\n{messages[0].text}")

with Memory.open(":memory:") as memory:
    agent = create_agent(model, middleware=[MemoryMiddleware(memory)])
    agent.invoke({"messages": "我叫小夏，喜欢学习。"}, {"configurable": {"thread_id": "1", "user_id": "xia"}})
    result = agent.invoke({"messages": "我叫什么？我喜欢做什么？"}, {"configurable": {"thread_id": "2", "user_id": "xia"}})
    print(result["messages"][-1].text)
    print([memory["content"] for memory in result["memories"]])
