"""Comparison of a bundle with the checkpoint that it was exported from, done by the installed exporter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import msgspec

from edgeformer_runtime.errors import ConfigError, missing_package
from edgeformer_runtime.selfcheck.location import Location
from edgeformer_runtime.translator import Translator

VERIFIERS = "edgeformer.verifiers"
"""Entry-point group of the functions that compare a bundle with a checkpoint."""


class CheckpointResult(msgspec.Struct, kw_only=True, frozen=True):
    """How a bundle compares with a checkpoint."""

    parity: dict[str, Any]
    """Comparison of logits and output, as JSON has it."""
    facts: tuple[tuple[str, str], ...]
    """The same for people: names and values."""
    warnings: tuple[str, ...]
    """What makes the comparison weaker than it looks, in sentences; usually empty."""
    first: Location | None
    """The first tensor whose difference from PyTorch is larger than at export; ``None`` if there is no such tensor or
    nothing failed."""
    problems: tuple[str, ...]
    """One sentence per problem."""


class Verifier(Protocol):
    """Compares the logits and output of a bundle with those of the model in a checkpoint."""

    def __call__(
        self,
        translator: Translator,
        checkpoint: Path,
        source: Path | None,
        beams: Sequence[int],
        progress: Callable[[float], None],
        *,
        damaged: bool = False,
    ) -> CheckpointResult:
        """Compare the bundle with the checkpoint.

        Args:
            translator: the opened bundle.
            checkpoint: the model's run folder.
            source: text file with one sentence per line; blank lines are skipped. ``None`` uses the run's sample.
            beams: beam sizes to compare; if empty, greedy search and the bundle's default beam size.
            progress: called with the completed fraction, from 0 to 1.
            damaged: search for the first differing part even if logits and output are within tolerance.

        Raises:
            EdgeformerError: the checkpoint or the text cannot be read or does not match the bundle.
        """


def installed_verifier() -> Verifier:
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
