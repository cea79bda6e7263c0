"""Decoding options: immutable, changed only with :func:`dataclasses.replace`, validated before decoding."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, TypedDict

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_BEAM_SIZE, MAX_LENGTH_PENALTY
from edgeformer_runtime.search.option_values import (
    SMALLEST,
    Booleans,
    Integers,
    Numbers,
    OptionDeclaration,
    TokenIds,
    Values,
)

Token = int | str
"""A token id; or, where a translator turns tokens into ids, a token as the target vocabulary writes it."""
TokensOrText = str | Sequence[Token]
"""Tokens, or text, which a translator's target tokenizer encodes."""


def _option(default: Any, values: Values, flag: str = "", help: str = "", served: Values | None = None) -> Any:
    return field(default=default, metadata={"declaration": OptionDeclaration(values, flag, help, served)})


_COUNT = Integers(0, 65_536)
_LENGTH = Integers(1, 65_536)
_FACTOR = Numbers("from 0.01 to 100", 0.01, 100)
_POSITIVE = Numbers("positive and finite", SMALLEST, sys.float_info.max)
_PROBABILITY = Numbers("from 0 to 1", 0, 1)
_TOP_P = Numbers("above 0 and at most 1", SMALLEST, 1)
_PENALTY = Numbers(f"from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
_RATIO = Numbers("from 0 to 1000", 0, 1000)


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """How to search for a translation.

    Names and meanings are those of CTranslate2's ``translate_batch`` where it has the option, except for ``n_best``
    (``num_hypotheses``), ``min_length`` and ``max_length`` (``min_decoding_length``, ``max_decoding_length``). A
    :class:`~edgeformer_runtime.Translator` accepts text or tokens wherever options have token ids.

    The score of a hypothesis is ``log_probability / length ** length_penalty``, where ``length`` is its number of
    tokens, end token included (Wu et al. 2016 without the offset; fairseq's ``--lenpen``; CTranslate2). Tokens that the
    model begins every target with, such as that of a language, count in it too, as in Transformers.
    """

    beam_size: int = _option(
        4,
        Integers(1, MAX_BEAM_SIZE),
        "--beam",
        "Hypotheses kept per sentence; 1 is greedy search.",
        Integers(1, 32),
    )
    """Hypotheses kept per sentence (K); 1 is greedy search."""
    n_best: int = _option(
        1, Integers(1, MAX_BEAM_SIZE), "--nbest", "Translations per sentence, best first.", Integers(1, 32)
    )
    """Hypotheses returned per sentence, best first; at most ``beam_size * patience``, except in sampling and with
    ``return_alternatives``."""
    patience: float = _option(
        1.0,
        Numbers("above 0 and at most 100", SMALLEST, 100),
        "--patience",
        "Finish a sentence when it has --beam times this many finished hypotheses.",
        Numbers("above 0 and at most 10", SMALLEST, 10),
    )
    """In beam search, a sentence is finished when it has ``beam_size * patience`` finished hypotheses, rounded (Kasai
    et al. 2022, "A Call for Clarity in Beam Search")."""
    beam_shrinks: bool = _option(
        False,
        Booleans(),
        "--beam-shrinks/--beam-refills",
        "Whether a finished hypothesis shrinks the beam by one, as in Marian.",
    )
    """In beam search, each finished hypothesis leaves one place fewer for unfinished ones, as in Marian."""
    early_stopping: bool = _option(
        True,
        Booleans(),
        "--early-stopping/--no-early-stopping",
        "Whether a sentence ends at the --beam-th finished hypothesis, even if an unfinished one scores higher.",
        Booleans(),
    )
    """In beam search, a sentence is finished when it has as many finished hypotheses as ``patience`` says. Otherwise,
    it continues until no unfinished one, divided by its present length, scores higher than the worst of that many, as
    is the default in Transformers."""
    length_penalty: float = _option(
        1.0, _PENALTY, "--length-penalty", "Exponent of the length by which scores are divided.", _PENALTY
    )
    """Exponent of the length by which log-probabilities are divided; 0 leaves them undivided, larger values favor
    longer output."""
    length_includes_end: bool = _option(
        True,
        Booleans(),
        "--length-includes-end/--length-excludes-end",
        "Whether the length of --length-penalty counts the end token.",
    )
    """Count the end token in that length, as fairseq, Marian, CTranslate2 and Transformers do."""
    min_length: int = _option(0, Integers(0), "--min-length", "Minimum number of tokens.", _COUNT)
    """Minimum number of tokens before the end token."""
    max_length: int | None = _option(None, Integers(1), "--max-length", "Maximum number of tokens.", _LENGTH)
    """Maximum number of tokens, end token included; ``None`` uses the model's limit, which also caps larger values."""
    max_len_a: float = _option(
        0.0, _RATIO, "--max-len-a", "Limit each output to A times the source length plus B tokens.", _RATIO
    )
    """Limit each output to ``max_len_a * source_length + max_len_b`` tokens, end tokens included on both sides, as
    fairseq does; no limit if both are 0. At least one token is generated, also after a target prefix."""
    max_len_b: int = _option(0, Integers(0), "--max-len-b", "B of --max-len-a.", _COUNT)
    """See ``max_len_a``."""
    max_ngram_repeats: int = _option(
        0,
        Integers(0),
        "--max-ngram-repeats",
        "Stop an output that ends with the same n-gram this many times in a row; 0 disables it.",
        _COUNT,
    )
    """Stop a hypothesis, unfinished, that ends with an n-gram repeated this often in a row, for n from 1 to 8; 0 stops
    none."""
    max_input_length: int | None = _option(
        None, Integers(1), "--max-input-length", "Truncate lines to this number of tokens."
    )
    """Truncate sources to this number of tokens, end token included. A translator applies it; ``None`` is the model's
    limit."""
    no_repeat_ngram_size: int = _option(
        0, Integers(0), "--no-repeat-ngram", "Forbid repeating n-grams of this size; 0 allows all.", _COUNT
    )
    """Forbid repeating n-grams of this size; 0 allows all."""
    repetition_penalty: float = _option(
        1.0,
        _POSITIVE,
        "--repetition-penalty",
        "Values above 1 make tokens that were generated before less likely.",
        _FACTOR,
    )
    """Divide positive logits, and multiply negative ones, of tokens that were generated before (Keskar et al. 2019); 1
    has no effect."""
    suppress_tokens: Sequence[Token] = _option(
        (), TokenIds(), "--suppress-token", "Never generate this token; may be repeated."
    )
    """Tokens that are never generated."""
    suppress_sequences: Sequence[TokensOrText] = _option(
        (),
        TokenIds(nested=True),
        "--suppress-sequence",
        "Never generate the tokens of this text in a row; may be repeated.",
        TokenIds(nested=True),
    )
    """Sequences of tokens that are never generated: after all tokens of a sequence but the last, its last token is
    forbidden. A text stands for its tokens at the start of a sentence and after a space; it may still be generated in
    other tokens."""
    disable_unk: bool = _option(False, Booleans(), "--disable-unk", "Never generate the unknown token.", Booleans())
    """Never generate the unknown token."""
    sampling_topk: int = _option(
        1,
        Integers(0),
        "--sampling-topk",
        "Sample from this number of most probable tokens; 0 samples from all, 1 searches. Requires --beam 1.",
        _COUNT,
    )
    """Sample each token from this number of most probable tokens, rather than search; 1 searches, 0 samples from all.
    Requires ``beam_size`` 1. ``n_best`` samples are drawn independently."""
    sampling_topp: float = _option(
        1.0,
        _TOP_P,
        "--sampling-topp",
        "Sample from the most probable tokens that together have this probability.",
        _TOP_P,
    )
    """Sample from the most probable tokens whose probabilities, after ``sampling_topk`` and temperature, add up to at
    least this number (nucleus sampling, Holtzman et al. 2020)."""
    sampling_temperature: float = _option(
        1.0, _POSITIVE, "--sampling-temperature", "Values above 1 make samples more random.", _FACTOR
    )
    """Divide logits by this number before sampling; scores are those of the undivided logits."""
    seed: int = _option(0, Integers(0), "--seed", "Seed of the samples.", Integers(0))
    """Seed of the random numbers. Those of a sentence depend on the seed, its source tokens, its target prefix and the
    number of the sample only, so that the same sentence gets the same samples in every call."""
    return_alternatives: bool = _option(
        False,
        Booleans(),
        "--alternatives",
        "Let the --nbest translations differ in the first token after the target prefix.",
        Booleans(),
    )
    """Return the translations that continue the ``n_best`` most probable tokens at the first position after the target
    prefix, one each, in the order of these tokens' probabilities. The end token is not among them."""
    min_alternative_expansion_prob: float = _option(
        0.0,
        _PROBABILITY,
        "--min-alternative-prob",
        "Leave out alternatives whose first token is less probable.",
        _PROBABILITY,
    )
    """Leave out alternatives whose first token is less probable than this, except for the first alternative."""
    max_batch_tokens: int = _option(4096, Integers(1), "--batch-tokens", "Maximum batch size in tokens.")
    """Maximum batch size in tokens: decoder rows times the longest source."""
    return_scores: bool = _option(True, Booleans())
    """Compute scores in greedy search too, which does not need them."""
    return_token_scores: bool = _option(
        False,
        Booleans(),
        "--token-scores",
        "With --json, print the log-probability of each token, and the geometric mean of their probabilities as "
        "confidence.",
    )
    """Return the log-probability of each token."""
    return_attention: bool = _option(False, Booleans())
    """Return attention weights; a translator computes them, if the model has them."""
    replace_unknowns: bool = _option(
        False,
        Booleans(),
        "--replace-unknowns",
        "Replace unknown tokens with the source text that they attend to most.",
        Booleans(),
    )
    """In text, replace each unknown token with the source token that it attends to most, the end token excepted. A
    translator does so, if the model has attention weights."""

    @cached_property
    def is_sampling(self) -> bool:
        """Whether tokens are sampled."""
        return self.sampling_topk != 1

    @property
    def rows(self) -> int:
        """Rows of a sentence that are searched at a time."""
        return max(1, self.beam_size) * (self.n_best if self.is_sampling or self.return_alternatives else 1)

    @property
    def places(self) -> int:
        """Number of finished hypotheses at which beam search of a sentence ends."""
        return max(1, math.floor(self.beam_size * self.patience + 0.5))

    @property
    def needs_scores(self) -> bool:
        """Whether log-probabilities are computed."""
        return self.return_scores or self.return_token_scores or self.n_best > 1

    @property
    def needs_attention(self) -> bool:
        """Whether all translations need attention weights."""
        return self.return_attention or self.replace_unknowns

    def verify(self) -> None:
        """Check all values.

        Raises:
            OptionError: lists every value that is out of range.
        """
        if self._all_problems:
            raise OptionError("; ".join(self._all_problems) + ".")

    @cached_property
    def _all_problems(self) -> list[str]:
        return list(self._problems()) or list(self._conflicts())

    def _problems(self) -> Iterator[str]:
        """Values that are wrong by themselves."""
        chosen = vars(self)
        for name, (default, option) in declarations().items():
            value = chosen[name]
            if value is not default and (problem := option.values.problem(value)):
                yield f"`{name}` {problem}, but is {value!r}"

    def _conflicts(self) -> Iterator[str]:
        """Values that are wrong beside others; each is valid by itself."""
        if not self.is_sampling and not self.return_alternatives and self.n_best > self.places:
            name = "`beam_size`" if self.patience == 1 else "`beam_size` times `patience`"
            yield f"`n_best` must be at most {name} ({self.places}), but is {self.n_best}"
        if self.max_length is not None and self.min_length > self.max_length:
            yield f"`min_length` must be at most `max_length` ({self.max_length}), but is {self.min_length}"
        if self.max_ngram_repeats == 1:
            yield "`max_ngram_repeats` must be 0 or at least 2, but is 1"
        if self.is_sampling and self.beam_size != 1:
            yield f"`beam_size` must be 1 for sampling, but is {self.beam_size}"
        if not self.is_sampling and (self.sampling_topp != 1 or self.sampling_temperature != 1):
            yield "`sampling_topp` and `sampling_temperature` need sampling: `sampling_topk` must not be 1"
        if self.is_sampling and self.return_alternatives:
            yield "sampling and `return_alternatives` cannot be combined"
        if self.beam_shrinks and self.patience > 1:
            yield "`beam_shrinks` and a `patience` above 1 cannot be combined"
        if self.beam_shrinks and not self.early_stopping:
            yield "`beam_shrinks` needs `early_stopping`"


@cache
def declarations() -> dict[str, tuple[Any, OptionDeclaration]]:
    """The default of every option, and what is declared of it, by name."""
    return {option.name: (option.default, option.metadata["declaration"]) for option in fields(DecodeOptions)}


def check_count(name: str, value: object, least: int, most: int) -> None:
    """Check an option that is a whole number.

    Raises:
        OptionError: the value is not a whole number, or out of range.
    """
    if problem := Integers(least, most).problem(value):
        raise OptionError(f"`{name}` {problem}, but is {value!r}.")


class DecodeChanges(TypedDict, total=False):
    """Fields of :class:`DecodeOptions` as keyword arguments."""

    beam_size: int
    n_best: int
    patience: float
    beam_shrinks: bool
    early_stopping: bool
    length_penalty: float
    length_includes_end: bool
    min_length: int
    max_length: int | None
    max_len_a: float
    max_len_b: int
    max_ngram_repeats: int
    max_input_length: int | None
    no_repeat_ngram_size: int
    repetition_penalty: float
    suppress_tokens: Sequence[Token]
    suppress_sequences: Sequence[TokensOrText]
    disable_unk: bool
    sampling_topk: int
    sampling_topp: float
    sampling_temperature: float
    seed: int
    return_alternatives: bool
    min_alternative_expansion_prob: float
    max_batch_tokens: int
    return_scores: bool
    return_token_scores: bool
    return_attention: bool
    replace_unknowns: bool


def changed(options: DecodeOptions, changes: DecodeChanges) -> DecodeOptions:
    """Return options with some fields changed.

    Raises:
        OptionError: a name is unknown, or the options are of another type.
    """
    if not isinstance(options, DecodeOptions):
        raise OptionError(f"`options` must be DecodeOptions, but is {options!r}; or give its fields by name.")
    valid = DecodeOptions.__dataclass_fields__
    if unknown := [f"`{name}`" for name in changes if name not in valid]:
        plural = "s" if len(unknown) > 1 else ""
        raise OptionError(f"Unknown option{plural} {', '.join(unknown)}. Valid options: {', '.join(valid)}.")
    if not changes:
        return options
    own: Any = {name: value for name, value in vars(options).items() if name in valid}  # faster than `replace`
    return DecodeOptions(**own | changes)
