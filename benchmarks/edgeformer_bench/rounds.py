"""Systems against each other: in each round every one does the same work in turn, so that a slow moment of the machine
meets all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec

from edgeformer_bench.latency import percentiles_ms
from edgeformer_bench.peers.base import PeerError, Spec
from edgeformer_bench.process import PeerProcess

PROBES = 3
"""Calls of each variant before the fastest is chosen."""
PROBE_SHARE = 5
"""Those calls decode a fifth of the tokens, or take a fifth of the texts."""
HOPELESS = 3
"""A variant whose first call takes so many times as long as the best so far is left at that."""
MIN_ROUNDS = 3


@dataclass(frozen=True)
class Contender:
    """A system in one or more variants, of which the fastest is kept for each workload."""

    name: str
    """What tables call it."""
    specs: tuple[Spec, ...]
    """Its variants."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What every system does once in each round."""

    beam_size: int
    """Hypotheses kept; 1 is greedy."""
    sources: Sequence[Sequence[int]] = ()
    """Token ids of one batch."""
    length: int | None = None
    """Tokens to decode; up to the end token if none."""
    texts: Sequence[str] = ()
    """Texts in the place of ``sources``; systems make batches themselves."""

    @property
    def probe(self) -> Workload:
        """A part of it that takes less time."""
        if self.texts:
            step = PROBE_SHARE if len(self.texts) >= 2 * PROBE_SHARE else 1
            return Workload(beam_size=self.beam_size, texts=self.texts[::step])
        length = None if self.length is None else max(1, self.length // PROBE_SHARE)
        return Workload(beam_size=self.beam_size, sources=self.sources, length=length)


class Timing(msgspec.Struct, kw_only=True):
    """Times of one system with one workload, or with several of a kind."""

    median_ms: float
    """Median of a call."""
    p25_ms: float
    """First quartile."""
    p75_ms: float
    """Third quartile."""
    p95_ms: float
    """95th percentile."""
    min_ms: float
    """Shortest call."""
    max_ms: float
    """Longest call."""
    calls: int
    """Calls measured."""

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """From times of calls in seconds."""
        cuts = percentiles_ms(seconds)
        return cls(
            median_ms=cuts[49],
            p25_ms=cuts[24],
            p75_ms=cuts[74],
            p95_ms=cuts[94],
            min_ms=1000 * min(seconds),
            max_ms=1000 * max(seconds),
            calls=len(seconds),
        )


@dataclass
class Score:
    """What a contest found out about one system."""

    seconds: list[float]
    """Times of the calls."""
    first_seconds: list[float]
    """Times of calls that decode a single token; empty unless they were asked for."""
    variant: str = ""
    """The variant that was kept."""
    error: str = ""
    """Why the system could not take part, or to the end."""


class Contest:
    """Opens all systems; close it, or use it in a ``with`` statement.

    A system that cannot be opened, or fails later, takes no further part and has its reason in ``errors``.
    """

    def __init__(self, contenders: Sequence[Contender], progress: Callable[[str], None] = lambda name: None) -> None:
        self.errors: dict[str, str] = {}
        """Why systems take no part."""
        self.versions: dict[str, str] = {}
        """Engines and their versions by system."""
        self._variants: dict[str, list[PeerProcess]] = {}
        try:
            for contender in contenders:
                progress(contender.name)
                self._open(contender)
        except BaseException:
            self.close()
            raise

    def run(
        self,
        workloads: Sequence[Workload],
        *,
        rounds: int,
        seconds: float = float("inf"),
        turn_seconds: float = 0.0,
        first_token: bool = False,
        progress: Callable[[float], None] = lambda fraction: None,
    ) -> dict[str, Score]:
        """Warm up with one round, then measure.

        Args:
            workloads: of one kind; each takes a turn of every system in each round.
            rounds: measured rounds.
            seconds: end earlier, but not before :data:`MIN_ROUNDS` rounds, when so much time has passed.
            turn_seconds: repeat a call until so much time has passed.
            first_token: in each turn, also time a call that decodes one token.
            progress: called with the fraction done, 0 … 1.

        Returns:
            By system, those that failed among them.
        """
        scores = {name: Score([], [], error=error) for name, error in self.errors.items()}
        chosen: dict[str, PeerProcess] = {}
        for name in list(self._variants):
            scores[name] = Score([], [])
            with self._watched(name, scores[name]):
                chosen[name] = self._fastest(name, workloads[0].probe)
                scores[name].variant = chosen[name].spec.variant
        begin = time.perf_counter()
        for number in range(-1, rounds):
            if number >= MIN_ROUNDS and time.perf_counter() - begin > seconds:
                break
            for workload in workloads:
                names = [name for name in chosen if not scores[name].error]
                turn = max(0, number) % max(1, len(names))
                for name in names[turn:] + names[:turn]:  # no system always follows the same one
                    with self._watched(name, scores[name]):
                        times = ask(chosen[name], workload, turn_seconds)["seconds"]
                        first = []
                        if first_token:
                            one = Workload(beam_size=workload.beam_size, sources=workload.sources, length=1)
                            first = ask(chosen[name], one)["seconds"]
                        if number >= 0:
                            scores[name].seconds += times
                            scores[name].first_seconds += first
            done = (time.perf_counter() - begin) / max(seconds, 1e-9) if number + 1 >= MIN_ROUNDS else 0.0
            progress(min(1.0, max(done, (number + 2) / (rounds + 1))))
        progress(1.0)
        return scores

    def outputs(self, workload: Workload) -> dict[str, Any]:
        """What each system makes of a workload; those that fail are left out."""
        found = {}
        for name, variants in list(self._variants.items()):
            with contextlib.suppress(PeerError):
                found[name] = ask(variants[0], workload)["output"]
        return found

    def close(self) -> None:
        """End all processes."""
        for variants in self._variants.values():
            for process in variants:
                process.close()
        self._variants.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, contender: Contender) -> None:
        problems: list[str] = []
        variants: list[PeerProcess] = []
        self._variants[contender.name] = variants
        for spec in contender.specs:
            try:
                variants.append(PeerProcess(spec))
            except PeerError as error:
                problems.append(str(error))
        if variants:
            self.versions[contender.name] = variants[0].version
        else:
            del self._variants[contender.name]
            self.errors[contender.name] = problems[0]

    def _fastest(self, name: str, probe: Workload) -> PeerProcess:
        variants = self._variants[name]
        if len(variants) == 1:
            return variants[0]

        best, shortest, problem = variants[0], float("inf"), ""
        for process in variants:
            try:
                if ask(process, probe)["seconds"][0] < HOPELESS * shortest:
                    seconds = min(ask(process, probe)["seconds"][0] for _ in range(PROBES))
                    if seconds < shortest:
                        best, shortest = process, seconds
            except PeerError as error:
                problem = str(error)
        if shortest == float("inf"):
            raise PeerError(problem)
        return best

    @contextlib.contextmanager
    def _watched(self, name: str, score: Score) -> Iterator[None]:
        try:
            yield
        except PeerError as error:
            score.error = str(error)
            for process in self._variants.pop(name, []):
                process.close()
            self.errors[name] = score.error


def ask(process: PeerProcess, workload: Workload, seconds: float = 0.0) -> dict[str, Any]:
    """Let a peer do a workload for so many seconds, at least once: the seconds of each call, and the output."""
    if workload.texts:
        return process.ask("translate_texts", texts=workload.texts, beam_size=workload.beam_size, seconds=seconds)
    arguments = {"sources": workload.sources, "beam_size": workload.beam_size, "length": workload.length}
    return process.ask("translate", **arguments, seconds=seconds)


def speeds(timings: Mapping[str, Timing], reference: str) -> dict[str, float]:
    """How many times as fast each system is as the reference; empty if that was not measured."""
    if reference not in timings:
        return {}
    return {name: timings[reference].median_ms / timing.median_ms for name, timing in timings.items()}
