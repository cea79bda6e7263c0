"""The model card: the bundle's README, made from its manifest."""

from __future__ import annotations

from math import nan

from edgeformer_runtime.manifest import Manifest


def model_card(manifest: Manifest, nbytes: int) -> str:
    """Markdown that says what the bundle is, how to use it and how to check it.

    Args:
        manifest: the bundle's manifest, with its report.
        nbytes: bytes of the bundle's files.
    """
    recipe = manifest.provenance.get("recipe", {})
    languages = f"{manifest.source_language or '?'} → {manifest.target_language or '?'}"
    precision = ", ".join(f"{name} {kind}" for name, kind in manifest.precision.items())
    parity = manifest.report.get("parity", {})
    logits = {
        "positions": 0,
        "max_difference": nan,
        "mean_difference": nan,
        "top1_agreement": nan,
        **parity.get("logits", {}),
    }
    lines = [
        f"# {languages} translation, {manifest.family}",
        "",
        recipe.get("description") or "A model exported by edgeformer.",
        "",
        "| | |",
        "|---|---|",
        f"| parameters | {manifest.parameters:,} |",
        f"| size | {nbytes:,} bytes |",
        f"| precision | {precision} |",
        f"| operators | {manifest.target} (opsets {manifest.opsets}) |",
        f"| longest source | {manifest.max_source_length} tokens |",
        f"| longest target | {manifest.max_target_length} tokens |",
        f"| made by | {manifest.producer} |",
        f"| needs | onnxruntime {manifest.min_onnxruntime} or newer |",
        "",
        "## Use",
        "",
        "```",
        "pip install 'edgeformer[cpu]'",
        'edgeformer translate . "Text to translate"',
        "edgeformer verify .    # runs the golden examples on this machine",
        "```",
        "",
        "## Measured at export",
        "",
        f"Against the torch model, over {logits['positions']:,} target positions of training text: largest logit "
        f"difference {logits['max_difference']:.2e}, mean {logits['mean_difference']:.2e}, same most probable token at "
        f"{logits['top1_agreement']:.2%}.",
        "",
    ]
    lines += [
        f"- beam {entry['beam_size']}: {entry['identical']} of {entry['sentences']} outputs identical to torch"
        for entry in parity.get("tokens", ())
    ]
    data = manifest.provenance.get("training", {}).get("provenance") or {}
    lines += ["", "## Training data", ""]
    lines += [f"- {key}: {value}" for key, value in data.items() if isinstance(value, str | int | float)] or [
        "- not recorded"
    ]
    return "\n".join(lines) + "\n"
