"""A translator over any session: what becomes of a text does not depend on the engine."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from edgeformer_runtime.encoding import encode_sources
from edgeformer_runtime.errors import InputTooLongError, OptionError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translator import Translator
from tests.toy import ToySession

WORDS = ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c", "d"]
END = WORDS.index("</s>")
DEFAULTS = DecodeOptions(beam_size=2)


def word_tokenizer(prefix: tuple[str, ...] = ()) -> Tokenizer:
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(library, prefix=prefix)


def translator_of(session: ToySession, *, workers: int = 1, truncate: bool = False) -> Translator[ToySession]:
    tokenizer = word_tokenizer()
    return Translator(session, tokenizer, tokenizer, DEFAULTS, workers=workers, truncate=truncate)


def test_options_replace_the_defaults_and_changes_replace_both() -> None:
    translator = translator_of(ToySession())
    options = DecodeOptions(beam_size=3, n_best=2)
    translations = [
        translator.translate(["a"])[0],
        translator.translate(["a"], options)[0],
        translator.translate(["a"], options, n_best=3)[0],
    ]
    assert [len(translation.hypotheses) for translation in translations] == [1, 2, 3]
    with pytest.raises(OptionError, match="`n_best` must be at most `beam_size`"):
        translator.translate(["a"], options, beam_size=1)


def test_a_text_beyond_the_limit_is_refused_before_any_work() -> None:
    session = ToySession(max_source_length=3)
    translator = translator_of(session)
    with pytest.raises(InputTooLongError) as caught:
        translator.translate(["a", "", "a b c"])
    assert (caught.value.index, caught.value.length, caught.value.limit) == (2, 4, 3)
    assert "Text 3 has 4 tokens, but the model accepts at most 3" in str(caught.value)
    assert session.rows == []
    assert translator.too_long(["a b", "a b c", "", "d d d d"]) == {1, 3}
    assert len(translator.translate(["a b"])) == 1


@pytest.mark.parametrize("prefix", [(), ("<s>",), ("<s>", "d")])
def test_what_a_model_reads_around_a_text_is_never_truncated(prefix: tuple[str, ...]) -> None:
    tokenizer = word_tokenizer(prefix)
    around = len(prefix) + 1
    for length in range(1, around + 1):
        with pytest.raises(OptionError, match=f"`max_input_length` must be at least {around + 1}"):
            encode_sources(tokenizer, ["a b c d a b"], length, truncate=True)
    for length in range(around + 1, around + 6):
        (source,) = encode_sources(tokenizer, ["a b c d a b"], length, truncate=True)
        assert source.ids == (*tokenizer.ids(prefix), *[4, 5, 6, 7, 4][: length - around], END)
