"""Passes that merge and fuse: the same results from fewer or faster operators, and nothing where they must not be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from edgeformer_export.passes.heads import FuseHeadsPass
from edgeformer_export.passes.merge import MergeLinearsPass
from edgeformer_export.passes.norms import FuseSkipNormPass, VectorNormPass
from edgeformer_export.passes.simplify import SimplifyPass
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_runtime import contract
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.graphs import model_of, run_all
from tests.store import Store

Arrays = dict[str, NDArray[np.generic]]
ROWS, WIDTH = 5, 24


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def transformed(model: ir.Model, one_pass: ir.passes.PassBase, feeds: Arrays) -> Counter[str]:
    """Operators after a pass, which must leave all outputs, their names and their order as they are."""
    before = run_all(model, **feeds)
    result = one_pass(ir.from_proto(ir.to_proto(model))).model
    after = run_all(result, **feeds)
    assert list(after) == list(before)
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, atol=1e-5, rtol=1e-5, err_msg=name)
    assert [value.name for value in result.graph.outputs] == [value.name for value in model.graph.outputs]
    # Every node stands behind those whose outputs it reads.
    known = set(result.graph.inputs) | set(result.graph.initializers.values())
    for node in result.graph:
        assert {value for value in node.inputs if value is not None} <= known, node
        known |= set(node.outputs)
    return Counter(node.op_type for node in result.graph)


# Linear layers of one input.


def linears(
    widths: list[int], biased: list[bool], *, outputs: str = "", more: str = "", op: str = "MatMul"
) -> tuple[ir.Model, Arrays]:
    """Layers ``y0``, ``y1``, … of an input ``x``."""
    lines, constants = [], {}
    for index, (width, bias) in enumerate(zip(widths, biased, strict=True)):
        constants[f"w{index}"] = random(WIDTH, width, seed=index)
        lines.append(f"{f'p{index}' if bias else f'y{index}'} = {op}(x, w{index})")
        if bias:
            constants[f"b{index}"] = random(width, seed=10 + index)
            lines.append(f"y{index} = Add(p{index}, b{index})")
    named = outputs or ", ".join(f"float[R, {width}] y{index}" for index, width in enumerate(widths))
    text = f"linears (float[R, {WIDTH}] x) => ({named}) {{ {' '.join(lines)} {more} }}"
    return model_of(text, **constants), {"x": random(ROWS, WIDTH)}


@pytest.mark.parametrize(
    ("widths", "biased", "expected"),
    [
        ([32, 32, 32], [True, True, True], Counter(MatMul=1, Add=1, Split=1)),
        ([32, 16, 40], [True, True, True], Counter(MatMul=1, Add=1, Split=1)),
        ([32, 32, 32], [False, False, False], Counter(MatMul=1, Split=1)),
        ([16, 16, 24, 40], [False] * 4, Counter(MatMul=1, Split=1)),
        ([32, 32, 32], [True, False, True], Counter(MatMul=1, Add=1, Split=1)),
        ([32, 20, 32], [False, True, False], Counter(MatMul=1, Add=1, Split=1)),
    ],
    ids=["biased", "uneven", "no-bias", "no-bias-uneven", "one-without", "one-with"],
)
def test_linear_layers_of_one_input_become_one(widths: list[int], biased: list[bool], expected: Counter[str]) -> None:
    model, feeds = linears(widths, biased)
    assert transformed(model, MergeLinearsPass(), feeds) == expected


def test_equal_biases_do_not_keep_linear_layers_apart() -> None:
    """The tracer stores equal biases once, as those of an untrained model are; merged, they are several."""
    layers = [f"p{index} = MatMul(x, w{index}) y{index} = Add(p{index}, zero)" for index in range(3)]
    outputs = ", ".join(f"float[R, 512] y{index}" for index in range(3))
    text = f"untrained (float[R, {WIDTH}] x) => ({outputs}) {{ {' '.join(layers)} }}"
    weights = {f"w{index}": random(WIDTH, 512, seed=index) for index in range(3)}
    model = model_of(text, zero=np.zeros(512, np.float32), **weights)
    assert transformed(model, MergeLinearsPass(), {"x": random(ROWS, WIDTH)}) == Counter(MatMul=1, Add=1, Split=1)


def test_users_between_and_behind_merged_layers_keep_their_inputs() -> None:
    more = "a = Relu(y0) b = Add(a, y1) z = Mul(b, y0)"
    model, feeds = linears([32, 32], [True, True], outputs="float[R, 32] z, float[R, 32] y1", more=more)
    assert transformed(model, MergeLinearsPass(), feeds) == Counter(MatMul=1, Add=2, Split=1, Relu=1, Mul=1)


def test_layers_of_different_inputs_and_tables_stay_alone() -> None:
    text = f"apart (float[R, {WIDTH}] x, float[R, {WIDTH}] y) => (float[R, 32] a, float[R, 32] b, float[R, 40] c) {{"
    text += " a = MatMul(x, w0) b = MatMul(y, w1) c = Gemm<transB=1>(x, table) }"
    model = model_of(text, w0=random(WIDTH, 32), w1=random(WIDTH, 32, seed=1), table=random(40, WIDTH))
    feeds: Arrays = {"x": random(ROWS, WIDTH), "y": random(ROWS, WIDTH, seed=2)}
    assert transformed(model, MergeLinearsPass(), feeds) == Counter(MatMul=2, Gemm=1)


def test_a_layer_whose_bias_is_computed_is_merged_without_it() -> None:
    text = f"computed (float[R, {WIDTH}] x, float[32] b) => (float[R, 32] y, float[R, 32] z) {{"
    text += " p = MatMul(x, w0) y = Add(p, b) z = MatMul(x, w1) }"
    model = model_of(text, w0=random(WIDTH, 32), w1=random(WIDTH, 32, seed=1))
    feeds: Arrays = {"x": random(ROWS, WIDTH), "b": random(32)}
    assert transformed(model, MergeLinearsPass(), feeds) == Counter(MatMul=1, Split=1, Add=1)


# Heads.


def attention(keys: str, *, outputs: str = "", sizes: tuple[int, ...] = (0, 0, 2, 12), batch: str = "N, S") -> ir.Model:
    """Attention of two heads, whose keys and values are made by ``keys`` from ``k`` and ``v``."""
    text = f"attention (float[N, Q, 24] q, float[{batch}, 24] k, float[{batch}, 24] v) => (float[N, Q, 24] y{outputs})"
    text += f" {{ {keys} y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, kt, vt) }}"
    return model_of(text, sizes=np.array(sizes))


APART = """
    kr = Reshape(k, sizes) kt = Transpose<perm = [0, 2, 1, 3]>(kr)
    vr = Reshape(v, sizes) vt = Transpose<perm = [0, 2, 1, 3]>(vr)
"""
FEEDS: Arrays = {"q": random(2, 3, 24), "k": random(2, 5, 24, seed=1), "v": random(2, 5, 24, seed=2)}
NOT_FUSED = Counter(Reshape=2, Transpose=2, MultiHeadAttention=1)


def test_the_operator_takes_heads_apart() -> None:
    assert transformed(attention(APART), FuseHeadsPass(), FEEDS) == Counter(MultiHeadAttention=1)


@pytest.mark.parametrize(
    ("keys", "outputs", "expected"),
    [
        (APART, ", float[N, 2, S, 12] kt", NOT_FUSED),
        (APART + "z = Relu(kt)", ", float[N, 2, S, 12] z", NOT_FUSED + Counter(Relu=1)),
        (APART + "z = Relu(vt)", ", float[N, 2, S, 12] z", NOT_FUSED + Counter(Relu=1)),
        # One tensor for keys and values.
        (
            "kr = Reshape(k, sizes) kt = Transpose<perm = [0, 2, 1, 3]>(kr) vt = Identity(kt)",
            "",
            Counter(Reshape=1, Transpose=1, Identity=1, MultiHeadAttention=1),
        ),
    ],
    ids=["output", "keys-used", "values-used", "shared"],
)
def test_heads_that_others_want_stay_apart(keys: str, outputs: str, expected: Counter[str]) -> None:
    assert transformed(attention(keys, outputs=outputs), FuseHeadsPass(), FEEDS) == expected


def test_heads_in_another_order_stay_apart() -> None:
    """Keys ``(N, 2, S, 12)`` whose heads are not what lies side by side in a row."""
    keys = APART.replace("[0, 2, 1, 3]", "[0, 3, 1, 2]")
    assert transformed(attention(keys, sizes=(0, 0, 12, 2)), FuseHeadsPass(), FEEDS) == NOT_FUSED


def test_rows_that_become_positions_stay_as_they_are() -> None:
    """Keys of R rows, of which those of a sentence are its positions: ``(R, 1, 24)`` is no ``(N, S, 24)``."""
    model = attention(APART, sizes=(2, 5, 2, 12), batch="R, 1")
    feeds: Arrays = {**FEEDS, "k": random(10, 1, 24, seed=1), "v": random(10, 1, 24, seed=2)}
    assert transformed(model, FuseHeadsPass(), feeds) == NOT_FUSED


# Sums and norms.


def norm_model(body: str, outputs: str, second: str = "N, S, 24", **constants: NDArray[np.generic]) -> ir.Model:
    text = f"norm (float[N, S, 24] x, float[{second}] y) => ({outputs}) {{ {body} }}"
    return model_of(text, **{"gamma": random(24, seed=3), "beta": random(24, seed=4), **constants})


NORM_FEEDS: Arrays = {"x": random(2, 5, 24), "y": random(2, 5, 24, seed=1)}
OUT = "float[N, S, 24]"


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
@pytest.mark.parametrize("beta", [", beta", ""])
@pytest.mark.parametrize("axis", [-1, 2])
def test_a_norm_of_vector_operators(epsilon: float, beta: str, axis: int) -> None:
    body = f"s = Add(x, y) z = LayerNormalization<epsilon = {epsilon}, axis = {axis}>(s, gamma{beta})"
    vector = Counter(Add=2 if beta else 1, ReduceMean=1, Sub=1, SimplifiedLayerNormalization=1)
    assert transformed(norm_model(body, f"{OUT} z"), VectorNormPass(), NORM_FEEDS) == vector


def test_a_sum_that_is_carried_on_is_the_fourth_output() -> None:
    body = "s = Add(x, y) r = Relu(s) z = LayerNormalization<axis = -1>(s, gamma, beta) t = Add(r, z)"
    model = norm_model(body, f"{OUT} t, {OUT} s")
    assert transformed(model, FuseSkipNormPass(), NORM_FEEDS) == Counter(SkipLayerNormalization=1, Add=1, Relu=1)


def test_a_fused_norm_has_no_empty_inputs() -> None:
    """With a fifth, the engine would not fuse the bias of the product that is added."""
    model = norm_model("s = Add(x, y) z = LayerNormalization<axis = -1>(s, gamma, beta)", f"{OUT} z")
    (node,) = FuseSkipNormPass()(model).model.graph
    assert [value and value.name for value in node.inputs] == ["y", "x", "gamma", "beta"]


def test_a_norm_over_two_axes_stays() -> None:
    body = "s = Add(x, y) z = LayerNormalization<axis = 1>(s, wide)"
    model = norm_model(body, f"{OUT} z", wide=random(5, 24, seed=3))
    assert transformed(model, VectorNormPass(), NORM_FEEDS) == Counter(Add=1, LayerNormalization=1)


@pytest.mark.parametrize(
    "body",
    [
        "s = Add(x, y) z, m, d = LayerNormalization(s, gamma, beta)",
        "s = Add(x, y) z, mean, d = LayerNormalization(s, gamma, beta) m = Neg(mean)",
    ],
    ids=["output", "used"],
)
def test_a_norm_whose_mean_is_wanted_stays(body: str) -> None:
    model = norm_model(body, f"{OUT} z, float[N, S, 1] m")
    assert transformed(model, VectorNormPass(), NORM_FEEDS)["LayerNormalization"] == 1


def test_a_norm_of_large_values_that_hardly_differ() -> None:
    """The mean goes first, so nothing is lost between large squares."""
    gamma, beta = random(24, seed=3), random(24, seed=4)
    model = norm_model("z = LayerNormalization(x, gamma, beta) t = Add(z, y)", f"{OUT} z, {OUT} t")
    vector = VectorNormPass()(model).model
    x = (1000 + random(2, 5, 24) / 8).astype(np.float32)
    exact = x.astype(np.float64)
    exact -= exact.mean(axis=2, keepdims=True)
    expected = exact / np.sqrt((exact**2).mean(axis=2, keepdims=True) + 1e-5) * gamma + beta
    np.testing.assert_allclose(run_all(vector, **{**NORM_FEEDS, "x": x})["z"], expected, atol=4e-3)


# Traced models.


OTHERS = ("pre_norm", "free_widths", "shared_heads", "t5", "ssru")


@pytest.fixture(
    scope="module", params=["post_norm", *(pytest.param(variant, marks=pytest.mark.slow) for variant in OTHERS)]
)
def traced(request: pytest.FixtureRequest, store: Store) -> tuple[str, Graphs]:
    graphs = store.traced(request.param).graphs
    return request.param, {file: SimplifyPass()(graph).model for file, graph in graphs.items()}


def feeds_of(graph: ir.Graph) -> Arrays:
    """Random inputs of a graph, of 2 sentences with 3 beams, 5 positions behind and 7 of the source."""
    sizes = {"N": 2, "K": 3, "R": 6, "S": 7, "P": 5, "T": 8}
    feeds: Arrays = {}
    for index, value in enumerate(graph.inputs):
        assert value.shape is not None
        shape = [size if isinstance(size, int) else sizes[str(size.value)] for size in value.shape]
        if value.dtype == ir.DataType.FLOAT:
            feeds[str(value.name)] = random(*shape, seed=index)
        else:
            feeds[str(value.name)] = np.random.default_rng(index).integers(4, 7, shape).astype(value.dtype.numpy())  # type: ignore[union-attr]
    known = {
        contract.SOURCE_LENGTH: np.array([7, 4]),
        contract.POSITION: np.array(5),
        contract.CACHE_INDIRECTION: np.random.default_rng(0).integers(0, 3, (2, 3, 8)).astype(np.int32),
        contract.BEAM_WIDTH: np.array([3], np.int32),
        "source_mask": np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32),
    }
    return feeds | {name: array for name, array in known.items() if name in feeds}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["t5", "t5_per_layer"])
def test_biases_by_distance_go_into_the_attention_operators(store: Store, variant: str) -> None:
    graphs = store.traced(variant).graphs
    for file, operator in ((ENCODER_FILE, "MultiHeadAttention"), (DECODER_FILE, "DecoderMaskedMultiHeadAttention")):
        attentions = [node for node in graphs[file].graph if node.op_type == operator]
        biases = {node.inputs[4 if file == DECODER_FILE else 5] for node in attentions}
        assert None not in biases
        assert len(biases) == (1 if variant == "t5" else 2)


@pytest.mark.parametrize("file", [ENCODER_FILE, DECODER_FILE])
@pytest.mark.parametrize("one_pass", [MergeLinearsPass, FuseHeadsPass, FuseSkipNormPass, VectorNormPass])
def test_traced_graphs_compute_the_same(
    traced: tuple[str, Graphs], file: str, one_pass: type[ir.passes.InPlacePass]
) -> None:
    variant, graphs = traced
    before = Counter(node.op_type for node in graphs[file].graph)
    after = transformed(graphs[file], one_pass(), feeds_of(graphs[file].graph))
    if one_pass is FuseSkipNormPass:
        first = 1 if variant in {"pre_norm", "ssru", "t5"} else 0  # what it normalizes is the embedding, and no sum
        norm = "SimplifiedLayerNormalization" if variant == "t5" else "LayerNormalization"
        assert after[norm] == first
        assert after[f"Skip{norm}"] == before[norm] - first > 0
    elif one_pass is VectorNormPass:
        assert after["LayerNormalization"] == 0
        norms = before["LayerNormalization"] + before["SimplifiedLayerNormalization"]
        assert after["SimplifiedLayerNormalization"] == norms > 0
    elif one_pass is FuseHeadsPass and file == ENCODER_FILE and variant in {"post_norm", "pre_norm", "ssru", "t5"}:
        # What is left are the keys and values that the encoder gives out.
        assert (before["Transpose"], after["Transpose"]) == (2 * 2 + 2 * 2, 2 * 2)
    elif one_pass is MergeLinearsPass and file == DECODER_FILE and variant != "shared_heads":
        assert after["Split"] == (4 if variant == "t5" else 2)  # a gated layer is a merged one too


def test_a_step_has_its_scale_in_the_weights_of_its_queries(store: Store) -> None:
    """And an encoder has not: a source of one token would go through other kernels alone than in a batch."""
    graphs = store.traced().graphs
    scales = {
        file: {node.attributes.get_float("scale", 0.0) for node in graph.graph if "MultiHeadAttention" in node.op_type}
        for file, graph in graphs.items()
    }
    assert scales[DECODER_FILE] == {1.0}
    assert list(scales[ENCODER_FILE]) == pytest.approx([8**-0.5])
