"""Training from a recipe to a finished run folder."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytorch_lightning as pl
import torch
from rich.console import Console

from edgeformer.config import Recipe, TrainConfig
from edgeformer.data.batches import BatchStream, EncodedPairs, evenly_spaced
from edgeformer.data.corpora import ParallelCorpus, load_corpus
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import CheckpointError, ConfigError, TrainingError
from edgeformer.families import model_config
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.check import check_model
from edgeformer.train.allocator import keep_freed_memory
from edgeformer.train.attention import use_training_attention
from edgeformer.train.averaging import averaged_steps, load_average, weights_path
from edgeformer.train.dropout import use_fast_dropout
from edgeformer.train.module import TrainingModule
from edgeformer.train.progress import Reporter, figures
from edgeformer.train.resume import limit_of_finished, require_checkpoint, restore, resumable_recipe
from edgeformer.train.run import (
    AFTER_DIVERGENCE,
    RESUME_FILE,
    SAMPLE_SIZE,
    Run,
    RunInfo,
    Validation,
    library_versions,
    refuse_used,
)
from edgeformer.train.supervisor import Supervisor
from edgeformer.train.validation import Validator
from edgeformer.train.weights import save_weights
from edgeformer_runtime.files import held


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training ended."""

    run: Run
    """The run folder."""
    finished: bool
    """Whether there is a final model; else training was interrupted and can be resumed."""
    stopped_by: str
    """Why training stopped: a limit of the recipe, or a signal."""
    steps: int
    """Updates made, over all sessions."""
    minutes: float
    """Training time, over all sessions."""
    final: Validation | None
    """Figures of the final model."""


def train(
    recipe: Recipe | None,
    out: Path,
    data_dir: Path | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
) -> TrainResult:
    """Train a model, or go on training one.

    On CPU, a resumed run ends with the same bits as one that was never stopped. Started by ``torchrun``, several
    processes share each update; only the first one writes.

    Args:
        recipe: what to train; may be left out when resuming.
        out: the run folder; must be missing or empty unless ``resume`` is set.
        data_dir: folder to look for the corpus in.
        resume: go on from the last checkpoint in ``out``.
        console: where to report; left out, nothing is shown.

    Raises:
        CheckpointError: ``out`` is in use, cannot be resumed, or is of another recipe.
        ConfigError: the recipe does not fit together, its model breaks the contract of model families, or another
            process trains in ``out``.
        DataError: the corpus cannot be read, or nothing of it fits the model.
        TrainingError: training diverged; a model of the checkpoints before is kept if there are any.
    """
    console = Console(quiet=True) if console is None or process_rank() else console
    run = Run.open(out) if resume else None
    if run is not None:
        recipe = resumable_recipe(run, recipe)
        if limit := limit_of_finished(run, recipe):
            return _nothing_to_do(run, limit, console)
        require_checkpoint(run)
    if recipe is None:
        raise ConfigError("A recipe is needed to begin a run.")
    if run is None and process_rank() == 0:
        refuse_used(out)  # before the corpus is read, and not after
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)

    corpus = load_corpus(recipe.data, data_dir)
    if run is None:
        run = _create(out, recipe, corpus)
    elif run.info.provenance.get("sha256") != corpus.provenance.sha256:
        raise CheckpointError(
            f"Run `{out}` was trained on other text than is found now; give the same files with --data."
        )
    else:
        run.recipe = recipe  # on every process, since all must agree on the limits
    if process_rank():
        return _fit(run, corpus, resume, console)
    with held(run.path):
        if resume:
            run.write_recipe()
        return _fit(run, corpus, resume, console)


def _fit(run: Run, corpus: ParallelCorpus, resume: bool, console: Console) -> TrainResult:
    config = run.recipe.train
    torch.manual_seed(config.seed)
    model = run.build_model()
    if resume:
        check_model(model)  # its code may have changed since
    pairs, valid = (
        EncodedPairs.encode(
            part,
            run.source_tokenizer,
            run.target_tokenizer,
            max_source_length=model.max_source_length,
            max_target_length=model.max_target_length,
        )
        for part in (corpus.train, corpus.valid)
    )
    stream = BatchStream(
        pairs,
        batch_tokens=config.batch_tokens,
        seed=config.seed,
        accumulate=config.accumulate,
        rank=process_rank(),
        world_size=_world_size(),
    )
    validator = Validator(
        encoded=valid,
        references=[corpus.valid[index][1] for index in valid.kept],
        target_tokenizer=run.target_tokenizer,
        batch_tokens=config.batch_tokens,
        sentences=config.validate_sentences,
        label_smoothing=config.label_smoothing,
        lowercase=run.recipe.tokenizer.lowercase,
        tokenized=corpus.provenance.tokenize == "none",
    )
    reporter = Reporter(console, config.max_steps, config.max_minutes)
    supervisor = Supervisor(run, validator, reporter)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if process_rank() == 0:
        run.update(
            status="running",
            parameters=parameters,
            train_pairs=len(pairs),
            valid_pairs=len(valid),
            too_long=pairs.too_long,
            padding=stream.padding,
            filters=corpus.report,
        )
        run.write_sample([corpus.train[index] for index in pairs.kept[evenly_spaced(len(pairs), SAMPLE_SIZE)]])
        reporter.line(corpus.report.summary())
        reporter.line(
            f"{len(pairs):,} training pairs ({pairs.too_long:,} too long for the model), "
            f"{stream.epoch_batches:,} batches an epoch, {stream.padding:.1%} padding, {parameters:,} parameters"
        )

    checkpoint = run.checkpoints / RESUME_FILE if resume else None
    step = restore(checkpoint, supervisor) if checkpoint else 0
    if limit := supervisor.limit_reached(step):
        reporter.line(f"Nothing is left to train: {limit} was reached after {step:,} steps.")
        supervisor.stopped_by = limit
    else:
        if not torch.cuda.is_available():
            prepare_for_cpu(model)
        module = TrainingModule(model, config, stream, getattr(model_config(run.recipe.model), "d_model", 1))
        with quiet_lightning(), supervisor.catching_signals():
            trainer = lightning_trainer(config, supervisor, run.path)
            try:
                trainer.fit(module, ckpt_path=checkpoint if step else None, weights_only=True)
            except TrainingError as error:
                raise _diverged(run, supervisor, model, str(error)) from None
        step = trainer.global_step

    finished = not supervisor.interrupted
    if process_rank() == 0:
        if finished:
            _finish(run, supervisor, model)
        run.update(status="finished" if finished else "interrupted", stopped_by=supervisor.stopped_by)
    return TrainResult(
        run=run,
        finished=finished,
        stopped_by=supervisor.stopped_by,
        steps=step,
        minutes=run.info.minutes,
        final=run.info.final if finished else None,
    )


def prepare_for_cpu(model: EncoderDecoder) -> None:
    """Exchange what is slow to train on CPU; weights, and what the model computes, stay as they are."""
    use_fast_dropout(model)
    use_training_attention(model)
    keep_freed_memory()


def _nothing_to_do(run: Run, limit: str, console: Console) -> TrainResult:
    """Say so, and leave a finished run as it is."""
    info = run.info
    Reporter(console, run.recipe.train.max_steps, None).line(
        f"There is nothing to do: {limit} was reached after {info.steps:,} steps. "
        f"To go on, raise it with --set train.{limit.partition(' ')[0]}=VALUE."
    )
    return TrainResult(
        run=run, finished=True, stopped_by=limit, steps=info.steps, minutes=info.minutes, final=info.final
    )


def _diverged(run: Run, supervisor: Supervisor, model: EncoderDecoder, reason: str) -> TrainingError:
    """Keep what was reached before training diverged; returns the error to raise, on every process."""
    message = reason
    if process_rank() == 0:
        kept = "There is no checkpoint yet."
        if supervisor.validations:
            _finish(run, supervisor, model)
            kept = f"The best checkpoint so far was kept as `{run.model_path}`."
        run.update(status="diverged", stopped_by=reason.removesuffix("."))
        message = f"{reason} {kept} {AFTER_DIVERGENCE}"
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # when one process ends with an error, the others are killed
    return TrainingError(message)


def _finish(run: Run, supervisor: Supervisor, model: EncoderDecoder) -> None:
    """Write the mean of the recipe's checkpoints; of the best ones, the best alone where that has the lower loss."""
    config = run.recipe.train
    steps = averaged_steps(supervisor.validations, config)
    if not steps:
        raise TrainingError("Training ended before its first validation; nothing can be averaged.")

    def validated(chosen: list[int]) -> Validation:
        load_average(model, [weights_path(run.checkpoints, step) for step in chosen])
        minutes = supervisor.validations[-1].minutes
        return supervisor.validator(model, step=max(chosen), minutes=minutes, bf16=config.precision == "bf16")

    final = validated(steps)
    best = min(validation.loss for validation in supervisor.validations)
    if config.average_of == "best" and len(steps) > 1 and final.loss > best:
        steps = steps[:1]
        final = validated(steps)
    save_weights(model, run.model_path)
    run.update(final=final, averaged_steps=tuple(sorted(steps)))
    supervisor.reporter.line(f"final model, mean of steps {', '.join(map(str, sorted(steps)))}: {figures(final)}")


def _create(out: Path, recipe: Recipe, corpus: ParallelCorpus) -> Run:
    """Make the run folder on the first process; the others wait for it."""
    if process_rank():
        deadline = time.monotonic() + 600
        while not (out / "run.json").is_file():
            if time.monotonic() > deadline:
                raise TrainingError(f"The first process did not create `{out}` within 10 minutes; see its output.")
            time.sleep(0.2)
        return Run.open(out)
    source_tokenizer, target_tokenizer = train_tokenizers(corpus.train, recipe.tokenizer)
    source_vocab_size, target_vocab_size = source_tokenizer.get_vocab_size(), target_tokenizer.get_vocab_size()
    check_model(build_model(recipe, source_vocab_size, target_vocab_size))  # a wrong one leaves no folder behind
    info = RunInfo(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        provenance=msgspec.to_builtins(corpus.provenance),
        versions=library_versions(),
    )
    return Run.create(out, recipe, source_tokenizer, target_tokenizer, sample=(), info=info)


def lightning_trainer(config: TrainConfig, callback: pl.Callback, folder: Path) -> pl.Trainer:
    """Lightning's trainer, with nothing of its own switched on but the loop."""
    several = _world_size() > 1
    has_gpu = torch.cuda.is_available()
    return pl.Trainer(
        accelerator="gpu" if has_gpu else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", _world_size())) if several else 1,
        num_nodes=_world_size() // int(os.environ.get("LOCAL_WORLD_SIZE", _world_size())) if several else 1,
        strategy="ddp" if several else "auto",
        precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        max_steps=config.max_steps,
        max_epochs=-1,
        accumulate_grad_batches=config.accumulate,
        callbacks=[callback],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence the library's tips, and its warnings about what is done here on purpose."""
    loggers = [
        logging.getLogger(name)
        for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric", "lightning_fabric")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric|torch)\.")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def process_rank() -> int:
    """Number of this process, as ``torchrun`` gives it; the first one, 0, alone writes and reports."""
    return int(os.environ.get("RANK", 0))


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", 1))
