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

from einnet.runtime.profile import SCHEMA, ProfileDatabase
from einnet.runtime.timing import Timing

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
from einnet.runtime.profile import ProfileDatabase
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
