"""Plans of chosen candidates: what is computed of weights."""

from pathlib import Path

import numpy as np
import pytest

import einnet
from benchmarks.models.net import Net
from einnet.compile import program_search
from einnet.compile.memory_limit import footprint
from einnet.evidence.constants import differs
from einnet.expr.nodes import Scope, Tensor
from einnet.expr.notation.text import parse
from einnet.expr.values.evaluate import evaluate
from einnet.graph.program import Node, Program
from einnet.instantiate.build import Build
from einnet.instantiate.kernels import Matmul, Plan, dense_view
from einnet.instantiate.kernels.arithmetics import U8I8
from einnet.runtime.arena import check_plan
from einnet.search import plan
from einnet.search.plan import Assembly, Evaluated


def test_what_is_computed_of_the_same_weights_is_computed_once():
    twice = parse("W : weight f32[2,3]\nL[n<3,m<2] 2*W[m,n]")
    w, equal = (np.arange(6, dtype=np.float32).reshape(2, 3) for _ in range(2))
    evaluated = Evaluated()
    first = evaluated.get(twice, {"W": w})
    np.testing.assert_array_equal(first, 2 * w.T.reshape(-1))
    assert evaluated.get(twice, {"W": w}) is first
    assert evaluated.get(twice, {"W": equal}) is not first
    other = parse("W : weight f32[2,3]\nL[n<3,m<2] 3*W[m,n]")
    np.testing.assert_array_equal(evaluated.get(other, {"W": w}), 3 * w.T.reshape(-1))


def test_where_memory_counts_what_takes_no_time_is_computed_again() -> None:
    twice, w = parse("W : weight f32[2,3]\nL[n<3,m<2] 2*W[m,n]"), np.ones((2, 3), np.float32)
    quick, slow = Evaluated(least_s=1e9), Evaluated(least_s=0.0)
    assert quick.get(twice, {"W": w}) is not quick.get(twice, {"W": w})
    assert slow.get(twice, {"W": w}) is slow.get(twice, {"W": w})


def test_plans_of_an_optimization_share_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    monkeypatch.setattr(program_search, "DEAR_S", 0.0)
    computed: list[Scope] = []
    monkeypatch.setattr(plan, "evaluate", lambda scope, values: computed.append(scope) or evaluate(scope, values))
    net = Net("chain", 0)
    x = net.input("x", (64, 96))
    for name in ("first", "second"):
        x = net.matmul(x, net.normal(f"{name}.w", (96, 96), 0.1), name)
    found = einnet.optimize(net.finish(x), time_budget=20, threads=1)
    before = len(computed)
    assert found.outcome.plan().constants
    assert before > 0 and len(computed) == before


def test_tables_of_one_name_with_other_values_have_places_of_their_own() -> None:
    """As those of an algorithm have for dilated windows and for others in one network."""
    assembly = Assembly(Program((), (), ()))
    first, second, longer = (np.array(v, np.float32) for v in ([1, 2], [1, 3], [1, 2, 3]))
    places = [assembly.table("BT", v) for v in (first, second, longer, first.copy(), second.copy())]
    assert places == ["BT_values", "BT_values_", "BT_values__", "BT_values", "BT_values_"]
    assert [assembly.constants[name].tolist() for name in places[:3]] == [[1, 2], [1, 3], [1, 2, 3]]


FLOATS = np.arange(24, dtype=np.float32).reshape(4, 6)
WEIGHTS = np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
BESIDE = "W : weight i8[4,6]\nL[k<4,n<6] W[k,5-n]"


def of_bytes(text: str, a: np.ndarray) -> Plan:
    """A product of bytes with what is computed of weights, in a plan."""
    program = Program((Tensor("x", (3, 4), "u8"),), (Node(Tensor("y", (3, 6)), parse("x : u8[3,4]\nL[m<3,n<6] x[m,0]")),), (("y", "y"),), {"W": a})
    assembly, scope = Assembly(program), parse(text)
    product = Matmul(dense_view("x", (3, 4)), dense_view("j", (4, 6)), dense_view("out", (3, 6)), arithmetic=U8I8)
    assembly.add(Build([product], {}, {"j": scope}), {"x": "x", "W": "W"}, "y")
    return assembly.finish()


def test_what_is_computed_of_weights_is_stored_as_bytes_for_products_of_bytes() -> None:
    """As weights side by side are, where several products have one operand."""
    (held,) = (plan := of_bytes(BESIDE, WEIGHTS)).constants.values()
    assert held.dtype == np.int8 and np.array_equal(held.reshape(4, 6), WEIGHTS[:, ::-1])
    assert [b.dtype for b in plan.buffers if b.role == "constant"] == ["i8"]
    check_plan(plan)
    (expression,) = plan.expressions.values()
    known = {"W": Tensor("W", (4, 6), "i8", True)}
    assert differs(expression, held, {"W": WEIGHTS}, known, {}) == ""
    other = held.copy()
    other[5] += 1
    assert "at 5" in differs(expression, other, {"W": WEIGHTS}, known, {})


def test_what_no_byte_has_stays_a_float() -> None:
    (held,) = of_bytes(BESIDE.replace("i8[", "f32[").replace("W[k,5-n]", "100*W[k,5-n]"), WEIGHTS.astype(np.float32)).constants.values()
    assert held.dtype == np.float32 and held.min() == -1200


def test_what_no_kernel_reads_is_no_constant_of_a_plan() -> None:
    """What was computed of weights for products of which a joint one has taken the place, say: it has no buffer."""
    program = Program((Tensor("x", (3, 4)),), (Node(Tensor("y", (3, 6)), parse("x : f32[3,4]\nL[m<3,n<6] x[m,0]")),), (("y", "y"),), {"W": FLOATS})
    assembly = Assembly(program)
    product = Matmul(dense_view("x", (3, 4)), dense_view("j", (4, 6)), dense_view("out", (3, 6)))
    read, left = (parse(f"W : weight f32[4,6]\nL[k<4,n<6] {n}*W[k,n]") for n in (2, 3))
    assembly.add(Build([product], {}, {"j": read, "k": left}), {"x": "x", "W": "W"}, "y")
    plan = assembly.finish()
    check_plan(plan)
    assert len(plan.constants) == len(plan.expressions) == 1 and plan.constants.keys() == {b.name for b in plan.buffers if b.role == "constant"}
    assert footprint(plan) > 0
