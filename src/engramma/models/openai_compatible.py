"""Any server that speaks OpenAI's HTTP API: OpenAI, Ollama's /v1, vLLM, llama.cpp.

The client is the ``openai`` package's own: it retries 429, 5xx, time-outs and refused connections
with growing pauses, up to ``RETRIES`` times. We only turn its errors into ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from engramma.errors import ModelError, ModelTimeout, ModelUnavailable
from engramma.models.base import Completion, EmbeddingKind, Message, foreign_model

RETRIES = 3
TIMEOUT_SECONDS = 60.0
REPLY_TOKENS = 2000  # four drafts take some 1,200; a small model that loops is stopped here
_KNOWN_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536,
                     "nomic-embed-text": 768, "bge-m3": 1024, "mxbai-embed-large": 1024}  # fmt: skip


class _Server:
    def __init__(self, name: str, model: str, base_url: str | None, api_key: str | None, retries: int, timeout: float) -> None:
        self.name, self.model = name, model
        self._settings: dict[str, Any] = {"base_url": base_url, "max_retries": retries, "timeout": timeout}
        self._settings["api_key"] = api_key

    @cached_property
    def _client(self) -> Any:
        import openai

        try:
            return openai.OpenAI(**self._settings)
        except openai.OpenAIError as error:  # no key given and none in OPENAI_API_KEY
            raise ModelUnavailable(f"{self.name}: {error}") from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import openai

        try:
            yield
        except openai.APITimeoutError as error:
            raise ModelTimeout(
                f"{self.name} did not answer within {self._settings['timeout']:g} s, also after retries"
            ) from error
        except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as error:
            raise ModelUnavailable(f"{self.name} cannot be used now ({error}); is the server running?") from error
        except openai.APIError as error:
            raise ModelError(f"{self.name} refused the request: {error}") from error


class OpenAIChat(_Server):
    """A chat model behind /v1/chat/completions."""

    def __init__(self, model: str, *, name: str | None = None, base_url: str | None = None, api_key: str | None = None,
                 retries: int = RETRIES, timeout: float = TIMEOUT_SECONDS) -> None:  # fmt: skip
        super().__init__(name or f"openai:{model}", model, base_url, api_key, retries, timeout)
        bound = "max_tokens" if base_url else "max_completion_tokens"
        self._options: dict[str, Any] = {"temperature": 0, bound: REPLY_TOKENS}
        self._takes_schema = True

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """One answer of at most REPLY_TOKENS tokens.

        Where the server refuses an option (a reply schema, a temperature), it is asked without it.
        """
        options = dict(self._options)
        if schema is not None and self._takes_schema:
            options["response_format"] = _response_format(schema)
        with self._translated():
            return self._ask_patiently(messages, options)

    def _ask_patiently(self, messages: Sequence[Message], options: dict[str, Any]) -> Completion:
        """Ask; where the request is refused, ask again with one option less, the complained of first.

        What asking without has helped is left out from then on.
        """
        import openai

        given_up: list[str] = []
        while True:
            try:
                answer = self._ask(messages, options)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if not options:
                    raise
                name = next((name for name in options if name in str(error)), next(reversed(options)))
                given_up.append(name)
                del options[name]
                continue
            self._takes_schema = self._takes_schema and "response_format" not in given_up
            self._options = {name: value for name, value in self._options.items() if name not in given_up}
            return answer

    def _ask(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Completion:
        reply = self._client.chat.completions.create(model=self.model, messages=list(messages), **options)
        choices, usage = getattr(reply, "choices", None), getattr(reply, "usage", None)
        text = joined_text(choices[0].message.content) if choices else ""
        return Completion(text, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def joined_text(content: Any) -> str:
    """The text of a message that may come as parts; "" for what holds none."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else part.get("text", "") for part in parts if isinstance(part, str | dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _count(usage: Any, name: str) -> int:
    value = getattr(usage, name, 0)
    return value if isinstance(value, int) and value > 0 else 0


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": schema.get("title", "reply"), "schema": schema}}


class OpenAIEmbedder(_Server):
    """An embedding model behind /v1/embeddings; asks once for the dimensions if they are not known."""

    def __init__(self, model: str, *, name: str | None = None, base_url: str | None = None, api_key: str | None = None,
                 retries: int = RETRIES, timeout: float = TIMEOUT_SECONDS) -> None:  # fmt: skip
        super().__init__(name or f"openai:{model}", model, base_url, api_key, retries, timeout)

    @cached_property
    def dimensions(self) -> int:
        """Length of the model's vectors."""
        known = _KNOWN_DIMENSIONS.get(self.model)
        if known:
            return known
        with foreign_model(self.name):
            return len(self.embed(["dimensions"], kind="query")[0])

    def embed(self, texts: Sequence[str], *, kind: EmbeddingKind) -> np.ndarray:
        with self._translated():
            reply = self._client.embeddings.create(model=self.model, input=list(texts), encoding_format="float")
        with foreign_model(self.name):  # whatever the server takes for a list of vectors
            return np.asarray([item.embedding for item in sorted(reply.data, key=lambda item: item.index)], np.float32)
