"""Packages of npm, for tests that compare with what runs in Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def node_with(folder: Path, *packages: str) -> str:
    """Install packages into a folder, whose scripts then import them, and return the command ``node``. The test is
    skipped without Node, npm or npm's registry."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node and npm")
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", *packages]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"npm cannot install {', '.join(packages)}")
    return node
