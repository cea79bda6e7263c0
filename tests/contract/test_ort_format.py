"""Graphs in ONNX Runtime's own format, which its builds for phones read, translate as the bundle's graphs do."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnxruntime as ort
import pytest

from tests.conftest import ROOT
from tests.contract.reader import Reader
from tests.contract.test_reader import CASES
from tests.store import COMMITTED, CPU_PRECISIONS

pytest.importorskip("onnx", reason="the conversion needs onnx")
SOURCES = list(dict.fromkeys(tuple(case["source"]) for case in CASES))


def converted(bundle: Path, out: Path) -> Path:
    """Convert a bundle as the page on phones says."""
    page = (ROOT / "docs" / "mobile.md").read_text("utf-8")
    found = re.search(r"python (-m onnxruntime\.tools\.convert_onnx_models_to_ort .+?)(?= +#|$)", page, re.MULTILINE)
    assert found is not None
    words = {"bundle": str(bundle), "app/mobile": str(out)}
    command = [sys.executable, *(words.get(word, word) for word in shlex.split(found[1]))]
    assert {*words.values()} <= {*command}
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out


class OrtReader(Reader):
    """A bundle whose graphs have been converted into a folder."""

    def __init__(self, folder: Path, graphs: Path) -> None:
        self.graphs = graphs
        super().__init__(folder)

    def open(self, name: str) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        path = (self.graphs / name).with_suffix(".ort")
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


pytestmark = pytest.mark.slow  # the conversion takes 20 seconds


@pytest.fixture(scope="module", params=CPU_PRECISIONS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle, and a folder with its converted graphs."""
    bundle = COMMITTED / request.param
    return bundle, converted(bundle, tmp_path_factory.mktemp("converted") / "mobile")


def test_converted_graphs_translate_alike(pair: tuple[Path, Path]) -> None:
    for beams in (1, 4):
        assert OrtReader(*pair).translate(SOURCES, beams) == Reader(pair[0]).translate(SOURCES, beams)


@pytest.mark.parametrize("pair", ["int8"], indirect=True)
def test_the_operators_of_a_reduced_build_are_listed(pair: tuple[Path, Path]) -> None:
    listed = (pair[1] / "required_operators.config").read_text("utf-8")
    (own,) = [line for line in listed.splitlines() if line.startswith("com.microsoft;1;")]
    assert {"MatMulIntegerToFloat", "QGemm", "DecoderMaskedMultiHeadAttention"} <= {*own.split(";")[2].split(",")}
