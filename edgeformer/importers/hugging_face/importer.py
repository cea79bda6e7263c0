"""From a model folder to an imported model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import sha256_of
from edgeformer.importers.hugging_face.checkpoint import has_weights, open_checkpoint
from edgeformer.importers.hugging_face.families import FAMILIES
from edgeformer.importers.hugging_face.family import ModelVocabulary
from edgeformer.importers.hugging_face.generation import SearchSettings, read_search
from edgeformer.importers.hugging_face.model_folder import ModelFolder, has_config, open_folder
from edgeformer.importers.hugging_face.settings import shown
from edgeformer.importers.languages import tags
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import NO_OVERRIDES, Importer, ImportOverrides
from edgeformer.importers.tokenizers import text_format
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE, TextFormat

_HEADS = ("ForConditionalGeneration", "MTModel", "WithLMHeadModel")
"""Ends of the names of classes that write text; others have heads for other tasks."""
_BARE = {"BartModel", "MBartModel", "M2M100Model", "MarianModel"}
"""Classes whose output layer is tied to the embedding."""
_FILES = ("vocab.json", "target_vocab.json", "merges.txt", "tokenizer.json")
_SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json")


def read_folder(path: Path, overrides: ImportOverrides = NO_OVERRIDES) -> ImportedModel:
    """Read a model folder; SentencePiece models that are not in it can be given.

    Raises:
        ConfigError: a package of the extra ``import`` is missing.
    """
    folder = open_folder(path, overrides.tokenizers)
    model_type = folder.config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ImporterError(
            f"`model_type` of config.json is {shown(model_type)}; supported are {', '.join(sorted(FAMILIES))}."
        )
    _refuse_unknown(folder.config)
    family = FAMILIES[model_type]
    checkpoint = open_checkpoint(folder)
    model, rows = family.convert(folder.config, checkpoint)
    vocabulary = family.vocabulary(folder, rows)
    search = read_search(folder.config, folder.generation, rows[1])
    if search.max_steps is not None:
        model["max_target_length"] = min(model["max_target_length"], search.max_steps)
    weights = checkpoint.weights
    if "target_embedding.positions" in weights:
        weights["target_embedding.positions"] = weights["target_embedding.positions"][: model["max_target_length"]]
    files = [file for name in (*_SETTINGS, *_FILES) if (file := folder.file(name)) is not None]
    return ImportedModel(
        model=model,
        weights=weights,
        source_tokenizer=vocabulary.source.content,
        target_tokenizer=vocabulary.target.content,
        text=surroundings(vocabulary, search),
        generation=search.generation,
        source_language=vocabulary.source_language,
        target_language=vocabulary.target_language or _forced_language(vocabulary, search),
        license=folder.license(),
        hashes=sha256_of([*checkpoint.files, *files, *folder.opened]),
        notes=(*family.notes, *vocabulary.notes, *_added_words(folder), *search.notes),
    )


def surroundings(vocabulary: ModelVocabulary, search: SearchSettings) -> TextFormat:
    """Name special tokens, and what is around the tokens of a text.

    Raises:
        ImporterError: a special token is not the same in both vocabularies, or the end token not that of the tokenizer.
    """
    names = vocabulary.target.names
    never = tuple(names[index] for index in search.never)
    forced: tuple[str, ...] = () if search.forced is None else (names[search.forced],)
    if vocabulary.forces_target:
        forced = (TARGET_LANGUAGE,)
    for index in (search.pad, search.start, search.end):
        if names[index] not in vocabulary.source.names:
            raise ImporterError(f"The source vocabulary lacks `{names[index]}`, which the target vocabulary has.")
    if names[search.end] not in vocabulary.suffix:
        raise ImporterError(
            f"`eos_token_id` is {search.end}, which is `{names[search.end]}` in the vocabulary, but "
            f"`{vocabulary.suffix[0]}` ends its texts; the tokenizer is that of another model."
        )
    return text_format(
        pad=names[search.pad],
        unk=vocabulary.unk,
        bos=names[search.start],
        eos=names[search.end],
        suppress=never if search.renormalized else (),
        forbid=() if search.renormalized else never,
        source_prefix=vocabulary.prefix,
        source_suffix=vocabulary.suffix,
        target_prefix=forced,
        languages=dict(vocabulary.languages),
    )


def _forced_language(vocabulary: ModelVocabulary, search: SearchSettings) -> str:
    """Language that outputs begin with by default, as a BCP 47 tag; empty if it is not stated."""
    if not vocabulary.forces_target or search.forced is None:
        return ""
    token = vocabulary.target.names[search.forced]
    codes = [code for code, name in vocabulary.languages.items() if name == token]
    return next((code for code in codes if code in tags(code)), codes[0] if codes else "")


def _added_words(folder: ModelFolder) -> tuple[str, ...]:
    """A note about tokens that ``transformers`` finds in texts before it divides them into pieces."""
    words = folder.words()
    some = ", ".join(f"`{word[:60]}`" for word in words[:8])
    return (f"{len(words)} tokens that were added are read as other text is: {some}.",) if words else ()


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    """Refuse models of another kind, and code in the folder."""
    if config.get("is_encoder_decoder") is False or config.get("is_decoder") is True:
        raise ImporterError("config.json does not describe an encoder with a decoder.")
    for name in ("auto_map", "quantization_config", "adapters"):
        if config.get(name):
            raise ImporterError(f"config.json has `{name}`, which is not supported.")
    classes = config.get("architectures")
    for name in classes if isinstance(classes, list) else []:
        if not isinstance(name, str) or not (name.endswith(_HEADS) or name in _BARE):
            raise ImporterError(f"`architectures` of config.json has {shown(name)}, which does not write text.")


def recognizes(path: Path) -> bool:
    """Return whether a folder has a configuration, without weights of CTranslate2 only."""
    return has_config(path) and (has_weights(path) or not (path / "model.bin").is_file())


HUGGING_FACE = Importer(
    name="huggingface",
    recognizes=recognizes,
    read=read_folder,
)
