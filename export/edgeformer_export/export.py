"""From a run folder to a bundle: trace, optimise, quantize, write, and prove it equal to torch before it gets its
name."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import onnx_ir as ir
from onnx_ir.passes import common

import edgeformer
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.check import check_model
from edgeformer.train.run import Run
from edgeformer_export.calibrate import calibrate
from edgeformer_export.card import model_card
from edgeformer_export.parity import ParityReport, compare
from edgeformer_export.passes.heads import FuseHeads
from edgeformer_export.passes.merge import MergeLinears
from edgeformer_export.passes.norms import FuseSkipNorm, VectorNorm
from edgeformer_export.passes.pipeline import PassRecord, run_passes
from edgeformer_export.passes.quantize import QuantizeStatic, activations, projection_digests
from edgeformer_export.passes.quantize_blocks import Bits, QuantizeBlocks
from edgeformer_export.passes.simplify import Simplify
from edgeformer_export.passes.strip import Strip
from edgeformer_export.to_onnx import Traced, split_attention, to_onnx
from edgeformer_export.weights import write_weights
from edgeformer_export.writer import ExportError, atomic_folder, write_manifest
from edgeformer_runtime import contract
from edgeformer_runtime.bundle import open_bundle
from edgeformer_runtime.golden import make_golden
from edgeformer_runtime.manifest import Generation, Manifest, Precision, SpecialTokens, Target, TokenizerFiles
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.translator import Translator

CALIBRATION_PAIRS = 256
GOLDEN_TEXTS = 6
PARITY_TEXTS = 32
MIN_ONNXRUNTIME: dict[Precision, str] = {"fp32": "1.22", "int8": "1.22", "int8-block": "1.23", "int4": "1.23"}
"""Oldest onnxruntime whose operators know what the graphs ask of them."""
BLOCK_BITS: dict[Precision, Bits] = {"int8-block": 8, "int4": 4}

Progress = Callable[[str, float], None]
"""Called with the stage's name and the fraction of it done, 0 … 1."""


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What was done, and how the result compares with torch."""

    bundle: Path
    """The bundle's folder."""
    passes: dict[str, list[PassRecord]]
    """Passes by graph file."""
    parity: ParityReport
    """Comparison over a few sentences of the training set."""
    nbytes: int
    """Bytes of all files."""


def export_run(
    run: Run,
    out: Path,
    *,
    precision: Precision = "fp32",
    target: Target = "ort",
    overwrite: bool = False,
    progress: Progress = lambda stage, fraction: None,
) -> ExportReport:
    """Export a trained model as a bundle.

    Args:
        run: an opened run folder.
        out: the bundle's folder; written under another name and renamed when all is well.
        precision: of the decoder's weights. The encoder, which has many rows, has ``int8`` where they are in blocks.
        target: ``ort`` for ONNX Runtime's fused operators, ``portable`` for operators of the ONNX standard only.
        overwrite: replace a bundle that exists.
        progress: called as the work goes on.

    Raises:
        ConfigError: the model breaks the contract of model families.
        ExportError: the folder may not be written, the run has no sample, the model cannot be traced, or the result is
            not equal to torch.
    """
    if target == "portable" and precision in BLOCK_BITS:
        raise ExportError(
            f"{precision} needs ONNX Runtime's own operators; give --target ort, or --precision int8 for portable "
            "graphs."
        )
    with atomic_folder(out, overwrite=overwrite) as folder:
        model = run.load_model()
        check_model(model)
        special = SpecialTokens()
        pairs = sample_pairs(run, model, special)
        progress("trace", 0.0)
        traced = to_onnx(model, target)
        graphs = traced.graphs
        progress("optimise", 0.0)
        passes: dict[str, list[PassRecord]] = {}
        for file in graphs:
            graphs[file], passes[file] = run_passes(graphs[file], optimisations(file, target, precision))
        if precision != "fp32":
            ranges = calibrate(
                graphs,
                {file: activations(graph.graph) for file, graph in graphs.items()},
                traced.table,
                [(pair.source, pair.target) for pair in spread(pairs, CALIBRATION_PAIRS)],
                special,
                lambda fraction: progress("calibrate", fraction),
            )
            changed = False
            projections = frozenset().union(*(projection_digests(graph.graph) for graph in graphs.values()))
            for file in graphs:
                quantization: list[ir.passes.PassBase] = [QuantizeStatic(ranges[file], target, projections)]
                if precision in BLOCK_BITS:
                    # The encoder's embedding too, which may be the decoder's table.
                    in_blocks = QuantizeBlocks(BLOCK_BITS[precision], linears=file == contract.DECODER_FILE)
                    quantization.insert(0, in_blocks)
                graphs[file], more = run_passes(graphs[file], quantization)
                passes[file] += more
                changed |= any(record.outcome == "changed" for record in more)
            if not changed:
                raise ExportError("This model has no weights worth quantizing; export it with --precision fp32.")
        progress("write", 0.0)
        if model.has_attention:
            graphs |= split_attention(graphs[contract.DECODER_FILE])
        for file in graphs:
            graphs[file], more = run_passes(graphs[file], [Strip()])
            passes.setdefault(file, []).extend(more)
        write_weights(graphs.values(), folder / contract.WEIGHTS_FILE)
        for file, graph in graphs.items():
            ir.save(graph, folder / file)
        manifest = _manifest(run, model, traced, precision, target, special, passes)
        for name in {manifest.tokenizers.source, manifest.tokenizers.target}:
            shutil.copyfile(run.path / name, folder / name)
        write_manifest(folder, manifest)

        # The bundle is complete but for its examples, card and figures, so it can be run to make them.
        translator = Translator(folder)
        options = [DecodeOptions(beam_size=beam) for beam in sorted({1, manifest.generation.beam_size})]
        parity = compare(
            model,
            translator.session,
            [pair.source for pair in spread(pairs, PARITY_TEXTS)],
            options,
            precision,
            lambda fraction: progress("compare", fraction),
        )
        if parity.problems:
            raise ExportError("The exported graphs are not equal to torch: " + "; ".join(parity.problems) + ".")
        (folder / contract.GOLDEN_FILE).write_bytes(make_golden(translator, _golden_texts(pairs)))
        manifest = msgspec.structs.replace(manifest, report={**manifest.report, "parity": msgspec.to_builtins(parity)})
        (folder / contract.CARD_FILE).write_text(model_card(manifest, translator.bundle.nbytes), encoding="utf-8")
        write_manifest(folder, manifest)
        nbytes = open_bundle(folder).nbytes
    return ExportReport(bundle=out, passes=passes, parity=parity, nbytes=nbytes)


def optimisations(file: str, target: Target, precision: Precision) -> list[ir.passes.PassBase]:
    """Passes that leave results as they are but for rounding, in their order.

    Args:
        file: the graph's name in a bundle: the encoder has a row for each source token, a step has few.
        target: which operators may be used.
        precision: of the decoder; with weights in blocks it is for one row at a time.
    """
    step = file != contract.ENCODER_FILE
    passes: list[ir.passes.PassBase] = [
        *([MergeLinears()] if step else []),
        Simplify(),
        common.CommonSubexpressionEliminationPass(),
        common.DeduplicateInitializersPass(),
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedOpsetsPass(),
    ]
    if target == "ort":
        passes += [FuseHeads(), FuseSkipNorm() if step and precision in BLOCK_BITS else VectorNorm()]
    return passes


@dataclass(frozen=True)
class SamplePair:
    """One pair of the run's sample of training text, as text and as ids."""

    text: str
    source: list[int]
    """Source ids with end token."""
    target: list[int]
    """Target ids without special tokens."""


def sample_pairs(run: Run, model: EncoderDecoder, special: SpecialTokens) -> list[SamplePair]:
    """The run's sample, without pairs that are too long for the model or blank.

    Raises:
        ExportError: nothing is left.
    """
    sources = run.source_tokenizer.encode_batch([source for source, _ in run.sample])
    targets = run.target_tokenizer.encode_batch([target for _, target in run.sample])
    pairs = [
        SamplePair(text, [*source, special.eos], target)
        for (text, _), source, target in zip(run.sample, sources, targets, strict=True)
        if text.strip() and len(source) < model.max_source_length and len(target) < model.max_target_length
    ]
    if not pairs:
        raise ExportError(f"Run `{run.path}` has no sample of its training text; train it again with this version.")
    return pairs


T = TypeVar("T")


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most ``count`` items at even distances, the first and the last among them."""
    count = min(count, len(items))
    return [items[round(index * (len(items) - 1) / max(1, count - 1))] for index in range(count)]


def _golden_texts(pairs: Sequence[SamplePair]) -> list[str]:
    """Short, middling and long sources."""
    return spread(sorted({pair.text for pair in pairs}, key=lambda text: (len(text), text)), GOLDEN_TEXTS)


def _manifest(
    run: Run,
    model: EncoderDecoder,
    traced: Traced,
    precision: Precision,
    target: Target,
    special: SpecialTokens,
    passes: dict[str, list[PassRecord]],
) -> Manifest:
    graphs = traced.graphs
    report: dict[str, Any] = {
        "passes": msgspec.to_builtins(passes),
        "operators": {
            file: dict(Counter(node.op_type for node in graph.graph).most_common()) for file, graph in graphs.items()
        },
    }
    return Manifest(
        schema_revision=contract.SCHEMA_REVISION,
        producer=f"edgeformer {edgeformer.__version__}",
        family=str(run.recipe.model["family"]),
        source_language=run.recipe.source_language,
        target_language=run.recipe.target_language,
        target=target,
        precision={
            file: "int8" if precision in BLOCK_BITS and file == contract.ENCODER_FILE else precision for file in graphs
        },
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        max_source_length=model.max_source_length,
        max_target_length=model.max_target_length,
        special=special,
        tokenizers=TokenizerFiles(source=run.source_tokenizer_path.name, target=run.target_tokenizer_path.name),
        state=traced.table,
        generation=Generation(),
        opsets={domain: number for graph in graphs.values() for domain, number in graph.opset_imports.items()},
        min_onnxruntime=MIN_ONNXRUNTIME[precision],
        files={},
        provenance={
            "recipe": msgspec.to_builtins(run.recipe),
            "training": msgspec.to_builtins(run.info),
            "exported_with": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("edgeformer", "torch", "onnx", "onnx-ir", "onnxsim", "onnxscript")},
            },
        },
        report=report,
    )
