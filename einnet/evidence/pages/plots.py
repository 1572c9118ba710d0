"""Plots as inline SVG: whole-program times, where the time goes, kernels under the roofline. Colours come from the page's styles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from einnet.evidence.pages.proof_text import ms
from einnet.evidence.report.schema import KernelRow, Totals
from einnet.expr.notation.tags import tag

HUES = ("#2f6fde", "#d9822b", "#2a9d6f", "#b5479b", "#c0392b", "#6a5acd", "#0f94a8", "#8d6e2f", "#5f7f1e", "#e06c9f")
WIDTH, LEFT, SPAN = 880, 128, 560
ROWS = (("ONNX Runtime", "onnxruntime"), ("own operators", "original"), ("optimized", "optimized"))


def time_bars(totals: Totals, spread: Mapping[str, float | None]) -> str:
    """ONNX Runtime, the model's own operators, the optimized program: medians with their spread; what was not measured is left out."""
    times = {"onnxruntime": totals.onnxruntime_ms, "original": totals.original_ms, "optimized": totals.optimized_ms}
    rows = [(title, key, time) for title, key in ROWS if (time := times[key])]
    longest = max((time for _, _, time in rows), default=1.0)
    parts: list[str] = []
    for n, (title, key, time) in enumerate(rows):
        y = 8 + n * 34
        end, half = LEFT + SPAN * time / longest, min(SPAN * (spread.get(key) or 0.0) / longest / 2, SPAN / 4)
        parts.append(tag("text", title, x=LEFT - 10, y=y + 16, class_="end"))
        parts.append(tag("rect", class_=f"bar {key}", x=LEFT, y=y, width=end - LEFT, height=24, rx=3))
        parts.append(tag("path", class_="spread", d=f"M{end - half:.1f} {y + 12}H{end + half:.1f}"))
        parts.append(tag("text", ms(time), x=end + half + 10, y=y + 16))
    return picture(8 + 34 * len(rows), "times of the whole program", parts) if parts else tag("p", "Nothing was timed.")


def time_shares(shares: Sequence[tuple[str, float, float]]) -> str:
    """Two bars, before and after, cut at the subprograms: (title, ms before, ms after). The same colour is the same subprogram."""
    longest = max(sum(b for _, b, _ in shares), sum(a for _, _, a in shares)) or 1.0
    parts: list[str] = []
    for row, title in enumerate(("before", "after")):
        x, y = float(LEFT), 8 + row * 46
        parts.append(tag("text", title, x=LEFT - 10, y=y + 21, class_="end"))
        for n, (name, before, after) in enumerate(shares):
            time = after if row else before
            width = (WIDTH - LEFT - 20) * time / longest
            tip = tag("title", escape(f"{name}: {ms(before)} before, {ms(after)} after"))
            parts.append(tag("rect", tip, x=x, y=y, width=max(width - 1, 0.3), height=32, fill=HUES[n % len(HUES)]))
            if width > 74:
                parts.append(tag("text", ms(time), class_="in", x=x + width / 2, y=y + 20))
            x += width
    return picture(96, "time of each subprogram before and after", parts)


@dataclass(frozen=True)
class Axes:
    """Logarithmic axes between powers of ten: operations per byte across, operations per second up."""

    left: int
    right: int
    low: int
    high: int
    width: float = 640.0
    height: float = 330.0

    def x(self, intensity: float) -> float:
        return LEFT - 36 + (log10(intensity) - self.left) / (self.right - self.left) * self.width

    def y(self, rate: float) -> float:
        return 10 + (self.high - log10(rate)) / (self.high - self.low) * self.height

    def grid(self) -> Iterator[str]:
        """Lines and labels at the powers of ten."""
        x0, x1, y0 = self.x(10.0**self.left), self.x(10.0**self.right), 10 + self.height
        for e in range(self.left, self.right + 1):
            yield tag("path", class_="grid", d=f"M{self.x(10.0**e):.1f} 10V{y0}")
            yield tag("text", f"{10.0**e:g}", class_="mid", x=self.x(10.0**e), y=y0 + 18)
        for e in range(self.low, self.high + 1):
            yield tag("path", class_="grid", d=f"M{x0:.1f} {self.y(10.0**e):.1f}H{x1:.1f}")
            yield tag("text", rate_text(10.0**e), class_="end", x=x0 - 8, y=self.y(10.0**e) + 4)
        yield tag("text", "operations per byte", class_="mid", x=(x0 + x1) / 2, y=y0 + 38)


def roofline(kernels: Sequence[KernelRow], hues: Mapping[str | None, str]) -> str:
    """The kernels of a profile under what this machine can do at best; each has the colour of its subprogram, by key."""
    points = [(k.flops / k.bytes, 1e9 * k.gflops, k) for k in kernels if k.flops and k.bytes and k.gflops and k.share_of_bandwidth]
    shares = [(rate, k.share_of_peak, k) for _, rate, k in points if k.share_of_peak]
    if not shares:
        return tag("p", "No kernel's operations are known.")
    rate, share, first = shares[0]
    peak, bandwidth = rate / share, 1e9 * first.gbs / first.share_of_bandwidth
    across, up = [2 * peak / bandwidth, 1.0, *(p[0] for p in points)], [peak, peak / 100, *(p[1] for p in points)]
    axes = Axes(floor(log10(min(across))), ceil(log10(max(across))), floor(log10(min(up))), ceil(log10(max(up))))
    end, start = axes.x(10.0**axes.right), max(10.0**axes.left, 10.0**axes.low / bandwidth)
    roof = f"M{axes.x(start):.1f} {axes.y(start * bandwidth):.1f}L{axes.x(peak / bandwidth):.1f} {axes.y(peak):.1f}H{end:.1f}"
    parts = [*axes.grid(), tag("path", class_="roof", d=roof)]
    parts.append(
        tag("text", f"{rate_text(peak)}, {bandwidth / 1e9:.0f} GB/s from main memory, measured here", class_="end", x=end - 6, y=axes.y(peak) - 6)
    )
    longest = max(k.ms for _, _, k in points)
    for intensity, rate, k in sorted(points, key=lambda p: -p[2].ms):
        tip = tag("title", escape(f"{k.kernel}: {ms(k.ms)}, {rate_text(rate)}, {share_of_roof(k):.0%} of the roofline"))
        size = 3 + 9 * (k.ms / longest) ** 0.5
        parts.append(tag("circle", tip, fill=hues.get(k.key, "#8a8f99"), cx=axes.x(intensity), cy=axes.y(rate), r=size))
    return picture(386, "kernels under the roofline", parts)


def share_of_roof(k: KernelRow) -> float:
    """How close a kernel is to the nearer of its two limits; above 1 where it reads from caches what the bandwidth counts as memory."""
    return max(k.share_of_peak or 0.0, k.share_of_bandwidth)


def rate_text(v: float) -> str:
    """Operations per second with a unit."""
    return f"{v / 1e12:.3g} Tflop/s" if v >= 1e12 else f"{v / 1e9:.3g} Gflop/s" if v >= 1e9 else f"{v / 1e6:.3g} Mflop/s"


def picture(height: int, label: str, parts: Sequence[str]) -> str:
    """An SVG that scales with the page."""
    return tag("svg", "".join(parts), class_="plot", role="img", aria_label=label, viewBox=f"0 0 {WIDTH} {height}", style=f"max-width:{WIDTH}px")
