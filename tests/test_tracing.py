"""What a program hears of its memory: the log of one note's life, and OpenTelemetry spans without content."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from test_background import reading

from engramma import Memory
from engramma.errors import ModelUnavailable
from engramma.testing import ScriptedLLM

SECRET = "绝密 Xylophone-4711"


@pytest.fixture(scope="module")
def exported() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exported: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exported.clear()
    yield exported
    exported.clear()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", llm=ScriptedLLM(reading), embedder="hash:64") as one:
        yield one


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [one for one in spans.get_finished_spans() if one.name == f"engramma.{name}"]


def attributes(one: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("engramma."): value for name, value in (one.attributes or {}).items()}


def test_spans_of_a_note_and_a_question(memory, spans) -> None:
    memory.add(f"My code is {SECRET}.")
    memory.search(f"code {SECRET}")
    (added,), (read,), (searched,) = (named(spans, name) for name in ("add", "read", "search"))
    assert attributes(added) == {"notes": 1}
    told = attributes(read)
    assert (told["analyst"], told["notes"], told["failed"], told["calls"], told["links"]) == ("analyst:scripted", 1, 0, 1, 0)
    assert told["tokens_in"] > 100
    assert told["tokens_out"] > 0
    assert attributes(searched) == {"spaces": 1, "k": 10, "hits": 1, "direct": 1, "declined": False}
    assert read.parent is not None
    assert read.parent.span_id == added.context.span_id
    assert {attributes(one)["kind"] for one in named(spans, "embed")} == {"query", "passage"}
    assert all(one.end_time and one.start_time and one.end_time >= one.start_time for one in spans.get_finished_spans())


def test_no_span_holds_what_anybody_said(memory, spans) -> None:
    note = memory.add(f"My code is {SECRET}.", space=SECRET, speaker=SECRET, tags=[SECRET])
    memory.search(SECRET, space=SECRET)
    memory.update(note, content=f"It is no longer {SECRET}.")
    assert len(spans.get_finished_spans()) > 5
    assert SECRET not in "".join(one.to_json(indent=None).encode().decode("unicode_escape") for one in spans.get_finished_spans())


def test_content_where_it_is_asked_for(memory, spans, monkeypatch) -> None:
    monkeypatch.setenv("ENGRAMMA_TRACE_CONTENT", "1")
    memory.add(f"My code is {SECRET}.")
    memory.search(f"code {SECRET}")
    assert attributes(named(spans, "add")[0])["content"] == f"My code is {SECRET}."
    assert attributes(named(spans, "search")[0])["query"] == f"code {SECRET}"


def test_a_failure_is_told_by_its_kind_alone(spans) -> None:
    with Memory.open(":memory:", llm=ScriptedLLM(ModelUnavailable(f"no {SECRET}")), embedder="hash:64") as memory:
        memory.add("I live in Lyon.")
    (read,) = named(spans, "read")
    assert (read.status.is_ok, (read.attributes or {})["error.type"]) == (False, "ModelUnavailable")
    assert "4711" not in read.to_json()


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    code = "import sys; from engramma import Memory; m = Memory.open(':memory:', embedder='hash:64'); m.add('a'); m.search('a'); "
    command = [sys.executable, "-c", f"{code}print('opentelemetry' in sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


# -- the log


def test_the_log_follows_a_note_and_is_quiet_at_warning(memory, caplog) -> None:
    with caplog.at_level(logging.DEBUG, "engramma"):
        memory.add("I live in Lyon.", speaker="Ana")
        note = memory.add(f"I moved to Bern, {SECRET}.", speaker="Ana")
        memory.search("Who moved to Bern?")
        memory.update(note, tags=["blue"])
        memory.delete(note)
        memory.purge(note)
    own = [record for record in caplog.records if record.name == "engramma"]
    assert {record.levelname for record in own} == {"DEBUG"}
    life = [record.message.replace(note.id, "X") for record in own if note.id in record.message]
    steps = (
        "note X is stored, pending", "analyst:scripted reads note X", "note X changes in", "and is ready now",
        "a search gives note X", "note X is archived", "note X is removed for good",
    )  # fmt: skip
    assert any("note X changes in" in line and "tags" in line for line in life)
    for step in steps:
        assert any(step in line for line in life), step
    assert not [line for line in life if "4711" in line]


def test_nothing_is_said_at_warning(memory, caplog) -> None:
    with caplog.at_level(logging.WARNING, "engramma"):
        note = memory.add("I live in Lyon.")
        memory.search("Lyon")
        memory.delete(note)
    assert not [record for record in caplog.records if record.name == "engramma"]
