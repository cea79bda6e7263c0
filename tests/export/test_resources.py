"""What an export needs, and what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer_export import resources
from edgeformer_export.resources import Resources, estimate, require
from edgeformer_export.writer import ExportError
from edgeformer_runtime.precision import PRECISIONS
from tests.store import Store


def test_a_system_that_says_nothing_limits_nothing() -> None:
    require(Resources(memory=10**15, available=None, disk=1, free=2))


def test_the_estimate_grows_with_the_weights(store: Store, tmp_path: Path) -> None:
    run = store.run()
    size = run.model_path.stat().st_size
    for precision, traits in PRECISIONS.items():
        needed = estimate(run, tmp_path / "not" / "yet" / "there", precision)
        assert needed.memory >= resources.PROCESS + 2 * size
        assert size * traits.bits / 32 <= needed.disk <= 2 * size
        assert needed.free > 0
    auto = estimate(run, tmp_path, "auto")
    assert auto.memory > needed.memory
    assert auto.disk > needed.disk


def test_too_little_is_refused_before_work_begins() -> None:
    little = Resources(memory=5_000_000_000, available=3_100_000_000, disk=200_000_000, free=10**12)
    said = (
        r"The export needs about 5\.0 GB of memory \(3\.1 GB available\) and 0\.2 GB of disk space \(1000\.0 GB free\)"
    )
    with pytest.raises(ExportError, match=rf"^{said}\. Close other programs, .* --ignore-memory\.$"):
        require(little)
    require(little, ignore_memory=True)
    with pytest.raises(ExportError, match=r"Choose another disk with --out\.$"):
        require(Resources(memory=1, available=2, disk=2, free=1), ignore_memory=True)


def test_the_command_says_what_it_needs_and_refuses(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "available_memory", lambda: 1000)
    command = ["export", str(store.run().path), "--out", str(tmp_path / "bundle")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: The export needs about ")
    assert "--ignore-memory" in result.stderr
    assert not (tmp_path / "bundle").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    result = CliRunner().invoke(main, [*command[:3], str(tmp_path / "taken"), "--ignore-memory"])
    assert result.stderr.splitlines()[0].startswith("The export needs about ")
    assert "exists; choose another folder" in result.stderr
