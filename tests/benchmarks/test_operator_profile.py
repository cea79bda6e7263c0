"""The profile of a decoder step: that its parts are those of the graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer_bench.studies.operator_profile import main, profile
from edgeformer_runtime.bundle.open import open_bundle


@pytest.mark.parametrize("beam_size", [1, 2])
def test_parts_are_those_of_the_graph(small_bundle_int8: Path, beam_size: int) -> None:
    step = profile(open_bundle(small_bundle_int8), sentences=2, beam_size=beam_size, repeat=2)
    calls = {operator.name: operator.calls for operator in step.operators}
    assert calls["DecoderMaskedMultiHeadAttention"] == 2  # one per layer, at each step
    vocabulary = open_bundle(small_bundle_int8).manifest.target_vocab_size
    assert any(name.endswith(f" to {vocabulary:,}") for name in calls)
    times = [operator.microseconds for operator in step.operators]
    assert times == sorted(times, reverse=True)
    assert times[-1] >= 0
    assert min(step.step, step.host) > 0
    assert [operator.name for operator in step.search if "Softmax" in operator.name] == ["LogSoftmax"] * (beam_size > 1)


def test_command(small_bundle_int8: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(small_bundle_int8), "--beam", "2", "--repeat", "1"])
    assert result.exit_code == 0, result.output
    assert "search and copies" in result.output
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
