"""Weights, from CTranslate2's names and merged layers.

A linear layer has its weight as ``(out, in)``. Projections of the same input are merged: queries, keys and values of
self-attention, and keys and values of cross-attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.ctranslate2.arrays import Arrays, FloatArray
from edgeformer.importers.ctranslate2.config import WITHOUT_EFFECT, model_config
from edgeformer.importers.model import Weights
from edgeformer.importers.positions import halves

SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE = (
    "source_embedding.tokens.weight",
    "target_embedding.tokens.weight",
    "projection.weight",
)
TYING = {(True, True): "all", (True, False): "inputs", (False, True): "decoder", (False, False): "none"}
"""``tied_embeddings``, by whether both embeddings are equal, and whether the projection is the target's."""


def converted(arrays: Arrays, epsilon: float | None) -> tuple[dict[str, Any], Weights]:
    """Return section ``[model]`` of the recipe, and the weights. Tied tables have the name of the target's embedding.

    Args:
        arrays: the arrays of the model.
        epsilon: what is added to the variance of a norm; ``None`` is CTranslate2's default.

    Raises:
        ImporterError: an array is missing, of another shape, or stands for something that the family cannot represent.
    """
    config = model_config(arrays, epsilon)
    conversion = _Conversion(arrays, config)
    config["tied_embeddings"] = conversion.tables()
    conversion.layers()
    if unused := [name for name in arrays.unused() if name not in WITHOUT_EFFECT]:
        raise ImporterError(f"The model has `{unused[0]}`, which no model family can represent.")
    return config, conversion.weights


class _Conversion:
    def __init__(self, arrays: Arrays, config: Mapping[str, Any]) -> None:
        self.arrays, self.config = arrays, config
        self.width = config["d_model"]
        self.inner = config["heads"] * config["d_k"]
        self.weights: Weights = {}

    def tables(self) -> str:
        """Convert the tables of tokens, and return how they are tied."""
        names = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"
        rows = [self.arrays.matrix_shape(name)[0] for name in names]
        source, target, output = (
            self.arrays.floats(name, count, self.width) for name, count in zip(names, rows, strict=True)
        )
        if rows[1] != rows[2]:
            raise ImporterError(f"The decoder has {rows[1]:,} embeddings, but {rows[2]:,} outputs.")
        tying = TYING[_equal(source, target), _equal(output, target)]
        self.weights[TARGET_TABLE] = target
        if tying in {"none", "decoder"}:
            self.weights[SOURCE_TABLE] = source
        if tying in {"none", "inputs"}:
            self.weights[OUTPUT_TABLE] = output
        if self.config["output_bias"]:
            self.weights["projection.bias"] = self.arrays.floats("decoder/projection/bias", rows[2])
        return tying

    def layers(self) -> None:
        """Convert the rest."""
        config = self.config
        for index in range(config["encoder_layers"]):
            ours, theirs = f"encoder_layers.{index}", f"encoder/layer_{index}"
            self.self_attention(f"{ours}.attention", f"{theirs}/self_attention")
            self.norm(f"{ours}.attention_residual.norm", f"{theirs}/self_attention/layer_norm")
            self.relative_bias(f"{ours}.relative_bias.weight", theirs, index)
            self.feed_forward(ours, theirs, config["d_ff"])
        for index in range(config["decoder_layers"]):
            ours, theirs = f"decoder_layers.{index}", f"decoder/layer_{index}"
            self.self_attention(f"{ours}.target_layer.attention", f"{theirs}/self_attention")
            self.norm(f"{ours}.target_residual.norm", f"{theirs}/self_attention/layer_norm")
            self.relative_bias(f"{ours}.target_layer.relative_bias.weight", theirs, index)
            self.cross_attention(f"{ours}.cross_attention", f"{theirs}/attention")
            self.norm(f"{ours}.cross_residual.norm", f"{theirs}/attention/layer_norm")
            self.feed_forward(ours, theirs, config["decoder_d_ff"] or config["d_ff"])
        for side, theirs in (("source", "encoder"), ("target", "decoder")):
            if config["final_norm"]:
                self.norm(f"{theirs}_norm", f"{theirs}/layer_norm")
            if config["embedding_norm"]:
                self.norm(f"{side}_embedding.norm", f"{theirs}/layernorm_embedding")
            if config["positions"] == "table":
                self.positions(f"{side}_embedding.positions", theirs, config[f"max_{side}_length"])

    def positions(self, ours: str, side: str, length: int) -> None:
        """The stored table, or the one that CTranslate2 computes: its positions count from 1."""
        name = f"{side}/position_encodings/encodings"
        if name in self.arrays:
            rows = self.arrays.matrix_shape(name)[0]
            self.weights[ours] = self.arrays.floats(name, rows, self.width)[:length]
        else:
            if self.width < 4 or self.width % 2:
                raise ImporterError(f"CTranslate2 has no positions for a width of {self.width}.")
            self.weights[ours] = halves(length, self.width, denominator=self.width // 2 - 1, start=1)

    def self_attention(self, ours: str, theirs: str) -> None:
        self.merged([f"{ours}.{part}" for part in ("query", "key", "value")], f"{theirs}/linear_0")
        has_bias = self.config["attention_output_bias"]
        self.linear(f"{ours}.output", f"{theirs}/linear_1", self.width, self.inner, has_bias)

    def cross_attention(self, ours: str, theirs: str) -> None:
        self.merged([f"{ours}.query"], f"{theirs}/linear_0")
        self.merged([f"{ours}.key", f"{ours}.value"], f"{theirs}/linear_1")
        has_bias = self.config["attention_output_bias"]
        self.linear(f"{ours}.output", f"{theirs}/linear_2", self.width, self.inner, has_bias)

    def merged(self, ours: list[str], theirs: str) -> None:
        """Projections of the same input, one below the other."""
        weight, bias = self.pair(theirs, len(ours) * self.inner, self.width)
        for index, name in enumerate(ours):
            part = slice(index * self.inner, (index + 1) * self.inner)
            self.weights[f"{name}.weight"] = weight[part]
            if self.config["attention_bias"]:
                self.weights[f"{name}.bias"] = bias[part]

    def feed_forward(self, ours: str, theirs: str, width: int) -> None:
        has_bias, first = self.config["ffn_bias"], f"{ours}.feed_forward.0"
        if self.config["ffn_gated"]:
            self.linear(f"{first}.gate", f"{theirs}/ffn/linear_0", width, self.width, has_bias)
            self.linear(f"{first}.linear", f"{theirs}/ffn/linear_0_noact", width, self.width, has_bias)
        else:
            self.linear(first, f"{theirs}/ffn/linear_0", width, self.width, has_bias)
        self.linear(f"{ours}.feed_forward.3", f"{theirs}/ffn/linear_1", self.width, width, has_bias)
        self.norm(f"{ours}.feed_forward_residual.norm", f"{theirs}/ffn/layer_norm")

    def linear(self, ours: str, theirs: str, rows: int, columns: int, has_bias: bool) -> None:
        weight, bias = self.pair(theirs, rows, columns)
        self.weights[f"{ours}.weight"] = weight
        if has_bias:
            self.weights[f"{ours}.bias"] = bias

    def pair(self, theirs: str, rows: int, columns: int) -> tuple[FloatArray, FloatArray]:
        """Weight and bias; zeros if this layer has no bias, but others have."""
        weight = self.arrays.floats(f"{theirs}/weight", rows, columns)
        name = f"{theirs}/bias"
        return weight, self.arrays.floats(name, rows) if name in self.arrays else np.zeros(rows, np.float32)

    def norm(self, ours: str, theirs: str) -> None:
        gamma = self.arrays.floats(f"{theirs}/gamma", self.width)
        # As in Gemma, the stored factor may be the difference from one.
        uses_residual = self.arrays.number(f"{theirs}/layer_norm_use_residual", 0)
        self.weights[f"{ours}.weight"] = gamma + 1 if uses_residual else gamma
        if self.config["norm_type"] == "layer":
            self.weights[f"{ours}.bias"] = self.arrays.floats(f"{theirs}/beta", self.width)

    def relative_bias(self, ours: str, theirs: str, index: int) -> None:
        """T5's biases by distance, which all layers of a side may share."""
        bias = self.config.get("relative_bias")
        if bias is not None:
            name = f"{theirs}/self_attention/relative_attention_bias"
            values = self.arrays.floats(name, bias["buckets"], self.config["heads"])
            if index == 0 or bias["per_layer"]:
                self.weights[ours] = values


def _equal(table: FloatArray, other: FloatArray) -> bool:
    return table is other or (table.shape == other.shape and np.array_equal(table, other))
