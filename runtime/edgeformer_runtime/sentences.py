"""The sentences of one call: what the model reads of them, and the translations that become of what it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from edgeformer_runtime.attention import attended
from edgeformer_runtime.errors import InputError, OptionError, StoppedError
from edgeformer_runtime.search.options import DecodeOptions, TokensOrText
from edgeformer_runtime.search.requests import Cancel, Stop, check_prefix, length_limit
from edgeformer_runtime.search.search import Hypothesis, SentenceCallback
from edgeformer_runtime.source import OnError, Source
from edgeformer_runtime.target import prefix_ids
from edgeformer_runtime.translation import BLANK, TextHypothesis, Translation

if TYPE_CHECKING:
    from edgeformer_runtime.translator import AnyTranslator


class Sentences:
    """The sentences of one call, from text to ids and back. The lists are those that
    :func:`~edgeformer_runtime.search.loop.decode` takes; blank texts and those with errors are not among them.

    Args:
        translator: model, tokenizers and settings.
        texts: sentences.
        options: how to search; tokens are ids.
        target_prefix, on_error: see :meth:`~edgeformer_runtime.translator.Translator.translate`.
        stops: what gives each sentence up.

    Raises:
        BundleError: the options need attention weights, which the bundle lacks.
        InputError: a text cannot be translated, and errors are raised.
        OptionError: an option is out of range, or a prefix cannot be encoded.
    """

    def __init__(
        self,
        translator: AnyTranslator,
        texts: Sequence[str | Source],
        options: DecodeOptions,
        target_prefix: str | Sequence[TokensOrText | None] | None,
        on_error: OnError,
        stops: Sequence[Stop | None],
    ) -> None:
        options.verify()
        self._needs_attention = options.return_attention or options.replace_unknowns
        if self._needs_attention:
            translator.session.open_attention()  # a bundle without attention is an error before any work
        if on_error not in get_args(OnError):
            raise OptionError(f"`on_error` must be one of {', '.join(get_args(OnError))}, but is {on_error!r}.")
        self._translator, self._texts, self._on_error = translator, texts, on_error
        self.options = options
        prefixes = prefix_ids(translator.target_tokenizer, target_prefix, len(texts))
        self._encoded = self._encode_all(prefixes)
        read = {
            index: source for index, source in enumerate(self._encoded) if isinstance(source, Source) and source.ids
        }
        self._read = list(read.items())
        self.sources = [source.ids for source in read.values()]
        """Token ids of each sentence, end token included."""
        self.prefixes = [prefixes[index] for index in read]
        """Token ids that each translation begins with."""
        self.stops = [stops[index] for index in read]
        """What gives each sentence up."""

    def done(self, done: Callable[[int, Translation], object] | None) -> SentenceCallback | None:
        """Return a function that takes hypotheses, and calls one that takes translations; ``None`` if translations are
        not complete without attention weights."""
        if done is None or self._needs_attention:
            return None

        def complete(number: int, hypotheses: Sequence[Hypothesis]) -> None:
            index, source = self._read[number]
            if not source.needs_attention:
                done(index, self._written(source, hypotheses))

        return complete

    def translations(self, decoded: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        """Return the translation of each text of the call.

        Args:
            decoded: hypotheses of each sentence that the model read; an empty list if it was given up.

        Raises:
            StoppedError: a sentence was given up, and errors are raised.
        """
        results = []
        rest = zip(decoded, self.stops, strict=True)
        for text, source in zip(self._texts, self._encoded, strict=True):
            if isinstance(source, InputError):
                shown = text.text if isinstance(text, Source) else text
                results.append(Translation(Source(shown, ()), (), source))
            elif source.ids:
                hypotheses, stop = next(rest)
                error = stop.error if stop and not hypotheses else None
                if error and self._on_error == "raise":
                    raise error
                results.append(self._written(source, hypotheses, error))
            else:
                blank = replace(BLANK, token_scores=() if self.options.return_token_scores else None)
                results.append(Translation(source, (blank,)))
        wanted = [
            index for index, result in enumerate(results) if self._needs_attention or result.source.needs_attention
        ]
        if wanted:
            tokenizers = self._translator.source_tokenizer, self._translator.target_tokenizer
            chosen = [results[index] for index in wanted]
            chosen = attended(self._translator.session, tokenizers, chosen, self.options)
            for index, result in zip(wanted, chosen, strict=True):
                results[index] = result
        return results

    def _written(
        self, source: Source, hypotheses: Sequence[Hypothesis], error: StoppedError | None = None
    ) -> Translation:
        tokenizer = self._translator.target_tokenizer
        return Translation(
            source,
            tuple(
                TextHypothesis(
                    tokenizer.decode(hypothesis.ids),
                    tuple(tokenizer.tokens(hypothesis.ids)),
                    hypothesis.ids,
                    hypothesis.score,
                    hypothesis.finished,
                    hypothesis.token_scores,
                )
                for hypothesis in hypotheses
            ),
            error,
        )

    def _encode_all(self, prefixes: Sequence[tuple[int, ...]]) -> Sequence[Source | InputError]:
        """Encode texts; if errors are returned, one takes the place of each text that cannot be translated."""
        count = len(self._texts)
        try:
            return self._encode(prefixes, 0, count)
        except InputError:
            if self._on_error == "raise":
                raise
        sources: list[Source | InputError] = []
        for index in range(count):
            try:
                sources += self._encode(prefixes, index, index + 1)
            except InputError as error:
                sources.append(error.at(index))
        return sources

    def _encode(self, prefixes: Sequence[tuple[int, ...]], begin: int, end: int) -> list[Source]:
        """Encode a range of the texts, from which the index of an error counts."""
        sources = self._translator.encode(self._texts[begin:end], max_length=self.options.max_input_length)
        limit = length_limit(self._translator.session, self.options)
        for index, (source, prefix) in enumerate(zip(sources, prefixes[begin:end], strict=True)):
            if source.ids:
                check_prefix(index, prefix, limit)
        return sources


def stops_of(
    cancel: Cancel | Sequence[Cancel | None] | None, timeout: float | None, count: int
) -> Sequence[Stop | None]:
    """Return what gives each of some texts up; see :meth:`~edgeformer_runtime.translator.Translator.translate`.

    Raises:
        OptionError: an argument is of another type, or there is not one function per text.
    """
    if cancel is None and timeout is None:
        return [None] * count
    if cancel is None or callable(cancel):
        return [Stop(cancel, timeout)] * count
    if isinstance(cancel, Sequence) and len(cancel) == count:
        return [Stop(each, timeout) for each in cancel]
    raise OptionError(f"`cancel` must be a function, or a list with one per text, but is {cancel!r}.")
