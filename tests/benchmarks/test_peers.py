"""Peers compute what our models compute, and the comparison keeps going when one of them fails."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

from edgeformer.quality.translators import run_translator
from edgeformer.run.folder import Run
from edgeformer_bench.peers import worker
from edgeformer_bench.peers.base import Contender, PeerError, PeerSpec
from edgeformer_bench.peers.ctranslate2 import CTranslate2Peer
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_bench.peers.own_loop import LoopPeer
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.peers.systems import PeerOptions, ours, peer
from edgeformer_bench.rounds import Contest, Workload
from edgeformer_runtime.engines.onnx_graphs import products_saturate
from tests import factory

TEXTS = [source for source, _ in factory.PAIRS[::9]]


def own(run: Run) -> LoopPeer:
    return LoopPeer("torch", run_translator(run, run.load_model()))


def encoded(run: Run) -> list[list[int]]:
    return run.source_tokenizer.encode_batch(TEXTS, special_tokens=True)


def test_ctranslate2_stops_where_the_model_has_no_more_positions(tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run")  # without training, so that no output ends
    convert_run(run, tmp_path / "model", "float32")
    peer = CTranslate2Peer(tmp_path / "model", "float32", threads=1)
    limit = run.load_model().max_target_length
    assert limit < 256
    for beam_size in (1, 4):
        output = peer.translate(encoded(run)[:2], beam_size=beam_size, length=None)
        assert {len(ids) for ids in output} == {limit}


def test_ctranslate2_int8_is_smaller_and_translates(taught_run: Run, tmp_path: Path) -> None:
    sizes = {}
    for quantization in ("float32", "int8"):
        convert_run(taught_run, tmp_path / quantization, quantization)
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
    assert sizes["int8"] < 0.5 * sizes["float32"]
    expected = own(taught_run).translate(encoded(taught_run), beam_size=1, length=None)
    output = CTranslate2Peer(tmp_path / "int8", "int8", threads=1).translate(
        encoded(taught_run), beam_size=1, length=None
    )
    assert [bool(ids) for ids in output] == [bool(ids) for ids in expected]
    if not products_saturate():  # where they do, CTranslate2's int8 products are wrong by up to a half
        assert sum(one == other for one, other in zip(output, expected, strict=True)) >= len(expected) - 2


def test_peers_are_told_the_device(tmp_path: Path) -> None:
    for precision in ("int8", "float32"):
        (tmp_path / f"ctranslate2-{precision}").mkdir()  # as if they had been converted
    there = peer("ctranslate2", tmp_path / "run", tmp_path, PeerOptions(threads=2, device="cuda"))
    assert [one.name for one in there] == ["CTranslate2 int8_float16", "CTranslate2 float16"]
    told = [[(spec.device, spec.settings["compute_type"], spec.environment) for spec in one.specs] for one in there]
    assert told == [[("cuda", "int8_float16", {})], [("cuda", "float16", {})]]
    here = peer("ctranslate2", tmp_path / "run", tmp_path, PeerOptions(threads=2))
    assert {(spec.device, spec.settings["compute_type"]) for one in here for spec in one.specs} == {
        ("cpu", "int8"),
        ("cpu", "float32"),
    }
    (torch_eager,) = peer("torch", tmp_path / "run", tmp_path, PeerOptions(threads=2, device="cuda"))
    (bundle,) = ours({"bundle": tmp_path}, 2, "cuda")
    assert [spec.device for one in (torch_eager, bundle) for spec in one.specs] == ["cuda", "cuda"]


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    spec = {"kind": "ctranslate2", "model": str(tmp_path), "settings": {"compute_type": "int8"}}
    answer = worker.answer(worker.Worker(), json.dumps(["open", {"spec": spec}]))
    assert answer["error"] == "`ctranslate2` is not installed: pip install 'edgeformer[bench]'."


def test_a_process_that_dies_tells_its_last_words(small_bundle: Path) -> None:
    with closing(PeerProcess(PeerSpec(kind="bundle", model=str(small_bundle)))) as process:
        assert process.version.startswith("onnxruntime ")
        process.process.kill()
        with pytest.raises(PeerError, match=r"ended with -?[0-9]+: it left no message"):
            process.ask("memory")


def test_contest(taught_run: Run, small_bundle: Path, tmp_path: Path) -> None:
    bundle = PeerSpec(kind="bundle", model=str(small_bundle))
    missing = PeerSpec(kind="bundle", model=str(tmp_path / "missing"))
    slow = PeerSpec(kind="bundle", model=str(small_bundle), threads=2, settings={"engine": "onnxruntime"})
    contenders = [
        Contender("bundle", (bundle,)),
        Contender("gone", (missing,)),
        Contender("fastest", (slow, missing, bundle)),
    ]
    workload = Workload(beam_size=1, sources=encoded(taught_run)[:2], length=10)
    done: list[float] = []
    with closing(Contest(contenders)) as contest:
        assert contest.errors.keys() == {"gone"}
        scores = contest.run([workload, workload], rounds=2, progress=done.append)
        assert "does not exist" in scores["gone"].error
        assert len(scores["bundle"].seconds) == 4
        expected = own(taught_run).translate(workload.sources, beam_size=1, length=10)
        assert contest.outputs(workload) == {"bundle": expected, "fastest": expected}
        too_long = Workload(beam_size=1, sources=workload.sources, length=10_000)
        scores = contest.run([too_long], rounds=1)
        assert all("tokens" in scores[name].error for name in ("bundle", "fastest"))
        assert contest.errors.keys() == {"bundle", "gone", "fastest"}
    assert done[-1] == 1
    assert done == sorted(done)


def test_a_system_that_fails_to_give_its_output_drops_out(small_bundle: Path) -> None:
    workload = Workload(beam_size=1, sources=[[5, 6, 3]], length=10)
    with closing(Contest([Contender("bundle", (PeerSpec(kind="bundle", model=str(small_bundle)),))])) as contest:
        assert not contest.run([workload], rounds=1)["bundle"].error
        assert contest.outputs(Workload(beam_size=1, sources=[[5, 6, 3]], length=10_000)) == {}
        assert "tokens" in contest.errors["bundle"]
        assert contest.run([workload], rounds=1)["bundle"].error == contest.errors["bundle"]


@pytest.mark.slow
def test_a_system_has_a_size_a_start_and_a_memory(small_bundle: Path, taught_run: Run) -> None:
    bundle, run = PeerSpec(kind="bundle", model=str(small_bundle)), PeerSpec(kind="torch", model=str(taught_run.path))
    assert bundle.model_bytes == sum(file.stat().st_size for file in small_bundle.iterdir())
    assert run.model_bytes == taught_run.model_path.stat().st_size + taught_run.source_tokenizer_path.stat().st_size
    with closing(Contest([Contender("bundle", (bundle,)), Contender("torch", (run,))])) as contest:
        assert all(0 < seconds < 60 for seconds in contest.start_seconds.values())
        ours, torch = contest.peak_mb("bundle"), contest.peak_mb("torch")
    if ours is not None and torch is not None:
        assert torch > ours > 10  # torch was not loaded for the bundle
