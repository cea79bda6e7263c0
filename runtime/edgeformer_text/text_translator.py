"""Translation of whole texts: plain text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Unpack, get_args

from edgeformer_runtime.bundle.manifest import Traits
from edgeformer_runtime.encoding import refuse_string, with_ids
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_OPTION
from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions, changed, check_count
from edgeformer_runtime.search.requests import Cancel, Stop
from edgeformer_runtime.tokenizers import Tokenizer, check_unicode
from edgeformer_runtime.translation import Source, Translation
from edgeformer_runtime.translator import AnyTranslator
from edgeformer_text.block import Block, Item, Span, overlapping, read, read_without, without_items
from edgeformer_text.glossary import Glossary
from edgeformer_text.markup.html import html_parts
from edgeformer_text.options import Format, TextOptions
from edgeformer_text.placement import inner_tags
from edgeformer_text.plan import Plan, PlannedBlock, PlannedParts, PlannedSentence
from edgeformer_text.protected import has_words, joined_items, protected_items
from edgeformer_text.results import TextTranslation
from edgeformer_text.segmentation import (
    SentenceLimit,
    fitting_spans,
    joined_spans,
    sentence_spans,
    trimmed,
    with_whole_items,
)
from edgeformer_text.surface import in_capitals, lacks_period, lowered, period

MIN_CONFIDENCE = 0.4
"""Confidence below which a sentence is doubtful, for bundles in which it was not measured: the translations of
unreadable text by small models have less, and most of those of text that they were made for have more."""
LOOP_REPEATS = 8
"""Times that a translation may repeat the same tokens before it is stopped, unless the model's defaults say so."""
LONGEST_RATIO, LONGEST_REST = 3.0, 32
"""A translation is stopped at this many times the tokens of its source, plus a rest, unless the model's defaults limit
it."""
_WHITE_SPACE = re.compile(r"\s")
_SEVERAL_NUMBERS = re.compile(r"\d\D+\d")
"""Numbers of which it takes attention to say which stands for which in a translation."""
_MANY_TOKENS = 1.1
"""Text in capitals is unusual to a tokenizer that needs this many times the tokens for it. Of 120 test sentences in
capitals, each of both models of the box reads best with 1.1: BLEU 52 and 57, with 1.3 47 and 49, with 1.5 35 and 36."""


class TextTranslator:
    """Translates whole texts. Thread-safe.

    >>> TextTranslator(Translator.open("bundle")).translate(["A dog runs. It barks."])[0].text  # doctest: +SKIP
    'Un chien court. Il aboie.'

    A text is split into sentences, which are translated one by one. White space, line breaks and list markers between
    them stay as they are, and so do sentences without words, such as numbers and URLs.

    Args:
        translator: translates the sentences.
        options: how to split texts and put them together again.

    Raises:
        DataError: a term of the glossary is blank.
        OptionError: an option is out of range.
    """

    def __init__(self, translator: AnyTranslator, options: TextOptions = TextOptions()) -> None:  # noqa: B008, is frozen
        options.verify()
        self.translator = translator
        self.options = options
        session = translator.session
        traits = session.bundle.manifest.traits if isinstance(session, BundleSession) else Traits()
        if options.min_confidence is None:
            measured = traits.min_confidence
            self.options = replace(options, min_confidence=MIN_CONFIDENCE if measured is None else measured)
        terms = options.glossary
        self.glossary = Glossary(terms) if isinstance(terms, Mapping) else terms
        """Terms with given translations."""
        limit = min(session.max_source_length, max(2, session.max_target_length * 3 // 4))
        self._has_attention = isinstance(session, BundleSession) and session.bundle.has_attention
        self._limit = min(session.max_source_length, options.max_sentence_tokens or limit)
        self._period = period(translator.languages[0]) if options.add_period and traits.needs_period else ""

    def __repr__(self) -> str:
        return f"TextTranslator({self.translator!r})"

    def decoding(self, options: DecodeOptions | None = None, **changes: Unpack[DecodeChanges]) -> DecodeOptions:
        """Return the options to translate sentences with: those given, or the model's defaults, with scores of tokens,
        and stopped if they loop or are far too long.

        Raises:
            OptionError: a name is unknown, or a token is not in the target vocabulary.
        """
        return with_ids(
            self.translator.target_tokenizer, changed(self._defaults if options is None else options, changes)
        )

    @cached_property
    def _defaults(self) -> DecodeOptions:
        options = self.translator.defaults
        own = DecodeChanges(return_token_scores=True)
        if not options.max_ngram_repeats:
            own["max_ngram_repeats"] = LOOP_REPEATS
        if not options.max_len_a and not options.max_len_b:
            own |= {"max_len_a": LONGEST_RATIO, "max_len_b": LONGEST_REST}
        return changed(options, own)

    def translate(
        self,
        texts: Iterable[str],
        *,
        format: Format = "text",
        options: DecodeOptions | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> list[TextTranslation]:
        """Translate texts. Each translation is independent of the other texts in the call.

        Args:
            texts: plain text or HTML.
            format: what the texts are written in.
            options: decoding options; ``None`` uses those of :meth:`decoding`.
            timeout: seconds after which the translation is given up.
            cancel: a function that returns whether the translation is not wanted any more, such as ``is_set`` of a
                :class:`threading.Event`; called before every decoder step.
            changes: fields of :class:`DecodeOptions` to change in them, such as ``beam_size=1``.

        Raises:
            InputError: a text is not a string of valid Unicode.
            OptionError: an option is unknown or out of range, or ``texts`` is not a list of strings.
            SessionError: the translator is closed, or was opened in ONNX Runtime before a fork.
            CanceledError: ``cancel`` said so.
            TimedOutError: the translation took longer than ``timeout``.
        """
        refuse_string(texts)
        decoding, stop = self.decoding(options, **changes), Stop(cancel, timeout)
        return self.translate_plans(self._plans(enumerate(texts), format, stop), decoding, stop)

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        chunk: int = 512,
        format: Format = "text",
        options: DecodeOptions | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> Iterator[TextTranslation]:
        """Translate a stream of any length in order, ``chunk`` texts at a time, such as the lines of a file; see
        :meth:`translate`."""
        check_count("chunk", chunk, 1, MAX_OPTION)
        refuse_string(texts)
        decoding, stop, numbered = self.decoding(options, **changes), Stop(cancel, timeout), enumerate(texts)
        while block := list(islice(numbered, chunk)):
            yield from self.translate_plans(self._plans(block, format, stop), decoding, stop)

    def _plans(self, texts: Iterable[tuple[int, str]], format: Format, stop: Stop) -> list[Plan]:
        """Split texts, each with its position."""
        limit = SentenceLimit(stop=stop)
        return [self.split(text, format=format, index=index, limit=limit) for index, text in texts]

    def translate_plans(
        self, plans: Sequence[Plan], options: DecodeOptions, stop: Stop | None = None
    ) -> list[TextTranslation]:
        """Translate texts that are split already; see :meth:`translate`."""
        stop = stop or Stop()
        settings: Any = {"options": options, "cancel": stop.cancel}
        sentences = [sentence for plan in plans for sentence in plan.sentences]
        translated = iter(self.translator.translate(sentences, timeout=stop.seconds_left, **settings))

        def again(sentences: Sequence[Source]) -> Sequence[Translation]:
            return self.translator.translate(sentences, timeout=stop.seconds_left, **settings)

        return [plan.join([next(translated) for _ in plan.sentences], again, stop) for plan in plans]

    def split(self, text: str, *, format: Format = "text", index: int = 0, limit: SentenceLimit | None = None) -> Plan:
        """Split a text into the sentences that must be translated.

        Args:
            text: plain text or HTML.
            format: what it is written in.
            index: position of the text in the call, for errors.
            limit: how many sentences it may have, and until when; one may be used for several texts.

        Returns:
            A plan: :attr:`Plan.sentences` are to be translated, and :meth:`Plan.join` takes their translations.

        Raises:
            InputError: the text is not a string of valid Unicode.
            OptionError: the format is unknown, or there are too many sentences.
            StoppedError: the text was given up.
        """
        if format not in get_args(Format):
            raise OptionError(f"`format` must be one of {', '.join(get_args(Format))}, but is {format!r}.")
        if not isinstance(text, str):
            raise InputError(index, f"must be a string, but is {text!r}.")
        check_unicode(index, text)
        return self.plan(html_parts(text) if format == "html" else [Block.plain(text)], limit)

    def plan(self, parts: Iterable[str | Block], limit: SentenceLimit | None = None) -> Plan:
        """Split the blocks of a document into sentences; see :meth:`split`."""
        tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
        planned = self._planned_parts(parts, limit or SentenceLimit())
        return Plan(planned, self.options, self.translator.languages, tokenizers, has_attention=self._has_attention)

    def _planned_parts(self, parts: Iterable[str | Block], limit: SentenceLimit) -> PlannedParts:
        return tuple(part if isinstance(part, str) else self._planned(part, limit) for part in parts)

    def _planned(self, block: Block, limit: SentenceLimit) -> PlannedBlock:
        text = _WHITE_SPACE.sub(" ", block.text) if block.is_markup else block.text  # no line ends
        spans = sentence_spans(text, self.translator.languages[0], limit)  # before other work: there may be too many
        items = list(block.items)
        if self.options.protect:
            items += protected_items(block)
        if self.glossary is not None:
            items += self.glossary.items(block, items)
        items = joined_items(block, sorted(items, key=lambda item: item.start))
        worded, kept = list[Span](), list[Span]()
        for span in joined_spans(spans, items):
            if has_words(block.text, *span, items):
                worded += self._without_long_items(block.text, span, items)
            else:  # copied, however long it is
                kept.append(span)

        needs_spans = self._has_attention and bool(items or block.tags or self.options.word_details)
        encoded = _EncodedTexts(self.translator.source_tokenizer, needs_spans=needs_spans)

        def count(texts: list[str]) -> list[int]:
            limit.check()
            return self._counts(block, texts, encoded)

        spans = sorted([*kept, *fitting_spans(block.text, worded, items, self._limit, count)])
        spans = [with_whole_items(span, items) for span in spans]
        worded = [span for span in spans if has_words(block.text, *span, items)]
        limit.take(len(worded))
        planned = iter(self._sentences(block, worded, items, encoded))
        worded_spans = frozenset(worded)
        sentences = [next(planned) if span in worded_spans else span for span in spans]
        attributes = {raw: self._planned_parts(parts, limit) for raw, parts in block.attributes.items()}
        return PlannedBlock(block, tuple(sentences), attributes)

    def _sentences(
        self, block: Block, spans: Sequence[Span], items: Sequence[Item], encoded: _EncodedTexts
    ) -> list[PlannedSentence]:
        """Decide what the model reads of each sentence, and encode it."""
        placeholders = [item for item in items if not item.is_term]
        is_upper = self._lowercased([without_items(block.text, span, placeholders) for span in spans], encoded)
        own = [[item for item in overlapping(items, *span) if _has(span, item)] for span in spans]
        readings = [
            read(
                block,
                span,
                its_items,
                is_upper=lower,
                added_period=self._period_after(block, span, placeholders, encoded),
            )
            for span, its_items, lower in zip(spans, own, is_upper, strict=True)
        ]
        ids = encoded.ids([reading.text for reading in readings])
        sentences = []
        for span, its_items, reading, its_ids in zip(spans, own, readings, ids, strict=True):
            left_out = [item for item in its_items if not item.is_term]
            bare = read_without(block, span, its_items, reading, left_out) if left_out else None
            tags = frozenset(inner_tags(block, *span))
            needs_attention = self._has_attention and self._is_aligned(reading.text, its_items, tags)
            tokens = encoded.spans.get(reading.text)
            source = Source(reading.text, its_ids, needs_attention=needs_attention, spans=tokens)
            sentences.append(PlannedSentence(block, span, tuple(its_items), tags, reading, bare, source))
        return sentences

    def _is_aligned(self, text: str, items: Sequence[Item], tags: frozenset[int]) -> bool:
        """Whether the words of a sentence may have to be aligned with those of its translation."""
        has_numbers = self.options.check_numbers and _SEVERAL_NUMBERS.search(text) is not None
        return bool(items or tags) or self.options.word_details or has_numbers

    def _likely_reading(self, block: Block, text: str) -> str:
        """What the model reads of a sentence, if nothing in it is left out."""
        text = " ".join(text.split()) if block.is_markup else text
        return text + self._period if self._period and lacks_period(text) else text

    def _counts(self, block: Block, texts: Sequence[str], encoded: _EncodedTexts) -> list[int]:
        """Numbers of tokens that the model reads of sentences; no period is added where only that is too much."""
        likely = [self._likely_reading(block, text) for text in texts]
        counts = [len(ids) for ids in encoded.ids(likely)]
        too_long = [
            index for index, count in enumerate(counts) if count > self._limit and likely[index] != texts[index]
        ]
        for index, ids in zip(too_long, encoded.ids([texts[index] for index in too_long]), strict=True):
            counts[index] = len(ids)
        return counts

    def _without_long_items(self, text: str, span: Span, items: Sequence[Item]) -> Iterator[Span]:
        """Parts of a sentence without the items that have too many tokens, which are sentences of their own."""
        start = span[0]
        for item in overlapping(items, *span):
            if item.end - item.start >= self._limit and self._is_too_long(text[item.start : item.end]):
                yield from trimmed(text, start, item.start)
                yield item.start, item.end
                start = item.end
        yield from trimmed(text, start, span[1])

    def _is_too_long(self, text: str) -> bool:
        return len(self.translator.source_tokenizer.encode_batch([text], special_tokens=True)[0]) > self._limit

    def _period_after(self, block: Block, span: Span, items: Sequence[Item], encoded: _EncodedTexts) -> str:
        """The period that the model reads after a sentence; none after placeholders, and where it is too much."""
        text = block.text[slice(*span)]
        if not self._period or not lacks_period(text) or overlapping(items, span[1] - 1, span[1]):
            return ""
        return self._period if len(encoded.ids([self._likely_reading(block, text)])[0]) <= self._limit else ""

    def _lowercased(self, texts: Sequence[str], encoded: _EncodedTexts) -> list[bool]:
        """Whether the model reads each text in lowercase."""
        capitals = [self.options.capitals != "keep" and in_capitals(text) for text in texts]
        if not any(capitals):
            return capitals
        most = 1 / _MANY_TOKENS if self.options.capitals == "auto" else math.inf
        lengths = zip(encoded.ids(texts), encoded.ids(list(map(lowered, texts))), strict=True)
        return [
            is_upper and len(lower) <= min(self._limit, most * len(upper))
            for is_upper, (upper, lower) in zip(capitals, lengths, strict=True)
        ]


def _has(span: Span, item: Item) -> bool:
    return span[0] <= item.start and item.end <= span[1]


class _EncodedTexts:
    """Texts and their token ids, each encoded once."""

    def __init__(self, tokenizer: Tokenizer, *, needs_spans: bool) -> None:
        self._tokenizer, self._needs_spans = tokenizer, needs_spans
        self._ids: dict[str, tuple[int, ...]] = {}
        self.spans: dict[str, Sequence[Span]] = {}
        """Characters of each text that its tokens stand for, if they are needed."""

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of texts, special tokens included."""
        new = [text for text in dict.fromkeys(texts) if text not in self._ids]
        if new and self._needs_spans:  # all at once, since the tokenizer is fastest that way
            for text, (ids, spans) in zip(new, self._tokenizer.encode_with_spans(new), strict=True):
                self._ids[text], self.spans[text] = tuple(ids), spans
        elif new:
            encoded = self._tokenizer.encode_batch(new, special_tokens=True)
            self._ids |= zip(new, map(tuple, encoded), strict=True)
        return [self._ids[text] for text in texts]
