"""Reasons to stop training: limits, signals, and how several processes agree on one."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from edgeformer.config import TrainConfig
from edgeformer.run.info import Validation
from edgeformer.train.stopping import Interruption, SignalWatch, TrainingLimit, catch_signals, limit_reached
from tests.commands import two_processes


def validations(*losses: float) -> list[Validation]:
    """One every 10 updates."""
    return [
        Validation(step=10 * number, loss=loss, perplexity=1, bleu=0, exact_match=0, sentences=0, minutes=0)
        for number, loss in enumerate(losses, 1)
    ]


def test_the_first_limit_reached_is_named() -> None:
    config = TrainConfig(max_steps=100, max_minutes=30, patience=2)
    assert limit_reached(config, 99, 29.9, validations(3, 1, 2)) is None
    assert limit_reached(config, 100, 0, []) == TrainingLimit("max_steps", 100)
    assert limit_reached(config, 99, 30, []) == TrainingLimit("max_minutes", 30)
    assert limit_reached(config, 99, 0, validations(3, 1, 2, 2)) == TrainingLimit("patience", 2)
    assert limit_reached(TrainConfig(max_steps=100), 99, 1e9, validations(1, 2, 3, 4)) is None


def test_limits_as_text() -> None:
    reasons = (
        TrainingLimit("max_steps", 2_000_000),
        TrainingLimit("max_minutes", 30.0),
        TrainingLimit("max_minutes", 0.5),
    )
    assert [*map(str, reasons)] == ["max_steps = 2000000", "max_minutes = 30", "max_minutes = 0.5"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_a_second_sigint_interrupts(number: signal.Signals) -> None:
    before = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with catch_signals() as signals:
        signal.raise_signal(number)
        assert signals.received == Interruption(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == before


def test_outside_the_main_thread_nothing_is_caught() -> None:
    def watch() -> SignalWatch:
        with catch_signals() as signals:
            return signals

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(watch).result().received is None


AGREE = """
import signal
from edgeformer.config import TrainConfig
from edgeformer.train.processes import StopVote, launch
from edgeformer.train.stopping import Interruption
fabric = launch(TrainConfig())
agree = StopVote()
wanted = Interruption(signal.SIGTERM) if fabric.global_rank else None
agreed = [str(agree(fabric, reason)) for reason in (None, wanted, wanted)]
print(f"{agreed}\\n", end="")
"""


@pytest.mark.slow
def test_all_processes_stop_for_the_reason_of_one() -> None:
    assert two_processes("-c", AGREE).splitlines() == ["['None', 'None', 'SIGTERM']"] * 2
