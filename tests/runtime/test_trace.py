"""Traces, and looking inside graphs without onnx."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.selfcheck.golden import read_golden
from edgeformer_runtime.selfcheck.inner_graphs import InnerGraphs, with_outputs
from edgeformer_runtime.selfcheck.location import in_words
from edgeformer_runtime.selfcheck.trace import (
    PADDING,
    STEPS,
    deviations,
    padded,
    session_fingerprints,
    true_part,
)
from edgeformer_runtime.translator import Translator


def test_what_belongs_to_padding_is_cut_off_but_for_masks() -> None:
    assert true_part(np.zeros((1, 4, 8, 6)), 5, 8).shape == (1, 4, 5, 6)
    assert true_part(np.zeros((8, 1, 16)), 5, 8).shape == (5, 1, 16)
    assert true_part(np.zeros((1, 8)), 5, 8).shape == (1, 8)
    assert true_part(np.zeros((1, 300)), 5, 8).shape == (1, 300)


def test_a_source_gets_as_much_padding_as_the_model_takes() -> None:
    source, length = padded([7, 8, 3], 0, 50)
    assert source.tolist() == [[7, 8, 3] + [0] * PADDING]
    assert length.tolist() == [3]
    assert padded([7, 8, 3], 0, 4)[0].tolist() == [[7, 8, 3, 0]]
    assert padded([7, 8, 3], 0, 3)[0].tolist() == [[7, 8, 3]]


@pytest.mark.parametrize("precision", [name for name in get_args(Precision) if name != "fp16"])
def test_a_trace_is_the_same_again_and_another_one_for_other_tokens(
    small_bundles: dict[Precision, Path], precision: Precision
) -> None:
    translator = Translator.open(small_bundles[precision], threads=1)
    golden, table = read_golden(translator.bundle), translator.bundle.manifest.state
    assert len(golden.traces) * 2 == len(golden.cases)
    for trace, case in zip(golden.traces, golden.cases, strict=False):
        assert trace.source == case.source
        assert trace.target == (2, *case.ids)[:STEPS]
        found = list(deviations(session_fingerprints(translator.session.onnxruntime, table, trace), trace))
        assert len(found) == sum(tensor.from_encoder for tensor in table) + len(trace.target)
        assert max(deviation.difference for deviation in found) < 1e-4
    recorded = golden.traces[0]
    other = next(trace for trace in golden.traces if trace.target[2] != recorded.target[2])
    changed = msgspec.structs.replace(recorded, target=(*recorded.target[:2], *other.target[2:]))
    found = list(deviations(session_fingerprints(translator.session.onnxruntime, table, changed), recorded))
    assert next(deviation.stage for deviation in found if deviation.difference > 0.01) == 3


def test_inner_tensors_are_shown_in_the_order_asked_for(small_bundle: Path) -> None:
    bundle = open_bundle(small_bundle)
    golden = read_golden(bundle)
    names = {
        file: [tensor.tensor for tensor in golden.tensors if tensor.file == file and tensor.module]
        for file in ("encoder.onnx", "decoder.onnx")
    }
    inner = InnerGraphs.of_bundle(bundle, names)
    trace = golden.traces[0]
    stages = list(inner.stages(*padded(trace.source, 0, 99), trace.target))
    assert len(stages) == 1 + len(trace.target)
    assert list(stages[0]) == [
        *names["encoder.onnx"],
        "source_mask",
        "cross_key.0",
        "cross_value.0",
        "cross_key.1",
        "cross_value.1",
    ]
    assert all(list(stage) == [*names["decoder.onnx"], "logits"] for stage in stages[1:])
    # The graphs compute what they do in a session.
    session = Translator.open(bundle, threads=1).session
    state = session.start(*padded(trace.source, 0, 99))
    for stage, token in zip(stages[1:], trace.target, strict=True):
        np.testing.assert_allclose(stage["logits"], state.step(np.array([token])), atol=1e-5)


def test_a_tensor_that_a_graph_lacks_is_an_error(small_bundle: Path) -> None:
    with pytest.raises(ModelError, match=r"failed in `decoder\.onnx`"):
        InnerGraphs.of_bundle(open_bundle(small_bundle), {"decoder.onnx": ["no_such_tensor"]})


def test_added_outputs_are_read_by_onnx_too(small_bundle: Path) -> None:
    onnx = pytest.importorskip("onnx")
    data = (small_bundle / "encoder.onnx").read_bytes()
    names = ["layer_norm", "x" * 300]
    before, after = (onnx.load_from_string(content).graph for content in (data, with_outputs(data, names)))
    assert [output.name for output in after.output] == [*(output.name for output in before.output), *names]
    assert list(after.node) == list(before.node)
    assert with_outputs(data, []) == data


def test_parts_of_a_model_in_words() -> None:
    assert in_words("encoder_layers.0.feed_forward.3") == "encoder layer 1, feed-forward"
    assert in_words("decoder_layers.11.cross_attention.key") == "decoder layer 12, cross attention, key"
    assert in_words("cells.1.gates") == "cell 2, gates"
    assert in_words("projection") == "projection"
