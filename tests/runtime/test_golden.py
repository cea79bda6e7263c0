"""Golden examples: what a bundle must give again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from edgeformer_runtime.bundle import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.golden import SCORE_TOLERANCE, check_golden, golden_cases, make_golden
from edgeformer_runtime.manifest import Precision
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, rehash

Cases = list[dict[str, Any]]


def edited(bundle: Path, folder: Path, change: Callable[[Cases], object]) -> Translator:
    copy = copy_of(bundle, folder)
    cases = json.loads((copy / "golden.json").read_bytes())
    change(cases)
    (copy / "golden.json").write_text(json.dumps(cases), encoding="utf-8")
    return Translator(rehash(copy), threads=1)


@pytest.mark.parametrize("precision", get_args(Precision))
def test_a_sound_bundle_gives_its_golden_examples(
    small_bundles: dict[Precision, Path], precision: Precision, device: str
) -> None:
    if device != "cpu" and precision != "fp32":
        pytest.skip("integers run on the CPU only")
    bundle = small_bundles[precision]
    result = check_golden(Translator(bundle, device=device, threads=1))
    cases = golden_cases(open_bundle(bundle))
    assert result.problems == ()
    assert result.cases == len(cases) > 0
    assert result.max_score_difference <= SCORE_TOLERANCE[precision]
    assert {case.beam_size for case in cases} == {1, open_bundle(bundle).manifest.generation.beam_size}
    assert all(case.ids for case in cases)


def test_made_examples_are_what_the_bundle_gives(translator: Translator) -> None:
    texts = ["The dog runs.", "sea"]
    cases = json.loads(make_golden(translator, texts))
    assert [(case["text"], case["beam_size"]) for case in cases] == [(text, beam) for beam in (1, 4) for text in texts]
    for case in cases:
        best = translator.translate([case["text"]], beam_size=case["beam_size"])[0].best
        assert case["ids"] == list(best.ids)
        assert case["score"] == pytest.approx(best.score, abs=1e-5)


def test_a_changed_token_names_example_and_place(small_bundle: Path, tmp_path: Path) -> None:
    def change(cases: Cases) -> None:
        cases[1]["ids"][2] += 1
        cases[4]["ids"].append(9)

    result = check_golden(edited(small_bundle, tmp_path, change))
    assert len(result.problems) == 2
    assert "example 2 (beam 1), token 3 differs" in result.problems[0]
    assert "example 5 (beam 1), token" in result.problems[1]
    assert result.cases == 12


def test_a_changed_score_names_the_example(small_bundle: Path, tmp_path: Path) -> None:
    def change(cases: Cases) -> None:
        cases[0]["score"] += 0.5 * SCORE_TOLERANCE["fp32"]
        cases[-1]["score"] -= 1.0

    result = check_golden(edited(small_bundle, tmp_path, change))
    (problem,) = result.problems
    assert "example 12 (beam 4) has score" in problem
    assert result.max_score_difference == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'[{"text": 1}]', b'[{"text": "\xff"}]', b'[{"text":"","beam_size":1,"ids":[],"score":0,"x":1}]'],
)
def test_a_file_that_cannot_be_parsed_is_an_error(small_bundle: Path, tmp_path: Path, content: bytes) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "golden.json").write_bytes(content)
    opened = open_bundle(rehash(bundle))
    with pytest.raises(BundleError, match=r"`golden\.json` cannot be parsed"):
        golden_cases(opened)
