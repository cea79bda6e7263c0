"""Summary of the times of calls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec


class Timing(msgspec.Struct, kw_only=True, frozen=True):
    """Distribution of the time of a call, in milliseconds."""

    median_ms: float
    mean_ms: float
    p95_ms: float
    p99_ms: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Summarize the times of one or more calls, given in seconds."""
        times = [1000 * value for value in seconds]
        cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        mean = statistics.fmean(times)
        return cls(median_ms=cuts[49], mean_ms=mean, p95_ms=cuts[94], p99_ms=cuts[98], calls=len(times))
