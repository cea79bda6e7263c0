"""The table of precisions is complete and does not contradict itself or the bundles that are made by it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.engines.onnx import PROVIDERS
from edgeformer_runtime.precision import PRECISIONS, Precision, lowest
from edgeformer_runtime.translator import Translator
from tests.conftest import ROOT

NAMES: tuple[Precision, ...] = get_args(Precision)


def test_every_precision_has_a_row_and_higher_ones_come_first() -> None:
    assert tuple(PRECISIONS) == NAMES
    bits = [traits.bits for traits in PRECISIONS.values()]
    assert bits == sorted(bits, reverse=True)
    assert lowest(["fp32", "int4", "int8"]) == "int4"
    assert lowest(["fp16"]) == "fp16"


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_contradict_itself(name: Precision) -> None:
    traits = PRECISIONS[name]
    assert set(traits.devices) <= PROVIDERS.keys()
    assert traits.optimized_for in traits.devices
    assert traits.purpose.endswith(".")
    assert PRECISIONS[traits.encoder].encoder == traits.encoder
    assert not PRECISIONS[traits.encoder].in_blocks
    assert bool(traits.operators) == traits.is_quantized
    tolerances = traits.tolerances
    assert tolerances.inner_tensor <= tolerances.unknown_tensor
    assert tolerances.identical_output <= (name == "fp32")


def test_the_documentation_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "precision.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"\n| `{name}` |" not in page] == []


def test_bundles_are_what_the_table_says(small_bundles: dict[Precision, Path]) -> None:
    for name, path in small_bundles.items():
        bundle, traits = open_bundle(path), PRECISIONS[name]
        manifest = bundle.manifest
        assert manifest.precision[DECODER_FILE] == name
        assert manifest.precision[ENCODER_FILE] == traits.encoder
        operators = {operator.rpartition(".")[2] for operator in manifest.report.operators[DECODER_FILE]}
        assert set(traits.operators) <= operators
        assert Translator.open(bundle, threads=1).session.row_multiple == traits.row_multiple
