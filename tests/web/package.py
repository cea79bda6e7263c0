"""The npm package, built once for all tests that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import ROOT
from tests.kernels.test_driver import compiling

WEB = ROOT / "runtime" / "edgeformer-web"


def npm(*arguments: str) -> None:
    """Run npm in the package's folder; what it says is in the error if it fails."""
    own = {**os.environ, "PYTHON": sys.executable}
    found = subprocess.run(["npm", *arguments], cwd=WEB, env=own, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout + found.stderr


def packed(folder: Path) -> Path:
    """Build the package, run its own checks and tests, and return the archive; without Node, a compiler or npm's
    registry, the test is skipped.

    Args:
        folder: what all workers of the test run share.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Node and npm")
    compiling("wasm32-wasi")
    folder = folder / "npm"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            try:
                npm("ci", "--ignore-scripts", "--no-audit")
            except (AssertionError, subprocess.TimeoutExpired):
                pytest.skip("npm cannot install what the package is built with")
            made = folder.with_name("npm.made")
            made.mkdir(exist_ok=True)
            npm("pack", "--pack-destination", str(made))
            npm("run", "lint")
            npm("test")
            made.rename(folder)
    (archive,) = folder.glob("*.tgz")
    return archive
