"""Single expressions to search: the paper's four operators, and those that the original engine cannot derive."""

from __future__ import annotations

from dataclasses import dataclass

CONV = "A : f32[{n},{h},{h},{c}]\nK : weight f32[{f},{c},{r},{r}]\nL[n<{n},h<{o},w<{o},f<{f}] Σ[c<{c},r<{r},s<{r}] A[n,{row},{column},c]*K[f,c,r,s]"
BAND = "Q : f32[{b},{m},{k}]\nK : f32[{b},{m},{k}]\nL[b<{b},m<{m},w<{w}] Σ[k<{k}] Q[b,m,k]*K[b,m+{d}*w-{p},k]"


@dataclass(frozen=True)
class Published:
    """What the original engine reports at depth 7: states, states without fingerprint, steps without and with converging, depth of the target."""

    states: float
    without: float
    steps: tuple[int, int]
    depth: int


@dataclass(frozen=True)
class Case:
    """An expression, and the published figures where there are some."""

    name: str
    text: str
    published: Published | None = None


def convolution(name: str, row: str, column: str, published: Published | None = None, **sizes: int) -> Case:
    """A convolution whose windows are read at `row` and `column`."""
    return Case(name, CONV.format(row=row, column=column, **sizes), published)


def band(name: str, m: int, w: int, d: int, published: Published | None = None) -> Case:
    """G2BMM with `w` diagonals on each side, `d` apart."""
    return Case(name, BAND.format(b=8, m=m, k=64, w=2 * w + 1, d=d, p=d * w), published)


def product(a: str, b: str) -> Case:
    """A batched Matmul with operands stored as the letters say."""
    sizes = {"m": 196, "n": 100, "k": 64}
    shapes = [",".join(str(sizes[x]) for x in operand) for operand in (a, b)]
    text = f"A : f32[12,{shapes[0]}]\nB : f32[12,{shapes[1]}]\nL[b<12,m<196,n<100] Σ[k<64] A[b,{','.join(a)}]*B[b,{','.join(b)}]"
    return Case(f"Matmul {a} {b}", text)


PAPER = (
    convolution("Conv3x3", "h+r-1", "w+s-1", Published(158e3, 7.1e6, (8, 4), 4), n=1, h=7, o=7, c=512, f=512, r=3),
    Case(
        "ConvTranspose",
        "A : f32[16,2,2,448]\nK : weight f32[448,256,4,4]\n"
        "L[n<16,h<4,w<4,f<256] Σ[c<448,r<4,s<4] A[n,(h-r+1)/2,(w-s+1)/2,c]*K[c,f,r,s]",
        Published(901e3, 64e6, (12, 6), 6),
    ),
    convolution("Conv5x5", "h+r-2", "w+s-2", Published(2.2e6, 77e6, (11, 7), 7), n=16, h=224, o=224, c=32, f=1, r=5),
    band("G2BMM d4", 10000, 1000, 4, Published(18e3, 1.3e6, (7, 4), 4)),
)  # fmt: skip

BEYOND = (
    convolution("Conv3x3 stride 2", "2*h+r-1", "2*w+s-1", n=1, h=56, o=28, c=128, f=128, r=3),
    convolution("Conv3x3 dilation 2", "h+2*r-2", "w+2*s-2", n=1, h=14, o=14, c=512, f=512, r=3),
    Case("Conv3x3 depthwise", "A : f32[56,56,128]\nK : weight f32[3,3,128]\nL[h<56,w<56,c<128] Σ[r<3,s<3] A[h+r-1,w+s-1,c]*K[r,s,c]"),
    Case("Conv5x1", "A : f32[28,28,256]\nK : weight f32[5,256,85]\nL[h<28,w<28,f<85] Σ[c<256,r<5] A[h+r-2,w,c]*K[r,c,f]"),
    *(product(a, b) for a in ("mk", "km") for b in ("kn", "nk")),
    *(band(f"G2BMM d{d} M4096", 4096, 128, d) for d in (1, 2, 4)),
    band("G2BMM d2 M1001", 1001, 77, 2),
)  # fmt: skip

CASES = PAPER + BEYOND
