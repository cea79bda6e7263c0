"""Every family with a model that has learned something: rows that end at different steps, int8, attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import pytest

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.export import export_run
from edgeformer_export.parity import compare
from edgeformer_runtime import contract
from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.bundle import open_bundle
from edgeformer_runtime.decode import decode
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.golden import check_golden
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.factory import PAIRS, taught_run

TAUGHT = {"ssru": 100, "lstm": 150, "lstm_mlp": 100}
"""Variants of the test factory, and the updates after which their outputs end by themselves."""
TEXTS = [source for source, _ in PAIRS[::5]]


class Taught(NamedTuple):
    variant: str
    model: EncoderDecoder
    fp32: Translator
    int8: Translator


@pytest.fixture(scope="module", params=TAUGHT)
def taught(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: str) -> Taught:
    if device != "cpu":
        pytest.skip("int8 graphs run on the CPU only")
    folder = tmp_path_factory.mktemp("taught")
    run = taught_run(folder / "run", request.param, steps=TAUGHT[request.param])
    for precision in ("fp32", "int8"):
        export_run(run, folder / precision, precision=precision)
    return Taught(
        request.param, run.load_model(), Translator(folder / "fp32", threads=1), Translator(folder / "int8", threads=1)
    )


def source_ids(translator: Translator) -> list[list[int]]:
    return [[*ids, 3] for ids in translator.source_tokenizer.encode_batch(TEXTS)]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_rows_that_finish_at_different_steps(taught: Taught, beam_size: int) -> None:
    sources, options = source_ids(taught.fp32), DecodeOptions(beam_size=beam_size)
    outputs = [best for best, *_ in decode(taught.fp32.session, sources, options)]
    assert all(best.finished for best in outputs)
    assert len({len(best.ids) for best in outputs}) > 1
    report = compare(taught.model, taught.fp32.session, sources, [options], "fp32")
    assert report.problems == []
    assert report.tokens[0].identical == len(sources)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sentence_gives_the_same_alone_and_in_a_batch(taught: Taught, precision: str, beam_size: int) -> None:
    translator = taught.fp32 if precision == "fp32" else taught.int8
    together = translator.translate(TEXTS, beam_size=beam_size)
    for text, translation in list(zip(TEXTS, together, strict=True))[::6]:
        alone = translator.translate([text], beam_size=beam_size)[0]
        assert alone.best.ids == translation.best.ids
        assert alone.score == pytest.approx(translation.score, abs=1e-4)


def test_int8_is_close_to_torch_and_much_smaller(taught: Taught) -> None:
    report = compare(taught.model, taught.int8.session, source_ids(taught.int8), [], "int8")
    assert report.problems == []
    assert report.logits.top1_agreement > 0.95
    weights = [translator.bundle.manifest.files["weights.bin"].size for translator in (taught.fp32, taught.int8)]
    assert weights[1] < 0.4 * weights[0]
    for translator in (taught.fp32, taught.int8):
        assert check_golden(translator).problems == ()


def test_int8_bundles_hold_no_float_matrix(taught: Taught) -> None:
    floats = {
        tensor.name: tuple(tensor.dims)
        for file in (contract.ENCODER_FILE, contract.DECODER_FILE)
        for tensor in onnx.load(taught.int8.bundle.file(file), load_external_data=False).graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1 and min(tensor.dims[-2:]) > 2
    }
    # Biases of two directions are no matrix. Position tables are read one row at a time, and stay as they are.
    assert set(floats.values()) <= {(256, 32), (40, 32)}, floats


def test_attention_comes_from_the_bundle_and_equals_torch(taught: Taught) -> None:
    sources = source_ids(taught.fp32)
    targets = [[*best.ids, 3] for best, *_ in decode(taught.fp32.session, sources, DecodeOptions(beam_size=1))]
    assert taught.fp32.bundle.has_attention == taught.model.has_attention
    if not taught.model.has_attention:
        with pytest.raises(BundleError, match="family `lstm`, does not attend to source positions"):
            attention_weights(taught.fp32.session, sources, targets)
        return
    expected = attention_weights(TorchSession(taught.model), sources, targets)
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
