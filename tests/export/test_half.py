"""Bundles in half precision: what is float16, what is not, and how close they stay to torch.

ONNX Runtime's CPU provider runs them too, with float32 inside the operators that have no other kernel.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgeformer.run.folder import Run
from edgeformer_export.parity.comparison import compare, compare_logits
from edgeformer_export.passes.half import HalfPrecisionPass
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests import graphs
from tests.bundles import onnx_session
from tests.company import changed_by_company
from tests.cuda import WIDE
from tests.factory import PAIRS
from tests.store import Store

pytestmark = pytest.mark.slow  # CUDA alone is fast in half precision; these tests emulate it on the CPU

FLOAT = onnx.TensorProto.FLOAT
GRAPHS = (contract.ENCODER_FILE, contract.DECODER_FILE, contract.ATTENTION_FILE)

# Caches in place; caches that grow, since their heads are 8 wide; a recurrence; LSTMs, and attention of their own.
EXPORTS: tuple[tuple[str, Target, bool], ...] = (
    ("post_norm", "ort", True),
    ("pre_norm", "ort", False),
    ("ssru", "portable", False),
    ("lstm_mlp", "ort", False),
)


class Exported(NamedTuple):
    run: Run
    bundle: Path


@pytest.fixture(scope="module", params=EXPORTS, ids=lambda export: "{}-{}".format(*export[:2]))
def exported(request: pytest.FixtureRequest, store: Store) -> Exported:
    variant, target, wide = request.param
    model = WIDE if wide else {}
    return Exported(store.run(variant, model=model), store.bundle(variant, "fp16", target, model=model))


@pytest.fixture(scope="module")
def in_place(store: Store) -> Exported:
    return Exported(store.run(model=WIDE), store.bundle(precision="fp16", model=WIDE))


def load(bundle: Path, file: str) -> onnx.GraphProto:
    return onnx.load(bundle / file, load_external_data=False).graph


def test_all_is_half_but_what_the_host_reads(exported: Exported) -> None:
    files = [file for file in GRAPHS if (exported.bundle / file).exists()]
    assert len(files) == 3
    for file in files:
        graph = load(exported.bundle, file)
        assert FLOAT not in {tensor.data_type for tensor in graph.initializer}
        floats = {value.name for value in (*graph.input, *graph.output) if value.type.tensor_type.elem_type == FLOAT}
        assert floats == {
            contract.ENCODER_FILE: set(),
            contract.DECODER_FILE: {contract.LOGITS},
            contract.ATTENTION_FILE: {contract.ATTENTION},
        }.get(file)
        # Nothing goes back to float32 on the way.
        casts = [node.output[0] for node in graph.node if node.op_type == "Cast" and node.attribute[0].i == FLOAT]
        assert set(casts) == floats
        tensors = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
        assert FLOAT not in {tensor.data_type for tensor in tensors}


def test_the_state_table_tells_so(exported: Exported) -> None:
    manifest = open_bundle(exported.bundle).manifest
    assert set(manifest.precision.values()) == {"fp16"}
    table = exported.run.load_model().state_table()
    assert {tensor.dtype for tensor in table} <= {"float32", "int32"}
    half = {"float32": "float16"}
    assert [(tensor.name, tensor.dtype) for tensor in manifest.state] == [
        (tensor.name, half.get(tensor.dtype, tensor.dtype)) for tensor in table
    ]
    state = onnx_session(Translator.open(exported.bundle)).start(np.array([[5, 6, 3]]), np.array([3]))
    state.select(np.array([0, 0]), None)
    for _ in range(2):
        logits = state.step(np.array([5, 6]))
    assert logits.dtype == np.float32
    assert {str(value.numpy().dtype) for value in state.tensors.values()} == {tensor.dtype for tensor in manifest.state}


def test_operators_of_a_step(in_place: Exported) -> None:
    """Each is a kernel to start, so nothing may creep in."""
    found = Counter(node.op_type for node in load(in_place.bundle, contract.DECODER_FILE).node)
    once = Counter(Cast=2, Reshape=2, Gather=2, Mul=1, Add=1, Unsqueeze=1, Shape=1, Concat=1, Gemm=1)
    layer = Counter(
        Split=1, DecoderMaskedMultiHeadAttention=1, MultiHeadAttention=1, MatMul=6, Add=6, Relu=1, Reshape=2
    )
    layer["SkipLayerNormalization"] = 3
    assert found == once + layer + layer


def test_step_logits_stay_close_to_torch(exported: Exported) -> None:
    model, session = exported.run.load_model(), Translator.open(exported.bundle).session
    random = np.random.default_rng(0)
    lengths = [1, 2, 9, 40, 256]
    sources = [[*random.integers(4, 300, length - 1).tolist(), 3] for length in lengths]
    targets = [random.integers(4, 300, 3 + 7 * row).tolist() for row in range(len(lengths))]
    parity = compare_logits(model, session, list(zip(sources, targets, strict=True)))
    assert 0 < parity.max_difference <= PRECISIONS["fp16"].tolerances.logits / 2
    assert parity.top1_agreement > 0.97


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_gives_the_same_alone_and_in_a_batch(exported: Exported, beam_size: int) -> None:
    texts = [*sorted({source for source, _ in PAIRS})[::9], "x", "The sea."]
    translator = Translator.open(exported.bundle, threads=1)
    assert changed_by_company(translator, texts, tolerance=1e-4, beam_size=beam_size) == []


def test_the_bounds_are_those_of_half_precision(in_place: Exported) -> None:
    model, session = in_place.run.load_model(), Translator.open(in_place.bundle).session
    report = compare(model, session, [[5, 6, 7, 3], [8, 9, 3]], [DecodeOptions(beam_size=2)], "fp16")
    assert report.problems == []
    assert report.attention_difference is not None

    def judged(difference: float, largest: float, attention: float = 0.0) -> list[str]:
        logits = msgspec.structs.replace(report.logits, max_difference=difference, largest=largest)
        return msgspec.structs.replace(report, logits=logits, attention_difference=attention).problems

    assert judged(0.049, 2.0) == judged(0.09, 20.0) == judged(0.01, 2.0, 0.009) == []
    assert "more than 5.0e-02" in judged(0.051, 2.0)[0]
    assert "attention weights differ by up to 0.011, more than 1e-02" in judged(0.01, 2.0, 0.011)[0]
    assert "not finite" in judged(float("inf"), 2.0)[0]
    # Two tokens that are close may change places.
    other = msgspec.structs.replace(report.tokens[0], identical=0, first=None)
    assert msgspec.structs.replace(report, tokens=(other,)).problems == []


def half(text: str, **constants: float) -> ir.Model:
    """A graph in half precision."""
    arrays = {name: np.array(number, np.float32) for name, number in constants.items()}
    return HalfPrecisionPass()(graphs.model_of(text, **arrays)).model


def test_fills_of_masks_stay_finite_and_guards_stay_above_zero() -> None:
    model = half(
        f"""masked (bool[4] mask, float[4] x) => (float[4] {contract.ATTENTION}) {{
            filled = Where(mask, fill, x) shares = Softmax(filled) guarded = Add(shares, guard)
            {contract.ATTENTION} = Div(shares, guarded)
        }}""",
        fill=float(np.finfo(np.float32).min),
        guard=1e-12,
    )
    constants = {str(tensor.name): tensor.const_value for tensor in model.graph.initializers.values()}
    kept = {name: tensor.numpy() for name, tensor in constants.items() if tensor is not None}
    assert {name: array.dtype for name, array in kept.items()} == dict.fromkeys(("fill", "guard"), np.float16)
    assert kept["fill"] == -65504
    assert 0 < kept["guard"] < 1e-7
    for masked in ([0, 1, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]):
        feeds = {"mask": np.array(masked, bool), "x": np.array([-20, 8, 9, 3], np.float16)}
        output = graphs.run(model, **feeds)
        assert output.dtype == np.float32
        assert np.isfinite(output).all()
        if not all(masked):
            assert not output[np.array(masked, bool)].any()


def test_an_operator_that_takes_no_half_keeps_float32() -> None:
    body = f"numbers = Range(start, limit, step) {contract.LOGITS} = Mul(numbers, two)"
    model = half(f"range (float limit) => (float[n] {contract.LOGITS}) {{ {body} }}", start=0, step=0.5, two=2)
    assert [node.op_type for node in model.graph] == ["Cast", "Range", "Cast", "Mul", "Cast"]
    np.testing.assert_array_equal(graphs.run(model, limit=np.array(2, np.float16)), [0, 1, 2, 3])
