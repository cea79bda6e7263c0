"""Makes the plan of a bundle: where the kernels find the weights of every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.model import Transformer
from edgeformer_export.quantize.static import SYMMETRIC_ZERO, IntegerProduct, QuantizeStaticPass
from edgeformer_export.quantize.strategies import Table
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.plan import (
    VERSION,
    DecoderLayerPlan,
    EmbeddingPlan,
    EncoderLayerPlan,
    FeedForwardPlan,
    LinearPlan,
    NormPlan,
    Plan,
)

Place = Callable[[NDArray[Any]], int]
"""Returns where an array is in the file of weights, and writes it there if it is not."""


class NotPlannableError(Exception):
    """The kernels do not compute such a model; the message says why."""


def make_plan(model: nn.Module, table: Table, quantized: Mapping[str, QuantizeStaticPass], place: Place) -> Plan:
    """Make the plan of a model whose graphs are quantized.

    Args:
        model: the torch model.
        table: its weights in int8.
        quantized: the passes that have put them into the graphs, by graph file.
        place: finds or writes tensors.

    Raises:
        NotPlannableError: the kernels do not compute such a model.
    """
    if not isinstance(model, Transformer):
        raise NotPlannableError("the kernels know the families `transformer` and `ssru` only")
    config = model.config
    _check(config)
    made = _Layers(config, table, quantized, place)
    first: Any = model.encoder_layers[0]
    recurrent = not hasattr(model.decoder_layers[0].target_layer, "attention")
    return Plan(
        version=VERSION,
        recurrent=recurrent,
        width=config.d_model,
        heads=config.heads,
        key_width=config.key_width,
        value_width=config.value_width,
        encoder_inner=config.d_ff,
        decoder_inner=config.decoder_d_ff or config.d_ff,
        norm_first=config.norm == "pre",
        norm_centers=config.norm_type == "layer",
        gated=config.ffn_gated,
        activation=config.activation,
        epsilon=config.norm_epsilon,
        encoder_scale=float(np.float32(first.attention.scale)),
        decoder_scale=1.0,  # those of decoder steps are in the weights of their queries
        cross_scale=1.0,
        output_scale=config.output_scale,
        source=made.embedding(contract.ENCODER_FILE, model.source_embedding, config.max_source_length),
        target=made.embedding(contract.DECODER_FILE, model.target_embedding, config.max_target_length),
        encoder=tuple(made.encoder_layer(index, layer) for index, layer in enumerate(model.encoder_layers)),
        encoder_norm=made.norm(model.encoder_norm),
        decoder=tuple(made.decoder_layer(index, layer, recurrent) for index, layer in enumerate(model.decoder_layers)),
        decoder_norm=made.norm(model.decoder_norm),
        projection=made.projection(),
    )


def _check(config: TransformerConfig) -> None:
    if config.relative_bias is not None or config.share_head_projection:
        raise NotPlannableError("the kernels have no biases by distance and no projections that heads share")
    if config.encoder_attention_only:
        raise NotPlannableError("the kernels have no encoder layers of attention alone")
    if any(width % 16 for width in (config.d_model, config.d_ff, config.decoder_d_ff or 16)):
        raise NotPlannableError("the kernels need widths that are multiples of 16")


class _Layers:
    """Makes the parts of a plan."""

    def __init__(
        self, config: TransformerConfig, table: Table, quantized: Mapping[str, QuantizeStaticPass], place: Place
    ) -> None:
        self.config, self.place, self._quantized = config, place, quantized
        self._linears: dict[tuple[str, str], LinearPlan] = {}
        """Products by graph file and parameter."""
        self._projections: list[LinearPlan] = []
        """Products that give logits, or that read an embedding."""
        for file in (contract.ENCODER_FILE, contract.DECODER_FILE):
            for weight in table:
                for reader in weight.readers:
                    if reader.file == file and (product := quantized[file].products.get(reader.name)) is not None:
                        names = [parameter.name for parameter in weight.layer.parameters] or [reader.name]
                        counts = [len(parameter.rows) for parameter in weight.layer.parameters] or [len(reader.rows)]
                        self._add(file, product, dict(zip(names, counts, strict=True)))
                        if file == contract.DECODER_FILE and (reader.name == contract.LOGITS or product.by_rows):
                            self._projections.append(self._linears[file, names[-1]])

    def _add(self, file: str, product: IntegerProduct, counts: Mapping[str, int]) -> None:
        """Describe a product by each of the parameters whose results are parts of it."""
        integers, columns, first = product.weight.integers, len(product.weight.scales), 0
        for name, count in counts.items():
            self._linears[file, name] = LinearPlan(
                columns=columns,
                first=first,
                count=count,
                by_rows=product.by_rows,
                weight=self.place(integers if product.by_rows else integers.T),
                scale=self.place(product.weight.scales),
                bias=None if product.bias is None else self.place(product.bias.reshape(-1)),
                input_scale=float(np.float32(product.input.scale)),
                input_zero=product.input.zero_point,
                input_most=2 * SYMMETRIC_ZERO if product.is_symmetric else 255,
            )
            first += count

    def linear(self, file: str, name: str) -> LinearPlan:
        """Return the product of a parameter."""
        if (file, name) not in self._linears:
            raise NotPlannableError(f"`{name}` is not a product in int8")
        return self._linears[file, name]

    def attention(self, file: str, name: str) -> tuple[LinearPlan, LinearPlan, LinearPlan]:
        """Return queries, keys and values."""
        query, key, value = (self.linear(file, f"{name}.{part}") for part in ("query", "key", "value"))
        return query, key, value

    def projection(self) -> LinearPlan:
        """Return the product that gives the logits."""
        if not self._projections:
            raise NotPlannableError("the output projection is not a product in int8")
        return self._projections[0]

    def norm(self, module: object) -> NormPlan:
        """Return a norm, or what stands for none."""
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        return NormPlan(weight=self._placed(weight), bias=self._placed(bias))

    def embedding(self, file: str, module: Any, length: int) -> EmbeddingPlan:
        """Return tokens and positions of one side."""
        tables = [*self._quantized[file].tables.values()]
        if len(tables) != 1:
            raise NotPlannableError("the embedding is not in int8")
        return EmbeddingPlan(
            rows=len(tables[0].scales),
            table=self.place(tables[0].integers),
            scale=self.place(tables[0].scales),
            positions=length,
            position=self._placed(module.positions),
            norm=self.norm(module.norm),
        )

    def encoder_layer(self, index: int, layer: Any) -> EncoderLayerPlan:
        """Return a layer of the encoder."""
        name, file = f"encoder_layers.{index}", contract.ENCODER_FILE
        return EncoderLayerPlan(
            norm=self.norm(layer.attention_residual.norm),
            query_key_value=self.attention(file, f"{name}.attention"),
            output=self.linear(file, f"{name}.attention.output"),
            feed_forward=self._feed_forward(file, f"{name}.feed_forward", layer),
        )

    def decoder_layer(self, index: int, layer: Any, recurrent: bool) -> DecoderLayerPlan:
        """Return a layer of the decoder. The encoder's graph computes keys and values of the source."""
        name, file = f"decoder_layers.{index}", contract.DECODER_FILE
        own, cross = f"{name}.target_layer", f"{name}.cross_attention"
        target: tuple[LinearPlan, ...]
        if recurrent:
            target, output = (self.linear(file, f"{own}.candidate"), self.linear(file, f"{own}.forget")), None
        else:
            target = self.attention(file, f"{own}.attention")
            output = self.linear(file, f"{own}.attention.output")
        return DecoderLayerPlan(
            norm=self.norm(layer.target_residual.norm),
            target=target,
            output=output,
            memory=(
                self.linear(contract.ENCODER_FILE, f"{cross}.key"),
                self.linear(contract.ENCODER_FILE, f"{cross}.value"),
            ),
            cross_norm=self.norm(layer.cross_residual.norm),
            cross_query=self.linear(file, f"{cross}.query"),
            cross_output=self.linear(file, f"{cross}.output"),
            feed_forward=self._feed_forward(file, f"{name}.feed_forward", layer),
        )

    def _feed_forward(self, file: str, name: str, layer: Any) -> FeedForwardPlan:
        inner = [f"{name}.0.gate", f"{name}.0.linear"] if self.config.ffn_gated else [f"{name}.0"]
        return FeedForwardPlan(
            norm=self.norm(layer.feed_forward_residual.norm),
            inner=tuple(self.linear(file, part) for part in inner),
            outer=self.linear(file, f"{name}.3"),
        )

    def _placed(self, value: Any) -> int | None:
        return None if value is None else self.place(value.detach().float().cpu().numpy())
