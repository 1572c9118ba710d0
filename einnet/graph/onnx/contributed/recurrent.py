"""RNN, GRU and LSTM, which the standard defines by equations and no function body: a Scan for each direction.

The products with the inputs are those of all times at once, before the Scan; a step has the products with its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from einnet.graph.onnx.contributed.activations import PARAMETERS
from einnet.graph.onnx.contributed.call import Call, Definition, Undefined, definition, number, numbers

TOLD = {"Affine": ("alpha", "beta"), "ScaledTanh": ("alpha", "beta"), "ThresholdedRelu": ("alpha",)}
"""Functions whose parameters the node must give: the standard names no default, or another than runtimes take."""

KINDS = {kind.lower(): kind for kind in (*PARAMETERS, *TOLD) if kind not in ("Gelu", "HardSwish")}


class Activations:
    """The functions of a node, direction after direction, with their parameters: these are dealt out in order to the functions that have such."""

    def __init__(self, call: Call, directions: int, default: tuple[str, ...]) -> None:
        count = len(default) * directions
        names = [KINDS.get(name.lower(), "") for name in call.strings("activations")][:count] or [*default] * directions
        if len(names) != count or "" in names:
            raise Undefined(f"activations {', '.join(call.strings('activations'))}")
        alphas, betas = iter(call.reals("activation_alpha")), iter(call.reals("activation_beta"))
        self.each = [(name, dealt(name, "alpha", alphas), dealt(name, "beta", betas)) for name in names]
        self.clip = call.real("clip", 0.0)

    def lines(self, position: int, source: str, result: str, clipped: bool) -> list[str]:
        """The lines that apply the function at a position, to a gate clipped where the node says so."""
        kind, alpha, beta = self.each[position]
        told = ", ".join(f"{n} = {v!r}" for n, v in (("alpha", alpha), ("beta", beta)) if v is not None)
        x = f"{result}_x"
        lines = [f"{x} = Clip ({source}, clip_low, clip_high)" if self.clip and clipped else f"{x} = Identity ({source})"]
        if kind in PARAMETERS:
            return [*lines, f"{result} = {kind} {f'<{told}>' if told else ''} ({x})"]
        constants = [number(f"{result}_alpha", alpha or 0.0), number(f"{result}_beta", beta or 0.0)]
        if kind == "Affine":
            return [*lines, *constants, f"{result}_s = Mul ({x}, {result}_alpha)", f"{result} = Add ({result}_s, {result}_beta)"]
        inner = [f"{result}_s = Mul ({x}, {result}_beta)", f"{result}_t = Tanh ({result}_s)"]
        return [*lines, *constants, *inner, f"{result} = Mul ({result}_t, {result}_alpha)"]

    def bounds(self) -> list[str]:
        """What gates are clipped to."""
        return [number("clip_low", -self.clip), number("clip_high", self.clip)] if self.clip else []


def dealt(kind: str, name: str, values: Iterator[float]) -> float | None:
    """The next value for a parameter that the function has, else its default."""
    needed, known = TOLD.get(kind, ()), PARAMETERS.get(kind, {})
    if name not in needed and name not in known:
        return None
    found = next(values, None)
    if found is None and name in needed:
        raise Undefined(f"{kind} without its {name}")
    return known[name] if found is None else found


class Cell:
    """A node of one of these operators: its sizes, its directions, and the lines around what a step does."""

    def __init__(self, call: Call, gates: int, states: str, default: tuple[str, ...]) -> None:
        self.call, self.gates, self.states = call, gates, states
        self.layout = call.integer("layout", 0)
        shape = call.shape("X")
        self.length, self.batch = (shape[1], shape[0]) if self.layout else shape[:2]
        self.directions, self.hidden = call.shape("R")[0], call.shape("R")[2]
        if call.given("sequence_lens") and "sequence_lens" not in call.known:
            raise Undefined("sequence_lens is given")
        self.ends = call.known["sequence_lens"] if call.given("sequence_lens") else (self.length,) * self.batch
        if not all(0 < end <= self.length for end in self.ends):
            raise Undefined(f"sequence_lens ends a sequence of {self.length} times after {', '.join(map(str, sorted(set(self.ends))))}")
        self.early = any(end < self.length for end in self.ends)
        self.default = default
        self.activations = Activations(call, self.directions, default)

    def backward(self, direction: int) -> int:
        """The direction goes from the last time to the first."""
        return int(direction == 1 or self.call.string("direction", "forward") == "reverse")

    def lines(self, step: Step) -> list[str]:
        """All of the node; `step` gives what a direction's step does."""
        order = "1, 0" if self.layout else "0, 1"
        found = [f"x_in = Transpose <perm = [{order}, 2]> (X)", *self.activations.bounds(), numbers("axis0", 0), numbers("axis1", 1), *self.lasting()]
        sequences, finals = [], [list[str]() for _ in self.states]
        for d in range(self.directions):
            found += self.direction(d, step)
            sequences.append(f"y_{d}")
            for n, state in enumerate(self.states):
                finals[n].append(f"{state}_{d}_end")
        found.append(f"y_all = Concat <axis = 1> ({', '.join(sequences)})")
        found.append(f"Y = Transpose <perm = [{'2, 0, 1' if self.layout else '0, 1, 2'}, 3]> (y_all)")
        for state, ends in zip(self.states, finals):
            found.append(f"{state}_all = Concat <axis = 0> ({', '.join(ends)})")
            found.append(f"Y_{state} = Transpose <perm = [{order}, 2]> ({state}_all)")
        return found

    def direction(self, d: int, step: Step) -> list[str]:
        """A Scan over the products of the inputs with W."""
        size = self.gates * self.hidden
        found = [numbers(f"d{d}", d), numbers(f"d{d}_next", d + 1)]
        found += [line for name in "WR" for line in (*self.own(name, d), f"{name}{d}_t = Transpose <perm = [1, 0]> ({name}{d})")]
        found.append(f"xw{d}_plain = MatMul (x_in, W{d}_t)")
        kept = f"xw{d} = Identity (xw{d}_plain)"
        if self.call.given("B"):
            found += [*self.own("B", d), numbers(f"half{d}", size, size), f"wb{d}, rb{d} = Split <axis = 0> (B{d}, half{d})"]
            kept = f"xw{d} = Add (xw{d}_plain, wb{d})"
        found.append(kept)
        found += self.own("P", d) if self.call.given("P") else []
        begun = [line for state in self.states for line in self.initial(state, d)]
        states = ", ".join(f"float[{self.batch}, {self.hidden}] {state}" for state in self.states)
        after = ", ".join(f"float[{self.batch}, {self.hidden}] {state}_{'next' if self.early else 'new'}" for state in self.states)
        ends = ", ".join(f"{state}_{d}_last" for state in self.states)
        back = self.backward(d)
        slices = [(f"float[{self.batch}, {size}] xw", f"xw{d}"), *([("float[1, 1] now", "times")] if self.early else [])]
        told = f"num_scan_inputs = {len(slices)}, scan_input_directions = [{', '.join([str(back)] * len(slices))}], scan_output_directions = [{back}]"
        results = f"{after}, float[{self.batch}, {self.hidden}] y"
        lines = " ".join([*step(self, d), *self.handed_on()])
        body = f"step{d} ({states}, {', '.join(formal for formal, _ in slices)}) => ({results}) {{ {lines} }}"
        given = ", ".join([*(f"{state}_{d}" for state in self.states), *(whole for _, whole in slices)])
        found += [*begun, f"{ends}, y_{d}_plain = Scan <{told}, body = {body}> ({given})", f"y_{d} = Unsqueeze (y_{d}_plain, axis1)"]
        return [*found, *(f"{state}_{d}_end = Unsqueeze ({state}_{d}_last, axis0)" for state in self.states)]

    def lasting(self) -> list[str]:
        """The times, and when sequences end, where some end early."""
        if not self.early:
            return []
        lines = [numbers("count", *range(self.length)), numbers("along", self.length, 1, 1), "whole = Cast <to = 1> (count)"]
        lines += ["times = Reshape (whole, along)", numbers("last", *self.ends), "lasts = Cast <to = 1> (last)", numbers("over", self.batch, 1)]
        return [*lines, "ends = Reshape (lasts, over)"]

    def handed_on(self) -> list[str]:
        """What a step leaves: a sequence that has ended keeps its states, or has not begun where its last time comes first, and its result is 0."""
        if not self.early:
            return ["y = Identity (h_new)"]
        kept = [f"{state}_next = Where (runs, {state}_new, {state})" for state in self.states]
        return ["runs = Less (now, ends)", *kept, number("nothing", 0.0), "y = Where (runs, h_new, nothing)"]

    def own(self, name: str, d: int) -> list[str]:
        """The direction's part of an operand."""
        return [f"{name}{d}_whole = Slice ({name}, d{d}, d{d}_next, axis0)", f"{name}{d} = Squeeze ({name}{d}_whole, axis0)"]

    def initial(self, state: str, d: int) -> list[str]:
        """What a state begins with."""
        name, axis = f"initial_{state}", 1 if self.layout else 0
        if not self.call.given(name):
            return [numbers(f"{state}_{d}_shape", self.batch, self.hidden), f"{state}_{d} = ConstantOfShape ({state}_{d}_shape)"]
        return [f"{state}_{d}_whole = Slice ({name}, d{d}, d{d}_next, axis{axis})", f"{state}_{d} = Squeeze ({state}_{d}_whole, axis{axis})"]

    def gate(self, d: int, position: int, source: str, result: str, clipped: bool = True) -> list[str]:
        """The activation at a position of a direction."""
        return self.activations.lines(d * len(self.default) + position, source, result, clipped)

    def recurrent(self, d: int, result: str = "hr", state: str = "h", part: str = "") -> list[str]:
        """The product of a state with R^T of all gates, or of a part of them, with its bias."""
        lines = [f"{result}_plain = MatMul ({state}, R{d}_t{part})"]
        return [*lines, f"{result} = Add ({result}_plain, rb{d}{part})" if self.call.given("B") else f"{result} = Identity ({result}_plain)"]

    def divided(self, d: int, *sizes: int) -> list[str]:
        """R^T and its bias in parts of so many gates, which are called 0, 1 and so on."""
        told = numbers("sizes", *(n * self.hidden for n in sizes))
        names = [(f"R{d}_t", -1), *([(f"rb{d}", 0)] if self.call.given("B") else [])]
        ends = ((name, axis, ", ".join(f"{name}{n}" for n in range(len(sizes)))) for name, axis in names)
        return [told, *(f"{each} = Split <axis = {axis}> ({name}, sizes)" for name, axis, each in ends)]


Step = Callable[[Cell, int], list[str]]


def parts(source: str, *names: str) -> str:
    """The gates of a product, in their order."""
    return f"{', '.join(names)} = Split <axis = -1, num_outputs = {len(names)}> ({source})"


@definition("X W R B sequence_lens initial_h", "Y Y_h")
def rnn(call: Call) -> list[str]:
    """h = f(x·W + h·R)."""

    def step(cell: Cell, d: int) -> list[str]:
        return [*cell.recurrent(d), "g = Add (xw, hr)", *cell.gate(d, 0, "g", "h_new")]

    return Cell(call, 1, "h", ("Tanh",)).lines(step)


@definition("X W R B sequence_lens initial_h", "Y Y_h")
def gru(call: Call) -> list[str]:
    """h = (1 - z)*n + z*h, where the reset gate multiplies the state before or after its product."""
    linear = call.integer("linear_before_reset", 0)

    def step(cell: Cell, d: int) -> list[str]:
        found = [parts("xw", "xz", "xr", "xn")]
        if linear:
            found += [*cell.recurrent(d), parts("hr", "hz", "hrr", "hn")]
        else:
            found += [*cell.divided(d, 2, 1), *cell.recurrent(d, "hr", "h", "0"), parts("hr", "hz", "hrr")]
        found += ["gz = Add (xz, hz)", "gr = Add (xr, hrr)", *cell.gate(d, 0, "gz", "z"), *cell.gate(d, 0, "gr", "r")]
        found += ["rn = Mul (r, hn)"] if linear else ["rh = Mul (r, h)", *cell.recurrent(d, "rn", "rh", "1")]
        found += ["gn = Add (xn, rn)", *cell.gate(d, 1, "gn", "n"), "away = Sub (h, n)", "part = Mul (z, away)", "h_new = Add (n, part)"]
        return found

    return Cell(call, 3, "h", ("Sigmoid", "Tanh")).lines(step)


@definition("X W R B sequence_lens initial_h initial_c P", "Y Y_h Y_c")
def lstm(call: Call) -> list[str]:
    """c = f*c + i*g, h = o*tanh(c); peepholes look at c."""
    peepholes = call.given("P")

    def peeped(d: int, name: str, state: str) -> list[str]:
        """The gate before its activation, with what its peephole sees."""
        seen = [f"seen_{name} = Mul (P{name}, {state})", f"g_{name} = Add (s_{name}, seen_{name})"]
        return seen if peepholes else [f"g_{name} = Identity (s_{name})"]

    def step(cell: Cell, d: int) -> list[str]:
        found = [*cell.recurrent(d), "g = Add (xw, hr)", parts("g", "s_i", "s_o", "s_f", "g_c")]
        found += [parts(f"P{d}", "Pi", "Po", "Pf")] if peepholes else []
        found += [*peeped(d, "i", "c"), *cell.gate(d, 0, "g_i", "i")]
        if call.integer("input_forget", 0):
            found += [number("one", 1.0), "f = Sub (one, i)"]
        else:
            found += [*peeped(d, "f", "c"), *cell.gate(d, 0, "g_f", "f")]
        found += [*cell.gate(d, 1, "g_c", "n"), "kept = Mul (f, c)", "new = Mul (i, n)", "c_new = Add (kept, new)"]
        found += [*peeped(d, "o", "c_new"), *cell.gate(d, 0, "g_o", "o"), *cell.gate(d, 2, "c_new", "shown", False), "h_new = Mul (o, shown)"]
        return found

    return Cell(call, 4, "hc", ("Sigmoid", "Tanh", "Tanh")).lines(step)


RECURRENT: dict[str, Definition] = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
