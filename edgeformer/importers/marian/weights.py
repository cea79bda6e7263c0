"""Weights of Marian models, in the names and shapes of the families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.marian.binary import Item, QuantizedMatrix
from edgeformer.importers.marian.options import MAX_LENGTH
from edgeformer.importers.model import Weights
from edgeformer.importers.positions import halves
from edgeformer.quantization import LinearScales

OUTPUT_ACTIVATION = "none_QuantMultA"
"""Factor of the inputs of the output projection, whose weight has no name of its own there."""


def convert_weights(items: Mapping[str, Item], config: Mapping[str, Any]) -> tuple[Weights, dict[str, LinearScales]]:
    """Convert arrays from Marian's names and shapes, ``(in, out)`` and ``(1, out)``.

    Args:
        items: arrays of a model by Marian's names.
        config: section ``[model]`` of the recipe.

    Returns:
        Weights by the names of parameters, and the scales of the layers that are quantized in the model.

    Raises:
        ImporterError: an array is missing.
    """
    conversion = _Conversion(items, config)
    conversion.run()
    return conversion.weights, conversion.scales


class _Conversion:
    def __init__(self, items: Mapping[str, Item], config: Mapping[str, Any]) -> None:
        self.items, self.config = items, config
        self.weights: Weights = {}
        self.scales: dict[str, LinearScales] = {}

    def run(self) -> None:
        config = self.config
        for index in range(config["encoder_layers"]):
            ours, theirs = f"encoder_layers.{index}", f"encoder_l{index + 1}"
            self.attention(f"{ours}.attention", f"{ours}.attention_residual", f"{theirs}_self")
            self.feed_forward(ours, theirs)
        for index in range(config["decoder_layers"]):
            ours, theirs = f"decoder_layers.{index}", f"decoder_l{index + 1}"
            if config["family"] == "ssru":
                self.linear(f"{ours}.target_layer.forget", f"{theirs}_rnn_Wf", f"{theirs}_rnn_bf")
                self.linear(f"{ours}.target_layer.candidate", f"{theirs}_rnn_W", None)
                self.residual_norm(f"{ours}.target_residual", f"{theirs}_rnn_ffn_ln")
            else:
                self.attention(f"{ours}.target_layer.attention", f"{ours}.target_residual", f"{theirs}_self")
            self.attention(f"{ours}.cross_attention", f"{ours}.cross_residual", f"{theirs}_context")
            self.feed_forward(ours, theirs)
        if config["final_norm"]:
            for side in ("encoder", "decoder"):
                self.norm(f"{side}_norm", f"{side}_top_ln")
        self.tables()
        self.positions()

    def array(self, name: str) -> NDArray[np.float32]:
        if name not in self.items:
            raise ImporterError(f"The model lacks the array `{name}`.")
        item = self.items[name]
        return item.values if isinstance(item, QuantizedMatrix) else np.asarray(item, dtype=np.float32)

    def linear(self, ours: str, weight: str, bias: str | None) -> None:
        self.weights[f"{ours}.weight"] = self.array(weight).T
        self.scale(ours, weight, f"{weight}_QuantMultA")
        if bias is not None:
            self.weights[f"{ours}.bias"] = self.array(bias).reshape(-1)

    def scale(self, ours: str, weight: str, activation: str) -> None:
        item = self.items[weight]
        if isinstance(item, QuantizedMatrix):
            factor = float(self.array(activation).item()) if activation in self.items else None
            if factor is not None and not 0 < factor < np.inf:
                raise ImporterError(f"`{activation}` is {factor}, not a positive number.")
            self.scales[ours] = LinearScales(weight=1 / item.factor, activation=None if factor is None else 1 / factor)

    def norm(self, ours: str, theirs: str, suffix: str = "") -> None:
        self.weights[f"{ours}.weight"] = self.array(f"{theirs}_scale{suffix}").reshape(-1)
        self.weights[f"{ours}.bias"] = self.array(f"{theirs}_bias{suffix}").reshape(-1)

    def residual_norm(self, ours: str, theirs: str) -> None:
        self.norm(f"{ours}.norm", theirs, "" if self.config["norm"] == "post" else "_pre")

    def attention(self, ours: str, residual: str, theirs: str) -> None:
        for part, letter in {"query": "q", "key": "k", "value": "v", "output": "o"}.items():
            self.linear(f"{ours}.{part}", f"{theirs}_W{letter}", f"{theirs}_b{letter}")
        self.residual_norm(residual, f"{theirs}_Wo_ln")

    def feed_forward(self, ours: str, theirs: str) -> None:
        for place, number in ((0, 1), (3, 2)):
            self.linear(f"{ours}.feed_forward.{place}", f"{theirs}_ffn_W{number}", f"{theirs}_ffn_b{number}")
        self.residual_norm(f"{ours}.feed_forward_residual", f"{theirs}_ffn_ffn_ln")

    def tables(self) -> None:
        """The embeddings and the output projection, which get a row of zeros for the start token."""
        config, weights = self.config, self.weights
        one_table = config["tied_embeddings"] in {"all", "inputs"}
        for side, name in {"target": "decoder_Wemb", "source": "encoder_Wemb"}.items():
            if one_table and side == "source":
                continue
            table = "Wemb" if one_table else name
            weights[f"{side}_embedding.tokens.weight"] = with_start_row(self.array(table))
            tied_output = side == "target" and config["tied_embeddings"] in {"all", "decoder"}
            self.scale(f"{side}_embedding.tokens", table, OUTPUT_ACTIVATION if tied_output else "")
        if config["tied_embeddings"] in {"none", "inputs"}:
            output = "decoder_ff_logit_out_W"
            transposed = f"{output}t" in self.items
            rows = self.array(f"{output}t") if transposed else self.array(output).T
            weights["projection.weight"] = with_start_row(rows)
            self.scale("projection", f"{output}t" if transposed else output, OUTPUT_ACTIVATION)
        if config["output_bias"]:
            bias = self.array("decoder_ff_logit_out_b").reshape(-1, 1)
            weights["projection.bias"] = with_start_row(bias).reshape(-1)
        if config["embedding_norm"]:
            for side, prefix in (("source", "encoder"), ("target", "decoder")):
                self.norm(f"{side}_embedding.norm", f"{prefix}_emb_ln", "_post")

    def positions(self) -> None:
        config = self.config
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self.array("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            self.weights["source_embedding.positions"] = self.weights["target_embedding.positions"] = positions


def with_start_row(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Append the row of the start token, zeros."""
    return np.concatenate((rows, np.zeros((1, rows.shape[1]), np.float32)))
