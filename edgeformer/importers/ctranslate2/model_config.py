"""The configuration of a model, from the numbers that it states and the shapes of its arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.ctranslate2.weights import CTranslate2Weights

MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH = 1024, 256
"""CTranslate2's own defaults; models with fewer positions have fewer."""
MAX_WIDTH = 1 << 14
SIDES = ("encoder", "decoder")
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 4: "gelu_sigmoid"}
WITHOUT_EFFECT = (
    r"(encoder/)?embeddings_merge|decoder/alibi(_use_positive_positions)?|decoder/scale_alibi|layernorm_embedding|"
    r"with_relative_position|(decoder/)?alignment_(layer|heads)"
)
"""Numbers that matter only together with others, or for attention that is returned."""
UNSUPPORTED = {
    "embeddings_[1-9]": "several features for each source token",
    "relative_position_": "relative positions as in Shaw et al. 2018",
    "relative_asymmetric_": "asymmetric relative positions",
    "rotary_": "rotary positions",
    "num_heads_kv|multi_query": "attention with fewer heads for keys and values",
    "sliding_window": "attention to a sliding window",
    "/[qkv]_norm": "norms of queries, keys or values",
    "merged_encoder_attention|memory_kv": "self-attention merged with cross-attention",
    "project_(in|out)": "embeddings of another width than the layers",
    "shared_layer_norm|(input|post_attention|feedforward)_layer_norm|external_": "norms in other places",
    "layer_scalar": "layers with factors",
    "weight_zero": "weights quantized with zero points",
    "low_rank_weight": "weights of low rank",
    "softcapping": "limited logits",
}
"""Meaning of some names, which are given as regular expressions."""


def model_config(arrays: CTranslate2Weights, epsilon: float | None) -> dict[str, Any]:
    """Section ``[model]`` of the recipe, except for ``tied_embeddings``.

    ``epsilon`` is added to the variance of a norm; ``None`` is CTranslate2's default.
    """
    refuse_unsupported(arrays)
    heads, pre_norm, activation = (
        _of_both(arrays, name, default) for name, default in (("num_heads", 8), ("pre_norm", 1), ("activation", 0))
    )
    if activation not in ACTIVATIONS:
        raise ImporterError(f"The model has CTranslate2's activation {activation}, which no model family has.")
    _, width = arrays.matrix_shape("decoder/embeddings/weight")
    merged, _ = arrays.matrix_shape("encoder/layer_0/self_attention/linear_0/weight")
    if not 0 < heads <= width <= MAX_WIDTH or merged % (3 * heads):
        raise ImporterError(
            f"The model has {heads} heads, embeddings of {width} numbers, and {merged} rows of queries, keys and "
            "values, which do not fit each other."
        )
    d_ff, decoder_d_ff = (arrays.matrix_shape(f"{side}/layer_0/ffn/linear_0/weight")[0] for side in SIDES)
    rms = "encoder/layer_0/ffn/layer_norm/beta" not in arrays
    head_width = merged // (3 * heads)
    return {
        "family": "transformer",
        "d_model": width,
        "d_ff": d_ff,
        "decoder_d_ff": decoder_d_ff if decoder_d_ff != d_ff else None,
        "heads": heads,
        "encoder_layers": _layers(arrays, "encoder"),
        "decoder_layers": _layers(arrays, "decoder"),
        "d_k": head_width,
        "d_v": head_width,
        "attention_bias": bool(arrays.matching(r"/self_attention/linear_0/bias$|/attention/linear_[01]/bias$")),
        "attention_output_bias": bool(arrays.matching(r"/self_attention/linear_1/bias$|/attention/linear_2/bias$")),
        "attention_scale": _attention_scale(arrays, width, heads, head_width),
        "scale_embeddings": _embedding_scale(arrays, width),
        "embedding_norm": bool(arrays.matching(r"^(encoder|decoder)/layernorm_embedding/")),
        "norm": "pre" if pre_norm else "post",
        "norm_type": "rms" if rms else "layer",
        "norm_epsilon": epsilon or (1e-6 if rms else 1e-5),
        "final_norm": bool(arrays.matching(r"^(encoder|decoder)/layer_norm/")),
        "activation": ACTIVATIONS[activation],
        "ffn_bias": bool(arrays.matching(r"/ffn/linear_\w+/bias$")),
        "ffn_gated": bool(arrays.matching(r"/ffn/linear_0_noact/")),
        "output_bias": "decoder/projection/bias" in arrays,
        "output_scale": float(arrays.number("decoder/scale_outputs", 1.0)),
        "dropout": 0.1,
        **_positions(arrays),
    }


def refuse_unsupported(arrays: CTranslate2Weights) -> None:
    """Refuse variations of the Transformer that the family does not have."""
    if arrays.number("decoder/alibi", 0):
        raise ImporterError("The model has positions by ALiBi, which no model family can represent.")
    for pattern, meaning in UNSUPPORTED.items():
        for name in arrays.matching(pattern):
            is_off = arrays.shape(name) == () and not arrays.number(name, 0)
            if not is_off:
                raise ImporterError(f"The model has {meaning} (`{name}`), which no model family can represent.")


def _of_both(arrays: CTranslate2Weights, name: str, default: int) -> int:
    """A number that must be the same for the encoder and the decoder."""
    values = {int(arrays.number(f"{side}/{name}", default)) for side in SIDES}
    if len(values) > 1:
        raise ImporterError(f"The encoder and the decoder have different values of `{name}`, which no family can have.")
    return values.pop()


def _layers(arrays: CTranslate2Weights, side: str) -> int:
    count = 0
    while f"{side}/layer_{count}/self_attention/linear_0/weight" in arrays:
        count += 1
    return count


def _attention_scale(arrays: CTranslate2Weights, width: int, heads: int, head_width: int) -> str:
    """Which width's square root divides the scores, everywhere the same."""
    blocks = [name.removesuffix("/linear_0/weight") for name in arrays.matching(r"attention/linear_0/weight$")]
    scales = set()
    for block in blocks:
        divisor = arrays.number(f"{block}/head_dim", width // heads)
        scales.add(float(arrays.number(f"{block}/queries_scale", 1 / math.sqrt(max(1, divisor)))))
    for name, divisor in (("d_k", head_width), ("d_model", width), ("none", 1)):
        if all(math.isclose(scale, 1 / math.sqrt(divisor), rel_tol=1e-6) for scale in scales):
            return name
    raise ImporterError(f"The model scales attention by {sorted(scales)}, which no model family can represent.")


def _embedding_scale(arrays: CTranslate2Weights, width: int) -> bool | float:
    """Factor of the embeddings; a flag stands for the square root of their width, which is also the default."""
    root, factors = math.sqrt(width), []
    for name in (f"{side}/scale_embeddings" for side in SIDES):
        value = arrays.number(name, 1)
        is_factor = name in arrays and arrays.is_float(name)
        factors.append(float(value) if is_factor else root if value else 1.0)
    if not math.isclose(*factors, rel_tol=1e-6):
        raise ImporterError("The encoder and the decoder scale their embeddings differently, which no family can have.")
    return True if math.isclose(factors[0], root, rel_tol=1e-6) else factors[0]


def _positions(arrays: CTranslate2Weights) -> dict[str, Any]:
    """Fields about positions: a table, or T5's biases, which have no limit of their own."""
    tables = [f"{side}/position_encodings/encodings" for side in SIDES]
    lengths = [arrays.shape(name)[0] if name in arrays and arrays.shape(name) else None for name in tables]
    limits = [
        min(default, length or default)
        for default, length in zip((MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH), lengths, strict=True)
    ]
    fields = {"max_source_length": limits[0], "max_target_length": limits[1]}
    biases = arrays.matching(r"/relative_attention_bias$")
    if not biases:
        return {"positions": "table", **fields}
    name = biases[0]
    distances = {int(arrays.number(f"{name.rpartition('/')[0]}/relative_attention_max_distance", 0)) for name in biases}
    if len(distances) > 1:
        raise ImporterError("The layers have different values of `relative_attention_max_distance`.")
    buckets, _ = arrays.matrix_shape(name)
    relative = {"buckets": buckets, "max_distance": distances.pop(), "per_layer": _per_layer(arrays)}
    return {"positions": "none", "relative_bias": relative, **fields}


def _per_layer(arrays: CTranslate2Weights) -> bool:
    """Whether layers have different biases by distance. Equal ones are aliases, which cost nothing to compare."""
    for side in SIDES:
        names = arrays.matching(rf"^{side}/layer_\d+/self_attention/relative_attention_bias$")
        tables = [arrays.take(name) for name in names]
        if any(table is not tables[0] and not np.array_equal(table, tables[0]) for table in tables):
            return True
    return False
