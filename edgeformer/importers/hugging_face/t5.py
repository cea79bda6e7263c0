"""T5, T5 1.1, mT5, UMT5, ByT5 and MADLAD-400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint
from edgeformer.importers.hugging_face.network import MAX_LENGTH, Conversion, Network
from edgeformer.importers.hugging_face.settings import Settings, shown

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


def read_t5(config: Mapping[str, Any], checkpoint: Checkpoint) -> Network:
    """Convert a model of one of :data:`MODEL_TYPES`.

    Raises:
        ImporterError: it is damaged, or has an option that the families cannot represent.
    """
    model_type = config["model_type"]
    settings = Settings(config, _DEFAULTS if model_type == "t5" else {**_DEFAULTS, **_LARGER})
    width, heads, inner = settings.size("d_model"), settings.size("num_heads"), settings.size("d_kv")
    rows, buckets = settings.size("vocab_size"), settings.size("relative_attention_num_buckets")
    activation, gated = _feed_forward(settings)
    layers = settings.size("num_layers")
    decoder_layers = layers if settings.get("num_decoder_layers") is None else settings.size("num_decoder_layers")
    per_layer = model_type == "umt5"
    conversion = _Conversion(checkpoint, width, heads * inner, settings.size("d_ff"), gated=gated)
    tied = conversion.tables(rows, rows, tied=True)
    for side, count in (("encoder", layers), ("decoder", decoder_layers)):
        for index in range(count):
            conversion.layer(side, index)
            if per_layer or index == 0:
                conversion.bias(side, index, (buckets, heads))
        conversion.norm(f"{side}_norm", f"{side}.final_layer_norm", bias=False)
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
            "buckets": buckets,
            "max_distance": settings.size("relative_attention_max_distance"),
            "per_layer": per_layer,
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
    # Early checkpoints have a bias of cross-attention, which was never used.
    weights = conversion.finish([r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"])
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


class _Conversion(Conversion):
    def __init__(self, checkpoint: Checkpoint, width: int, inner: int, d_ff: int, *, gated: bool) -> None:
        super().__init__(checkpoint, width)
        self.inner, self.d_ff, self.gated = inner, d_ff, gated

    def layer(self, side: str, index: int) -> None:
        """Convert a layer of the encoder or the decoder."""
        ours, theirs = f"{side}_layers.{index}", f"{side}.block.{index}.layer"
        first, residual = ("attention", "attention") if side == "encoder" else ("target_layer.attention", "target")
        self.attention(f"{ours}.{first}", f"{theirs}.0.SelfAttention")
        self.norm(f"{ours}.{residual}_residual.norm", f"{theirs}.0.layer_norm", bias=False)
        last = 1
        if side == "decoder":
            self.attention(f"{ours}.cross_attention", f"{theirs}.1.EncDecAttention")
            self.norm(f"{ours}.cross_residual.norm", f"{theirs}.1.layer_norm", bias=False)
            last = 2
        dense = f"{theirs}.{last}.DenseReluDense"
        shape = (self.d_ff, self.width)
        if self.gated:
            self.linear(f"{ours}.feed_forward.0.gate", f"{dense}.wi_0", shape, bias=False)
            self.linear(f"{ours}.feed_forward.0.linear", f"{dense}.wi_1", shape, bias=False)
        else:
            self.linear(f"{ours}.feed_forward.0", f"{dense}.wi", shape, bias=False)
        self.linear(f"{ours}.feed_forward.3", f"{dense}.wo", shape[::-1], bias=False)
        self.norm(f"{ours}.feed_forward_residual.norm", f"{theirs}.{last}.layer_norm", bias=False)

    def attention(self, ours: str, theirs: str) -> None:
        for part in ("query", "key", "value"):
            self.linear(f"{ours}.{part}", f"{theirs}.{part[0]}", (self.inner, self.width), bias=False)
        self.linear(f"{ours}.output", f"{theirs}.o", (self.width, self.inner), bias=False)

    def bias(self, side: str, index: int, shape: tuple[int, int]) -> None:
        """Convert the biases by distance."""
        name = f"{side}.block.{index}.layer.0.SelfAttention.relative_attention_bias.weight"
        part = "" if side == "encoder" else ".target_layer"
        self.weights[f"{side}_layers.{index}{part}.relative_bias.weight"] = self.checkpoint.take(name, shape)
