"""Graph files are checked before the engine sees them: their format, their operators, and where their weights are."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from edgeformer_runtime.selfcheck.inner_graphs import InnerGraphs
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgeformer_runtime import limits
from edgeformer_runtime.bundle.graphs import check_graph
from edgeformer_runtime.bundle.onnx_file import GraphFormatError, read_onnx
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.operators import OPERATORS
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.selfcheck.operators import check_operators
from edgeformer_runtime.translator import Translator
from tests.amounts import examples
from tests.bundles import copy_of, rehash
from tests.robustness.mutations import BYTE_EDITS, ByteEdit, edited

pytest.importorskip("onnx")
import onnx
from google.protobuf.message import DecodeError

Change = Callable[[onnx.ModelProto], object]


def counted(model: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.node)


def changed(bundle: Path, folder: Path, change: Change, file: str = DECODER_FILE) -> Path:
    """A copy whose graph is changed, with the hashes of the changed files."""
    copy = copy_of(bundle, folder)
    model = onnx.load(copy / file, load_external_data=False)
    change(model)
    (copy / file).write_bytes(model.SerializeToString())
    return rehash(copy)


def refusal(bundle: Path) -> str:
    """Why a bundle is not opened; the check says so itself, in whatever way the graphs would be opened."""
    opened = open_bundle(bundle)
    with pytest.raises(BundleError) as caught:
        Translator.open(opened)
    with pytest.raises(BundleError) as inside:
        InnerGraphs.of_bundle(opened, {})
    assert str(inside.value) == str(caught.value)
    assert "onnxruntime" not in str(caught.value)
    return str(caught.value)


def external(model: onnx.ModelProto, key: str, value: str | None) -> None:
    """Change where the first weight in another file is."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.external_data)
    entry = next(entry for entry in tensor.external_data if entry.key == key)
    if value is None:
        tensor.external_data.remove(entry)
    else:
        entry.value = value


def test_it_reads_what_onnx_reads(small_bundles: dict[Precision, Path]) -> None:
    for path in small_bundles.values():
        assert check_operators(open_bundle(path)).opsets["ai.onnx"] == 20
        for file in ("encoder.onnx", "decoder.onnx", "attention.onnx"):
            model = onnx.load(path / file, load_external_data=False)
            graph = check_graph(open_bundle(path), file)
            assert graph.operators == counted(model)
            assert graph.operators.keys() <= OPERATORS
            assert graph.opsets == {entry.domain: entry.version for entry in model.opset_import}
            tensors = model.graph.initializer
            assert [(tensor.element_type, tensor.shape) for tensor in graph.tensors] == [
                (tensor.data_type, tuple(tensor.dims)) for tensor in tensors
            ]
            for tensor, expected in zip(graph.tensors, tensors, strict=True):
                place = {entry.key: entry.value for entry in expected.external_data}
                assert tensor.external == (place or None)
                assert tensor.nbytes == (int(place["length"]) if place else len(expected.raw_data))


@pytest.mark.parametrize(
    "location", ["evil.bin", "../weights.bin", "/etc/passwd", "./weights.bin", "", "*/_ORT_MEM_ADDR_/*"]
)
def test_weights_come_from_the_hashed_file_only(small_bundle: Path, tmp_path: Path, location: str) -> None:
    bundle = changed(small_bundle, tmp_path, lambda model: external(model, "location", location))
    (bundle / "evil.bin").write_bytes((bundle / "weights.bin").read_bytes())
    assert f"`decoder.onnx` is damaged: it reads weights from `{location}` instead of `weights.bin`" in refusal(bundle)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("location", None, "reads weights from `` instead of `weights.bin`"),
        ("offset", "-64", "does not say which bytes"),
        ("offset", "9" * 50, "does not say which bytes"),
        ("offset", "1000000000", "bytes of `weights.bin` from 1000000000"),
        ("length", None, "does not say which bytes"),
        ("length", "4", "but 4 bytes of `weights.bin`"),
        ("length", "0x10", "does not say which bytes"),
    ],
)
def test_weights_lie_within_the_file(
    small_bundle: Path, tmp_path: Path, key: str, value: str | None, words: str
) -> None:
    assert words in refusal(changed(small_bundle, tmp_path, lambda model: external(model, key, value)))


def nested(model: onnx.ModelProto) -> None:
    branch = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "branch", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))


def function(model: onnx.ModelProto) -> None:
    identity = onnx.helper.make_node("Identity", ["x"], ["y"])
    model.functions.append(onnx.helper.make_function("own", "F", ["x"], ["y"], [identity], []))


def sparse(model: onnx.ModelProto) -> None:
    values = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [10**12]))


def huge_constant(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="huge", data_type=1, dims=[2**20, 2**20]))


def negative_axis(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="negative", data_type=1, dims=[-1]))


def text_constant(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="text", data_type=8, dims=[1], string_data=[b"a"]))


def stored_twice(model: onnx.ModelProto) -> None:
    next(tensor for tensor in model.graph.initializer if tensor.external_data).raw_data = b"\0" * 4


def external_attribute(model: onnx.ModelProto) -> None:
    tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location="EXTERNAL")
    tensor.external_data.add(key="location", value="weights.bin")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["constant"], value=tensor))


def overlapping(model: onnx.ModelProto) -> None:
    tensor = max((entry for entry in model.graph.initializer if entry.external_data), key=lambda entry: entry.dims[0])
    for number in range(2000):
        model.graph.initializer.add().CopyFrom(tensor)
        model.graph.initializer[-1].name = f"again{number}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nested, "an attribute has field 6 of type 2"),
        (function, "the model has field 25"),
        (sparse, "the graph has field 15"),
        (huge_constant, f"bytes of a constant in the graph file, more than {limits.MAX_INLINE_BYTES:,}"),
        (negative_axis, "axis of negative size"),
        (text_constant, "a constant has field 6"),
        (stored_twice, "stored both in the graph file and in another file"),
        (external_attribute, "an attribute refers to a file"),
        (overlapping, f"more than {limits.MAX_WEIGHT_READS} times as large as `weights.bin`"),
        (lambda model: model.opset_import.append(model.opset_import[0]), "imports operator set `` twice"),
        (lambda model: model.graph.node.add(op_type="Loop"), "operators that bundles may not use: Loop."),
        (lambda model: model.graph.node.add(op_type="Resize"), "operators that bundles may not use: Resize."),
        (
            lambda model: model.graph.node.add(op_type="EPContext", domain="com.microsoft"),
            "operators that bundles may not use: com.microsoft.EPContext.",
        ),
        (lambda model: model.graph.node.add(op_type="x" * 5000), f"more than {limits.MAX_NAME_BYTES:,}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_exporter_never_writes_is_refused(
    small_bundles: dict[Precision, Path], tmp_path: Path, change: Change, words: str
) -> None:
    message = refusal(changed(small_bundles["fp32"], tmp_path, change))
    assert "`decoder.onnx`" in message
    assert words in message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "contains no graph"),
        (b"\x3a\x05\x0a", "truncated"),
        (b"\x3a", "truncated"),
        (b"\x08" + b"\xff" * 300_000, "truncated"),
        (b"\xff" * 300_000, "truncated"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "truncated"),
        (b"\x3a\x00\x3a\x00", "field 7 twice"),
        (b"\x3b\x3c", "not a graph"),  # a group
        (b"\x3a\x05\x0a\x03\x22\x01\xff", "not UTF-8"),
        (b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x7f", "truncated"),
        (b"ORTM" * 100, "not a graph"),
    ],
)
def test_damaged_files_are_refused_at_once(data: bytes, words: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(GraphFormatError, match=words):
        read_onnx(data)
    assert time.perf_counter() - begin < 1


def test_a_deeply_nested_file_is_refused() -> None:
    """Messages within messages, which would make a reader recurse."""
    data = b""
    for _ in range(5000):
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        data = b"\x3a" + length + bytes([size]) + data
    with pytest.raises(GraphFormatError, match="field 7 of type 2, which is unsupported"):
        read_onnx(data)


TERMINAL = "\x1b[2J\nError: all is well\x07"
"""What would clear a terminal, and write an error of its own."""


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.graph.node.add(op_type=TERMINAL),
        lambda model: external(model, "location", TERMINAL),
        lambda model: setattr(model.graph.output[0], "name", TERMINAL),
        lambda model: model.graph.node.add(name=TERMINAL, op_type="Sum", output=["x"]),
        lambda model: model.graph.node[0].attribute.add(name=TERMINAL, type="INT", i=1),
        lambda model: model.opset_import.extend([model.opset_import.add(domain=TERMINAL, version=1)]),
        lambda model: model.ClearField("ir_version"),
    ],
    ids=["operator", "location", "output", "node", "attribute", "twice", "engine"],
)
def test_names_in_a_graph_cannot_reach_a_terminal(small_bundle: Path, tmp_path: Path, change: Change) -> None:
    opened = open_bundle(changed(small_bundle, tmp_path, change))
    with pytest.raises(BundleError) as caught:
        Translator.open(opened, threads=1)
    assert str(caught.value).isprintable()


def test_domains_in_a_graph_cannot_reach_a_terminal(small_bundle: Path, tmp_path: Path) -> None:
    """The engine ignores a domain that no node uses; ``verify`` names it."""
    bundle = changed(small_bundle, tmp_path, lambda model: model.opset_import.add(domain=TERMINAL, version=1))
    with pytest.raises(BundleError, match=r"uses version 1 of \[2J Error: all is well, which") as caught:
        check_operators(open_bundle(bundle))
    assert str(caught.value).isprintable()


def test_a_pipe_is_not_waited_for(small_bundle: Path, tmp_path: Path) -> None:
    for name in ("decoder.onnx", "weights.bin", "manifest.json", "manifest.json.sha256"):
        bundle = copy_of(small_bundle, tmp_path / name)
        (bundle / name).unlink()
        os.mkfifo(bundle / name)
        with pytest.raises(BundleError, match=rf"`{name.removesuffix('.sha256')}.*` is missing or not a plain file"):
            open_bundle(bundle)


def test_a_graph_that_changed_after_opening_is_refused(small_bundle: Path, tmp_path: Path) -> None:
    opened = open_bundle(copy_of(small_bundle, tmp_path))
    path = opened.file(ENCODER_FILE)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(BundleError, match=r"has changed since it was opened: `encoder\.onnx`"):
        Translator.open(opened)


EDITS = st.lists(
    st.tuples(st.integers(0, 2**16), st.sampled_from(BYTE_EDITS), st.binary(max_size=12)),
    min_size=1,
    max_size=4,
)


@examples(60, 1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_mutated_graphs(small_bundle_int4: Path, edits: list[ByteEdit]) -> None:
    """What is accepted, onnx reads in the same way, unless damage is in a part that only the engine reads."""
    data = edited((small_bundle_int4 / DECODER_FILE).read_bytes(), edits)
    try:
        graph = read_onnx(data)
        model = onnx.ModelProto.FromString(data)
    except (GraphFormatError, DecodeError):
        return
    assert graph.operators == counted(model)
    assert graph.opsets == {entry.domain: entry.version for entry in model.opset_import}
    constants = {
        (tensor.data_type, tuple(tensor.dims), tuple((entry.key, entry.value) for entry in tensor.external_data))
        for tensor in model.graph.initializer
    }
    assert constants <= {
        (tensor.element_type, tensor.shape, tuple((tensor.external or {}).items())) for tensor in graph.tensors
    }
