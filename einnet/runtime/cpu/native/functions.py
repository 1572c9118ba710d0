"""The few native functions under every program, as LLVM IR: no C compiler is needed.

A step is a pair of words: a function `int(int64*)` and the address of its argument words. A program is an array of steps; running it is one
native call, whatever the number of steps. The functions also carry generated parallel loops over to the OpenMP pool.
"""

from __future__ import annotations

from einnet.runtime.cpu.native.nearness import TURNS_IR

LAUNCH_POINTER, LAUNCH_FUNCTION, VENDOR_FUNCTION = "__TVMBackendParallelLaunch", "einnet_launch", "einnet_vendor"

REPEAT_FUNCTION, MOST_WORDS = "einnet_repeat", 64
"""What does calls in rounds, and the words that a call may have there."""

_PARTS_IR = r"""
%team = type { ptr, i32 }
%job = type { ptr, ptr, i32 }
%step = type { ptr, ptr }
%repeated = type { ptr, i64, ptr, ptr }
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_max_threads()
declare void @omp_set_num_threads(i32)
declare i32 @clock_gettime(i32, ptr)
declare i32 @dnnl_primitive_execute(ptr, ptr, i32, ptr)
declare void @llvm.x86.sse2.clflush(ptr)
declare void @llvm.x86.sse2.mfence()
declare void @llvm.x86.sse2.pause()

; every thread of the team calls the job's function with its number; a failure is kept in the job
define internal void @work(ptr %job) {
entry:
  %team = alloca %team
  %me = call i32 @omp_get_thread_num()
  %all = call i32 @omp_get_num_threads()
  store ptr null, ptr %team
  %size = getelementptr %team, ptr %team, i32 0, i32 1
  store i32 %all, ptr %size
  %function = load ptr, ptr %job
  %data.at = getelementptr %job, ptr %job, i32 0, i32 1
  %data = load ptr, ptr %data.at
  %status = call i32 %function(i32 %me, ptr %team, ptr %data)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %keep, label %done
keep:
  %status.at = getelementptr %job, ptr %job, i32 0, i32 2
  store i32 %status, ptr %status.at
  br label %done
done:
  ret void
}

; the code generator's parallel loop on the pool; 0 tasks stands for as many as threads are set
define i32 @einnet_launch(ptr %function, ptr %data, i32 %tasks) {
  %job = alloca %job
  store ptr %function, ptr %job
  %data.at = getelementptr %job, ptr %job, i32 0, i32 1
  store ptr %data, ptr %data.at
  %status.at = getelementptr %job, ptr %job, i32 0, i32 2
  store i32 0, ptr %status.at
  call void @GOMP_parallel(ptr @work, ptr %job, i32 %tasks, i32 0)
  %status = load i32, ptr %status.at
  ret i32 %status
}

; the calls %from..%to of a primitive; the arguments (16 bytes each) of the calls lie one after the other
define internal i32 @calls(ptr %words, i64 %from, i64 %to) {
entry:
  %stream.at = getelementptr i64, ptr %words, i64 1
  %count.at = getelementptr i64, ptr %words, i64 2
  %arguments.at = getelementptr i64, ptr %words, i64 3
  %primitive = load ptr, ptr %words
  %stream = load ptr, ptr %stream.at
  %count = load i32, ptr %count.at
  %first = load ptr, ptr %arguments.at
  %wide = zext i32 %count to i64
  %bytes = mul i64 %wide, 16
  br label %head
head:
  %n = phi i64 [ %from, %entry ], [ %next, %call ]
  %more = icmp slt i64 %n, %to
  br i1 %more, label %call, label %done
call:
  %offset = mul i64 %n, %bytes
  %arguments = getelementptr i8, ptr %first, i64 %offset
  %status = call i32 @dnnl_primitive_execute(ptr %primitive, ptr %stream, i32 %count, ptr %arguments)
  %next = add i64 %n, 1
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %head
done:
  %result = phi i32 [ 0, %head ], [ %status, %call ]
  ret i32 %result
}

; a thread takes every share of the calls whose number is its own modulo the number of threads; the data of the job are the words
define internal void @share(ptr %job) {
entry:
  %me.narrow = call i32 @omp_get_thread_num()
  %all.narrow = call i32 @omp_get_num_threads()
  %me = zext i32 %me.narrow to i64
  %all = zext i32 %all.narrow to i64
  %words.at = getelementptr %job, ptr %job, i32 0, i32 1
  %words = load ptr, ptr %words.at
  %calls.at = getelementptr i64, ptr %words, i64 4
  %shares.at = getelementptr i64, ptr %words, i64 5
  %calls = load i64, ptr %calls.at
  %shares = load i64, ptr %shares.at
  br label %head
head:
  %s = phi i64 [ %me, %entry ], [ %next, %fine ]
  %more = icmp slt i64 %s, %shares
  br i1 %more, label %body, label %done
body:
  %after = add i64 %s, 1
  %from.whole = mul i64 %calls, %s
  %to.whole = mul i64 %calls, %after
  %from = udiv i64 %from.whole, %shares
  %to = udiv i64 %to.whole, %shares
  %status = call i32 @calls(ptr %words, i64 %from, i64 %to)
  %next = add i64 %s, %all
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %keep, label %fine
fine:
  br label %head
keep:
  %status.at = getelementptr %job, ptr %job, i32 0, i32 2
  store i32 %status, ptr %status.at
  br label %done
done:
  ret void
}

; words: primitive, stream, number of arguments, arguments, number of calls, number of shares in which threads make them
define i32 @einnet_vendor(ptr %words) {
  %calls.at = getelementptr i64, ptr %words, i64 4
  %shares.at = getelementptr i64, ptr %words, i64 5
  %calls = load i64, ptr %calls.at
  %shares = load i64, ptr %shares.at
  %alone = icmp eq i64 %shares, 1
  br i1 %alone, label %serial, label %parallel
serial:
  %result = call i32 @calls(ptr %words, i64 0, i64 %calls)
  ret i32 %result
parallel:
  %job = alloca %job
  store ptr null, ptr %job
  %data.at = getelementptr %job, ptr %job, i32 0, i32 1
  store ptr %words, ptr %data.at
  %status.at = getelementptr %job, ptr %job, i32 0, i32 2
  store i32 0, ptr %status.at
  %threads = trunc i64 %shares to i32
  call void @GOMP_parallel(ptr @share, ptr %job, i32 %threads, i32 0)
  %status = load i32, ptr %status.at
  ret i32 %status
}

; words: a number of rounds, of calls in a round, and the calls: each a function, the number of its words, these, and what they grow by in a round
define i32 @einnet_repeat(ptr %words) {
entry:
  %now = alloca [64 x i64]
  %calls.at = getelementptr i64, ptr %words, i64 1
  %table.at = getelementptr i64, ptr %words, i64 2
  %rounds = load i64, ptr %words
  %calls = load i64, ptr %calls.at
  %table = load ptr, ptr %table.at
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r.next, %round.end ]
  %r.more = icmp slt i64 %r, %rounds
  br i1 %r.more, label %call, label %done
call:
  %c = phi i64 [ 0, %round ], [ %c.next, %called ]
  %c.more = icmp slt i64 %c, %calls
  br i1 %c.more, label %place, label %round.end
place:
  %row = getelementptr %repeated, ptr %table, i64 %c
  %count.at = getelementptr %repeated, ptr %row, i32 0, i32 1
  %firsts.at = getelementptr %repeated, ptr %row, i32 0, i32 2
  %deltas.at = getelementptr %repeated, ptr %row, i32 0, i32 3
  %function = load ptr, ptr %row
  %count = load i64, ptr %count.at
  %firsts = load ptr, ptr %firsts.at
  %deltas = load ptr, ptr %deltas.at
  br label %word
word:
  %w = phi i64 [ 0, %place ], [ %w.next, %set ]
  %w.more = icmp slt i64 %w, %count
  br i1 %w.more, label %set, label %go
set:
  %first.at = getelementptr i64, ptr %firsts, i64 %w
  %delta.at = getelementptr i64, ptr %deltas, i64 %w
  %now.at = getelementptr i64, ptr %now, i64 %w
  %first = load i64, ptr %first.at
  %delta = load i64, ptr %delta.at
  %grown = mul i64 %delta, %r
  %value = add i64 %first, %grown
  store i64 %value, ptr %now.at
  %w.next = add i64 %w, 1
  br label %word
go:
  %status = call i32 %function(ptr %now)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %called
called:
  %c.next = add i64 %c, 1
  br label %call
round.end:
  %r.next = add i64 %r, 1
  br label %round
done:
  %result = phi i32 [ 0, %round ], [ %status, %go ]
  ret i32 %result
}

define internal i64 @now() {
  %time = alloca { i64, i64 }
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %nano.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %seconds = load i64, ptr %time
  %nano = load i64, ptr %nano.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nano
  ret i64 %sum
}

define internal void @nothing(ptr %data) {
  ret void
}

; an empty parallel region
define void @einnet_wake(i32 %threads) {
  call void @GOMP_parallel(ptr @nothing, ptr null, i32 %threads, i32 0)
  ret void
}

; write back and drop the cache lines of [%start, %start + %bytes) on all cores
define void @einnet_flush(ptr %start, i64 %bytes) {
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %at, %bytes
  br i1 %more, label %body, label %done
body:
  %line = getelementptr i8, ptr %start, i64 %at
  call void @llvm.x86.sse2.clflush(ptr %line)
  %next = add i64 %at, 64
  br label %head
done:
  call void @llvm.x86.sse2.mfence()
  ret void
}
"""


def _sequence(name: str, parameters: str, before: str = "", after: str = "") -> str:
    """Steps one after the other, with instructions before and after each; 0, or one more than the number of the step that failed."""
    return f"""
define i64 @{name}(ptr %steps, i64 %count, i32 %threads{parameters}) {{
entry:
  %before = call i32 @omp_get_max_threads()
  call void @omp_set_num_threads(i32 %threads)
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %body, label %done
body:
  %step = getelementptr %step, ptr %steps, i64 %n
  %words.at = getelementptr %step, ptr %step, i32 0, i32 1
  %function = load ptr, ptr %step
  %words = load ptr, ptr %words.at
{before}  %status = call i32 %function(ptr %words)
{after}  %next = add i64 %n, 1
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %head
done:
  %result = phi i64 [ 0, %head ], [ %next, %body ]
  call void @omp_set_num_threads(i32 %before)
  ret i64 %result
}}
"""


_ELAPSED = """  %stop = call i64 @now()
  %elapsed = sub i64 %stop, %start
  %time.at = getelementptr i64, ptr %times, i64 %n
  store i64 %elapsed, ptr %time.at
"""
"""The nanoseconds of a step go to its place in %times."""

SUPPORT_IR = (
    _PARTS_IR + TURNS_IR + _sequence("einnet_run", "") + _sequence("einnet_profile", ", ptr %times", "  %start = call i64 @now()\n", _ELAPSED)
)
