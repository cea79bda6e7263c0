"""Compares candidates: translations of one text, and times in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.tuning import ValidationText
from edgeformer_export.sample import spread
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.translator import Translator

TIMED_SENTENCES = 32
BLOCK = 4
"""Number of sentences that a candidate translates before the next candidate's turn."""
ROUNDS = 10
"""Number of times that each sentence is timed, after a first round that warms up."""
_CLOCKS: dict[str, Callable[[], float]] = {"processor time": time.process_time, "elapsed time": time.perf_counter}


class Times(msgspec.Struct, kw_only=True, frozen=True):
    """Result of timing all candidates in turns."""

    milliseconds: dict[str, list[list[float]]]
    """Time of each sentence in each round by candidate, rounds × sentences. Times at the same place are paired."""
    differ_alone: dict[str, int]
    """Number of timed sentences whose translation differs when translated alone rather than in a batch."""


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
        return Translator.open(bundle, threads=self.threads, workers=1)

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
    ) -> Times:
        """Time some of the sentences one at a time. Candidates take turns of a few sentences, so that a temporary
        slowdown of the machine affects all of them.

        Args:
            candidates: opened candidates by name.
            translations: each candidate's translations of the text in batches.
            progress: called with the fraction done.
        """
        order = sorted(range(len(self.text.sources)), key=lambda index: (len(self.text.sources[index]), index))
        chosen = spread(order, TIMED_SENTENCES)
        blocks = [range(start, min(start + BLOCK, len(chosen))) for start in range(0, len(chosen), BLOCK)]
        names, clock = list(candidates), _CLOCKS[self.clock]
        times = np.empty((len(names), ROUNDS, len(chosen)))
        differ = [0] * len(names)
        for number in range(-1, ROUNDS):  # round -1 warms up; the last round overwrites its times
            for block in blocks:
                for turn in range(len(names)):
                    at = (turn + max(0, number) + block.start) % len(names)
                    for sentence in block:
                        source = self.text.sources[chosen[sentence]]
                        begin = clock()
                        output = candidates[names[at]].translate([source], self.options)[0].text
                        times[at, number, sentence] = 1000 * (clock() - begin)
                        differ[at] += number < 0 and output != translations[names[at]][chosen[sentence]]
            progress((number + 2) / (ROUNDS + 1))
        return Times(
            milliseconds=dict(zip(names, times.tolist(), strict=True)),
            differ_alone=dict(zip(names, differ, strict=True)),
        )
