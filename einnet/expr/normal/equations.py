"""Equations of functions between sums of canonical terms: odd and even ones, exponentials, logarithms, whole powers, whole parts.

All hold wherever one side exists: exp is never 0 and exists everywhere, so that exp(y) leaves a logarithm as y and a denominator as exp(-y), out of
the sum that it is a factor of, too: the shift of a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from einnet.expr.functions import FUNCTIONS
from einnet.expr.nodes import Body, Call, Const, Div, Mul, used_names
from einnet.expr.normal.piecewise import ONE, ORDERED, Forms, Piecewise, Sum, direction_of, number, scaled
from einnet.expr.normal.terms import Term
from einnet.expr.normal.totals import partial

_WHOLE = frozenset({"floor", "ceil"})
EQUATED = frozenset(f.name for f in FUNCTIONS.values() if f.mirror) - ORDERED | _WHOLE | {"log", "pow"}
_MOST_POWER = 4


@dataclass(frozen=True)
class Functions:
    """The functions of EQUATED over some forms; results are terms that are not yet collected, None where no equation is known."""

    forms: Forms

    def call(self, name: str, args: Sequence[Sum]) -> list[Term] | None:
        """A function of sums."""
        x = args[0]
        if name == "log":
            return self.logarithm(x)
        if name == "pow":
            return self.power(x, args[1])
        if not x or any(partial(t.factors) for t in x):
            return None
        if name in _WHOLE:
            return self.whole(name, x)
        first = Piecewise(self.forms).first(x)
        if first > 0 or all(map(number, x)):
            return None
        mirror = FUNCTIONS[name].mirror
        if mirror is None:
            return None
        turned = self.lone(name, scaled(x, Fraction(-1)))
        constant = [Term(Fraction(mirror.constant))] if mirror.constant else []
        return [*constant, replace(turned, coefficient=Fraction(mirror.scale)), *scaled(x, Fraction(mirror.slope))]

    def lone(self, name: str, x: Sum) -> Term:
        """A function as a term."""
        return Term(factors=(Call(name, (self.forms.body(x),)),))

    def whole(self, name: str, x: Sum) -> list[Term] | None:
        """floor(x + n) = floor(x) + n for whole n, ceil(x) = -floor(-x)."""
        along, constant = direction_of(x)
        if not along:
            return None
        if Piecewise(self.forms).first(x) < 0:
            turned = self.whole("ceil" if name == "floor" else "floor", scaled(x, Fraction(-1)))
            other = "ceil" if name == "floor" else "floor"
            return list(scaled(turned if turned is not None else [self.lone(other, scaled(x, Fraction(-1)))], Fraction(-1)))
        shift = Fraction(math.floor(constant))
        if not shift:
            return None
        rest = self.forms.collected((*along, *([Term(constant - shift)] if constant != shift else [])))
        return [self.lone(name, rest), Term(shift)]

    def power(self, x: Sum, y: Sum) -> list[Term] | None:
        """Whole powers are products, 1/2 is a root."""
        if len(y) != 1 or not number(y[0]):
            return None
        exponent, base = y[0].coefficient, self.forms.body(x)
        if exponent == Fraction(1, 2):
            return [self.lone("sqrt", x)]
        if exponent.denominator != 1 or not 1 <= abs(exponent) <= _MOST_POWER:
            return None
        product: Body = base if abs(exponent) == 1 else Mul((base,) * int(abs(exponent)))
        return list(self.forms.expanded(product if exponent > 0 else Div(ONE, product)))

    def logarithm(self, x: Sum) -> list[Term] | None:
        """log(exp(y)·z) = y + log(z); log(1 + exp(y)) = softplus(y)."""
        if len(x) == 2:
            inner = self.beside_one(x)
            return None if inner is None else list(self.forms.expanded(Call("softplus", (self.forms.body(inner),))))
        if len(x) != 1:
            return None
        outside, rest = self.freed(x[0])
        if not outside:
            return None
        return [*outside, *self.forms.expanded(Call("log", (self.forms.body(self.forms.collected((rest,))),)))]

    def beside_one(self, x: Sum) -> Sum | None:
        """y, of a sum 1 + exp(y)."""
        ones, others = [t for t in x if number(t) and t.coefficient == 1], [t for t in x if not number(t)]
        return self.exponent(others[0]) if ones and others else None

    def exponent(self, t: Term) -> Sum | None:
        """y, of a term exp(y)."""
        alone = t.coefficient == 1 and len(t.factors) == 1 and not (t.sums or t.conds or t.divisors)
        f = t.factors[0] if alone else None
        return self.forms.expanded(f.args[0]) if isinstance(f, Call) and f.name == "exp" else None

    def freed(self, t: Term) -> tuple[Sum, Term]:
        """y and the rest, of a term exp(y)·rest in which y does not depend on what is summed."""
        names = {i.name for i in t.sums}
        forms = self.forms.over(t.sums)
        outside: list[Term] = []
        factors: list[Body] = []
        for f in t.factors:
            if not isinstance(f, Call) or f.name != "exp":
                factors.append(f)
                continue
            terms = forms.expanded(f.args[0])
            free = [u for u in terms if not u.names() & names and not partial(u.factors)]
            bound = tuple(u for u in terms if u not in free)
            outside += free
            if bound:
                factors.append(Call("exp", (forms.body(bound),)))
        return tuple(outside), replace(t, factors=tuple(factors))

    def reciprocal(self, x: Sum) -> list[Term] | None:
        """1/(1 + exp(y)) = sigmoid(-y), and `inverse` of one term."""
        if len(x) == 2:
            inner = self.beside_one(x)
            return None if inner is None else list(self.forms.expanded(Call("sigmoid", (self.forms.body(scaled(inner, Fraction(-1))),))))
        return self.inverse(x[0]) if len(x) == 1 and x[0].coefficient and not x[0].conds and not x[0].divisors else None

    def inverse(self, t: Term) -> list[Term] | None:
        """1/(exp(y)·c·z·Σ w) = exp(-y)/c · 1/z · 1/Σ w, where that says anything else than 1/t."""
        outside, rest = self.freed(t)
        names = {i.name for i in rest.sums}
        free = [f for f in rest.factors if not used_names(f) & names]
        bound = replace(rest, coefficient=Fraction(1), factors=tuple(f for f in rest.factors if f not in free))
        if not outside and (not names or not free and rest.coefficient == 1):
            return None
        factors: list[Body] = [Div(ONE, f) for f in free]
        if outside:
            factors.append(Call("exp", (self.forms.body(scaled(outside, Fraction(-1))),)))
        if names:
            factors.append(Div(Const(Fraction(1)), self.forms.body(self.forms.collected((bound,)))))
        return [Term(1 / rest.coefficient, factors=tuple(factors))]
