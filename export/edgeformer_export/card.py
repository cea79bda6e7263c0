"""The model card: the bundle's README, generated from its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edgeformer.data.catalog import CORPORA
from edgeformer.data.corpora import TextOrigin
from edgeformer.markdown import markdown_table
from edgeformer_export.choice import COLUMNS, Choice
from edgeformer_export.parity.report import ParityReport
from edgeformer_export.shortlist.lists import ShortlistReport
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.bundle.report import TensorReport


def model_card(manifest: Manifest, nbytes: int) -> str:
    """Write the card as Markdown: what the bundle is, its quality, speed and limits, and how to verify it.

    Args:
        manifest: the bundle's manifest, with its report.
        nbytes: total size in bytes of the files needed for translation: all but examples, card and manifest.
    """
    report, training = manifest.report, manifest.provenance.training
    cost = None if report.shortlist is None else msgspec.convert(report.shortlist, ShortlistReport)
    sections = {
        "": _facts(manifest, nbytes),
        "Use": [
            "With edgeformer installed, on the device as `edgeformer[cpu]`, which needs no torch:",
            "",
            "```",
            'edgeformer translate . "Text to translate"',
            "```",
        ],
        "Quality and speed": _quality(manifest),
        "Agreement with PyTorch": _parity(report.parity),
        **({} if cost is None else {"Shortlist": shortlist_lines(cost)}),
        "Weights": _weights(manifest),
        "Training data and license": _data(msgspec.convert(training.get("provenance", {}), TextOrigin)),
        "Limits": _limits(manifest),
        "How to verify": [
            "`edgeformer verify .` checks the hashes of all files, operators and versions, and runs the golden "
            "examples, which must give the same tokens as on the machine that made the bundle. With "
            "`--checkpoint RUN`, it also compares the bundle with the PyTorch model. `edgeformer inspect .` shows the "
            "manifest.",
        ],
    }
    lines = [f"# {_title(manifest)}, {manifest.family}", ""]
    lines.append(manifest.provenance.recipe.get("description") or "A model exported by edgeformer.")
    if notes := training.get("notes"):
        lines += ["", *(f"- {note}" for note in notes)]
    for title, content in sections.items():
        lines += ["", *([f"## {title}", ""] if title else []), *content]
    return "\n".join(lines) + "\n"


def _title(manifest: Manifest) -> str:
    return f"{_languages(manifest)} translation" if _has_languages(manifest) else "Translation"


def _has_languages(manifest: Manifest) -> bool:
    return bool(manifest.source_language and manifest.target_language)


def _languages(manifest: Manifest) -> str:
    return f"{manifest.source_language} → {manifest.target_language}"


def _facts(manifest: Manifest, nbytes: int) -> list[str]:
    generation = manifest.generation
    precision = ", ".join(f"{name} {kind}" for name, kind in manifest.precision.items())
    opsets = ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in manifest.opsets.items())
    facts = {
        "parameters": f"{manifest.parameters:,}",
        "size": f"{nbytes:,} bytes of graphs, weights and tokenizers",
        "precision": precision,
        "operators": f"{manifest.target} (opset {opsets})",
        "longest source": f"{manifest.max_source_length} tokens",
        "longest target": f"{manifest.max_target_length} tokens",
        "default search": f"beam {generation.beam_size}, length penalty {generation.length_penalty:g}",
        "made by": manifest.producer,
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]


def _quality(manifest: Manifest) -> list[str]:
    if manifest.report.choice is not None:
        choice = msgspec.convert(manifest.report.choice, Choice)
        return [
            *markdown_table(COLUMNS, choice.rows),
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
    if job := text.distilled:
        lines.append(
            f"- targets: translations by `{job['teacher']}`, beam {job['beam_size']} (manifest {job['teacher_sha256']})"
        )
    if text.initial is not None:
        lines += ["- trained from another model:", *(f"  {line}" for line in _data(text.initial))]
    return lines


def _limits(manifest: Manifest) -> list[str]:
    corpus = CORPORA.get(manifest.provenance.origin().name)
    domain = f"text like its training data: {corpus.description}" if corpus else "text like its training data"
    return [
        f"- {_languages(manifest)} only, in this direction only."
        if _has_languages(manifest)
        else "- The languages are not recorded: the recipe had no `source_language` and `target_language`.",
        f"- At most {manifest.max_source_length} source tokens, end token included: longer texts are refused. "
        f"Translations end at {manifest.max_target_length} tokens.",
        f"- Made for {domain}. Quality on other text was not measured.",
        "- One sentence at a time; nothing is carried over from the previous sentence.",
    ]
