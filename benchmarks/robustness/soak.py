"""Translates and reopens for hours in one process, and watches whether memory, open files or threads grow.

Usage: ``python -m robustness.soak``, which is ``make soak``
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import click
import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench import growth
from edgeformer_bench.commands import Command
from edgeformer_bench.growth import Limit
from edgeformer_bench.load.report import Result, conclude, json_option
from edgeformer_runtime.cli.output import counting
from edgeformer_runtime.engine.session import BundleSession
from edgeformer_runtime.errors import SessionError
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.translator import Translator
from robustness.allocated import allocated
from tests.store import COMMITTED, CPU_PRECISIONS

SAMPLES = 200
"""Samples of a stage."""
LIMITS = {
    "memory_mib": Limit("resident memory, MiB,", share=0.1, amount=4.0),
    "allocated_mib": Limit("allocated memory, MiB,", share=0.01, amount=0.5),
    "files": Limit("open files"),
    "threads": Limit("threads"),
}
"""How far figures may grow. Allocated memory does not grow unless something is never freed. Resident memory approaches
its maximum slowly, since every thread has an arena of the allocator."""
BATCHES = (1, 1, 8, 64)
"""Sentences of a call."""
STEPS = 6
WORDS = ["The", "old", "dog", "turns", "2", "14", "times", "near", "the", "house", ".", "runs", "l'homme", "été"]


class Sample(growth.Sample, frozen=True, kw_only=True):
    """The state of this process at one moment."""

    allocated_mib: float
    """What Python and libraries allocated of the memory, which also has what the allocator keeps."""


class Stage(msgspec.Struct, frozen=True):
    """Samples while one kind of work was repeated."""

    what: str
    done: int
    """Repetitions."""
    samples: list[Sample]

    @property
    def problems(self) -> list[str]:
        """What grew."""
        return growth.growth(self.samples, LIMITS)

    def rows(self) -> list[tuple[str, str]]:
        """Medians of the first and of the last quarter, for people."""
        rows = [("times", f"{self.done:,}")]
        for name, limit in LIMITS.items():
            first, last = growth.quarters(self.samples, name)
            digits = 2 if name == "allocated_mib" else 0
            rows.append((limit.what.rstrip(","), f"{first:.{digits}f} → {last:.{digits}f}"))
        return rows


Work = Callable[[int], int]
"""Does the work of a thread, number given, once; returns how many repetitions that was."""


def repeated(
    what: str, work: Work, total: int, threads: int, seconds: float, report: Callable[[int, int], None]
) -> Stage:
    """Repeat work in threads until it was done ``total`` times or the time is over, and take samples between rounds of
    it, when nothing is in use.

    Raises:
        Exception: whatever the work raised first.
    """
    done, samples, deadline = 0, list[Sample](), time.monotonic() + seconds

    def round_of(thread: int) -> int:
        repetitions = 0
        while repetitions < total / SAMPLES / threads:
            repetitions += work(thread)
        return repetitions

    with ThreadPoolExecutor(threads) as pool:
        while done < total and time.monotonic() < deadline:
            done += sum(pool.map(round_of, range(threads)))
            gc.collect()
            samples.append(sample())
            report(done, max(total, done))
    return Stage(what, done, samples or [sample()])


def sample() -> Sample:
    """Look at this process."""
    return Sample(allocated_mib=allocated() / MIB, **msgspec.structs.asdict(growth.Sample.of(os.getpid())))


def translating(translator: Translator[BundleSession], threads: int) -> Work:
    """Translate batches of random sentences, greedily and with a beam."""
    randoms = [Random(thread) for thread in range(threads)]

    def work(thread: int) -> int:
        random = randoms[thread]
        size = random.choice(BATCHES)
        texts = [" ".join(random.choices(WORDS, k=random.randint(1, 12))) for _ in range(size)]
        beam_size = random.choice((1, 1, 1, 4))
        translations = translator.translate(texts, beam_size=beam_size, max_length=STEPS)
        assert len(translations) == size
        return size

    return work


def reopening(paths: list[Path]) -> Work:
    """Open a bundle, translate a sentence, and close it, or leave that to the garbage collector."""
    numbers = count()

    def work(thread: int) -> int:
        del thread
        number = next(numbers)
        translator = Translator.open(paths[number % len(paths)], threads=1 + number % 2)
        (translation,) = translator.translate(["The dog runs."], max_length=2)
        translator.attention([translation])
        if number % 4:
            translator.close()
        return 1

    return work


def forking(translator: Translator[BundleSession]) -> Work:
    """Fork a process, in which the kernels work, and ONNX Runtime refuses."""
    works = translator.session.engine == "kernels"

    def work(thread: int) -> int:
        del thread
        child = os.fork()
        if child == 0:
            status = 1
            try:
                translator.translate(["The dog runs."], max_length=2)
                status = not works
            except SessionError:
                status = works
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        return 1

    return work


def stages(sentences: int, threads: int, opens: int, forks: int, seconds: float) -> Iterator[Stage]:
    """Do the work, one stage after the other."""
    paths = [COMMITTED / precision for precision in CPU_PRECISIONS]
    with Translator.open(COMMITTED / "int8", threads=1) as translator:
        work = translating(translator, threads)
        what = f"sentence translated, {threads} threads share a translator"
        with counting("sentences") as progress:
            progress(0, sentences)
            yield repeated(what, work, sentences, threads, seconds, progress)
        with counting("forks") as progress:
            progress(0, forks)
            yield repeated("process forked and ended", forking(translator), forks, 1, seconds, progress)
    gc.collect()
    with counting("translators") as progress:
        progress(0, opens)
        yield repeated("bundle opened, used and closed", reopening(paths), opens, 1, seconds, progress)


@click.command(cls=Command)
@click.option("--sentences", default=1_000_000, show_default=True, type=click.IntRange(1), help="To translate.")
@click.option("--threads", default=8, show_default=True, type=click.IntRange(1), help="Python threads that translate.")
@click.option("--opens", default=3000, show_default=True, type=click.IntRange(1), help="Translators to open and close.")
@click.option("--forks", default=1000, show_default=True, type=click.IntRange(1), help="Processes to fork.")
@click.option("--minutes", default=120.0, show_default=True, help="Time limit of each of the three stages.")
@json_option
def main(
    sentences: int,
    threads: int,
    opens: int,
    forks: int,
    minutes: float,
    as_json: bool,
) -> None:
    """Translate, fork, and open translators in one process for a long time, and watch what grows.

    Memory, open files and threads are compared between the first and the last quarter of each stage, after a
    warm-up of a fifth of it. 3,000 translators are those of a device that opens one every minute for two days.

    Exits with 1 if allocated memory grew by more than 1 % and 0.5 MiB, resident
    memory by more than 10 % and 4 MiB, or open files or threads at all.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("This reads memory, open files and threads in a way that only Linux has.")
    results: dict[str, Result] = {}
    with suppress(KeyboardInterrupt):  # what is done by then is shown
        for stage in stages(sentences, threads, opens, forks, minutes * 60):
            results[stage.what] = stage
    conclude(results, as_json=as_json)


if __name__ == "__main__":
    main()
