"""What is translated of a text, and where it goes.

:meth:`Plan.join` makes the translated text of the translations of its sentences, step by step:

1. A sentence whose placeholders the model did not copy is translated again, without them.
2. Its surface becomes that of the source: capitals, final punctuation, no loops; see :mod:`.surface`.
3. If something belongs among its words, they are aligned with those of the source by the model's attention, and
   placeholders and terms are put between or over them; see :mod:`.items`.
4. Numbers that are not those of the source are put over what they became. Where that is not certain, the sentence is
   translated again without them, and they are placed as placeholders are, if that leaves fewer wrong numbers.
5. All is written in order: what is between sentences is copied, and tags go around the words that were translated from
   theirs; see :mod:`.placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.search.requests import Stop
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_text.alignment import AlignedSentence, aligned, copied, restored
from edgeformer_text.block import Block, Item, Reading, Span, read_without, without_items
from edgeformer_text.numbers import NumberDifferences, corrected, differences, number_items, target_without
from edgeformer_text.options import TextOptions
from edgeformer_text.placement import with_tags
from edgeformer_text.results import SentenceTranslation, TextTranslation, TranslatedWord
from edgeformer_text.surface import SurfaceChange, repaired, surface_change

Result = TypeVar("Result")
Joining = Generator[list[Source], Sequence[Translation], Result]
"""Yields sentences to translate again, and receives their translations."""


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
    """What the model reads if it does not copy the placeholders: the sentence without them; ``None`` if there are
    none."""
    source: Source
    """:attr:`reading`, encoded."""


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
class _JoinedSentence:
    """The translation of a sentence, and what is made of it."""

    planned: PlannedSentence
    reading: Reading
    translation: Translation
    change: SurfaceChange
    sentence: AlignedSentence | None = None
    """Its words, if something is placed among them."""
    numbers: tuple[Item, ...] = ()
    """Numbers that the model did not read, to be placed among them."""
    wrong: NumberDifferences = field(default_factory=NumberDifferences)
    """Numbers that are not those of its source."""
    is_damaged: bool = False
    """Whether tokens of the translation do not make a character."""

    @property
    def best(self) -> TextHypothesis:
        return self.translation.best


class Plan:
    """The sentences of a text, and the way to make a translated text from their translations.

    Args:
        parts: the text in order: text to copy, and blocks.
        options: how to make the text.
        languages: codes of the languages of source and target.
        tokenizers: those of source and target.
        has_attention: whether the model has attention weights.
    """

    def __init__(
        self,
        parts: PlannedParts,
        options: TextOptions,
        languages: tuple[str, str],
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        has_attention: bool,
    ) -> None:
        self._parts, self._options, self._languages, self._tokenizers = parts, options, languages, tokenizers
        self._has_attention = has_attention
        self._planned = list(_planned_sentences(parts))

    @property
    def sentences(self) -> list[Source]:
        """What must be translated, in order."""
        return [sentence.source for sentence in self._planned]

    def join(
        self,
        translations: Sequence[Translation],
        translate: Callable[[Sequence[Source]], Sequence[Translation]],
        stop: Stop | None = None,
    ) -> TextTranslation:
        """Make the translated text.

        Args:
            translations: the translation of each of :attr:`sentences`.
            translate: translates the sentences that :meth:`joining` wants again.
            stop: gives the text up before it is complete.

        Raises:
            InputError, OptionError, StoppedError: see :meth:`joining`.
        """
        steps, answer = self.joining(translations, stop or Stop()), None
        while True:
            try:
                answer = translate(next(steps) if answer is None else steps.send(answer))
            except StopIteration as end:
                return cast(TextTranslation, end.value)

    def joining(self, translations: Sequence[Translation], stop: Stop) -> Joining[TextTranslation]:
        """Make the translated text step by step.

        Args:
            translations: the translation of each of :attr:`sentences`.
            stop: gives the text up before it is complete.

        Yields:
            Sentences to translate again, such as those whose placeholders were not copied, without these; it must be
            sent their translations.

        Raises:
            InputError: one could not be translated.
            OptionError: there is not one translation per sentence.
            StoppedError: the text was given up.
        """
        stop.check()
        if len(translations) != len(self._planned):
            raise OptionError(
                f"There must be one translation per sentence, {len(self._planned):,}, but there are "
                f"{len(translations):,}."
            )
        outcomes = yield from self._outcomes(translations)
        if self._options.check_numbers:
            outcomes = yield from self._with_numbers(outcomes)
        stop.check()
        return _Writer(iter(outcomes), self._options, self._languages[1]).text(self._parts)

    def _outcomes(self, translations: Sequence[Translation]) -> Joining[list[_JoinedSentence]]:
        """Translations, without placeholders where the model did not copy them."""
        # A model may change or lose a placeholder. Such a sentence is translated again, all of them in one batch,
        # from a reading without its placeholders, which are put among its words below.
        readings = [planned.reading for planned in self._planned]
        chosen = list(translations)
        bare = {
            index: planned.bare
            for index, (planned, translation) in enumerate(zip(self._planned, translations, strict=True))
            if planned.bare is not None and not copied(planned.items, translation.text)
        }
        for index, translation in zip(bare, (yield from self._again(list(bare.values()))), strict=True):
            chosen[index], readings[index] = translation, bare[index]
        outcomes = [self._finished(*pair) for pair in zip(self._planned, readings, chosen, strict=True)]
        has_details = self._options.word_details
        return self._aligned(outcomes, lambda planned: bool(planned.items or planned.tags or has_details))

    def _finished(self, planned: PlannedSentence, reading: Reading, translation: Translation) -> _JoinedSentence:
        text = repaired(reading.text, translation.text)
        if is_damaged := text != translation.text:
            best = replace(translation.best, text=text)
            translation = replace(translation, hypotheses=(best, *translation.hypotheses[1:]))
        change = surface_change(
            reading.text.removesuffix(reading.added_period),
            translation.text,
            self._languages[1],
            is_upper=reading.is_upper,
            match=self._options.match_surface,
            repeats=self._options.max_repeats,
            has_added_period=bool(reading.added_period),
        )
        return _JoinedSentence(planned, reading, translation, change, is_damaged=is_damaged)

    def _with_numbers(self, outcomes: Sequence[_JoinedSentence]) -> Joining[list[_JoinedSentence]]:
        """Outcomes with the numbers of their sources; what is wrong even so is noted.

        A number that the model changed is put in place of what it became. Where that is not certain, the sentence is
        translated again without its wrong numbers, which are put into it as placeholders are.
        """
        # 1. Put them over those that the translation has instead, where it is certain which stands for which.
        chosen = [self._checked(outcome) for outcome in outcomes]
        wrong = [index for index, outcome in enumerate(chosen) if outcome.wrong.count]
        if not wrong:
            return chosen
        for index, outcome in zip(wrong, self._aligned([chosen[index] for index in wrong]), strict=True):
            items = self._number_items(outcome, with_sign=False)
            taken, surplus = outcome.planned.items, outcome.wrong.surplus
            sentence, code = outcome.sentence, self._languages[1]
            if sentence is not None and (sentence := corrected(sentence, items, surplus, taken, code)):
                chosen[index] = self._fewer_wrong(outcome, replace(outcome, sentence=sentence))
        # 2. What is still wrong: the model reads the sentence without these numbers, and they are placed among the
        # words of the new translation. The old one stays unless this has fewer wrong numbers.
        left = [index for index in wrong if chosen[index].wrong.count]
        numbers = [tuple(self._number_items(chosen[index], with_sign=True)) for index in left]
        readings = [self._without(chosen[index], items) for index, items in zip(left, numbers, strict=True)]
        translations = yield from self._again(readings)
        retried = [
            replace(self._finished(chosen[index].planned, reading, translation), numbers=items)
            for index, reading, translation, items in zip(left, readings, translations, numbers, strict=True)
        ]
        for index, outcome in zip(left, self._aligned(retried), strict=True):
            chosen[index] = self._fewer_wrong(chosen[index], outcome)
        return chosen

    def _checked(self, outcome: _JoinedSentence) -> _JoinedSentence:
        """The outcome, with what is wrong about its numbers."""
        planned, sentence = outcome.planned, outcome.sentence
        source = without_items(planned.block.text, planned.span, planned.items)
        if sentence is None:
            target = outcome.change.apply(outcome.best.text)
        else:
            target = target_without(sentence, planned.items)
        return replace(outcome, wrong=differences(source, target, self._languages))

    def _fewer_wrong(self, old: _JoinedSentence, new: _JoinedSentence) -> _JoinedSentence:
        new = self._checked(new)
        return new if new.wrong.count < old.wrong.count else old

    def _number_items(self, outcome: _JoinedSentence, *, with_sign: bool) -> list[Item]:
        """Items of the numbers of a sentence that are wrong in its translation."""
        planned, wrong = outcome.planned, outcome.wrong.missing or outcome.wrong.surplus
        return number_items(planned.block, planned.span, planned.items, wrong, self._languages, with_sign=with_sign)

    def _aligned(
        self, outcomes: Sequence[_JoinedSentence], is_needed: Callable[[PlannedSentence], bool] = lambda planned: True
    ) -> list[_JoinedSentence]:
        """Outcomes with the words of those that need them, and items among these."""
        return [
            outcome if outcome.sentence or not is_needed(outcome.planned) else self._with_words(outcome)
            for outcome in outcomes
        ]

    def _with_words(self, outcome: _JoinedSentence) -> _JoinedSentence:
        reading, planned, best = outcome.reading, outcome.planned, outcome.best
        sentence = aligned(
            reading.text,
            reading.offsets,
            best,
            best.attention,
            self._tokenizers,
            outcome.change,
            reading.added_period,
            outcome.translation.source.spans,
        )
        items = sorted([*planned.items, *outcome.numbers], key=lambda item: item.start)
        sentence = restored(sentence, items, planned.block.text, planned.span[0], reading.without)
        return replace(outcome, sentence=sentence)

    def _without(self, outcome: _JoinedSentence, items: Sequence[Item]) -> Reading:
        planned, reading = outcome.planned, outcome.reading
        return read_without(planned.block, planned.span, planned.items, reading, items)

    def _again(self, readings: Sequence[Reading]) -> Joining[Sequence[Translation]]:
        """Ask for translations with attention, by which items are placed."""
        if not readings:
            return []
        texts = [reading.text for reading in readings]
        encoded = self._tokenizers[0].encode_with_spans(texts)
        has_attention = self._has_attention
        return (
            yield [
                Source(text, tuple(ids), needs_attention=has_attention, spans=spans)
                for text, (ids, spans) in zip(texts, encoded, strict=True)
            ]
        )


class _Writer:
    """Writes the translated text, and notes where each sentence is."""

    def __init__(self, results: Iterator[_JoinedSentence], options: TextOptions, language: str) -> None:
        self._results, self._options, self._language = results, options, language
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
            raw: _Writer(self._results, self._options, self._language).text(parts).text
            for raw, parts in planned.attributes.items()
        }
        block = _rewritten(planned.block, attributes)
        offset = tag = 0  # the first character and the first tag that are not written yet
        for sentence in planned.sentences:
            span = sentence.span if isinstance(sentence, PlannedSentence) else sentence
            chosen = sentence.tags if isinstance(sentence, PlannedSentence) else frozenset[int]()
            # 1. Copy what is before the sentence, with the tags up to its first one.
            left = range(tag, len(block.tags))
            first = next((t for t in left if block.tags[t].offset > span[0] or t in chosen), None)
            tag = self._copy(block, offset, span[0], tag, first)
            start, offset, note = self._length, span[1], tuple[Any, ...]()
            outcome = next(self._results) if isinstance(sentence, PlannedSentence) else None
            if outcome is not None:
                note = outcome.translation, outcome.best.confidence
            # 2. Write the translation with the tags that go with its words.
            if outcome is not None and outcome.best.text.strip():
                note = *note, self._translated(outcome, block, attributes), outcome.wrong.groups
                tag = max(chosen, default=tag - 1) + 1
            else:  # copy what has no words, and sentences that the model leaves out: their elements would be empty
                first = next((t for t in range(tag, len(block.tags)) if block.tags[t].offset >= offset), None)
                tag = self._copy(block, *span, tag, first)
            self._note(block, span, start, *note, is_damaged=outcome is not None and outcome.is_damaged)
        # 3. Copy what is behind the last sentence.
        self._copy(block, offset, len(block.text), tag, None)

    def _translated(
        self, outcome: _JoinedSentence, block: Block, attributes: Mapping[str, str]
    ) -> tuple[TranslatedWord, ...]:
        """Write a sentence with its tags, and return its words if they were requested."""
        planned, sentence = outcome.planned, outcome.sentence
        if sentence is None:
            self._write(block.escape(outcome.change.apply(outcome.best.text)))
            return ()
        shown = [replace(word, raw=attributes.get(word.raw or "", word.raw)) for word in sentence.words]
        sentence = replace(sentence, words=shown)
        text, sentence, spans = with_tags(sentence, block, planned.tags, planned.span, self._language)
        self._write(text)
        return _details(sentence, planned.block, planned.span[0], spans) if self._options.word_details else ()

    def _note(self, block: Block, span: Span, start: int, *translated: Any, is_damaged: bool) -> None:
        source = block.origin(span[0]), block.origin(span[1])
        sentence = SentenceTranslation(source, (start, self._length), *(translated or (None,)))
        least = self._options.min_confidence
        is_doubtful = sentence.confidence is not None and least is not None and sentence.confidence < least
        self._sentences.append(replace(sentence, is_doubtful=is_doubtful or is_damaged))

    def _copy(self, block: Block, start: int, end: int, first: int, last: int | None) -> int:
        """Copy characters, and the tags from ``first`` up to ``last`` before and between them; return ``last``."""
        last = len(block.tags) if last is None else last
        offset = start
        for tag in block.tags[first:last]:
            self._write("".join(block.raw[offset : tag.offset]) + tag.raw)
            offset = max(offset, tag.offset)
        self._write("".join(block.raw[offset:end]))
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
    """Words of a sentence that begins at a character of a block, and where they are written."""
    details, origin = [], block.origin(start)
    for word, source, target in zip(sentence.words, sentence.sources, targets, strict=True):
        if source is not None:
            last = source[1] - 1
            source = block.origin(source[0]) - origin, block.origin(last) + max(1, len(block.raw[last])) - origin
        details.append(TranslatedWord(word.text, word.probability, source, target))
    return tuple(details)
