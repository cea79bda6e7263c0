"""``export --precision auto``: measures every precision for CPUs on this machine, and exports the fastest within a
quality budget."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from edgeformer.quality.bootstrap import difference_interval, sentence_counts
from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.scores import score
from edgeformer.run.folder import Run
from edgeformer_export.choice import PrecisionCandidate, PrecisionChoice
from edgeformer_export.export import ExportReport, ParityError, export_run, write_graphs
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.sample import spread
from edgeformer_export.stages import StageProgress, silent
from edgeformer_export.validation_text import ValidationText
from edgeformer_export.writer import require_free
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator

MAX_BLEU_DROP = 0.2
TIMED_SENTENCES = 32
ROUNDS = 10
"""Number of times that each sentence is timed. Precisions take turns, so that a slowdown affects all of them."""


def export_best(
    run: Run,
    out: Path,
    text: ValidationText,
    *,
    max_bleu_drop: float = MAX_BLEU_DROP,
    target: Target = "ort",
    overwrite: bool = False,
    progress: StageProgress = silent,
) -> ExportReport:
    """Measure all precisions for CPUs, and export the one that :attr:`PrecisionChoice.chosen` names.

    Args:
        run: an opened run folder.
        out: the bundle's folder.
        text: sentences to compare precisions on.
        max_bleu_drop: quality budget.
        target: which operators may be used.
        overwrite: replace an existing bundle.
        progress: called during the work.

    Raises:
        ExportError: as for :func:`~edgeformer_export.export.export_run`.
    """
    require_free(out, overwrite=overwrite)
    model_graphs = ModelGraphs(run, target, progress=progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as folder:
        choice = measure(model_graphs, text, Path(folder), max_bleu_drop, progress)
    options: dict[str, Any] = {"target": target, "overwrite": overwrite, "progress": progress}
    while True:
        precision = choice.chosen.precision
        try:
            return export_run(run, out, precision=precision, choice=choice, model_graphs=model_graphs, **options)
        except ParityError as error:  # not the model after all, however good it was: choose again without it
            if precision == "fp32":
                raise
            choice = msgspec.structs.replace(choice, failed={**choice.failed, precision: str(error)})


def measure(
    model_graphs: ModelGraphs, text: ValidationText, work: Path, max_bleu_drop: float, progress: StageProgress
) -> PrecisionChoice:
    """Write a bundle in each precision into a folder, translate the text with it, and time them in turns."""
    search = DecodeOptions(**msgspec.structs.asdict(model_graphs.run.info.generation), return_scores=False)
    translators: dict[Precision, Translator] = {}
    outputs: dict[Precision, list[str]] = {}
    failed: dict[Precision, str] = {}
    with ExitStack() as stack:
        for precision, traits in PRECISIONS.items():
            if traits.optimized_for != "cpu" or not (traits.portable or model_graphs.target == "ort"):
                continue
            report = partial(progress, f"Translating with {precision}")
            try:
                (work / precision).mkdir()
                write_graphs(model_graphs, work / precision, precision)
                opened = Translator.open(work / precision, threads=1, workers=1, truncate=True)
                translators[precision] = stack.enter_context(opened)
                translations = translate_all(opened, text.sources, search, progress=report)
            except EdgeformerError as error:
                if precision == "fp32":
                    raise
                failed[precision] = str(error)
                continue
            outputs[precision] = [translation.text for translation in translations]
        timed_sentences = spread(sorted(text.sources, key=len), TIMED_SENTENCES)
        seconds: dict[Precision, list[float]] = {name: [] for name in outputs}
        for number in range(ROUNDS):
            for precision, times in seconds.items():
                begin = time.perf_counter()
                for sentence in timed_sentences:
                    translators[precision].translate([sentence], search)
                times.append((time.perf_counter() - begin) / len(timed_sentences))
            progress("Timing all precisions", (number + 1) / ROUNDS)
    scores = {name: score(lines, text.references, text.tokenize) for name, lines in outputs.items()}
    counts = {name: sentence_counts(lines, text.references, text.tokenize) for name, lines in outputs.items()}
    candidates = tuple(
        PrecisionCandidate(
            precision=name,
            bytes=open_bundle(work / name).nbytes,
            bleu=scores[name].bleu,
            drop=scores["fp32"].bleu - scores[name].bleu,
            drop_interval=difference_interval(counts["fp32"], counts[name]),
            milliseconds=1000 * median(seconds[name]),
        )
        for name in outputs
    )
    conditions = (
        f"Measured on {text.name}, {len(text.sources):,} sentences, beam {search.beam_size}, 1 thread; BLEU "
        f"{scores['fp32'].bleu_signature}; {machine_summary()}."
    )
    return PrecisionChoice(candidates=candidates, failed=failed, max_bleu_drop=max_bleu_drop, conditions=conditions)
