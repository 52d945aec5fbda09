"""A GGUF file as a chat model, through llama.cpp in this process (package xllamacpp, extra ``gguf``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from engramma.errors import InvalidInput, MissingExtra
from engramma.models.base import Completion, Message
from engramma.models.openai_compatible import OpenAIChat

CONTEXT_TOKENS = 4096


class GgufServer:
    """llama.cpp's own server on a loopback port, with one model; it starts when its URL is asked for and ends with the object."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser()
        if not self._path.is_file():
            raise InvalidInput(f"there is no GGUF file at {path!r}")
        self.name = f"gguf:{self._path.name}"
        self.model = self._path.stem

    @cached_property
    def url(self) -> str:
        """Where it speaks OpenAI's API."""
        return f"{self._server.listening_address}/v1"

    @cached_property
    def _server(self) -> Any:
        try:
            import xllamacpp
        except ImportError as error:
            raise MissingExtra("xllamacpp", "gguf", f"the model {self.name!r}") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = CONTEXT_TOKENS
        params.n_parallel = 1
        params.warmup = False
        return xllamacpp.Server(params)


class GgufChat:
    """A GGUF file as a chat model of ours."""

    def __init__(self, path: str) -> None:
        self._server = GgufServer(path)
        self.name = self._server.name

    @cached_property
    def _chat(self) -> OpenAIChat:
        return OpenAIChat(self._server.model, name=self.name, base_url=self._server.url, api_key="none", timeout=300.0)

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """One answer, held to the schema by a grammar."""
        return self._chat.complete(messages, schema=schema)
