"""The command ``bench``: latency of a bundle on this machine, and comparisons with other engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_bench.peers.base import BERGAMOT, ON_CPU, ONNXRUNTIME, PEERS
from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer_bench.compare import Comparison
    from edgeformer_bench.latency import BenchmarkResult


@click.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=options.BundlePath())
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Text to translate, one sentence per line. Default: the golden examples.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of sentences to use."
)
@options.beam
@click.option("--batch", "batch_size", type=click.IntRange(1), default=1, show_default=True, help="Sentences per call.")
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, help="Measured rounds over all sentences."
)
@options.device
@options.threads
@options.engine
@options.shortlist
@click.option(
    "--against",
    "peers",
    multiple=True,
    type=click.Choice((ONNXRUNTIME, *PEERS, BERGAMOT)),
    help="Compare with another engine that has the same weights; may be repeated. onnxruntime compares bundles that "
    "run on the kernels with themselves, bergamot an imported model of Firefox with Firefox's engine.",
)
@click.option(
    "--checkpoint",
    "run",
    type=click.Path(path_type=Path),
    help="Run folder that the bundle was exported from; --against takes the weights from it. For bergamot: the folder "
    "of the published model, or firefox:PAIR.",
)
@click.option(
    "--text-to-text",
    is_flag=True,
    help="Compare the time from text to text; by default, texts are tokenized beforehand.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Also write the result to a file; - prints it instead of the tables.",
)
def bench(
    bundles: tuple[Path, ...],
    source: Path | None,
    limit: int,
    beam: int | None,
    peers: tuple[str, ...],
    run: Path | None,
    text_to_text: bool,
    json_file: Path | None,
    **measurement: Any,
) -> None:
    """Measure latency, alone or against other engines.

    Of one BUNDLE: latency, time to the first token, tokens per second, shares of the time, load time, memory.

    Several bundles, or one with --against, are compared: all systems translate the same sentences in alternating
    rounds, each in a process of its own.
    """
    from contextlib import nullcontext
    from functools import partial

    from edgeformer_bench.compare import Comparison, PeerSelection, compare, encoded
    from edgeformer_bench.latency import BenchmarkOptions, benchmark
    from edgeformer_bench.tables import print_bundle, print_comparison
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.cli.output import atomic_text, json_text, print_json, stages

    how = BenchmarkOptions(beam_size=beam, **measurement)
    if how.device != "cpu" and (only := [name for name in peers if name in ON_CPU]):
        raise click.UsageError(f"`{only[0]}` is compared on the CPU only; leave out --device.")
    if run is not None and not peers:
        raise click.UsageError("--checkpoint needs --against.")
    if text_to_text and not peers and len(bundles) < 2:
        raise click.UsageError("--text-to-text needs --against, or several bundles.")
    only_json = json_file is not None and str(json_file) == "-"
    texts = _texts(bundles[0], source)[:limit]
    names = {"convert": "Converting for the other engines", "bench": "Measuring"}
    result: Comparison | BenchmarkResult
    with nullcontext() if only_json or json_file is None else atomic_text(json_file) as stream:
        with stages(names, quiet=only_json) as progress:
            if peers or len(bundles) > 1:
                against = PeerSelection(peers=peers, run=run)
                sentences = encoded(bundles[0], texts, text_to_text=text_to_text)
                result = compare(bundles, sentences, how, against, progress=progress)
            else:
                result = benchmark(bundles[0], texts, how, progress=partial(progress, "bench"))
        if stream is not None:
            stream.write(json_text(result) + "\n")
    if only_json:
        print_json(result)
    elif isinstance(result, Comparison):
        print_comparison(result)
    else:
        print_bundle(result)
    for bundle in bundles:
        options.advise_kernels(open_bundle(bundle), how.engine, how.device)


def _texts(bundle: Path, source: Path | None) -> list[str]:
    """Return the lines of the file or, without a file, the bundle's golden examples."""
    from edgeformer.data.text import read_lines
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.check.golden import read_golden

    if source is not None:
        return read_lines(source)
    return list(dict.fromkeys(case.text for case in read_golden(open_bundle(bundle)).cases))
