"""The runtime finds whoever compares bundles with checkpoints, and says what to install where nobody does."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from edgeformer_runtime.check import checkpoint
from edgeformer_runtime.check.checkpoint import VERIFIERS, load_verifier
from edgeformer_runtime.errors import ConfigError


def install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    entries = EntryPoints(EntryPoint("run", value, VERIFIERS) for value in values)
    monkeypatch.setattr(checkpoint, "entry_points", lambda group: entries.select(group=group))


def test_the_installed_verifier_is_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "math:sqrt")
    verifier: object = load_verifier()
    assert verifier is math.sqrt


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(ConfigError, match=r"needs `edgeformer_export`: pip install 'edgeformer\[export\]'"):
        load_verifier()
    install(monkeypatch, "a_package_that_is_missing:verify")
    with pytest.raises(ConfigError, match=r"needs `a_package_that_is_missing`: pip install 'edgeformer\[export\]'"):
        load_verifier()
