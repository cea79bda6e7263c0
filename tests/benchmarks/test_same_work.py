"""Every system is timed for the same work: what engines' inputs are made of is not part of it, and of several variants
of a system the fastest counts for each workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from edgeformer_bench import rounds
from edgeformer_bench.peers import worker
from edgeformer_bench.peers.base import Contender, Peer, PeerCall, PeerEngine, PeerError, PeerSpec
from edgeformer_bench.peers.ctranslate2 import environments
from edgeformer_bench.rounds import Contest, Workload
from edgeformer_runtime.check import machine


class Converting(Peer):
    """Takes long for everything but its own work."""

    version = "a peer"

    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        time.sleep(0.2)
        return PeerCall(lambda: "own output", self.ids)

    @staticmethod
    def ids(output: Any) -> list[list[int]]:
        time.sleep(0.2)
        assert output == "own output"
        return [[4, 5]]


def test_conversions_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerEngine, "load", lambda self: type("Module", (), {"open_peer": lambda spec: Converting()}))
    process = worker.Worker()
    assert process.open({"kind": "ctranslate2", "model": "."}) == {"version": "a peer"}
    answer = process.translate([[3]], beam_size=1, length=None, seconds=0.01)
    assert answer["output"] == [[4, 5]]
    assert len(answer["seconds"]) > 1
    assert max(answer["seconds"]) < 0.1
    assert Converting().translate([[3]], beam_size=1, length=None) == [[4, 5]]


@pytest.mark.parametrize("processor", ["Intel(R) Xeon(R)", "AMD EPYC"])
def test_every_instruction_set_is_tried_with_every_library(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "machine_summary", lambda: processor)
    monkeypatch.delenv("CT2_FORCE_CPU_ISA", raising=False)
    monkeypatch.delenv("CT2_USE_MKL", raising=False)
    found = environments()
    sets, libraries = (
        {environment.get(name) for environment in found} for name in ("CT2_FORCE_CPU_ISA", "CT2_USE_MKL")
    )
    assert sets == {None, "AVX512"}
    assert libraries == {None, "0" if processor.startswith("Intel") else "1"}
    pairs = [(each.get("CT2_FORCE_CPU_ISA"), each.get("CT2_USE_MKL")) for each in found]
    assert {*pairs} == {*product(sets, libraries)}
    assert len(pairs) == 4
    monkeypatch.setenv("CT2_FORCE_CPU_ISA", "AVX2")
    assert environments() == [{}, {"CT2_USE_MKL": "0" if processor.startswith("Intel") else "1"}]
    monkeypatch.setenv("CT2_USE_MKL", "0")
    assert environments() == [{}]


class Process:
    """A variant whose time for a workload is given by the settings: milliseconds by the length of the first source."""

    version = "a system"
    asked: list[tuple[str, int, float]]
    """Variant, length and least seconds of every request."""

    def __init__(self, spec: PeerSpec) -> None:
        self.spec = spec

    def ask(self, request: str, sources: list[list[int]], seconds: float, **arguments: Any) -> dict[str, Any]:
        length = len(sources[0])
        self.asked.append((self.spec.variant, length, seconds))
        taken = self.spec.settings["ms"][f"{length}"]
        if taken is None:
            raise PeerError("It cannot.")
        return {"seconds": [taken / 1000], "output": [[length]]}

    def close(self) -> None:
        pass


def variant(*times: int | None) -> PeerSpec:
    """A variant with its times for sources of 1, 2 and 3 tokens."""
    return PeerSpec(kind="ctranslate2", model=".", settings={"ms": {f"{n}": ms for n, ms in enumerate(times, 1)}})


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Contest]:
    monkeypatch.setattr(rounds, "PeerProcess", Process)
    monkeypatch.setattr(Process, "asked", [], raising=False)
    return lambda *specs: Contest([Contender("several", specs)])


def test_the_fastest_variant_is_chosen_for_each_workload(contest: Callable[..., Contest]) -> None:
    """The first workload says nothing about the others."""
    first, second, third = variant(1, 9, 8), variant(2, 3, 9), variant(5, 4, None)
    workloads = [Workload(beam_size=1, sources=[[7] * length]) for length in (1, 2, 3, 1)]
    with closing(contest(first, second, third)) as opened:
        score = opened.run(workloads, rounds=2, turn_seconds=0.01)["several"]
        assert score.turns == [[[0.001]] * 2, [[0.003]] * 2, [[0.008]] * 2, [[0.001]] * 2]
        assert score.variant == f"{first.variant}, {second.variant}"
        measured = {(name, length) for name, length, seconds in Process.asked if seconds}
        assert measured == {(first.variant, 1), (second.variant, 2), (first.variant, 3)}
        Process.asked.clear()
        assert [opened.outputs(workload)["several"] for workload in workloads] == [[[1]], [[2]], [[3]], [[1]]]
        assert [name for name, *_ in Process.asked] == [each.variant for each in (first, second, first, first)]


def test_a_system_of_which_no_variant_can_do_a_workload_drops_out(contest: Callable[..., Contest]) -> None:
    workloads = [Workload(beam_size=1, sources=[[7] * length]) for length in (1, 2)]
    with closing(contest(variant(1, None), variant(2, None))) as opened:
        assert opened.run(workloads, rounds=1)["several"].error == "It cannot."


def test_systems_follow_each_other_and_take_turns_in_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PeerProcess", Process)
    monkeypatch.setattr(Process, "asked", [], raising=False)
    done: list[float] = []
    specs = {name: PeerSpec(kind="torch", model=".", settings={"ms": {"1": 1, "2": 2}, "name": name}) for name in "abc"}
    workloads = [Workload(beam_size=1, sources=[[7] * length]) for length in (1, 2)]
    with closing(Contest([Contender(name, (spec,)) for name, spec in specs.items()])) as opened:
        scores = opened.run(workloads, rounds=2, progress=done.append)
    order = "".join(f"{name[-1]}{length}" for name, length, _ in Process.asked)
    warm_up, first, second = "a1b1c1b2c2a2", "a1b1c1b2c2a2", "b1c1a1c2a2b2"
    assert order == warm_up + first + second
    assert scores["a"].turns == [[[0.001]] * 2, [[0.002]] * 2], "without the warm-up"
    assert done == [1 / 3, 2 / 3, 1]
