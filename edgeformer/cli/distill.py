"""The command ``distill``: a teacher's translations of training text, which a student learns from (sequence-level
knowledge distillation, Kim & Rush 2016)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import console, one_line, plural, refuse_input
from edgeformer_text.cli.block_output import BlockOutput, LineBlock
from edgeformer_text.cli.distributed import LocalWorkers, cluster_options, process_file, translate_file, uses_ray

if TYPE_CHECKING:
    from edgeformer_runtime.search.options import DecodeOptions
    from edgeformer_runtime.translator import Translator


@click.command()
@click.argument("teacher", type=options.BundlePath())
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write, SOURCE<TAB>TRANSLATION.")
@options.group(
    "search",
    beam_size=options.beam,
    n_best=click.option("--nbest", type=click.IntRange(1), help="Translations of each sentence. Default: 1."),
    length_penalty=options.length_penalty,
    max_batch_tokens=options.batch_tokens,
)
@options.group(
    "engine", device=options.device, threads=options.threads, shortlist=options.shortlist, workers=options.workers
)
@cluster_options
def distill(
    teacher: Path, source: Path, out: Path, search: dict[str, Any], engine: dict[str, Any], cluster: dict[str, str]
) -> None:
    """Translate training text with a teacher model.

    SOURCE has one sentence per line, such as the file `train.en` that `edgeformer data prepare` writes. --out becomes a
    file for `data.train`. A sentence that is too long for the bundle TEACHER, or that it does not finish, is left out.

    If it is interrupted, the same command continues.

    \b
    Example:
      edgeformer data prepare recipe.toml --out corpus
      edgeformer distill teacher corpus/train.en --out distilled.tsv
      edgeformer train recipe.toml --set data.corpus=corpus --set data.train='["distilled.tsv"]' --out student
    """
    from edgeformer_runtime.engines.cpus import divide_for_many
    from edgeformer_runtime.translator import Translator

    refuse_input(out, source)
    on_ray = uses_ray(cluster)
    threads, workers = divide_for_many(engine["device"], engine["threads"], engine["workers"])
    here = {"threads": threads, "workers": workers, "engine": cluster["engine"]}
    with Translator.open(teacher, **{**engine, **({"threads": 1, "workers": 1} if on_ray else here)}) as translator:
        decoding = translator.options(**search, return_scores=False)
        decoding.verify()
        work = partial(distilled, decoding=decoding)
        settings = {**search, "distill": True}
        try:
            if on_ray:
                translate_file(translator, engine, cluster.get("address"), work, source, out, settings)
            else:
                settings |= {key: engine[key] for key in ("device", "shortlist")}
                process_file(LocalWorkers(translator), work, source, out, settings)
        except KeyboardInterrupt:
            console(stderr=True).print("Interrupted. The same command continues.")
            raise
    with out.open("rb") as file:
        console().print(f"Wrote {out}, {plural(sum(1 for _ in file), 'pair')}.")


def distilled(teacher: Translator, block: LineBlock, *, decoding: DecodeOptions) -> BlockOutput:
    """Translate the sentences of a block; a pair for each translation that is finished and not empty."""
    sources = [line for line in dict.fromkeys(block.lines) if line.strip() and "\t" not in line]
    excluded = teacher.too_long(sources)
    sources = [source for index, source in enumerate(sources) if index not in excluded]
    translations = dict(zip(sources, teacher.translate(sources, decoding), strict=True))
    pairs = []
    for source in block.lines:
        hypotheses = translations[source].hypotheses if source in translations else ()
        texts = (one_line(each.text).replace("\t", " ") for each in hypotheses if each.finished)
        pairs += [f"{source}\t{text}\n" for text in dict.fromkeys(texts) if text.strip()]
    return BlockOutput("".join(pairs), [])
