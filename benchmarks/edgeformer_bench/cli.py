"""The command ``bench``: latency of a bundle on this machine, and comparisons with other engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_bench.options import peer_pythons
from edgeformer_bench.peers.base import BERGAMOT, ON_CPU, ONNXRUNTIME, PEERS
from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer_bench.compare import Comparison
    from edgeformer_bench.latency import BenchmarkResult, Conditions


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
@peer_pythons
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
    pythons: dict[str, str],
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

    from edgeformer_bench.compare import Against, Comparison, compare
    from edgeformer_bench.latency import BenchmarkOptions, benchmark
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
                against = Against(peers=peers, run=run, pythons=pythons)
                result = compare(bundles, texts, how, against, text_to_text=text_to_text, progress=progress)
            else:
                result = benchmark(bundles[0], texts, how, progress=partial(progress, "bench"))
        if stream is not None:
            stream.write(json_text(result) + "\n")
    if only_json:
        print_json(result)
    elif isinstance(result, Comparison):
        _print_comparison(result)
    else:
        _print_bundle(result)
    for bundle in bundles:
        options.advise_kernels(open_bundle(bundle), how.engine, how.device)


def _texts(bundle: Path, source: Path | None) -> list[str]:
    """Return the lines of the file or, without a file, the bundle's golden examples."""
    from edgeformer.data.text import read_lines
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.selfcheck.golden import read_golden

    if source is not None:
        return read_lines(source)
    return list(dict.fromkeys(case.text for case in read_golden(open_bundle(bundle)).cases))


def _conditions(result: Conditions) -> str:
    """Format search, batch, device and threads for titles."""
    from edgeformer_runtime.cli.output import plural

    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    return f"{search}, batch {result.batch_size}, {result.device}, {plural(result.threads, 'thread')}"


def _print_comparison(result: Comparison) -> None:
    from edgeformer_bench.compare import TURN_SECONDS
    from edgeformer_bench.rounds import speed_cells
    from edgeformer_runtime.cli.output import console, plural, table

    out = console()
    sentences = plural(result.sentences, "sentence") + (", text to text" if result.text_to_text else "")
    columns = ("", "median ms", "sentences/s", "speed", "95 % interval", "same")
    rows = table(f"{sentences}, {_conditions(result)}, {plural(result.rounds, 'round')}", *columns)
    rows.columns[0].overflow = "fold"  # bundle paths often differ only at the end
    for entry in result.systems:
        timing = entry.timing
        if timing is None:
            rows.add_row(entry.system, *"–" * (len(columns) - 1))
            continue
        rows.add_row(
            entry.system,
            f"{timing.median_ms:.2f}",
            f"{entry.sentences_per_second:,.1f}",
            *speed_cells(entry.speed),
            f"{entry.identical}",
        )
    out.print(rows)
    out.print(
        f"Speed: time of {result.reference} divided by the system's, for the same call in the same round; median, with "
        "its 95 % confidence interval by bootstrap over rounds and calls. A turn repeats short calls for "
        f"{1000 * TURN_SECONDS:.0f} ms. Same: sentences with the output of {result.systems[0].system}."
    )
    for entry in result.systems:
        if entry.error:
            out.print(f"{entry.system} was not measured: {entry.error}")
    versions = dict.fromkeys(entry.version for entry in result.systems if entry.version)
    out.print(f"{result.machine}; {', '.join(versions)}")


def _print_bundle(result: BenchmarkResult) -> None:
    from edgeformer_runtime.cli.output import console, plural, table

    out = console()
    engine = f"{result.precision} on {result.engine}"
    title = f"{result.bundle} ({engine}), {_conditions(result)}, {plural(result.call.calls, 'call')}"
    times = table(title, "", "median ms", "p95 ms", "p99 ms", "mean ms")
    for name, timing in (("call", result.call), ("first token", result.first_token)):
        if timing is not None:
            values = (timing.median_ms, timing.p95_ms, timing.p99_ms, timing.mean_ms)
            times.add_row(name, *(f"{value:.2f}" for value in values))
    times.add_row("decoder step", "–", "–", "–", f"{result.decoder_step_ms:.3f}")
    times.add_row("opening, hashes checked", "–", "–", "–", f"{result.load_ms:.2f}")
    shares = table("Share of the time", "encoder %", "decoder %", "search and copies %")
    shares.columns[0].justify = "right"
    shares.add_row(*(f"{100 * share:.0f}" for share in (result.encoder_share, result.decoder_share, result.host_share)))
    totals = table("Throughput and size", "tokens/s", "sentences/s", "peak memory MB", "bundle MB")
    totals.columns[0].justify = "right"
    totals.add_row(
        f"{result.tokens_per_second:,.0f}",
        f"{result.sentences_per_second:,.1f}",
        "–" if result.peak_memory_mb is None else f"{result.peak_memory_mb:.0f}",
        f"{result.bytes / 1e6:.2f}",
    )
    for rows in (times, shares, totals):
        out.print(rows)
    out.print(f"{result.machine}; onnxruntime {result.onnxruntime}")
