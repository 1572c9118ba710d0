"""eOperators of every form that is generated for a card. Nothing here needs what generates them."""

from __future__ import annotations

from einnet.expr.nodes import Tensor, tensors
from einnet.expr.notation.text import parse
from einnet.instantiate.kernels import EOperator, View, dense_view


def operator(text: str, shapes: dict[str, tuple[int, ...]], out: View | None = None) -> EOperator:
    scope = parse(text, {name: Tensor(name, shape) for name, shape in shapes.items()})
    return EOperator(scope, tuple((n, dense_view(n, t.shape)) for n, t in tensors(scope).items()), out or dense_view("out", scope.shape))


CASES = {
    "offset reduce": "L[h<9,w<7,f<6] Σ[r<3,s<3] A[h+r-1,w+s-1,f,r,s]",
    "transpose": "L[a<33,b<5,c<17] A[c,a,b]",
    "phases": "L[h<8,w<6] A[h%2,w%2,h//2,w//2]",
    "fraction": "L[h<9] Σ[r<4] A[(h-r+1)/2]*K[r]",
    "softmax": "L[i<6,j<40] exp(A[i,j]-{L[i<6] max[l<40] A[i,l]}[i])/{L[i<6] Σ[k<40] exp(A[i,k]-{L[i<6] max[l<40] A[i,l]}[i])}[i]",
    "functions": "L[i<50] tanh(A[i])+sigmoid(A[i])*erf(A[i])+softplus(A[i])+log(abs(A[i])+1)+sqrt(abs(A[i]))",
    "band": "L[i<12,j<5] Σ[k<4] Q[i,k]*P[i+2*j-4,k]",
    "few channels": "L[h<6,w<6,f<2] relu({L[h<6,w<6,f<2] Σ[c<3,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,f,c]}[h,w,f])",
    "long rows": "L[i<7] Σ[k<300] A[i,k]*A[i,k]",
    "turned tile": "L[a<70,b<45] A[b,a]*B[b]+C[a,b]",
    "turned beyond the edge": "L[h<40,w<50] A[w-3,h-2]",
    "turned in a batch": "L[n<3,h<33,c<64] relu(A[n,c,h])",
    "long softmax": "L[i<6,j<130] exp(A[i,j]-{L[i<6] max[l<130] A[i,l]}[i])/{L[i<6] Σ[k<130] exp(A[i,k]-{L[i<6] max[l<130] A[i,l]}[i])}[i]",
    "attention": "L[i<70,d<9] Σ[j<45] exp({L[i<70,j<45] Σ[c<6] A[i,c]*B[j,c]}[i,j]-{L[i<70] max[j<45] {L[i<70,j<45] Σ[c<6] A[i,c]*B[j,c]}[i,j]}[i])"
    "*C[j,d]",
    "two reductions": "L[c<5] Σ[h<9,w<11] A[c,h,w]-{L[c<5] max[-2<=h<9,w<11] A[c,h,w]}[c]",
}
BOXES = {
    "offset reduce": {"A": (9, 7, 6, 3, 3)}, "transpose": {"A": (17, 33, 5)}, "phases": {"A": (2, 2, 4, 3)}, "fraction": {"A": (4,), "K": (4,)},
    "softmax": {"A": (6, 40)}, "functions": {"A": (50,)}, "band": {"Q": (12, 4), "P": (12, 4)}, "few channels": {"A": (6, 6, 3), "K": (3, 3, 2, 3)},
    "long rows": {"A": (7, 300)}, "turned tile": {"A": (45, 70), "B": (45,), "C": (70, 45)}, "turned beyond the edge": {"A": (44, 38)},
    "turned in a batch": {"A": (3, 64, 33)}, "long softmax": {"A": (6, 130)}, "two reductions": {"A": (5, 9, 11)},
    "attention": {"A": (70, 6), "B": (45, 6), "C": (45, 9)},
}  # fmt: skip


def case(name: str) -> EOperator:
    return operator(CASES[name], BOXES[name])
