"""Converts a Transformer to a CTranslate2 model with the same weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.model import DecoderLayer, Transformer
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from edgeformer.train.run import Run
from edgeformer_bench.peers.base import PeerError, Weights
from edgeformer_bench.peers.ctranslate2_format import LIMIT_FILE, SOURCE_TOKENIZER, TARGET_TOKENIZER, token_names
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.files import staged_folder
from edgeformer_runtime.tokenizer import BOS_TOKEN, EOS_TOKEN, UNK_TOKEN

_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}


def convert_run(run: Run, out: Path, weights: Weights) -> None:
    """Write a run's model in CTranslate2's format, next to the run's tokenizers.

    Args:
        run: a finished run.
        out: folder to write; must not exist.
        weights: how to store the weights.

    Raises:
        PeerError: CTranslate2 does not support the model.
    """
    with staged_folder(out) as folder:
        model = run.load_model()
        convert_model(model, folder, weights)
        (folder / LIMIT_FILE).write_text(f"{model.max_target_length}\n", encoding="utf-8")
        shutil.copyfile(run.source_tokenizer_path, folder / SOURCE_TOKENIZER)
        shutil.copyfile(run.target_tokenizer_path, folder / TARGET_TOKENIZER)


def convert_model(model: EncoderDecoder, folder: Path, weights: Weights) -> None:
    """Write a model into an empty folder.

    Raises:
        PeerError: CTranslate2 does not support the model.
    """
    spec = _spec(model)
    special = SpecialTokens()
    spec.register_source_vocabulary(token_names(model.source_vocab_size, special))
    spec.register_target_vocabulary(token_names(model.target_vocab_size, special))
    spec.config.bos_token = spec.config.decoder_start_token = BOS_TOKEN
    spec.config.eos_token, spec.config.unk_token = EOS_TOKEN, UNK_TOKEN
    spec.validate()
    spec.optimize(quantization=None if weights == "float32" else weights)
    spec.save(str(folder))


def _spec(model: EncoderDecoder) -> Any:
    """Build CTranslate2's specification of a model, weights included; its classes declare no attributes."""
    if not isinstance(model, Transformer):
        raise PeerError(
            f"CTranslate2 has no model like {type(model).__name__}; of our models it supports Transformers only."
        )
    config = model.config
    if config.share_head_projection or config.attention_scale != "d_k":
        raise PeerError("CTranslate2 supports neither shared head projections nor attention scaled by `d_model`.")
    if not config.key_width * config.heads == config.value_width * config.heads == config.d_model:
        raise PeerError("CTranslate2 does not support heads whose widths differ from `d_model` / `heads`.")
    pre_norm, activation = config.norm == "pre", _ACTIVATIONS[config.activation]
    depths = (config.encoder_layers, config.decoder_layers)
    spec: Any = TransformerSpec.from_config(
        depths,
        config.heads,
        pre_norm=pre_norm,
        activation=activation,
        alignment_heads=config.heads,  # attention is the mean of all heads of the last layer, as in ours
    )
    for side, table, embedding in (
        (spec.encoder, spec.encoder.embeddings[0], model.source_embedding),
        (spec.decoder, spec.decoder.embeddings, model.target_embedding),
    ):
        side.scale_embeddings = config.scale_embeddings
        table.weight = _array(embedding.tokens.weight)
        side.position_encodings.encodings = _array(embedding.positions)
    if pre_norm:
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    encoder_layer: Any
    for target, encoder_layer in zip(spec.encoder.layer, model.encoder_layers, strict=True):
        _self_attention(target.self_attention, encoder_layer.attention, encoder_layer.attention_residual.norm)
        _feed_forward(target.ffn, encoder_layer.feed_forward, encoder_layer.feed_forward_residual.norm)
    for target, layer in zip(spec.decoder.layer, model.decoder_layers, strict=True):
        _decoder_layer(target, layer)
    _linear(spec.decoder.projection, model.projection)
    return spec


def _decoder_layer(spec: Any, layer: Any) -> None:
    if not isinstance(layer, DecoderLayer) or not isinstance(layer.target_layer, CausalSelfAttention):
        raise PeerError("CTranslate2 has no such decoder layer; of our families it supports `transformer` only.")
    _self_attention(spec.self_attention, layer.target_layer.attention, layer.target_residual.norm)
    query, key_value, output = spec.attention.linear
    cross = layer.cross_attention
    _linear(query, cross.query)
    _linear(key_value, cross.key, cross.value)
    _linear(output, cross.output)
    _norm(spec.attention.layer_norm, layer.cross_residual.norm)
    _feed_forward(spec.ffn, layer.feed_forward, layer.feed_forward_residual.norm)


def _self_attention(spec: Any, attention: Any, norm: Any) -> None:
    query_key_value, output = spec.linear
    _linear(query_key_value, attention.query, attention.key, attention.value)
    _linear(output, attention.output)
    _norm(spec.layer_norm, norm)


def _feed_forward(spec: Any, layers: Any, norm: Any) -> None:
    first, _, _, last = layers
    _linear(spec.linear_0, first)
    _linear(spec.linear_1, last)
    _norm(spec.layer_norm, norm)


def _linear(spec: Any, *layers: Any) -> None:
    """Fill one linear layer with the concatenated outputs of one or more layers."""
    spec.weight = np.concatenate([_array(layer.weight) for layer in layers])
    if layers[0].bias is not None:
        spec.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(parameter: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = parameter.detach().float().numpy()
    return array
