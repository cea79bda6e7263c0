"""The final model of a run: the mean of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer.errors import TrainingError
from edgeformer.model.base import EncoderDecoder
from edgeformer.train.checkpoints.averaging import averaged_steps, load_average, weights_path
from edgeformer.train.checkpoints.weights import save_weights
from edgeformer.train.run import Run, Validation
from edgeformer.train.validation import Validator


def write_final_model(
    run: Run, model: EncoderDecoder, validator: Validator, validations: Sequence[Validation]
) -> Validation:
    """Average the recipe's checkpoints, and write the model and what ``run.json`` says about it.

    If the mean of the best checkpoints has a higher loss than the best one alone, that one is written.

    Args:
        run: the run folder.
        model: receives the weights.
        validator: scores the final model.
        validations: all validations of the training.

    Returns:
        Figures of the final model.

    Raises:
        TrainingError: there is no checkpoint.
    """
    config = run.recipe.train
    steps = averaged_steps(validations, config)
    if not steps:
        raise TrainingError("Training ended before its first validation, so there is no checkpoint to average.")

    def validate_mean(steps: Sequence[int]) -> Validation:
        load_average(model, [weights_path(run.checkpoints, step) for step in steps])
        minutes = validations[-1].minutes
        return validator(model, step=max(steps), minutes=minutes)

    final = validate_mean(steps)
    best_loss = min(validation.loss for validation in validations)
    if config.average_of == "best" and len(steps) > 1 and final.loss > best_loss:
        steps = steps[:1]
        final = validate_mean(steps)
    save_weights(model, run.model_path)
    run.update(final=final, averaged_steps=tuple(sorted(steps)))
    return final
