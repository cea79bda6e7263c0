"""The command ``distill``: a training corpus with a teacher's translations as targets."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer.config import load_recipe
from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.distributed import cluster_options, uses_ray

if TYPE_CHECKING:
    from edgeformer.data.corpora import CorpusReport
    from edgeformer_runtime.distributed.ray_workers import RayWorkers
    from edgeformer_runtime.translator import Translator


@click.command()
@click.argument("teacher", type=options.BundlePath())
@click.argument("recipe", required=False)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Output folder; must be missing or empty.")
@options.data_folder
@options.overrides
@click.option("--resume", is_flag=True, help="Continue an interrupted distillation; RECIPE and settings are optional.")
@options.group(
    "settings",
    beam_size=options.beam,
    n_best=click.option(
        "--nbest", type=click.IntRange(1), help="Translations to keep per source sentence. Default: 1."
    ),
    length_penalty=options.length_penalty,
    closest=click.option(
        "--closest", is_flag=True, help="Keep the hypothesis closest to the reference, by sentence BLEU."
    ),
    tokenize=click.option("--tokenize", default="13a", show_default=True, help="sacreBLEU tokenizer for --closest."),
    max_batch_tokens=options.batch_tokens,
)
@options.group(
    "engine",
    device=options.device,
    threads=options.threads,
    shortlist=options.shortlist,
    workers=options.workers,
)
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, and no progress.")
def distill(
    teacher: Path,
    recipe: str | None,
    out: Path,
    data_dir: Path | None,
    overrides: tuple[str, ...],
    resume: bool,
    settings: dict[str, Any],
    engine: dict[str, Any],
    cluster: dict[str, str],
    as_json: bool,
) -> None:
    """Translate a training corpus with a teacher model.

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
    from edgeformer.distill.distillation import distill as run_distillation
    from edgeformer.distill.folder import PROGRESS_FILE
    from edgeformer_runtime.cli.output import console, counting, print_json

    if out.exists() and not out.is_dir():
        raise ConfigError(f"`{out}` is a file; choose a folder with --out.")
    tokenize = settings.pop("tokenize")
    if settings.pop("closest"):
        settings["closest"] = tokenize
    translator, workers = _opened(teacher, engine, cluster)
    begin, done = time.perf_counter(), 0
    try:
        with counting("sentences", quiet=as_json) as progress:

            def count(now: int, total: int) -> None:
                nonlocal done
                done = now
                progress(now, total)

            report = run_distillation(
                translator, out, loaded, data_dir, resume=resume, workers=workers, report=count, **settings
            )
    except KeyboardInterrupt:
        if not (out / PROGRESS_FILE).is_file():
            raise
        console(stderr=True).print(f"Stopped after {done:,} sentences. Continue with:")
        console(stderr=True).print(f"  edgeformer distill {teacher} --out {out} --resume")
        sys.exit(130)
    if as_json:
        seconds, distilled = time.perf_counter() - begin, report.provenance.distilled
        print_json({"out": out, "seconds": seconds, "pairs": report.pairs, "distilled": distilled})
        return
    _print(report)
    own = " --set data.train=[]" if loaded and loaded.data.train else ""
    console().print(f"Next: edgeformer train {recipe or 'RECIPE'} --set data.corpus={out}{own} --out STUDENT")


def _opened(teacher: Path, engine: dict[str, Any], cluster: dict[str, str]) -> tuple[Translator, RayWorkers | None]:
    """The teacher, and the workers that translate in its place on a Ray cluster."""
    from edgeformer_runtime.distributed.ray_workers import RayWorkers
    from edgeformer_runtime.engines.cpus import divide_for_many
    from edgeformer_runtime.translator import Translator

    if uses_ray(cluster):
        translator = Translator.open(teacher, **{**engine, "workers": 1, "threads": 1})
        return translator, RayWorkers.of(translator, engine, cluster.get("address"))
    threads, workers = divide_for_many(engine["device"], engine["threads"], engine["workers"])
    settings = {**engine, "threads": threads, "workers": workers, "engine": cluster["engine"]}
    return Translator.open(teacher, **settings), None


def _print(report: CorpusReport) -> None:
    from edgeformer_runtime.cli.output import console, table

    distilled = report.provenance.distilled
    rows = table(f"Distilled from {distilled['teacher']}, beam {distilled['beam_size']}", "", "")
    rows.add_row("source sentences", f"{distilled['sentences']:,}")
    rows.add_row("training pairs", f"{distilled['pairs']:,}")
    rows.add_row("too long for the teacher, reference kept", f"{distilled['too_long']:,}")
    rows.add_row("not finished by the teacher, reference kept", f"{distilled['unfinished']:,}")
    rows.add_row("original pairs for validation, test", f"{report.pairs['valid']:,}, {report.pairs['test']:,}")
    console().print(rows)
