"""The best precision inside a quality budget, of candidates that are all measured on this machine."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgeformer.errors import ConfigError
from edgeformer.quality.bootstrap import BleuCounts, difference_error, sentence_counts
from edgeformer.quality.scores import metrics, score
from edgeformer.quality.tuning import ValidationText
from edgeformer.train.run import Run
from edgeformer_export.auto.candidates import MIXED, Candidate, build, mixed, pure
from edgeformer_export.auto.choice import Choice, Latency, Measured, Objective, Quality, Rule, decide, remarks
from edgeformer_export.auto.measurements import Notebook
from edgeformer_export.auto.report import write_report
from edgeformer_export.auto.sensitivity import Sensitivity, measure_sensitivity
from edgeformer_export.auto.trial import Trial
from edgeformer_export.export import ExportReport, ParityError, export_run
from edgeformer_export.model_graphs import Prepared, Progress
from edgeformer_export.writer import require_free
from edgeformer_runtime.bundle.manifest import Precision, Target
from edgeformer_runtime.bundle.open import file_sha256, open_bundle
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.files import locked_folder
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.translator import Translator

CANDIDATES_FOLDER = "candidates"
MIN_CANDIDATES = 6
_SETTINGS = ("max_bleu_drop", "optimise", "text", "sentences", "beam_size", "threads", "machine", "engine")


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """What to choose by."""

    max_bleu_drop: float = 0.2
    """Budget: how much lower than fp32's the BLEU may be."""
    optimise: Objective = "latency"
    """What to be best in, inside the budget."""
    beam_size: int | None = None
    """Hypotheses kept, for quality and for latency; the run's default if none."""
    threads: int = 1
    """CPU threads of one operator; 0 takes all."""
    sentences: int | None = None
    """Take so many of the sentences, from the first; all if none."""


@dataclass(frozen=True, kw_only=True)
class AutoReport:
    """What was chosen, and the export of it."""

    choice: Choice
    """Also in the manifest's report."""
    page: Path
    """The same as Markdown, with a plot where matplotlib is installed."""
    export: ExportReport
    """Of the chosen candidate."""


def work_folder(out: Path) -> Path:
    """Where the measurements for a bundle are kept."""
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
    progress: Progress = lambda stage, fraction: None,
) -> AutoReport:
    """Measure candidates, and export the best of those inside the budget.

    Args:
        run: an opened run folder.
        out: the bundle's folder; measurements go into :func:`work_folder`.
        text: sentences to compare on.
        text_name: what reports call them.
        options: what to choose by.
        target: which operators may be used.
        resume: use what an earlier run has measured.
        overwrite: replace a bundle and measurements that exist.
        progress: called as the work goes on; stages are those of an export, ``sensitivity PRECISION``, ``translate
            NAME`` and ``time``.

    Raises:
        ConfigError: there is no sentence, or another process measures for the same bundle.
        DataError: the model takes none of the sentences.
        ExportError: as for :func:`~edgeformer_export.export.export_run`, or measurements exist.
    """
    require_free(out, overwrite=overwrite)
    metrics(text.tokenize)  # to hear of a missing package early
    generation = run.info.generation
    text = _first(text, options.sentences)
    beam_size = options.beam_size or generation.beam_size
    decode = DecodeOptions(beam_size=beam_size, length_penalty=generation.length_penalty, return_scores=False)
    facts = {
        "model": file_sha256(run.model_path),
        "text": hashlib.sha256(msgspec.json.encode([text, run.sample])).hexdigest(),
        "search": msgspec.to_builtins(decode),
        "threads": options.threads,
        "target": target,
    }
    folder = work_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        notebook = Notebook(folder, facts, resume=resume, overwrite=overwrite)
        prepared = Prepared(run, target, progress=progress)
        contest = _Contest(prepared, Trial(text, decode, options.threads), notebook, progress)
        choice = _measure(contest, text_name, options)
        choice = _decided(msgspec.structs.replace(choice, previous=_previous(out, choice)))
        choice, report = _export(contest, choice, out, overwrite=overwrite)
        report_file = write_report(folder, out.name, choice)
        shutil.rmtree(folder / CANDIDATES_FOLDER)
    return AutoReport(choice=choice, page=report_file, export=report)


def _measure(contest: _Contest, text_name: str, options: AutoOptions) -> Choice:
    """All candidates with their figures, and none of them chosen yet."""
    for candidate in pure(contest.prepared.target):
        contest.enter(candidate)
    sensitivity = {}
    for base in MIXED:
        if base in contest.quality:
            sensitivity[base] = contest.enter_mixed(base, options.max_bleu_drop)
    latencies, noise = contest.timed()
    figures = [
        Measured(
            name=name,
            precision=one.precision,
            kept=dict(one.keep),
            quality=contest.quality[name],
            latency=latencies[name],
            bytes=open_bundle(contest.folder(name)).nbytes,
            refused=_batch_dependence(latencies[name]) if one.dynamic else "",
        )
        for name, one in contest.candidates.items()
    ]
    return Choice(
        chosen="fp32",
        max_bleu_drop=options.max_bleu_drop,
        optimise=options.optimise,
        candidates=figures,
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
        noise=noise,
        tie=0.0,
        previous=None,
        sensitivity=sensitivity,
    )


def _export(contest: _Contest, choice: Choice, out: Path, *, overwrite: bool) -> tuple[Choice, ExportReport]:
    """Export what was chosen; if it turns out not to be the model, what is chosen without it."""
    best = contest.candidates[choice.chosen]
    try:
        report = export_run(
            contest.prepared.run,
            out,
            precision=best.precision,
            keep=best.keep,
            target=contest.prepared.target,
            overwrite=overwrite,
            findings={"choice": msgspec.to_builtins(choice)},
            prepared=contest.prepared,
            progress=contest.progress,
        )
    except ParityError as error:
        if best.precision == "fp32":
            raise
        refused = [
            msgspec.structs.replace(one, refused=str(error)) if one.name == best.name else one
            for one in choice.candidates
        ]
        choice = _decided(msgspec.structs.replace(choice, candidates=refused))
        return _export(contest, choice, out, overwrite=overwrite)
    return choice, report


def _batch_dependence(latency: Latency) -> str:
    return (
        "its activations have one scale for a whole batch, so a sentence may come out in another way alone than among "
        f"others, which a bundle promises not to do ({latency.differ_alone} of the timed sentences did)."
    )


def _decided(choice: Choice) -> Choice:
    rule = Rule(max_drop=choice.max_bleu_drop, optimise=choice.optimise, noise=choice.noise, previous=choice.previous)
    candidates = decide(choice.candidates, rule)
    return msgspec.structs.replace(
        choice,
        chosen=next(one.name for one in candidates if one.chosen),
        candidates=candidates,
        remarks=remarks(candidates, rule),
        tie=rule.tie,
    )


def _previous(out: Path, choice: Choice) -> str | None:
    """What the bundle that is replaced was chosen to be, if from the same settings on the same machine."""
    try:
        before = msgspec.convert(open_bundle(out).manifest.report["choice"], Choice)
    except (BundleError, KeyError, msgspec.ValidationError):
        return None
    same = (getattr(before, name) == getattr(choice, name) for name in _SETTINGS)
    return before.chosen if all(same) else None


class _Contest:
    """Candidates as they enter, with what is known of each."""

    def __init__(self, prepared: Prepared, trial: Trial, notebook: Notebook, progress: Progress) -> None:
        self.trial = trial
        self.candidates: dict[str, Candidate] = {}
        self.quality: dict[str, Quality] = {}
        self.signatures = "", ""
        self.prepared, self.progress, self._notebook = prepared, progress, notebook
        self._translators: dict[str, Translator] = {}
        self._translations: dict[str, list[str]] = {}
        self._counts: dict[str, BleuCounts] = {}

    def folder(self, name: str) -> Path:
        """The candidate's bundle."""
        return self._notebook.folder / CANDIDATES_FOLDER / name

    def enter(self, candidate: Candidate) -> Quality:
        """Build, open and translate; the first to enter is what the others are compared with."""
        name = candidate.name
        build(self.prepared, candidate, self.folder(name))
        translator = self.trial.open(self.folder(name))
        if not self._translators:
            self.trial = replace(self.trial, text=self.trial.text.fitting(translator))
        self._translators[name], self.candidates[name] = translator, candidate
        stage = f"translate {name}"
        self.progress(stage, 0.0)
        translated = self._notebook.measured(
            stage, list[str], lambda: self.trial.translate(translator, lambda fraction: self.progress(stage, fraction))
        )
        self._translations[name] = translated
        first = self._translations[next(iter(self._translations))]
        scores = score(translated, self.trial.text.references, self.trial.text.tokenize)
        self.signatures = scores.bleu_signature, scores.chrf_signature
        reference = next(iter(self.quality.values())).bleu if self.quality else scores.bleu
        self._counts[name] = sentence_counts(translated, self.trial.text.references, self.trial.text.tokenize)
        self.quality[name] = Quality(
            bleu=scores.bleu,
            chrf=scores.chrf,
            drop=reference - scores.bleu,
            drop_error=difference_error(next(iter(self._counts.values())), self._counts[name]),
            identical=sum(one == other for one, other in zip(translated, first, strict=True)),
        )
        return self.quality[name]

    def enter_mixed(self, base: Precision, max_drop: float) -> list[Sensitivity]:
        """Keep more and more of the most sensitive layers higher: one, and twice as many as long as that is not inside
        the budget, or there are few candidates, and it is no more than half of all."""
        stage = f"sensitivity {base}"
        order = measure_sensitivity(
            self.prepared, base, self._notebook, lambda fraction: self.progress(stage, fraction)
        )
        layers, count = self.prepared.optimised(base).layers, 1
        while 2 * count <= len(layers):
            drop = self.enter(mixed(base, count, layers, order)).drop
            if drop <= max_drop and len(self.candidates) >= MIN_CANDIDATES:
                break
            count *= 2
        return order

    def timed(self) -> tuple[dict[str, Latency], float]:
        """Latencies by name, and their noise."""
        return self._notebook.measured(
            f"time {' '.join(self.candidates)}",
            tuple[dict[str, Latency], float],
            lambda: self.trial.timed(
                self._translators, self._translations, lambda fraction: self.progress("time", fraction)
            ),
        )


def _first(text: ValidationText, count: int | None) -> ValidationText:
    if not text.sources:
        raise ConfigError("There is no sentence to translate; give others with --valid.")
    return replace(text, sources=text.sources[:count], references=text.references[:count])
