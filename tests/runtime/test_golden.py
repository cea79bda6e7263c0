"""Golden examples: what a bundle must give again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace as replace_field

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.golden import check_golden, kernel_problems, read_golden
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_golden, edit_manifest
from tests.cuda import skip_unless_supported
from tests.store import COMMITTED

Cases = list[dict[str, Any]]


def edited(bundle: Path, folder: Path, change: Callable[[Cases], object]) -> Translator:
    copy = edit_golden(copy_of(bundle, folder), lambda tree: change(tree["cases"]))
    return Translator.open(copy, threads=1)


@pytest.mark.parametrize("precision", [name for name in get_args(Precision) if name != "fp16"])
def test_a_sound_bundle_gives_its_golden_examples(
    small_bundle: Path, small_bundles: dict[Precision, Path], precision: Precision, device: str
) -> None:
    """The committed examples come from a processor with AVX2 alone."""
    skip_unless_supported(precision, device)
    bundle = small_bundle if precision == "fp32" else small_bundles[precision]
    result = check_golden(Translator.open(bundle, device=device, threads=1))
    cases = read_golden(open_bundle(bundle)).cases
    assert result.problems == ()
    assert result.cases == len(cases) > 0
    assert result.max_score_difference <= PRECISIONS[precision].tolerances.score
    assert {case.beam_size for case in cases} == {1, open_bundle(bundle).manifest.generation.beam_size}
    assert all(case.ids and case.source and case.margin > 0 for case in cases)


def test_a_changed_token_names_example_and_place(small_bundle: Path, tmp_path: Path) -> None:
    def change(cases: Cases) -> None:
        cases[1]["ids"][2] += 1
        cases[4]["ids"].append(9)

    translator = edited(small_bundle, tmp_path, change)
    result = check_golden(translator)
    tokenizer, *problems = result.problems
    assert "the target tokenizer `tokenizer.json` does not fit the examples: the tokens of example 2" in tokenizer
    expected = read_golden(open_bundle(small_bundle)).cases[1]
    right = expected.ids[2]
    wrong_piece, right_piece = translator.target_tokenizer.tokens([right + 1, right])
    assert (
        f"example 2 (beam 1), token 3 differs: expected {right + 1} {wrong_piece!r}, got {right} {right_piece!r}; "
        f"{expected.text!r} gave {expected.output!r} instead of "
    ) in problems[0]
    assert "expected 9 " in problems[1]
    assert "got the end" in problems[1]
    assert (result.cases, result.failed) == (12, 2)


def test_long_texts_of_a_record_are_cut_off(small_bundle: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["cases"][0] |= {"output": "[" * 100_000, "ids": tree["cases"][0]["ids"][:1], "text": "a " * 100}

    translator = Translator.open(edit_golden(copy_of(small_bundle, tmp_path), change), threads=1)
    problems = check_golden(translator).problems
    assert any(problem.endswith("[[[ …") for problem in problems)
    assert any("token 2 differs" in problem for problem in problems)
    assert max(map(len, problems)) < 1500


def test_a_changed_score_names_the_example(small_bundle: Path, tmp_path: Path) -> None:
    def change(cases: Cases) -> None:
        cases[0]["score"] += 0.5 * PRECISIONS["fp32"].tolerances.score
        cases[-1]["score"] -= 1.0

    result = check_golden(edited(small_bundle, tmp_path, change))
    (problem,) = result.problems
    assert "example 12 (beam 4) has score" in problem
    assert result.max_score_difference == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["cases"].clear(), r"cannot be parsed .* length >= 1 - at `\$\.cases`"),
        (lambda tree: tree["cases"][0].update(ids=[2**63]), "cannot be parsed"),
        (lambda tree: tree["cases"][0].update(ids=[2**50]), "example 1 has tokens or a length that the model does not"),
        (lambda tree: tree["cases"][1].update(source=[5] * 1000), "example 2 has tokens or a length"),
        (lambda tree: tree["cases"][1].update(source=[]), "example 2 has tokens or a length"),
        (lambda tree: tree["cases"][0].update(beam_size=10**6), r"<= 1024 - at `\$\.cases\[0\]\.beam_size`"),
        (lambda tree: tree["cases"][0].update(beam_size=0), ">= 1 - at"),
        (lambda tree: tree.update(cases=tree["cases"] * 100), r"length <= 1000 - at `\$\.cases`"),
    ],
)
def test_what_this_bundle_cannot_have_recorded_is_an_error(
    small_bundle: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    bundle = edit_golden(copy_of(small_bundle, tmp_path), change)
    with pytest.raises(BundleError, match=rf"`golden\.json` .*{words}"):
        check_golden(Translator.open(bundle, threads=1))


@pytest.mark.parametrize("factor", [0.5, 1.01, 2.0])
def test_attention_that_does_not_sum_to_one_is_found(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    translator = Translator.open(small_bundle, threads=1)
    assert check_golden(translator).problems == ()
    attention = Translator.attention

    def scaled(self: Any, translations: Any, **options: Any) -> list[Attention]:
        return [replace(found, weights=found.weights * factor) for found in attention(self, translations, **options)]

    monkeypatch.setattr(Translator, "attention", scaled)
    assert check_golden(translator).problems == ("attention weights of example 1 do not add up to one",)


@pytest.mark.parametrize("is_sound", [True, False])
@pytest.mark.parametrize("has_output", ["none", "one", "all"])
def test_plans_are_compared_with_the_graphs_whatever_the_outputs(
    has_output: str, is_sound: bool, tmp_path: Path
) -> None:
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    bundle = copy_of(COMMITTED / "int8", tmp_path)
    if not is_sound:
        edit_manifest(bundle, lambda tree: tree["plan"]["projection"].update(input_zero=7))
    golden = read_golden(open_bundle(bundle))
    cases = tuple(
        replace_field(case, ids=case.ids if has_output == "all" or (index == 0 and has_output == "one") else ())
        for index, case in enumerate(golden.cases)
    )
    with Translator.open(bundle, engine="onnxruntime", threads=1) as translator:
        problems = kernel_problems(translator, replace_field(golden, cases=cases, listed=()))
    differing = [problem for problem in problems if "of the log-probabilities are those of ONNX Runtime" in problem]
    assert len(differing) == (not is_sound)
