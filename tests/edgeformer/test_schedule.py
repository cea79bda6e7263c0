from __future__ import annotations

import pytest

from edgeformer.config import TrainConfig
from edgeformer.train.optimizer import learning_rate


def rates(config: TrainConfig, d_model: int = 64) -> list[float]:
    """Rates of updates 1 … max_steps."""
    return [learning_rate(step, config, d_model) for step in range(1, config.max_steps + 1)]


@pytest.mark.parametrize("warmup", [1, 10, 400])
def test_noam_is_the_formula_of_the_paper(warmup: int) -> None:
    config = TrainConfig(schedule="noam", warmup_steps=warmup, learning_rate=2.0, max_steps=1000)
    expected = [2.0 * 64**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 1001)]
    assert rates(config) == pytest.approx(expected)


def test_inverse_sqrt_rises_to_the_rate_and_halves_at_four_times_the_warmup() -> None:
    config = TrainConfig(warmup_steps=100, learning_rate=3e-3, max_steps=400)
    rate = rates(config)
    assert rate[0] == pytest.approx(3e-5)
    assert rate[99] == max(rate) == pytest.approx(3e-3)
    assert rate[399] == pytest.approx(1.5e-3)
    assert rate[:100] == sorted(rate[:100])
    assert rate[99:] == sorted(rate[99:], reverse=True)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "noam"])
def test_cooldown_is_a_straight_factor_that_ends_just_above_zero(schedule: str) -> None:
    fields = {"warmup_steps": 20, "max_steps": 100}
    plain = rates(TrainConfig(schedule=schedule, **fields))  # type: ignore[arg-type]  # a Literal from parametrize
    cooled = rates(TrainConfig(schedule=schedule, cooldown_steps=9, **fields))  # type: ignore[arg-type]  # likewise
    factors = [after / before for after, before in zip(cooled, plain, strict=True)]
    assert factors[:91] == pytest.approx([1.0] * 91)
    assert factors[91:] == pytest.approx([left / 10 for left in range(9, 0, -1)])


def test_without_cooldown_the_end_of_training_has_no_influence() -> None:
    short, long = (TrainConfig(warmup_steps=5, max_steps=steps) for steps in (10, 1000))
    assert [learning_rate(step, short, 8) for step in range(1, 30)] == [learning_rate(s, long, 8) for s in range(1, 30)]
