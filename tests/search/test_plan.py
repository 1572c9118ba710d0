"""Plans of chosen candidates: what is computed of weights."""

import numpy as np

from einnet.expr.notation.text import parse
from einnet.graph.program import Program
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


def test_tables_of_one_name_with_other_values_have_places_of_their_own() -> None:
    """As those of an algorithm have for dilated windows and for others in one network."""
    assembly = Assembly(Program((), (), ()))
    first, second, longer = (np.array(v, np.float32) for v in ([1, 2], [1, 3], [1, 2, 3]))
    places = [assembly.table("BT", v) for v in (first, second, longer, first.copy(), second.copy())]
    assert places == ["BT_values", "BT_values_", "BT_values__", "BT_values", "BT_values_"]
    assert [assembly.constants[name].tolist() for name in places[:3]] == [[1, 2], [1, 3], [1, 2, 3]]
