"""The profile database: measured times by kernel, device, threads and versions, and results. A cache: it may vanish, and nothing breaks.

One sqlite file in `environment.cache()`, in WAL mode, so that several processes may read and write it at once. Every row has a digest: one that was
damaged, or has another shape, counts as not there. A file that is none, or whose structure is damaged, is moved aside with a warning. Times of an
older schema are taken over; a file of a newer schema, or a folder that cannot be written, is left alone and times are kept in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import struct
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from einnet import environment
from einnet.instantiate.kernels.views import Json
from einnet.runtime.serial import canonical
from einnet.runtime.timing import Timing

SCHEMA = 2
_CREATE = (
    """CREATE TABLE IF NOT EXISTS timings (
    key BLOB PRIMARY KEY, description TEXT NOT NULL, median REAL NOT NULL, spread REAL NOT NULL, n INTEGER NOT NULL, written REAL NOT NULL,
    seal BLOB NOT NULL
) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value TEXT NOT NULL, written REAL NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID",
)
_SHAPES = ("SELECT key, description, median, spread, n, written, seal FROM timings LIMIT 1", "SELECT key, value, written, seal FROM results LIMIT 1")
_WAIT_S = 10.0

_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM}
_RIVALS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
"""Errors of the machine, and of other processes: the file itself is sound."""

Damaged = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged file raises; messages that quote its text may be no text."""


class _Newer(Exception):
    """The file was written by a newer version."""


def _code(error: Exception) -> int:
    """sqlite's primary error code; 1 for an error without one."""
    return int(getattr(error, "sqlite_errorcode", 1)) & 0xFF


def _seal(key: bytes, *values: float | str) -> bytes:
    """The digest of a row. Raises struct.error, TypeError or UnicodeEncodeError for values of another type than the row's."""
    state = hashlib.blake2b(key, digest_size=16)
    for value in values:
        state.update(value.encode() if isinstance(value, str) else struct.pack("<d", value))
    return state.digest()


def _sealed(seal: object, key: bytes, *values: float | str) -> bool:
    """The row is as it was written."""
    try:
        return seal == _seal(key, *values)
    except (struct.error, TypeError, UnicodeEncodeError):
        return False


def digest(description: str) -> bytes:
    """The 128-bit key of a canonical description."""
    return hashlib.blake2b(description.encode(), digest_size=16).digest()


class ProfileDatabase:
    """Timings by a JSON value that describes what was timed, and where. Safe to share between threads, and after a fork."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else environment.cache() / "profile.sqlite"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = -1

    def get(self, what: Json) -> Timing | None:
        """The timing stored for a description."""
        return self.get_many([what])[0]

    def get_many(self, what: Iterable[Json]) -> list[Timing | None]:
        """The timings stored for some descriptions, in order."""
        keys = [digest(canonical(w)) for w in what]
        found: list[Timing | None] = [None] * len(keys)
        with self._using() as connection:
            for n, key in enumerate(keys):
                row = connection.execute("SELECT median, spread, n, seal FROM timings WHERE key = ?", (key,)).fetchone()
                found[n] = Timing(*row[:3]) if row and _sealed(row[3], key, *row[:3]) else None
        return found

    def put(self, what: Json, timing: Timing) -> None:
        """Store or replace one timing."""
        self.put_many([(what, timing)])

    def put_many(self, rows: Iterable[tuple[Json, Timing]]) -> None:
        """Store or replace some timings in one transaction. Estimates and disturbed timings are not stored."""
        texts = [(canonical(what), t) for what, t in rows if t.clean and not t.estimated]
        with self._using() as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?, ?, ?, ?)", (_row(text, t, time.time()) for text, t in texts))

    def recall(self, what: Iterable[Json]) -> list[Json | None]:
        """The results stored for some descriptions, in order; None for what is not there or damaged."""
        keys = [digest(canonical(w)) for w in what]
        found: list[Json | None] = [None] * len(keys)
        with self._using() as connection:
            for n, key in enumerate(keys):
                row = connection.execute("SELECT value, seal FROM results WHERE key = ?", (key,)).fetchone()
                with suppress(ValueError, RecursionError):
                    found[n] = json.loads(row[0]) if row and _sealed(row[1], key, row[0]) else None
        return found

    def remember(self, rows: Iterable[tuple[Json, Json]]) -> None:
        """Store or replace some results, any JSON values, in one transaction."""
        values = [(digest(canonical(what)), canonical(value)) for what, value in rows]
        with self._using() as connection, connection:
            sealed = ((key, text, time.time(), _seal(key, text)) for key, text in values)
            connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", sealed)

    def rows(self) -> list[tuple[str, Timing]]:
        """Everything stored: description and timing, newest first."""
        found: list[tuple[str, Timing]] = []
        with self._using() as connection:
            for key, text, *values, seal in connection.execute("SELECT key, description, median, spread, n, seal FROM timings ORDER BY written DESC"):
                if _sealed(seal, key, *values) and digest(text) == key:
                    found.append((text, Timing(*values)))
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._using() as connection, connection:
            connection.execute("DELETE FROM timings")
            connection.execute("DELETE FROM results")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process. A damaged file found on the way is replaced, a busy one is given up on: it is a cache."""
        with self._lock:
            if self._connection is None or self._owner != os.getpid():
                self._connection, self._owner = self._open(), os.getpid()
            try:
                yield self._connection
            except Damaged as e:
                if _code(e) in _UNWRITABLE:
                    warnings.warn(f"the profile database {self.path} cannot be written ({e}); these times are not kept", stacklevel=4)
                elif _code(e) not in _RIVALS:
                    self._recover(e)

    def _recover(self, error: Exception) -> None:
        self.close()
        self._set_aside(error)
        self._connection, self._owner = self._open(), os.getpid()

    def _open(self) -> sqlite3.Connection:
        for again in (True, False):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return self._connect()
            except Damaged as e:
                if not again or _code(e) in _UNWRITABLE | _RIVALS:
                    return self._in_memory(str(e))
                self._set_aside(e)
            except (OSError, _Newer) as e:
                return self._in_memory(str(e))
        raise AssertionError("the second try returns")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
        try:
            older = _schema(connection) < SCHEMA
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with connection:
                if older:
                    _migrate(connection)
            for shape in _SHAPES:
                connection.execute(shape).fetchall()
        except Exception:
            connection.close()
            raise
        return connection

    def _in_memory(self, reason: str) -> sqlite3.Connection:
        warnings.warn(f"the profile database {self.path} cannot be used ({reason}); times are not kept", stacklevel=4)
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        for table in _CREATE:
            connection.execute(table)
        return connection

    def _set_aside(self, error: Exception) -> None:
        """Rename a damaged file and what belongs to it."""
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        warnings.warn(f"the profile database {self.path} is damaged ({error}); it is kept as {aside.name} and begun anew", stacklevel=4)
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError:
            pass


def _row(description: str, timing: Timing, written: float) -> tuple[bytes, str, float, float, int, float, bytes]:
    """A row of timings."""
    key = digest(description)
    return key, description, timing.median, timing.spread, timing.n, written, _seal(key, timing.median, timing.spread, timing.n)


def _schema(connection: sqlite3.Connection) -> int:
    """The file's schema, 0 for a new one. Raises _Newer."""
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if schema > SCHEMA:
        raise _Newer(f"it was written by a newer version of einnet (schema {schema})")
    return int(schema)


def _migrate(connection: sqlite3.Connection) -> None:
    """Make the tables of this schema, with the times of an older one; results are those of other versions of the search in any case."""
    connection.execute("BEGIN IMMEDIATE")
    if _schema(connection) == SCHEMA:
        return  # another process was faster
    rows: list[tuple[str, Timing, float]] = []
    with suppress(sqlite3.OperationalError):
        for key, text, median, spread, n, written in connection.execute("SELECT key, description, median, spread, n, written FROM timings"):
            types = (type(text), type(median), type(spread), type(n), type(written))
            if types == (str, float, float, int, float) and digest(text) == key:
                rows.append((text, Timing(median, spread, n), written))
    for table in ("timings", "results"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    for table in _CREATE:
        connection.execute(table)
    connection.executemany("INSERT INTO timings VALUES (?, ?, ?, ?, ?, ?, ?)", (_row(*row) for row in rows))
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def describe(kernel: Json, device: str, threads: int, versions: Mapping[str, str]) -> Json:
    """What a timing belongs to."""
    return {"kernel": kernel, "device": device, "threads": threads, "versions": dict(versions)}
