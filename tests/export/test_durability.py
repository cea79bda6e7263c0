"""A bundle that is replaced: whatever stops the process, the old or the new one is there, whole and under its name."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeformer_export.writer import ExportError, atomic_folder, require_free
from edgeformer_runtime.bundle.open import open_bundle
from tests.bundles import BUNDLE_FILES, copy_of, edit_manifest
from tests.strace import CALLS, Trace, strace_problem, traced

OVERWRITE = """
import shutil, sys
from pathlib import Path
from edgeformer_export.writer import atomic_folder
with atomic_folder(Path(sys.argv[2]), overwrite=True) as folder:
    for path in sorted(Path(sys.argv[1]).iterdir()):
        shutil.copy(path, folder)
"""
"""Writes the bundle of the first folder to the second, as ``edgeformer export --overwrite`` does."""
WRITE_FILE = """
import sys
from pathlib import Path
from edgeformer_runtime.files import write_atomically
write_atomically(Path(sys.argv[1]), b"new")
"""
"""Writes a file as checkpoints are written."""


@pytest.fixture
def bundles(small_bundle: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A bundle to overwrite, alone in its folder, and what to overwrite it with."""
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    old, new = copy_of(small_bundle, tmp_path / "out"), copy_of(small_bundle, tmp_path / "in")
    edit_manifest(old, lambda tree: tree.update(source_language="old"))
    edit_manifest(new, lambda tree: tree.update(source_language="new"))
    return old, new


def overwrite(bundles: tuple[Path, Path], *inject: str) -> Trace:
    """Overwrite the bundle under strace."""
    if problem := strace_problem():
        pytest.skip(problem)
    out, new = bundles
    return traced(OVERWRITE, new, out, inject=inject)


def language(bundle: Path) -> str:
    """Open the bundle, which checks every hash, and tell the new one by its source language."""
    return open_bundle(bundle).manifest.source_language


def calls_of(lines: list[str], name: str) -> int:
    return sum(re.match(rf"\d+ +{name}\(", line) is not None for line in lines)


def test_the_files_are_on_the_disk_before_the_name_and_the_name_before_the_old_ones_go(
    bundles: tuple[Path, Path],
) -> None:
    out, _ = bundles
    assert language(out) == "old"
    status, lines, _ = overwrite(bundles)
    assert (status, language(out)) == (0, "new")
    exchange = next(number for number, line in enumerate(lines) if "renameat2(" in line)
    assert "RENAME_EXCHANGE) = 0" in lines[exchange]
    synced = [line for line in lines[:exchange] if "fsync(" in line]
    assert {name for name in BUNDLE_FILES if any(f"/{name}>" in line for line in synced)} == set(BUNDLE_FILES)
    assert any("/incoming>" in line for line in synced)
    removed = next(number for number, line in enumerate(lines) if number > exchange and "unlink" in line)
    assert any("fsync(" in line and f"<{out.parent}>" in line for line in lines[exchange:removed])
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in {"flock", "fsync", "rmdir", "unlinkat"}))
        for name in CALLS
    ],
)
def test_a_kill_at_any_call_leaves_the_old_or_the_new_bundle(bundles: tuple[Path, Path], call: str) -> None:
    out, new = bundles
    old = copy_of(out, new.parent.parent)
    count = calls_of(overwrite(bundles)[1], call)
    for number in range(1, count + 1):
        shutil.rmtree(out)
        shutil.copytree(old, out)
        status, lines, _ = overwrite(bundles, f"{call}:signal=SIGKILL:when={number}")
        assert status in (-signal.SIGKILL, 128 + signal.SIGKILL)
        assert calls_of(lines, call) >= number
        exchanged = any("RENAME_EXCHANGE) = 0" in line for line in lines)
        assert language(out) == ("new" if exchanged else "old")
        require_free(out, overwrite=True)
        assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_file(tmp_path: Path, call: str) -> None:
    if problem := strace_problem():
        pytest.skip(problem)
    target = tmp_path / "out" / "last.ckpt"
    target.parent.mkdir()
    target.write_bytes(b"old")
    status, lines, _ = traced(WRITE_FILE, target)
    assert (status, target.read_bytes()) == (0, b"new")
    names = (line.partition(" ")[2].strip().partition("(")[0] for line in lines)
    order = [name for name in names if name in ("fsync", "rename")]
    assert order == ["fsync", "rename", "fsync"]  # the content, then the name, then the folder
    for number in range(1, order.count(call) + 1):
        target.write_bytes(b"old")
        status, lines, _ = traced(WRITE_FILE, target, inject=(f"{call}:signal=SIGKILL:when={number}",))
        assert status in (-signal.SIGKILL, 128 + signal.SIGKILL)
        renamed = any("rename(" in line and line.endswith("= 0") for line in lines)
        assert target.read_bytes() == (b"new" if renamed else b"old")


def test_without_an_exchange_of_names_the_old_bundle_comes_back(bundles: tuple[Path, Path]) -> None:
    out, _ = bundles
    no_exchange = "renameat2:error=EINVAL"
    overwrite(bundles, no_exchange, "rename:signal=SIGKILL:when=2")
    assert not out.exists()
    with pytest.raises(ExportError, match="--overwrite"):
        require_free(out, overwrite=False)
    assert language(out) == "old"
    assert list(out.parent.iterdir()) == [out]
    assert overwrite(bundles, no_exchange)[0] == 0
    assert language(out) == "new"
    assert list(out.parent.iterdir()) == [out]


def test_a_full_disk_names_the_bundle_and_leaves_the_old_one(bundles: tuple[Path, Path]) -> None:
    out, _ = bundles
    status, _, problem = overwrite(bundles, "fsync:error=ENOSPC:when=3")
    assert status == 1
    assert problem.splitlines()[-1] == f"OSError: [Errno 28] No space left on device: '{out}'"
    assert language(out) == "old"
    assert list(out.parent.iterdir()) == [out]
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    done = subprocess.run([sys.executable, "-c", full + OVERWRITE, str(bundles[1]), str(out)], capture_output=True)
    assert done.stderr.decode().splitlines()[-1].endswith(f"File too large: '{out}'")
    assert language(out) == "old"
    assert list(out.parent.iterdir()) == [out]


def test_what_a_living_process_writes_is_left_alone(bundles: tuple[Path, Path]) -> None:
    out, new = bundles
    with atomic_folder(out, overwrite=True) as first:
        shutil.copytree(new, first, dirs_exist_ok=True)
        with atomic_folder(out, overwrite=True) as second:
            shutil.copytree(new, second, dirs_exist_ok=True)
        assert sorted(path.name for path in first.iterdir()) == sorted(BUNDLE_FILES)
    assert language(out) == "new"
    assert list(out.parent.iterdir()) == [out]
