"""Fits a recipe's schedule to the time there is."""

from __future__ import annotations

import msgspec

from edgeformer.config import TrainConfig

MEASURED_SHARE = 0.05
"""Share of ``max_minutes`` after which the speed of training is known well enough to plan the rest."""


def planned_steps(config: TrainConfig, step: int, minutes: float) -> int | None:
    """Estimate how many updates fit into ``max_minutes``.

    Args:
        config: section ``[train]``.
        step: updates made.
        minutes: training time.

    Returns:
        The number of updates; ``None`` if it is too early to tell, or if ``max_steps`` fit.
    """
    if config.max_minutes is None or minutes < MEASURED_SHARE * config.max_minutes:
        return None
    steps = max(step, round(step * config.max_minutes / minutes))
    return steps if steps < config.max_steps else None


def shortened(config: TrainConfig, steps: int | None) -> TrainConfig:
    """Return a schedule of fewer updates, whose warm-up and cool-down take the same shares of it as before.

    Args:
        config: section ``[train]``.
        steps: the number of updates; ``None`` for the schedule as it is.
    """
    if steps is None:
        return config
    share = steps / config.max_steps
    return msgspec.structs.replace(
        config,
        max_steps=steps,
        warmup_steps=max(1, round(share * config.warmup_steps)),
        cooldown_steps=round(share * config.cooldown_steps),
    )
