"""The command ``bench``: latency of a bundle on this machine, and against other engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_bench.peers.base import PEERS
from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer_bench.compare import Comparison
    from edgeformer_bench.latency import BenchmarkResult


@click.command()
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Text to translate, a sentence per line; default: the golden examples.",
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Sentences to take of those.")
@options.beam
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sentences per call.")
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, help="Measured rounds over all sentences."
)
@options.device
@options.threads
@click.option(
    "--against",
    multiple=True,
    type=click.Choice(PEERS),
    help="Compare with another engine that has the same weights; give it again for more.",
)
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), help="Run folder of the bundle: the weights for --against."
)
@click.option("--optimum-python", default="", help="Interpreter of an environment with Optimum; default: this one.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Also write the result to a file; - prints it alone.",
)
def bench(
    bundles: tuple[Path, ...],
    source: Path | None,
    limit: int,
    beam: int | None,
    batch: int,
    repeat: int,
    device: str,
    threads: int,
    against: tuple[str, ...],
    checkpoint: Path | None,
    optimum_python: str,
    json_file: Path | None,
) -> None:
    """Measure a BUNDLE: latency per sentence, first token, tokens per second, where the time goes, load time,
    memory.

    With several, or with --against: compare them. All translate the same sentences in turn; each runs in a process of
    its own.
    """
    from contextlib import nullcontext

    from edgeformer.data.text import read_lines
    from edgeformer_bench.latency import benchmark
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.cli.output import atomic_text, json_text, print_json, stages
    from edgeformer_runtime.engine.onnx_session import available_cpus
    from edgeformer_runtime.selfcheck.golden import golden_cases

    comparing = bool(against) or len(bundles) > 1
    if device != "cpu" and "optimum" in against:
        raise click.UsageError("Optimum is compared on the CPU only; leave out --device.")
    if checkpoint is not None and not against:
        raise click.UsageError("--checkpoint is for --against, which is not given.")
    alone = json_file is not None and str(json_file) == "-"
    if source is None:
        texts = list(dict.fromkeys(case.text for case in golden_cases(open_bundle(bundles[0]))))
    else:
        texts = read_lines(source)
    texts = texts[:limit]
    settings: dict[str, Any] = {"beam_size": beam, "batch_size": batch, "repeat": repeat}
    result: BenchmarkResult | Comparison
    with nullcontext() if alone or json_file is None else atomic_text(json_file) as stream:
        names = {"convert": "Converting for the other engines", "bench": "Measuring"}
        with stages(names, quiet=alone) as progress:
            if comparing:
                from edgeformer_bench.compare import compare

                result = compare(
                    bundles,
                    texts,
                    against=against,
                    run=checkpoint,
                    device=device,
                    threads=threads or available_cpus(),
                    optimum_python=optimum_python,
                    progress=progress,
                    **settings,
                )
            else:
                result = benchmark(
                    bundles[0],
                    texts,
                    device=device,
                    threads=threads,
                    progress=lambda fraction: progress("bench", fraction),
                    **settings,
                )
        if stream is not None:
            stream.write(json_text(result) + "\n")
    if alone:
        print_json(result)
    elif comparing:
        _print_comparison(result)
    else:
        _print_bundle(bundles[0], result)


def _print_comparison(result: Any) -> None:
    from edgeformer_runtime.cli.output import console, table

    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    rows = table(
        f"{result.sentences} sentences, {search}, batch {result.batch_size}, {result.device}, {result.threads} "
        f"thread(s), {result.rounds} rounds; speed: times as fast as {result.reference}",
        "",
        "p50 ms",
        "p25 – p75",
        "sentences/s",
        "speed",
        "same output",
    )
    rows.columns[0].overflow = "fold"  # paths of bundles often differ at the end only
    for one in result.systems:
        if one.timing is None:
            rows.add_row(one.system, "–", "–", "–", "–", "–")
        else:
            speed = "–" if one.speed is None else f"{one.speed:.2f}"
            spread = f"{one.timing.p25_ms:.2f} – {one.timing.p75_ms:.2f}"
            same = f"{one.identical} / {result.sentences}"
            rows.add_row(
                one.system, f"{one.timing.median_ms:.2f}", spread, f"{one.sentences_per_second:,.1f}", speed, same
            )
    console().print(rows)
    for one in result.systems:
        if one.error:
            console().print(f"{one.system} was not measured: {one.error}")
    versions = dict.fromkeys(one.version for one in result.systems if one.version)
    console().print(f"{result.machine}; {', '.join(versions)}")


def _print_bundle(bundle: Path, result: Any) -> None:
    from edgeformer_runtime.cli.output import console, human_bytes, table

    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    rows = table(
        f"{bundle} ({result.precision}), {search}, batch {result.batch_size}, {result.device}, {result.threads} "
        "threads",
        "",
        "p50",
        "p95",
        "p99",
        "mean",
    )
    for name, times in (("one call, ms", result.sentence_ms), ("first token, ms", result.first_token_ms)):
        rows.add_row(name, *(f"{value:.2f}" for value in (times.p50, times.p95, times.p99, times.mean)))
    facts = table("", "", "")
    shares = (result.encoder_share, result.decoder_share, result.host_share)
    for name, value in {
        "tokens per second": f"{result.tokens_per_second:,.0f}",
        "sentences per second": f"{result.sentences_per_second:,.1f}",
        "decoder step": f"{result.decoder_step_ms:.3f} ms",
        "encoder / decoder / host": " / ".join(f"{share:.0%}" for share in shares),
        "load, hashes checked": f"{result.load_ms:.0f} ms",
        "peak memory": "not known" if result.peak_memory_mb is None else f"{result.peak_memory_mb:.0f} MB",
        "bundle": human_bytes(result.bytes),
        "calls measured": f"{result.calls:,}",
        "machine": result.machine,
        "onnxruntime": result.onnxruntime,
    }.items():
        facts.add_row(name, value)
    console().print(rows)
    console().print(facts)
