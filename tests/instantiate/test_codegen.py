"""Every form of eOperator against its meaning: serial and parallel, dense and scattered operands, odd sizes."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.instantiate.compiled import check, dense, scattered

SOFTMAX = """X : f32[9,70]
L[i<9,j<70] exp(X[i,j]-{L[i<9] max[k<70] X[i,k]}[i])/{L[i<9] Σ[k<70] exp(X[i,k]-{L[i<9] max[k<70] X[i,k]}[i])}[i]"""
SHARED = "{L[i<9,j<70] exp(X[i,j]-{L[i<9] max[k<70] X[i,k]}[i])}"
MEAN = "{L[i<7] 0.02*{L[i<7] Σ[k<50] X[i,k]}[i]}"

FORMS = {
    "strided windows beyond both ends": "T : f32[1,5200]\nL[w<500] max[s<20] T[0,10*w+10*s-100]|-inf",
    "relu": "A : f32[20,30]\nL[i<20,j<30] relu(A[i,j])",
    "bias, few channels": "A : f32[57,43,5]\nB : f32[5]\nL[i<57,j<43,f<5] relu(A[i,j,f]+B[f])",
    "select on the index": "A : f32[40]\nL[i<40] select(i%3-1==0 & 30-i>=0, A[i], val(i)/2)",
    "OffsetReduce, channels last": "M : f32[14,13,3,3,40]\nL[h<14,w<13,f<40] Σ[r<3,s<3] M[h+r-1,w+s-1,r,s,f]",
    "OffsetReduce with a tail, channels first": """M : f32[3,3,6,17,19]
B : f32[6]
R : f32[6,17,19]
L[f<6,h<17,w<19] relu({L[f<6,h<17,w<19] Σ[r<3,s<3] M[r,s,f,h+r-1,w+s-1]}[f,h,w] + B[f] + R[f,h,w])""",
    "OffsetReduce that transposes": "M : f32[11,13,3,3,18]\nL[f<18,h<11,w<13] Σ[r<3,s<3] M[h+r-1,w+s-1,r,s,f]",
    "phases, channels last": "M : f32[7,9,4,4,21]\nL[h<14,w<18,f<21] Σ[r<4,s<4] M[(h+1-r)/2,(w+1-s)/2,r,s,f]",
    "phases, channels first": "M : f32[4,4,5,7,19]\nL[f<5,h<14,w<38] Σ[r<4,s<4] M[r,s,f,(h+1-r)/2,(w+1-s)/2]",
    "phases of a stride that does not divide": "M : f32[5,6,3,3,17]\nL[h<14,w<17,f<17] Σ[r<3,s<3] M[(h+1-r)/3,(w-s)/3,r,s,f]",
    "the least number, as it is written": "A : f32[40]\nL[i<40] max(A[i]-1,0-340282350000000000000000000000000000000)",
    "transpose": "A : f32[33,50]\nL[j<50,i<33] A[i,j]",
    "transpose to channels last": "A : f32[18,7,9]\nL[h<7,w<9,f<18] relu(A[f,h,w])",
    "reversal": "A : f32[70]\nL[i<70] A[69-i]",
    "gather by division": "A : f32[10,12]\nL[h<20,w<36] A[h//2,w//3]",
    "relayout by remainder": "A : f32[10,12]\nL[h<118] A[h%10,h//10]",
    **{f"sums of rows of {n}, the last ones at the end": f"A : f32[48,{n}]\nL[i<48] Σ[k<{n}] A[i,k]" for n in (5, 6, 7, 9, 12)},
    "sums of what stands before in rows": "A : f32[48,9]\nL[i<48] Σ[3<=k<9] A[i,k-3]*A[i,k]",
    "products with rows of 5": "A : f32[2,8,8,5]\nB : f32[3,5]\nL[n<2,h<8,w<8,f<3] Σ[c<5] A[n,h,w,c]*B[f,c]",
    "im2col": "A : f32[9,8,5]\nL[h<9,w<8,r<3,s<3,c<5] A[h+r-1,w+s-1,c]",
    "space to depth": "A : f32[10,12,7]\nL[h<5,w<6,p<2,q<2,c<7] A[2*h+p,2*w+q,c]",
    "depth to space": "A : f32[5,6,2,2,7]\nL[c<7,h<10,w<12] A[h//2,w//2,h%2,w%2,c]",
    "padding": "A : f32[10,12,18]\nL[h<13,w<14,f<18] A[h-1,w-1,f]|2",
    "concat": "A : f32[5,6,64]\nB : f32[5,6,33]\nL[h<5,w<6,f<97] select(63-f>=0, A[h,w,f], B[h,w,f-64])",
    "softmax": SOFTMAX,
    "softmax, shared exponentials": f"X : f32[9,70]\nL[i<9,j<70] {SHARED}[i,j]/{{L[i<9] Σ[k<70] {SHARED}[i,k]}}[i]",
    "softmax over columns": "X : f32[60,35]\nL[i<60,j<35] exp(X[i,j]-{L[j<35] max[k<60] X[k,j]}[j])",
    "normalisation by row and column": "X : f32[20,35]\nL[i<20,j<35] X[i,j]-{L[i<20] max[k<35] X[i,k]}[i]-{L[j<35] max[k<20] X[k,j]}[j]",
    "layer normalisation": f"""X : f32[7,50]
G : f32[50]
L[i<7,j<50] G[j]*(X[i,j]-{MEAN}[i])/sqrt(0.02*{{L[i<7] Σ[k<50] pow(X[i,k]-{MEAN}[i],2)}}[i]+0.00001)""",
    "windows of what is normalised by all of it": """X : f32[9,11,18]
L[h<9,w<11,c<18] Σ[r<3,s<3] {L[h<9,w<11,c<18] X[h,w,c]/{L[] max[a<9,b<11,d<18] X[a,b,d]}[]}[h+r-1,w+s-1,c]""",
    "windows of what is normalised by row": """X : f32[9,35]
L[i<9,j<35] Σ[s<5] {L[i<9,j<35] X[i,j] - {L[i<9] max[k<35] X[i,k]}[i]}[i,j+s-2]""",
    "a band of exponentials of rows, in sums side by side that do not divide": """X : f32[24,33]
V : f32[24,16]
L[i<24,n<16] Σ[k<33] {L[i<24,k<33] exp(X[i,k] - {L[i<24] max[j<33] X[i,j]}[i])}[i,k]*V[i+k-16,n]""",
    "windows of rows of a product": """A : f32[14,14,40]
B : f32[40,33]
L[b<4,m<49,n<33] Σ[k<40] A[7*(b//2)+m//7,7*(b%2)+m%7,k]*B[k,n]""",
    "max-pool, channels last": "A : f32[30,31,20]\nL[h<15,w<16,f<20] max[r<3,s<3] A[2*h+r-1,2*w+s-1,f]|-inf",
    "max-pool, channels first": "A : f32[5,30,63]\nL[f<5,h<15,w<32] max[r<3,s<3] A[f,2*h+r-1,2*w+s-1]|-inf",
    "min-pool with a large window": "A : f32[40,21]\nL[h<6,f<21] min[r<20] A[5*h+r-8,f]|inf",
    "average pool": "A : f32[20,21,9]\nL[h<19,w<20,f<9] 0.25*{L[h<19,w<20,f<9] Σ[r<2,s<2] A[h+r,w+s,f]}[h,w,f]",
    "global pool, channels last": "A : f32[7,7,40]\nL[f<40] {L[f<40] Σ[h<7,w<7] A[h,w,f]}[f]/49",
    "global pool, channels first": "A : f32[40,7,7]\nL[f<40] Σ[h<7,w<7] A[f,h,w]",
    "sum of everything": "A : f32[3,37]\nL[] Σ[h<3,w<37] A[h,w]",
    "sum over an unused iterator": "A : f32[37]\nL[i<37] Σ[r<5] A[i]",
    "direct convolution, channels last": """A : f32[20,21,18]
K : f32[5,5,2,18]
L[h<20,w<21,f<2] Σ[c<18,r<5,s<5] A[h+r-2,w+s-2,c]*K[r,s,f,c]""",
    "direct convolution, channels first": """A : f32[18,20,21]
K : f32[1,18,5,5]
L[f<1,h<20,w<21] Σ[c<18,r<5,s<5] A[c,h+r-2,w+s-2]*K[f,c,r,s]""",
    "depthwise convolution": "A : f32[10,11,20]\nK : f32[3,3,20]\nL[h<10,w<11,f<20] Σ[r<3,s<3] A[h+r-1,w+s-1,f]*K[r,s,f]",
    "matrix product": "A : f32[13,40]\nB : f32[40,37]\nL[i<13,j<37] Σ[k<40] A[i,k]*B[k,j]",
    "matrix product, both contiguous in k": "A : f32[13,40]\nB : f32[37,40]\nL[i<13,j<37] Σ[k<40] A[i,k]*B[j,k]",
    "band": "A : f32[40,24]\nB : f32[40,24]\nL[m<40,w<9] Σ[k<24] A[m,k]*B[m+w-4,k]",
    "skewed band": "D : f32[5,8,16]\nL[m<40,w<9] D[m//8,m%8,m%8+w]",
    "bilinear resize": """A : f32[6,7,18]
L[h<12,w<14,f<18] 0.75*A[h//2,w//2,f]+0.25*A[(h+1)//2+h%2-1,(w+1)//2+w%2-1,f]""",
    "a scope read at overlapping windows": "A : f32[50]\nL[i<40] Σ[r<9] {L[t<48] max[s<3] A[t+s]}[i+r]",
    "a scope read at a fraction": "A : f32[20]\nL[i<41] {L[t<20] A[t]*A[t]+1}[i/2]|3",
    "negative ranges": "A : f32[20]\nL[-3<=i<25] Σ[-1<=r<2] A[i+r]",
}

SCATTERED = (
    "bias, few channels", "OffsetReduce, channels last", "phases, channels first", "transpose", "concat", "softmax", "max-pool, channels last",
    "direct convolution, channels first", "matrix product", "negative ranges",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_form(form: str) -> None:
    check([dense(FORMS[form])], positive="layer" in form)


def test_scattered_operands() -> None:
    check([scattered(FORMS[form], seed) for seed, form in enumerate(SCATTERED)])


def test_parallel() -> None:
    big = {
        "OffsetReduce": "M : f32[20,20,3,3,64]\nL[h<20,w<20,f<64] Σ[r<3,s<3] M[h+r-1,w+s-1,r,s,f]",
        "few outer steps": "M : f32[2,30,1000]\nL[h<2,w<30,f<1000] relu(M[h,w,f])",
        "rows": "X : f32[600,70]\nL[i<600,j<70] exp(X[i,j]-{L[i<600] max[k<70] X[i,k]}[i])",
        "phases": "M : f32[12,17,4,4,33]\nL[h<24,w<34,f<33] Σ[r<4,s<4] M[(h+1-r)/2,(w+1-s)/2,r,s,f]",
        "one vector loop": "X : f32[100001]\nL[i<100001] relu(X[i])",
        "large local array": "A : f32[300,200]\nL[i<280,j<200] Σ[r<20] {L[i<300,j<200] exp(A[i,j])}[i+r,j]",
    }
    kernels = check([dense(text) for text in big.values()], threads=2)
    assert [name for name, k in zip(big, kernels, strict=True) if not k.parallel] == []


def test_little_work_stays_serial() -> None:
    (kernel,) = check([dense("A : f32[20,30]\nL[i<20,j<30] relu(A[i,j])")], threads=2)
    assert not kernel.parallel
