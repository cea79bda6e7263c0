"""Marian's models, with vocabularies beside them: ``model.npz``, and ``model.bin`` as Bergamot publishes it.

The arithmetic is that of Marian's own CPU decoder (Junczys-Dowmunt et al. 2018): positions have sines in the left half,
cosines in the right one, and frequencies with the exponent ``-i / (D / 2 - 1)``; norms add 1e-6; the first input of the
decoder is a zero vector plus the first position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_npz, sha256_of
from edgeformer.importers.marian.binary import MarianItem, is_marian_binary, read_binary, read_shortlist
from edgeformer.importers.marian.files import MarianFiles, find_files, has_options
from edgeformer.importers.marian.options import model_config, read_options, refuse_unknown
from edgeformer.importers.marian.vocabularies import read_vocabularies
from edgeformer.importers.marian.weights import MarianWeights
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import NO_OVERRIDES, Importer, ImportOverrides
from edgeformer_runtime.bundle.generation import Generation

PRE_NORM_NOTE = (
    "Norms are before sublayers. The decoder of Marian 1.12 leaves out the norm of self-attention's keys and values "
    "from the second step on, against the model's training; here they are normalized, as in Marian's training and "
    "scoring."
)
_PAIR = re.compile(r"model\.([a-z]{2})([a-z]{2})\.")
"""How the names of Firefox's files begin; those of languages with longer tags do not tell where the first one ends."""


def read_marian(path: Path, overrides: ImportOverrides = NO_OVERRIDES) -> ImportedModel:
    """Read a model in Marian's own format.

    Args:
        path: the ``.npz`` file, or a folder that has one, with its vocabularies beside it.
        overrides: SentencePiece models whose pieces have the ids of the vocabularies, if they are elsewhere.
    """
    files = find_files(path, has_options, ".npz", overrides)
    return _imported(read_npz(files.model), files, files.generation(beam_size=4, normalize=0, max_length_factor=3))


def read_bergamot(path: Path, overrides: ImportOverrides = NO_OVERRIDES) -> ImportedModel:
    """Read a model in Marian's binary format, a ``.bin`` file; otherwise as :func:`read_marian`."""
    files = find_files(path, is_marian_binary, ".bin", overrides)
    imported = _imported(
        read_binary(files.model), files, files.generation(beam_size=1, normalize=1, max_length_factor=2)
    )
    pair = _PAIR.match(files.model.name)
    return replace(imported, source_language=pair[1], target_language=pair[2]) if pair else imported


def _imported(items: Mapping[str, MarianItem], files: MarianFiles, generation: Generation) -> ImportedModel:
    options = read_options(items, files.model)
    refuse_unknown(options)
    config = model_config(items, options)
    converted = MarianWeights(items, config)
    vocabularies = read_vocabularies(files.text)
    for side, size in zip(("source", "target"), vocabularies.sizes, strict=True):
        table = converted.weights.get(f"{side}_embedding.tokens.weight")
        if table is not None and len(table) != size - 1:  # the start token is added
            raise ImporterError(f"The {side} vocabulary has {size - 1:,} entries, but the model has {len(table):,}.")
    converted.add_rows(vocabularies.sizes)
    read_files = [files.model, *files.text.read()]
    shortlist = None
    if files.shortlist is not None:
        # The original vocabularies do not have the start token.
        shortlist = read_shortlist(files.shortlist, *(size - 1 for size in vocabularies.sizes))
        read_files.append(files.shortlist)
    return ImportedModel(
        model=config,
        weights=converted.weights,
        quantization=converted.scales,
        source_tokenizer=vocabularies.source,
        target_tokenizer=vocabularies.target,
        text=vocabularies.text,
        generation=generation,
        shortlist=shortlist,
        hashes=sha256_of(read_files),
        notes=(*files.notes(), *((PRE_NORM_NOTE,) if config["norm"] == "pre" else ())),
    )


def _has_model(path: Path, is_model: Callable[[Path], bool], suffix: str) -> bool:
    """Return whether a file is a model, or a file of a folder."""
    return any(is_model(file) for file in ([path] if path.is_file() else sorted(path.glob(f"*{suffix}"))))


MARIAN = Importer(
    name="marian",
    recognizes=partial(_has_model, is_model=has_options, suffix=".npz"),
    read=read_marian,
    rank=0,
)
BERGAMOT = Importer(
    name="bergamot",
    recognizes=partial(_has_model, is_model=is_marian_binary, suffix=".bin"),
    read=read_bergamot,
    rank=2,
)
