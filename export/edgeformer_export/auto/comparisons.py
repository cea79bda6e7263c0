"""Pairwise comparisons of candidates: which differences in quality and latency count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.bootstrap import BleuCounts, interval_of, median_interval, resampled_bleu
from edgeformer_runtime.interval import Interval

MIN_TIE = 0.1
"""Latencies are equal if their ratio differs from 1 by at most this, however significant the difference. What stays the
same during one run, such as the load of the machine, changes a ratio by as much in the next run."""

End = Literal["low", "median", "high"]


@dataclass(frozen=True)
class Median:
    """Median of a sample of times, or of ratios of paired times."""

    value: float
    """The median."""
    interval: Interval
    """Its confidence interval."""

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Median:
        """Compute the median of values ``(rounds, sentences)``, more than one in all."""
        interval = median_interval(values)
        assert interval is not None
        return cls(float(np.median(values)), interval)

    def at(self, end: End) -> float:
        """Return the median or an end of its interval."""
        return {"low": self.interval.low, "median": self.value, "high": self.interval.high}[end]


class Comparisons:
    """Compares candidates by name.

    Args:
        times: times of each candidate, ``(rounds, sentences)``, in milliseconds; those at the same place are paired.
        counts: BLEU statistics of each candidate on the same sentences, ``(N, 10)``.
    """

    def __init__(self, times: Mapping[str, NDArray[np.float64]], counts: Mapping[str, BleuCounts]) -> None:
        self._times = times
        self._ratios: dict[tuple[str, str], Median] = {}
        self._bleu = {name: resampled_bleu(of_candidate) for name, of_candidate in counts.items()}

    def ratio(self, first: str, second: str) -> Median:
        """Divide the first candidate's times by the second's."""
        pair = first, second
        if pair not in self._ratios:
            self._ratios[pair] = Median.of(self._times[first] / self._times[second])
        return self._ratios[pair]

    def deficit(self, first: str, second: str) -> Interval:
        """Return the confidence interval of the second candidate's BLEU minus the first's, by paired bootstrap."""
        return interval_of(self._bleu[second] - self._bleu[first])

    def is_slower(self, first: str, second: str, end: End = "median") -> bool:
        """Whether the first candidate takes significantly longer than the second, and by more than :data:`MIN_TIE`.

        Args:
            first: name of a candidate.
            second: name of the candidate that it is compared with.
            end: the end of the ratio's interval to compare with :data:`MIN_TIE`.
        """
        ratio = self.ratio(first, second)
        return ratio.interval.low > 1 and ratio.at(end) > 1 + MIN_TIE

    def is_worse(self, first: str, second: str) -> bool:
        """Whether the first candidate's BLEU is significantly lower than the second's."""
        return self.deficit(first, second).low > 0
