"""The model card: the bundle's README, made from its manifest by the template ``card.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from edgeformer.data.catalog import CORPORA
from edgeformer.data.corpora import TextOrigin
from edgeformer.markdown import markdown_table
from edgeformer_export.parity.report import ParityReport
from edgeformer_export.shortlist.lists import ShortlistReport
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.bundle.report import TensorReport

TEMPLATE = Path(__file__).with_name("card.md")


class ChoiceTable(msgspec.Struct, kw_only=True, frozen=True):
    """Measurements of all precisions, and the choice of one, as card and terminal show them."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """A row for each precision."""
    notes: list[str]
    """How they were measured and why one was chosen, a paragraph each."""


def model_card(manifest: Manifest, nbytes: int) -> str:
    """Write the card as Markdown: what the bundle is, its quality, speed and limits, and how to verify it.

    Args:
        manifest: the bundle's manifest, with its report.
        nbytes: total size in bytes of the files needed for translation: all but examples, card and manifest.
    """
    report, training, generation = manifest.report, manifest.provenance.training, manifest.generation
    languages = manifest.source_language and manifest.target_language
    pair = f"{manifest.source_language} → {manifest.target_language}"
    description = manifest.provenance.recipe.get("description") or "A model exported by edgeformer."
    notes = [f"- {note}" for note in training.get("notes") or ()]
    precision = ", ".join(f"{name} {kind}" for name, kind in manifest.precision.items())
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in manifest.opsets.items())
    corpus = CORPORA.get(manifest.provenance.origin().name)
    cost = None if report.shortlist is None else msgspec.convert(report.shortlist, ShortlistReport)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=f"{pair} translation" if languages else "Translation",
        family=manifest.family,
        description="\n".join([description, "", *notes]).strip(),
        parameters=f"{manifest.parameters:,}",
        size=f"{nbytes:,}",
        precision=precision,
        operators=f"{manifest.target} (opset {opsets})",
        longest_source=manifest.max_source_length,
        longest_target=manifest.max_target_length,
        search=f"beam {generation.beam_size}, length penalty {generation.length_penalty:g}",
        producer=manifest.producer,
        quality="\n".join(_quality(manifest)),
        parity="\n".join(_parity(report.parity)),
        shortlist="\n".join(shortlist_lines(cost)) if cost else "Searches use the whole vocabulary.",
        weights="\n".join(_weights(manifest)),
        data="\n".join(_data(msgspec.convert(training.get("provenance", {}), TextOrigin))),
        languages=f"- {pair} only, in this direction only."
        if languages
        else "- The languages are not recorded: the recipe had no `source_language` and `target_language`.",
        domain="text like its training data" + (f": {corpus.description}" if corpus else ""),
    )


def _quality(manifest: Manifest) -> list[str]:
    if manifest.report.choice is not None:
        choice = msgspec.convert(manifest.report.choice, ChoiceTable)
        return [
            *markdown_table(choice.columns, choice.rows),
            "",
            *(f"- {note}" for note in choice.notes),
            "- Other machines differ: `edgeformer bench .` measures yours.",
        ]
    lines = [
        "Not measured for this bundle. `edgeformer evaluate . --source TEXT --reference TRANSLATION` measures it, and "
        "`edgeformer bench .` its speed on your machine; `edgeformer export RUN --out BUNDLE --precision auto` "
        "measures every precision and exports the best.",
    ]
    if (final := manifest.provenance.training.get("final")) is not None:
        lines.append(
            f"At the end of training, the PyTorch model had BLEU {final['bleu']:.2f} on {final['sentences']:,} "
            "validation sentences with greedy search."
        )
    return lines


def _parity(record: dict[str, Any] | None) -> list[str]:
    if record is None:
        return ["Not compared."]
    parity = msgspec.convert(record, ParityReport)
    logits = parity.logits
    return [
        f"Over {logits.positions:,} target positions of training text: largest logit difference "
        f"{logits.max_difference:.2e}, mean {logits.mean_difference:.2e}, same most probable token at "
        f"{logits.top1_agreement:.2%}.",
        *(f"\n**Outside the bounds of its precision, exported with --force:** {line}." for line in parity.problems),
        "",
        *(
            f"- beam {entry.beam_size}: {entry.identical} of {entry.sentences} outputs identical to PyTorch's"
            for entry in parity.tokens
        ),
    ]


def shortlist_lines(report: ShortlistReport) -> list[str]:
    """Say what a shortlist costs, in a sentence or two."""
    lines = [
        f"Searches use only tokens that the source makes likely, by lists from {report.origin}. "
        f"Of {report.sentences:,} sentences, each may use {report.median_tokens:g} tokens (median). Greedy search "
        "without shortlist takes "
        f"{report.kept:.2%} of its tokens from these, and {report.identical:,} translations are the same."
    ]
    if report.bleu is not None:
        lines.append(f"BLEU is {report.bleu:.2f} with the shortlist and {report.bleu_whole:.2f} without.")
    return [*lines, "`--shortlist off` uses the whole vocabulary."]


def _weights(manifest: Manifest) -> list[str]:
    """Summarize layers and bytes by precision; the manifest lists every layer."""
    quantization = manifest.report.quantization
    if quantization is None or not quantization.tensors:
        return [f"All weights are {next(iter(manifest.precision.values()))}."]
    lines = []
    for precision in dict.fromkeys(tensor.precision for tensor in quantization.tensors):
        tensors = [tensor for tensor in quantization.tensors if tensor.precision == precision]
        stored, original = sum(tensor.bytes for tensor in tensors), sum(tensor.fp32_bytes for tensor in tensors)
        lines.append((precision, f"{len(tensors)}", f"{stored:,}", f"{original:,}", _noisiest(tensors)))
    return [
        *markdown_table(("precision", "layers", "bytes", "bytes in fp32", "lowest signal-to-noise ratio, dB"), lines),
        "",
        "Biases, norms and position tables are fp32. `edgeformer inspect .` lists every layer.",
    ]


def _noisiest(tensors: Sequence[TensorReport]) -> str:
    """Describe the lowest signal-to-noise ratio and its layer; empty if all layers are exact."""
    ratios = [(tensor.snr_db, tensor.name) for tensor in tensors if tensor.snr_db is not None]
    ratio, name = min(ratios, default=(None, ""))
    return "" if ratio is None else f"{ratio:.1f} ({name})"


def _data(text: TextOrigin) -> list[str]:
    facts = {"name": text.name, "revision": text.revision, "license": text.licence, "origin": text.origin}
    lines = [f"- {name}: {value}" for name, value in facts.items() if value] or ["- not recorded"]
    if not text.licence:
        lines.append("- license: not recorded; ask whoever trained the model")
    if text.initial is not None:
        lines += ["- trained from another model:", *(f"  {line}" for line in _data(text.initial))]
    return lines
