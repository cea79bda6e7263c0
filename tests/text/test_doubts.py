"""Sentences of low confidence are marked in results, on the command line and by the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeformer_runtime.errors import BundleError, OptionError
from edgeformer_runtime.translator import Translator
from edgeformer_text import TextOptions, TextTranslator
from edgeformer_text.text_translator import MIN_CONFIDENCE
from tests.bundles import copy_of, edit_manifest
from tests.commands import run
from tests.server.http import serving
from tests.server.test_workspace import bundle_between

TEXT = "The old dog runs near the sea. Zzgl brmf. 42"


def measured(bundle: Path, value: object) -> Path:
    return edit_manifest(bundle, lambda tree: tree.update(traits={"min_confidence": value}))


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    return bundle_between(small_bundle, tmp_path, "en-fr", "en", "fr")


def confidences(bundle: Path) -> list[float]:
    with Translator.open(bundle) as translator:
        (result,) = TextTranslator(translator).translate([TEXT])
    return [sentence.confidence for sentence in result.sentences if sentence.confidence is not None]


def test_a_sentence_is_doubtful_below_the_threshold_of_its_bundle(bundle: Path) -> None:
    low, high = sorted(confidences(bundle))
    for least, count in ((0, 0), (low, 0), ((low + high) / 2, 1), (1, 2)):
        with Translator.open(measured(bundle, least)) as translator:
            assert TextTranslator(translator.with_languages("en", "fr")).options.min_confidence == least
            (result,) = TextTranslator(translator).translate([TEXT])
            assert [sentence.is_doubtful for sentence in result.sentences].count(True) == count
            assert not result.sentences[-1].is_doubtful, "it is copied"
            (result,) = TextTranslator(translator, TextOptions(min_confidence=1)).translate([TEXT])
            assert [sentence.is_doubtful for sentence in result.sentences] == [True, True, False]
            (result,) = TextTranslator(translator).translate([TEXT], return_token_scores=False)
            assert not any(sentence.is_doubtful for sentence in result.sentences), "nothing is known"
    with pytest.raises(BundleError, match="min_confidence"):
        Translator.open(measured(bundle, 1.5))
    with pytest.raises(OptionError, match="`min_confidence` must be from 0 to 1"):
        TextTranslator(translator, TextOptions(min_confidence=2))


def test_a_bundle_that_was_not_measured_has_the_default(small_bundle: Path, tmp_path: Path) -> None:
    unmeasured = copy_of(small_bundle, tmp_path)
    edit_manifest(unmeasured, lambda tree: tree.pop("traits", None))
    with Translator.open(unmeasured) as translator:
        assert TextTranslator(translator).options.min_confidence == MIN_CONFIDENCE


def test_the_command_says_once_how_many(bundle: Path, tmp_path: Path) -> None:
    low, high = sorted(confidences(bundle))
    measured(bundle, (low + high) / 2)
    for arguments in ((TEXT, TEXT), ("--input", "-")):
        result = run("translate", bundle, *arguments, stdin=f"{TEXT}\n{TEXT}\n")
        assert result.stderr == "Warning: 2 of 4 sentences may be wrong; --json tells which.\n"
    record = json.loads(run("translate", bundle, "--json", TEXT).stdout)
    assert sorted(sentence["is_doubtful"] for sentence in record["sentences"]) == [False, False, True]
    source = tmp_path / "page.md"
    source.write_text(f"{TEXT}\n", encoding="utf-8")
    result = run("translate", bundle, source, "-o", tmp_path / "out.md")
    assert result.stderr == "Warning: 1 of 2 sentences may be wrong.\n"
    measured(bundle, 0)
    assert run("translate", bundle, TEXT).stderr == ""
    assert run("translate", "--lines", measured(bundle, 0.99), TEXT).stderr == ""


def test_a_model_that_failed_its_validation_says_so_at_every_use(bundle: Path, tmp_path: Path) -> None:
    warning = "Warning: The model failed the validation of its own training, so any translation may be wrong."
    measured(bundle, 1)
    (tmp_path / "page.md").write_text(TEXT, encoding="utf-8")
    output = tmp_path / "out.md"
    for arguments in ([TEXT], ["--lines", TEXT], ["--json", TEXT], [tmp_path / "page.md", "-o", output]):
        assert run("translate", bundle, *arguments).stderr.splitlines()[0] == warning
    with Translator.open(bundle) as translator:
        (result,) = TextTranslator(translator).translate([TEXT])
        assert [sentence.is_doubtful for sentence in result.sentences] == [True, True, False]


def test_the_server_marks_sentences(bundle: Path) -> None:
    low, high = sorted(confidences(bundle))
    with serving(measured(bundle, (low + high) / 2)) as client:
        body = {"texts": [TEXT], "source": "en", "target": "fr", "scores": True}
        sentences = client.json("/v1/translate", body).json["translations"][0]["sentences"]
        assert sorted(sentence.get("is_doubtful", False) for sentence in sentences) == [False, False, True]
        for sentence in sentences:
            assert sentence.get("is_doubtful", False) == (sentence.get("confidence", 1) < (low + high) / 2)
