"""The commands ``export`` and ``verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from edgeformer_export.cli.auto import auto_options, export_auto, print_choice, refuse_auto_options
from edgeformer_export.cli.progress import shown_stages
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import PRECISIONS, Precision

if TYPE_CHECKING:
    from edgeformer_export.export import ExportReport
    from edgeformer_export.parity.verify import RunResult
    from edgeformer_runtime.bundle.parity import ParityReport
    from edgeformer_runtime.selfcheck.golden import GoldenResult
    from edgeformer_runtime.selfcheck.machine import Machine
    from edgeformer_runtime.selfcheck.operators import Operators

_PRECISION_HELP = " ".join(f"{name}: {traits.purpose}" for name, traits in PRECISIONS.items())


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the bundle to write.")
@click.option(
    "--precision",
    type=click.Choice([*PRECISIONS, "auto"]),
    default="fp32",
    show_default=True,
    help=f"{_PRECISION_HELP} auto: Measure those for CPUs, and mixtures of them, on this machine, and export the best "
    "one within a quality budget.",
)
@click.option(
    "--target",
    type=click.Choice(get_args(Target)),
    default="ort",
    show_default=True,
    help="ort: ONNX Runtime's fused operators. portable: operators of the ONNX standard only.",
)
@auto_options
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing bundle. auto: also measure again, unless --resume is given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def export(
    context: click.Context,
    /,
    run: Path,
    out: Path,
    precision: Precision | Literal["auto"],
    target: Target,
    overwrite: bool,
    as_json: bool,
    **auto: Any,
) -> None:
    """Export the trained model of the folder RUN as a bundle.

    A bundle contains an encoder and a step-decoder graph, their weights, tokenizers, golden examples, and a manifest
    with the SHA-256 of each file. An fp32 bundle is written only if its output matches PyTorch token for token; in
    other precisions, it must stay close.

    With --precision auto, every candidate translates a validation set and is timed; a table shows the results.
    Measurements are kept beside the bundle, in a folder whose name ends in .quantize.
    """
    from edgeformer.train.run import Run
    from edgeformer_export.export import export_run
    from edgeformer_runtime.cli.output import print_json

    if precision == "auto":
        best = export_auto(run, out, target=target, overwrite=overwrite, quiet=as_json, **auto)
        if as_json:
            print_json(best)
        else:
            print_choice(best)
        return
    refuse_auto_options(context, list(auto))
    with shown_stages(quiet=as_json) as progress:
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
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda for bundles of fp16 or fp32.")
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
    """Check on this machine that a BUNDLE computes what it did where it was made; with --checkpoint also that it is the
    torch model of a run.

    Checks hashes, operators and versions, then runs the golden examples: tokens must be the same, scores and tensors
    within a tolerance. If not, it names the first part of the model that differs. Needs no torch.

    With --checkpoint, in fp32, logits must agree within 1e-4 and output token by token; in fp16, logits within 0.05.
    Quantized, which rounds more, the most probable token must agree at 90 % of positions. The share of identical
    outputs is reported.

    Exits with 1 if a check fails.
    """
    if checkpoint is None and (source is not None or beams):
        raise click.UsageError("--source and --beam need --checkpoint.")
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.cli.output import print_json, stages
    from edgeformer_runtime.errors import EdgeformerError
    from edgeformer_runtime.selfcheck.golden import check_golden
    from edgeformer_runtime.selfcheck.machine import this_machine
    from edgeformer_runtime.selfcheck.operators import check_operators
    from edgeformer_runtime.translator import Translator

    try:
        opened = open_bundle(bundle)
        operators = check_operators(opened)
        translator = Translator.open(opened, device=device, threads=threads)
        machine = this_machine(translator.session.device)
        notes = {"golden": "Running golden examples", "compare": "Comparing with torch"}
        with stages(notes, quiet=as_json) as progress:
            progress("golden", 0.0)
            golden, against = check_golden(translator), None
            if checkpoint is not None:
                from edgeformer.train.run import Run
                from edgeformer_export.parity.verify import verify_against_run

                against = verify_against_run(
                    translator,
                    Run.open(checkpoint),
                    source,
                    beams,
                    lambda fraction: progress("compare", fraction),
                    damaged=bool(golden.problems),
                )
    except EdgeformerError as error:
        if not as_json:
            raise
        print_json({"passed": False, "problems": [str(error)]})
        sys.exit(1)
    problems = [*golden.problems, *(against.problems if against is not None else ())]
    if as_json:
        content = {"passed": not problems, "problems": problems, "files": len(opened.manifest.files)}
        content |= {"machine": machine, "operators": operators, "golden": golden}
        parity, first = (against.parity, against.first) if against is not None else (None, None)
        print_json({**content, "parity": parity, "first_difference_from_torch": first})
    else:
        _print_device(len(opened.manifest.files), machine, operators, golden)
        _print_problems(against, problems)
    sys.exit(1 if problems else 0)


def _print_export(report: ExportReport) -> None:
    from edgeformer_runtime.cli.output import console, human_bytes, table

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


def _print_device(files: int, machine: Machine, operators: Operators, golden: GoldenResult) -> None:
    from edgeformer_runtime.cli.output import console

    out, traces = console(), golden.traces
    opsets = ", ".join(f"{domain} {version}" for domain, version in operators.opsets.items())
    name = f" ({machine.processor})" if machine.processor else ""
    instructions = ", ".join(machine.instructions) or "instruction sets unknown"
    out.print(f"Hashes and schema: ok, {files} files")
    out.print(f"Operators: {operators.kinds} of {opsets}, all known to onnxruntime {machine.engine}")
    out.print(
        f"Machine: {machine.architecture}{name}, {instructions}; {machine.provider}; plain integer products "
        + ("saturate, so exact ones are used" if machine.products_saturate else "are exact")
    )
    out.print(
        f"Golden examples: {golden.cases - golden.failed} of {golden.cases} ok, largest score difference "
        f"{golden.max_score_difference:.2e} (tolerance {golden.score_tolerance:.0e}), smallest margin of logits "
        f"{golden.min_margin:.2g}"
    )
    for graph in traces.graphs:
        largest, overall = (
            "not finite" if value is None else f"{value:.1e} (tolerance {tolerance:.1e})"
            for value, tolerance in (
                (graph.max_difference, graph.tolerance),
                (graph.overall_difference, graph.overall_tolerance),
            )
        )
        out.print(f"{graph.file}: {graph.tensors} tensors, largest relative difference {largest}, overall {overall}")
    if traces.graphs:
        out.print(
            f"Tolerances are for {'the same kernels as' if traces.same_kernels else 'other kernels than'} at export"
        )


def _print_problems(against: RunResult | None, problems: list[str]) -> None:
    from edgeformer_runtime.cli.output import console

    if against is not None:
        _print_parity(against.parity)
    for problem in problems:
        console().print(f"FAILED {problem}.", style="red")
    console().print("FAILED" if problems else "PASSED", style="red" if problems else "green")


def _print_parity(parity: ParityReport) -> None:
    from edgeformer_runtime.cli.output import console, table

    rows = table(f"Compared with PyTorch ({parity.precision})", "", "")
    logits = parity.logits
    rows.add_row("target positions", f"{logits.positions:,}")
    rows.add_row("largest logit difference", f"{logits.max_difference:.2e}")
    rows.add_row("mean logit difference", f"{logits.mean_difference:.2e}")
    rows.add_row("same most probable token", f"{logits.top1_agreement:.2%}")
    for entry in parity.tokens:
        label = "greedy" if entry.beam_size == 1 else f"beam {entry.beam_size}"
        rows.add_row(f"identical output, {label}", f"{entry.identical:,} of {entry.sentences:,}")
    console().print(rows)
