"""Parts with numbers of half precision: programs compute in float32 and err no more than twice what eager mode errs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torch.test_backend import MODELS, QUICK

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")

nn, F = torch.nn, torch.nn.functional
HALVES = [torch.float16, torch.bfloat16]


def tensors(found: Any) -> list[Any]:
    return [t for one in found for t in tensors(one)] if isinstance(found, (tuple, list)) else [found]


def as_near(found: Any, wanted: Any, exact: Any) -> None:
    """Types, shapes and strides are eager mode's; numbers are as near to those in float32, whole ones equal to either."""
    for f, w, e in zip(tensors(found), tensors(wanted), tensors(exact), strict=True):
        assert (f.dtype, f.shape, f.stride()) == (w.dtype, w.shape, w.stride())
        if not w.dtype.is_floating_point:
            assert torch.equal(f, w) or torch.equal(f, e)
            continue
        far, farther = ((x.double() - e.double()).abs().max() / e.abs().max() for x in (w, f))
        assert farther <= 2 * max(far, torch.finfo(w.dtype).eps), (far, farther)


def single(x: Any) -> Any:
    return x.float() if x.is_floating_point() else x


def halves_of(x: Any, kind: Any) -> Any:
    return x.to(kind) if x.is_floating_point() else x


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS])
def test_models_err_no_more_than_in_eager_mode(name, kind, compile_kept, told):
    make, given = MODELS[name]
    model, inputs = make().eval().to(kind), [halves_of(given(), kind) for _ in range(2)]
    fast = compile_kept(model)
    with torch.no_grad():
        found, wanted = zip(*[(fast(x), model(x)) for x in inputs])
        model.float()
        for x, f, w in zip(inputs, found, wanted):
            as_near(f, w, model(single(x)))
    assert [t.runs for t in told()] == ["einnet"], told()


def test_a_model_that_casts_by_itself(compile_kept, told):
    """Under autocast a graph has both: products in bfloat16 of weights in float32."""
    model, x = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 8), nn.Softmax(-1)).eval(), torch.randn(6, 16)

    def run(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    with torch.no_grad():
        as_near(compile_kept(run)(x), run(x), model(x))
    assert [t.runs for t in told()] == ["einnet"], told()


def test_what_is_made_in_half_precision_on_the_way(compile_kept, told):
    """Constants, ranges and masks have types of their own; the least number of one type is -inf in the other."""

    def run(x: Any) -> Any:
        mask = torch.full((5, 5), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
        places = torch.arange(5, dtype=x.dtype) * 0.1
        return torch.softmax((x @ x.T) * places + mask, -1, dtype=torch.float32).to(x.dtype) @ x, x.new_ones(3) / 3

    x = torch.randn(5, 5)
    for kind in HALVES:
        torch._dynamo.reset()
        y = x.to(kind)
        with torch.no_grad():
            as_near(compile_kept(run)(y), run(y), run(y.float()))
    assert "eager" not in [t.runs for t in told()] and told()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_results_lie_as_in_eager_mode(layout, compile_kept, told):
    model, x = nn.Conv2d(4, 6, 3).eval().bfloat16(), torch.randn(2, 4, 8, 8, dtype=torch.bfloat16).to(memory_format=layout)
    with torch.no_grad():
        found, wanted = compile_kept(model)(x), model(x)
        as_near(found, wanted, model.float()(x.float()))
    assert [t.runs for t in told()] == ["einnet"]


def test_what_is_too_large_for_float16_is_infinite(compile_kept):
    x = torch.tensor([[1.0, -3e4, 3e4, 200.0]], dtype=torch.float16)
    found = compile_kept(lambda x: (x * 4, x.sum(-1)))(x)
    assert found[0].isinf().tolist() == [[False, True, True, False]]


def test_an_overflow_on_the_way_keeps_eager_mode(compile_kept, told):
    """Eager mode gives infinity where a square is too large, a program in float32 would not."""
    x = torch.tensor([[300.0, 1.0, 2.0, 3.0]], dtype=torch.float16)
    with pytest.warns(RuntimeWarning, match="another one"):
        found = compile_kept(lambda x: torch.tanh(x) + (x * x) * 1e-3)(x)
    assert found.isinf().any() and [t.runs for t in told()] == ["eager"]


def test_weights_that_change_are_seen(compile_kept, told):
    model, x = nn.Linear(8, 8).eval().bfloat16(), torch.randn(4, 8, dtype=torch.bfloat16)
    fast = compile_kept(model)
    with torch.no_grad():
        fast(x)
        model.weight.mul_(-3)
        for _ in range(4):
            as_near(fast(x), model(x), F.linear(x.float(), model.weight.float(), model.bias.float()))
    assert [t.runs for t in told()] == ["einnet", "einnet"]


def test_the_error_that_is_allowed_is_eager_modes() -> None:
    from einnet.api.torch.halves import budgeted
    from einnet.compile.targets.cpu.rounded_products import SPENT
    from einnet.search.settings import Settings

    exact = torch.tensor([1.0, 2.0])

    def asked(wanted: list[Any], exact: list[Any], **settings: Any) -> tuple[float | None, dict[str, float]]:
        """What programs may err on the inputs by which is chosen what rounds: a part of the budget."""
        found = budgeted(Settings(**settings), wanted, exact)
        return found.max_error and SPENT * found.max_error, {name: SPENT * e for name, e in found.output_errors.items()}

    assert asked([exact + 0.02], [exact]) == (pytest.approx(0.01), {})
    assert asked([exact + 1.9], [exact]) == (0.25 * SPENT, {})
    assert asked([exact], [exact]) == (None, {})
    assert asked([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == (None, {})
    assert asked([torch.tensor([1.04, float("inf")])], [exact]) == (pytest.approx(0.04), {}), "of what is finite, 1 is the greatest"
    assert asked([exact + 0.02, exact + 0.1, exact], [exact] * 3) == (pytest.approx(0.01), {"y1": pytest.approx(0.05)}), "y2 says nothing"
    assert budgeted(Settings(max_error=0.1), [exact + 0.02], [exact]) == Settings(max_error=0.1)


def test_a_stored_program_is_found_where_eager_mode_errs_a_little_more() -> None:
    from einnet.api.torch.halves import roughly
    from einnet.search.settings import Settings

    plain, named = Settings(time_budget=3), Settings(max_error=0.01)
    assert roughly(plain, plain) == plain
    assert roughly(named, named) == named
    found = [roughly(plain, Settings(time_budget=3, max_error=e, output_errors={"y1": 2 * e})) for e in (0.0040, 0.0045, 0.0039)]
    assert found[0] == found[1] != found[2]
    assert {(f.time_budget, f.max_error) for f in found[:2]} == {(3, 2.0**-8)} and not found[0].output_errors


def test_a_search_is_told_what_eager_mode_errs(compile_kept, monkeypatch) -> None:
    """And a part in float32 is not."""
    from einnet.api.torch import make
    from einnet.errors import EinNetError

    asked: list[Any] = []

    def program(frozen: Any, count: int, options: Any, settings: Any, *more: Any) -> Any:
        asked.append(settings.max_error)
        raise EinNetError("none is made")

    monkeypatch.setattr(make, "program", program)
    model, x = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8)).eval(), torch.randn(4, 32)
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        torch._dynamo.reset()
        with torch.no_grad(), pytest.warns(RuntimeWarning, match="none is made"):
            compile_kept(model.to(kind))(x.to(kind))
    assert asked[0] is None and 2.0**-10 <= asked[1] <= 2.0**-5 and 2.0**-14 <= asked[2] < asked[1]


JUDGED = [
    ([1.0, 2.0], [1.0, 2.0], True),
    ([1.0, 2.03125], [1.0, 2.015625], True),  # twice as far
    ([1.0, 2.0625], [1.0, 2.015625], False),
    ([1.0, 2.015625], [1.0, 2.0], True),  # eager mode is exact, one rounding is not told
    ([1.0, 2.25], [1.0, 2.0], False),
    ([float("nan"), 2.0], [1.0, 2.0], False),
    ([float("inf"), 2.0], [float("inf"), 2.0], True),  # 1 is too large for the type
    ([float("inf"), 2.25], [float("inf"), 2.0], False),
    ([1.0, 2.0], [float("inf"), 2.0], False),
]


@pytest.mark.parametrize(("found", "wanted", "right"), JUDGED)
def test_whether_results_are_right(found: list[float], wanted: list[float], right: bool) -> None:
    from einnet.api.torch.halves import judged

    exact = [torch.tensor([1.0, 2.0])]
    assert judged([torch.tensor(found).bfloat16()], [torch.tensor(wanted).bfloat16()], exact, 1e-4)[1] is right
    assert judged([torch.tensor(wanted)], [torch.tensor(wanted).bfloat16()], exact, 1e-4) == (float("inf"), False)


def test_whole_results_are_eager_modes_or_those_in_float32() -> None:
    from einnet.api.torch.halves import judged

    wanted, exact, other = (torch.tensor([n, 3]) for n in (1, 2, 4))
    assert [judged([f], [wanted], [exact], 1.0)[1] for f in (wanted, exact, other)] == [True, True, False]


def test_an_error_can_be_asked_for(compile_kept, told):
    """What a model in float32 may err, as in `optimize`."""
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(), torch.randn(8, 64)
    with torch.no_grad():
        found, wanted = compile_kept(model, max_error=1e-2)(x), model(x)
    assert ((found - wanted).abs().max() / wanted.abs().max()).item() < 2e-2
    assert [t.runs for t in told()] == ["einnet"]



