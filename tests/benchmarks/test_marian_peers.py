"""Marian and Firefox's engine translate models that are written back as they were before the import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")

import msgspec
import numpy as np
import torch

from edgeformer.config import recipe_from_tree
from edgeformer.importers.archive import read_npz
from edgeformer.importers.marian.binary import QuantizedMatrix, read_binary
from edgeformer.importers.marian.options import OPTIONS, model_config, read_options, refuse_unknown
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import run_translator
from edgeformer.run.folder import Run
from edgeformer.run.weights import save_weights
from edgeformer_bench.peers import bergamot, bergamot_model, marian_model
from edgeformer_bench.peers.base import PeerError, Spec
from edgeformer_bench.peers.marian_model import marian_arrays, marian_config
from edgeformer_bench.peers.own_loop import LoopPeer
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.peers.systems import PeerOptions, peer
from edgeformer_export.export import export_run
from edgeformer_runtime.tokenizer.tokenizer import read_content
from tests import factory
from tests.commands import error
from tests.commands import run as command
from tests.importers.bergamot_models import bergamot_files
from tests.importers.marian_models import MARIAN, expected

pytestmark = pytest.mark.usefixtures("one_thread")
MARIAN_PYTHON = os.environ.get("EDGEFORMER_MARIAN_PYTHON") or sys.executable
LANGUAGES: dict[str, Any] = {"source_language": "en", "target_language": "fr"}
MODELS = ["ssru", "self-attention"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Import a committed model; ``bergamot`` is ``ssru`` in 8 bits."""

    @cache
    def imported(name: str) -> Run:
        out, folder = tmp_path_factory.mktemp(name), MARIAN / name
        if name == "bergamot":
            folder = out / "model"
            folder.mkdir()
            for file, content in bergamot_files("ssru").items():
                (folder / file).write_bytes(content)
        found = read_model(folder, None, **LANGUAGES)
        text = [case.source for case in expected("ssru")[:200]]
        return write_run(found.model, out / "run", found.origin, text=text)

    return imported


def changed(run: Run, out: Path, **model: Any) -> Run:
    """Create a run with other options, and random values in what its model has in addition."""
    tree = {**msgspec.to_builtins(run.recipe), "model": {**run.recipe.model, **model}}
    recipe = recipe_from_tree(tree, "test")
    tokenizer = read_content(run.source_tokenizer_path)
    other = Run.create(out, recipe, tokenizer, tokenizer, sample=[("a", "b")], info=run.info)
    weights, built = run.load_model().state_dict(), other.build_model()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in built.state_dict(keep_vars=True).items():
            if name in weights and weights[name].shape == tensor.shape:
                tensor.copy_(weights[name])
            else:
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))
    save_weights(built, other.model_path)
    return other


def ours(run: Run) -> LoopPeer:
    return LoopPeer("torch", run_translator(run, run.load_model()))


# What is written.


@pytest.mark.parametrize("name", [*MODELS, "pre-norm"])
def test_marians_own_arrays_are_written(name: str, imported: Callable[[str], Run]) -> None:
    run, original = imported(name), read_npz(MARIAN / name / "model.npz")
    model = run.load_model()
    config = marian_config(run, model)
    arrays = marian_arrays(model, config)
    assert arrays.keys() == original.keys()
    for key, array in original.items():
        if key != OPTIONS:
            np.testing.assert_array_equal(arrays[key], array)
    options, others = (read_options(side, Path(name)) for side in (arrays, original))
    refuse_unknown(options)
    assert model_config(arrays, options) == model_config(original, others)
    assert options["dim-vocabs"] == others["dim-vocabs"]


def test_bergamots_own_integers_and_factors_are_written(imported: Callable[[str], Run], tmp_path: Path) -> None:
    run = imported("bergamot")
    (contender,) = peer("bergamot", run.path, tmp_path, PeerOptions())
    assert contender.name == "Bergamot int8"
    original = read_binary(next((run.path.parent / "model").glob("model*")))
    written = read_binary(tmp_path / "bergamot-int8" / bergamot.MODEL_FILE)
    assert original.keys() - written.keys() == {"Wemb_QuantMultA"}  # which no layer uses
    assert written.keys() <= original.keys()
    for name, item in written.items():
        other = original[name]
        if isinstance(item, QuantizedMatrix):
            assert isinstance(other, QuantizedMatrix)
            assert item.factor == other.factor
            np.testing.assert_array_equal(item.integers, other.integers)
        elif name != OPTIONS:
            np.testing.assert_array_equal(item, np.asarray(other))


# Firefox's engine.


def test_firefoxs_engine_translates_as_with_the_original_files(imported: Callable[[str], Run], tmp_path: Path) -> None:
    fxtranslate = pytest.importorskip("fxtranslate", reason="Firefox's engine is not installed")
    run = imported("bergamot")
    bergamot_model.convert_run(run, tmp_path / "converted", "int8")
    engine = bergamot.BergamotPeer(tmp_path / "converted")
    folder = run.path.parent / "model"
    vocabulary = next(folder.glob("vocab*")).read_bytes()
    model = next(folder.glob("model*")).read_bytes()
    original = fxtranslate.Translator(model=model, src_vocab=vocabulary, trg_vocab=vocabulary)
    texts = [case.source for case in expected("ssru")[:100]]
    outputs = engine.translate_texts(texts, beam_size=1)
    assert len(set(outputs)) > 90
    assert outputs == [original.translate(text) for text in texts]
    with pytest.raises(PeerError, match="greedy search only"):
        engine.translate([[3, 0]], beam_size=4, length=None)
    with pytest.raises(PeerError, match="given number of tokens"):
        engine.translate([[3, 0]], beam_size=1, length=7)
    with pytest.raises(PeerError, match="one thread"):
        bergamot.open_peer(Spec(kind="bergamot", model=str(tmp_path), threads=2))


@pytest.mark.slow
def test_bench_compares_with_firefoxs_engine(imported: Callable[[str], Run], tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate", reason="Firefox's engine is not installed")
    pytest.importorskip("onnxscript")
    run = imported("bergamot")
    bundle = export_run(run, tmp_path / "int8", precision="int8").bundle
    for extra in ([], ["--text-to-text"]):
        against = ("--against", "bergamot", "--checkpoint", run.path)
        result = command("bench", bundle, *against, *extra, "--threads", "1", "--repeat", "1", "--json", "-")
        assert result.exit_code == 0, result.output
        content = msgspec.json.decode(result.stdout)
        assert content["text_to_text"] == bool(extra)
        int8, engine = content["systems"]
        assert engine["version"].startswith("fxtranslate ")
        assert int8["identical"] == content["sentences"]
        # Where products saturate, half of the translations differ.
        assert content["sentences"] / 2 < engine["identical"] <= content["sentences"]


# Marian itself.


@cache
def marian_problem() -> str:
    """Why Marian cannot be started; empty if it can."""
    modules = "pymarian, edgeformer_bench.peers.worker, edgeformer_bench.peers.marian"
    done = subprocess.run([MARIAN_PYTHON, "-P", "-c", f"import {modules}"], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1:]
    return f"{last[0]}: pip install 'edgeformer[marian]', or set EDGEFORMER_MARIAN_PYTHON" if done.returncode else ""


@pytest.fixture
def marian_python() -> str:
    """An interpreter with ``pymarian``."""
    if problem := marian_problem():
        pytest.skip(problem)
    return MARIAN_PYTHON


def compare(run: Run, work: Path, python: str, texts: Sequence[str]) -> None:
    """Check that Marian gives the same tokens and texts, greedily and with four beams."""
    (contender,) = peer("marian", run.path, work, PeerOptions(pythons={"marian": python}))
    own, sources = ours(run), run.source_tokenizer.encode_batch(texts, special_tokens=True)
    with closing(PeerProcess(contender.specs[0])) as process:
        assert process.version.startswith("pymarian ")
        for beam_size in (1, 4):
            tokens = own.translate(sources, beam_size=beam_size, length=None)
            assert len({tuple(ids) for ids in tokens}) > len(texts) // 2
            asked = process.ask("translate", sources=sources, beam_size=beam_size, length=None)
            assert asked["output"] == tokens
            written = own.translate_texts(texts, beam_size=beam_size)
            assert process.ask("translate_texts", texts=texts, beam_size=beam_size)["output"] == written
        with pytest.raises(PeerError, match="given number of tokens"):
            process.ask("translate", sources=sources, beam_size=1, length=5)


@pytest.mark.parametrize("name", MODELS)
def test_marian_translates_as_the_imported_model(
    name: str, imported: Callable[[str], Run], marian_python: str, tmp_path: Path
) -> None:
    run, cases = imported(name), expected(name)[:100]
    compare(run, tmp_path, marian_python, [case.source for case in cases])
    assert ours(run).translate_texts([case.source for case in cases], beam_size=4) == [case.beam4 for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"positions": "none", "scale_embeddings": False},
        {"embedding_norm": True},
        {"final_norm": True},
        {"activation": "gelu"},
        {"output_bias": False, "decoder_d_ff": 96},
        {"tied_embeddings": "decoder"},
        {"tied_embeddings": "inputs"},
        {"tied_embeddings": "none"},
    ],
    ids=str,
)
def test_marian_computes_what_we_compute_with_other_options(
    model: dict[str, Any], imported: Callable[[str], Run], marian_python: str, tmp_path: Path
) -> None:
    """Options that no committed model has: whatever the model says, both must say it."""
    run = changed(imported("self-attention"), tmp_path / "run", **model)
    cases = expected("self-attention")[:40]
    (contender,) = peer("marian", run.path, tmp_path, PeerOptions(pythons={"marian": marian_python}))
    sources = run.source_tokenizer.encode_batch([case.source for case in cases], special_tokens=True)
    tokens = ours(run).translate(sources, beam_size=1, length=None)
    assert len({tuple(ids) for ids in tokens}) > 1
    with closing(PeerProcess(contender.specs[0])) as process:
        assert process.ask("translate", sources=sources, beam_size=1, length=None)["output"] == tokens


def test_beams_that_do_not_shrink_are_refused(
    imported: Callable[[str], Run], marian_python: str, tmp_path: Path
) -> None:
    run = changed(imported("ssru"), tmp_path / "run")
    run.update(generation=msgspec.structs.replace(run.info.generation, beam_shrinks=False))
    (contender,) = peer("marian", run.path, tmp_path, PeerOptions(pythons={"marian": marian_python}))
    with closing(PeerProcess(contender.specs[0])) as process:
        assert len(process.ask("translate", sources=[[40, 0]], beam_size=1, length=None)["output"]) == 1
        with pytest.raises(PeerError, match="`beam_shrinks`"):
            process.ask("translate", sources=[[40, 0]], beam_size=4, length=None)


# What is refused.


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"norm": "pre"}, '`norm` = "pre"'),
        ({"norm_epsilon": 1e-5}, "`norm_epsilon`, 1e-05"),
        ({"positions": "sinusoidal"}, "`positions`, 'sinusoidal'"),
        ({"scale_embeddings": False}, "`scale_embeddings`, False"),
        ({"activation": "gelu_sigmoid"}, "`activation`"),
        ({"relative_bias": {"buckets": 8, "max_distance": 20}}, "`relative_bias`"),
        ({"d_k": 8, "d_v": 8}, "`d_k`"),
        ({"encoder_attention_only": True}, "`encoder_attention_only`, True"),
    ],
    ids=str,
)
def test_options_that_marian_lacks_are_named(
    model: dict[str, Any], message: str, imported: Callable[[str], Run], tmp_path: Path
) -> None:
    run = changed(imported("self-attention"), tmp_path / "run", **model)
    with pytest.raises(PeerError, match=message):
        marian_model.convert_run(run, tmp_path / "model", "float32")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("variant", ["lstm", "post_norm"])
def test_models_that_are_not_marians_are_refused(variant: str, tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run", variant, model={} if variant == "lstm" else {"positions": "table"})
    with pytest.raises(PeerError, match="Of our families" if variant == "lstm" else "`norm_epsilon`"):
        marian_model.convert_run(run, tmp_path / "model", "float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [({"forbid": ()}, "the unknown token"), ({"target_prefix": ("<unk>",)}, "`target_prefix`")],
)
def test_other_formats_of_text_are_refused(
    text: dict[str, Any], message: str, imported: Callable[[str], Run], tmp_path: Path
) -> None:
    run = changed(imported("ssru"), tmp_path / "run")
    run.update(text=msgspec.structs.replace(run.info.text, **text))
    with pytest.raises(PeerError, match=message):
        marian_model.convert_run(Run.open(run.path), tmp_path / "model", "float32")


@pytest.mark.parametrize(
    ("name", "message"), [("self-attention", "`family` = 'ssru'"), ("ssru", "8-bit weights and scales")]
)
def test_models_that_are_not_bergamots_are_refused(
    name: str, message: str, imported: Callable[[str], Run], tmp_path: Path
) -> None:
    with pytest.raises(PeerError, match=message):
        bergamot_model.convert_run(imported(name), tmp_path / "model", "int8")


def test_a_missing_marian_is_named_with_its_extra(imported: Callable[[str], Run], tmp_path: Path) -> None:
    marian_model.convert_run(imported("ssru"), tmp_path / "model", "float32")
    spec = Spec(kind="marian", model=str(tmp_path / "model"))
    if find_spec("pymarian") is None:
        with pytest.raises(PeerError, match=r"`pymarian` is not installed: pip install 'edgeformer\[marian\]'"):
            PeerProcess(spec)
    with pytest.raises(PeerError, match="`no-python` cannot be started"):
        PeerProcess(msgspec.structs.replace(spec, python="no-python"))


def test_bench_says_what_a_peer_lacks(small_bundle: Path, taught_run: Run) -> None:
    against = ("--against", "marian", "--checkpoint", taught_run.path)
    assert "Marian has no model with this `positions`" in error("bench", small_bundle, *against)
    assert "`marian` is compared on the CPU only" in error("bench", small_bundle, *against, "--device", "cuda", code=2)


@pytest.mark.slow
def test_bench_compares_with_marian(imported: Callable[[str], Run], marian_python: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    run = imported("self-attention")
    bundle = export_run(run, tmp_path / "fp32").bundle
    against = ("--against", "marian", "--checkpoint", run.path, "--marian-python", marian_python)
    for extra in ([], ["--text-to-text"], ["--beam", "1", "--batch", "8"]):
        result = command("bench", bundle, *against, *extra, "--threads", "1", "--repeat", "1", "--json", "-")
        assert result.exit_code == 0, result.output
        content = msgspec.json.decode(result.stdout)
        assert [system["identical"] for system in content["systems"]] == [content["sentences"]] * 2
        assert content["reference"] == "Marian float32"
