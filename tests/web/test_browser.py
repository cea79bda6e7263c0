"""The demo page, the bookmarklet and the extension in browsers, and translations there as in Python."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgeformer_runtime import Translator
from tests.conftest import ROOT
from tests.npm import node_with
from tests.store import COMMITTED
from tests.web.package import WEB, packed

pytestmark = pytest.mark.slow

PHRASES = ROOT / "models" / "phrase-book.tsv"


def browser_path(name: str) -> str:
    """Path of a browser's program; without it, the test is skipped."""
    if name == "webkit":
        found = next(map(str, Path("/usr/lib").glob("*/webkit2gtk-4.1/MiniBrowser")), None)
        if found is None or shutil.which("WebKitWebDriver") is None or shutil.which("Xvfb") is None:
            pytest.skip("needs WebKit's MiniBrowser, WebKitWebDriver and Xvfb: Debian's webkit2gtk-driver and xvfb")
        return found
    programs = {"chromium": ("chromium", "google-chrome"), "firefox": ("firefox-esr", "firefox")}[name]
    found = os.environ.get(name.upper()) or next(filter(None, map(shutil.which, programs)), None)
    if found is None:
        pytest.skip(f"needs {programs[0]}; {name.upper()} says where it is")
    return found


@pytest.fixture(scope="module")
def onnxruntime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the package `onnxruntime-web`."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    node_with(folder, "onnxruntime-web@1.30.0")
    return folder / "node_modules" / "onnxruntime-web"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 200 texts and their translations by the same engine."""
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    with PHRASES.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t")][:200]
    with Translator.open(COMMITTED / "int8", engine="kernels") as translator:
        found = translator.translate(texts, beam_size=4)
    cases = [{"text": text, "ids": [*each.best.ids]} for text, each in zip(texts, found, strict=True)]
    path = tmp_path_factory.mktemp("expected") / "expected.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("browser", "suite", "skipped"),
    [("chromium", "demo", 0), ("chromium", "extension", 0), ("firefox", "demo", 1), ("webkit", "demo", 1)],
)
def test_in_the_browser(
    browser: str, suite: str, skipped: int, shared_temporary: Path, onnxruntime: Path, expected: Path
) -> None:
    program = browser_path(browser)
    packed(shared_temporary)
    own = {
        **os.environ,
        "BROWSER": browser,
        "PROGRAM": program,
        "EXPECTED": str(expected),
        "ONNXRUNTIME": str(onnxruntime),
    }
    command = ["node", "--test", "--test-reporter=tap", f"build/test/browser/{suite}.test.js"]
    run = subprocess.run(command, cwd=WEB, env=own, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(rf"^# skipped {skipped}$", run.stdout, re.MULTILINE), run.stdout
