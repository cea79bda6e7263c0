"""Fixtures for tests of data and training."""

from __future__ import annotations

from functools import partial

import pytest

from edgeformer.data import dates


@pytest.fixture
def few_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the corpus of dates have 3,000 pairs, since 60,000 take seconds."""
    monkeypatch.setattr(dates, "generate_dates", partial(dates.generate_dates, size=3000))
