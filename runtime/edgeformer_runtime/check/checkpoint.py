"""Comparison of a bundle with the checkpoint that it was exported from, done by the installed exporter."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import msgspec

from edgeformer_runtime.errors import ConfigError, missing_package

VERIFIERS = "edgeformer.verifiers"
"""Entry-point group of the functions that compare a bundle with a checkpoint."""


class CheckpointResult(msgspec.Struct, kw_only=True, frozen=True):
    """Comparison of a bundle with a checkpoint."""

    parity: dict[str, Any]
    """Comparison of logits and output, as JSON has it."""
    facts: tuple[tuple[str, str], ...]
    """The same for people: names and values."""
    warnings: tuple[str, ...]
    """Reasons why the comparison is weaker than it looks, in sentences; usually empty."""
    first: msgspec.Struct | None
    """The first tensor whose difference from PyTorch is larger than at export; ``None`` if there is no such tensor or
    nothing failed."""
    problems: tuple[str, ...]
    """One sentence per problem."""


Verifier = Callable[..., CheckpointResult]
"""Compares a bundle with a checkpoint: ``edgeformer_export.parity.verify.verify_against_run``."""


def load_verifier() -> Verifier:
    """Load the verifier of the installed exporter.

    Raises:
        ConfigError: no exporter is installed, or a package that it needs is missing.
    """
    what = "Comparing with a checkpoint"
    for entry in entry_points(group=VERIFIERS):
        try:
            verifier: Verifier = entry.load()
        except ModuleNotFoundError as error:
            raise ConfigError(missing_package(what, error.name, "export")) from None
        return verifier
    raise ConfigError(missing_package(what, "edgeformer_export", "export"))
