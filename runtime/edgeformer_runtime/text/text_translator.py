"""Translation of whole texts: plain text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Unpack, get_args

from edgeformer_runtime.bundle.manifest import Traits
from edgeformer_runtime.decoding.options import DecodeChanges, DecodeOptions, changed, check_count
from edgeformer_runtime.decoding.requests import Cancel, Stop
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_OPTION
from edgeformer_runtime.source import refuse_string
from edgeformer_runtime.target import with_ids
from edgeformer_runtime.text.block import Block, Item, Span, overlapping, read, without_items
from edgeformer_runtime.text.glossary import Glossary
from edgeformer_runtime.text.markup import html_parts
from edgeformer_runtime.text.options import Format, TextOptions
from edgeformer_runtime.text.placement import inner_tags
from edgeformer_runtime.text.plan import Plan, PlannedBlock, PlannedParts, PlannedSentence
from edgeformer_runtime.text.protected import has_words, joined_items, protected_items
from edgeformer_runtime.text.results import TextTranslation
from edgeformer_runtime.text.segmentation import (
    SentenceLimit,
    fitting_spans,
    joined_spans,
    sentence_spans,
    trimmed,
    with_whole_items,
)
from edgeformer_runtime.text.surface import in_capitals, lacks_period, lowered, period
from edgeformer_runtime.tokenizer import check_unicode
from edgeformer_runtime.translator import AnyTranslator

MIN_CONFIDENCE = 0.4
"""Confidence below which a sentence is doubtful, for bundles in which it was not measured: the translations of
unreadable text by small models have less, and most of those of text that they were made for have more."""
LOOP_REPEATS = 8
"""Times that a translation may repeat the same tokens before it is stopped, unless the model's defaults say so."""
LONGEST_RATIO, LONGEST_REST = 3.0, 32
"""A translation is stopped at this many times the tokens of its source, plus a rest, unless the model's defaults limit
it."""
_WHITE_SPACE = re.compile(r"\s")
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
        return self._translated(enumerate(texts), format, self.decoding(options, **changes), Stop(cancel, timeout))

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
            yield from self._translated(block, format, decoding, stop)

    def _translated(
        self, texts: Iterable[tuple[int, str]], format: Format, decoding: DecodeOptions, stop: Stop
    ) -> list[TextTranslation]:
        """Translate texts, each with its position."""
        limit = SentenceLimit(stop=stop)
        plans = [self.split(text, format=format, index=index, limit=limit) for index, text in texts]
        return self.translate_plans(plans, decoding, stop)

    def translate_plans(
        self, plans: Sequence[Plan], options: DecodeOptions, stop: Stop | None = None
    ) -> list[TextTranslation]:
        """Translate texts that are split already; see :meth:`translate`."""
        stop = stop or Stop()
        sentences = [text for plan in plans for text in plan.sentences]
        translated = iter(self.translator.translate(sentences, options, timeout=stop.seconds_left, cancel=stop.cancel))
        return [plan.join([next(translated) for _ in plan.sentences], options, stop) for plan in plans]

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
        return Plan(self.translator, self._planned_parts(parts, limit or SentenceLimit()), self.options)

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

        def count(texts: list[str]) -> list[int]:
            limit.check()
            return self._count(texts)

        spans = sorted([*kept, *fitting_spans(block.text, worded, items, self._limit, count)])
        spans = [with_whole_items(span, items) for span in spans]
        worded = [span for span in spans if has_words(block.text, *span, items)]
        limit.take(len(worded))
        kept_as_is = [item for item in items if not item.is_term]
        is_upper = self._lowercased([without_items(block.text, span, kept_as_is) for span in worded])
        read = dict(zip(worded, zip(is_upper, self._marks(block.text, worded, kept_as_is), strict=True), strict=True))
        sentences = [_sentence(block, span, items, *read[span]) if span in read else span for span in spans]
        attributes = {raw: self._planned_parts(parts, limit) for raw, parts in block.attributes.items()}
        return PlannedBlock(block, tuple(sentences), attributes)

    def _without_long_items(self, text: str, span: Span, items: Sequence[Item]) -> Iterator[Span]:
        """Parts of a sentence without the items that have too many tokens, which are sentences of their own."""
        start = span[0]
        for item in overlapping(items, *span):
            if item.end - item.start >= self._limit and self._count([text[item.start : item.end]])[0] > self._limit:
                yield from trimmed(text, start, item.start)
                yield item.start, item.end
                start = item.end
        yield from trimmed(text, start, span[1])

    def _marks(self, text: str, spans: Sequence[Span], items: Sequence[Item]) -> list[str]:
        """The period that the model reads after each sentence; none after placeholders, and where it is too much."""
        if not self._period:
            return [""] * len(spans)
        counts = self._count([text[start:end] + self._period for start, end in spans])
        return [
            self._period
            if count <= self._limit and lacks_period(text[start:end]) and not overlapping(items, end - 1, end)
            else ""
            for (start, end), count in zip(spans, counts, strict=True)
        ]

    def _count(self, texts: list[str]) -> list[int]:
        return [len(ids) for ids in self.translator.source_tokenizer.encode_batch(texts, special_tokens=True)]

    def _lowercased(self, texts: list[str]) -> list[bool]:
        """Whether the model reads each text in lowercase."""
        capitals = [self.options.capitals != "keep" and in_capitals(text) for text in texts]
        if not any(capitals):
            return capitals
        most = 1 / _MANY_TOKENS if self.options.capitals == "auto" else math.inf
        return [
            is_upper and lower <= min(self._limit, most * upper)
            for is_upper, upper, lower in zip(
                capitals, self._count(texts), self._count(list(map(lowered, texts))), strict=True
            )
        ]


def _sentence(block: Block, span: Span, items: Sequence[Item], is_upper: bool, mark: str) -> PlannedSentence:
    own = tuple(item for item in overlapping(items, *span) if span[0] <= item.start and item.end <= span[1])
    reading = partial(read, block, span, own, is_upper=is_upper, mark=mark)
    placeholders = [item for item in own if not item.is_term]
    bare = reading(without=placeholders) if placeholders else None
    return PlannedSentence(block, span, own, frozenset(inner_tags(block, *span)), reading(), bare)
