"""Schedules that fit into the time there is."""

from __future__ import annotations

import pytest

from edgeformer.config import TrainConfig
from edgeformer.train.optimizer import learning_rate
from edgeformer.train.plan import planned_steps, shortened

CONFIG = TrainConfig(max_steps=1000, max_minutes=10, warmup_steps=200, cooldown_steps=300)


@pytest.mark.parametrize(
    ("step", "minutes", "expected"),
    [(5, 0.4, None), (5, 0.5, 100), (30, 0.5, 600), (50, 0.5, None), (90, 0.5, None), (400, 8.0, 500), (3, 20.0, 3)],
)
def test_updates_that_fit_are_estimated_once_the_speed_is_known(
    step: int, minutes: float, expected: int | None
) -> None:
    assert planned_steps(CONFIG, step, minutes) == expected


def test_without_a_limit_of_time_nothing_is_planned() -> None:
    assert planned_steps(TrainConfig(max_steps=1000), 5, 1e6) is None


def test_warm_up_and_cool_down_keep_their_shares() -> None:
    assert shortened(CONFIG, None) is CONFIG
    half = shortened(CONFIG, 500)
    assert (half.max_steps, half.warmup_steps, half.cooldown_steps) == (500, 100, 150)
    rates = [learning_rate(step, half, d_model=1) for step in range(1, 501)]
    assert max(rates) == rates[99] == CONFIG.learning_rate
    assert rates[-1] < rates[350] / 100
    assert learning_rate(520, half, d_model=1) == 0
