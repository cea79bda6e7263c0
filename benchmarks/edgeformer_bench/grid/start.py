"""Time, memory and disk space to start a system, each measured in fresh processes."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from pathlib import Path

import msgspec

from edgeformer_bench.peers.base import Spec
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.rounds import Workload, ask


class Start(msgspec.Struct, kw_only=True):
    """A fresh process up to its first translation; medians over several processes."""

    seconds: float
    """Time from the start of the process, including imports, to the end of the first translation."""
    peak_mb: float | None
    """Peak resident memory, in 10^6 bytes; ``None`` where the system does not report it."""
    bytes: int
    """Total size of the model's files, in bytes."""


def measure_start(spec: Spec, workload: Workload, repeat: int = 3) -> Start:
    """Start a system ``repeat`` times, each time running a workload once.

    Raises:
        PeerError: the system cannot be started, or fails.
    """
    seconds, peaks = [], []
    for _ in range(repeat):
        begin = time.perf_counter()
        with closing(PeerProcess(spec)) as process:
            ask(process, workload)
            seconds.append(time.perf_counter() - begin)
            peaks.append(process.ask("memory")["peak_mb"])
    return Start(
        seconds=statistics.median(seconds),
        peak_mb=None if None in peaks else statistics.median(peaks),
        bytes=model_bytes(spec),
    )


def model_bytes(spec: Spec) -> int:
    """Compute the size of a model's files in bytes; for a run folder, that of its weights and tokenizers."""
    path = Path(spec.model)
    files = [*path.glob("model.safetensors"), *path.glob("*tokenizer.*")] if spec.kind == "torch" else path.iterdir()
    return sum(file.stat().st_size for file in files)
