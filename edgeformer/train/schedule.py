"""Learning rate as a pure function of the step."""

from __future__ import annotations

import math

from edgeformer.config import TrainConfig


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """Rate of one update.

    ============ ==================================================================================================
    inverse_sqrt linear to ``learning_rate`` at ``warmup_steps``, then ``learning_rate * sqrt(warmup_steps / step)``
    noam         ``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``
                 (Vaswani et al. 2017, section 5.3)
    ============ ==================================================================================================

    Both are multiplied by a factor that falls linearly from 1 to 0 over the last ``cooldown_steps`` of ``max_steps``.

    Args:
        step: number of the update, from 1.
        config: section ``[train]``.
        d_model: width of the model, for ``noam``.
    """
    warmup = config.warmup_steps
    shape = min(step / warmup, math.sqrt(warmup / step))
    peak = config.learning_rate
    if config.schedule == "noam":
        # min(step ** -0.5, step * warmup ** -1.5) == warmup ** -0.5 * shape
        peak *= 1 / math.sqrt(d_model * warmup)
    if config.cooldown_steps:
        peak *= min(1.0, max(0, config.max_steps - step + 1) / (config.cooldown_steps + 1))
    return peak * shape
