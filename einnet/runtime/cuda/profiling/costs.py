"""Costs of kernels on a CUDA device: recorded times where there are some, else what the laws of the same card say. Nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, prod

from einnet.errors import BackendError
from einnet.expr.constant_matrices import TABLE_SIZE
from einnet.expr.nodes import Scope, reads, tensors, walk_repeated
from einnet.instantiate.codegen.canonicalise import normalise
from einnet.instantiate.codegen.cuda.contracted_sizes import faster
from einnet.instantiate.codegen.cuda.contracted_sizes import in_pieces as pays
from einnet.instantiate.codegen.cuda.reduction_nest import uses_expanded
from einnet.instantiate.codegen.cuda.rescaled_sizes import walked
from einnet.instantiate.codegen.cuda.rowwise import divided, row
from einnet.instantiate.codegen.cuda.tile_search import tile
from einnet.instantiate.codegen.cuda.tiling import BEGIN, MOST_THREADS, OPERATIONS, block_cycles
from einnet.instantiate.codegen.ir import Expr, Nest, Reduce, children, expanded
from einnet.instantiate.codegen.resolve import resolve
from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul, OpaqueCall, Plan, View, anchored
from einnet.instantiate.kernels.arithmetics import F32, MATHS
from einnet.instantiate.kernels.contractions import Contraction
from einnet.runtime.cpu.roofline import moved
from einnet.runtime.cuda.fit import filters_last, parts
from einnet.runtime.cuda.gemm import gemm
from einnet.runtime.cuda.profiling.card_files import Card
from einnet.runtime.cuda.profiling.in_parts import at_most
from einnet.runtime.cuda.profiling.laws import GeneratedLaw, Laws, convolution, product, traffic, wants_channels_last
from einnet.runtime.cuda.profiling.profile import SHORT, Profile, finer_of, key, laws_of
from einnet.runtime.cuda.shortened import suits

FEW = 16
"""Terms of a sum up to which only what moves counts."""

GENERATED = ("tf32",)
"""Arithmetics to which generated kernels can round their factors."""

RESCALED = 0.4
"""How many times as long as tiles, beside their models, exponentials under their maximum took on a card: 8 heads of 4,096 queries and keys."""

AT_ONCE, ONE_BY_ONE = 0.8, 1.25
"""How many times as long as tiles, beside their models, stages took on a card: copied 16 bytes at once, and with an operand copied by numbers."""

UNTILED = 10.0
"""How many times as long threads take that share nothing, one of which walks a whole sum: a guess, for it has hardly been measured."""


IsConstant = Callable[[str], bool]


def nothing(name: str) -> bool:
    """No buffer holds weights."""
    del name
    return False


class CudaCost:
    """Seconds of kernels by a profile. `unmeasured` collects the kernels that it has no time of.

    Where factors may lie in 16 bits a product costs what the faster one of it and the same in TF32 does. Factors that are no constants, by the names
    of their buffers, are rounded before it.
    """

    noise = 0.0
    """Share by which equal kernels differ in price: they do not."""

    def __init__(self, profile: Profile, constant: IsConstant = nothing) -> None:
        self.profile, self.constant = profile, constant
        self.finer = CudaCost(finer_of(profile)) if profile.math in SHORT else None
        """Costs in TF32, where factors may lie in 16 bits."""
        self.laws = laws_of(profile)
        self.channels_last = wants_channels_last(self.laws)
        """Filters are stored with channels last (see `fit.fitted`), so that no inference moves them."""
        self.arithmetic = MATHS[profile.math]
        self._has_rounded = any(d.arithmetic for d in profile.details.values())
        self.unmeasured: dict[Kernel, None] = {}
        self.refused: set[str] = set()
        """Keys of products that are not to lie in 16 bits."""
        self._known: dict[Kernel, float] = {}

    def estimates(self, kernels: Sequence[Kernel]) -> list[float]:
        """Recorded or estimated seconds."""
        return [self.seconds(k) for k in kernels]

    def at_least(self, kernels: Sequence[Kernel]) -> list[float]:
        """Seconds that kernels are priced at, or less: generated ones that were not recorded begin and move their operands at least, which is said
        without a search for their tiles."""
        return [self._at_least(k) for k in kernels]

    def _at_least(self, kernel: Kernel) -> float:
        if kernel in self._known or isinstance(kernel, (Matmul, Conv, OpaqueCall)):
            return self.seconds(kernel)
        if self.finer is not None:
            return self.finer._at_least(kernel)
        plain = in_float32(kernel)
        if isinstance(plain, EOperator) and self._rounded(plain) is not None:
            return self.seconds(kernel)
        run, law = self.as_run(plain), self.laws.generated
        moving = [law.begin + traffic(moved(p), law) if self.profile.time(p) is None else 0.0 for p in parts(run)]
        return sum(moving) if all(moving) and self.profile.time(run) is None else self.seconds(kernel)

    def measured(self, kernels: Sequence[Kernel], until: float = inf) -> list[float | None]:
        """The same: what was not recorded cannot be measured here, and its estimate stands for it."""
        return [self.seconds(k) for k in kernels]

    def in_arithmetic(self, kernel: Kernel) -> Kernel:
        """The kernel as a program runs it: products in the arithmetic of the profile, generated ones where that is faster.

        Whether it is, recorded times say where there is one of the rounded kernel. Where none of either is recorded the model of the device does, by
        a margin (see `contracted_sizes.faster`).
        """
        if self.finer is not None:
            own = self._shortened(kernel) if isinstance(kernel, Matmul) else None
            if own is not None and isinstance(kernel, Matmul) and own[0] < self.finer.seconds(in_float32(kernel)):
                return kernel.in_arithmetic(self.arithmetic)
            return self.finer.in_arithmetic(in_float32(kernel))
        if not self.arithmetic.rounds or isinstance(kernel, OpaqueCall):
            return kernel
        if isinstance(kernel, EOperator):
            return kernel.in_arithmetic(self.arithmetic) if self._rounds(kernel) else kernel
        return kernel.in_arithmetic(self.arithmetic) if isinstance(kernel, Contraction) and not kernel.arithmetic.whole else kernel

    def _rounds(self, kernel: EOperator) -> bool:
        """A generated kernel is to round its factors."""
        rounded, plain = self._rounded(kernel), self.profile.time(self.as_run(kernel))
        if rounded is not None:
            return rounded < (plain if plain is not None else self.reckoned(kernel))
        return plain is None and self.arithmetic.name in GENERATED and in_pieces(kernel)

    def _rounded(self, kernel: EOperator) -> float | None:
        """What was recorded of a kernel with rounded factors."""
        return self.profile.time(self.as_run(kernel.in_arithmetic(self.arithmetic))) if self._has_rounded else None

    def as_run(self, kernel: Kernel) -> Kernel:
        """The kernel with its filters as they are stored, wherever in its buffers it works: parts of a batch cost the same."""
        return anchored(filters_last(kernel) if isinstance(kernel, Conv) and self.channels_last else kernel)

    def seconds(self, kernel: Kernel) -> float:
        """What was recorded of the kernel or of the parts that it is run in; what was not is priced by the laws of the same card.

        A product costs the same whether it tells its arithmetic or not: that of the profile is meant. A generated kernel that does not tell costs
        what it does in the arithmetic in which it is faster, by records, or by the laws where there is none of either.
        """
        if self.finer is not None:
            return self._in_either(kernel, self.finer)
        if kernel not in self._known:
            plain = in_float32(kernel)
            self._known[kernel], recorded = self._plain(plain)
            if isinstance(plain, EOperator):
                rounded, timed = self._rounded(plain), True
                if rounded is None and not recorded and self.arithmetic.name in GENERATED and in_pieces(plain):
                    rounded, timed = self.reckoned(plain.in_arithmetic(self.arithmetic)), False
                if rounded is not None and (kernel != plain or rounded < self._known[kernel]):
                    self._known[kernel], recorded = rounded, timed
                elif kernel != plain:
                    recorded = False
            if not recorded:
                self.unmeasured[kernel] = None
        return self._known[kernel]

    def like(self, plan: Plan) -> CudaCost:
        """Costs of the plan's own kernels, whose constants are known."""
        if self.finer is None:
            return self
        found = CudaCost(self.profile, lambda name: name in plan.constants)
        found.finer, found.refused = self.finer, self.refused
        return found

    def refuse(self, kernels: Iterable[Kernel]) -> None:
        """Let products not lie in 16 bits, whatever they cost."""
        self.refused.update(key(self.as_run(in_float32(k))) for k in kernels)

    def _in_either(self, kernel: Kernel, finer: CudaCost) -> float:
        """The price of a kernel in 16 bits or in TF32, whichever it tells, or where it tells neither is less."""
        if kernel not in self._known:
            own = self._shortened(kernel) if isinstance(kernel, Matmul) and kernel.arithmetic in (F32, self.arithmetic) else None
            plain = kernel if isinstance(kernel, EOperator) else in_float32(kernel)
            seconds, recorded = finer.seconds(plain), plain not in finer.unmeasured
            if own is not None and (own[0] < seconds or kernel.factors.short):
                seconds, recorded = own
            self._known[kernel] = seconds
            if not recorded:
                self.unmeasured[kernel] = None
        return self._known[kernel]

    def _shortened(self, kernel: Matmul) -> tuple[float, bool] | None:
        """Seconds of a product with factors of 16 bits, and whether they were recorded; None where it cannot have such.

        What was not recorded is estimated as so many times as fast as in TF32 as the laws say, after kernels that round what is no constant.
        """
        assert self.finer is not None
        plain = in_float32(kernel)
        name = key(self.as_run(plain)) if self.profile.seconds or self.refused else ""
        if name in self.refused:
            return None
        whole = self.profile.time(self.as_run(plain))
        if whole is not None:
            return whole, True
        total = 0.0
        for p in parts(plain):
            total += self.finer.seconds(p)
            if isinstance(p, Matmul):
                if not suits(p):
                    return None
                step = gemm(p)
                faster = product(replace(step, arithmetic=self.arithmetic.name), self.laws) / product(step, self.finer.laws)
                moving = [v for v in dict.fromkeys(p.inputs) if not self.constant(v.buffer)]
                total += (faster - 1) * self.finer.seconds(p) + sum(self._copied(v) for v in moving)
        return total, False

    def _copied(self, view: View) -> float:
        """Seconds of a kernel that rounds what a view spans to 16 bits."""
        law = self.laws.generated
        return law.begin + traffic(6 * (1 + sum(s * (n - 1) for n, s in zip(view.shape, view.strides, strict=True))), law)

    def _plain(self, kernel: Kernel) -> tuple[float, bool]:
        """Seconds of a kernel that tells no arithmetic, and whether all of them were recorded."""
        run = self.as_run(kernel)
        whole = self.profile.time(run)
        told = [(run, whole)] if whole is not None else [(p, self.profile.time(p)) for p in parts(run)]
        return sum(self.reckoned(p) if t is None else t for p, t in told), all(t is not None for _, t in told)

    def reckoned(self, kernel: Kernel) -> float:
        """What the laws say, and for a product no more than its recorded parts take one after the other."""
        by_law = estimate(kernel, self.profile.card, self.laws)
        return min(by_law, at_most(kernel, self.profile, self.laws.processors)) if isinstance(kernel, Matmul) else by_law


def estimate(kernel: Kernel, card: Card, laws: Laws) -> float:
    """Seconds of one kernel as the libraries run it, by the laws of the card.

    An opaque node runs on the host: its operands travel there and back.
    """
    if isinstance(kernel, OpaqueCall):
        return card.wait + moved(kernel) / card.host_bandwidth
    if isinstance(kernel, EOperator):
        return generated(kernel, card, laws.generated)
    if isinstance(kernel, Matmul):
        return product(gemm(kernel), laws)
    assert isinstance(kernel, Conv)
    return convolution(kernel, laws)


def generated(kernel: EOperator, card: Card, law: GeneratedLaw) -> float:
    """Seconds of a generated kernel: each of its launches begins, and takes what its tiles are modelled to, or what moves does.

    Short sums and element functions are done while operands come, or take as long as their reads.
    """
    launches, operations, steps = modelled(kernel)
    computing = law.work * operations / card.peak if operations else law.touch * loads(kernel)
    return law.begin * launches + max(traffic(moved(kernel), law), computing) + law.term * max(steps - FEW, 0)


@lru_cache(maxsize=1 << 14)
def loads(kernel: EOperator) -> float:
    """Numbers that the elements of a generated kernel read, each for itself; 0 where known matrices let a thread compute several from the same."""
    if any(t.values is not None for t in tensors(kernel.scope).values()):
        return 0.0
    return float(prod(i.extent for i in kernel.scope.loops) * _loads(kernel.scope))


def _loads(scope: Scope) -> int:
    """Numbers that one element reads: those of a scope inside are computed where they are read."""
    return prod(i.extent for i in scope.sums) * sum(_loads(r.base) if isinstance(r.base, Scope) else 1 for r in reads(scope.body))


def in_float32(kernel: Kernel) -> Kernel:
    """The same kernel with factors as they are."""
    rounds = isinstance(kernel, (Contraction, EOperator)) and kernel.factors.rounds
    return kernel.in_arithmetic(F32) if rounds and isinstance(kernel, (Contraction, EOperator)) else kernel


@lru_cache(maxsize=1 << 12)
def in_pieces(kernel: EOperator) -> bool:
    """By the model of the device some launch of the kernel is much faster where it rounds its factors for tensor cores."""
    if any(v.buffer == kernel.out.buffer for v in kernel.operand_views):
        return False
    return any(_longest(n) > FEW and walked(n) is None and row(n) is None and pays(n) for n in map(normalise, nests_of(kernel)))


def nests_of(kernel: EOperator) -> Sequence[Nest]:
    """The launches of a generated kernel; none where it cannot be generated."""
    known = {t.name for t in tensors(kernel.scope).values() if t.values is not None and prod(t.shape) <= TABLE_SIZE}
    try:
        return divided(resolve(kernel, known)).nests
    except BackendError:
        return ()


@lru_cache(maxsize=1 << 14)
def modelled(kernel: EOperator) -> tuple[int, float, int]:
    """The launches of a generated kernel, the operations that the device could do in the cycles of their tiles, and terms of short sums in sums."""
    sums = [prod(i.extent for i in s.sums) for s in walk_repeated(kernel.scope) if s.sums]
    if len(sums) < 2 and max(sums, default=0) <= FEW:
        return 1, 0.0, 0
    nests = nests_of(kernel)
    if not nests:
        return len(sums), 0.0, 0
    normal = [normalise(nest) for nest in nests]
    short = max((_steps(uses_expanded(n.expr)) for n in normal if _longest(n) <= FEW), default=0)
    return len(nests), sum(_operations(n, kernel.factors.rounds) for n in normal), short


def _longest(nest: Nest) -> int:
    """Terms of the longest sum."""
    return max((prod(i.extent for i in e.sums) for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Reduce)), default=0)


def _operations(nest: Nest, rounds: bool) -> float:
    """Operations that the device could do while one launch computes, by the model of its tiles, or of its stages where those are much faster.

    0 where only what it moves counts. `rounds` allows tensor cores.
    """
    if _longest(nest) <= FEW:
        return 0.0
    terms = [prod(i.extent for i in e.sums) for e, _ in expanded(nest.expr, nest.ranges) if isinstance(e, Reduce)]
    summed, found = walked(nest), tile(nest)
    if summed is not None:
        return max(summed.cycles - BEGIN, 0.0) * OPERATIONS * RESCALED
    ahead = faster(nest, rounds) if row(nest) is None else None
    if ahead is not None:
        return max(ahead.cycles - BEGIN, 0.0) * OPERATIONS * (AT_ONCE if min(ahead.sizes.high, ahead.sizes.broad) > 1 else ONE_BY_ONE)
    if found is not None:
        return max(min(found.cycles, block_cycles(found, MOST_THREADS)) - BEGIN, 0.0) * OPERATIONS
    points, rows = prod(i.extent for i in nest.loops), row(nest)
    if rows is not None:
        return 2.0 * prod(i.extent for i in rows.outer) * sum(terms)
    return UNTILED * 2.0 * points * _steps(uses_expanded(nest.expr))


def _steps(e: Expr) -> int:
    """Terms of all sums in an expression, those of a sum inside another for each of its terms."""
    inside = sum(_steps(a) for a in children(e))
    return prod(i.extent for i in e.sums) * max(inside, 1) if isinstance(e, Reduce) else inside
