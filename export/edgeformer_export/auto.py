"""``export --precision auto``: measures every precision on this machine, and exports the best within a quality
budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ConfigError
from edgeformer.quality.bootstrap import difference_interval, sentence_counts
from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.scores import metrics, score
from edgeformer.run.folder import Run
from edgeformer_export.choice import Candidate, Choice, Objective, choose
from edgeformer_export.export import ExportReport, ParityError, export_run, write_graphs
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.sample import spread
from edgeformer_export.stages import StageProgress, silent
from edgeformer_export.validation_text import ValidationText
from edgeformer_export.writer import require_free
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engines.onnx import ENGINE_VERSION
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.translator import Translator

TIMED_SENTENCES = 32
TURN = 4
"""Number of sentences that a candidate translates before the next candidate's turn."""
ROUNDS = 10
"""Number of times that each sentence is timed, after a round that warms up."""


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """Criteria for the choice."""

    max_bleu_drop: float = 0.2
    """Quality budget: maximum drop in BLEU relative to fp32."""
    optimize: Objective = "latency"
    """The quantity to minimize within the budget."""
    beam_size: int | None = None
    """Hypotheses kept, for quality and for time; ``None`` for the run's default."""
    threads: int = 1
    """CPU threads per operator; 0 for as many as are useful for a model of its size."""
    sentences: int | None = None
    """Number of sentences to use, from the first; ``None`` for all."""


def export_best(
    run: Run,
    out: Path,
    text: ValidationText,
    options: AutoOptions,
    *,
    target: Target = "ort",
    overwrite: bool = False,
    progress: StageProgress = silent,
) -> ExportReport:
    """Measure all precisions for CPUs, and export the best within the budget.

    Args:
        run: an opened run folder.
        out: the bundle's folder.
        text: sentences to compare precisions on.
        options: criteria for the choice.
        target: which operators may be used.
        overwrite: replace an existing bundle.
        progress: called during the work.

    Raises:
        ConfigError: the text has no sentences.
        DataError: every sentence is too long for the model.
        ExportError: as for :func:`~edgeformer_export.export.export_run`.
    """
    require_free(out, overwrite=overwrite)
    metrics(text.tokenize)  # fails early if a package is missing
    if not text.sources:
        raise ConfigError("There is no sentence to translate; choose another text with --valid.")
    text = replace(text, sources=text.sources[: options.sentences], references=text.references[: options.sentences])
    model_graphs = ModelGraphs(run, target, progress=progress)
    choice = _measure(model_graphs, text, options, out, progress)
    while True:
        try:
            return export_run(
                run,
                out,
                precision=choice.chosen,
                target=target,
                overwrite=overwrite,
                choice=choice,
                model_graphs=model_graphs,
                progress=progress,
            )
        except ParityError as error:  # not the model after all, however good it was: choose again without it
            if choice.chosen == "fp32":
                raise
            choice = choice.without(choice.chosen, str(error))


def _measure(
    model_graphs: ModelGraphs, text: ValidationText, options: AutoOptions, out: Path, progress: StageProgress
) -> Choice:
    """Write a bundle in each precision, translate the text with it, and time them all in turns."""
    decode = DecodeOptions(**msgspec.structs.asdict(model_graphs.run.info.generation))
    decode = replace(decode, beam_size=options.beam_size or decode.beam_size, return_scores=False)
    translators: dict[Precision, Translator] = {}
    outputs: dict[Precision, list[str]] = {}
    failed: dict[Precision, str] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as work, ExitStack() as stack:
        for precision, traits in PRECISIONS.items():
            if traits.optimized_for != "cpu" or not (traits.portable or model_graphs.target == "ort"):
                continue
            stage, folder = f"Translating with {precision}", Path(work) / precision
            try:
                folder.mkdir()
                write_graphs(model_graphs, folder, precision)
                translator = stack.enter_context(Translator.open(folder, threads=options.threads, workers=1))
                text = text if translators else text.fitting(translator)
                translations = translate_all(translator, text.sources, decode, progress=partial(progress, stage))
            except EdgeformerError as error:
                if precision == "fp32":
                    raise
                failed[precision] = str(error)
                continue
            translators[precision] = translator
            outputs[precision] = [translation.text for translation in translations]
        times = timed(translators, text.sources, decode, partial(progress, "Timing all precisions"))
        sizes = {precision: open_bundle(Path(work) / precision).nbytes for precision in translators}
    candidates = tuple(_candidate(precision, outputs, text, times, sizes[precision]) for precision in translators)
    return Choice(
        chosen=choose(candidates, options.max_bleu_drop, options.optimize, failed),
        max_bleu_drop=options.max_bleu_drop,
        optimize=options.optimize,
        candidates=candidates,
        failed=failed,
        text=text.name,
        sentences=len(text.sources),
        too_long=text.too_long,
        beam_size=decode.beam_size,
        threads=options.threads,
        bleu_signature=score(outputs["fp32"], text.references, text.tokenize).bleu_signature,
        machine=machine_summary(),
        engine=f"onnxruntime {ENGINE_VERSION}",
    )


def _candidate(
    precision: Precision,
    outputs: Mapping[Precision, Sequence[str]],
    text: ValidationText,
    times: Mapping[Precision, NDArray[np.float64]],
    size: int,
) -> Candidate:
    """Compare a precision with fp32."""
    ours, reference = outputs[precision], outputs["fp32"]
    bleu, reference_bleu = (score(lines, text.references, text.tokenize).bleu for lines in (ours, reference))
    counts, reference_counts = (sentence_counts(lines, text.references, text.tokenize) for lines in (ours, reference))
    return Candidate(
        precision=precision,
        bytes=size,
        bleu=bleu,
        drop=reference_bleu - bleu,
        drop_interval=difference_interval(reference_counts, counts),
        identical=sum(map(str.__eq__, ours, reference)),
        milliseconds=float(np.median(times[precision])),
        ratio=float(np.median(times[precision] / times["fp32"])),
    )


def timed(
    translators: Mapping[Precision, Translator],
    sources: Sequence[str],
    options: DecodeOptions,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[Precision, NDArray[np.float64]]:
    """Time some of the sentences one at a time. Precisions take turns of a few sentences, so that a temporary slowdown
    of the machine affects all of them.

    Args:
        translators: opened bundles by precision.
        sources: sentences, of which :data:`TIMED_SENTENCES` of different lengths are timed.
        options: decoding options.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Milliseconds for each precision, ``(ROUNDS, sentences)``; those at the same place are paired.
    """
    chosen = spread(sorted(sources, key=len), TIMED_SENTENCES)
    names = list(translators)
    times = {name: np.empty((ROUNDS, len(chosen))) for name in names}
    for number in range(-1, ROUNDS):  # round -1 warms up; the last round overwrites its times
        for start in range(0, len(chosen), TURN):
            first = (number + start) % len(names)
            for name in names[first:] + names[:first]:
                for sentence in range(start, min(start + TURN, len(chosen))):
                    begin = time.perf_counter()
                    translators[name].translate([chosen[sentence]], options)
                    times[name][number, sentence] = 1000 * (time.perf_counter() - begin)
        progress((number + 2) / (ROUNDS + 1))
    return times
