"""Converts a Transformer to a CTranslate2 model with the same weights."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray

from edgeformer.importers.ctranslate2.importer import NAMES
from edgeformer.importers.ctranslate2.model_config import ACTIVATIONS
from edgeformer.importers.layout import modules
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.model import DecoderLayer, Transformer
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from edgeformer.run.folder import Run
from edgeformer_bench.peers.base import PeerError, Weights
from edgeformer_bench.peers.ctranslate2 import save_rules, token_names
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.files import staged_folder
from edgeformer_runtime.tokenizers import special_tokens

_ACTIVATIONS = {ours: Activation(number) for number, ours in ACTIVATIONS.items()}


def convert_run(run: Run, out: Path, weights: Weights) -> None:
    """Write a run's model in CTranslate2's format, next to the run's tokenizers.

    Raises:
        PeerError: CTranslate2 does not support the model.
    """
    with staged_folder(out) as folder:
        model = run.load_model()
        sides = (special_tokens(side, side, ()) for side in (run.source_tokenizer, run.target_tokenizer))
        convert_model(model, folder, weights, *sides)
        save_rules(run, model.max_target_length, folder)


def convert_model(
    model: EncoderDecoder, folder: Path, weights: Weights, source: SpecialTokens, target: SpecialTokens
) -> None:
    """Write a model into an empty folder.

    Raises:
        PeerError: CTranslate2 does not support the model.
    """
    if target.unk is None or source.unk is None:
        raise PeerError("CTranslate2 needs a token for unknown text in both vocabularies.")
    spec = _spec(model)
    names = token_names(model.target_vocab_size, target)
    spec.register_source_vocabulary(token_names(model.source_vocab_size, source))
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = names[target.bos]
    spec.config.eos_token, spec.config.unk_token = names[target.eos], names[target.unk]
    spec.validate()
    spec.optimize(quantization=None if weights == "float32" else weights)
    spec.save(str(folder))


def _spec(model: EncoderDecoder) -> Any:
    """Build CTranslate2's specification of a model, weights included; its classes declare no attributes."""
    _require_supported(model)
    assert isinstance(model, Transformer)
    config = model.config
    spec: Any = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=True,  # otherwise, there would be no final norm
        no_final_norm=not config.has_final_norm,
        activation=_ACTIVATIONS[config.activation],
        alignment_heads=config.heads,  # attention is the mean of all heads of the last layer, as in ours
        layernorm_embedding=config.embedding_norm,
        relative_attention_bias=config.relative_bias is not None,
        ffn_glu=config.ffn_gated,
        rms_norm=config.norm_type == "rms",
    )
    spec.config.layer_norm_epsilon = config.norm_epsilon
    scale = config.scale_embeddings
    for side, table, embedding in (
        (spec.encoder, spec.encoder.embeddings[0], model.source_embedding),
        (spec.decoder, spec.decoder.embeddings, model.target_embedding),
    ):
        side.pre_norm = config.norm == "pre"
        side.scale_embeddings = scale if isinstance(scale, bool) else float(scale)
        table.weight = _array(embedding.tokens.weight)
    _positions(spec, model)
    _layers(spec, model)
    spec.decoder.projection.weight = _array(model.projection.weight)
    if model.projection.bias is not None:
        spec.decoder.projection.bias = _array(model.projection.bias)
    if config.output_scale != 1:
        spec.decoder.scale_outputs = float(config.output_scale)
    return spec


def _require_supported(model: EncoderDecoder) -> None:
    """Refuse what CTranslate2's specification cannot represent.

    Raises:
        PeerError: names the option.
    """
    if not isinstance(model, Transformer):
        raise PeerError(
            f"CTranslate2 has no model like {type(model).__name__}; of our models it supports Transformers only."
        )
    for layer in model.decoder_layers:
        if not isinstance(layer, DecoderLayer) or not isinstance(layer.target_layer, CausalSelfAttention):
            raise PeerError("CTranslate2 has no such decoder layer; of our families it supports `transformer` only.")
    config = model.config
    if config.encoder_attention_only:
        raise PeerError("CTranslate2 does not support `encoder_attention_only`.")
    if config.share_head_projection:
        raise PeerError("CTranslate2 does not support `share_head_projection`.")
    if not config.key_width * config.heads == config.value_width * config.heads == config.d_model:
        raise PeerError(
            "CTranslate2 does not support heads whose widths, `d_k` and `d_v`, differ from `d_model` / `heads`."
        )
    if config.relative_bias is not None and config.positions != "none":
        raise PeerError('CTranslate2 has no positions beside `relative_bias`; it needs `positions` = "none".')


def _positions(spec: Any, model: Transformer) -> None:
    """Tables of positions. Without one, CTranslate2 would compute sinusoids, so zeros stand for no positions."""
    config = model.config
    if config.relative_bias is not None:
        return
    for side, embedding, length in (
        (spec.encoder, model.source_embedding, model.max_source_length),
        (spec.decoder, model.target_embedding, model.max_target_length),
    ):
        table = np.zeros((length, config.d_model), np.float32)
        if embedding.positions is not None:
            table = _array(embedding.positions)
        side.position_encodings.encodings = table


def _layers(spec: Any, model: Transformer) -> None:
    """Linear layers, norms and biases by distance, by the names that the importer knows."""
    section = {"family": "transformer", **msgspec.to_builtins(model.config)}
    weights = model.state_dict()
    for theirs, group in groupby(modules(section, NAMES), lambda module: module.theirs):
        path, _, attribute = theirs.rpartition("/")
        target, merged = _at(spec, path), list(group)
        setattr(target, attribute, _array(torch.cat([weights[f"{module.ours}.weight"] for module in merged])))
        if merged[0].has_bias:
            bias = _array(torch.cat([weights[f"{module.ours}.bias"] for module in merged]))
            setattr(target, "beta" if attribute == "gamma" else "bias", bias)
    encoder_layers: Any = model.encoder_layers
    for target, layer in zip(spec.encoder.layer, encoder_layers, strict=True):
        _attention(target.self_attention, layer.attention, layer.relative_bias, model.config)
    decoder_layers: Any = model.decoder_layers
    for target, layer in zip(spec.decoder.layer, decoder_layers, strict=True):
        target_layer = layer.target_layer
        _attention(target.self_attention, target_layer.attention, target_layer.relative_bias, model.config)
        _attention(target.attention, layer.cross_attention, None, model.config)


def _at(spec: Any, path: str) -> Any:
    """The part of a specification that a name of CTranslate2 means."""
    for part in path.split("/"):
        name, _, number = part.rpartition("_")
        spec = getattr(spec, part) if hasattr(spec, part) else getattr(spec, name)[int(number)]
    return spec


def _attention(spec: Any, attention: Any, bias: Any, config: TransformerConfig) -> None:
    """Scale and biases by distance of an attention; every layer needs the biases, also those of another layer."""
    spec.queries_scale = float(attention.scale)
    if bias is not None and config.relative_bias is not None:
        spec.relative_attention_bias = _array(bias.weight)
        spec.relative_attention_max_distance = np.int32(config.relative_bias.max_distance)


def _array(parameter: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = parameter.detach().float().numpy()
    return array
