"""Graphs in which some sizes change from call to call: what has fixed ones is a program in pieces."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install -e '.[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install -e '.[torch]')")

from einnet.api.torch import pieces  # noqa: E402
from einnet.api.torch.part import STILL  # noqa: E402
from einnet.api.torch.pieces import Group  # noqa: E402

nn, F = torch.nn, torch.nn.functional
HEADS, WIDTH = 2, 32


class Layer(nn.Module):
    """Attention of one new token to a cache that grows, and what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        q, k, v = (t.view(1, 1, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.inner(self.norm(x)).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        found = F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(1, 1, WIDTH)
        x = x + self.outer(found)
        return x + self.down(F.gelu(self.up(x))), keys, values


class Decoder(nn.Module):
    """Two layers and the scores of tokens, by the table that tokens are read from."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(50, WIDTH), nn.ModuleList([Layer(), Layer()])

    def forward(self, token: Any, *caches: Any) -> Any:
        x, grown = self.table(token), []
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            x, keys, values = layer(x, keys, values)
            grown += [keys, values]
        return F.linear(x, self.table.weight), *grown


def caches(length: int) -> list[Any]:
    return [torch.randn(1, HEADS, length, WIDTH // HEADS) for _ in range(4)]


def token() -> Any:
    return torch.randint(0, 50, (1, 1))


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    """The groups of the test's graphs."""
    found: list[Group] = []
    begin = Group.__init__

    def noted(self: Group, *args: Any) -> None:
        begin(self, *args)
        found.append(self)

    monkeypatch.setattr(Group, "__init__", noted)
    return found


@pytest.fixture
def growing(compile_kept: Any, groups: list[Group]) -> tuple[Any, Any, Group]:
    """A decoder, what is compiled of it, and the pieces of its graph for caches that grow."""
    model = Decoder().eval()
    fast = compile_kept(model)
    with torch.no_grad():
        for length in (5, 6):  # dynamo takes the length for fixed until it changes
            given = token(), *caches(length)
            same(fast(*given), model(*given))
    (group,) = groups
    return model, fast, group


def programs(group: Group) -> int:
    """How many pieces run a program."""
    return sum(any(isinstance(known.runs, pieces.Bound) for known in piece.known) for piece in group.pieces)


def test_one_program_in_pieces_serves_all_lengths_of_a_cache(growing: Any, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, fast, group = growing
    assert programs(group) == len(group.pieces) == 3
    (one,) = group.part.told
    assert group.part.settings.whole == "never"
    assert (one.part, one.runs) == ("part 0 in 3 pieces", "einnet") and one.error is not None and one.error < 1e-5
    calls = []
    for piece in group.pieces:
        monkeypatch.setattr(piece, "module", lambda *args: calls.append(args))  # eager mode
    with torch.no_grad():
        for length in (7, 6, 40, 7):
            given = token(), *caches(length)
            same(fast(*given), model(*given))
    assert not calls and len(group.part.told) == 1
    assert {known.runs.executable.constant_bytes for piece in group.pieces for known in piece.known} == {0}


def test_weights_that_two_pieces_read_are_one(growing: Any) -> None:
    """The table is read for the token and for the scores."""
    model, _, group = growing
    assert len(group.part.weights) == len(list(model.parameters()))


@pytest.mark.parametrize("written", ["table.weight", "layers.1.up.bias"])
def test_weights_that_are_written_are_never_stale_and_get_a_program_again(written: str, growing: Any) -> None:
    model, fast, group = growing
    with torch.no_grad():
        model.get_parameter(written).mul_(-2.0)
        for n in range(STILL + 3):
            given = token(), *caches(8 + n)
            same(fast(*given), model(*given))
        assert len(group.part.told) == 2
        assert not group._call.missing and [len(piece.known) for piece in group.pieces] == [1, 1, 1]


def test_one_graph_serves_modules_of_different_weights(compile_kept: Any, groups: list[Group]) -> None:
    """As where each layer is compiled by itself: all are of one class."""
    models = [Decoder().eval(), Decoder().eval()]
    fast = compile_kept(lambda model, *given: model(*given))
    with torch.no_grad():
        for n in range(6):
            for model in models:
                given = token(), *caches(5 + n)
                same(fast(model, *given), model(*given))
    shared = [group for group in groups if len(group.part.told) == 2]
    assert shared and all([len(piece.known) for piece in group.pieces] == [2, 2, 2] for group in shared)


def test_weights_that_change_in_every_call_have_no_program(growing: Any) -> None:
    model, fast, group = growing
    with torch.no_grad():
        for n in range(STILL + 2):
            model.layers[0].up.weight.add_(0.1)
            given = token(), *caches(8 + n)
            same(fast(*given), model(*given))
    assert len(group.part.told) == 1


def test_weights_as_inputs_are_read_in_every_call(compile_kept: Any, groups: list[Group]) -> None:
    model = Decoder().eval()
    fast = compile_kept(model, weights="inputs")
    with torch.no_grad():
        for n in range(4):
            given = token(), *caches(5 + n)
            same(fast(*given), model(*given))
            model.layers[1].down.weight.add_(1.0)
    (group,) = groups
    assert programs(group) == 3 and len(group.part.told) == 1


def test_pieces_of_a_stored_program_share_its_constants(
    compile_kept: Any, groups: list[Group], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """They lie in a file and are read when they are asked for."""
    monkeypatch.setenv("EINNET_CACHE", str(tmp_path))
    model = Decoder().eval()
    for stored in (False, True):
        torch._dynamo.reset()
        fast = compile_kept(model, store=True)
        with torch.no_grad():
            for n in range(3):
                given = token(), *caches(5 + n)
                same(fast(*given), model(*given))
        group = groups[-1]
        assert [told.stored for told in group.part.told] == [stored] and programs(group) == 3
        assert {known.runs.executable.constant_bytes for piece in group.pieces for known in piece.known} == {0}


def test_pieces_stay_in_eager_mode_where_their_program_is_no_faster(compile_kept: Any, groups: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("einnet.api.torch.eager_contest.in_turns", lambda *_: (False, 1.0, 2.0))
    model = Decoder().eval()
    fast = compile_kept(model, slower=False)
    with torch.no_grad():
        for n in range(4):
            given = token(), *caches(5 + n)
            same(fast(*given), model(*given))
    (group,) = groups
    assert [t.runs for t in group.part.told] == ["eager"]
    for piece in group.pieces:
        monkeypatch.setattr(piece, "known", None)  # none is called any more
    with torch.no_grad():
        same(fast(*given), model(*given))


def test_a_program_that_cannot_be_taken_apart_stays_out(compile_kept: Any, groups: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hands several pieces to ONNX Runtime in one node."""
    monkeypatch.setattr(pieces.Bound, "piece", lambda *_: None)
    model = Decoder().eval()
    fast = compile_kept(model)
    with torch.no_grad():
        for n in range(3):
            given = token(), *caches(5 + n)
            same(fast(*given), model(*given))
    assert programs(groups[0]) == 0 and [t.why for t in groups[0].part.told] == ["its program cannot be taken apart"]


def test_a_batch_that_changes_leaves_nothing_fixed(compile_kept: Any, groups: list[Group]) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)).eval()
    fast = compile_kept(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for n in (3, 4, 5):
            x = torch.randn(n, WIDTH)
            same([fast(x)], [model(x)])
    assert not groups


def test_every_size_has_a_program_of_its_own_where_that_is_asked_for(compile_kept: Any, groups: list[Group], told: Any) -> None:
    model = Decoder().eval()
    fast = compile_kept(model, sizes="all")
    with torch.no_grad():
        for n in range(3):
            given = token(), *caches(5 + n)
            same(fast(*given), model(*given))
    assert not groups and len(told()) == 3


def test_graphs_together_give_what_they_give() -> None:
    def traced(call: Any) -> Any:
        return torch.fx.symbolic_trace(call)

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("by", torch.tensor(3.0))

        def forward(self, x: Any, y: Any) -> Any:
            return x * self.by, operator.add(x, y)

    one, two = traced(Scaled()), traced(lambda x, y: x - y)
    joint = pieces.together([one, two], [[0, 1], [2, 1]])
    x, y, z = torch.randn(3, 4)
    found = joint(x, y, z)
    assert len(found) == 3 and all(torch.equal(a, b) for a, b in zip(found, (x * 3.0, x + y, z - y), strict=True))
