"""A reader that knows ``docs/contract.md`` only translates as the runtime does: every family, precision and rule."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer.families import family_names, is_shipped
from edgeformer_runtime import Translator
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import Precision
from tests.bundles import copy_of, edit_manifest
from tests.contract import reader
from tests.contract.reader import Reader
from tests.store import COMMITTED, CPU_PRECISIONS, Store
from tests.variants import FAST, VARIANTS

CASES = json.loads((COMMITTED / "fp32" / "golden.json").read_text("utf-8"))["cases"]
TEXTS = list(dict.fromkeys(case["text"] for case in CASES))
"""Sentences of the language of all small models."""
SCORE = 1e-5
"""Largest difference of a score: sums of single precision in another order."""
USUAL: list[tuple[Precision, Target]] = [("fp32", "ort")]
RARER: list[tuple[Precision, Target]] = [
    ("int8", "ort"),
    ("fp32", "portable"),
    ("int8", "portable"),
    ("int4", "ort"),
]
"""Precisions and targets of bundles for CPUs: of all variants, and of one with each kind of state."""
EXPORTS = [
    pytest.param(variant, *export, marks=[] if (variant, *export) == ("ssru", "fp32", "ort") else [pytest.mark.slow])
    for variants, exports in ((sorted(VARIANTS), USUAL), (sorted(FAST), RARER))
    for variant in variants
    for export in exports
]
RULES: dict[str, dict[str, Any]] = {
    "late": {"generation": {"early_stopping": False}},
    "late and long": {"generation": {"early_stopping": False, "length_penalty": 1.7}},
    "shrinking": {"generation": {"beam_shrinks": True}},
    "without the end": {"generation": {"length_includes_end": False, "length_penalty": 0.6}},
    "undivided": {"generation": {"length_penalty": 0.0}},
    "short": {"generation": {"max_len_a": 0.4}},
    "limited": {"max_target_length": 9},
    "forbidding": {"special": {"forbid": [224, 292]}},
    "prefixed": {"special": {"prefix": [267]}},
    "prefixed, shrinking, forbidding": {
        "special": {"prefix": [85, 293], "forbid": [274]},
        "generation": {"beam_shrinks": True},
    },
}
"""What manifests may say of a search, by what changes."""


def compare(folder: Path, *, beams: int) -> None:
    """Compare translations, of a batch unless the runtime translates one sentence at a time."""
    engine = "kernels" if (folder / "shortlist.bin").exists() else "onnxruntime"
    with Translator.open(folder, engine=engine, threads=1) as translator:
        expected = translator.translate(TEXTS, beam_size=beams, n_best=beams)
        together = beams > 1 or translator.session.row_multiple == 1
    sources, own = [translation.source.ids for translation in expected], Reader(folder)
    groups = [sources] if together else [[source] for source in sources]
    found = [hypotheses for group in groups for hypotheses in own.translate(group, beams)]
    assert len(found) == len(TEXTS)
    for hypotheses, translation in zip(found, expected, strict=True):
        wanted = translation.hypotheses
        assert [(ids, finished) for _, ids, finished in hypotheses[:beams]] == [
            (hypothesis.ids, hypothesis.finished) for hypothesis in wanted
        ]
        assert [score for score, *_ in hypotheses[:beams]] == pytest.approx(
            [hypothesis.score for hypothesis in wanted], abs=SCORE
        )


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_committed_bundles(precision: Precision, beams: int) -> None:
    compare(COMMITTED / precision, beams=beams)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("rules", RULES)
def test_rules_of_the_search(rules: str, beams: int, tmp_path: Path) -> None:
    entries = json.loads((COMMITTED / "fp32" / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    names = {index: name for name, index in entries.items()}

    def change(manifest: dict[str, Any]) -> None:
        for name, value in RULES[rules].items():
            manifest[name] = {**manifest[name], **value} if isinstance(value, dict) else value
        special = manifest["special"]
        manifest["text"] |= {
            "forbid": [names[index] for index in special["forbid"]],
            "target_prefix": [names[index] for index in special["prefix"]],
        }

    compare(edit_manifest(copy_of(COMMITTED / "fp32", tmp_path), change), beams=beams)


@pytest.mark.parametrize(("variant", "precision", "target"), EXPORTS)
def test_every_family_and_kind_of_state(
    variant: str, precision: Precision, target: Target, store: Store, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    bundle = copy_of(store.bundle(variant, precision, target), tmp_path)
    edit_manifest(bundle, lambda tree: tree.update(max_target_length=12))  # random weights end no sentence
    for beams in (1, 4):
        compare(bundle, beams=beams)


@pytest.mark.slow
def test_half_precision(store: Store) -> None:
    pytest.importorskip("torch")
    for beams in (1, 4):
        compare(store.bundle(precision="fp16", steps=100), beams=beams)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["post_norm", pytest.param("ssru", marks=pytest.mark.slow)])
def test_shortlists(variant: str, store: Store, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    from tests.shortlists import bundle_of, lists_of

    lists = lists_of(store.run(variant, steps=100), always=40)
    folder = bundle_of(store, lists, tmp_path / "bundle", variant=variant, steps=100)
    for beams in (1, 4):
        compare(folder, beams=beams)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    folder = copy_of(COMMITTED / "int8", tmp_path)
    (folder / "weights.bin").write_bytes(b"\1" + (folder / "weights.bin").read_bytes()[1:])
    with pytest.raises(ValueError, match=r"weights\.bin"):
        Reader(folder)


def test_the_reader_is_short_and_knows_nothing_of_ours() -> None:
    text = Path(reader.__file__).read_text("utf-8")
    assert len(text.splitlines()) <= 150
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    packages = {name.partition(".")[0] for name in names}
    assert packages - sys.stdlib_module_names == {"numpy", "onnxruntime"}


def test_every_family_is_read() -> None:
    assert {settings["family"] for settings in VARIANTS.values()} == set(filter(is_shipped, family_names()))
