"""The text that an imported model translates for calibration, and warnings about it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgeformer.importers.hugging_face.byte_level import byt5_side
from edgeformer.importers.sample import SENTENCES, readable_text, sample_text
from edgeformer.importers.tokenizers import text_tokenizer
from edgeformer.run.folder import MAX_UNKNOWN, Run
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.tokenizers import Tokenizer
from tests.commands import succeeded
from tests.importers.marian_models import MARIAN
from tests.store import Store

ARABIC = "ابتثجحخدذرزسشصضطظعغفقكلمنهوي"


def of_words(words: list[str]) -> Tokenizer:
    """Build a tokenizer of words between spaces, as CTranslate2's models without SentencePiece have."""
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<s>", "</s>", *words])}
    special_tokens = ["<pad>", "<s>", "</s>"]
    content = text_tokenizer(vocabulary, special_tokens, "<unk>", pieces=None)
    return Tokenizer.from_content(content, "words")


@pytest.mark.parametrize("language", ["ar", "", "nonsense"])
def test_a_model_that_cannot_read_words_is_calibrated_on_its_vocabulary(language: str) -> None:
    tokenizer = of_words([*ARABIC])
    assert tokenizer.unknown_share(sample_text(language)) > 0.9
    text = readable_text(tokenizer, language)
    assert text == readable_text(tokenizer, language)
    assert len(text) == SENTENCES
    assert tokenizer.unknown_share(text) <= MAX_UNKNOWN
    assert len({letter for line in text for letter in line} - {" "}) == len(ARABIC)
    assert len({len(line) for line in text}) > 10


def test_a_model_that_reads_a_language_is_calibrated_on_it() -> None:
    text = TextFormat(pad="<pad>", bos="<pad>", eos="</s>")
    tokenizer = Tokenizer.from_content(byt5_side(384).content, "bytes", text)  # which reads everything
    assert readable_text(tokenizer, "ar") == sample_text("ar")
    words = of_words(sorted({word for line in sample_text("fr") for word in line.split()}))
    assert words.unknown_share(sample_text("fr")) == 0
    assert readable_text(words, "fr") == sample_text("fr")


def test_a_vocabulary_that_cannot_be_spelled_gets_what_it_knows_best() -> None:
    tokenizer = of_words(["two words", "a b", "c"])  # of which only the last one can be read
    text = readable_text(tokenizer, "en")
    assert tokenizer.unknown_share(text) < tokenizer.unknown_share(sample_text("en"))


@pytest.mark.parametrize(("texts", "share"), [([], 1.0), ([""], 1.0), (["ا ب x"], 1 / 3), (["ا", "x y"], 2 / 3)])
def test_share_of_unknown_tokens(texts: list[str], share: float) -> None:
    assert of_words([*ARABIC]).unknown_share(texts) == pytest.approx(share)


def test_unfit_samples_are_told(store: Store) -> None:
    run = store.run(variant="post_norm", pairs=20)
    assert run.sample_warnings == []
    run.source_tokenizer = of_words([*ARABIC])
    (warning,) = run.sample_warnings
    assert warning.startswith("100% of the tokens of the run's sample are unknown to the model. ")
    assert "`edgeformer import --text`" in warning


def test_an_import_warns_of_text_that_the_model_cannot_read(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    text = tmp_path / "text"
    letters = random.Random(0).choices("กขคงจฉชซฌญ", k=400)
    text.write_text("\n".join("".join(letters[at : at + 8]) for at in range(0, 400, 8)), encoding="utf-8")
    command = ["import", str(MARIAN / "ssru"), "--out", str(tmp_path / "run"), "--source-language", "en"]
    result = succeeded(*command, "--target-language", "fr", "--text", str(text))
    share = Run.open(tmp_path / "run").source_tokenizer.unknown_share(text.read_text(encoding="utf-8").splitlines())
    assert share > MAX_UNKNOWN
    assert f"Warning: {share:.0%} of the tokens of the run's sample are unknown to the model." in result.stderr
