"""The command ``inspect``: what is in a bundle, read from its manifest."""

from __future__ import annotations

from pathlib import Path

import click

from edgeformer_runtime.cli import options


@click.command()
@options.bundle
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def inspect(bundle: Path, as_json: bool) -> None:
    """Show what a bundle contains.

    Checks all hashes of BUNDLE, then shows its manifest, files, operators and state table. Opens no graph.
    """
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.cli.output import console, human_bytes, print_json, table

    opened = open_bundle(bundle)
    manifest = opened.manifest
    if as_json:
        print_json(manifest)
        return
    out = console()
    facts = table(str(bundle), "", "")
    for name, value in {
        "family": manifest.family,
        "languages": f"{manifest.source_language or '?'} → {manifest.target_language or '?'}",
        "parameters": f"{manifest.parameters:,}",
        "vocabulary": f"{manifest.source_vocab_size:,} → {manifest.target_vocab_size:,}",
        "longest": f"{manifest.max_source_length} → {manifest.max_target_length} tokens",
        "target": manifest.target,
        "opsets": ", ".join(f"{domain or 'ai.onnx'} {number}" for domain, number in manifest.opsets.items()),
        "kernels": "can run it" if manifest.plan else manifest.report.kernels or "no plan",
        "shortlist": "on the kernels; elsewhere, the whole vocabulary" if manifest.has_shortlist else "none",
        "made by": manifest.producer,
        "default search": f"beam {manifest.generation.beam_size}, length penalty {manifest.generation.length_penalty}",
    }.items():
        facts.add_row(name, value)
    out.print(facts)

    files = table("Files", "file", "bytes", "precision", "SHA-256")
    for name, entry in manifest.files.items():
        files.add_row(name, f"{entry.size:,}", manifest.precision.get(name, ""), f"{entry.sha256[:16]}…")
    files.add_row("total", human_bytes(opened.nbytes), "", "")
    out.print(files)

    operators = manifest.report.operators
    graphs = table("Operators", "operator", *operators)
    kinds = sorted(
        {kind for counts in operators.values() for kind in counts}, key=lambda kind: (-_total(operators, kind), kind)
    )
    for kind in kinds:
        graphs.add_row(kind.rpartition(".")[2], *(str(counts.get(kind, "")) for counts in operators.values()))
    graphs.add_row("nodes", *(str(sum(counts.values())) for counts in operators.values()))
    out.print(graphs)

    if manifest.report.quantization is not None:
        weights = table("Weights", "layer", "precision", "SNR dB", "bytes", "in fp32")
        weights.columns[0].overflow = "fold"
        for tensor in manifest.report.quantization.tensors:
            error = "" if tensor.snr_db is None else f"{tensor.snr_db:.1f}"
            weights.add_row(tensor.name, tensor.precision, error, f"{tensor.bytes:,}", f"{tensor.fp32_bytes:,}")
        out.print(weights)

    state = table("State", "tensor", "kind", "type", "axes")
    for part in manifest.state:
        state.add_row(part.name, part.kind, part.dtype, "(" + ", ".join(map(str, part.axes)) + ")")
    out.print(state)
    options.advise_kernels(opened, "auto", "cpu")


def _total(operators: dict[str, dict[str, int]], kind: str) -> int:
    return sum(counts.get(kind, 0) for counts in operators.values())
