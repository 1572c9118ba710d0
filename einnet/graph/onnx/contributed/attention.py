"""Attention of several heads with what exporters put into one node: projections, masks, past keys and values; and rotary embedding."""

from __future__ import annotations

from math import sqrt

from einnet.graph.onnx.contributed.call import Call, Definition, Undefined, definition, number, numbers

MASKED = -10000.0
"""What is added to the score of a masked place, where the node does not say."""

LEAST = -3.4028234663852886e38
"""The least number of float32: the score of a place that comes later, in attention that looks back only."""


def heads(source: str, result: str, batch: int, length: int, count: int) -> list[str]:
    """A tensor of rows as one of heads: [batch, length, count·size] as [batch, count, length, size]."""
    return [
        numbers(f"{result}_shape", batch, length, count, -1), f"{result}_split = Reshape ({source}, {result}_shape)",
        f"{result} = Transpose <perm = [0, 2, 1, 3]> ({result}_split)",
    ]  # fmt: skip


def merged(source: str, result: str, batch: int, length: int) -> list[str]:
    """The heads side by side again."""
    shape = numbers(f"{result}_shape", batch, length, -1)
    return [f"{result}_rows = Transpose <perm = [0, 2, 1, 3]> ({source})", shape, f"{result} = Reshape ({result}_rows, {result}_shape)"]


def biased(call: Call, sizes: tuple[int, ...], names: str) -> list[str]:
    """The parts of the bias added to the tensors of these names, q to q1 and so on."""
    if not call.given("bias"):
        return [f"{name}1 = Identity ({name})" for name in names]
    parts = ", ".join(f"{name}_bias" for name in names)
    split = [numbers("bias_sizes", *sizes), f"{parts} = Split <axis = 0> (bias, bias_sizes)"]
    return [*split, *(f"{name}1 = Add ({name}, {name}_bias)" for name in names)]


def mask_lines(call: Call, mask: str, batch: int, rows: int, total: int) -> list[str]:
    """`mask` as what is added to scores, `masked`, of [batch, 1, 1 or rows, total]: 0 where a place counts, else a number far below."""
    shape = call.shape(mask)
    if shape == (batch, total):
        spread = [numbers("mask_axes", 1, 2)]
    elif shape == (batch, rows, total):
        spread = [numbers("mask_axes", 1)]
    else:
        raise Undefined(f"a mask of shape {shape}")
    value = number("mask_value", call.real("mask_filter_value", MASKED))
    choose = ["mask_zero = Constant <value_int = 0> ()", f"mask_none = CastLike (mask_zero, {mask})", f"counts = Greater ({mask}, mask_none)"]
    return [*spread, value, number("nothing", 0.0), *choose, "mask_2 = Where (counts, nothing, mask_value)", "masked = Unsqueeze (mask_2, mask_axes)"]


def looking_back(rows: int, total: int) -> list[str]:
    """`score_3`, in which places that come later than the row have the least number of all; the rows are the last places."""
    return [
        numbers("row_list", *range(total - rows, total)), numbers("column_list", *range(total)), numbers("row_axis", 1),
        "row_places = Unsqueeze (row_list, row_axis)", "later = Less (row_places, column_list)", number("least_score", LEAST),
        "score_3 = Where (later, least_score, score_2)",
    ]  # fmt: skip


def attended(call: Call, mask: str, batch: int, rows: int, total: int, size: int) -> list[str]:
    """From heads `query`, `key` and `value` to `context`: softmax(scale·q·k^T + masks)·v."""
    scale = call.real("scale", 0.0) or 1.0 / sqrt(size)
    lines = ["key_turned = Transpose <perm = [0, 1, 3, 2]> (key)", "product = MatMul (query, key_turned)", number("factor", scale)]
    lines += ["score_0 = Mul (product, factor)"]
    lines += mask_lines(call, mask, batch, rows, total) if call.given(mask) else []
    lines += ["score_1 = Add (score_0, masked)" if call.given(mask) else "score_1 = Identity (score_0)"]
    lines += ["score_2 = Add (score_1, attention_bias)" if call.given("attention_bias") else "score_2 = Identity (score_1)"]
    lines += looking_back(rows, total) if call.integer("unidirectional", 0) else ["score_3 = Identity (score_2)"]
    return [*lines, "share = Softmax <axis = -1> (score_3)", "context = MatMul (share, value)"]


@definition("input weights bias mask_index past attention_bias past_sequence_length", "output present")
def attention(call: Call) -> list[str]:
    """Queries, keys and values by one product, with those of earlier places before them."""
    call.refuse("past_sequence_length")
    if call.integer("do_rotary", 0) or call.integer("past_present_share_buffer", 0):
        raise Undefined("rotary embedding, or a buffer that is shared")
    batch, rows, _ = call.shape("input")
    count, width = call.integer("num_heads", 1), call.shape("weights")[1]
    sizes = tuple(call.integers("qkv_hidden_sizes")) or (width // 3,) * 3
    earlier = call.shape("past")[3] if call.given("past") else 0
    lines = ["all_0 = MatMul (input, weights)", "all = Add (all_0, bias)" if call.given("bias") else "all = Identity (all_0)"]
    lines += [numbers("sizes", *sizes), "q, k, v = Split <axis = -1> (all, sizes)"]
    lines += heads("q", "query", batch, rows, count) + heads("k", "key_new", batch, rows, count) + heads("v", "value_new", batch, rows, count)
    if call.given("past"):
        lines += ["past_two = Identity (past)", "past_key_1, past_value_1 = Split <axis = 0, num_outputs = 2> (past_two)", numbers("pair", 0)]
        lines += [f"past_{name} = Squeeze (past_{name}_1, pair)" for name in ("key", "value")]
        lines += [f"{name} = Concat <axis = 2> (past_{name}, {name}_new)" for name in ("key", "value")]
    else:
        lines += ["key = Identity (key_new)", "value = Identity (value_new)"]
    if "present" in call.wanted:
        lines += [numbers("pair_axis", 0), *(f"{name}_1 = Unsqueeze ({name}, pair_axis)" for name in ("key", "value"))]
        lines += ["present = Concat <axis = 0> (key_1, value_1)"]
    return [*lines, *attended(call, "mask_index", batch, rows, earlier + rows, sizes[0] // count), *merged("context", "output", batch, rows)]


@definition(
    "query_in key_in value_in bias key_padding_mask attention_bias past_key past_value past_sequence_length cache_indirection",
    "output present_key present_value qk",
)
def multi_head_attention(call: Call) -> list[str]:
    """Of queries, keys and values, each of them rows; or keys and values as heads already."""
    call.refuse("past_sequence_length", "cache_indirection")
    count, shape = call.integer("num_heads", 1), call.shape("query_in")
    batch, rows = shape[:2]
    if len(shape) != 3:
        raise Undefined("queries, keys and values in one tensor")
    more, length = given_keys(call, count, batch)
    lines = [*more, *heads("q1", "query", batch, rows, count)]
    earlier = call.shape("past_key")[2] if call.given("past_key") else 0
    for name in ("key", "value"):
        joined = f"Concat <axis = 2> (past_{name}, {name}_new)" if call.given("past_key") else f"Identity ({name}_new)"
        lines += [f"{name} = {joined}", f"present_{name} = Identity ({name})"]
    return [*lines, *attended(call, "key_padding_mask", batch, rows, earlier + length, shape[2] // count), *merged("context", "output", batch, rows)]


def given_keys(call: Call, count: int, batch: int) -> tuple[list[str], int]:
    """The lines from queries, keys and values as they are given to `q1`, `key_new` and `value_new`, and how many keys there are."""
    width, shape = call.shape("query_in")[2], call.shape("key_in")
    if len(shape) == 4:
        if call.given("bias"):
            raise Undefined("a bias of heads")
        return ["q1 = Identity (query_in)", "key_new = Identity (key_in)", "value_new = Identity (value_in)"], shape[2]
    if len(shape) != 3:
        raise Undefined("keys and values in one tensor")
    sizes = width, shape[2], call.shape("value_in")[2]
    lines = ["q = Identity (query_in)", "k = Identity (key_in)", "v = Identity (value_in)", *biased(call, sizes, "qkv")]
    return [*lines, *heads("k1", "key_new", batch, shape[1], count), *heads("v1", "value_new", batch, shape[1], count)], shape[1]


@definition("input position_ids cos_cache sin_cache", "output")
def rotary_embedding(call: Call) -> list[str]:
    """As in the standard; one position is that of the first row. Rows without a number of heads have heads as large as the tables say."""
    if call.integer("is_packed_batching", 0):
        raise Undefined("rows of several lengths in one batch")
    shape, turned = call.shape("input"), call.integer("rotary_embedding_dim", 0)
    batch, length = shape[0], shape[-2]
    size = 2 * call.shape("cos_cache")[1]
    count = call.integer("num_heads", 0) or (shape[1] if len(shape) == 4 else shape[2] // size)
    lines = ["places = Identity (position_ids)"]
    if call.shape("position_ids") == (1,):
        grid = [numbers("steps", *range(length)), "row = Add (position_ids, steps)", numbers("grid", batch, length)]
        lines = [*grid, "places = Expand (row, grid)"]
    told = f"interleaved = {call.integer('interleaved', 0)}, rotary_embedding_dim = {turned}"
    told += f", num_heads = {count}" if len(shape) == 3 else ""
    return [*lines, f"output = RotaryEmbedding <{told}> (input, cos_cache, sin_cache, places)"]


ATTENTION: dict[str, Definition] = {"Attention": attention, "MultiHeadAttention": multi_head_attention, "RotaryEmbedding": rotary_embedding}
