"""Alternating rounds: whose turn it is, what counts, and how times are summarized."""

from __future__ import annotations

from functools import partial

import pytest

from edgeformer_bench.timer import MIN_ROUNDS, Timing, alternate_heats, timed


def test_each_round_starts_with_another_contestant() -> None:
    order: list[str] = []
    done: list[float] = []

    def turn(name: str) -> int:
        order.append(name)
        return len(order)

    (results,) = alternate_heats(
        [{name: partial(turn, name) for name in "abc"}], rounds=3, warmup=1, progress=done.append
    )
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert results == {"a": [4, 9, 11], "b": [5, 7, 12], "c": [6, 8, 10]}  # without the warm-up
    assert done == sorted(done)
    assert done[-1] == 1


def test_contestants_of_a_heat_directly_follow_each_other() -> None:
    order: list[str] = []

    def turn(name: str, heat: int) -> str:
        order.append(f"{name}{heat}")
        return order[-1]

    heats = [{name: partial(turn, name, heat) for name in "ab"} for heat in range(3)]
    results = alternate_heats(heats, rounds=2, warmup=0)
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2", *("b0", "a0", "a1", "b1", "b2", "a2")]
    assert results == [{name: [f"{name}{heat}"] * 2 for name in "ab"} for heat in range(3)]


def test_a_time_limit_leaves_enough_rounds() -> None:
    assert alternate_heats([{"a": lambda: 0}], rounds=50, seconds=0.0) == [{"a": [0] * MIN_ROUNDS}]
    assert alternate_heats([{"a": lambda: 0}], rounds=2, seconds=0.0) == [{"a": [0] * 2}]
    assert alternate_heats([{"a": lambda: 0}], rounds=50, seconds=60.0) == [{"a": [0] * 50}]


def test_a_timed_call_returns_its_seconds() -> None:
    calls: list[int] = []
    assert 0 <= timed(lambda: calls.append(1))() < 1
    assert calls == [1]


def test_percentiles_are_those_of_the_sample() -> None:
    timing = Timing.of([index / 1000 for index in range(1, 102)])
    assert (timing.median_ms, timing.p25_ms, timing.p75_ms) == pytest.approx((51, 26, 76))
    assert (timing.p95_ms, timing.p99_ms, timing.mean_ms) == pytest.approx((96, 100, 51))
    assert (timing.min_ms, timing.max_ms, timing.calls) == pytest.approx((1, 101, 101))
    single = Timing.of([0.002])
    assert (single.median_ms, single.p99_ms, single.calls) == pytest.approx((2, 2, 1))
