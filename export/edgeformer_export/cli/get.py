"""The command ``get``: a published model becomes one that other commands find by name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer.cli.import_model import reading, text_option
from edgeformer_runtime.errors import missing_package
from edgeformer_runtime.precision import PRECISIONS

if TYPE_CHECKING:
    from edgeformer_export.get import Sample
    from edgeformer_runtime.models.model import Model


@click.command()
@click.argument("source")
@click.option("--name", default="", help="Name of the model. Default: its languages, such as en-fr, or SOURCE's name.")
@click.option("--precision", type=click.Choice(list(PRECISIONS)), help="Precision of the weights. Default: int8.")
@click.option(
    "--shortlist",
    "shortlists",
    multiple=True,
    metavar="TEXT",
    help="Learn a shortlist from a file of sentence pairs, or from two aligned files (--shortlist FILE --shortlist "
    "FILE). Default: the lists that SOURCE has, if any.",
)
@reading
@text_option
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of models to put it in. Default: your own.")
@click.option("--overwrite", is_flag=True, help="Replace the model that has the name; get the newest revision.")
@click.option("--force", is_flag=True, help="Keep a quantized model even if it is too far from the original.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def get(as_json: bool, **request: Any) -> None:
    """Get a published model, ready to translate.

    SOURCE is firefox:PAIR, a model of Firefox; hf:ORGANIZATION/NAME, one of the Hugging Face Hub, optionally with
    @REVISION; or a file, folder or zip file that `edgeformer import` reads. It is downloaded, imported and exported, as
    `edgeformer import` and `edgeformer export` do. Then every command, and Translator.open in Python, finds it by its
    name. `edgeformer models` lists what there is, and removes it.

    \b
    Examples:
      edgeformer get firefox:en-fr
      edgeformer translate en-fr "Where is the station?"
      edgeformer get hf:Helsinki-NLP/opus-mt-en-fr --name opus-en-fr
      edgeformer get translate-en_fr-1_9.argosmodel --precision int4 --name argos-en-fr
    """
    try:
        from edgeformer_export.get import ModelRequest, get_model
    except ModuleNotFoundError as error:
        raise click.ClickException(missing_package("This command", error.name, "import,export")) from None
    from edgeformer_runtime.cli.output import print_json, stages

    with stages(quiet=as_json) as progress:
        model, sample = get_model(ModelRequest(**request), progress)
    if as_json:
        print_json({**model.facts(), "was_there": sample is None})
    else:
        _print(model, sample)


def _print(model: Model, sample: Sample | None) -> None:
    from edgeformer_runtime.cli.output import console, human_bytes, table
    from edgeformer_runtime.models.names import find_bundle

    manifest, origin = model.manifest, model.origin
    shortlist = ", with a shortlist" if manifest.has_shortlist else ""
    rows = table(model.name, "", "")
    rows.add_row("from", f"{origin.name} {origin.revision}".strip())
    rows.add_row("license", origin.licence or "not stated")
    rows.add_row("languages", f"{manifest.source_language or '?'} → {manifest.target_language or '?'}")
    rows.add_row("size", f"{human_bytes(model.nbytes)}, in {model.precision}{shortlist}")
    for row in (*(("note", note) for note in manifest.provenance.training.get("notes", ())), *(sample or ())[:3]):
        rows.add_row(*row)
    console().print(rows)
    console().print(f"`{model.name}` is there already, in {model.path}." if sample is None else f"Wrote {model.path}.")
    name = model.name if find_bundle(model.name).resolve() == model.path.resolve() else model.path
    console().print(f"Next: edgeformer translate {name} {shlex.quote(sample[0][0]) if sample else 'TEXT'}")
