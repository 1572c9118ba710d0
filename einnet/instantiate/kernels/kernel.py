"""What every kernel of a plan tells of itself: what it reads and writes, what it computes, and its stored form.

Whoever walks a plan asks the kernel and knows no list of kinds. A kind of vendor operator is a class of its own (`einnet.instantiate.operators`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isinf
from typing import ClassVar, Self, TypeVar

from einnet.expr.nodes import Iter, Number, Scope, Tensor
from einnet.expr.remember import Hashed
from einnet.instantiate.kernels.arithmetics import F32, Arithmetic
from einnet.instantiate.kernels.posts import WITHOUT_OPERAND
from einnet.instantiate.kernels.primitive import Primitive
from einnet.instantiate.kernels.views import LINE, Json, View, read_view, view_json

Value = Tensor | Scope
"""A tensor, or an expression; boxes start at 0."""

Borders = Callable[[View, int], frozenset[int]]
"""Where along a dimension of a view those dimensions begin and end in which it was written."""


class NotLifted(Exception):
    """What cannot be said as an expression, and why."""


@dataclass(frozen=True)
class Shown:
    """What views show now."""

    value: Callable[[View], Value]
    borders: Borders = lambda view, dimension: frozenset()

    def __call__(self, view: View) -> Value:
        return self.value(view)


def loops_of(shape: tuple[int, ...]) -> tuple[Iter, ...]:
    """A loop from 0 for each dimension."""
    return tuple(Iter(f"i{k}", 0, n) for k, n in enumerate(shape))


@dataclass(frozen=True, slots=True)
class Post:
    """One operation on a vendor kernel's result, applied in order.

    `add` and `mul` take an operand that broadcasts to the result (extent 1 where it does not vary); the rest are element functions:
    relu (alpha = slope below 0), tanh, sigmoid, clip(alpha, beta), linear (alpha·y + beta), u8 (bytes: y/alpha rounded, and beta). The numbers are
    those of the expression, exactly; the library rounds them.
    """

    kind: str
    operand: View | None = None
    alpha: Number = Fraction(0)
    beta: Number = Fraction(0)


POSTS = ("add", "mul", *WITHOUT_OPERAND)

StoreModel = Callable[[bytes], int | str]
"""Stores the model of an opaque node and gives what stands for it."""
ReadModel = Callable[[int], bytes]


class Kernel(Hashed, ABC):
    """One step of a plan. Views of operands and results are over buffers by name."""

    __slots__ = ()
    kind: ClassVar[str]
    """What the kernel is called where it is stored."""

    @property
    @abstractmethod
    def operand_views(self) -> tuple[View, ...]:
        """Everything the kernel reads."""

    @property
    @abstractmethod
    def result_views(self) -> tuple[View, ...]:
        """Everything the kernel writes."""

    @abstractmethod
    def map_views(self, change: Callable[[View], View]) -> Self:
        """The kernel over changed views."""

    @abstractmethod
    def meaning(self, shown: Shown) -> Scope:
        """What the kernel computes of what its operands show, before its posts, over loops from 0 in the order of its result view's dimensions.

        Raises NotLifted where it has no expression.
        """

    @abstractmethod
    def json(self, store: StoreModel) -> dict[str, Json]:
        """The stored form, without the kind."""

    @classmethod
    @abstractmethod
    def read(cls, value: Json, model: ReadModel) -> Self:
        """The inverse of `json`. Raises ValueError, TypeError, KeyError or EinNetError for a value that is no such kernel."""

    @abstractmethod
    def describe(self) -> str:
        """One line for people: the kernel and its sizes."""

    @property
    def posts(self) -> tuple[Post, ...]:
        """What the kernel does to its result."""
        return ()

    @property
    def factors(self) -> Arithmetic:
        """The arithmetic to whose numbers the kernel rounds the factors of its products."""
        return F32

    def storing(self, dtype: str) -> Kernel:
        """The kernel, writing elements of a type that its result's buffer has, where it can write several."""
        del dtype
        return self

    @property
    def elements(self) -> tuple[tuple[View, str], ...]:
        """The element type as which the kernel reads or writes a view, as far as it says so."""
        return tuple((v, "f32") for v in (*self.operand_views, *self.result_views))


class VendorKernel(Kernel):
    """A kernel that a library has. It has one result, to which it may apply posts."""

    __slots__ = ()
    takes_posts: ClassVar[bool] = False

    loses_nan: ClassVar[bool] = False
    """The operator itself gives a number where its expression is NaN or an infinity."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[View, ...]:
        """The operands of the operator itself, without those of posts."""

    @property
    @abstractmethod
    def result(self) -> View:
        """What the kernel writes."""

    @abstractmethod
    def attributes(self) -> dict[str, Json]:
        """The stored form without views: what tells kernels over equal views apart."""

    @property
    def operand_views(self) -> tuple[View, ...]:
        return (*self.inputs, *(p.operand for p in self.posts if p.operand))

    @property
    def result_views(self) -> tuple[View, ...]:
        return (self.result,)

    def with_posts(self, posts: tuple[Post, ...]) -> Self:
        """The kernel with these posts in place of its own."""
        assert not posts, "the operator takes no posts"
        return self

    @abstractmethod
    def with_result(self, result: View) -> Self:
        """The kernel without posts, writing elsewhere."""

    @property
    def weights(self) -> tuple[View, ...]:
        """The inputs that are taken to be known at compile time where nobody says what is."""
        return ()

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations, two for a multiply-add."""

    @property
    def filters(self) -> int | None:
        """Output channels of a group, of which libraries want several to be fast; None where that does not count."""
        return None

    def along(self, dimension: int) -> tuple[int | None, ...] | None:
        """For each input the dimension that is divided where the result's is, None for one that stays whole; None where none can be."""
        return None

    def joining(self, constant: Sequence[bool]) -> tuple[int, ...]:
        """What kernels of this kind must share to be computed as one: extents and attributes. `constant` says which inputs are weights."""
        return (*self.result.shape, *(n for v in self.inputs for n in v.shape))

    @property
    def stacked(self) -> tuple[View, View] | None:
        """The first input and the result where these are stacks of matrices, of which each may have another row that nobody reads."""
        return None

    def with_row(self) -> Self:
        """The kernel over one more row in each of its `stacked` matrices."""
        raise NotImplementedError

    def primitives(self) -> Iterator[Primitive]:
        """How oneDNN may be asked for the operator, the best way first; without an entry it has none.

        Contractions, which have more to choose, are told by the CPU backend itself.
        """
        return iter(())


K = TypeVar("K", bound=Kernel)


def anchored(kernel: K) -> K:
    """The kernel with all views moved to the first line of their buffers: it does the same work, at addresses aligned in the same way."""
    if all(0 <= v.offset < LINE for v in (*kernel.operand_views, *kernel.result_views)):
        return kernel
    return kernel.map_views(lambda v: v.at(v.offset % LINE))


def post_json(post: Post) -> Json:
    """A post as a JSON value."""
    return [post.kind, view_json(post.operand) if post.operand else None, _number_json(post.alpha), _number_json(post.beta)]


def _number_json(value: Number) -> Json:
    """A number as JSON has it where that is exact, else a fraction in words."""
    return float(value) if isinf(value) or Fraction(float(value)) == value else str(value)


def _read_number(value: Json) -> Number:
    return value if isinstance(value, float) and isinf(value) else Fraction(value)


def read_posts(values: Json) -> tuple[Post, ...]:
    """Stored posts. Raises ValueError for an unknown one."""
    found = tuple(Post(kind, operand and read_view(operand), _read_number(alpha), _read_number(beta)) for kind, operand, alpha, beta in values)
    if any(p.kind not in POSTS for p in found):
        raise ValueError(f"unknown operation on a result: {values}")
    return found


def mapped_posts(posts: tuple[Post, ...], change: Callable[[View], View]) -> tuple[Post, ...]:
    """Posts over changed views."""
    return tuple(replace(p, operand=change(p.operand)) if p.operand else p for p in posts)


def told_posts(posts: Sequence[Post]) -> str:
    """Posts in words."""
    return "".join(f"+{p.kind}" for p in posts)


@dataclass(frozen=True, slots=True)
class OneOperand(VendorKernel):
    """A vendor operator that makes y of x alone."""

    x: View
    y: View

    @property
    def inputs(self) -> tuple[View, ...]:
        return (self.x,)

    @property
    def result(self) -> View:
        return self.y

    def map_views(self, change: Callable[[View], View]) -> Self:
        return replace(self, x=change(self.x), y=change(self.y))

    def with_result(self, result: View) -> Self:
        return replace(self, y=result)
