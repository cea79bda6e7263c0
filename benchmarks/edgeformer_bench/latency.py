"""Latency of a bundle: one sentence, or one batch, at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench.timer import Timing
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.check.memory import peak_memory_mb
from edgeformer_runtime.engines.cpus import available_cpus, useful_threads
from edgeformer_runtime.engines.onnx import ENGINE_VERSION
from edgeformer_runtime.search.loop import Counters
from edgeformer_runtime.translator import Translator


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Settings of ``edgeformer bench``."""

    beam_size: int | None = None
    """Hypotheses kept per sentence; ``None`` uses the bundle's default."""
    batch_size: int = 1
    repeat: int = 5
    """Number of measured rounds over all sentences."""
    warmup: int = 2
    """Number of warm-up rounds; a comparison of several systems always uses one."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    threads: int = 0
    """CPU threads per operator; 0 for as many as a model of its size has use for."""
    shortlist: bool = True
    """Whether searches of bundles are restricted by their shortlists."""
    engine: str = "auto"
    """Engine of a bundle that is measured alone: ``auto``, ``onnxruntime`` or ``kernels``."""


class Conditions(msgspec.Struct, kw_only=True):
    """Conditions of a measurement."""

    machine: str
    device: str
    """``cpu`` or ``cuda``."""
    threads: int
    beam_size: int
    batch_size: int


class BenchmarkResult(Conditions, kw_only=True):
    """Measurements of one bundle."""

    bundle: str
    precision: str
    """Precision of its graphs."""
    bytes: int
    """Total size of its files, in bytes."""
    onnxruntime: str
    engine: str
    """Engine that ran the model: ``onnxruntime`` or ``kernels``."""
    call: Timing
    """Time of a call."""
    first_token: Timing | None
    """Time from the start of a call's batch to its first token, tokenization not included; ``None`` from the kernels,
    which return whole translations."""
    tokens_per_second: float
    """Number of target tokens, including end tokens, divided by the time of all calls."""
    sentences_per_second: float
    """Number of sentences divided by the time of all calls."""
    encoder_share: float
    """Fraction of the time spent in the encoder graph."""
    decoder_share: float
    """Fraction of the time spent in the decoder graph."""
    host_share: float
    """Fraction of the time spent in search, batching, tokenization and copies."""
    decoder_step_ms: float
    """Mean time of one decoder step."""
    load_ms: float
    """Time to check all hashes and open the bundle."""
    peak_memory_mb: float | None
    """Peak resident memory of this process, in 10^6 bytes; ``None`` where the system does not report it."""


def benchmark(
    bundle: Path,
    texts: Sequence[str],
    options: BenchmarkOptions,
    *,
    progress: Callable[[float], None] = lambda fraction: None,
) -> BenchmarkResult:
    """Translate texts repeatedly and time each call.

    Args:
        bundle: folder of the bundle.
        texts: sentences; blank ones are skipped.
        options: how to measure.
        progress: called with the fraction done, 0 … 1.

    Raises:
        ConfigError: there is no text to translate.
    """
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ConfigError("There is no sentence to translate; give --source a file with text.")
    begin = time.perf_counter()
    opened = open_bundle(bundle)
    threads = options.threads or useful_threads(opened.nbytes, available_cpus())
    translator = Translator.open(
        opened, device=options.device, threads=threads, shortlist=options.shortlist, engine=options.engine
    )
    load_seconds = time.perf_counter() - begin
    beam_size = translator.defaults.beam_size if options.beam_size is None else options.beam_size
    seconds, counters = _calls(translator, texts, beam_size, options, progress)
    total = Counters()
    for call in counters:
        total.add(call)
    spent = sum(seconds)
    manifest = translator.bundle.manifest
    return BenchmarkResult(
        bundle=str(bundle),
        precision=manifest.precisions,
        bytes=translator.bundle.nbytes,
        machine=machine_summary(),
        onnxruntime=ENGINE_VERSION,
        engine=translator.session.engine,
        device=options.device,
        threads=translator.session.threads,
        beam_size=beam_size,
        batch_size=options.batch_size,
        call=Timing.of(seconds),
        first_token=Timing.of([call.first_token_seconds / max(1, call.batches) for call in counters])
        if total.first_token_seconds
        else None,
        tokens_per_second=total.tokens / spent,
        sentences_per_second=total.sentences / spent,
        encoder_share=total.encoder_seconds / spent,
        decoder_share=total.decoder_seconds / spent,
        host_share=1 - (total.encoder_seconds + total.decoder_seconds) / spent,
        decoder_step_ms=1000 * total.decoder_seconds / total.steps,
        load_ms=1000 * load_seconds,
        peak_memory_mb=peak_memory_mb(),
    )


def _calls(
    translator: Translator,
    texts: list[str],
    beam_size: int,
    options: BenchmarkOptions,
    progress: Callable[[float], None],
) -> tuple[list[float], list[Counters]]:
    """Return the times in seconds and the counters of all measured calls."""
    batches = [texts[start : start + options.batch_size] for start in range(0, len(texts), options.batch_size)]
    seconds, counters = list[float](), list[Counters]()
    for number in range(-options.warmup, options.repeat):
        for batch in batches:
            counter, begin = Counters(), time.perf_counter()
            translator.translate(batch, beam_size=beam_size, return_scores=False, counters=counter)
            if number >= 0:
                seconds.append(time.perf_counter() - begin)
                counters.append(counter)
        progress((number + options.warmup + 1) / (options.repeat + options.warmup))
    return seconds, counters
