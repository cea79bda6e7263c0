"""The callback that runs a training: when to validate, save, report and stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec
import pytorch_lightning as pl
import torch.distributed
from torch import Tensor

from edgeformer.config import TrainConfig
from edgeformer.errors import TrainingError
from edgeformer.train.averaging import averaged_steps, best_steps, keep_only, weights_path
from edgeformer.train.metrics import MetricsLog
from edgeformer.train.module import TensorBatch, TrainingModule
from edgeformer.train.progress import Reporter
from edgeformer.train.run import RESUME_FILE, Run, Validation
from edgeformer.train.validation import Validator
from edgeformer.train.weights import save_weights

LOG_SECONDS = 5.0
"""Least time between two rows of the log; reading the loss waits for the device."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def limit_reached(config: TrainConfig, step: int, minutes: float, validations: Sequence[Validation]) -> str:
    """The limit that ends a training which has come so far; empty if none does."""
    if step >= config.max_steps:
        return f"max_steps = {config.max_steps}"
    if config.max_minutes is not None and minutes >= config.max_minutes:
        return f"max_minutes = {config.max_minutes:g}"
    if config.patience and validations:
        best = best_steps(validations, 1)[0]
        if sum(validation.step > best for validation in validations) >= config.patience:
            return f"patience = {config.patience}"
    return ""


class Supervisor(pl.Callback):
    """Acts between updates, never within one, so that a checkpoint holds no half-gathered gradient.

    All processes run it and agree on when to stop; the first one alone validates, writes and reports.
    """

    def __init__(self, run: Run, validator: Validator, reporter: Reporter) -> None:
        self.run, self.validator, self.reporter = run, validator, reporter
        self.config = run.recipe.train
        self.validations: list[Validation] = []
        self.stopped_by = ""
        self.interrupted = False
        self._signal = 0
        self._minutes_before = 0.0
        self._tokens = 0
        self._train_seconds = 0.0
        self._started: float | None = None
        self._loss_sum: Tensor | float = 0.0
        self._log: MetricsLog | None = None

    # Lightning keeps this state in its checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Plain values only, so that a checkpoint loads without pickle."""
        return {
            "validations": msgspec.to_builtins(self.validations),
            "minutes": self.minutes,
            "tokens": self._tokens,
            "train_seconds": self._train_seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting where the checkpoint stopped."""
        self.validations = msgspec.convert(state_dict["validations"], list[Validation])
        self._minutes_before = state_dict["minutes"]
        self._tokens, self._train_seconds = state_dict["tokens"], state_dict["train_seconds"]

    @property
    def minutes(self) -> float:
        """Training time over all sessions."""
        this_session = 0.0 if self._started is None else time.monotonic() - self._started
        return self._minutes_before + this_session / 60

    @property
    def tokens_per_second(self) -> float:
        """True target tokens over the time of the updates, validation excluded."""
        return self._tokens / self._train_seconds if self._train_seconds else 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clocks and catch signals."""
        self._catch_signals()
        self._started = self._mark = time.monotonic()
        self._marked_step, self._marked_tokens = trainer.global_step, self._tokens
        self._last_step = trainer.global_step
        if trainer.is_global_zero:
            self._log = MetricsLog(self.run.path, trainer.global_step)
            self.reporter.start(trainer.global_step)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: TensorBatch, batch_idx: int
    ) -> None:
        """After the last batch of an update: count, report, validate, stop."""
        step = trainer.global_step
        if step == self._last_step:
            return
        self._last_step = step
        self._tokens += batch.update_tokens
        module = pl_module
        if not isinstance(module, TrainingModule):
            raise TypeError(f"Supervisor needs a TrainingModule, but got {type(module).__name__}.")
        self._loss_sum = self._loss_sum + module.update_loss
        if time.monotonic() - self._mark >= LOG_SECONDS:
            self._report(trainer, module)
        reason = self._reason_to_stop(trainer)
        if step % self.config.validate_every == 0 or (reason and not self.interrupted):
            self._validate(trainer, module)
            reason = reason or self._reason_to_stop(trainer)
        if reason:
            self.stopped_by = reason
            trainer.should_stop = True
            if self.interrupted:
                self._report(trainer, module)
                self._save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the bar and finish the log."""
        self._close(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Remove the bar and finish the log."""
        self._close(trainer)

    @contextmanager
    def catching_signals(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into a stop after the running update; a second SIGINT interrupts at once."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _catch_signals(self) -> None:
        """Replace Lightning's handlers, which leave without saving; only the main thread may."""

        def request(number: int, _frame: FrameType | None) -> None:
            self._signal = number
            signal.signal(signal.SIGINT, signal.default_int_handler)

        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, request)

    def limit_reached(self, step: int) -> str:
        """The limit of the recipe that ends training after ``step`` updates; empty if none does."""
        return limit_reached(self.config, step, self.minutes, self.validations)

    def _reason_to_stop(self, trainer: pl.Trainer) -> str:
        """A signal or a limit; the same on every process."""
        reason = signal.Signals(self._signal).name if self._signal else self.limit_reached(trainer.global_step)
        if trainer.world_size > 1:
            if not trainer.strategy.reduce_boolean_decision(bool(reason), all=False):
                return ""
            reasons = [""] * trainer.world_size
            torch.distributed.all_gather_object(reasons, reason)
            reason = next(filter(None, reasons))
        self.interrupted = reason.startswith("SIG")
        return reason

    def _report(self, trainer: pl.Trainer, module: TrainingModule) -> None:
        """Log the updates since the last report."""
        now, step = time.monotonic(), trainer.global_step
        seconds, steps = now - self._mark, step - self._marked_step
        self._train_seconds += seconds
        if trainer.is_global_zero and steps:
            loss, rate = float(self._loss_sum) / steps, (self._tokens - self._marked_tokens) / seconds
            self.reporter.update(
                step, loss=loss, tokens_per_second=rate, steps_per_second=steps / seconds, minutes=self.minutes
            )
            self._write(
                step,
                minutes=self.minutes,
                learning_rate=trainer.optimizers[0].param_groups[0]["lr"],
                gradient_norm=module.gradient_norm.item(),
                train_loss=loss,
                tokens_per_second=rate,
            )
        self._restart_clock(step)

    def _write(self, step: int, **values: float) -> None:
        if self._log is not None:
            self._log.write(step, **values)

    def _restart_clock(self, step: int) -> None:
        self._loss_sum = 0.0
        self._mark, self._marked_step, self._marked_tokens = time.monotonic(), step, self._tokens

    def _validate(self, trainer: pl.Trainer, module: TrainingModule) -> None:
        """Validate, write weights and resume state, drop the weights that are not among the best.

        Raises:
            TrainingError: the loss is infinite or not a number; raised on all processes.
        """
        self._report(trainer, module)
        step = trainer.global_step
        validation: Validation | None = None
        if trainer.is_global_zero:
            bf16 = self.config.precision == "bf16"
            validation = self.validator(module.model, step=step, minutes=self.minutes, bf16=bf16)
        if not trainer.strategy.broadcast(validation is None or math.isfinite(validation.loss)):
            raise TrainingError(f"The validation loss became infinite or not a number by step {step}.")
        if validation is not None:
            self.validations = [*(v for v in self.validations if v.step < step), validation]
            if step in averaged_steps(self.validations, self.config):
                save_weights(module.model, weights_path(self.run.checkpoints, step))
            self._write(
                step,
                minutes=validation.minutes,
                valid_loss=validation.loss,
                valid_perplexity=validation.perplexity,
                valid_bleu=validation.bleu,
                valid_exact_match=validation.exact_match,
            )
            self.reporter.validated(validation, is_best=[step] == best_steps(self.validations, 1))
        self._save(trainer)
        if trainer.is_global_zero:
            keep_only(self.run.checkpoints, averaged_steps(self.validations, self.config))
        self._restart_clock(step)

    def _save(self, trainer: pl.Trainer) -> None:
        """Write the state to resume from, then tell so in ``run.json``."""
        path = self.run.checkpoints / RESUME_FILE
        temporary = path.with_suffix(".tmp")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            temporary.replace(path)
            self.run.update(
                steps=trainer.global_step,
                minutes=self.minutes,
                tokens_per_second=self.tokens_per_second,
                validations=tuple(self.validations),
            )

    def _close(self, trainer: pl.Trainer) -> None:
        if trainer.is_global_zero:
            self.reporter.stop()
            if self._log is not None:
                self._log.close()
