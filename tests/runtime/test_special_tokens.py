"""Special tokens around a source: however many there are, a translation is aligned with the words of the text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, product

import numpy as np
import pytest
import tokenizers
from msgspec.structs import replace
from tokenizers import decoders, models, pre_tokenizers

from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE, TARGET_LANGUAGE, TextFormat
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import FloatArray, IntArray
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.tokenizers.tokenizer import special_tokens
from edgeformer_runtime.translator import AnyTranslator, Translator
from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.toy import Ids, ToySession, ToyState

NAMES = ["<pad>", "<unk>", "<s>", "</s>", "<en>", "<fr>", "▁the", "▁dog", "▁runs", "▁near", "▁a", "▁red", "▁car", "▁."]
PREFIXES = [(), ("<s>",), (SOURCE_LANGUAGE,), (TARGET_LANGUAGE, "<s>"), ("<s>", SOURCE_LANGUAGE, "<s>")]
SUFFIXES = [(), ("</s>",), ("</s>", SOURCE_LANGUAGE), (TARGET_LANGUAGE, "</s>", "</s>")]
FORCED = cycle([(), (TARGET_LANGUAGE,), ("<s>", TARGET_LANGUAGE)])
FORMATS = [
    TextFormat(source_prefix=prefix, source_suffix=suffix, target_prefix=forced, languages={"en": "<en>", "fr": "<fr>"})
    for (prefix, suffix), forced in zip(product(PREFIXES, SUFFIXES), FORCED, strict=False)
]
PLAIN = FORMATS[0]
"""Neither a prefix nor a suffix."""


class Attending(ToyState):
    """Attends to the special tokens most, and to one word of the text."""

    def attend(self, token: IntArray) -> FloatArray:
        """See :class:`~edgeformer_runtime.search.session.DecoderState`."""
        self.step(token)
        assert isinstance(self.session, Reversing)
        weights = np.zeros((len(self.sources), max(map(len, self.sources))), np.float32)
        for row, source, prefix in zip(weights, self.sources, self.prefixes, strict=True):
            order = self.session.order(source)
            row[: len(source)] = [1.0 if index in order else 8.0 for index in range(len(source))]
            step = len(prefix) - 1 - len(self.session.special.prefix)
            if 0 <= step < len(order):
                row[order[step]] = 4.0
        weights /= weights.sum(1, keepdims=True)
        return weights


@dataclass
class Reversing(ToySession):
    """Writes the words of the source in reverse order."""

    before: int = 0
    after: int = 0

    def order(self, source: Ids) -> list[int]:
        """Positions of the words, in the order in which they are written."""
        return list(range(self.before, len(source) - self.after))[::-1]

    def logits(self, source: Ids, prefix: Ids) -> FloatArray:
        """See :class:`ToySession`."""
        order, step = self.order(source), len(prefix) - len(self.special.prefix)
        logits = np.zeros(self.vocab_size, np.float32)
        logits[source[order[step]] if 0 <= step < len(order) else self.special.eos] = 9.0
        return logits

    def start(self, source: IntArray, source_length: IntArray) -> Attending:
        """See :class:`ToySession`."""
        state = super().start(source, source_length)
        return Attending(self, state.sources, state.prefixes)


def opened(text: TextFormat) -> AnyTranslator:
    """A translator that reverses sentences."""
    ids = {name: index for index, name in enumerate(NAMES)}
    model = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    model.pre_tokenizer, model.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = Tokenizer(model, text)
    special = special_tokens(tokenizer, tokenizer, ())
    session = Reversing(
        vocab_size=len(NAMES),
        max_target_length=40,
        special=replace(special, suppress=()),
        before=len(text.source_prefix),
        after=len(text.source_suffix),
    )
    return Translator(session, tokenizer, tokenizer, DecodeOptions(), languages=("en", "fr"))


@pytest.mark.parametrize("text", FORMATS, ids=lambda text: f"{text.source_prefix}-{text.source_suffix}")
def test_words_are_aligned_with_words(text: TextFormat) -> None:
    translator, before = opened(text), len(text.source_prefix)
    sources = ["the dog runs", "a", "the red Smith runs near the car", "Smith"]
    translations = translator.translate(sources, beam_size=2, return_attention=True)
    for source, translation in zip(sources, translations, strict=True):
        count = len(source.split())
        attention = translation.best.attention
        assert attention is not None
        assert len(attention.source_tokens) == before + count + len(text.source_suffix)
        assert [attention.source_tokens[index] for index in attention.text_tokens] == [
            f"▁{word}" if f"▁{word}" in NAMES else "<unk>" for word in source.split()
        ]
        assert attention.alignment == tuple((before + count - 1 - index, index) for index in range(count))
        assert attention.text_weights.shape == (count, count)


@pytest.mark.parametrize("text", FORMATS, ids=lambda text: f"{text.source_prefix}-{text.source_suffix}")
def test_unknown_words_are_copied_wherever_they_are(text: TextFormat) -> None:
    translator = opened(text)
    sources = ["Smith runs near Jones", "the dog runs near Smith", "Smith", "a Jones Smith car", "the dog"]
    translations = translator.translate(sources, replace_unknowns=True)
    assert [each.text for each in translations] == [" ".join(source.split()[::-1]) for source in sources]


@pytest.mark.parametrize("text", FORMATS, ids=lambda text: f"{text.source_prefix}-{text.source_suffix}")
def test_a_truncated_source_is_aligned_as_far_as_it_was_read(text: TextFormat) -> None:
    translator, around = opened(text), len(text.source_prefix) + len(text.source_suffix)
    source = "the dog Smith runs near Jones"
    options = DecodeOptions(max_input_length=around + 3, replace_unknowns=True, return_attention=True)
    (translation,) = translator.translate([source], options)
    assert translation.text == "Smith dog the"
    assert translation.best.attention is not None
    assert len(translation.best.attention.text_tokens) == 3
    found = written(translator, "the <b>dog</b> Smith runs <i>near Jones</i>", max_input_length=around + 3)
    plain = written(opened(PLAIN), "the <b>dog</b> Smith runs <i>near Jones</i>", max_input_length=3)
    assert found == plain


def written(translator: AnyTranslator, document: str, **options: int) -> str:
    """The translation of a document."""
    texts = TextTranslator(translator, TextOptions(add_period=False, match_surface=False, glossary={"car": "auto"}))
    (translation,) = texts.translate([document], format="html", return_attention=True, **options)  # type: ignore[arg-type]
    return translation.text


DOCUMENTS = {
    "the <b>dog</b> runs": "runs <b>dog</b> the",
    "<i>the</i> red dog runs <b>near</b>": "<b>near</b> runs dog red <i>the</i>",
    "a <a href='x'>red dog</a>": "<a href='x'>dog red</a> a",
    "the red car": "auto red the",
    "car near the dog": "dog the near auto",
}
"""Documents without a word that the model does not have, and their translations."""
UNKNOWN = ["the {name} dog runs", "{name} <b>runs</b> near %s", "the dog <i>{name}</i>", "the <b>{x}</b> car near {y}"]
"""Documents with placeholders that the model does not write."""


@pytest.mark.parametrize("text", FORMATS, ids=lambda text: f"{text.source_prefix}-{text.source_suffix}")
def test_tags_placeholders_and_terms_are_put_where_their_words_are(text: TextFormat) -> None:
    translator = opened(text)
    for document, expected in DOCUMENTS.items():
        assert written(translator, document) == expected
    for document in UNKNOWN:
        assert written(translator, document) == written(opened(PLAIN), document)
