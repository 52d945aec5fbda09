"""Chat models for agents, by the same strings that ``Memory.open(llm=…)`` takes, and LangChain's."""

from __future__ import annotations

import os
import re
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel

from engramma.errors import InvalidInput, MissingExtra
from engramma.models import ollama_host, split_url

_WAYS = """no chat model is set. Three ways to get one:
  1. Ollama, on this machine:    ollama pull qwen2.5:7b, then {ollama:qwen2.5:7b}
  2. A key or a server:          OPENAI_API_KEY=… and {openai:gpt-4o-mini}, or any OpenAI-compatible server: \
{http://localhost:8000/v1#name}
  3. A GGUF file, in this process: pip install 'engramma[gguf]', then {gguf:~/models/qwen2.5-3b.gguf}
"""

_OURS = ("ollama", "openai")  # providers whose packages come with the extra


def chat_model(model: str | BaseChatModel | None, **options: Any) -> BaseChatModel:
    """The LangChain chat model that a setting means.

    Strings: ``ollama:qwen2.5:7b``, ``gguf:/path/file.gguf``, the URL of an OpenAI-compatible server with
    the model after ``#``, and whatever ``langchain.chat_models.init_chat_model`` knows
    (``openai:gpt-4o-mini``, ``anthropic:…``). Raises InvalidInput, also for a key or a provider's package
    that is lacking, or MissingExtra for a package of ours.
    """
    if isinstance(model, BaseChatModel):
        return model
    if not model or not isinstance(model, str) or model == "none":
        raise InvalidInput(no_model() if not model or model == "none" else f"model={model!r} is neither a text nor a chat model")
    provider, colon, name = model.partition(":")
    if colon and not name.strip():
        raise InvalidInput(f"model={model!r} lacks the name of the model: write it after the colon, as in 'ollama:qwen2.5:7b'")
    if model.startswith(("http://", "https://")):
        url, served = split_url(model)
        return _openai(served, base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"), **options)
    if provider == "gguf":
        return _gguf(name, **options)
    if provider == "ollama":
        options = {"base_url": ollama_host(), **options}
    return _any(model, **options)


def no_model(given: str = 'model="{}"', last: str = "A chat model of LangChain will do as well, as an object.") -> str:
    """How to get a chat model, for somebody who has none: ``given`` is how one is named there, ``last`` closes it."""
    return re.sub(r"\{(.+?)\}", lambda found: given.replace("{}", found[1]), _WAYS) + last


def _any(model: str, **options: Any) -> BaseChatModel:
    from openai import OpenAIError

    try:
        made: BaseChatModel = init_chat_model(model, **options)
    except ImportError as error:
        provider = model.partition(":")[0]
        if provider in _OURS:
            raise MissingExtra(f"langchain-{provider}", "langgraph", f"the model {model!r}") from error
        raise InvalidInput(f"model={model!r} needs a package of its own: {error}") from error
    except OpenAIError as error:
        raise InvalidInput(f"model={model!r} needs OPENAI_API_KEY, which is not set: {error}") from error
    except ValueError as error:
        raise InvalidInput(
            f"model={model!r} is not known: use 'ollama:qwen2.5:7b', 'openai:gpt-4o-mini', 'gguf:/path/file.gguf', "
            f"'http://host:port/v1#model', or another 'provider:model' of LangChain ({error})"
        ) from error
    return made


def _openai(name: str, **options: Any) -> BaseChatModel:
    try:
        from langchain_openai import ChatOpenAI
    except ImportError as error:
        raise MissingExtra("langchain-openai", "langgraph", f"the model {name!r}") from error
    return ChatOpenAI(model=name, **options)


def _gguf(path: str, **options: Any) -> BaseChatModel:
    """A GGUF file served on a loopback port for as long as the model object lives."""
    from langchain_openai import ChatOpenAI
    from pydantic import PrivateAttr

    from engramma.models.gguf import GgufServer

    server = GgufServer(path)

    class ServedGguf(ChatOpenAI):
        _server: GgufServer = PrivateAttr(default_factory=lambda: server)

    return ServedGguf(model=server.model, base_url=server.url, api_key="none", timeout=300.0, **options)  # type: ignore[arg-type]
