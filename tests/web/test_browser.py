"""The demo page, the bookmarklet and the extension in Chromium, and translations there as in Python."""

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
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def built(shared_temporary: Path) -> None:
    """The package and its tests, built."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium; CHROMIUM says where it is")
    packed(shared_temporary)


@pytest.fixture(scope="module")
def onnxruntime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the package `onnxruntime-web`."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    node_with(folder, "onnxruntime-web@1.30.0")
    return folder / "node_modules" / "onnxruntime-web"


def write_expected(path: Path) -> None:
    """Write 200 texts and their translations by the same engine."""
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    with PHRASES.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t")][:200]
    with Translator.open(COMMITTED / "int8", engine="kernels") as translator:
        found = translator.translate(texts, beam_size=4)
    cases = [{"text": text, "ids": [*each.best.ids]} for text, each in zip(texts, found, strict=True)]
    path.write_text(json.dumps(cases), encoding="utf-8")


@pytest.mark.parametrize("suite", ["demo", "pages"])
def test_in_chromium(suite: str, built: None, onnxruntime: Path, tmp_path: Path) -> None:
    write_expected(tmp_path / "expected.json")
    own = {
        **os.environ,
        "CHROMIUM": str(CHROMIUM),
        "EXPECTED": str(tmp_path / "expected.json"),
        "ONNXRUNTIME": str(onnxruntime),
    }
    command = ["node", "--test", "--test-reporter=tap", f"build/browser/{suite}.test.js"]
    run = subprocess.run(command, cwd=WEB, env=own, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^# skipped 0$", run.stdout, re.MULTILINE), run.stdout
