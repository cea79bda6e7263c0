"""What is translated of a text, and where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.requests import Stop
from edgeformer_runtime.decoding.session import AttentiveSession
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.text.block import Block, Item, Span
from edgeformer_runtime.text.items import copied, restored
from edgeformer_runtime.text.options import TextOptions
from edgeformer_runtime.text.placement import with_tags
from edgeformer_runtime.text.results import SentenceTranslation, TextTranslation, TranslatedWord
from edgeformer_runtime.text.surface import Finish, finish
from edgeformer_runtime.text.words import AlignedSentence, aligned
from edgeformer_runtime.translator import AnyTranslator, TextHypothesis, Translation, Translator


@dataclass(frozen=True)
class Reading:
    """What the model reads of a sentence."""

    text: str
    offsets: Sequence[int]
    """Place of each of its characters in the block, and that of its end."""
    is_upper: bool = False
    """Whether it is in lowercase in place of capitals."""


@dataclass(frozen=True)
class PlannedSentence:
    """A sentence to translate."""

    block: Block
    span: Span
    """Its characters in the block."""
    items: tuple[Item, ...]
    """Its placeholders and terms."""
    tags: frozenset[int]
    """Tags of the block that go with its words."""
    reading: Reading
    bare: Reading | None
    """What the model reads if it does not copy the placeholders: the sentence without them. ``None`` if there are
    none, or if nothing else is left."""


@dataclass(frozen=True)
class PlannedBlock:
    """A block and its sentences; what is between them is copied."""

    block: Block
    sentences: tuple[PlannedSentence | Span, ...]
    """Sentences in order; a span is copied."""
    attributes: Mapping[str, PlannedParts] = field(default_factory=dict)
    """Tags and items with attributes to translate, by how they are written."""


PlannedParts = tuple[str | PlannedBlock, ...]
"""Text to copy and blocks, in order."""


@dataclass(frozen=True)
class _Outcome:
    """The translation of a sentence, and what is made of it."""

    planned: PlannedSentence
    reading: Reading
    translation: Translation
    finish: Finish

    @property
    def best(self) -> TextHypothesis:
        return self.translation.best


class Plan:
    """The sentences of a text, and the way to make a translated text from their translations.

    Args:
        translator: the translator, which :meth:`join` asks for attention weights, and for another translation where a
            placeholder was not copied.
        parts: the text in order: text to copy, and blocks.
        options: how to make the text.
        language: language code of the translation.
    """

    def __init__(self, translator: AnyTranslator, parts: PlannedParts, options: TextOptions, language: str) -> None:
        self._translator, self._parts, self._options, self._language = translator, parts, options, language
        self._planned = list(_planned_sentences(parts))

    @property
    def sentences(self) -> list[str]:
        """What must be translated, in order."""
        return [sentence.reading.text for sentence in self._planned]

    def join(
        self, translations: Sequence[Translation], decoding: DecodeOptions | None = None, stop: Stop | None = None
    ) -> TextTranslation:
        """Make the translated text.

        Args:
            translations: the translation of each of :attr:`sentences`.
            decoding: options to translate sentences again with, without placeholders that were not copied.
            stop: gives the text up before it is complete.

        Raises:
            InputError: one could not be translated.
            OptionError: there is not one translation per sentence.
            StoppedError: the text was given up.
        """
        stop = stop or Stop()
        stop.check()
        if len(translations) != len(self._planned):
            raise OptionError(
                f"There must be one translation per sentence, {len(self._planned):,}, but there are "
                f"{len(translations):,}."
            )
        outcomes = self._outcomes(translations, decoding, stop)
        words = self._aligned(outcomes)
        stop.check()
        results = ((outcome, words.get(index)) for index, outcome in enumerate(outcomes))
        return _Writer(results, self._options).text(self._parts)

    def _outcomes(
        self, translations: Sequence[Translation], decoding: DecodeOptions | None, stop: Stop
    ) -> list[_Outcome]:
        """Translations, without placeholders where the model did not copy them."""
        readings = [planned.reading for planned in self._planned]
        chosen = list(translations)
        again = [
            index
            for index, (planned, translation) in enumerate(zip(self._planned, translations, strict=True))
            if planned.bare is not None and not copied(planned.items, translation.text)
        ]
        if again:
            bare = [self._planned[index].bare for index in again]
            texts = [reading.text for reading in bare if reading is not None]
            translated = self._translator.translate(texts, decoding, timeout=stop.seconds_left, cancel=stop.is_canceled)
            for index, reading, translation in zip(again, bare, translated, strict=True):
                chosen[index] = translation
                readings[index] = reading or readings[index]
        return [self._finished(*pair) for pair in zip(self._planned, readings, chosen, strict=True)]

    def _finished(self, planned: PlannedSentence, reading: Reading, translation: Translation) -> _Outcome:
        change = finish(
            reading.text,
            translation.text,
            self._language,
            is_upper=reading.is_upper,
            match=self._options.match_surface,
            repeats=self._options.max_repeats,
        )
        return _Outcome(planned, reading, translation, change)

    def _aligned(self, outcomes: Sequence[_Outcome]) -> dict[int, AlignedSentence]:
        """The words of those translations that have something to place among them."""
        needed = [
            index
            for index, outcome in enumerate(outcomes)
            if outcome.planned.items or outcome.planned.tags or self._options.word_details
        ]
        attention = {index: outcomes[index].best.attention for index in needed}
        missing = [index for index in needed if attention[index] is None and outcomes[index].best.ids]
        if missing and has_attention(self._translator):
            translations = [outcomes[index].translation for index in missing]
            attentive = cast(Translator[AttentiveSession], self._translator)
            attention.update(zip(missing, attentive.attention(translations), strict=True))
        tokenizers = (self._translator.source_tokenizer, self._translator.target_tokenizer)
        results = {}
        for index in needed:
            outcome = outcomes[index]
            reading, planned = outcome.reading, outcome.planned
            sentence = aligned(
                reading.text, reading.offsets, outcome.best, attention[index], tokenizers, outcome.finish
            )
            is_bare = reading is planned.bare
            results[index] = restored(sentence, planned.items, planned.block.text, planned.span[0], is_bare=is_bare)
        return results


def has_attention(translator: AnyTranslator) -> bool:
    """Return whether the model of a bundle has attention weights."""
    return isinstance(translator.session, OnnxSession) and translator.session.bundle.has_attention


class _Writer:
    """Writes the translated text, and notes where each sentence is."""

    def __init__(self, results: Iterator[tuple[_Outcome, AlignedSentence | None]], options: TextOptions) -> None:
        self._results, self._options = results, options
        self._written: list[str] = []
        self._length = 0
        self._sentences: list[SentenceTranslation] = []

    def text(self, parts: PlannedParts) -> TextTranslation:
        """Write all parts."""
        for part in parts:
            if isinstance(part, str):
                self._write(part)
            else:
                self._block(part)
        return TextTranslation("".join(self._written), tuple(self._sentences))

    def _write(self, text: str) -> None:
        self._written.append(text)
        self._length += len(text)

    def _block(self, planned: PlannedBlock) -> None:
        attributes = {
            raw: _Writer(self._results, self._options).text(parts).text for raw, parts in planned.attributes.items()
        }
        block, place, tag = _rewritten(planned.block, attributes), 0, 0
        for sentence in planned.sentences:
            span = sentence.span if isinstance(sentence, PlannedSentence) else sentence
            chosen = sentence.tags if isinstance(sentence, PlannedSentence) else frozenset[int]()
            first = next((t for t in range(tag, len(block.tags)) if block.tags[t].place > span[0] or t in chosen), None)
            tag = self._copy(block, place, span[0], tag, first)
            start, place, note = self._length, span[1], tuple[Any, ...]()
            outcome, aligned = next(self._results) if isinstance(sentence, PlannedSentence) else (None, None)
            if outcome is not None:
                note = outcome.translation, outcome.best.confidence, ()
            if outcome is not None and outcome.best.text.strip():
                note = *note[:2], self._translated(outcome, aligned, block, attributes)
                tag = max(chosen, default=tag - 1) + 1
            else:  # what has no words, and sentences that the model leaves out: their elements would be empty
                first = next((t for t in range(tag, len(block.tags)) if block.tags[t].place >= place), None)
                tag = self._copy(block, *span, tag, first)
            self._note(block, span, start, *note)
        self._copy(block, place, len(block.text), tag, None)

    def _translated(
        self, outcome: _Outcome, sentence: AlignedSentence | None, block: Block, attributes: Mapping[str, str]
    ) -> tuple[TranslatedWord, ...]:
        """Write a sentence with its tags, and return its words if they were requested."""
        planned = outcome.planned
        if sentence is None:
            self._write(block.escape(outcome.finish.apply(outcome.best.text)))
            return ()
        shown = [replace(word, raw=attributes.get(word.raw or "", word.raw)) for word in sentence.words]
        text, sentence, spans = with_tags(replace(sentence, words=shown), block, planned.tags, planned.span)
        self._write(text)
        return _details(sentence, planned.block, planned.span[0], spans) if self._options.word_details else ()

    def _note(self, block: Block, span: Span, start: int, *translated: Any) -> None:
        source = block.origin(span[0]), block.origin(span[1])
        self._sentences.append(SentenceTranslation(source, (start, self._length), *(translated or (None,))))

    def _copy(self, block: Block, start: int, end: int, first: int, last: int | None) -> int:
        """Copy characters, and the tags from ``first`` up to ``last`` before and between them; return ``last``."""
        last = len(block.tags) if last is None else last
        place = start
        for tag in block.tags[first:last]:
            self._write("".join(block.raw[place : tag.place]) + tag.raw)
            place = max(place, tag.place)
        self._write("".join(block.raw[place:end]))
        return last


def _planned_sentences(parts: PlannedParts) -> Iterator[PlannedSentence]:
    """Sentences in the order in which they are written: those of the attributes of a block before its own."""
    for part in parts:
        if isinstance(part, PlannedBlock):
            for inner in part.attributes.values():
                yield from _planned_sentences(inner)
            yield from (sentence for sentence in part.sentences if isinstance(sentence, PlannedSentence))


def _rewritten(block: Block, attributes: Mapping[str, str]) -> Block:
    """A block whose tags and items have translated attributes."""
    if not attributes:
        return block
    tags = tuple(replace(tag, raw=attributes.get(tag.raw, tag.raw)) for tag in block.tags)
    return replace(block, raw=[attributes.get(raw, raw) for raw in block.raw], tags=tags)


def _details(
    sentence: AlignedSentence, block: Block, start: int, targets: Sequence[Span]
) -> tuple[TranslatedWord, ...]:
    """Words of a sentence that begins at a place of a block, and where they are written."""
    details, origin = [], block.origin(start)
    for word, source, target in zip(sentence.words, sentence.sources, targets, strict=True):
        if source is not None:
            last = source[1] - 1
            source = block.origin(source[0]) - origin, block.origin(last) + max(1, len(block.raw[last])) - origin
        details.append(TranslatedWord(word.text, word.probability, source, target))
    return tuple(details)
