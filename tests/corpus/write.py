"""Writes the corpus: python -m tests.corpus.write taso PATH, or tensat PATH, or tensorright PATH.

PATH is what the projects publish: TASO's graph_subst.pb, Tensat's taso_rules.txt, TensorRight's folder rules/xla. Each rule is written at the
settings that concern it, as a derivation of one step; rules that differ in the names of their inputs alone are written once, under all their names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from einnet.expr.nodes import Read, Scope, indices
from einnet.expr.notation.text import parse
from tests.corpus.published import Rule, Tree, inputs, operators, read_taso, read_tensat, renamed
from tests.corpus.scopes import Builder, Shape
from tests.corpus.shapes import NoShapes, Setting, draws, joins
from tests.corpus.tensorright import instances

HERE = Path(__file__).parent

_PUBLISHED = Setting()
_WINDOWS = (
    Setting(), Setting(kernel=(1, 3), draw=1), Setting(kernel=(2, 2)), Setting(stride=2), Setting(stride=2, draw=1), Setting(padding="valid"),
    Setting(groups=2), Setting(activation="sigmoid"),
)  # fmt: skip
_JOINED = (
    Setting(halves="equal"), Setting(halves="different"), Setting(halves="equal", groups=2), Setting(halves="equal", kernel=(1, 3), draw=1),
    Setting(halves="equal", stride=2), Setting(halves="equal", padding="valid"), Setting(halves="equal", activation="sigmoid"),
)  # fmt: skip
_OTHERS = (Setting(), Setting(draw=1), Setting(activation="sigmoid"))


def settings(rule: Rule) -> Iterator[tuple[Setting, str]]:
    """What a rule is tried with, and the words for that which concerns it."""
    _, left, right = rule
    found = operators(left) | operators(right)
    window = bool(found & {"conv2d", "poolavg", "poolmax"})
    joined = _any(joins, left) or _any(joins, right)
    relu = _any(_has_relu, left) or _any(_has_relu, right)
    concerned = {"stride": window, "padding": window, "kernel": window, "groups": "conv2d" in found, "halves": joined, "activation": relu}
    tried = ((*_JOINED, *_WINDOWS) if joined else _WINDOWS) if window else _OTHERS
    for setting in (_smaller(s) for s in tried) if "enlarge" in found else tried:
        if all(concern or getattr(setting, f) == getattr(_PUBLISHED, f) for f, concern in concerned.items()):
            yield setting, " ".join(w for w in setting.text().split() if concerned[w.partition("=")[0]])


def _smaller(setting: Setting) -> Setting:
    """With a kernel that grows where the rule enlarges it to 3x3."""
    kernels = {(3, 3): (1, 3), (1, 3): (1, 1)}
    return replace(setting, kernel=kernels.get(setting.kernel, setting.kernel))


def _has_relu(tree: Tree) -> bool:
    return isinstance(tree, tuple) and (tree[0] == "relu" or (tree[0] == "conv2d" and tree[4] == 2))


def _any(is_so: Callable[[Tree], bool], tree: Tree) -> bool:
    return is_so(tree) or (isinstance(tree, tuple) and any(_any(is_so, t) for t in tree[1:]))


def at_shapes(rule: Rule, setting: Setting) -> tuple[dict[str, Shape], str, str] | None:
    """The shapes of the inputs and both sides as texts; None where the setting leaves no shapes."""
    _, left, right = rule
    found: list[tuple[str, str]] = []

    def accepts(shapes: dict[str, Shape]) -> bool:
        builder = Builder(shapes, setting)
        try:
            one, other = builder.value(left), builder.value(right)
        except NoShapes:
            return False
        if one.shape != other.shape:
            return False
        found.append((one.scope(), other.scope()))
        return True

    shapes = draws(left, right, setting, accepts, {})
    return (shapes, *found[-1]) if shapes else None


def entry(rule: Rule, setting: Setting, words: str) -> str | None:
    """One derivation of one step, under a line that names the rule and the setting."""
    built = at_shapes(rule, setting)
    if built is None:
        return None
    shapes, left, right = built
    declared = "".join(f"X{n.rpartition('_')[2]} : f32[{','.join(map(str, s))}]\n" for n, s in shapes.items() if n.startswith("input"))
    one, other = parsed(declared, left), parsed(declared, right)
    return f"# {rule[0]}{' ' if words else ''}{words}\n{declared}from {one.text()}\nby published\n   {other.text()}\n"


def parsed(declared: str, text: str) -> Scope:
    """A scope that reads nothing but a scope's same element is that scope."""
    scope = parse(f"{declared}{text}")
    match scope:
        case Scope((*loops,), (), Read(Scope() as inner, index)) if index == indices(loops) and inner.box == scope.box:
            return inner
    return scope


def merged(rules: Sequence[Rule]) -> list[Rule]:
    """Rules that are one up to the names of inputs, under all their names."""
    names: dict[tuple[Tree, Tree], list[str]] = {}
    first: dict[tuple[Tree, Tree], Rule] = {}
    for name, left, right in rules:
        seen = dict.fromkeys((*inputs(left), *inputs(right)))
        mapping = {n: f"input_{k + (1 if _matrix(n) else 101)}" for k, n in enumerate(n for n in seen if n.startswith("input"))}
        key = renamed(left, mapping), renamed(right, mapping)
        names.setdefault(key, []).append(name)
        first.setdefault(key, (name, left, right))
    return [(",".join(names[key]), left, right) for key, (_, left, right) in first.items()]


def _matrix(name: str) -> bool:
    return int(name.rpartition("_")[2]) < 7


def write(suite: str, rules: Sequence[Rule]) -> None:
    entries: list[str] = []
    for rule in merged(rules):
        texts: list[str] = []
        for setting, words in settings(rule):
            text = entry(rule, setting, words)
            if text is not None and text.partition("\n")[2] not in [t.partition("\n")[2] for t in texts]:
                texts.append(text)
        entries += texts or [f"# {rule[0]} without shapes\n"]
    (HERE / f"{suite}.ein").write_text("\n".join(entries), encoding="utf-8")


def write_drawn(suite: str, path: Path) -> None:
    """Rules whose shapes are drawn along with their other integers."""
    found: list[str] = []
    for name, words, text in instances(path):
        if text is None:
            found.append(f"# {name} without shapes\n")
            continue
        declared, _, rest = text.partition("from ")
        left, _, right = rest.partition("\nby published\n   ")
        found.append(f"# {name} {words}\n{declared}from {parsed(declared, left).text()}\nby published\n   {parsed(declared, right).text()}\n")
    (HERE / f"{suite}.ein").write_text("\n".join(found), encoding="utf-8")


def main() -> None:
    suite, path = sys.argv[1], Path(sys.argv[2])
    if suite == "tensorright":
        write_drawn(suite, path)
        return
    write(suite, {"taso": read_taso, "tensat": read_tensat}[suite](path))


if __name__ == "__main__":
    main()
