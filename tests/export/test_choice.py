"""The rule by which one of several measured precisions is chosen, and its table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.quality.bootstrap import Interval
from edgeformer_export.choice import COLUMNS, TIE, Candidate, Choice, Objective, choose
from edgeformer_runtime.precision import Precision


def candidate(precision: Precision, size: int, drop: float = 0.0, ratio: float = 1.0) -> Candidate:
    return Candidate(
        precision=precision,
        bytes=size,
        bleu=40 - drop,
        drop=drop,
        drop_interval=Interval(low=drop - 0.3, high=drop + 0.3),
        identical=30,
        milliseconds=10 * ratio,
        ratio=ratio,
    )


FP32 = candidate("fp32", 12_000_000)
CANDIDATES = [
    FP32,
    candidate("int8", 4_200_000, 0.0, 0.62),
    candidate("int4", 2_500_000, 0.7, 0.6),
]


def test_of_equally_fast_ones_the_smallest_is_chosen() -> None:
    fast, slower = candidate("int8", 5, 0, 0.5), candidate("int4", 3, 0, 0.5 * (1 + TIE))
    assert choose([FP32, fast, slower], 0, "latency") == "int4"
    assert choose([FP32, fast, msgspec.structs.replace(slower, ratio=0.551)], 0, "latency") == "int8"


ANY = st.lists(
    st.builds(
        candidate,
        st.sampled_from(["int8", "int4"]),
        st.integers(1, 5),
        st.sampled_from([-0.5, 0.0, 0.2, 1.0]),
        st.sampled_from([0.5, 0.53, 0.9, 1.0, 1.2]),
    ),
    max_size=2,
    unique_by=lambda entry: entry.precision,
)


@given(
    ANY,
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from(["latency", "size"]),
    st.sets(st.sampled_from(["int8", "int4"])),
)
def test_no_admissible_candidate_is_clearly_better(
    others: Sequence[Candidate], max_drop: float, optimize: Objective, failed: set[Precision]
) -> None:
    candidates = [FP32, *others]
    admissible = [entry for entry in candidates if entry.drop <= max_drop and entry.precision not in failed]
    chosen = choose(candidates, max_drop, optimize, failed)
    (best,) = [entry for entry in admissible if entry.precision == chosen]
    fastest = min(entry.ratio for entry in admissible)
    rivals = [entry for entry in admissible if optimize == "size" or entry.ratio <= fastest * (1 + TIE)]
    assert best in rivals
    assert min(entry.bytes for entry in rivals) == best.bytes


def made(candidates: Sequence[Candidate], optimize: Objective = "latency", max_drop: float = 0.2) -> Choice:
    return Choice(
        chosen=choose(candidates, max_drop, optimize),
        max_bleu_drop=max_drop,
        optimize=optimize,
        candidates=tuple(candidates),
        failed={},
        text="the validation set",
        sentences=60,
        too_long=0,
        beam_size=1,
        threads=1,
        bleu_signature="nrefs:1",
        machine="a machine",
        engine="onnxruntime 1.31.1",
    )


def test_the_table_has_a_row_for_each_candidate() -> None:
    rows = made([*CANDIDATES, candidate("fp16", 1, 0, 0.1)]).without("fp16", "It is not the model.").rows
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert [row[-1] for row in rows] == ["", "chosen", "over budget", "failed"]
    assert rows[1] == ("int8", "40.00", "+0.00 (-0.30 to +0.30)", "50%", "4.20", "6.20", "0.62", "chosen")


def test_notes_say_what_the_table_does_not() -> None:
    notes = made(CANDIDATES).notes
    assert "greedy search, 1 thread; BLEU nrefs:1" in notes[0]
    assert notes[1].startswith("Chosen: int8, the smallest of those at most 10% slower than the fastest whose")
    assert "may exceed the budget" in notes[2]
    surer = msgspec.structs.replace(CANDIDATES[1], drop_interval=Interval(low=-0.1, high=0.2))
    choice = msgspec.structs.replace(made([FP32, surer, candidate("int4", 1)], "size"), failed={"fp16": "No weights."})
    choice = choice.without("int4", "It is too far from PyTorch.")
    assert choice.notes[1:] == [
        "Chosen: int8, the smallest whose measured drop is at most 0.2.",
        "fp16 failed: No weights.",
        "int4 failed: It is too far from PyTorch.",
    ]
