"""Makes the plan of a bundle: where the kernels find the weights of every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.model import Transformer
from edgeformer_export.kernels.products import NotPlannableError, Place, PlannedGraph
from edgeformer_export.quantize.layers import Layer
from edgeformer_export.tracing.to_onnx import Graphs
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


def make_plan(model: nn.Module, graphs: Graphs, layers: Sequence[Layer], place: Place) -> Plan:
    """Make the plan of a model whose graphs are quantized.

    Args:
        model: the torch model.
        graphs: encoder and decoder in int8.
        layers: the weights of the graphs before quantization.
        place: finds or writes tensors.

    Raises:
        NotPlannableError: the kernels do not compute such a model.
    """
    if not isinstance(model, Transformer):
        raise NotPlannableError("the kernels know the families `transformer` and `ssru` only")
    config = model.config
    _check(config)
    made = _Layers(config, graphs, layers, place)
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
        encoder_scale=made.encoder.attention_scale("MultiHeadAttention"),
        decoder_scale=1.0 if recurrent else made.decoder.attention_scale("DecoderMaskedMultiHeadAttention"),
        cross_scale=made.decoder.attention_scale("MultiHeadAttention"),
        output_scale=config.output_scale,
        source=made.embedding(made.encoder, model.source_embedding, config.max_source_length),
        target=made.embedding(made.decoder, model.target_embedding, config.max_target_length),
        encoder=tuple(made.encoder_layer(index, layer) for index, layer in enumerate(model.encoder_layers)),
        encoder_norm=made.norm(model.encoder_norm),
        decoder=tuple(made.decoder_layer(index, layer, recurrent) for index, layer in enumerate(model.decoder_layers)),
        decoder_norm=made.norm(model.decoder_norm),
        projection=made.decoder.projection(),
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

    def __init__(self, config: TransformerConfig, graphs: Graphs, layers: Sequence[Layer], place: Place) -> None:
        self.config, self.place = config, place
        files = contract.ENCODER_FILE, contract.DECODER_FILE
        self.encoder, self.decoder = (PlannedGraph(graphs[file], file, layers, place) for file in files)

    def norm(self, module: object) -> NormPlan:
        """Return a norm, or what stands for none."""
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        return NormPlan(weight=self._placed(weight), bias=self._placed(bias))

    def embedding(self, graph: PlannedGraph, module: Any, length: int) -> EmbeddingPlan:
        """Return tokens and positions of one side."""
        table, scale = graph.table()
        return EmbeddingPlan(
            rows=len(scale),
            table=self.place(table),
            scale=self.place(scale),
            positions=length,
            position=self._placed(module.positions),
            norm=self.norm(module.norm),
        )

    def encoder_layer(self, index: int, layer: Any) -> EncoderLayerPlan:
        """Return a layer of the encoder."""
        name = f"encoder_layers.{index}"
        return EncoderLayerPlan(
            norm=self.norm(layer.attention_residual.norm),
            query_key_value=self.encoder.attention(f"{name}.attention"),
            output=self.encoder.linear(f"{name}.attention.output"),
            feed_forward=self._feed_forward(self.encoder, f"{name}.feed_forward", layer),
        )

    def decoder_layer(self, index: int, layer: Any, recurrent: bool) -> DecoderLayerPlan:
        """Return a layer of the decoder. The encoder's graph computes keys and values of the source."""
        name, decoder = f"decoder_layers.{index}", self.decoder
        own, cross = f"{name}.target_layer", f"{name}.cross_attention"
        target: tuple[LinearPlan, ...]
        if recurrent:
            target, output = (decoder.linear(f"{own}.candidate"), decoder.linear(f"{own}.forget")), None
        else:
            target, output = decoder.attention(f"{own}.attention"), decoder.linear(f"{own}.attention.output")
        return DecoderLayerPlan(
            norm=self.norm(layer.target_residual.norm),
            target=target,
            output=output,
            memory=(self.encoder.linear(f"{cross}.key"), self.encoder.linear(f"{cross}.value")),
            cross_norm=self.norm(layer.cross_residual.norm),
            cross_query=decoder.linear(f"{cross}.query"),
            cross_output=decoder.linear(f"{cross}.output"),
            feed_forward=self._feed_forward(decoder, f"{name}.feed_forward", layer),
        )

    def _feed_forward(self, graph: PlannedGraph, name: str, layer: Any) -> FeedForwardPlan:
        inner = [f"{name}.0.gate", f"{name}.0.linear"] if self.config.ffn_gated else [f"{name}.0"]
        return FeedForwardPlan(
            norm=self.norm(layer.feed_forward_residual.norm),
            inner=tuple(map(graph.linear, inner)),
            outer=graph.linear(f"{name}.3"),
        )

    def _placed(self, value: Any) -> int | None:
        return None if value is None else self.place(value.detach().float().cpu().numpy())
