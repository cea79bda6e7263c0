"""The work between updates: report, validate, save, and decide whether to stop."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from lightning_fabric import Fabric
from torch import Tensor

from edgeformer.errors import TrainingError
from edgeformer.run.folder import RESUME_FILE, Run
from edgeformer.run.info import Validation
from edgeformer.run.weights import save_weights
from edgeformer.train.checkpoints.averaging import averaged_steps, best_steps, keep_only, weights_path
from edgeformer.train.checkpoints.checkpoint import TrainingState
from edgeformer.train.gpu import LaterRead
from edgeformer.train.loop import Update
from edgeformer.train.processes import Agreement
from edgeformer.train.report.display import TrainingDisplay
from edgeformer.train.report.metrics import MetricsLog
from edgeformer.train.schedule import Schedule, learning_rate
from edgeformer.train.stopping import Interrupted, SignalWatch, StopReason, limit_reached
from edgeformer.train.validation import Validator

LOG_SECONDS = 5.0
"""Minimum time between two reports; reading the loss waits for the device."""


@dataclass
class _Interval:
    """The updates since the last report."""

    started: float = field(default_factory=time.monotonic)
    steps: int = 0
    tokens: int = 0
    loss: Tensor | float = 0.0


class Supervisor:
    """Acts after every update. All processes run one and agree on when to stop.

    Args:
        run: the run folder.
        fabric: connects the processes.
        state: what the loop trains; its progress is counted here.
        d_model: width of the model, for the schedule ``noam``.
        validator: scores the model, on the first process.
        display: shows the progress to a person.
        log: receives the metrics; ``None`` on all processes but the first, which alone writes.
        signals: says whether the process was asked to end.
    """

    def __init__(
        self,
        run: Run,
        fabric: Fabric,
        state: TrainingState,
        *,
        d_model: int,
        validator: Validator,
        display: TrainingDisplay,
        log: MetricsLog | None,
        signals: SignalWatch,
    ) -> None:
        self.run, self.fabric, self.state = run, fabric, state
        self.config, self.progress = run.recipe.train, state.progress
        self.validator, self.display, self.log, self.signals = validator, display, log, signals
        self._d_model = d_model
        self._schedule = Schedule(self.config, max(self.progress.position, self.progress.step))
        self._started = time.monotonic() - 60 * self.progress.minutes
        self._interval = _Interval()
        self._agree = Agreement()
        self._unread: deque[tuple[Update, LaterRead]] = deque()

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the next update, the same on every process."""
        if self.config.max_minutes is not None:
            self._read_clock()
            self.progress.minutes = self.fabric.broadcast(self.progress.minutes)
        self.progress.position = self._schedule.advance(step, self.progress.minutes)
        return learning_rate(self.progress.position, self.config, self._d_model)

    def after_update(self, update: Update) -> StopReason | None:
        """Count an update, and report, validate and save when it is time to.

        Returns:
            The reason to stop, the same on every process, or ``None``.

        Raises:
            TrainingError: a gradient or the validation loss is infinite or not a number; raised on all processes.
        """
        self.progress.step = update.step
        self.progress.tokens += update.tokens
        interval = self._interval
        interval.steps += 1
        interval.tokens += update.tokens
        interval.loss = interval.loss + update.loss
        reason = self._reason_to_stop()
        is_due = update.step % self.config.validate_every == 0
        self._unread.append((update, LaterRead(update.gradient_norm)))
        self._require_finite(everything=is_due or reason is not None)
        if time.monotonic() - interval.started >= LOG_SECONDS:
            self._report(update)
        if is_due or (reason is not None and not isinstance(reason, Interrupted)):
            self._report(update)
            self._validate()
            reason = reason or self._reason_to_stop()
        if isinstance(reason, Interrupted):
            self._report(update)
            self._save()
        return reason

    def _require_finite(self, *, everything: bool) -> None:
        """Raise an error if the gradient of an update was infinite or not a number.

        That of the last update on a GPU is left to be read after the next one, unless something is about to be saved.
        """
        left = 0 if everything or self.fabric.device.type == "cpu" else 1
        while len(self._unread) > left:
            update, norm = self._unread.popleft()
            if not math.isfinite(norm()):
                step, loss = update.step, update.loss.item()
                raise TrainingError(f"The gradient became infinite or not a number in step {step} (loss {loss:.4g}).")

    def _reason_to_stop(self) -> StopReason | None:
        progress = self.progress
        self._read_clock()
        limit = limit_reached(self.config, progress.step, progress.minutes, progress.validations)
        if self.fabric.world_size > 1 and limit is not None and limit.key != "max_minutes":
            return limit  # reached by every process at once; minutes are those of its own clock
        return self._agree(self.fabric, self.signals.received or limit)

    def _read_clock(self) -> None:
        self.progress.minutes = (time.monotonic() - self._started) / 60

    def _report(self, update: Update) -> None:
        """Show and log the updates since the last report."""
        interval = self._interval
        seconds = time.monotonic() - interval.started
        self.progress.update_seconds += seconds
        self._read_clock()
        if self.log is not None and interval.steps:
            loss, tokens_per_second = float(interval.loss) / interval.steps, interval.tokens / seconds
            self.display.update(
                update.step,
                loss=loss,
                tokens_per_second=tokens_per_second,
                steps_per_second=interval.steps / seconds,
                minutes=self.progress.minutes,
            )
            self.log.write(
                update.step,
                minutes=self.progress.minutes,
                learning_rate=update.learning_rate,
                gradient_norm=update.gradient_norm.item(),
                train_loss=loss,
                tokens_per_second=tokens_per_second,
            )
        self._interval = _Interval()

    def _validate(self) -> None:
        """Validate on the first process, write weights and a checkpoint, and delete weights no longer needed."""
        step, earlier = self.progress.step, self.progress.validations
        validation: Validation | None = None
        if self.log is not None:
            validation = self.validator(self.state.model, step=step, minutes=self.progress.minutes)
        validation = self.fabric.broadcast(validation)
        if validation is None or not math.isfinite(validation.loss):
            raise TrainingError(f"The validation loss became infinite or not a number by step {step}.")
        self.progress.validations = [*earlier, validation]
        averaged = averaged_steps(self.progress.validations, self.config)
        if self.log is not None:
            self._record(validation, self.log, averaged)
        self._save()
        if self.log is not None:
            keep_only(self.run.checkpoints, averaged)
        self._interval = _Interval()

    def _record(self, validation: Validation, log: MetricsLog, averaged: Sequence[int]) -> None:
        """Write the weights if they are among those to average, then log and show the figures."""
        if validation.step in averaged:
            save_weights(self.state.model, weights_path(self.run.checkpoints, validation.step))
        log.write(
            validation.step,
            minutes=validation.minutes,
            valid_loss=validation.loss,
            valid_perplexity=validation.perplexity,
            valid_bleu=validation.bleu,
            valid_exact_match=validation.exact_match,
        )
        self.display.validated(validation, is_best=[validation.step] == best_steps(self.progress.validations, 1))
        warmed_up = self.progress.position >= min(self.config.warmup, self.config.max_steps)
        if warmed_up and validation.perplexity >= self.validator.unigram_perplexity:
            self.display.line(
                "Warning: the model has hardly learned anything so far; guessing tokens by their frequency alone has a "
                f"perplexity of {self.validator.unigram_perplexity:.2f}. If it stays like this, train longer "
                "(train.max_steps, train.max_minutes), or start again with another train.learning_rate or "
                "train.warmup_steps."
            )

    def _save(self) -> None:
        """Write the checkpoint to resume from, then update ``run.json``."""
        self._read_clock()
        if self.log is None:
            return
        self.state.save(self.run.checkpoints / RESUME_FILE)
        progress = self.progress
        self.run.update(
            steps=progress.step,
            minutes=progress.minutes,
            tokens_per_second=progress.tokens_per_second,
            validations=tuple(progress.validations),
        )
