"""The models that come with the repository."""

from __future__ import annotations

import re

import pytest

from edgeformer.config import load_recipe
from edgeformer_runtime import Translator
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.check.golden import check_golden
from edgeformer_runtime.models.names import list_models, named_models
from tests.conftest import ROOT

MODELS = ROOT / "models"
NAMES = ["en-fr", "fr-en"]
MAX_BYTES = 5_500_000

# Sentences of everyday life, and words that any correct translation has.
EXPECTED = {
    "en-fr": {
        "Where is the train station?": r"gare",
        "I don't speak French.": r"parle pas (le )?français",
        "My brother has two dogs.": r"^Mon frère a deux chiens\.$",
        "How much does it cost?": r"^Combien .*\?$",
    },
    "fr-en": {
        "Où est la gare ?": r"station",
        "Je ne parle pas anglais.": r"(don't|do not|can't) speak English",
        "Mon frère a deux chiens.": r"^My brother has two dogs\.$",
        "Combien ça coûte ?": r"^How much .*\?$",
    },
}


def test_commands_find_them_by_name() -> None:
    assert [model.name for model in named_models([MODELS])] == NAMES
    assert list_models([MODELS])[1] == [], "programs beside the models are not mentioned"


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_small_and_says_where_it_comes_from(name: str) -> None:
    folder = MODELS / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= MAX_BYTES
    provenance = open_bundle(folder).manifest.provenance
    assert provenance is not None
    card = (folder / "README.md").read_text("utf-8")
    for text in (card, (MODELS / "README.md").read_text("utf-8")):
        assert "Tatoeba" in text
        assert "CC-BY 2.0 FR" in text


def test_suppressed_words_do_not_occur_within_sentences() -> None:
    with Translator.open(MODELS / "en-fr") as translator:
        free, without = (
            translator.translate(["The dog sees a cat."], suppress_sequences=words)[0].text for words in ([], ["chat"])
        )
    assert " chat" in free
    assert "chat" not in without


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_shape_of_the_recipe_that_its_training_began_with(name: str) -> None:
    manifest, recipe = open_bundle(MODELS / name).manifest, load_recipe(f"tatoeba-{name}")
    assert (manifest.family, manifest.target_vocab_size) == (recipe.model["family"], recipe.tokenizer.vocab_size)
    assert (manifest.source_language, manifest.target_language) == (recipe.source_language, recipe.target_language)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_computes_its_golden_examples_and_translates(name: str) -> None:
    translator = Translator.open(MODELS / name, threads=1)
    assert not check_golden(translator).failed
    for source, pattern in EXPECTED[name].items():
        (translation,) = translator.translate([source])
        assert re.search(pattern, translation.text), translation.text
