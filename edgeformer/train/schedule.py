"""The learning rate: its schedule, and how far along it a training is."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise

from edgeformer.config import TrainConfig

CATCH_UP = 3
"""How many times as fast as evenly the schedule may advance, to make up for time that a pause or a validation took."""


def learning_rate(position: float, config: TrainConfig, d_model: int) -> float:
    """Return the learning rate at a position of the schedule.

    ============ ==================================================================================================
    inverse_sqrt linear to ``learning_rate`` at ``warmup_steps``, then ``learning_rate * sqrt(warmup_steps / position)``
    noam         ``learning_rate * d_model ** -0.5 * min(position ** -0.5, position * warmup_steps ** -1.5)``
                 (Vaswani et al. 2017, section 5.3)
    ============ ==================================================================================================

    Over the last ``cooldown_steps`` of ``max_steps``, both are multiplied by a factor that falls linearly from 1 to 0.

    Args:
        position: number of the update, starting at 1, if only ``max_steps`` limit the training; see
            :class:`LearningRateSchedule`.
        config: section ``[train]``.
        d_model: width of the model, for ``noam``.
    """
    warmup = config.warmup
    shape = min(position / warmup, math.sqrt(warmup / position))
    peak = config.learning_rate
    if config.schedule == "noam":
        # min(position ** -0.5, position * warmup ** -1.5) == warmup ** -0.5 * shape
        peak *= 1 / math.sqrt(d_model * warmup)
    if config.cooldown_steps:
        peak *= min(1.0, max(0, config.max_steps - position + 1) / (config.cooldown_steps + 1))
    return peak * shape


class LearningRateSchedule:
    """How far along the schedule a training is, by the share of its time or of its steps, whichever is greater.

    The position counts the updates of a training that is limited by ``max_steps`` alone. If ``max_minutes`` come first,
    each update advances it by more than 1, so that the same warm-up and cool-down fit into fewer updates.

    Args:
        config: section ``[train]``.
        position: where the training has come to.
    """

    def __init__(self, config: TrainConfig, position: float) -> None:
        self.config, self.position = config, position
        self._clock: deque[float] = deque(maxlen=6)

    def advance(self, step: int, minutes: float) -> float:
        """Return the position of an update, counted from 1, after some training time; to be called once for each."""
        config = self.config
        goal, updates_left, speed = float(step), float(config.max_steps - step + 1), 1
        if config.max_minutes is not None:
            goal = max(goal, config.max_steps * min(1.0, minutes / config.max_minutes))
            self._clock.append(minutes)
            # The fastest of a few: neither a slow start of the program nor a pause is the speed of training.
            durations = [after - before for before, after in pairwise(self._clock)]
            if len(durations) >= 3 and min(durations) > 0:
                updates_left = min(updates_left, 1 + max(0.0, config.max_minutes - minutes) / min(durations))
                speed = CATCH_UP
        evenly = (config.max_steps - self.position) / updates_left
        self.position = min(goal, self.position + speed * evenly)
        return self.position


def plan(config: TrainConfig) -> list[str]:
    """Say when training ends and what its learning rate does, and warn if that never reaches its peak in time."""
    warmup, cooldown, steps = config.warmup, config.cooldown_steps, config.max_steps
    if config.max_minutes is None:
        lines = [f"Training ends after {steps:,} updates: {warmup:,} of warm-up, {cooldown:,} of cool-down at the end."]
    else:
        lines = [
            f"Training ends after {steps:,} updates or {config.max_minutes:g} min, whichever comes first: "
            f"{warmup / steps:.1%} of it is warm-up, {cooldown / steps:.1%} cool-down at the end."
        ]
    if warmup + max(1, cooldown) > steps > 1:
        # The rate rises to the end of the warm-up, or to half of the training if the cool-down has begun by then.
        best = min(warmup, max(steps - cooldown, (steps + 1) / 2))
        highest = best / warmup * min(1.0, (steps - best + 1) / (cooldown + 1))
        lines.append(
            f"Warning: {warmup:,} updates of warm-up and {cooldown:,} of cool-down do not fit into train.max_steps = "
            f"{steps:,}. The learning rate is highest {best / steps:.0%} into the training, at {100 * highest:.3g}% of "
            "its peak. Raise train.max_steps, or lower train.warmup_steps and train.cooldown_steps."
        )
    return lines
