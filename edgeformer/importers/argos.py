"""Argos Translate's packages: a CTranslate2 model and a SentencePiece model or BPE codes, in a zip file or unpacked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec.structs import replace as changed

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import open_zip, read_json, sha256_of, unpacked
from edgeformer.importers.ctranslate2.importer import MODEL, is_ctranslate2, read_ctranslate2
from edgeformer.importers.ctranslate2.vocabularies import checked
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import NOTHING, Given, Importer
from edgeformer_runtime.bundle.generation import Generation

METADATA, PIECES, SUBWORDS, FOLDER = "metadata.json", "sentencepiece.model", "bpe.model", "model"
GENERATION = Generation(beam_size=4, length_penalty=0.2, length_includes_end=True)
"""Options that Argos Translate passes to CTranslate2."""
NOTE = (
    "Argos Translate also splits text into sentences, and puts source tokens in place of unknown ones, as "
    "`--replace-unknowns` does."
)


class Metadata(msgspec.Struct, frozen=True):
    """The fields of ``metadata.json`` that matter."""

    from_code: str = ""
    to_code: str = ""
    target_prefix: str = ""
    """Token that every translation begins with, in models with several target languages."""
    type: str = "translate"


def read_argos(path: Path, given: Given = NOTHING) -> ImportedModel:
    """Read a package of Argos Translate, a file or the folder that it unpacks to, which has all that it needs."""
    if path.is_dir():
        return _from_folder(path)
    with unpacked(path) as folder:
        return replace(_from_folder(folder), hashes=sha256_of([path]))


def _from_folder(folder: Path) -> ImportedModel:
    metadata = read_json(folder / METADATA, Metadata)
    if metadata.type != "translate":
        raise ImporterError(f"The package is of the type `{metadata.type}`, and not for translation.")
    pieces, subwords = folder / PIECES, folder / SUBWORDS
    if pieces.is_file():
        imported = read_ctranslate2(folder / FOLDER, Given(tokenizers=(pieces,)))
    elif subwords.is_file():
        languages = metadata.from_code, metadata.to_code
        imported = read_ctranslate2(folder / FOLDER, Given(tokenizers=(subwords,)), languages)
    else:
        raise ImporterError(f"The package has no tokenizer: neither `{PIECES}` nor `{SUBWORDS}`.")
    text = imported.text
    if prefix := metadata.target_prefix:
        # Tokens of languages are not part of the text.
        text = checked(changed(text, target_prefix=(prefix,), languages={metadata.to_code: prefix}))
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
    """Return whether a path is a package of Argos Translate, packed or not."""
    if path.is_dir():
        return (path / METADATA).is_file() and is_ctranslate2(path / FOLDER)
    try:
        with open_zip(path) as archive:
            names = archive.namelist()
    except ImporterError:
        return False
    return all(any(name.endswith(f"/{file}") for name in names) for file in (METADATA, f"{FOLDER}/{MODEL}"))


ARGOS = Importer(
    name="argos",
    recognizes=is_argos,
    read=read_argos,
)
