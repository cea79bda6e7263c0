"""The command ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.cli import options
from edgeformer_runtime.precision import PRECISIONS, Precision

if TYPE_CHECKING:
    from edgeformer.run.folder import Run
    from edgeformer_export.card import ChoiceTable
    from edgeformer_export.export import ExportReport

_PRECISION_HELP = " ".join(f"{name}: {traits.purpose}" for name, traits in PRECISIONS.items())

_auto = options.group(
    "auto",
    max_bleu_drop=click.option(
        "--max-bleu-drop",
        type=click.FloatRange(0),
        help="auto: largest acceptable drop in BLEU compared with fp32. Default: 0.2.",
    ),
    valid=click.option(
        "--valid",
        type=(click.Path(path_type=Path), click.Path(path_type=Path)),
        metavar="SOURCE REFERENCE",
        help="auto: text to measure BLEU on. Default: the validation set of the run's corpus.",
    ),
)
"""Passes the argument ``auto``: the quality budget and the text to measure on, if given."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the bundle to write.")
@click.option(
    "--precision",
    type=click.Choice([*PRECISIONS, "auto"]),
    default="fp32",
    show_default=True,
    help=f"{_PRECISION_HELP} auto: Measure those for CPUs on this machine, and export the fastest within a quality "
    "budget.",
)
@click.option(
    "--target",
    type=click.Choice(get_args(Target)),
    default="ort",
    show_default=True,
    help="ort: ONNX Runtime's fused operators. portable: operators of the ONNX standard only.",
)
@click.option(
    "--shortlist",
    "shortlists",
    multiple=True,
    metavar="TEXT",
    help="Add a shortlist, with which a step scores only tokens that the source makes likely: learned from the run's "
    "`corpus`; `imported` with the model; or learned from a file of sentence pairs, or from two aligned files "
    "(--shortlist FILE --shortlist FILE).",
)
@_auto
@click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="auto, --shortlist: folder that contains the corpus."
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing bundle.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Write a quantized bundle even if it is too far from PyTorch, for example to try the speed of a model that is "
    "hardly trained. Its card says so.",
)
@click.option(
    "--ignore-memory",
    is_flag=True,
    help="Export even if the memory that is available is less than what the export is estimated to need.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def export(
    run: Path,
    out: Path,
    precision: Precision | Literal["auto"],
    target: Target,
    shortlists: tuple[str, ...],
    auto: dict[str, Any],
    data_dir: Path | None,
    overwrite: bool,
    force: bool,
    ignore_memory: bool,
    as_json: bool,
) -> None:
    """Export a trained model as a bundle.

    RUN is the folder that `edgeformer train` wrote. A bundle contains an encoder and a step-decoder graph, their
    weights, tokenizers, golden examples, and a manifest with the SHA-256 of each file. An fp32 bundle is written only
    if its output matches PyTorch token for token; in other precisions, it must stay close.

    With --precision auto, every precision for CPUs translates a validation set and is timed; a table shows the
    results, which the bundle's card and manifest keep.
    """
    from edgeformer.run.folder import Run
    from edgeformer_export.export import check_settings, export_run
    from edgeformer_export.shortlist.lists import make_shortlist
    from edgeformer_runtime.cli.output import print_json, stages

    if force and precision in {"auto", "fp32", "fp16"}:
        raise click.UsageError(f"--force is for quantized bundles; {precision} does not need it.")
    if shortlists and precision == "auto":
        raise click.UsageError("Choose a precision without --shortlist first, then export with it and --shortlist.")
    if auto and precision != "auto":
        flags = [option.opts[0] for option in click.get_current_context().command.params if option.name in auto]
        raise click.UsageError(f"{', '.join(flags)} can only be used with --precision auto.")
    if data_dir is not None and precision != "auto" and not shortlists:
        raise click.UsageError("--data can only be used with --precision auto or --shortlist.")
    opened = Run.open(run)
    _prepare(opened, out, precision, ignore_memory=ignore_memory, quiet=as_json)
    settings: dict[str, Any] = {"target": target, "overwrite": overwrite}
    if precision == "auto":
        from edgeformer_export.auto import export_best

        settings |= _validation_text(opened, data_dir, auto.pop("valid", None))
        with stages(quiet=as_json) as progress:
            report = export_best(opened, out, **auto, **settings, progress=progress)
    else:
        check_settings(precision, target, with_shortlist=bool(shortlists))
        shortlist = make_shortlist(opened, shortlists, data_dir) if shortlists else None
        settings |= {"precision": precision, "force": force, "shortlist": shortlist}
        with stages(quiet=as_json) as progress:
            report = export_run(opened, out, **settings, progress=progress)
    (print_json if as_json else _print_export)(report)


def _validation_text(run: Run, data_dir: Path | None, files: tuple[Path, Path] | None) -> dict[str, Any]:
    """Read pairs of sentences from files, or the validation pairs of the corpus that a run was trained on."""
    from msgspec import convert, structs

    from edgeformer.data.corpora import TextOrigin, load_corpus
    from edgeformer.data.text import read_pairs
    from edgeformer.errors import ConfigError, DataError

    if files is not None:
        if not (pairs := read_pairs(files)):
            raise ConfigError("There is no sentence to translate; choose another text with --valid.")
        return {"pairs": pairs, "name": f"{files[0].name} and {files[1].name}"}
    if not run.recipe.data.corpus and not run.recipe.data.train:
        raise ConfigError(
            f"`{run.path}` was imported and has no validation set; give text and its translation with --valid SOURCE "
            "REFERENCE."
        )
    corpus = load_corpus(run.recipe.data, data_dir)
    trained_on = structs.replace(convert(run.info.provenance, TextOrigin), initial=None)
    if trained_on not in (TextOrigin(), corpus.provenance):
        raise DataError(
            f"`{run.path}` was trained on other text than these files contain, so their validation pairs may be among "
            "its training pairs; give the same files with --data."
        )
    name = "the validation set of the training corpus"
    return {"pairs": corpus.valid, "name": name, "tokenize": corpus.provenance.tokenize}


def _prepare(run: Run, out: Path, precision: Precision | Literal["auto"], *, ignore_memory: bool, quiet: bool) -> None:
    """Say what the export needs, and what is unusual about the run's sample.

    Raises:
        ExportError: there is not enough memory or disk space.
    """
    from edgeformer_export.resources import require_resources
    from edgeformer_runtime.cli.output import console, print_warnings

    needed = require_resources(run, out, precision, ignore_memory=ignore_memory)
    if not quiet:
        console(stderr=True).print(needed)
    print_warnings(run.sample_warnings)


def _print_export(report: ExportReport) -> None:
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.cli.output import console, human_bytes

    if report.choice is None:
        _print_details(report)
    else:
        _print_choice(report.choice, report.bundle.name)
    for problem in report.parity.problems:
        console().print(f"Written with --force, outside the bounds of its precision: {problem}.")
    if report.kernels is not None:
        reason = f"no plan, because {report.kernels}" if report.kernels else "same outputs for the golden examples"
        console().print(f"Kernels: {reason.removesuffix('.')}.")
        options.advise_kernels(open_bundle(report.bundle), "auto", "cpu")
    precision, size = report.parity.precision, human_bytes(report.nbytes)
    console().print(f"Wrote {report.bundle}, {precision}, {size}. Next: edgeformer translate {report.bundle}")


def _print_choice(choice: ChoiceTable, name: str) -> None:
    """Show the table of candidates for a bundle, and how one of them was chosen."""
    from edgeformer_runtime.cli.output import console, table

    shown = table(f"Precisions of {name}", *choice.columns)
    for row in choice.rows:
        shown.add_row(*row)
    console().print(shown)
    for note in choice.notes:
        console().print(note)


def _print_details(report: ExportReport) -> None:
    """Show what each pass did, how the graphs compare with PyTorch, and what the shortlist costs."""
    from edgeformer_export.card import shortlist_lines
    from edgeformer_runtime.cli.output import console, human_bytes, table
    from edgeformer_runtime.cli.verify import print_parity

    for name, records in report.passes.items():
        rows = table(f"Passes on {name}", "pass", "nodes", "weights")
        for record in records:
            rows.add_row(
                record.name,
                f"{record.nodes_before} → {record.nodes_after}",
                f"{human_bytes(record.bytes_before)} → {human_bytes(record.bytes_after)}",
            )
        console().print(rows)
    print_parity(report.parity.facts, report.parity.warnings)
    if report.shortlist is not None:
        console().print("Shortlist: " + " ".join(shortlist_lines(report.shortlist)))
