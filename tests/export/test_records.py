"""What is recorded in a bundle's manifest, against what trainer and exporter know."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from edgeformer.data.filters import FilterReport
from edgeformer.run.info import RunInfo, Validation
from edgeformer_export.card import model_card
from edgeformer_runtime.bundle.manifest import decode_manifest
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.errors import BundleError
from tests.conftest import ROOT


def test_a_record_of_training_survives_the_manifest(small_bundle: Path) -> None:
    validation = Validation(step=7, loss=2.5, perplexity=9.0, bleu=31.25, exact_match=0.5, sentences=1234, minutes=1.5)
    info = RunInfo(
        validations=(validation,),
        final=validation,
        filters=FilterReport(kept=9, empty=1, too_long=0, ratio=2, duplicate=3),
        provenance={"name": "multi30k-en-fr", "licence": "free", "origin": "here", "sha256": {"a": "b"}},
    )
    tree = json.loads((small_bundle / "manifest.json").read_bytes())
    tree["provenance"]["training"] = msgspec.to_builtins(info)
    manifest = decode_manifest(json.dumps(tree).encode())
    assert msgspec.convert(manifest.provenance.training, RunInfo) == info
    card = model_card(manifest, 0)
    assert "BLEU 31.25 on 1,234 validation sentences" in card
    assert "- name: multi30k-en-fr\n- license: free\n- origin: here\n" in card
    assert "Multi30k task 1" in card


@pytest.mark.parametrize("name", ["en-fr", "fr-en"])
def test_the_choice_of_an_earlier_version_is_shown_as_it_was(name: str) -> None:
    folder = ROOT / "models" / name
    card, before = model_card(open_bundle(folder).manifest, 0), (folder / "README.md").read_text(encoding="utf-8")
    (chosen,) = [line for line in before.splitlines() if line.endswith("| chosen |")]
    assert chosen in card.splitlines()


def test_a_report_is_written_as_it_is_read(small_bundle: Path) -> None:
    data = (small_bundle / "manifest.json").read_bytes()
    manifest = decode_manifest(data)
    assert manifest.report.parity is not None
    assert manifest.provenance != Provenance()
    assert json.loads(msgspec.json.encode(manifest)) == json.loads(data)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"report": {"parity": []}}, r"report\.parity"),
        ({"report": {"surprise": 1}}, "surprise"),
        ({"report": {"operators": {"decoder.onnx": {"Add": "many"}}}}, "operators"),
        ({"report": {"quantization": {"tensors": [{"name": 1}]}}}, "quantization"),
        ({"provenance": {"training": {"provenance": {"licence": 1}}}}, "licence"),
        ({"provenance": {"training": {"provenance": "text"}}}, "Expected `object`"),
    ],
)
def test_an_ill_typed_record_is_named(small_bundle: Path, part: dict[str, object], words: str) -> None:
    tree = {**json.loads((small_bundle / "manifest.json").read_bytes()), **part}
    with pytest.raises(BundleError, match=words):
        decode_manifest(json.dumps(tree).encode())
