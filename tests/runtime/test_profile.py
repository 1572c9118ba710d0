"""The profile database: values come back, damage and rivals do no harm."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path
from random import Random

import pytest

from einnet.compile.history import Memory
from einnet.expr.notation.text import parse
from einnet.runtime.database import SCHEMA, ProfileDatabase, digest
from einnet.runtime.serial import canonical
from einnet.runtime.timing import Timing
from einnet.search.settings import Settings

ROWS = [({"kernel": n, "name": "Σ"}, Timing(n * 1e-6, 1e-8, 5)) for n in range(1, 20)]


def test_values_come_back_in_another_instance(tmp_path: Path) -> None:
    ProfileDatabase(tmp_path / "deep" / "p.sqlite").put_many(ROWS)
    database = ProfileDatabase(tmp_path / "deep" / "p.sqlite")
    assert database.get_many([w for w, _ in ROWS]) == [t for _, t in ROWS]
    assert database.get({"kernel": 99}) is None
    assert database.get({"name": "Σ", "kernel": 1}) == ROWS[0][1], "the order of a description's keys has no meaning"
    database.put(ROWS[0][0], Timing(7.0, 0.0, 1))
    assert database.get(ROWS[0][0]) == Timing(7.0, 0.0, 1)
    assert len(database.rows()) == len(ROWS)
    database.clear()
    assert not database.rows()


def test_refused_kernels_are_remembered_estimates_and_disturbed_times_are_not(tmp_path: Path) -> None:
    database = ProfileDatabase(tmp_path / "p.sqlite")
    database.put("refused", Timing(float("inf"), 0.0, 1))
    database.put("estimate", Timing(1.0, 0.0, 0))
    database.put("disturbed", Timing(1.0, 0.0, 9, clean=False))
    assert database.get("refused") == Timing(float("inf"), 0.0, 1)
    assert database.get("estimate") is database.get("disturbed") is None


def test_the_default_place_is_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path / "chosen"))
    assert ProfileDatabase().path == tmp_path / "chosen" / "profile.sqlite"
    monkeypatch.delenv("EINNET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ProfileDatabase().path == tmp_path / "xdg" / "einnet" / "profile.sqlite"


DAMAGE = [b"", b"no database at all, but long enough to have a header of the right size" * 3, b"SQLite format 3\0" + b"\xff" * 4000]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_set_aside(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    path.write_bytes(damage)
    database = ProfileDatabase(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database.put_many(ROWS)
        database.put_many(ROWS)
        assert database.get(ROWS[3][0]) == ROWS[3][1]
    asides = list(tmp_path.glob("p.sqlite.damaged-*"))
    assert [a.read_bytes() for a in asides] == ([damage] if damage else [])
    assert bool(asides) == any("damaged" in str(w.message) for w in caught)


def test_damage_that_shows_later_is_set_aside_too(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    database = ProfileDatabase(path)
    database.put_many([({"kernel": n, "text": "x" * 500}, Timing(1e-6, 0.0, 5)) for n in range(500)])
    database.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        ProfileDatabase(path).get_many([{"kernel": n, "text": "x" * 500} for n in range(500)])
    database = ProfileDatabase(path)
    database.put_many(ROWS)
    assert database.get(ROWS[0][0]) == ROWS[0][1]


def test_an_older_schema_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE timings (name TEXT)")
    old.execute("INSERT INTO timings VALUES ('old')")
    old.commit()
    old.close()
    database = ProfileDatabase(path)
    assert not database.rows()
    database.put_many(ROWS)
    assert len(database.rows()) == len(ROWS)


VERSION_1 = (
    "CREATE TABLE timings (key BLOB PRIMARY KEY, description TEXT NOT NULL, median REAL NOT NULL, spread REAL NOT NULL, n INTEGER NOT NULL, "
    "written REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE results (key BLOB PRIMARY KEY, value TEXT NOT NULL, written REAL NOT NULL) WITHOUT ROWID",
    "PRAGMA user_version = 1",
)


def test_times_of_the_first_schema_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    with sqlite3.connect(path) as old:
        for statement in VERSION_1:
            old.execute(statement)
        rows = [(digest(text), text, t.median, t.spread, t.n, 1.0) for text, t in ((canonical(w), t) for w, t in ROWS)]
        shape = canonical("shape")
        wrong = [(digest("else"), canonical("of another key"), 1.0, 0.0, 1, 1.0), (digest(shape), shape, "slow", 0.0, 1, 1.0)]
        old.executemany("INSERT INTO timings VALUES (?, ?, ?, ?, ?, ?)", [*rows, *wrong])
        old.execute("INSERT INTO results VALUES (?, '[1]', 1.0)", (digest(canonical("found")),))
    old.close()
    for _ in range(2):
        database = ProfileDatabase(path)
        assert database.get_many([w for w, _ in ROWS]) == [t for _, t in ROWS]
        assert database.get("of another key") is database.get("shape") is None
        assert database.recall(["found"]) == [None], "of another version of the search in any case"
        database.remember([("found", [2])])
        assert database.recall(["found"]) == [[2]]
        database.clear()
        database.put_many(ROWS)
        database.close()


def altered(path: Path, statement: str, *values: object) -> ProfileDatabase:
    """The database after somebody else has changed it."""
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()
    return ProfileDatabase(path)


@pytest.mark.parametrize("change", ["median = 'slow'", "median = 2.0", "n = 'x'", "spread = x'00ff'", "seal = x''", "seal = 'text'", "n = 4"])
def test_a_time_that_was_changed_is_not_there(change: str, tmp_path: Path) -> None:
    ProfileDatabase(tmp_path / "p.sqlite").put_many(ROWS)
    key = digest(canonical(ROWS[3][0]))
    database = altered(tmp_path / "p.sqlite", f"UPDATE timings SET {change} WHERE key = ?", key)
    assert database.get_many([w for w, _ in ROWS]) == [t if n != 3 else None for n, (_, t) in enumerate(ROWS)]
    assert len(database.rows()) == len(ROWS) - 1
    database.put_many(ROWS)
    assert database.get(ROWS[3][0]) == ROWS[3][1]


@pytest.mark.parametrize("value", ["[1, 2]", "{", 7, b"\xff\xfe", "[" * 100_000])
def test_a_result_that_was_changed_is_not_there(value: object, tmp_path: Path) -> None:
    ProfileDatabase(tmp_path / "p.sqlite").remember([("a", {"b": 1}), ("c", [2])])
    database = altered(tmp_path / "p.sqlite", "UPDATE results SET value = ? WHERE key = ?", value, digest(canonical("a")))
    assert database.recall(["a", "c"]) == [None, [2]]


def test_a_result_of_another_shape_is_searched_again(tmp_path: Path) -> None:
    """Written as it should be, by who knows whom."""
    expression = parse("A : f32[4]\nL[i<4] relu(A[i])")
    for value in ([1], 3, None, {"budget": "long"}, {"budget": 1e9}, {"budget": 1e9, "choice": [5]}, {"budget": 1e9, "choice": {"forms": 1}}):
        database = ProfileDatabase(tmp_path / "p.sqlite")
        memory = Memory(database, Settings(), {})
        database.remember([(memory._what(expression), value)])
        assert memory.recall({"k": expression}, lambda kernels: [1.0] * len(kernels)) == {}


def test_a_damaged_structure_is_set_aside(tmp_path: Path) -> None:
    """The text of the schema is quoted by errors about it, and may be no text."""
    path = tmp_path / "p.sqlite"
    for n in range(40):
        path.unlink(missing_ok=True)
        database = ProfileDatabase(path)
        database.put_many(ROWS)
        database.close()
        data = bytearray(path.read_bytes())
        start = data.index(b"CREATE TABLE")
        data[start + n] = (0xFF, 0x80, 0x27, 0x00)[n % 4]
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                found = ProfileDatabase(path).get_many([w for w, _ in ROWS])
                assert all(t in (None, right) for t, (_, right) in zip(found, ROWS, strict=True))
                ProfileDatabase(path).put_many(ROWS)
                ProfileDatabase(path).remember([("a", 1)])
            assert ProfileDatabase(path).get(ROWS[0][0]) == ROWS[0][1], n


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.slow)])
def test_no_damage_changes_a_value(count: int, tmp_path: Path) -> None:
    """Bytes changed anywhere: what was stored comes back, or nothing does."""
    path, rng = tmp_path / "p.sqlite", Random(count)
    what = [w for w, _ in ROWS]
    database = ProfileDatabase(path)
    database.put_many(ROWS)
    database.remember((w, [n, w]) for n, w in enumerate(what))
    database.close()
    whole = path.read_bytes()
    for _ in range(count):
        data = bytearray(whole)
        for at in rng.sample(range(len(data)), rng.choice((1, 1, 8, 64))):
            data[at] = rng.randrange(256)
        path.write_bytes(data)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            database = ProfileDatabase(path)
            assert all(t in (None, right) for t, (_, right) in zip(database.get_many(what), ROWS, strict=True))
            assert all(v in (None, [n, w]) for n, (v, w) in enumerate(zip(database.recall(what), what, strict=True)))
            told = {canonical(w): t for w, t in ROWS}
            assert all(told.get(text) == t for text, t in database.rows())
            database.close()


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.commit()
    newer.close()
    before = path.read_bytes()
    database = ProfileDatabase(path)
    with pytest.warns(UserWarning, match="newer version"):
        database.put_many(ROWS)
    assert database.get(ROWS[0][0]) == ROWS[0][1], "kept in memory"
    database.close()
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    database = ProfileDatabase(tmp_path / "file" / "p.sqlite")
    with pytest.warns(UserWarning, match="not kept"):
        database.put_many(ROWS)
    assert database.get(ROWS[0][0]) == ROWS[0][1]


def write(path: str, worker: int, count: int) -> None:
    database = ProfileDatabase(path)
    for n in range(count):
        database.put({"worker": worker, "n": n}, Timing(worker + n * 1e-3, 0.0, 3))


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "p.sqlite")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write, args=(path, w, 25)) for w in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    database = ProfileDatabase(path)
    found = database.get_many([{"worker": w, "n": n} for w in range(3) for n in range(25)])
    assert found == [Timing(w + n * 1e-3, 0.0, 3) for w in range(3) for n in range(25)]


WRITER = """
import sys
from einnet.runtime.database import ProfileDatabase
from einnet.runtime.timing import Timing
database, start = ProfileDatabase(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for n in range(start, start + 100_000):
    database.put_many([([n, part], Timing(1.0 + n, 0.0, 1)) for part in range(3)])
    print(n, flush=True)
"""


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_loses_nothing_that_was_committed(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite"
    rng = Random(kills)
    for n in range(kills):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n * 1_000_000)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.1))
        writer.kill()
        committed = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = ProfileDatabase(path).get_many([[m, part] for m in committed for part in range(3)])
        assert all(found)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT count(*) FROM timings").fetchone()[0]
    assert rows % 3 == 0, "a transaction is there whole or not at all"


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite"
    database = ProfileDatabase(path)
    database.put("kept", Timing(1.0, 0.0, 1))
    with database._using() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.warns(UserWarning, match="full"):
        database.put_many((["x" * 500, n], Timing(1.0, 0.0, 1)) for n in range(200))
    assert database.get("kept")
    assert ProfileDatabase(path).get("kept")
    assert [p.name for p in tmp_path.iterdir() if "damaged" in p.name] == []
