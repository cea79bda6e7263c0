"""Weights of Marian models, in the names and shapes of the families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.layout import MappedModule, attention, halves, modules
from edgeformer.importers.marian.binary import MarianItem, QuantizedMatrix
from edgeformer.importers.marian.options import MAX_LENGTH
from edgeformer.importers.model import FloatArray, Weights
from edgeformer.quantization import LinearScales

OUTPUT_WEIGHT, OUTPUT_BIAS = "decoder_ff_logit_out_W", "decoder_ff_logit_out_b"
OUTPUT_ACTIVATION = "none_QuantMultA"
"""Factor of the inputs of the output projection, whose weight has no name of its own there."""
NAMES = {
    **attention("encoder_layers.{}.attention", "encoder_l{}_self_W*", "qkvo"),
    "encoder_layers.{}.attention_residual.norm": "encoder_l{}_self_Wo_ln_scale",
    "encoder_layers.{}.feed_forward.0": "encoder_l{}_ffn_W1",
    "encoder_layers.{}.feed_forward.3": "encoder_l{}_ffn_W2",
    "encoder_layers.{}.feed_forward_residual.norm": "encoder_l{}_ffn_ffn_ln_scale",
    **attention("decoder_layers.{}.target_layer.attention", "decoder_l{}_self_W*", "qkvo"),
    "decoder_layers.{}.target_residual.norm": "decoder_l{}_self_Wo_ln_scale",
    **attention("decoder_layers.{}.cross_attention", "decoder_l{}_context_W*", "qkvo"),
    "decoder_layers.{}.cross_residual.norm": "decoder_l{}_context_Wo_ln_scale",
    "decoder_layers.{}.feed_forward.0": "decoder_l{}_ffn_W1",
    "decoder_layers.{}.feed_forward.3": "decoder_l{}_ffn_W2",
    "decoder_layers.{}.feed_forward_residual.norm": "decoder_l{}_ffn_ffn_ln_scale",
    "encoder_norm": "encoder_top_ln_scale",
    "decoder_norm": "decoder_top_ln_scale",
    "source_embedding.norm": "encoder_emb_ln_scale_pre",
    "target_embedding.norm": "decoder_emb_ln_scale_pre",
}
"""Names of weights; layers are counted from 1. Norms in layers have the ending ``_pre`` if they come first."""
SSRU_NAMES = {
    **NAMES,
    "decoder_layers.{}.target_layer.forget": "decoder_l{}_rnn_Wf",
    "decoder_layers.{}.target_layer.candidate": "decoder_l{}_rnn_W",
    "decoder_layers.{}.target_residual.norm": "decoder_l{}_rnn_ffn_ln_scale",
}


class MarianWeights:
    """Converts arrays from Marian's names and shapes, ``(in, out)`` and ``(1, out)``.

    Args:
        items: the arrays.
        config: section ``[model]`` of the recipe.
    """

    def __init__(self, items: Mapping[str, MarianItem], config: Mapping[str, Any]) -> None:
        self.weights: Weights = {}
        """Weights by the names of parameters."""
        self.scales: dict[str, LinearScales] = {}
        """Scales of the layers that are quantized in the model."""
        self._items, self._config = items, config
        for module in modules(config, SSRU_NAMES if config["family"] == "ssru" else NAMES, first=1):
            self._convert(module)
        self._convert_tables()
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self._array("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            self.weights["source_embedding.positions"] = self.weights["target_embedding.positions"] = positions

    def _convert(self, module: MappedModule) -> None:
        """Convert a linear layer or a norm."""
        name, is_norm = module.theirs, len(module.shape) == 1
        if self._config["norm"] == "pre" and module.ours.endswith("_residual.norm"):
            name += "_pre"
        weight = self._array(name)
        self.weights[f"{module.ours}.weight"] = weight.reshape(-1) if is_norm else weight.T
        if not is_norm:
            self._convert_scale(module.ours, name, f"{name}_QuantMultA")
        if module.has_bias:
            bias = name.replace("_scale", "_bias") if is_norm else name.replace("_W", "_b")
            self.weights[f"{module.ours}.bias"] = self._array(bias).reshape(-1)

    def _convert_tables(self) -> None:
        """Convert the embeddings and the output projection, which get a row of zeros for the start token."""
        tying = self._config["tied_embeddings"]
        if tying in {"all", "inputs"}:
            embeddings = {"target_embedding.tokens": "Wemb"}
        else:
            embeddings = {"target_embedding.tokens": "decoder_Wemb", "source_embedding.tokens": "encoder_Wemb"}
        for ours, theirs in embeddings.items():
            is_output = ours.startswith("target") and tying in {"all", "decoder"}
            self._convert_table(ours, theirs, OUTPUT_ACTIVATION if is_output else "")
        if tying in {"none", "inputs"}:
            rows_first = f"{OUTPUT_WEIGHT}t"
            name = rows_first if rows_first in self._items else OUTPUT_WEIGHT
            self._convert_table("projection", name, OUTPUT_ACTIVATION)
        if self._config["output_bias"]:
            self.weights["projection.bias"] = np.append(self._array(OUTPUT_BIAS), np.float32(0))

    def _convert_table(self, ours: str, theirs: str, activation: str) -> None:
        rows = self._array(theirs)
        rows = rows.T if theirs == OUTPUT_WEIGHT else rows
        self.weights[f"{ours}.weight"] = np.concatenate((rows, np.zeros((1, rows.shape[1]), np.float32)))
        self._convert_scale(ours, theirs, activation)

    def _convert_scale(self, ours: str, weight: str, activation: str) -> None:
        """Convert the factors of a weight and, if they are stated, of the inputs that it is multiplied with."""
        item = self._items[weight]
        if isinstance(item, QuantizedMatrix):
            factor = float(self._array(activation).item()) if activation in self._items else None
            if factor is not None and not 0 < factor < np.inf:
                raise ImporterError(f"`{activation}` is {factor}, not a positive number.")
            self.scales[ours] = LinearScales(weight=1 / item.factor, activation=None if factor is None else 1 / factor)

    def _array(self, name: str) -> FloatArray:
        if name not in self._items:
            raise ImporterError(f"The model lacks the array `{name}`.")
        item = self._items[name]
        return item.values if isinstance(item, QuantizedMatrix) else np.asarray(item, dtype=np.float32)
