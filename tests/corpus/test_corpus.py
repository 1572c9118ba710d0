"""Other people's rules: what the checker says of them is what is stored, and what they are turned into is what their operators mean."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from einnet.derivation.checker.check import Difference, check_equal
from einnet.derivation.einfile import parse
from einnet.expr.nodes import tensors
from einnet.expr.notation.text import parse as parse_scope
from einnet.expr.values.evaluate import evaluate
from tests.corpus.published import Tree, inputs, read_taso, read_tensat
from tests.corpus.scopes import Builder, Shape
from tests.corpus.shapes import NoShapes, Setting
from tests.corpus.tensorright import instances
from tests.corpus.verdicts import SUITES, Entry, Verdict, condition, differences, entries, expected, lines, verdict, verdicts
from tests.corpus.write import at_shapes, merged, settings
from tests.search.mutations import mutants

EACH = 29
"""Of so many pairs a default run compares one, and all of those that are refuted."""


def of_suite(suite: str) -> list[tuple[Entry, str]]:
    """The pairs of a suite, each with the letter of its stored verdict."""
    letters = {line.rules: iter(line.letters) for line in expected() if line.suite == suite}
    return [(entry, next(letters[entry.rules])) for entry in entries(suite) if entry.text]


@pytest.mark.parametrize("suite", SUITES)
def test_a_sample_has_the_stored_verdicts(suite: str) -> None:
    pairs = of_suite(suite)
    chosen = [(e, letter) for n, (e, letter) in enumerate(pairs) if n % EACH == 0 or letter == "r"]
    assert len(chosen) >= 10
    assert [(e.rules, e.setting, verdict(e).word[0]) for e, _ in chosen] == [(e.rules, e.setting, letter) for e, letter in chosen]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_all_have_the_stored_verdicts(suite: str) -> None:
    pairs = [e for e in entries(suite) if e.text]
    found = list(lines(zip(pairs, verdicts(pairs), strict=True)))
    assert not differences([line for line in expected() if line.suite == suite and line.letters], found)


def test_how_many_are_proven() -> None:
    """Always proven: at every setting at which they are not refuted."""
    always = {suite: sum(line.count for line in expected() if line.suite == suite and line.kind in ("proven", "conditional")) for suite in SUITES}
    assert always["taso"] >= 118 and always["tensat"] >= 635 and always["tensorright"] >= 110
    assert not any(line.kind == "refuted" and line.suite == "taso" for line in expected())
    assert all(line.condition for line in expected() if line.kind.startswith("conditional"))


def test_wrong_versions_of_proven_pairs_are_refuted() -> None:
    """No verdict is given for the asking: of every 97th pair, one change of its right side that shows at small shapes."""
    refuted = 0
    for entry, letter in of_suite("taso")[::97]:
        (step,) = parse(entry.text).derivation.steps
        assert letter == "p"
        for _, wrong in list(mutants(step.after))[:8]:
            try:
                check_equal(step.before, wrong)
            except Difference:
                refuted += 1
    assert refuted >= 20


def test_conditions() -> None:
    def seen(setting: str, word: str) -> tuple[Entry, Verdict]:
        return Entry("taso", "1", setting, ""), Verdict(word)

    assert condition([seen("stride=1 groups=1", "proven"), seen("stride=2 groups=1", "proven"), seen("stride=1 groups=2", "refuted")]) == "groups=1"
    both = [seen("a=1 b=1", "proven"), seen("a=2 b=1", "refuted"), seen("a=1 b=2", "refuted")]
    assert condition(both) == "a=1 and b=1"
    assert condition([seen("a=1", "proven"), seen("a=1", "refuted")]) == ""


def field(number: int, value: int | bytes) -> bytes:
    """A field of a Protocol Buffers message."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def operator(kind: int, operands: list[tuple[int, int]], parameters: dict[int, int]) -> bytes:
    inner = b"".join(field(2, field(1, n) + field(2, t)) for n, t in operands)
    return field(1, kind) + inner + b"".join(field(3, field(1, k) + field(2, v)) for k, v in parameters.items())


def test_reading_graphs(tmp_path: Path) -> None:
    """x·y of a product graph, against the second half of a split concatenation of others."""
    left = field(1, operator(18, [(-1, 0), (-2, 0)], {9: 0}))
    right = b"".join(field(2, operator(*o)) for o in (
        (12, [(-1, 0), (-300, 0)], {11: 1, 1: 2, 10: 2}), (13, [(0, 0)], {11: 1, 2: 2}), (17, [(1, 1), (1, 0)], {}),
    ))  # fmt: skip
    outputs = field(3, b"".join(field(k, v) for k, v in ((1, 0), (2, 2), (3, 0), (4, 0))))
    path = tmp_path / "rules.pb"
    path.write_bytes(field(1, left + right + outputs) * 2)
    joined: Tree = ("concat", 1, "input_1", "input_300")
    expected_pair = ("matmul", 0, "input_1", "input_2"), ("ewmul", ("split_1", 1, joined), ("split_0", 1, joined))
    assert read_taso(path) == [("0", *expected_pair), ("1", *expected_pair)]


def test_reading_equations(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    one = "conv2d(1,1,0,2,input_7,Iconv(3,3))==relu(input_7)"
    path.write_text(f"{one}matmul(input_1,Imatmul)==input_1\n{one}\n", encoding="utf-8")
    assert read_tensat(path) == [
        ("0", ("conv2d", 1, 1, 0, 2, "input_7", "Iconv_3_3_0"), ("relu", "input_7")),
        ("1", ("matmul", 0, "input_1", "Imatmul_0"), "input_1"),
    ]


def test_rules_with_other_names_are_one() -> None:
    def twice(x: str, y: str) -> Tree:
        return ("ewadd", x, ("relu", y))

    pairs = (("input_1", "input_2"), ("input_3", "input_2"), ("input_7", "input_8"))
    rules = [(str(n), twice(x, y), x) for n, (x, y) in enumerate(pairs)]
    assert [name for name, _, _ in merged(rules)] == ["0,1", "2"]


def test_shapes_are_solved() -> None:
    """A product with itself is square, a split needs its seam, an operator that asks for two shapes has none."""
    square = at_shapes(("", ("matmul", 0, "input_4", "input_4"), "input_4"), Setting())
    assert square is not None and len(set(square[0]["input_4"])) == 1
    assert at_shapes(("", ("split_0", 0, "input_1"), "input_1"), Setting()) is None
    assert at_shapes(("", ("ewadd", "input_1", ("concat", 1, "input_1", "input_2")), "input_1"), Setting()) is None
    rule = ("", ("relu", ("conv2d", 1, 1, 0, 0, "input_7", "input_10")), ("conv2d", 1, 1, 0, 2, "input_7", "input_10"))
    assert {words.split()[3] for _, words in settings(rule)} == {"groups=1", "groups=2"}
    for setting, words in settings(rule):
        found = at_shapes(rule, setting)
        assert found is not None, words
        x, w = found[0]["input_7"], found[0]["input_10"]
        assert x[1] == w[1] * setting.groups and w[0] % setting.groups == 0 and w[2:] == setting.kernel


def convolution(x: NDArray[np.float64], w: NDArray[np.float64], setting: Setting) -> NDArray[np.float64]:
    """Sums over windows, one element at a time."""
    groups, per = x.shape[1] // w.shape[1], w.shape[0] // (x.shape[1] // w.shape[1])
    extents, pads = [], []
    for size, k in zip(x.shape[2:], w.shape[2:], strict=True):
        out = -(-size // setting.stride) if setting.padding == "same" else (size - k) // setting.stride + 1
        extents.append(out)
        pads.append((max((out - 1) * setting.stride + k - size, 0) + 1) // 2)
    assert groups * per == w.shape[0]
    y = np.zeros((x.shape[0], w.shape[0], *extents))
    for f, h, v in product(range(w.shape[0]), range(extents[0]), range(extents[1])):
        for c, r, s in product(*map(range, w.shape[1:])):
            a, b = h * setting.stride + r - pads[0], v * setting.stride + s - pads[1]
            if 0 <= a < x.shape[2] and 0 <= b < x.shape[3]:
                y[:, f, h, v] += x[:, f // per * w.shape[1] + c, a, b] * w[f, c, r, s]
    return y


@pytest.mark.parametrize("setting", [
    Setting(), Setting(stride=2), Setting(padding="valid"), Setting(padding="valid", stride=2), Setting(kernel=(2, 3)),
    Setting(kernel=(1, 2), stride=2),
], ids=Setting.text)  # fmt: skip
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_and_averages(setting: Setting, groups: int) -> None:
    rng = np.random.default_rng(0)
    arrays = {"X7": rng.integers(-4, 5, (2, 4, 5, 6)).astype(float), "X10": rng.integers(-4, 5, (8, 4 // groups, *setting.kernel)).astype(float)}
    y = computed(("conv2d", 1, 1, 0, 0, "input_7", "input_10"), arrays, setting)
    np.testing.assert_array_equal(y, convolution(arrays["X7"], arrays["X10"], setting))
    pooled = computed(("poolavg", 2, 3, 1, 1, 0, "input_7"), arrays, setting)
    np.testing.assert_allclose(pooled, convolution(arrays["X7"], np.full((4, 1, 2, 3), 1 / 6), setting), atol=1e-12)
    wide = computed(("enlarge", 5, 3, "input_10"), arrays, setting)
    around = [((n - k) // 2, (n - k + 1) // 2) for n, k in zip((5, 3), setting.kernel)]
    np.testing.assert_array_equal(wide, np.pad(arrays["X10"], [(0, 0), (0, 0), *around]))


def test_other_operators() -> None:
    rng = np.random.default_rng(0)
    arrays = {f"X{n}": rng.integers(-9, 10, shape).astype(float) for n, shape in ((1, (2, 3)), (2, (2, 4)), (4, (3, 5)), (7, (1, 2, 3, 4)))}
    a, b, c, x = arrays.values()
    joined: Tree = ("concat", 1, "input_1", "input_2")
    for tree, value in (
        (joined, np.concatenate([a, b], 1)), (("split_1", 1, ("relu", joined)), np.maximum(b, 0)), (("split_0", 1, joined), a),
        (("transpose", ("ewmul", "input_1", "input_1")), (a * a).T), (("matmul", 2, "input_1", "input_4"), np.maximum(a @ c, 0)),
        (("matmul", 0, "input_1", "Imatmul_0"), a), (("ewmul", "input_1", "Iewmul_0"), a),
        (("poolmax", 3, 3, 1, 1, 1, "input_7"), np.max([x[:, :, :, k : k + 2] for k in range(3)], (0, 3))[:, :, None]),
        (("conv2d", 1, 1, 0, 0, "input_7", "Iconv_3_3_0"), x),
    ):  # fmt: skip
        padding = "valid" if tree[0] == "poolmax" else "same"
        np.testing.assert_array_equal(computed(tree, arrays, Setting(padding=padding)), value)
    with pytest.raises(NoShapes):
        computed(("matmul", 0, "input_1", "input_2"), arrays, Setting())


def computed(tree: Tree, arrays: dict[str, NDArray[np.float64]], setting: Setting) -> NDArray[np.float64]:
    shapes: dict[str, Shape] = {f"input_{name[1:]}": a.shape for name, a in arrays.items()}
    shapes |= {"Imatmul_0": (3, 3), "Iewmul_0": (2, 3), "Iconv_3_3_0": (2, 1, 3, 3)}
    text = Builder(shapes, setting).value(tree).scope()
    names = {f"X{n.rpartition('_')[2]}" for n in inputs(tree) if n.startswith("input")}
    declared = "".join(f"{name} : f32[{','.join(map(str, arrays[name].shape))}]\n" for name in names)
    return evaluate(parse_scope(declared + text), {name: arrays[name] for name in names}, "float64")


RULE = """
rule01 :: forall a. NumRule a
rule01 _ = do
  rclass <- newRClass "rclass"
  [size, first, last, step] <- newMaps ["size", "first", "last", "step"] rclass
  -- a comment
  tA <- newTensor @a "A" [rclass --> size @@ "here"]
  value <- constant @a "v" [rclass --> size @@ "here"]
  lhs <-
    slice (numBinOp Mul tA value) $
      Slice
        { start = [ByLabel "here" --> first],
          end = [ByLabel "here" --> last],
          strides = [ByLabel "here" --> step]
        }
  precondition [step, first] $ \\[p, s] -> p .== 2 .&& s .>= 1
  long <- combineMap "long" (\\[s, e, p] -> divOr 0 (e - s + p - 1) p) [first, last, step]
  other <- constant @a "v" [rclass --> long @@ "here"]
  let rhs = other
  rewrite ("A rule" <> " with a name") lhs rhs

main :: IO ()
main = do
  verifyNumDSL rule01
"""


def test_reading_rules_with_preconditions(tmp_path: Path) -> None:
    """What is drawn obeys the preconditions and is valid: a slice lies within what is sliced, by steps of 2 from 1 on."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "Main.hs").write_text(RULE.replace("\\\\", "\\"), encoding="utf-8")
    found = list(instances(tmp_path))
    assert [(name, words) for name, words, _ in found] == [("one.rule01", "rank=1")] * 2 + [("one.rule01", "rank=2")] * 2
    for _, _, text in found:
        assert text is not None
        (step,) = parse(text).derivation.steps
        size = tensors(step.before)["TA"].shape
        rng = np.random.default_rng(0)
        a, v = rng.standard_normal(size), rng.standard_normal(())
        whole = evaluate(step.before, {"TA": a, "Sv": v}, "float64")
        assert step.before.box == step.after.box and whole.size
        for starts in product(*(range(1, n) for n in size)):
            if np.array_equal(whole, (a * v)[tuple(slice(s, s + 2 * n - 1, 2) for s, n in zip(starts, whole.shape, strict=True))]):
                break
        else:
            raise AssertionError("no slice by steps of 2")
        assert verdict(Entry("", "", "", text)).word == "refuted"


def test_differences_are_told() -> None:
    first = expected()[0]
    assert not differences([first], [first])
    assert differences([first], [replace(first, letters="r")]) and differences([first], [])
