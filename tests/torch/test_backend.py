"""`torch.compile(model, backend="einnet")` against eager mode."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")
nn, F = torch.nn, torch.nn.functional


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.norm, self.causal = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32), causal

    def forward(self, x: Any) -> Any:
        heads = [t.view(t.shape[0], t.shape[1], 4, 8).transpose(1, 2) for t in self.inner(self.norm(x)).chunk(3, -1)]
        found = F.scaled_dot_product_attention(*heads, is_causal=self.causal)
        return x + self.outer(found.transpose(1, 2).reshape(x.shape))


class Gathering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(50, 16), nn.Linear(16, 5)

    def forward(self, tokens: Any) -> Any:
        scores = self.out(self.table(tokens).mean(1))
        return scores, scores.argmax(-1), scores > 0


def image(*shape: int) -> Any:
    return torch.randn(*shape)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), lambda: image(1, 3, 16, 16)),
    "transposed convolution": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.Tanh()), lambda: image(1, 4, 8, 8)),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(), nn.Conv2d(8, 4, 1)), lambda: image(1, 8, 9, 9)),
    "1-d": (lambda: nn.Sequential(nn.Conv1d(4, 8, 5, dilation=2), nn.GELU()), lambda: image(2, 4, 40)),
    "3-d": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten()), lambda: image(1, 2, 6, 6, 6)),
    "perceptron": (lambda: nn.Sequential(nn.Linear(20, 30), nn.SiLU(), nn.Linear(30, 7), nn.Softmax(-1)), lambda: image(4, 20)),
    "attention": (lambda: Attention(False), lambda: image(2, 12, 32)),
    "causal attention": (lambda: Attention(True), lambda: image(2, 12, 32)),
    "embedding": (Gathering, lambda: torch.randint(0, 50, (3, 6))),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.LeakyReLU(0.1), nn.Upsample(scale_factor=2)), lambda: image(1, 8, 5, 5)),
    "pixel shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()), lambda: image(1, 3, 7, 7)),
    "whole averages": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d((2, 3)), nn.Tanh()), lambda: image(1, 3, 6, 6)),
    "uneven averages": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d((3, 5)), nn.Tanh()), lambda: image(1, 3, 7, 5)),
    "uneven 3-d averages": (lambda: nn.Sequential(nn.AdaptiveAvgPool3d((2, 4, 3)), nn.Tanh()), lambda: image(1, 2, 3, 5, 4)),
    "variances": (lambda: Lambda(lambda x: (x.var(-1), x.var((0, 1), correction=0, keepdim=True), *torch.var_mean(x, 1))), lambda: image(3, 4, 5)),
    "place of the greatest": (lambda: Lambda(lambda x: x.argmax(1)), lambda: image(3, 11, 2)),
    "running sum": (lambda: Lambda(lambda x: x.cumsum(-1) * torch.sigmoid(x).amax(0)), lambda: image(3, 11)),
}


class Lambda(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(*args)


def close(found: Any, wanted: Any) -> None:
    """The same tensors: types, shapes and strides too."""
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            close(one, other)
        return
    assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


QUICK = ("perceptron", "attention", "embedding")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS])
def test_models_give_what_eager_mode_gives(name, compile_kept, told):
    make, given = MODELS[name]
    model, x, other = make().eval(), given(), given()
    fast = compile_kept(model)
    with torch.no_grad():
        close(fast(x), model(x))
        close(fast(other), model(other))
    assert [t.runs for t in told()] == ["einnet"], told()


def test_a_dynamic_batch_has_a_program_for_each_size(compile_kept, told):
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
    fast = compile_kept(model, dynamic=True, programs=2)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in (4, 7, 4, 9, 7, 5):
            x = torch.randn(batch, 6)
            close(fast(x), model(x))
    assert [t.runs for t in told()] == ["einnet", "einnet", "eager"]
    assert len([w for w in said if "2 programs of it already" in str(w.message)]) == 1


def test_inputs_that_are_written_and_outputs_that_are_views(compile_kept, told):
    def step(x: Any, state: Any) -> Any:
        state.mul_(0.5).add_(x @ x.T)
        y = torch.relu(state) * 2
        return y, y.t(), state[0], x.view(-1)

    fast = compile_kept(step)
    x, state = torch.randn(5, 4), torch.randn(5, 5)
    kept = state.clone()
    with torch.no_grad():
        for _ in range(2):
            found, wanted = fast(x, state), step(x, kept)
            close(found, wanted)
            close(state, kept)
    assert found[1].data_ptr() == found[0].data_ptr()
    assert found[2].data_ptr() == state.data_ptr() and found[3].data_ptr() == x.data_ptr()
    assert {t.runs for t in told()} == {"einnet"}


def test_inputs_of_any_strides_and_outputs_of_torchs_own(compile_kept, told):
    model = nn.Conv2d(4, 6, 3).eval()
    fast = compile_kept(model)
    x = torch.randn(2, 4, 8, 8)
    for given in (x, x.to(memory_format=torch.channels_last), x.transpose(2, 3), x[:, :, ::2, 1:], x[:1].expand(3, 4, 8, 8)):
        with torch.no_grad():
            close(fast(given), model(given))
    assert "eager" not in {t.runs for t in told()}


@pytest.mark.parametrize("dynamic", [None, True])
def test_attention_lies_in_memory_as_torchs_own(dynamic, compile_kept):
    """Who views a result rests on its strides: those of torch's decomposition are others."""
    attention = torch.nn.functional.scaled_dot_product_attention
    fast = compile_kept(lambda x: attention(x, x, x, is_causal=True), dynamic=dynamic)
    for given in (torch.randn(2, 2, 5, 8), torch.randn(2, 5, 2, 8).transpose(1, 2)):
        with torch.no_grad():
            close(fast(given), attention(given, given, given, is_causal=True))


@pytest.mark.parametrize(
    "model",
    [
        lambda x, mask: x + (1.0 - mask)[:, None] * -1e4,
        lambda x, mask: torch.relu(x) * (3 - mask)[:, None],
        lambda x, mask: (0.1 - x).sum(1) + (2 - mask.bool().float()),
        lambda x, mask: torch.where((1 - mask)[:, None] > 0, 2.5 - x, x),
    ],
)
def test_a_mask_is_taken_from_a_number(model, compile_kept, told):
    """torch's exporter takes no number in a tensor's place, where the tensor beside it is to be of another type."""
    x, mask = torch.randn(6, 5), torch.tensor([1, 0, 1, 1, 0, 0])
    with torch.no_grad():
        found = compile_kept(model)(x, mask)
    assert found.dtype == model(x, mask).dtype
    torch.testing.assert_close(found, model(x, mask))
    assert [t.runs for t in told()] == ["einnet"]


def test_several_graphs(compile_kept, told):
    def broken(x: Any) -> Any:
        y = torch.tanh(x @ x)
        torch._dynamo.graph_break()
        return y @ y + x

    x = torch.randn(6, 6)
    with torch.no_grad():
        close(compile_kept(broken)(x), broken(x))
    assert [t.runs for t in told()] == ["einnet", "einnet"]


@pytest.mark.parametrize("kind", [torch.float64, torch.int16, torch.int32])
def test_other_element_types_stay_in_eager_mode(kind, compile_kept, told):
    def call(x: Any) -> Any:
        return (x + x) * x.T

    x = (torch.randn(4, 4) * 5).to(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        close(compile_kept(call)(x), call(x))
    assert told() == []


@pytest.mark.parametrize("pieces", [lambda x: x.split(16, 1), lambda x: x.chunk(2, 1), lambda x: x.view(5, 2, 16).unbind(1)])
def test_a_part_reads_one_piece_of_a_split_and_another_is_an_output(pieces, compile_kept, told):
    """The split stays in the part for the one and stands behind it for the other: a list is no result of a part."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 32), nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            h = self.inner(x)
            gate, kept = pieces(h)
            return self.outer(gate.relu()), kept, h

    model, x = Halves().eval(), image(5, 8)
    with torch.no_grad():
        got, wanted = compile_kept(model)(x), model(x)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert [t.runs for t in told()] == ["einnet"]
    assert got[1].data_ptr() - got[2].data_ptr() == wanted[1].data_ptr() - wanted[2].data_ptr()  # the output lies in another, as in eager mode


def test_what_is_not_taken_stands_between_parts_that_are(compile_kept, told):
    def call(x: Any) -> Any:
        y = (x @ x).relu()
        z = (y.double() / 3).float()
        return torch.sigmoid(z @ y)

    x = torch.randn(5, 5)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="stay in eager mode: .*float64"):
        close(compile_kept(call)(x), call(x))
    assert [t.runs for t in told()] == ["einnet", "einnet"]


def test_random_numbers_are_torchs(compile_kept):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    fast, x = compile_kept(model.train()), torch.randn(3, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        fast(x)
        torch.manual_seed(3)
        found = fast(x)
        torch.manual_seed(3)
        close(found, model(x))


def test_training_runs_in_eager_mode_and_says_so(compile_kept, told):
    model = nn.Linear(5, 2)
    x = torch.randn(3, 5)
    with pytest.warns(RuntimeWarning, match="records gradients and runs in eager mode"):
        compile_kept(model)(x).sum().backward()
    wanted = model.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    close(wanted, model.weight.grad)
    assert told() == []
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"only inference is optimized: call the model under torch\.no_grad"):
        compile_kept(model, strict=True)(x)


WRITES: dict[str, Callable[[Any], object]] = {
    "in place": lambda m: m.weight.mul_(2.0),
    "by data": lambda m: m.weight.data.mul_(2.0),
    "another tensor": lambda m: setattr(m.weight, "data", torch.randn(6, 6)),
    "another parameter": lambda m: setattr(m, "weight", nn.Parameter(torch.randn(6, 6))),
    "a state": lambda m: m.load_state_dict({"weight": torch.randn(6, 6), "bias": torch.randn(6)}),
    "an array": lambda m: m.weight.detach().numpy().__imul__(3.0),
}


@pytest.mark.parametrize("write", [pytest.param(name, marks=() if name == "in place" else pytest.mark.slow) for name in WRITES])
def test_weights_that_change_are_never_stale(write, compile_kept, told):
    model, x = nn.Linear(6, 6).eval(), torch.randn(2, 6)
    fast = compile_kept(model)
    with torch.no_grad():
        close(fast(x), model(x))
        WRITES[write](model)
        for _ in range(5):
            close(fast(x), model(x))
    assert [t.runs for t in told()] == ["einnet", "einnet"], "a program is made again for weights that stay"


def test_weights_that_change_in_every_call_have_no_program(compile_kept, told):
    model, x = nn.Linear(6, 6).eval(), torch.randn(2, 6)
    fast = compile_kept(model)
    with torch.no_grad():
        for _ in range(6):
            close(fast(x), model(x))
            model.weight.add_(1.0)
    assert len(told()) == 1


def test_a_buffer_that_the_model_writes_is_an_input(compile_kept, monkeypatch):
    from einnet.api.torch.program import Bound

    ran: list[int] = []
    right = Bound.__call__
    monkeypatch.setattr(Bound, "__call__", lambda self, args: (ran.append(id(self)), right(self, args))[1])

    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            self.mean.mul_(0.9).add_(0.1 * y.mean(0))
            return y - self.mean

    model, other = Average(), Average()
    other.load_state_dict(model.state_dict())
    fast = compile_kept(model)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(3, 4)
            close(fast(x), other(x))
            close(model.mean, other.mean)
    assert len(ran) > 5 and len(set(ran)) == 1, "one program serves every value"


@pytest.mark.parametrize("faster", [True, False])
def test_what_a_graph_writes_is_written_once_a_call_also_when_it_is_timed(compile_kept, told, monkeypatch, faster):
    from einnet.api.torch import eager_contest

    turns: list[str] = []

    def in_turns(eager: Callable[[], object], program: Callable[[], object], awake_s: float = 0.0) -> tuple[bool, float, float]:
        for name, call in (("eager", eager), ("einnet", program)):
            call()
            turns.append(name)
        return faster, 1.0, 2.0

    monkeypatch.setattr(eager_contest, "in_turns", in_turns)
    model, other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    other.load_state_dict(model.state_dict())
    fast = compile_kept(model, slower=False)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(8, 4)
            close(fast(x), other(x))
            for ours, theirs in zip(model.buffers(), other.buffers(), strict=True):
                close(ours, theirs)
    assert turns == ["eager", "einnet"], "a part that is the whole graph is timed as that alone"
    assert [(t.part, t.runs, t.eager_ms, t.einnet_ms) for t in told()] == [("part 0", "einnet" if faster else "eager", 1.0, 2.0)]


def test_parts_are_timed_by_themselves_where_there_are_several_and_when_their_weights_have_changed(compile_kept, monkeypatch):
    from einnet.api.torch import eager_contest, make

    turns: list[str] = []
    for module, name in ((make, "part"), (eager_contest, "graph")):
        monkeypatch.setattr(module, "in_turns", lambda *_, name=name: (turns.append(name), (True, 1.0, 1.0))[1])
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).train()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        compile_kept(model, slower=False)(torch.randn(3, 8))
        assert turns == ["part", "part", "graph"]
        turns.clear()
        torch._dynamo.reset()
        one, x = nn.Linear(8, 8), torch.randn(3, 8)
        fast = compile_kept(one, slower=False)
        fast(x)
        assert turns == ["graph"]
        one.weight.mul_(2.0)
        for _ in range(4):
            close(fast(x), one(x))
        assert turns == ["graph", "part"]


def test_nobody_watches_while_a_part_is_timed(compile_kept, monkeypatch):
    """torch's mode for a graph's first call runs Python for each operator: eager mode looks slow, and so do a program's tensors."""
    from einnet.api.torch import part

    seen, watched = [], part.make
    monkeypatch.setattr(part, "make", lambda *args: (seen.append(torch._C._len_torch_dispatch_stack()), watched(*args))[1])
    with torch.no_grad():
        compile_kept(nn.Linear(8, 4))(torch.randn(3, 8))
    assert seen == [0]


@pytest.mark.parametrize("rows", [1, 6])
def test_a_counter_that_every_call_adds_to_stays_in_its_table_while_the_graph_is_timed(compile_kept, monkeypatch, rows):
    """As that of a cache of fixed size, in which a model that generates text writes keys and values; the first call may fill it."""
    from einnet.api.torch import make

    monkeypatch.setattr(make, "in_turns", lambda *_: (True, 1.0, 1.0))  # a part has a program, so that the graph is timed

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)
            self.register_buffer("table", torch.zeros(6, 64))
            self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            self.table.index_copy_(0, self.at + torch.arange(rows), self.layer(x))
            self.at.add_(rows)
            return torch.softmax(self.table @ self.table.T, 1) @ self.table

    model, other = Cache(), Cache()
    other.load_state_dict(model.state_dict())
    fast = compile_kept(model, slower=False)
    with torch.no_grad():
        for _ in range(5):
            if rows == 6:
                model.at.zero_()
                other.at.zero_()
            x = torch.randn(rows, 64)
            close(fast(x), other(x))
            close(model.table, other.table)
            close(model.at, other.at)


def test_a_size_that_is_asked_of_a_tensor_cuts_no_part(compile_kept, told):
    def step(x: Any, y: Any) -> Any:
        z = torch.tanh(torch.cat([x, y, y]) @ x.T)
        return torch.softmax(z.reshape(z.size(0), z.shape[1]) / z.numel(), 1) @ torch.ones(z.shape[1], z.shape[0] * 2) + z.shape[0]

    fast = compile_kept(step, dynamic=True)
    with torch.no_grad():
        for n, m in ((3, 4), (5, 2)):
            x, y = torch.randn(n, 6), torch.randn(m, 6)
            close(fast(x, y), step(x, y))
    assert [(t.part, t.runs) for t in told()] == [("part 0", "einnet")] * 2, told()


def test_sizes_are_written_from_those_of_inputs():
    """Sums and products of them; what else there is stays as it is asked for."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from einnet.api.torch.sizes import ASKED, from_inputs

    def asks(x: Any, y: Any) -> Any:
        size = torch.ops.aten.sym_size.int
        z, half = torch.cat([x, y, y]), torch.ops.aten.slice.Tensor(y, 0, 0, 9223372036854775807, 2)
        return z * size(z, 0), z * (size(z, 1) * torch.ops.aten.sym_numel.default(z)), half * size(half, 0), x.view(size(x, 0), 4) + size(x, 1)

    x, y = torch.randn(3, 4), torch.randn(5, 4)
    graph = make_fx(asks, tracing_mode="symbolic")(x, y)
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    sizes = {str(n): n for node in inputs for n in node.meta["val"].shape if not str(n).isdigit()}
    for name, size in sizes.items():
        with graph.graph.inserting_before(inputs[0]):
            graph.graph.placeholder(name).meta["val"] = size
    before = sum(node.target in ASKED for node in graph.graph.nodes)
    from_inputs(graph)
    graph.graph.lint()
    graph.recompile()
    left = [str(node.meta["val"]) for node in graph.graph.nodes if node.target in ASKED]
    assert before == 5 and len(left) == 1 and "//2" in left[0]
    for found, wanted in zip(graph(*(size.node.hint for size in sizes.values()), x, y), asks(x, y), strict=True):
        close(found, wanted)


def test_statistics_of_a_batch_in_training_mode_are_torchs(compile_kept, told):
    model, other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    other.load_state_dict(model.state_dict())
    fast = compile_kept(model)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 4) * 3
            close(fast(x), other(x))
            close(model[1].running_var, other[1].running_var)
            close(model[1].running_mean, other[1].running_mean)
    assert {t.runs for t in told()} == {"einnet"}, told()


def test_one_graph_serves_modules_of_different_weights(compile_kept, told):
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()).eval() for _ in range(3)]

    def call(layer: Any, x: Any) -> Any:
        return layer(x) * 2

    fast, x = compile_kept(call), torch.randn(2, 6)
    with torch.no_grad():
        for layer in (*layers, *layers):
            close(fast(layer, x), call(layer, x))
    assert {t.runs for t in told()} == {"einnet"}


def test_weights_as_inputs(compile_kept, told):
    model, x = nn.Linear(6, 6).eval(), torch.randn(2, 6)
    fast = compile_kept(model, weights="inputs")
    with torch.no_grad():
        for _ in range(3):
            close(fast(x), model(x))
            model.weight.add_(1.0)
    assert [t.runs for t in told()] == ["einnet"]


def test_inference_mode(compile_kept, told):
    x = torch.randn(2, 6)
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(6, 6), nn.ReLU()).eval()
        fast = compile_kept(model)
        close(fast(x), model(x))
        model[0].weight.mul_(2.0)
        close(fast(x), model(x))
    assert "einnet" in {t.runs for t in told()}


def test_threads_share_a_program(compile_kept):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    fast = compile_kept(model)
    given = [torch.randn(5, 32) for _ in range(4)]
    with torch.no_grad():
        fast(given[0])
        wanted = [model(x) for x in given]
    wrong: list[int] = []

    def run(n: int) -> None:
        with torch.no_grad():
            wrong.extend(n for _ in range(40) if not torch.allclose(fast(given[n]), wanted[n], atol=1e-4))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
