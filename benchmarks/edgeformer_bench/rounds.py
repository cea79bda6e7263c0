"""Contests between systems, each in its own process: all do the same work in alternating rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from edgeformer_bench.peers.base import Contender, PeerError
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.timer import Timing, alternate
from edgeformer_runtime.bundle.manifest import SpecialTokens

PROBES = 3
"""Number of calls of each variant before the fastest is chosen."""
PROBE_SHARE = 5
"""A probe decodes one fifth of the tokens, or translates one fifth of the texts."""
HOPELESS = 3
"""A variant is dropped after one probe if the probe takes this many times as long as the best so far."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What every system does once per round."""

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
class Score:
    """A system's result in a contest."""

    seconds: list[float] = field(default_factory=list)
    """Times of the calls."""
    first_seconds: list[float] = field(default_factory=list)
    """Times of calls that decode a single token; empty unless requested."""
    variant: str = ""
    """The variant that was kept."""
    error: str = ""
    """Why the system could not take part or dropped out."""


class Contest:
    """Opens all systems; close the contest, for example with :func:`contextlib.closing`.

    A system that cannot be opened, or fails later, drops out; ``errors`` has the reason.

    Args:
        contenders: systems to open.
        progress: called with the name of each system before it is opened.
    """

    def __init__(self, contenders: Sequence[Contender], progress: Callable[[str], None] = lambda name: None) -> None:
        self.errors: dict[str, str] = {}
        """Why systems dropped out."""
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
        """Warm up for one round, then measure.

        Args:
            workloads: workloads of one kind; every system does each of them once per round.
            rounds: measured rounds.
            seconds: time limit; see :func:`~edgeformer_bench.timer.alternate`.
            turn_seconds: repeat a call until this much time has passed.
            first_token: in each turn, also time a call that decodes one token.
            progress: called with the fraction done, 0 … 1.

        Returns:
            Scores by system, failed ones included.
        """
        scores = {name: Score(error=error) for name, error in self.errors.items()}
        chosen: dict[str, PeerProcess] = {}
        for name in list(self._variants):
            scores[name] = Score()
            with self._watched(name, scores[name]):
                chosen[name] = self._fastest(name, workloads[0].probe)
                scores[name].variant = chosen[name].spec.variant

        def turn(name: str, workload: Workload) -> Score:
            result = Score()
            if not scores[name].error:
                with self._watched(name, scores[name]):
                    result.seconds = ask(chosen[name], workload, turn_seconds)["seconds"]
                    if first_token:
                        one_token = Workload(beam_size=workload.beam_size, sources=workload.sources, length=1)
                        result.first_seconds = ask(chosen[name], one_token)["seconds"]
            return result

        turns = {
            (index, name): partial(turn, name, workload) for index, workload in enumerate(workloads) for name in chosen
        }
        for (_, name), results in alternate(turns, rounds=rounds, seconds=seconds, progress=progress).items():
            scores[name].seconds += [time for result in results for time in result.seconds]
            scores[name].first_seconds += [time for result in results for time in result.first_seconds]
        return scores

    def outputs(self, workload: Workload) -> dict[str, Any]:
        """Return the output of each system for a workload, without systems that fail."""
        outputs = {}
        for name, variants in list(self._variants.items()):
            with contextlib.suppress(PeerError):
                outputs[name] = ask(variants[0], workload)["output"]
        return outputs

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
        """Drop a system from the contest if it fails."""
        try:
            yield
        except PeerError as error:
            score.error = str(error)
            for process in self._variants.pop(name, []):
                process.close()
            self.errors[name] = score.error


def ask(process: PeerProcess, workload: Workload, seconds: float = 0.0) -> dict[str, Any]:
    """Let a peer do a workload at least once and repeatedly for ``seconds``; return the call times and the output."""
    if workload.texts:
        return process.ask("translate_texts", texts=workload.texts, beam_size=workload.beam_size, seconds=seconds)
    arguments = {"sources": workload.sources, "beam_size": workload.beam_size, "length": workload.length}
    return process.ask("translate", **arguments, seconds=seconds)


def speedups(timings: Mapping[str, Timing], reference: str) -> dict[str, float]:
    """Divide the reference's median time by that of each system; empty if the reference was not measured."""
    if reference not in timings:
        return {}
    return {name: timings[reference].median_ms / timing.median_ms for name, timing in timings.items()}


def random_sources(random: np.random.Generator, count: int, length: int, vocab_size: int, eos: int) -> list[list[int]]:
    """Draw random token ids of ``count`` sentences of ``length`` tokens, end token included."""
    special = max(SpecialTokens().eos, SpecialTokens().bos) + 1
    sources = random.integers(special, vocab_size, size=(count, length))
    sources[:, -1] = eos
    rows: list[list[int]] = sources.tolist()
    return rows
