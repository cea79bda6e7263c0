"""``edgeformer inspect``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from edgeformer_runtime.bundle.manifest import Manifest, Precision
from edgeformer_runtime.bundle.open import open_bundle
from tests.bundles import copy_of, edit_manifest
from tests.commands import error, run


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_json_is_the_manifest(small_bundles: dict[Precision, Path], precision: Precision) -> None:
    bundle = small_bundles[precision]
    result = run("inspect", bundle, "--json")
    assert result.exit_code == 0
    manifest = msgspec.json.decode(result.stdout, type=Manifest)
    assert manifest == open_bundle(bundle).manifest
    assert manifest.precision["decoder.onnx"] == precision


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_tables_show_files_operators_and_state(small_bundles: dict[Precision, Path], precision: Precision) -> None:
    bundle = small_bundles[precision]
    result = run("inspect", bundle)
    assert result.exit_code == 0
    manifest = open_bundle(bundle).manifest
    lines = result.stdout.splitlines()

    def row(*words: str) -> str:
        (line,) = [line for line in lines if all(word in line for word in words)]
        return line

    for name, entry in manifest.files.items():
        assert f"{entry.size:,}" in row(f" {name} ", entry.sha256[:16])
    assert f" {precision} " in row(" decoder.onnx ", "…")
    assert f" {'fp32' if precision == 'fp32' else 'int8'} " in row(" encoder.onnx ", "…")
    for tensor in manifest.state:
        assert "(" + ", ".join(map(str, tensor.axes)) + ")" in row(f" {tensor.name} ", tensor.kind)
    operators = manifest.report.operators["decoder.onnx"]
    assert str(sum(operators.values())) in row(" nodes ")
    assert str(operators["com.microsoft.MultiHeadAttention"]) in row(" MultiHeadAttention ")
    assert "en → fr" in row(" languages ")
    assert f"{manifest.parameters:,}" in row(" parameters ")


ODD = "x\u202ey\x1b[31m\x07\u2028\x9bz"


def test_what_a_bundle_says_cannot_command_a_terminal(small_bundle: Path, tmp_path: Path) -> None:
    bundle = edit_manifest(copy_of(small_bundle, tmp_path), lambda tree: tree["state"][0].update(name=ODD))
    named = edit_manifest(Path(shutil.copytree(small_bundle, tmp_path / "a\u202eb")), lambda tree: None)
    for result in (run("inspect", bundle), run("inspect", bundle, "--json"), run("inspect", named)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", result.output), result.output
    assert msgspec.json.decode(run("inspect", named, "--json").stdout)
    assert "a\\u202eb" in error("verify", tmp_path / "a\u202eb" / "none")


def test_names_in_brackets_are_no_markup(small_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "[" / "bold] [red]bundle"
    bundle.parent.mkdir()
    shutil.copytree(small_bundle, bundle)
    result = run("inspect", bundle)
    assert result.exit_code == 0
    assert str(bundle) in result.stdout


def test_a_damaged_bundle_is_not_shown(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "README.md").unlink()
    for options in ([], ["--json"]):
        assert "`README.md` is missing" in error("inspect", bundle, *options)
