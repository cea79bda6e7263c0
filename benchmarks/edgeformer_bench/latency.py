"""Latency of a bundle: one sentence at a time, as a device does it."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeformer.errors import ConfigError
from edgeformer_bench.memory import peak_memory_mb
from edgeformer_runtime.decoding.loop import Counters
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION, available_cpus
from edgeformer_runtime.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Distribution of a time over all measured calls, in milliseconds."""

    p50: float
    """Median."""
    p95: float
    """95th percentile."""
    p99: float
    """99th percentile."""
    mean: float
    """Arithmetic mean."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """What was measured, and on what."""

    bundle: str
    """Folder of the bundle."""
    precision: str
    """Precision of its graphs."""
    bytes: int
    """Bytes of its files."""
    machine: str
    """Processor and system."""
    onnxruntime: str
    """Its version."""
    device: str
    """``cpu`` or ``cuda``."""
    threads: int
    """CPU threads of one operator."""
    beam_size: int
    """Hypotheses kept per sentence."""
    batch_size: int
    """Sentences per call."""
    calls: int
    """Measured calls."""
    sentence_ms: Latency
    """Time of one call."""
    first_token_ms: Latency
    """Time from the start of a call's batch to its first token, tokenising not included."""
    tokens_per_second: float
    """Target tokens, end tokens included, over the time of all calls."""
    sentences_per_second: float
    """Sentences over the time of all calls."""
    encoder_share: float
    """Share of the time in the encoder graph."""
    decoder_share: float
    """Share of the time in the decoder graph."""
    host_share: float
    """Share of the time in search, batching, tokenising and copies."""
    decoder_step_ms: float
    """Mean time of one decoder step."""
    load_ms: float
    """Time to check all hashes and open the bundle."""
    peak_memory_mb: float | None
    """Largest resident size of this process, in 10^6 bytes; none where the system does not tell."""


def benchmark(
    bundle: Path,
    texts: Sequence[str],
    *,
    device: str = "cpu",
    threads: int = 0,
    beam_size: int | None = None,
    batch_size: int = 1,
    repeat: int = 5,
    warmup: int = 2,
    progress: Callable[[float], None] = lambda fraction: None,
) -> BenchmarkResult:
    """Translate texts again and again, and time each call.

    Args:
        bundle: its folder.
        texts: sentences, taken ``batch_size`` at a time.
        device: ``cpu`` or ``cuda``.
        threads: CPU threads of one operator; 0 takes all this process may use.
        beam_size: hypotheses kept; the bundle's default if none.
        batch_size: sentences per call.
        repeat: measured rounds over all texts.
        warmup: rounds before them that are not measured.
        progress: called with the fraction done, 0 … 1.

    Raises:
        ConfigError: there is no text.
    """
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ConfigError("There is no sentence to translate; give --source a file with text.")
    begin = time.perf_counter()
    translator = Translator.open(bundle, device=device, threads=threads)
    load_seconds = time.perf_counter() - begin
    beam_size = translator.defaults.beam_size if beam_size is None else beam_size
    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    total, seconds, first = Counters(), [], []
    rounds = warmup + repeat
    for number in range(rounds):
        for batch in batches:
            counters = Counters()
            begin = time.perf_counter()
            translator.translate(batch, beam_size=beam_size, return_scores=False, counters=counters)
            elapsed = time.perf_counter() - begin
            if number >= warmup:
                seconds.append(elapsed)
                first.append(counters.first_token_seconds / max(1, counters.batches))
                total.add(counters)
        progress((number + 1) / rounds)
    spent = sum(seconds)
    manifest = translator.bundle.manifest
    return BenchmarkResult(
        bundle=str(bundle),
        precision="+".join(sorted(set(manifest.precision.values()))),
        bytes=translator.bundle.nbytes,
        machine=machine(),
        onnxruntime=ENGINE_VERSION,
        device=device,
        threads=threads or available_cpus(),
        beam_size=beam_size,
        batch_size=batch_size,
        calls=len(seconds),
        sentence_ms=latency(seconds),
        first_token_ms=latency(first),
        tokens_per_second=total.tokens / spent,
        sentences_per_second=total.sentences / spent,
        encoder_share=total.encoder_seconds / spent,
        decoder_share=total.decoder_seconds / spent,
        host_share=1 - (total.encoder_seconds + total.decoder_seconds) / spent,
        decoder_step_ms=1000 * total.decoder_seconds / total.steps,
        load_ms=1000 * load_seconds,
        peak_memory_mb=peak_memory_mb(),
    )


def latency(seconds: Sequence[float]) -> Latency:
    """Percentiles in milliseconds of times in seconds."""
    cuts = percentiles_ms(seconds)
    return Latency(p50=cuts[49], p95=cuts[94], p99=cuts[98], mean=1000 * statistics.fmean(seconds))


def percentiles_ms(seconds: Sequence[float]) -> list[float]:
    """The 1st to the 99th percentile, in milliseconds, of times in seconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 99
    return [1000 * cut for cut in cuts]


def machine() -> str:
    """Processor, number of CPUs this process may use, and system."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{processor}, {available_cpus()} CPUs, {platform.system()} {platform.machine()}"
