"""The errors engramma raises, one small tree.

    EngrammaError
    ├── InvalidInput (ValueError)        a text, field, filter or setting that cannot be used
    │   └── EmptyText                    there is nothing to remember
    ├── UnknownId (KeyError)             no note, link or commit has that id
    ├── Conflict                         the memory changed since; nothing was written
    │   └── StaleRevision                one note was revised by somebody else meanwhile
    ├── MissingExtra (ImportError)       an optional package is not installed; names the extra
    ├── StoreError (OSError)             the store cannot be opened, read or written
    │   ├── NotAMemory                   the file is something else, or damaged
    │   ├── StoreTooNew                  the file was made by a newer engramma
    │   ├── StoreReadOnly (PermissionError)
    │   ├── StoreFull                    the disk is full
    │   ├── StoreBusy (TimeoutError)     another process held the write lock too long
    │   └── StoreClosed                  the memory was closed
    ├── EmbedderMismatch (ValueError)    the store's vectors come from another embedder
    └── ModelError                       a language or embedding model did not do its part
        ├── ModelUnavailable (ConnectionError)
        ├── ModelTimeout (TimeoutError)
        └── ReplyInvalid (ValueError)    it answered, but nothing in the answer can be used

Where Python has the kind of error already, ours is also that kind, so ``except KeyError`` works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class EngrammaError(Exception):
    """Base of every error that engramma raises on purpose."""


class InvalidInput(EngrammaError, ValueError):
    """A value cannot be used; the message names it and what is accepted."""


class EmptyText(InvalidInput):
    """A note without text."""


class UnknownId(EngrammaError, KeyError):
    """No note, link or commit has this id."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class Conflict(EngrammaError):
    """The change does not fit what the memory holds now; nothing was written."""


class StaleRevision(Conflict):
    """A note was revised between reading it and writing it."""


class MissingExtra(EngrammaError, ImportError):
    """An optional package is missing. ``purpose`` is what needs it, as the user named it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra, self.purpose = package, extra, purpose
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'engramma[{extra}]'")


class StoreError(EngrammaError, OSError):
    """The store cannot be opened, read or written.

    ``unsaved`` holds the texts that were about to be written, so that the caller still has them.
    """

    unsaved: Sequence[str] = ()


class NotAMemory(StoreError):
    """The file is not an engramma memory, or it is damaged."""


class StoreTooNew(StoreError):
    """The file was made by a newer engramma."""


class StoreReadOnly(StoreError, PermissionError):
    """The file or its folder cannot be written."""


class StoreFull(StoreError):
    """The disk is full."""


class StoreBusy(StoreError, TimeoutError):
    """Another process held the write lock for longer than we wait."""


class StoreClosed(StoreError):
    """The memory was closed already."""


class EmbedderMismatch(EngrammaError, ValueError):
    """The store's vectors were made by another embedder."""


class ModelError(EngrammaError):
    """A model did not do its part."""


class ModelUnavailable(ModelError, ConnectionError):
    """The model's server refused, failed or limited us, also after retries."""


class ModelTimeout(ModelError, TimeoutError):
    """The model took too long, also after retries."""


class ReplyInvalid(ModelError, ValueError):
    """The model's reply holds nothing that can be used. ``cost`` is what the call spent, if known."""

    cost: Any = None
