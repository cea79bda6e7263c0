"""BART, mBART, M2M-100, NLLB and Marian: one network with other norms and positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint
from edgeformer.importers.hugging_face.network import MAX_POSITIONS, Conversion, Network
from edgeformer.importers.hugging_face.settings import Settings
from edgeformer.importers.layout import attention
from edgeformer.importers.model import FloatArray
from edgeformer.importers.positions import halves

PREFIX = "model."
"""Start of the names of most weights; checkpoints of the network without its output layer lack it."""
OFFSET = 2
"""Rows of learned tables of positions that no position uses; fairseq had them for padding."""
_PROJECTIONS = ("q", "k", "v", "out")
_DEFAULTS = {
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
}
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


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Properties that set an architecture apart."""

    pre_norm: bool
    """Norms before sublayers, and one after the last layer; otherwise, norms after residual sums."""
    embedding_norm: bool
    """Norm after the sum of embedding and position."""
    positions: Literal["learned", "marian", "fairseq"]
    """Positions: a trained table, or sinusoids as one of these toolkits numbers and scales them."""
    defaults: Mapping[str, Any]
    """Values that are taken if ``config.json`` lacks them, as far as they differ from BART's."""


VARIANTS = {
    "bart": Variant(
        pre_norm=False,
        embedding_norm=True,
        positions="learned",
        defaults={"vocab_size": 50_265, "decoder_start_token_id": 2, "forced_bos_token_id": None},
    ),
    "mbart": Variant(pre_norm=True, embedding_norm=True, positions="learned", defaults={"vocab_size": 50_265}),
    "m2m_100": Variant(
        pre_norm=True,
        embedding_norm=False,
        positions="fairseq",
        defaults={"vocab_size": 128_112, "activation_function": "relu", "scale_embedding": True},
    ),
    "marian": Variant(pre_norm=False, embedding_norm=False, positions="marian", defaults={"vocab_size": 58_101}),
}
"""Architectures by ``model_type``."""


def read_bart(config: Mapping[str, Any], checkpoint: Checkpoint) -> Network:
    """Convert a model of one of :data:`VARIANTS`.

    Raises:
        ImporterError: it is damaged, or has an option that the families cannot represent.
    """
    variant = VARIANTS[config["model_type"]]
    settings = Settings(config, {**_DEFAULTS, **variant.defaults})
    _refuse_unknown(settings, variant, config["model_type"])
    width = settings.size("d_model")
    conversion = Conversion(checkpoint, width)
    source_rows = settings.size("vocab_size")
    shared = config["model_type"] != "marian" or settings.flag("share_encoder_decoder_embeddings")
    split = not shared and settings.get("decoder_vocab_size") is not None
    target_rows = settings.size("decoder_vocab_size") if split else source_rows
    tied = conversion.tables(source_rows, target_rows, tied=settings.flag("tie_word_embeddings"), shared=shared)
    output_bias = conversion.output_bias(target_rows)
    length = _positions(conversion, settings.size("max_position_embeddings"), variant, config.get("pad_token_id"))
    model = {
        "family": "transformer",
        "d_model": width,
        "d_ff": settings.size("encoder_ffn_dim"),
        "decoder_d_ff": settings.size("decoder_ffn_dim"),
        "heads": settings.size("encoder_attention_heads"),
        "encoder_layers": settings.size("encoder_layers"),
        "decoder_layers": settings.size("decoder_layers"),
        "positions": "learned" if variant.positions == "learned" else "table",
        "scale_embeddings": settings.flag("scale_embedding"),
        "embedding_norm": variant.embedding_norm,
        "norm": "pre" if variant.pre_norm else "post",
        "activation": settings.activation("activation_function"),
        "tied_embeddings": tied,
        "output_bias": output_bias,
        "dropout": settings.number("dropout"),
        "attention_dropout": settings.number("attention_dropout"),
        "activation_dropout": settings.number("activation_dropout"),
        "max_source_length": length,
        "max_target_length": length,
    }
    conversion.layers(model, NAMES)
    weights = conversion.finish(r"(?:encoder|decoder)\.(?:version|embed_positions\.(?:weights|_float_tensor))")
    return Network(model=model, weights=weights, rows=(source_rows, target_rows))


def _refuse_unknown(settings: Settings, variant: Variant, architecture: str) -> None:
    """Refuse options that the architecture, or the family, does not have.

    Raises:
        ImporterError: names the option.
    """
    settings.require_equal("encoder_attention_heads", "decoder_attention_heads")
    if settings.size("d_model") % settings.size("encoder_attention_heads"):
        raise ImporterError("`d_model` of config.json must be a multiple of `encoder_attention_heads`.")
    settings.require(
        normalize_before=variant.pre_norm,
        add_final_layer_norm=variant.pre_norm,
        normalize_embedding=variant.embedding_norm,
        static_position_embeddings=variant.positions != "learned",
        extra_pos_embeddings=OFFSET,
    )
    if architecture != "marian":
        settings.require(share_encoder_decoder_embeddings=True)


def _positions(conversion: Conversion, stated: int, variant: Variant, pad: Any) -> int:
    """Convert or compute the tables of positions; return their length."""
    length, checkpoint = stated, conversion.checkpoint
    for ours, theirs in (("source", "encoder"), ("target", "decoder")):
        name = f"{theirs}.embed_positions.weight"
        if variant.positions == "learned":
            table = checkpoint.take(name, (stated + OFFSET, conversion.width))[OFFSET:]
        elif name in checkpoint and variant.positions == "marian":  # checkpoints before version 5 have it
            table = checkpoint.take(name, (stated, conversion.width))
        else:
            length = min(stated, MAX_POSITIONS)
            table = _sinusoids(length, conversion.width, variant, pad)
        conversion.weights[f"{ours}_embedding.positions"] = table
    return length


def _sinusoids(length: int, width: int, variant: Variant, pad: Any) -> FloatArray:
    """The table that ``transformers`` computes.

    Raises:
        ImporterError: the width or the padding token does not allow one.
    """
    if width % 2 or width < 4:
        raise ImporterError(f"`d_model` of config.json must be even for sinusoidal positions, but is {width}.")
    if variant.positions == "marian":
        return halves(length, width, denominator=width / 2)
    if type(pad) is not int or not 0 <= pad < 1000:
        raise ImporterError("`pad_token_id` of config.json must be a token: positions are counted from it.")
    import torch

    # In single precision, as transformers and fairseq compute it: far positions differ from exact sinusoids.
    frequency = torch.exp(torch.arange(width // 2).float() * -(np.log(10_000) / (width // 2 - 1)))
    angle = torch.arange(pad + 1, pad + 1 + length).float()[:, None] * frequency
    table: FloatArray = torch.cat([angle.sin(), angle.cos()], dim=1).numpy()
    return table
