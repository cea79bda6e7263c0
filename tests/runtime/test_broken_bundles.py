"""Bundles that compute something else, though their hashes are right: ``verify`` names the part that differs."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.amounts import combinations
from tests.bundles import copy_of
from tests.commands import problems, python, run

pytest.importorskip("onnx")

from tests.damage import PARTS, drop_mask, scale_block

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int4")
ON_A_DEVICE = """
import sys
absent = "torch onnx onnx_ir onnxscript onnxsim safetensors sacrebleu lightning_fabric babel"
for name in absent.split():
    sys.modules[name] = None  # importing it is an error
from edgeformer.cli import main
main()
"""


@combinations(precision=PRECISIONS, damaged=PARTS)
def test_a_scaled_block_of_a_weight_is_found_in_its_layer(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, damaged: tuple[str, str, str]
) -> None:
    file, tensor, part = damaged
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), file, tensor)
    reported = problems(bundle)
    assert f"first difference in example 4: {part}, relative difference 0." in reported[0]
    assert ("step 1" in reported[0]) == (file == DECODER_FILE)
    assert "padding" not in reported[0]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_scaled_block_of_the_output_projection_is_found_in_the_logits(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision
) -> None:
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), DECODER_FILE, "logits")
    assert "the decoder's `logits`" in problems(bundle)[0]


def test_weights_that_are_no_numbers_are_found_in_their_layer(small_bundle: Path, tmp_path: Path) -> None:
    bundle = scale_block(copy_of(small_bundle, tmp_path), ENCODER_FILE, "linear_9", nan)
    reported = problems(bundle)
    assert "encoder layer 2, attention, output (`encoder_layers.1.attention.output`, not finite" in reported[0]
    assert "beam 1: At step 1 no token has a finite logit" in reported[1]
    assert json.loads(run("verify", bundle, "--json").stdout)["golden"]["failed"] == 12


@combinations(
    precision=PRECISIONS,
    masked=[
        (ENCODER_FILE, "encoder layer 1, attention, output"),
        (DECODER_FILE, "decoder layer 1, cross attention, output"),
    ],
)
def test_a_dropped_mask_is_named(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, masked: tuple[str, str]
) -> None:
    file, part = masked
    reported = problems(drop_mask(copy_of(small_bundles[precision], tmp_path), file))[0]
    assert f"first difference in example 4: {part} (" in reported
    assert reported.endswith("; without padding all agrees, so a padding mask has no effect")


def test_a_part_is_found_without_torch_and_onnx(small_bundle_int4: Path, tmp_path: Path) -> None:
    """What a device lacks cannot be imported here."""
    bundle = scale_block(copy_of(small_bundle_int4, tmp_path), DECODER_FILE, "linear_7")
    done = python(ON_A_DEVICE, "verify", bundle, check=False)
    assert done.returncode == 1, done.stderr
    assert "decoder layer 1, feed-forward" in done.stdout
