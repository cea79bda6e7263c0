"""The time of a decoder step: which steps are timed and that the figures are consistent, not how large they are."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner, Result

from edgeformer.errors import ConfigError
from edgeformer_bench.studies import step_time
from edgeformer_bench.studies.step_time import WARMUP, main, step_times, time_steps
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.decoding.session import FloatArray, IntArray
from edgeformer_runtime.errors import ModelError
from tests.toy import ToySession, ToyState


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


class ReusedBuffer(ToyState):
    """A state that returns the same memory in every step, as real ones do."""

    buffer = np.zeros((2, 8), np.float32)

    def step(self, token: IntArray) -> FloatArray:
        self.buffer[:] = super().step(token)
        return self.buffer


class RecordingSession(ToySession):
    """Keeps the states that it has started; if they are shared, there is only one, which gets longer and longer."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.shared, self.states = shared, list[ReusedBuffer]()

    def start(self, source: IntArray, source_length: IntArray) -> ToyState:
        if not self.states or not self.shared:
            started = super().start(source, source_length)
            self.states.append(ReusedBuffer(self, started.sources, started.prefixes))
        return self.states[-1]


SOURCE = np.array([[4, 5, 3], [6, 4, 3]])
TARGET = np.array([[2, 4, 5, 6, 7], [2, 7, 6, 5, 4]])


def test_every_timed_step_starts_from_a_state_of_its_position() -> None:
    session = RecordingSession(shared=False)
    seconds = time_steps(session, SOURCE, TARGET, (3, 0), repeat=2)
    assert {position: len(times) for position, times in seconds.items()} == {3: 2, 0: 2}
    assert len(session.states) == WARMUP + 2, "each round decodes from the start"
    # Nothing beyond the last of the positions was fed, and nothing twice.
    assert all(state.prefixes == ((2, 4, 5, 6), (2, 7, 6, 5)) for state in session.states)


def test_a_state_that_goes_on_from_the_round_before_is_refused() -> None:
    with pytest.raises(ModelError, match="two rounds give different logits at position 0"):
        time_steps(RecordingSession(shared=True), SOURCE, TARGET, (0, 3), repeat=2)


def test_figures_are_consistent(small_bundle: Path) -> None:
    limit = open_bundle(small_bundle).manifest.max_target_length
    first, *others = times = step_times(small_bundle, (3, 0, limit - 1), batch=2, source_length=7, repeat=3)
    assert [at.position for at in times] == [3, 0, limit - 1]
    assert first.ratio == 1
    assert all(0 < at.min_ms <= at.median_ms for at in times)
    assert [at.ratio for at in others] == pytest.approx([at.median_ms / first.median_ms for at in others])


def test_command(small_bundle: Path, small_bundle_int8: Path) -> None:
    options = ("--position", "1", "--position", "9", "--repeat", "2")
    with mock.patch.object(step_time, "step_times", wraps=step_times) as timed:
        result = run(small_bundle, small_bundle_int8, *options)
    assert result.exit_code == 0, result.output
    settings = {"source_length": 20, "batch": 1, "threads": 1, "repeat": 2}
    assert timed.call_args_list == [mock.call(path, (1, 9), **settings) for path in (small_bundle, small_bundle_int8)]
    assert result.output.count(" 1.00") >= 2  # the ratio at the first position


def test_errors(small_bundle: Path, tmp_path: Path) -> None:
    manifest = open_bundle(small_bundle).manifest
    limit = manifest.max_target_length
    with pytest.raises(ConfigError, match=f"`max_target_length` is {limit}, so the last one is {limit - 1}"):
        step_times(small_bundle, (0, limit))
    with pytest.raises(ConfigError, match=f"at most {manifest.max_source_length} tokens"):
        step_times(small_bundle, (0,), source_length=manifest.max_source_length + 1)
    with pytest.raises(ConfigError, match="at least one position"):
        step_times(small_bundle, ())
    result = run(small_bundle, "--position", str(limit))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"has no position {limit}" in result.stderr
    assert "does not exist" in run(tmp_path / "missing").stderr
