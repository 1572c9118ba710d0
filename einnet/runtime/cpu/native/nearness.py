"""How near two cores are to each other, by a work of some 30 µs on both: native functions as LLVM IR, and how they are asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TURNS, FIRST_TURNS, MIXED = 136, 8, 6000
"""Turns of two threads with a cache line, those before any is timed, and how often a thread mixes numbers in between: some 10 µs and 20 µs."""

FEW_TURNS = FIRST_TURNS + 2
"""Turns where it is the work that tells."""

LINE_BYTES, _TURN_BYTES = 128, 512
"""Lines of a cache are fetched in pairs; what the turns are told and tell."""

CHAINS = 8
"""Numbers that a busy thread goes on with at once: more than enough to leave no unit for another thread of its core."""


def _busy() -> str:
    """Work of a thread for itself: numbers that are mixed so many times, as pseudo-random ones are; their sum is kept, but for that it is no use."""
    numbers = range(CHAINS)
    begins = [f"  %x{k} = phi i64 [ {2 * k + 1}, %entry ], [ %y{k}, %body ]" for k in numbers]
    steps = [
        f"  %a{k} = shl i64 %x{k}, 13\n  %b{k} = xor i64 %x{k}, %a{k}\n  %c{k} = lshr i64 %b{k}, 7\n  %d{k} = xor i64 %b{k}, %c{k}\n"
        f"  %e{k} = shl i64 %d{k}, 17\n  %y{k} = xor i64 %d{k}, %e{k}"
        for k in numbers
    ]
    sums = [f"  %s{k} = add i64 {f'%s{k - 1}' if k else '0'}, %x{k}" for k in numbers]
    return "\n".join((
        "define internal void @busy(ptr %data, i64 %length) {", "entry:", "  br label %head", "head:",
        "  %n = phi i64 [ 0, %entry ], [ %next, %body ]", *begins,
        "  %more = icmp slt i64 %n, %length", "  br i1 %more, label %body, label %done", "body:", *steps, "  %next = add i64 %n, 1",
        "  br label %head", "done:", *sums, "  %me = call i32 @omp_get_thread_num()", "  %odd = and i32 %me, 1", "  %wide = zext i32 %odd to i64",
        "  %line = mul i64 %wide, 128", "  %room = add i64 %line, 256", "  %kept.at = getelementptr i8, ptr %data, i64 %room",
        f"  store i64 %s{CHAINS - 1}, ptr %kept.at", "  ret void", "}", "",
    ))  # fmt: skip


_HANDED_IR = r"""
; the first thread and the last one of the team work for themselves for a while, and hand a cache line to each other in turns; the data are the line,
; which is 0, and 128 bytes later a number of turns of each, the turn before which they work, for how long the first one does, room for the
; nanoseconds of all from there on, which stay 0 where a thread is kept waiting, and for how long the last one works
define internal void @turns(ptr %data) {
entry:
  %me = call i32 @omp_get_thread_num()
  %all = call i32 @omp_get_num_threads()
  %last = sub i32 %all, 1
  %is.first = icmp eq i32 %me, 0
  %is.last = icmp eq i32 %me, %last
  %plays = or i1 %is.first, %is.last
  %several = icmp sgt i32 %all, 1
  %joins = and i1 %plays, %several
  br i1 %joins, label %begin, label %done
begin:
  %rounds.at = getelementptr i8, ptr %data, i64 128
  %timed.at = getelementptr i8, ptr %data, i64 136
  %length.at = getelementptr i8, ptr %data, i64 144
  %taken.at = getelementptr i8, ptr %data, i64 152
  %other.at = getelementptr i8, ptr %data, i64 160
  %first.length = load i64, ptr %length.at
  %last.length = load i64, ptr %other.at
  %length = select i1 %is.first, i64 %first.length, i64 %last.length
  %rounds = load i64, ptr %rounds.at
  %timed = load i64, ptr %timed.at
  %side = select i1 %is.first, i64 0, i64 1
  br label %head
head:
  %n = phi i64 [ 0, %begin ], [ %next, %handed ]
  %start = phi i64 [ 0, %begin ], [ %since, %handed ]
  %more = icmp slt i64 %n, %rounds
  br i1 %more, label %turn, label %finish
turn:
  %begins = icmp eq i64 %n, %timed
  br i1 %begins, label %clock, label %wait.for
clock:
  %began = call i64 @now()
  call void @busy(ptr %data, i64 %length)
  br label %wait.for
wait.for:
  %since = phi i64 [ %start, %turn ], [ %began, %clock ]
  %twice = mul i64 %n, 2
  %mine = add i64 %twice, %side
  br label %wait
wait:
  %spins = phi i64 [ 0, %wait.for ], [ %spun, %again ]
  %seen = load atomic i64, ptr %data acquire, align 8
  %arrived = icmp eq i64 %seen, %mine
  br i1 %arrived, label %handed, label %again
again:
  call void @llvm.x86.sse2.pause()
  %spun = add i64 %spins, 1
  %patient = icmp slt i64 %spun, 100000
  br i1 %patient, label %wait, label %done
handed:
  %given = add i64 %mine, 1
  store atomic i64 %given, ptr %data release, align 8
  %next = add i64 %n, 1
  br label %head
finish:
  br i1 %is.first, label %tell, label %done
tell:
  %stop = call i64 @now()
  %elapsed = sub i64 %stop, %start
  store i64 %elapsed, ptr %taken.at
  br label %done
done:
  ret void
}

define void @einnet_turns(ptr %data, i32 %threads) {
  call void @GOMP_parallel(ptr @turns, ptr %data, i32 %threads, i32 0)
  ret void
}
"""

TURNS_IR = _busy() + _HANDED_IR
"""Its functions use the clock of the others."""


def asked(turns: Callable[[int, int], None], threads: int, alone: bool = False, handed: int = TURNS) -> float:
    """Seconds that the first and the last of so many threads take to work and to hand a cache line to each other so many times, by the native
    function `turns`; where the first one works `alone`, the last one only waits. 0 where one of them was kept waiting."""
    words = np.zeros((_TURN_BYTES + LINE_BYTES) // 8, np.int64)
    place = words[-words.ctypes.data % LINE_BYTES // 8 :]
    place[16:19], place[20] = (handed, FIRST_TURNS, MIXED), 0 if alone else MIXED
    turns(place.ctypes.data, threads)
    return float(place[19]) * 1e-9


def sharing(turns: Callable[[int, int], None], threads: int) -> float:
    """How many times as long the first of so many threads works while the last one does, too: 1 with a core for each. 0 where that is not told."""
    together, alone = (asked(turns, threads, by_itself, FEW_TURNS) for by_itself in (False, True))
    return together / alone if alone > 0 else 0.0
