"""A translator of words by a dictionary, with attention that says which word each comes from; and translations that
are what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_text.alignment import WORD
from edgeformer_text.block import Block
from edgeformer_text.options import TextOptions
from edgeformer_text.plan import Plan
from edgeformer_text.results import TextTranslation
from edgeformer_text.text_translator import TextTranslator

WORDS = {"a": "une", "red": "rouge", "car": "voiture", "dog": "chien", "the": "le", "runs": "court"}


class WordTokenizer:
    """Tokens are words; their ids are their places in a list that grows."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def pieces(self, text: str) -> list[str]:
        return WORD.findall(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in WORD.finditer(text)]

    def encode_batch(self, texts: Iterable[str], *, special_tokens: bool) -> list[list[int]]:
        return [[*map(self.id, self.pieces(text)), *[0] * special_tokens] for text in texts]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return list(zip(self.encode_batch(texts, special_tokens=True), map(self.spans, texts), strict=True))

    def id(self, word: str) -> int:
        if word not in self.known:
            self.known.append(word)
        return self.known.index(word)

    def decode(self, ids: Sequence[int]) -> str:
        text = " ".join(self.known[index] for index in ids)
        return text.replace(" .", ".").replace(" !", "!").replace(" ,", ",").replace("' ", "'")

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return list(map(self.decode, sequences))


class WordTranslator:
    """Translates word by word; an adjective follows its noun."""

    share = 0.8
    """Attention of a word on the one that it comes from."""
    dictionary: Mapping[str, str] = WORDS

    def __init__(self) -> None:
        self.session = SimpleNamespace(max_source_length=100, max_target_length=200)
        self.languages = "en", "fr"
        self.defaults = DecodeOptions()
        self.source_tokenizer = self.target_tokenizer = WordTokenizer()

    def translate(self, texts: Iterable[str | Source], options: object = None, **limits: object) -> list[Translation]:
        return [self.translation(text.text if isinstance(text, Source) else text) for text in texts]

    def order(self, words: Sequence[str]) -> list[int]:
        """Positions of the source words that are translated, in the order of their translations."""
        order = list(range(len(words)))
        for place in range(len(words) - 1):
            if words[place] == "red":
                order[place], order[place + 1] = order[place + 1], order[place]
        return order

    def translation(self, text: str) -> Translation:
        words = self.source_tokenizer.pieces(text)
        order = self.order(words)
        target = [self.dictionary.get(words[place], words[place]) for place in order]
        ids = tuple(map(self.target_tokenizer.id, target))
        weights = np.zeros((len(target) + 1, len(words) + 1), np.float32)
        weights[:, :-1] = (0.8 - self.share) / max(1, len(words) - 1)
        weights[range(len(target)), order] = self.share
        weights[:, -1] = 0.2  # the end token
        attention = Attention((*words, "</s>"), (*target, "</s>"), weights, True, range(len(words)))
        hypothesis = TextHypothesis(self.target_tokenizer.decode(ids), tuple(target), ids, 0.0, True, None, attention)
        return Translation(Source(text, tuple(map(self.source_tokenizer.id, words))), (hypothesis,))


def attended(text: str, format: Any = "html", **options: Any) -> str:
    """Translate a text word by word."""
    (translation,) = text_translator(**options).translate([text], format=format)
    return translation.text


def text_translator(**options: Any) -> TextTranslator:
    """A translator of texts, word by word."""
    translator: Any = WordTranslator()
    return TextTranslator(translator, TextOptions(**options))


class ReversingTranslator(WordTranslator):
    """Writes the words of a sentence in reverse order."""

    dictionary: Mapping[str, str] = {}

    def order(self, words: Sequence[str]) -> list[int]:
        return list(reversed(range(len(words))))


class UnfaithfulTranslator(WordTranslator):
    """Drops, repeats and reorders words, at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)

    def order(self, words: Sequence[str]) -> list[int]:
        self.share = self.random.choice((0.2, 0.5, 0.8))
        return self.random.choices(range(len(words)), k=self.random.randrange(2 * len(words))) if words else []


class SayingTranslator(WordTranslator):
    """Writes one sentence, whose words are as far apart as those of the source."""

    def __init__(self, said: str, language: str) -> None:
        super().__init__()
        self.said, self.languages = said, ("en", language)

    def translation(self, text: str) -> Translation:
        tokens, count = self.target_tokenizer.pieces(self.said), len(self.source_tokenizer.pieces(text))
        weights = np.zeros((len(tokens) + 1, count + 1), np.float32)
        for index in range(len(tokens)):
            weights[index, index * count // len(tokens)] = 0.8
        ids = tuple(map(self.target_tokenizer.id, tokens))
        attention = Attention((), (), weights, True, text_tokens=range(count))
        return Translation(
            Source(text, (1,)), (TextHypothesis(self.said, tuple(tokens), ids, 0.0, True, None, attention),)
        )


def written(text: str, said: str, language: str, format: Any = "text") -> str:
    """What becomes of a text whose sentence the model translates so."""
    translator: Any = SayingTranslator(said, language)
    return TextTranslator(translator).translate([text], format=format)[0].text


def translation(source: str, target: str) -> Translation:
    """A translation without tokens, whose words therefore come from nowhere."""
    return Translation(Source(source, ()), (TextHypothesis(target, (), (), 0.0, True),))


def rewritten(parts: Iterable[str | Block]) -> str:
    """A document from its parts, as the document itself has them."""
    written = ""
    for part in parts:
        if isinstance(part, str):
            written += part
            continue
        offset = 0
        assert len(part.text) == len(part.raw)
        for tag in part.tags:
            written += "".join(part.raw[offset : tag.offset]) + tag.raw
            offset = tag.offset
        written += "".join(part.raw[offset:])
    return written


Translate = Callable[[Sequence[Source]], Sequence[Translation]]


def join(plan: Plan, translate: Callable[[str], str] = str, again: Translate | None = None) -> TextTranslation:
    """Join translations made by a function; by default, copies. Another one may translate what is wanted again."""

    def translated(sentences: Sequence[Source]) -> list[Translation]:
        return [translation(sentence.text, translate(sentence.text)) for sentence in sentences]

    return plan.join(translated(plan.sentences), again or translated)


def read_of(plan: Plan) -> list[str]:
    """What the model reads of the sentences of a text."""
    return [sentence.text for sentence in plan.sentences]
