"""What an export needs, and what there is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer_export import resources
from edgeformer_export.resources import Resources, available_memory, estimate, require
from edgeformer_export.writer import ExportError
from edgeformer_runtime.precision import PRECISIONS
from tests.store import Store

MEMINFO = (
    "MemTotal:       24684084 kB\nMemAvailable:   16000000 kB\nSwapFree:        1000000 kB\nHugePages_Total:   0\n"
)


def system(folder: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str]) -> None:
    """Make up what the system tells."""
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "meminfo").write_text(MEMINFO)
    (folder / "proc" / "self" / "cgroup").write_text(groups)
    for name, content in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(resources, "PROC", folder / "proc")
    monkeypatch.setattr(resources, "CGROUPS", folder / "groups")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 17_000_000 * 1024),
        ("0::/user/run\n", {"user/memory.max": "max\n", "user/memory.current": "5\n"}, 17_000_000 * 1024),
        (  # the innermost group has no limit, the one around it leaves 600 of 1,000, 50 of them by forgetting files
            "0::/user/run\n",
            {
                "user/run/memory.max": "max",
                "user/memory.max": "1000",
                "user/memory.current": "450",
                "user/memory.stat": "anon 400\ninactive_file 50\nactive_file 9\n",
            },
            600,
        ),
        (  # in a container, whose own group is at the root
            "0::/\n",
            {"memory.max": "1000", "memory.current": "1200", "memory.stat": "inactive_file 0\n"},
            0,
        ),
        (  # version 1, the path of which is that outside the container
            "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "2000",
                "memory/memory.usage_in_bytes": "700",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 7\n",
            },
            1307,
        ),
    ],
)
def test_control_groups_limit_the_memory(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system(tmp_path, monkeypatch, groups, files)
    assert available_memory() == expected


def test_a_system_that_says_nothing_limits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PROC", tmp_path)
    monkeypatch.setattr(os, "sysconf_names", {}, raising=False)
    assert available_memory() is None
    require(Resources(memory=10**15, available=None, disk=1, free=2))


def test_this_system_has_memory() -> None:
    memory = available_memory()
    assert memory is None or memory > 10**6


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
