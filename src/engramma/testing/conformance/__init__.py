"""The tests that every store has to pass, to be run by whoever writes one.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self):
            store = MyStore(...)          # empty, and its own for each test
            yield store
            store.close()

The methods are plain pytest tests. What a store does beyond the protocol (files, servers, locks)
is tested beside that store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from engramma.errors import StoreClosed
from engramma.store.base import Store
from engramma.testing.conformance.keeping import Counting, Folding, Indexing, Living
from engramma.testing.conformance.reading import Finding, Remembering
from engramma.testing.conformance.values import put, revise, write
from engramma.testing.conformance.writing import Applying, Refusing, Removing

__all__ = ["StoreConformance", "put", "revise", "write"]


class StoreConformance(Applying, Refusing, Removing, Finding, Remembering, Folding, Indexing, Counting, Living):
    """All of it. Give a fixture ``store`` with an empty store; ``check`` is called after each test."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store under test."""
        raise NotImplementedError("a subclass of StoreConformance gives the fixture 'store'")

    @pytest.fixture(autouse=True)
    def sound(self, store: Store) -> Iterator[None]:
        """Nothing is broken when a test has ended."""
        yield
        with suppress(StoreClosed):
            assert store.check() == []
