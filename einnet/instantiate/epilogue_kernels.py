"""What a vendor kernel applies to its result, as a generated kernel of its own; and which of it loses NaN."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isinf

from einnet.expr.index import as_index, var
from einnet.expr.nodes import Body, Const, Iter, Number, Read, Scope, Tensor, make_add, make_mul
from einnet.instantiate.kernels import EOperator, Kernel, Post, VendorKernel, View
from einnet.instantiate.kernels.generated import expressed
from einnet.instantiate.kernels.posts import WITHOUT_OPERAND


def loses_nan(post: Post) -> bool:
    """oneDNN takes a maximum with a bound that keeps NaN in its other operand; a slope below 0 it multiplies by, which keeps NaN."""
    return post.kind == "clip" or (post.kind == "relu" and post.alpha == 0.0)


def nan_lost(kernel: Kernel) -> bool:
    """A vendor kernel that gives a number where its product is NaN."""
    return any(map(loses_nan, kernel.posts)) or (isinstance(kernel, VendorKernel) and kernel.loses_nan)


def keeping_nan(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernel; one whose posts lose NaN without these from the first that does, and a generated kernel that applies them in place.

    An operator that loses NaN itself is generated.
    """
    if not isinstance(kernel, VendorKernel) or not nan_lost(kernel):
        return (kernel,)
    if kernel.loses_nan:
        plain = expressed(kernel.with_posts(()))
        return (plain, posted(kernel.result, kernel.posts, kernel.result)) if kernel.posts else (plain,)
    first = next(n for n, p in enumerate(kernel.posts) if loses_nan(p))
    out = kernel.result
    return kernel.with_posts(kernel.posts[:first]), posted(out, kernel.posts[first:], out)


def posted(source: View, posts: Sequence[Post], out: View) -> EOperator:
    """out = posts(source), element by element."""
    loops = tuple(Iter(f"i{n}", 0, extent) for n, extent in enumerate(out.shape))
    here = tuple(var(i.name) for i in loops)
    operands = [("Y", source)]
    body: Body = Read(Tensor("Y", source.shape), here)
    for n, post in enumerate(posts):
        read: Read | None = None
        if post.operand is not None:
            tensor = Tensor(f"P{n}", post.operand.shape)
            read = Read(tensor, tuple(e if extent > 1 else as_index(0) for e, extent in zip(here, tensor.shape, strict=True)))
            operands.append((tensor.name, post.operand))
        body = applied(post, body, read)
    return EOperator(Scope(loops, (), body), tuple(operands), out)


def applied(post: Post, y: Body, operand: Read | None) -> Body:
    """The expression of a post."""
    if operand is not None:
        return make_add((y, operand)) if post.kind == "add" else make_mul((y, operand))
    return WITHOUT_OPERAND[post.kind].meaning(y, number(post.alpha), number(post.beta))


def number(value: Number) -> Const:
    """A number of an operation in an expression."""
    return Const(value if isinf(value) else Fraction(value))
