"""Processes that answer: whatever ends one, the next question is answered; and none outlives whom it answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from einnet.runtime import child
from einnet.runtime.child import Child, Ended

ROOT = Path(child.__file__).parents[2]

MODULE = '''
import os, signal, sys, time
loaded = []

def load():
    loaded.append(os.getpid())

def answers(asked):
    what, *more = asked
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leave":
        os._exit(3)
    if what == "sleep":
        time.sleep(more[0])
    if what == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    print("libraries print")
    for n in more if what == "data" else [1]:
        yield {"process": os.getpid(), "loaded": loaded, "asked": more[0] if more else None}, bytes([n % 251]) * n
'''

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    (tmp_path / "einnet_test_answers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Child("einnet_test_answers")
    yield made
    made.end()


def process(answering: Child) -> int:
    told, _ = answering.one(["process"])
    assert isinstance(told["process"], int)
    return told["process"]


def gone(number: int, seconds: float = 20.0) -> bool:
    """The process ends in time: one of ours with all its threads, of which the first is told as ended before the others are."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.02)
                continue
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_one_process_is_begun_when_it_is_asked_and_loads_once(answering: Child) -> None:
    assert answering.number is None
    first, second = answering.one(["a"])[0], answering.one(["b"])[0]
    assert first["process"] == second["process"] == answering.number
    assert second["loaded"] == [first["process"]]


def test_it_may_begin_before(answering: Child) -> None:
    answering.begin()
    begun = answering.number
    answering.begin()
    assert begun is not None
    assert process(answering) == begun


def test_answers_of_any_number_and_size_come_in_their_order(answering: Child) -> None:
    sizes = [0, 1, child.PIECE, 3 * child.PIECE + 7, 2]
    assert [data for _, data in answering.ask(["data", *sizes])] == [bytes([n % 251]) * n for n in sizes]
    assert list(answering.ask(["data"])) == []


def test_a_long_request_is_read_whole(answering: Child) -> None:
    text = "é" * (5 * child.PIECE)
    assert answering.one(["echo", text])[0]["asked"] == text


@pytest.mark.parametrize(("what", "how"), [("die", "signal 9"), ("leave", "status 3")])
def test_a_question_at_which_it_dies_says_how_and_the_next_is_answered(answering: Child, what: str, how: str) -> None:
    before = process(answering)
    with pytest.raises(Ended, match=how):
        answering.one([what])
    assert process(answering) not in (before, None)


def test_one_that_was_killed_meanwhile_is_begun_again(answering: Child) -> None:
    before = process(answering)
    os.kill(before, signal.SIGKILL)
    assert gone(before)
    assert process(answering) != before


def test_an_answer_that_takes_too_long_is_given_up(answering: Child) -> None:
    before = process(answering)
    with pytest.raises(TimeoutError):
        answering.one(["sleep", 60], 0.2)
    assert gone(before)
    assert process(answering) != before


def test_who_waits_may_stop(answering: Child) -> None:
    before, looks = process(answering), list[None]()

    def look() -> None:
        looks.append(None)
        if len(looks) == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        list(answering.ask(["sleep", 60], look=look))
    assert gone(before)
    assert process(answering) != before


def test_one_whose_answers_are_not_all_taken_answers_nobody_else(answering: Child) -> None:
    asked = answering.ask(["data", 5, 6])
    assert next(asked)[1] == bytes([5]) * 5
    before = answering.number
    asked.close()
    assert before is not None and gone(before)
    assert [data for _, data in answering.ask(["data", 7])] == [bytes([7]) * 7]


def test_ctrl_c_is_left_to_the_parent(answering: Child) -> None:
    before = process(answering)
    assert answering.one(["interrupt"])[0]["process"] == before


def test_threads_have_the_answers_to_their_own_questions(answering: Child) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: answering.one(["echo", n])[0], range(40)))
    assert [told["asked"] for told in found] == list(range(40))
    assert len({told["process"] for told in found}) == 1


def test_a_forked_process_has_its_own_and_leaves_the_parents(answering: Child) -> None:
    """Also where it is forked while a thread waits for an answer, and where it ends as Python does."""
    before = process(answering)
    waiting = threading.Thread(target=lambda: answering.one(["sleep", 1]))
    waiting.start()
    forked = os.fork()
    if not forked:
        signal.alarm(60)
        child._end_all()
        own = process(answering)
        child._end_all()
        os._exit(0 if own != before and gone(own) else 1)
    assert os.waitpid(forked, 0)[1] == 0
    waiting.join()
    assert process(answering) == before


def test_where_no_process_can_be_begun_that_is_told(answering: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(OSError, match="nowhere"):
        answering.one(["process"])


PARENT = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from einnet.runtime.child import Child
made = Child("einnet_test_answers")
told, _ = made.one(["process"])
holding = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[made._process.stdin.fileno()])
print(told["process"], holding.pid, flush=True)
if sys.argv[2] == "busy":
    made.one(["sleep", 60])
elif sys.argv[2] == "waits":
    time.sleep(60)
holding.kill()
"""


@pytest.mark.parametrize("what", ["ends", "waits", "busy"])
def test_it_ends_with_its_parent(what: str, tmp_path: Path, answering: Child) -> None:
    """One that ends, and one that is killed: also while it waits for an answer, and where somebody else holds the pipe."""
    command = [sys.executable, "-c", PARENT, str(tmp_path), what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        number, holding = map(int, parent.stdout.readline().split())
        try:
            if what != "ends":
                assert not gone(number, 0.2)
                parent.kill()
            parent.wait(30)
            assert gone(number)
        finally:
            if what != "ends":
                os.kill(holding, signal.SIGKILL)


def test_what_lies_in_the_folder_at_hand_is_not_imported(tmp_path: Path, answering: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert process(answering)
