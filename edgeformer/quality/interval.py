"""Confidence intervals, as reports record them."""

from __future__ import annotations

import msgspec


class Interval(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A 95 % confidence interval."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""

    def contains(self, value: float) -> bool:
        """Whether a value is inside, ends included."""
        return self.low <= value <= self.high

    def __format__(self, spec: str) -> str:
        """Format both ends: ``f"{interval:+.2f}"`` is ``-0.05 to +0.30``."""
        return f"{self.low:{spec}} to {self.high:{spec}}"
