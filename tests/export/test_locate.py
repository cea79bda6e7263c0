"""Tensors of a graph and the parts of the torch model that they belong to, for every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgeformer_runtime.selfcheck.inner_graphs import InnerGraphs
from edgeformer_runtime.selfcheck.location import modules_of
from edgeformer_runtime.selfcheck.trace import PADDING, Trace
from msgspec.structs import replace
from torch import nn

from edgeformer.run.folder import Run
from edgeformer_export.parity.locate import locate, torch_deviations, torch_stages
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, LOGITS
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.selfcheck.golden import read_golden
from tests.store import Store
from tests.variants import VARIANTS, traced_variants

PARTS = {
    "pre_norm": (
        {"encoder_layers.1.feed_forward.3", "encoder_norm", "decoder_layers.1.cross_attention.key"},
        {"decoder_layers.0.target_layer.attention.output", "decoder_layers.1.feed_forward.3", "decoder_norm"},
    ),
    "ssru": (
        {"encoder_layers.0.attention.value"},
        {"decoder_layers.0.target_layer.forget", "decoder_layers.1.cross_attention.output"},
    ),
    "lstm": ({"source_embedding", "encoder_layers.0"}, {"cells.0.gates", "cells.1.gates"}),
    "lstm_mlp": ({"encoder_layers.0", "hidden_bridge.0"}, {"attention.query", "attention", "cells.0.gates"}),
}
"""Parts that must be found in the graphs of each variant, encoder and decoder."""


@pytest.fixture(scope="module", params=traced_variants(PARTS))
def exported(request: pytest.FixtureRequest, store: Store) -> tuple[str, Run, Path]:
    return request.param, store.run(request.param), store.bundle(request.param)


def test_parts_are_found_in_the_graphs_with_the_error_of_each(exported: tuple[str, Run, Path]) -> None:
    variant, _, path = exported
    bundle = open_bundle(path)
    golden = read_golden(bundle)
    modules = modules_of(golden.tensors)
    for file, wanted in zip((ENCODER_FILE, DECODER_FILE), PARTS[variant], strict=True):
        found = list(modules[file].values())
        assert wanted <= set(found)
        assert len(set(found)) == len(found)
    assert all(1e-6 <= tensor.error < 1e-4 for tensor in golden.tensors)
    outputs = {(tensor.file, tensor.tensor) for tensor in golden.tensors if tensor.module is None}
    table = bundle.manifest.state
    assert {(ENCODER_FILE, tensor.name) for tensor in table if tensor.from_encoder} <= outputs
    assert {(DECODER_FILE, tensor.output_name) for tensor in table if tensor.kind == "recurrent"} <= outputs
    assert (DECODER_FILE, LOGITS) in outputs
    assert golden.inner is not None
    assert len(golden.inner.stages) == 1 + len(golden.inner.target)


def test_a_sound_bundle_differs_nowhere_and_a_changed_model_in_its_part(exported: tuple[str, Run, Path]) -> None:
    variant, run, path = exported
    bundle, model = open_bundle(path), run.load_model()
    golden, source, target = read_golden(bundle), (20, 30, 40, 50, 3), (2, 21, 31)
    assert locate(model, bundle, golden, "cpu", source, target) is None
    for number, part in enumerate(sorted(PARTS[variant][1])):
        model = run.load_model()
        module = model.get_submodule(part)
        if list(module.children()):  # of which some belong to the encoder
            continue
        next(module.parameters()).data *= 1.5
        first = locate(model, bundle, golden, "cpu", source, target)
        assert first is not None, number
        assert first.module is not None
        assert first.module.startswith(part)
        assert first.tolerance == PRECISIONS["fp32"].tolerances.inner_tensor
        assert first.difference is None or first.difference > first.tolerance


def test_without_known_parts_the_graph_and_its_tensor_are_named(exported: tuple[str, Run, Path]) -> None:
    _, run, path = exported
    bundle, model = open_bundle(path), run.load_model()
    golden = read_golden(bundle)
    next(iter(model.source_embedding.parameters())).data.mul_(1.5)  # type: ignore[union-attr]
    for parts in ((), tuple(tensor for tensor in golden.tensors if tensor.module is None)):
        first = locate(model, bundle, replace(golden, tensors=parts), "cpu", (20, 30, 40, 3), (2, 21))
        assert first is not None
        assert first.module is None
        assert first.part.startswith("the encoder's `")


def test_what_torch_computes_is_told_part_by_part(store: Store) -> None:
    model = store.run().load_model()
    source, length = np.array([[20, 30, 3, 0]]), np.array([3])
    stages = list(torch_stages(model, SpecialTokens(), source, length, (2, 21)))
    assert len(stages) == 3
    parts, outputs = stages[0]
    assert parts["encoder_layers.1"].shape == (1, 4, 32)
    assert set(outputs) == {"source_mask", "cross_key.0", "cross_value.0", "cross_key.1", "cross_value.1"}
    for parts, outputs in stages[1:]:
        np.testing.assert_array_equal(parts["projection"], outputs["logits"])
        assert "encoder_layers.1" not in parts
    assert not any(module._forward_hooks for module in model.modules() if isinstance(module, nn.Module))


@pytest.mark.slow
def test_a_source_may_be_padded_to_the_width_of_a_layer(store: Store) -> None:
    model, bundle = store.run("lstm_dot").load_model(), open_bundle(store.bundle("lstm_dot"))
    modules = modules_of(read_golden(bundle).tensors)
    inner = InnerGraphs.of_bundle(bundle, {file: list(names) for file, names in modules.items()})
    length = VARIANTS["lstm_dot"]["hidden_size"] - PADDING
    trace = Trace(source=(*range(4, 3 + length), 3), target=(2, 5, 6))
    found = list(torch_deviations(model, inner, bundle.manifest.special, trace, modules))
    assert len(found) > 10
    assert max(deviation.difference for deviation in found) < 1e-4
