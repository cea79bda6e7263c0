"""T5, T5 1.1, mT5, UMT5, ByT5 and MADLAD-400."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.byte_level import BYT5_SPECIAL, byt5_side
from edgeformer.importers.hugging_face.checkpoint import MAX_LENGTH, Checkpoint, Rows
from edgeformer.importers.hugging_face.family import EOS, PAD, ModelFamily, ModelVocabulary, sentencepiece_side
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.hugging_face.settings import Share, Size, activation, checked, require, shown
from edgeformer.importers.languages import MADLAD, codes, with_tags
from edgeformer.importers.layout import attention
from edgeformer.importers.tokenizers import names_of, padded, with_added
from edgeformer.importers.tokenizers.sentencepiece_model import SentencePieceModel
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE

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


class T5Config(msgspec.Struct, frozen=True):
    """The fields of ``config.json`` that matter, with T5's defaults."""

    vocab_size: Size = 32_128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Size = 6
    num_decoder_layers: Size | None = None
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    relative_attention_max_distance: Size = 128
    dropout_rate: Share = 0.1
    layer_norm_epsilon: Share = 1e-6
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None
    scale_decoder_outputs: bool | None = None
    tie_word_embeddings: bool = True
    transformers_version: str = ""

    def divides_output(self, model_type: str) -> bool:
        """Whether outputs of the decoder are divided by the square root of D before the projection.

        The model was trained by the version of ``transformers`` that wrote its folder. Version 4 divides if
        ``tie_word_embeddings`` is true. Version 5 writes true for every model, and divides T5's outputs if
        ``scale_decoder_outputs`` is true, UMT5's always and mT5's never.
        """
        if self.scale_decoder_outputs is not None:
            return self.scale_decoder_outputs
        if model_type == "mt5" and not self.transformers_version.startswith("4."):
            return False
        return self.tie_word_embeddings


def read_t5(config: Mapping[str, Any], checkpoint: Checkpoint) -> tuple[dict[str, Any], Rows]:
    """Convert the weights of T5, mT5 or UMT5, and return section ``[model]`` of the recipe, and the rows."""
    model_type = config["model_type"]
    settings = checked(config, T5Config, {} if model_type == "t5" else _LARGER)
    width, rows = settings.d_model, settings.vocab_size
    function, gated = _feed_forward(config, settings)
    tied = checkpoint.tables((rows, width), (rows, width), tied=True)
    model = {
        "family": "transformer",
        "d_model": width,
        "d_ff": settings.d_ff,
        "heads": settings.num_heads,
        "encoder_layers": settings.num_layers,
        "decoder_layers": settings.num_decoder_layers or settings.num_layers,
        "d_k": settings.d_kv,
        "d_v": settings.d_kv,
        "attention_bias": False,
        "attention_output_bias": False,
        "attention_scale": "none",
        "positions": "none",
        "relative_bias": {
            "buckets": settings.relative_attention_num_buckets,
            "max_distance": settings.relative_attention_max_distance,
            "per_layer": model_type == "umt5",
        },
        "scale_embeddings": False,
        "norm": "pre",
        "norm_type": "rms",
        "norm_epsilon": settings.layer_norm_epsilon,
        "activation": function,
        "ffn_bias": False,
        "ffn_gated": gated,
        "tied_embeddings": tied,
        "output_scale": width**-0.5 if settings.divides_output(model_type) else 1.0,
        "dropout": settings.dropout_rate,
        "max_source_length": MAX_LENGTH,
        "max_target_length": MAX_LENGTH,
    }
    checkpoint.layers(model, NAMES)
    # Early checkpoints have a bias of cross-attention, which was never used.
    checkpoint.refuse_surplus(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight")
    return model, (rows, rows)


def _feed_forward(config: Mapping[str, Any], settings: T5Config) -> tuple[str, bool]:
    """Activation, and whether it is gated; ``feed_forward_proj`` states both, and other options may not contradict it.

    Raises:
        ImporterError: they do, or the activation is unknown.
    """
    stated, other = settings.feed_forward_proj, settings.dense_act_fn
    name = stated.removeprefix("gated-")
    gated = name != stated
    if stated == "gated-gelu":
        name = "gelu_new"  # what the first such models called so
    parsed = activation("feed_forward_proj", name)
    require(config, is_gated_act=gated)
    if other is not None and activation("dense_act_fn", other) != parsed:
        raise ImporterError(
            f"`feed_forward_proj` {shown(stated)} and `dense_act_fn` {shown(other)} of config.json differ."
        )
    return parsed, gated


def t5_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """``spiece.model``, whose ids are the model's; for ByT5, bytes."""
    if folder.tokenizer_class == "ByT5Tokenizer":
        side = byt5_side(rows[0])
        _, eos, unk = BYT5_SPECIAL
        return ModelVocabulary(source=side, target=side, unk=unk, suffix=(eos,))
    model = folder.pieces("spiece.model", "spm.model", "sentencepiece.model")
    ids = {name: index for index, name in enumerate(model.pieces)}
    added = folder.added_tokens()
    ids = with_added(ids, ((name, index) for name, index in added.items() if index is not None and index < rows[0]))
    tokens = codes(names_of(padded(ids, rows[0])), MADLAD)
    is_piece = tokens and added.keys().isdisjoint(tokens.values())
    before = _before_language(model, next(iter(tokens.values()))) if is_piece else ()
    special = [PAD, EOS, *(name for name in added if name in ids), *tokens.values()]
    side = sentencepiece_side(model, ids, rows[0], special, model.unk_piece)
    return ModelVocabulary(
        source=side,
        target=side,
        unk=model.unk_piece,
        prefix=(*before, TARGET_LANGUAGE) if tokens else (),
        suffix=(EOS,),
        languages=with_tags(tokens),
        notes=_task_prefixes(folder),
    )


def _before_language(model: SentencePieceModel, token: str) -> tuple[str, ...]:
    """Pieces before a language token that is itself a piece: the space that SentencePiece adds in front of a text."""
    from sentencepiece import SentencePieceProcessor

    library = SentencePieceProcessor(model_proto=model.proto.SerializeToString())
    pieces: list[str] = library.encode(f"{token} a", out_type=str)
    return tuple(pieces[: pieces.index(token)]) if token in pieces else ()


def _task_prefixes(folder: ModelFolder) -> tuple[str, ...]:
    """A note about the words that T5 expects in front of a text."""
    tasks = folder.config.get("task_specific_params")
    prefixes = (
        [task.get("prefix") for task in tasks.values() if isinstance(task, dict)] if isinstance(tasks, dict) else []
    )
    named = ", ".join(f"`{prefix[:60]}`" for prefix in prefixes[:8] if isinstance(prefix, str) and prefix)
    return (f"The model expects each text to begin with one of {named}.",) if named else ()


T5 = ModelFamily(convert=read_t5, vocabulary=t5_vocabulary)
