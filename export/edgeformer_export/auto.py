"""``export --precision auto``: measures every precision for CPUs, and keeps the fastest within a quality budget."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from edgeformer.data.text import Pair
from edgeformer.quality.bootstrap import Interval, difference_interval, sentence_counts
from edgeformer.quality.evaluation import Evaluation, evaluate_texts
from edgeformer.run.folder import Run
from edgeformer_export.card import ChoiceTable
from edgeformer_export.export import ExportReport, export_run, record_choice
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.sample import spread
from edgeformer_export.stages import StageProgress, silent
from edgeformer_export.writer import atomic_folder, require_free
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.files import make_folder, temporary
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.translator import Translator

TIMED_SENTENCES, ROUNDS = 32, 10
"""Sentences that are timed, and how often each. Precisions take turns, so that a slowdown affects all of them."""
TIE = 0.1
"""Times that differ by at most this fraction are equal: the load of a machine changes them by as much."""


class PrecisionCandidate(NamedTuple):
    """Measurements of one precision: megabytes, BLEU, its drop from fp32, and milliseconds for a sentence alone."""

    precision: Precision
    size: float
    bleu: float
    drop: float
    interval: Interval
    milliseconds: float

    def row(self, result: str) -> tuple[str, ...]:
        """Return the candidate as a row of the table."""
        drop = f"{self.drop:+.2f} ({self.interval:+.2f})"
        return self.precision, f"{self.bleu:.2f}", drop, f"{self.size:.2f}", f"{self.milliseconds:#.3g}", result


def choose(candidates: Sequence[PrecisionCandidate], max_bleu_drop: float) -> tuple[PrecisionCandidate, ChoiceTable]:
    """Choose the smallest of the fastest candidates whose drop is not shown to exceed the budget; fp32 is one."""
    allowed = [each for each in candidates if each.interval.low <= max_bleu_drop]
    longest = (1 + TIE) * min(each.milliseconds for each in allowed)
    chosen = min((each for each in allowed if each.milliseconds <= longest), key=lambda each: each.size)
    results = ["chosen" if each is chosen else "" if each in allowed else "over budget" for each in candidates]
    notes = [
        f"Chosen: {chosen.precision}, the smallest of those at most {TIE:.0%} slower than the fastest whose drop is "
        f"not shown to exceed {max_bleu_drop:g}."
    ]
    if chosen.interval.high > max_bleu_drop:
        notes.append("On other text its drop may exceed the budget; measure more sentences for more certainty.")
    columns = ("precision", "BLEU", "drop (95 % interval)", "MB", "ms", "result")
    return chosen, ChoiceTable(
        columns=columns, rows=list(map(PrecisionCandidate.row, candidates, results)), notes=notes
    )


def export_best(
    run: Run,
    out: Path,
    pairs: Sequence[Pair],
    *,
    name: str,
    tokenize: str = "13a",
    max_bleu_drop: float = 0.2,
    target: Target = "ort",
    overwrite: bool = False,
    progress: StageProgress = silent,
) -> ExportReport:
    """Export a run in every precision for CPUs, and keep the one that :func:`choose` names.

    ``pairs`` are translated to measure BLEU, with sacreBLEU's tokenizer ``tokenize``; reports call them ``name``. All
    else is as for :func:`~edgeformer_export.export.export_run`, which a precision but fp32 may fail.
    """
    require_free(out, overwrite=overwrite)
    graphs = ModelGraphs(run, target, progress=progress)
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    references = [line.lower() for line in references] if run.recipe.tokenizer.lowercase else references
    reports, translators = dict[Precision, ExportReport](), dict[Precision, Translator]()
    evaluations, failed = dict[Precision, Evaluation](), dict[str, str]()
    make_folder(out.parent)
    with temporary(out.with_name(f"{out.name}.candidates"), lambda path: path.mkdir()) as folder, ExitStack() as stack:
        for precision, traits in PRECISIONS.items():
            if traits.optimized_for != "cpu" or not (traits.portable or target == "ort"):
                continue
            bundle, report = folder / precision, partial(progress, f"Translating with {precision}")
            try:
                reports[precision] = export_run(run, bundle, precision=precision, target=target, model_graphs=graphs)
                opened = stack.enter_context(Translator.open(bundle, threads=1, workers=1, truncate=True))
                evaluations[precision] = evaluate_texts(opened, sources, references, tokenize=tokenize, progress=report)
                translators[precision] = opened
            except EdgeformerError as error:
                if precision == "fp32":
                    raise
                failed[precision] = str(error)
        times = _times(translators, spread(sorted(sources, key=len), TIMED_SENTENCES), progress)
        counts = {key: sentence_counts(each.translations, references, tokenize) for key, each in evaluations.items()}
        fp32 = evaluations["fp32"].scores
        candidates = [
            PrecisionCandidate(
                precision,
                reports[precision].nbytes / 1e6,
                each.scores.bleu,
                fp32.bleu - each.scores.bleu,
                difference_interval(counts["fp32"], counts[precision]),
                times[precision],
            )
            for precision, each in evaluations.items()
        ]
        chosen, table = choose(candidates, max_bleu_drop)
        table.notes.insert(0, _conditions(f"{name}, {len(pairs):,} sentences", evaluations["fp32"]))
        table.notes.extend(f"{precision} failed: {reason}" for precision, reason in failed.items())
        with atomic_folder(out, overwrite=overwrite) as complete:
            shutil.copytree(reports[chosen.precision].bundle, complete, dirs_exist_ok=True)
            record_choice(complete, table)
    return replace(reports[chosen.precision], bundle=out, choice=table)


def _conditions(text: str, fp32: Evaluation) -> str:
    """Say what was measured, and where."""
    search = f"beam {fp32.beam_size}, 1 thread; BLEU {fp32.scores.bleu_signature}; {machine_summary()}"
    return f"Measured on {text}, {search}. `drop` is fp32's BLEU minus this one, `ms` the median time of a sentence."


def _times(
    translators: Mapping[Precision, Translator], sentences: Sequence[str], progress: StageProgress
) -> dict[Precision, float]:
    """Median time of a sentence alone, in milliseconds."""
    seconds: dict[Precision, list[float]] = {precision: [] for precision in translators}
    for number in range(ROUNDS):
        for precision, translator in translators.items():
            begin = time.perf_counter()
            for sentence in sentences:
                translator.translate([sentence], return_scores=False)
            seconds[precision].append((time.perf_counter() - begin) / len(sentences))
        progress("Timing all precisions", (number + 1) / ROUNDS)
    return {precision: 1000 * median(times) for precision, times in seconds.items()}
