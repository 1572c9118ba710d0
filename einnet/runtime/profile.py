"""The profile database: measured times by kernel, device, threads and versions, and results. A cache: it may vanish, and nothing breaks.

One sqlite file in `settings.cache()`, in WAL mode, so that several processes may read and write it at once. A file that is none is moved aside
with a warning; one of an older schema is emptied; one of a newer schema, or a folder that cannot be written, is left alone and times are kept
in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from einnet import settings
from einnet.runtime.serial import Json, canonical
from einnet.runtime.timing import Timing

SCHEMA = 1
_CREATE = """CREATE TABLE IF NOT EXISTS timings (
    key BLOB PRIMARY KEY, description TEXT NOT NULL, median REAL NOT NULL, spread REAL NOT NULL, n INTEGER NOT NULL, written REAL NOT NULL
) WITHOUT ROWID"""
_CREATE_RESULTS = "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, value TEXT NOT NULL, written REAL NOT NULL) WITHOUT ROWID"
_WAIT_S = 10.0


def digest(description: str) -> bytes:
    """The 128-bit key of a canonical description."""
    return hashlib.blake2b(description.encode(), digest_size=16).digest()


class ProfileDatabase:
    """Timings by a JSON value that describes what was timed, and where. Safe to share between threads, and after a fork."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else settings.cache() / "profile.sqlite"
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
                row = connection.execute("SELECT median, spread, n FROM timings WHERE key = ?", (key,)).fetchone()
                found[n] = Timing(*row) if row else None
        return found

    def put(self, what: Json, timing: Timing) -> None:
        """Store or replace one timing."""
        self.put_many([(what, timing)])

    def put_many(self, rows: Iterable[tuple[Json, Timing]]) -> None:
        """Store or replace some timings in one transaction. Estimates and disturbed timings are not stored."""
        texts = [(canonical(what), t) for what, t in rows if t.clean and not t.estimated]
        values = [(digest(text), text, t.median, t.spread, t.n, time.time()) for text, t in texts]
        with self._using() as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?, ?, ?)", values)

    def recall(self, what: Iterable[Json]) -> list[Json | None]:
        """The results stored for some descriptions, in order; None for what is not there or damaged."""
        keys = [digest(canonical(w)) for w in what]
        found: list[Json | None] = [None] * len(keys)
        with self._using() as connection:
            for n, key in enumerate(keys):
                row = connection.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
                with suppress(ValueError):
                    found[n] = json.loads(row[0]) if row else None
        return found

    def remember(self, rows: Iterable[tuple[Json, Json]]) -> None:
        """Store or replace some results, any JSON values, in one transaction."""
        values = [(digest(canonical(what)), canonical(value), time.time()) for what, value in rows]
        with self._using() as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", values)

    def rows(self) -> list[tuple[str, Timing]]:
        """Everything stored: description and timing, newest first."""
        found: list[tuple[str, Timing]] = []
        with self._using() as connection:
            for text, *values in connection.execute("SELECT description, median, spread, n FROM timings ORDER BY written DESC"):
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
            except sqlite3.OperationalError as e:
                if any(reason in str(e) for reason in ("full", "readonly")):
                    warnings.warn(f"the profile database {self.path} cannot be written ({e}); these times are not kept", stacklevel=4)
                elif "locked" not in str(e) and "busy" not in str(e):
                    self._recover(e)
            except sqlite3.DatabaseError as e:
                self._recover(e)

    def _recover(self, error: sqlite3.DatabaseError) -> None:
        self.close()
        self._set_aside(error)
        self._connection, self._owner = self._open(), os.getpid()

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._connect()
        except sqlite3.OperationalError as e:
            return self._in_memory(str(e))
        except sqlite3.DatabaseError as e:
            self._set_aside(e)
        except OSError as e:
            return self._in_memory(str(e))
        try:
            return self._connect()
        except (sqlite3.DatabaseError, OSError) as e:
            return self._in_memory(str(e))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_S, check_same_thread=False)
        try:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema > SCHEMA:
                raise sqlite3.OperationalError(f"it was written by a newer version of einnet (schema {schema})")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with connection:
                if schema < SCHEMA:
                    connection.execute("DROP TABLE IF EXISTS timings")
                    connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.execute(_CREATE)
                connection.execute(_CREATE_RESULTS)
            connection.execute("SELECT median, spread, n, description, written FROM timings LIMIT 1").fetchall()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _in_memory(self, reason: str) -> sqlite3.Connection:
        warnings.warn(f"the profile database {self.path} cannot be used ({reason}); times are not kept", stacklevel=4)
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.execute(_CREATE)
        connection.execute(_CREATE_RESULTS)
        return connection

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename a damaged file and what belongs to it."""
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        warnings.warn(f"the profile database {self.path} is damaged ({error}); it is kept as {aside.name} and begun anew", stacklevel=4)
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError:
            pass


def describe(kernel: Json, device: str, threads: int, versions: Mapping[str, str]) -> Json:
    """What a timing belongs to."""
    return {"kernel": kernel, "device": device, "threads": threads, "versions": dict(versions)}
