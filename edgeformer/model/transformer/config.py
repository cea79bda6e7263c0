"""Configuration of the families ``transformer`` and ``ssru``, whose presets are in ``presets.toml``; needs no torch."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from edgeformer.model.fields import Probability, Size, Tying


class RelativeBiasConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Trained biases of the scores of self-attention, by head and distance (Raffel et al. 2020, section 2.1)."""

    buckets: Annotated[int, msgspec.Meta(ge=4, multiple_of=2)] = 32
    """Number of ranges of distances, each with its own bias. In the encoder, one half is for keys to the left."""
    max_distance: Size = 128
    """Distance from which all share the last bucket."""
    per_layer: bool = False
    """Whether every layer has its own biases; otherwise, one table serves the encoder and another one the decoder."""


class TransformerConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The Transformer of Vaswani et al. 2017, and variations found in the field."""

    d_model: Size = 512
    """Width of the embeddings and the residual stream (D)."""
    d_ff: Size = 2048
    """Width of the feed-forward layers."""
    decoder_d_ff: Size | None = None
    """The same in the decoder, if it is another one."""
    heads: Size = 8
    """Number of attention heads (H)."""
    encoder_layers: Size = 6
    """Number of encoder layers."""
    decoder_layers: Size = 6
    """Number of decoder layers."""
    d_k: Size | None = None
    """Width of a head's queries and keys (E); by default ``d_model / heads``."""
    d_v: Size | None = None
    """Width of a head's values (F); by default ``d_model / heads``."""
    attention_bias: bool = True
    """Whether the query, key and value projections have biases."""
    attention_output_bias: bool = True
    """Whether the projection after attention has a bias."""
    attention_scale: Literal["d_k", "d_model", "none"] = "d_k"
    """Width whose square root divides the scores."""
    share_head_projection: bool = False
    """Share one ``E × E`` projection each for queries, keys and values among all heads; needs ``d_k = d_v = d_model /
    heads``."""
    positions: Literal["sinusoidal", "learned", "table", "none"] = "sinusoidal"
    """Fixed sines and cosines, a trained table, a table that is stored with the weights but not trained (sinusoids,
    unless it is imported), or none."""
    relative_bias: RelativeBiasConfig | None = None
    """Biases of self-attention by distance; none by default."""
    scale_embeddings: bool | float = True
    """Multiply embeddings by the square root of ``d_model``, or by this number."""
    embedding_norm: bool = False
    """Whether there is a norm after the sum of embedding and position."""
    norm: Literal["pre", "post"] = "post"
    """A norm before each sublayer, or after the residual sum."""
    norm_type: Literal["layer", "rms"] = "layer"
    """LayerNorm, or RMSNorm (Zhang and Sennrich 2019), which neither centers nor has a bias."""
    norm_epsilon: Annotated[float, msgspec.Meta(gt=0, le=0.1)] = 1e-5
    """Added to the variance of a norm."""
    final_norm: bool | None = None
    """Whether the encoder and the decoder end with a norm; by default, with ``norm = "pre"``."""
    encoder_attention_only: bool = False
    """Whether an encoder layer is attention alone, without residual connection, norm and feed-forward layer, and the
    encoder has no final norm, as in the notebook "Transformer的pythoch实现"."""
    dropout_after_norm: bool = False
    """With post-norm, apply dropout to the normalized sum instead of the sublayer's output."""
    activation: Literal["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"] = "relu"
    """Activation of the feed-forward layers; ``gelu_tanh`` and ``gelu_sigmoid`` are approximations of ``gelu``
    (Hendrycks and Gimpel 2016)."""
    ffn_bias: bool = True
    """Whether the feed-forward layers have biases."""
    ffn_gated: bool = False
    """Multiply the activated values by those of a third linear layer (Shazeer 2020, "GLU variants improve
    Transformer")."""
    tied_embeddings: Tying = "decoder"
    """Tables sharing a weight: none; the target embedding and the output projection (``decoder``); both embeddings
    (``inputs``); or all three."""
    output_bias: bool = False
    """Whether the output projection has a bias, which is never tied."""
    output_scale: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Factor of the decoder's outputs before the output projection."""
    dropout: Probability = 0.1
    """Dropout of embeddings and sublayer outputs."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout after the activation."""
    max_source_length: Size = 256
    """Maximum source length in tokens, including the end token."""
    max_target_length: Size = 256
    """Maximum number of decoding steps."""

    def __post_init__(self) -> None:
        """Check constraints between fields; msgspec reports a ``ValueError`` as a validation error."""
        if (self.d_k is None or self.d_v is None) and self.d_model % self.heads:
            raise ValueError(f"`d_model` must be a multiple of `heads`, but is {self.d_model} with {self.heads} heads")
        if self.positions in {"sinusoidal", "table"} and self.d_model % 2:
            raise ValueError(f"`d_model` must be even for sinusoidal positions, but is {self.d_model}")
        if not 0 < self.embedding_scale < math.inf:
            raise ValueError(f"`scale_embeddings` must be positive, but is {self.scale_embeddings}")
        bias = self.relative_bias
        if bias is not None and bias.max_distance <= bias.buckets // 2:
            raise ValueError(
                f"`relative_bias.max_distance` must be more than half of its {bias.buckets} buckets, but is "
                f"{bias.max_distance}"
            )
        if (
            self.share_head_projection
            and not self.key_width * self.heads == self.value_width * self.heads == self.d_model
        ):
            raise ValueError("`share_head_projection` needs `d_k` and `d_v` equal to `d_model` / `heads`")
        if self.dropout_after_norm and self.norm == "pre":
            raise ValueError('`dropout_after_norm` needs `norm` = "post"')

    @property
    def embedding_scale(self) -> float:
        """Factor of the embeddings."""
        if isinstance(self.scale_embeddings, bool):
            return math.sqrt(self.d_model) if self.scale_embeddings else 1.0
        return self.scale_embeddings

    @property
    def has_final_norm(self) -> bool:
        """Whether the encoder and the decoder end with a norm."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    @property
    def key_width(self) -> int:
        """Width of a head's queries and keys (E)."""
        return self.d_k or self.d_model // self.heads

    @property
    def value_width(self) -> int:
        """Width of a head's values (F)."""
        return self.d_v or self.d_model // self.heads
