"""Operators that a bundle needs and an engine may lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.selfcheck import operators
from edgeformer_runtime.selfcheck.operators import check_operators
from tests.bundles import copy_of, edit_manifest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda known: known.pop(("", "Gather")), r"`encoder\.onnx` needs operator Gather of ai\.onnx 20"),
        (lambda known: known.update({("", "Gather"): [21]}), r"`decoder\.onnx` needs operator Gather of ai\.onnx 20"),
    ],
    ids=["unknown", "only in a later version"],
)
def test_an_operator_that_the_engine_lacks_is_named(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], object], message: str
) -> None:
    known = dict(operators.known_operators())
    change(known)
    monkeypatch.setattr(operators, "known_operators", lambda: known)
    with pytest.raises(BundleError, match=message):
        check_operators(open_bundle(small_bundle))


def test_an_engine_that_does_not_tell_is_believed(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "known_operators", dict)
    assert check_operators(open_bundle(small_bundle)).nodes > 0


def test_a_graph_whose_operators_are_not_listed_is_an_error(small_bundle: Path, tmp_path: Path) -> None:
    bundle = edit_manifest(
        copy_of(small_bundle, tmp_path), lambda tree: tree["report"]["operators"].pop("encoder.onnx")
    )
    with pytest.raises(BundleError, match=r"does not list the operators of `encoder\.onnx`"):
        check_operators(open_bundle(bundle))
