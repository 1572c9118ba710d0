"""What each kernel of a plan computes, as an expression over what its views show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from einnet.expr.index import Index
from einnet.expr.nodes import Body, Const, Number, Read, Scope, indices, make_add, make_mul
from einnet.instantiate.kernels import Kernel, NotLifted, Post, Shown
from einnet.instantiate.kernels.contractions import broadcast
from einnet.instantiate.kernels.posts import WITHOUT_OPERAND

Rational = Callable[[Number], Number]
"""The number of the model that a kernel's parameter stands for."""


def meaning(kernel: Kernel, shown: Shown, rational: Rational) -> Scope:
    """The kernel's result over loops from 0 in the order of its result view's dimensions. Raises NotLifted."""
    return with_posts(kernel.meaning(shown), kernel.posts, shown, rational)


def with_posts(result: Scope, posts: Sequence[Post], shown: Shown, rational: Rational) -> Scope:
    """The result with operations applied in order."""
    if not posts:
        return result
    index = indices(result.loops)
    body: Body = Read(result, index)
    for post in posts:
        body = applied(post, body, index, shown, rational)
    return Scope(result.loops, (), body)


def applied(post: Post, y: Body, index: tuple[Index, ...], shown: Shown, rational: Rational) -> Body:
    """One operation on a result."""
    if post.operand is not None:
        operand = Read(shown(post.operand), broadcast(post.operand.shape, index))
        if post.kind not in ("add", "mul"):
            raise NotLifted(f"{post.kind} takes no operand")
        return make_add((y, operand)) if post.kind == "add" else make_mul((y, operand))
    alpha, beta = (Const(rational(x)) for x in (post.alpha, post.beta))
    if post.kind not in WITHOUT_OPERAND:
        raise NotLifted(f"{post.kind} on a result has no expression")
    return WITHOUT_OPERAND[post.kind].meaning(y, alpha, beta)
