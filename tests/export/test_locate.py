"""Tensors of a graph and the parts of the torch model that they belong to, for every family."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from torch import nn

from edgeformer.run.folder import Run
from edgeformer_export.parity.inner_graphs import PADDING, InnerGraphs
from edgeformer_export.parity.locate import (
    ForcedSentence,
    in_words,
    locate,
    modules_of,
    relative_error,
    torch_deviations,
    torch_stages,
)
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, LOGITS
from edgeformer_runtime.precision import PRECISIONS
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
    layers = bundle.manifest.report.layers
    modules = modules_of(layers)
    for file, wanted in zip((ENCODER_FILE, DECODER_FILE), PARTS[variant], strict=True):
        found = list(modules[file].values())
        assert wanted <= set(found)
        assert len(set(found)) == len(found)
    assert all(1e-6 <= tensor.error < 1e-4 for tensor in layers)
    outputs = {(tensor.file, tensor.tensor) for tensor in layers if tensor.module is None}
    table = bundle.manifest.state
    assert {(ENCODER_FILE, tensor.name) for tensor in table if tensor.from_encoder} <= outputs
    assert {(DECODER_FILE, tensor.output_name) for tensor in table if tensor.kind == "recurrent"} <= outputs
    assert (DECODER_FILE, LOGITS) in outputs


def test_a_sound_bundle_differs_nowhere_and_a_changed_model_in_its_part(exported: tuple[str, Run, Path]) -> None:
    variant, run, path = exported
    bundle, model = open_bundle(path), run.load_model()
    sentence = ForcedSentence((20, 30, 40, 50, 3), (2, 21, 31))
    assert locate(model, bundle, "cpu", sentence) is None
    for number, part in enumerate(sorted(PARTS[variant][1])):
        model = run.load_model()
        module = model.get_submodule(part)
        if list(module.children()):  # of which some belong to the encoder
            continue
        next(module.parameters()).data *= 1.5
        first = locate(model, bundle, "cpu", sentence)
        assert first is not None, number
        assert first.module is not None
        assert first.module.startswith(part)
        assert first.tolerance == PRECISIONS["fp32"].tolerances.inner_tensor
        assert first.difference is None or first.difference > first.tolerance


def test_without_known_parts_the_graph_and_its_tensor_are_named(exported: tuple[str, Run, Path]) -> None:
    _, run, path = exported
    bundle, model = open_bundle(path), run.load_model()
    manifest = bundle.manifest
    next(iter(model.source_embedding.parameters())).data.mul_(1.5)  # type: ignore[union-attr]
    for layers in ((), tuple(layer for layer in manifest.report.layers if layer.module is None)):
        changed = replace(manifest, report=replace(manifest.report, layers=layers))
        sentence = ForcedSentence((20, 30, 40, 3), (2, 21))
        first = locate(model, dataclasses.replace(bundle, manifest=changed), "cpu", sentence)
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
    modules = modules_of(bundle.manifest.report.layers)
    inner = InnerGraphs.of_bundle(bundle, {file: list(names) for file, names in modules.items()})
    length = VARIANTS["lstm_dot"]["hidden_size"] - PADDING
    sentence = ForcedSentence((*range(4, 3 + length), 3), (2, 5, 6))
    found = list(torch_deviations(model, inner, bundle.manifest.special, sentence, modules))
    assert len(found) > 10
    assert max(deviation.difference for deviation in found) < 1e-4


def test_the_difference_of_tensors_is_relative_and_infinite_if_one_is_not_finite() -> None:
    expected = np.array([[3.0, 4.0]])
    assert relative_error(expected, expected) == 0
    assert relative_error(np.array([3.0, 4.5]), expected) == pytest.approx(0.1)
    assert relative_error(np.array([3.0, np.nan]), expected) == np.inf
    assert relative_error(expected, np.zeros(2)) == np.inf
    assert relative_error(np.zeros(2), np.zeros(2)) == 0


def test_paths_of_modules_are_told_in_words() -> None:
    assert in_words("encoder_layers.0.feed_forward.3") == "encoder layer 1, feed-forward"
    assert in_words("decoder_layers.11.cross_attention.key") == "decoder layer 12, cross attention, key"
