"""The state table of a bundle follows from the model's own, its target and its precision."""

from __future__ import annotations

import pytest
import torch

from edgeformer.model.build import build_model
from edgeformer_export.tracing.state import bundle_state
from edgeformer_export.tracing.to_onnx import to_onnx
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import BEAM_WIDTH, CACHE_INDIRECTION, DECODER_FILE, StateTensor
from tests.factory import small_recipe
from tests.variants import VARIANTS


def by_name(table: tuple[StateTensor, ...]) -> dict[str, StateTensor]:
    return {tensor.name: tensor for tensor in table}


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_caches_of_equal_widths_are_written_in_place(variant: str) -> None:
    model = build_model(small_recipe(variant), 300, 300)
    own = model.state_table()
    assert bundle_state(model, "portable") == own
    table = bundle_state(model, "ort")
    caches = {tensor.name for tensor in own if tensor.kind == "cache"}
    assert {tensor.name for tensor in table if tensor.in_place} == (set() if variant == "free_widths" else caches)
    for name, tensor in by_name(table).items():
        before = by_name(own)[name]
        assert [axis if axis != "T" else "P" for axis in tensor.axes] == list(before.axes)
        assert (tensor.kind, tensor.dtype) == (before.kind, before.dtype)
    assert model.state_table() == own


@pytest.mark.parametrize(("heads", "in_place"), [(4, False), (1, True)])  # heads of width 8 and 32
def test_for_cuda_floats_are_halves_and_widths_without_a_kernel_grow(heads: int, in_place: bool) -> None:
    model = build_model(small_recipe("post_norm", {"heads": heads}), 300, 300)
    table = by_name(bundle_state(model, "ort", for_cuda=True))
    assert table["self_key.0"].in_place == in_place
    assert {tensor.dtype for tensor in table.values()} == {"float16", "int32"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ort", "portable"])
def test_a_model_is_left_as_it_was(target: Target) -> None:
    model = build_model(small_recipe("post_norm"), 300, 300).eval()
    attributes = [dict(vars(module)) for module in model.modules()]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    traced = to_onnx(model, target)
    for module, before in zip(model.modules(), attributes, strict=True):
        assert vars(module).keys() == before.keys()
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in weights.items())
    assert traced.table == bundle_state(model, target)
    inputs = {value.name for value in traced.graphs[DECODER_FILE].graph.inputs}
    assert ({CACHE_INDIRECTION, BEAM_WIDTH} <= inputs) == (target == "ort")
