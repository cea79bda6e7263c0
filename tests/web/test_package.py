"""The npm package: it builds, passes its own checks, and translates as Python does where it is installed."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer_runtime import Translator
from tests.conftest import ROOT
from tests.npm import node_with
from tests.store import COMMITTED
from tests.web.package import WEB, packed

pytestmark = pytest.mark.slow

PHRASES = ROOT / "models" / "phrase-book.tsv"
LIMIT = 80_000
"""Bytes of gzip that a page may download before it translates, besides the model."""
SCRIPT = """
import { readFileSync } from "node:fs";
import { openTranslator } from "edgeformer";
const { bundle, texts, options, module, verifies } = JSON.parse(readFileSync(0, "utf8"));
const wasm = module ? new URL(import.meta.resolve(`edgeformer/wasm/${module}`)) : undefined;
const translator = await openTranslator(bundle, { wasm });
if (verifies) {
  console.log(JSON.stringify(await translator.verify()));
  process.exit();
}
const found = await translator.translate(texts, options);
console.log(JSON.stringify(found.map(({ source, hypotheses }) => ({ source: source.ids, hypotheses }))));
"""
TYPED = """
import { EdgeformerError, openTranslator, type Translation } from "edgeformer";
const translator = await openTranslator("bundle", { onProgress: ({ loaded, total }) => loaded / total });
const translations: Translation[] = await translator.translate(["Hello."], { beamSize: 2, targetPrefix: "B" });
for await (const { text } of translator.translateTokens("Hello.")) text.trim();
// @ts-expect-error there is no such option
await translator.translate("Hello.", { beams: 2 }).catch((error) => error instanceof EdgeformerError);
translations.map(({ hypotheses }) => hypotheses[0]?.confidence);
"""


@pytest.fixture(scope="module")
def project(shared_temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project in which the package is installed, once it has passed its own checks."""
    folder = tmp_path_factory.mktemp("project")
    node_with(folder, str(shutil.copy(packed(shared_temporary), folder)))
    return folder


def translated(
    project: Path, bundle: str, texts: list[str], options: dict[str, Any], module: str | None = None
) -> list[dict[str, Any]]:
    """Translate with the installed package and a committed bundle, in a module of the kernels or the best one here."""
    given = {"bundle": str(COMMITTED / bundle), "texts": texts, "options": options, "module": module}
    found: list[dict[str, Any]] = run_script(project, given)
    return found


def verified(project: Path, bundle: str) -> dict[str, Any]:
    """Run the golden examples of a committed bundle with the installed package."""
    found: dict[str, Any] = run_script(project, {"bundle": str(COMMITTED / bundle), "verifies": True})
    return found


def run_script(project: Path, given: dict[str, Any]) -> Any:
    """Run :data:`SCRIPT` where the package is installed."""
    (project / "translate.mjs").write_text(SCRIPT, encoding="utf-8")
    output = subprocess.run(
        ["node", "translate.mjs"],
        input=json.dumps(given),
        cwd=project,
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout
    return json.loads(output)


@pytest.mark.parametrize(
    ("camel_case", "options"),
    [
        ({"beamSize": 1, "maxLength": 40}, {"beam_size": 1, "max_length": 40}),
        ({"beamSize": 3, "nBest": 2, "maxLength": 20}, {"beam_size": 3, "n_best": 2, "max_length": 20}),
        (
            {"beamSize": 2, "noRepeatNgramSize": 2, "repetitionPenalty": 1.2, "maxLength": 20},
            {"beam_size": 2, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "max_length": 20},
        ),
        (
            {"beamSize": 2, "targetPrefix": "Mon chat", "maxLength": 20},
            {"beam_size": 2, "target_prefix": "Mon chat", "max_length": 20},
        ),
    ],
)
def test_two_hundred_sentences_are_translated_as_in_python(
    camel_case: dict[str, Any], options: dict[str, Any], project: Path
) -> None:
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    with PHRASES.open(encoding="utf-8", newline="") as lines:
        texts = [row["text"] for row in csv.DictReader(lines, delimiter="\t")][:200]
    found = translated(project, "int8", texts, camel_case, "edgeformer_kernels.wasm")
    with Translator.open(COMMITTED / "int8", engine="kernels") as translator:
        expected = translator.translate(texts, **options)
    assert len(found) == 200
    for mine, theirs in zip(expected, found, strict=True):
        assert theirs["source"] == [*mine.source.ids]
        assert [each["text"] for each in theirs["hypotheses"]] == [each.text for each in mine.hypotheses]
        assert [each["ids"] for each in theirs["hypotheses"]] == [[*each.ids] for each in mine.hypotheses]
        scores = [each["score"] for each in theirs["hypotheses"]]
        assert scores == pytest.approx([each.score for each in mine.hypotheses], abs=1e-5)


def test_what_a_page_downloads_is_small(project: Path) -> None:
    package = project / "node_modules" / "edgeformer"
    command = ["node", str(WEB / "benchmarks" / "size.mjs"), str(package)]
    size = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert 0 < size["code"] + size["relaxed"] <= LIMIT
    assert min(size.values()) > 0
    code = {path.name: path.read_text("utf-8") for path in (package / "dist").glob("*.js")}
    assert {"index.js", "worker.js", "folder.js"} < set(code)  # `package.json` has their names
    assert [text.count("webpackIgnore: true") for text in code.values() if "webpackIgnore" in text] == [1]
    assert not [*package.rglob("*.map")]


def test_bundles_without_a_plan_run_in_onnxruntime(project: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        translated(project, "fp32", ["A cat!"], {})
    assert "npm install onnxruntime-web" in refused.value.stderr
    (package,) = project.glob("*.tgz")
    project = tmp_path
    node_with(project, str(package), "onnxruntime-web@1.30.0")
    for precision in ("fp32", "int4"):
        assert verified(project, precision)["problems"] == []
    check_attention(project, "fp32")


def test_the_kernels_have_attention_weights(project: Path) -> None:
    check_attention(project, "int8")


def check_attention(project: Path, precision: str) -> None:
    """Check that a bundle's attention weights are those of Python."""
    text = "The small dog runs 2 times near the sea."
    (found,) = translated(project, precision, [text], {"beamSize": 2, "returnAttention": True})
    with Translator.open(COMMITTED / precision) as translator:
        (expected,) = translator.translate([text], beam_size=2, return_attention=True)
    attention = expected.best.attention
    assert attention is not None
    weights = [[*row.values()] for row in found["hypotheses"][0]["attention"]["weights"]]
    np.testing.assert_allclose(weights, attention.weights, atol=1e-5)
    assert found["hypotheses"][0]["attention"]["alignment"] == [[*pair] for pair in attention.alignment]


def test_the_types_are_those_of_the_package(project: Path) -> None:
    (project / "typed.mts").write_text(TYPED, encoding="utf-8")
    compiler, modules = WEB / "node_modules" / ".bin" / "tsc", ["--module", "nodenext", "--target", "es2022"]
    command = [str(compiler), "--noEmit", "--strict", *modules, "--lib", "es2023,dom", "--types", "", "typed.mts"]
    checked = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout
