"""The command ``distill``: a training corpus with a teacher's translations as targets."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from edgeformer.config import load_recipe
from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import options


@click.command()
@click.argument("teacher", type=click.Path(path_type=Path))
@click.argument("recipe", required=False)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Output folder; must be missing or empty.")
@options.data_folder
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the recipe, such as data.max_words=50; may be repeated.",
)
@click.option("--resume", is_flag=True, help="Continue an interrupted distillation; RECIPE and settings are optional.")
@options.beam
@click.option("--nbest", type=click.IntRange(1), help="Translations to keep per source sentence. Default: 1.")
@options.length_penalty
@click.option(
    "--closest",
    is_flag=True,
    help="Keep the hypothesis closest to the reference, by sentence BLEU.",
)
@click.option("--tokenize", default="13a", show_default=True, help="sacreBLEU tokenizer for --closest.")
@options.batch_tokens
@options.device
@options.worker_threads
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    help="Batches translated at the same time; 0 means one per available CPU, or 1 on a GPU.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, and no progress.")
def distill(
    teacher: Path,
    recipe: str | None,
    out: Path,
    data_dir: Path | None,
    overrides: tuple[str, ...],
    resume: bool,
    beam: int | None,
    nbest: int | None,
    length_penalty: float | None,
    closest: bool,
    tokenize: str,
    batch_tokens: int,
    device: str,
    threads: int,
    workers: int,
    as_json: bool,
) -> None:
    """Translate a training corpus with a teacher, for a student to learn from.

    Reads the training text of RECIPE and translates it with the bundle TEACHER. --out becomes a corpus for
    `data.corpus`: training pairs with the teacher's translations, and the original validation and test pairs. A source
    sentence that is too long for the teacher, or that it does not finish, keeps its reference.

    If interrupted, only the last few seconds are lost; --resume continues.
    """
    if recipe is None and not resume:
        raise click.UsageError("RECIPE is missing; give the student's recipe.")
    if recipe is None and overrides:
        raise click.UsageError("--set needs RECIPE.")
    loaded = None if recipe is None else load_recipe(recipe, overrides)
    settings = {
        "beam_size": beam,
        "length_penalty": length_penalty,
        "n_best": nbest,
        "closest": tokenize if closest else None,
    }

    from edgeformer.distill.distillation import distill as run_distillation
    from edgeformer.distill.folder import PROGRESS_FILE
    from edgeformer_runtime.cli.output import console, counting, print_json, table
    from edgeformer_runtime.engine.cpus import available_cpus
    from edgeformer_runtime.translator import Translator

    if out.exists() and not out.is_dir():
        raise ConfigError(f"`{out}` is a file; choose a folder with --out.")
    workers = workers or (available_cpus() if device == "cpu" else 1)
    translator = Translator(teacher, device=device, threads=threads, workers=workers)
    begin, done = time.perf_counter(), [0]
    try:
        with counting("sentences", quiet=as_json) as progress:

            def count(now: int, total: int) -> None:
                done.append(now)
                progress(now, total)

            report = run_distillation(
                translator,
                out,
                loaded,
                data_dir,
                resume=resume,
                max_batch_tokens=batch_tokens,
                report=count,
                **{name: value for name, value in settings.items() if value is not None},
            )
    except KeyboardInterrupt:
        if not (out / PROGRESS_FILE).is_file():
            raise
        console(stderr=True).print(f"Stopped after {done[-1]:,} sentences. Continue with:")
        console(stderr=True).print(f"  edgeformer distill {teacher} --out {out} --resume")
        sys.exit(130)
    seconds, distilled = time.perf_counter() - begin, report.provenance.distilled
    if as_json:
        print_json({"out": out, "seconds": seconds, "pairs": report.pairs, "distilled": distilled})
        return
    rows = table(f"Distilled from {distilled['teacher']}, beam {distilled['beam_size']}", "", "")
    rows.add_row("source sentences", f"{distilled['sentences']:,}")
    rows.add_row("training pairs", f"{distilled['pairs']:,}")
    rows.add_row("too long for the teacher, reference kept", f"{distilled['too_long']:,}")
    rows.add_row("not finished by the teacher, reference kept", f"{distilled['unfinished']:,}")
    rows.add_row("original pairs for validation, test", f"{report.pairs['valid']:,}, {report.pairs['test']:,}")
    console().print(rows)
    own = " --set data.train=[]" if loaded and loaded.data.train else ""
    console().print(f"Next: edgeformer train {recipe or 'RECIPE'} --set data.corpus={out}{own} --out STUDENT")
