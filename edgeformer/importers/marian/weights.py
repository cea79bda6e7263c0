"""Weights of Marian models, in the names and shapes of the families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.layout import attention, halves, modules
from edgeformer.importers.marian.binary import Item, QuantizedMatrix
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


def convert_weights(items: Mapping[str, Item], config: Mapping[str, Any]) -> tuple[Weights, dict[str, LinearScales]]:
    """Convert arrays from Marian's names and shapes, ``(in, out)`` and ``(1, out)``.

    Returns:
        Weights by the names of parameters, and the scales of the layers that are quantized in the model.
    """
    conversion = _Conversion(items, config)
    conversion.run()
    return conversion.weights, conversion.scales


class MarianModule(NamedTuple):
    """A linear layer or a norm."""

    ours: str
    """Our name."""
    weight: str
    """Marian's name of the weight, ``(in, out)``, or of a norm's factors, ``(1, D)``."""
    bias: str | None
    """Marian's name of the bias, ``(1, out)``."""
    is_norm: bool

    @property
    def activation(self) -> str:
        """Bergamot's factor of the inputs."""
        return f"{self.weight}_QuantMultA"


def marian_modules(config: Mapping[str, Any]) -> Iterator[MarianModule]:
    """List the modules that section ``[model]`` of a recipe describes, except for tables and the output projection."""
    for module in modules(config, SSRU_NAMES if config["family"] == "ssru" else NAMES, first=1):
        weight, is_norm = module.theirs, len(module.shape) == 1
        if config["norm"] == "pre" and module.ours.endswith("_residual.norm"):
            weight += "_pre"
        bias = weight.replace("_scale", "_bias") if is_norm else weight.replace("_W", "_b")
        yield MarianModule(module.ours, weight, bias if module.has_bias else None, is_norm)


def tables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return Marian's name of each embedding table of its own; see :func:`marian_modules`."""
    if config["tied_embeddings"] in {"all", "inputs"}:
        return {"target_embedding.tokens": "Wemb"}
    return {"target_embedding.tokens": "decoder_Wemb", "source_embedding.tokens": "encoder_Wemb"}


class _Conversion:
    def __init__(self, items: Mapping[str, Item], config: Mapping[str, Any]) -> None:
        self.items, self.config = items, config
        self.weights: Weights = {}
        self.scales: dict[str, LinearScales] = {}

    def run(self) -> None:
        for module in marian_modules(self.config):
            weight = self.array(module.weight)
            self.weights[f"{module.ours}.weight"] = weight.reshape(-1) if module.is_norm else weight.T
            if not module.is_norm:
                self.scale(module.ours, module.weight, module.activation)
            if module.bias is not None:
                self.weights[f"{module.ours}.bias"] = self.array(module.bias).reshape(-1)
        self.tables()
        self.positions()

    def array(self, name: str) -> FloatArray:
        if name not in self.items:
            raise ImporterError(f"The model lacks the array `{name}`.")
        item = self.items[name]
        return item.values if isinstance(item, QuantizedMatrix) else np.asarray(item, dtype=np.float32)

    def scale(self, ours: str, weight: str, activation: str) -> None:
        item = self.items[weight]
        if isinstance(item, QuantizedMatrix):
            factor = float(self.array(activation).item()) if activation in self.items else None
            if factor is not None and not 0 < factor < np.inf:
                raise ImporterError(f"`{activation}` is {factor}, not a positive number.")
            self.scales[ours] = LinearScales(weight=1 / item.factor, activation=None if factor is None else 1 / factor)

    def tables(self) -> None:
        """The embeddings and the output projection, which get a row of zeros for the start token."""
        tying = self.config["tied_embeddings"]
        for ours, theirs in tables(self.config).items():
            is_output = ours.startswith("target") and tying in {"all", "decoder"}
            self.table(ours, theirs, OUTPUT_ACTIVATION if is_output else "")
        if tying in {"none", "inputs"}:
            rows_first = f"{OUTPUT_WEIGHT}t"
            self.table("projection", rows_first if rows_first in self.items else OUTPUT_WEIGHT, OUTPUT_ACTIVATION)
        if self.config["output_bias"]:
            self.weights["projection.bias"] = with_start_row(self.array(OUTPUT_BIAS).reshape(-1, 1)).reshape(-1)

    def table(self, ours: str, theirs: str, activation: str) -> None:
        rows = self.array(theirs)
        self.weights[f"{ours}.weight"] = with_start_row(rows.T if theirs == OUTPUT_WEIGHT else rows)
        self.scale(ours, theirs, activation)

    def positions(self) -> None:
        config = self.config
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self.array("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            self.weights["source_embedding.positions"] = self.weights["target_embedding.positions"] = positions


def with_start_row(rows: FloatArray) -> FloatArray:
    """Append the row of the start token, zeros."""
    return np.concatenate((rows, np.zeros((1, rows.shape[1]), np.float32)))
