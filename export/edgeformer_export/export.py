"""From a run folder to a bundle: trace, optimise, quantize, write, and prove it equal to torch before it gets its
name."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import onnx_ir as ir

import edgeformer
from edgeformer.train.run import Run
from edgeformer_export.card import model_card
from edgeformer_export.model_graphs import Prepared, Progress
from edgeformer_export.parity.comparison import ParityReport, compare
from edgeformer_export.parity.golden_examples import make_golden
from edgeformer_export.parity.locate import match_modules, record_inner
from edgeformer_export.passes.pipeline import PassRecord, run_passes
from edgeformer_export.passes.strip import Strip
from edgeformer_export.quantize.assignment import BLOCK_BITS, QUANTIZED, assign, tensor_reports
from edgeformer_export.sample import SamplePair, spread
from edgeformer_export.tracing.to_onnx import Graphs, split_attention
from edgeformer_export.weights import write_weights
from edgeformer_export.writer import ExportError, atomic_folder, write_manifest
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Manifest, Precision, Target, TokenizerFiles
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.selfcheck.trace import Trace
from edgeformer_runtime.translator import Translator

GOLDEN_CANDIDATES = 96
PARITY_TEXTS = 32
MATCHED_STEPS = 3
MIN_ONNXRUNTIME: dict[Precision, str] = {
    "fp32": "1.22",
    "fp16": "1.22",
    "int8": "1.22",
    "int8-block": "1.23",
    "int4": "1.23",
}
"""Oldest onnxruntime whose operators know what the graphs ask of them."""


class ParityError(ExportError):
    """The exported graphs do not give what torch gives."""


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
    keep: Mapping[str, Precision] | None = None,
    target: Target = "ort",
    overwrite: bool = False,
    findings: Mapping[str, Any] | None = None,
    prepared: Prepared | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> ExportReport:
    """Export a trained model as a bundle.

    Args:
        run: an opened run folder.
        out: the bundle's folder; written under another name and renamed when all is well.
        precision: of the decoder's weights. The encoder, which has many rows, has ``int8`` where they are in blocks;
            with ``fp16`` the activations and the state are in half precision too.
        keep: other precisions of some layers, by the names that the report gives them.
        target: ``ort`` for ONNX Runtime's fused operators, ``portable`` for operators of the ONNX standard only.
        overwrite: replace a bundle that exists.
        findings: what else belongs into the manifest's report.
        prepared: the same run for the same target, if it is prepared already.
        progress: called as the work goes on.

    Raises:
        ConfigError: the model breaks the contract of model families.
        ExportError: the folder may not be written, the run has no sample, or the model cannot be traced.
        ParityError: the result is not equal to torch.
    """
    if target == "portable" and precision in BLOCK_BITS:
        raise ExportError(
            f"{precision} needs ONNX Runtime's own operators; give --target ort, or --precision int8 for portable "
            "graphs."
        )
    with atomic_folder(out, overwrite=overwrite) as folder:
        prepared = prepared or Prepared(run, target, for_cuda=precision == "fp16", progress=progress)
        model, special, pairs = prepared.model, prepared.special, prepared.pairs
        middle = pairs[len(pairs) // 2]
        fed = Trace(source=tuple(middle.source), target=(special.bos, *middle.target)[:MATCHED_STEPS])
        modules = match_modules(model, prepared.optimised(precision).graphs, prepared.traced.table, special, fed)
        manifest, passes = write_graphs(prepared, folder, precision, keep or {}, progress)

        # The bundle is complete but for its examples, card and figures, so it can be run to make them.
        translator = Translator.open(folder)
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
            raise ParityError("The exported graphs are not equal to torch: " + "; ".join(parity.problems) + ".")
        progress("examples", 0.0)
        golden = make_golden(translator, _golden_texts(pairs))
        golden = record_inner(model, translator.bundle, golden, modules, translator.session.device)
        (folder / contract.GOLDEN_FILE).write_bytes(msgspec.json.encode(golden))
        report = {**manifest.report, "parity": msgspec.to_builtins(parity), **(findings or {})}
        manifest = msgspec.structs.replace(manifest, report=report)
        (folder / contract.CARD_FILE).write_text(model_card(manifest, translator.bundle.nbytes), encoding="utf-8")
        write_manifest(folder, manifest)
        nbytes = open_bundle(folder).nbytes
    return ExportReport(bundle=out, passes=passes, parity=parity, nbytes=nbytes)


def write_graphs(
    prepared: Prepared,
    folder: Path,
    precision: Precision,
    keep: Mapping[str, Precision],
    progress: Progress = lambda stage, fraction: None,
) -> tuple[Manifest, dict[str, list[PassRecord]]]:
    """Write a bundle that can be run, but has no examples, card or comparison with torch.

    Args:
        prepared: the model.
        folder: an empty folder.
        precision: of the decoder's weights.
        keep: other precisions of some layers.
        progress: called as the work goes on.

    Returns:
        The manifest, and passes by graph file.

    Raises:
        ExportError: there is nothing to quantize, or no layer of a name in ``keep``.
    """
    layers = prepared.optimised(precision).layers
    assigned = assign(layers, precision, keep)
    graphs, passes = prepared.quantized(precision, assigned)
    report: dict[str, Any] = {}
    if precision in QUANTIZED:
        records = (record for records in passes.values() for record in records)
        if not any(record.name.startswith("Quantize") and record.outcome == "changed" for record in records):
            raise ExportError("This model has no weights worth quantizing; export it with --precision fp32.")
        tensors = msgspec.to_builtins(tensor_reports(layers, assigned))
        report["quantization"] = {"kept": dict(keep), "tensors": tensors}
    progress("write", 0.0)
    return write_parts(prepared, folder, precision, graphs, passes, report), passes


def write_parts(
    prepared: Prepared,
    folder: Path,
    precision: Precision,
    graphs: Graphs,
    passes: dict[str, list[PassRecord]],
    report: Mapping[str, Any],
) -> Manifest:
    """Write graphs, weights, tokenizers and manifest.

    Args:
        prepared: the model.
        folder: an empty folder.
        precision: of the decoder's weights.
        graphs: encoder and decoder; they are changed.
        passes: by graph file; those made here are added.
        report: what else belongs into the manifest's report.
    """
    if prepared.model.has_attention:
        graphs |= split_attention(graphs[contract.DECODER_FILE])
    for file in graphs:
        graphs[file], more = run_passes(graphs[file], [Strip()])
        passes.setdefault(file, []).extend(more)
    write_weights(graphs.values(), folder / contract.WEIGHTS_FILE)
    for file, graph in graphs.items():
        ir.save(graph, folder / file)
    manifest = _manifest(prepared, graphs, precision, passes)
    manifest = msgspec.structs.replace(manifest, report={**manifest.report, **report})
    for name in {manifest.tokenizers.source, manifest.tokenizers.target}:
        shutil.copyfile(prepared.run.path / name, folder / name)
    return write_manifest(folder, manifest)


def _golden_texts(pairs: Sequence[SamplePair]) -> list[str]:
    """Candidates for golden examples, from the shortest to the longest."""
    return spread(sorted({pair.text for pair in pairs}, key=lambda text: (len(text), text)), GOLDEN_CANDIDATES)


def _manifest(
    prepared: Prepared, graphs: Graphs, precision: Precision, passes: dict[str, list[PassRecord]]
) -> Manifest:
    run, model = prepared.run, prepared.model
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
        target=prepared.target,
        precision={
            file: "int8" if precision in BLOCK_BITS and file == contract.ENCODER_FILE else precision for file in graphs
        },
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        max_source_length=model.max_source_length,
        max_target_length=model.max_target_length,
        special=prepared.special,
        tokenizers=TokenizerFiles(source=run.source_tokenizer_path.name, target=run.target_tokenizer_path.name),
        state=prepared.traced.table,
        generation=run.info.generation,
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
