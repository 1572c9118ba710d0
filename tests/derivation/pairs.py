"""Pairs of expressions with an order, a tie, a zero or an edge in them: false ones, many of which are equal modulo a prime, and true ones.

Each is (declarations, one side, the other). They are made by families, each member of which differs in what has to be noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

Pair = tuple[str, str, str]

LINE = "A : f32[9]\nB : f32[9]\nM : f32[9]\n"
PLANE = "X : f32[11,13]\n"
SCORES = "S : f32[6,7]\nV : f32[7,4]\n"
LONG = "Y : f32[4096]\n"


def line(before: str, after: str) -> Pair:
    return LINE, f"L[i<9] {before}", f"L[i<9] {after}"


def false_pairs() -> Iterator[tuple[str, Pair]]:
    """Names and pairs; none is an identity."""
    families = {"clip": _clipped(), "comparison": _compared(), "window": _windows(), "lost": _lost(), "one point": _one_point()}
    return numbered({**families, "partial": _partial(), "function": _functions(), "signs": _signed()})


def numbered(families: Mapping[str, Iterable[Pair]]) -> Iterator[tuple[str, Pair]]:
    """The pairs of families, each by its family's name and its number there."""
    return ((f"{name} {n}", pair) for name, family in families.items() for n, pair in enumerate(family))


def _signed() -> Iterator[Pair]:
    """Maxima and minima of products that differ only where one operand is negative throughout and the other positive throughout."""
    tables = "A : f32[5,11]\nB : f32[11,7]\nC : f32[11]\n"
    for loops, reduced in (("i<5,j<7", "k<11"), ("k<11", "i<5,j<7"), ("j<7", "i<5,k<11"), ("i<5", "k<11,j<7")):
        yield tables, f"L[{loops}] max[{reduced}] relu(A[i,k])*relu(B[k,j])", f"L[{loops}] max[{reduced}] A[i,k]*relu(B[k,j])"
    yield tables, "L[i<5] max[k<11] A[i,k]*relu(C[k])", "L[i<5] relu({L[i<5] max[k<11] A[i,k]*relu(C[k])}[i])"
    yield tables, "L[i<5] min[k<11] A[i,k]*relu(C[k])", "L[i<5] min[k<11] (-1)*relu((-1)*A[i,k])*relu(C[k])"
    yield tables, "L[i<5,j<7] max[k<11] A[i,k]*B[k,j]*relu(C[k])", "L[i<5,j<7] max[k<11] relu(A[i,k]*B[k,j])*relu(C[k])"


def _clipped() -> Iterator[Pair]:
    yield line("min(A[i],1/2)", "1/2")
    yield line("max(A[i],1/2)", "A[i]")
    yield line("max(A[i],-1000)", "A[i]")
    yield line("min(A[i],100000)", "A[i]")
    yield line("min(relu(A[i]),6)", "6*less(0,A[i])")
    yield line("min(relu(A[i]),6)", "relu(A[i])")
    yield line("min(relu(A[i]),6)", "min(A[i],6)")
    for low, high in ((6, 7), (6, 6.001), (1, 1.5)):
        yield line(f"min(relu(A[i]),{low})", f"min(relu(A[i]),{high})")
    for shift in (2, 2.999, 3.25):
        yield line("A[i]*min(relu(A[i]+3),6)/6", f"A[i]*min(relu(A[i]+{shift}),6)/6")
    yield line("A[i]*min(relu(A[i]+3),6)/6", "A[i]*min(relu(A[i]+3),5)/6")
    yield line("relu(A[i]) - relu(-A[i])", "abs(A[i])")
    yield line("relu(A[i]+B[i])", "relu(A[i])+relu(B[i])")
    yield line("relu(A[i]*B[i])", "relu(A[i])*relu(B[i])")
    yield line("relu(-2*A[i])", "-2*relu(A[i])")
    yield line("max(A[i],B[i])*M[i]", "max(A[i]*M[i],B[i]*M[i])")
    yield line("max(A[i],B[i])", "A[i]")
    yield line("max(max(A[i],B[i]),M[i])", "max(A[i],M[i])")
    yield line("max(min(A[i],B[i]),M[i])", "min(max(A[i],M[i]),B[i])")
    yield line("abs(A[i]+B[i])", "abs(A[i])+abs(B[i])")
    yield line("abs(abs(A[i])-3)", "abs(A[i])-3")
    yield line("relu(A[i]) + relu(1e-6-abs(A[i]-3))", "relu(A[i])")


def _compared() -> Iterator[Pair]:
    yield line("equal(A[i],B[i])", "0*A[i]*B[i]")
    yield line("not(A[i])", "0*A[i]")
    yield line("equal(A[i],1/3)", "0*A[i]")
    yield line("equal(A[i],77.7)", "0*A[i]")
    yield line("equal(A[i]+B[i],5)", "0*A[i]*B[i]")
    yield line("A[i]-10000*equal(M[i],0)", "A[i]+0*M[i]")
    yield line("A[i]*(1-equal(M[i],1))", "A[i]+0*M[i]")
    yield line("A[i]-1000000*not(M[i])", "A[i]-10000*not(M[i])")
    yield line("less(A[i],B[i])", "1-less(B[i],A[i])")
    yield line("less(A[i],0)", "1-less(0,A[i])")
    yield line("sign(A[i])", "1-2*less(A[i],0)")
    yield line("sign(A[i])*sign(A[i])", "1+0*A[i]")
    yield line("less(A[i],1/2)", "less(A[i],1/2)+equal(A[i],1/2)")
    yield line("less(A[i],3)*less(3,A[i]+1/64)", "0*A[i]")
    yield line("less(A[i],B[i])*A[i]+(1-less(A[i],B[i]))*B[i]", "max(A[i],B[i])")
    yield line("less(A[i],B[i]+1/1024)", "less(A[i],B[i])")
    yield line("equal(A[i],B[i])", "equal(A[i],B[i])*equal(B[i],M[i])")
    yield line("equal(A[i],0)", "equal(A[i]*B[i],0)")
    yield SCORES, "L[i<6] max[j<7] equal(S[i,j],0)", "L[i<6] max[j<7] 0*S[i,j]"
    yield SCORES, "L[i<6] Σ[j<7] less(S[i,j],S[i,(j+1)%7])", "L[i<6] Σ[j<7] 1 - less(S[i,(j+1)%7],S[i,j])"


def _windows() -> Iterator[Pair]:
    for size, pad in ((3, 1), (5, 2), (2, 1), (7, 3)):
        window = f"max[r<{size},s<{size}] X[h+r-{pad},w+s-{pad}]"
        yield PLANE, f"L[h<11,w<13] {window}|-inf", f"L[h<11,w<13] {window}"
    yield PLANE, "L[h<6,w<7] max[r<3,s<3] X[2*h+r-1,2*w+s-1]|-inf", "L[h<6,w<7] max[r<3,s<3] X[2*h+r-1,2*w+s-1]"
    yield PLANE, "L[h<5,w<6] min[r<3,s<3] X[2*h+r-1,2*w+s-1]|inf", "L[h<5,w<6] min[r<3,s<3] X[2*h+r-1,2*w+s-1]"
    yield PLANE, "L[h<11,w<13] max[r<3,s<3] X[h+r-1,w+s-1]|-inf", "L[h<11,w<13] max[r<3,s<3] X[h+r-1,w+s-1]|-100000"
    yield PLANE, "L[h<9,w<11] max[r<3,s<3] X[h+r,w+s]", "L[h<9,w<11] max[r<3] X[h+r,w+r]"
    yield PLANE, "L[h<9,w<13] max[r<3] X[h+r,w]", "L[h<9,w<13] max[r<2] X[h+r,w]"
    yield PLANE, "L[h<9,w<13] max[r<3] X[h+r,w]", "L[h<9,w<13] max[r<3] X[h+r,12-w]"
    yield PLANE, "L[h<11,w<13] max[r<3,s<3] X[h+r-1,w+s-1]", "L[h<11,w<13] max[r<3] {L[h<11,w<13] max[s<3] X[h,w+s-1]}[h+r-1,w]|-inf"
    yield PLANE, "L[h<3,w<4] max[r<5] X[4*h+r-1,3*w]|-inf", "L[h<3,w<4] max[r<4] X[4*h+r-1,3*w]|-inf"
    yield PLANE, "L[h<11] max[w<13] X[h,w]", "L[h<11] max[w<13] X[h,w]*X[h,0]"
    yield PLANE, "L[h<11] max[w<13] X[h,w]", "L[h<11] max[w<13] abs(X[h,w])"


def _lost() -> Iterator[Pair]:
    whole = "L[] max[k<4096] Y[k]"
    for at in (0, 1, 777, 2048, 4094):
        rest = f"{{L[] max[k<{4095 - at}] Y[k+{at + 1}]}}[]"
        yield LONG, whole, f"L[] max({{L[] max[k<{at}] Y[k]}}[],{rest})" if at else f"L[] {rest}"
    yield LONG, whole, "L[] max[k<4095] Y[k]"
    yield LONG, whole, "L[] max[k<4096] Y[(5*k)%4095]"
    yield LONG, "L[] min[k<4096] Y[k]", "L[] min[a<64,b<63] Y[64*a+b]"
    yield LONG, "L[a<64] max[b<64] Y[64*a+b]", "L[a<64] max[b<64] Y[a+64*b]"
    yield LONG, "L[a<64] max[b<64] Y[64*a+b]", "L[a<64] max[b<64] select(b==17 & a==5, Y[64*a], Y[64*a+b])"
    yield LONG, "L[x<4096] relu(Y[x])", "L[x<4096] relu(Y[x])*select(x==3071,2,1)"
    yield LONG, "L[] Σ[k<4096] relu(Y[k])", "L[] Σ[k<4096] select(k==1234,Y[k],relu(Y[k]))"


def _one_point() -> Iterator[Pair]:
    big, huge = "A : f32[1000000]\n", "A : f32[30000000]\n"
    yield big, "L[x<1000000] A[x]+relu(1-abs(val(x)-777777))", "L[x<1000000] A[x]"
    yield huge, "L[x<30000000] A[x]+relu(1-abs(val(x)-17777777))", "L[x<30000000] A[x]"
    yield huge, "L[x<30000000] A[x]+relu(1-abs(3*val(x)-17777775))", "L[x<30000000] A[x]"
    yield huge, "L[x<30000000] max(A[x],0)", "L[x<30000000] max(A[x],equal(val(x),21212121))"
    yield huge, "L[x<30000000] relu(A[x])", "L[x<30000000] select(x==23456789,A[x],relu(A[x]))"
    yield huge, "L[x<30000000] relu(A[x])", "L[x<30000000] select(x<29999999,relu(A[x]),A[x])"
    yield huge, "L[x<5000,y<6000] abs(A[6000*x+y])", "L[x<5000,y<6000] abs(A[6000*x+y])*select(x-y==4999,0,1)"
    yield huge, "L[x<30000000] relu(A[x])", "L[x<30000000] relu(A[x-x//29999999])"
    for entries, wrong, body in ((4096, 3000, "relu(A[x]*{}[x])"), (512, 511, "max(A[x],{}[x])"), (64, 0, "A[x]*{}[x]"), (9000, 4321, "A[x]+{}[x]")):
        values = [(7 * k) % 23 - 11 for k in range(entries)]
        tables = {"T": values, "U": [v + (k == wrong) for k, v in enumerate(values)]}
        declared = "".join(f"{n} : weight f32[{entries}] = [{','.join(map(str, v))}]\n" for n, v in tables.items())
        yield f"A : f32[{entries}]\n{declared}", f"L[x<{entries}] {body.format('T')}", f"L[x<{entries}] {body.format('U')}"


def _partial() -> Iterator[Pair]:
    yield line("A[i-1]/B[i-1]", "{L[i<9] A[i]/B[i]}[i-1]")
    yield line("0*(1/A[i])", "0*A[i]")
    yield line("A[i]/B[i]-A[i]/B[i]", "0*A[i]*B[i]")
    yield line("A[i]*(1/A[i])", "1+0*A[i]")
    yield line("A[i]*B[i]/B[i]", "A[i]+0*B[i]")
    yield line("B[i]/(B[i]*B[i])*B[i]", "1+0*B[i]")
    yield line("1/(1/A[i])", "A[i]")
    yield line("log(A[i])-log(A[i])", "0*A[i]")
    yield line("0*log(A[i])", "0*A[i]")
    yield line("0*sqrt(A[i])", "0*A[i]")
    yield line("log(A[i-1])", "{L[i<9] log(A[i])}[i-1]")
    yield line("pow(A[i-1],-1)", "{L[i<9] pow(A[i],-1)}[i-1]")
    yield line("pow(A[i],-1)*A[i]", "1+0*A[i]")
    yield line("pow(A[i],-2)*pow(A[i],2)", "1+0*A[i]")
    yield line("A[i]*pow(B[i],0.5)*0", "0*A[i]*B[i]")
    yield line("A[i+1]*(1/B[i])", "{L[i<8] A[i+1]/B[i]}[i]")
    yield line("A[i]/M[i]+B[i]/M[i]-B[i]/M[i]*1-A[i]/M[i]", "0*M[i]*A[i]*B[i]")
    yield SCORES, "L[i<6] Σ[j<9] S[i,j]/S[0,j]", "L[i<6] Σ[j<7] S[i,j]/S[0,j]"
    yield SCORES, "L[i<7] Σ[j<7] S[i,j]/S[j%6,j]", "L[i<7] {L[i<6] Σ[j<7] S[i,j]/S[j%6,j]}[i]"
    yield SCORES, "L[i<6] Σ[j<7] 0/S[i,j]", "L[i<6] Σ[j<7] 0*S[i,j]"
    quotient = "{L[i<9] 1/{L[i<8] exp(A[i])}[i]}"
    yield line(f"0*{quotient}[i]+{quotient}[0]", f"{quotient}[0]")


def _functions() -> Iterator[Pair]:
    yield line("log(A[i]*B[i])", "log(A[i])+log(B[i])")
    yield line("exp(log(A[i]))", "A[i]")
    yield line("sqrt(A[i]*A[i])", "A[i]")
    yield line("pow(pow(A[i],2),0.5)", "A[i]")
    yield line("sqrt(A[i])*sqrt(A[i])", "A[i]")
    yield line("pow(A[i],1/2)", "exp(log(A[i])/2)")
    yield line("floor(A[i]+1/2)", "round(A[i])")
    yield line("floor(A[i])", "A[i]")
    yield line("floor(A[i]+B[i])", "floor(A[i])+floor(B[i])")
    yield line("ceil(A[i])", "floor(A[i])+1")
    yield line("floor(2*A[i])", "2*floor(A[i])")
    yield line("round(A[i]/3)", "floor(A[i]/3)")
    yield line("tanh(A[i])", "2*sigmoid(A[i])-1")
    yield line("exp(A[i]*B[i])", "exp(A[i])*exp(B[i])")
    yield line("exp(A[i])", "1+A[i]+A[i]*A[i]/2")
    yield line("erf(A[i])", "tanh(A[i]*1.1283791670955126)")
    yield line("softplus(A[i])", "relu(A[i])")
    yield line("softplus(20*A[i])/20", "relu(A[i])")
    yield line("sin(A[i])", "sin(A[i]+6.283)")
    yield line("tanh(1000*A[i])", "sign(A[i])")
    soft = "exp(S[i,j]-{m}[i])/{{L[i<6] Σ[j<7] exp(S[i,j]-{m}[i])}}[i]"
    high = "{L[i<6] max[j<7] S[i,j]}"
    plain = "L[i<6,j<7] exp(S[i,j])/{L[i<6] Σ[j<7] exp(S[i,j])}[i]"
    yield SCORES, "L[i<6,j<7] " + soft.format(m=high), "L[i<6,j<7] exp(S[i,j])/{L[i<6] Σ[j<7] exp(S[i,j]-" + high + "[i])}[i]"
    yield SCORES, plain, "L[i<6,j<7] exp(S[i,j])/{L[i<6] Σ[j<6] exp(S[i,j])}[i]"
    yield SCORES, plain, "L[i<6,j<7] exp(S[i,j])/{L[j<7] Σ[i<6] exp(S[i,j])}[j]"
    yield SCORES, "L[i<6] max[j<7] exp(S[i,j])", "L[i<6] exp({L[i<6] Σ[j<7] S[i,j]}[i])"
    yield SCORES, "L[i<6] max[j<7] -1*S[i,j]", "L[i<6] -1*{L[i<6] max[j<7] S[i,j]}[i]"


def true_pairs() -> Iterator[tuple[str, Pair]]:
    """Names and pairs; all are identities over the reals, wherever both sides exist or do not."""
    return numbered({"identity": (*_ordered_identities(), *_reduced_identities(), *_function_identities())})


def _ordered_identities() -> Iterator[Pair]:
    for c in ("2", "1/3", "0.001", "77/5"):
        yield line(f"relu({c}*A[i])", f"{c}*relu(A[i])")
        yield line(f"{c}*max(A[i],B[i])", f"max({c}*A[i],{c}*B[i])")
    yield line("max(A[i],B[i])+M[i]", "max(A[i]+M[i],B[i]+M[i])")
    yield line("min(A[i],B[i])", "-1*max(-1*A[i],-1*B[i])")
    yield line("max(A[i],B[i])+min(A[i],B[i])", "A[i]+B[i]")
    yield line("relu(A[i])-relu(-1*A[i])", "A[i]")
    yield line("relu(A[i])+relu(-1*A[i])", "abs(A[i])")
    yield line("max(A[i],B[i])", "B[i]+relu(A[i]-B[i])")
    yield line("max(max(A[i],B[i]),M[i])", "max(A[i],max(B[i],M[i]))")
    yield line("max(A[i],max(A[i],B[i]))", "max(A[i],B[i])")
    yield line("relu(relu(A[i]))", "relu(A[i])")
    yield line("min(relu(A[i]),6)", "relu(A[i])-relu(A[i]-6)")
    yield line("min(relu(A[i]),6)", "max(min(A[i],6),0)")
    yield line("A[i]*min(relu(A[i]+3),6)/6", "A[i]*min(relu(A[i]/6+1/2),1)")
    yield line("max(min(A[i],B[i]),min(A[i],M[i]))", "min(A[i],max(B[i],M[i]))")
    yield line("abs(A[i])*abs(B[i])", "abs(A[i]*B[i])")
    yield line("less(A[i],B[i])", "less(A[i]-B[i],0)")
    yield line("less(3*A[i],3*B[i])", "less(A[i],B[i])")
    yield line("equal(A[i],B[i])", "equal(B[i]-A[i],0)")
    yield line("not(A[i])", "equal(A[i],0)")
    yield line("1-less(A[i],B[i])-less(B[i],A[i])", "equal(A[i],B[i])")
    yield line("less(A[i],B[i])*A[i]+(1-less(A[i],B[i]))*B[i]", "min(A[i],B[i])")
    yield line("sign(A[i])*A[i]", "abs(A[i])")
    yield line("sign(A[i])", "less(0,A[i])-less(A[i],0)")
    yield line("relu(A[i])", "A[i]*less(0,A[i])")
    yield line("floor(A[i]+3)", "floor(A[i])+3")
    yield line("ceil(A[i])", "-1*floor(-1*A[i])")
    yield line("sign(floor(A[i]))*less(A[i],0)", "-1*less(A[i],0)")


def _reduced_identities() -> Iterator[Pair]:
    yield PLANE, "L[h<9,w<11] max[r<3,s<3] X[h+r,w+s]", "L[h<9,w<11] max[r<3] {L[h<11,w<11] max[s<3] X[h,w+s]}[h+r,w]"
    padded = "max[r<5,s<5] X[h+r-2,w+s-2]|-inf"
    yield PLANE, f"L[h<11,w<13] {padded}", "L[h<11,w<13] max[s<5] {L[h<11,w<13] max[r<5] X[h+r-2,w]|-inf}[h,w+s-2]|-inf"
    yield PLANE, "L[h<11] max[w<13] 2*X[h,w]", "L[h<11] 2*{L[h<11] max[w<13] X[h,w]}[h]"
    yield PLANE, "L[h<11] max[w<13] -1*X[h,w]", "L[h<11] -1*{L[h<11] min[w<13] X[h,w]}[h]"
    yield PLANE, "L[h<11] max[w<13] relu(X[h,w])", "L[h<11] relu({L[h<11] max[w<13] X[h,w]}[h])"
    yield PLANE, "L[h<11] max[w<13] X[h,w]+X[h,0]", "L[h<11] {L[h<11] max[w<13] X[h,w]}[h]+X[h,0]"
    yield PLANE, "L[h<11] max[w<13] exp(X[h,w])", "L[h<11] exp({L[h<11] max[w<13] X[h,w]}[h])"
    yield PLANE, "L[h<11] max[w<13] X[h,w]", "L[h<11] max({L[h<11] max[w<5] X[h,w]}[h],{L[h<11] max[w<8] X[h,w+5]}[h])"
    yield LONG, "L[] max[k<4096] Y[k]", "L[] max[a<64] {L[a<64] max[b<64] Y[64*a+b]}[a]"
    yield LONG, "L[] max[k<4096] Y[k]", "L[] max[k<4096] Y[(5*k)%4096]"


def _function_identities() -> Iterator[Pair]:
    yield line("exp(A[i]+B[i])", "exp(A[i])*exp(B[i])")
    yield line("exp(-1*A[i])", "1/exp(A[i])")
    yield line("exp(A[i])*exp(-1*A[i])", "1+0*A[i]")
    yield line("sigmoid(A[i])", "1/(1+exp(-1*A[i]))")
    yield line("sigmoid(-1*A[i])", "1-sigmoid(A[i])")
    yield line("tanh(A[i])", "2*sigmoid(2*A[i])-1")
    yield line("tanh(-1*A[i])", "-1*tanh(A[i])")
    yield line("erf(-1*A[i])", "-1*erf(A[i])")
    yield line("softplus(A[i])", "log(1+exp(A[i]))")
    yield line("pow(A[i],2)", "A[i]*A[i]")
    yield line("sqrt(A[i]*A[i])", "abs(A[i])")
    yield line("max(exp(A[i]),exp(B[i]))", "exp(max(A[i],B[i]))")
    yield line("tanh(max(A[i],B[i]))", "max(tanh(A[i]),tanh(B[i]))")
    yield line("A[i]/B[i]+M[i]/B[i]", "(A[i]+M[i])/B[i]")
    yield line("cos(A[i])*cos(A[i])+sin(A[i])*sin(A[i])", "1+0*A[i]")
    yield line("log(exp(A[i]))", "A[i]")
    high = "{L[i<6] max[j<7] S[i,j]}[i]"
    plain = "L[i<6,j<7] exp(S[i,j])/{L[i<6] Σ[j<7] exp(S[i,j])}[i]"
    yield SCORES, plain, f"L[i<6,j<7] exp(S[i,j]-{high})/{{L[i<6] Σ[j<7] exp(S[i,j]-{high})}}[i]"
    yield SCORES, plain, "L[i<6,j<7] exp(S[i,j]-2)/{L[i<6] Σ[j<7] exp(S[i,j]-2)}[i]"
    yield SCORES, "L[i<6] log({L[i<6] Σ[j<7] exp(S[i,j])}[i])", f"L[i<6] {high}+log({{L[i<6] Σ[j<7] exp(S[i,j]-{high})}}[i])"
    masked = "exp(S[i,j] + select(i-j>=0, 0, -inf))"
    yield SCORES, f"L[i<6,c<4] Σ[j<7] {masked}*V[j,c]", "L[i<6,c<4] Σ[j<7] select(i-j>=0, exp(S[i,j]), 0)*V[j,c]"


def proven_pairs() -> Iterator[tuple[str, Pair]]:
    """Names and pairs that normal forms prove: what derivations of attention, of maxima and of clipping rest on."""
    return numbered({"proven": _proven()})


def _proven() -> Iterator[Pair]:
    square = "S : f32[26,26]\nV : f32[26,8]\n"
    scores = "{L[m<26,n<26] S[m,n] + select(n-m+6>=0 & m-n+6>=0 & (m+n)%2==0, 0, -inf)}"
    inside = "m+2*n-6>=0 & -m-2*n+31>=0"
    band = f"{{L[m<26,n<7] select({inside}, S[m,m+2*n-6], 0)}}"
    most, band_most = f"L[m<26] max[n<26] {scores}[m,n]", f"L[m<26] max[n<7] select({inside}, {band}[m,n], -inf)"
    yield square, most, band_most
    powers = f"{{L[m<26,n<26] exp({scores}[m,n] - {{{most}}}[m])}}"
    band_powers = f"{{L[m<26,n<7] select({inside}, exp({band}[m,n] - {{{band_most}}}[m]), 0)}}"
    total, band_total = f"L[m<26] Σ[n<26] {powers}[m,n]", f"L[m<26] Σ[n<7] {band_powers}[m,n]"
    yield square, total, band_total
    whole = f"L[m<26,c<8] Σ[n<26] {powers}[m,n]/{{{total}}}[m]*V[n,c]"
    yield square, whole, f"L[m<26,c<8] Σ[n<7] select({inside}, {band_powers}[m,n]/{{{band_total}}}[m]*V[m+2*n-6,c], 0)"
    for before, after in (
        ("relu(3*A[i]/7)", "3*relu(A[i])/7"), ("max(A[i],B[i])+M[i]", "max(A[i]+M[i],B[i]+M[i])"), ("min(relu(A[i]),6)", "relu(A[i])-relu(A[i]-6)"),
        ("relu(A[i])-relu(-1*A[i])", "A[i]"), ("less(5*A[i],5*B[i])", "less(A[i]-B[i],0)"), ("equal(A[i],B[i])", "1-less(A[i],B[i])-less(B[i],A[i])"),
        ("Σ[j<9] select(j==3,B[i]*{L[j<9] max[k<4] select(j>=3,7,A[k])}[j],0)", "7*B[i]"),
        ("max(max(max(A[i],B[i]),M[i])+1,A[i]*B[i])", "max(A[i]+1,max(max(B[i]+1,M[i]+1),A[i]*B[i]))"),
        ("max(max(B[i],M[i]),M[i]-A[i]*A[i])", "max(B[i],M[i])"),
        ("relu(3-abs(A[i]+2*B[i])/2)", "min(relu(A[i]/2+B[i]+3),relu(3-A[i]/2-B[i]))"),
        ("relu(3-abs(3*exp(A[i])+B[i])/2)", "min(relu(3*exp(A[i])/2+B[i]/2+3),relu(3-3*exp(A[i])/2-B[i]/2))"),
        ("max(max(A[i],B[i])+3,M[i])", "max(A[i]+3,max(M[i],B[i]+3))"), ("max(tanh(A[i]),0)", "tanh(relu(A[i]))"),
        ("exp(A[i])/exp(B[i])", "exp(A[i]-B[i])"),
        ("log(exp(A[i]))", "A[i]"), ("sigmoid(A[i])", "1/(1+exp(-1*A[i]))"), ("abs(abs(A[i])-2)", "max(max(A[i]-2,-1*A[i]-2),min(A[i]+2,2-A[i]))"),
        ("select(i>=3,1/A[i],-inf)+B[i]", "select(i>=3,1/A[i]+B[i],-inf)"), ("exp(select(i>=3,1/A[i],-inf)+B[i])", "select(i>=3,exp(1/A[i]+B[i]),0)"),
        ("select(i>=3,A[i],0)*select(i>=4,1/B[i],0)", "select(i>=4,A[i]/B[i],0)"), ("select(i>=3,1/B[i],0)*A[i]", "select(i>=3,A[i]/B[i],0)"),
        ("select(i>=3,A[i],0)/B[i]*M[i]", "M[i]*(1/B[i])*select(i-3>=0,A[i],0)"), ("select(i>=0,A[i],0)/B[i]", "A[i]/B[i]"),
        ("select(i>=4,select(i>=2,A[i],0)/B[i],0)", "{L[4<=i<9] A[i]/B[i]}[i]"),
        ("select(i//3-1>=0,A[i],0)*select(i>=3,1/B[i],0)", "select(i>=3,A[i]/B[i],0)"),
        ("select(i%2==0,A[i],0)*select(i%2==0,1/B[i],0)", "select(i%2==0,A[i]/B[i],0)"),
        ("exp(2*select(i>=3,3*A[i],-inf))", "select(i>=3,exp(6*A[i]),0)"),
        ("exp(select(i>=3,A[i],-inf)+(B[i+4]|-inf))", "select(i>=3,exp(A[i]+(B[i+4]|-inf)),0)"),
        ("relu(min(relu(A[i]),6)-1)", "relu(A[i]-1)-relu(A[i]-6)"), ("floor(A[i]-4)+ceil(-1*A[i])", "-4+0*A[i]"),
    ):  # fmt: skip
        yield line(before, after)
    plane = "X : f32[11,13]\n"
    yield plane, "L[h<11] max[w<13] 3*relu(X[h,w])-X[h,2]", "L[h<11] 3*relu({L[h<11] max[w<13] X[h,w]}[h])-X[h,2]"
    one = "U : f32[1,6]\nW : f32[6,4]\n"
    yield one, "L[h<3,f<4] {L[-1<=t<3,f<4] Σ[c<6] U[t,c]*W[c,f]}[h-1,f]", "L[h<3,f<4] {L[t<1,f<4] Σ[c<6] U[t,c]*W[c,f]}[h-1,f]"
    halves = "select(h//2+r-1>=0 & 4-h//2-r>=0, X[h,r]*X[h,2*r], 0)"
    yield plane, f"L[h<11] Σ[r<9] exp({halves})", "L[h<11] Σ[r<9] exp(select(h+2*r-2>=0 & 9-h-2*r>=0, X[h,r]*X[h,2*r], 0))"
