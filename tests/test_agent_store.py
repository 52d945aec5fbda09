"""``EngrammaStore``: side by side with LangGraph's ``InMemoryStore``, then what it does beyond it.

The first half runs on both, called and awaited. Where ``InMemoryStore`` differs from what the interface
says of itself (it forgets ``created_at``, hands out its own dicts, repeats items put with ``index=False``
on each page), a test of ours alone stands in the second half.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import InjectedStore, ToolRuntime, tool
from langchain_core.messages import HumanMessage
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from engramma import Conflict, InvalidInput, Memory
from engramma.agents import EngrammaStore, memory_tools
from engramma.agents.items import bounds, passes
from engramma.store.sql_filter import condition
from engramma.testing import HashEmbedder, ScriptedChatModel, tool_call

ROOT = Path(__file__).parent.parent
NS = ("memories", "alice")
Names = list[tuple[tuple[str, ...], str]]


class Awaited:
    """A store whose methods are the awaited ones, run to their end: ``Awaited(store).put`` awaits ``aput``."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: asyncio.run(getattr(self.store, f"a{name}")(*args, **kwargs))


def embed(texts: Iterable[str]) -> list[list[float]]:
    """The vectors of the hash embedder, and a little that all texts have in common: none of them is zero."""
    return [[*vector, 0.01] for vector in HashEmbedder(128).embed(list(texts), kind="passage").tolist()]


BOTH = ["in-memory", "in-memory indexed", "in-memory awaited", "engramma", "engramma on disk", "engramma awaited"]


def made(kind: str, opened: Callable[..., Memory], fields: list[str] | None = None) -> Any:
    index: Any = {} if fields is None else {"fields": fields}
    if kind == "in-memory":
        return InMemoryStore()
    if kind.startswith("in-memory"):
        index |= {"dims": 129, "embed": embed}
        store: BaseStore = InMemoryStore(index=index)
    else:
        memory = opened("memory.db" if "disk" in kind else ":memory:")
        store = EngrammaStore(memory, index=index or None)
    return Awaited(store) if "awaited" in kind else store


@pytest.fixture(params=BOTH)
def store(request: pytest.FixtureRequest, opened: Callable[..., Memory]) -> Any:
    return made(request.param, opened)


@pytest.fixture(params=BOTH[1:])
def ranking(request: pytest.FixtureRequest, opened: Callable[..., Memory]) -> Any:
    """The stores that rank by a query."""
    return made(request.param, opened)


@pytest.fixture(params=BOTH[1:])
def by_title(request: pytest.FixtureRequest, opened: Callable[..., Memory]) -> Any:
    """The same, indexing the field ``title`` unless told otherwise."""
    return made(request.param, opened, ["title"])


@pytest.fixture
def ours(memory: Memory) -> Any:
    return EngrammaStore(memory)


def keys(found: Iterable[Item]) -> list[str]:
    return [item.key for item in found]


def names(found: Iterable[Item]) -> Names:
    return [(item.namespace, item.key) for item in found]


# == both: items


def test_put_and_get(store: Any) -> None:
    before = datetime.now(UTC)
    store.put(NS, "home", {"text": "I live in Berlin."})
    item = store.get(NS, "home")
    assert type(item) is Item
    assert (item.namespace, item.key, item.value) == (NS, "home", {"text": "I live in Berlin."})
    assert before - timedelta(seconds=1) <= item.created_at <= item.updated_at <= datetime.now(UTC)
    assert item.created_at.tzinfo is not None
    assert item == store.get(NS, "home")
    assert item.dict()["namespace"] == [*NS]


def test_get_of_what_is_not_there(store: Any) -> None:
    store.put(NS, "home", {"text": "I live in Berlin."})
    assert store.get(NS, "Home") is None
    assert store.get(NS[:1], "home") is None
    assert store.get((*NS, "more"), "home") is None
    assert store.get(("nobody",), "home") is None


def test_put_replaces_the_whole_value(store: Any) -> None:
    store.put(NS, "home", {"text": "I live in Lyon.", "since": 2020})
    first = store.get(NS, "home")
    store.put(NS, "home", {"text": "I live in Berlin."})
    item = store.get(NS, "home")
    assert item.value == {"text": "I live in Berlin."}
    assert item.updated_at > first.updated_at
    assert keys(store.search(NS)) == ["home"]


def test_delete(store: Any) -> None:
    store.put(NS, "home", {"text": "I live in Berlin."})
    store.put(NS, "job", {"text": "I work at the harbour."})
    store.delete(NS, "home")
    store.delete(NS, "home")
    store.delete(NS, "never there")
    store.delete(("nobody",), "home")
    assert store.get(NS, "home") is None
    assert keys(store.search(NS)) == ["job"]
    assert keys(store.search(NS, query="Where do I live?")) == ["job"]


def test_put_of_none_deletes(store: Any) -> None:
    store.put(NS, "home", {"text": "I live in Berlin."})
    store.put(NS, "home", None)
    assert store.get(NS, "home") is None


def test_put_after_a_delete_makes_a_new_item(store: Any) -> None:
    store.put(NS, "home", {"text": "I live in Lyon."})
    first = store.get(NS, "home")
    store.delete(NS, "home")
    store.put(NS, "home", {"text": "I live in Berlin."})
    item = store.get(NS, "home")
    assert item.created_at > first.created_at
    assert item.value == {"text": "I live in Berlin."}
    assert keys(store.search(NS)) == ["home"]


VALUES: list[dict[str, Any]] = [
    {}, {"a": ""}, {"": "no name"}, {"a": " \n\t "}, {"text": "中文，也有标点。", "键": "值"}, {"emoji": "👩‍👩‍👧", "rtl": "שלום"},
    {"none": None, "yes": True, "no": False, "int": 0, "negative": -7, "float": 1.0, "small": 5e-324, "big": 2**70, "e": 1e300},
    {"list": [1, "two", None, [3, [4]], {"five": {"six": [7]}}], "empty": [], "nothing": {}},
    {"a.b": 1, "a": {"b": 2}, "a[0]": 3, "$gt": 4, "item": {"value": 5}, "content": 6, "metadata": {"item": 7}},
    {"quotes": "\"'`;-- DROP TABLE note", "nul": "a\0b", "lines": "a\r\nb\u2028c", "escape": "\\u0000 \x1b[31m"},
    {"text": "<memories>\n[1] x\n</memories>"}, {"text": "word " * 3000}, {"deep": [[[[[[[[[["x"]]]]]]]]]]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: next(iter(value), "empty") or "unnamed")
def test_every_json_value_comes_back_equal(store: Any, value: dict[str, Any]) -> None:
    store.put(NS, "it", value)
    store.put(NS, "unindexed", value, index=False)
    found = store.get(NS, "it").value
    assert found == value
    assert repr(found) == repr(value)  # 1 is not 1.0 is not True
    assert [item.value for item in store.search(NS)] == [value, value]
    assert [item.value for item in store.search(NS, query="anything")] == [value, value]


def test_a_mapping_that_is_no_dict(store: Any) -> None:
    store.put(NS, "home", MappingProxyType({"text": "I live in Berlin."}))
    assert store.get(NS, "home").value == {"text": "I live in Berlin."}


KEYS = [" ", "a b", "a.b", "a/b", "../a", "%", "_", "*", "'", '"', "\\", "$", "键", "😀", "é", "e\u0301", "K", "k", "\n", "0",
        "null", "k" * 5000, "langgraph", '["a"]', "-- ;"]  # fmt: skip


def test_every_key_is_its_own(store: Any) -> None:
    for number, key in enumerate(KEYS):
        store.put(NS, key, {"number": number})
    assert [store.get(NS, key).value["number"] for key in KEYS] == [*range(len(KEYS))]
    assert keys(store.search(NS, limit=100)) == KEYS
    store.delete(NS, "%")
    assert keys(store.search(NS, limit=100)) == [key for key in KEYS if key != "%"]


def test_a_key_is_made_text(store: Any) -> None:
    store.put(NS, 5, {"a": 1})
    assert store.get(NS, "5").key == "5"
    store.delete(NS, 5)
    assert store.get(NS, 5) is None


# == both: namespaces

BAD_NAMESPACES: list[Any] = [("a.b",), ("a", "b.c"), (".",), ("ana@example.org",), ("",), ("a", ""), ("a", 5), (None,), ("a\0",)]


@pytest.mark.parametrize("namespace", BAD_NAMESPACES, ids=repr)
def test_labels_that_the_interface_refuses(store: Any, namespace: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.put(namespace, "k", {"a": 1}), lambda: store.get(namespace, "k"), lambda: store.delete(namespace, "k"),
        lambda: store.search(namespace), lambda: store.list_namespaces(prefix=namespace),
        lambda: store.list_namespaces(suffix=namespace),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidNamespaceError):
            call()
    assert store.search(()) == []


@pytest.mark.parametrize("namespace", [(), ("langgraph",), ("langgraph", "a")], ids=repr)
def test_namespaces_that_nothing_is_put_in(store: Any, namespace: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(namespace, "k", {"a": 1})
    assert store.get(namespace, "k") is None
    assert store.search(()) == []


ALIKE = [
    ("foo",), ("foo", "bar"), ("foo", "ba"), ("foo", "bar", "baz"), ("foo", "barbaz"), ("foobar",), ("fo",), ("FOO",), ("f%",),
    ("foo%",), ("foo_",), ("fo_",), ("foo*",), ("*",), ("%",), ("foo/bar",), ("foo\\bar",), ('foo"',), ("foo'", "bar"),
    ("foo", '"bar"'), ("foo,bar",), ('foo", "bar',), ('["foo", "bar"]',), ("foo bar",), (" foo",), ("foo\n",), ("ana@example",),
    ("ana@example", "foo"), ("中文",), ("中文", "字"), ("中文字",), ("😀",), ("😀", "foo"), ("é",), ("e\u0301",),
    ("foo", "foo", "foo"),
]  # fmt: skip


def below(prefix: tuple[str, ...]) -> Names:
    return [(name, "k") for name in ALIKE if name[: len(prefix)] == prefix]


def test_names_that_begin_alike(store: Any) -> None:
    """A search sees its own namespace and those below it, and no other whose name begins the same."""
    for name in ALIKE:
        store.put(name, "k", {"text": "the same sentence everywhere", "own": [*name]})
    for name in ALIKE:
        expected = sorted(below(name))
        assert store.get(name, "k").value["own"] == [*name]
        assert sorted(names(store.search(name, limit=100))) == expected
        assert sorted(names(store.search(name, query="same sentence", limit=100))) == expected
        assert sorted(names(store.search(name, filter={"own": [*name]}, limit=100))) == [(name, "k")]
        literal = [label for label in name if label != "*"]
        if len(literal) == len(name):
            assert store.list_namespaces(prefix=name) == sorted(found for found, _ in expected)
    assert sorted(names(store.search((), limit=100))) == sorted((name, "k") for name in ALIKE)


def test_labels_with_periods_come_in_as_operations(store: Any) -> None:
    """``put`` refuses them, ``batch`` does not: an address is one label, and no path of two."""
    dotted = [
        ("users", "ana@example.org"),
        ("users", "ana@example"),
        ("users", "ana@example", "org"),
        ("foo.bar",),
        ("foo", "bar"),
    ]
    store.batch([PutOp(name, "k", {"text": "a sentence", "own": [*name]}) for name in dotted])
    assert [item.value["own"] for item in store.batch([GetOp(name, "k") for name in dotted])] == [[*name] for name in dotted]
    found = store.batch([SearchOp(name) for name in dotted] + [SearchOp(name, query="sentence") for name in dotted])
    once = [{name} | ({("users", "ana@example", "org")} if name[1:] == ("ana@example",) else set()) for name in dotted]
    assert [{item.namespace for item in items} for items in found] == once * 2
    assert store.list_namespaces() == sorted(dotted)
    store.batch([PutOp(("foo.bar",), "k", None)])
    assert [item is None for item in store.batch([GetOp(("foo.bar",), "k"), GetOp(("foo", "bar"), "k")])] == [True, False]


TREE = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("z",),
    ("z", "v1"),
    ("y", "v1"),
]


@pytest.fixture
def tree(store: Any) -> Any:
    for name in reversed(TREE):
        store.put(name, "k", {"a": 1})
        store.put(name, "l", {"a": 1})
    return store


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, sorted(TREE)),
        ({"prefix": ("a", "b")}, TREE[:4]),
        ({"prefix": ("a", "b"), "max_depth": 3}, [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]),
        ({"max_depth": 1}, [("a",), ("y",), ("z",)]),
        ({"max_depth": 9}, sorted(TREE)),
        ({"prefix": ("a", "*", "f")}, [("a", "b", "f"), ("a", "c", "f")]),
        ({"prefix": ("*", "v1")}, [("y", "v1"), ("z", "v1")]),
        ({"prefix": ("a", "b", "c", "d")}, []),
        ({"prefix": ("a", "b", "c")}, [("a", "b", "c")]),
        ({"prefix": ()}, sorted(TREE)),
        ({"suffix": ("v1",)}, [("y", "v1"), ("z", "v1")]),
        ({"suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f")]),
        ({"suffix": ("d", "*")}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
        ({"suffix": ("*", "v1")}, [("y", "v1"), ("z", "v1")]),
        ({"suffix": ("*", "*", "*", "*")}, [("a", "b", "d", "e"), ("a", "b", "d", "i")]),
        ({"prefix": ("a",), "suffix": ("f",)}, [("a", "b", "f"), ("a", "c", "f")]),
        ({"prefix": ("z",), "suffix": ("f",)}, []),
        ({"limit": 2}, [("a", "b", "c"), ("a", "b", "d", "e")]),
        ({"limit": 2, "offset": 6}, [("z",), ("z", "v1")]),
        ({"limit": 2, "offset": 7}, [("z", "v1")]),
        ({"offset": 8}, []),
        ({"limit": 0}, []),
        ({"max_depth": 2, "limit": 2, "offset": 1}, [("a", "c"), ("y", "v1")]),
    ],
    ids=repr,
)
def test_list_namespaces(tree: Any, wanted: dict[str, Any], expected: list[tuple[str, ...]]) -> None:
    assert tree.list_namespaces(**wanted) == expected


def test_several_conditions_of_one_kind_all_hold(tree: Any) -> None:
    conditions = (
        MatchCondition("prefix", ("a", "b")),
        MatchCondition("prefix", ("*", "*", "d")),
        MatchCondition("suffix", ("i",)),
    )
    assert tree.batch([ListNamespacesOp(conditions)]) == [[("a", "b", "d", "i")]]


def test_an_empty_store(store: Any) -> None:
    assert store.list_namespaces() == []
    assert store.search(()) == []
    assert store.search(NS, query="anything") == []
    assert store.search(NS, filter={"a": 1}) == []
    assert store.batch([]) == []


# == both: filters

TASKS: dict[str, dict[str, Any]] = {
    "a": {"kind": "fact", "score": 3, "done": True, "tags": ["x", "y"], "by": {"name": "Ana", "team": {"n": 1}}, "note": None},
    "b": {"kind": "fact", "score": 4.5, "done": False, "tags": ["x"], "by": {"name": "Bob", "team": {"n": 2}}, "note": "said"},
    "c": {"kind": "event", "score": 5, "done": True, "tags": [], "by": {"name": "Ana", "team": {"n": 2}, "more": 1}},
    "d": {"kind": "Fact", "score": -2, "done": 1, "tags": "x", "by": "Ana", "note": ""},
    "e": {"kind": "事实", "score": 0, "done": 0, "tags": [["x"]], "by": None, "note": "a.b", "a.b": 7, "é": "é"},
}  # fmt: skip


NAN, INF = float("nan"), float("inf")
FILTERS: list[tuple[dict[str, Any] | None, str]] = [
    (None, "abcde"), ({}, "abcde"), ({"kind": "fact"}, "ab"), ({"kind": "事实"}, "e"), ({"kind": "nothing"}, ""),
    ({"kind": "fact", "score": 3}, "a"), ({"kind": "fact", "score": {"$gt": 3}}, "b"), ({"missing": "x"}, ""),
    ({"kind": {"$eq": "fact"}}, "ab"), ({"kind": {"$ne": "fact"}}, "cde"), ({"missing": {"$ne": 1}}, "abcde"),
    ({"missing": {"$eq": None}}, "abcde"), ({"missing": None}, "abcde"), ({"note": None}, "ac"),
    ({"note": {"$ne": None}}, "bde"), ({"score": {"$gt": 3}}, "bc"), ({"score": {"$gte": 3}}, "abc"),
    ({"score": {"$lt": 3}}, "de"), ({"score": {"$lte": 3}}, "ade"), ({"score": {"$gt": 4.49}}, "bc"),
    ({"score": {"$gte": 4.5}}, "bc"), ({"score": {"$gt": 4.5}}, "c"), ({"score": 4.5}, "b"), ({"score": 3.0}, "a"),
    ({"score": {"$gt": 0, "$lt": 5}}, "ab"), ({"score": {"$gte": 3, "$ne": 3}}, "bc"), ({"score": 0}, "e"),
    ({"score": {"$gt": -2.5, "$lte": -1.5}}, "d"), ({"score": {"$lt": 10**30}}, "abcde"), ({"done": True}, "acd"),
    ({"done": 1}, "acd"), ({"done": False}, "be"), ({"done": {"$eq": 0}}, "be"), ({"done": {"$ne": True}}, "be"),
    ({"tags": ["x", "y"]}, "a"), ({"tags": ("x", "y")}, "a"), ({"tags": ["y", "x"]}, ""), ({"tags": []}, "c"),
    ({"tags": "x"}, "d"), ({"tags": [["x"]]}, "e"), ({"tags": {"$eq": ["x"]}}, "b"), ({"tags": {"$ne": ["x"]}}, "acde"),
    ({"tags": [{"$ne": "y"}]}, "be"), ({"by": {"name": "Ana"}}, "ac"), ({"by": {"name": "Ana", "team": {"n": 2}}}, "c"),
    ({"by": {"team": {"n": {"$gt": 1}}}}, "bc"), ({"by": {"$eq": {"name": "Bob", "team": {"n": 2}}}}, "b"), ({"by": {}}, "abc"),
    ({"by": {"name": {"$ne": "Ana"}}}, "b"), ({"by": None}, "e"), ({"by": "Ana"}, "d"), ({"a.b": 7}, "e"),
    ({"by.name": "Ana"}, ""), ({"é": "é"}, "e"), ({"": None}, "abcde"), ({"score": NAN}, ""), ({"kind": INF}, ""),
    ({"score": {"$ne": NAN}}, "abcde"), ({"score": {"$gt": NAN}}, ""), ({"score": {"$lt": INF}}, "abcde"),
    ({"score": {"$gte": -INF}}, "abcde"), ({"score": {"$eq": INF}}, ""), ({"score": {"$ne": -INF}}, "abcde"),
    ({"done": {"$ne": 0}}, "acd"), ({"tags": {"$ne": "x"}}, "abce"), ({"tags": {"$ne": [["x"]]}}, "abcd"), ({"kind": {}}, ""),
    ({"by": {"$ne": {"name": "Bob", "team": {"n": 2}}}}, "acde"), ({"by": {"team": {"n": {"$ne": 2}}}}, "a"),
    ({"by": {"team": {"$eq": {"n": 2.0}}}}, "bc"), ({"by": {"team": {"m": None}}}, "abc"), ({"by": {"$eq": {"name": "Ana"}}}, ""),
]  # fmt: skip


@pytest.fixture
def tasks(store: Any) -> Any:
    for key, value in TASKS.items():
        store.put(NS, key, value)
    return store


@pytest.mark.parametrize(("wanted", "expected"), FILTERS, ids=repr)
def test_filters(tasks: Any, wanted: dict[str, Any] | None, expected: str) -> None:
    assert "".join(keys(tasks.search(NS, filter=wanted))) == expected
    assert "".join(sorted(keys(tasks.search(NS, filter=wanted, query="a fact about Ana")))) == expected
    assert "".join(keys(tasks.search(NS, filter=wanted, limit=1, offset=1))) == expected[1:2]


def test_an_unknown_operator_is_an_error(tasks: Any) -> None:
    for wanted in ({"score": {"$in": [3]}}, {"score": {"$gt": 1, "lt": 5}}, {"by": {"name": {"$like": "A"}}}):
        with pytest.raises(ValueError, match=r"operator.*(\$in|lt|\$like)"):
            tasks.search(NS, filter=wanted)


ODD: list[Any] = [
    0, 1, -1, True, False, 1.0, 0.1, 0.30000000000000004, 4.99, 5, 2**53 + 1, 2**70, 1e300, 5e-324, -0.0, "", "a", "A", "ab",
    "a\0z", "é", "e\u0301", "中文", "中", "5", "1", "true", "null", "%", "a%", "\n", "😀", None, [], [1], ["a"], [True], {},
    {"y": 1}, {"y": "a"},
]  # fmt: skip


def test_what_equals_what(store: Any) -> None:
    """Each odd value against each other: the filter says what ``==`` says."""
    store.batch([PutOp(NS, str(number), {"x": value}) for number, value in enumerate(ODD)])
    for wanted in ODD:
        same = [str(number) for number, value in enumerate(ODD) if value == wanted]
        other = [str(number) for number, value in enumerate(ODD) if value != wanted]
        assert keys(store.search(NS, filter={"x": {"$eq": wanted}}, limit=100)) == same
        assert keys(store.search(NS, filter={"x": {"$ne": wanted}}, limit=100)) == other
        if not isinstance(wanted, list | dict):
            assert keys(store.search(NS, filter={"x": wanted}, limit=100)) == same


# == both: pages


def test_pages_without_a_query(store: Any) -> None:
    for number in range(25):
        store.put(NS, f"k{number}", {"number": number, "odd": number % 2})
    every = [f"k{number}" for number in range(25)]
    assert keys(store.search(NS)) == every[:10]
    assert keys(store.search(NS, limit=100)) == every
    assert keys(store.search(NS, limit=10, offset=20)) == every[20:]
    assert keys(store.search(NS, limit=10, offset=25)) == []
    assert keys(store.search(NS, limit=10, offset=1000)) == []
    assert keys(store.search(NS, limit=0)) == []
    assert [*itertools.chain(*(keys(store.search(NS, limit=7, offset=start)) for start in range(0, 25, 7)))] == every
    odd = [*itertools.chain(*(keys(store.search(NS, limit=5, offset=start, filter={"odd": 1})) for start in range(0, 25, 5)))]
    assert odd == every[1::2]


def test_an_update_keeps_its_place(store: Any) -> None:
    for key in "abc":
        store.put(NS, key, {"text": key})
    store.put(NS, "a", {"text": "changed"})
    assert keys(store.search(NS)) == ["a", "b", "c"]


TOPICS = {
    "violin": "She tunes her violin before the concert.", "bread": "Sourdough bread needs a warm kitchen.",
    "bike": "The brakes of my bicycle squeak in the rain.", "tax": "The tax office wants the receipts by May.",
    "fern": "Ferns like shade and damp soil.", "chess": "He opens chess games with the queen's gambit.",
    "中": "我周末去山里看红叶。",
}  # fmt: skip


@pytest.fixture
def topics(ranking: Any) -> Any:
    for number, (key, text) in enumerate(TOPICS.items()):
        ranking.put((*NS, f"part{number % 2}"), key, {"text": text, "number": number})
    return ranking


@pytest.mark.parametrize(
    ("query", "best"),
    [("tune the violin", "violin"), ("bicycle brakes", "bike"), ("receipts for the tax office", "tax"), ("红叶", "中")],
)
def test_the_best_item_comes_first(topics: Any, query: str, best: str) -> None:
    found = topics.search(NS, query=query, limit=3)
    assert len(found) == 3
    assert found[0].key == best
    assert {type(item) for item in found} == {SearchItem}
    assert found[0].score > max(item.score for item in found[1:])
    assert found[0].value["text"] == TOPICS[best]
    assert found[0].dict()["score"] == found[0].score


def test_a_query_ranks_all_there_is(topics: Any) -> None:
    for query in ("bicycle brakes", "nothing of the kind", "?!", "的", "x" * 5000):
        assert sorted(keys(topics.search(NS, query=query))) == sorted(TOPICS)
        assert [len(topics.search(NS, query=query, limit=limit)) for limit in (0, 1, 6, 7, 8)] == [0, 1, 6, 7, 7]
        assert len(topics.search(NS, query=query, offset=5)) == 2
        assert topics.search(NS, query=query, offset=7) == []


def test_without_a_query_nothing_has_a_score(topics: Any) -> None:
    for query in (None, ""):
        assert {item.score for item in topics.search(NS, query=query)} == {None}


def test_a_query_with_a_filter(topics: Any) -> None:
    assert keys(topics.search(NS, query="bicycle brakes", filter={"number": {"$lt": 2}}, limit=1)) != ["bike"]
    assert sorted(keys(topics.search(NS, query="bicycle brakes", filter={"number": {"$lt": 2}}))) == ["bread", "violin"]
    assert keys(topics.search(NS, query="bicycle brakes", filter={"number": {"$gte": 2}}))[0] == "bike"


def test_a_query_stays_below_its_prefix(topics: Any) -> None:
    assert "bike" not in keys(topics.search((*NS, "part1"), query="bicycle brakes"))
    assert keys(topics.search((*NS, "part0"), query="bicycle brakes"))[0] == "bike"
    assert topics.search(("memories", "ali"), query="bicycle brakes") == []


def test_pages_of_a_query(ranking: Any) -> None:
    """They do not overlap, leave nothing out, and are one long page cut in pieces."""
    words = "kettle violin garden river bicycle lantern harbour museum".split()
    for number in range(130):
        said = f"{words[number % 8]} {words[number % 5]} {words[number % 3]} number{number}"
        ranking.put((*NS, str(number % 3)), f"k{number}", {"text": said})
    for query in ("kettle in the garden", "violin", "nothing alike"):
        whole = names(ranking.search(NS, query=query, limit=1000))
        assert len(set(whole)) == len(whole) == 130
        for size in (9, 40):
            pages = [names(ranking.search(NS, query=query, limit=size, offset=start)) for start in range(0, 140, size)]
            assert [*itertools.chain(*pages)] == whole


# == both: what items are found by


def test_an_item_that_is_not_indexed(ranking: Any) -> None:
    """It is there for ``get`` and for a search without a query; one with a query puts it last, without a score."""
    ranking.put(NS, "hidden", {"text": "bicycle brakes squeak"}, index=False)
    ranking.put(NS, "fern", {"text": "Ferns like shade."})
    assert ranking.get(NS, "hidden").value == {"text": "bicycle brakes squeak"}
    assert keys(ranking.search(NS)) == ["hidden", "fern"]
    found = ranking.search(NS, query="bicycle brakes squeak")
    assert keys(found) == ["fern", "hidden"]
    assert found[1].score is None
    assert keys(ranking.search(NS, query="bicycle brakes", limit=1)) == ["fern"]


NESTED = {
    "title": "orchids", "meta": {"summary": "about ferns"}, "parts": [{"said": "violin lessons"}, {"said": "bread recipe"}],
    "tags": ["harbour", "lantern"], "revisions": [{"by": "kettle"}, {"by": "museum"}],
}  # fmt: skip
DECOY = {"title": "x", "meta": {}, "parts": [], "tags": [], "revisions": []}


@pytest.mark.parametrize(
    ("paths", "finds", "misses"),
    [
        (["title"], ["orchids"], ["ferns", "violin"]),
        (["meta.summary"], ["ferns"], ["orchids"]),
        (["title", "meta.summary"], ["orchids", "ferns"], ["violin"]),
        (["parts[*].said"], ["violin lessons", "bread recipe"], ["orchids"]),
        (["parts[0].said"], ["violin lessons"], ["bread recipe"]),
        (["revisions[-1].by"], ["museum"], ["kettle"]),
        (["tags[*]"], ["harbour", "lantern"], ["orchids"]),
        (["meta"], ["ferns"], ["orchids"]),
        (["missing", "title"], ["orchids"], ["ferns"]),
    ],
    ids=repr,
)
def test_index_by_paths(ranking: Any, paths: list[str], finds: list[str], misses: list[str]) -> None:
    ranking.put(NS, "it", NESTED, index=paths)
    scored: Callable[[str], float] = lambda query: ranking.search(NS, query=query)[0].score  # noqa: E731
    assert min(map(scored, finds)) > max(map(scored, misses))


@pytest.mark.parametrize("paths", [["missing"], ["missing[*].a"], ["title.deeper"], ["parts[7].said"], [], ["nothing"]], ids=repr)
def test_paths_that_lead_nowhere_index_nothing(ranking: Any, paths: list[str]) -> None:
    ranking.put(NS, "it", {**NESTED, "nothing": None}, index=paths)
    ranking.put(NS, "fern", {"text": "Ferns like shade."})
    found = ranking.search(NS, query="orchids and violin lessons")
    assert keys(found) == ["fern", "it"]
    assert found[1].score is None
    assert ranking.get(NS, "it").value["title"] == "orchids"


def test_fields_of_the_store(by_title: Any) -> None:
    """The store's fields hold where a put says nothing, and not where it does."""
    by_title.put(NS, "one", {"title": "orchids", "text": "violin lessons"})
    by_title.put(NS, "two", {"title": "ferns", "text": "bicycle brakes"}, index=["text"])
    by_title.put(NS, "three", {"title": "bread", "text": "chess"}, index=False)
    by_title.put(NS, "four", {"text": "without a title"})
    assert keys(by_title.search(NS, query="orchids"))[0] == "one"
    assert keys(by_title.search(NS, query="bicycle brakes"))[0] == "two"
    for query in ("violin lessons", "ferns", "chess bread"):
        assert sorted(keys(by_title.search(NS, query=query))[2:]) == ["four", "three"]


# == both: batches


def test_a_batch_reads_what_was_before_it(store: Any) -> None:
    """Results are in the order of the operations, reads see no put of the same batch, the last put of an item wins."""
    store.put(NS, "old", {"text": "old"})
    results = store.batch([
        PutOp(NS, "new", {"text": "first"}), GetOp(NS, "new"), GetOp(NS, "old"), PutOp(NS, "old", None), GetOp(NS, "old"),
        SearchOp(NS), PutOp(("other",), "new", {"text": "elsewhere"}), ListNamespacesOp(), PutOp(NS, "new", {"text": "last"}),
        SearchOp(NS, query="old", limit=5), PutOp(("gone",), "k", {"a": 1}), PutOp(("gone",), "k", None),
    ])  # fmt: skip
    assert [results[place] for place in (0, 1, 3, 6, 8, 10, 11)] == [None] * 7
    assert [results[place].key for place in (2, 4)] == ["old", "old"]
    assert [keys(results[place]) for place in (5, 9)] == [["old"], ["old"]]
    assert results[7] == [NS]
    assert store.get(NS, "new").value == {"text": "last"}
    assert store.get(NS, "old") is None
    assert store.get(("other",), "new").value == {"text": "elsewhere"}
    assert store.search(("gone",)) == []


def test_a_put_after_a_delete_in_one_batch(store: Any) -> None:
    store.put(NS, "k", {"a": 1})
    store.batch([PutOp(NS, "k", None), PutOp(NS, "k", {"a": 2})])
    assert store.get(NS, "k").value == {"a": 2}
    assert keys(store.search(NS)) == ["k"]


def test_a_batch_may_be_a_generator(store: Any) -> None:
    assert store.batch(PutOp(NS, str(number), {"n": number}) for number in range(3)) == [None] * 3
    assert [item.value["n"] for item in store.batch(GetOp(NS, str(number)) for number in range(3))] == [0, 1, 2]


def test_what_is_no_operation_is_an_error(store: Any) -> None:
    with pytest.raises(ValueError):
        store.batch([("get", NS, "k")])


# == ours: where InMemoryStore differs or says nothing


def test_an_update_keeps_created_at(ours: Any) -> None:
    ours.put(NS, "home", {"text": "I live in Lyon."})
    first = ours.get(NS, "home")
    ours.put(NS, "home", {"text": "I live in Berlin."})
    ours.put(NS, "home", {"text": "I live in Berlin."})
    item = ours.get(NS, "home")
    assert first
    assert item
    assert item.created_at == first.created_at == first.updated_at
    assert item.updated_at > first.updated_at
    assert ours.search(NS)[0].created_at == first.created_at
    assert item.created_at.utcoffset() == timedelta(0)


def test_values_are_nobody_elses(ours: Any) -> None:
    value: dict[str, Any] = {"list": [1], "dict": {"a": 1}}
    ours.put(NS, "k", value)
    value["list"].append(2)
    for found in (ours.get(NS, "k"), ours.search(NS)[0], ours.search(NS, query="list")[0]):
        found.value["dict"]["a"] = 5
        found.value["new"] = 1
    assert ours.get(NS, "k").value == {"list": [1], "dict": {"a": 1}}


def test_reading_makes_no_namespace(ours: Any) -> None:
    ours.get(NS, "k")
    ours.delete(NS, "k")
    ours.put(NS, "k", {"a": 1})
    ours.delete(NS, "k")
    assert ours.list_namespaces() == []
    assert ours.search(()) == []


def test_ordering_is_among_numbers_or_among_texts(ours: Any) -> None:
    """Each odd value against each other, with each operator; ``bool`` is no number here, and a digit is a text."""
    orders: dict[str, Callable[[Any, Any], bool]] = {
        "$gt": lambda a, b: a > b, "$gte": lambda a, b: a >= b, "$lt": lambda a, b: a < b, "$lte": lambda a, b: a <= b,
    }  # fmt: skip
    ours.batch([PutOp(NS, str(number), {"x": value}, index=False) for number, value in enumerate(ODD)])
    for wanted in ODD:
        if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
            continue
        like = str if isinstance(wanted, str) else int | float
        for operator, holds in orders.items():
            expected = [n for n, v in enumerate(ODD) if isinstance(v, like) and not isinstance(v, bool) and holds(v, wanted)]
            assert keys(ours.search(NS, filter={"x": {operator: wanted}}, limit=100)) == [str(number) for number in expected]


def test_dates_as_iso_texts_compare(ours: Any) -> None:
    for day in ("2026-01-05", "2026-03-01", "2025-12-31"):
        ours.put(NS, day, {"due": day})
    assert keys(ours.search(NS, filter={"due": {"$gte": "2026-01-01", "$lt": "2026-03-01"}})) == ["2026-01-05"]


def test_edges_of_what_a_database_reads(ours: Any) -> None:
    """Fractions a hair apart, beside what each operator compares them with."""
    fractions = [0.1, 0.30000000000000004, 0.3, 1 / 3, 2.9999999999999996, 3.0000000000000004, 1e-320, 1.7976931348623157e308]
    near = [math.nextafter(one, edge) for one in fractions[:-1] for edge in (-math.inf, math.inf)]
    every = [*fractions, *near]
    ours.batch([PutOp(NS, str(number), {"x": value}, index=False) for number, value in enumerate(every)])
    for wanted, sign in itertools.product(every, ("$gt", "$gte", "$lt", "$lte", "$eq", "$ne")):
        expected = [str(number) for number, value in enumerate(every) if passes(value, {sign: wanted})]
        assert keys(ours.search(NS, filter={"x": {sign: wanted}}, limit=100)) == expected, (sign, wanted)


LISTED = [["a"], ["a", "b"], ["b", "a"], [["a"]], [1], [True], [1.5], [None], [{"y": 1}], ["a"] * 50, [*["a"] * 49, "b"]]
NESTED_VALUES: list[Any] = [
    *ODD, *LISTED, *({"y": value} for value in (*ODD, *LISTED)), {"y": {"z": "a"}}, {'q"': "a"}, {"a.b": 1}, {"b\\": 1},
    {"y": None, "z": None}, {"z": None}, {"\n": 1}, {"记": {"😀": 1}}, {"": 1}, {"a$": 1}, {"it's [0] %": 1}, {"1": "a"},
]  # fmt: skip
FAR_DOWN: Any = None
for _ in range(90):
    FAR_DOWN = {"y": FAR_DOWN}


class One(IntEnum):
    ONE = 1


SAME: list[dict[str, Any]] = [
    *({"x": value} for value in (*NESTED_VALUES, *LISTED)), *({"x": {"$ne": value}} for value in NESTED_VALUES),
    *({"x": {"$eq": value}} for value in NESTED_VALUES), *({"x": {"y": {"$ne": value}}} for value in (*ODD, *LISTED)),
    {"x": {"y": {"z": {"$ne": "b"}}}}, {"x": [{"$ne": "a"}]}, {"x": [[{"$ne": "b"}]]}, {"x": {"y": [{"y": {"$ne": 2}}]}},
    {"x": {"$ne": "a", "$eq": ["a"]}}, {"x" * 3000: None}, {"x": FAR_DOWN}, {"x": {"$ne": FAR_DOWN}}, {"x": ["a"] * 40_000},
    {"x": {"$ne": ["a"] * 40_000}}, {f"x{number}": None for number in range(500)}, {"x": {"$eq": (1,)}}, {"x": {"$ne": (1,)}},
    {"x": Decimal(1)}, {"x": {"$ne": Decimal(1)}}, {"x": One.ONE}, {"x": 10**5000}, {"x": "\ud800"},
    {"x": {"$ne": "\ud800"}}, {"x": {"y": "\ud800"}}, {"\ud800": None}, {"x": {"": None}}, {"x": {"y\ud800": 1}},
    {"x": {"y": "a"}, "text": {"$ne": "b"}}, {"x": {"y": "a"}, "text": "b"}, {f"x{n}": {"$ne": [1] * 27} for n in range(90)},
    {f"x{n}": {"$ne": [1] * 200} for n in range(90)},
]  # fmt: skip


def test_each_filter_finds_what_the_store_of_langgraph_finds(ours: Any) -> None:
    """Side by side over values of all kinds: what is equal, what is not, at the top and further down."""
    theirs = InMemoryStore()
    puts = [PutOp(NS, str(number), {"x": value, "text": "a"}) for number, value in enumerate(NESTED_VALUES)]
    theirs.batch(puts)
    ours.batch(puts)
    for wanted in SAME:
        expected = keys(theirs.search(NS, filter=wanted, limit=1000))
        assert keys(ours.search(NS, filter=wanted, limit=1000)) == expected, str(wanted)[:99]


OTHERS: list[dict[str, Any]] = [
    {"text": {"$ne": "a"}}, {"text": {"$lt": "Corrected u"}}, {"text": {"$gt": "Corrected t"}}, {"text": "Corrected twice."},
    {"text": None}, {"text": {"$ne": None}}, {"text": {"$ne": 5}}, {"text": {"$lte": "Corrected."}}, {"corrected": None},
    {"corrected": "Corrected twice."}, {"corrected": {"$ne": None}}, {"x": {"$ne": "a", "$gte": "a"}}, {"x": [{"$gt": 0}]},
    {"content": {"$ne": "a"}}, {"content": "A note of Bo's."}, {"content": {"$gte": "A note"}}, {"content": ["A note of Bo's."]},
    {"content": {"$lt": 5}}, {"content": {"$ne": None}}, {"content": None}, {"content": {"a": None}}, {"content": "\ud800"},
    {"speaker": {"$ne": "Bo"}}, {"speaker": "Bo"}, {"speaker": None}, {"speaker": {"$gt": "Bn", "$ne": None}}, {"speaker": 5},
    {"speaker": {"$lte": "Bo"}}, {"context": None}, {"context": {"$ne": "a"}}, {"category": {"$ne": 1}}, {"category": {}},
    {"tags": ["odd", "x"]}, {"tags": ["x", "odd"]}, {"tags": {"$ne": ["odd", "x"]}}, {"tags": "x"}, {"tags": []}, {"tags": None},
    {"tags": {"$ne": "x"}}, {"tags": {"$gt": "a"}}, {"tags": [{"$gt": "a"}, "x"]}, {"keywords": {"$ne": None}},
    {"tags": {"a": None}}, {"x": {True: 1}}, {"x": {"y": {-1: None}}}, {"x": {1: "a"}}, {"x": {"$eq": {1: "a"}}},
    {"x": {2.5: None}},
    {"metadata": {"cup": {"size": {"$gt": 1}}}}, {"metadata": {"cup": {"size": {"$ne": 2}}}}, {"metadata": {"item": ["a"]}},
    {"metadata": None}, {"metadata": {}}, {"metadata": {"a": None}}, {"metadata": {"$ne": {}}}, {"metadata": {"$eq": {}}},
    {"metadata": {"$ne": {"item": ["a"]}}}, {"metadata": {"w": {"$ne": "a"}}}, {"metadata": "a"}, {"metadata": {"$gt": "a"}},
    {"other": {"$ne": "x"}}, {"other": "x"}, {"other": {"$gt": 1}}, {"other": ["x"]}, {"other": {"deep": None}}, {"a b": 1},
    {"metadata": {f"x{n}": {"$ne": [1] * 27} for n in range(90)}}, {"x": {"$lt": 10**5000}}, {"x": {"$lte": -(10**400)}},
    {"speaker": {"$gt": "Bo"}}, {"speaker": {"$gte": "Bo"}}, {"speaker": {"$lt": "Bo"}}, {"x": {"$gt": -(2**70)}},
]  # fmt: skip


def test_each_filter_finds_what_passes(ours: Any) -> None:
    """Among items as put, items that were corrected by hand, and notes of other parts."""
    ours.batch([PutOp(NS, str(number), {"x": value, "text": "a"}) for number, value in enumerate(NESTED_VALUES)])
    for number, note in enumerate(ours.memory.list(space=NS)):
        if number % 3:
            content = "Corrected twice." if number % 3 == 1 else note.content.replace("a\n", "Corrected.\n", 1)
            ours.memory.update(note, content=content)
    ours.memory.add("A note of Bo's.", space=NS, speaker="Bo", tags=["odd", "x"], metadata={"cup": {"size": 2}, "w": ["a"]})
    ours.memory.add("A note of nobody's.", space=NS, metadata={"item": ["a"]})
    ours.memory.add("A bare note.", space=NS)
    ours.memory.add("A note with a value.", space=NS, metadata={"item": {"value": {"x": ["a"]}}})
    items = ours.search(NS, limit=1000)
    said = [item.value.get("text") for item in items]
    assert len(items) == len(NESTED_VALUES) + 4
    assert min(map(said.count, ("a", "Corrected twice.", "Corrected."))) > 20
    for wanted in (*OTHERS, *SAME):
        passing = [item.key for item in items if all(passes(item.value.get(name), one) for name, one in wanted.items())]
        assert keys(ours.search(NS, filter=wanted, limit=1000)) == passing, str(wanted)[:99]


def test_no_filter_asks_for_more_than_a_database_takes() -> None:
    """SQLite as it comes has room for 32,766 bound values."""
    assert all(len(condition(bounds(wanted))[1]) < 32_766 for wanted in (*OTHERS, *SAME))


DECIDED: list[dict[str, Any]] = [
    {"kind": {"$ne": "x"}}, {"n": {"$ne": 5}}, {"n": {"$gt": 5}}, {"half": {"$lt": 0.5}}, {"half": {"$ne": 0.5}},
    {"half": {"$gt": 0.51}}, {"done": {"$ne": 1}}, {"note": {"$ne": None}}, {"kind": None}, {"by": {"name": {"$ne": "Ana"}}},
    {"tags": ["c"]}, {"tags": ["a", "c"]}, {"tags": ["b", "a"]}, {"tags": {"$eq": ["c"]}}, {"tags": {"$ne": ["a", "b"]}},
    {"kind": []}, {"by": {"name": "Bob"}}, {"by": {"n": {"$gt": 3}}}, {"by": {"$eq": {"name": "Bob"}}},
    {"by": {"$ne": {"name": "Ana", "n": 2}}}, {"other": "x"}, {"other": {"$gt": 1}}, {"种类": "x"},
    {"by": {"name": "Ana", "n": {"$lt": 2}}}, {"two words": {"$eq": 1}}, {"n": INF}, {"n": {"$eq": NAN}}, {"n": {"$gte": NAN}},
]  # fmt: skip
OF_NOTES: list[dict[str, Any]] = [
    {"kind": "x"}, {"kind": {"$gt": 3}}, {"tags": ["zz"]}, {"tags": "b"}, {"tags": {"$ne": ["b"]}}, {"speaker": "Cy"},
    {"speaker": {"$ne": "Bo"}}, {"speaker": None}, {"metadata": {"cup": 2}}, {"metadata": {"cup": {"$ne": 1}}},
    {"metadata": {"$ne": {"cup": 1}}}, {"content": "Nobody says this."}, {"content": {"$gt": "J"}},
    {"content": {"$ne": "I like tea."}}, {"content": 5}, {"keywords": "tea"}, {"keywords": []},
]  # fmt: skip


@pytest.mark.parametrize("wanted", DECIDED, ids=repr)
def test_what_the_database_decides_of_items(ours: Any, wanted: dict[str, Any]) -> None:
    """Of what does not pass nothing is read."""
    value = {"kind": "x", "n": 5, "half": 0.5, "done": True, "note": None, "tags": ["a", "b"], "by": {"name": "Ana", "n": 2}}
    ours.batch([PutOp(NS, "one", value), PutOp(NS, "two", value | {"n": 5.0})])
    assert len(ours.memory.list(space=NS, where={"$and": [bounds({"kind": "x"})]})) == 2
    assert ours.memory.list(space=NS, where={"$and": [bounds(wanted)]}) == []
    assert ours.search(NS, filter=wanted) == ours.search(NS, filter=wanted, query="tea") == []


@pytest.mark.parametrize("wanted", OF_NOTES, ids=repr)
def test_what_the_database_decides_of_notes(ours: Any, wanted: dict[str, Any]) -> None:
    note = ours.memory.add("I like tea.", space=NS, speaker="Bo", metadata={"cup": 1})
    ours.memory.update(note, tags=["b"])
    assert len(ours.memory.list(space=NS, where={"$and": [bounds({"speaker": "Bo", "tags": ["b"]})]})) == 1
    assert ours.memory.list(space=NS, where={"$and": [bounds(wanted)]}) == []
    assert ours.search(NS, filter=wanted) == ours.search(NS, filter=wanted, query="tea") == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"x": {"$gt": None}}, {"x": {"$gt": [1]}}, {"x": {"$lt": True}}, {"x": {"$gte": datetime(2026, 1, 1, tzinfo=UTC)}},
        {"$gt": 3}, {"$and": [{"x": 1}]}, {"$or": []}, {1: 2}, ["x"], "x", {"x": [{"$bad": 1}]}, {"x": {"y": {"$bad": 1}}},
    ],
    ids=repr,
)  # fmt: skip
def test_filters_that_make_no_sense_are_errors(ours: Any, wanted: Any) -> None:
    for query in (None, "anything"):
        with pytest.raises(InvalidInput) as caught:
            ours.search(NS, filter=wanted, query=query)
        assert str(caught.value)


def test_an_operand_may_look_like_an_operator(ours: Any) -> None:
    ours.put(NS, "k", {"x": {"$ref": "a"}, "$schema": "b"})
    assert keys(ours.search(NS, filter={"x": {"$eq": {"$ref": "a"}}})) == ["k"]
    assert keys(ours.search(NS, filter={"$schema": "b"})) == ["k"]


class Colour(Enum):
    RED = "red"


CYCLE: dict[str, Any] = {}
CYCLE["self"] = CYCLE
DEEP: Any = "x"
for _ in range(5000):
    DEEP = {"a": DEEP}
BAD_VALUES: dict[str, Any] = {
    "object": {"a": object()}, "set": {"a": {1}}, "bytes": {"a": b"x"}, "time": {"a": datetime.now(UTC)},
    "nan": {"a": float("nan")}, "infinity": {"a": [float("inf")]}, "number as key": {1: 2}, "nested key": {"a": [{None: 1}]},
    "half a character": {"a": "\ud800"}, "half a key": {"\ud800": 1}, "deep": {"a": DEEP}, "endless": CYCLE, "text": "a text",
    "list": [("a", 1)], "number": 5, "false": False, "many digits": {"a": 10**5000}, "enum": {"a": Colour.RED},
    "nested mapping": {"a": MappingProxyType({})},
}  # fmt: skip


def test_filters_nested_deeper_than_any_value(ours: Any) -> None:
    ours.put(NS, "k", {"x": "a"})
    for wanted in ({"x": DEEP}, {"x": [[DEEP]]}):
        with pytest.raises(InvalidInput, match="nested more than 100 deep"):
            ours.search(NS, filter=wanted)
    assert ours.search(NS, filter={"x": {"$eq": DEEP}}) == []
    assert keys(ours.search(NS, filter={"x": {"$ne": DEEP}})) == ["k"]


@pytest.mark.parametrize("name", BAD_VALUES)
def test_values_that_are_no_json_are_refused(ours: Any, name: str) -> None:
    for index in (None, False, ["a"]):
        with pytest.raises(InvalidInput, match="bad"):
            ours.batch([PutOp(NS, "good", {"a": 1}), PutOp(NS, "bad", BAD_VALUES[name], index=index)])
    assert ours.search(()) == []


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"], ids=repr)
def test_keys_that_can_name_nothing(ours: Any, key: str) -> None:
    with pytest.raises(InvalidInput, match="key="):
        ours.batch([PutOp(NS, "good", {"a": 1}), PutOp(NS, key, {"a": 1})])
    assert ours.get(NS, key) is None
    ours.delete(NS, key)
    assert ours.search(()) == []


def test_a_text_is_no_namespace(ours: Any) -> None:
    """``"abc"`` is not ``("a", "b", "c")``."""
    calls: list[Callable[[], Any]] = [
        lambda: ours.put("abc", "k", {"a": 1}), lambda: ours.get("abc", "k"), lambda: ours.search("abc"),
        lambda: ours.delete("abc", "k"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidInput, match="'abc' is not a tuple"):
            call()
    listed: Any = ["a", "b"]
    ours.batch([PutOp(listed, "k", {"a": 1})])
    assert ours.get(("a", "b"), "k")


def test_operations_without_a_namespace(ours: Any) -> None:
    nowhere: list[Any] = [(), ("",), ("a", 5)]
    for namespace in nowhere:
        with pytest.raises(InvalidInput):
            ours.batch([PutOp(("a",), "good", {"a": 1}), PutOp(namespace, "k", {"a": 1})])
    assert ours.search(()) == []


@pytest.mark.parametrize("bound", [-1, 1.5, "3", None, True], ids=repr)
def test_bounds_that_make_no_sense(ours: Any, bound: Any) -> None:
    ours.put(NS, "k", {"a": 1})
    for name in ("limit", "offset"):
        for call in (ours.search, lambda _, **more: ours.list_namespaces(**more)):
            with pytest.raises(InvalidInput, match=name):
                call(NS, **{name: bound})
    if bound is not None:
        with pytest.raises(InvalidInput, match="max_depth"):
            ours.list_namespaces(max_depth=bound)


def test_other_nonsense(ours: Any) -> None:
    with pytest.raises(InvalidInput, match="query=5"):
        ours.search(NS, query=5)
    ours.put(NS, "k", {"a": 1})
    infix: Any = "infix"
    with pytest.raises(InvalidInput, match="infix"):
        ours.batch([ListNamespacesOp((MatchCondition(infix, ("a",)),))])
    for index in ("text", True, 5, [1]):
        with pytest.raises(InvalidInput, match="index="):
            ours.put(NS, "k", {"a": 1}, index=index)


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"index": {"dims": 3}}, "own embedder"), ({"index": {"fields": ["a"], "embed": embed}}, "only 'fields'"),
    ({"index": {"fields": "text"}}, "index='text'"), ({"index": {"field": ["text"]}}, "no 'field': its keys are fields"),
    ({"index": ["text"]}, "index=.* is not a dict"), ({"min_relevance": 2}, "relevance=2"), ({"ttl": 60}, "ttl=60.*default_ttl"),
    ({"ttl": {"default": 60}}, "ttl has no 'default': its keys are default_ttl, sweep_interval_minutes, refresh_on_read"),
    ({"ttl": {"default_ttl": "60"}}, "default_ttl='60'.*minutes"), ({"ttl": {"default_ttl": True}}, "default_ttl=True"),
    ({"ttl": {"default_ttl": 0}}, "default_ttl=0"), ({"ttl": {"sweep_interval_minutes": NAN}}, "sweep_interval_minutes=nan"),
    ({"ttl": {"sweep_interval_minutes": -1}}, "interval_minutes=-1"), ({"ttl": {"refresh_on_read": "no"}}, "on_read='no'"),
    ({"ttl": {"refresh_on_read": None}}, "refresh_on_read=None"), ({"ttl": {1: 2}}, "ttl has no 1"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS, ids=[message for _, message in BAD_SETTINGS])
def test_settings_that_make_no_sense(memory: Memory, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        EngrammaStore(memory, **settings)


@pytest.mark.parametrize(
    "given", ["memory.db", Path("memory.db"), None, InMemoryStore(), Memory], ids=lambda one: type(one).__name__
)
def test_what_is_no_memory(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"memory=.*Memory\.open\('memory\.db'\)"):
        EngrammaStore(given)
    assert [*tmp_path.iterdir()] == []


def test_settings_that_say_nothing(memory: Memory) -> None:
    nothing: list[Any] = [
        {"ttl": {}},
        {"ttl": {"default_ttl": None, "omit_expired": False}},
        {"index": {}},
        {"index": {"fields": []}},
    ]
    for settings in nothing:
        store = EngrammaStore(memory, **settings)
        store.put(NS, "k", {"text": "bicycle"})
        assert keys(store.search(NS, query="bicycle")) == ["k"]


def test_tuples_come_back_as_lists(ours: Any) -> None:
    ours.put(NS, "k", {"pair": (1, (2, 3))})
    assert ours.get(NS, "k").value == {"pair": [1, [2, 3]]}
    [note] = ours.memory.list(space=NS)
    assert note.revision == 1


def test_index_false_takes_an_item_out_of_the_ranking(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle brakes"})
    ours.put(NS, "fern", {"text": "Ferns like shade."})
    ours.put(NS, "k", {"text": "bicycle brakes"}, index=False)
    found = ours.search(NS, query="bicycle brakes")
    assert keys(found) == ["fern", "k"]
    assert found[1].score is None
    ours.put(NS, "k", {"text": "bicycle brakes"})
    assert keys(ours.search(NS, query="bicycle brakes"))[0] == "k"


def test_the_path_of_all_there_is(memory: Memory) -> None:
    """``"$"`` is the whole value, of the store's fields and of one put."""
    store = EngrammaStore(memory, index={"fields": ["title"]})
    store.put(NS, "it", NESTED, index=["$"])
    store.put(NS, "title", NESTED)
    for query in ("ferns", "violin lessons", "harbour lantern"):
        assert keys(store.search(NS, query=query)) == ["it", "title"]
    EngrammaStore(memory, index={"fields": ["$"]}).put(NS, "title", NESTED)
    scores = [item.score or 0 for item in store.search(NS, query="violin lessons")]
    assert scores[1] > scores[0] / 2


def test_pages_of_what_the_database_cannot_tell_apart(ours: Any) -> None:
    """A name that no path of a database can hold; what passes lies wide apart."""
    puts = [{"text": f"number{number}", 'a "way"': number % 7} for number in range(700)]
    ours.batch([PutOp(NS, f"k{number}", value, index=False) for number, value in enumerate(puts)])
    wanted = [f"k{number}" for number in range(0, 700, 7)]
    for size in (1, 30, 150):
        for start in range(0, 120, max(size, 29)):
            found = ours.search(NS, filter={'a "way"': 0}, limit=size, offset=start)
            assert keys(found) == wanted[start : start + size]


@pytest.mark.parametrize("passing", [0, 5, 120, pytest.param(250, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["way", 'a "way"'])
def test_pages_of_a_query_with_a_filter(ours: Any, passing: int, name: str) -> None:
    """Few or many that pass, told by the database or not: pages do not overlap; what is not ranked comes last."""
    puts = [{"text": f"bicycle number{number}", name: "a" if number < passing else "b"} for number in range(300)]
    ours.batch([PutOp(NS, f"k{n}", value, index=None if n % 5 else False) for n, value in enumerate(puts)])
    for query in ("bicycle number3", "nothing alike"):
        whole = ours.search(NS, query=query, filter={name: "a"}, limit=1000)
        assert sorted(keys(whole)) == sorted(f"k{number}" for number in range(passing))
        ranked = [item.score is not None for item in whole]
        assert ranked == [True] * (passing - passing // 5) + [False] * (passing // 5)
        starts = range(0, passing, 9)
        pages = [names(ours.search(NS, query=query, filter={name: "a"}, limit=9, offset=start)) for start in starts]
        assert [*itertools.chain(*pages)] == names(whole)
    assert keys(ours.search(NS, query="bicycle number3", filter={name: "a"}, limit=1)) == (["k3"] if passing else [])


def test_pages_with_items_that_are_not_ranked(ours: Any) -> None:
    for number in range(70):
        ours.put(NS, f"k{number}", {"text": f"bicycle number{number}"}, index=False if number % 3 else None)
    whole = keys(ours.search(NS, query="bicycle", limit=100))
    pages = [keys(ours.search(NS, query="bicycle", limit=9, offset=start)) for start in range(0, 70, 9)]
    assert [*itertools.chain(*pages)] == whole
    assert sorted(whole) == sorted(f"k{number}" for number in range(70))


def test_near_copies_page_by_page(ours: Any) -> None:
    """Many items that say the same are one hit to recall, and as many items here."""
    for number in range(300):
        ours.batch([PutOp(NS, f"k{number}", {"text": "The kettle leaks."})])
    for least in (0.0, 0.005):
        store = EngrammaStore(ours.memory, min_relevance=least)
        pages = [keys(store.search(NS, query="kettle", limit=90, offset=start)) for start in range(0, 400, 90)]
        assert sorted(itertools.chain(*pages)) == sorted(f"k{number}" for number in range(300))


def test_min_relevance_leaves_out_what_does_not_bear_on_a_query(memory: Memory) -> None:
    store = EngrammaStore(memory, min_relevance=0.5)
    for key, text in TOPICS.items():
        store.put(NS, key, {"text": text})
    assert keys(store.search(NS, query="bicycle brakes")) == ["bike"]
    assert store.search(NS, query="quantum chromodynamics") == []
    assert len(store.search(NS)) == len(TOPICS)
    assert keys(EngrammaStore(memory).search(NS, query="quantum chromodynamics", limit=100)) != []


# == ours: time to live


def left(store: Any, key: str = "k", namespace: tuple[str, ...] = NS) -> float | None:
    """Minutes that an item has left, None for ever."""
    [note] = store.memory.list(where={"key": key}, space=[namespace])
    return None if note.expires_at is None else (note.expires_at - datetime.now(UTC)).total_seconds() / 60


def pass_time(store: Any, minutes: float, key: str = "k", namespace: tuple[str, ...] = NS) -> None:
    """As if an item had been used so many minutes earlier."""
    [note] = store.memory.list(where={"key": key}, space=[namespace])
    assert note.expires_at is not None
    store.memory.update(note, expires_at=note.expires_at - timedelta(minutes=minutes))


def test_an_item_expires(ours: Any) -> None:
    assert ours.supports_ttl
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    ours.put(NS, "stays", {"text": "bicycle"})
    assert left(ours) == pytest.approx(10, abs=0.5)
    assert left(ours, "stays") is None
    pass_time(ours, 11)
    assert ours.get(NS, "k") is None
    assert keys(ours.search(NS)) == ["stays"]
    assert keys(ours.search(NS, query="bicycle")) == ["stays"]
    assert keys(ours.search(NS, filter={"text": "bicycle"})) == ["stays"]
    assert ours.batch([GetOp(NS, "k"), SearchOp(NS, limit=1)])[1][0].key == "stays"


def test_an_item_expires_by_the_clock(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=0.01)
    before = time.monotonic()
    while ours.batch([GetOp(NS, "k", refresh_ttl=False)]) != [None]:
        assert time.monotonic() - before < 30
        time.sleep(0.05)
    assert time.monotonic() - before > 0.3


def test_a_namespace_in_which_all_has_expired_is_not_listed(ours: Any) -> None:
    ours.put(NS, "k", {"text": "a"}, ttl=10)
    ours.put(("other",), "k", {"text": "a"}, ttl=10)
    ours.put(("other",), "l", {"text": "b"})
    for name in (NS, ("other",)):
        pass_time(ours, 11, namespace=name)
    assert ours.list_namespaces() == [("other",)]


@pytest.mark.parametrize("read", ["get", "search", "query"])
def test_a_read_renews_the_time(ours: Any, read: str) -> None:
    reads: dict[str, Callable[..., Any]] = {
        "get": lambda **more: ours.get(NS, "k", **more),
        "search": lambda **more: ours.search(NS, **more),
        "query": lambda **more: ours.search(NS, query="bicycle", **more),
    }
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    before = ours.get(NS, "k")
    pass_time(ours, 6)
    reads[read](refresh_ttl=False)
    assert left(ours) == pytest.approx(4, abs=0.5)
    reads[read]()
    assert left(ours) == pytest.approx(10, abs=0.5)
    assert ours.get(NS, "k") == before  # a read changes neither value nor times


def test_only_what_is_on_the_page_is_renewed(ours: Any) -> None:
    for key in "abc":
        ours.put(NS, key, {"text": "bicycle"}, ttl=10)
        pass_time(ours, 6, key)
    ours.search(NS, limit=1, offset=1)
    assert [round(left(ours, key) or 0) for key in "abc"] == [4, 10, 4]


def test_a_read_of_what_is_fresh_makes_no_commit(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=1000)
    commits = len(ours.memory.log(limit=None, space=NS))
    ours.get(NS, "k")
    ours.search(NS, query="bicycle")
    assert len(ours.memory.log(limit=None, space=NS)) == commits


def test_a_put_renews_the_time_or_ends_it(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    pass_time(ours, 6)
    ours.put(NS, "k", {"text": "bicycle"}, ttl=20)
    assert left(ours) == pytest.approx(20, abs=0.5)
    ours.put(NS, "k", {"text": "bicycle"})
    assert left(ours) is None
    ours.put(NS, "k", {"text": "bicycle"}, ttl=5)
    assert left(ours) == pytest.approx(5, abs=0.5)


def test_a_put_after_expiry_makes_a_new_item(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    first = ours.get(NS, "k")
    pass_time(ours, 11)
    ours.put(NS, "k", {"text": "violin"})
    item = ours.get(NS, "k")
    assert first
    assert item
    assert item.value == {"text": "violin"}
    assert item.created_at > first.created_at
    assert keys(ours.search(NS)) == ["k"]
    assert left(ours) is None


def test_a_delete_of_what_has_expired(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    pass_time(ours, 11)
    ours.delete(NS, "k")
    assert ours.memory.list(space=NS) == []


def test_settings_of_the_store(memory: Memory) -> None:
    store = EngrammaStore(memory, ttl={"default_ttl": 10, "refresh_on_read": False})
    store.put(NS, "k", {"text": "bicycle"})
    store.put(NS, "never", {"text": "violin"}, ttl=None)
    store.put(NS, "own", {"text": "fern"}, ttl=20)
    assert [left(store), left(store, "own")] == pytest.approx([10, 20], abs=0.5)
    assert left(store, "never") is None
    pass_time(store, 6)
    store.get(NS, "k")
    asyncio.run(store.asearch(NS))
    assert left(store) == pytest.approx(4, abs=0.5)
    store.get(NS, "k", refresh_ttl=True)
    assert left(store) == pytest.approx(10, abs=0.5)


def test_sweep_ttl_deletes_what_has_expired(ours: Any) -> None:
    for key in "abc":
        ours.put(NS, key, {"text": key}, ttl=10)
    for key in "ab":
        pass_time(ours, 11, key)
    kept = ours.memory.add("A note of another part.", space=NS, expires_at=datetime.now(UTC) - timedelta(days=1))
    assert ours.sweep_ttl() == 2
    assert ours.sweep_ttl() == 0
    assert [note.key for note in ours.memory.list(space=NS)] == ["c", None]
    assert ours.memory.get(kept).state == "ready"
    assert ours.search(NS)[0].key == "c"
    assert "delete" in ours.memory.log(space=NS, limit=1)[0].reason


def test_writes_sweep_when_it_is_due(memory: Memory) -> None:
    for interval, swept in ((1e-9, True), (1000, False)):
        space = ("swept", str(interval))
        settings: Any = {"sweep_interval_minutes": interval}
        store = EngrammaStore(memory, ttl=settings)
        store.put(space, "k", {"text": "bicycle"}, ttl=10)
        pass_time(store, 11, namespace=space)
        store.put(space, "other", {"text": "violin"})
        assert [note.key for note in memory.list(space=space)] == ["other"] if swept else ["k", "other"]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), True, "10"], ids=repr)
def test_times_to_live_that_make_no_sense(ours: Any, ttl: Any) -> None:
    with pytest.raises(InvalidInput, match="ttl="):
        ours.put(NS, "k", {"a": 1}, ttl=ttl)
    assert ours.search(()) == []


@pytest.mark.parametrize("ttl", [float("inf"), 1e300, 10**12])
def test_longer_than_the_calendar_is_for_ever(ours: Any, ttl: float) -> None:
    ours.put(NS, "k", {"a": 1}, ttl=ttl)
    assert left(ours) is None
    assert ours.get(NS, "k")


# == ours: items are notes


def test_an_item_is_an_ordinary_note(ours: Any) -> None:
    ours.put(NS, "bike", {"text": "The brakes of my bicycle squeak."})
    ours.put(NS, "rain", {"text": "My bicycle brakes squeak when it rains."})
    memory = ours.memory
    [hit, *_] = memory.search("Why does my bicycle squeak?", space=NS)
    assert hit.note.content in {"The brakes of my bicycle squeak.", "My bicycle brakes squeak when it rains."}
    assert hit.note.space == NS
    assert hit.note.keywords
    assert memory.search("bicycle", space=("memories",)) == []
    notes = {note.key: note for note in memory.list(space=NS)}
    assert notes.keys() == {"bike", "rain"}
    assert notes["rain"].links
    ours.put(NS, "bike", {"text": "The brakes are new."})
    revisions = memory.history(notes["bike"])
    assert [(r.note.content, r.note.metadata["item"]["value"]["text"]) for r in (revisions[0], revisions[-1])] == [
        ("The brakes of my bicycle squeak.",) * 2, ("The brakes are new.",) * 2,
    ]  # fmt: skip
    assert memory.check().ok


def test_revert_brings_a_deleted_item_back(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle", "n": [1]})
    before = ours.get(NS, "k")
    ours.delete(NS, "k")
    undone = ours.memory.log(space=NS, limit=1)[0]
    ours.memory.revert(undone)
    assert ours.get(NS, "k") == before
    assert keys(ours.search(NS, query="bicycle")) == ["k"]
    ours.delete(NS, "k")
    again = ours.memory.log(space=NS, limit=1)[0]
    ours.put(NS, "k", {"text": "violin"})
    with pytest.raises(Conflict):
        ours.memory.revert(again)
    assert ours.get(NS, "k").value == {"text": "violin"}


def test_revert_of_an_update_brings_the_value_back(ours: Any) -> None:
    ours.put(NS, "k", {"text": "I live in Lyon."})
    before = ours.get(NS, "k")
    ours.put(NS, "k", {"text": "I live in Berlin."}, ttl=5)
    ours.memory.revert(ours.memory.log(space=NS, limit=1)[0])
    assert ours.get(NS, "k") == before


def test_the_same_text_under_two_keys(ours: Any) -> None:
    """Two items, in searches with a query and without; deleting one leaves the other."""
    same = {"text": "I love Chinese food."}
    for name in (NS, ("memories", "bob")):
        ours.put(name, "one", same)
        ours.put(name, "two", same)
        ours.put(name, "other", {"text": "The tax office wants receipts."})
    for gone, stays in (("one", "two"), ("two", "one")):
        space = NS if gone == "one" else ("memories", "bob")
        assert sorted(keys(ours.search(space))) == ["one", "other", "two"]
        assert sorted(keys(ours.search(space, query="Chinese food", limit=2))) == ["one", "two"]
        assert [note.key for note in ours.memory.list(space=space)] == ["one", "two", "other"]  # none is merged away
        ours.delete(space, gone)
        assert ours.get(space, gone) is None
        assert ours.get(space, stays)
        assert sorted(keys(ours.search(space))) == sorted([stays, "other"])
        assert keys(ours.search(space, query="Chinese food"))[0] == stays
        assert len(ours.search(space, query="Chinese food")) == 2


def test_a_put_of_what_another_item_says(ours: Any) -> None:
    ours.put(NS, "one", {"text": "I love Chinese food."})
    ours.put(NS, "two", {"text": "Ferns like shade."})
    ours.put(NS, "two", {"text": "I love Chinese food."})
    assert sorted(keys(ours.search(NS))) == ["one", "two"]
    assert sorted(keys(ours.search(NS, query="Chinese food"))) == ["one", "two"]


@pytest.mark.parametrize(
    ("first", "second", "query"),
    [
        ("I love Chinese food.", "I hate Chinese food.", "Chinese food"),
        ("I live in Lyon.", "I moved to Berlin.", "Where do I live?"),
        ("我住在上海。", "我搬到北京了。", "我住在哪里？"),
        ("The meeting is on Monday.", "The meeting is not on Monday.", "meeting on Monday"),
    ],
)
def test_items_that_contradict_or_replace_each_other_stay(ours: Any, first: str, second: str, query: str) -> None:
    ours.put(NS, "first", {"text": first})
    ours.put(NS, "second", {"text": second})
    found = ours.search(NS, query=query)
    assert sorted(keys(found)) == ["first", "second"]
    assert None not in [item.score for item in found]
    assert sorted(keys(ours.search(NS))) == ["first", "second"]
    assert ours.get(NS, "first").value == {"text": first}
    ours.put(NS, "first", {"text": second})
    assert sorted(keys(ours.search(NS, query=query))) == ["first", "second"]


def test_items_merged_by_hand_are_still_there(ours: Any) -> None:
    for key in ("one", "two"):
        ours.put(NS, key, {"text": f"Ferns like shade, {key}."})
    notes = ours.memory.list(space=NS)
    ours.memory.merge(notes)
    assert keys(ours.search(NS)) == ["one", "two"]
    assert sorted(keys(ours.search(NS, query="ferns"))) == ["one", "two"]
    ours.delete(NS, "one")
    assert keys(ours.search(NS)) == ["two"]
    assert ours.list_namespaces() == [NS]
    ours.put(NS, "two", {"text": "Ferns like damp soil."})
    assert ours.get(NS, "two").value == {"text": "Ferns like damp soil."}
    assert keys(ours.search(NS, query="ferns")) == ["two"]


def test_linked_items_come_before_unrelated_ones(ours: Any) -> None:
    texts = {**TOPICS, "flat": "The flat on the third floor is draughty.", "heat": "Gas costs twice as much."}
    for key, text in texts.items():
        ours.put(NS, key, {"text": text})
    notes = {note.key: note for note in ours.memory.list(space=NS)}
    unlinked = keys(ours.search(NS, query="draughty flat", limit=20))
    worst = unlinked[-1]
    ours.memory.link(notes["flat"], notes[worst], kind="causes", reason="it was said so")
    found = ours.search(NS, query="draughty flat", limit=20)
    assert keys(found)[:2] == ["flat", worst]
    assert sorted(keys(found)) == sorted(texts)


def test_notes_in_a_tuple_space_are_items(ours: Any) -> None:
    keyed = ours.memory.add("I like tea.", space=NS, key="drink", tags=["tea"], speaker="Ana", metadata={"cup": {"size": 2}})
    loose = ours.memory.add("I like rain.", space=NS)
    ours.memory.add("I like tea.", space="memories")
    ours.memory.add("I like tea.", space='["memories", "alice"]')
    assert ours.list_namespaces() == [NS]
    assert keys(ours.search(())) == ["drink", loose.id]
    assert sorted(keys(ours.search((), query="tea"))) == sorted(["drink", loose.id])
    item = ours.get(NS, "drink")
    assert item is not None
    assert item.value["content"] == "I like tea."
    assert (item.value["speaker"], item.value["metadata"]) == ("Ana", {"cup": {"size": 2}})
    assert "tea" in item.value["tags"]
    assert item.created_at == item.updated_at == keyed.created_at
    assert ours.get(NS, keyed.id) is None
    assert ours.get(NS, loose.id).value["content"] == "I like rain."
    assert keys(ours.search(NS, filter={"content": "I like tea."})) == ["drink"]
    assert keys(ours.search(NS, filter={"metadata": {"cup": {"size": {"$gt": 1}}}})) == ["drink"]


def test_a_note_can_be_put_over_and_deleted(ours: Any) -> None:
    keyed = ours.memory.add("I like tea.", space=NS, key="drink", metadata={"cup": 1})
    loose = ours.memory.add("I like rain.", space=NS)
    ours.put(NS, "drink", {"text": "I like coffee."})
    ours.put(NS, loose.id, {"text": "I like snow."})
    assert [item.value for item in ours.search(NS)] == [{"text": "I like coffee."}, {"text": "I like snow."}]
    assert keys(ours.search(NS)) == ["drink", loose.id]
    assert ours.memory.get(keyed).metadata["cup"] == 1
    assert ours.memory.get(keyed).created_at == ours.get(NS, "drink").created_at
    ours.delete(NS, loose.id)
    ours.delete(NS, "drink")
    assert ours.search(NS) == []


def test_a_note_that_was_merged_at_once_is_put_over_alone(ours: Any) -> None:
    """A restatement keeps its own key: a put there never lands in the note that it was merged into."""
    ours.memory.add("I like tea.", space=NS, key="one")
    ours.memory.add("I like tea.", space=NS, key="two")
    ours.put(NS, "two", {"text": "I like coffee."})
    assert ours.get(NS, "one").value["content"] == "I like tea."
    assert ours.get(NS, "two").value == {"text": "I like coffee."}


def test_a_note_with_other_metadata_of_that_name(ours: Any) -> None:
    for number, item in enumerate(("a book", {"value": "no dict"}, None, [1])):
        ours.memory.add(f"A sentence with number {number}.", space=NS, key=str(number), metadata={"item": item})
    assert [item.value["content"] for item in ours.search(NS)] == [f"A sentence with number {number}." for number in range(4)]
    assert len(ours.search(NS, query="sentence", filter={"content": {"$gt": "A"}})) == 4


PET = {"data": "I have a cat named Milo.", "kind": "pet"}
REX = "I have a dog named Rex."
MILO = {"text": "我有一只猫。\n它叫米洛。", "tags": ["cat", "猫"], "by": {"name": "Ana", "team": {"n": 1}}, "on": "a\nb"}
TWO = {"data": "A cat.", "text": "Milo."}
CORRECTIONS: list[tuple[Any, Any, str, Any]] = [
    (PET, ["data"], REX, PET | {"data": REX}),
    (PET, None, REX, PET | {"data": REX}),
    (PET, None, f"{REX}\nkind: pet", PET | {"data": REX}),
    (PET, None, f"{REX}\nkind: pet\n", PET | {"data": REX}),
    (PET, None, f"{REX}\nHe barks.\nkind: pet", PET | {"data": f"{REX}\nHe barks."}),
    (PET, None, f"{REX}\n\nHe barks.", PET | {"data": f"{REX}\n\nHe barks."}),
    (PET, None, f"{REX}\nHe is kind: very.", PET | {"data": f"{REX}\nHe is kind: very."}),
    (PET, None, f"{REX}\nkind: dog", PET | {"corrected": f"{REX}\nkind: dog"}),
    (PET, None, "kind: pet", PET | {"corrected": "kind: pet"}),
    (PET, None, "I have a cat named Milo.\nkind: pet", PET),
    (PET, False, "I like cats.", PET | {"corrected": "I like cats."}),
    (PET, ["kind", "data"], f"pet\n{REX}", PET | {"data": REX}),
    (PET, ["kind", "data"], REX, PET | {"data": REX}),
    (PET, ["kind", "data"], f"{REX}\npet", PET | {"corrected": f"{REX}\npet"}),
    (PET, ["kind", "data"], f"dog\n{REX}", PET | {"data": f"dog\n{REX}"}),
    ({"kind": "pet", "content": {"content": "A cat."}}, None, f"{REX}\nkind: pet", {"kind": "pet", "content": {"content": REX}}),
    ({"by": {"name": "Ana"}}, ["by.name"], "Bo", {"by": {"name": "Bo"}}),
    (MILO, None, "我有一只狗。", MILO | {"text": "我有一只狗。"}),
    (MILO, None, "我有一只狗。\ntags: cat, 猫\nby.name: Ana\nby.team.n: 1\non: a\nb", MILO | {"text": "我有一只狗。"}),
    (MILO, None, "我有一只狗。\n它叫米洛。\nby.name: Bo", MILO | {"corrected": "我有一只狗。\n它叫米洛。\nby.name: Bo"}),
    ({"n": 1, "kind": "pet"}, None, REX, {"n": 1, "kind": "pet", "corrected": REX}),
    (TWO, None, REX, TWO | {"corrected": REX}),
    ({"title": "A cat.", "data": "A cat."}, None, REX, {"title": "A cat.", "data": REX}),
    ({"data": ["A cat.", "Milo."], "n": 1}, None, REX, {"data": ["A cat.", "Milo."], "n": 1, "corrected": REX}),
    ({"data": "A cat.", "all": [{"text": "M."}]}, None, REX, {"data": "A cat.", "all": [{"text": "M."}], "corrected": REX}),
    ({"data": 5, "kind": "pet"}, None, REX, {"data": 5, "kind": "pet", "corrected": REX}),
    ({"data": "", "kind": "pet"}, None, REX, {"data": "", "kind": "pet", "corrected": REX}),
    ({}, None, REX, {"corrected": REX}),
    (TWO | {"corrected": True}, None, REX, TWO | {"corrected": True}),
]  # fmt: skip


@pytest.mark.parametrize(("put", "index", "content", "value"), CORRECTIONS)
def test_an_item_corrected_by_hand(ours: Any, put: Any, index: Any, content: str, value: Any) -> None:
    """The field that the correction is of shows it, else it stands beside the others; filters see it, a put ends it."""
    ours.put(NS, "k", put, index=index)
    [note] = ours.memory.list(space=NS)
    ours.memory.update(note, content=content)
    [found] = ours.search(NS, query=content)
    assert ours.get(NS, "k").value == found.value == value
    for name, inner in value.items():
        for query in (None, content):
            assert keys(ours.search(NS, filter={name: inner}, query=query)) == ["k"]
            assert ours.search(NS, filter={name: {"$ne": inner}}, query=query) == []
    before = {name: inner for name, inner in put.items() if value[name] != inner}
    assert not before or ours.search(NS, filter=before) == []
    ours.put(NS, "k", put, index=index)
    assert ours.get(NS, "k").value == put


def test_a_revert_takes_a_correction_back(ours: Any) -> None:
    ours.put(NS, "pet", PET)
    tools = {one.name: one for one in memory_tools(ours.memory, space=lambda run: NS)}
    tools["update_memory"].invoke({"note_id": ours.memory.list(space=NS)[0].id, "content": REX})
    assert ours.get(NS, "pet").value == PET | {"data": REX}
    ours.memory.revert(ours.memory.log(space=NS, limit=1)[0])
    assert ours.get(NS, "pet").value == PET


def test_other_changes_by_hand_leave_the_value(ours: Any) -> None:
    ours.put(NS, "k", {"text": "I live in Lyon."})
    [note] = ours.memory.list(space=NS)
    ours.memory.update(note, tags=["home"], importance=5, pinned=True)
    assert ours.get(NS, "k").value == {"text": "I live in Lyon."}
    ours.put(NS, "k", {"text": "I live in Berlin."})
    assert ours.memory.get(note).tags[:1] == ("home",)


def test_a_block_of_memories_in_a_value_is_not_remembered_again(ours: Any) -> None:
    """A recalled block that comes back in a value is kept in the value, and found by nothing."""
    ours.put(NS, "drink", {"text": "I like tea."})
    block = ours.memory.search("tea", space=NS).context()
    assert "I like tea." in block
    ours.put(NS, "only", {"text": block})
    ours.put(NS, "some", {"text": f"{block}\nWhat about rain?"})
    assert [item.value["text"] for item in ours.search(NS)] == ["I like tea.", block, f"{block}\nWhat about rain?"]
    assert [note.content.strip() for note in ours.memory.list(space=NS)] == ["I like tea.", "only", "What about rain?"]


def test_the_default_text_says_names_and_values(ours: Any) -> None:
    ours.put(NS, "k", {"theme": "dark", "text": "Prefers short answers.", "langs": ["de", "zh"], "deep": {"fact": "Has a cat."}})
    [note] = ours.memory.list(space=NS)
    assert note.content.split("\n") == ["Prefers short answers.", "Has a cat.", "theme: dark", "langs: de, zh"]


# == ours: restart, processes, threads


def test_items_are_there_after_a_restart(opened: Callable[..., Memory]) -> None:
    store = EngrammaStore(opened())
    store.put(NS, "k", {"text": "bicycle", "n": [1, {"a": None}]}, index=["text"], ttl=100)
    store.put(NS, "k", {"text": "bicycle brakes", "n": [1, {"a": None}]}, index=["text"], ttl=100)
    before = store.get(NS, "k")
    store.memory.close()
    again = EngrammaStore(opened())
    assert again.get(NS, "k") == before
    assert keys(again.search(("memories",), query="brakes")) == ["k"]
    assert left(again) == pytest.approx(100, abs=2)


PROCESS = """
import sys
from engramma import Memory
from engramma.agents import EngrammaStore
from engramma.testing import HashEmbedder
path, name, count = sys.argv[1:]
with Memory.open(path, embedder=HashEmbedder(128)) as memory:
    store = EngrammaStore(memory)
    for number in range(int(count)):
        store.put(("shared",), "same", {"text": f"{name} says {number}"})
        store.put(("shared",), f"{name}-{number}", {"text": f"{name} keeps number {number}"})
    item = store.get(("first",), "k")
    print(item and item.created_at.isoformat(), item and item.value)
"""


def start(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_share_the_items(opened: Callable[..., Memory], tmp_path: Path) -> None:
    store: Any = EngrammaStore(opened())
    store.put(("first",), "k", {"text": "from the first process"})
    first = store.get(("first",), "k")
    others = [start(tmp_path / "memory.db", name, 10) for name in ("left", "right")]
    for number in range(10):
        store.put(("shared",), "same", {"text": f"here says {number}"})
    for other in others:
        out, errors = other.communicate(timeout=120)
        assert other.returncode == 0, errors
        assert out.split(" ", 1) == [first.created_at.isoformat(), "{'text': 'from the first process'}\n"]
    expected = {f"{name}-{number}" for name in ("left", "right") for number in range(10)} | {"same"}
    found = keys(store.search(("shared",), limit=100))
    assert sorted(found) == sorted(expected)
    assert sorted(keys(store.search(("shared",), query="keeps number", limit=100))) == sorted(expected)
    assert store.get(("shared",), "same").value["text"] in {f"{n} says 9" for n in ("left", "right", "here")}
    assert store.memory.check().ok


def in_threads(work: Callable[[int], Any], count: int = 8) -> None:
    """Run a function in threads that start together; raises the first error of any."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            gate.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_that_put_different_items(ours: Any) -> None:
    def work(number: int) -> None:
        for turn in range(6):
            ours.put(("threads", str(turn % 2)), f"{number}-{turn}", {"text": f"thread {number} in turn {turn}"})
            assert ours.get(("threads", str(turn % 2)), f"{number}-{turn}")

    in_threads(work)
    expected = {f"{number}-{turn}" for number in range(8) for turn in range(6)}
    assert set(keys(ours.search(("threads",), limit=100))) == expected
    assert sorted(keys(ours.search(("threads",), query="thread in turn", limit=100))) == sorted(expected)


def test_threads_that_put_the_same_item(ours: Any) -> None:
    """Nobody is refused, one item comes of it, and what was put last is what it says."""

    def work(number: int) -> None:
        for turn in range(12):
            ours.put(NS, "k", {"text": f"thread {number} in turn {turn}", "by": [number, turn]})

    in_threads(work)
    [item] = ours.search(NS)
    assert item.value["by"][1] == 11
    [note] = ours.memory.list(space=NS)
    assert note.content.startswith(item.value["text"])
    kept = {tuple(one.note.metadata["item"]["value"]["by"]) for one in ours.memory.history(note)}
    assert kept == {*itertools.product(range(8), range(12))}  # each put is a revision
    ours.put(NS, "k", {"text": "the end"})
    assert ours.get(NS, "k").value == {"text": "the end"}


def test_threads_that_put_delete_and_read_the_same_item(ours: Any) -> None:
    def work(number: int) -> None:
        for turn in range(8):
            if number % 3 == 0:
                ours.delete(NS, "k")
            elif number % 3 == 1:
                ours.put(NS, "k", {"text": f"thread {number} in turn {turn}"}, ttl=10)
            else:
                item = ours.get(NS, "k")
                assert item is None or item.value["text"].startswith("thread")
                assert len(ours.search(NS, query="thread")) <= 1

    in_threads(work)
    assert len(ours.memory.list(space=NS)) <= 1
    assert ours.memory.check().ok


def test_threads_that_renew_the_same_item(ours: Any) -> None:
    ours.put(NS, "k", {"text": "bicycle"}, ttl=10)
    pass_time(ours, 6)
    in_threads(lambda number: ours.batch([GetOp(NS, "k")] * 5))
    assert left(ours) == pytest.approx(10, abs=0.5)


def test_a_renewal_does_not_give_a_time_to_what_was_put_without(ours: Any) -> None:
    """Readers renew while a writer takes the time to live away: the item stays for ever."""
    for turn in range(15):
        ours.put(NS, "k", {"turn": turn}, ttl=10)
        pass_time(ours, 6)

        def work(number: int, turn: int = turn) -> None:
            if number == 0:
                ours.put(NS, "k", {"turn": turn, "for": "ever"})
            else:
                ours.get(NS, "k")

        in_threads(work, 3)
        assert left(ours) is None


def test_a_renewal_that_comes_after_a_put_keeps_to_it(ours: Any) -> None:
    ours.put(NS, "k", {"turn": 1}, ttl=10)
    [as_read] = ours.memory.list(space=NS)
    for ttl in (None, 30):
        ours.put(NS, "k", {"turn": 2}, ttl=ttl)
        ours._renew(as_read, 10)
        assert left(ours) == (None if ttl is None else pytest.approx(ttl, abs=0.5))


def test_awaited_calls_at_the_same_time(opened: Callable[..., Memory]) -> None:
    store = EngrammaStore(opened())

    async def work() -> None:
        await asyncio.gather(*(store.aput(NS, str(number), {"text": f"number {number}"}) for number in range(20)))
        found = await asyncio.gather(*(store.aget(NS, str(number)) for number in range(20)))
        assert [item and item.value["text"] for item in found] == [f"number {number}" for number in range(20)]
        await asyncio.gather(*(store.adelete(NS, str(number)) for number in range(10)))
        assert sorted(keys(await store.asearch(NS, query="number", limit=50))) == sorted(map(str, range(10, 20)))
        assert await store.alist_namespaces() == [NS]

    asyncio.run(work())


def test_a_closed_memory_is_an_error(opened: Callable[..., Memory]) -> None:
    store = EngrammaStore(opened())
    store.put(NS, "k", {"a": 1})
    store.memory.close()
    for call in (lambda: store.get(NS, "k"), lambda: store.search(NS), lambda: store.put(NS, "k", {"a": 2})):
        with pytest.raises(OSError, match="closed"):
            call()


@pytest.mark.long
def test_two_thousand_items(ours: Any) -> None:
    puts = [
        PutOp(
            ("many", f"user{number % 40}"), f"k{number}", {"text": f"note number{number} about topic{number % 90}", "n": number}
        )
        for number in range(2000)
    ]
    ours.batch(puts)
    assert len(ours.search(("many",), limit=5000)) == 2000
    assert len(ours.list_namespaces()) == 40
    found = ours.search(("many",), query="number1234", limit=5)
    assert (found[0].key, len(found)) == ("k1234", 5)
    assert keys(ours.search(("many", "user4"), query="number44", limit=1)) == ["k44"]
    assert keys(ours.search(("many",), filter={"n": {"$gte": 1998}})) == ["k1998", "k1999"]
    assert keys(ours.search(("many",), filter={"n": 777}, query="anything")) == ["k777"]
    assert len({*names(ours.search(("many",), query="topic7", limit=2000))}) == 2000


# == ours: in graphs and agents


@dataclass
class User:
    user_id: str


def remembering_graph(store: BaseStore) -> Any:
    """A graph of two nodes: one puts what was said, the other answers with what is found."""

    def keep(state: MessagesState, runtime: Runtime[User]) -> dict[str, Any]:
        assert runtime.store is store
        runtime.store.put(("said", runtime.context.user_id), state["messages"][-1].id or "", {"text": state["messages"][-1].text})
        return {}

    def answer(state: MessagesState) -> dict[str, Any]:
        found = get_store().search(("said",), query=state["messages"][-1].text)
        return {"messages": [("ai", "\n".join(item.value["text"] for item in found))]}

    steps: list[Any] = [keep, answer]
    builder = StateGraph(MessagesState, context_schema=User).add_sequence(steps)
    return builder.add_edge(START, "keep").compile(store=store)


def awaiting_graph(store: BaseStore) -> Any:
    async def keep(state: MessagesState, runtime: Runtime[User]) -> dict[str, Any]:
        assert runtime.store is not None
        said = state["messages"][-1]
        await runtime.store.aput(("said", runtime.context.user_id), said.id or "", {"text": said.text})
        return {}

    async def answer(state: MessagesState) -> dict[str, Any]:
        found = await get_store().asearch(("said",), query=state["messages"][-1].text)
        return {"messages": [("ai", "\n".join(item.value["text"] for item in found))]}

    steps: list[Any] = [keep, answer]
    builder = StateGraph(MessagesState, context_schema=User).add_sequence(steps)
    return builder.add_edge(START, "keep").compile(store=store)


def test_a_graph_with_the_store(ours: Any) -> None:
    graph = remembering_graph(ours)
    graph.invoke({"messages": "My bicycle squeaks."}, context=User("ana"))
    done = graph.invoke({"messages": "Whose bicycle?"}, context=User("bob"))
    assert set(done["messages"][-1].text.split("\n")) == {"My bicycle squeaks.", "Whose bicycle?"}
    assert ours.list_namespaces() == [("said", "ana"), ("said", "bob")]


def test_an_awaited_graph_with_the_store(ours: Any) -> None:
    async def work() -> Any:
        graph = awaiting_graph(ours)
        await graph.ainvoke({"messages": "My bicycle squeaks."}, context=User("ana"))
        return await graph.ainvoke({"messages": "Whose bicycle?"}, context=User("bob"))

    assert set(asyncio.run(work())["messages"][-1].text.split("\n")) == {"My bicycle squeaks.", "Whose bicycle?"}


@tool
def keep_fact(key: str, fact: str, runtime: ToolRuntime[User]) -> str:
    """Keep a fact."""
    assert runtime.store is not None
    runtime.store.put(("facts", runtime.context.user_id), key, {"text": fact})
    return "kept"


@tool
async def keep_fact_awaited(key: str, fact: str, runtime: ToolRuntime[User]) -> str:
    """Keep a fact."""
    assert runtime.store is not None
    await runtime.store.aput(("facts", runtime.context.user_id), key, {"text": fact})
    return "kept"


@tool
def find_facts(query: str, user: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Find facts by a store that is injected."""
    return "; ".join(f"{item.key}: {item.value['text']}" for item in store.search(("facts", user), query=query))


@tool
def get_fact(key: str) -> str:
    """Get one fact from the store of the run."""
    item = get_store().get(("facts", "ana"), key)
    return item.value["text"] if item else "nothing"


def told(agent: Any, awaited: bool, text: str = "Go on.") -> list[str]:
    """What an agent's tools said in a run."""
    call = {"messages": [HumanMessage(text)]}
    done = asyncio.run(agent.ainvoke(call, context=User("ana"))) if awaited else agent.invoke(call, context=User("ana"))
    return [message.text for message in done["messages"] if message.type == "tool"]


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
def test_an_agent_whose_tools_use_the_store(ours: Any, awaited: bool) -> None:
    keep = keep_fact_awaited if awaited else keep_fact
    model = ScriptedChatModel(
        tool_call(keep.name, key="food", fact="I am vegetarian."), tool_call(keep.name, key="pet", fact="I have a cat."),
        tool_call("find_facts", query="vegetarian food", user="ana"), tool_call("get_fact", key="pet"),
        tool_call("find_facts", query="food", user="bob"), "Done.",
    )  # fmt: skip
    agent = create_agent(model, [keep, find_facts, get_fact], store=ours, context_schema=User)
    assert told(agent, awaited) == ["kept", "kept", "food: I am vegetarian.; pet: I have a cat.", "I have a cat.", ""]
    assert [note.content for note in ours.memory.list(space=("facts", "ana"))] == ["I am vegetarian.", "I have a cat."]
    assert ours.memory.search("Who is vegetarian?", space=("facts", "ana"))[0].note.key == "food"


def test_the_example_runs() -> None:
    example = ROOT / "examples" / "store_in_a_tool.py"
    assert len(example.read_text("utf-8").splitlines()) < 50
    done = subprocess.run([sys.executable, "-W", "error", str(example)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "My notes say: I am vegetarian." in said[3]
    assert "bob" in said[4]
    assert "Nothing is known." in said[5]
