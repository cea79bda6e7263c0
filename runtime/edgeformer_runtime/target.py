"""Target tokens that callers give: prefixes of translations and tokens that may not be generated, as text or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.search.options import DecodeOptions, Token, TokensOrText
from edgeformer_runtime.tokenizers import Tokenizer


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
