"""The learning rate by steps and by minutes, on clocks that run evenly, unevenly, and not at all for a while."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.config import TrainConfig
from edgeformer.train.schedule import LearningRateSchedule, learning_rate, plan
from tests.amounts import examples
from tests.commands import two_processes


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


@pytest.mark.parametrize(
    ("max_steps", "expected"), [(1, 1), (9, 1), (300, 30), (9_999, 999), (10_000, 1000), (200_000, 1000)]
)
def test_a_warm_up_by_default_is_a_tenth_and_at_most_a_thousand_updates(max_steps: int, expected: int) -> None:
    config = TrainConfig(max_steps=max_steps)
    assert config.warmup == expected
    assert learning_rate(expected, config, 1) == config.learning_rate
    assert TrainConfig(max_steps=max_steps, warmup_steps=7).warmup == 7


class Clock(NamedTuple):
    """How fast a simulated training is; times are shares of 30 minutes."""

    updates: int
    """Number of updates that fit in at the first speed."""
    slow_start: float
    """Time that the first update takes in addition."""
    changes: list[tuple[float, float]]
    """Times from which on updates take longer, and how many times as long as at first."""
    pauses: list[tuple[float, float]]
    """Times at which the machine pauses, and for how long."""
    validation: float
    """Time of a validation, as a share of the updates before it."""
    resumed: list[float]
    """Times at which the training is interrupted and resumed."""
    seed: int
    """Of the jitter of each update."""

    def ticks(self) -> Iterator[tuple[float, float, bool]]:
        """Yield the times at which an update begins and ends, and whether it is the first of a session."""
        chance, now, validated = random.Random(self.seed), self.slow_start, 0.0
        pauses, resumed = sorted(self.pauses), sorted(self.resumed)
        for step in range(1, 100_000):
            slowdown = next((factor for since, factor in sorted(self.changes, reverse=True) if now >= since), 1.0)
            end = now + slowdown * chance.uniform(0.7, 1.5) / self.updates
            is_first = step == 1 or bool(resumed and now >= resumed[0])
            if step > 1 and is_first:
                resumed.pop(0)
            if pauses and now >= pauses[0][0]:
                end += pauses.pop(0)[1]
            yield now, end, is_first
            now = end
            if step % 20 == 0:
                now += self.validation * (now - validated)
                validated = now


share = st.floats(0.01, 0.8)
clocks = st.builds(
    Clock,
    updates=st.integers(500, 900),
    slow_start=st.floats(0, 0.1),
    changes=st.lists(st.tuples(share, st.floats(0.3, 3)), max_size=2),
    pauses=st.lists(st.tuples(share, st.floats(0, 0.1)), max_size=2),
    validation=st.floats(0, 0.5),
    resumed=st.lists(share, max_size=3),
    seed=st.integers(0, 9),
)


class Simulated(NamedTuple):
    """A simulated training."""

    rates: list[float]
    """Learning rate of each update, as shares of the peak."""
    positions: list[float]
    """Its position on the schedule."""
    times: list[float]
    """When it ended, as a share of 30 minutes."""


def simulated(config: TrainConfig, clock: Clock) -> Simulated:
    """Train until a limit is reached."""
    result, position = Simulated([], [], []), 0.0
    schedule = LearningRateSchedule(config, position)
    for step, (begin, end, is_first) in enumerate(clock.ticks(), 1):
        if is_first:
            schedule = LearningRateSchedule(config, position)
        asked = begin + 0.9 * (end - begin)  # gradients are computed before the rate is needed
        position = schedule.advance(step, 30 * asked)
        result.rates.append(learning_rate(position, config, 1) / config.learning_rate)
        result.positions.append(position)
        result.times.append(end)
        if step == config.max_steps or 30 * end >= (config.max_minutes or math.inf):
            break
    return result


configs = st.builds(
    lambda warmup, cooldown, steps: TrainConfig(
        max_steps=steps, max_minutes=30, warmup_steps=round(warmup * steps), cooldown_steps=round(cooldown * steps)
    ),
    st.floats(0.1, 0.3),
    st.floats(0.3, 0.7),
    st.sampled_from([300, 600, 1200, 100_000]),
)


@given(configs, clocks)
@examples(40, 300)
def test_warm_up_and_cool_down_happen_whatever_the_speed(config: TrainConfig, clock: Clock) -> None:
    """By steps, by minutes, or whichever comes first: ``max_steps`` are fewer, about as many or many more than fit."""
    run = simulated(config, clock)
    assert run.positions == sorted(run.positions)
    assert max(run.rates) > 0.85
    assert 0 < run.rates[-1] < 0.1
    assert min(run.rates) > 0
    assert max(abs(after - before) for before, after in pairwise([0.0, *run.rates])) < 0.3
    peak = run.rates.index(max(run.rates))
    idle = [time for time, rate in zip(run.times[peak:], run.rates[peak:], strict=True) if rate < 0.01]
    assert len(idle) < 0.1 * len(run.rates)


@given(configs, clocks)
@examples(10, 50)
def test_the_clock_has_no_influence_on_a_training_by_steps(config: TrainConfig, clock: Clock) -> None:
    for max_minutes in (None, 1e6):
        run = simulated(msgspec.structs.replace(config, max_steps=600, max_minutes=max_minutes), clock)
        assert run.positions == list(range(1, 601))


EVEN = Clock(updates=1000, slow_start=0, changes=[], pauses=[], validation=0, resumed=[], seed=0)
LONG = TrainConfig(max_steps=100_000, max_minutes=30, warmup_steps=14_000, cooldown_steps=78_000)


def test_even_speed_gives_the_same_shares_of_warm_up_and_cool_down() -> None:
    run = simulated(LONG, EVEN)
    updates = len(run.rates)
    assert run.rates.index(max(run.rates)) / updates == pytest.approx(0.14, abs=0.01)
    assert run.positions[updates // 2] == pytest.approx(50_000, rel=0.02)
    assert run.positions[-1] > 99_000


def test_more_time_continues_where_the_share_is_then() -> None:
    first = simulated(LONG, EVEN)
    more = LearningRateSchedule(msgspec.structs.replace(LONG, max_minutes=60), first.positions[-1])
    position = more.advance(len(first.positions) + 1, 30.0)
    assert position == pytest.approx(50_000)


@pytest.mark.parametrize(
    ("max_steps", "warmup", "cooldown"),
    [(500, 400, 2200), (300, 1000, 0), (300, 300, 0), (100, 60, 70), (100, 10, 95), (10, 3, 9), (7, 900, 900)],
)
def test_a_plan_that_never_gets_to_its_rate_says_how_far_it_gets(max_steps: int, warmup: int, cooldown: int) -> None:
    config = TrainConfig(max_steps=max_steps, warmup_steps=warmup, cooldown_steps=cooldown, learning_rate=1.0)
    ends, warning = plan(config)
    assert ends == (
        f"Training ends after {max_steps:,} updates: {warmup:,} of warm-up, {cooldown:,} of cool-down at the end."
    )
    match = re.search(r"highest (\d+)% into the training, at ([\d.]+)% of its peak\. Raise train\.max_steps", warning)
    assert match is not None
    made = rates(config)
    assert float(match[2]) == pytest.approx(100 * max(made), rel=0.01)
    assert int(match[1]) == pytest.approx(100 * (made.index(max(made)) + 1) / max_steps, abs=100 / max_steps)


@pytest.mark.parametrize(("max_steps", "warmup", "cooldown"), [(1, None, 0), (300, None, 0), (100, 50, 50)])
def test_a_plan_that_gets_to_its_rate_is_no_reason_to_warn(max_steps: int, warmup: int | None, cooldown: int) -> None:
    config = TrainConfig(max_steps=max_steps, warmup_steps=warmup, cooldown_steps=cooldown)
    assert max(rates(config)) == config.learning_rate
    assert len(plan(config)) == 1


def test_a_plan_by_minutes_is_in_shares() -> None:
    (line,) = plan(TrainConfig(max_steps=2800, max_minutes=1.5, warmup_steps=400, cooldown_steps=2200))
    assert line == (
        "Training ends after 2,800 updates or 1.5 min, whichever comes first: 14.3% of it is warm-up, 78.6% cool-down "
        "at the end."
    )


RATES = """
import time
from types import SimpleNamespace
from edgeformer.config import TrainConfig
from edgeformer.train.processes import launch
from edgeformer.train.state import TrainingState
from edgeformer.train.trainer import Trainer
config = TrainConfig(max_steps=1000, max_minutes=0.01)
fabric = launch(config)
run = SimpleNamespace(recipe=SimpleNamespace(train=config, model={"family": "transformer"}))
trainer = Trainer(run, fabric, TrainingState(None, None), None, None, None)
rates = []
for step in range(1, 10):
    time.sleep(0.05 * fabric.global_rank)
    rates.append(trainer.learning_rate(step))
print(f"{rates}\\n", end="")
"""


@pytest.mark.slow
def test_all_processes_go_by_the_clock_of_the_first() -> None:
    first, second = map(json.loads, two_processes("-c", RATES).splitlines())
    assert first == second
    assert first[-1] > 10 * first[0]  # by time, not by steps
