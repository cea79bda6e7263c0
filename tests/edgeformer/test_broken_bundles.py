"""Bundles that compute something else, though their hashes are right: ``verify`` names the part that differs."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path

import pytest

from edgeformer.data.vocabulary import train_tokenizer
from edgeformer.train.run import Run
from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.bundles import copy_of, rehash
from tests.commands import error, python, run
from tests.damage import drop_mask, scale_block
from tests.factory import PAIRS, small_run

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int4")
PARTS = [
    (ENCODER_FILE, "linear_5", "encoder layer 1, feed-forward (`encoder_layers.0.feed_forward.3`"),
    (ENCODER_FILE, "linear_9", "encoder layer 2, attention, output (`encoder_layers.1.attention.output`"),
    (DECODER_FILE, "linear_7", "decoder layer 1, feed-forward (`decoder_layers.0.feed_forward.3`"),
    (DECODER_FILE, "linear_13", "decoder layer 2, cross attention, output (`decoder_layers.1.cross_attention.output`"),
]
"""Graph, the tensor that a weight makes, and how ``verify`` calls it. The tracer numbers tensors in its order."""

ON_A_DEVICE = """
import sys
absent = "torch onnx onnx_ir onnxscript onnxsim safetensors sacrebleu lightning_fabric babel"
for name in absent.split():
    sys.modules[name] = None  # importing it is an error
from edgeformer.cli import main
main()
"""


def problems(bundle: Path, *options: str | Path) -> list[str]:
    """What ``verify`` finds wrong; it must fail."""
    result = run("verify", bundle, "--json", *options)
    assert result.exit_code == 1, result.output
    content = json.loads(result.stdout)
    assert content["passed"] is False
    found: list[str] = content["problems"]
    assert found
    return found


@pytest.mark.parametrize(("file", "tensor", "part"), PARTS, ids=[f"{file} {tensor}" for file, tensor, _ in PARTS])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_scaled_block_of_a_weight_is_found_in_its_layer(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, file: str, tensor: str, part: str
) -> None:
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), file, tensor)
    found = problems(bundle)
    assert f"first difference in example 4: {part}, relative difference 0." in found[0]
    assert ("step 1" in found[0]) == (file == DECODER_FILE)
    assert "padding" not in found[0]
    text = run("verify", bundle).stdout
    assert f"FAILED {found[0]}." in text
    assert text.endswith("FAILED\n")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_scaled_block_of_the_output_projection_is_found_in_the_logits(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision
) -> None:
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), DECODER_FILE, "logits")
    assert "the decoder's `logits`" in problems(bundle)[0]


def test_weights_that_are_no_numbers_are_found_in_their_layer(small_bundle: Path, tmp_path: Path) -> None:
    bundle = scale_block(copy_of(small_bundle, tmp_path), ENCODER_FILE, "linear_9", nan)
    found = problems(bundle)
    assert "encoder layer 2, attention, output (`encoder_layers.1.attention.output`, not finite" in found[0]
    assert "beam 1: At step 1 no token has a finite logit" in found[1]
    assert json.loads(run("verify", bundle, "--json").stdout)["golden"]["failed"] == 12


@pytest.mark.parametrize(
    ("file", "part"),
    [(ENCODER_FILE, "encoder layer 1, attention, output"), (DECODER_FILE, "decoder layer 1, cross attention, output")],
)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_dropped_mask_is_named(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, file: str, part: str
) -> None:
    found = problems(drop_mask(copy_of(small_bundles[precision], tmp_path), file))[0]
    assert f"first difference in example 4: {part} (" in found
    assert found.endswith("; without padding all agrees, so a padding mask has no effect")


def test_a_part_is_found_without_torch_and_onnx(small_bundle_int4: Path, tmp_path: Path) -> None:
    """What a device lacks cannot be imported here."""
    bundle = scale_block(copy_of(small_bundle_int4, tmp_path), DECODER_FILE, "linear_7")
    for path, code, text in ((small_bundle_int4, 0, "PASSED"), (bundle, 1, "decoder layer 1, feed-forward")):
        done = python(ON_A_DEVICE, "verify", path, check=False)
        assert done.returncode == code, done.stderr
        assert text in done.stdout


def test_another_tokenizer_is_named(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    """The graphs are given the recorded ids, and are sound."""
    bundle = copy_of(small_bundle, tmp_path)
    words = [word for source, _ in PAIRS for word in reversed(source.split())]
    other = train_tokenizer(words, taught_run.recipe.tokenizer)
    (bundle / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    found = problems(rehash(bundle))
    assert "the source tokenizer `tokenizer.json` is not the one of the examples: token " in found[0]
    assert "the target tokenizer `tokenizer.json` is not the one of the examples" in found[1]
    assert len(found) == 2
    assert "its source tokenizer differs from the bundle's" in error("verify", bundle, "--checkpoint", taught_run.path)


@pytest.mark.parametrize(("file", "tensor", "part"), PARTS, ids=[f"{file} {tensor}" for file, tensor, _ in PARTS])
def test_against_torch_a_scaled_block_is_found_in_its_layer(
    small_bundle: Path, taught_run: Run, tmp_path: Path, file: str, tensor: str, part: str
) -> None:
    bundle = scale_block(copy_of(small_bundle, tmp_path), file, tensor)
    found = problems(bundle, "--checkpoint", taught_run.path, "--beam", "1")
    assert f"first difference in example 4: {part}" in found[0]
    assert "against torch, in sentence " in found[-1]
    assert f", first difference is in {part}, relative difference 0." in found[-1]
    assert ", tolerance 0.001)" in found[-1]
    assert found[-1].endswith("step 1") == (file == DECODER_FILE)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_against_torch_a_scaled_matrix_of_integers_is_found_in_its_layer(
    small_bundles: dict[Precision, Path], taught_run: Run, tmp_path: Path, precision: Precision
) -> None:
    """Rounding is not taken for it: the tolerance is twice the error at export."""
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), ENCODER_FILE, "linear_5", whole=True)
    content = json.loads(run("verify", bundle, "--json", "--checkpoint", taught_run.path, "--beam", "1").stdout)
    first = content["first_difference_from_torch"]
    assert first["module"] == "encoder_layers.0.feed_forward.3"
    assert first["part"] == "encoder layer 1, feed-forward"
    assert 0.02 <= first["tolerance"] < 0.4 < first["difference"]


def test_against_torch_a_dropped_mask_is_found_in_its_layer(
    small_bundle: Path, taught_run: Run, tmp_path: Path
) -> None:
    found = problems(drop_mask(copy_of(small_bundle, tmp_path), ENCODER_FILE), "--checkpoint", taught_run.path)
    assert "first difference is in encoder layer 1, attention, output" in found[-1]


def test_a_model_with_other_weights_is_told_from_its_first_part_on(small_bundle: Path, tmp_path: Path) -> None:
    """The bundle is sound, but it is not the bundle of that run."""
    found = problems(small_bundle, "--checkpoint", small_run(tmp_path / "other", seed=7).path, "--beam", "1")
    assert "logits differ by up to" in found[0]
    assert "first difference is in source embedding, tokens (`source_embedding.tokens`" in found[-1]
