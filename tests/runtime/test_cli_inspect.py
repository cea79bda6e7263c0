"""``edgeformer inspect``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from edgeformer_runtime.bundle.manifest import Manifest, Precision
from edgeformer_runtime.bundle.open import open_bundle
from tests.bundles import copy_of
from tests.commands import error, run


@pytest.mark.parametrize("precision", [name for name in get_args(Precision) if name != "fp16"])
def test_json_is_the_manifest(small_bundles: dict[Precision, Path], precision: Precision) -> None:
    bundle = small_bundles[precision]
    result = run("inspect", bundle, "--json")
    assert result.exit_code == 0
    manifest = msgspec.json.decode(result.stdout, type=Manifest)
    assert manifest == open_bundle(bundle).manifest
    assert manifest.precision["decoder.onnx"] == precision


@pytest.mark.parametrize("precision", [name for name in get_args(Precision) if name != "fp16"])
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


def test_nothing_that_a_terminal_acts_on_is_printed(small_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "\x1b[31mred\u202efdp.\u009b2J"
    shutil.copytree(small_bundle, bundle)
    for path in (bundle, bundle / "missing\x07"):
        result = run("inspect", path)
        assert all(character.isprintable() or character == "\n" for character in result.output)
        assert "\\x1b[31mred\\u202efdp.\\x9b2J" in result.output
