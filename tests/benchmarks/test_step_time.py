"""The time of a decoder step: that its figures hang together, not how large they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgeformer.errors import ConfigError
from edgeformer_bench.studies.step_time import main, step_times
from edgeformer_runtime.bundle.open import open_bundle


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_figures_hang_together(small_bundle: Path) -> None:
    limit = open_bundle(small_bundle).manifest.max_target_length
    first, *others = times = step_times(small_bundle, (3, 0, limit - 1), batch=2, source_length=7, repeat=3)
    assert [at.position for at in times] == [3, 0, limit - 1]
    assert first.ratio == 1
    assert all(0 < at.min_ms <= at.median_ms for at in times)
    assert [at.ratio for at in others] == pytest.approx([at.median_ms / first.median_ms for at in others])


def test_command(small_bundle: Path, small_bundle_int8: Path, tmp_path: Path) -> None:
    report = tmp_path / "times.json"
    options = ("--position", "1", "--position", "9", "--repeat", "2", "--json", report)
    result = run(small_bundle, small_bundle_int8, *options)
    assert result.exit_code == 0, result.output
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["repeat"] == 2
    assert list(content["bundles"]) == [str(small_bundle), str(small_bundle_int8)]
    for times in content["bundles"].values():
        assert [at["position"] for at in times] == [1, 9]
        assert times[0]["ratio"] == 1
        assert all(f"{at['median_ms']:.3f}" in result.output for at in times)


def test_errors(small_bundle: Path, tmp_path: Path) -> None:
    manifest = open_bundle(small_bundle).manifest
    limit = manifest.max_target_length
    with pytest.raises(ConfigError, match=f"`max_target_length` is {limit}, so the last one is {limit - 1}"):
        step_times(small_bundle, (0, limit))
    with pytest.raises(ConfigError, match=f"at most {manifest.max_source_length} tokens"):
        step_times(small_bundle, (0,), source_length=manifest.max_source_length + 1)
    with pytest.raises(ConfigError, match="at least one position"):
        step_times(small_bundle, ())
    result = run(small_bundle, "--position", str(limit))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"has no position {limit}" in result.stderr
    assert "does not exist" in run(tmp_path / "missing").stderr
