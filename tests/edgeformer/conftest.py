"""Fixtures of the tests of data and training."""

from __future__ import annotations

from functools import cache

import pytest

from edgeformer.data import dates

generate_once = cache(dates.generate_dates)


@pytest.fixture
def dates_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give dates that an earlier test has generated, which takes seconds and depends on size and seed alone."""
    monkeypatch.setattr(dates, "generate_dates", lambda **settings: list(generate_once(**settings)))
