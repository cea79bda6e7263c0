"""Writing bundles: content, atomicity, refusal of what is not the model."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from edgeformer.cli import main
from edgeformer.errors import ConfigError
from edgeformer.model.base import State
from edgeformer.model.build import build_model
from edgeformer.model.transformer.attention import Scoring
from edgeformer.model.transformer.model import Transformer
from edgeformer.run.folder import Run
from edgeformer.run.weights import save_weights
from edgeformer_export.export import ParityError, export_run, golden_texts
from edgeformer_export.kernels.plan import NotPlannableError, make_plan
from edgeformer_export.parity.report import ParityReport
from edgeformer_export.sample import grouped, sample_pairs, spread
from edgeformer_export.tracing import kernels
from edgeformer_export.traits import failed_validation, min_confidence
from edgeformer_export.weights import ALIGNMENT, WeightsFile
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.golden import check_golden
from edgeformer_runtime.engines.base import kernels_advice
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.forced_steps import Pair
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, rehash
from tests.commands import error
from tests.factory import small_recipe, small_run
from tests.store import Store, with_agreement


@pytest.fixture(scope="module")
def run(store: Store) -> Run:
    return store.run()


@pytest.fixture(scope="module")
def fp32(store: Store) -> Path:
    return store.bundle()


@pytest.fixture(scope="module")
def int8(store: Store) -> Path:
    return store.bundle(precision="int8")


def test_manifest_tells_what_is_in_the_bundle(fp32: Path, run: Run) -> None:
    manifest = open_bundle(fp32).manifest
    model = run.load_model()
    caches = {tensor.name for tensor in manifest.state if tensor.in_place}
    assert caches == {f"self_{part}.{layer}" for part in ("key", "value") for layer in range(2)}
    assert [one.name for one in manifest.state] == [one.name for one in model.state_table()]
    assert manifest.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert manifest.provenance.recipe["model"]["family"] == "transformer"
    assert manifest.report.parity is not None
    assert manifest.report.period is not None
    assert manifest.traits.needs_period == manifest.report.period["is_needed"]
    assert manifest.report.parity["logits"]["max_difference"] <= 1e-4
    with Translator.open(fp32) as translator:
        least = min_confidence(translator, golden_texts(sample_pairs(run, model)))
        assert manifest.traits.min_confidence == (1 if failed_validation(run.info.final) else least)
    assert set(manifest.files) == {path.name for path in fp32.iterdir()} - {"manifest.json", "manifest.json.sha256"}
    for name in (contract.ENCODER_FILE, contract.DECODER_FILE):
        graph = onnx.load(fp32 / name, load_external_data=False).graph
        assert sum(manifest.report.operators[name].values()) == len(graph.node)
    card = (fp32 / "README.md").read_text(encoding="utf-8")
    assert f"{manifest.parameters:,}" in card


def test_both_graphs_read_the_tied_table_from_one_place(fp32: Path, small_bundles: dict[Precision, Path]) -> None:
    types = {"fp32": onnx.TensorProto.FLOAT, "int8": onnx.TensorProto.INT8, "int4": onnx.TensorProto.UINT8}
    for precision, bundle in small_bundles.items():
        places = []
        for name in (contract.ENCODER_FILE, contract.DECODER_FILE):
            graph = onnx.load(bundle / name, load_external_data=False).graph
            places += [
                {entry.key: entry.value for entry in tensor.external_data}["offset"]
                for tensor in graph.initializer
                if len(tensor.dims) > 1 and tensor.dims[0] == 300 and tensor.data_type == types[precision]
            ]
        assert len(places) >= 2
        assert len(set(places)) == 1, bundle
    stored = (fp32 / contract.WEIGHTS_FILE).stat().st_size
    parameters = open_bundle(fp32).manifest.parameters
    positions = (256 + 40) * 32
    assert stored < 4 * (parameters + positions) * 1.05


def test_graphs_hold_no_trace_of_the_tracer(fp32: Path) -> None:
    for name in (contract.ENCODER_FILE, contract.DECODER_FILE):
        model = onnx.load(fp32 / name, load_external_data=False)
        assert not model.metadata_props
        assert all(not node.metadata_props and not node.doc_string for node in model.graph.node)
        axes = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
        assert axes == ({"N", "S"} if name == contract.ENCODER_FILE else {"N", "R", "S", "K", "T"})


def test_an_export_without_the_kernels_says_so_but_records_nothing_against_them(
    store: Store, int8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeformer_export.export.kernels_problem", lambda: "edgeformer-kernels is not installed here")
    report = export_run(store.run(), tmp_path / "without", precision="int8", model_graphs=store.model_graphs())
    manifest = open_bundle(tmp_path / "without").manifest
    assert report.kernels == "they are not installed here"
    assert manifest.plan is None
    assert not manifest.report.kernels
    assert "export it again" in kernels_advice(open_bundle(tmp_path / "without"))
    assert not kernels_advice(open_bundle(int8))


@pytest.mark.slow
def test_export_is_reproducible(run: Run, int8: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "again", precision="int8")
    for name in (contract.WEIGHTS_FILE, contract.ENCODER_FILE, contract.DECODER_FILE, contract.GOLDEN_FILE):
        assert (tmp_path / "again" / name).read_bytes() == (int8 / name).read_bytes(), name


@pytest.mark.slow
def test_a_dropped_mask_is_not_exported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmasked(query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        return kernels.portable_attention(query, key, value, scoring._replace(padding=None))

    monkeypatch.setattr(kernels, "ort_attention", unmasked)
    with pytest.raises(ExportError, match="do not match PyTorch: logits differ by up to"):
        export_run(run, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_differs_from_forward_on_text_only_is_the_models_mistake(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_graphs = store.model_graphs()  # its check of the contract has no text with a start token
    forward = Transformer.forward

    def unlike_step(self: Transformer, source: Tensor, length: Tensor, target: Tensor) -> Tensor:
        logits = forward(self, source, length, target)
        return logits + (target == 2)[:, :, None] * torch.linspace(-1, 1, logits.shape[2])

    monkeypatch.setattr(Transformer, "forward", unlike_step)
    with pytest.raises(
        ParityError, match=r"^In PyTorch, the model's `step` returns different logits than its `forward` .*, at "
    ):
        export_run(model_graphs.run, tmp_path / "bundle", model_graphs=model_graphs)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_breaks_the_contract_is_not_exported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Transformer.encode
    monkeypatch.setattr(Transformer, "encode", lambda self, source, length: encode(self, source, length * 0 + 2))
    with pytest.raises(ConfigError, match="breaks the contract: `step` returns different logits than `forward`"):
        export_run(run, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def python_on_values(self: Transformer, source: Tensor, source_length: Tensor) -> State:
    if source_length.max() > 3:  # this line is named
        source = source.clone()
    return ENCODE(self, source, source_length)


def loop_over_rows(self: Transformer, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
    return ATTEND(self, torch.stack(list(token)), position, state)


ENCODE, ATTEND = Transformer.encode, Transformer.step_with_attention


@pytest.mark.parametrize(
    ("method", "replaced", "problem"),
    [
        (python_on_values, "encode", r"data-dependent expression .* \(.*test_export\.py:{line}\)\."),
        pytest.param(
            loop_over_rows,
            "step_with_attention",
            r"tracing inferred a static shape of 6 for dimension .*token",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_traced_is_named(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    method: Callable[..., Any],
    replaced: str,
    problem: str,
) -> None:
    monkeypatch.setattr(Transformer, replaced, method)
    line = method.__code__.co_firstlineno + 1
    with pytest.raises(ExportError) as caught:
        export_run(run, tmp_path / "bundle")
    message, name = str(caught.value), replaced.partition("_")[0]
    assert re.match(rf"The model's `{name}` cannot be traced: \w+: .*{problem.replace('{line}', str(line))}", message)
    assert "\n" not in message
    assert message.endswith("values may not: see the rules in docs/your-own-model.md.")
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_that_torch_hides_is_one(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a module of torch is imported, handlers of its own raise what they miss of it."""

    encode = Transformer.encode

    def interrupted(model: Transformer, *inputs: Tensor) -> Any:
        if not torch.compiler.is_exporting():
            return encode(model, *inputs)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise AttributeError("module 'torch._dynamo' has no attribute 'exc'")  # noqa: B904

    monkeypatch.setattr(Transformer, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_run(run, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_numbers_are_not_exported(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    model = run.load_model()
    with torch.no_grad():
        next(iter(model.parameters()))[7, 3] = float("nan")
    save_weights(model, run.model_path)
    with pytest.raises(
        ModelError, match=r"weights that are not finite numbers: encoder_layers\.0\.attention\.query\.weight\."
    ):
        export_run(run, tmp_path / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_quantized_bundle_outside_its_bounds_is_written_on_demand_and_says_so(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, traits in with_agreement(1.1).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    model_graphs = store.model_graphs(steps=100)
    run = model_graphs.run
    with pytest.raises(ExportError, match=r"In int4, the model is too far .* a higher precision, or add --force"):
        export_run(run, tmp_path / "bundle", precision="int4", model_graphs=model_graphs)
    assert list(tmp_path.iterdir()) == []
    report = export_run(run, tmp_path / "bundle", precision="int4", model_graphs=model_graphs, force=True)
    (problem, *_) = report.parity.problems
    card = (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")
    assert f"**Outside the bounds of its precision, exported with --force:** {problem}." in card
    assert check_golden(Translator.open(tmp_path / "bundle")).problems == ()
    message = error("export", run.path, "--out", tmp_path / "b", "--force", code=2)
    assert "--force is for quantized bundles" in message


def test_existing_folders_are_safe(run: Run, fp32: Path, tmp_path: Path) -> None:
    before = (fp32 / "manifest.json").read_bytes()
    with pytest.raises(ExportError, match="--overwrite"):
        export_run(run, fp32)
    assert (fp32 / "manifest.json").read_bytes() == before
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(ExportError, match="something other than a bundle"):
        export_run(run, other, overwrite=True)
    assert (other / "cat.jpg").read_bytes() == b"meow"
    # A manifest alone makes no bundle: browsers' extensions have one too.
    (other / "manifest.json").write_text("{}")
    with pytest.raises(ExportError, match="something other than a bundle"):
        export_run(run, other, overwrite=True)
    assert (other / "cat.jpg").read_bytes() == b"meow"


def test_equal_tensors_are_stored_once_and_large_ones_on_pages(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    large, other = random.normal(size=(200, 200)).astype(np.float32), random.normal(size=(20, 20)).astype(np.float32)
    small = np.arange(3, dtype=np.float32)

    def model(arrays: dict[str, np.ndarray]) -> ir.Model:
        values = [ir.Value(name=name, const_value=ir.tensor(array)) for name, array in arrays.items()]
        graph = ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 20}, name="weights")
        return ir.Model(graph, ir_version=10)

    one, two = model({"a": large, "b": other, "tiny": small}), model({"c": other, "d": large})
    WeightsFile(tmp_path / "weights.bin").move([one, two])
    size = (tmp_path / "weights.bin").stat().st_size
    assert size == (tmp_path / "weights.bin").stat().st_size
    assert size <= large.nbytes + other.nbytes + ALIGNMENT
    for owner, arrays in ((one, {"a": large, "b": other, "tiny": small}), (two, {"c": other, "d": large})):
        for name, array in arrays.items():
            tensor = owner.graph.initializers[name].const_value
            assert tensor is not None
            np.testing.assert_array_equal(tensor.numpy(), array)
            assert isinstance(tensor, ir.ExternalTensor) == (array is not small)
            if array is large:
                assert isinstance(tensor, ir.ExternalTensor)
                assert (tensor.offset or 0) % ALIGNMENT == 0


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("lstm", "the families `transformer` and `ssru` only"),
        ("t5", "no biases by distance"),
        ("attention_encoder", "no encoder layers of attention alone"),
    ],
)
def test_the_kernels_say_which_models_they_lack(variant: str, message: str) -> None:
    model = build_model(small_recipe(variant), 30, 30)
    with pytest.raises(NotPlannableError, match=message):
        make_plan(model, [], {}, lambda array: 0)


def test_blocks_are_for_onnxruntime_only(run: Run, tmp_path: Path) -> None:
    arguments = ["export", str(run.path), "--out", str(tmp_path / "b"), "--precision", "int4"]
    failed = CliRunner().invoke(main, [*arguments, "--target", "portable"])
    assert failed.exit_code == 1
    assert failed.stderr.endswith(
        "Error: int4 needs ONNX Runtime's own operators; give --target ort, or --precision int8 for portable graphs.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_taught_model_is_within_the_bounds_of_every_precision(small_bundles: dict[Precision, Path]) -> None:
    """The store lowers one of them for models that are hardly trained; this one does not need that."""
    for path in small_bundles.values():
        parity = msgspec.convert(open_bundle(path).manifest.report.parity, ParityReport)
        assert parity.problems == []


def test_verify_opens_the_attention_graph_too(fp32: Path, tmp_path: Path) -> None:
    bundle = copy_of(fp32, tmp_path)
    (bundle / contract.ATTENTION_FILE).write_bytes(b"no graph")
    assert "`attention.onnx` is not a graph" in error("verify", str(rehash(bundle)))


def test_a_sample_with_sentences_too_long_for_the_model_is_no_obstacle(store: Store, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(store.run().path, tmp_path / "run"))
    sample, model = run.path / "sample.tsv", run.load_model()
    sample.write_text("word " * 400 + "\tmot\nThe dog.\tLe chien.\nThe sea.\t" + "mot " * 100 + "\n", encoding="utf-8")
    assert [pair.text for pair in sample_pairs(Run.open(run.path), model)] == ["The dog."]
    sample.write_text("word " * 400 + "\tmot\n", encoding="utf-8")
    with pytest.raises(ExportError, match="no sample of its training text"):
        sample_pairs(Run.open(run.path), model)


def test_items_are_spread_evenly() -> None:
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread(range(3), 8) == [0, 1, 2]
    assert spread(range(5), 1) == [0]
    assert spread([], 3) == []


@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=30),
    count=st.integers(1, 8),
    tokens=st.integers(1, 100),
)
def test_batches_have_few_pairs_and_tokens(lengths: list[tuple[int, int]], count: int, tokens: int) -> None:
    pairs = [([index] * source, [index] * target) for index, (source, target) in enumerate(lengths)]
    groups = list(grouped(pairs, count, tokens))
    assert [pair for _, group in groups for pair in group] == pairs

    def fits(group: Sequence[Pair]) -> bool:
        return len(group) <= count and len(group) * max(len(side) for pair in group for side in pair) <= tokens

    for start, group in groups:
        assert pairs[start : start + len(group)] == group
        assert len(group) == 1 or fits(group)
    for (_, group), (_, following) in pairwise(groups):
        assert not fits([*group, following[0]])  # no batch is smaller than it need be
