"""T5, T5 1.1, mT5, UMT5, ByT5 and MADLAD-400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint
from edgeformer.importers.hugging_face.network import MAX_LENGTH, Conversion, Network
from edgeformer.importers.hugging_face.settings import Settings, shown
from edgeformer.importers.layout import attention

MODEL_TYPES = ("t5", "mt5", "umt5")
_DEFAULTS = {
    "vocab_size": 32_128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
}
_LARGER = {"vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
"""Defaults of mT5 and UMT5, as far as they differ."""

NAMES = {
    **attention("encoder_layers.{}.attention", "encoder.block.{}.layer.0.SelfAttention.*", "qkvo"),
    "encoder_layers.{}.relative_bias": "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
    "encoder_layers.{}.attention_residual.norm": "encoder.block.{}.layer.0.layer_norm",
    "encoder_layers.{}.feed_forward.0": "encoder.block.{}.layer.1.DenseReluDense.wi",
    "encoder_layers.{}.feed_forward.0.gate": "encoder.block.{}.layer.1.DenseReluDense.wi_0",
    "encoder_layers.{}.feed_forward.0.linear": "encoder.block.{}.layer.1.DenseReluDense.wi_1",
    "encoder_layers.{}.feed_forward.3": "encoder.block.{}.layer.1.DenseReluDense.wo",
    "encoder_layers.{}.feed_forward_residual.norm": "encoder.block.{}.layer.1.layer_norm",
    **attention("decoder_layers.{}.target_layer.attention", "decoder.block.{}.layer.0.SelfAttention.*", "qkvo"),
    "decoder_layers.{}.target_layer.relative_bias": "decoder.block.{}.layer.0.SelfAttention.relative_attention_bias",
    "decoder_layers.{}.target_residual.norm": "decoder.block.{}.layer.0.layer_norm",
    **attention("decoder_layers.{}.cross_attention", "decoder.block.{}.layer.1.EncDecAttention.*", "qkvo"),
    "decoder_layers.{}.cross_residual.norm": "decoder.block.{}.layer.1.layer_norm",
    "decoder_layers.{}.feed_forward.0": "decoder.block.{}.layer.2.DenseReluDense.wi",
    "decoder_layers.{}.feed_forward.0.gate": "decoder.block.{}.layer.2.DenseReluDense.wi_0",
    "decoder_layers.{}.feed_forward.0.linear": "decoder.block.{}.layer.2.DenseReluDense.wi_1",
    "decoder_layers.{}.feed_forward.3": "decoder.block.{}.layer.2.DenseReluDense.wo",
    "decoder_layers.{}.feed_forward_residual.norm": "decoder.block.{}.layer.2.layer_norm",
    "encoder_norm": "encoder.final_layer_norm",
    "decoder_norm": "decoder.final_layer_norm",
}


def read_t5(config: Mapping[str, Any], checkpoint: Checkpoint) -> Network:
    """Convert a model of one of :data:`MODEL_TYPES`.

    Raises:
        ImporterError: it is damaged, or has an option that the families cannot represent.
    """
    model_type = config["model_type"]
    settings = Settings(config, _DEFAULTS if model_type == "t5" else {**_DEFAULTS, **_LARGER})
    width, heads, inner = settings.size("d_model"), settings.size("num_heads"), settings.size("d_kv")
    rows = settings.size("vocab_size")
    activation, gated = _feed_forward(settings)
    layers = settings.size("num_layers")
    decoder_layers = layers if settings.get("num_decoder_layers") is None else settings.size("num_decoder_layers")
    conversion = Conversion(checkpoint, width)
    tied = conversion.tables(rows, rows, tied=True)
    model = {
        "family": "transformer",
        "d_model": width,
        "d_ff": settings.size("d_ff"),
        "heads": heads,
        "encoder_layers": layers,
        "decoder_layers": decoder_layers,
        "d_k": inner,
        "d_v": inner,
        "attention_bias": False,
        "attention_output_bias": False,
        "attention_scale": "none",
        "positions": "none",
        "relative_bias": {
            "buckets": settings.size("relative_attention_num_buckets"),
            "max_distance": settings.size("relative_attention_max_distance"),
            "per_layer": model_type == "umt5",
        },
        "scale_embeddings": False,
        "norm": "pre",
        "norm_type": "rms",
        "norm_epsilon": settings.number("layer_norm_epsilon"),
        "activation": activation,
        "ffn_bias": False,
        "ffn_gated": gated,
        "tied_embeddings": tied,
        "output_scale": width**-0.5 if _scales_output(settings, model_type) else 1.0,
        "dropout": settings.number("dropout_rate"),
        "max_source_length": MAX_LENGTH,
        "max_target_length": MAX_LENGTH,
    }
    conversion.layers(model, NAMES)
    # Early checkpoints have a bias of cross-attention, which was never used.
    weights = conversion.finish(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight")
    return Network(model=model, weights=weights, rows=(rows, rows))


def _feed_forward(settings: Settings) -> tuple[str, bool]:
    """Activation, and whether it is gated; ``feed_forward_proj`` states both, and other options may not contradict it.

    Raises:
        ImporterError: they do, or the activation is unknown.
    """
    stated = settings.get("feed_forward_proj")
    name, gated = stated, False
    if isinstance(stated, str) and stated.startswith("gated-"):
        name, gated = stated.removeprefix("gated-"), True
    if stated == "gated-gelu":
        name = "gelu_new"  # what the first such models called so
    parsed = Settings({"feed_forward_proj": name}, {}).activation("feed_forward_proj")
    settings.require(is_gated_act=gated)
    other = settings.get("dense_act_fn")
    if other is not None and Settings({"dense_act_fn": other}, {}).activation("dense_act_fn") != parsed:
        raise ImporterError(
            f"`feed_forward_proj` {shown(stated)} and `dense_act_fn` {shown(other)} of config.json differ."
        )
    return parsed, gated


def _scales_output(settings: Settings, model_type: str) -> bool:
    """Whether outputs of the decoder are divided by the square root of D before the projection: only if both tables
    were trained as one, which ``tie_word_embeddings`` has said since the first models."""
    if model_type == "mt5":
        return False
    if isinstance(stated := settings.get("scale_decoder_outputs"), bool):
        return stated
    return settings.get("tie_word_embeddings") is not False
