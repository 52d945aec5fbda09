"""``where`` filters: what they parse to, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

from engramma.errors import InvalidInput
from engramma.filters import COMPARISONS, FIELDS, LIST_FIELDS, TIME_FIELDS, Compare, Every, Exact, Filter, Not, Some, parse

DAY = datetime(2024, 5, 1, tzinfo=UTC)


def eq(field: str, value: Any, *path: str) -> Compare:
    return Compare(field, "$eq", value, path)


TREES: list[tuple[Any, Filter | None]] = [
    (None, None),
    ({}, Every(())),
    ({"speaker": "Ana"}, Every((eq("speaker", "Ana"),))),
    ({"speaker": None}, Every((eq("speaker", None),))),
    ({"speaker": "Ana", "pinned": True}, Every((eq("speaker", "Ana"), eq("pinned", True)))),
    (MappingProxyType({"speaker": "Ana"}), Every((eq("speaker", "Ana"),))),
    (
        {"importance": {"$gte": 2, "$lt": 4.5}},
        Every((Every((Compare("importance", "$gte", 2), Compare("importance", "$lt", 4.5))),)),
    ),
    ({"speaker": {}}, Every((Every(()),))),
    ({"tags": ["a", "b"]}, Every((Every((eq("tags", "a"), eq("tags", "b"))),))),
    ({"tags": []}, Every((Every(()),))),
    ({"tags": {"$in": ["a", None]}}, Every((Every((Compare("tags", "$in", ("a", None)),)),))),
    ({"key": {"$nin": ("a", "b")}}, Every((Every((Compare("key", "$nin", ("a", "b")),)),))),
    ({"key": {"$in": {"a"}}}, Every((Every((Compare("key", "$in", ("a",)),)),))),
    ({"key": {"$in": frozenset()}}, Every((Every((Compare("key", "$in", ()),)),))),
    ({"metadata.team": "web"}, Every((eq("metadata", "web", "team"),))),
    ({"metadata.a.b c.😀": 1}, Every((eq("metadata", 1, "a", "b c", "😀"),))),
    (
        {"metadata.x": {"$in": [True, 1, 1.5, "1", None]}},
        Every((Every((Compare("metadata", "$in", (True, 1, 1.5, "1", None), ("x",)),)),)),
    ),
    ({"at": {"$gt": DAY}}, Every((Every((Compare("at", "$gt", DAY),)),))),
    ({"at": {"$gt": "2024-05-01"}}, Every((Every((Compare("at", "$gt", DAY),)),))),
    ({"at": {"$in": [date(2024, 5, 1), None]}}, Every((Every((Compare("at", "$in", (DAY, None)),)),))),
    ({"$and": [{"key": "a"}, {}]}, Every((Every((Every((eq("key", "a"),)), Every(()))),))),
    ({"$or": ({"key": "a"}, {"key": "b"})}, Every((Some((Every((eq("key", "a"),)), Every((eq("key", "b"),)))),))),
    ({"$not": {"key": "a"}}, Every((Not(Every((eq("key", "a"),))),))),
    ({"key": {"$not": {"$eq": "a", "$ne": "b"}}}, Every((Every((Not(Every((eq("key", "a"), Compare("key", "$ne", "b")))),)),))),
    ({"key": {"$not": {"$not": {"$eq": "a"}}}}, Every((Every((Not(Every((Not(Every((eq("key", "a"),))),))),)),))),
]


@pytest.mark.parametrize(("where", "tree"), TREES, ids=[repr(where) for where, _ in TREES])
def test_trees(where: Any, tree: Filter | None) -> None:
    assert parse(where) == tree


@pytest.mark.parametrize("field", [*FIELDS, "metadata.x"])
def test_every_field_takes_every_comparison(field: str) -> None:
    name = field.partition(".")[0]
    value: Any = DAY if name in TIME_FIELDS else {"importance": 3, "revision": 1, "pinned": True}.get(name, "a")
    for operator in COMPARISONS:
        operand = [value] if operator in ("$in", "$nin") else value
        assert parse({field: {operator: operand}}) is not None


def test_times_without_a_zone_are_utc_and_others_keep_theirs() -> None:
    def at(value: Any) -> datetime:
        tree = parse({"at": value})
        assert isinstance(tree, Every)
        assert isinstance(tree.parts[0], Compare)
        return tree.parts[0].value  # type: ignore[no-any-return]

    assert at(datetime(2024, 5, 1)) == at("2024-05-01T00:00") == DAY
    there = datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert at(there) == at("2024-05-01T02:00:00+02:00") == DAY
    assert at(there).utcoffset() == timedelta(hours=2)


ERRORS: list[tuple[Any, str]] = [
    ("speaker = 'Ana'", "is not a dict"),
    ([{"speaker": "Ana"}], "is not a dict"),
    (7, "is not a dict"),
    ({1, 2}, "is not a dict"),
    ({"colour": "red"}, "cannot filter on 'colour'.*speaker.*metadata"),
    ({"": 1}, "cannot filter on ''"),
    ({"metadata": {"a": 1}}, "cannot filter on 'metadata'"),
    ({"metadata.": 1}, "cannot filter on"),
    ({"metadata.a..b": 1}, "cannot filter on"),
    ({"metadata..": 1}, "cannot filter on"),
    ({"Speaker": "Ana"}, "cannot filter on 'Speaker'"),
    ({"space": "home"}, "cannot filter on 'space'"),
    ({"links": 1}, "cannot filter on"),
    ({"vector": 1}, "cannot filter on"),
    ({"$eq": 1}, "cannot filter on"),
    ({"$nor": [{}]}, "cannot filter on"),
    ({"speaker": {"$regex": "A"}}, "unknown filter operator '\\$regex'"),
    ({"speaker": {"gt": "A"}}, "unknown filter operator 'gt'.*\\$gte"),
    ({"speaker": {"$and": []}}, "unknown filter operator"),
    ({"tags": {"$all": ["a"]}}, "unknown filter operator"),
    ({"$and": []}, "\\$and takes a list"),
    ({"$or": []}, "\\$or takes a list"),
    ({"$or": {"key": "a"}}, "\\$or takes a list"),
    ({"$and": "key"}, "\\$and takes a list"),
    ({"$or": ["key"]}, "is not a dict"),
    ({"$and": [{"colour": 1}]}, "cannot filter"),
    ({"$not": "key"}, "is not a dict"),
    ({"$not": [{"key": "a"}]}, "is not a dict"),
    ({"key": {"$not": "a"}}, "\\$not on 'key'"),
    ({"key": {"$not": {"$is": 1}}}, "unknown filter operator"),
    ({"tags": {"$in": "bug"}}, "\\$in on 'tags' takes a list, not 'bug'"),
    ({"key": {"$nin": None}}, "takes a list"),
    ({"key": {"$in": {"a": 1}}}, "takes a list"),
    ({"importance": {"$in": 3}}, "takes a list"),
    ({"key": {"$in": [1]}}, "takes str, not 1"),
    ({"key": 1}, "takes str, not 1"),
    ({"key": ["a"]}, "takes str"),
    ({"speaker": True}, "takes str"),
    ({"tags": 1}, "takes str"),
    ({"tags": ["a", 1]}, "takes str, not 1"),
    ({"tags": {"$ne": ["a"]}}, "takes str"),
    ({"importance": "3"}, "takes int or float, not '3'"),
    ({"pinned": 1}, "takes bool, not 1"),
    ({"pinned": "yes"}, "takes bool"),
    ({"metadata.a": b"x"}, "takes str or bool or int or float"),
    ({"metadata.a": ["x"]}, "takes"),
    ({"metadata.a": DAY}, "takes"),
    ({"metadata.a": {"$in": [["x"]]}}, "takes"),
    ({"key": {"$gt": None}}, "not None"),
    ({"importance": {"$lte": None}}, "not None"),
    ({"at": {"$gt": None}}, "takes a time"),
    ({"at": 7}, "takes a time, not 7"),
    ({"at": {"$in": [7]}}, "takes a time"),
    ({"at": "no time at all"}, "at='no time at all' is not a time"),
    ({"expires_at": {"$lt": ""}}, "expires_at='' is not a time"),
]


@pytest.mark.parametrize(("where", "message"), ERRORS, ids=[repr(where) for where, _ in ERRORS])
def test_errors_name_the_value_and_what_to_do(where: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        parse(where)
    assert isinstance(caught.value, ValueError)


NOT_COMPARABLE: list[Any] = [
    {"importance": True},
    {"importance": {"$in": [False]}},
    {"importance": 2**70},
    {"importance": float("nan")},
    {"speaker": "\ud800"},
    {1: "x"},
]


@pytest.mark.parametrize("where", [pytest.param(where, id=ascii(where)) for where in NOT_COMPARABLE])
def test_values_that_no_store_can_compare(where: Any) -> None:
    with pytest.raises(InvalidInput):
        parse(where)


def test_a_list_means_all_of_its_items_only_on_list_fields() -> None:
    assert set(LIST_FIELDS) == {"keywords", "tags"}
    for field in LIST_FIELDS:
        assert parse({field: ["a"]}) == Every((Every((eq(field, "a"),)),))


def test_a_tree_stands_wherever_a_filter_may() -> None:
    tree = Exact("metadata", ("a", 0), "is", None)
    assert parse({"$and": [tree, {"key": "a"}]}) == Every((Every((tree, Every((eq("key", "a"),)))),))
    assert parse({"$not": Some((tree,))}) == Every((Not(Some((tree,))),))


def test_what_was_given_is_not_changed() -> None:
    where = {"tags": {"$in": ["a"]}, "$or": [{"key": "a"}]}
    parse(where)
    assert where == {"tags": {"$in": ["a"]}, "$or": [{"key": "a"}]}
