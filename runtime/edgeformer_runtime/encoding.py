"""From what callers give to token ids, and from token ids to translations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

from edgeformer_runtime.errors import InputError, InputTooLongError, OptionError, StoppedError
from edgeformer_runtime.search.options import DecodeOptions, Token, TokensOrText
from edgeformer_runtime.search.requests import check_prefix, length_limit
from edgeformer_runtime.search.search import Hypothesis
from edgeformer_runtime.search.session import StepSession
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import OnError, Source, TextHypothesis, Translation


@dataclass(frozen=True)
class EncodedTexts:
    """The texts of a call as token ids."""

    sources: list[Source]
    """Of each text; without ids if it is blank or has an error."""
    prefixes: list[tuple[int, ...]]
    """Token ids that each translation begins with."""
    errors: dict[int, InputError]
    """Why texts cannot be translated, by position, if errors are not raised."""

    @cached_property
    def read(self) -> list[int]:
        """Positions of the texts that the model reads."""
        return [index for index, source in enumerate(self.sources) if source.ids]


def encode_texts(
    session: StepSession,
    tokenizers: tuple[Tokenizer, Tokenizer],
    texts: Sequence[str | Source],
    options: DecodeOptions,
    target_prefix: str | Sequence[TokensOrText | None] | None,
    on_error: OnError,
    *,
    truncate: bool,
) -> EncodedTexts:
    """Encode the texts of a call.

    Args:
        session: the model.
        tokenizers: those of the source and of the target side.
        texts: sentences, or sources.
        options: how to search.
        target_prefix, on_error: see :meth:`~edgeformer_runtime.translator.Translator.translate`.
        truncate: truncate texts that the model does not accept, rather than raise an error.

    Raises:
        InputError: a text cannot be translated, and errors are raised.
        OptionError: a prefix cannot be encoded.
    """
    if on_error not in get_args(OnError):
        raise OptionError(f"`on_error` must be one of {', '.join(get_args(OnError))}, but is {on_error!r}.")
    prefixes = prefix_ids(tokenizers[1], target_prefix, len(texts))
    limit = length_limit(session, options)

    def encoded(first: int, end: int) -> list[Source]:
        most, max_length = session.max_source_length, options.max_input_length
        sources = encode_sources(tokenizers[0], texts[first:end], most, max_length, truncate=truncate)
        for index, (source, prefix) in enumerate(zip(sources, prefixes[first:end], strict=True)):
            if source.ids and prefix:
                check_prefix(index, prefix, limit)
        return sources

    try:
        return EncodedTexts(encoded(0, len(texts)), prefixes, {})
    except InputError:
        if on_error == "raise":
            raise
    sources, errors = list[Source](), dict[int, InputError]()
    for index, text in enumerate(texts):
        try:
            sources += encoded(index, index + 1)
        except InputError as error:
            sources.append(Source(text.text if isinstance(text, Source) else text, ()))
            errors[index] = error.at(index)
    return EncodedTexts(sources, prefixes, errors)


def encode_sources(
    tokenizer: Tokenizer,
    texts: Sequence[str | Source],
    most: int,
    max_length: int | None = None,
    *,
    truncate: bool = False,
) -> list[Source]:
    """Encode texts for a model, and check the length of those that are encoded already.

    Args:
        tokenizer: tokenizer of the source side.
        texts: sentences; a blank sentence (only whitespace) gets no ids.
        most: maximum number of tokens that the model accepts, end token included.
        max_length: truncate texts to this number of tokens, if that is not more.
        truncate: truncate texts that the model does not accept, rather than raise an error.

    Raises:
        InputError: a text is not a string of valid Unicode.
        InputTooLongError: a text has more tokens than the model accepts, and may not be truncated.
        OptionError: ``max_length`` leaves no room for a text that must be truncated.
    """
    if max_length is None or max_length > most:
        max_length = most
    else:
        truncate = True
    around = tokenizer.prefix_length + tokenizer.suffix_length
    sources = []
    for index, source in enumerate(as_sources(tokenizer, texts)):
        ids, surplus = source.ids, len(source.ids) - max_length
        if not source.text.strip():
            sources.append(replace(source, ids=()))
        elif surplus <= 0:
            sources.append(source)
        elif truncate and max_length <= around:
            raise OptionError(
                f"`max_input_length` must be at least {around + 1}, since the model reads {around} tokens besides the "
                f"text, but is {max_length}."
            )
        elif truncate:
            end = len(ids) - tokenizer.suffix_length
            sources.append(replace(source, ids=(*ids[: end - surplus], *ids[end:]), truncated=surplus))
        else:
            raise InputTooLongError(index, len(ids), max_length)
    return sources


def as_sources(tokenizer: Tokenizer, texts: Sequence[str | Source]) -> list[Source]:
    """Return texts with their token ids, of which those that are strings are encoded.

    Raises:
        InputError: a text is neither, or not valid Unicode.
    """
    strings = [text for text in texts if not isinstance(text, Source)]
    for index, text in enumerate(strings):
        if not isinstance(text, str):
            raise InputError(index, f"must be a string, but is {text!r}.")
    encoded = iter(tokenizer.encode_batch(strings, special_tokens=True) if strings else ())
    return [text if isinstance(text, Source) else Source(text, tuple(next(encoded))) for text in texts]


def refuse_string(texts: object) -> None:
    """Raise an ``OptionError`` if texts are not a list, but a single string, say."""
    if isinstance(texts, str):
        raise OptionError("`texts` must be a list of strings, but is a string; write translate([text]).")
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise OptionError(f"`texts` must be a list of strings, but is {texts!r}.")


def decoded(
    tokenizer: Tokenizer, source: Source, hypotheses: Sequence[Hypothesis], error: StoppedError | None = None
) -> Translation:
    """Decode the hypotheses of a search.

    Args:
        tokenizer: tokenizer of the target side.
        source: what they translate.
        hypotheses: best first; none if there is an error.
        error: why the search was given up.
    """
    written = [
        TextHypothesis(
            tokenizer.decode(hypothesis.ids),
            tuple(tokenizer.tokens(hypothesis.ids)),
            hypothesis.ids,
            hypothesis.score,
            hypothesis.finished,
            hypothesis.token_scores,
        )
        for hypothesis in hypotheses
    ]
    return Translation(source, tuple(written), error)


def token_id(tokenizer: Tokenizer, token: Token, name: str) -> int:
    """Return the id of a token.

    Args:
        tokenizer: tokenizer of the target side.
        token: a token or its id.
        name: what the token is for, for the error.

    Raises:
        OptionError: the token is not in the vocabulary, or neither a string nor a whole number.
    """
    if isinstance(token, str):
        index = tokenizer.token_id(token)
        if index is None:
            raise OptionError(f"{name}: `{token}` is not a token of the target vocabulary.")
        return index
    if not isinstance(token, int) or isinstance(token, bool):
        raise OptionError(f"{name}: a token must be a string or a token id, but is {token!r}.")
    if not 0 <= token < tokenizer.vocab_size:
        raise OptionError(f"{name}: a token id must be between 0 and {tokenizer.vocab_size - 1}, but is {token}.")
    return token


def token_ids(tokenizer: Tokenizer, tokens: TokensOrText, name: str) -> tuple[int, ...]:
    """Return the ids of text or tokens.

    Args:
        tokenizer: tokenizer of the target side.
        tokens: text, or tokens.
        name: what they are for, for the error.

    Raises:
        OptionError: a token is not in the vocabulary, or the text cannot be encoded.
    """
    if isinstance(tokens, str):
        try:
            return tuple(tokenizer.encode(tokens))
        except InputError as error:
            raise OptionError(f"{name} {error.problem}") from None
    if not isinstance(tokens, Sequence) or isinstance(tokens, bytes):
        raise OptionError(f"{name} must be a string or a list of tokens, but is {tokens!r}.")
    return tuple(token_id(tokenizer, token, name) for token in tokens)


def prefix_ids(tokenizer: Tokenizer, prefixes: object, count: int) -> list[tuple[int, ...]]:
    """Return the ids of the target prefix of each text.

    Args:
        tokenizer: tokenizer of the target side.
        prefixes: text for all; or text, tokens or ``None`` for each; or ``None``.
        count: number of texts.

    Raises:
        OptionError: there is not one prefix per text; a prefix has the end token, the start token or padding, or cannot
            be encoded.
    """
    if prefixes is None:
        return [()] * count
    if isinstance(prefixes, str):
        prefixes = [prefixes] * count
    if not isinstance(prefixes, Sequence) or len(prefixes) != count:
        given = len(prefixes) if isinstance(prefixes, Sequence) else repr(prefixes)
        raise OptionError(
            f"`target_prefix` must be a string, or a list with one entry per text, {count}, but is {given}."
        )
    barred = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    results = []
    for number, prefix in enumerate(prefixes, 1):
        ids = () if prefix is None else token_ids(tokenizer, prefix, f"The target prefix of text {number}")
        if barred.intersection(ids):
            raise OptionError(f"The target prefix of text {number} must not contain the start, end or padding token.")
        results.append(ids)
    return results


def with_ids(tokenizer: Tokenizer, options: DecodeOptions) -> DecodeOptions:
    """Return options whose tokens and texts are replaced with ids.

    Raises:
        OptionError: a token is not in the vocabulary, or a text cannot be encoded.
    """
    if not options.suppress_tokens and not options.suppress_sequences:
        return options
    tokens, sequences = options.suppress_tokens, options.suppress_sequences
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise OptionError(f"`suppress_tokens` must be a list of tokens, but is {tokens!r}.")
    if isinstance(sequences, str) or not isinstance(sequences, Sequence):
        raise OptionError(f"`suppress_sequences` must be a list of texts or of lists of tokens, but is {sequences!r}.")
    return replace(
        options,
        suppress_tokens=token_ids(tokenizer, tokens, "`suppress_tokens`"),
        suppress_sequences=[
            ids
            for sequence in sequences
            for ids in dict.fromkeys(
                token_ids(tokenizer, spelling, "`suppress_sequences`") for spelling in _spellings(sequence)
            )
        ],
    )


def _spellings(sequence: TokensOrText) -> tuple[TokensOrText, ...]:
    """A text at the start of a sentence and within it: some tokenizers have a space in the first token of a word."""
    return (sequence, f" {sequence}") if isinstance(sequence, str) and sequence.strip() else (sequence,)
