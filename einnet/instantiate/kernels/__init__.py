"""What an optimized program consists of: kernels over strided views of named buffers. Plain data, no device, no library.

Derivation and matching produce these; a runtime builds and runs them; the artifact stores them.
"""

from einnet.instantiate.kernels.contractions import Conv, Matmul
from einnet.instantiate.kernels.generated import EOperator, OpaqueCall
from einnet.instantiate.kernels.kernel import POSTS, Kernel, NotLifted, Post, Shown, Value, VendorKernel, anchored, loops_of
from einnet.instantiate.kernels.plan import Buffer, Plan
from einnet.instantiate.kernels.views import LINE, View, dense_strides, dense_view, numbered, strided_view

__all__ = [
    "LINE", "POSTS", "Buffer", "Conv", "EOperator", "Kernel", "Matmul", "NotLifted", "OpaqueCall", "Plan", "Post", "Shown", "Value", "VendorKernel",
    "View", "anchored", "dense_strides", "dense_view", "loops_of", "numbered", "strided_view",
]  # fmt: skip
