"""The commands ``export`` and ``verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from edgeformer_runtime.manifest import Precision, Target

if TYPE_CHECKING:
    from edgeformer_export.export import ExportReport
    from edgeformer_export.parity import ParityReport
    from edgeformer_runtime.golden import GoldenResult

_STAGES = {
    "trace": "Tracing the graphs",
    "optimise": "Optimising",
    "calibrate": "Calibrating activations",
    "write": "Writing",
    "compare": "Comparing with torch",
}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the bundle to write.")
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="fp32",
    show_default=True,
    help="int8: the fastest for many rows (sentences times beams), with ranges of activations calibrated on training "
    "text. int8-block and int4: weights in blocks; the fastest for one row, and int4 the smallest.",
)
@click.option(
    "--target",
    type=click.Choice(get_args(Target)),
    default="ort",
    show_default=True,
    help="ort: ONNX Runtime's fused operators; portable: operators of the ONNX standard only.",
)
@click.option("--overwrite", is_flag=True, help="Replace a bundle that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def export(run: Path, out: Path, precision: Precision, target: Target, overwrite: bool, as_json: bool) -> None:
    """Export the trained model of the folder RUN as a bundle.

    A bundle holds an encoder and a step-decoder graph, their weights, tokenizers, golden examples and a manifest with
    the SHA-256 of each. An fp32 bundle is written only if its output equals torch's; a quantized one only if it
    stays close.
    """
    from edgeformer.cli.output import print_json, stages
    from edgeformer.train.run import Run
    from edgeformer_export.export import export_run

    with stages(_STAGES, quiet=as_json) as progress:
        report = export_run(
            Run.open(run),
            out,
            precision=precision,
            target=target,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json(report)
    else:
        _print_export(report)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Run folder of the torch model to compare with.")
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Text to compare on, one sentence per line; default: the run's sample.",
)
@click.option(
    "--beam",
    "beams",
    multiple=True,
    type=click.IntRange(1),
    help="Beam sizes to compare; default 1 and the bundle's own.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(0), default=0, help="CPU threads; 0 takes all.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    bundle: Path,
    checkpoint: Path | None,
    source: Path | None,
    beams: tuple[int, ...],
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Check a BUNDLE: hashes, schema and golden examples on this machine; with --checkpoint also equality with torch.

    In fp32, logits must agree within 1e-4 and output token by token. Quantized, which rounds, the most probable token
    must agree at 90 % of positions, and the share of identical outputs is reported. Exits with 1 if a check fails.
    """
    if checkpoint is None and (source is not None or beams):
        raise click.UsageError("--source and --beam need --checkpoint.")
    from edgeformer.cli.output import print_json, stages
    from edgeformer_runtime.golden import check_golden
    from edgeformer_runtime.translator import Translator

    translator = Translator(bundle, device=device, threads=threads)
    with stages({"golden": "Running golden examples", "compare": "Comparing with torch"}, quiet=as_json) as progress:
        progress("golden", 0.0)
        golden = check_golden(translator)
        parity = None
        if checkpoint is not None:
            from edgeformer.train.run import Run
            from edgeformer_export.verify import verify_against_run

            parity = verify_against_run(
                translator, Run.open(checkpoint), source, beams, lambda fraction: progress("compare", fraction)
            )
    problems = [*golden.problems, *(parity.problems if parity is not None else [])]
    if as_json:
        print_json({"passed": not problems, "problems": problems, "golden": golden, "parity": parity})
    else:
        _print_verify(golden, parity, problems)
    sys.exit(1 if problems else 0)


def _print_export(report: ExportReport) -> None:
    from edgeformer.cli.output import console, human_bytes, table

    for name, records in report.passes.items():
        rows = table(f"Passes on {name}", "pass", "nodes", "weights", "result")
        for record in records:
            rows.add_row(
                record.name,
                f"{record.nodes_before} → {record.nodes_after}",
                f"{human_bytes(record.bytes_before)} → {human_bytes(record.bytes_after)}",
                record.outcome,
            )
        console().print(rows)
    _print_parity(report.parity)
    size = human_bytes(report.nbytes)
    console().print(f"Wrote {report.bundle}, {size}. Next: edgeformer translate {report.bundle}")


def _print_verify(golden: GoldenResult, parity: ParityReport | None, problems: list[str]) -> None:
    from edgeformer.cli.output import console

    failed = len(golden.problems)
    console().print("Hashes and schema: ok")
    console().print(
        f"Golden examples: {golden.cases - failed} of {golden.cases} ok, "
        f"largest score difference {golden.max_score_difference:.2e}"
    )
    if parity is not None:
        _print_parity(parity)
    for problem in problems:
        console().print(f"FAILED {problem}.", style="red")
    console().print("FAILED" if problems else "PASSED", style="red" if problems else "green")


def _print_parity(parity: ParityReport) -> None:
    from edgeformer.cli.output import console, table

    rows = table(f"Against torch ({parity.precision})", "", "")
    logits = parity.logits
    rows.add_row("target positions", f"{logits.positions:,}")
    rows.add_row("largest logit difference", f"{logits.max_difference:.2e}")
    rows.add_row("mean logit difference", f"{logits.mean_difference:.2e}")
    rows.add_row("same most probable token", f"{logits.top1_agreement:.2%}")
    for entry in parity.tokens:
        label = "greedy" if entry.beam_size == 1 else f"beam {entry.beam_size}"
        rows.add_row(f"identical output, {label}", f"{entry.identical:,} of {entry.sentences:,}")
    console().print(rows)
