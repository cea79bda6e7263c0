"""Decoding options: every value out of its range is named, and all of them at once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_type_hints

import pytest

from edgeformer_runtime.errors import EdgeformerError, OptionError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions
from tests.toy import ToySession

NEEDS_SAMPLING = "`sampling_topp` and `sampling_temperature` need sampling: `sampling_topk` must not be 1"
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"beam_size": 0}, "`beam_size` must be at least 1, but is 0"),
    ({"n_best": 0}, "`n_best` must be at least 1, but is 0"),
    ({"n_best": 5}, "`n_best` must be at most `beam_size` (4), but is 5"),
    ({"min_length": -1}, "`min_length` must be at least 0, but is -1"),
    ({"max_length": 0}, "`max_length` must be at least 1, but is 0"),
    ({"min_length": 9, "max_length": 8}, "`min_length` must be at most `max_length` (8), but is 9"),
    ({"no_repeat_ngram_size": -2}, "`no_repeat_ngram_size` must be at least 0, but is -2"),
    ({"max_batch_tokens": 0}, "`max_batch_tokens` must be at least 1, but is 0"),
    ({"beam_size": 1025}, "`beam_size` must be at most 1,024, but is 1025"),
    ({"max_batch_tokens": 2**63}, f"`max_batch_tokens` must be at most 2,147,483,647, but is {2**63}"),
    ({"no_repeat_ngram_size": 2**63}, f"`no_repeat_ngram_size` must be at most 2,147,483,647, but is {2**63}"),
    ({"length_penalty": math.nan}, "`length_penalty` must be from -10 to 10, but is nan"),
    ({"length_penalty": math.inf}, "`length_penalty` must be from -10 to 10, but is inf"),
    ({"length_penalty": "1"}, "`length_penalty` must be a number, but is '1'"),
    ({"beam_size": "4"}, "`beam_size` must be a whole number, but is '4'"),
    ({"max_length": 3.5}, "`max_length` must be a whole number, but is 3.5"),
    ({"repetition_penalty": 0.0}, "`repetition_penalty` must be positive and finite, but is 0.0"),
    ({"suppress_tokens": 5}, "`suppress_tokens` must be a list of token ids, but is 5"),
    ({"suppress_tokens": ["a"]}, "`suppress_tokens` must be a list of token ids, but is ['a']"),
    ({"suppress_tokens": [-1]}, "`suppress_tokens` must be a list of token ids, but is [-1]"),
    (
        {"suppress_sequences": [[4], []]},
        "`suppress_sequences` must be a list of lists of token ids, none of them empty, but is [[4], []]",
    ),
    ({"disable_unk": 1}, "`disable_unk` must be True or False, but is 1"),
    ({"sampling_topp": 0.5}, NEEDS_SAMPLING),
    ({"sampling_temperature": 0.5}, NEEDS_SAMPLING),
    ({"repetition_penalty": math.nan}, "`repetition_penalty` must be positive and finite, but is nan"),
]


@pytest.mark.parametrize(
    ("changes", "message"),
    INVALID,
    ids=[f"{next(iter(changes))}-{message.split(',')[0]}" for changes, message in INVALID],
)
def test_each_invalid_value_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        replace(DecodeOptions(), **changes).verify()
    assert str(caught.value) == f"{message}."


def test_several_invalid_values_are_listed_together() -> None:
    options = DecodeOptions(beam_size=-1, n_best=0, length_penalty=math.inf, repetition_penalty=-3.0)
    with pytest.raises(OptionError) as caught:
        options.verify()
    for name in ("beam_size", "n_best", "length_penalty", "repetition_penalty"):
        assert f"`{name}`" in str(caught.value)
    assert isinstance(caught.value, EdgeformerError)


@pytest.mark.parametrize(
    "options",
    [
        DecodeOptions(),
        DecodeOptions(beam_size=1, n_best=1, min_length=8, max_length=8, length_penalty=-1.0, max_batch_tokens=1),
        DecodeOptions(beam_size=12, n_best=12, no_repeat_ngram_size=1, repetition_penalty=0.5, return_scores=False),
    ],
)
def test_values_at_the_edge_are_accepted(options: DecodeOptions) -> None:
    assert len(decode(ToySession(vocab_size=24, max_target_length=8), [(4,)], options)[0]) == options.n_best


def test_options_as_keyword_arguments_have_the_same_fields() -> None:
    assert list(get_type_hints(DecodeChanges).items()) == list(get_type_hints(DecodeOptions).items())
