"""Rates of clients: how much each may ask for, and when it may again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.serve import access
from edgeformer_runtime.serve.access import RateLimiter
from edgeformer_runtime.serve.errors import ApiError

REQUESTS = st.lists(st.tuples(st.floats(0, 90), st.integers(1, 9)), min_size=1, max_size=60)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def is_allowed(limiter: RateLimiter, limit: int, cost: int, client: str = "one") -> bool:
    try:
        limiter.check(client, limit, cost)
    except ApiError:
        return False
    return True


@given(REQUESTS, st.integers(1, 20))
def test_no_client_gets_more_than_its_rate_and_each_gets_that(requests: list[tuple[float, int]], limit: int) -> None:
    clock, limiter, begun = Clock(), RateLimiter(), 1000.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "time", clock)
        total = 0
        for number, (pause, cost) in enumerate(requests):
            clock.now += pause
            total += min(cost, limit) * is_allowed(limiter, limit, cost)
            assert total <= limit + (clock.now - begun) * limit / 60 + 1e-6
            assert is_allowed(limiter, limit, limit, f"another {number}")
        clock.now += 60.001
        assert is_allowed(limiter, limit, limit)
        assert not is_allowed(limiter, limit, 1)
        clock.now += 60.001 / limit
        assert is_allowed(limiter, limit, 1)
        assert not is_allowed(limiter, limit, 1)


def test_the_time_to_wait_is_that_after_which_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limiter = Clock(), RateLimiter()
    monkeypatch.setattr(access, "time", clock)
    limiter.check("one", 6, 6)
    with pytest.raises(ApiError) as refused:
        limiter.check("one", 6, 3)
    assert refused.value.headers == {"Retry-After": "30"}
    clock.now += 29.9
    assert not is_allowed(limiter, 6, 3)
    clock.now += 0.2
    assert is_allowed(limiter, 6, 3)


def test_the_client_that_was_seen_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_CLIENTS", 2)
    limiter = RateLimiter()
    for client in ("one", "two", "one", "three"):
        is_allowed(limiter, 1, 1, client)
    assert not is_allowed(limiter, 1, 1, "one")
    assert is_allowed(limiter, 1, 1, "two")
