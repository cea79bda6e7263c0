"""CTranslate2's models: a folder with ``model.bin``, ``config.json`` and vocabularies.

Norms and positions are those of its engine (Klein et al. 2020, "The OpenNMT Neural Machine Translation Toolkit: 2020
Edition"), and so is the search: its defaults become the model's. A linear layer has its weight as ``(out, in)``, and
projections of the same input are merged: queries, keys and values of self-attention, and keys and values of
cross-attention.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import sha256_of
from edgeformer.importers.ctranslate2.model_config import WITHOUT_EFFECT, model_config
from edgeformer.importers.ctranslate2.model_file import current_names, is_model_file, read_model_file
from edgeformer.importers.ctranslate2.vocabularies import find_files, read_settings, read_vocabularies
from edgeformer.importers.ctranslate2.weights import CTranslate2Weights
from edgeformer.importers.layout import OUTPUT_BIAS, SOURCE_TABLE, TARGET_TABLE, attention, halves, tied_tables
from edgeformer.importers.model import FloatArray, ImportedModel
from edgeformer.importers.registry import NO_OVERRIDES, Importer, ImportOverrides
from edgeformer_runtime.bundle.generation import Generation

MODEL = "model.bin"
GENERATION = Generation(beam_size=2, length_penalty=1.0, length_includes_end=True)
"""CTranslate2's defaults."""
NAMES = {
    **attention("encoder_layers.{}.attention", "encoder/layer_{}/self_attention/linear_*/weight", "0001"),
    "encoder_layers.{}.relative_bias": "encoder/layer_{}/self_attention/relative_attention_bias",
    "encoder_layers.{}.attention_residual.norm": "encoder/layer_{}/self_attention/layer_norm/gamma",
    "encoder_layers.{}.feed_forward.0": "encoder/layer_{}/ffn/linear_0/weight",
    "encoder_layers.{}.feed_forward.0.gate": "encoder/layer_{}/ffn/linear_0/weight",
    "encoder_layers.{}.feed_forward.0.linear": "encoder/layer_{}/ffn/linear_0_noact/weight",
    "encoder_layers.{}.feed_forward.3": "encoder/layer_{}/ffn/linear_1/weight",
    "encoder_layers.{}.feed_forward_residual.norm": "encoder/layer_{}/ffn/layer_norm/gamma",
    **attention("decoder_layers.{}.target_layer.attention", "decoder/layer_{}/self_attention/linear_*/weight", "0001"),
    "decoder_layers.{}.target_layer.relative_bias": "decoder/layer_{}/self_attention/relative_attention_bias",
    "decoder_layers.{}.target_residual.norm": "decoder/layer_{}/self_attention/layer_norm/gamma",
    **attention("decoder_layers.{}.cross_attention", "decoder/layer_{}/attention/linear_*/weight", "0112"),
    "decoder_layers.{}.cross_residual.norm": "decoder/layer_{}/attention/layer_norm/gamma",
    "decoder_layers.{}.feed_forward.0": "decoder/layer_{}/ffn/linear_0/weight",
    "decoder_layers.{}.feed_forward.0.gate": "decoder/layer_{}/ffn/linear_0/weight",
    "decoder_layers.{}.feed_forward.0.linear": "decoder/layer_{}/ffn/linear_0_noact/weight",
    "decoder_layers.{}.feed_forward.3": "decoder/layer_{}/ffn/linear_1/weight",
    "decoder_layers.{}.feed_forward_residual.norm": "decoder/layer_{}/ffn/layer_norm/gamma",
    "encoder_norm": "encoder/layer_norm/gamma",
    "decoder_norm": "decoder/layer_norm/gamma",
    "source_embedding.norm": "encoder/layernorm_embedding/gamma",
    "target_embedding.norm": "decoder/layernorm_embedding/gamma",
}
"""Names of weights."""


def read_ctranslate2(path: Path, overrides: ImportOverrides = NO_OVERRIDES) -> ImportedModel:
    """Read a model of CTranslate2.

    Args:
        path: the folder of the model, or its ``model.bin``.
        overrides: tokenizers, if they are not in that folder.
    """
    folder, model = (path, path / MODEL) if path.is_dir() else (path.parent, path)
    file = read_model_file(model)
    stored = current_names(file)
    settings = read_settings(folder, stored, file.version)
    arrays = CTranslate2Weights(stored)
    zero_start = bool(arrays.number("decoder/start_from_zero_embedding", 0))
    config, weights = convert(arrays, settings.layer_norm_epsilon), arrays.weights
    shared = SOURCE_TABLE not in weights
    rows = len(weights[TARGET_TABLE if shared else SOURCE_TABLE]), len(weights[TARGET_TABLE])
    files = find_files(folder, overrides.pieces)
    vocabularies = read_vocabularies(files, settings, rows, shared=shared, zero_start=zero_start)
    arrays.add_rows(vocabularies.sizes)
    return ImportedModel(
        model=config,
        weights=weights,
        source_tokenizer=vocabularies.source,
        target_tokenizer=vocabularies.target,
        text=vocabularies.text,
        generation=GENERATION,
        hashes=sha256_of([model, *files.read(), *(file for file in [folder / "config.json"] if file.is_file())]),
        notes=vocabularies.notes,
    )


def convert(arrays: CTranslate2Weights, epsilon: float | None) -> dict[str, Any]:
    """Convert the weights, and return section ``[model]`` of the recipe.

    For ``epsilon``, see :func:`model_config`.

    Raises:
        ConfigError: the configuration contradicts itself.
    """
    config = model_config(arrays, epsilon)
    width = config["d_model"]
    names = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"
    rows = [arrays.matrix_shape(name)[0] for name in names]
    tables = [arrays.take(name, count, width) for name, count in zip(names, rows, strict=True)]
    if rows[1] != rows[2]:
        raise ImporterError(f"The decoder has {rows[1]:,} embeddings, but {rows[2]:,} outputs.")
    config["tied_embeddings"], tied = tied_tables(*tables)
    arrays.weights |= tied
    if config["output_bias"]:
        arrays.weights[OUTPUT_BIAS] = arrays.take("decoder/projection/bias", rows[2])
    arrays.layers(config, NAMES)
    for side, theirs in (("source", "encoder"), ("target", "decoder")):
        if config["positions"] == "table":
            arrays.weights[f"{side}_embedding.positions"] = _positions(
                arrays, theirs, config[f"max_{side}_length"], width
            )
    arrays.refuse_surplus(WITHOUT_EFFECT)
    return config


def _positions(arrays: CTranslate2Weights, side: str, length: int, width: int) -> FloatArray:
    """The stored table, or the one that CTranslate2 computes: its positions count from 1."""
    name = f"{side}/position_encodings/encodings"
    if name in arrays:
        return arrays.take(name, arrays.matrix_shape(name)[0], width)[:length]
    if width < 4 or width % 2:
        raise ImporterError(f"CTranslate2 has no positions for a width of {width}.")
    return halves(length, width, denominator=width // 2 - 1, start=1)


def is_ctranslate2(path: Path) -> bool:
    """Return whether a path is a ``model.bin`` of CTranslate2, or a folder with one."""
    return is_model_file(path / MODEL if path.is_dir() else path)


CTRANSLATE2 = Importer(
    name="ctranslate2",
    recognizes=is_ctranslate2,
    read=read_ctranslate2,
    rank=2,
)
