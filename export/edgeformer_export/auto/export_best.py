"""Exports with the best precision within a quality budget, after measuring all candidates on this machine."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ConfigError
from edgeformer.quality.bootstrap import BleuCounts, difference_interval, sentence_counts
from edgeformer.quality.scores import metrics, score
from edgeformer.quality.tuning import ValidationText
from edgeformer.traceback_summary import describe
from edgeformer.train.run import Run
from edgeformer_export.auto.candidates import Candidate, build, mixed, pure
from edgeformer_export.auto.choice import Rule, decide, remarks
from edgeformer_export.auto.comparisons import MIN_TIE, Comparisons, Median
from edgeformer_export.auto.measurements import Measurements
from edgeformer_export.auto.report import write_report
from edgeformer_export.auto.sensitivity import measure_sensitivity
from edgeformer_export.auto.trial import Times, Trial
from edgeformer_export.export import ExportReport, ParityError, export_run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.stages import StageProgress, silent
from edgeformer_export.writer import require_free
from edgeformer_runtime.bundle.choice import Choice, Latency, Measured, Objective, Quality, Sensitivity
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.bundle.open import file_sha256, open_bundle
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION
from edgeformer_runtime.errors import BundleError, EdgeformerError
from edgeformer_runtime.files import locked_folder
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.translator import Translator

CANDIDATES_FOLDER = "candidates"
MIN_CANDIDATES = 6
"""Minimum number of candidates: mixed ones are added below it even if a candidate within the budget is known."""
TIME = "Timing all candidates"
_SETTINGS = ("max_bleu_drop", "optimise", "text", "sentences", "beam_size", "threads", "machine", "engine")
"""Fields that must be equal for an earlier choice to be taken into account."""


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """Criteria for the choice."""

    max_bleu_drop: float = 0.2
    """Quality budget: maximum drop in BLEU relative to fp32."""
    optimize: Objective = "latency"
    """What to minimize within the budget."""
    beam_size: int | None = None
    """Hypotheses kept, for quality and for latency; ``None`` for the run's default."""
    threads: int = 1
    """CPU threads per operator; 0 for as many as a model of its size has use for."""
    sentences: int | None = None
    """Number of sentences to use, from the first; ``None`` for all."""


@dataclass(frozen=True, kw_only=True)
class AutoReport:
    """The choice, and the export of the chosen candidate."""

    choice: Choice
    """All candidates and the chosen one; also recorded in the manifest."""
    page: Path
    """Markdown page of the choice, with a plot if matplotlib is installed."""
    export: ExportReport
    """Report of the chosen candidate's export."""


def work_folder(out: Path) -> Path:
    """Return the folder of the measurements for a bundle."""
    return out.with_name(f"{out.name}.quantize")


def export_best(
    run: Run,
    out: Path,
    text: ValidationText,
    text_name: str,
    options: AutoOptions,
    *,
    target: Target = "ort",
    resume: bool = False,
    overwrite: bool = False,
    progress: StageProgress = silent,
) -> AutoReport:
    """Measure candidates, and export the best one within the budget.

    Args:
        run: an opened run folder.
        out: the bundle's folder; measurements go into :func:`work_folder`.
        text: sentences to compare candidates on.
        text_name: name of the text in reports.
        options: criteria for the choice.
        target: which operators may be used.
        resume: reuse measurements of an earlier run.
        overwrite: replace an existing bundle and existing measurements.
        progress: called during the work.

    Raises:
        ConfigError: the text has no sentences, or another process is measuring for the same bundle.
        DataError: every sentence is too long for the model.
        ExportError: as for :func:`~edgeformer_export.export.export_run`, or measurements exist.
    """
    require_free(out, overwrite=overwrite)
    metrics(text.tokenize)  # fails early if a package is missing
    text = _first(text, options.sentences)
    decode = DecodeOptions(**msgspec.structs.asdict(run.info.generation))
    beam_size = options.beam_size or decode.beam_size
    decode = replace(decode, beam_size=beam_size, return_scores=False)
    facts = {
        "model": file_sha256(run.model_path),
        "text": hashlib.sha256(msgspec.json.encode([text, run.sample])).hexdigest(),
        "search": decode,
        "threads": options.threads,
        "target": target,
    }
    folder = work_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        measurements = Measurements(folder, facts, resume=resume, overwrite=overwrite)
        model_graphs = ModelGraphs(run, target, progress=progress)
        contest = _Contest(model_graphs, Trial(text, decode, options.threads), measurements, progress)
        choice, comparisons = _measure(contest, text_name, options)
        choice = _decided(msgspec.structs.replace(choice, previous=previous_choice(out, choice)), comparisons)
        choice, report = _export(contest, choice, comparisons, out, overwrite=overwrite)
        report_file = write_report(folder, out.name, choice)
        shutil.rmtree(folder / CANDIDATES_FOLDER)
    return AutoReport(choice=choice, page=report_file, export=report)


def _measure(contest: _Contest, text_name: str, options: AutoOptions) -> tuple[Choice, Comparisons]:
    """Measure all candidates; none of them is chosen yet."""
    first, *others = pure(contest.model_graphs.target)
    contest.enter(first)
    for candidate in others:
        contest.try_to_enter(candidate)
    sensitivity = {}
    for base in [name for name in PRECISIONS if PRECISIONS[name].mixed_candidates and name in contest.quality]:
        sensitivity[base] = contest.enter_mixed(base, options.max_bleu_drop)
    timed = contest.timed()
    times = {name: np.array(values) for name, values in timed.milliseconds.items()}
    rounds, timed_sentences = times[first.name].shape
    choice = Choice(
        chosen=first.name,
        max_bleu_drop=options.max_bleu_drop,
        optimise=options.optimize,
        candidates=[contest.measured(name, times[name], timed.differ_alone[name]) for name in times],
        remarks=[],
        text=text_name,
        sentences=len(contest.trial.text.sources),
        too_long=contest.trial.text.too_long,
        beam_size=contest.trial.options.beam_size,
        threads=options.threads,
        bleu_signature=contest.signatures[0],
        chrf_signature=contest.signatures[1],
        machine=machine_summary(),
        engine=f"onnxruntime {ENGINE_VERSION}",
        clock=contest.trial.clock,
        rounds=rounds,
        timed_sentences=timed_sentences,
        tie=MIN_TIE,
        previous=None,
        sensitivity=sensitivity,
        failed=contest.failed,
    )
    return choice, Comparisons(times, contest.counts)


def _export(
    contest: _Contest, choice: Choice, comparisons: Comparisons, out: Path, *, overwrite: bool
) -> tuple[Choice, ExportReport]:
    """Export the chosen candidate; if it does not match PyTorch, choose again without it."""
    best = contest.candidates[choice.chosen]
    try:
        report = export_run(
            contest.model_graphs.run,
            out,
            precision=best.precision,
            keep=best.keep,
            target=contest.model_graphs.target,
            overwrite=overwrite,
            choice=choice,
            model_graphs=contest.model_graphs,
            progress=contest.progress,
        )
    except ParityError as error:
        if best.precision == "fp32":
            raise
        refused = [
            msgspec.structs.replace(candidate, refused=str(error)) if candidate.name == best.name else candidate
            for candidate in choice.candidates
        ]
        choice = _decided(msgspec.structs.replace(choice, candidates=refused), comparisons)
        return _export(contest, choice, comparisons, out, overwrite=overwrite)
    return choice, report


def _decided(choice: Choice, comparisons: Comparisons) -> Choice:
    rule = Rule(max_drop=choice.max_bleu_drop, optimize=choice.optimise, previous=choice.previous)
    candidates, reason = decide(choice.candidates, rule, comparisons)
    return msgspec.structs.replace(
        choice,
        chosen=next(candidate.name for candidate in candidates if candidate.chosen),
        reason=reason,
        candidates=candidates,
        remarks=[
            *(f"{name} failed and is not among the candidates: {reason}" for name, reason in choice.failed.items()),
            *remarks(candidates, rule, comparisons),
        ],
    )


def previous_choice(out: Path, choice: Choice) -> str | None:
    """Return the candidate in the bundle being replaced if it was chosen with the same settings on the same machine."""
    try:
        before = open_bundle(out).manifest.report.choice
    except BundleError:
        return None
    if before is None or any(getattr(before, name) != getattr(choice, name) for name in _SETTINGS):
        return None
    return before.chosen


class _Contest:
    """The candidates so far, with their measurements."""

    def __init__(
        self, model_graphs: ModelGraphs, trial: Trial, measurements: Measurements, progress: StageProgress
    ) -> None:
        self.trial = trial
        self.candidates: dict[str, Candidate] = {}
        self.failed: dict[str, str] = {}
        self.quality: dict[str, Quality] = {}
        self.counts: dict[str, BleuCounts] = {}
        self.signatures = "", ""
        self.model_graphs, self.progress, self._measurements = model_graphs, progress, measurements
        self._translators: dict[str, Translator] = {}
        self._translations: dict[str, list[str]] = {}

    def folder(self, name: str) -> Path:
        """Return the folder of the candidate's bundle."""
        return self._measurements.folder / CANDIDATES_FOLDER / name

    def try_to_enter(self, candidate: Candidate) -> Quality | None:
        """Enter a candidate; one that cannot be built or run is noted in :attr:`failed`, and the others go on."""
        try:
            return self.enter(candidate)
        except Exception as error:  # the engine and its tools may raise anything
            self.failed[candidate.name] = str(error) if isinstance(error, EdgeformerError) else f"{describe(error)}."
            for entries in (self.candidates, self.counts, self._translators, self._translations):
                entries.pop(candidate.name, None)
            return None

    def enter(self, candidate: Candidate) -> Quality:
        """Build a candidate, open it and translate the text; later candidates are compared with the first one."""
        name = candidate.name
        build(self.model_graphs, candidate, self.folder(name))
        translator = self.trial.open(self.folder(name))
        if not self._translators:
            self.trial = replace(self.trial, text=self.trial.text.fitting(translator))
        self._translators[name], self.candidates[name] = translator, candidate
        stage = f"Translating with {name}"
        self.progress(stage, 0.0)
        translated = self._measurements.measured(
            f"translate {name}",
            list[str],
            lambda: self.trial.translate(translator, lambda fraction: self.progress(stage, fraction)),
        )
        self._translations[name] = translated
        first = self._translations[next(iter(self._translations))]
        scores = score(translated, self.trial.text.references, self.trial.text.tokenize)
        self.signatures = scores.bleu_signature, scores.chrf_signature
        reference = next(iter(self.quality.values())).bleu if self.quality else scores.bleu
        self.counts[name] = sentence_counts(translated, self.trial.text.references, self.trial.text.tokenize)
        self.quality[name] = Quality(
            bleu=scores.bleu,
            chrf=scores.chrf,
            drop=reference - scores.bleu,
            drop_interval=difference_interval(next(iter(self.counts.values())), self.counts[name]),
            identical=sum(text == expected for text, expected in zip(translated, first, strict=True)),
        )
        return self.quality[name]

    def enter_mixed(self, base: Precision, max_drop: float) -> list[Sensitivity]:
        """Enter candidates whose most sensitive layers are kept at a higher precision: one layer, then twice as many
        each time, until the drop is within the budget and there are enough candidates, or half of the layers are kept.

        Returns:
            All layers, the most sensitive first.
        """
        stage = f"Quantizing one layer at a time to {base}"
        order = measure_sensitivity(
            self.model_graphs, base, self._measurements, lambda fraction: self.progress(stage, fraction)
        )
        layers, count = self.model_graphs.optimized(base).layers, 1
        while 2 * count <= len(layers):
            quality = self.try_to_enter(mixed(base, count, layers, order))
            if quality is not None and quality.drop <= max_drop and len(self.candidates) >= MIN_CANDIDATES:
                break
            count *= 2
        return order

    def timed(self) -> Times:
        """Time all candidates."""
        return self._measurements.measured(
            f"time {' '.join(self.candidates)}",
            Times,
            lambda: self.trial.timed(
                self._translators, self._translations, lambda fraction: self.progress(TIME, fraction)
            ),
        )

    def measured(self, name: str, times: NDArray[np.float64], differ_alone: int) -> Measured:
        """Summarize a candidate.

        Args:
            name: its name.
            times: its times, ``(rounds, sentences)``, in milliseconds.
            differ_alone: number of timed sentences whose translation differs when translated alone.
        """
        candidate, median = self.candidates[name], Median.of(times)
        p25, p75 = np.percentile(times, [25, 75]).tolist()
        return Measured(
            name=name,
            precision=candidate.precision,
            kept=dict(candidate.keep),
            quality=self.quality[name],
            latency=Latency(
                median_ms=median.value,
                median_interval=median.interval,
                p25_ms=p25,
                p75_ms=p75,
                differ_alone=differ_alone,
            ),
            bytes=open_bundle(self.folder(name)).nbytes,
            refused=_batch_dependence(differ_alone) if candidate.dynamic else "",
        )


def _batch_dependence(differ_alone: int) -> str:
    sentences = "sentence" if differ_alone == 1 else "sentences"
    return (
        "its activations have one scale per batch, so a translation may depend on the other sentences of its batch "
        f"({differ_alone} timed {sentences} came out differently alone)."
    )


def _first(text: ValidationText, count: int | None) -> ValidationText:
    if not text.sources:
        raise ConfigError("There is no sentence to translate; choose another text with --valid.")
    return replace(text, sources=text.sources[:count], references=text.references[:count])
