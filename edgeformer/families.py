"""The registry of model families.

A family is a name, a configuration type and a torch module. It is found through the entry-point group
``edgeformer.families``, so installing a package that declares a family makes its models usable. Within one process,
:func:`register` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer.errors import ConfigError
from edgeformer.traceback_summary import describe
from edgeformer.wording import reworded

if TYPE_CHECKING:
    from edgeformer.model.base import EncoderDecoder

REGISTERED: dict[str, Family] = {}
"""Families that :func:`register` was called with, by name."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of model, as far as the toolkit needs to know it.

    Raises:
        ConfigError: ``config_type`` is not a ``msgspec.Struct``.
    """

    name: str
    """The value of ``model.family`` in a recipe."""
    config_type: type[msgspec.Struct]
    """Defines the fields of ``[model]`` other than ``family`` and ``preset``."""
    build: Callable[[Any, int, int], EncoderDecoder]
    """``build(config, source_vocab_size, target_vocab_size)`` returns an untrained model; it may import torch."""
    presets: Mapping[str, Callable[[], msgspec.Struct]] = field(default_factory=dict)
    """Named configurations to start from."""

    def __post_init__(self) -> None:
        kind: object = self.config_type
        if not isinstance(kind, type):
            raise ConfigError(f"`config_type` of family `{self.name}` must be a class, but is {kind!r}.")
        if not issubclass(kind, msgspec.Struct):
            raise ConfigError(
                f"`config_type` of family `{self.name}` must be a msgspec.Struct, which checks the fields of a recipe; "
                f"write `class {kind.__name__}(msgspec.Struct)`"
                + (" and remove `@dataclass`." if is_dataclass(kind) else ".")
            )


def register(family: Family) -> None:
    """Register a family in this process.

    Raises:
        ConfigError: another family has this name.
    """
    if REGISTERED.get(family.name, family) is not family or family.name in installed_families():
        raise ConfigError(f"A family named `{family.name}` is already registered; choose another name.")
    REGISTERED[family.name] = family


def family_names() -> list[str]:
    """List the names of all known families."""
    return sorted({*REGISTERED, *installed_families()})


def get_family(name: str) -> Family:
    """Find a family by name.

    Raises:
        ConfigError: the family does not exist, or the package that declares it is broken.
    """
    if name in REGISTERED:
        return REGISTERED[name]
    if name in installed_families():
        return _load(installed_families()[name])
    raise ConfigError(f"`model.family` must be one of {', '.join(family_names())}, but is `{name}`.")


def is_shipped(name: str) -> bool:
    """Whether a family is one of this package, rather than of another package or registered in this process."""
    entry = installed_families().get(name)
    return name not in REGISTERED and entry is not None and entry.module.partition(".")[0] == "edgeformer"


def model_config(section: Mapping[str, Any]) -> msgspec.Struct:
    """Convert the ``[model]`` section of a recipe to the configuration of its family.

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
    known_fields = family.config_type.__struct_encode_fields__
    if unknown := [field for field in fields if field not in known_fields]:
        close = get_close_matches(unknown[0], known_fields, n=1)
        meant = f" Did you mean `model.{close[0]}`?" if close else ""
        raise ConfigError(f"Section [model] of family `{family.name}` has no field `{unknown[0]}`.{meant}")
    try:
        return msgspec.convert(fields, family.config_type)
    except (msgspec.ValidationError, ValueError) as error:
        problem = reworded(error, family.config_type, "model.")
        raise ConfigError(f"Section [model] of family `{family.name}`: {problem}.") from None


@cache
def installed_families() -> dict[str, EntryPoint]:
    """Return the entry points of the families that installed packages declare, by name."""
    return {entry.name: entry for entry in entry_points(group="edgeformer.families")}


def _load(entry: EntryPoint) -> Family:
    label = f"Entry point `{entry.name} = {entry.value}` of edgeformer.families"
    try:
        family = entry.load()
    except Exception as error:  # third-party code may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise  # the command line explains how to install it
        raise ConfigError(f"{label} cannot be loaded: {describe(error)}.") from error
    if not isinstance(family, Family):
        raise ConfigError(f"{label} must be a Family, but is {type(family).__name__}.")
    if family.name != entry.name:
        raise ConfigError(f"{label} declares the family `{family.name}`; the two names must be equal.")
    return family
