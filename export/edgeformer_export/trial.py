"""Candidates side by side: translations of one text, and times in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeformer.evaluation import System, open_system, translate_all
from edgeformer.tune import ValidationText
from edgeformer_export.choice import Latency
from edgeformer_export.sample import spread
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.translator import translate_texts

TIMED_SENTENCES = 24
MIN_ROUNDS = 6
MAX_ROUNDS = 30
ENOUGH = 0.02
"""Rounds go on until the noise is below this, and no longer than :data:`MAX_ROUNDS`."""


@dataclass(frozen=True)
class Trial:
    """How all candidates are compared."""

    text: ValidationText
    """Sentences to translate."""
    options: DecodeOptions
    """How to search, for quality and for latency."""
    threads: int
    """CPU threads of one operator."""

    def open(self, bundle: Path) -> System:
        """Open a candidate's bundle."""
        return open_system(bundle, threads=self.threads)

    def translate(self, system: System, progress: Callable[[float], None]) -> list[str]:
        """Translate the text in batches."""
        found = translate_all(system, self.text.sources, self.options, progress=progress)
        return [translation.text for translation in found]

    def timed(
        self,
        systems: Mapping[str, System],
        translations: Mapping[str, Sequence[str]],
        progress: Callable[[float], None] = lambda fraction: None,
    ) -> tuple[dict[str, Latency], float]:
        """Time some of the sentences one at a time. In each round every candidate does all of them in turn, so that a
        slow moment of the machine meets all.

        Args:
            systems: opened candidates by name.
            translations: what each of them made of the text in batches.
            progress: called with the fraction done, which grows to 1 at once if there is little noise.

        Returns:
            Latencies by name; and the noise: the largest relative difference, over all candidates, of the latencies of
            even and odd rounds.
        """
        order = sorted(range(len(self.text.sources)), key=lambda index: (len(self.text.sources[index]), index))
        chosen = spread(order, TIMED_SENTENCES)
        names = list(systems)
        rounds: dict[str, list[list[float]]] = {name: [] for name in names}
        differ = dict.fromkeys(names, 0)
        noise = float("inf")
        for number in range(-1, MAX_ROUNDS):  # the first warms up
            turn = max(0, number) % len(names)
            for name in names[turn:] + names[:turn]:
                seconds = []
                for index in chosen:
                    begin = time.perf_counter()
                    output = self._alone(systems[name], self.text.sources[index])
                    seconds.append(time.perf_counter() - begin)
                    differ[name] += number < 0 and output != translations[name][index]
                if number >= 0:
                    rounds[name].append(seconds)
            progress((number + 2) / (MAX_ROUNDS + 1))
            if number + 1 >= MIN_ROUNDS and number % 2:
                noise = max(abs(_median(times[::2]) / _median(times[1::2]) - 1) for times in rounds.values())
                if noise < ENOUGH:
                    break
        progress(1.0)
        latencies = {}
        for name, times in rounds.items():
            p25, p50, p75 = np.percentile(_fastest(times), [25, 50, 75]).tolist()
            latencies[name] = Latency(median_ms=p50, p25_ms=p25, p75_ms=p75, differ_alone=differ[name])
        return latencies, noise

    def _alone(self, system: System, text: str) -> str:
        tokenizers = system.source_tokenizer, system.target_tokenizer
        return translate_texts(system.session, *tokenizers, [text], self.options)[0].text


def _fastest(rounds: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """For each sentence its shortest time, in milliseconds."""
    times: NDArray[np.float64] = 1000 * np.array(rounds).min(axis=0)
    return times


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return float(np.median(_fastest(rounds)))
