"""Decoding options: immutable, changed only with :func:`dataclasses.replace`, validated before decoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_BEAM_SIZE, MAX_LENGTH_PENALTY, MAX_OPTION


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How to search for a translation.

    The score of a hypothesis is ``log_probability / length ** length_penalty``, where ``length`` is its number of
    tokens, end token included (Wu et al. 2016 without the offset; fairseq's ``--lenpen``).
    """

    beam_size: int = 4
    """Hypotheses kept per sentence (K); 1 is greedy search."""
    n_best: int = 1
    """Hypotheses returned per sentence, best first; at most ``beam_size``."""
    length_penalty: float = 1.0
    """Exponent of the length by which log-probabilities are divided; 0 leaves them undivided, larger values favor
    longer output."""
    min_length: int = 0
    """Minimum number of tokens before the end token."""
    max_length: int | None = None
    """Maximum number of tokens, end token included; ``None`` uses the model's limit, which also caps larger values."""
    no_repeat_ngram_size: int = 0
    """Forbid repeating n-grams of this size; 0 allows all."""
    repetition_penalty: float = 1.0
    """Divide positive logits, and multiply negative ones, of tokens that were generated before (Keskar et al. 2019); 1
    has no effect."""
    max_batch_tokens: int = 4096
    """Maximum batch size in tokens: decoder rows times the longest source."""
    return_scores: bool = True
    """Compute scores in greedy search too, which does not need them."""

    def verify(self) -> None:
        """Check all values.

        Raises:
            OptionError: lists every value that is out of range.
        """
        whole = {
            "beam_size": (self.beam_size, 1),
            "n_best": (self.n_best, 1),
            "min_length": (self.min_length, 0),
            "max_length": (1 if self.max_length is None else self.max_length, 1),
            "no_repeat_ngram_size": (self.no_repeat_ngram_size, 0),
            "max_batch_tokens": (self.max_batch_tokens, 1),
        }
        numbers = {"length_penalty": self.length_penalty, "repetition_penalty": self.repetition_penalty}
        problems = [
            f"`{name}` must be a whole number, but is {value!r}"
            for name, (value, _) in whole.items()
            if not isinstance(value, int) or isinstance(value, bool)
        ]
        problems += [
            f"`{name}` must be a number, but is {value!r}"
            for name, value in numbers.items()
            if not isinstance(value, int | float)
        ]
        if problems:  # the comparisons below require numbers
            raise OptionError("; ".join(problems) + ".")
        problems += [
            f"`{name}` must be at least {least}, but is {value}"
            for name, (value, least) in whole.items()
            if value < least
        ]
        problems += [
            f"`{name}` must be at most {most:,}, but is {value}"
            for name, (value, _) in whole.items()
            if value > (most := MAX_BEAM_SIZE if name == "beam_size" else MAX_OPTION)
        ]
        if self.n_best > self.beam_size >= 1:
            problems.append(f"`n_best` must be at most `beam_size` ({self.beam_size}), but is {self.n_best}")
        if self.max_length is not None and self.min_length > self.max_length >= 1:
            problems.append(f"`min_length` must be at most `max_length` ({self.max_length}), but is {self.min_length}")
        if not abs(self.length_penalty) <= MAX_LENGTH_PENALTY:
            bounds = f"from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}"
            problems.append(f"`length_penalty` must be {bounds}, but is {self.length_penalty}")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            problems.append(f"`repetition_penalty` must be positive and finite, but is {self.repetition_penalty}")
        if problems:
            raise OptionError("; ".join(problems) + ".")


def check_count(name: str, value: object, least: int, most: int) -> None:
    """Check an option that is a whole number.

    Raises:
        OptionError: the value is not a whole number, or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionError(f"`{name}` must be a whole number, but is {value!r}.")
    if value < least:
        raise OptionError(f"`{name}` must be at least {least}, but is {value}.")
    if value > most:
        raise OptionError(f"`{name}` must be at most {most:,}, but is {value}.")


class DecodeChanges(TypedDict, total=False):
    """Fields of :class:`DecodeOptions` as keyword arguments."""

    beam_size: int
    n_best: int
    length_penalty: float
    min_length: int
    max_length: int | None
    no_repeat_ngram_size: int
    repetition_penalty: float
    max_batch_tokens: int
    return_scores: bool
