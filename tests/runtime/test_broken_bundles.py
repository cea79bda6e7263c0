"""Bundles that compute something else, though their hashes are right: ``verify`` fails, on a device as well."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.amounts import combinations
from tests.bundles import copy_of
from tests.commands import python, verified

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


@combinations(precision=PRECISIONS, damaged=[(DECODER_FILE, "logits"), *(part[:2] for part in PARTS)])
def test_a_scaled_weight_is_found(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, damaged: tuple[str, str]
) -> None:
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), *damaged, 4.0, whole=True)
    assert verified(bundle, code=1)["golden"]["failed"] > 0


def test_weights_that_are_no_numbers_are_found(small_bundle: Path, tmp_path: Path) -> None:
    content = verified(scale_block(copy_of(small_bundle, tmp_path), ENCODER_FILE, "linear_9", nan), code=1)
    assert "beam 1: At step 1 no token has a finite logit" in content["problems"][0]
    assert content["golden"]["failed"] == 12


@pytest.mark.parametrize(
    ("precision", "file"), [("fp32", ENCODER_FILE), ("fp32", DECODER_FILE), ("int8", ENCODER_FILE)]
)
def test_a_dropped_mask_is_found(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, file: str
) -> None:
    """Examples are decoded in a batch, in which all but the longest are padded."""
    assert verified(drop_mask(copy_of(small_bundles[precision], tmp_path), file), code=1)["golden"]["failed"] > 0


def test_damage_is_found_without_torch_and_onnx(small_bundle_int4: Path, tmp_path: Path) -> None:
    """What a device lacks cannot be imported here."""
    bundle = scale_block(copy_of(small_bundle_int4, tmp_path), DECODER_FILE, "linear_7", 4.0, whole=True)
    done = python(ON_A_DEVICE, "verify", bundle, check=False)
    assert done.returncode == 1, done.stderr
    assert "differs: expected" in done.stdout
