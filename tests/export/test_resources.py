"""What an export needs, and what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer_export import resources
from edgeformer_export.resources import estimate, require_resources
from edgeformer_export.writer import ExportError
from edgeformer_runtime.precision import PRECISIONS
from tests.store import Store


def test_the_estimate_grows_with_the_weights() -> None:
    size = 10**9
    for precision, traits in PRECISIONS.items():
        memory, disk = estimate(size, precision)
        assert memory >= resources.PROCESS + 2 * size
        assert size * traits.bits / 32 <= disk <= 2 * size
    assert estimate(size, "auto") > (memory, disk)


def test_too_little_is_refused_before_work_begins(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = store.run(), tmp_path / "not" / "yet" / "there"
    monkeypatch.setattr(resources, "estimate", lambda size, precision: (5_000_000_000, 200_000_000))
    monkeypatch.setattr(resources, "available_memory", lambda: 3_100_000_000)
    said = r"The export needs about 5\.0 GB of memory \(3\.1 GB available\) and 0\.2 GB of disk space \(.* GB free\)"
    with pytest.raises(ExportError, match=rf"^{said}\. Close other programs, .* --ignore-memory\.$"):
        require_resources(run, out, "fp32", ignore_memory=False)
    require_resources(run, out, "fp32", ignore_memory=True)
    monkeypatch.setattr(resources, "available_memory", lambda: None)
    assert "available" not in require_resources(run, out, "fp32", ignore_memory=False)
    monkeypatch.setattr(resources, "estimate", lambda size, precision: (1, 10**18))
    with pytest.raises(ExportError, match=r"Choose another disk with --out\.$"):
        require_resources(run, out, "fp32", ignore_memory=True)


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
