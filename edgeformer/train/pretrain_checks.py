"""Checks of a model before it is trained, by installed packages: whether it can be exported."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from edgeformer.errors import ConfigError, EdgeformerError
from edgeformer.model.base import EncoderDecoder

PRETRAIN_CHECKS = "edgeformer.pretrain_checks"
"""Entry-point group of the checks."""


PretrainCheck = Callable[[EncoderDecoder], None]
"""Checks an untrained model that satisfies the contract of model families, and that is not used afterwards; raises an
``EdgeformerError`` if the model must be changed before training is worthwhile."""


def installed_checks() -> list[PretrainCheck]:
    """Load the checks of all installed packages, without those whose own dependencies are not installed."""
    checks: list[PretrainCheck] = []
    for entry in entry_points(group=PRETRAIN_CHECKS):
        try:
            checks.append(entry.load())
        except ModuleNotFoundError:  # the extra is not installed
            continue
    return checks


def run_checks(checks: list[PretrainCheck], model: EncoderDecoder) -> None:
    """Run all checks on a model.

    Raises:
        ConfigError: a check failed.
    """
    for check in checks:
        try:
            check(model)
        except EdgeformerError as error:
            raise ConfigError(f"{error} To train this model all the same, give --no-export-check.") from error
