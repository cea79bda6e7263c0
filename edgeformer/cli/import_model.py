"""The command ``import``: a model of another toolkit becomes a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer.importers.read import ImportResult
    from edgeformer.run.folder import Run


def _at_most_two(_: click.Context, __: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...] | None:
    if len(files) > 2:
        raise click.BadParameter("give at most two, for the source and for the target.")
    return files or None


reading = options.group(
    "reading",
    format_name=click.option(
        "--from", "format_name", metavar="FORMAT", help="Format of SOURCE, instead of recognizing it."
    ),
    source_language=click.option("--source-language", help="BCP 47 tag of the language to translate from."),
    target_language=click.option("--target-language", help="BCP 47 tag of the language to translate to."),
    tokenizers=click.option(
        "--tokenizer",
        "tokenizers",
        type=click.Path(path_type=Path, dir_okay=False),
        multiple=True,
        callback=_at_most_two,
        help="SentencePiece model, if SOURCE has none; may be repeated, for the source first.",
    ),
    license=click.option("--license", help="License of the weights, for the card. Default: what the model states."),
)
"""Arguments for reading a model; see :func:`~edgeformer.importers.read.read_model`."""
text_option = click.option(
    "--text",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Sentences of the source language, one per line, for calibrating quantization and for examples.",
)


@click.command("import")
@click.argument("source")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Run folder to write; missing or empty.")
@reading
@text_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def import_model(source: str, out: Path, reading: dict[str, Any], text: Path | None, as_json: bool) -> None:
    """Import a model of another toolkit.

    Reads SOURCE, a file, folder or zip file of another toolkit, and writes a run folder, on which everything else
    works: `edgeformer export`, `evaluate`, `distill`, `train --init`. Nothing in SOURCE is run as code.
    `hf:ORGANIZATION/NAME` is a model of the Hugging Face Hub, optionally with @REVISION; `firefox:PAIR` is one of
    Firefox.

    \b
    Examples:
      edgeformer import opus-mt-en-fr/ --out run --source-language en
      edgeformer import hf:Helsinki-NLP/opus-mt-en-fr --out run
      edgeformer import firefox:enfr --out run
      edgeformer export run --out bundle --precision int8
    """
    from edgeformer.importers.read import read_model
    from edgeformer.importers.run_folder import write_run
    from edgeformer.importers.sample import own_text
    from edgeformer.run.folder import refuse_used
    from edgeformer_runtime.cli.output import stages

    refuse_used(out)  # before anything is downloaded
    sentences = own_text(text)
    found = read_model(source, **reading)
    with stages({"translate": "Translating a sample"}, quiet=as_json) as progress:
        run = write_run(
            found.model, out, found.origin, text=sentences, progress=lambda fraction: progress("translate", fraction)
        )
    _show(found, run, as_json=as_json)


def _show(found: ImportResult, run: Run, *, as_json: bool) -> None:
    """Print what was imported."""
    from edgeformer_runtime.cli.output import console, print_json, print_warnings, table

    shown = run.sample[:3]
    print_warnings(run.sample_warnings)
    if as_json:
        print_json(
            {
                "run": run.path,
                "format": found.importer,
                "family": run.recipe.model["family"],
                "parameters": run.info.parameters,
                "notes": found.model.notes,
                "sample": shown,
            }
        )
        return
    rows = table(f"{run.path}", "", "")
    rows.add_row("format", found.importer)
    rows.add_row("family", str(run.recipe.model["family"]))
    rows.add_row("parameters", f"{run.info.parameters:,}")
    for number, note in enumerate(found.model.notes):
        rows.add_row("" if number else "notes", note)
    for sentence, translation in shown:
        rows.add_row(sentence, translation)
    console().print(rows)
    console().print(f"Next: edgeformer export {run.path} --out BUNDLE", soft_wrap=True, highlight=False)
