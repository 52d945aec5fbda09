"""One SQLite connection: opening, migrating, and errors in words a user can act on."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from engramma.errors import NotAMemory, StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreTooNew

APPLICATION_ID = 0x656E6772  # "engr", in the file's header
BUSY_SECONDS = 30.0
SCOUR_SECONDS = 5.0
UNSCOURED = "unscoured"  # the setting that says: words that were removed for good may still stand in the files


def migrations() -> list[tuple[int, str]]:
    """The numbered migrations in order: version and SQL."""
    folder = files("engramma.store") / "migrations"
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.removesuffix(".sql")), entry.read_text("utf-8")) for name, entry in scripts]


def connect(path: str) -> sqlite3.Connection:
    """Open or create a memory file (":memory:" for one in memory) and bring it to this version."""
    with translated(path):
        if path != ":memory:":
            _check_folder(path)
            _check_header(path)
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path)
        except (sqlite3.Error, StoreError):
            db.close()
            raise
        db.row_factory = sqlite3.Row
        if unscoured(db):  # a process was stopped between removing words and cleaning the files
            with suppress(StoreBusy):
                scour(db, path, patience=0.0)
        return db


def _check_folder(path: str) -> None:
    place = Path(path)
    if place.is_dir():
        raise StoreError(f"{path!r} is a folder: give the path of a file in it, such as {str(place / 'memory.db')!r}")
    if not place.parent.is_dir():
        raise StoreError(f"there is no folder {str(place.parent)!r} to keep {place.name!r} in: create it first")
    if (place.exists() and not os.access(place, os.W_OK)) or not os.access(place.parent, os.W_OK):
        raise StoreReadOnly(f"{path!r} cannot be written: a memory needs write permission for its file and folder")


def _check_header(path: str) -> None:
    """Look at the first bytes before SQLite does: opening somebody else's database would touch it."""
    place = Path(path)
    head = _head(place)
    if not head:
        return
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise NotAMemory(f"{path!r} is not an SQLite database, so not an engramma memory; it was left as it is")
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID and not _is_blank(place):
        raise NotAMemory(f"{path!r} is an SQLite database, but not an engramma memory; it was left as it is")


def _head(place: Path) -> bytes:
    if not place.exists():
        return b""
    with place.open("rb") as file:
        return file.read(100)


def _is_blank(place: Path) -> bool:
    """Whether a database holds no table yet, read without touching it or its neighbours."""
    with closing(sqlite3.connect(f"{place.absolute().as_uri()}?immutable=1", uri=True)) as db:
        tables = int(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    return tables == 0 and not place.with_name(place.name + "-wal").exists()


def _prepare(db: sqlite3.Connection, path: str) -> None:
    if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        _patiently(db, f"PRAGMA application_id = {APPLICATION_ID}")  # before WAL, so that it stands in the header
    _patiently(db, "PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA cache_size = -65536")
    _migrate(db, path)


def _patiently(db: sqlite3.Connection, statement: str) -> None:
    """Execute what SQLite does not wait for by itself: another process may be making the same new file."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
        time.sleep(0.02)


def _migrate(db: sqlite3.Connection, path: str) -> None:
    steps = migrations()
    newest = steps[-1][0]
    if _version(db, path, newest) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    with db:
        version = _version(db, path, newest)  # another process may have migrated while we waited
        for number, script in steps:
            if number > version:
                _run(db, script)
        db.execute(f"PRAGMA user_version = {newest}")


def _version(db: sqlite3.Connection, path: str, newest: int) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > newest:
        raise StoreTooNew(
            f"{path!r} has format {version}, this engramma reads up to {newest}: upgrade with pip install -U engramma"
        )
    return version


def _run(db: sqlite3.Connection, script: str) -> None:
    """Execute a script statement by statement: executescript would end our transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _translation(path, error) from error


def _translation(path: str, error: sqlite3.DatabaseError) -> Exception:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(f"{path!r} is being written by another process for more than {BUSY_SECONDS:.0f} s; try again")
    if name.startswith("SQLITE_READONLY"):
        return StoreReadOnly(f"{path!r} cannot be written: check the permissions of the file and its folder")
    if name.startswith("SQLITE_FULL"):
        return StoreFull(f"the disk that holds {path!r} is full: nothing was written, and nothing was lost; free some space")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return NotAMemory(
            f"{path!r} is not an SQLite database, or it is damaged ({error}); "
            "if it was a memory, load your last export into a new file"
        )
    if name.startswith(("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE")):
        return StoreFull(
            f"{path!r} could not be written ({error}): the disk, a quota or a limit on file sizes is full, or the disk is gone; "
            "nothing was written, and nothing was lost"
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR")):
        return StoreError(f"{path!r} cannot be opened or read ({error}): check that the disk is there and writable")
    return error if isinstance(error, sqlite3.IntegrityError) else StoreError(f"{path!r}: {error}")


def unscoured(db: sqlite3.Connection) -> bool:
    """Whether words that were removed for good may still stand in the file or its write-ahead log."""
    return db.execute("SELECT 1 FROM meta WHERE key = ?", (UNSCOURED,)).fetchone() is not None


def scour(db: sqlite3.Connection, path: str, patience: float = SCOUR_SECONDS) -> None:
    """Write the whole file anew and empty the write-ahead log: deleting zeroes a row's bytes, but not the copies that
    stayed behind where pages were split. Raises StoreBusy when somebody else is in the way."""
    db.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
    try:
        db.execute("VACUUM")
        done = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        if done and unscoured(db):
            db.execute("DELETE FROM meta WHERE key = ?", (UNSCOURED,))
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise
        done = False
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    if not done:
        raise StoreBusy(
            f"what was removed is gone from the memory, but its words may still stand in {path!r} and {path + '-wal'!r}: another "
            "process is reading or writing them. It is tried again whenever the memory is opened; 'engramma check' says when "
            "it is done"
        )


def file_size(db: sqlite3.Connection) -> int:
    """The size of the database in bytes, without its write-ahead log."""
    return int(db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0])


def spare_bytes(db: sqlite3.Connection) -> int:
    """How many bytes of the file hold nothing."""
    return int(db.execute("SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size").fetchone()[0])
