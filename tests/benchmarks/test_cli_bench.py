"""``edgeformer bench``: that its figures hang together, not how large they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from edgeformer.run.folder import Run
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.golden import read_golden
from tests import factory
from tests.commands import error, succeeded
from tests.store import COMMITTED

QUICK = ("--repeat", "1", "--threads", "1")


def measured(*arguments: str | Path) -> dict[str, Any]:
    result = succeeded("bench", *arguments, *QUICK, "--json", "-")
    assert result.stderr == ""
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_figures_hang_together(small_bundle: Path) -> None:
    result = measured(small_bundle)
    texts = {case.text for case in read_golden(open_bundle(small_bundle)).cases}
    assert result["call"]["calls"] == len(texts)
    assert result["bundle"] == str(small_bundle)
    assert result["precision"] == "fp32"
    assert result["bytes"] == open_bundle(small_bundle).nbytes
    assert (result["device"], result["threads"], result["batch_size"]) == ("cpu", 1, 1)
    assert result["beam_size"] == open_bundle(small_bundle).manifest.generation.beam_size
    assert result["onnxruntime"] == onnxruntime.__version__
    for name in ("call", "first_token"):
        times = result[name]
        assert 0 < times["median_ms"] <= times["p95_ms"] <= times["p99_ms"]
    assert result["first_token"]["median_ms"] < result["call"]["median_ms"]
    shares = [result[f"{name}_share"] for name in ("encoder", "decoder", "host")]
    assert all(0 < share < 1 for share in shares)
    assert sum(shares) == pytest.approx(1)
    assert result["sentences_per_second"] == pytest.approx(1000 / result["call"]["mean_ms"])
    assert result["tokens_per_second"] > result["sentences_per_second"]
    assert result["load_ms"] > 0
    assert result["peak_memory_mb"] > 10


def test_source_limit_batch_and_beam(small_bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("dog\n\nriver\n \nmachine\nhouse\nsea\nnever read\n", encoding="utf-8")
    result = measured(small_bundle, "--source", source, "--limit", "7", "--batch", "2", "--beam", "1")
    assert result["call"]["calls"] == 3  # five sentences that are not blank, two at a time
    assert (result["batch_size"], result["beam_size"]) == (2, 1)


def test_table_and_file(small_bundle: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = succeeded("bench", small_bundle, *QUICK, "--repeat", "2", "--json", report)
    content = json.loads(report.read_text(encoding="utf-8"))
    assert f"{content['call']['median_ms']:.2f}" in result.stdout
    assert f"{content['decoder_step_ms']:.3f}" in result.stdout
    assert ", 1 thread, " in result.stdout
    headers = {
        cell.strip() for line in result.stdout.splitlines() if line.startswith("┃") for cell in line.split("┃")[1:-1]
    }
    units = [header.split()[-1] for header in headers if header]
    assert {"ms", "%", "tokens/s", "sentences/s", "MB"} == set(units)  # one in each header
    assert content["call"]["calls"] == 2 * len({case.text for case in read_golden(open_bundle(small_bundle)).cases})
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_errors(small_bundle: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank"
    blank.write_text("\n \n", encoding="utf-8")
    assert "no sentence to translate" in error("bench", small_bundle, "--source", blank)
    assert "does not exist" in error("bench", small_bundle, "--source", tmp_path / "missing")
    assert "does not exist" in error("bench", tmp_path / "missing")
    assert "must be one of cpu, cuda" in error("bench", small_bundle, "--device", "npu")
    folder = tmp_path / "missing"
    assert f"Folder `{folder}` does not exist" in error("bench", small_bundle, "--json", folder / "x.json")


def test_bundles_on_the_kernels_are_compared_with_onnxruntime(small_bundle: Path) -> None:
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    result = measured(COMMITTED / "int8", "--against", "onnxruntime", "--beam", "1")
    kernels, reference = result["systems"]
    assert (kernels["system"], reference["system"]) == ("int8", "int8 on ONNX Runtime") == ("int8", result["reference"])
    assert (kernels["version"], reference["version"]) == ("kernels", f"onnxruntime {onnxruntime.__version__}")
    assert reference["identical"] == result["sentences"]
    for bundle, options in ((small_bundle, ()), (COMMITTED / "int8", ("--engine", "onnxruntime"))):
        assert "no bundle runs on them" in error("bench", bundle, "--against", "onnxruntime", *options)


@pytest.mark.slow
def test_bundles_are_compared_with_ctranslate2(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")
    report = tmp_path / "report.json"
    options = ("--against", "ctranslate2", "--checkpoint", taught_run.path, "--json", report, "--text-to-text")
    result = succeeded("bench", small_bundle, *options, *QUICK)
    content = json.loads(report.read_text(encoding="utf-8"))
    systems = {system["system"]: system for system in content["systems"]}
    assert content["reference"] == "CTranslate2 int8"
    assert systems["CTranslate2 float32"]["identical"] == content["sentences"]
    assert content["text_to_text"]
    assert "text to text" in " ".join(result.stdout.split())
    for name, system in systems.items():
        assert name.split()[0] in result.stdout
        assert f"{system['timing']['median_ms']:.2f}" in result.stdout
        assert f"{system['speed']['median']:.2f}" in result.stdout
    (interval,) = [system["speed"]["interval"] for system in systems.values() if system["system"] == small_bundle.name]
    assert f"{interval['low']:.2f} to {interval['high']:.2f}" in result.stdout
    assert "Speed: time of CTranslate2 int8 divided by the system's" in result.stdout
    assert max(map(len, result.stdout.partition("Speed:")[0].splitlines())) <= 80


def test_errors_of_comparisons(small_bundle: Path, small_bundle_int8: Path, taught_run: Run, tmp_path: Path) -> None:
    against = ("--against", "torch")
    checkpoint = ("--checkpoint", taught_run.path)
    assert "give the run that the bundle was exported from with --checkpoint" in error("bench", small_bundle, *against)
    assert "--checkpoint needs --against" in error("bench", small_bundle, *checkpoint, code=2)
    bergamot = ("--against", "bergamot", "--device", "cuda")
    assert "compared on the CPU only" in error("bench", small_bundle, *checkpoint, *bergamot, code=2)
    assert "--text-to-text needs --against" in error("bench", small_bundle, "--text-to-text", code=2)
    assert "must be one of cpu, cuda" in error("bench", small_bundle, small_bundle_int8, "--device", "npu")
    assert "is not one of" in error("bench", small_bundle, "--against", "moses", code=2)
    assert "is given twice" in error("bench", small_bundle, small_bundle)
    missing = tmp_path / "missing"
    assert "is not a run folder" in error("bench", small_bundle, *against, "--checkpoint", missing)
    assert "does not exist" in error("bench", small_bundle, missing)
    other = factory.small_run(tmp_path / "run", "post_norm", vocab_size=290)
    message = error("bench", small_bundle, *against, "--checkpoint", other.path)
    assert "was not exported from run" in message
    long = tmp_path / "long"
    long.write_text("The small dog runs.\n" + "dog " * 300 + "\n", encoding="utf-8")
    assert "tokens" in error("bench", small_bundle, *against, *checkpoint, "--source", long)
