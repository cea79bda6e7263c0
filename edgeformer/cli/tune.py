"""The command ``tune``: decoding defaults for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer.quality.tuning import Tuning
    from edgeformer_runtime.translator import AnyTranslator


@click.command()
@click.argument("model", type=options.BundlePath())
@options.data_folder
@click.option(
    "--valid",
    type=(click.Path(path_type=Path), click.Path(path_type=Path)),
    metavar="SOURCE REFERENCE",
    help="Text to translate, and its translation. Default: the validation set of the model's corpus.",
)
@click.option("--beam", type=click.IntRange(2), help="Hypotheses kept per sentence. Default: the model's.")
@click.option(
    "--length-penalty",
    "penalties",
    type=float,
    multiple=True,
    help="Penalty to compare; may be repeated. Default: 0 to 2 in steps of 0.1.",
)
@options.group("engine", device=options.device, threads=options.threads)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tune(
    model: Path,
    data_dir: Path | None,
    valid: tuple[Path, Path] | None,
    beam: int | None,
    penalties: tuple[float, ...],
    engine: dict[str, Any],
    as_json: bool,
) -> None:
    """Choose a length penalty on the validation set.

    Translates the validation set of MODEL, a run or a bundle, and computes BLEU for every penalty. For an imported
    model, give the text with --valid. Of the penalties
    that are not significantly worse than the best (paired bootstrap, 95 %), the one nearest to 1 is chosen. A run keeps
    it, with the beam size, as its decoding defaults, and `edgeformer export` writes them into the bundle. A bundle is
    not changed. The test set is never translated.
    """
    from edgeformer.quality.translators import is_bundle, kind_of, open_translator
    from edgeformer.quality.tuning import PENALTIES, validation_text
    from edgeformer.quality.tuning import tune as search
    from edgeformer_runtime.cli.output import print_json, stages

    translator = open_translator(model, **engine)
    text = validation_text(model, data_dir, valid)
    with stages({"translate": "Translating the validation set"}, quiet=as_json) as progress:
        result = search(
            translator,
            text,
            beam_size=beam,
            penalties=penalties or PENALTIES,
            progress=lambda fraction: progress("translate", fraction),
        )
    saved, failure = not is_bundle(model), None
    if saved:
        from edgeformer.train.run import Run

        try:
            run = Run.open(model)
            run.update(generation=result.applied_to(run.info.generation))
        except OSError as error:
            saved, failure = False, ConfigError(f"`{model}` cannot be written, so nothing was saved: {error.strerror}.")
    if as_json:
        print_json({"model": model, "kind": kind_of(translator), "saved": saved, "result": result})
    else:
        _print(model, translator, result, saved)
    if failure is not None:
        raise failure


def _print(model: Path, translator: AnyTranslator, result: Tuning, saved: bool) -> None:
    from edgeformer.quality.translators import is_bundle, kind_of
    from edgeformer_runtime.cli.output import console, table

    title = f"{model} ({kind_of(translator)}), {result.sentences:,} validation sentences, beam {result.beam_size}"
    rows = table(title, "length penalty", "BLEU", "below the highest", "length ratio", "")
    before = translator.defaults.length_penalty
    for candidate in result.candidates:
        notes = ["chosen"] * (candidate is result.chosen) + ["default"] * (candidate.length_penalty == before)
        figures = (
            f"{candidate.length_penalty:g}",
            f"{candidate.bleu:.2f}",
            f"{candidate.deficit:.2f}",
            f"{candidate.length_ratio:.3f}",
        )
        rows.add_row(*figures, ", ".join(notes))
    console().print(rows)
    console().print(f"BLEU {result.bleu_signature}; below the highest: 95 % confidence interval, paired bootstrap")
    if result.too_long:
        sentences = "1 sentence has" if result.too_long == 1 else f"{result.too_long:,} sentences have"
        console().print(f"Left out: {sentences} more tokens than the model accepts.")
    best = f"beam {result.beam_size}, length penalty {result.chosen.length_penalty:g}"
    if saved:
        console().print(f"Saved as the run's defaults: {best}. Next: edgeformer export {model} --out BUNDLE")
    elif is_bundle(model):
        console().print(f"Best: {best}. The bundle was not changed: tune its run and export that again.")
