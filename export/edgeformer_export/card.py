"""The model card: the bundle's README, made from its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from typing import Any

import msgspec

from edgeformer.data.catalogue import CORPORA
from edgeformer_export.auto.choice import Choice
from edgeformer_export.auto.tables import COLUMNS, explanation, rows
from edgeformer_runtime.bundle.manifest import Manifest


def model_card(manifest: Manifest, nbytes: int) -> str:
    """Markdown that says what the bundle is, how good and how fast, where its bounds are, and how to check it.

    Args:
        manifest: the bundle's manifest, with its report.
        nbytes: bytes of the files that translate, which are all but examples, card and manifest.
    """
    found = manifest.report.get("choice")
    choice = None if found is None else msgspec.convert(found, Choice)
    sections = {
        "": _facts(manifest, nbytes),
        "Use": [
            "```",
            "pip install 'edgeformer[cpu]'",
            'edgeformer translate . "Text to translate"',
            "```",
        ],
        "Quality": _quality(manifest, choice),
        "Latency": _latency(choice),
        "Against the torch model": _parity(manifest),
        "Weights": _weights(manifest),
        "Training data and licence": _data(manifest),
        "Limits": _limits(manifest),
        "How to verify": [
            "`edgeformer verify .` checks the hashes of all files, the operators and the versions, and runs the golden "
            "examples: on this machine they must give the same tokens as where the bundle was made. With `--checkpoint "
            "RUN` it also compares with the torch model. `edgeformer inspect .` shows the manifest.",
        ],
    }
    recipe = manifest.provenance.get("recipe", {})
    lines = [f"# {_title(manifest)}, {manifest.family}", ""]
    lines.append(recipe.get("description") or "A model exported by edgeformer.")
    for title, content in sections.items():
        lines += ["", *([f"## {title}", ""] if title else []), *content]
    return "\n".join(lines) + "\n"


def _title(manifest: Manifest) -> str:
    return f"{_languages(manifest)} translation" if _named(manifest) else "Translation"


def _named(manifest: Manifest) -> bool:
    return bool(manifest.source_language and manifest.target_language)


def _languages(manifest: Manifest) -> str:
    return f"{manifest.source_language} → {manifest.target_language}"


def _facts(manifest: Manifest, nbytes: int) -> list[str]:
    generation = manifest.generation
    kept = manifest.report.get("quantization", {}).get("kept", {})
    precision = ", ".join(f"{name} {kind}" for name, kind in manifest.precision.items())
    opsets = ", ".join(f"{number} of {domain or 'ai.onnx'}" for domain, number in manifest.opsets.items())
    facts = {
        "parameters": f"{manifest.parameters:,}",
        "size": f"{nbytes:,} bytes of graphs, weights and tokenizers",
        "precision": precision + (f"; {len(kept)} layers higher" if kept else ""),
        "operators": f"{manifest.target} (opset {opsets})",
        "longest source": f"{manifest.max_source_length} tokens",
        "longest target": f"{manifest.max_target_length} tokens",
        "default search": f"beam {generation.beam_size}, length penalty {generation.length_penalty:g}",
        "made by": manifest.producer,
        "needs": f"onnxruntime {manifest.min_onnxruntime} or newer",
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]


def _quality(manifest: Manifest, choice: Choice | None) -> list[str]:
    if choice is not None:
        lines = _table(COLUMNS, rows(choice))
        return [*lines, "", *(f"- {line}" for line in [*explanation(choice), *choice.remarks])]
    lines = [
        "Not measured for this bundle. `edgeformer evaluate . --source TEXT --reference TRANSLATION` measures it; "
        "`edgeformer export RUN --out BUNDLE --precision auto` measures every precision, and takes the best.",
    ]
    if final := manifest.provenance.get("training", {}).get("final"):
        lines.append(
            f"At the end of training, the torch model had BLEU {final['bleu']:.2f} on {final['sentences']:,} "
            "validation sentences with greedy search."
        )
    return lines


def _latency(choice: Choice | None) -> list[str]:
    if choice is None:
        return ["Not measured for this bundle. `edgeformer bench .` measures it on the machine at hand."]
    taken = next(one for one in choice.candidates if one.chosen).latency
    threads = {0: "all threads", 1: "1 thread"}.get(choice.threads, f"{choice.threads} threads")
    return [
        f"{taken.mean_ms:.2f} ms of {choice.clock} for a sentence (mean; quartiles {taken.p25_ms:.2f}, "
        f"{taken.median_ms:.2f} and {taken.p75_ms:.2f}), beam {choice.beam_size}, {threads}, "
        f"{choice.engine} on {choice.machine}. Other machines differ: `edgeformer bench .` measures one.",
    ]


def _parity(manifest: Manifest) -> list[str]:
    parity = manifest.report.get("parity", {})
    logits = {
        "positions": 0,
        "max_difference": nan,
        "mean_difference": nan,
        "top1_agreement": nan,
        **parity.get("logits", {}),
    }
    return [
        f"Over {logits['positions']:,} target positions of training text: largest logit difference "
        f"{logits['max_difference']:.2e}, mean {logits['mean_difference']:.2e}, same most probable token at "
        f"{logits['top1_agreement']:.2%}.",
        "",
        *(
            f"- beam {entry['beam_size']}: {entry['identical']} of {entry['sentences']} outputs identical to torch"
            for entry in parity.get("tokens", ())
        ),
    ]


def _weights(manifest: Manifest) -> list[str]:
    """Layers and bytes by precision; each of them is in the manifest."""
    tensors: list[dict[str, Any]] = manifest.report.get("quantization", {}).get("tensors", [])
    if not tensors:
        return [f"All weights are {next(iter(manifest.precision.values()))}."]
    found = []
    for precision in dict.fromkeys(tensor["precision"] for tensor in tensors):
        chosen = [tensor for tensor in tensors if tensor["precision"] == precision]
        errors = sorted((tensor["snr_db"], tensor["name"]) for tensor in chosen if tensor["snr_db"] is not None)
        worst = f"{errors[0][0]:.1f} ({errors[0][1]})" if errors else ""
        bytes_after, bytes_before = (sum(tensor[name] for tensor in chosen) for name in ("bytes", "fp32_bytes"))
        found.append((precision, f"{len(chosen)}", f"{bytes_after:,}", f"{bytes_before:,}", worst))
    return [
        *_table(("precision", "layers", "bytes", "bytes in fp32", "lowest signal-to-noise ratio, dB"), found),
        "",
        "Biases, norms and position tables are fp32. `edgeformer inspect .` lists every layer.",
    ]


def _data(manifest: Manifest) -> list[str]:
    data = manifest.provenance.get("training", {}).get("provenance") or {}
    lines = [f"- {key}: {value}" for key, value in data.items() if isinstance(value, str | int | float) and value]
    lines = lines or ["- not recorded"]
    if not data.get("licence"):
        lines.append("- licence: not recorded; ask whoever trained the model")
    if distilled := data.get("distilled"):
        lines.append(
            f"- targets: translations by `{distilled.get('teacher')}`, beam {distilled.get('beam_size')} (manifest "
            f"{distilled.get('teacher_sha256')})"
        )
    return lines


def _limits(manifest: Manifest) -> list[str]:
    corpus = CORPORA.get((manifest.provenance.get("training", {}).get("provenance") or {}).get("name", ""))
    domain = f"text like its training data: {corpus.description}" if corpus else "text like its training data"
    return [
        f"- {_languages(manifest)} only, and only in this direction."
        if _named(manifest)
        else "- The languages are not recorded: the recipe had no `source_language` and `target_language`.",
        f"- At most {manifest.max_source_length} source tokens, end token included: longer texts are refused. "
        f"Translations end at {manifest.max_target_length} tokens.",
        f"- Made for {domain}. Quality on other text was not measured.",
        "- One sentence at a time; nothing is carried over from the sentence before.",
    ]


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *lines)]
