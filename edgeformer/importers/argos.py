"""Argos Translate's packages: a CTranslate2 model and a SentencePiece model, in a zip file or unpacked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_json, sha256_of
from edgeformer.importers.ctranslate2.importer import is_ctranslate2, read_ctranslate2
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import NO_OVERRIDES, Importer, ImportOverrides
from edgeformer.importers.tokenizers import text_format
from edgeformer_runtime.bundle.generation import Generation

METADATA, PIECES, SUBWORDS, FOLDER = "metadata.json", "sentencepiece.model", "bpe.model", "model"
GENERATION = Generation(beam_size=4, length_penalty=0.2, length_includes_end=True)
"""Options that Argos Translate passes to CTranslate2."""
NOTE = (
    "Argos Translate also splits text into sentences, and puts source tokens in place of unknown ones, as "
    "`--replace-unknowns` does."
)


class PackageMetadata(msgspec.Struct, frozen=True):
    """The fields of ``metadata.json`` that matter."""

    from_code: str = ""
    to_code: str = ""
    target_prefix: str = ""
    """Token that every translation begins with, in models with several target languages."""
    type: str = "translate"


def read_argos(folder: Path, overrides: ImportOverrides = NO_OVERRIDES) -> ImportedModel:
    """Read a package of Argos Translate, which has all that it needs, as the folder that it unpacks to."""
    metadata = read_json(folder / METADATA, PackageMetadata)
    if metadata.type != "translate":
        raise ImporterError(f"The package is of the type `{metadata.type}`, and not for translation.")
    pieces = folder / PIECES
    if pieces.is_file():
        imported = read_ctranslate2(folder / FOLDER, ImportOverrides(tokenizers=(pieces,)))
    elif (folder / SUBWORDS).is_file():
        raise ImporterError(
            f"The package has BPE codes of subword-nmt for text that Moses' rules split (`{SUBWORDS}`), which are not "
            f"supported; import a later package of the pair, or run its folder `{FOLDER}` in CTranslate2."
        )
    else:
        raise ImporterError(f"The package has no tokenizer, `{PIECES}`.")
    text = imported.text
    if prefix := metadata.target_prefix:
        # Tokens of languages are not part of the text.
        fields = msgspec.structs.asdict(text)
        text = text_format(**{**fields, "target_prefix": (prefix,), "languages": {metadata.to_code: prefix}})
    return replace(
        imported,
        text=text,
        generation=GENERATION,
        source_language=metadata.from_code,
        target_language=metadata.to_code,
        hashes={**imported.hashes, **sha256_of([folder / METADATA])},
        notes=(*imported.notes, NOTE),
    )


def is_argos(path: Path) -> bool:
    """Return whether a folder is an unpacked package of Argos Translate."""
    return (path / METADATA).is_file() and is_ctranslate2(path / FOLDER)


ARGOS = Importer(name="argos", recognizes=is_argos, read=read_argos)
