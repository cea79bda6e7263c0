"""What it takes to start a system: time, memory, disk; each measured in a fresh process."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import msgspec

from edgeformer_bench.peers.base import Spec
from edgeformer_bench.process import PeerProcess
from edgeformer_bench.rounds import Workload, ask


class Start(msgspec.Struct, kw_only=True):
    """A fresh process up to its first translation; medians."""

    seconds: float
    """From the start of the process, imports included, to the end of the first translation."""
    peak_mb: float | None
    """Largest resident size, in 10^6 bytes; none where the system does not tell."""
    bytes: int
    """Bytes of the model's files."""


def measure_start(spec: Spec, workload: Workload, repeat: int = 3) -> Start:
    """Start a system so many times.

    Raises:
        PeerError: it cannot be started, or fails.
    """
    seconds, peaks = [], []
    for _ in range(repeat):
        begin = time.perf_counter()
        with PeerProcess(spec) as process:
            ask(process, workload)
            seconds.append(time.perf_counter() - begin)
            peaks.append(process.ask("memory")["peak_mb"])
    return Start(
        seconds=statistics.median(seconds),
        peak_mb=None if None in peaks else statistics.median(peaks),
        bytes=model_bytes(spec),
    )


def model_bytes(spec: Spec) -> int:
    """Bytes of a model's files; of a run folder, those of its weights and tokenizers."""
    path = Path(spec.model)
    files = [*path.glob("model.safetensors"), *path.glob("*tokenizer.json")] if spec.kind == "torch" else path.iterdir()
    return sum(file.stat().st_size for file in files)
