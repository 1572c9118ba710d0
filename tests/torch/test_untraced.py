"""A part as an exported program, without torch's tracing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn, F = torch.nn, torch.nn.functional


class Mixed(nn.Module):  # type: ignore[misc]
    """Integers with floats, a split, a comparison, a number in a tensor's place, a weight that is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))

    def forward(self, x: Any, n: Any) -> Any:
        a, b = (x @ self.weight.t() + n).split(3, -1)
        return torch.where(n > 2, 1 - a, b).softmax(-1) @ self.weight[:3], n * 2.5


MODELS = {
    "mixed": (Mixed, lambda: (torch.randn(5, 4), torch.arange(5).unsqueeze(1))),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)), lambda: (torch.randn(2, 3, 8, 8),)
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), lambda: (torch.randn(2, 5, 16),)),
}  # fmt: skip


def frozen(name: str) -> tuple[Any, Any, int]:
    """A model as a part: its graph, inputs, and the number of its outputs."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from einnet.api.torch.frozen import freeze
    from einnet.api.torch.order import outputs
    from einnet.api.torch.partition import decompositions

    made, inputs = MODELS[name]
    model, args = made().eval(), inputs()
    with torch.no_grad():
        part = make_fx(lambda *args: torch.func.functional_call(model, dict(model.state_dict()), args), dict(decompositions()))(*args)
        return freeze(part, args, ()), args, len(outputs(part(*args)))


def operators(model: Any) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_a_traced_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    from einnet.api.torch.order import outputs
    from einnet.graph.onnx.exported import traced

    part, args, count = frozen(name)
    with part.onnx(count) as model:
        pass
    monkeypatch.setattr("einnet.api.torch.frozen.as_program", lambda module, inputs, weights: traced(module, inputs))
    with part.onnx(count) as wanted:
        pass
    assert operators(model) == operators(wanted)
    assert [i.name for i in model.graph.input] == part.names and [o.name for o in model.graph.output] == [f"y{n}" for n in range(count)]
    with torch.no_grad():
        exact = outputs(part.module(*args))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for found, value in zip(session.run(None, {n: x.numpy() for n, x in zip(part.names, args)}), exact, strict=True):
        assert found.dtype == value.numpy().dtype
        np.testing.assert_allclose(found, value.numpy(), rtol=1e-4, atol=1e-5)


def test_nothing_is_decomposed_again() -> None:
    from einnet.api.torch.untraced import as_program

    part, _, _ = frozen("mixed")
    program = as_program(part.module, part.inputs, part.weights)
    assert program.run_decompositions({}) is program
    assert [spec.target for spec in program.graph_signature.input_specs if spec.target] == list(part.weights)


def test_what_torch_does_not_take_so_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    from einnet.graph.onnx.exported import traced

    part, _, count = frozen("mixed")
    seen: list[Any] = []
    monkeypatch.setattr("einnet.api.torch.frozen.traced", lambda module, inputs: (seen.append(module), traced(module, inputs))[1])
    monkeypatch.delattr("einnet.api.torch.untraced.FakeTensorProp.propagate")
    with part.onnx(count) as model:
        assert seen == [part.module] and len(model.graph.output) == count


@pytest.mark.parametrize("told", [True, False])
def test_what_the_exporter_knows_is_looked_up_once(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that does not tell it exports as it always does."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from einnet.graph.onnx import exported

    part, _, count = frozen("mixed")
    exported.registry()
    looked: list[int] = []
    found = ONNXRegistry.from_torchlib
    monkeypatch.setattr(ONNXRegistry, "from_torchlib", staticmethod(lambda **kwargs: (looked.append(1), found(**kwargs))[1]))
    if not told:
        monkeypatch.setattr(exported, "registry", lambda: None)
    models = []
    for _ in range(2):
        with part.onnx(count) as model:
            models.append(model)
    assert len(looked) == (0 if told else 2)
    assert operators(models[0]) == operators(models[1]) and len(models[0].graph.node) > 5
    assert [o.version for o in models[0].opset_import if not o.domain] == [20]
