"""Translations token by token."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from edgeformer_runtime import DecodeOptions, InputError, OptionError, Translator

TEXT = "The old dog runs 2 times near the sea."


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_length": 4}, {"sampling_topk": 5, "seed": 3}, {"min_length": 22, "no_repeat_ngram_size": 2}],
)
@pytest.mark.parametrize("prefix", [None, "green dog"])
def test_the_steps_are_those_of_the_translation(
    translator: Translator, changes: dict[str, Any], prefix: str | None
) -> None:
    if prefix:
        changes = {**changes, "max_length": None}
    steps = list(translator.translate_tokens(TEXT, target_prefix=prefix, **changes))
    (translation,) = translator.translate(
        [TEXT], beam_size=1, target_prefix=prefix, return_token_scores=True, **changes
    )
    best = translation.best
    given = len(translator.target_tokenizer.encode(prefix or ""))
    ids = [*best.ids, *[translator.session.special.eos] * best.finished]
    assert [step.id for step in steps] == ids[given:]
    assert [step.token for step in steps] == translator.target_tokenizer.tokens(ids[given:])
    assert best.token_scores is not None
    assert [step.log_probability for step in steps] == pytest.approx(best.token_scores[given:])
    assert [step.text for step in steps] == [
        translator.target_tokenizer.decode(ids[:end]) for end in range(given + 1, len(ids) + 1)
    ]
    assert steps[-1].text == translation.text
    assert [step.is_last for step in steps] == [False] * (len(steps) - 1) + [True]


def test_a_stream_may_be_left(translator: Translator) -> None:
    steps = translator.translate_tokens(TEXT)
    first = next(steps)
    steps.close()  # type: ignore[attr-defined]  # it is a generator
    assert first == next(iter(translator.translate_tokens(TEXT)))
    assert list(translator.translate_tokens("  ")) == []


def test_what_cannot_be_streamed_is_refused(translator: Translator) -> None:
    for options in (DecodeOptions(beam_size=4), DecodeOptions(beam_size=1, n_best=3, sampling_topk=0)):
        with pytest.raises(OptionError, match="only with `beam_size` 1 and `n_best` 1"):
            next(translator.translate_tokens(TEXT, options))
    with pytest.raises(OptionError, match="only with `beam_size` 1"):
        next(translator.translate_tokens(TEXT, beam_size=2))
    with pytest.raises(InputError, match="Text 1 has a target prefix of"):
        next(translator.translate_tokens(TEXT, target_prefix="green dog " * 100))
    with pytest.raises(InputError, match="must be a string"):
        next(translator.translate_tokens(3))  # type: ignore[arg-type]  # the point of the test


def test_what_a_model_forces_comes_first(translator: Translator) -> None:
    forcing = copy(translator)
    forcing.session = translator.session.with_prefix(tuple(translator.target_tokenizer.encode("green dog")))
    *steps, last = forcing.translate_tokens(TEXT)
    assert last.text == forcing.translate([TEXT], beam_size=1)[0].text
    given = translator.translate([TEXT], beam_size=1, target_prefix="green dog")[0].best
    prefix = translator.target_tokenizer.encode("green dog")
    assert [*prefix, *(step.id for step in steps), *[last.id] * (not given.finished)] == list(given.ids)
