"""More pairs of the kinds of `pairs`, written after the checker: what is false differs at few values, what is true looks false.

Each is (declarations, one side, the other). Tensors of truth values and of whole numbers are among them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.derivation.pairs import LONG, PLANE, SCORES, Pair, line, numbered

TRUTHS = "P : bool[9]\nQ : bool[9]\nA : f32[9]\n"
WHOLE = "N : i64[9]\nK : i64[9]\n"
LARGE = "A : f32[5000,6000]\n"


POOLED = "A : f32[6,3]\nB : f32[6,3]\nM : f32[4,6]\n"
POOL = "{L[i<6,c<3] max[r<3] {L[i<6,c<3] A[i,c]*sigmoid(A[i,c])}[i+r-1,c]|-inf}"
BESIDE = f"{{L[i<6,k<6] select(k-3>=0, {POOL}[i,k-3], B[i,k])}}"
BLOCKS = f"L[a<2,b<3,f<4] {{L[i<6,f<4] Σ[k<6] {BESIDE}[i,k]*{{L[i<6,f<4] M[f,i]}}[k,f]}}[3*a+b,f]"
PLAIN = f"L[a<2,b<3,f<4] Σ[k<6] {BESIDE}[3*a+b,k]*M[f,k]"
"""What was pooled beside what was not, times a matrix, by blocks of rows and by rows: a sum of what may be infinite somewhere."""


def truths(before: str, after: str) -> Pair:
    return TRUTHS, f"L[i<9] {before}", f"L[i<9] {after}"


def whole(before: str, after: str) -> Pair:
    return WHOLE, f"L[i<9] {before}", f"L[i<9] {after}"


def large(before: str, after: str) -> Pair:
    return LARGE, f"L[x<5000,y<6000] {before}", f"L[x<5000,y<6000] {after}"


def further_false_pairs() -> Iterator[tuple[str, Pair]]:
    """Names and pairs; none is an identity."""
    families = {"other bend": _bends(), "other tie": _ties(), "other step": _steps(), "other function": _functions(), "other window": _windows()}
    families |= {"other score": _scores(), "other place": _places(), "other table": _tables(), "other domain": _domains(), "mask": _masks()}
    families |= {"infinity": _infinities(), "choice": _choices(), "known place": _known_places(), "beyond the end": _beyond_the_end()}
    families |= {"asked": _asked(), "small locus": _small_loci()}
    yield from numbered(families)


def _bends() -> Iterator[Pair]:
    yield line("max(0,min(1,A[i]/6+1/2))", "min(1,relu(A[i])/6+1/2)")
    yield line("min(max(A[i],-1),1)", "max(min(A[i],1),-4095/4096)")
    yield line("max(A[i],A[i]/100)", "relu(A[i])-relu(-1*A[i])/64")
    yield line("relu(A[i])+B[i]*min(A[i],0)", "max(A[i],A[i]*B[i])")
    yield line("relu(A[i]*B[i])", "relu(A[i])*relu(B[i])+relu(-1*A[i])*relu(B[i])")
    yield line("abs(A[i]-B[i])", "relu(A[i]-B[i])")
    yield line("max(A[i],B[i])/M[i]", "max(A[i]/M[i],B[i]/M[i])")
    yield line("relu(A[i]/B[i])", "relu(A[i])/B[i]")
    yield line("max(A[i],min(B[i],M[i]))", "min(max(A[i],B[i]),M[i])")
    yield line("max(A[i]*A[i],A[i])", "A[i]*A[i]")
    for own, other in (("A[i]", "B[i]"), ("B[i]", "A[i]")):
        yield line("relu(3-relu(A[i])-relu(B[i]))", f"relu(3-2*relu({own}))")
        yield line(f"relu(relu({own})-2*relu({other}-1))", f"relu({other})-2*relu({other}-1)+relu({other}-2)")
        yield line(f"relu(select(i%2==0,{own},0)+{other})", "select(i%2==0,relu(A[i]+B[i]),0)")
        yield line(f"less(select(i%2==0,{own},0),{other})", f"select(i%2==0,less({own},{other}),0)")
    parts = "{L[i<9] Σ[k<9] select((2*k+i)%4==0,A[k],0)}[i]"
    yield line(f"relu({parts})", f"relu({parts}+select(i%2==1,A[i],0))")
    yield line("min(A[i]*A[i],1/64)", "1/64*less(0,abs(A[i]))")


def _ties() -> Iterator[Pair]:
    yield line("less(A[i],B[i])+less(B[i],A[i])", "1+0*A[i]*B[i]")
    yield line("less(A[i],B[i])*less(B[i],M[i])", "less(A[i],M[i])*less(B[i],M[i])")
    yield line("not(A[i]*B[i])", "not(A[i])*not(B[i])")
    yield line("not(less(A[i],B[i]))", "less(B[i],A[i])")
    yield line("equal(A[i],B[i])*equal(B[i],M[i])", "equal(A[i]+B[i],2*M[i])")
    yield line("A[i]*(1-not(M[i]))", "A[i]+0*M[i]")
    yield line("equal(max(A[i],B[i]),A[i])", "less(B[i],A[i])")
    yield line("equal(A[i]*A[i],B[i]*B[i])", "equal(A[i],B[i])")
    yield line("less(A[i]*A[i],B[i]*B[i])", "less(A[i],B[i])")
    yield SCORES, "L[i<6] Σ[j<7] equal(S[i,j],{L[i<6] max[j<7] S[i,j]}[i])", "L[i<6] 1+0*S[i,0]"
    yield SCORES, "L[i<6] Σ[j<7] equal(S[i,j],S[i,(j+1)%7])", "L[i<6] Σ[j<7] equal(S[i,j],S[i,(j+2)%7])"


def _steps() -> Iterator[Pair]:
    yield line("floor(A[i])+floor(-1*A[i])", "0*A[i]")
    yield line("floor(2*floor(A[i]))", "floor(2*A[i])")
    yield line("ceil(A[i]/2)", "floor(A[i]/2)+1")
    yield line("floor(A[i])*floor(A[i])", "floor(A[i]*A[i])")
    yield line("floor(abs(A[i]))", "abs(floor(A[i]))")
    yield line("floor(max(A[i],0)/4)*4", "max(floor(A[i]),0)")
    yield line("sign(A[i]+B[i])", "sign(A[i])+sign(B[i])")
    yield line("round(2*A[i])", "2*round(A[i])")


def _functions() -> Iterator[Pair]:
    yield line("exp(A[i]-20*not(M[i]))", "exp(A[i])*(1-not(M[i]))")
    yield line("exp(relu(A[i]))", "1+relu(A[i])")
    yield line("A[i]*sigmoid(A[i])", "relu(A[i])*sigmoid(abs(A[i]))")
    yield line("softplus(A[i])-relu(A[i])", "softplus(-1*A[i])")
    yield line("A[i]*(1+erf(A[i]*0.7071))/2", "A[i]*(1+erf(A[i]*0.70710678))/2")
    yield line("tanh(A[i])", "(1-exp(2*A[i]))/(1+exp(2*A[i]))")
    yield line("sigmoid(A[i]+B[i])", "sigmoid(A[i])*sigmoid(B[i])")
    yield line("log(1+exp(A[i]))", "log(1+exp(-1*A[i]))")


def _windows() -> Iterator[Pair]:
    yield PLANE, "L[h<6,w<7] max[r<2,s<2] X[2*h+r,2*w+s]|-inf", "L[h<6,w<7] max[r<2,s<2] X[2*h+r,2*w+s]"
    sums = "{L[h<11,w<13] Σ[r<3] X[h+r-1,w]}[h,w]"
    yield PLANE, f"L[h<11,w<13] {sums}/3", f"L[h<11,w<13] {sums}*select(h==0, 1/2, 1/3)"
    yield PLANE, "L[h<7,w<13] max[r<3] X[h+2*r,w]", "L[h<7,w<13] max[r<5] X[h+r,w]"
    inner = "{L[h<11,w<13] max[r<3] X[h+r-1,w]}"
    yield PLANE, "L[h<11,w<13] max[r<5] X[h+r-2,w]|-inf", f"L[h<11,w<13] max[s<3] {inner}[h+s-1,w]|-inf"
    yield PLANE, "L[h<11,w<13] min[r<3] X[h+r-1,w]|inf", "L[h<11,w<13] min[r<3] X[h+r-1,w]|0"
    yield PLANE, "L[h<11,w<13] Σ[r<5] X[h+r-2,w]", "L[h<11,w<13] Σ[s<3] {L[h<11,w<13] Σ[r<3] X[h+r-1,w]}[h+s-1,w]"
    yield PLANE, "L[h<11,w<13] relu(X[h,w])", "L[h<11,w<13] relu(X[h,w-w//12])"
    yield PLANE, "L[h<4,w<13] max[r<3] X[4*h+r-1,w]|-inf", "L[h<4,w<13] max[r<3] X[4*h+r-1,w]|-1000000"


def _scores() -> Iterator[Pair]:
    for before, after in (("i-j>=0", "i-j-1>=0"), ("i-j>=0", "j-i>=0"), ("i-j>=0", "i-j+6>=0")):
        causal = "L[i<6,c<4] Σ[j<7] select({}, exp(S[i,j]), 0)*V[j,c]"
        yield SCORES, causal.format(before), causal.format(after)
    soft = "L[i<6,j<7] exp(S[i,j]-{shift})/{{L[i<6] Σ[j<7] exp(S[i,j]-{shift})}}[i]"
    yield SCORES, soft.format(shift="0"), soft.format(shift="S[0,j]")
    plain = "exp(S[i,j])/{L[i<6] Σ[j<7] exp(S[i,j])}[i]"
    yield SCORES, soft.replace("S[", "2*S[").format(shift="0"), f"L[i<6,j<7] {plain}*{plain}"
    yield SCORES, "L[i<6,j<7] S[i,j]-log({L[i<6] Σ[j<7] exp(S[i,j])}[i])", "L[i<6,j<7] S[i,j]-{L[i<6] max[j<7] S[i,j]}[i]"


def _places() -> Iterator[Pair]:
    yield LONG, "L[] max[k<4096] Y[k]", "L[] max[k<4096] Y[(2*k)%4096]"
    yield LONG, "L[] max[k<4096] abs(Y[k])", "L[] max({L[] max[k<4096] Y[k]}[],-1*{L[] min[k<4095] Y[k]}[])"
    yield LONG, "L[] Σ[k<4096] relu(Y[k])", "L[] relu({L[] Σ[k<4096] Y[k]}[])"
    yield large("relu(A[x,y])", "select(x+y==10998, A[x,y], relu(A[x,y]))")
    yield large("abs(A[x,y])", "select(x%4999==4998 & y%5999==17, A[x,y], abs(A[x,y]))")
    yield large("max(A[x,y],0)", "max(A[x,y],less(val(x)*val(y),1)*less(4998,val(x)))")
    yield large("A[x,y]", "A[x-x//4999,y]")
    yield large("relu(A[x,y])", "select(x//100==49 & x%100==99 & y//1000==5, A[x,y], relu(A[x,y]))")


def _tables() -> Iterator[Pair]:
    def table(name: str, shape: str, values: list[str]) -> str:
        return f"{name} : weight f32[{shape}] = [{','.join(values)}]\n"

    symmetric = [[(a * b + a + b) % 17 for b in range(32)] for a in range(32)]
    bent = [[str(v + (a == 30 and b == 3)) for b, v in enumerate(row)] for a, row in enumerate(symmetric)]
    turned = table("T", "32,32", [v for row in bent for v in row])
    yield f"A : f32[32,32]\n{turned}", "L[x<32,y<32] relu(A[x,y]*T[x,y])", "L[x<32,y<32] relu(A[x,y]*T[y,x])"
    ones = table("T", "2048", ["1"] * 2047 + ["0"])
    yield f"A : f32[2048]\nB : f32[2048]\n{ones}", "L[x<2048] max(A[x],B[x]*T[x])", "L[x<2048] max(A[x],B[x])"
    high = [table(n, "700", [last if k == 699 else "1000000" for k in range(700)]) for n, last in (("T", "1000000"), ("U", "1000001"))]
    yield f"A : f32[700]\n{''.join(high)}", "L[x<700] min(A[x],T[x])", "L[x<700] min(A[x],U[x])"
    slight = [table(n, "90", [odd if k == 41 else "1/3" for k in range(90)]) for n, odd in (("T", "1/3"), ("U", "333/1000"))]
    yield f"A : f32[90]\n{''.join(slight)}", "L[x<90] less(A[x],T[x])", "L[x<90] less(A[x],U[x])"
    edge = table("T", "64", ["0"] * 63 + ["5"])
    yield f"A : f32[64]\n{edge}", "L[x<64] max[r<3] A[x]+T[x+r-1]|-inf", "L[x<64] max[r<2] A[x]+T[x+r-1]|-inf"


def _domains() -> Iterator[Pair]:
    yield line("sqrt(A[i]*B[i])", "sqrt(A[i])*sqrt(B[i])")
    yield line("(A[i]*A[i]-B[i]*B[i])/(A[i]-B[i])", "A[i]+B[i]")
    yield line("pow(A[i],2)/A[i]", "A[i]")
    yield line("log(A[i]*A[i])", "2*log(A[i])")
    yield line("less(sqrt(A[i]),0)", "0*A[i]")
    yield line("equal(1/A[i],1/A[i])", "1+0*A[i]")
    yield line("0*floor(1/A[i])", "0*A[i]")
    yield line("min(A[i]/B[i],A[i]/B[i]+1)", "A[i]/B[i]+0/M[i]")
    yield truths("P[i]+Q[i]", "max(P[i],Q[i])")
    yield truths("A[i]-10000*not(P[i])", "A[i]*P[i]")
    yield truths("equal(P[i],Q[i])", "P[i]*Q[i]")
    yield whole("floor(N[i]/2)*2", "N[i]")
    yield whole("less(N[i],K[i]+1)", "less(N[i],K[i])")
    yield whole("floor(N[i]/3)", "round(N[i]/3)")


def _masks() -> Iterator[Pair]:
    """Beside a mask, and in one of two, stands what need not be a number: then there is none beyond the mask either. Nor is 0 times such a number."""
    for loose in ("log(B[i])", "1/B[i]", "sqrt(A[i])"):
        yield line(f"select(i>=3,A[i],0)*({loose})", f"select(i>=3,A[i]*({loose}),0)")
        yield line(f"exp(select(i>=3,A[i],-inf))*({loose})", f"select(i>=3,exp(A[i])*({loose}),0)")
        yield line(f"select(i%2==0,A[i],0)*({loose})*select(i>=3,M[i],0)", f"select(i%2==0 & i>=3,A[i]*({loose})*M[i],0)")
        yield line(f"relu(select(i>=3,A[i],-inf)+{loose})", f"relu(select(i>=3,A[i]+{loose},-inf))")
        yield line(f"exp(select(i>=3,A[i],-inf)+{loose})", f"select(i>=3,exp(A[i]+{loose}),0)")
    yield line("select(i>=3,A[i],0)/B[i]", "A[i]/B[i]")
    yield line("select(i-3==0,A[i],0)/B[i]", "A[i]/B[i]")
    yield line("select(i>=3,A[i],0)*select(i>=4,1/B[i],0)", "select(i>=4,A[i]/B[i],0)+select(i>=3 & 3-i>=0,A[i]/B[i],0)")
    yield line("{L[i<8] A[i]*A[i]}[i-1]/B[i]", "{L[i<8] A[i]*A[i]/B[i+1]}[i-1]")
    yield SCORES, "L[i<6] Σ[j<7] select(j-i>=0,S[i,j],0)*log(S[i,j])", "L[i<6] Σ[j<7] select(j-i>=0,S[i,j]*log(S[i,j]),0)"
    for end in ("-inf", "inf"):
        yield line("tanh(select(i>=3,A[i],-inf)+select(6-i>=0,B[i],inf))", f"tanh(select(i>=3 & 6-i>=0,A[i]+B[i],{end}))")
    yield line("0*log(A[i])", "log(A[i])")
    yield line("A[i/2]/B[i]", "select(i%2==0,A[i/2]/B[i],0)")
    both = "select(i>=3,1/A[i],-inf)+select(6-i>=0,B[i],-inf)"
    yield line(both, "select(i>=3 & 6-i>=0,1/A[i]+B[i],-inf)")
    yield line(f"exp({both})", "select(i>=3 & 6-i>=0,exp(1/A[i]+B[i]),0)")
    yield SCORES, "L[i<6] max[j<7] select(j-i>=0,S[i,j],-inf)+log(S[i,j])", "L[i<6] max[j<7] select(j-i>=0,S[i,j]+log(S[i,j]),-inf)"


def _infinities() -> Iterator[Pair]:
    """What is infinite somewhere: times a sum it is no sum of infinities, and beside its opposite no number; nor is 0 times it 0."""
    nested = ("{L[i<9] select(i>=3,M[i],inf)}[i]", "{L[i<5] M[i]}[i]|inf", "{L[i<9] max[k<9] select(i>=k+1,M[k],-inf)}[i]")
    for loose in ("(-inf)", "select(i>=3,M[i],-inf)", *nested):
        yield line(f"(A[i]+B[i])*{loose}", f"A[i]*{loose}+B[i]*{loose}")
        yield line(f"{loose}*max(A[i],B[i])", f"{loose}*B[i]+{loose}*relu(A[i]-B[i])")
        yield line(f"3*{loose}-2*{loose}", loose)
        yield line(f"{loose}+0*{loose}", loose)
        yield line(f"0*{loose}+{loose}", loose)
        yield line(f"{loose}*{{L[i<9] Σ[k<4] A[k]*B[i]}}[i]", f"{{L[i<9] Σ[k<4] A[k]*B[i]*{loose}}}[i]")
        yield line(f"{loose}*{{L[] Σ[k<9] A[k]}}[]", f"{{L[i<9] Σ[k<12] A[k]*{loose}}}[i]")
    for end, name in (("-inf", "sigmoid"), ("-inf", "exp"), ("-inf", "softplus"), ("inf", "tanh")):
        loose = f"select(i>=3,M[i],{end})"
        yield line(f"0*{name}({loose})+0*{loose}", "0*M[i]")
        if name != "tanh":
            yield line(f"{name}({loose})*{loose}", f"select(i>=3,{name}(M[i])*M[i],0)")
    yield line("exp(select(i>=3,M[i],inf))*exp(-1*select(i>=3,M[i],inf))", "1+0*M[i]")
    yield line("sin(select(i>=3,M[i],inf))", "select(i>=3,sin(M[i]),0)")
    yield POOLED, BLOCKS, PLAIN.replace("M[f,k]", "M[f,5]")
    yield POOLED, BLOCKS, PLAIN.replace("Σ[k<6]", "Σ[k<5]")
    table = "C : weight f32[4] = [1,-2,0,3]\nM : f32[9]\n"
    yield table, "L[i<9] Σ[k<4] C[k]*select(i>=3,M[i],-inf)", "L[i<9] 2*select(i>=3,M[i],-inf)"


def _known_places() -> Iterator[Pair]:
    """Where an equation says what an iterator is, functions of it become numbers; what is 0 beyond a mask need not be so behind a function."""
    for at in ("k-i==0", "2*k-2*i==0", "k-i>=0 & i-k>=0"):
        yield line(f"Σ[k<9] select({at},max(A[k]-A[i],3)*B[k],0)", "B[i]")
        yield line(f"Σ[k<9] select({at},B[k]/max(A[k]-A[i],3),0)", "B[i]/2")
    for name in ("cos", "exp", "sigmoid", "softplus"):
        yield line(f"{name}(select(i>=3,A[i],0))", f"select(i>=3,{name}(A[i]),0)")
    yield line("A[i]*sign(3)", "2*A[i]")
    yield line("Σ[k<5] select(i-2*k>=0 & 2*k+1-i>=0 & k%2==0,A[i],0)", "A[i]")


def _beyond_the_end() -> Iterator[Pair]:
    """0 is read where no element is, and multiplies what need not be a number, though no other place is left; or what may be infinite."""
    both = "select(i>=3,M[i],-inf)/B[i]"
    yield line(f"Σ[k<12] A[k]*{both}", f"Σ[k<9] A[k]*{both}")
    yield line("Σ[k<12] select(k>=10,A[k]/B[i],0)", "0*A[i]")
    yield line("Σ[k<12,j<12] select(k+j>=18,A[k]*M[j]/B[i],0)", "0*A[i]")
    yield line("Σ[k<3,j<3] select((2*k+3*j+1)%6==0,A[k+8]*M[j]/B[i],0)", "0*A[i]")


def _choices() -> Iterator[Pair]:
    """What is not chosen need not exist: a choice by an equation is no sum in which the other branch stands everywhere."""
    for where in ("i-3==0", "i%2==0", "i>=3 & 6-i>=0"):
        for loose in ("1/B[i]", "log(B[i])"):
            yield line(f"select({where},A[i],{loose})", f"select({where},A[i],0)+{loose}-select({where},{loose},0)")


def _asked() -> Iterator[Pair]:
    """What asks whether a value is NaN: where one does not exist it may be infinite, and that is no NaN."""
    yield line("B[i]+0*isnan(1/A[i])", "B[i]+0*(1/A[i])")
    yield line("B[i]+0*isnan(1/(A[i]*A[i]))", "B[i]+0*(1/(A[i]*A[i]))")
    yield line("B[i]+0*isnan(1/(1+A[i]))", "B[i]+0*(1/(1+A[i]))")
    yield line("B[i]+0*isnan(1/relu(A[i]))", "B[i]+0*(1/relu(A[i]))")
    yield line("B[i]+0*isnan(1/(exp(A[i])-1))", "B[i]+0*(1/(exp(A[i])-1))")
    yield line("B[i]+0*isnan(1/(tanh(A[i])))", "B[i]+0*(1/(tanh(A[i])))")
    yield line("B[i]+0*isnan(1/(A[i]-B[i]))", "B[i]+0*(1/(A[i]-B[i]))")
    yield line("B[i]+0*isnan(exp(A[i])/A[i])", "B[i]+0*(exp(A[i])/A[i])")
    yield line("exp(B[i])+0*isnan(exp(A[i])/A[i])", "exp(B[i])+0*(exp(A[i])/A[i])")
    yield line("B[i]*(1-isnan(1/A[i]))", "B[i]+0*(1/A[i])")
    yield line("choose(isnan(1/A[i]),0,B[i])", "B[i]+0*(1/A[i])")
    yield line("isnan(log(A[i]))", "0")
    yield line("isnan(sqrt(A[i]))", "0")
    yield line("isnan(pow(A[i],1/2))", "0")
    yield line("isnan(A[i]/B[i])", "0")
    yield line("isnan(A[i]/A[i])", "0")
    yield line("isnan(1/A[i]-1/A[i])", "0")
    yield line("isnan(0*(1/A[i]))", "0")
    yield line("isnan(A[i]*(1/A[i]))", "0")
    yield line("isnan(A[i]*(1/A[i])*B[i])", "isnan(1/A[i])")
    yield line("isnan(B[i]/A[i])", "isnan(1/A[i])")
    yield line("isnan(B[i]*(1/A[i]))", "isnan(1/A[i])")
    yield line("isnan(log(A[i]))", "isnan(1/A[i])")
    yield line("isnan(log(A[i]))", "less(A[i],1/2)")
    yield line("isnan(log(A[i]))", "isnan(log(-A[i]))")
    yield line("isnan(log(relu(A[i])))", "equal(relu(A[i]),0)")
    yield line("isnan(exp(A[i])*(1/A[i]))", "isnan(exp(A[i])/A[i]-1/A[i])")
    yield line("isnan(sin(1/A[i]))", "0")
    yield line("choose(isnan(A[i]/B[i]),0,A[i]/B[i])", "A[i]/B[i]")
    yield line("choose(isnan(A[i]/B[i]),0,A[i]/B[i])*1", "choose(isnan(1/B[i]),0,A[i]/B[i])")
    yield line("choose(isnan(log(A[i])),0,1)", "1")
    yield line("choose(isnan(log(A[i])),2,log(A[i]))", "log(A[i])")
    yield line("choose(isnan(sqrt(A[i])),0,sqrt(A[i]))", "sqrt(relu(A[i]))+0*sqrt(A[i])")
    yield line("isnan({L[i<9] Σ[k<3] A[i]/B[k]}[i])", "0")
    yield line("isnan({L[i<9] max[k<9] log(A[k])}[i])", "0")
    yield line("isnan({L[i<9] Σ[k<9] log(A[k])}[i])", "isnan(log(A[0]))")
    yield line("isnan(1/A[i])+isnan(0*(1/A[i]))", "0")
    yield line("isnan(pow(A[i],-1)-pow(A[i],-1))", "0")
    yield line("isnan(A[i]*pow(A[i],-1))", "0")


def _small_loci() -> Iterator[Pair]:
    """What differs where sums or products of iterators meet a number, at one element of many, or between numbers of shorter types."""
    for value, at in (("val(x)+val(y)", 7777), ("val(x)*val(y)", 7777), ("2*val(x)-val(y)/3", 1234), ("val(x+1)*val(2*y)", 7778)):
        yield large("A[x,y]", f"A[x,y]+relu(1-abs({value}-{at}))")
    yield LONG, "L[i<1] max[k<4096] Y[k]", "L[i<1] max[k<4096] select(k-2049==0,Y[0],Y[k])"
    yield LONG, "L[i<1] min[k<4096] Y[k]", "L[i<1] min[k<4096] {L[k<4096] select(k-3001==0,Y[5],Y[k])}[k]"
    yield line("as_f16(as_bf16(A[i]))", "as_bf16(as_f16(A[i]))")
    yield line("as_f16(A[i])", "as_f16(A[i]+A[i]/16777216)")
    yield line("as_bf16(2*as_bf16(A[i]))", "as_bf16(as_f16(2*A[i]))")


def further_true_pairs() -> Iterator[tuple[str, Pair]]:
    """Names and pairs; all are identities, for whole numbers and truth values where tensors hold such."""
    return numbered({"other identity": (
        *_bent_identities(), *_reduced_identities(), *_function_identities(), *_typed_identities(), *_infinite_identities(),
        *_asked_identities(),
    )})


def _bent_identities() -> Iterator[Pair]:
    yield line("abs(A[i]-B[i])", "max(A[i],B[i])-min(A[i],B[i])")
    yield line("relu(A[i]*B[i])", "relu(A[i])*relu(B[i])+relu(-1*A[i])*relu(-1*B[i])")
    yield line("max(A[i],A[i]/100)", "relu(A[i])-relu(-1*A[i])/100")
    yield line("max(A[i],B[i])/abs(M[i])", "max(A[i]/abs(M[i]),B[i]/abs(M[i]))")
    yield line("max(0,min(1,A[i]/6+1/2))", "min(relu(A[i]+3),6)/6")
    yield line("less(A[i],B[i])+less(B[i],A[i])+equal(A[i],B[i])", "1+0*A[i]*B[i]")
    yield line("not(less(A[i],B[i]))", "less(B[i],A[i])+equal(A[i],B[i])")
    yield line("not(A[i])+not(B[i])-not(A[i])*not(B[i])", "not(A[i]*B[i])")
    yield line("equal(max(A[i],B[i]),A[i])", "1-less(A[i],B[i])")
    yield line("floor(floor(A[i])/2)", "floor(A[i]/2)")
    yield line("floor(floor(2*A[i])/2)", "floor(A[i])")
    yield line("round(-1*A[i])", "-1*round(A[i])")
    yield line("sign(A[i])*sign(B[i])", "sign(A[i]*B[i])")
    yield line("less(A[i]*A[i],B[i]*B[i])", "less(abs(A[i]),abs(B[i]))")


def _reduced_identities() -> Iterator[Pair]:
    yield PLANE, "L[h<9,w<13] max[r<3] X[h+r,w]", "L[h<9,w<13] max[r<3] X[h+2-r,w]"
    yield PLANE, "L[h<11,w<13] max[r<5] X[h+r-2,w]|-inf", "L[h<11,w<13] max[s<3] {L[h<11,w<13] max[r<3] X[h+r-1,w]|-inf}[h+s-1,w]|-inf"
    yield PLANE, "L[h<11] min[w<13] 3-X[h,w]", "L[h<11] 3-{L[h<11] max[w<13] X[h,w]}[h]"
    yield LONG, "L[] max[k<4096] Y[k]", "L[] max[k<4096] Y[(4093*k)%4096]"
    yield LONG, "L[] max[k<4096] abs(Y[k])", "L[] max({L[] max[k<4096] Y[k]}[],-1*{L[] min[k<4096] Y[k]}[])"
    yield SCORES, "L[i<6] max[j<7] less(S[i,j],0)", "L[i<6] less({L[i<6] min[j<7] S[i,j]}[i],0)"


def _function_identities() -> Iterator[Pair]:
    yield line("exp(relu(A[i]))", "max(exp(A[i]),1)")
    yield line("softplus(A[i])-softplus(-1*A[i])", "A[i]")
    yield line("softplus(A[i])-relu(A[i])", "softplus(-1*abs(A[i]))")
    yield line("tanh(A[i])", "(exp(2*A[i])-1)/(exp(2*A[i])+1)")
    yield line("sigmoid(A[i])*(1+exp(-1*A[i]))", "1+0*A[i]")
    yield line("A[i]/(1+A[i]*A[i])*(1+A[i]*A[i])", "A[i]")
    yield line("1/sqrt(A[i]*A[i])", "1/abs(A[i])")
    yield line("log(A[i]*A[i])", "2*log(abs(A[i]))")
    yield line("abs(A[i]/B[i])", "abs(A[i])/abs(B[i])")
    yield line("max(log(A[i]),log(A[i]))", "log(A[i])")
    soft = "L[i<6,j<7] exp(S[i,j]-{shift})/{{L[i<6] Σ[j<7] exp(S[i,j]-{shift})}}[i]"
    for shift in ("S[i,0]", "{L[i<6] max[j<6] S[i,j]}[i]", "relu(S[i,3])"):
        yield SCORES, soft.format(shift="0"), soft.format(shift=shift)
    parts = "exp({L[i<6] log({L[i<6] Σ[j<3] exp(S[i,j])}[i])}[i])+exp({L[i<6] log({L[i<6] Σ[j<4] exp(S[i,j+3])}[i])}[i])"
    yield SCORES, "L[i<6] log({L[i<6] Σ[j<7] exp(S[i,j])}[i])", f"L[i<6] log({parts})"


def _typed_identities() -> Iterator[Pair]:
    yield truths("P[i]*P[i]", "P[i]")
    yield truths("not(P[i])", "1-P[i]")
    yield truths("max(P[i],Q[i])", "P[i]+Q[i]-P[i]*Q[i]")
    yield truths("equal(P[i],Q[i])", "1-(P[i]-Q[i])*(P[i]-Q[i])")
    yield truths("less(P[i],Q[i])", "(1-P[i])*Q[i]")
    yield truths("P[i]*less(P[i],1/2)", "0*P[i]")
    yield whole("floor((N[i]*N[i]-N[i])/2)*2", "N[i]*N[i]-N[i]")
    yield whole("less(N[i],K[i]+1)", "1-less(K[i],N[i])")
    yield whole("floor((N[i]+K[i])/1)", "N[i]+K[i]")
    yield whole("ceil(N[i]/2)", "floor((N[i]+1)/2)")


def _infinite_identities() -> Iterator[Pair]:
    mask = "select(i>=3,M[i],-inf)"
    yield POOLED, BLOCKS, PLAIN
    yield line(f"(A[i]+{mask})*B[i]", f"A[i]*B[i]+B[i]*{mask}")
    yield line(f"2*{mask}+{mask}", f"3*{mask}")
    yield line(f"A[i]*(B[i]*{mask})", f"(A[i]*{mask})*B[i]")
    yield line(f"max(A[i],A[i]+relu({mask}))", f"A[i]+relu({mask})")
    yield line(f"exp({mask}+A[i])*(B[i]+1)", f"B[i]*exp(A[i]+{mask})+exp({mask}+A[i])")
    yield line("select(i>=3,A[i],1/B[i])", "select(i>=3,A[i],0)+select(2-i>=0,1/B[i],0)")
    yield line("relu(0/B[i])", "0/B[i]")


def _asked_identities() -> Iterator[Pair]:
    """Where a value is NaN, by what it is made of."""
    yield line("isnan(log(A[i]))", "less(A[i],0)")
    yield line("isnan(1/A[i])", "0")
    yield line("isnan(A[i]/B[i])", "equal(A[i],0)*equal(B[i],0)")
    yield line("isnan(0*(1/A[i]))", "equal(A[i],0)")
    yield line("isnan(1/A[i]-1/A[i])", "equal(A[i],0)")
    yield line("isnan(sqrt(A[i]))", "less(A[i],0)")
    yield line("isnan(B[i]*(1/A[i]))", "isnan(B[i]/A[i])")
    yield line("choose(isnan(1/A[i]),2,1/A[i])", "1/A[i]")
    yield line("isnan(A[i]*pow(A[i],-1))", "equal(A[i],0)")
    yield line("isnan(log(A[i]))", "isnan(sqrt(A[i]))")
    yield line("isnan(1/(A[i]*A[i])-B[i])", "0")
    yield line("isnan(exp(1/A[i]))", "0")
    yield line("isnan(1/(1/A[i]))", "0")
    yield line("isnan(B[i]/(1/A[i]))", "0")
    yield line("isnan(sin(1/A[i]))", "equal(A[i],0)")
    yield line("isnan(relu(1/A[i]))", "0")
    yield line("isnan(tanh(1/A[i])*B[i])", "0")
    yield line("isnan(1/A[i]+1/(2*A[i]))", "0")
    yield line("isnan(pow(A[i],1/2))", "less(A[i],0)")
    yield line("isnan(1/A[i]+1/(-A[i]))", "equal(A[i],0)")
    yield line("isnan(1/(A[i]-B[i])+1/(B[i]-A[i]))", "equal(A[i],B[i])*isnan(1/(A[i]-B[i])+1/(B[i]-A[i]))")
    yield line("isnan(max(1/A[i],B[i]))", "0")
    yield line("isnan({L[i<9] max[k<9] 1/A[k]}[i])", "0")
    yield line("isnan({L[i<9] Σ[k<9] 1/(A[k]*A[k])}[i])", "0")
