"""The command ``tune``: decoding defaults that suit a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer.quality.evaluation import System
    from edgeformer.quality.tuning import Tuning


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@options.data_folder
@click.option("--beam", type=click.IntRange(2), help="Hypotheses kept per sentence. Default: the model's.")
@click.option(
    "--length-penalty",
    "penalties",
    type=float,
    multiple=True,
    help="Penalty to compare, as often as there are some. Default: 0 to 2 in steps of 0.1.",
)
@options.device
@options.threads
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tune(
    model: Path,
    data_dir: Path | None,
    beam: int | None,
    penalties: tuple[float, ...],
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Find a length penalty with which MODEL, a run or a bundle, has a high BLEU on its validation set.

    Of all that are not surely worse than the highest (paired bootstrap, 95 %), the penalty nearest to 1 is taken. A run
    keeps it, with the beam size, as its decoding defaults, and `edgeformer export` writes them into the bundle. A
    bundle is not changed. The test set is never translated.
    """
    from edgeformer.quality.evaluation import open_system
    from edgeformer.quality.tuning import PENALTIES
    from edgeformer.quality.tuning import tune as search
    from edgeformer_runtime.cli.output import print_json, stages

    system = open_system(model, device=device, threads=threads)
    with stages({"translate": "Translating the validation set"}, quiet=as_json) as progress:
        result = search(
            model,
            system,
            data_dir,
            beam_size=beam,
            penalties=penalties or PENALTIES,
            progress=lambda fraction: progress("translate", fraction),
        )
    saved, failure = system.kind == "torch", None
    if saved:
        from edgeformer.train.run import Run

        try:
            Run.open(model).update(generation=result.generation)
        except OSError as error:
            saved, failure = False, ConfigError(f"`{model}` cannot be written, so nothing was saved: {error.strerror}.")
    if as_json:
        print_json({"model": model, "kind": system.kind, "saved": saved, "result": result})
    else:
        _print(model, system, result, saved)
    if failure is not None:
        raise failure


def _print(model: Path, system: System, result: Tuning, saved: bool) -> None:
    from edgeformer_runtime.cli.output import console, table

    title = f"{model} ({system.kind}), {result.sentences:,} validation sentences, beam {result.beam_size}"
    rows = table(title, "length penalty", "BLEU", "±", "length ratio", "")
    before = system.options.length_penalty
    for candidate in result.candidates:
        notes = ["chosen"] * (candidate is result.chosen) + ["default"] * (candidate.length_penalty == before)
        figures = (
            f"{candidate.length_penalty:g}",
            f"{candidate.bleu:.2f}",
            f"{candidate.error:.2f}",
            f"{candidate.length_ratio:.3f}",
        )
        rows.add_row(*figures, ", ".join(notes))
    console().print(rows)
    console().print(f"BLEU {result.bleu_signature}; ± of its difference from the highest")
    if result.too_long:
        console().print(f"{result.too_long:,} sentences have more tokens than the model takes, and were left out.")
    best = f"beam {result.beam_size}, length penalty {result.chosen.length_penalty:g}"
    if saved:
        console().print(f"Saved as the run's defaults: {best}. Next: edgeformer export {model} --out BUNDLE")
    elif system.kind != "torch":
        console().print(f"Best: {best}. A bundle is not changed: tune its run, and export that again.")
