"""The registry of model families.

A family is a name, a configuration type and a torch module. It is found through the entry-point group
``edgeformer.families``, so a model defined outside this repository becomes usable by installing the package that
declares it, or, within one process, by :func:`register`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer.errors import ConfigError

if TYPE_CHECKING:
    from edgeformer.model.base import EncoderDecoder

_REGISTERED: dict[str, Family] = {}


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the toolkit must know of a kind of model."""

    name: str
    """The value of ``model.family`` in a recipe."""
    config_type: type[msgspec.Struct]
    """Fields of ``[model]`` besides ``family`` and ``preset``."""
    build: Callable[[Any, int, int], EncoderDecoder]
    """``build(config, source_vocab_size, target_vocab_size)`` makes an untrained model; imports torch on first use."""
    presets: Mapping[str, Callable[[], msgspec.Struct]] = field(default_factory=dict)
    """Named configurations to start from."""


def register(family: Family) -> None:
    """Make a family known in this process.

    Raises:
        ConfigError: the name is taken by another family.
    """
    if _REGISTERED.get(family.name, family) is not family or family.name in _installed():
        raise ConfigError(f"A family named `{family.name}` is registered already; choose another name.")
    _REGISTERED[family.name] = family


def family_names() -> list[str]:
    """Names of all known families."""
    return sorted({*_REGISTERED, *_installed()})


def get_family(name: str) -> Family:
    """Find a family by name.

    Raises:
        ConfigError: no such family.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _installed():
        family = _installed()[name]()
        if not isinstance(family, Family):
            raise ConfigError(
                f"Entry point `{name}` of edgeformer.families must be a Family, but is {type(family).__name__}."
            )
        return family
    raise ConfigError(f"`model.family` must be one of {', '.join(family_names())}, but is `{name}`.")


def model_config(section: Mapping[str, Any]) -> msgspec.Struct:
    """Turn the ``[model]`` section of a recipe into its family's configuration.

    Raises:
        ConfigError: unknown family, preset or field, or a value of the wrong type.
    """
    fields = dict(section)
    family = get_family(str(fields.pop("family", "")))
    preset = fields.pop("preset", None)
    if preset is not None:
        if not isinstance(preset, str) or preset not in family.presets:
            known = ", ".join(family.presets) or "none"
            raise ConfigError(f"`model.preset` must be one of {known}, but is `{preset}`.")
        fields = {**msgspec.structs.asdict(family.presets[preset]()), **fields}
    try:
        return msgspec.convert(fields, family.config_type)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"Section [model] of family `{family.name}`: {error}.") from None


@cache
def _installed() -> dict[str, Callable[[], Any]]:
    return {entry.name: entry.load for entry in entry_points(group="edgeformer.families")}
