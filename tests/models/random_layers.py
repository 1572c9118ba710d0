"""Random windows, products and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.random_nodes import Drawn, Graph


def convolution(g: Graph) -> Drawn | None:
    x = g.pick(least=3)
    if x is None:
        return None
    _, channels, *space = g.live[x]
    groups = g.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
    taps = [g.rng.randint(1, 3) for _ in space]
    attributes: dict[str, Any] = {
        "group": groups,
        "strides": [g.rng.choice((1, 1, 2, 3)) for _ in space],
        "dilations": [g.rng.choice((1, 1, 2)) for _ in space],
    }
    if g.rng.random() < 0.3:
        attributes["kernel_shape"] = taps
    if g.rng.random() < 0.2:
        attributes["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        del attributes["dilations"]
    else:
        attributes["pads"] = [g.rng.randint(0, 2) for _ in range(2 * len(space))]
    out = groups * g.rng.randint(1, 3)
    bias = [g.weight(out)] if g.rng.random() < 0.5 else []
    if g.rng.random() < 0.6:
        return Drawn("Conv", [x, g.weight(out, channels // groups, *taps), *bias], attributes)
    if "pads" in attributes and g.rng.random() < 0.5:
        attributes["output_padding"] = [g.rng.randint(0, s - 1) for s in attributes["strides"]]
    if g.rng.random() < 0.15:
        attributes.pop("pads", None)
        attributes["output_shape"] = [n * s for n, s in zip(space, attributes["strides"])]
    return Drawn("ConvTranspose", [x, g.weight(channels, out // groups, *taps), *bias], attributes)


def pooling(g: Graph) -> Drawn | None:
    x = g.pick(least=3)
    if x is None:
        return None
    rank = len(g.live[x]) - 2
    if g.rng.random() < 0.2:
        return g.rng.choice((Drawn("GlobalAveragePool", [x]), Drawn("GlobalMaxPool", [x]), Drawn("GlobalLpPool", [x], {"p": g.rng.randint(1, 3)})))
    taps = [g.rng.randint(1, min(3, n)) for n in g.live[x][2:]]
    attributes: dict[str, Any] = {"kernel_shape": taps, "strides": [g.rng.randint(1, 2) for _ in range(rank)]}
    if g.rng.random() < 0.2:
        attributes["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attributes |= {"pads": [g.rng.randint(0, t - 1) for t in taps * 2], "ceil_mode": g.rng.randint(0, 1)}
        if any(starts_in_padding(n, t, attributes, a) for a, (n, t) in enumerate(zip(g.live[x][2:], taps))):
            attributes["ceil_mode"] = 0
        if not attributes["ceil_mode"] and g.rng.random() < 0.5:
            attributes["dilations"] = [g.rng.randint(1, 2) for _ in taps]
    kinds = ({"storage_order": 0}, {"count_include_pad": g.rng.randint(0, 1)}, {"p": g.rng.randint(1, 3)})
    op, own = g.rng.choice(list(zip(("MaxPool", "AveragePool", "LpPool"), kinds)))
    return Drawn(op, [x], attributes | own)


def starts_in_padding(extent: int, taps: int, attributes: dict[str, Any], axis: int) -> bool:
    """With ceil_mode the last window would begin behind the data: shape inference counts it, engines do not."""
    rank = len(attributes["kernel_shape"])
    begin, end, stride = attributes["pads"][axis], attributes["pads"][axis + rank], attributes["strides"][axis]
    last = -(-(extent + begin + end - taps) // stride) * stride
    return bool(last >= extent + begin)


def product(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    if len(shape) == 2 and g.rng.random() < 0.4:
        turned, flipped, n = g.rng.randint(0, 1), g.rng.randint(0, 1), g.rng.randint(1, 5)
        m, k = shape[::-1] if turned else shape
        b = g.weight(n, k) if flipped else g.weight(k, n)
        c = g.weight(*g.rng.choice(((n,), (1, n), (m, 1), (m, n), ())))
        scales = {"alpha": g.rng.choice((1.0, 0.5)), "beta": g.rng.choice((1.0, 0.0, -2.0))}
        return Drawn("Gemm", [x, b, c], {"transA": turned, "transB": flipped} | scales)
    same = [n for n, s in g.live.items() if len(s) >= 2 and s[-2] == shape[-1]]
    other: Any = g.rng.choice(same) if same and g.rng.random() < 0.5 else g.weight(*g.rng.choice(((shape[-1], 3), (shape[-1],), (2, shape[-1], 2))))
    return Drawn("MatMul", [x, other])


def einsum(g: Graph) -> Drawn | None:
    x = g.pick(rank=3)
    if x is None:
        return None
    a, b, c = g.live[x]
    equation, shape = g.rng.choice(
        (
            ("abc,dc->abd", (3, c)), ("abc,abd->acd", (a, b, 2)), ("abc,cb->a", (c, b)), ("abc,bd->dac", (b, 2)), ("abc,abc->ab", (a, b, c)),
            ("...c,cd->...d", (c, 2)), ("abc,cd", (c, 2)), ("abc->cab", None), ("a...->...", None),
        )
    )  # fmt: skip
    return Drawn("Einsum", [x, *([g.weight(*shape)] if shape else [])], {"equation": equation})


def resizing(g: Graph) -> Drawn | None:
    x = g.pick(least=1)
    if x is None:
        return None
    shape = g.live[x]
    rank = len(shape)
    scales = np.array([1.0 if a < 2 else g.rng.choice((0.5, 1.0, 2.0)) for a in range(rank)], np.float32)
    if g.opset < 10:
        return Drawn("Upsample", [x, np.maximum(scales, 1)], {"mode": g.rng.choice(("nearest", "linear"))})
    way = g.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"))
    attributes: dict[str, Any] = {"mode": g.rng.choice(("nearest", "linear", "cubic")), "coordinate_transformation_mode": way}
    region = None
    if way == "tf_crop_and_resize":
        region, attributes["extrapolation_value"] = np.array([0.0] * rank + [1.0] * rank, np.float32), 0.5
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = g.rng.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    if attributes["mode"] == "cubic":
        attributes |= {"cubic_coeff_a": g.rng.choice((-0.5, -0.75)), "exclude_outside": g.rng.randint(0, 1)}
    if g.opset >= 18 and g.rng.random() < 0.2:
        attributes |= {"antialias": 1} if g.rng.random() < 0.5 and attributes["mode"] != "nearest" else {"axes": list(range(rank))}
    if g.rng.random() < 0.7:
        return Drawn("Resize", [x, region, scales], attributes)
    if g.opset >= 18 and g.rng.random() < 0.3:
        attributes["keep_aspect_ratio_policy"] = g.rng.choice(("stretch", "not_larger"))
    return Drawn("Resize", [x, region, None, np.array([n if a < 2 else g.rng.randint(1, 6) for a, n in enumerate(shape)], np.int64)], attributes)


def normalisation(g: Graph) -> Drawn | None:
    x = g.pick(least=2)
    if x is None:
        return None
    shape = g.live[x]
    c, epsilon = shape[1], {"epsilon": g.rng.choice((1e-5, 1e-2))}
    axis = g.rng.randint(-len(shape), len(shape) - 1)
    tail = shape[axis:]
    match g.rng.randrange(6):
        case 0:
            momentum = {"momentum": 0.8, "training_mode": 0} if g.opset >= 14 else {"momentum": 0.8}
            return Drawn("BatchNormalization", [x, g.weight(c), g.weight(c), g.weight(c), np.abs(g.weight(c)) + np.float32(0.1)], epsilon | momentum)
        case 1:
            return Drawn("InstanceNormalization", [x, g.weight(c), g.weight(c)], epsilon) if len(shape) > 2 else None
        case 2:
            bias = [g.weight(*tail)] if g.rng.random() < 0.5 else []
            return Drawn("LayerNormalization", [x, g.weight(*tail), *bias], {"axis": axis, "stash_type": 1} | epsilon)
        case 3:
            return Drawn("RMSNormalization", [x, g.weight(*tail)], {"axis": axis, "stash_type": 1} | epsilon)
        case 4:
            groups = g.rng.choice([d for d in range(1, c + 1) if c % d == 0])
            return Drawn("GroupNormalization", [x, g.weight(c), g.weight(c)], {"num_groups": groups, "stash_type": 1} | epsilon)
    size, bias = g.rng.choice((1, 3, 5)), g.rng.choice((1.0, 2.0))
    return Drawn("LRN", [x], {"size": size, "alpha": 0.1, "beta": g.rng.choice((0.5, 0.75)), "bias": bias}) if len(shape) == 4 else None
