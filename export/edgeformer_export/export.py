"""Exports a run as a bundle: trace, optimize, quantize, write, and compare with PyTorch before the bundle is renamed to
its final name."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
import onnx_ir as ir

import edgeformer
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer.run.folder import Run
from edgeformer_export.card import ChoiceTable, model_card
from edgeformer_export.kernels.plan import NotPlannableError, make_plan
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.parity.comparison import compare, compare_logits, torch_rounding
from edgeformer_export.parity.golden_examples import listed_cases, make_golden
from edgeformer_export.parity.locate import ForcedSentence, layer_outputs, match_modules
from edgeformer_export.parity.report import ParityReport
from edgeformer_export.passes.pipeline import PassRecord, operator_counts, run_passes
from edgeformer_export.passes.strip import StripPass
from edgeformer_export.sample import SamplePair, spread
from edgeformer_export.shortlist.lists import MadeShortlist, ShortlistReport, measure
from edgeformer_export.stages import COMPARE, EXAMPLES, WRITE, StageProgress, silent
from edgeformer_export.tracing.to_onnx import Graphs, split_attention
from edgeformer_export.traits import PeriodReport, failed_validation, measure_period, min_confidence
from edgeformer_export.weights import WeightsFile
from edgeformer_export.writer import ExportError, atomic_folder, write_manifest
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Manifest, SpecialTokens, Target, TokenizerFiles, Traits
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.bundle.report import LayerOutput, QuantizationReport, Report
from edgeformer_runtime.check.golden import Golden, kernel_problems
from edgeformer_runtime.engines.base import kernels_problem
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator

GOLDEN_CANDIDATES = 96
PARITY_TEXTS = 32
MATCHED_STEPS = 3
MEASURED_STEPS = 8
EXPORTERS = ("edgeformer", "torch", "onnx", "onnx-ir", "onnxsim", "onnxscript")
"""Packages whose versions a bundle records."""


class ParityError(ExportError):
    """The exported graphs do not match PyTorch."""


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Record of an export, and a comparison of its result with PyTorch."""

    bundle: Path
    """The bundle's folder."""
    passes: dict[str, tuple[PassRecord, ...]]
    """Pass records by graph file."""
    parity: ParityReport
    """Comparison with PyTorch on a few sentences of the training set."""
    shortlist: ShortlistReport | None
    """Cost of the shortlist; ``None`` without one."""
    nbytes: int
    """Total size of all files, in bytes."""
    kernels: str | None
    """Why the bundle has no plan for the kernels; empty if it has, ``None`` in precisions that they do not have."""
    choice: ChoiceTable | None = None
    """How the precision was chosen; ``None`` if it was given."""


def export_run(
    run: Run,
    out: Path,
    *,
    precision: Precision = "fp32",
    target: Target = "ort",
    overwrite: bool = False,
    force: bool = False,
    shortlist: MadeShortlist | None = None,
    model_graphs: ModelGraphs | None = None,
    progress: StageProgress = silent,
) -> ExportReport:
    """Export a trained model as a bundle.

    Args:
        run: an opened run folder.
        out: the bundle's folder; written under another name and renamed once it is complete.
        precision: precision of the decoder's weights; its row in :data:`~edgeformer_runtime.precision.PRECISIONS`
            defines that of everything else.
        target: ``ort`` for ONNX Runtime's fused operators, ``portable`` for operators of the ONNX standard only.
        overwrite: replace an existing bundle.
        force: write a quantized bundle even if it is too far from PyTorch; its card and manifest then say so.
        shortlist: restricts searches to likely tokens.
        model_graphs: graphs of the same run and target, to avoid tracing them again.
        progress: called during the work.

    Raises:
        ConfigError: the model breaks the contract of model families.
        ExportError: the output folder may not be overwritten, the run has no sample, or the model cannot be traced.
        ParityError: the result does not match PyTorch.
    """
    check_settings(precision, target, with_shortlist=shortlist is not None)
    with atomic_folder(out, overwrite=overwrite) as folder:
        for_cuda = PRECISIONS[precision].optimized_for == "cuda"
        lists = None if shortlist is None else shortlist.shortlist
        model_graphs = model_graphs or ModelGraphs(run, target, for_cuda=for_cuda, shortlist=lists, progress=progress)
        manifest = write_graphs(model_graphs, folder, precision, progress)
        # Only examples, card and measurements are missing now; the bundle itself can be run to produce them.
        with Translator.open(folder, shortlist=False, engine="onnxruntime") as translator:
            parity = _compare(model_graphs, translator, precision, progress, force=force)
            golden, cost = _examples(model_graphs, translator, shortlist, progress)
            manifest = _with_checked_plan(model_graphs, manifest, translator, golden)
        period, traits = _measured(folder, model_graphs)
        layers = _layers(model_graphs, translator, golden, precision)
        (folder / contract.GOLDEN_FILE).write_bytes(msgspec.json.encode(golden))
        measured = {"parity": parity, "shortlist": cost, "period": period}
        raw = {name: part and msgspec.to_builtins(part) for name, part in measured.items()}
        report = msgspec.structs.replace(manifest.report, layers=layers, **raw)
        manifest = msgspec.structs.replace(manifest, report=report, traits=traits)
        _write_card(folder, manifest, translator.bundle.nbytes)
        nbytes = open_bundle(folder).nbytes
    passes = msgspec.convert(report.passes, dict[str, tuple[PassRecord, ...]])
    kernels = _kernels_finding(manifest) if precision == "int8" else None
    return ExportReport(bundle=out, passes=passes, parity=parity, shortlist=cost, nbytes=nbytes, kernels=kernels)


def record_choice(folder: Path, choice: ChoiceTable) -> None:
    """Add to a bundle's manifest and card how its precision was chosen."""
    bundle = open_bundle(folder)
    report = msgspec.structs.replace(bundle.manifest.report, choice=msgspec.to_builtins(choice))
    _write_card(folder, msgspec.structs.replace(bundle.manifest, report=report), bundle.nbytes)


def _write_card(folder: Path, manifest: Manifest, nbytes: int) -> None:
    """Write the card of a bundle, and the manifest, which has the card's hash."""
    (folder / contract.CARD_FILE).write_text(model_card(manifest, nbytes), encoding="utf-8")
    write_manifest(folder, manifest)


def _kernels_finding(manifest: Manifest) -> str:
    """See :attr:`ExportReport.kernels`."""
    return manifest.report.kernels or ("" if manifest.plan else "they are not installed here")


def _measured(folder: Path, model_graphs: ModelGraphs) -> tuple[PeriodReport | None, Traits]:
    """Measure what texts are translated with, with the bundle's shortlist."""
    with Translator.open(folder, engine="onnxruntime" if model_graphs.shortlist is None else "kernels") as translator:
        period = measure_period(translator, [pair.text for pair in model_graphs.pairs])
        texts = golden_texts(model_graphs.pairs)
        is_useless = failed_validation(model_graphs.run.info.final)
        least = 1.0 if is_useless else min_confidence(translator, texts)
    return period, Traits(min_confidence=least, needs_period=period is not None and period.is_needed)


def check_settings(precision: Precision, target: Target, *, with_shortlist: bool) -> None:
    """Check that a bundle can have these settings.

    Raises:
        ExportError: it cannot.
    """
    if with_shortlist and (precision != "int8" or target != "ort"):
        raise ExportError(
            "A shortlist restricts searches on the kernels only, which run int8 bundles of `--target ort`; give "
            "--precision int8, or leave out --shortlist."
        )
    if with_shortlist and (problem := kernels_problem()):
        raise ExportError(f"A shortlist is measured on the kernels, but {problem}; leave out --shortlist.")
    if target == "portable" and not PRECISIONS[precision].portable:
        raise ExportError(
            f"{precision} needs ONNX Runtime's own operators; give --target ort, or --precision int8 for portable "
            "graphs."
        )


def write_graphs(
    model_graphs: ModelGraphs, folder: Path, precision: Precision, progress: StageProgress = silent
) -> Manifest:
    """Write a bundle that can be run, but has no examples, card or comparison with PyTorch.

    Args:
        model_graphs: the model.
        folder: an empty folder.
        precision: precision of the decoder's weights.
        progress: called during the work.

    Returns:
        The manifest.

    Raises:
        ExportError: there is nothing to quantize.
    """
    quantized = model_graphs.quantized(precision)
    progress(WRITE, 0.0)
    graphs, passes = quantized.graphs, dict(quantized.passes)
    if model_graphs.model.has_attention:
        graphs |= split_attention(graphs[contract.DECODER_FILE])
    for file in graphs:
        graphs[file], records = run_passes(graphs[file], [StripPass()])
        passes[file] = (*passes.get(file, ()), *records)
    if model_graphs.shortlist is not None:
        (folder / contract.SHORTLIST_FILE).write_bytes(model_graphs.shortlist.to_bytes())
    weights = WeightsFile(folder / contract.WEIGHTS_FILE)
    weights.move(graphs.values())
    for file, graph in graphs.items():
        ir.save(graph, folder / file)
    plan, kernels = None, ""
    if precision == "int8" and model_graphs.target != "ort":
        kernels = "they take the weights of `--target ort`"
    elif precision == "int8":
        try:
            plan = make_plan(model_graphs.model, quantized.table, quantized.static, weights.place)
        except NotPlannableError as error:
            kernels = str(error)
            _require_no_shortlist(model_graphs, kernels)
    operators = {file: dict(operator_counts(graph).most_common()) for file, graph in graphs.items()}
    quantization = None
    if quantized.table:
        quantization = QuantizationReport(tensors=tuple(weight.report for weight in quantized.table))
    report = Report(passes=msgspec.to_builtins(passes), operators=operators, quantization=quantization, kernels=kernels)
    manifest = msgspec.structs.replace(_manifest(model_graphs, graphs, precision, report), plan=plan)
    for name in {manifest.tokenizers.source, manifest.tokenizers.target}:
        shutil.copyfile(model_graphs.run.path / name, folder / name)
    return write_manifest(folder, manifest)


def _compare(
    model_graphs: ModelGraphs, translator: Translator, precision: Precision, progress: StageProgress, *, force: bool
) -> ParityReport:
    """Compare the bundle with PyTorch on text of the training set.

    Raises:
        ParityError: the bundle does not match PyTorch, and is not quantized or ``force`` is not set.
    """
    beams = sorted({1, translator.bundle.manifest.generation.beam_size})
    sources = [pair.source for pair in spread(model_graphs.pairs, PARITY_TEXTS)]
    parity = compare(
        model_graphs.model,
        translator.session,
        sources,
        [DecodeOptions(beam_size=beam) for beam in beams],
        precision,
        partial(progress, COMPARE),
    )
    traits = PRECISIONS[precision]
    if parity.problems and not (force and traits.is_quantized):
        found = "; ".join(parity.problems)
        _require_steps_like_forward(model_graphs.model, sources, model_graphs.special)
        if not traits.is_quantized:
            raise ParityError(f"The exported graphs do not match PyTorch: {found}.")
        raise ParityError(
            f"In {precision}, the model is too far from PyTorch: {found}. Models trained for a short time lose most. "
            "Train it longer, export with a higher precision, or add --force to write the bundle with this finding in "
            "its card."
        )
    return parity


def _require_steps_like_forward(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], special: SpecialTokens
) -> None:
    """Compare a model with itself: on text, ``step`` may differ from ``forward`` although the made-up sentences of the
    contract's check showed no difference.

    Raises:
        ParityError: they differ by more than an fp32 bundle may.
    """
    session, greedy = TorchSession(model, special), DecodeOptions(beam_size=1, return_scores=False)
    targets = [best.ids for best, *_ in decode(session, sources, greedy)]
    pairs = list(zip(sources, targets, strict=True))
    logits = compare_logits(model, session, pairs)
    logits = msgspec.structs.replace(logits, torch_rounding=torch_rounding(model, pairs, special))
    if problems := ParityReport(precision="fp32", logits=logits, tokens=()).problems:
        raise ParityError(
            "In PyTorch, the model's `step` returns different logits than its `forward` for text of the training set: "
            f"{'; '.join(problems)}. Correct the model; its graphs compute what `step` does."
        )


def _examples(
    model_graphs: ModelGraphs, translator: Translator, shortlist: MadeShortlist | None, progress: StageProgress
) -> tuple[Golden, ShortlistReport | None]:
    """Make golden examples, without and with shortlist, and measure what the shortlist costs."""
    progress(EXAMPLES, 0.0)
    golden = make_golden(translator, golden_texts(model_graphs.pairs))
    progress(EXAMPLES, 0.6)
    if shortlist is None:
        return golden, None
    open_kernels = partial(Translator.open, translator.bundle, engine="kernels")
    with open_kernels(shortlist=False) as whole, open_kernels() as restricted:
        golden = msgspec.structs.replace(golden, listed=listed_cases(golden, restricted))
        return golden, measure(shortlist, whole, restricted)


def _require_no_shortlist(model_graphs: ModelGraphs, problem: str) -> None:
    """Refuse a shortlist where the kernels cannot be used.

    Raises:
        ExportError: there is one.
    """
    if model_graphs.shortlist is not None:
        raise ExportError(f"A shortlist restricts searches on the kernels only, but {problem}; leave out --shortlist.")


def _with_checked_plan(
    model_graphs: ModelGraphs, manifest: Manifest, translator: Translator, golden: Golden
) -> Manifest:
    """Leave the plan out of a manifest, with the reason, unless the kernels compute what the graphs do."""
    if manifest.plan is None:
        return manifest
    if kernels_problem():  # nothing is known against the plan, but nothing was compared either
        return msgspec.structs.replace(manifest, plan=None)
    try:
        problems = kernel_problems(translator, golden)
    except EdgeformerError as error:
        problems = [str(error)]
    if not problems:
        return manifest
    _require_no_shortlist(model_graphs, "; ".join(problems))
    report = msgspec.structs.replace(manifest.report, kernels="; ".join(problems))
    return msgspec.structs.replace(manifest, plan=None, report=report)


def _layers(
    model_graphs: ModelGraphs, translator: Translator, golden: Golden, precision: Precision
) -> tuple[LayerOutput, ...]:
    """Measure the error of each layer's output on the golden examples."""
    model, pairs, start = model_graphs.model, model_graphs.pairs, model_graphs.special.start
    middle = pairs[len(pairs) // 2]
    fed = ForcedSentence(tuple(middle.source), (*start, *middle.target)[:MATCHED_STEPS])
    modules = match_modules(
        model, model_graphs.optimized(precision).graphs, model_graphs.traced.table, model_graphs.special, fed
    )
    steps = min(MEASURED_STEPS, translator.session.max_target_length)
    sentences = [
        ForcedSentence(case.source, (*start, *case.ids)[:steps]) for case in golden.cases if case.beam_size == 1
    ]
    return layer_outputs(model, translator.bundle, sentences, modules, translator.session.device)


def golden_texts(pairs: Sequence[SamplePair]) -> list[str]:
    """List candidates for golden examples, from shortest to longest."""
    return spread(sorted({pair.text for pair in pairs}, key=lambda text: (len(text), text)), GOLDEN_CANDIDATES)


def _manifest(model_graphs: ModelGraphs, graphs: Graphs, precision: Precision, report: Report) -> Manifest:
    run, model, traits = model_graphs.run, model_graphs.model, PRECISIONS[precision]
    return Manifest(
        schema_revision=contract.SCHEMA_REVISION,
        producer=f"edgeformer {edgeformer.__version__}",
        family=str(run.recipe.model["family"]),
        source_language=run.recipe.source_language,
        target_language=run.recipe.target_language,
        target=model_graphs.target,
        precision={file: traits.encoder if file == contract.ENCODER_FILE else precision for file in graphs},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        max_source_length=model.max_source_length,
        max_target_length=model.max_target_length,
        special=model_graphs.special,
        tokenizers=TokenizerFiles(
            source=run.source_tokenizer_path.name,
            target=run.target_tokenizer_path.name,
            source_vocabulary=run.source_tokenizer.vocabulary_sha256,
            target_vocabulary=run.target_tokenizer.vocabulary_sha256,
        ),
        state=model_graphs.traced.table,
        generation=run.info.generation,
        text=run.info.text,
        opsets={domain: number for graph in graphs.values() for domain, number in graph.opset_imports.items()},
        files={},
        provenance=_provenance(run),
        report=report,
    )


def _provenance(run: Run) -> Provenance:
    training = msgspec.to_builtins(run.info)
    del training["quantization"]  # which is in the graphs
    return Provenance(
        recipe=msgspec.to_builtins(run.recipe),
        training=training,
        exported_with={"python": platform.python_version(), **{name: version(name) for name in EXPORTERS}},
    )
