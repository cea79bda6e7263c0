"""Nothing here sends data or writes outside the folders that it was given."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import python

TRANSLATE = """
import sys, time
from edgeformer_runtime import Translator
Translator.open(sys.argv[1], threads=1, workers=2).translate(["The old dog runs.", "A dog."], max_batch_tokens=1)
time.sleep(float(sys.argv[2]))
"""
UPLOAD_SECONDS = 12.0
"""onnxruntime looks for its collector about nine seconds after it was loaded."""


@pytest.mark.parametrize("package", ["edgeformer_runtime", "edgeformer", "edgeformer_export", "edgeformer_bench"])
def test_telemetry_is_off_once_a_package_is_imported(package: str) -> None:
    code = f"import os, {package}; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert python(code, ORT_DISABLE_TELEMETRY="").stdout == "1\n"


@pytest.mark.parametrize("is_writable", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_translating_writes_nothing_to_the_users_folders(small_bundle: Path, tmp_path: Path, is_writable: bool) -> None:
    """One that cannot be written gives no warning either."""
    home, cache = tmp_path / "home", tmp_path / "cache"
    for folder in (home, cache):
        folder.mkdir() if is_writable else folder.touch()
    done = python(TRANSLATE, small_bundle, "0", HOME=str(home), XDG_CACHE_HOME=str(cache), ORT_DISABLE_TELEMETRY="")
    assert done.stderr == ""
    assert [*home.rglob("*"), *cache.rglob("*")] == []


@pytest.mark.slow
def test_translating_opens_no_network_socket(small_bundle: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    command = [strace, "-f", "-o", str(trace), "-e", "trace=socket,connect,openat", sys.executable, "-c", TRANSLATE]
    environment = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [*command, str(small_bundle), str(UPLOAD_SECONDS)], capture_output=True, text=True, env=environment, timeout=120
    )
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not be used here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
    calls = trace.read_text(encoding="utf-8")
    assert "manifest.json" in calls
    assert re.findall(r".*(?:AF_INET|resolv\.conf).*", calls) == []
