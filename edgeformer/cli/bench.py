"""The command ``bench``: latency of a bundle on this machine."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Text to translate, a sentence per line; default: the golden examples.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="Sentences to take from --source."
)
@click.option(
    "--beam", type=click.IntRange(1), help="Hypotheses kept per sentence; 1 is greedy. Default: the bundle's."
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sentences per call.")
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, help="Measured rounds over all sentences."
)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(0), default=0, help="CPU threads; 0 takes all this process may use.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Also write the result to a file; - prints it alone.",
)
def bench(
    bundle: Path,
    source: Path | None,
    limit: int,
    beam: int | None,
    batch: int,
    repeat: int,
    device: str,
    threads: int,
    json_file: Path | None,
) -> None:
    """Measure a BUNDLE: latency per sentence, first token, tokens per second, where the time goes, load time,
    memory."""
    from contextlib import nullcontext

    from edgeformer.benchmark import benchmark
    from edgeformer.cli.output import atomic_text, console, human_bytes, json_text, print_json, stages, table
    from edgeformer.data.text import read_lines
    from edgeformer_runtime.bundle import open_bundle
    from edgeformer_runtime.golden import golden_cases

    alone = json_file is not None and str(json_file) == "-"
    if source is None:
        texts = list(dict.fromkeys(case.text for case in golden_cases(open_bundle(bundle))))
    else:
        texts = read_lines(source)[:limit]
    with nullcontext() if alone or json_file is None else atomic_text(json_file) as stream:
        with stages({"bench": "Measuring"}, quiet=alone) as progress:
            result = benchmark(
                bundle,
                texts,
                device=device,
                threads=threads,
                beam_size=beam,
                batch_size=batch,
                repeat=repeat,
                progress=lambda fraction: progress("bench", fraction),
            )
        if stream is not None:
            stream.write(json_text(result) + "\n")
    if alone:
        print_json(result)
        return
    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    rows = table(
        f"{bundle} ({result.precision}), {search}, batch {batch}, {result.threads} threads",
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
