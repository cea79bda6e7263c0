"""Configuration and presets of the families ``transformer`` and ``ssru``. Does not import torch.

A preset named after what sets it apart has the sizes and dropouts of a published model; one that ends in ``_small`` is
a smaller relative of such a model, which trains on a CPU.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from edgeformer.model.fields import Probability, Size, Tying


class RelativeBias(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
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
    relative_bias: RelativeBias | None = None
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


def tiny() -> TransformerConfig:
    """128/256, 4 heads, 4+4 layers: the model of "Good for Misconceived Reasons" (ACL 2021) for Multi30k."""
    return TransformerConfig(d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, tied_embeddings="all")


def edge() -> TransformerConfig:
    """256/1024, 4 heads, 6+2 layers: a deep encoder and a shallow decoder, since the depth of the decoder
    determines the latency."""
    return TransformerConfig(d_model=256, d_ff=1024, heads=4, encoder_layers=6, decoder_layers=2, tied_embeddings="all")


def base() -> TransformerConfig:
    """512/2048, 8 heads, 6+6 layers: the base model of Vaswani et al. 2017."""
    return TransformerConfig(tied_embeddings="all")


def free_widths() -> TransformerConfig:
    """Heads whose key and value widths are independent of ``d_model`` = 512, no biases around attention, unscaled
    embeddings, LayerNorm after the residual sum: the attention of the notebook "Transformer pytorch"."""
    return TransformerConfig(
        d_k=32,
        d_v=48,
        attention_bias=False,
        attention_output_bias=False,
        scale_embeddings=False,
        tied_embeddings="none",
        attention_dropout=0.1,
    )


def free_widths_small() -> TransformerConfig:
    """A smaller relative of :func:`free_widths`: 256/1024, 4 heads, 3+3 layers."""
    return replace(free_widths(), d_model=256, d_ff=1024, heads=4, encoder_layers=3, decoder_layers=3)


def incremental() -> TransformerConfig:
    """24/48, 8 heads, 2+2 layers, no biases around attention but one in the output projection, dropout of a half: the
    Transformer with a step-by-step decoder of the article "PyTorch系列之机器翻译｜注意力机制｜Transformer"."""
    return TransformerConfig(
        d_model=24,
        d_ff=48,
        heads=8,
        encoder_layers=2,
        decoder_layers=2,
        attention_bias=False,
        attention_output_bias=False,
        tied_embeddings="none",
        output_bias=True,
        dropout=0.5,
        attention_dropout=0.5,
    )


def shared_heads() -> TransformerConfig:
    """Learned positions, one small projection shared by all heads, scores divided by the square root of ``d_model``,
    LayerNorm before dropout, which is 0, a bias in the output projection; 256/1024, 8 heads, 6+6 layers, 100 positions:
    the article "Transformer详解（附代码）"."""
    return TransformerConfig(
        d_model=256,
        d_ff=1024,
        heads=8,
        positions="learned",
        scale_embeddings=False,
        share_head_projection=True,
        attention_bias=False,
        attention_scale="d_model",
        dropout_after_norm=True,
        tied_embeddings="none",
        output_bias=True,
        dropout=0.0,
        max_source_length=100,
        max_target_length=100,
    )


def word_level() -> TransformerConfig:
    """512/2048, 8 heads, 6+6 layers, 80 positions, dropout on attention weights too: the English-French model of the
    notebook "Transformer的pytorch实现"; its words need ``tokenizer.kind = "word"`` and ``tokenizer.shared = false``."""
    return TransformerConfig(tied_embeddings="none", attention_dropout=0.1, max_source_length=80, max_target_length=80)


def word_level_small() -> TransformerConfig:
    """A smaller relative of :func:`word_level`, for CPUs: 128/512, 4 heads, 3+3 layers."""
    return replace(word_level(), d_model=128, d_ff=512, heads=4, encoder_layers=3, decoder_layers=3)


def bergamot() -> TransformerConfig:
    """256/1536, 8 heads, 6+2 layers: the sizes of Marian's and Bergamot's "tiny" students (Kim et al. 2019)."""
    return TransformerConfig(d_model=256, d_ff=1536, heads=8, encoder_layers=6, decoder_layers=2, tied_embeddings="all")
