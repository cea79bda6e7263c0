"""``edgeformer verify``: its exit code is what a build script looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bundles import copy_of, edit_golden
from tests.commands import error, run, verified


def test_a_sound_bundle_passes(small_bundle: Path) -> None:
    content = verified(small_bundle)
    assert content["golden"]["cases"] == 12
    assert content["parity"] is None
    result = run("verify", small_bundle)
    assert result.exit_code == 0
    for line in ("Hashes and schema: ok, 7 files", "Golden examples: 12 of 12 ok"):
        assert line in result.stdout
    assert f"onnxruntime {content['machine']['engine']}" in result.stdout
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
    assert "the target tokenizer `tokenizer.json` does not fit the examples" in target
    assert "example 5 (beam 1), token 1 differs" in token
    assert "example 8 (beam 4) has score" in score
    result = run("verify", bundle)
    assert result.exit_code == 1
    assert "Golden examples: 10 of 12 ok" in result.stdout
    assert "example 5 (beam 1)" in result.stdout
    assert result.stdout.endswith("FAILED\n")


def test_source_or_beam_need_a_checkpoint(small_bundle: Path) -> None:
    assert "need --checkpoint" in error("verify", small_bundle, "--source", "x", code=2)
    assert "need --checkpoint" in error("verify", small_bundle, "--beam", "2", code=2)


def test_what_cannot_be_opened_is_named(small_bundle: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert f"`{missing}` does not exist" in error("verify", missing)
    assert "must be one of cpu, cuda" in error("verify", small_bundle, "--device", "npu")


def test_a_failing_example_may_hold_brackets(small_bundle: Path, tmp_path: Path) -> None:
    copy = edit_golden(
        copy_of(small_bundle, tmp_path / "copy"),
        lambda tree: tree["cases"][0].update(text=tree["cases"][0]["text"] + "[/red]", ids=[]),
    )
    result = run("verify", copy)
    assert result.exit_code == 1
    assert "[/red]" in result.stdout
    assert "Traceback" not in result.output


def test_examples_with_an_empty_output_are_counted(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    edit_golden(bundle, lambda tree: tree["cases"][4].update(ids=[], output=""))
    result = run("verify", bundle)
    assert "Golden examples: 11 of 12 ok (1 with an empty output), largest score difference" in result.stdout
