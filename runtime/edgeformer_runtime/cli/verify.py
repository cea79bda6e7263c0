"""The command ``verify``: whether a bundle computes on this machine what it did where it was exported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer_runtime.check.checkpoint import CheckpointResult
    from edgeformer_runtime.check.golden import GoldenResult
    from edgeformer_runtime.check.machine import Machine


@click.command()
@options.bundle
@options.group(
    "against",
    checkpoint=click.option(
        "--checkpoint", type=click.Path(path_type=Path), help="Run folder of the PyTorch model to compare with."
    ),
    source=click.option(
        "--source",
        type=click.Path(path_type=Path),
        help="Text to compare on, one sentence per line. Default: the run's sample.",
    ),
    beams=click.option(
        "--beam",
        multiple=True,
        type=click.IntRange(1),
        help="Beam size to compare; may be repeated. Default: 1 and the bundle's own.",
    ),
)
@options.trusted_keys
@options.group("engine", device=options.device, threads=options.threads)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    bundle: Path, against: dict[str, Any], trusted_keys: tuple[Path, ...], engine: dict[str, Any], as_json: bool
) -> None:
    """Check a bundle on this machine, or against PyTorch.

    BUNDLE must compute the same on this machine as where it was exported. With --checkpoint, it must also match the
    PyTorch model of a run.

    Checks hashes, then runs the golden examples: tokens must be the same, scores within a
    tolerance. Needs no PyTorch.

    With --checkpoint, an fp32 bundle must match PyTorch's logits within 1e-4 and its output token for token; an fp16
    bundle must match its logits within 0.05. Quantized bundles, which round more, must agree on the most probable token
    at 90 % of positions. The share of identical outputs is reported. If the bundle does not match, the first layer that
    differs is named.

    Exits with 1 if a check fails.
    """
    if "checkpoint" not in against and ("source" in against or against["beams"]):
        raise click.UsageError("--source and --beam need --checkpoint.")
    from edgeformer_runtime.cli.output import print_json
    from edgeformer_runtime.errors import EdgeformerError

    try:
        files, machine, golden, compared = _check(bundle, against, trusted_keys, engine, quiet=as_json)
    except EdgeformerError as error:
        if not as_json:
            raise
        print_json({"passed": False, "problems": [str(error)]})
        sys.exit(1)
    problems = [*golden.problems, *(compared.problems if compared is not None else ())]
    if as_json:
        content = {"passed": not problems, "problems": problems, "files": files}
        content |= {"machine": machine, "golden": golden}
        parity, first = (compared.parity, compared.first) if compared is not None else (None, None)
        print_json({**content, "parity": parity, "first_difference_from_torch": first})
    else:
        _print_device(files, machine, golden)
        _print_problems(compared, problems)
    sys.exit(1 if problems else 0)


def _check(
    bundle: Path, against: dict[str, Any], trusted_keys: tuple[Path, ...], engine: dict[str, Any], *, quiet: bool
) -> tuple[int, Machine, GoldenResult, CheckpointResult | None]:
    """Number of files, the machine, golden examples, and the comparison with a run if there is one."""
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.check.checkpoint import load_verifier
    from edgeformer_runtime.check.golden import check_golden
    from edgeformer_runtime.check.machine import this_machine
    from edgeformer_runtime.cli.output import stages
    from edgeformer_runtime.translator import Translator

    opened = open_bundle(bundle, trusted_keys=trusted_keys or None)
    translator = Translator.open(opened, **engine, shortlist=False, engine="onnxruntime")
    if opened.has_attention:
        translator.session.open_attention()  # which is otherwise opened on use
    machine = this_machine(translator.session.device)
    with stages({"golden": "Running golden examples", "compare": "Comparing with torch"}, quiet=quiet) as progress:
        progress("golden", 0.0)
        golden, compared = check_golden(translator), None
        if "checkpoint" in against:
            compared = load_verifier()(
                translator,
                against["checkpoint"],
                against.get("source"),
                against["beams"],
                lambda fraction: progress("compare", fraction),
                damaged=bool(golden.problems),
            )
    return len(opened.manifest.files), machine, golden, compared


def _print_device(files: int, machine: Machine, golden: GoldenResult) -> None:
    from edgeformer_runtime.cli.output import console

    out = console()
    name = f" ({machine.processor})" if machine.processor else ""
    instructions = ", ".join(machine.instructions) or "instruction sets unknown"
    out.print(f"Hashes and schema: ok, {files} files")
    products = "saturate, so exact ones are used" if machine.products_saturate else "are exact"
    out.print(
        f"Machine: {machine.architecture}{name}, {instructions}; onnxruntime {machine.engine}, {machine.provider}; "
        f"plain integer products {products}"
    )
    empty = f" ({golden.empty} with an empty output)" if golden.empty else ""
    out.print(
        f"Golden examples: {golden.cases - golden.failed} of {golden.cases} ok{empty}, largest score difference "
        f"{golden.max_score_difference:.2e} (tolerance {golden.score_tolerance:.0e}), smallest margin of logits "
        f"{golden.min_margin:.2g}; run by {' and '.join(golden.engines)}"
    )


def _print_problems(against: CheckpointResult | None, problems: list[str]) -> None:
    from edgeformer_runtime.cli.output import console

    if against is not None:
        print_parity(against.facts, against.warnings)
    for problem in problems:
        console().print(f"FAILED {problem}.", style="red")
    console().print("FAILED" if problems else "PASSED", style="red" if problems else "green")


def print_parity(facts: Iterable[tuple[str, str]], warnings: Iterable[str]) -> None:
    """Print how a bundle compares with PyTorch."""
    from edgeformer_runtime.cli.output import console, print_warnings, table

    rows = table("Compared with PyTorch", "", "")
    for fact in facts:
        rows.add_row(*fact)
    console().print(rows)
    print_warnings(warnings)
