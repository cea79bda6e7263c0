"""Identification of languages."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.errors import ConfigError, OptionError
from edgeformer_text import languages
from edgeformer_text.languages import detect_languages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog runs through the snow near the sea.", "en"),
        ("Un chien court dans la neige. https://example.com/the-dog-and-the-cat", "fr"),
        ("Der Hund läuft durch den Schnee.", "de"),
        ("我是学生，今天很高兴。", "zh"),
    ],
)
def test_languages_are_ranked(text: str, expected: str) -> None:
    ranked = detect_languages(text)
    assert ranked[0].language == expected
    assert [item.probability for item in ranked] == sorted((item.probability for item in ranked), reverse=True)
    assert sum(item.probability for item in ranked) == pytest.approx(1, abs=1e-3)


def test_the_beginning_of_a_long_text_is_read() -> None:
    beginning = "A dog runs through the snow near the sea. " * 100
    assert detect_languages(beginning + "Der Hund läuft. " * 1000) == detect_languages(beginning[:4096])


def test_threads_that_ask_first_at_the_same_time_share_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    langid = pytest.importorskip("py3langid.langid")
    opened, start, open_model = list[object](), Barrier(4), langid.LanguageIdentifier.from_model_file

    def noted(*arguments: object, **options: object) -> object:
        opened.append(arguments)
        return open_model(*arguments, **options)

    def detect(_: int) -> str:
        start.wait(60)
        return detect_languages("A dog runs through the snow near the sea.")[0].language

    monkeypatch.setattr(langid.LanguageIdentifier, "from_model_file", noted)
    languages._identifier.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(detect, range(4))) == {"en"}
    assert len(opened) == 1


def test_languages_may_be_given_with_their_scripts() -> None:
    ranked = detect_languages("Der Hund läuft durch den Schnee.", among=["fr", "de_DE"])
    assert [item.language for item in ranked] == ["de_DE", "fr"]
    assert ranked[0].probability + ranked[1].probability == pytest.approx(1)
    with pytest.raises(OptionError, match="None of the languages xx, yy can be detected"):
        detect_languages("dog", among=["yy", "xx"])


@given(text=st.text(max_size=50))
def test_any_text_is_read(text: str) -> None:
    assert bool(detect_languages(text)) <= any(map(str.isalpha, text))
    assert detect_languages("12 %s {name} https://example.com") == []


def test_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    languages._identifier.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"pip install 'edgeformer\[detect\]'"):
            detect_languages("dog")
    finally:
        languages._identifier.cache_clear()
