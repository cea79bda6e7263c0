"""Training from a recipe to a finished run folder."""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from rich.console import Console
from torch import Tensor, nn

from edgeformer.config import Recipe
from edgeformer.data.batches import BatchStream, evenly_spaced
from edgeformer.data.corpora import ParallelCorpus, load_corpus
from edgeformer.errors import CheckpointError, ConfigError, TrainingError
from edgeformer.families import model_config
from edgeformer.model.check import check_model
from edgeformer.run.folder import AFTER_DIVERGENCE, RESUME_FILE, SAMPLE_SIZE, Run, refuse_used
from edgeformer.run.info import Validation
from edgeformer.run.weights import load_weights, save_weights
from edgeformer.train.averaging import averaged_steps, best_steps, keep_only, weights_path, write_final_model
from edgeformer.train.cpu import prepare_for_cpu
from edgeformer.train.encoding import encode_corpus, open_encoded
from edgeformer.train.gpu import HostCopy, tf32_products, use_fp32_recurrences
from edgeformer.train.loss import Objective
from edgeformer.train.prefetch import TensorBatch, prefetched_batches
from edgeformer.train.processes import StopVote, launch, process_rank, uses_bf16, wait_for_all, world_size
from edgeformer.train.report.display import TrainingDisplay
from edgeformer.train.report.metrics import MetricsLog
from edgeformer.train.schedule import LearningRateSchedule, learning_rate, plan
from edgeformer.train.setup import create_run, limit_of_finished, resumable_recipe
from edgeformer.train.state import TrainingState, build_optimizer
from edgeformer.train.stopping import Interruption, SignalWatch, StopReason, catch_signals, limit_reached
from edgeformer.train.validation import Validator
from edgeformer_runtime.files import clear_stale, locked_folder

LOG_SECONDS = 5.0
"""Minimum time between two reports; reading the loss waits for the device."""


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training ended."""

    run: Run
    """The run folder."""
    stopped_by: StopReason
    """Why training stopped."""

    @property
    def finished(self) -> bool:
        """Whether there is a final model; otherwise training was interrupted and can be resumed."""
        return not isinstance(self.stopped_by, Interruption)

    @property
    def steps(self) -> int:
        """Updates made, over all sessions; known to the first process."""
        return self.run.info.steps

    @property
    def final(self) -> Validation | None:
        """Figures of the final model; ``None`` if training was interrupted."""
        return self.run.info.final if self.finished else None


def train(
    recipe: Recipe | None,
    out: Path,
    data_dir: Path | None = None,
    *,
    init: Run | None = None,
    resume: bool = False,
    export_check: bool = True,
    console: Console | None = None,
) -> TrainResult:
    """Train a model, or continue training it.

    On CPU, an interrupted and resumed run ends with the same bits as an uninterrupted one. Under ``torchrun``, several
    processes share each update; only the first one reads the text and writes.

    Args:
        recipe: what to train; may be ``None`` when resuming.
        out: the run folder; must be missing or empty unless ``resume`` is set.
        data_dir: folder in which to look for the corpus.
        init: a finished run to start from; the recipe must have its model and tokenizer.
        resume: continue from the last checkpoint in ``out``.
        export_check: check that a new model can be exported, if it is of another package's family and the exporter is
            installed.
        console: where to report; by default, nothing is shown.

    Raises:
        CheckpointError: ``out`` is in use, cannot be resumed, or belongs to another recipe.
        ConfigError: the recipe is inconsistent, its model breaks the contract of model families or cannot be exported,
            or another process is training in ``out``.
        DataError: the corpus cannot be read, or none of it fits the model.
        TrainingError: training diverged; the model of the checkpoints so far is kept, if there are any.
    """
    is_first = process_rank() == 0
    display = TrainingDisplay(console if console is not None and is_first else Console(quiet=True))
    run = Run.open(out) if resume else None
    if run is not None:
        run.recipe = recipe = resumable_recipe(run, recipe)  # on every process, since all must agree on the limits
        if limit := limit_of_finished(run, recipe):
            display.nothing_left(limit, run.info.steps)
            return TrainResult(run=run, stopped_by=limit)
    if recipe is None:
        raise ConfigError("A recipe is needed to start a run.")
    if run is None and is_first:
        refuse_used(out)  # before the corpus is read
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)

    fabric = launch(recipe.train)
    corpus = load_corpus(recipe.data, data_dir) if is_first else None  # the others map its token ids
    if corpus is not None:
        run = run or create_run(out, recipe, corpus, init, export_check=export_check, report=display.line)
        if run.info.provenance.get("sha256") != corpus.provenance.sha256:
            raise CheckpointError(f"Run `{out}` was trained on different text; provide the same files with --data.")
    wait_for_all(fabric)
    run = run or Run.open(out)
    with locked_folder(run.path) if is_first else nullcontext(), tf32_products():
        if resume and is_first:
            clear_stale(run.checkpoints)
            run.write_recipe()
        return Trainer.set_up(run, corpus, fabric, display, resume=resume).run_to_end()


class Update(NamedTuple):
    """One update of the weights, as reported after it."""

    step: int
    """Its number, starting at 1."""
    tokens: int
    """True target tokens, over all processes."""
    loss: Tensor
    """Smoothed loss per token of this process's batches, in nats, ``()``."""
    gradient_norm: Tensor
    """Norm of the gradient before clipping, ``()``."""
    learning_rate: float
    """Learning rate that the optimizer used."""


@dataclass
class _ReportInterval:
    """The updates since the last report."""

    started: float = field(default_factory=time.monotonic)
    steps: int = 0
    tokens: int = 0
    loss: Tensor | float = 0.0


class Trainer:
    """One session of a training: set up, fit, validate, finish.

    Every process has one. All make the same updates and agree on when to stop; the first one alone has the text,
    validates, writes and reports.

    Args:
        run: the run folder.
        fabric: connects the processes, and puts tensors on their devices.
        state: what is trained, and how far.
        stream: batches of this process.
        validator: scores the model, on the first process.
        display: shows the progress to a person.
    """

    def __init__(
        self,
        run: Run,
        fabric: Fabric,
        state: TrainingState,
        stream: BatchStream,
        validator: Validator,
        display: TrainingDisplay,
    ) -> None:
        self.run, self.fabric, self.state, self.stream = run, fabric, state, stream
        self.validator, self.display = validator, display
        self.config, self.progress = run.recipe.train, state.progress
        self.log: MetricsLog | None = None
        """Receives the metrics while the first process fits; ``None`` on the others."""
        self.signals = SignalWatch()
        self._d_model: int = getattr(model_config(run.recipe.model), "d_model", 1)
        self._schedule = LearningRateSchedule(self.config, max(self.progress.position, self.progress.step))
        self._started = time.monotonic() - 60 * self.progress.minutes
        self._interval = _ReportInterval()
        self._agree = StopVote()
        self._unread: deque[tuple[Update, HostCopy]] = deque()

    @classmethod
    def set_up(
        cls, run: Run, corpus: ParallelCorpus | None, fabric: Fabric, display: TrainingDisplay, *, resume: bool
    ) -> Trainer:
        """Build the model, map the text's token ids, and restore the checkpoint of an earlier session."""
        config = run.recipe.train
        torch.manual_seed(config.seed)
        model = run.build_model()
        if run.initial_path.is_file():
            load_weights(model, run.initial_path)
        if resume:
            check_model(model)  # its code may have changed since
        if corpus is not None:
            encode_corpus(run, corpus, model)
        wait_for_all(fabric)
        pairs, valid = open_encoded(run)
        fabric.to_device(model)
        stream = BatchStream(
            pairs,
            batch_tokens=config.batch_tokens,
            seed=config.seed,
            accumulate=config.accumulate,
            rank=process_rank(),
            world_size=world_size(),
        )
        validator = Validator(
            run=run,
            encoded=valid,
            references=[corpus.valid[index][1] for index in valid.kept] if corpus is not None else [],
            autocast=fabric.autocast,
            tokenized=corpus is not None and corpus.provenance.tokenize == "none",
        )
        state = TrainingState(model, build_optimizer(model, config))
        if resume and (run.checkpoints / RESUME_FILE).is_file():
            state.restore(run.checkpoints / RESUME_FILE)
        trainer = cls(run, fabric, state, stream, validator, display)
        if corpus is not None:
            trainer.describe(corpus)
        return trainer

    def describe(self, corpus: ParallelCorpus) -> None:
        """Record and print what the training starts with."""
        run, pairs, recipe = self.run, self.stream.pairs, self.run.recipe
        parameters = sum(parameter.numel() for parameter in self.state.model.parameters())
        run.update(
            status="running",
            parameters=parameters,
            train_pairs=len(pairs),
            valid_pairs=len(self.validator.encoded),
            too_long=pairs.too_long,
            padding=self.stream.padding,
            filters=corpus.report,
        )
        run.write_sample(list(corpus.train.rows(pairs.kept[evenly_spaced(len(pairs), SAMPLE_SIZE)])))
        lines = [corpus.report.summary()]
        if self.config.precision == "bf16" and not uses_bf16(self.config):
            lines.append("This machine has no instructions for bf16, so training computes in fp32, which is faster.")
        wanted, sizes = recipe.tokenizer.vocab_size, {"shared": run.info.source_vocab_size}
        if not recipe.tokenizer.shared:
            sizes = {"source": run.info.source_vocab_size, "target": run.info.target_vocab_size}
        for name, size in sizes.items():
            if wanted is not None and size < wanted:
                lines.append(f"The corpus fills only {size:,} of the {wanted:,} entries of the {name} vocabulary.")
        lines.append(
            f"{len(pairs):,} training pairs ({pairs.too_long:,} too long for the model), "
            f"{self.stream.epoch_batches:,} batches per epoch, {self.stream.padding:.1%} padding, "
            f"{parameters:,} parameters"
        )
        for line in (*lines, *plan(self.config)):
            self.display.line(line)

    def run_to_end(self) -> TrainResult:
        """Fit, and write the final model unless training was interrupted."""
        progress, run = self.progress, self.run
        reason: StopReason | None = limit_reached(self.config, progress.step, progress.minutes, progress.validations)
        if reason is not None:
            self.display.line(f"Nothing is left to train: {reason} was reached after {progress.step:,} steps.")
        else:
            try:
                reason = self.fit()
            except TrainingError as error:
                raise self._diverged(str(error)) from None
        is_finished = not isinstance(reason, Interruption)
        if process_rank() == 0:
            if is_finished:
                self._finish()
            run.update(status="finished" if is_finished else "interrupted", stopped_by=str(reason))
        return TrainResult(run=run, stopped_by=reason)

    def fit(self) -> StopReason:
        """Make updates until there is a reason to stop, which is the same on every process.

        Raises:
            TrainingError: a gradient or the validation loss is infinite or not a number; raised on all processes.
        """
        state, step = self.state, self.progress.step
        if self.fabric.device.type == "cpu":
            prepare_for_cpu(state.model)
        else:
            use_fp32_recurrences(state.model)
        module, optimizer = self.fabric.setup(Objective(state.model, self.config.label_smoothing), state.optimizer)
        module.train()
        with (
            catch_signals() as self.signals,
            MetricsLog(self.run.path, step) if process_rank() == 0 else nullcontext() as self.log,
            self.display.bar(step, self.config),
            closing(prefetched_batches(self.stream.start_at(step))) as batches,
        ):
            while True:
                update = self.update(module, optimizer, batches)
                reason = self.after_update(update)
                if reason is not None:
                    return reason

    def update(self, module: _FabricModule, optimizer: torch.optim.Optimizer, batches: Iterator[TensorBatch]) -> Update:
        """Add up the gradients of the update's batches, and change the weights."""
        config, fabric, step = self.config, self.fabric, self.progress.step
        on_gpu = fabric.device.type == "cuda"
        loss = torch.zeros((), device=fabric.device)
        for index in range(config.accumulate):
            batch, inputs = next(batches)
            seed_dropout(config.seed, step * config.accumulate + index, fabric.global_rank)
            # DDP averages over the processes.
            per_token = fabric.world_size / batch.update_tokens
            scale = per_token if config.loss_mean == "tokens" else fabric.world_size / batch.labels.shape[1]
            with fabric.no_backward_sync(module, enabled=index < config.accumulate - 1):
                # From pinned memory, the host does not wait for copies.
                total = module(*fabric.to_device([each.pin_memory() for each in inputs] if on_gpu else inputs))
                fabric.backward(total * scale)
            loss += total.detach() * per_token
        norm = nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm or float("inf"), foreach=True)
        rate = self.learning_rate(step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        return Update(step + 1, batch.update_tokens, loss, norm, rate)

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
        """
        self.progress.step = update.step
        self.progress.tokens += update.tokens
        interval = self._interval
        interval.steps += 1
        interval.tokens += update.tokens
        interval.loss = interval.loss + update.loss
        reason = self._reason_to_stop()
        is_due = update.step % self.config.validate_every == 0
        self._unread.append((update, HostCopy(update.gradient_norm)))
        self._require_finite(everything=is_due or reason is not None)
        if time.monotonic() - interval.started >= LOG_SECONDS:
            self._report(update)
        if is_due or (reason is not None and not isinstance(reason, Interruption)):
            self._report(update)
            self.validate()
            reason = reason or self._reason_to_stop()
        if isinstance(reason, Interruption):
            self._report(update)
            self._save()
        return reason

    def validate(self) -> None:
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
        self._interval = _ReportInterval()

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
        self._interval = _ReportInterval()

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

    def _finish(self) -> None:
        """Write and print the final model."""
        figures = write_final_model(self.run, self.state.model, self.validator, self.progress.validations)
        self.display.final(figures, self.run.info.averaged_steps)
        shutil.rmtree(self.run.encoded, ignore_errors=True)

    def _diverged(self, reason: str) -> TrainingError:
        """Keep what was reached before training diverged, and return the error to raise on every process."""
        run, message = self.run, reason
        if process_rank() == 0:
            kept = "There is no checkpoint yet."
            if self.progress.validations:
                self._finish()
                kept = f"The best checkpoint so far was kept as `{run.model_path}`."
            shutil.rmtree(run.encoded, ignore_errors=True)
            run.update(status="diverged", stopped_by=reason.removesuffix("."))
            message = f"{reason} {kept} {AFTER_DIVERGENCE}"
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # when a process ends with an error, torchrun kills the others
        return TrainingError(message)


def seed_dropout(seed: int, batch: int, rank: int) -> None:
    """Seed torch for one batch of one process, so that a resumed run needs no random state."""
    torch.manual_seed(int(np.random.SeedSequence((seed, batch, rank)).generate_state(1)[0]))
