"""A reader of plans that knows ``docs/contract.md`` only computes what the kernels compute."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from edgeformer_runtime.bundle.open import open_bundle
from tests.contract.plan_reader import PlanReader, numbers
from tests.kernels.cases import SHAPES, make_model
from tests.store import COMMITTED

kernels = pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")

LAST_DIGITS = 1e-4
"""Largest relative difference of most logits: sums of single precision in another order."""
ONE_LEVEL = 0.1
"""Largest relative difference of any logit. Where such a sum decides to which of two integers an activation is rounded,
a few logits differ by what one of 256 levels changes."""


def aligned(weights: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Copy weights to where the kernels can read them."""
    room = np.zeros(len(weights) + 64, np.uint8)
    first = -room.ctypes.data % 64
    room[first : first + len(weights)] = np.frombuffer(weights, np.uint8)
    return room[first : first + len(weights)]


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_kernels(shape: str) -> None:
    plan, weights = make_model(SHAPES[shape])
    random = np.random.default_rng(1)
    source, target = (random.integers(0, plan.source.rows, count).tolist() for count in (17, 12))
    found = PlanReader(json.loads(msgspec.json.encode(plan)), weights).logits(source, target)
    batch = kernels.Model(aligned(weights), plan.numbers()).start([source])
    expected = np.empty((len(target), 1, plan.target.rows), np.float32)
    for token, logits in zip(target, expected, strict=True):
        batch.step(np.array([token]), logits)
    difference = np.abs(found - expected[:, 0]) / np.abs(expected).max()
    assert np.quantile(difference, 0.75) < LAST_DIGITS
    assert difference.max() < ONE_LEVEL


def test_golden_examples_are_found() -> None:
    manifest = open_bundle(COMMITTED / "int8").manifest
    tree = json.loads((COMMITTED / "int8" / "manifest.json").read_bytes())
    own = PlanReader(tree["plan"], (COMMITTED / "int8" / "weights.bin").read_bytes())
    golden = json.loads((COMMITTED / "int8" / "golden.json").read_bytes())
    cases = [case for case in golden["cases"] if case["beam_size"] == 1]
    assert cases
    for case in cases:
        logits = own.logits(case["source"], [manifest.special.bos, *case["ids"]])
        logits[:, list(manifest.special.suppress)] = -np.inf
        assert logits.argmax(axis=1).tolist() == [*case["ids"], manifest.special.eos]


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_those_of_the_plan(shape: str) -> None:
    plan, _ = make_model(SHAPES[shape])
    assert list(numbers(json.loads(msgspec.json.encode(plan)))) == plan.numbers()
