"""Every family with a model that has learned something: rows that end at different steps, precisions, attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import pytest

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.parity.comparison import compare
from edgeformer_runtime import contract
from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.bundle.manifest import Precision, SpecialTokens
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.golden import check_golden
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.amounts import combinations
from tests.company import changed_by_company
from tests.cuda import skip_unless_supported
from tests.factory import PAIRS
from tests.store import CPU_PRECISIONS, QUANTIZED, Store

TAUGHT = {"post_norm": 100, "ssru": 100, "lstm": 150, "lstm_mlp": 100}
"""Variants of the test factory, and the updates after which their outputs end by themselves."""
TEXTS = [source for source, _ in PAIRS[::5]]


class Taught(NamedTuple):
    variant: str
    model: EncoderDecoder
    bundles: dict[Precision, Translator]

    @property
    def fp32(self) -> Translator:
        return self.bundles["fp32"]

    @property
    def int8(self) -> Translator:
        return self.bundles["int8"]


@pytest.fixture(
    scope="module",
    params=["post_norm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ssru", "lstm", "lstm_mlp"))],
)
def taught(request: pytest.FixtureRequest, store: Store, device: str) -> Taught:
    for precision in CPU_PRECISIONS:
        skip_unless_supported(precision, device)
    variant, steps = request.param, TAUGHT[request.param]
    bundles = {
        precision: Translator.open(store.bundle(variant, precision, steps=steps), threads=1)
        for precision in CPU_PRECISIONS
    }
    return Taught(variant, store.run(variant, steps=steps).load_model(), bundles)


def source_ids(translator: Translator) -> list[list[int]]:
    return translator.source_tokenizer.encode_batch(TEXTS, special_tokens=True)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_rows_that_finish_at_different_steps(taught: Taught, beam_size: int) -> None:
    sources, options = source_ids(taught.fp32), DecodeOptions(beam_size=beam_size)
    outputs = [best for best, *_ in decode(taught.fp32.session, sources, options)]
    assert all(best.finished for best in outputs)
    assert len({len(best.ids) for best in outputs}) > 1
    report = compare(taught.model, taught.fp32.session, sources, [options], "fp32")
    assert report.problems == []
    assert report.tokens[0].identical == len(sources)


@combinations(precision=CPU_PRECISIONS, beam_size=[1, 3, 4])
def test_a_sentence_gives_the_same_in_any_company(taught: Taught, precision: Precision, beam_size: int) -> None:
    """Alone, in batches of any order and size, and with another number of threads."""
    one = taught.bundles[precision]
    two = Translator.open(one.bundle, threads=2)
    expected = one.translate(TEXTS, beam_size=beam_size)
    tolerance = 1e-5 if one.session.row_multiple == 2 else 1e-4
    for translator in (one, two):
        assert not changed_by_company(
            translator,
            TEXTS,
            tolerance=tolerance,
            expected=expected,
            max_batch_tokens=4 * 13 * beam_size,
            beam_size=beam_size,
        )


@pytest.mark.parametrize("precision", QUANTIZED)
def test_integers_are_close_to_torch_and_much_smaller(taught: Taught, precision: Precision) -> None:
    translator = taught.bundles[precision]
    with Translator.open(translator.bundle, threads=1, engine="onnxruntime") as graphs:
        report = compare(taught.model, graphs.session, source_ids(translator), [], precision)
    assert report.logits.top1_agreement > (0.85 if precision == "int4" else 0.95)
    weights = [bundle.bundle.manifest.files["weights.bin"].size for bundle in (taught.fp32, translator)]
    # At a width of 32, biases and scales, which the plan of the kernels has in this file too, count for a ninth.
    assert weights[1] < 0.5 * weights[0]


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_golden_examples_pass_in_every_precision(taught: Taught, precision: Precision) -> None:
    result = check_golden(taught.bundles[precision])
    assert result.problems == ()
    assert result.cases > 0


def test_int8_bundles_hold_no_float_matrix(taught: Taught) -> None:
    floats = {
        tensor.name: tuple(tensor.dims)
        for file in (contract.ENCODER_FILE, contract.DECODER_FILE)
        for tensor in onnx.load(taught.int8.bundle.file(file), load_external_data=False).graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1 and min(tensor.dims[-2:]) > 2
    }
    # Biases of two directions are no matrix. Position tables are read one row at a time, and stay as they are.
    assert set(floats.values()) <= {(256, 32), (80, 32)}, floats


def test_attention_comes_from_the_bundle_and_equals_torch(taught: Taught) -> None:
    sources = source_ids(taught.fp32)
    targets = [[*best.ids, 3] for best, *_ in decode(taught.fp32.session, sources, DecodeOptions(beam_size=1))]
    assert taught.fp32.bundle.has_attention == taught.model.has_attention
    if not taught.model.has_attention:
        with pytest.raises(BundleError, match="family `lstm`, does not attend to source positions"):
            attention_weights(taught.fp32.session, sources, targets)
        return
    expected = attention_weights(TorchSession(taught.model, SpecialTokens()), sources, targets)
    for tolerance, translator in ((1e-5, taught.fp32), (0.05, taught.int8)):
        for one, other, source in zip(
            expected, attention_weights(translator.session, sources, targets), sources, strict=True
        ):
            assert one.shape == (len(targets[sources.index(source)]), len(source))
            np.testing.assert_allclose(one, other, atol=tolerance)
            np.testing.assert_allclose(other.sum(axis=1), 1, atol=1e-5)


def test_the_step_decoder_does_not_compute_attention_weights_for_nobody(taught: Taught) -> None:
    if not taught.model.has_attention:
        assert contract.ATTENTION_FILE not in taught.fp32.bundle.manifest.files
        return
    graphs = {
        file: onnx.load(taught.fp32.bundle.file(file), load_external_data=False).graph
        for file in (contract.DECODER_FILE, contract.ATTENTION_FILE)
    }
    outputs = {file: [value.name for value in graph.output] for file, graph in graphs.items()}
    assert outputs[contract.DECODER_FILE][0] == contract.LOGITS
    assert contract.ATTENTION not in outputs[contract.DECODER_FILE]
    assert contract.LOGITS not in outputs[contract.ATTENTION_FILE]
    # Every node of the decoder leads to one of its outputs.
    decoder = graphs[contract.DECODER_FILE]
    needed = set(outputs[contract.DECODER_FILE])
    for node in reversed(decoder.node):
        assert needed & set(node.output), node.name
        needed |= set(node.input)
    # The output projection, the largest product, is not in the attention graph.
    vocab_size = open_bundle(taught.fp32.bundle.path).manifest.target_vocab_size
    projected = [t for t in graphs[contract.ATTENTION_FILE].initializer if t.dims[-1:] == [vocab_size]]
    assert projected == []
