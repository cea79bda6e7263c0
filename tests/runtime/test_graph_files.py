"""Graph files are checked before the engine opens them, and the engine reads nothing outside their folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import limits
from edgeformer_runtime.bundle.graphs import graph_operators
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.translator import Translator
from tests.amounts import examples
from tests.bundles import copy_of, rehash
from tests.commands import python
from tests.robustness.mutations import random_edits
from tests.store import COMMITTED

pytest.importorskip("onnx")
import onnx
from google.protobuf.message import DecodeError

Change = Callable[[onnx.ModelProto], object]
MEMORY = 300 << 20
"""Bytes that opening a hostile bundle may take beyond what opening a sound one takes."""


def operators_of(model: onnx.ModelProto) -> set[str]:
    def text(name: str | bytes) -> str:
        return name.decode(errors="replace") if isinstance(name, bytes) else name  # protobuf gives what is not UTF-8

    names = [(text(node.domain), text(node.op_type)) for node in model.graph.node]
    return {f"{domain}.{operator}" if domain else operator for domain, operator in names}


def changed(bundle: Path, folder: Path, change: Change) -> Path:
    """A copy whose decoder is changed, with the hashes of the changed files."""
    copy = copy_of(bundle, folder)
    model = onnx.load(copy / DECODER_FILE, load_external_data=False)
    change(model)
    (copy / DECODER_FILE).write_bytes(model.SerializeToString())
    return rehash(copy)


def refusal(bundle: Path) -> str:
    """Why a bundle is not opened, in one printable line."""
    opened, begin = open_bundle(bundle), time.perf_counter()
    with pytest.raises(BundleError) as caught:
        Translator.open(opened, threads=1)
    assert time.perf_counter() - begin < 5
    assert str(caught.value).isprintable()
    assert "`decoder.onnx`" in str(caught.value)
    return str(caught.value)


def external(model: onnx.ModelProto, **entries: str) -> None:
    """Change where the first weight in another file is."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.external_data)
    for entry in tensor.external_data:
        entry.value = entries.get(entry.key, entry.value)


def test_it_reads_what_onnx_reads(small_bundles: dict[Precision, Path]) -> None:
    for path in small_bundles.values():
        for file in ("encoder.onnx", "decoder.onnx", "attention.onnx"):
            data = (path / file).read_bytes()
            assert graph_operators(data) == operators_of(onnx.ModelProto.FromString(data))


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/passwd", "link.bin", "sub/../../weights.bin", "", "*/_ORT_MEM_ADDR_/*"]
)
def test_the_engine_reads_nothing_outside_the_folder(small_bundle: Path, tmp_path: Path, location: str) -> None:
    bundle = changed(small_bundle, tmp_path, lambda model: external(model, location=location))
    (tmp_path / "weights.bin").write_bytes((bundle / "weights.bin").read_bytes())
    (bundle / "link.bin").symlink_to(tmp_path / "weights.bin")
    (bundle / "sub").mkdir()
    assert "cannot open `decoder.onnx`" in refusal(bundle)


@pytest.mark.parametrize(
    "place",
    [{"offset": "-64"}, {"offset": "9" * 50}, {"offset": "1000000000"}, {"length": "4"}, {"length": "0x10"}],
    ids=str,
)
def test_weights_lie_within_the_file(small_bundle: Path, tmp_path: Path, place: dict[str, str]) -> None:
    refusal(changed(small_bundle, tmp_path, lambda model: external(model, **place)))


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


def added_to_logits(model: onnx.ModelProto, name: str) -> None:
    """Read a tensor, since the engine drops what no output needs."""
    logits = next(node for node in model.graph.node if "logits" in node.output)
    logits.output[list(logits.output).index("logits")] = "plain"
    for operator, inputs, output in (("ReduceSum", [name], "sum"), ("Add", ["plain", "sum"], "logits")):
        model.graph.node.append(onnx.helper.make_node(operator, inputs, [output]))


def huge_constant(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="huge", data_type=1, dims=[2**20, 2**20]))
    added_to_logits(model, "huge")


def negative_axis(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.TensorProto(name="negative", data_type=1, dims=[-1]))
    added_to_logits(model, "negative")


def external_attribute(model: onnx.ModelProto) -> None:
    tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location="EXTERNAL")
    tensor.external_data.add(key="location", value="../weights.bin")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["constant"], value=tensor))
    added_to_logits(model, "constant")


TERMINAL = "\x1b[2J\nError: all is well\x07"
"""What would clear a terminal, and write an error of its own."""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (nested, "field 6 of its attribute is not supported"),
        (function, "field 25 of its model is not supported"),
        (sparse, "field 15 of its graph is not supported"),
        (huge_constant, "exceeds the 2147483648 byte limit"),
        (negative_axis, "Out of bounds dimensions"),
        (external_attribute, "cannot open `decoder.onnx`"),
        (lambda model: model.graph.node.add(op_type="Loop"), "operators that bundles may not use: Loop."),
        (lambda model: model.graph.node.add(op_type="Resize"), "operators that bundles may not use: Resize."),
        (
            lambda model: model.graph.node.add(op_type="EPContext", domain="com.microsoft"),
            "operators that bundles may not use: com.microsoft.EPContext.",
        ),
        (lambda model: model.graph.node.add(op_type=TERMINAL), "operators that bundles may not use"),
        (lambda model: external(model, location=TERMINAL), "cannot open"),
        (lambda model: model.graph.node.add(name=TERMINAL, op_type="Sum", output=["x"]), "cannot open"),
        (lambda model: model.ClearField("ir_version"), "cannot open"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_exporter_never_writes_is_refused(
    small_bundles: dict[Precision, Path], tmp_path: Path, change: Change, words: str
) -> None:
    assert words in refusal(changed(small_bundles["fp32"], tmp_path, change))


def expand(model: onnx.ModelProto) -> None:
    """Compute a constant of a million million values from two numbers."""
    model.graph.initializer.append(onnx.helper.make_tensor("one", 1, [1], [0.0]))
    model.graph.initializer.append(onnx.helper.make_tensor("shape", 7, [1], [10**12]))
    model.graph.node.append(onnx.helper.make_node("Expand", ["one", "shape"], ["huge"]))
    added_to_logits(model, "huge")


OPENING = """
import resource, sys
from edgeformer_runtime import Translator
from edgeformer_runtime.errors import ModelError
def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
Translator.open(sys.argv[1], threads=1).close()
before = used()
with Translator.open(sys.argv[2], threads=1) as translator:
    try:
        translator.translate(["A dog runs."])
    except ModelError as error:
        print(used() - before, error)
"""


@pytest.mark.skipif(os.name != "posix", reason="this system does not tell how much memory a process took")
def test_a_constant_computed_from_two_numbers_is_not_made_when_a_graph_is_opened(
    small_bundle: Path, tmp_path: Path
) -> None:
    """The engine computes no constants of more than 1 GiB in advance; a step that gets no memory is an error."""
    bundle = changed(small_bundle, tmp_path, expand)
    memory, error = python(OPENING, small_bundle, bundle).stdout.split(maxsplit=1)
    assert int(memory) < MEMORY
    assert "failed in `decoder.onnx`" in error


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x3a\x05\x0a", "truncated"),
        (b"\x08" + b"\xff" * 300_000, "truncated"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "truncated"),
        (b"\x3b\x3c", "not a graph"),  # a group
        (b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x7f", "truncated"),
        (b"ORTM" * 100, "not a graph"),
        (b"\x0a\x00" * (limits.MAX_GRAPH_FIELDS + 1), f"more than {limits.MAX_GRAPH_FIELDS:,} parts"),
    ],
    ids=range(7),
)
def test_damaged_files_are_refused_at_once(data: bytes, words: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=words):
        graph_operators(data)
    assert time.perf_counter() - begin < 10


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


@examples(60, 1000)
@given(random=st.randoms(use_true_random=True))
def test_operators_of_mutated_graphs_are_those_that_onnx_reads(random: Random) -> None:
    data = random_edits(random, (COMMITTED / "int4" / DECODER_FILE).read_bytes())
    try:
        operators, model = graph_operators(data), onnx.ModelProto.FromString(data)
    except (ValueError, DecodeError):
        return
    assert operators == operators_of(model)
    assert not model.functions
    assert not any(
        attribute.HasField("g") or attribute.graphs for node in model.graph.node for attribute in node.attribute
    )
