"""Tokens that CTranslate2 adds to those of a text, from ``config.json`` or, before version 6, from the model file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer.importers.ctranslate2.model_file import Array

MAX_BYTES = 1 << 20
"""Size of ``config.json``."""


class Settings(msgspec.Struct, frozen=True):
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


def read_settings(folder: Path, arrays: dict[str, Array], version: int) -> Settings:
    """Read the settings of a model.

    Args:
        folder: folder of the model.
        arrays: arrays of the model; those that are settings are removed.
        version: version of the model file.

    Raises:
        ImporterError: they are damaged.
    """
    path = folder / "config.json"
    settings = Settings()
    if path.is_file():
        data = read_bytes(path, MAX_BYTES)
        try:
            settings = msgspec.json.decode(data, type=Settings)
        except (msgspec.DecodeError, ValueError) as error:
            raise ImporterError(f"`{path}` is damaged: {error}.") from None
    return settings if version >= 6 else _from_arrays(arrays, settings)


def _from_arrays(arrays: dict[str, Array], settings: Settings) -> Settings:
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
    """Return a single number that the model states, or the default.

    Raises:
        ImporterError: it is not a single number.
    """
    if name not in arrays:
        return default
    if arrays[name].size != 1:
        raise ImporterError(f"`{name}` of the model must be a single number.")
    return arrays[name].item()
