"""The program behind ``make bench``: what it measures and writes; not how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnxscript")

from click.testing import CliRunner, Result

from edgeformer.run.folder import Run
from edgeformer_bench import presets
from edgeformer_bench.compare import PeerSelection, compare
from edgeformer_bench.latency import BenchmarkOptions
from edgeformer_bench.peers import systems
from edgeformer_bench.peers.base import PeerError
from edgeformer_runtime.tokenizers import Tokenizer


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(presets.main, [str(argument) for argument in arguments])


def fails(*_: object) -> None:
    raise PeerError("It has no such layer.")


@pytest.mark.slow
def test_presets_are_compared_on_every_workload(
    taught_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "random_run", lambda path, preset, vocab_size: taught_run)
    monkeypatch.setattr(systems, "_convert", fails)
    sizes = ("--preset", "tiny", "--workload", "1x1", "--workload", "32x4", "--length", "4", "--length", "6")
    ours = ("--precision", "fp32", "--precision", "int8", "--against", "torch", "--against", "ctranslate2")
    result = run("--json", tmp_path / "x.json", *sizes, *ours, "--rounds", "1", "--vocab-size", "1000")
    assert result.exit_code == 0, (result.output, result.exception)
    report = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert [
        (entry["batch_size"], entry["beam_size"], entry["lengths"], entry["sentences"], entry["reference"])
        for entry in report["comparisons"]
    ] == [
        (1, 1, [4, 6], 8, "torch eager"),
        (32, 4, [4, 6], 32, "torch eager"),
        (1, 1, [6, 9], 8, "torch eager"),
        (32, 4, [6, 9], 32, "torch eager"),
    ]
    for entry in report["comparisons"]:
        fp32, int8, torch, missing = entry["systems"]
        assert [system["system"] for system in (fp32, int8, torch)] == ["tiny fp32", "tiny int8", "torch eager"]
        assert torch["identical"] == fp32["identical"] == entry["sentences"]
        assert int8["bytes"] < fp32["bytes"]
        assert int8["start_seconds"] > 0
        assert missing["error"] == "It has no such layer."
    assert "8 sentences, 4 → 6 tokens, greedy, batch 1, cpu, 1 thread" in " ".join(result.stdout.split())
    assert "ctranslate2 was not measured: It has no such layer." in result.stdout


def test_more_threads_than_processors_are_refused() -> None:
    assert "must not exceed that" in run("--threads", "9999").stderr


def test_a_comparison_without_any_peer_is_an_error(
    small_bundle: Path, taught_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "_convert", fails)
    against = PeerSelection(peers=("ctranslate2",), run=taught_run.path)
    with pytest.raises(PeerError, match="It has no such layer"):
        compare([small_bundle], [[5, 6, 3]], BenchmarkOptions(repeat=1), against)


def test_random_weights_with_a_large_vocabulary(tmp_path: Path) -> None:
    run = presets.random_run(tmp_path / "run", "tiny", 5000)
    assert run.source_tokenizer.vocab_size == run.build_model().target_vocab_size == 5000
    tokenizer = Tokenizer.from_file(run.source_tokenizer_path)
    text = "Monday, March 3, 2031"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) < len(text)
    assert max(tokenizer.encode(text)) < presets.TRAINED_TOKENS
