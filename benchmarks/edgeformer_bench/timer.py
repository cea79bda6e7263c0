"""Fair timing: contestants take turns in every round, so that a temporary slowdown of the machine affects all of
them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

Name = TypeVar("Name")
Result = TypeVar("Result")

MIN_ROUNDS = 3
"""Minimum number of measured rounds before a time limit applies."""


class Timing(msgspec.Struct, kw_only=True, frozen=True):
    """Distribution of the time of a call, in milliseconds."""

    median_ms: float
    mean_ms: float
    p25_ms: float
    p75_ms: float
    p95_ms: float
    p99_ms: float
    min_ms: float
    max_ms: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Summarize the times of one or more calls, given in seconds."""
        times = [1000 * value for value in seconds]
        cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        return cls(
            median_ms=cuts[49],
            mean_ms=statistics.fmean(times),
            p25_ms=cuts[24],
            p75_ms=cuts[74],
            p95_ms=cuts[94],
            p99_ms=cuts[98],
            min_ms=min(times),
            max_ms=max(times),
            calls=len(times),
        )


def alternate_heats(
    heats: Sequence[Mapping[Name, Callable[[], Result]]],
    *,
    rounds: int,
    warmup: int = 1,
    seconds: float = math.inf,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[dict[Name, list[Result]]]:
    """Run all heats in every round. In a heat, the contestants take one turn each, one directly after the other; who
    begins changes from round to round and from heat to heat.

    Args:
        heats: what each contestant does in its turn, by name, for each heat.
        rounds: number of measured rounds.
        warmup: number of warm-up rounds, whose results are discarded.
        seconds: time limit, warm-up included; ends the contest early, but not before :data:`MIN_ROUNDS` rounds.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Results of the measured turns, one per round, by name, for each heat.
    """
    results: list[dict[Name, list[Result]]] = [{name: [] for name in turns} for turns in heats]
    begin = time.perf_counter()
    for number in range(-warmup, rounds):
        if number >= MIN_ROUNDS and time.perf_counter() - begin > seconds:
            break
        for heat, turns in enumerate(heats):
            names = list(turns)
            first = (max(0, number) + heat) % max(1, len(names))
            for name in names[first:] + names[:first]:
                result = turns[name]()
                if number >= 0:
                    results[heat][name].append(result)
        of_time = (time.perf_counter() - begin) / max(seconds, 1e-9) if number + 1 >= MIN_ROUNDS else 0.0
        progress(min(1.0, max(of_time, (number + warmup + 1) / (rounds + warmup))))
    progress(1.0)
    return results


def timed(call: Callable[[], Any]) -> Callable[[], float]:
    """Wrap a call as a turn that returns its elapsed time in seconds."""

    def turn() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return turn
