"""How times are summarized: percentiles, and speeds as medians of paired ratios, with their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer_bench.rounds import Speed, SystemTimes, speeds
from edgeformer_bench.tables import speed_cells
from edgeformer_bench.timer import Timing

RANDOM = np.random.default_rng(0)


def score(seconds: np.typing.NDArray[np.float64]) -> SystemTimes:
    """A score of times ``(rounds, workloads)``."""
    return SystemTimes([[[value] for value in rounds] for rounds in seconds.T.tolist()])


def test_rounds_that_slow_down_all_systems_do_not_change_a_speed() -> None:
    times = RANDOM.uniform(1, 2, size=(6, 1)) * RANDOM.uniform(1, 5, size=(1, 20))
    noise = RANDOM.normal(1, 0.01, size=times.shape)
    result = speeds({"slow": score(times), "fast": score(times * noise / 3)}, "slow")
    assert result["slow"] == Speed(median=1.0, interval=None)
    fast = result["fast"]
    assert fast.interval is not None
    assert fast.interval.low <= 3.0 <= fast.interval.high
    assert fast.interval.high - fast.interval.low < 0.05
    # Medians that are not paired would be far less certain.
    assert np.ptp(np.median(times, axis=1)) > 0.3 * np.median(times)


def test_a_speed_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    reference, system = np.array([[1.0, 10.0, 20.0]]), np.array([[2.0, 2.0, 10.0]])
    result = speeds({"reference": score(reference), "system": score(system)}, "reference")
    assert result["system"].median == 2.0
    assert np.median(reference) / np.median(system) == 5.0


def test_what_failed_has_no_speed() -> None:
    scores = {"a": score(np.ones((2, 2))), "b": SystemTimes([[[1.0], []]], error="It failed.")}
    assert speeds(scores, "a").keys() == {"a"}
    assert speeds(scores, "b") == {}
    assert speeds(scores, "c") == {}
    assert speed_cells(None) == ("–", "–")


def test_one_call_has_no_interval() -> None:
    result = speeds({"a": score(np.array([[2.0]])), "b": score(np.array([[1.0]]))}, "a")
    assert result["b"] == Speed(median=2.0, interval=None)
    assert speed_cells(result["b"]) == ("2.00", "–")


def test_calls_of_a_turn_are_summarized_by_their_median() -> None:
    system = SystemTimes([[[1.0, 2.0, 9.0], [4.0]]])
    assert system.paired().tolist() == [[2.0], [4.0]]
    assert system.seconds == pytest.approx([1, 2, 9, 4])


def test_percentiles_are_those_of_the_sample() -> None:
    timing = Timing.of([index / 1000 for index in range(1, 102)])
    assert (timing.median_ms, timing.p95_ms, timing.p99_ms) == pytest.approx((51, 96, 100))
    assert (timing.mean_ms, timing.calls) == pytest.approx((51, 101))
    single = Timing.of([0.002])
    assert (single.median_ms, single.p99_ms, single.calls) == pytest.approx((2, 2, 1))
