"""Configuration and presets of the families ``transformer`` and ``ssru``. Does not import torch.

A preset named after what sets it apart has the sizes and dropouts of a published model; one that ends in ``_small`` is
a smaller relative of such a model, which trains on a CPU.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from edgeformer.model.fields import Probability, Size, Tying


class TransformerConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The Transformer of Vaswani et al. 2017, and variations found in the field."""

    d_model: Size = 512
    """Width of the embeddings and the residual stream (D)."""
    d_ff: Size = 2048
    """Width of the feed-forward layers."""
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
    attention_scale: Literal["d_k", "d_model"] = "d_k"
    """Width whose square root divides the scores."""
    share_head_projection: bool = False
    """Share one ``E × E`` projection each for queries, keys and values among all heads; needs ``d_k = d_v = d_model /
    heads``."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Fixed sines and cosines, or a trained table."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of ``d_model``."""
    norm: Literal["pre", "post"] = "post"
    """LayerNorm before each sublayer, or after the residual sum."""
    dropout_after_norm: bool = False
    """With post-norm, apply dropout to the normalized sum instead of the sublayer's output."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    """Activation of the feed-forward layers."""
    tied_embeddings: Tying = "decoder"
    """Tables sharing a weight: none; the target embedding and the output projection; these and the source embedding."""
    output_bias: bool = False
    """Whether the output projection has a bias, which is never tied."""
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
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"`d_model` must be even for sinusoidal positions, but is {self.d_model}")
        if (
            self.share_head_projection
            and not self.key_width * self.heads == self.value_width * self.heads == self.d_model
        ):
            raise ValueError("`share_head_projection` needs `d_k` and `d_v` equal to `d_model` / `heads`")
        if self.dropout_after_norm and self.norm == "pre":
            raise ValueError('`dropout_after_norm` needs `norm` = "post"')

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
