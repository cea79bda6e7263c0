"""Compares candidates: translations of one text, and times in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.tuning import ValidationText
from edgeformer_export.sample import spread
from edgeformer_runtime.bundle.choice import Latency
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.translator import Translator

TIMED_SENTENCES = 32
BLOCK = 4
"""Number of sentences that a candidate translates before the next candidate's turn."""
MIN_ROUNDS = 6
MAX_ROUNDS = 16
ENOUGH = 0.02
"""Rounds end once the noise is below this, or after :data:`MAX_ROUNDS`."""
_CLOCKS: dict[str, Callable[[], float]] = {"processor time": time.process_time, "elapsed time": time.perf_counter}


@dataclass(frozen=True)
class Trial:
    """How all candidates are compared."""

    text: ValidationText
    """Sentences to translate."""
    options: DecodeOptions
    """Decoding options, for both quality and latency."""
    threads: int
    """CPU threads per operator."""

    def open(self, bundle: Path) -> Translator:
        """Open a candidate's bundle."""
        return Translator.open(bundle, threads=self.threads)

    @property
    def clock(self) -> str:
        """``processor time``, which excludes other processes; ``elapsed time`` with several threads, or if the system's
        processor-time clock is too coarse."""
        fine = time.get_clock_info("process_time").resolution < 1e-4
        return "processor time" if self.threads == 1 and fine else "elapsed time"

    def translate(self, candidate: Translator, progress: Callable[[float], None]) -> list[str]:
        """Translate the text in batches."""
        translations = translate_all(candidate, self.text.sources, self.options, progress=progress)
        return [translation.text for translation in translations]

    def timed(
        self,
        candidates: Mapping[str, Translator],
        translations: Mapping[str, Sequence[str]],
        progress: Callable[[float], None] = lambda fraction: None,
    ) -> tuple[dict[str, Latency], float]:
        """Time some of the sentences one at a time. Candidates take turns of a few sentences, so that a temporary
        slowdown of the machine affects all of them.

        Args:
            candidates: opened candidates by name.
            translations: each candidate's translations of the text in batches.
            progress: called with the fraction done, which jumps to 1 if the noise is low enough to stop.

        Returns:
            Latencies by name, and the noise: the largest relative difference between even and odd rounds over all
            candidates, minus the part common to all of them.
        """
        order = sorted(range(len(self.text.sources)), key=lambda index: (len(self.text.sources[index]), index))
        chosen = spread(order, TIMED_SENTENCES)
        blocks = [range(start, min(start + BLOCK, len(chosen))) for start in range(0, len(chosen), BLOCK)]
        names = list(candidates)
        times = np.empty((MAX_ROUNDS, len(names), len(chosen)))
        differ = [0] * len(names)
        noise, done, clock = float("inf"), 0, _CLOCKS[self.clock]
        for number in range(-1, MAX_ROUNDS):  # the first round warms up
            for block in blocks:
                for turn in range(len(names)):
                    at = (turn + max(0, number) + block.start) % len(names)
                    for sentence in block:
                        source = self.text.sources[chosen[sentence]]
                        begin = clock()
                        output = candidates[names[at]].translate([source], self.options)[0].text
                        times[number, at, sentence] = 1000 * (clock() - begin)
                        differ[at] += number < 0 and output != translations[names[at]][chosen[sentence]]
            done = number + 1
            progress((done + 1) / (MAX_ROUNDS + 1))
            if done >= MIN_ROUNDS and done % 2 == 0:
                noise = _noise(times[:done])
                if noise < ENOUGH:
                    break
        progress(1.0)
        fastest = times[:done].min(axis=0)
        latencies = {}
        for name, of_sentences, count in zip(names, fastest, differ, strict=True):
            p25, p50, p75 = np.percentile(of_sentences, [25, 50, 75]).tolist()
            latencies[name] = Latency(
                mean_ms=float(of_sentences.mean()), median_ms=p50, p25_ms=p25, p75_ms=p75, differ_alone=count
            )
        return latencies, noise


def _noise(times: NDArray[np.float64]) -> float:
    """Compute the noise of times ``(rounds, candidates, sentences)``; see :meth:`Trial.timed`."""
    even, odd = (np.log(times[start::2].min(axis=0).mean(axis=1)) for start in (0, 1))
    difference = even - odd
    return float(np.abs(np.expm1(difference - difference.mean())).max())
