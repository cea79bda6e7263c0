"""Tables of what was measured, for a terminal."""

from __future__ import annotations

from edgeformer_bench.compare import TURN_SECONDS, Comparison
from edgeformer_bench.latency import BenchmarkResult, Conditions
from edgeformer_bench.rounds import Speed
from edgeformer_runtime.cli.output import console, plural, table


def _conditions(result: Conditions) -> str:
    """Format search, batch, device and threads for titles."""
    search = "greedy" if result.beam_size == 1 else f"beam {result.beam_size}"
    return f"{search}, batch {result.batch_size}, {result.device}, {plural(result.threads, 'thread')}"


def print_comparison(result: Comparison) -> None:
    """Print the times of all systems, their sizes, and why others were not measured."""
    out = console()
    sentences = plural(result.sentences, "sentence") + (", text to text" if result.text_to_text else "")
    if result.lengths is not None:
        sentences += ", {} → {} tokens".format(*result.lengths)
    title = f"{sentences}, {_conditions(result)}, {plural(result.rounds, 'round')}"
    times = table(title, "", "median ms", "sentences/s", "speed", "95 % interval", "same")
    sizes = table("Model and process", "", "files MB", "start s", "peak memory MB")
    for entry in result.systems:
        if entry.timing is None:
            times.add_row(entry.system, *"–" * (len(times.columns) - 1))
            continue
        median, per_second = f"{entry.timing.median_ms:.2f}", f"{entry.sentences_per_second:,.1f}"
        times.add_row(entry.system, median, per_second, *speed_cells(entry.speed), f"{entry.identical}")
        peak = "–" if entry.peak_mb is None else f"{entry.peak_mb:.0f}"
        sizes.add_row(entry.system, f"{entry.bytes / 1e6:.1f}", f"{entry.start_seconds:.2f}", peak)
    for rows in (times, sizes):
        rows.columns[0].overflow = "fold"  # bundle paths often differ only at the end
        out.print(rows)
    out.print(
        f"Speed: time of {result.reference} divided by the system's, for the same call in the same round; median, with "
        "its 95 % confidence interval by bootstrap over rounds and calls. A turn repeats short calls for "
        f"{1000 * TURN_SECONDS:.0f} ms. Same: sentences with the output of {result.systems[0].system}. "
        "Start: of its process, until the model is open."
    )
    for entry in result.systems:
        if entry.error:
            out.print(f"{entry.system} was not measured: {entry.error}")
    versions = dict.fromkeys(entry.version for entry in result.systems if entry.version)
    out.print(f"{result.machine}; {', '.join(versions)}")


def print_bundle(result: BenchmarkResult) -> None:
    """Print latency, shares of the time, throughput and size of one bundle."""
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


def speed_cells(speed: Speed | None) -> tuple[str, str]:
    """Format a speed and its confidence interval for a table."""
    if speed is None:
        return "–", "–"
    return f"{speed.median:.2f}", "–" if speed.interval is None else f"{speed.interval:.2f}"
