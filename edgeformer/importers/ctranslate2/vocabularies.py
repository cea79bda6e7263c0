"""Vocabularies, the SentencePiece models that belong to them, and the tokens around a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_json, read_text
from edgeformer.importers.ctranslate2.model_file import Array
from edgeformer.importers.languages import M2M, MARIAN, MBART, NLLB, codes, with_tags
from edgeformer.importers.tokenizers import TextFiles, TokenizerPair, side_of, start_token, text_format, tokenizer_pair
from edgeformer.importers.tokenizers.ids import UNUSED
from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE, TARGET_LANGUAGE


def find_files(folder: Path, pieces: tuple[Path, Path] | None = None) -> TextFiles:
    """Find vocabularies, and the SentencePiece models beside them.

    Args:
        folder: folder of the model.
        pieces: SentencePiece models, if they are elsewhere.
    """
    shared = _vocabulary_file(folder, "shared")
    source, target = shared or _vocabulary_file(folder, "source"), shared or _vocabulary_file(folder, "target")
    if _vocabulary_file(folder, "source_1"):
        raise ImporterError(f"`{folder}` has vocabularies for several features, which no model family can represent.")
    if source is None or target is None:
        raise ImporterError(
            f"`{folder}` has no `shared_vocabulary.json`, nor a vocabulary each for the source and the target."
        )
    return TextFiles((source, target), pieces or _piece_files(folder) or (None, None))


def _vocabulary_file(folder: Path, name: str) -> Path | None:
    files = (folder / f"{name}_vocabulary.{suffix}" for suffix in ("json", "txt"))
    return next((file for file in files if file.is_file()), None)


def _piece_files(folder: Path) -> tuple[Path, Path] | None:
    """SentencePiece models: one, or one for each side, recognized by their names."""
    files = sorted(file for file in folder.iterdir() if file.suffix in {".spm", ".model"} and file.is_file())
    if not files:
        return None
    if len(files) == 1:
        return files[0], files[0]
    sides = [[file for file in files if side_of(file) == side] for side in (0, 1)]
    if [len(found) for found in sides] != [1, 1]:
        names = ", ".join(file.name for file in files)
        raise ImporterError(f"`{folder}` has the SentencePiece models {names}; keep one, or source.spm and target.spm.")
    return sides[0][0], sides[1][0]


def read_vocabularies(
    files: TextFiles, settings: ModelSettings, rows: tuple[int, int], *, shared: bool, zero_start: bool
) -> TokenizerPair:
    """Read both vocabularies, and append what the model has no entries for.

    Args:
        files: where they are.
        settings: names of the special tokens.
        rows: number of embeddings of each side.
        shared: whether both sides have the same table.
        zero_start: whether the decoder's first input is a zero vector, which becomes the last entry.
    """
    source, target = (
        _sized(read_tokens(file), file, count, settings.unk_token)
        for file, count in zip(files.vocabularies, rows, strict=True)
    )
    if settings.eos_token not in target:
        raise ImporterError(f"Vocabulary `{files.vocabularies[1]}` lacks the end token `{settings.eos_token}`.")
    if shared and source != target:
        raise ImporterError("Both sides have the same embeddings, but different vocabularies.")
    taken = {*source, *target, settings.unk_token, settings.eos_token}
    start = start_token(taken) if zero_start else settings.decoder_start_token
    if start is None:
        raise ImporterError("The model leaves the decoder's start token to the caller, which is not supported.")
    if start not in target and not zero_start:
        start = settings.unk_token  # which CTranslate2 takes for any token that it does not know
    special = list(dict.fromkeys((settings.unk_token, settings.eos_token, start)))
    added = [tuple(token for token in special if token not in side) for side in (source, target)]
    around, notes = _around_text(settings, start, source, zero_start=zero_start)
    text = text_format(
        pad=settings.eos_token,
        unk=settings.unk_token,
        bos=start,
        eos=settings.eos_token,
        suppress=added[1],
        **around,
    )
    entries = [
        {token: index for index, token in enumerate((*side, *extra))}
        for side, extra in zip((source, target), added, strict=True)
    ]
    return tokenizer_pair(files, entries, [*special, *text.languages.values()], text, notes)


def read_tokens(file: Path) -> list[str]:
    """Read the entries of a vocabulary, a JSON list or lines of text.

    A carriage return at the end of a line is part of an entry, unless all lines have one.
    """
    if file.suffix == ".json":
        return read_json(file, list[str])
    text = read_text(file)
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines


def _sized(tokens: list[str], file: Path, rows: int, unk_token: str) -> list[str]:
    """Give each row of a table one name. CTranslate2 appends the unknown token if it is missing, and finds the first of
    equal entries."""
    if len(tokens) == rows - 1 and unk_token not in tokens:
        tokens = [*tokens, unk_token]
    if len(tokens) != rows:
        raise ImporterError(f"Vocabulary `{file}` has {len(tokens):,} entries, but the model has {rows:,} embeddings.")
    first: dict[str, int] = {"": -1}
    for index, token in enumerate(tokens):
        first.setdefault(token, index)
    # No text has the name of an entry with a space.
    return [token if first[token] == index else UNUSED.format(index) for index, token in enumerate(tokens)]


def _around_text(
    settings: ModelSettings, start: str, source: Sequence[str], *, zero_start: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Find the tokens around those of a text, as fields of a text format, and notes.

    Models converted from the library ``transformers`` leave it to the caller to add what the library's tokenizers add.
    They are recognized by what they start from: a language's token, a zero vector (Marian), the end token (BART) or a
    padding token (T5, Pegasus).
    """
    eos, own, assumed = settings.eos_token, with_tags(codes(source, MARIAN)), ""
    prefix: tuple[str, ...] = (TARGET_LANGUAGE,) if own else ()
    fields: dict[str, Any] = {"source_prefix": prefix, "source_suffix": (eos,), "languages": own}
    if settings.add_source_bos or settings.add_source_eos:
        first, last = (token if token in source else settings.unk_token for token in (settings.bos_token, eos))
        fields["source_prefix"] = (first,) * settings.add_source_bos + prefix
        fields["source_suffix"] = (last,) * settings.add_source_eos
    elif start == eos and (languages := _languages(source)):
        fields |= {"source_prefix": (SOURCE_LANGUAGE,), "target_prefix": (TARGET_LANGUAGE,), "languages": languages}
        assumed = f"begin with the token of their language and to end with `{eos}`"
    elif zero_start or start == "<pad>":
        assumed = f"end with `{eos}`"
    elif start == eos:
        fields["source_prefix"] = (settings.bos_token,)
        assumed = f"begin with `{settings.bos_token}` and to end with `{eos}`"
    else:
        fields["source_suffix"] = ()
    note = f"The model does not state which tokens surround a source. Sources are assumed to {assumed}."
    return fields, (note,) if assumed else ()


def _languages(tokens: Sequence[str]) -> dict[str, str]:
    """Tokens of languages by their codes; empty if there is only one."""
    found = (codes(tokens, pattern) for pattern in (M2M, NLLB, MBART))
    return next((languages for languages in found if len(languages) > 1), {})


class ModelSettings(msgspec.Struct, frozen=True):
    """The fields of ``config.json`` that matter, with CTranslate2's own defaults."""

    unk_token: str = "<unk>"
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"
    """First input of the decoder; ``None`` if callers must give it."""
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = None
    """``None`` is 1e-5, or 1e-6 for RMSNorm."""


def read_settings(folder: Path, arrays: dict[str, Array], version: int) -> ModelSettings:
    """Read the settings of a model from its folder or, before version 6 of the file, from its arrays.

    The arrays lose what are settings.
    """
    path = folder / "config.json"
    settings = read_json(path, ModelSettings) if path.is_file() else ModelSettings()
    return settings if version >= 6 else _from_arrays(arrays, settings)


def _from_arrays(arrays: dict[str, Array], settings: ModelSettings) -> ModelSettings:
    names = ("unk_token", "bos_token", "eos_token")
    tokens = {name: _text(name, arrays.pop(name)) for name in names if name in arrays}
    settings = replace(settings, **tokens)
    if _flag(arrays, "user_decoder_start_tokens", False):
        start = None
    else:
        start = settings.bos_token if _flag(arrays, "with_target_bos", True) else settings.eos_token
    return replace(
        settings,
        decoder_start_token=start,
        add_source_bos=_flag(arrays, "with_source_bos", False),
        add_source_eos=_flag(arrays, "with_source_eos", False),
    )


def _flag(arrays: dict[str, Array], name: str, default: bool) -> bool:
    value = bool(scalar(arrays, name, default))
    arrays.pop(name, None)
    return value


def _text(name: str, array: Array) -> str:
    try:
        return array.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise ImporterError(f"The token `{name}` of the model is not UTF-8.") from None


def scalar(arrays: Mapping[str, Array], name: str, default: Any) -> Any:
    """Return a single number that the model states, or the default."""
    if name not in arrays:
        return default
    if arrays[name].size != 1:
        raise ImporterError(f"`{name}` of the model must be a single number.")
    return arrays[name].item()
