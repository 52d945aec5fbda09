"""Stores: where notes, links, vectors and the commit log are kept. SQL stands only here."""

from engramma.store.base import Query, Revision, Store
from engramma.store.sqlite import SqliteStore

__all__ = ["Query", "Revision", "SqliteStore", "Store"]
