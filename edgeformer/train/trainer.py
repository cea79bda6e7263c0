"""Training from a recipe to a finished run folder."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from lightning_fabric import Fabric
from rich.console import Console

from edgeformer.config import Recipe, with_warmup
from edgeformer.data.batches import BatchStream, EncodedPairs, evenly_spaced
from edgeformer.data.corpora import ParallelCorpus, load_corpus
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import CheckpointError, ConfigError, TrainingError
from edgeformer.families import is_shipped, model_config
from edgeformer.model.build import build_model
from edgeformer.model.check import check_model
from edgeformer.run.folder import AFTER_DIVERGENCE, RESUME_FILE, SAMPLE_SIZE, Run, refuse_used
from edgeformer.run.info import RunInfo, Validation, library_versions
from edgeformer.run.weights import load_weights
from edgeformer.train.checkpoints.averaging import write_final_model
from edgeformer.train.checkpoints.checkpoint import TrainingState
from edgeformer.train.checkpoints.resume import limit_of_finished, require_checkpoint, resumable_recipe
from edgeformer.train.cpu import prepare_for_cpu
from edgeformer.train.encoding import encode_corpus, open_encoded
from edgeformer.train.gpu import tf32_products, use_fp32_recurrences
from edgeformer.train.initial import start_from
from edgeformer.train.loop import build_optimizer, run_updates
from edgeformer.train.loss import Objective
from edgeformer.train.pretrain_checks import installed_checks, run_checks
from edgeformer.train.processes import launch, process_rank, uses_bf16, wait_for_all, world_size
from edgeformer.train.report.display import TrainingDisplay
from edgeformer.train.report.metrics import MetricsLog
from edgeformer.train.schedule import plan
from edgeformer.train.stopping import Interrupted, LimitReached, StopReason, catch_signals, limit_reached
from edgeformer.train.supervisor import Supervisor
from edgeformer.train.validation import Validator
from edgeformer_runtime.files import clear_stale, locked_folder


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training ended."""

    run: Run
    """The run folder."""
    stopped_by: StopReason
    """Why training stopped."""
    steps: int
    """Updates made, over all sessions."""
    minutes: float
    """Training time, over all sessions."""
    final: Validation | None
    """Figures of the final model; ``None`` if training was interrupted."""

    @property
    def finished(self) -> bool:
        """Whether there is a final model; otherwise training was interrupted and can be resumed."""
        return not isinstance(self.stopped_by, Interrupted)


@dataclass(frozen=True)
class _Training:
    """The parts of one training session."""

    run: Run
    state: TrainingState
    stream: BatchStream
    validator: Validator
    display: TrainingDisplay


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
    console = console if console is not None and is_first else Console(quiet=True)
    run = Run.open(out) if resume else None
    if run is not None:
        run.recipe = recipe = resumable_recipe(run, recipe)  # on every process, since all must agree on the limits
        if limit := limit_of_finished(run, recipe):
            return _nothing_to_do(run, limit, console)
        require_checkpoint(run)
    if recipe is None:
        raise ConfigError("A recipe is needed to start a run.")
    if run is None and is_first:
        refuse_used(out)  # before the corpus is read
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)

    fabric = launch(recipe.train)
    corpus = load_corpus(recipe.data, data_dir) if is_first else None  # the others map its token ids
    if corpus is not None:
        run = run or _create(out, recipe, corpus, console, init, export_check=export_check)
        if run.info.provenance.get("sha256") != corpus.provenance.sha256:
            raise CheckpointError(f"Run `{out}` was trained on different text; provide the same files with --data.")
    wait_for_all(fabric)
    run = run or Run.open(out)
    with locked_folder(run.path) if is_first else nullcontext(), tf32_products():
        if resume and is_first:
            clear_stale(run.checkpoints)
            run.write_recipe()
        return _train(run, corpus, resume, fabric, console)


def _train(run: Run, corpus: ParallelCorpus | None, resume: bool, fabric: Fabric, console: Console) -> TrainResult:
    """Train a run that exists, from its beginning or from its checkpoint; only the first process has the corpus."""
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
    training = _Training(
        run,
        TrainingState(model, build_optimizer(model, config)),
        _batches(run, pairs),
        _validator(run, corpus, valid, fabric),
        TrainingDisplay(console, config.max_steps, config.max_minutes),
    )
    if corpus is not None:
        _describe(training, corpus, len(valid))
    if resume and (run.checkpoints / RESUME_FILE).is_file():
        training.state.restore(run.checkpoints / RESUME_FILE)
    progress = training.state.progress
    reason: StopReason | None = limit_reached(config, progress.step, progress.minutes, progress.validations)
    if reason is not None:
        training.display.line(f"Nothing is left to train: {reason} was reached after {progress.step:,} steps.")
    else:
        try:
            reason = _update_until_stopped(training, fabric)
        except TrainingError as error:
            raise _diverged(training, str(error)) from None
    if process_rank() == 0:
        if not isinstance(reason, Interrupted):
            _finish(training)
            shutil.rmtree(run.encoded, ignore_errors=True)
        status = "interrupted" if isinstance(reason, Interrupted) else "finished"
        run.update(status=status, stopped_by=str(reason))
    final = None if isinstance(reason, Interrupted) else run.info.final
    return TrainResult(run=run, stopped_by=reason, steps=progress.step, minutes=run.info.minutes, final=final)


def _update_until_stopped(training: _Training, fabric: Fabric) -> StopReason:
    """Set up the loop and what surrounds it, and run it."""
    run, state, config = training.run, training.state, training.run.recipe.train
    if fabric.device.type == "cpu":
        prepare_for_cpu(state.model)
    else:
        use_fp32_recurrences(state.model)
    step = state.progress.step
    with (
        catch_signals() as signals,
        MetricsLog(run.path, step) if process_rank() == 0 else nullcontext() as log,
        training.display.bar(step),
    ):
        supervisor = Supervisor(
            run,
            fabric,
            state,
            d_model=getattr(model_config(run.recipe.model), "d_model", 1),
            validator=training.validator,
            display=training.display,
            log=log,
            signals=signals,
        )
        return run_updates(
            fabric,
            Objective(state.model, config.label_smoothing),
            state.optimizer,
            training.stream,
            config,
            learning_rate=supervisor.learning_rate,
            step=step,
            after_update=supervisor.after_update,
        )


def _batches(run: Run, pairs: EncodedPairs) -> BatchStream:
    """Return the training batches of this process."""
    config = run.recipe.train
    return BatchStream(
        pairs,
        batch_tokens=config.batch_tokens,
        seed=config.seed,
        accumulate=config.accumulate,
        rank=process_rank(),
        world_size=world_size(),
    )


def _validator(run: Run, corpus: ParallelCorpus | None, pairs: EncodedPairs, fabric: Fabric) -> Validator:
    """Return what validates; without a corpus, that is on all processes but the first, nothing will be validated."""
    config = run.recipe.train
    return Validator(
        encoded=pairs,
        references=[corpus.valid[index][1] for index in pairs.kept] if corpus is not None else [],
        target_tokenizer=run.target_tokenizer,
        special=run.special,
        batch_tokens=config.batch_tokens,
        sentences=config.validate_sentences,
        label_smoothing=config.label_smoothing,
        autocast=fabric.autocast,
        lowercase=run.recipe.tokenizer.lowercase,
        tokenized=corpus is not None and corpus.provenance.tokenize == "none",
    )


def _describe(training: _Training, corpus: ParallelCorpus, valid_pairs: int) -> None:
    """Record and print what the training starts with."""
    run, stream, display = training.run, training.stream, training.display
    pairs = stream.pairs
    parameters = sum(parameter.numel() for parameter in training.state.model.parameters())
    run.update(
        status="running",
        parameters=parameters,
        train_pairs=len(pairs),
        valid_pairs=valid_pairs,
        too_long=pairs.too_long,
        padding=stream.padding,
        filters=corpus.report,
    )
    rows = pairs.kept[evenly_spaced(len(pairs), SAMPLE_SIZE)]
    run.write_sample(list(corpus.train.rows(rows)))
    display.line(corpus.report.summary())
    if run.recipe.train.precision == "bf16" and not uses_bf16(run.recipe.train):
        display.line("This machine has no instructions for bf16, so training computes in fp32, which is faster here.")
    wanted = run.recipe.tokenizer.vocab_size
    for side, size in {"source": run.info.source_vocab_size, "target": run.info.target_vocab_size}.items():
        if wanted is not None and size < wanted and not (side == "target" and run.recipe.tokenizer.shared):
            name = "shared" if run.recipe.tokenizer.shared else side
            display.line(f"The corpus fills only {size:,} of the {wanted:,} entries of the {name} vocabulary.")
    display.line(
        f"{len(pairs):,} training pairs ({pairs.too_long:,} too long for the model), "
        f"{stream.epoch_batches:,} batches per epoch, {stream.padding:.1%} padding, {parameters:,} parameters"
    )
    for line in plan(run.recipe.train):
        display.line(line)


def _nothing_to_do(run: Run, limit: LimitReached, console: Console) -> TrainResult:
    """Say that a finished run is left unchanged."""
    info = run.info
    TrainingDisplay(console, run.recipe.train.max_steps, None).line(
        f"There is nothing to do: {limit} was reached after {info.steps:,} steps. "
        f"To continue, raise it with --set train.{limit.key}=VALUE."
    )
    return TrainResult(run=run, stopped_by=limit, steps=info.steps, minutes=info.minutes, final=info.final)


def _diverged(training: _Training, reason: str) -> TrainingError:
    """Keep what was reached before training diverged, and return the error to raise on every process."""
    run, message = training.run, reason
    if process_rank() == 0:
        kept = "There is no checkpoint yet."
        if training.state.progress.validations:
            _finish(training)
            kept = f"The best checkpoint so far was kept as `{run.model_path}`."
        shutil.rmtree(run.encoded, ignore_errors=True)
        run.update(status="diverged", stopped_by=reason.removesuffix("."))
        message = f"{reason} {kept} {AFTER_DIVERGENCE}"
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # when a process ends with an error, torchrun kills the others
    return TrainingError(message)


def _finish(training: _Training) -> None:
    """Write and print the final model."""
    state = training.state
    figures = write_final_model(training.run, state.model, training.validator, state.progress.validations)
    training.display.final(figures, training.run.info.averaged_steps)


def _create(
    out: Path, recipe: Recipe, corpus: ParallelCorpus, console: Console, init: Run | None, *, export_check: bool
) -> Run:
    """Create the run folder."""
    provenance = msgspec.to_builtins(corpus.provenance)
    recipe = with_warmup(recipe, recipe.train.warmup)  # which does not depend on limits that resuming may change
    if init is not None:
        return start_from(init, out, recipe, provenance)
    source_tokenizer, target_tokenizer = train_tokenizers(corpus.train, recipe.tokenizer)
    source_vocab_size, target_vocab_size = source_tokenizer.get_vocab_size(), target_tokenizer.get_vocab_size()
    model = build_model(recipe, source_vocab_size, target_vocab_size)
    check_model(model)  # a broken model leaves no folder behind
    if export_check and not is_shipped(recipe.model["family"]) and (checks := installed_checks()):
        name = recipe.model["family"]
        TrainingDisplay(console, recipe.train.max_steps, None).line(f"Checking that `{name}` can be exported")
        run_checks(checks, model)
    info = RunInfo(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        provenance=provenance,
        versions=library_versions(),
    )
    return Run.create(out, recipe, source_tokenizer, target_tokenizer, sample=(), info=info)
