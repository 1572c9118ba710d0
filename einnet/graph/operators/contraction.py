"""MatMul, Gemm and Einsum."""

from __future__ import annotations

from collections.abc import Sequence

from einnet.expr.index import Index, var
from einnet.expr.nodes import Body, Iter, Read, Scope, Tensor, make_add, make_mul
from einnet.graph.operators.builders import at, broadcast, broadcast_index, scaled
from einnet.graph.operators.op import Op, Result, Unsupported


def batch_names(rank: int) -> tuple[str, ...]:
    return ("b",) if rank == 1 else tuple(f"b{k}" for k in range(rank))


def matmul(op: Op) -> Result:
    """Y[b..,m,n] = Σ[k] A[b..,m,k] B[b..,k,n]; a one-dimensional operand has no m or no n; batch dimensions broadcast."""
    a, b = op.input(0).tensor, op.input(1).tensor
    rank = max(len(a.shape), len(b.shape)) - 2
    rows, columns = len(a.shape) > 1, len(b.shape) > 1
    names = (*batch_names(max(rank, 0)), *("m" * rows), *("n" * columns))
    loops = tuple(Iter(name, 0, n) for name, n in zip(names, op.out.shape, strict=True))
    batch = loops[: max(rank, 0)]
    left = (*broadcast_index(a.shape[:-2], batch), *([var("m")] if rows else []), var("k"))
    right = (*broadcast_index(b.shape[:-2], batch), var("k"), *([var("n")] if columns else []))
    return Scope(loops, (Iter("k", 0, a.shape[-1]),), make_mul((Read(a, left), Read(b, right))))


def gemm(op: Op) -> Result:
    """Y[m,n] = alpha·Σ[k] A[m,k] B[k,n] + beta·C[m,n], either operand transposed."""
    a, b = op.input(0).tensor, op.input(1).tensor
    turned, flipped = op.integer("transA", 0), op.integer("transB", 0)
    loops = (Iter("m", 0, op.out.shape[0]), Iter("n", 0, op.out.shape[1]))
    m, n, k = var("m"), var("n"), var("k")
    body = make_mul((Read(a, (k, m) if turned else (m, k)), Read(b, (n, k) if flipped else (k, n))))
    product = Scope(loops, (Iter("k", 0, a.shape[0] if turned else a.shape[1]),), body)
    alpha, beta = op.real("alpha", 1.0), op.real("beta", 1.0)
    added = op.given(2) and beta != 0
    if alpha == 1 and not added:
        return product
    result: Body = scaled(at(op.step(product, "matmul"), loops), alpha)
    return Scope(loops, (), make_add((result, scaled(broadcast(op, 2, loops), beta))) if added else result)


def einsum_terms(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]] | None:
    """Letters of each operand and of the result; the ellipsis stands for `.0`, `.1`, ... counted from the last. None if malformed."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    hidden = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks)]
    widest = max(hidden)

    def letters(term: str, count: int) -> list[str]:
        head, dots, tail = term.partition("...")
        return [*head, *(f".{k}" for k in range(widest - count, widest) if dots), *tail]

    operands = [letters(term, count) for term, count in zip(terms, hidden)]
    if any(len(found) != rank for found, rank in zip(operands, ranks)):
        return None
    if arrow:
        return operands, letters(right, widest)
    every = [name for found in operands for name in found]
    once = sorted({name for name in every if every.count(name) == 1 and not name.startswith(".")})
    return operands, [*(f".{k}" for k in range(widest)), *once]


def einsum(op: Op) -> Result:
    """Letters that are not in the result are summed. More than two operands are multiplied from the left, two at a time."""
    operands = [op.input(n).tensor for n in range(len(op.inputs))]
    parsed = einsum_terms(op.string("equation", ""), [len(t.shape) for t in operands])
    if parsed is None:
        return Unsupported("the equation does not fit the operands")
    terms, result = parsed
    while len(operands) > 2:
        later = {letter for term in (*terms[2:], result) for letter in term}
        wanted = [letter for letter in dict.fromkeys((*terms[0], *terms[1])) if letter in later]
        operands[:2] = [op.step(contracted(operands[:2], terms[:2], wanted), "einsum")]
        terms[:2] = [wanted]
    return contracted(operands, terms, result)


def contracted(operands: Sequence[Tensor], terms: Sequence[Sequence[str]], result: Sequence[str]) -> Scope:
    """The product of some operands, whose dimensions have letters, summed over those that are not in the result."""
    extents: dict[str, int] = {}
    for tensor, term in zip(operands, terms):
        for letter, n in zip(term, tensor.shape):
            extents[letter] = max(extents.get(letter, 1), n)
    names = {letter: letter if letter.isalpha() else f"b{letter[1:]}" for letter in extents}

    def index(tensor: Tensor, term: Sequence[str]) -> tuple[Index, ...]:
        return tuple(var(names[letter]) if n > 1 else Index() for letter, n in zip(term, tensor.shape))

    loops = tuple(Iter(names[letter], 0, extents[letter]) for letter in result)
    sums = tuple(Iter(names[letter], 0, n) for letter, n in extents.items() if letter not in result)
    return Scope(loops, sums, make_mul(Read(t, index(t, term)) for t, term in zip(operands, terms)))
