"""Weights of Marian models, in the names and shapes of the families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.layout import OUTPUT_BIAS, MappedModule, WeightConverter, attention, halves
from edgeformer.importers.marian.binary import MarianItem, QuantizedMatrix
from edgeformer.importers.marian.options import MAX_LENGTH
from edgeformer.importers.model import FloatArray
from edgeformer.quantization import LinearScales

OUTPUT_WEIGHT, BIAS = "decoder_ff_logit_out_W", "decoder_ff_logit_out_b"
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


class MarianWeights(WeightConverter):
    """Converts arrays from Marian's names and shapes, ``(in, out)`` and ``(1, out)``.

    Args:
        items: the arrays.
        config: section ``[model]`` of the recipe.
    """

    def __init__(self, items: Mapping[str, MarianItem], config: Mapping[str, Any]) -> None:
        super().__init__(items)
        self.scales: dict[str, LinearScales] = {}
        """Scales of the layers that are quantized in the model."""
        self._items, self._config = items, config
        names = SSRU_NAMES if config["family"] == "ssru" else NAMES
        if config["norm"] == "pre":
            names = {ours: f"{theirs}_pre" if "_residual." in ours else theirs for ours, theirs in names.items()}
        self.layers(config, names, first=1)
        self._convert_tables()
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self.take("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            self.weights["source_embedding.positions"] = self.weights["target_embedding.positions"] = positions

    def _read(self, name: str) -> FloatArray:
        item = self._items[name]
        return item.values if isinstance(item, QuantizedMatrix) else np.asarray(item, dtype=np.float32)

    def _weight(self, module: MappedModule, shape: tuple[int, ...]) -> FloatArray:
        if len(shape) == 1:
            return self.take(module.theirs, 1, *shape).reshape(-1)
        self._convert_scale(module.ours, module.theirs, f"{module.theirs}_QuantMultA")
        return self.take(module.theirs, *reversed(shape)).T

    def _bias(self, module: MappedModule, size: int) -> FloatArray:
        is_norm = len(module.shape) == 1
        name = module.theirs.replace("_scale", "_bias") if is_norm else module.theirs.replace("_W", "_b")
        return self.take(name, 1, size).reshape(-1)

    def _convert_tables(self) -> None:
        """Convert the embeddings and the output projection."""
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
            self.weights[OUTPUT_BIAS] = self.take(BIAS).reshape(-1)

    def _convert_table(self, ours: str, theirs: str, activation: str) -> None:
        self._convert_scale(ours, theirs, activation)
        rows = self.take(theirs)
        self.weights[f"{ours}.weight"] = rows.T if theirs == OUTPUT_WEIGHT else rows

    def _convert_scale(self, ours: str, weight: str, activation: str) -> None:
        """Convert the factors of a weight and, if they are stated, of the inputs that it is multiplied with."""
        item = self._items.get(weight)
        if isinstance(item, QuantizedMatrix):
            factor = float(self.take(activation).item()) if activation in self._items else None
            if factor is not None and not 0 < factor < np.inf:
                raise ImporterError(f"`{activation}` is {factor}, not a positive number.")
            self.scales[ours] = LinearScales(weight=1 / item.factor, activation=None if factor is None else 1 / factor)
