"""The process that opens and uses damaged bundles, one after the other. Whatever ends it is a result, too."""

from __future__ import annotations

import os
import resource
import traceback
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.engine.session import BundleSession
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.selfcheck.golden import check_golden
from edgeformer_runtime.selfcheck.operators import check_operators
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator
from robustness.files import Bundles, Case
from robustness.outcomes import Outcome, Result
from robustness.texts import TEXT_ATTACK, hostile_text, translated

TEXTS = ("The old dog turns 2 times.", "a b")
STEPS = 4
VERIFIED_EVERY = 16
"""One case in so many is also verified, as ``edgeformer verify`` does; those of golden examples all are."""
MAX_MESSAGE = 2000
UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of characters that an error may not have: control characters, surrogates and line separators."""


class Use(msgspec.Struct, frozen=True):
    """What a bundle computed."""

    translations: list[Translation]
    attention: list[Attention]
    problems: tuple[str, ...]
    """What ``edgeformer verify`` reports, if it was asked."""

    def same(self, other: Use) -> bool:
        """Whether a user would see no difference."""
        return [_seen(translation) for translation in self.translations] == [
            _seen(translation) for translation in other.translations
        ] and all(
            mine.weights.shape == theirs.weights.shape and np.allclose(mine.weights, theirs.weights, atol=1e-5)
            for mine, theirs in zip(self.attention, other.attention, strict=True)
        )


class Attacker:
    """Runs cases in this process, with bundles in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._bundles = Bundles(folder)
        self._expected: dict[Path, Use] = {}
        self._translators: dict[Path, Translator[BundleSession]] = {}

    def prepare(self, case: Case) -> None:
        """Do what is not part of the attack: use the undamaged bundle."""
        path = self._bundles.path(case)
        if case.attack == TEXT_ATTACK and path not in self._translators:
            self._translators[path] = Translator.open(path, threads=1)
        elif case.attack != TEXT_ATTACK and path not in self._expected:
            self._expected[path] = use(path, self._bundles.keys(case))

    def run(self, case: Case) -> Result:
        """Run one case, for which everything is prepared."""
        if case.attack == TEXT_ATTACK:
            translator = self._translators[self._bundles.path(case)]
            return guarded(lambda: translated(translator, hostile_text(case)))
        with self._bundles.damaged(case) as path:
            return guarded(partial(self._used, case, path))

    def _used(self, case: Case, path: Path) -> Result:
        if case.attack == "golden":  # which only ``verify`` reads
            found = use(path, self._bundles.keys(case), translate=False, verify=True)
        else:
            found = use(path, self._bundles.keys(case), verify=case.number % VERIFIED_EVERY == 0)
        if unclear := [problem for problem in found.problems if not is_line(problem)]:
            return Result(
                Outcome.ESCAPED, f"a problem that is not one short line of text: {unclear[0]!r}"[:MAX_MESSAGE]
            )
        if case.attack == "golden":
            return Result(Outcome.REFUSED, found.problems[0]) if found.problems else Result(Outcome.SAME)
        if found.same(self._expected[self._bundles.path(case)]):
            return Result(Outcome.SAME)
        may_differ = case.rehashed and self._bundles.keys(case) is None
        return Result(Outcome.OTHER if may_differ else Outcome.FORGED)


def use(path: Path, keys: Sequence[bytes] | None, *, translate: bool = True, verify: bool = False) -> Use:
    """Open a bundle, translate a little, look at the attention, and verify: all that can reach a damaged file."""
    with Translator.open(path, threads=1, trusted_keys=keys) as translator:
        translations = translator.translate(TEXTS if translate else [], max_length=STEPS)
        attention = translator.attention(translations)
        problems: tuple[str, ...] = ()
        if verify:
            check_operators(translator.bundle)
            problems = check_golden(translator).problems
    return Use(translations, attention, problems)


def guarded(run: Callable[[], Result]) -> Result:
    """The result of a call, or what its exception means."""
    try:
        return run()
    except EdgeformerError as error:
        if is_line(str(error)):
            return Result(Outcome.REFUSED, str(error))
        return Result(Outcome.ESCAPED, f"an error that is not one short line of text: {error!r}"[:MAX_MESSAGE])
    except MemoryError:
        return Result(Outcome.MEMORY, traceback.format_exc())
    except Exception:
        return Result(Outcome.ESCAPED, traceback.format_exc())


def is_line(message: str) -> bool:
    """Whether a message is one line that a terminal shows as it is: no control characters, no lone surrogates."""
    return len(message) <= MAX_MESSAGE and not any(unicodedata.category(char) in UNPRINTABLE for char in message)


def measured(run: Callable[[], Result], memory_mib: int) -> Result:
    """Run a case with a limit of memory, and tell how far memory rose."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
    before, size = _memory("VmRSS"), _memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * memory_mib * MIB, resource.RLIM_INFINITY))
    try:
        result = run()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    peak = (_memory("VmHWM") - before) / MIB
    outcome = Outcome.MEMORY if peak > memory_mib and not result.outcome.is_defect else result.outcome
    return Result(outcome, result.detail, peak)


def serve(connection: Connection, log: Path, folder: Path, memory_mib: int) -> None:
    """Run the cases that come through a connection until it is closed. The entry point of the process.

    Args:
        connection: brings cases, and takes a result for each, after ``None`` when it is prepared.
        log: file for what libraries print.
        folder: an empty folder, for the bundles.
        memory_mib: how far memory may rise during a case.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    attacker = Attacker(folder)
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            case: Case = connection.recv()
            attacker.prepare(case)
            os.ftruncate(descriptor, 0)
            connection.send(None)
            connection.send(measured(partial(attacker.run, case), memory_mib))


def _seen(translation: Translation) -> tuple[object, ...]:
    best = translation.best
    return translation.source.ids, best.ids, best.text, best.tokens


def _memory(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024
