"""``edgeformer verify``: its exit code is what a build script looks at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from edgeformer.train.run import Run
from edgeformer_runtime.bundle.manifest import Precision
from tests.bundles import copy_of, edit_golden, rehash
from tests.commands import error, run
from tests.factory import PAIRS, small_run


def verified(bundle: Path, *options: str | Path, code: int = 0) -> dict[str, Any]:
    result = run("verify", bundle, "--json", *options)
    assert result.exit_code == code, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    assert content["passed"] == (code == 0)
    assert bool(content["problems"]) == (code != 0)
    return content


@pytest.mark.parametrize("precision", [name for name in get_args(Precision) if name != "fp16"])
def test_a_sound_bundle_passes(small_bundles: dict[Precision, Path], precision: Precision) -> None:
    bundle = small_bundles[precision]
    content = verified(bundle)
    assert content["golden"]["cases"] == 12
    assert content["parity"] is None
    result = run("verify", bundle)
    assert result.exit_code == 0
    for line in ("Hashes and schema: ok, 7 files", "Golden examples: 12 of 12 ok", "the same kernels as at export"):
        assert line in result.stdout
    assert f"all known to onnxruntime {content['machine']['engine']}" in result.stdout
    assert content["machine"]["provider"] == "CPUExecutionProvider"
    assert result.stdout.endswith("PASSED\n")


def test_an_example_changed_with_its_hash_fails(small_bundle: Path, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["cases"][4]["ids"][0] += 1
        tree["cases"][7]["score"] -= 0.5

    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "golden.json").write_bytes((bundle / "golden.json").read_bytes() + b" ")
    assert "`golden.json` has" in error("verify", bundle)
    assert "`golden.json` has" in verified(bundle, code=1)["problems"][0]
    edit_golden(bundle, change)
    target, token, score = verified(bundle, code=1)["problems"]
    assert "the target tokenizer `tokenizer.json` is not the one of the examples" in target
    assert "example 5 (beam 1), token 1 differs" in token
    assert "example 8 (beam 4) has score" in score
    result = run("verify", bundle)
    assert result.exit_code == 1
    assert "Golden examples: 10 of 12 ok" in result.stdout
    assert "example 5 (beam 1)" in result.stdout
    assert result.stdout.endswith("FAILED\n")


def test_weights_changed_with_their_hash_fail(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    weights = bytearray((bundle / "weights.bin").read_bytes())
    weights[1000:3000] = bytes(2000)
    (bundle / "weights.bin").write_bytes(weights)
    assert verified(rehash(bundle), code=1)["problems"]


def test_a_bundle_passes_against_the_run_it_comes_from(small_bundle: Path, taught_run: Run) -> None:
    content = verified(small_bundle, "--checkpoint", taught_run.path)
    parity = content["parity"]
    assert parity["precision"] == "fp32"
    assert parity["logits"]["max_difference"] <= 1e-4
    assert parity["logits"]["top1_agreement"] == 1
    assert [(entry["beam_size"], entry["sentences"], entry["identical"]) for entry in parity["tokens"]] == [
        (1, len(PAIRS), len(PAIRS)),
        (4, len(PAIRS), len(PAIRS)),
    ]


@pytest.mark.parametrize("precision", ["int8", "int8-block", "int4"])
def test_integers_pass_against_their_run_and_tell_what_differs(
    small_bundles: dict[Precision, Path], taught_run: Run, precision: Precision
) -> None:
    parity = verified(small_bundles[precision], "--checkpoint", taught_run.path, "--beam", "1")["parity"]
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


def test_another_model_of_the_same_shape_fails(small_bundle: Path, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", seed=7)
    problems = " ".join(verified(small_bundle, "--checkpoint", other.path, "--beam", "1", code=1)["problems"])
    assert "logits differ by up to" in problems
    assert "beam 1:" in problems


def test_a_model_of_another_shape_is_refused(small_bundle: Path, tmp_path: Path) -> None:
    other = small_run(tmp_path / "other", "uneven_depth", vocab_size=290)
    message = error("verify", small_bundle, "--checkpoint", other.path)
    assert "is not the model of this bundle" in message
    for part in ("source vocabulary", "target vocabulary", "state table", "source tokenizer", "target tokenizer"):
        assert f"its {part} differs from the bundle's" in message


def test_source_or_beam_need_a_checkpoint(small_bundle: Path) -> None:
    assert "need --checkpoint" in error("verify", small_bundle, "--source", "x", code=2)
    assert "need --checkpoint" in error("verify", small_bundle, "--beam", "2", code=2)


def test_what_cannot_be_opened_is_named(small_bundle: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert f"`{missing}` does not exist" in error("verify", missing)
    assert f"`{missing}`" in error("verify", small_bundle, "--checkpoint", missing)
    assert "must be one of cpu, cuda" in error("verify", small_bundle, "--device", "npu")


def test_nothing_to_compare_is_an_error(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    for content in ("", "\n \n"):
        (tmp_path / "empty").write_text(content, encoding="utf-8")
        message = error("verify", small_bundle, "--checkpoint", taught_run.path, "--source", tmp_path / "empty")
        assert "holds no sentence to compare on" in message


def test_a_line_too_long_is_named_by_its_number(small_bundle: Path, taught_run: Run, tmp_path: Path) -> None:
    lines = ["The sea."] * 40 + ["", "word " * 400, "The sea."]
    (tmp_path / "text").write_text("\n".join(lines) + "\n", encoding="utf-8")
    message = error("verify", small_bundle, "--checkpoint", taught_run.path, "--source", tmp_path / "text")
    assert "Text 42 has" in message


def test_a_failing_example_may_hold_brackets(small_bundle: Path, tmp_path: Path) -> None:
    copy = edit_golden(
        copy_of(small_bundle, tmp_path / "copy"),
        lambda tree: tree["cases"][0].update(text=tree["cases"][0]["text"] + "[/red]", ids=[]),
    )
    result = run("verify", copy)
    assert result.exit_code == 1
    assert "[/red]" in result.stdout
    assert "Traceback" not in result.output
