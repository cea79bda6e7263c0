"""The manifest: every contradiction is found, and all of them are listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.manifest import decode_manifest
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.bundle.report import Report
from edgeformer_runtime.contract import SCHEMA_REVISION, StateTensor, state_problems
from edgeformer_runtime.errors import BundleError
from tests.bundles import copy_of, edit_manifest, write_manifest

Tree = dict[str, Any]


@pytest.fixture
def tree(small_bundle: Path) -> Tree:
    content: Tree = json.loads((small_bundle / "manifest.json").read_bytes())
    return content


def problem(tree: Tree) -> str:
    with pytest.raises(BundleError) as caught:
        decode_manifest(json.dumps(tree).encode())
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\x00" * 40, b'{"schema_revision": 1, "family": "\xff"}', b"{" + b'"a":{' * 100_000],
    ids=["empty", "cut", "list", "null", "zeros", "not-utf8", "deep"],
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BundleError, match="not valid JSON"):
        decode_manifest(data)


@pytest.mark.parametrize("revision", [0, SCHEMA_REVISION + 1, "1", None])
def test_another_schema_revision_is_named(tree: Tree, revision: object) -> None:
    tree["schema_revision"] = revision
    message = problem(tree)
    assert f"schema revision {revision}" in message
    assert f"reads revision {SCHEMA_REVISION}" in message


@pytest.mark.parametrize("revision", [SCHEMA_REVISION - 1, SCHEMA_REVISION])
@pytest.mark.parametrize(("name", "shown"), [("int8-block", "int8-block"), (["int8"], "['int8']")])
def test_a_precision_that_is_gone_is_named_with_those_to_export_in(
    tree: Tree, revision: int, name: object, shown: str
) -> None:
    tree["schema_revision"] = revision
    tree["precision"]["decoder.onnx"] = name
    message = f"The bundle is in {shown}, a precision that this runtime does not have; export the model again in int8"
    assert message in problem(tree)


def test_another_revision_is_told_even_if_nothing_else_is_understood() -> None:
    assert "schema revision 99" in problem({"schema_revision": 99, "wholly": "different"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree.update(surprise=1), "surprise"),
        (lambda tree: tree["special"].update(mask=9), "mask"),
        (lambda tree: tree.pop("state"), "state"),
        (lambda tree: tree.update(parameters="many"), "parameters"),
        (lambda tree: tree["state"][0].update(kind="frozen"), "kind"),
        (lambda tree: tree["state"][0].update(dtype="bfloat16"), "dtype"),
        (lambda tree: tree.update(target="tensorrt"), "target"),
        (lambda tree: tree["generation"].update(beam_size=10**30), "$.generation.beam_size"),
        (lambda tree: tree.update(parameters=2**63), "$.parameters"),
        (lambda tree: tree.update(family="x" * 201), "$.family"),
        (lambda tree: tree.update(producer="\x1b[31m"), "$.producer"),
        (lambda tree: tree.update(max_source_length=0), ">= 1 - at `$.max_source_length`"),
        (lambda tree: tree.update(target_vocab_size=-1), ">= 1 - at `$.target_vocab_size`"),
        (lambda tree: tree["generation"].update(beam_size=0), ">= 1 - at `$.generation.beam_size`"),
        (lambda tree: tree["generation"].update(beam_size=1025), "<= 1024 - at `$.generation.beam_size`"),
        (lambda tree: tree["generation"].update(length_penalty=11), "<= 10.0 - at `$.generation.length_penalty`"),
        (lambda tree: tree.update(max_target_length=10**6), "<= 65536 - at `$.max_target_length`"),
        (lambda tree: tree.update(source_vocab_size=2**40), "<= 16777216 - at `$.source_vocab_size`"),
        (lambda tree: tree["opsets"].update({"": 10**6}), "<= 1000 - at `$.opsets[...]`"),
        (
            lambda tree: tree["files"].update({f"{i}": {"size": 1, "sha256": ""} for i in range(65)}),
            "length <= 64 - at `$.files`",
        ),
    ],
)
def test_an_unknown_missing_or_ill_typed_field_is_named(
    tree: Tree, change: Callable[[Tree], object], words: str
) -> None:
    change(tree)
    message = problem(tree)
    assert "schema" in message
    assert words in message


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "a\\b", "C:evil", "", ".", "..", "folder/", "nul\0byte"]
)
def test_a_name_that_leaves_the_folder_is_refused(tree: Tree, name: str) -> None:
    tree["files"][name] = {"size": 1, "sha256": "0" * 64}
    shown = name.replace("\0", " ")  # control characters do not reach the terminal
    assert f"file `{shown}` must be a plain name inside the bundle" in problem(tree)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["special"].update(eos=10**6), "special token `eos` is outside the vocabulary"),
        (lambda tree: tree["special"].update(pad=-1), "special token `pad` is outside the vocabulary"),
        (lambda tree: tree["files"].pop("decoder.onnx"), "file `decoder.onnx` is used but not listed with a hash"),
        (lambda tree: tree["files"].pop("weights.bin"), "file `weights.bin` is used but not listed with a hash"),
        (lambda tree: tree["tokenizers"].update(source="x.json"), "file `x.json` is used but not listed with a hash"),
        (lambda tree: tree["precision"].pop("encoder.onnx"), "`precision` lacks `encoder.onnx`"),
        (lambda tree: tree["special"].update(unk=10**6), "special token `unk` is outside the vocabulary"),
        (lambda tree: tree["precision"].update({"weights.bin": "fp32"}), "has `weights.bin`, which is not a graph"),
        (lambda tree: tree["state"][0]["axes"].append(2**30), "an axis above 1048576"),
        (lambda tree: tree["state"][0]["axes"].extend([1] * 20), "more than 16 axes"),
        (lambda tree: tree["files"]["golden.json"].update(size=2**40), "file `golden.json` must have at most"),
        (lambda tree: tree["files"]["weights.bin"].update(size=-1), "file `weights.bin` must have at most"),
        (lambda tree: tree["files"].update({"x" * 300: {"size": 1, "sha256": ""}}), "must be a plain name"),
        (lambda tree: tree["files"].update({"\x1b[2J": {"size": 1, "sha256": ""}}), "must be a plain name"),
    ],
)
def test_each_contradiction_is_named(tree: Tree, change: Callable[[Tree], object], words: str) -> None:
    change(tree)
    message = problem(tree)
    assert "inconsistent" in message
    assert words in message


def test_all_contradictions_are_listed_together(small_bundle: Path, tmp_path: Path) -> None:
    def change(tree: Tree) -> None:
        mask, constant, twice, *_ = (entry for entry in tree["state"] if entry["kind"] == "constant")
        cache, other, *_ = (entry for entry in tree["state"] if entry["kind"] == "cache")
        mask["axes"] = []
        constant["axes"][0] = "S"
        cache["axes"] = ["R", 4, 8]
        other["name"] = twice["name"]
        tree["special"]["eos"] = 10**6
        tree["files"]["../up"] = {"size": 0, "sha256": ""}

    bundle = edit_manifest(copy_of(small_bundle, tmp_path), change)
    table = json.loads((bundle / "manifest.json").read_bytes())["state"]
    mask, constant, twice, *_ = (entry["name"] for entry in table if entry["kind"] == "constant")
    cache = next(entry["name"] for entry in table if entry["kind"] == "cache")
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    message = str(caught.value)
    assert f"state `{mask}` has no axes" in message
    assert f"state `{constant}` (constant) must have first axis N or R, but has S" in message
    assert f"state `{cache}` (cache) must have axis P or T once" in message
    assert f"state `{twice}` is listed 2 times" in message
    assert "special token `eos` is outside the vocabulary" in message
    assert "file `../up` must be a plain name" in message


def tensor(**changes: Any) -> StateTensor:
    return StateTensor(**{"name": "t", "kind": "cache", "dtype": "float32", "axes": ("R", "P", 8), **changes})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (tensor(), None),
        (tensor(axes=("R", 4, "P", 8)), None),
        (tensor(kind="constant", axes=("N", "S", 4)), None),
        (tensor(kind="constant", axes=("R", 4)), None),
        (tensor(kind="recurrent", axes=("R", 4)), None),
        (tensor(kind="recurrent", axes=("N", 4)), "must have first axis R, but has N"),
        (tensor(kind="constant", axes=(4, "S")), "must have first axis N or R, but has 4"),
        (tensor(kind="constant", axes=("N", "P")), "may not have axis P"),
        (tensor(kind="recurrent", axes=("R", "P")), "may not have axis P"),
        (tensor(axes=("R", "P", "S")), "may not have axis S"),
        (tensor(axes=("R", "P", "P")), "must have axis P or T once"),
        (tensor(axes=("R", "P", 0)), "has a fixed axis below 1"),
        (tensor(axes=("R", "P", "Q")), "may not have axis Q"),
    ],
)
def test_state_tensors(entry: StateTensor, words: str | None) -> None:
    problems = state_problems((entry,))
    assert len(problems) == (words is not None)
    assert words is None or words in problems[0]


def test_a_number_of_many_digits_is_refused(small_bundle: Path) -> None:
    data = (small_bundle / "manifest.json").read_bytes()
    for number in (b"9" * 5000, b"1e999", b"-" + b"9" * 4000):
        with pytest.raises(BundleError, match=r"^The bundle's manifest .{1,400}$"):
            decode_manifest(data.replace(b'"beam_size": 4', b'"beam_size": ' + number, 1))


def test_a_long_manifest_is_not_read(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    for name in ("manifest.json", "manifest.json.sha256"):
        with (bundle / name).open("r+b") as file:
            file.truncate(2**40)  # without any blocks on the disk
        with pytest.raises(BundleError, match=rf"`{name}` has more than 16,777,216 bytes"):
            open_bundle(bundle)
        (bundle / name).write_bytes((small_bundle / name).read_bytes())


def test_special_tokens_have_defaults(small_bundle: Path, tmp_path: Path, tree: Tree) -> None:
    """A manifest may leave out what has a default."""
    del tree["special"], tree["provenance"], tree["report"]
    tree["special"] = {}
    bundle = copy_of(small_bundle, tmp_path)
    write_manifest(bundle, json.dumps(tree).encode())
    manifest = open_bundle(bundle).manifest
    assert (manifest.special.pad, manifest.special.bos, manifest.special.eos) == (0, 2, 3)
    assert (manifest.provenance, manifest.report) == (Provenance(), Report())
