"""Weights of Marian models, in the names and shapes of the families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.marian.binary import Item, QuantizedMatrix
from edgeformer.importers.marian.options import MAX_LENGTH
from edgeformer.importers.model import Weights
from edgeformer.importers.positions import halves
from edgeformer.quantization import LinearScales

OUTPUT_WEIGHT, OUTPUT_BIAS = "decoder_ff_logit_out_W", "decoder_ff_logit_out_b"
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


class Linear(NamedTuple):
    """Names of a linear layer."""

    ours: str
    """Our layer."""
    weight: str
    """Marian's weight, ``(in, out)``."""
    bias: str | None
    """Marian's bias, ``(1, out)``."""

    @property
    def activation(self) -> str:
        """Bergamot's factor of its inputs."""
        return f"{self.weight}_QuantMultA"


class Norm(NamedTuple):
    """Names of a norm."""

    ours: str
    """Our norm."""
    scale: str
    """Marian's factor, ``(1, D)``."""
    bias: str
    """Marian's bias, ``(1, D)``."""


def linear_layers(config: Mapping[str, Any]) -> Iterator[Linear]:
    """List the linear layers of a model, except the output projection.

    Args:
        config: section ``[model]`` of the recipe.
    """
    for index in range(config["encoder_layers"]):
        ours, theirs = f"encoder_layers.{index}", f"encoder_l{index + 1}"
        yield from _attention(f"{ours}.attention", f"{theirs}_self")
        yield from _feed_forward(ours, theirs)
    for index in range(config["decoder_layers"]):
        ours, theirs = f"decoder_layers.{index}", f"decoder_l{index + 1}"
        if config["family"] == "ssru":
            yield Linear(f"{ours}.target_layer.forget", f"{theirs}_rnn_Wf", f"{theirs}_rnn_bf")
            yield Linear(f"{ours}.target_layer.candidate", f"{theirs}_rnn_W", None)
        else:
            yield from _attention(f"{ours}.target_layer.attention", f"{theirs}_self")
        yield from _attention(f"{ours}.cross_attention", f"{theirs}_context")
        yield from _feed_forward(ours, theirs)


def _attention(ours: str, theirs: str) -> Iterator[Linear]:
    for part, letter in {"query": "q", "key": "k", "value": "v", "output": "o"}.items():
        yield Linear(f"{ours}.{part}", f"{theirs}_W{letter}", f"{theirs}_b{letter}")


def _feed_forward(ours: str, theirs: str) -> Iterator[Linear]:
    for place, number in ((0, 1), (3, 2)):
        yield Linear(f"{ours}.feed_forward.{place}", f"{theirs}_ffn_W{number}", f"{theirs}_ffn_b{number}")


def norms(config: Mapping[str, Any]) -> Iterator[Norm]:
    """List the norms of a model; see :func:`linear_layers`."""
    place = "" if config["norm"] == "post" else "_pre"
    residuals = [
        (f"encoder_layers.{index}.{ours}", f"encoder_l{index + 1}_{theirs}")
        for index in range(config["encoder_layers"])
        for ours, theirs in (("attention_residual", "self_Wo_ln"), ("feed_forward_residual", "ffn_ffn_ln"))
    ]
    target = "rnn_ffn_ln" if config["family"] == "ssru" else "self_Wo_ln"
    residuals += [
        (f"decoder_layers.{index}.{ours}", f"decoder_l{index + 1}_{theirs}")
        for index in range(config["decoder_layers"])
        for ours, theirs in (
            ("target_residual", target),
            ("cross_residual", "context_Wo_ln"),
            ("feed_forward_residual", "ffn_ffn_ln"),
        )
    ]
    for ours, theirs in residuals:
        yield Norm(f"{ours}.norm", f"{theirs}_scale{place}", f"{theirs}_bias{place}")
    for side, prefix in (("source", "encoder"), ("target", "decoder")):
        if config["final_norm"]:
            yield Norm(f"{prefix}_norm", f"{prefix}_top_ln_scale", f"{prefix}_top_ln_bias")
        if config["embedding_norm"]:
            yield Norm(f"{side}_embedding.norm", f"{prefix}_emb_ln_scale_pre", f"{prefix}_emb_ln_bias_pre")


def tables(config: Mapping[str, Any]) -> dict[str, str]:
    """Return Marian's name of each embedding table of its own; see :func:`linear_layers`."""
    if config["tied_embeddings"] in {"all", "inputs"}:
        return {"target_embedding.tokens": "Wemb"}
    return {"target_embedding.tokens": "decoder_Wemb", "source_embedding.tokens": "encoder_Wemb"}


class _Conversion:
    def __init__(self, items: Mapping[str, Item], config: Mapping[str, Any]) -> None:
        self.items, self.config = items, config
        self.weights: Weights = {}
        self.scales: dict[str, LinearScales] = {}

    def run(self) -> None:
        for layer in linear_layers(self.config):
            self.weights[f"{layer.ours}.weight"] = self.array(layer.weight).T
            self.scale(layer.ours, layer.weight, layer.activation)
            if layer.bias is not None:
                self.weights[f"{layer.ours}.bias"] = self.array(layer.bias).reshape(-1)
        for norm in norms(self.config):
            self.weights[f"{norm.ours}.weight"] = self.array(norm.scale).reshape(-1)
            self.weights[f"{norm.ours}.bias"] = self.array(norm.bias).reshape(-1)
        self.tables()
        self.positions()

    def array(self, name: str) -> NDArray[np.float32]:
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
        config, weights = self.config, self.weights
        for ours, theirs in tables(config).items():
            weights[f"{ours}.weight"] = with_start_row(self.array(theirs))
            tied_output = ours.startswith("target") and config["tied_embeddings"] in {"all", "decoder"}
            self.scale(ours, theirs, OUTPUT_ACTIVATION if tied_output else "")
        if config["tied_embeddings"] in {"none", "inputs"}:
            output = OUTPUT_WEIGHT
            transposed = f"{output}t" in self.items
            rows = self.array(f"{output}t") if transposed else self.array(output).T
            weights["projection.weight"] = with_start_row(rows)
            self.scale("projection", f"{output}t" if transposed else output, OUTPUT_ACTIVATION)
        if config["output_bias"]:
            bias = self.array(OUTPUT_BIAS).reshape(-1, 1)
            weights["projection.bias"] = with_start_row(bias).reshape(-1)

    def positions(self) -> None:
        config = self.config
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self.array("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            self.weights["source_embedding.positions"] = self.weights["target_embedding.positions"] = positions


def with_start_row(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Append the row of the start token, zeros."""
    return np.concatenate((rows, np.zeros((1, rows.shape[1]), np.float32)))
