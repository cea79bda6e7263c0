"""Contests between systems, each in its own process: all do the same work in alternating rounds."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.bootstrap import Interval, median_interval
from edgeformer_bench.peers.base import Contender, PeerError
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.timer import Timing

PROBES = 3
"""Number of calls of each variant before the fastest for a workload is chosen."""
PROBE_SHARE = 5
"""A probe decodes one fifth of the tokens, or translates one fifth of the texts."""
HOPELESS = 3
"""A variant is dropped after one probe if the probe takes this many times as long as the best so far."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Work that every system does once per round; equal to itself only."""

    beam_size: int
    """Hypotheses kept; 1 is greedy."""
    sources: Sequence[Sequence[int]] = ()
    """Token ids of one batch."""
    length: int | None = None
    """Tokens to decode; ``None`` decodes up to the end token."""
    texts: Sequence[str] = ()
    """Texts instead of ``sources``; systems form batches themselves."""

    @property
    def probe(self) -> Workload:
        """Return a smaller workload that takes less time."""
        if self.texts:
            step = PROBE_SHARE if len(self.texts) >= 2 * PROBE_SHARE else 1
            return Workload(beam_size=self.beam_size, texts=self.texts[::step])
        length = None if self.length is None else max(1, self.length // PROBE_SHARE)
        return Workload(beam_size=self.beam_size, sources=self.sources, length=length)


@dataclass
class SystemTimes:
    """A system's result in a contest."""

    turns: list[list[list[float]]] = field(default_factory=list)
    """Times in seconds of the calls in each turn, for each workload and each of its rounds."""
    variant: str = ""
    """The variants that were the fastest for a workload, the one for most workloads first."""
    error: str = ""
    """Why the system could not take part or dropped out."""

    @property
    def seconds(self) -> list[float]:
        """Times of all calls."""
        return [seconds for rounds in self.turns for turn in rounds for seconds in turn]

    def paired(self) -> NDArray[np.float64]:
        """Return the median time of the calls in each turn, ``(rounds, workloads)``."""
        return np.array([[np.median(turn) for turn in rounds] for rounds in self.turns]).T


class Speed(msgspec.Struct, kw_only=True, frozen=True):
    """Speed of a system relative to another: the ratio of that system's time to its own, 2 if it is twice as fast."""

    median: float
    """Median of the ratios of times for the same workload in the same round."""
    interval: Interval | None
    """Its confidence interval, by bootstrap over rounds and workloads; ``None`` for the system that others are compared
    with, and if there is only one round of one workload."""


class SystemResult(msgspec.Struct, kw_only=True):
    """A system's figures."""

    system: str
    variant: str = ""
    """The fastest settings, if several were tried."""
    version: str = ""
    """The engine and its version."""
    timing: Timing | None = None
    """Times of a call; ``None`` if the system failed."""
    speed: Speed | None = None
    """Speed relative to the reference; ``None`` if one of the two failed."""
    sentences_per_second: float = 0.0
    """Number of sentences divided by the median times of the calls of all turns."""
    identical: int | None = None
    """Number of sentences with the same output as the first system's."""
    bytes: int = 0
    """Total size of the model's files."""
    start_seconds: float = 0.0
    """Time from the start of its process, imports included, until its model is open."""
    peak_mb: float | None = None
    """Peak resident memory of its process, in 10^6 bytes; ``None`` where the system does not report it."""
    error: str = ""
    """Why the system was not measured."""


class Contest:
    """Opens all systems; close the contest, for example with :func:`contextlib.closing`.

    A system that cannot be opened, or fails later, drops out; ``errors`` has the reason.

    Args:
        contenders: systems to open.
    """

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self.errors: dict[str, str] = {}
        """Why systems dropped out."""
        self.versions: dict[str, str] = {}
        """Engines and their versions by system."""
        self.start_seconds: dict[str, float] = {}
        """Time to start each system and to open its model."""
        self._variants: dict[str, list[PeerProcess]] = {}
        self._fastest: dict[tuple[str, Workload], PeerProcess] = {}
        try:
            for contender in contenders:
                self._open(contender)
        except BaseException:
            self.close()
            raise

    def run(
        self,
        workloads: Sequence[Workload],
        *,
        rounds: int,
        turn_seconds: float = 0.0,
        progress: Callable[[float], None] = lambda fraction: None,
    ) -> dict[str, SystemTimes]:
        """Warm up for one round, then measure.

        For each workload of a round, the systems take one turn each, one directly after the other, so that a temporary
        slowdown of the machine affects all of them; who begins changes from round to round and from workload to
        workload.

        Args:
            workloads: workloads of one kind; every system does each of them once per round.
            rounds: measured rounds.
            turn_seconds: repeat a call until this much time has passed.
            progress: called with the fraction done, 0 … 1.

        Returns:
            Scores by system, failed ones included.
        """
        scores: dict[str, SystemTimes] = {}
        for name in list(self._variants):
            with self._watched(name):
                for workload in workloads:
                    self._fastest[name, workload] = self._fastest_variant(name, workload.probe)
                counts = Counter(self._fastest[name, workload].spec.variant for workload in workloads)
                variant = ", ".join(variant for variant, _ in counts.most_common())
                scores[name] = SystemTimes(turns=[[] for _ in workloads], variant=variant)
        names = list(scores)
        for number in range(-1, rounds):  # round -1 warms up
            for index, workload in enumerate(workloads):
                first = (max(0, number) + index) % max(1, len(names))
                for name in names[first:] + names[:first]:
                    if name not in self.errors:
                        with self._watched(name):
                            calls = ask(self._fastest[name, workload], workload, turn_seconds)["seconds"]
                            scores[name].turns[index] += [calls] if number >= 0 else []
            progress((number + 2) / (rounds + 1))
        return scores | {name: SystemTimes(error=error) for name, error in self.errors.items()}

    def outputs(self, workload: Workload) -> dict[str, Any]:
        """Return the output of each system for a workload, without systems that fail; of a system with several
        variants, that of the variant that was the fastest for this workload."""
        outputs = {}
        for name, variants in list(self._variants.items()):
            with self._watched(name):
                outputs[name] = ask(self._fastest.get((name, workload), variants[0]), workload)["output"]
        return outputs

    def peak_mb(self, name: str) -> float | None:
        """Return the peak resident memory of a system's process so far, that of its first variant."""
        peak: float | None = self._variants[name][0].ask("memory")["peak_mb"]
        return peak

    def close(self) -> None:
        """End all processes."""
        for variants in self._variants.values():
            for process in variants:
                process.close()
        self._variants.clear()

    def _open(self, contender: Contender) -> None:
        problems: list[str] = []
        variants: list[PeerProcess] = []
        self._variants[contender.name] = variants
        for spec in contender.specs:
            begin = time.perf_counter()
            try:
                variants.append(PeerProcess(spec))
            except PeerError as error:
                problems.append(str(error))
            else:
                self.start_seconds.setdefault(contender.name, time.perf_counter() - begin)
        if variants:
            self.versions[contender.name] = variants[0].version
        else:
            del self._variants[contender.name]
            self.errors[contender.name] = problems[0]

    def _fastest_variant(self, name: str, probe: Workload) -> PeerProcess:
        variants = self._variants[name]
        if len(variants) == 1:
            return variants[0]

        best, shortest, problem = variants[0], float("inf"), ""
        for process in variants:
            try:
                seconds = ask(process, probe)["seconds"][0]
                if seconds < HOPELESS * shortest:
                    seconds = min(seconds, *(ask(process, probe)["seconds"][0] for _ in range(PROBES - 1)))
                    if seconds < shortest:
                        best, shortest = process, seconds
            except PeerError as error:
                problem = str(error)
        if shortest == float("inf"):
            raise PeerError(problem)
        return best

    @contextlib.contextmanager
    def _watched(self, name: str) -> Iterator[None]:
        """Drop a system from the contest if it fails."""
        try:
            yield
        except PeerError as error:
            self.errors[name] = str(error)
            for process in self._variants.pop(name, []):
                process.close()


def ask(process: PeerProcess, workload: Workload, seconds: float = 0.0) -> dict[str, Any]:
    """Let a peer do a workload at least once and repeatedly for ``seconds``; return the call times and the output."""
    if workload.texts:
        return process.ask("translate_texts", texts=workload.texts, beam_size=workload.beam_size, seconds=seconds)
    arguments = {"sources": workload.sources, "beam_size": workload.beam_size, "length": workload.length}
    return process.ask("translate", **arguments, seconds=seconds)


def speeds(scores: Mapping[str, SystemTimes], reference: str) -> dict[str, Speed]:
    """Compute the speeds of all systems relative to one of them; empty if that one failed or did not take part."""
    if reference not in scores or scores[reference].error:
        return {}
    theirs = scores[reference].paired()
    ratios = {name: theirs / score.paired() for name, score in scores.items() if not score.error}
    return {
        name: Speed(median=float(np.median(ratio)), interval=None if name == reference else median_interval(ratio))
        for name, ratio in ratios.items()
    }
