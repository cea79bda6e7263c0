"""Source texts and their token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edgeformer_runtime.errors import InputError, InputTooLongError, OptionError
from edgeformer_runtime.tokenizers import Tokenizer

OnError = Literal["raise", "return"]
"""What becomes of the error of a text: it is raised, or returned as :attr:`Translation.error`."""


@dataclass(frozen=True)
class Source:
    """A text and its token ids."""

    text: str
    """The original text."""
    ids: tuple[int, ...]
    """Token ids, special tokens included; empty if the text is blank."""
    truncated: int = 0
    """Number of tokens dropped from the end of the text to fit the model."""
    needs_attention: bool = False
    """Whether its translations get attention weights, whatever the options say."""


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


def listed(texts: Iterable[str | Source]) -> list[str | Source]:
    """Return texts as a list; see :func:`refuse_string`."""
    refuse_string(texts)
    return list(texts)


def refuse_string(texts: object) -> None:
    """Raise an ``OptionError`` if texts are not a list, but a single string, say."""
    if isinstance(texts, str):
        raise OptionError("`texts` must be a list of strings, but is a string; write translate([text]).")
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise OptionError(f"`texts` must be a list of strings, but is {texts!r}.")
