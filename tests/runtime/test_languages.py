"""Languages are found by any BCP 47 tag, and what a model does not have is an error everywhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.bundle.text_format import TextFormat, matching_code
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.translator import Translator
from tests.bundles import edit_manifest
from tests.commands import error, run
from tests.server.test_workspace import bundle_between

MEANT = [
    ("en-US", "en"),
    ("EN_gb", "en"),
    ("eng", "en"),
    ("en", "eng_Latn"),
    ("de-CH", "deu_Latn"),
    ("deu_Latn", "de"),
    ("fr", "fr_XX"),
    ("zh-CN", "zh"),
    ("zh-TW", "zh-Hant"),
    ("zh-TW", "zt"),
    ("zh-HK", "zho_Hant"),
    ("zh", "zho_Hans"),
    ("cmn-Hans", "zh"),
    ("pt-PT", "pt-BR"),
    ("pt-BR", "pt"),
    ("pt-BR", "pb"),
    ("nb", "no"),
    ("no", "nb"),
    ("nb-NO", "nob_Latn"),
    ("arb_Arab", "ar"),
    ("iw", "he"),
    ("sr-Latn", "sr"),
    ("fil", "tl"),
]
NOT_MEANT = [
    ("de", "en"),
    ("da", "no"),
    ("nn", "no"),
    ("hr", "bs"),
    ("hr", "sr"),
    ("lb", "de"),
    ("ca", "es"),
    ("uk", "ru"),
    ("zh-TW", "zh-Hans"),
    ("yue", "zh"),
    ("mul", "en"),
    ("und", "en"),
]


@pytest.mark.parametrize(("code", "own"), MEANT)
def test_a_tag_finds_the_code_of_a_model(code: str, own: str) -> None:
    others = ["ja", "ru", "es"]
    assert matching_code(code, [*others, own]) == own
    assert matching_code(own, [*others, code, own]) == own, "its own code comes first"


@pytest.mark.parametrize(("code", "own"), NOT_MEANT)
def test_another_language_is_not_found(code: str, own: str) -> None:
    assert matching_code(code, [own]) is None


@given(st.text(max_size=20), st.lists(st.text(max_size=12), max_size=4))
def test_any_text_is_a_code_or_none(code: str, known: list[str]) -> None:
    found = matching_code(code, known)
    assert found is None or found in known


def test_without_the_library_codes_must_be_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langcodes", None)
    assert matching_code("EN", ["en", "zt"]) == "en"
    assert matching_code("zh-hant", ["en", "zt"]) == "zt"
    assert matching_code("en-US", ["en"]) is None


def test_what_a_model_translates_between() -> None:
    tokens = {"en": "<en>", "fr": "<fr>"}
    both = TextFormat(languages=tokens, source_prefix=("{source_language}",), target_prefix=("{target_language}",))
    both_ways, en, fr = frozenset({"en", "fr"}), frozenset({"en"}), frozenset({"fr"})
    assert both.between("en", "fr") == (both_ways, both_ways)
    to_many = TextFormat(languages=tokens, source_prefix=("{target_language}",))
    assert to_many.between("de", "fr") == (frozenset({"de"}), both_ways)
    assert TextFormat().between("en", "fr") == (en, fr)
    assert TextFormat().between("", "") == (frozenset(), frozenset())
    assert both.chosen(("en", "fr"), ("", "fr-CA")) == ("", "fr")
    assert TextFormat().chosen(("en", "fr"), ("", "")) == ("en", "fr")
    assert TextFormat().chosen(("", ""), ("anything", "")) == ("anything", "")
    with pytest.raises(OptionError, match="`target_language` must be one of en, fr, but is `de`"):
        both.chosen(("en", "fr"), ("en", "de"))


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    return bundle_between(small_bundle, tmp_path, "some-name", "en", "fr")


def test_a_language_that_a_bundle_lacks_is_an_error_in_python(bundle: Path) -> None:
    for side, code, own in (("target_language", "de", "fr"), ("source_language", "fr", "en")):
        with pytest.raises(OptionError, match=f"`{side}` must be one of {own}, but is `{code}`"):
            Translator.open(bundle, **{side: code})  # type: ignore[arg-type]
    with Translator.open(bundle, source_language="en-US", target_language="fr_CA") as translator:
        assert translator.languages == ("en", "fr")
        assert translator.with_languages().languages == ("en", "fr")
        assert translator.with_languages("en-GB", "fra").languages == ("en", "fr")
        with pytest.raises(OptionError, match="`source_language` must be one of en"):
            translator.with_languages("de", "fr")
    edit_manifest(bundle, lambda tree: tree.update(source_language="", target_language=""))
    with Translator.open(bundle, target_language="de") as translator:
        assert translator.languages == ("", "de"), "a bundle that does not say may be between any"


def test_a_language_that_a_bundle_lacks_is_an_error_on_the_command_line(bundle: Path) -> None:
    for mode in ((), ("--lines",)):
        message = error("translate", *mode, bundle, "--target-language", "de", "dog")
        assert message == "`--target-language` must be one of fr, but is `de`."
        expected = run("translate", *mode, bundle, "dog").stdout
        options = ("--source-language", "en-US", "--target-language", "fra_Latn")
        assert run("translate", *mode, bundle, *options, "dog").stdout == expected
