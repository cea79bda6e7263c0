"""The network of BART's relatives, which differ in norms and positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import MAX_POSITIONS, Checkpoint, Rows
from edgeformer.importers.hugging_face.settings import Share, Size, activation, checked, require
from edgeformer.importers.layout import attention, halves
from edgeformer.importers.model import FloatArray

OFFSET = 2
"""Rows of learned tables of positions that no position uses; fairseq had them for padding."""
_PROJECTIONS = ("q", "k", "v", "out")
NAMES = {
    **attention("encoder_layers.{}.attention", "encoder.layers.{}.self_attn.*_proj", _PROJECTIONS),
    "encoder_layers.{}.attention_residual.norm": "encoder.layers.{}.self_attn_layer_norm",
    "encoder_layers.{}.feed_forward.0": "encoder.layers.{}.fc1",
    "encoder_layers.{}.feed_forward.3": "encoder.layers.{}.fc2",
    "encoder_layers.{}.feed_forward_residual.norm": "encoder.layers.{}.final_layer_norm",
    **attention("decoder_layers.{}.target_layer.attention", "decoder.layers.{}.self_attn.*_proj", _PROJECTIONS),
    "decoder_layers.{}.target_residual.norm": "decoder.layers.{}.self_attn_layer_norm",
    **attention("decoder_layers.{}.cross_attention", "decoder.layers.{}.encoder_attn.*_proj", _PROJECTIONS),
    "decoder_layers.{}.cross_residual.norm": "decoder.layers.{}.encoder_attn_layer_norm",
    "decoder_layers.{}.feed_forward.0": "decoder.layers.{}.fc1",
    "decoder_layers.{}.feed_forward.3": "decoder.layers.{}.fc2",
    "decoder_layers.{}.feed_forward_residual.norm": "decoder.layers.{}.final_layer_norm",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
    "source_embedding.norm": "encoder.layernorm_embedding",
    "target_embedding.norm": "decoder.layernorm_embedding",
}


class BartConfig(msgspec.Struct, frozen=True):
    """The fields of ``config.json`` that matter, with BART's defaults."""

    vocab_size: Size = 50_265
    decoder_vocab_size: Size | None = None
    max_position_embeddings: Size = 1024
    d_model: Size = 1024
    encoder_layers: Size = 12
    decoder_layers: Size = 12
    encoder_ffn_dim: Size = 4096
    decoder_ffn_dim: Size = 4096
    encoder_attention_heads: Size = 16
    decoder_attention_heads: Size = 16
    activation_function: str = "gelu"
    dropout: Share = 0.1
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True


@dataclass(frozen=True, kw_only=True)
class BartNetwork:
    """The network of one family."""

    pre_norm: bool
    """Norms before sublayers, and one after the last layer; otherwise, norms after residual sums."""
    embedding_norm: bool
    """Norm after the sum of embedding and position."""
    positions: Literal["learned", "marian", "fairseq"]
    """Positions: a trained table, or sinusoids as one of these toolkits numbers and scales them."""
    may_split_vocabulary: bool = False
    """Whether source and target may have embeddings of their own."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values that are taken if ``config.json`` lacks them, as far as they differ from BART's."""

    def convert(self, config: Mapping[str, Any], checkpoint: Checkpoint) -> tuple[dict[str, Any], Rows]:
        """Convert the weights, and return section ``[model]`` of the recipe, and the rows of the embeddings."""
        settings = checked(config, BartConfig, self.defaults)
        width, heads = settings.d_model, settings.encoder_attention_heads
        if heads != settings.decoder_attention_heads or width % heads:
            raise ImporterError(
                f"config.json has {heads} and {settings.decoder_attention_heads} heads; `encoder_attention_heads` and "
                f"`decoder_attention_heads` must be equal, and `d_model`, {width}, a multiple of them."
            )
        self._refuse_others(config)
        shared = settings.share_encoder_decoder_embeddings
        target = settings.vocab_size if shared else settings.decoder_vocab_size or settings.vocab_size
        rows = settings.vocab_size, target
        tied = checkpoint.tables((rows[0], width), (rows[1], width), tied=settings.tie_word_embeddings, shared=shared)
        output_bias = checkpoint.output_bias(rows[1])
        length = self._convert_positions(checkpoint, width, settings.max_position_embeddings, config)
        model = {
            "family": "transformer",
            "d_model": width,
            "d_ff": settings.encoder_ffn_dim,
            "decoder_d_ff": settings.decoder_ffn_dim,
            "heads": heads,
            "encoder_layers": settings.encoder_layers,
            "decoder_layers": settings.decoder_layers,
            "positions": "learned" if self.positions == "learned" else "table",
            "scale_embeddings": settings.scale_embedding,
            "embedding_norm": self.embedding_norm,
            "norm": "pre" if self.pre_norm else "post",
            "activation": activation("activation_function", settings.activation_function),
            "tied_embeddings": tied,
            "output_bias": output_bias,
            "dropout": settings.dropout,
            "attention_dropout": settings.attention_dropout,
            "activation_dropout": settings.activation_dropout,
            "max_source_length": length,
            "max_target_length": length,
        }
        checkpoint.layers(model, NAMES)
        checkpoint.refuse_surplus(r"(?:encoder|decoder)\.(?:version|embed_positions\.(?:weights|_float_tensor))")
        return model, rows

    def _refuse_others(self, config: Mapping[str, Any]) -> None:
        """Refuse settings of relatives of this family."""
        require(
            config,
            normalize_before=self.pre_norm,
            add_final_layer_norm=self.pre_norm,
            normalize_embedding=self.embedding_norm,
            static_position_embeddings=self.positions != "learned",
        )
        if self.positions == "learned":  # OPUS-MT's models state one more than their padding token, without effect
            require(config, extra_pos_embeddings=OFFSET)
        if not self.may_split_vocabulary:
            require(config, share_encoder_decoder_embeddings=True)

    def _convert_positions(self, checkpoint: Checkpoint, width: int, stated: int, config: Mapping[str, Any]) -> int:
        """Convert or compute the tables of positions; return their length."""
        length = stated
        for ours, theirs in (("source", "encoder"), ("target", "decoder")):
            name = f"{theirs}.embed_positions.weight"
            if self.positions == "learned":
                table = checkpoint.take(name, stated + OFFSET, width)[OFFSET:]
            elif name in checkpoint and self.positions == "marian":  # checkpoints before version 5 have it
                table = checkpoint.take(name, stated, width)
            else:
                length = min(stated, MAX_POSITIONS)
                table = _sinusoids(length, width, self.positions, config.get("pad_token_id"))
            checkpoint.weights[f"{ours}_embedding.positions"] = table
        return length


def _sinusoids(length: int, width: int, positions: str, pad: Any) -> FloatArray:
    """The table that ``transformers`` computes.

    Raises:
        ImporterError: the width or the padding token does not allow one.
    """
    if width % 2 or width < 4:
        raise ImporterError(f"`d_model` of config.json must be even for sinusoidal positions, but is {width}.")
    if positions == "marian":
        return halves(length, width, denominator=width / 2)
    if type(pad) is not int or not 0 <= pad < 1000:
        raise ImporterError("`pad_token_id` of config.json must be a token: positions are counted from it.")
    import torch

    # In single precision, as transformers and fairseq compute it: far positions differ from exact sinusoids.
    frequency = torch.exp(torch.arange(width // 2).float() * -(np.log(10_000) / (width // 2 - 1)))
    angle = torch.arange(pad + 1, pad + 1 + length).float()[:, None] * frequency
    table: FloatArray = torch.cat([angle.sin(), angle.cos()], dim=1).numpy()
    return table
