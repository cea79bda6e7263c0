"""The program behind ``make attack``: what it reports, that a planted defect is among it, and that cases can be
repeated."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MIB
from robustness import attack, mutations, pool
from robustness.files import FILES, Bundles, Case
from robustness.outcomes import Outcome
from robustness.outcomes import Result as CaseResult
from robustness.texts import TEXT_ATTACK, hostile_text
from robustness.worker import guarded, measured

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux only")


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(attack.main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def planted(connection: Connection, log: Path, folder: Path, memory_mib: int) -> None:
    """A worker with a defect of every kind: case 0 crashes, 1 hangs, 2 uses much memory, 3 raises, 4 is refused."""
    del log, folder
    while True:
        case: Case = connection.recv()
        connection.send(None)
        if case.number == 0:
            os.abort()
        if case.number == 1:
            time.sleep(60)
        connection.send(measured(partial(guarded, partial(_planted, case.number)), memory_mib))


def _planted(number: int) -> CaseResult:
    if number == 2:
        return CaseResult(Outcome.SAME, str(len(b"x" * (60 * MIB))))
    if number == 3:
        raise ZeroDivisionError("planted")
    raise BundleError("Damaged." if number == 4 else "Damaged: \x1b[2J.")


def test_every_kind_of_defect_is_recognized() -> None:
    cases = (Case("manifest", number) for number in range(6))
    found = {
        case.number: result for case, result in pool.results(cases, workers=2, seconds=3, memory_mib=50, entry=planted)
    }
    assert {number: result.outcome for number, result in found.items()} == {
        0: Outcome.CRASHED,
        1: Outcome.HUNG,
        2: Outcome.MEMORY,
        3: Outcome.ESCAPED,
        4: Outcome.REFUSED,
        5: Outcome.ESCAPED,
    }
    assert "SIGABRT" in found[0].detail
    assert "ZeroDivisionError: planted" in found[3].detail


@pytest.mark.parametrize(
    "names",
    [("manifest", "decoder", "signed", TEXT_ATTACK), pytest.param((*FILES, TEXT_ATTACK), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_a_few_cases_of_an_attack(names: tuple[str, ...]) -> None:
    chosen = [word for name in names for word in ("--only", name)]
    report = json.loads(run("--mutations", "8", "--json", *chosen).stdout)
    assert report["results"].keys() == set(names)
    total = Counter[str]()
    for row in report["results"].values():
        assert sum(row["counts"].values()) == 8
        assert not row["problems"]
        total.update(row["counts"])
    assert total["refused"] > total["same output"] > 0


def test_a_defect_fails_and_says_how_to_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "results", lambda cases, **_: ((case, _result(case)) for case in cases))
    arguments = ("--only", "decoder", "--mutations", "3", "--out", tmp_path)
    result = run(*arguments, "--seed", "5", code=1)
    assert "BROKEN decoder: crash; see it with --case decoder:2 --seed 5\nSIGSEGV" in result.stderr
    figures = [line.split("│")[2].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    assert figures == ["3", "2", "0", "0", "1", "7"]


def _result(case: Case) -> CaseResult:
    outcome = Outcome.CRASHED if case.number == 2 else Outcome.REFUSED
    return CaseResult(outcome, "SIGSEGV" if case.number == 2 else "", 7.0)


def test_a_case_is_the_same_again_and_is_kept(tmp_path: Path) -> None:
    case, other = Case("tokenizer", 1, seed=3), Case("tokenizer", 1, seed=4)
    (tmp_path / "bundles").mkdir()
    bundles = Bundles(tmp_path / "bundles")
    whole = (bundles.path(case) / case.file).read_bytes()
    with bundles.damaged(case) as path:
        damaged = (path / case.file).read_bytes()
    assert (bundles.path(case) / case.file).read_bytes() == whole
    assert damaged == case.damaged(whole) != other.damaged(whole)
    result = run("--case", "tokenizer:1", "--seed", "3", "--out", tmp_path)
    assert "tokenizer:1: " in result.stdout
    assert (tmp_path / "tokenizer-1" / case.file).read_bytes() == damaged


def test_half_of_the_cases_have_new_hashes_in_every_bundle() -> None:
    cases = [Case("decoder", number) for number in range(16)]
    assert Counter((case.precision, case.rehashed) for case in cases) == {
        (precision, rehashed): 2 for precision in {case.precision for case in cases} for rehashed in (False, True)
    }


def test_messages_are_taken_apart_and_joined() -> None:
    fields = [(1, 2, b"name"), (2, 0, mutations.varint(300)), (3, 5, b"abcd"), (4, 1, b"abcdefgh")]
    assert mutations.fields_of(mutations.message_of(fields)) == fields
    assert mutations.fields_of(b"\x0a\xff") is None
    assert mutations.varint(300, surplus=2) == b"\xac\x82\x80\x00"
    for name in ("encoder", "decoder"):
        data = (Path(__file__).parent.parent / "runtime/bundles/int4" / f"{name}.onnx").read_bytes()
        split = mutations.fields_of(data)
        assert split is not None
        assert mutations.message_of(split) == data
        changed = {mutations.random_graph(Random(seed), data) for seed in range(20)}
        assert len(changed) > 15


def test_hostile_texts_have_what_they_should() -> None:
    texts = [hostile_text(Case(TEXT_ATTACK, number)) for number in range(100)]
    together = "".join(texts)
    for piece in ("</s>", "\u202e", "\x1b"):
        assert piece in together
    assert any("\ud800" <= char < "\ue000" for char in together)
    assert sum(len(text) > 2**20 - 10 for text in texts) == 2
