"""Decoding options: immutable, changed only with :func:`dataclasses.replace`, validated before decoding."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypedDict

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_BEAM_SIZE, MAX_LENGTH_PENALTY, MAX_OPTION

Token = int | str
"""A token id; or, where a translator turns tokens into ids, a token as the target vocabulary writes it."""
TokensOrText = str | Sequence[Token]
"""Tokens, or text, which a translator's target tokenizer encodes."""


class Values(Protocol):
    """The values that an option may have."""

    def problem(self, value: Any) -> str | None:
        """Say what a value must be instead, as in "must be at least 1"; ``None`` if it is valid."""


@dataclass(frozen=True)
class Whole:
    """Whole numbers between two bounds."""

    least: int
    most: int = MAX_OPTION

    def problem(self, value: Any) -> str | None:
        """See :class:`Values`."""
        if not isinstance(value, int) or isinstance(value, bool):
            return "must be a whole number"
        if value < self.least:
            return f"must be at least {self.least}"
        return f"must be at most {self.most:,}" if value > self.most else None


@dataclass(frozen=True)
class Real:
    """Numbers between two bounds."""

    words: str
    """The range in words."""
    least: float
    most: float

    def problem(self, value: Any) -> str | None:
        """See :class:`Values`."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return "must be a number"
        return None if self.least <= value <= self.most else f"must be {self.words}"


@dataclass(frozen=True)
class Flag:
    """``True`` and ``False``."""

    def problem(self, value: Any) -> str | None:
        """See :class:`Values`."""
        return None if isinstance(value, bool) else "must be True or False"


@dataclass(frozen=True)
class Ids:
    """Sequences of token ids, or of such sequences."""

    nested: bool = False

    def problem(self, value: Any) -> str | None:
        """See :class:`Values`."""
        if not self.nested:
            return None if _is_ids(value) else "must be a list of token ids"
        if _is_list(value) and all(_is_ids(item) and len(item) for item in value):
            return None
        return "must be a list of lists of token ids, none of them empty"


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_ids(value: Any) -> bool:
    return _is_list(value) and all(Whole(0).problem(item) is None for item in value)


_POSITIVE = math.ulp(0.0)
"""The smallest positive number."""
POSITIVE = Real("positive and finite", _POSITIVE, sys.float_info.max)
PENALTY = Real(f"from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)


def _option(default: Any, values: Values) -> Any:
    return field(default=default, metadata={"values": values})


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How to search for a translation.

    Names and meanings are those of CTranslate2's ``translate_batch`` where it has the option, except for ``n_best``
    (``num_hypotheses``), ``min_length`` and ``max_length`` (``min_decoding_length``, ``max_decoding_length``). A
    :class:`~edgeformer_runtime.Translator` accepts text or tokens wherever options have token ids.

    The score of a hypothesis is ``log_probability / length ** length_penalty``, where ``length`` is its number of
    tokens, end token included (Wu et al. 2016 without the offset; fairseq's ``--lenpen``; CTranslate2).
    """

    beam_size: int = _option(4, Whole(1, MAX_BEAM_SIZE))
    """Hypotheses kept per sentence (K); 1 is greedy search."""
    n_best: int = _option(1, Whole(1, MAX_BEAM_SIZE))
    """Hypotheses returned per sentence, best first; at most ``beam_size``."""
    length_penalty: float = _option(1.0, PENALTY)
    """Exponent of the length by which log-probabilities are divided; 0 leaves them undivided, larger values favor
    longer output."""
    min_length: int = _option(0, Whole(0))
    """Minimum number of tokens before the end token."""
    max_length: int | None = _option(None, Whole(1))
    """Maximum number of tokens, end token included; ``None`` uses the model's limit, which also caps larger values."""
    no_repeat_ngram_size: int = _option(0, Whole(0))
    """Forbid repeating n-grams of this size; 0 allows all."""
    repetition_penalty: float = _option(1.0, POSITIVE)
    """Divide positive logits, and multiply negative ones, of tokens that were generated before (Keskar et al. 2019); 1
    has no effect."""
    suppress_tokens: Sequence[Token] = _option((), Ids())
    """Tokens that are never generated."""
    suppress_sequences: Sequence[TokensOrText] = _option((), Ids(nested=True))
    """Sequences of tokens that are never generated: after all tokens of a sequence but the last, its last token is
    forbidden. The same text may still be generated in other tokens."""
    disable_unk: bool = _option(False, Flag())
    """Never generate the unknown token."""
    max_batch_tokens: int = _option(4096, Whole(1))
    """Maximum batch size in tokens: decoder rows times the longest source."""
    return_scores: bool = _option(True, Flag())
    """Compute scores in greedy search too, which does not need them."""

    def verify(self) -> None:
        """Check all values.

        Raises:
            OptionError: lists every value that is out of range.
        """
        problems = list(self._problems()) or list(self._conflicts())
        if problems:
            raise OptionError("; ".join(problems) + ".")

    def _problems(self) -> Iterator[str]:
        """Values that are wrong by themselves."""
        for option in fields(self):
            value = getattr(self, option.name)
            problem = option.metadata["values"].problem(value)
            if problem and not (value is None and option.default is None):
                yield f"`{option.name}` {problem}, but is {value!r}"

    def _conflicts(self) -> Iterator[str]:
        """Values that are wrong beside others; each is valid by itself."""
        if self.n_best > self.beam_size:
            yield f"`n_best` must be at most `beam_size` ({self.beam_size}), but is {self.n_best}"
        if self.max_length is not None and self.min_length > self.max_length:
            yield f"`min_length` must be at most `max_length` ({self.max_length}), but is {self.min_length}"


def check_count(name: str, value: object, least: int, most: int) -> None:
    """Check an option that is a whole number.

    Raises:
        OptionError: the value is not a whole number, or out of range.
    """
    if problem := Whole(least, most).problem(value):
        raise OptionError(f"`{name}` {problem}, but is {value!r}.")


class DecodeChanges(TypedDict, total=False):
    """Fields of :class:`DecodeOptions` as keyword arguments."""

    beam_size: int
    n_best: int
    length_penalty: float
    min_length: int
    max_length: int | None
    no_repeat_ngram_size: int
    repetition_penalty: float
    suppress_tokens: Sequence[Token]
    suppress_sequences: Sequence[TokensOrText]
    disable_unk: bool
    max_batch_tokens: int
    return_scores: bool
