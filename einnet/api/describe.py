"""Kernels in words."""

from __future__ import annotations

from typing import Any

from einnet.instantiate.kernels import Conv, EOperator, Kernel, Matmul


def describe(kernel: Kernel) -> str:
    """One line for people: the kernel and its sizes."""
    match kernel:
        case Matmul(a, b, _, post):
            batch = "x".join(str(max(p, q)) for p, q in zip(a.shape[:-2], b.shape[:-2]))
            return f"Matmul {batch + ' x ' if batch else ''}{a.shape[-2]}x{a.shape[-1]}x{b.shape[-1]}{_posts(post)}"
        case Conv(x=x, w=w, y=y, post=post, transposed=transposed, strides=strides, dilations=dilations):
            name = "ConvTranspose" if transposed else "Conv"
            taps = "x".join(map(str, w.shape[3:]))
            marks = (("g", w.shape[0]), ("s", max(strides)), ("d", max(dilations)))
            extra = "".join(f" {mark}{n}" for mark, n in marks if n > 1)
            return f"{name}{taps}{extra} {x.shape[1]}@{'x'.join(map(str, x.shape[2:]))}->{y.shape[1]}{_posts(post)}"
        case EOperator(scope=scope):
            return f"eOperator {scope.text()}"
    return f"ONNX Runtime: {kernel.origin}"


def _posts(posts: tuple[Any, ...]) -> str:
    return "".join(f"+{p.kind}" for p in posts)
