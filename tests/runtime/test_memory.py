"""The memory that this process may take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeformer_runtime.check import memory
from edgeformer_runtime.check.memory import available_memory, peak_memory_mb

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
    monkeypatch.setattr(memory, "PROC", folder / "proc")
    monkeypatch.setattr(memory, "CGROUPS", folder / "groups")


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
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(os, "sysconf_names", {}, raising=False)
    assert available_memory() is None


@pytest.mark.parametrize(
    "name", [b"python", b"\xc3\xa9diteur", b"\xff\xfe:", b"VmHWM: x", b"a\rVmHWM: x", b"\xe2\x80\xa8"]
)
def test_names_of_processes_and_groups_may_be_any_bytes(
    name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(name)
    files = {
        f"{folder}/memory.max": "1000",
        f"{folder}/memory.current": "400",
        f"{folder}/memory.stat": "inactive_file 1",
    }
    system(tmp_path, monkeypatch, "", files)
    own = tmp_path / "proc" / "self"
    (own / "cgroup").write_bytes(b"0::/" + name + b"\n")
    (own / "status").write_bytes(b"Name:\t" + name + b"\nVmPeak:\t   9 kB\nVmHWM:\t   1000 kB\n")
    assert available_memory() == 601
    assert peak_memory_mb() == 1.024
