"""CTranslate2's models: a folder with ``model.bin``, ``config.json`` and vocabularies.

Norms and positions are those of its engine (Klein et al. 2020, "The OpenNMT Neural Machine Translation Toolkit: 2020
Edition"), and so is the search: its defaults become the model's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeformer.importers.archive import sha256_of
from edgeformer.importers.ctranslate2.arrays import Arrays
from edgeformer.importers.ctranslate2.model_file import current_names, is_model_file, read_model_file
from edgeformer.importers.ctranslate2.vocabularies import find_files, read_settings, read_vocabularies
from edgeformer.importers.ctranslate2.weights import converted
from edgeformer.importers.layout import OUTPUT_TABLE, SOURCE_TABLE, TARGET_TABLE
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import NOTHING, Given, Importer
from edgeformer_runtime.bundle.generation import Generation

MODEL = "model.bin"
GENERATION = Generation(beam_size=2, length_penalty=1.0, length_includes_end=True)
"""CTranslate2's defaults."""


def read_ctranslate2(path: Path, given: Given = NOTHING) -> ImportedModel:
    """Read a model of CTranslate2.

    Args:
        path: the folder of the model, or its ``model.bin``.
        given: tokenizers, if they are not in that folder.
    """
    folder, model = (path, path / MODEL) if path.is_dir() else (path.parent, path)
    file = read_model_file(model)
    stored = current_names(file)
    settings = read_settings(folder, stored, file.version)
    arrays = Arrays(stored)
    zero_start = bool(arrays.number("decoder/start_from_zero_embedding", 0))
    config, weights = converted(arrays, settings.layer_norm_epsilon)
    shared = SOURCE_TABLE not in weights
    rows = len(weights[TARGET_TABLE if shared else SOURCE_TABLE]), len(weights[TARGET_TABLE])
    files = find_files(folder, given.pieces)
    vocabularies = read_vocabularies(files, settings, rows, shared=shared, zero_start=zero_start)
    sizes = dict(zip((SOURCE_TABLE, TARGET_TABLE), vocabularies.sizes, strict=True))
    for name in weights.keys() & {*sizes, OUTPUT_TABLE, "projection.bias"}:
        table = weights[name]
        if added := sizes.get(name, sizes[TARGET_TABLE]) - len(table):
            weights[name] = np.concatenate((table, np.zeros((added, *table.shape[1:]), np.float32)))
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


def is_ctranslate2(path: Path) -> bool:
    """Return whether a path is a ``model.bin`` of CTranslate2, or a folder with one."""
    return is_model_file(path / MODEL if path.is_dir() else path)


CTRANSLATE2 = Importer(
    name="ctranslate2",
    recognizes=is_ctranslate2,
    read=read_ctranslate2,
    rank=2,
)
