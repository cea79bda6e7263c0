"""What a manifest says of its graphs is compared with the graphs: a manifest with correct hashes that lies is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest
from tests.commands import problems

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
    "change",
    [
        lambda tree: tensor(tree, "cache").update(dtype="float16"),
        lambda tree: set_axis(tree, "cache", 3, 16),
        lambda tree: tensor(tree, "cache")["axes"].pop(),
        lambda tree: tensor(tree, "cache").update(name="other"),
        lambda tree: tensor(tree, "constant").update(name="other"),
        lambda tree: tree["state"].pop(),
        lambda tree: tree.update(target_vocab_size=tree["target_vocab_size"] + 1),
    ],
)
def test_a_state_that_the_graphs_do_not_have_is_an_error_of_the_engine(
    small_bundle: Path, tmp_path: Path, change: Change
) -> None:
    bundle = edit_manifest(copy_of(small_bundle, tmp_path), change)
    assert any("onnxruntime" in problem for problem in problems(bundle))
    with Translator.open(bundle, threads=1) as translator, pytest.raises(ModelError, match=r"failed in `\w+\.onnx`"):
        translator.translate(["A dog runs."], beam_size=4)


@pytest.mark.parametrize(
    ("precision", "name", "words"),
    [
        ("fp32", "max_source_length", "the encoder fails for 1000 tokens"),
        ("int8", "max_target_length", "the decoder fails at step 1000"),
        ("int8", "source_vocab_size", "the encoder fails for 1 token with id 999"),
        pytest.param("int4", "max_target_length", "the decoder fails at step 1000", marks=pytest.mark.slow),
    ],
)
def test_lengths_and_vocabulary_are_tried_by_verify(
    small_bundles: dict[Precision, Path], tmp_path: Path, precision: Precision, name: str, words: str
) -> None:
    bundle = edit_manifest(copy_of(small_bundles[precision], tmp_path), lambda tree: tree.update({name: 1000}))
    assert any(words in problem for problem in problems(bundle))
