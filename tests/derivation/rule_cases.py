"""What is known of every rule: goldens (before, parameters, after), refusals (expression, a part of the reason).

A rule that is added to RULES needs an entry here: see `test_every_rule_has_its_cases`.
"""

from __future__ import annotations

from dataclasses import dataclass

DECLARED = """
A : f32[57,43,5]
K : weight f32[3,3,5,8]
V : f32[8]
W : f32[19]
M : f32[4,6]
N : f32[6,5]
P : f32[5,2]
D : f32[9,5]
B : f32[9,5]
Y : f32[9,9]
w3 : weight f32[3]
w5 : weight f32[5]
w19 : weight f32[19]
G : weight f32[2,2]
O : f32[4,6]
Q : f32[6,5]
R : f32[6,3]
Z : f32[2,5]
S : f32[33,35]
T : f32[35,40]
S2 : f32[33,36]
T2 : f32[36,40]
X3 : f32[3,16]
X4 : f32[3,64]
Ta : weight f32[4,2,4]
Tb : weight f32[4,4,4,2]
Tc : weight f32[4,4]
E : f32[5,1]
"""


@dataclass(frozen=True)
class Cases:
    """`least`: how many rewrites the random test must see, at least, for its verdict to mean anything."""

    goldens: tuple[tuple[str, str, str], ...]
    refusals: tuple[tuple[str, str], ...]
    least: int = 20


CONV = "L[h<57,w<43,f<8] Σ[c<5,r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c,f]"

_POWER = "exp(M[m,k] + (-1)*{L[m<4] max[k<6] M[m,k]}[m])"
_TOP = "{L[m<4,t<2] max[j<3] M[m,3*t+j]}"
_MASKED = "M[m,k] + select(m-k>=0, 0, -inf)"
SOFTMAX = f"{{L[m<4,k<6] {_POWER}}}[m,k] / {{L[m<4] Σ[k<6] {_POWER}}}[m]"

NESTED = "{L[k<64,n<64] Tc[k//16,n//16]*{L[k<16,n<16] Tc[k//4,n//4]*Tc[k%4,n%4]}[k%16,n%16]}"
TABLE = "{L[k<16,n<16] Σ[r<2] Ta[k%4,r,n//4]*Tb[k%4,k//4,n%4,r]}"

CASES: dict[str, Cases] = {
    "chunk": Cases(
        (
            (
                "L[t<19] Σ[s<19] select(t-s>=0, W[s], 0)",
                "t=4*i+a",
                "L[t<19] {L[i<5,a<4] Σ[b<4] select(a-b>=0, W[4*i+b], 0)}[t//4,t%4] + {L[i<5,a<4] {L[i<5] Σ[j<5] select(i-j-1>=0, "
                "{L[j<5] Σ[b<4] W[4*j+b]}[j], 0)}[i]}[t//4,t%4]",
            ),
            (
                "L[t<19] Σ[s<19] select(s-t-1>=0, W[s], 0)",
                "t=4*i+a",
                "L[t<19] {L[i<5,a<4] Σ[b<4] select(-4*i-b+18>=0 & b-a-1>=0, W[4*i+b], 0)}[t//4,t%4] + {L[i<5,a<4] "
                "{L[i<5] Σ[j<5] select(j-i-1>=0, {L[j<5] Σ[b<4] select(-4*j-b+18>=0, W[4*j+b], 0)}[j], 0)}[i]}[t//4,t%4]",
            ),
            (
                "L[3<=t<22] Σ[s<19] select(t-s-3>=0, W[s], 0)",
                "t=4*i+a",
                "L[3<=t<22] {L[i<5,a<4] Σ[b<4] select(a-b>=0, W[4*i+b], 0)}[(t+1)//4-1,(t+1)%4] + {L[i<5,a<4] {L[i<5] Σ[j<5] "
                "select(i-j-1>=0, {L[j<5] Σ[b<4] W[4*j+b]}[j], 0)}[i]}[(t+1)//4-1,(t+1)%4]",
            ),
            (
                "L[3<=t<22] Σ[s<19] select(t-s-3>=0, exp(val(t-s)*(-1)/8)*W[s], 0)",
                "t=4*i+a",
                "L[3<=t<22] {L[i<5,a<4] Σ[b<4] {L[a<4,b<4] select(a-b>=0, exp((val(a-b)*(-1)) / 8), 0)}[a,b]*exp((val(3)*(-1)) / 8)*W[4*i+b]}"
                "[(t+1)//4-1,(t+1)%4] + {L[i<5,a<4] {L[a<4] exp((val(a+1)*(-1)) / 8)}[a]*{L[i<5] Σ[j<5] select(i-j-1>=0, "
                "exp((val(4*i-4*j-4)*(-1)) / 8)*{L[j<5] Σ[b<4] {L[b<4] exp((val(-b+3)*(-1)) / 8)*exp((val(3)*(-1)) / 8)}[b]*W[4*j+b]}[j], 0)}[i]}"
                "[(t+1)//4-1,(t+1)%4]",
            ),
            (
                "L[2<=t<21] Σ[2<=s<21] select(s-t>=0, exp(val(s-t)*(-1)/8)*W[s-2], 0)",
                "t=4*i+a",
                "L[2<=t<21] {L[i<5,a<4] Σ[b<4] {L[i<5,a<4,b<4] select(-4*i-b+18>=0 & b-a>=0, exp((val(b-a)*(-1)) / 8), 0)}[i,a,b]*W[4*i+b]}"
                "[(t+2)//4-1,(t+2)%4] + {L[i<5,a<4] {L[a<4] exp((val(-a+4)*(-1)) / 8)}[a]*{L[i<5] Σ[j<5] select(j-i-1>=0, "
                "exp((val(4*j-4*i-4)*(-1)) / 8)*{L[j<5] Σ[b<4] select(-4*j-b+18>=0, exp((val(b)*(-1)) / 8)*W[4*j+b], 0)}[j], 0)}[i]}"
                "[(t+2)//4-1,(t+2)%4]",
            ),
            (
                "L[t<33,c<35] Σ[s<33] {L[t<33,s<33] select(t-s>=0, exp(val(t-s)*(-1)/8), 0)}[t,s]*S[s,c]",
                "t=4*i+a",
                "L[t<33,c<35] {L[i<9,a<4,c<35] Σ[b<4] "
                "{L[a<4,b<4] select(a-b>=0, exp((val(a-b)*(-1)) / 8), 0)}[a,b]*S[4*i+b,c]}[t//4,t%4,c] + {L[i<9,a<4,c<35] "
                "{L[a<4] exp((val(a+1)*(-1)) / 8)}[a]*{L[i<9,c<35] Σ[j<9] select(i-j-1>=0, exp((val(4*i-4*j-4)*(-1)) / 8)*"
                "{L[j<9,c<35] Σ[b<4] exp((val(-b+3)*(-1)) / 8)*S[4*j+b,c]}[j,c], 0)}[i,c]}[t//4,t%4,c]",
            ),
            (
                "L[t<19] Σ[s<19] select(t-s-2>=0, exp(val(t-s)*(-1)/8)*W[s], 0)",
                "t=4*i+a",
                "L[t<19] {L[i<5,a<4] Σ[b<4] {L[a<4,b<4] select(a-b>=0, exp((val(a-b)*(-1)) / 8), 0)}[a,b]*"
                "select(4*i+b-2>=0, exp((val(2)*(-1)) / 8)*W[4*i+b-2], 0)}[t//4,t%4] + {L[i<5,a<4] {L[a<4] exp((val(a+1)*(-1)) / 8)}[a]*"
                "{L[i<5] Σ[j<5] select(i-j-1>=0, exp((val(4*i-4*j-4)*(-1)) / 8)*{L[j<5] Σ[b<4] exp((val(-b+3)*(-1)) / 8)*"
                "select(4*j+b-2>=0, exp((val(2)*(-1)) / 8)*W[4*j+b-2], 0)}[j], 0)}[i]}[t//4,t%4]",
            ),
            (
                "L[t<36,p<2] Σ[s<36,c<5] select(t-s>=0, exp(T2[t,0]-T2[s,0])*T2[t,c+1]*T2[s,c+6]*S2[p,s], 0)",
                "t=4*i+a",
                "L[t<36,p<2] {L[i<9,a<4,p<2] Σ[b<4] {L[i<9,a<4,b<4] select(a-b>=0, exp(T2[4*i+a,0] + (-1)*T2[4*i+b,0])*"
                "{L[i<9,a<4,b<4] Σ[c<5] T2[4*i+a,c+1]*T2[4*i+b,c+6]}[i,a,b], 0)}[i,a,b]*S2[p,4*i+b]}[t//4,t%4,p] + "
                "{L[i<9,a<4,p<2] Σ[c<5] {L[i<9,a<4,c<5] T2[4*i+a,c+1]*exp(T2[4*i+a,0] + (-1)*T2[4*i-1,0])}[i,a,c]*"
                "{L[i<9,c<5,p<2] Σ[j<9] select(i-j-1>=0, exp(T2[4*i-1,0] + (-1)*T2[4*j+3,0])*{L[j<9,c<5,p<2] Σ[b<4] "
                "{L[j<9,p<2,b<4] exp(T2[4*j+3,0] + (-1)*T2[4*j+b,0])*S2[p,4*j+b]}[j,p,b]*T2[4*j+b,c+6]}[j,c,p], 0)}[i,c,p]}[t//4,t%4,p]",
            ),
            (
                "L[a<19,i<5] Σ[j<19,b<6] select(a-j>=0, W[j]*N[b,i]*M[0,b], 0)",
                "a=4*i+a",
                "L[a<19,i<5] {L[i'<5,a'<4,i<5] Σ[b'<4] select(a'-b'>=0, W[4*i'+b']*{L[i<5] Σ[b<6] N[b,i]*M[0,b]}[i], 0)}[a//4,a%4,i] + "
                "{L[i'<5,a'<4,i<5] Σ[b<6] {L[i<5,b<6] N[b,i]*M[0,b]}[i,b]*{L[i'<5] Σ[j'<5] select(i'-j'-1>=0, "
                "{L[j'<5] Σ[b'<4] W[4*j'+b']}[j'], 0)}[i']}[a//4,a%4,i]",
            ),
            (
                "L[t<16] Σ[s<16] select(s-t-1>=0, W[s], 0)",
                "t=4*i+a",
                "L[t<16] {L[i<4,a<4] Σ[b<4] select(b-a-1>=0, W[4*i+b], 0)}[t//4,t%4] + {L[i<4,a<4] {L[i<4] Σ[j<4] select(j-i-1>=0, {L[j<4] "
                "Σ[b<4] W[4*j+b]}[j], 0)}[i]}[t//4,t%4]",
            ),
            (
                "L[t<33,c<5] Σ[s<33,k<3] select(t-s>=0, T2[t,k]*T2[s,k+3]*S2[s,c], 0)",
                "t=4*i+a",
                "L[t<33,c<5] {L[i<9,a<4,c<5] Σ[b<4] {L[i<9,a<4,b<4] select(a-b>=0, {L[i<9,a<4,b<4] Σ[k<3] T2[4*i+a,k]*T2[4*i+b,k+3]}[i,a,b], "
                "0)}[i,a,b]*S2[4*i+b,c]}[t//4,t%4,c] + {L[i<9,a<4,c<5] Σ[k<3] T2[4*i+a,k]*{L[i<9,k<3,c<5] Σ[j<9] select(i-j-1>=0, "
                "{L[j<9,k<3,c<5] Σ[b<4] T2[4*j+b,k+3]*S2[4*j+b,c]}[j,k,c], 0)}[i,k,c]}[t//4,t%4,c]",
            ),
            (
                "L[t<36,2<=p<4] Σ[s<36,c<5] select(t-s>=0, exp(T2[t,0]-T2[s,0])*T2[t,c+1]*T2[s,c+6]*S2[p,s], 0)",
                "t=4*i+a",
                "L[t<36,2<=p<4] {L[i<9,a<4,2<=p<4] Σ[b<4] {L[i<9,a<4,b<4] select(a-b>=0, exp(T2[4*i+a,0] + (-1)*T2[4*i+b,0])*{L[i<9,a<4,b<4] "
                "Σ[c<5] T2[4*i+a,c+1]*T2[4*i+b,c+6]}[i,a,b], 0)}[i,a,b]*S2[p,4*i+b]}[t//4,t%4,p] + {L[i<9,a<4,2<=p<4] Σ[c<5] {L[i<9,a<4,c<5] "
                "T2[4*i+a,c+1]*exp(T2[4*i+a,0] + (-1)*T2[4*i-1,0])}[i,a,c]*{L[i<9,c<5,2<=p<4] Σ[j<9] select(i-j-1>=0, exp(T2[4*i-1,0] + "
                "(-1)*T2[4*j+3,0])*{L[j<9,c<5,2<=p<4] Σ[b<4] {L[j<9,2<=p<4,b<4] exp(T2[4*j+3,0] + "
                "(-1)*T2[4*j+b,0])*S2[p,4*j+b]}[j,p,b]*T2[4*j+b,c+6]}[j,c,p], 0)}[i,c,p]}[t//4,t%4,p]",
            ),
            (
                "L[t<33] Σ[s<33,k<6] select(t-s>=0, S[s,k], 0)",
                "t=4*i+a",
                "L[t<33] {L[i<9,a<4] Σ[b<4] select(a-b>=0, {L[i<9,b<4] Σ[k<6] S[4*i+b,k]}[i,b], 0)}[t//4,t%4] + {L[i<9,a<4] {L[i<9] Σ[j<9] "
                "select(i-j-1>=0, {L[j<9] Σ[b<4,k<6] S[4*j+b,k]}[j], 0)}[i]}[t//4,t%4]",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "nothing that is 0 beyond a time"),
            ("L[t<9] max[s<9] select(t-s>=0, Y[0,s], -inf)", "it is no sum"),
            ("L[t<9] Σ[s<9] select(t-s>=0, Y[t,s], 0)", "no product over the times between"),
            ("L[t<9] Σ[s<9] select(t-s>=0, exp(Y[t,0]+Y[s,0])*Y[0,s], 0)", "no product over the times between"),
            ("L[t<9] Σ[s<9] select(t-s>=0 & s-t+3>=0, Y[0,s], 0)", "more is asked of s"),
            ("L[t<3] Σ[s<3] select(t-s>=0, w3[s], 0)", "cheaper in chunks"),
            ("L[t<9] Σ[s<10] select(t-s>=0, W[s], 0)", "cheaper in chunks"),
            ("L[t<19] Σ[s<19] select(t-s+2>=0, W[s], 0)", "cheaper in chunks"),
        ),
        15,
    ),
    "walk": Cases(
        (
            (
                "L[t<33,c<5] Σ[s<33] select(t-s>=0, {L[t<33,s<33] Σ[k<3] T2[t,k]*T2[s,k+3]}[t,s]*S2[s,c], 0)",
                "",
                "L[t<33,c<5] Σ[s<33,k<3] select(t-s>=0, S2[s,c]*T2[t,k]*T2[s,k+3], 0)",
            ),
            (
                "L[t<33,c<5] Σ[s<33] {L[t<33,s<33] select(t-s>=0, exp(val(t-s)*(-1)/8), 0)*{L[t<33,s<33] Σ[k<3] T2[t,k]*T2[s,k+3]}[t,s]}[t,s]"
                "*S2[s,c]",
                "",
                "L[t<33,c<5] Σ[s<33,k<3] select(t-s>=0, exp((val(t-s)*(-1)) / 8)*S2[s,c]*T2[t,k]*T2[s,k+3], 0)",
            ),
            (
                "L[t<36,c<5] Σ[s<36] select(s-t-1>=0, exp(T2[t,0]-T2[s,0])*{L[t<36,s<36] Σ[k<3] T2[t,k]*T2[s,k+3]}[t,s]*S2[c,s], 0)",
                "",
                "L[t<36,c<5] Σ[s<36,k<3] select(s-t-1>=0, exp(T2[t,0] + (-1)*T2[s,0])*S2[c,s]*T2[t,k]*T2[s,k+3], 0)",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "no sum of sums"),
            ("L[t<33] Σ[s<33,k<6] select(t-s>=0, S[s,k], 0)", "no sum of sums"),
            ("L[t<7] Σ[s<7] select(t-s>=0, {L[t<7,s<7] Σ[k<3] Y[t,k]*Y[s,k]}[t,s], 0)", "no sum of sums"),
            ("L[t<33] Σ[s<33] select(t-s>=0, {L[t<33,s<33] Σ[k<3] abs(T2[t,k]-T2[s,k])}[t,s], 0)", "no sum of sums"),
            ("L[t<8,c<35] Σ[s<8] select(t-s>=0, {L[t<8,s<8] Σ[k<35] S[t,k]*S[s,k]}[t,s]*S[s,c], 0)", "as many points as all pairs"),
            ("L[t<8,c<16] Σ[s<8] select(t-s>=0, {L[t<8,s<8] Σ[k<16] S[t,k]*S[s,k]}[t,s]*S[s,c], 0)", "as many points as all pairs"),
        ),
        15,
    ),
    "guard": Cases(
        (
            (f"L[m<4,k<6] choose(isnan({SOFTMAX}), 0, {SOFTMAX})", "all", f"L[m<4,k<6] {SOFTMAX}"),
            ("L[m<4,k<6] choose(isnan(exp(M[m,k])), 1/M[m,k], M[m,k])", "all", "L[m<4,k<6] M[m,k]"),
            ("L[m<4,k<6] choose(1, M[m,k], 1/M[m,k]) + choose(0, 3, M[m,k])", "all", "L[m<4,k<6] M[m,k] + M[m,k]"),
            ("L[m<4,k<6] choose(less(M[m,k],0), V[k], V[k])", "all", "L[m<4,k<6] V[k]"),
        ),
        (
            ("L[m<4,k<6] M[m,k]", "no choice"),
            ("L[m<4,k<6] choose(less(M[m,k],0), 1, M[m,k])", "depends on data"),
            ("L[m<4,k<6] choose(isnan(V[k]/M[m,k]), 0, V[k]/M[m,k])", "need not be a number"),
            ("L[m<4,k<6] choose(isnan(log(M[m,k])), 0, 1)", "need not be a number"),
            ("L[m<4,k<6] choose({L[k<5] exp(V[k])}[k], 1, V[k])", "depends on data"),
        ),
        15,
    ),
    "sum-split": Cases(
        (
            (
                CONV,
                "outside=r,s",
                "L[h<57,w<43,f<8] Σ[r<3,s<3] {L[r<3,s<3,h<57,w<43,f<8] Σ[c<5] A[r+h-1,s+w-1,c]*K[r,s,c,f]}[r,s,h,w,f]",
            ),
            ("L[m<4,p<2] Σ[k<6,n<5] M[m,k]*N[k,n]*P[n,p]", "outside=n", "L[m<4,p<2] Σ[n<5] P[n,p]*{L[n<5,m<4] Σ[k<6] M[m,k]*N[k,n]}[n,m]"),
            ("L[] max[m<4,k<6] M[m,k]", "outside=m", "L[] max[m<4] {L[m<4] max[k<6] M[m,k]}[m]"),
        ),
        (("L[m<4] Σ[k<6] M[m,k]", "fewer than two"), ("L[h<8] V[h]", "fewer than two")),
        150,
    ),
    "strip": Cases(
        (
            (
                "L[m<9,n<8] {L[m<9,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n]*{L[a<9,b<8] select(b-a+2>=0 & a-b+1>=0, 1, 0)}[m,n]",
                "m=m+n-1",
                "L[m<9,n<8] {L[m<4,n<8] {L[m<4,n<8] Σ[k<5] D[m+n-1,k]*B[n,k]}[m,n]*{L[a<4,b<8] 1}[m,n]}[m-n+1,n]",
            ),
            (
                "L[m<9,3<=n<9] select(n-m>=0 & m-n+1>=0, {L[m<9,n<9] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)",
                "m=m+n-1",
                "L[m<9,3<=n<9] {L[m<2,3<=n<9] {L[m<2,n<9] Σ[k<5] D[m+n-1,k]*B[n,k]}[m,n]}[m-n+1,n]",
            ),
            (
                "L[m<33,n<9] Σ[k<35] select(n-3*m+2>=0 & 3*m-n>=0, S[m,k]*T[k,n], 0)",
                "n=3*m+n-2",
                "L[m<33,n<9] {L[m<33,n<3] Σ[k<35] S[m,k]*T[k,3*m+n-2]}[m,n-3*m+2]",
            ),
            (
                "L[m<9,n<9] select(n-m>=0 & m-n+1>=0, {L[m<9,n<9] Σ[k<9] select(k-m>=0, Y[m,k]*Y[k,n], 0)}[m,n], 0)",
                "n=m+n",
                "L[m<9,n<9] {L[m<9,n<2] {L[m<9,n<2] Σ[k<9] select(k-m>=0, Y[m,k]*Y[k,m+n], 0)}[m,n]}[m,n-m]",
            ),
        ),
        (
            ("L[m<9,n<8] select(n-m+2>=0 & m-n+1>=0, Y[m,n], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] max[k<5] select(n-m+2>=0 & m-n+1>=0, D[m,k]*B[n,k], -inf)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] Σ[k<5] select(n-m+2>=0, D[m,k]*B[n,k], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] Σ[k<5] select(n-2>=0 & 5-n>=0, D[m,k]*B[n,k], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] Σ[k<5] select(n-k>=0 & k-n+1>=0, D[m,k]*B[n,k], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] select(n-m+9>=0 & m-n+9>=0, {L[m<9,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<8] select(n-m+2>=0 & m-n+1>=0, {L[m<9,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n], 1)", "no loop is 0 outside a band"),
            ("L[m<9,n<9] select(n-m-1>=0 & m-n>=0, {L[m<9,n<9] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)", "no loop is 0 outside a band"),
            ("L[m<9,n<9] select(n-m>=0 & m-n>=0, {L[m<9] Σ[k<5] D[m,k]*B[m,k]}[m], 0)", "nothing is reduced over fewer places"),
            ("L[m<9,n<8] select(n-m+2>=0 & m-n+1>=0, {L[m<9,n<8] Σ[k<5] D[m,k]*B[n,k]}[n,m], 0)", "the inner body is not 0 there"),
        ),
        10,
    ),
    "substitute": Cases(
        (
            (
                "L[h<57,w<43,f<8,r<3,s<3] Σ[c<5] A[h+r-1,w+s-1,c]*K[r,s,c,f]",
                "t=h+r-1",
                "L[h<57,w<43,f<8,r<3,s<3] {L[-1<=t<58,w<43,f<8,r<3,s<3] Σ[c<5] A[t,w+s-1,c]*K[r,s,c,f]}[h+r-1,w,f,r,s]",
            ),
            ("L[h<9] Σ[r<3] V[h+2*r-2]*w3[r]", "h=2*h'+h''", "L[h<9] {L[h'<5,h''<2] Σ[r<3] V[2*h'+h''+2*r-2]*w3[r]}[h//2,h%2]"),
            ("L[-3<=h<9] relu(V[h//2])", "h=2*h'+h''-4", "L[-3<=h<9] {L[h'<7,h''<2] relu(V[h'-2])}[h//2+2,h%2]"),
            ("L[h<9,r<3] V[(h-r+1)/2]*w3[r]", "t=(h-r+1)/2", "L[h<9,r<3] {L[t<5,r<3] V[t]*w3[r]}[(h-r+1)/2,r]"),
        ),
        (
            ("L[h<8] V[h]", "no index function adds two loops"),
            ("L[h<6] {L[x<6] V[x+1]}[h]", "only reads another scope"),
            ("L[h<6] max[r<3] V[h+r]", "no index function adds two loops"),
        ),
        30,
    ),
    "substitute-sum": Cases(
        (
            ("L[h<8] Σ[r<5] W[2*h+r]*w5[r]", "r=2*r'+r''", "L[h<8] Σ[r'<3,r''<2] W[2*h+2*r'+r'']*w5[2*r'+r'']"),
            ("L[h<2] max[1<=r<7] V[2*h+r]", "r=2*r'+r''+1", "L[h<2] max[r'<3,r''<2] V[2*h+2*r'+r''+1]"),
        ),
        (
            ("L[h<8] max[r<5] W[2*h+r]", "2 does not divide the extent 5"),
            ("L[h<4] Σ[r<5] W[2*h+r]", "the body is not 0 beyond it"),
            ("L[h<6] Σ[r<3] V[h+r]", "scaled or divided"),
        ),
        8,
    ),
    "reorder": Cases(
        (
            ("L[n<6,m<4] relu(M[m,n])", "order=m,n", "L[n<6,m<4] {L[m<4,n<6] relu(M[m,n])}[m,n]"),
            ("L[m<4,n<6] relu(M[m,n])", "m'=6*m+n", "L[m<4,n<6] {L[m'<24] relu(M[m'//6,m'%6])}[6*m+n]"),
        ),
        (("L[n<6,m<4] M[m,n]", "only copies"), ("L[h<8] relu(V[h])", "none are adjacent")),
        20,
    ),
    "tile": Cases(
        (
            (
                "L[h<9,r<5] Σ[c<5] D[h,c]*D[h+r-2,c]",
                "h=4*h'+h'', r=t-h''",
                "L[h<9,r<5] {L[h'<3,h''<4,t<8] Σ[c<5] D[4*h'+h'',c]*D[4*h'+t-2,c]}[h//4,h%4,h%4+r]",
            ),
            (
                "L[h<9,c<5] Σ[r<5] B[h,r]*D[h-r+2,c]",
                "h=4*h'+h'', r=t+h''",
                "L[h<9,c<5] {L[h'<3,h''<4,c<5] Σ[-3<=t<5] B[4*h'+h'',h''+t]*D[4*h'-t+2,c]}[h//4,h%4,c]",
            ),
            (
                "L[h<9,r<5] Σ[t<5] D[h,t]*D[h+r-2,t]",
                "h=4*h'+h'', r=t'-h''",
                "L[h<9,r<5] {L[h'<3,h''<4,t'<8] Σ[t<5] D[4*h'+h'',t]*D[4*h'+t'-2,t]}[h//4,h%4,h%4+r]",
            ),
        ),
        (
            ("L[h<8] Σ[r<3] V[h+r]*w3[r]", "of which another has one alone"),
            ("L[h<4] max[k<6] M[h,k]*V[h+k]", "of which another has one alone"),
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "of which another has one alone"),
            ("L[h<8,c<2] Σ[r<5] V[h]*D[h+r,c]", "not provably 0 outside its range"),
            ("L[h<9,r<5] Σ[c<5] D[h,c]*B[r,c]*D[h+r-2,c]", "of which another has one alone"),
            ("L[h<9] Σ[r<5] D[h,r]*Y[h+r-2,r]", "of which another has one alone"),
        ),
        8,
    ),
    "band": Cases(
        (
            (
                "L[m<9,c<5] Σ[k<9] {L[m<9,k<9] select(k-m+2>=0 & m-k+2>=0, exp(Y[m,k]), 0)}[m,k]*D[k,c]",
                "k=k+m-2",
                "L[m<9,c<5] Σ[k<5] {L[m<9,k<5] select(m+k-2>=0 & -m-k+10>=0, exp(Y[m,m+k-2]), 0)}[m,k]*D[m+k-2,c]",
            ),
            (
                "L[m<9] max[k<9] select(k-m+4>=0 & m-k+3>=0 & (k-m)%2==0, Y[m,k], -inf)",
                "k=2*k+m-4",
                "L[m<9] max[k<4] select(m+2*k-4>=0 & -m-2*k+12>=0, Y[m,m+2*k-4], -inf)",
            ),
            (
                "L[m<9,c<5] Σ[k<9] {L[m<9,k<9] exp({L[m<9,k<9] Σ[x<5] D[m,x]*B[k,x]}[m,k] + select(k-m+2>=0 & m-k>=0, 0, -inf))}[m,k]*D[k,c]",
                "k=k+m-2",
                "L[m<9,c<5] Σ[k<3] {L[m<9,k<3] select(m+k-2>=0, exp({L[m<9,k<3] Σ[x<5] D[m,x]*B[m+k-2,x]}[m,k]), 0)}[m,k]*D[m+k-2,c]",
            ),
            (
                "L[m<9] Σ[k<9] select(k-m+2>=0 & m-k+2>=0, exp(Y[m,k]), 0)",
                "k=k+m-2",
                "L[m<9] Σ[k<5] select(m+k-2>=0 & -m-k+10>=0, exp(Y[m,m+k-2]), 0)",
            ),
            ("L[m<9] Σ[k<9] select(k-m+2>=0 & m-k+1>=0, Y[m,k], 0)", "k=k+m-2", "L[m<9] Σ[k<4] Y[m,m+k-2]"),
            (
                "L[m<9,c<5] Σ[k<9] {L[m<9,k<9] select(k-m+2>=0 & m-k>=0, {L[m<9,k<9] exp({L[m<9,k<9] tanh(Y[m,k]) + 1}[m,k])}[m,k], 0)}[m,k]*"
                "D[k,c]",
                "k=k+m-2",
                "L[m<9,c<5] Σ[k<3] {L[m<9,k<3] {L[m<9,k<3] select(m+k-2>=0, exp({L[m<9,k<3] tanh(Y[m,m+k-2]) + 1}[m,k]), 0)}[m,k]}[m,k]*"
                "D[m+k-2,c]",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "no sum is neutral outside a band"),
            ("L[m<9] max[k<9] select(k-m-3>=0 & m-k+5>=0, Y[m,k], -inf)", "no sum is neutral outside a band"),
            ("L[m<9] max[k<9] select(k-m+3>=0 & m-k+5>=0, Y[m,k], 0)", "no sum is neutral outside a band"),
            ("L[m<9] min[k<9] select(k-m+2>=0 & m-k+2>=0, Y[m,k], inf)", "no sum is neutral outside a band"),
            ("L[m<9] Σ[k<9] select(k-m+2>=0 & m-k+2>=0, {L[x<9] Σ[r<3] D[x,r]}[k], 0)", "adds iterators that do not stand alone"),
        ),
        8,
    ),
    "merge": Cases(
        (
            (
                "L[m<4,p<2] Σ[n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]*P[n,p]",
                "scope=0",
                "L[m<4,p<2] Σ[n<5,k<6] P[n,p]*M[m,k]*N[k,n]",
            ),
            ("L[h<4] max[r<3] {L[x<8] max[k<2] V[x+k]}[h+r]", "scope=0", "L[h<4] max[r<3,k<2] V[h+r+k]"),
            ("L[h<10] relu({L[x<8] V[x]}[h-1])", "scope=0", "L[h<10] relu(V[h-1])"),
            ("L[h<8,w<4] {L[x<4,y<2] M[x+y,0]*V[x]}[h/2,w/2]", "scope=0", "L[h<8,w<4] M[(h+w)/2,0]*V[h/2]"),
            ("L[h<8] V[h]*{L[x<8] 3}[h]", "scope=0", "L[h<8] V[h]*3"),
            (  # a square, one factor of it
                "L[m<4] Σ[n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]*{L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]",
                "scope=0",
                "L[m<4] Σ[n<5,k<6] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]*M[m,k]*N[k,n]",
            ),
        ),
        (
            ("L[h<8] V[h]", "no scope is read"),
            ("L[h<8] {L[x<8] Σ[k<2] V[x+k]}[h] + {L[x<8] Σ[k<2] V[x+k]}[h]", "not read as one factor"),
            ("L[h<8] relu({L[x<8] Σ[k<2] V[x+k]}[h])", "not read as one factor"),
            ("L[h<8] {L[x<8] max[k<2] V[x+k]}[h]*2", "does not merge into a sum"),
            ("L[h<8] max[r<3] 2*{L[x<8] max[k<2] V[x+k]}[h]", "not the whole body"),
            ("L[h<8] Σ[r<3] {L[x<8] relu(V[x]) + 1}[h+r-1]", "leaves [0,8)"),
            ("L[h<8] Σ[r<3] {L[x<8] V[x+1]}[h+r-1]", "leaves [0,8)"),
            ("L[h<8] Σ[r<3] {L[x<8] V[x]}[h+r-1]|1", "with the fill 1"),
            ("L[h<8] {L[x<4] relu(V[x]) + 1}[h/2]", "can be fractional"),
            ("L[h<4,w<4] {L[x<2,y<2] V[x+y]}[h/2,w/2]", "can be fractional"),
            ("L[h<9] {L[x<8] V[x]/W[x+11]}[h]", "leaves [0,8)"),
            ("L[h<9] {L[x<8] V[x]*log(W[x])}[h]", "leaves [0,8)"),
            ("L[h<9] {L[x<8] V[x]*W[x+11]|-inf}[h]", "leaves [0,8)"),
            ("L[h<8] Σ[r<3] {L[t<8] Σ[s<3] V[t+s-1]*w3[s]}[h+r-1]*w3[r]", "leaves [0,8)"),
        ),
        20,
    ),
    "tighten": Cases(
        (
            ("L[h<8] Σ[r<3] {L[-1<=t<9,r<3] V[t]*w3[r]}[h+r-1,r]", "all", "L[h<8] Σ[r<3] {L[t<8,r<3] V[t]*w3[r]}[h+r-1,r]"),
            ("L[h<4] Σ[-5<=r<19] V[h+r]", "all", "L[h<4] Σ[-3<=r<8] V[h+r]"),
            ("L[h<3] {L[x<8] V[x] + 1}[h]*{L[x<8] V[x] + 1}[h+3]", "all", "L[h<3] {L[x<6] V[x] + 1}[h]*{L[x<6] V[x] + 1}[h+3]"),
            ("L[m<4] Σ[k<6] M[m,k]*select(3-k>=0 & k-1>=0, V[k], 0)", "all", "L[m<4] Σ[1<=k<4] M[m,k]*select(-k+3>=0 & k-1>=0, V[k], 0)"),
            ("L[m<4] Σ[k<6] M[m,k]*select(2*k-3>=0, 0, V[k])", "all", "L[m<4] Σ[k<2] M[m,k]*select(2*k-3>=0, 0, V[k])"),
            ("L[m<4] Σ[k<6] M[m,k]*select(k-2==0, V[k], 0)", "all", "L[m<4] Σ[2<=k<3] M[m,k]*select(k-2==0, V[k], 0)"),
            ("L[m<2] Σ[k<6] select(m-k>=0, V[k], 0)", "all", "L[m<2] Σ[k<2] select(m-k>=0, V[k], 0)"),
            ("L[m<4] Σ[k<6] select(2-k>=0, V[k], select(k-4>=0, 0, 1))", "all", "L[m<4] Σ[k<4] select(-k+2>=0, V[k], select(k-4>=0, 0, 1))"),
        ),
        (
            ("L[m<4] Σ[k<6] select(2-k>=0, 0, V[k]) + select(k-4>=0, 0, V[k])", "tight already"),
            ("L[m<4] Σ[k<6] select(3-k>=0 & k-1>=0, 0, V[k])", "tight already"),
            ("L[m<4] Σ[k<6] select(k-2==0, 0, V[k])", "tight already"),
            ("L[m<4] Σ[k<6] (1/M[m,k])*select(3-k>=0, V[k], 0)", "tight already"),
            ("L[m<4] Σ[k<4] select(m-k>=0, V[k], 0)", "tight already"),
            ("L[h<8] V[h]", "tight already"),
            ("L[h<4] max[r<11] V[h+r]", "tight already"),
            ("L[h<3] {L[x<8] V[x] + 1}[h]|1", "tight already"),
            ("L[h<4] Σ[r<11] V[h+r] + 1", "tight already"),
            ("L[h<3] V[h] + {L[x<1] V[x] + 1}[h+20]", "tight already"),
        ),
        30,
    ),
    "translate": Cases(
        (
            ("L[n<5] Σ[h<21,r<3] W[h-r]*Q[r,n]", "h", "L[n<5] Σ[h<19,r<3] W[h]*Q[r,n]"),
            (
                "L[n<5] Σ[h<39,w<8,r<3,s<3] W[(h-r)/2]*V[-w+s+5]*G[r-1,s]*Q[r,n]",
                "h",
                "L[n<5] Σ[h<19,w<8,r<3,s<3] W[h]*V[s-w+5]*G[r-1,s]*Q[r,n]",
            ),
            ("L[n<5] Σ[w<10,s<3] V[-w+s+7]*Q[s,n]", "w", "L[n<5] Σ[w<8,s<3] V[w]*Q[s,n]"),
            ("L[n<5,t<2] Σ[h<30,r<3] W[h-r-t-4]", "h", "L[n<5,t<2] Σ[h<19,r<3] W[h]"),
        ),
        (
            ("L[n<5] max[h<21,r<3] W[h-r]*Q[r,n]", "no neutral zeros"),
            ("L[n<5] Σ[h<20,r<3] W[h-r]*Q[r,n]", "depends on how far it is moved"),
            ("L[n<5] Σ[h<20,r<3] W[(h-r+1)/2]*Q[r,n]", "depends on how far it is moved"),
            ("L[n<5] Σ[h<21,r<3] W[h-r]*V[h]*Q[r,n]", "no summed iterator stands in one index function only"),
            ("L[n<5] Σ[h<9] W[2*h]*Q[0,n]", "no summed iterator stands in one index function only"),
            ("L[n<5] Σ[h<21,r<3] W[h-r]|1*Q[r,n]", "nothing that is 0 elsewhere is read"),
            ("L[n<5] Σ[h<21,r<3] W[h-r]*(1/Q[r,n])", "nothing that is 0 elsewhere is read"),
        ),
        10,
    ),
    "relax": Cases(
        (("L[h<8] Σ[r<5] W[2*h+r]*w5[r]", "r<6", "L[h<8] Σ[r<6] W[2*h+r]*w5[r]"),),
        (
            ("L[h<8] max[r<5] W[2*h+r]*w5[r]", "no neutral zeros"),
            ("L[h<4] Σ[r<5] W[2*h+r]", "not provably 0 at 5 <= r < 6"),
            ("L[h<4] Σ[r<5] W[2*h+r]/w5[r]", "not provably 0"),
            ("L[h<4] Σ[r<5] w5[r]*W[2*h+r]/w5[r]", "not provably 0"),
            ("L[h<6] Σ[r<3] V[h+r]", "has a wider multiple"),
            ("L[m<4] Σ[k<5] w5[k]*W[2*m+k]*M[m-2,0]|-inf", "not provably 0"),
        ),
        2,
    ),
    "relayout": Cases(
        (
            (CONV, "A[h,w,c,r,s]", "L[h<57,w<43,f<8] Σ[c<5,r<3,s<3] {L[h<57,w<43,c<5,r<3,s<3] A[h+r-1,w+s-1,c]}[h,w,c,r,s]*K[r,s,c,f]"),
            (
                "L[h'<29,h''<2,w<43,f<8] Σ[c<5,r<3,s<3] A[2*h'+h''+2*r-2,w+s-1,c]*K[r,s,c,f]",
                "A[h'+r-1,h'',w+s-1,c]",
                "L[h'<29,h''<2,w<43,f<8] Σ[c<5,r<3,s<3] {L[-1<=u<30,h''<2,-1<=u'<44,c<5] A[2*u+h'',u',c]}[h'+r-1,h'',w+s-1,c]*K[r,s,c,f]",
            ),
            ("L[h<4] Σ[r'<2,r''<2] V[2*h+2*r'+r''-1]", "V[h+r'-1,r'']", "L[h<4] Σ[r'<2,r''<2] {L[-1<=u<4,r''<2] V[2*u+r''+1]}[h+r'-1,r'']"),
            ("L[m<4] Σ[n<6] M[m,n]*N[n,m]|2", "N[m,n]", "L[m<4] Σ[n<6] M[m,n]*{L[m<4,n<6] N[n,m]|2}[m,n]"),
            ("L[h<3] Σ[r<2,q<2] W[4*h+4*r+3*q]*w3[r]*w3[q]", "W[h+r,q]", "L[h<3] Σ[r<2,q<2] {L[u<4,q<2] W[4*u+3*q]}[h+r,q]*w3[r]*w3[q]"),
            ("L[h<3] Σ[r<2,u<2] W[4*h+4*r+3*u]*w3[r]*w3[u]", "W[h+r,u]", "L[h<3] Σ[r<2,u<2] {L[u'<4,u<2] W[4*u'+3*u]}[h+r,u]*w3[r]*w3[u]"),
        ),
        (
            ("L[m<4] Σ[n<6] M[m,n]", "in the iterators' order already"),
            ("L[m<4] M[m,1]", "nothing is reduced"),
            ("L[m<4] Σ[n<6] {L[m<4,n<6] relu(M[m,n])}[m,n]", "is a scope, not a tensor"),
        ),
        40,
    ),
    "residue": Cases(
        (
            ("L[h<8] Σ[q<2,p<2] V[(h-q)/2-p]*G[p,q]", "all", "L[h<8] Σ[p<2] V[h//2-p]*G[p,h%2]"),
            ("L[h<4] Σ[q<3] V[(2*h+2*q+1)/3]*w3[q]", "all", "L[h<4] V[(2*h+1)//3+(2*h+1)%3]*w3[(2*h+1)%3]"),
            ("L[h<4] Σ[q<3] V[(h-q)/4]*w3[q]", "all", "L[h<4] V[0]*w3[h]"),
        ),
        (
            ("L[h<8] Σ[q<4] V[(h-q)/2]*w5[q]", "no summation iterator"),
            ("L[h<8] Σ[q<2] V[(h-q)/3]", "no summation iterator"),
            ("L[h<8] Σ[q<4] V[(h-2*q)/4]", "no summation iterator"),
            ("L[h<8] Σ[q<2] V[(h-q)/2]|1", "no summation iterator"),
            ("L[h<8] max[q<2] V[(h-q)/2]", "no summation iterator"),
            ("L[h<8] Σ[q<2] V[(h-q)/2] + 1", "no summation iterator"),
        ),
        3,
    ),
    "divide": Cases(
        (
            (
                "L[m<4,n<8] Σ[k<6] M[m,k]*{L[k<6,n<8] N[k,n] + R[k,n-5]}[k,n]",
                "n<5",
                "L[m<4,n<8] {L[m<4,n<5] Σ[k<6] M[m,k]*{L[k<6,n<8] N[k,n] + R[k,n-5]}[k,n]}[m,n] + "
                "{L[m<4,5<=n<8] Σ[k<6] M[m,k]*{L[k<6,n<8] N[k,n] + R[k,n-5]}[k,n]}[m,n]",
            ),
            (
                "L[n<6] max[k<6] M[n-2,k]|-inf",
                "n<2",
                "L[n<6] {L[n<2] max[k<6] M[n-2,k]|-inf}[n] + {L[2<=n<6] max[k<6] M[n-2,k]|-inf}[n]",
            ),
            (
                "L[m<4,n<7] Σ[k<6] M[m,k]*{L[k<6,n<8] N[k,n] + R[k,n-5]}[k,n+1]",
                "n<4",
                "L[m<4,n<7] {L[m<4,n<4] Σ[k<6] M[m,k]*{L[k<6,n<8] N[k,n] + R[k,n-5]}[k,n+1]}[m,n] + {L[m<4,4<=n<7] Σ[k<6] M[m,k]*{L[k<6,n<8] "
                "N[k,n] + R[k,n-5]}[k,n+1]}[m,n]",
            ),
        ),
        (
            ("L[m<4,n<8] N[m,n] + R[m,n-5]", "nothing is reduced"),
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "no operand ends"),
            ("L[h<10] Σ[r<3] V[h+r-1]*w3[r]", "no operand ends"),
        ),
        20,
    ),
    "distribute": Cases(
        (
            (
                "L[m<4,n<8] Σ[k<6] M[m,k]*(N[k,n] + R[k,n-5])",
                "factor=1",
                "L[m<4,n<8] {L[m<4,n<8] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[m<4,n<8] Σ[k<6] M[m,k]*R[k,n-5]}[m,n]",
            ),
            ("L[m<4,n<5] Σ[k<6] V[m]*M[m,k]", "free", "L[m<4,n<5] V[m]*{L[m<4] Σ[k<6] M[m,k]}[m]"),
            (
                "L[m<4,n<8] Σ[k<6] select(m-k>=0, M[m,k]*(N[k,n] + R[k,n-5]), 0)",
                "factor=1",
                "L[m<4,n<8] {L[m<4,n<8] Σ[k<6] select(m-k>=0, M[m,k]*N[k,n], 0)}[m,n] + "
                "{L[m<4,n<8] Σ[k<6] select(m-k>=0, M[m,k]*R[k,n-5], 0)}[m,n]",
            ),
            (  # a quotient of a sum
                "L[m<4,n<8] Σ[k<6] M[m,k]*((N[k,n] + R[k,n-5]) / V[k])",
                "factor=1",
                "L[m<4,n<8] {L[m<4,n<8] Σ[k<6] M[m,k]*(N[k,n] / V[k])}[m,n] + {L[m<4,n<8] Σ[k<6] M[m,k]*(R[k,n-5] / V[k])}[m,n]",
            ),
            (  # a concatenation along what is summed
                "L[m<4,n<5] Σ[k<8] select(k-6>=0, P[m,k-6], M[m,k])*T[k,n]",
                "factor=0",
                "L[m<4,n<5] {L[m<4,n<5] Σ[6<=k<8] P[m,k-6]*T[k,n]}[m,n] + {L[m<4,n<5] Σ[k<6] M[m,k]*T[k,n]}[m,n]",
            ),
            (  # of three parts
                "L[m<4,n<5] Σ[k<11] select(k-8>=0, R[m,k-8], select(k-6>=0, P[m,k-6], M[m,k]))*T[k,n]",
                "factor=0",
                "L[m<4,n<5] {L[m<4,n<5] Σ[8<=k<11] R[m,k-8]*T[k,n]}[m,n] + {L[m<4,n<5] Σ[6<=k<8] P[m,k-6]*T[k,n]}[m,n] + "
                "{L[m<4,n<5] Σ[k<6] M[m,k]*T[k,n]}[m,n]",
            ),
            (  # sides that are not 0 beyond
                "L[m<4] Σ[k<6] select(m-k>=0, M[m,k], V[k])*O[m,k]",
                "factor=0",
                "L[m<4] {L[m<4] Σ[k<4] select(m-k>=0, M[m,k], 0)*O[m,k]}[m] + {L[m<4] Σ[1<=k<6] select(k-m-1>=0, V[k], 0)*O[m,k]}[m]",
            ),
        ),
        (
            ("L[m<4] max[k<6] V[m]*M[m,k]", "it is no sum"),
            ("L[m<4] V[m]*(W[m] + 1)", "it is no sum"),
            ("L[m<4] Σ[k<6] W[k]*M[m,k]", "no factor is a sum"),
            ("L[m<4] Σ[k<6] relu(W[k] + 1)*M[m,k]", "no factor is a sum"),
            ("L[m<4] Σ[k<6] select(m-k==0, M[m,k], V[k])*O[m,k]", "no factor is a sum"),
        ),
        20,
    ),
    "join": Cases(
        (
            (
                "L[m<4,n<8] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[x<4,y<3] Σ[z<6] M[x,z]*R[z,y]}[m,n-5]",
                "scopes=1,2 along=n+y",
                "L[m<4,n<8] {L[m<4,n<8] {L[m<4,n<8] Σ[k<6] M[m,k]*{L[n<8,k<6] N[k,n] + R[k,n-5]}[n,k]}[m,n]}[m,n]",
            ),
            (
                "L[m<4,n<8] {L[m<4,1<=n<6] Σ[k<6] M[m,k]*N[k,n-1]}[m,n+1] + {L[x<4,2<=y<5] Σ[z<6] M[x,z]*R[z,y-2]}[m,n-3]",
                "scopes=1,2 along=n+y",
                "L[m<4,n<8] {L[m<4,n<8] {L[m<4,n<8] Σ[k<6] M[m,k]*{L[n<8,k<6] N[k,n] + R[k,n-5]}[n,k]}[m,n]}[m,n]",
            ),
            (
                "L[m<4,n<5] relu({L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n])*{L[m<4] Σ[k<6] M[m,k]*W[k]}[m-1]",
                "scopes=1,2 along=n+1",
                "L[m<4,n<5] relu({L[m<4,n<5] {L[m<4,n<6] Σ[k<6] M[m,k]*{L[n<6,k<6] N[k,n] + {L[n<1,k<6] W[k]}[n-5,k]}[n,k]}[m,n]}[m,n])*"
                "{L[m<4] {L[m<4,n<6] Σ[k<6] M[m,k]*{L[n<6,k<6] N[k,n] + {L[n<1,k<6] W[k]}[n-5,k]}[n,k]}[m,5]}[m-1]",
            ),
            (
                "L[m<4] {L[m<4] max[k<6] M[m,k]}[m] - {L[m<4] max[k<6] O[m,k]}[m]",
                "scopes=1,2 along=1+1",
                "L[m<4] {L[m<4] {L[b<2,m<4] max[k<6] {L[b<2,m<4,k<6] {L[b<1,m<4,k<6] M[m,k]}[b,m,k] + "
                "{L[b<1,m<4,k<6] O[m,k]}[b-1,m,k]}[b,m,k]}[0,m]}[m] + "
                "(-1)*{L[m<4] {L[b<2,m<4] max[k<6] {L[b<2,m<4,k<6] {L[b<1,m<4,k<6] M[m,k]}[b,m,k] + "
                "{L[b<1,m<4,k<6] O[m,k]}[b-1,m,k]}[b,m,k]}[1,m]}[m]",
            ),
            (
                "L[m<4,a<2,n<5] {L[m<4,a<2,b<3] Σ[k<6] M[m,k]*T[3*a+b,k]}[m,a,n-1]*{L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]",
                "scopes=1,2 along=a*b+n",
                "L[m<4,a<2,n<5] {L[m<4,a<2,b<3] {L[m<4,n'<11] Σ[k<6] M[m,k]*{L[n'<11,k<6] {L[n'<6,k<6] T[n',k]}[n',k] + N[k,n'-6]}[n',k]}"
                "[m,3*a+b]}[m,a,n-1]*{L[m<4,n<5] {L[m<4,n'<11] Σ[k<6] M[m,k]*{L[n'<11,k<6] {L[n'<6,k<6] T[n',k]}[n',k] + N[k,n'-6]}[n',k]}"
                "[m,n+6]}[m,n]",
            ),
        ),
        (
            ("L[m<4] {L[m<4] Σ[k<6] M[m,k]}[m]", "fewer than two"),
            ("L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[m<4,n<5] max[k<6] M[m,k]*N[k,n]}[m,n]", "no form in common"),
            ("L[m<4] {L[m<4] Σ[k<6] M[m,k]}[m]*{L[m<4] Σ[k<5] {L[m<4] Σ[k<6] M[m,k]}[k]*Q[m,k]}[m]", "depends on the other"),
            ("L[m<4] {L[m<4] Σ[k<6] M[m,k]}[m] + {L[m<4] Σ[k<6] relu(O[m,k])}[m]", "no form in common"),
        ),
        20,
    ),
    "collect": Cases(
        (
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[x<4,y<5] Σ[z<6] M[x,z]*Q[z,y]}[m,n]",
                "pair=0 factor",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(N[k,n] + Q[k,n])}[m,n]",
            ),
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[x<4,y<5] Σ[z<2] P[x,z]*Z[z,y]}[m,n]",
                "pair=0 end-to-end",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k'<8] {L[m<4,k'<8] M[m,k'] + P[m,k'-6]}[m,k']*{L[n<5,k'<8] N[k',n] + Z[k'-6,n]}[n,k']}[m,n]",
            ),
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + M[m,2]*Q[2,n]",
                "pair=0 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(N[k,n] + select(k-2==0, Q[2,n], 0))}[m,n]",
            ),
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + 3*{L[m<4,n<5] Σ[j<3] M[m,j+1]*Z[j,n]}[m,n]",
                "pair=0 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(N[k,n] + select(k-1>=0 & -k+3>=0, 3*Z[k-1,n], 0))}[m,n]",
            ),
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,5-k]*N[k,n]}[m,n] + {L[m<4,n<5] Σ[j<3] M[m,2-j]*Z[j,n]}[m,n]",
                "pair=0 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,-k+5]*(N[k,n] + select(k-3>=0, Z[k-3,n], 0))}[m,n]",
            ),
            (  # halves of one sum
                "L[m<4,j<2] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j] - 3*{L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j+3]",
                "pair=0 factor",
                "L[m<4,j<2] {L[m<4,j<2] Σ[k<6] M[m,k]*(N[k,j] + (-3)*N[k,j+3])}[m,j]",
            ),
            (  # parts of two
                "L[m<4,j<2] {L[m<4,n<2] Σ[k<6] M[m,k]*N[k,n]}[m,j] + {L[m<4,2<=n<4] Σ[k<6] M[m,k]*Q[k,n]}[m,j+2]",
                "pair=0 factor",
                "L[m<4,j<2] {L[m<4,j<2] Σ[k<6] M[m,k]*(N[k,j] + Q[k,j+2])}[m,j]",
            ),
            (  # the sums run alike, but for where they begin
                "L[m<4,n<5] {L[m<4,n<5] Σ[3<=k<6] M[m,k-3]*N[k,n]}[m,n] + {L[m<4,n<5] Σ[k<3] M[m,k]*N[k,n]}[m,n]",
                "pair=1 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<3] M[m,k]*(N[k,n] + N[k+3,n])}[m,n]",
            ),
            (
                "L[m<4,n<5] 2*{L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[m<4,n<5] Σ[j<3] {L[m<4,j<3] Σ[c<2] M[m,c]*Y[c,j]}[m,j]*Z[j,n]}[m,n]",
                "pair=0 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(2*N[k,n] + select(-k+1>=0, {L[n<5,k<6] Σ[j<3] Z[j,n]*Y[k,j]}[n,k], 0))}[m,n]",
            ),
            (  # what is opened has a sum of the other's name
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*{L[j<6,n<5] Σ[k<3] T[j,k]*Z[k,n]}[k,n]}[m,n] + {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]",
                "pair=1 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(N[k,n] + {L[n<5,k<6] Σ[k''<3] T[k,k'']*Z[k'',n]}[n,k])}[m,n]",
            ),
            (
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + 2*{L[m<4,n<5] Σ[j<6] M[m,j]*Q[j,n]}[m,n] + D[m,n] + M[m,3]*Q[3,n]",
                "terms=0,1,3",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*(N[k,n] + 2*Q[k,n] + select(k-3==0, Q[3,n], 0))}[m,n] + D[m,n]",
            ),
            (
                "L[m<4,n<5] relu(3*({L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[m<4,n<5] Σ[k<6] O[m,k]*N[k,n]}[m,n]))",
                "pair=0 factor",
                "L[m<4,n<5] relu(3*{L[m<4,n<5] Σ[k<6] N[k,n]*(M[m,k] + O[m,k])}[m,n])",
            ),
            (  # both read what reads the common factor
                "L[m<4,n<5] {L[m<4,n<5] Σ[j<3] {L[m<4,j<3] Σ[k<6] M[m,k]*R[k,j]}[m,j]*T[j,n]}[m,n] + "
                "{L[m<4,n<5] Σ[j<4] {L[m<4,j<4] Σ[k<6] M[m,k]*S[k,j]}[m,j]*T[j+3,n]}[m,n]",
                "pair=0 within",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*({L[n<5,k<6] Σ[j<3] T[j,n]*R[k,j]}[n,k] + "
                "{L[n<5,k<6] Σ[j'<4] T[j'+3,n]*S[k,j']}[n,k])}[m,n]",
            ),
            ("L[m<4,k<6] M[m,k] + 2*M[m,k]", "like terms", "L[m<4,k<6] 3*M[m,k]"),
            (
                "L[m<4,k<6] 1/2*({L[m<4,k<6] Σ[n<5] M[m,n]*Y[n,k]}[m,k] + O[m,k]) + ({L[m<4,k<6] Σ[n<5] M[m,n]*Y[n,k]}[m,k] + O[m,k]) / 4",
                "like terms",
                "L[m<4,k<6] 0.75*{L[m<4,k<6] Σ[n<5] M[m,n]*Y[n,k]}[m,k] + 0.75*O[m,k]",
            ),
            ("L[m<4] max[k<6] 3*M[m,k]*O[m,k] + O[m,k] - M[m,k]*O[m,k]", "like terms", "L[m<4] max[k<6] 2*M[m,k]*O[m,k] + O[m,k]"),
            ("L[m<4,k<6] O[m,k] + M[m,k] / 2 - (M[m,k] - 3) / 2", "like terms", "L[m<4,k<6] O[m,k] + 1.5"),
        ),
        (
            ("L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + Q[m,n]", "neither a factor nor their form"),
            ("L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n]*{L[m<4,n<5] Σ[k<6] M[m,k]*Q[k,n]}[m,n]", "no two sums over one box"),
            ("L[m<4,n<5] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,n] + {L[m<4,n<5] max[k<6] M[m,k]*Q[k,n]}[m,n]", "no two sums over one box"),
            ("L[m<4] {L[m<4] Σ[k<6] M[m,k]}[m] + {L[m<4] Σ[k<5] relu(O[m,k])}[m]", "neither a factor nor their form"),
            ("L[m<4,k<6] M[m,k] + 2*O[m,k]", "no terms are alike"),
            ("L[m<4,j<3] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j] + {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j+2]", "no two sums over one box"),
            ("L[m<4] Σ[j<2] {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j] + {L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]}[m,j+3]", "no two sums over one box"),
            ("L[m<4] M[m,0] + 2*M[m,1]", "no terms are alike"),
            ("L[m<4] max(M[m,0], M[m,0])*M[m,0]", "no terms are alike"),
        ),
        4,
    ),
    "commute": Cases(
        (
            (
                "L[n<5] Σ[m<4,k<6] relu({L[k<6,m<4] M[m,k]}[k,m])*N[k,n]",
                "part=1 inwards",
                "L[n<5] Σ[m<4,k<6] {L[k<6,m<4] relu(M[m,k])}[k,m]*N[k,n]",
            ),
            (
                "L[n<5] Σ[m<4,k<6] {L[k<6,m<4] exp(M[m,k])}[k,m]*N[k,n]",
                "part=1 outwards",
                "L[n<5] Σ[m<4,k<6] exp({L[k<6,m<4] M[m,k]}[k,m])*N[k,n]",
            ),
            ("L[h<8] Σ[r<3] tanh({L[x<7] V[x+1]}[h+r-1])", "part=0 inwards", "L[h<8] Σ[r<3] {L[x<7] tanh(V[x+1])}[h+r-1]"),
            ("L[h<4] max[r<3] {L[x<7] pow(V[x+1], 2)}[h+r]", "part=0 outwards", "L[h<4] max[r<3] pow({L[x<7] V[x+1]}[h+r], 2)"),
        ),
        (
            ("L[m<4] Σ[k<6] relu(M[m,k])", "no element function stands"),
            ("L[m<4] Σ[k<6] {L[m<4,k<6] relu(M[m,k])}[m,k]", "no element function stands"),
            ("L[m<4] Σ[k<6] relu({L[k<6,m<4] M[m,k] + 1}[k,m])", "no element function stands"),
            ("L[m<4] Σ[k<6] max({L[k<6,m<4] M[m,k]}[k,m], O[m,k])", "no element function stands"),
            ("L[h<8] Σ[r<3] exp({L[x<7] V[x+1]}[h+r-1])", "exp is not known to keep its fill 0"),
            ("L[h<8] Σ[r<3] relu({L[x<7] V[x+1]}[h+r-1]|-1)", "relu is not known to keep its fill -1"),
            ("L[h<8] Σ[r<3] {L[x<7] max(V[x+1], 2)}[h+r-1]", "max is not known to keep its fill 0"),
        ),
        20,
    ),
    "fold": Cases(
        (
            ("L[h<8] Σ[r<1,s<3] relu(relu(V[h+r]*1 + 0))", "all", "L[h<8] 3*relu(V[h])"),
            ("L[h<8] max[2<=r<5] V[h]", "all", "L[h<8] V[h]"),
            ("L[h<8] 0*V[h] + V[h]*3*2", "all", "L[h<8] 6*V[h]"),
            ("L[h<8] Σ[4<=r<5] V[h+r]", "all", "L[h<8] V[h+4]"),
            ("L[h<8] V[h]*{L[x<8] 1}[h] + {L[x<3] 0}[h]", "all", "L[h<8] V[h]"),
            ("L[h<8] V[h]*1 + {L[x<7] 2}[h]", "all", "L[h<8] V[h] + {L[x<7] 2}[h]"),
            ("L[h<8] V[h] + V[h-8] + V[h+9]|3", "all", "L[h<8] V[h] + 3"),
            ("L[h<8] abs(abs(V[h]))", "all", "L[h<8] abs(V[h])"),
            ("L[h<8] V[h] + W[h] + V[h]", "all", "L[h<8] 2*V[h] + W[h]"),
        ),
        (
            ("L[h<8] V[h]", "nothing to fold"),
            ("L[h<8] max[r<3] V[h+r]|-inf", "nothing to fold"),
            ("L[h<8] abs(sign(V[h]))", "nothing to fold"),
            ("L[h<8] exp(exp(V[h]))", "nothing to fold"),
        ),
        40,
    ),
    "bilinear": Cases(
        (
            (
                "L[h<6] Σ[r<3] V[h+r-1]*w3[r]",
                "F(2,3):h+r",
                "L[h<6] Σ[p<4] AT_2_3[h%2,p]*{L[p<4,h'<3] {L[p<4,h'<3] Σ[a<4] BT_2_3[p,a]*V[2*h'+a-1]}[p,h']*"
                "{L[p<4] Σ[r<3] G_2_3[p,r]*w3[r]}[p]}[p,h//2]",
            ),
            (
                "L[m<33,n<40] Σ[k<35] S[m,k]*T[k,n]",
                "blocks=m,n,k",
                "L[m<33,n<40] Σ[p<7] W_2[m//17,n//20,p]*{L[p<7,m'<17,n'<20] Σ[k'<18] "
                "{L[p<7,m'<17,k'<18] Σ[i<2,i''<2] U_2[p,i,i'']*S[m'+17*i,k'+18*i'']}[p,m',k']*"
                "{L[p<7,n'<20,k'<18] Σ[i''<2,i'<2] V_2[p,i'',i']*T[k'+18*i'',n'+20*i']}[p,n',k']}[p,m%17,n%20]",
            ),
            (
                "L[h'<4,h''<2] Σ[r<3] V[2*h'+h''+2*r-2]*w3[r]",
                "F(2,3):h'+r",
                "L[h'<4,h''<2] Σ[p<4] AT_2_3[h'%2,p]*{L[p<4,h'''<2,h''<2] {L[p<4,h'''<2,h''<2] Σ[a<4] BT_2_3[p,a]*V[4*h'''+h''+2*a-2]}[p,h''',h'']*"
                "{L[p<4] Σ[r<3] G_2_3[p,r]*w3[r]}[p]}[p,h'//2,h'']",
            ),
            (
                "L[h<6] Σ[c<5,q<2,r<3] A[h+r-1,q,c]*w3[r]",
                "F(2,3):h+r",
                "L[h<6] Σ[p<4] AT_2_3[h%2,p]*{L[p<4,h'<3] Σ[q<2,c<5] {L[p<4,h'<3,q<2,c<5] Σ[a<4] BT_2_3[p,a]*A[2*h'+a-1,q,c]}[p,h',q,c]*"
                "{L[p<4] Σ[r<3] G_2_3[p,r]*w3[r]}[p]}[p,h//2]",
            ),
            (
                "L[h<6] Σ[r<2] V[h+r]*w5[r]",
                "F(2,2):h+r",
                "L[h<6] Σ[p<3] AT_2_2[h%2,p]*{L[p<3,h'<3] {L[p<3,h'<3] Σ[a<3] BT_2_2[p,a]*V[2*h'+a]}[p,h']*{L[p<3] Σ[r<2] G_2_2[p,r]*"
                "w5[r]}[p]}[p,h//2]",
            ),
            (
                "L[h<6] Σ[r<3] V[h-r+2]*w3[r]",
                "F(2,3):h+r",
                "L[h<6] Σ[p<4] AT_2_3[h%2,p]*{L[p<4,h'<3] {L[p<4,h'<3] Σ[a<4] BT_2_3[p,a]*V[2*h'+a]}[p,h']*{L[p<4] Σ[r<3] G_2_3[p,r]*"
                "w3[-r+2]}[p]}[p,h//2]",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "smaller than 32"),
            ("L[m<33,n<40] Σ[k<35] S2[m,k]*T2[k,n]", "an odd extent"),
            ("L[m<33] Σ[k<35] S[m,k]*T[k,0]", "no product of matrices"),
            ("L[h<6] Σ[r<3] V[2*h+r-1]*w3[r]", "no operand is read at loop + tap"),
            ("L[h<6] Σ[r<3] V[h+r-1]|1*w3[r]", "no operand is read at loop + tap"),
            ("L[h<6] Σ[r<3] V[h+r-1]*w3[r]*V[h]", "no operand is read at loop + tap"),
            ("L[h<6] max[r<3] V[h+r-1]*w3[r]", "it is no sum"),
            ("L[h<6] Σ[r<3] {L[h<9] 1 / D[h,0]}[h+r]*w3[r]", "need not be a number"),
            ("L[h<6] Σ[r<3] V[h+r-1]", "no product"),
            ("L[h<26] Σ[r<19] V[h+r-1]*w19[r]", "no tile"),
        ),
        1,
    ),
    "drop": Cases(
        (
            (
                "L[m<8,n<5] {L[m'<4,m''<2,n<5] Σ[k<6] M[m',k]*N[k,n]}[m//2,m%2,n]",
                "all",
                "L[m<8,n<5] {L[m'<4,n<5] Σ[k<6] M[m',k]*N[k,n]}[m//2,n]",
            ),
            ("L[h<3,m<4] Σ[k<6] M[m,k]", "all", "L[h<3,m<4] {L[m<4] Σ[k<6] M[m,k]}[m]"),
            ("L[m<4] relu({L[x<2] max[k<8] V[k]}[0]) + M[m,0]", "all", "L[m<4] relu({L[] max[k<8] V[k]}[]) + M[m,0]"),
        ),
        (
            ("L[m<4] Σ[k<6] M[m,k]", "every loop is used"),
            ("L[m<8] {L[x<2,m<4] Σ[k<6] M[m,k]}[m-1,m//2]", "may be read outside its range"),
            ("L[m<4,n<2] M[m,0]", "every loop is used"),
            ("L[m<8] {L[x<2,m<4] Σ[k<6] M[m,k]}[0,m//2]*{L[x<2,m<4] Σ[k<6] M[m,k]}[m-1,m//2]", "may be read outside"),
        ),
        30,
    ),
    "delta": Cases(
        (
            ("L[m<6,n<5] Σ[k<6] select(m-k==0, V[m], 0)*N[k,n]", "all", "L[m<6,n<5] V[m]*N[m,n]"),
            ("L[m<6,n<5] Σ[k<6] select(k-m-2==0, N[k,n], 0)", "all", "L[m<6,n<5] select(-m+3>=0, N[m+2,n], 0)"),
            (
                "L[m<6,n<5] Σ[k<6] select(m//2-k//2==0, O[0,m], 0)*N[k,n]",
                "all",
                "L[m<6,n<5] Σ[k'<2] O[0,m]*N[2*(m//2)+k',n]",
            ),
            (
                "L[m<6,n<5] Σ[k<6] select(m%2-k%2==0, O[0,m], 0)*N[k,n]",
                "all",
                "L[m<6,n<5] Σ[k'<3] O[0,m]*N[m%2+2*k',n]",
            ),
            ("L[m<6,n<5] Σ[k<6] {L[m<6,k<6] select(m-k==0, V[m], 0)}[m,k]*N[k,n]", "all", "L[m<6,n<5] V[m]*N[m,n]"),
            ("L[m<6] max[k<6] select(k-m-2==0, V[k], -inf)", "all", "L[m<6] select(-m+3>=0, V[m+2], -inf)"),
        ),
        (
            ("L[m<6,n<5] Σ[k<6] M[m,k]*N[k,n]", "no factor asks"),
            ("L[m<6,n<5] Σ[k<6] select(m-k>=0, V[m], 0)*N[k,n]", "no factor asks"),
            ("L[m<6,n<5] Σ[k<6] select(2*k-m==0, V[m], 0)*N[k,n]", "no factor asks"),
            ("L[m<6] max[k<6] select(k-m==0, V[k], 0)", "no factor asks"),
        ),
        10,
    ),
    "rescale": Cases(
        (
            (
                f"L[m<4,n<5] Σ[k<6] {_POWER}*N[k,n]",
                "k=3*t+j",
                f"L[m<4,n<5] Σ[t<2] exp({_TOP}[m,t] + (-1)*{{L[m<4] max[t<2] {_TOP}[m,t]}}[m])"
                f"*{{L[m<4,n<5,t<2] Σ[j<3] exp(M[m,3*t+j] + (-1)*{_TOP}[m,t])*N[3*t+j,n]}}[m,n,t]",
            ),
            (
                "L[m<4] Σ[k<6] exp(M[m,k] + (-1)*{L[m<4] max[j<6] O[m,j]}[m])",
                "k=3*t+j",
                f"L[m<4] Σ[t<2] exp({_TOP}[m,t] + (-1)*{{L[m<4] max[j<6] O[m,j]}}[m])"
                f"*{{L[m<4,t<2] Σ[j<3] exp(M[m,3*t+j] + (-1)*{_TOP}[m,t])}}[m,t]",
            ),
            (
                "L[m<4] Σ[k<6] exp(M[m,k] + (-1)*{L[m<3] max[k<6] M[m,k]}[m])",
                "k=3*t+j",
                f"L[m<4] Σ[t<2] exp({_TOP}[m,t] + (-1)*{{L[m<3] max[k<6] M[m,k]}}[m])"
                f"*{{L[m<4,t<2] Σ[j<3] exp(M[m,3*t+j] + (-1)*{_TOP}[m,t])}}[m,t]",
            ),
        ),
        (
            ("L[m<4] Σ[k<6] exp(M[m,k])", "less a maximum"),
            ("L[m<4] Σ[k<6] exp(M[m,k] + (-1)*{L[m<4] Σ[k<6] M[m,k]}[m])", "less a maximum"),
            ("L[m<4] Σ[k<6] exp(M[m,k] + {L[m<4] max[k<6] M[m,k]}[m])", "less a maximum"),
            ("L[m<4] Σ[k<6] exp(M[m,k] + (-1)*{L[k<6] max[j<4] M[j,k]}[k])", "less a maximum"),
            ("L[m<9] Σ[k<5] exp(D[m,k] + (-1)*{L[m<9] max[k<5] D[m,k]}[m])", "several tiles"),
            ("L[m<4] max[k<6] exp(M[m,k] + (-1)*{L[m<4] max[k<6] M[m,k]}[m])", "several tiles"),
            (f"L[m<4] Σ[k<6] exp({_MASKED} + (-1)*{{L[m<4] max[k<6] {_MASKED}}}[m])", "may be infinite"),
        ),
        20,
    ),
    "scale": Cases(
        (
            (
                "L[m<4,n<5] Σ[k<6] (exp(M[m,k])/V[m])*N[k,n]",
                "all",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] exp(M[m,k])*N[k,n]}[m,n] / V[m]",
            ),
            (
                "L[m<4,n<5] Σ[k<6] {L[m<4,k<6] exp(M[m,k])/V[m]}[m,k]*N[k,n]",
                "all",
                "L[m<4,n<5] {L[m<4,n<5] Σ[k<6] {L[m<4,k<6] exp(M[m,k])}[m,k]*N[k,n]}[m,n] / V[m]",
            ),
            (
                "L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]*V[m]}[k,m]*N[k,n]",
                "all",
                "L[m<4,n<5] V[m]*{L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]}[k,m]*N[k,n]}[m,n]",
            ),
            (
                "L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]*V[m]}[k-1,m]*N[k,n]",
                "all",
                "L[m<4,n<5] V[m]*{L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]}[k-1,m]*N[k,n]}[m,n]",
            ),
            (
                "L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]*V[m]}[k,m]|1*N[k,n]",
                "all",
                "L[m<4,n<5] V[m]*{L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]}[k,m]|1*N[k,n]}[m,n]",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "depends on what is summed"),
            ("L[m<4,n<5] Σ[k<6] (M[m,k]/V[k])*N[k,n]", "depends on what is summed"),
            ("L[m<5,n<5] Σ[k<6] {L[m<4,k<6] M[m,k]/V[m]}[m,k]*N[k,n]", "depends on what is summed"),
            ("L[m<4] max[k<6] M[m,k]/V[m]", "it is no sum"),
            ("L[m<4,n<5] Σ[k<6] {L[m<4,k<6] V[m]}[m,k]*N[k,n]", "depends on what is summed"),
            ("L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]*V[m]}[k-1,m]|1*N[k,n]", "changes what is read outside a box"),
            ("L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]/V[m]}[k-1,m]|1*N[k,n]", "changes what is read outside a box"),
            ("L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]/V[m]}[k-1,m]*N[k,n]", "changes what is read outside a box"),
            ("L[m<4,n<5] Σ[k<6] {L[k<6,m<4] M[m,k]*log(V[m])}[k-1,m]*N[k,n]", "changes what is read outside a box"),
        ),
        10,
    ),
    "store": Cases(
        (
            ("L[m<4,n<5] Σ[k<6] relu(M[m,k])*N[k,n]", "all", "L[m<4,n<5] Σ[k<6] {L[m<4,k<6] relu(M[m,k])}[m,k]*N[k,n]"),
            ("L[m<4,n<5] Σ[k<6] M[m,k]*O[m,k]*N[k,n]", "all", "L[m<4,n<5] Σ[k<6] {L[m<4,k<6] M[m,k]*O[m,k]}[m,k]*N[k,n]"),
            (
                "L[h<7,c<2] Σ[r<3] relu(D[h+r,c])*w3[r]",
                "all",
                "L[h<7,c<2] Σ[r<3] {L[z<9,z'<5] relu(D[z,z'])}[h+r,c]*w3[r]",
            ),
            (
                "L[h<9,c<2] Σ[r<3] relu(D[h+r-1,c])*w3[r]",
                "all",
                "L[h<9,c<2] Σ[r<3] {L[h<9,c<2,r<3] relu(D[h+r-1,c])}[h,c,r]*w3[r]",
            ),
            (  # weights that use more take those that use less
                "L[m<3,n<4] Σ[k<4] X3[m,k]*w5[k]*Tc[n,k]",
                "all",
                "L[m<3,n<4] Σ[k<4] {L[n<4,k<4] Tc[n,k]*w5[k]}[n,k]*X3[m,k]",
            ),
            ("L[h<7,c<2] Σ[r<3] relu(D[h+r,c] + val(h))*w3[r]", "all", "L[h<7,c<2] Σ[r<3] {L[h<7,c<2,r<3] relu(D[h+r,c] + val(h))}[h,c,r]*w3[r]"),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "every factor is a read"),
            ("L[m<4] Σ[k<6] relu(M[m,k])", "there is one only"),
            ("L[m<4] max[k<6] relu(M[m,k])*V[k]", "it is no sum"),
        ),
        20,
    ),
    "triangle": Cases(
        (
            (
                "L[m<6,n<5] Σ[k<6] select(m-k>=0, Y[m,k], 0)*N[k,n]",
                "m in 2",
                "L[m<6,n<5] {L[m<3,n<5] Σ[k<3] select(m-k>=0, Y[m,k], 0)*N[k,n]}[m,n]"
                " + {L[3<=m<6,n<5] Σ[k<6] select(m-k>=0, Y[m,k], 0)*N[k,n]}[m,n]",
            ),
            (
                "L[m<6,n<5] Σ[k<6] {L[m<6,k<6] select(k-m-3>=0, Y[m,k], 0)}[m,k]*N[k,n]",
                "m in 2",
                "L[m<6,n<5] {L[m<3,n<5] Σ[3<=k<6] {L[m<3,3<=k<6] select(k-m-3>=0, Y[m,k], 0)}[m,k]*N[k,n]}[m,n]"
                " + {L[3<=m<4,n<5] Σ[k<1] {L[3<=m<4,k<1] 0}[3,0]*N[0,n]}[m,n]",
            ),
            (
                "L[m<8] max[k<8] select(m-k>=0, Y[m,k], -inf)",
                "m in 2",
                "L[m<8] {L[m<4] max[k<4] select(m-k>=0, Y[m,k], -inf)}[m] + {L[4<=m<8] max[k<8] select(m-k>=0, Y[m,k], -inf)}[m]",
            ),
            (
                "L[m<8,c<5] Σ[k<8] {L[m<8,k<8] exp(Y[m,k] + select(m-k>=0, 0, -inf))}[m,k]*D[k,c]",
                "m in 2",
                "L[m<8,c<5] {L[m<4,c<5] Σ[k<4] {L[m<4,k<4] exp(Y[m,k] + select(m-k>=0, 0, -inf))}[m,k]*D[k,c]}[m,c]"
                " + {L[4<=m<8,c<5] Σ[k<8] {L[4<=m<8,k<8] exp(Y[m,k] + select(m-k>=0, 0, -inf))}[m,k]*D[k,c]}[m,c]",
            ),
            (
                "L[m<6,n<5] Σ[k<6] select(m-k>=0, Y[m,k], 0)*{L[x<3] V[x] + 1}[k+8]*N[k,n]",
                "m in 2",
                "L[m<6,n<5] {L[m<3,n<5] Σ[k<3] select(m-k>=0, Y[m,k], 0)*{L[x<1] V[0] + 1}[k+8]*N[k,n]}[m,n] + {L[3<=m<6,n<5] Σ[k<6] "
                "select(m-k>=0, Y[m,k], 0)*{L[x<1] V[0] + 1}[k+8]*N[k,n]}[m,n]",
            ),
            (
                "L[m<6,n<5] Σ[k<6] select(m-k>=0, Y[m,k], 0)*{L[x<3] V[x] + 1}[k-1]*{L[x<3] V[x] + 1}[k]",
                "m in 2",
                "L[m<6,n<5] {L[m<3,n<5] Σ[k<3] select(m-k>=0, Y[m,k], 0)*{L[x<3] V[x] + 1}[k-1]*{L[x<3] V[x] + 1}[k]}[m,n] + {L[3<=m<6,n<5] "
                "Σ[k<6] select(m-k>=0, Y[m,k], 0)*{L[x<3] V[x] + 1}[k-1]*{L[x<3] V[x] + 1}[k]}[m,n]",
            ),
            (
                "L[m<8,n<8] select(m-n>=0, {L[m<8,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)",
                "m in 2",
                "L[m<8,n<8] {L[m<4,n<4] select(m-n>=0, {L[m<4,n<4] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)}[m,n]"
                " + {L[4<=m<8,n<8] select(m-n>=0, {L[4<=m<8,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n], 0)}[m,n]",
            ),
            (
                "L[m<8,4<=n<8] Σ[k<8] select(m-k>=0, Y[m,k], 0)*select(k-n>=0, Y[k,n], 0)",
                "n in 2",
                "L[m<8,4<=n<8] {L[4<=m<8,4<=n<6] Σ[4<=k<8] select(m-k>=0, Y[m,k], 0)*select(k-n>=0, Y[k,n], 0)}[m,n]"
                " + {L[6<=m<8,6<=n<8] Σ[6<=k<8] select(m-k>=0, Y[m,k], 0)*select(k-n>=0, Y[k,n], 0)}[m,n]",
            ),
        ),
        (
            ("L[a<33] max[b<35] select(b-a>=0, S[a,b], -inf)+log(S[a,b])", "no row needs less"),
            ("L[a<33] Σ[b<35] select(b-a>=0, S[a,b], 0)*select(b-3>=0, 1/S[a,b], 0)", "no row needs less"),
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "no row needs less"),
            ("L[m<8,c<5] Σ[k<8] {L[m<8,k<8] exp(Y[m,k] + select(m-k>=0, 0, -1))}[m,k]*D[k,c]", "no row needs less"),
            ("L[m<8] min[k<8] select(m-k>=0, Y[m,k], inf)", "no row needs less"),
            ("L[m<8] Σ[k<8] select(4-k>=0, Y[m,k], 0)", "no row needs less"),
            ("L[m<8] select(4-m>=0, {L[m<8] Σ[k<5] D[m,k]}[m], 0) + Y[m,m]", "no row needs less"),
            ("L[m<8,n<8] select(m-n>=0, Y[m,n], 0)", "no row needs less"),
            ("L[m<8,n<8] select(m-n>=0, {L[m<8,n<8] Σ[k<8] select(m-k>=0 & k-m+1>=0, Y[m,k], 0)*Y[k,n]}[m,n], 0)", "the rows need a band"),
            ("L[m<8,n<8] exp({L[m<8,n<8] Σ[k<5] D[m,k]*B[n,k]}[m,n] + select(m-n>=0 & n-m+1>=0, 0, -inf))", "the rows need a band"),
        ),
        10,
    ),
    "stages": Cases(
        (
            (
                f"L[m<3,k<16] Σ[n<16] X3[m,n]*{TABLE}[k,n]",
                "factor=1 first=n'",
                "L[m<3,k<16] {L[m<3,k'<4,k''<4] Σ[n''<4,r<2] Tb[k'',k',n'',r]"
                "*{L[n''<4,r<2,m<3,k''<4] Σ[n'<4] X3[m,n''+4*n']*Ta[k'',r,n']}[n'',r,m,k'']}[m,k//4,k%4]",
            ),
            (
                "L[m<3,k<16] Σ[n<16] X3[m,n]*{L[k<16,n<16] Tc[k//4,n//4]*Tc[k%4,n%4]}[k,n]",
                "factor=1 first=n''",
                "L[m<3,k<16] {L[m<3,k'<4,k''<4] Σ[n'<4] Tc[k',n']*{L[n'<4,m<3,k''<4] Σ[n''<4] X3[m,4*n'+n'']*Tc[k'',n'']}[n',m,k'']}[m,k//4,k%4]",
            ),
            (
                f"L[m<3,k<64] Σ[n<64] X4[m,n]*{NESTED}[k,n]",
                "factor=1 all",
                "L[m<3,k<64] {L[m<3,k'<4,k''<16] Σ[n'<4] Tc[k',n']*{L[n'<4,m<3,k''<16] {L[n'<4,m<3,k'''<4,k''''<4] Σ[n'''<4] Tc[k''',n''']"
                "*{L[n'''<4,n'<4,m<3,k''''<4] Σ[n''''<4] X4[m,4*n'''+16*n'+n'''']*Tc[k'''',n'''']}[n''',n',m,k'''']}[n',m,k''//4,k''%4]}[n',m,k'']}"
                "[m,k//16,k%16]",
            ),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "no operand is a product of tables"),
            (f"L[m<3] max[n<16] X3[m,n]*{TABLE}[m,n]", "it is no sum"),
            (f"L[m<3,n<16] X3[m,n]*{TABLE}[m,n]", "it is no sum"),
            ("L[m<3] Σ[n<16] X3[m,n]*{L[n<16] Tc[n//4,0]*Tc[n%4,1]}[n]", "no operand is a product of tables"),
            (f"L[m<3] Σ[n<16] X3[m,n]*{TABLE}[5,n]", "no operand is a product of tables"),
        ),
        10,
    ),
    "share-read": Cases(
        (
            (
                "L[h<40] Σ[r<3] {L[m<36] Σ[k<40] T2[m,k]}[h-r]",
                "factor=0 k=4",
                "L[h<40] Σ[p<4,r<3] {L[p<4,m<36] Σ[k'<10] T2[m,10*p+k']}[p,h-r]",
            ),
            (
                "L[p<4] Σ[r<3] w3[r]*{L[m<3] Σ[1<=k<17] X3[m,k-1]}[p-r]",
                "factor=1 k=2",
                "L[p<4] Σ[p'<2,r<3] {L[p<2,m<3] Σ[k'<8] X3[m,8*p+k']}[p',p-r]*w3[r]",
            ),
            (
                "L[h<2] max[r<3] {L[2<=m<5] max[k<16] X3[m-2,k]}[h+r+1]|-inf",
                "factor=0 k=2",
                "L[h<2] max[p<2,r<3] {L[p<2,2<=m<5] max[k'<8] X3[m-2,8*p+k']}[p,h+r+1]|-inf",
            ),
            (
                "L[h<2] max[r<3] {L[m<3] max[k<16] X3[m,k]}[r]",
                "factor=0 k=2",
                "L[h<2] max[p<2,r<3] {L[p<2,m<3] max[k'<8] X3[m,8*p+k']}[p,r]",
            ),
            (
                "L[h<3] Σ[r<3] {L[m<3] Σ[k<16] X3[m,k]}[h]*{L[m<3] Σ[k<16] X3[m,k]}[r]",
                "factor=1 k=2",
                "L[h<3] Σ[p<2,r<3] {L[p<2,m<3] Σ[k'<8] X3[m,8*p+k']}[p,r]*{L[m<3] Σ[k<16] X3[m,k]}[h]",
            ),
        ),
        (
            ("L[h<3] {L[m<3] Σ[k<16] X3[m,k]}[h]", "no sum has a sum as a factor"),
            ("L[h<3] Σ[r<3] relu({L[m<3] Σ[k<16] X3[m,k]}[h])", "no sum has a sum as a factor"),
            ("L[h<3] Σ[r<3] (V[r] + {L[m<3] Σ[k<16] X3[m,k]}[h])", "no sum has a sum as a factor"),
            ("L[h<3] max[r<3] V[r]*{L[m<3] max[k<16] X3[m,k]}[h]", "no sum has a sum as a factor"),
            ("L[h<3] Σ[r<3] {L[m<3] max[k<16] X3[m,k]}[h]", "no sum has a sum as a factor"),
            ("L[h<3] max[r<3] {L[m<3] Σ[k<16] X3[m,k]}[h]", "no sum has a sum as a factor"),
            ("L[h<3] max[r<3] {L[m<3] max[k<16] X3[m,k]}[h-r]", "no sum has a sum as a factor"),
            ("L[h<3] Σ[r<3] {L[m<3] Σ[k<16] K[m,0,0,0]*K[0,m,k//8,k%8]}[h]", "no sum has a sum as a factor"),
            ("L[h<3] Σ[r<3] {L[m<3] Σ[k<15] X3[m,k]}[h]", "too short"),
            ("L[h<3] Σ[r<3] {L[m<4] Σ[k<6,n<5] M[m,k]*N[k,n]}[h]", "not reduced over one iterator"),
            ("L[h<3] Σ[r<3] {L[m<33,n<33] Σ[k<36] S2[m,k]*S2[n,k]}[h,r]", "more elements than what is read"),
        ),
        20,
    ),
    "share-sum": Cases(
        (
            (
                "L[m<36] Σ[k<40] T2[m,k]",
                "k=4",
                "L[m<36] Σ[p<4] {L[p<4,m<36] Σ[k'<10] T2[m,10*p+k']}[p,m]",
            ),
            (
                "L[m<3,h<2] Σ[1<=k<17] X3[m,k-1]*S[h+k,k]",
                "k=2",
                "L[m<3,h<2] Σ[p<2] {L[p<2,m<3,h<2] Σ[k'<8] X3[m,8*p+k']*S[8*p+h+k'+1,8*p+k'+1]}[p,m,h]",
            ),
            ("L[] max[p<16] X3[0,p]", "p=2", "L[] max[p'<2] {L[p'<2] max[p''<8] X3[0,8*p'+p'']}[p']"),
            ("L[m<3,n<8] Σ[k<16] X3[m,k]", "k=2", "L[m<3,n<8] Σ[p<2] {L[p<2,m<3,n<8] Σ[k'<8] X3[m,8*p+k']}[p,m,n]"),
        ),
        (
            ("L[m<4,n<5] Σ[k<6] M[m,k]*N[k,n]", "too short"),
            ("L[m<3] Σ[k<15] X3[m,k]", "too short"),
            ("L[m<4] Σ[k<6,n<5] M[m,k]*N[k,n]", "not reduced over one iterator"),
            ("L[m<4,k<6] M[m,k]", "not reduced over one iterator"),
            ("L[m<33,n<33] Σ[k<36] S2[m,k]*S2[n,k]", "more elements than what is read"),
            ("L[m<3,n<9] Σ[k<16] {L[m<3,8<=x<24] X3[m,x-8]}[m,k+8]", "more elements than what is read"),
        ),
        20,
    ),
    "determine": Cases(
        (
            ("L[h<3,f<8] Σ[c<5,r<3] E[c,h-r]*K[r,0,c,f]", "r=h", "L[h<3,f<8] Σ[c<5] E[c,0]*K[h,0,c,f]"),
            ("L[h<5,f<8] Σ[c<5,r<3] E[c,(h-r)/2]*K[r,0,c,f]", "r=h", "L[h<5,f<8] Σ[c<5] select(-h+2>=0, E[c,0]*K[h,0,c,f], 0)"),
            (
                "L[h<3,w<3,f<8] Σ[c<5,r<3,s<3] E[c,h+r-1]*E[c,s-w+1]*K[r,s,c,f]",
                "r=-h+1, s=w-1",
                "L[h<3,w<3,f<8] Σ[c<5] select(-h+1>=0 & w-1>=0, E[c,0]*E[c,0]*K[-h+1,w-1,c,f], 0)",
            ),
            ("L[h<8] Σ[2<=y<7] E[0,h-y]*W[y]", "y=h", "L[h<8] select(h-2>=0 & -h+6>=0, E[0,0]*W[h], 0)"),
            ("L[h<5] Σ[y<5] {L[2<=x<3] W[x]}[h-y]*V[y]", "y=h-2", "L[h<5] select(h-2>=0, {L[2<=x<3] W[x]}[2]*V[h-2], 0)"),
        ),
        (
            (CONV, "no operand with one element"),
            ("L[h<5] Σ[c<5,r<3] E[c,h-2*r]*w3[r]", "no operand with one element"),
            ("L[h<5] max[c<5,r<3] E[c,h-r]*w3[r]", "no operand with one element"),
            ("L[h<5,r<3] E[4,h-r]*w3[r]", "no operand with one element"),
            ("L[h<5] Σ[y<5] (E[0,h-y]|2)*W[y]", "no operand with one element"),
        ),
        20,
    ),
    "taps": Cases(
        (
            (
                "L[h<5] Σ[r<3,p<3] V[h+r+p-1]*w3[r]",
                "t=r+p",
                "L[h<5] Σ[t<5] V[h+t-1]*{L[t<5] Σ[r<3,p<3] select(t-r-p==0, w3[r], 0)}[t]",
            ),
            (
                "L[h<4,f<8] Σ[c<5,r<3,p<2] A[2*h+r+p,0,c]*K[r,0,c,f]",
                "t=r+p",
                "L[h<4,f<8] Σ[c<5,t<4] A[2*h+t,0,c]*{L[f<8,c<5,t<4] Σ[r<3,p<2] select(t-r-p==0, K[r,0,c,f], 0)}[f,c,t]",
            ),
            (
                "L[h<4] Σ[r<3,p<3] V[h-r+2*p]*w3[r]*w3[p]",
                "t=2*p-r",
                "L[h<4] Σ[-2<=t<5] V[h+t]*{L[-2<=t<5] Σ[r<3,p<3] select(t+r-2*p==0, w3[r]*w3[p], 0)}[t]",
            ),
            ("L[h<5] Σ[r<3,p<3] w3[r]*V[h+r+p-1]", "t=r+p", "L[h<5] Σ[t<5] V[h+t-1]*{L[t<5] Σ[r<3,p<3] select(t-r-p==0, w3[r], 0)}[t]"),
            (
                "L[h<3] Σ[1<=r<4,1<=p<4] V[h+r+p-2]*w3[r-1]",
                "t=r+p",
                "L[h<3] Σ[2<=t<7] V[h+t-2]*{L[2<=t<7] Σ[1<=r<4,1<=p<4] select(t-r-p==0, w3[r-1], 0)}[t]",
            ),
            (
                "L[h<5,w<2] Σ[r<3,p<3,s<2,q<2] w3[r]*w5[s]*D[h+r+p,w+s+q]",
                "t=r+p, t'=s+q",
                "L[h<5,w<2] Σ[t<5,t'<3] D[h+t,w+t']*{L[t<5] Σ[r<3,p<3] select(t-r-p==0, w3[r], 0)}[t]*"
                "{L[t'<3] Σ[s<2,q<2] select(t'-s-q==0, w5[s], 0)}[t']",
            ),
        ),
        (
            ("L[h<5] Σ[r<3] V[h+r]*w3[r]", "reach fewer places than there are"),
            ("L[h<5] Σ[r<3,p<3] V[h+3*r+p]*w3[r]", "reach fewer places than there are"),
            ("L[h<5] Σ[r<3,p<3] D[h+r+p,r]*w3[r]", "reach fewer places than there are"),
            ("L[h<5] max[r<3,p<3] V[h+r+p]*w3[r]", "it is no sum"),
            ("L[h<5] Σ[r<3,p<3] w19[h+r+p]*relu(V[r])", "reach fewer places than there are"),
        ),
        3,
    ),
}
