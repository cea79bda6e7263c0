"""From a run folder to a bundle: trace, optimise, quantize, write, and prove it equal to torch before it gets its
name."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import onnx_ir as ir
from onnx_ir.passes import common

import edgeformer
from edgeformer.model.base import EncoderDecoder
from edgeformer.train.run import Run
from edgeformer_export.calibrate import calibrate
from edgeformer_export.card import model_card
from edgeformer_export.parity import ParityReport, compare
from edgeformer_export.passes.pipeline import PassRecord, run_passes
from edgeformer_export.passes.quantize import QuantizeStatic, activations, projection_digests
from edgeformer_export.passes.simplify import Simplify
from edgeformer_export.passes.strip import Strip
from edgeformer_export.to_onnx import Graphs, to_onnx
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
MIN_ONNXRUNTIME = "1.22"

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
        precision: ``fp32``, or ``int8`` with activation ranges calibrated on the run's sample of training text.
        target: ``ort`` for ONNX Runtime's fused operators, ``portable`` for operators of the ONNX standard only.
        overwrite: replace a bundle that exists.
        progress: called as the work goes on.

    Raises:
        ExportError: the folder may not be written, the run has no sample, or the result is not equal to torch.
    """
    with atomic_folder(out, overwrite=overwrite) as folder:
        model = run.load_model()
        special = SpecialTokens()
        pairs = _sample_ids(run, model, special)
        progress("trace", 0.0)
        graphs = to_onnx(model, target)
        progress("optimise", 0.0)
        encoder, encoder_passes = run_passes(graphs.encoder, optimisations())
        decoder, decoder_passes = run_passes(graphs.decoder, optimisations())
        graphs = Graphs(encoder, decoder)
        if precision == "int8":
            ranges = calibrate(
                graphs,
                (activations(encoder.graph), activations(decoder.graph)),
                model.state_table(),
                pairs[:CALIBRATION_PAIRS],
                special,
                lambda fraction: progress("calibrate", fraction),
            )
            projections = projection_digests(encoder.graph) | projection_digests(decoder.graph)
            encoder, more = run_passes(encoder, [QuantizeStatic(ranges[0], target, projections)])
            encoder_passes += more
            decoder, more = run_passes(decoder, [QuantizeStatic(ranges[1], target, projections)])
            decoder_passes += more
        progress("write", 0.0)
        encoder, more = run_passes(encoder, [Strip()])
        encoder_passes += more
        decoder, more = run_passes(decoder, [Strip()])
        decoder_passes += more
        graphs = Graphs(encoder, decoder)
        passes = {contract.ENCODER_FILE: encoder_passes, contract.DECODER_FILE: decoder_passes}
        _write_graphs(graphs, folder)
        manifest = _manifest(run, model, graphs, precision, target, special, passes)
        for name in {manifest.tokenizers.source, manifest.tokenizers.target}:
            shutil.copyfile(run.path / name, folder / name)
        write_manifest(folder, manifest)

        # The bundle is complete but for its examples, card and figures, so it can be run to make them.
        translator = Translator(folder)
        options = [DecodeOptions(beam_size=beam) for beam in sorted({1, manifest.generation.beam_size})]
        parity = compare(
            model,
            translator.session,
            [source for source, _ in pairs[:PARITY_TEXTS]],
            options,
            precision,
            lambda fraction: progress("compare", fraction),
        )
        if parity.problems:
            raise ExportError("The exported graphs are not equal to torch: " + "; ".join(parity.problems) + ".")
        (folder / contract.GOLDEN_FILE).write_bytes(make_golden(translator, _golden_texts(run)))
        manifest = msgspec.structs.replace(manifest, report={**manifest.report, "parity": msgspec.to_builtins(parity)})
        (folder / contract.CARD_FILE).write_text(model_card(manifest, translator.bundle.nbytes), encoding="utf-8")
        write_manifest(folder, manifest)
        nbytes = open_bundle(folder).nbytes
    return ExportReport(bundle=out, passes=passes, parity=parity, nbytes=nbytes)


def optimisations() -> list[ir.passes.PassBase]:
    """Passes that leave results as they are, in their order."""
    return [
        Simplify(),
        common.CommonSubexpressionEliminationPass(),
        common.DeduplicateInitializersPass(),
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedOpsetsPass(),
    ]


def _sample_ids(run: Run, model: EncoderDecoder, special: SpecialTokens) -> list[tuple[list[int], list[int]]]:
    """The run's sample of training pairs as ids, without those too long for the model."""
    if not run.sample:
        raise ExportError(f"Run `{run.path}` has no sample of its training text; train it again with this version.")
    sources = run.source_tokenizer.encode_batch([source for source, _ in run.sample])
    targets = run.target_tokenizer.encode_batch([target for _, target in run.sample])
    return [
        ([*source, special.eos], target)
        for source, target in zip(sources, targets, strict=True)
        if len(source) < model.max_source_length and len(target) < model.max_target_length
    ]


def _golden_texts(run: Run) -> list[str]:
    """Short, middling and long sources of the sample."""
    texts = sorted({source for source, _ in run.sample}, key=lambda text: (len(text), text))
    spread = {round(index * (len(texts) - 1) / max(1, GOLDEN_TEXTS - 1)) for index in range(GOLDEN_TEXTS)}
    return [texts[index] for index in sorted(spread)]


def _write_graphs(graphs: Graphs, folder: Path) -> None:
    write_weights([graphs.encoder, graphs.decoder], folder / contract.WEIGHTS_FILE)
    ir.save(graphs.encoder, folder / contract.ENCODER_FILE)
    ir.save(graphs.decoder, folder / contract.DECODER_FILE)


def _manifest(
    run: Run,
    model: EncoderDecoder,
    graphs: Graphs,
    precision: Precision,
    target: Target,
    special: SpecialTokens,
    passes: dict[str, list[PassRecord]],
) -> Manifest:
    report: dict[str, Any] = {
        "passes": msgspec.to_builtins(passes),
        "operators": {
            contract.ENCODER_FILE: dict(Counter(node.op_type for node in graphs.encoder.graph).most_common()),
            contract.DECODER_FILE: dict(Counter(node.op_type for node in graphs.decoder.graph).most_common()),
        },
    }
    return Manifest(
        schema_revision=contract.SCHEMA_REVISION,
        producer=f"edgeformer {edgeformer.__version__}",
        family=str(run.recipe.model["family"]),
        source_language=run.recipe.source_language,
        target_language=run.recipe.target_language,
        target=target,
        precision={contract.ENCODER_FILE: precision, contract.DECODER_FILE: precision},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        max_source_length=model.max_source_length,
        max_target_length=model.max_target_length,
        special=special,
        tokenizers=TokenizerFiles(source=run.source_tokenizer_path.name, target=run.target_tokenizer_path.name),
        state=model.state_table(),
        generation=Generation(),
        opsets={**graphs.encoder.opset_imports, **graphs.decoder.opset_imports},
        min_onnxruntime=MIN_ONNXRUNTIME,
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
