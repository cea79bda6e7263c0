"""Comparison of a bundle with the checkpoint that it was exported from, done by the installed exporter."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import msgspec

from edgeformer_runtime.errors import ConfigError, missing_package

VERIFIERS = "edgeformer.verifiers"
"""Entry-point group of the functions that compare a bundle with a checkpoint."""


class Location(msgspec.Struct, kw_only=True, frozen=True):
    """The first tensor that differs by more than its tolerance."""

    part: str
    """The part of the model in words, or the graph and the tensor."""
    module: str | None
    """Path of the PyTorch module; ``None`` if only the graph is known."""
    step: int
    """Decoder step, from 1; 0 in the encoder."""
    difference: float | None
    """Root mean square of the difference, relative to that of the expected tensor; ``None`` if not finite."""
    tolerance: float
    """Largest relative difference that is not reported."""

    def __str__(self) -> str:
        path = f"`{self.module}`, " if self.module is not None else ""
        difference = "not finite" if self.difference is None else f"relative difference {self.difference:.2g}"
        step = f", step {self.step}" if self.step else ""
        return f"{self.part} ({path}{difference}, tolerance {self.tolerance:.2g}){step}"


class CheckpointResult(msgspec.Struct, kw_only=True, frozen=True):
    """Comparison of a bundle with a checkpoint."""

    parity: dict[str, Any]
    """Comparison of logits and output, as JSON has it."""
    facts: tuple[tuple[str, str], ...]
    """The same for people: names and values."""
    warnings: tuple[str, ...]
    """Reasons why the comparison is weaker than it looks, in sentences; usually empty."""
    first: Location | None
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
