"""Normalisations with the sums before them."""

from __future__ import annotations

from einnet.graph.onnx.contributed.call import Call, Definition, definition, numbers


def added(call: Call, result: str) -> list[str]:
    """What is normalised: the input, the skip connection, and a bias where there is one."""
    return ["s = Add (input, skip)", f"{result} = Add (s, bias)"] if call.given("bias") else [f"{result} = Add (input, skip)"]


def layer_norm(call: Call, source: str, epsilon: float, results: str = "output, mean, inv_std_var") -> str:
    beta = ", beta" if call.given("beta") else ""
    return f"{results} = LayerNormalization <axis = -1, epsilon = {call.real('epsilon', epsilon)!r}> ({source}, gamma{beta})"


@definition("input skip gamma beta bias", "output mean inv_std_var input_skip_bias_sum")
def skip_layer_norm(call: Call) -> list[str]:
    return [*added(call, "input_skip_bias_sum"), layer_norm(call, "input_skip_bias_sum", 1e-12)]


@definition("input skip gamma bias", "output mean inv_std_var input_skip_bias_sum")
def skip_rms_norm(call: Call) -> list[str]:
    epsilon = call.real("epsilon", 1e-12)
    return [*added(call, "input_skip_bias_sum"), f"output = RMSNormalization <axis = -1, epsilon = {epsilon!r}> (input_skip_bias_sum, gamma)"]


@definition(
    "input_ids segment_ids word_embedding position_embedding segment_embedding gamma beta mask position_ids", "output mask_index embedding_sum"
)
def embed_layer_norm(call: Call) -> list[str]:
    """Rows of two or three tables added and normalised. Without positions, a word's is its place in the sequence."""
    length = call.shape("input_ids")[1]
    lines = ["word = Gather <axis = 0> (word_embedding, input_ids)"]
    lines += [] if call.given("position_ids") else [numbers("position_ids", *range(length))]
    lines += ["position = Gather <axis = 0> (position_embedding, position_ids)", "both = Add (word, position)"]
    if call.given("segment_ids"):
        lines += ["segment = Gather <axis = 0> (segment_embedding, segment_ids)", "embedding_sum = Add (both, segment)"]
    else:
        lines += ["embedding_sum = Identity (both)"]
    return [*lines, layer_norm(call, "embedding_sum", 1e-12, "output")]


NORMALIZATIONS: dict[str, Definition] = {
    "SkipLayerNormalization": skip_layer_norm, "SkipSimplifiedLayerNormalization": skip_rms_norm, "EmbedLayerNormalization": embed_layer_norm,
}  # fmt: skip
