"""What a manifest says of its graphs is compared with the graphs: a manifest with correct hashes that lies is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.selfcheck.operators import check_operators
from edgeformer_runtime.translator import Translator
from tests.amounts import combinations
from tests.bundles import copy_of, edit_manifest
from tests.commands import problems
from tests.store import QUANTIZED

Tree = dict[str, Any]
Change = Callable[[Tree], object]


def tensor(tree: Tree, kind: str) -> Tree:
    """The last state tensor of a kind, which has four axes."""
    found: Tree = [entry for entry in tree["state"] if entry["kind"] == kind][-1]
    assert len(found["axes"]) == 4
    return found


def set_axis(tree: Tree, kind: str, axis: int, size: int | str) -> None:
    tensor(tree, kind)["axes"][axis] = size


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tree: tensor(tree, "cache").update(dtype="float16"),
            "inputs of `decoder.onnx`: `past.self_value.1` is tensor(float) instead of tensor(float16)",
        ),
        (
            lambda tree: tensor(tree, "constant").update(dtype="int64"),
            "outputs of `encoder.onnx`: `cross_value.1` is tensor(float) instead of tensor(int64)",
        ),
        (
            lambda tree: set_axis(tree, "cache", 3, 16),
            "outputs of `decoder.onnx`: `present.self_value.1` has shape (R, 4, T, 8) instead of (R, 4, T, 16)",
        ),
        (
            lambda tree: set_axis(tree, "constant", 1, 8),
            "inputs of `decoder.onnx`: `cross_value.1` has shape (N, 4, S, 8) instead of (N, 8, S, 8)",
        ),
        (
            lambda tree: set_axis(tree, "constant", 2, 5),
            "outputs of `encoder.onnx`: `cross_value.1` has shape (N, 4, S, 8) instead of (N, 4, 5, 8)",
        ),
        (lambda tree: set_axis(tree, "constant", 1, "S"), "(N, 4, S, 8) instead of (N, S, S, 8)"),
        (lambda tree: tensor(tree, "cache")["axes"].pop(), "has shape (R, 4, T, 8) instead of (R, 4, T)"),
        (
            lambda tree: tree.update(target_vocab_size=tree["target_vocab_size"] + 1),
            "outputs of `decoder.onnx`: `logits` has shape",
        ),
    ],
)
def test_types_and_axes_are_compared_when_a_bundle_is_opened(
    small_bundles: dict[Precision, Path], tmp_path: Path, change: Change, words: str
) -> None:
    bundle = edit_manifest(copy_of(small_bundles["fp32"], tmp_path), change)
    with pytest.raises(BundleError, match="graphs and manifest differ") as caught:
        Translator.open(bundle, threads=1)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["opsets"].update({"": 19}), "`encoder.onnx` uses version 20 of ai.onnx, which the manifest"),
        (lambda tree: tree["opsets"].pop("com.microsoft"), "uses version 1 of com.microsoft, which the manifest does"),
        (lambda tree: tree["opsets"].update(other=1), "the manifest states operator set `other`, which no graph uses"),
        (lambda tree: tree.update(target="portable"), "`decoder.onnx` uses SimplifiedLayerNormalization, which is not"),
        (lambda tree: tree["precision"].update({"decoder.onnx": "int4"}), "has weights in fp32 instead of int4"),
        (lambda tree: tree["precision"].update({"encoder.onnx": "fp16"}), "has weights in fp32 instead of fp16"),
        (lambda tree: tree.update(parameters=10**9), "the manifest states 1,000,000,000 parameters, but the graphs"),
        (lambda tree: tree.update(parameters=0), "the manifest states 0 parameters, but the graphs have"),
        (
            lambda tree: tree["report"]["operators"]["decoder.onnx"].update({"com.example.Gather": 1}),
            "`decoder.onnx` has other operators than the manifest lists",
        ),
        (
            lambda tree: tree["report"]["operators"]["encoder.onnx"].update(Add=1),
            "`encoder.onnx` has other operators than the manifest lists",
        ),
    ],
)
def test_operators_and_weights_are_compared_by_verify(
    small_bundle: Path, tmp_path: Path, change: Change, words: str
) -> None:
    bundle = edit_manifest(copy_of(small_bundle, tmp_path), change)
    (problem,) = problems(bundle)
    assert "graphs and manifest differ" in problem
    assert words in problem


@pytest.mark.parametrize("precision", QUANTIZED)
def test_the_precision_of_quantized_weights_is_compared(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision
) -> None:
    for number, other in enumerate(PRECISIONS.keys() - {precision}):

        def change(tree: Tree, other: str = other) -> None:
            tree["precision"]["decoder.onnx"] = other

        bundle = edit_manifest(copy_of(small_bundles[precision], tmp_path / str(number)), change)
        with pytest.raises(BundleError, match=f"`decoder.onnx` has weights in {precision} instead of {other}"):
            check_operators(open_bundle(bundle))


@combinations(
    precision=["fp32", "int8", "int4"],
    claim=[
        ("max_source_length", ("the encoder fails for 1000 tokens",)),
        ("max_target_length", ("the decoder fails at step 1000",)),
        ("source_vocab_size", ("the encoder fails for 1 token with id 999", "has embeddings of")),
    ],
)
def test_lengths_and_vocabulary_are_tried_by_verify(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, claim: tuple[str, tuple[str, ...]]
) -> None:
    name, words = claim
    bundle = edit_manifest(copy_of(small_bundles[precision], tmp_path), lambda tree: tree.update({name: 1000}))
    assert any(part in problem for problem in problems(bundle) for part in words)
