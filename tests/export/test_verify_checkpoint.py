"""``edgeformer verify --checkpoint``: a bundle against the run that it comes from, and against others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeformer.data.vocabulary import train_tokenizer
from edgeformer.run.folder import Run
from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.bundles import copy_of, rehash
from tests.commands import error, problems, run, verified
from tests.damage import PARTS, drop_mask, scale_block
from tests.factory import PAIRS, small_run


@pytest.fixture
def few(tmp_path: Path) -> tuple[str | Path, ...]:
    """Options to compare greedy output on a few texts."""
    (tmp_path / "few").write_text("".join(f"{source}\n" for source, _ in PAIRS[::9]), encoding="utf-8")
    return ("--source", tmp_path / "few", "--beam", "1")


def test_a_bundle_passes_against_the_run_it_comes_from(small_bundle: Path, taught_run: Run) -> None:
    content = verified(small_bundle, "--checkpoint", taught_run.path, "--beam", "1")
    parity = content["parity"]
    assert parity["precision"] == "fp32"
    assert parity["logits"]["max_difference"] <= 1e-4
    assert parity["logits"]["top1_agreement"] == 1
    (entry,) = parity["tokens"]
    assert (entry["beam_size"], entry["sentences"], entry["identical"]) == (1, len(PAIRS), len(PAIRS))


@pytest.mark.parametrize("precision", ["int8", pytest.param("int4", marks=pytest.mark.slow)])
def test_integers_pass_against_their_run_and_tell_what_differs(
    small_bundles: dict[Precision, Path], taught_run: Run, few: tuple[str | Path, ...], precision: Precision
) -> None:
    parity = verified(small_bundles[precision], "--checkpoint", taught_run.path, *few)["parity"]
    assert parity["precision"] == precision
    assert 0.9 <= parity["logits"]["top1_agreement"] <= 1
    assert parity["logits"]["max_difference"] > 0
    assert [entry["beam_size"] for entry in parity["tokens"]] == [1]


def test_source_and_beams_are_those_asked_for(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("The old dog runs.\n\nriver\n", encoding="utf-8")
    options = ("--checkpoint", taught_run.path, "--source", source, "--beam", "3", "--beam", "2")
    parity = verified(small_bundle, *options)["parity"]
    assert [(entry["beam_size"], entry["sentences"]) for entry in parity["tokens"]] == [(2, 2), (3, 2)]
    result = run("verify", small_bundle, *options)
    assert "identical output, beam 3" in result.stdout


def test_a_model_of_another_shape_is_refused(small_bundle: Path, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", "uneven_depth", vocab_size=290)
    message = error("verify", small_bundle, "--checkpoint", other.path)
    assert "is not the model of this bundle" in message
    for part in ("source vocabulary", "target vocabulary", "state table", "source tokenizer", "target tokenizer"):
        assert f"its {part} differs from the bundle's" in message


def test_nothing_to_compare_is_an_error(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    for content in ("", "\n \n"):
        (tmp_path / "empty").write_text(content, encoding="utf-8")
        message = error("verify", small_bundle, "--checkpoint", taught_run.path, "--source", tmp_path / "empty")
        assert "contains no sentence to compare on" in message


def test_a_line_too_long_is_named_by_its_number(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    lines = ["The sea."] * 40 + ["", "word " * 400, "The sea."]
    (tmp_path / "text").write_text("\n".join(lines) + "\n", encoding="utf-8")
    message = error("verify", small_bundle, "--checkpoint", taught_run.path, "--source", tmp_path / "text")
    assert "Text 42 has" in message


def test_another_tokenizer_is_named(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    """The graphs are given the recorded ids, and are sound."""
    bundle = copy_of(small_bundle, tmp_path)
    words = [word for source, _ in PAIRS for word in reversed(source.split())]
    other = train_tokenizer(words, taught_run.recipe.tokenizer)
    (bundle / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    reported = problems(rehash(bundle))
    assert [problem for problem in reported if "has another vocabulary than the model" in problem] == [
        f"the {side} tokenizer `tokenizer.json` has another vocabulary than the model" for side in ("source", "target")
    ]
    assert "its source tokenizer differs from the bundle's" in error("verify", bundle, "--checkpoint", taught_run.path)


@pytest.mark.parametrize(
    ("file", "tensor", "part"),
    [
        pytest.param(*part, marks=[pytest.mark.slow] * (number % 2), id=" ".join(part[:2]))
        for number, part in enumerate(PARTS)
    ],
)
def test_against_torch_a_scaled_block_is_found_in_its_layer(
    small_bundle: Path,
    taught_run: Run,
    tmp_path: Path,
    few: tuple[str | Path, ...],
    file: str,
    tensor: str,
    part: str,
) -> None:
    bundle = scale_block(copy_of(small_bundle, tmp_path), file, tensor)
    reported = problems(bundle, "--checkpoint", taught_run.path, *few)
    assert "against torch, in sentence " in reported[-1]
    assert f", first difference is in {part}, relative difference 0." in reported[-1]
    assert ", tolerance 0.001)" in reported[-1]
    assert reported[-1].endswith("step 1") == (file == DECODER_FILE)


@pytest.mark.parametrize("precision", [pytest.param("int8", marks=pytest.mark.slow), "int4"])
def test_against_torch_a_scaled_matrix_of_integers_is_found_in_its_layer(
    small_bundles: dict[Precision, Path],
    taught_run: Run,
    tmp_path: Path,
    few: tuple[str | Path, ...],
    precision: Precision,
) -> None:
    """Rounding is not taken for it: the tolerance is twice the error at export."""
    bundle = scale_block(copy_of(small_bundles[precision], tmp_path), ENCODER_FILE, "linear_5", whole=True)
    content = json.loads(run("verify", bundle, "--json", "--checkpoint", taught_run.path, *few).stdout)
    first = content["first_difference_from_torch"]
    assert first["module"] == "encoder_layers.0.feed_forward.3"
    assert first["part"] == "encoder layer 1, feed-forward"
    assert 0.02 <= first["tolerance"] < 0.4 < first["difference"]


def test_against_torch_a_dropped_mask_is_found_in_its_layer(
    small_bundle: Path, taught_run: Run, tmp_path: Path, few: tuple[str | Path, ...]
) -> None:
    reported = problems(drop_mask(copy_of(small_bundle, tmp_path), ENCODER_FILE), "--checkpoint", taught_run.path, *few)
    assert "first difference is in encoder layer 1, attention, output" in reported[-1]


def test_a_model_with_other_weights_is_told_from_its_first_part_on(
    small_bundle: Path, tmp_path: Path, few: tuple[str | Path, ...]
) -> None:
    """The bundle is sound, but it is not the bundle of that run."""
    reported = problems(small_bundle, "--checkpoint", small_run(tmp_path / "other", seed=7).path, *few)
    assert "logits differ by up to" in reported[0]
    assert "beam 1:" in " ".join(reported)
    assert "first difference is in source embedding, tokens (`source_embedding.tokens`" in reported[-1]
