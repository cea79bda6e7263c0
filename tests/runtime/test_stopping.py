"""Translations that are given up: at once, and without any effect on the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer_runtime import CanceledError, Counters, OptionError, TimedOutError, Translation, Translator
from edgeformer_runtime.errors import StoppedError
from edgeformer_text import TextTranslator

TEXTS = ["The old dog runs.", "two men play chess", "", "A café!", "green dogs sing and the old men run in the snow"]
LONG: dict[str, Any] = {"min_length": 30, "beam_size": 2}
OPTIONS: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 2},
    {"beam_size": 3, "early_stopping": False},
    {"n_best": 3, "return_alternatives": True},
    {"beam_size": 1, "sampling_topk": 0, "n_best": 2, "seed": 1},
    {"beam_size": 2, "min_length": 12, "repetition_penalty": 1.2, "return_token_scores": True},
    {"beam_size": 2, "max_batch_tokens": 40},
]


def after(count: int) -> Callable[[], bool]:
    """A function that is false this many times."""
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def outputs(translation: Translation) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(hypothesis.text, hypothesis.ids, hypothesis.finished) for hypothesis in translation.hypotheses]


@pytest.fixture(scope="module", params=["fp32", "int8"])
def model(request: pytest.FixtureRequest, small_bundles: dict[str, Path]) -> Translator:
    return Translator.open(small_bundles[request.param], threads=1, workers=1)


@settings(max_examples=25, deadline=None)
@given(
    changes=st.sampled_from(OPTIONS),
    counts=st.lists(st.none() | st.integers(0, 30), min_size=len(TEXTS), max_size=len(TEXTS)),
    prefix=st.sampled_from([None, "green dog"]),
)
def test_others_get_what_they_get_without_those_that_are_given_up(
    model: Translator, changes: dict[str, Any], counts: list[int | None], prefix: str | None
) -> None:
    whole = model.translate(TEXTS, target_prefix=prefix, **changes)
    cancel = [None if count is None else after(count) for count in counts]
    stopped = model.translate(TEXTS, target_prefix=prefix, cancel=cancel, on_error="return", **changes)
    for expected, translation, count in zip(whole, stopped, counts, strict=True):
        if translation.error is None:
            assert outputs(translation) == outputs(expected)
        else:
            assert count is not None
            assert isinstance(translation.error, CanceledError)
            assert translation.hypotheses == ()
            with pytest.raises(CanceledError, match="canceled"):
                _ = translation.text
    assert all(
        translation.error
        for translation, count in zip(stopped, counts, strict=True)
        if count == 0 and translation.source.ids
    )


def test_no_step_is_made_once_nobody_wants_it(model: Translator) -> None:
    for count in (0, 1, 5):
        counters = Counters()
        with pytest.raises(CanceledError):
            model.translate(["A dog runs."] * 4, cancel=after(count), counters=counters, **LONG)
        event, counters = threading.Event(), Counters()
        event.set()
        (one, *_) = model.translate(
            ["A dog runs."] * 4, cancel=[event.is_set] * 4, counters=counters, on_error="return", **LONG
        )
        assert isinstance(one.error, CanceledError)
        assert counters.steps == counters.batches == 0
    calls = 0

    def cancel() -> bool:
        nonlocal calls
        calls += 1
        return calls > 6  # once before the batch, then after each step

    counters = Counters()
    model.translate(["A dog runs."] * 4, cancel=cancel, counters=counters, on_error="return", **LONG)
    assert counters.steps == 6


@pytest.mark.parametrize("count", range(5))
def test_a_translation_is_given_up_while_its_prefix_is_read(model: Translator, count: int) -> None:
    (translation,) = model.translate(
        ["A dog runs."], target_prefix="green dog", cancel=after(count), on_error="return", min_length=20
    )
    assert isinstance(translation.error, CanceledError)
    with pytest.raises(CanceledError):
        list(model.translate_tokens("A dog runs.", target_prefix="green dog", cancel=after(count), min_length=20))


def test_a_canceled_row_leaves_the_batch(model: Translator) -> None:
    counters, alone = Counters(), Counters()
    model.translate(["A dog runs."] * 2, counters=alone, min_length=30, beam_size=1)
    model.translate(
        ["A dog runs."] * 2, cancel=[after(3), None], counters=counters, on_error="return", min_length=30, beam_size=1
    )
    assert counters.steps == alone.steps
    assert counters.row_steps == alone.row_steps - (alone.steps - 3)


def test_a_deadline_is_an_error_with_a_name(model: Translator) -> None:
    for translate in (model.translate, TextTranslator(model).translate):
        with pytest.raises(TimedOutError, match="longer than its `timeout`") as caught:
            translate(TEXTS, timeout=0)
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, StoppedError)
        assert translate(TEXTS, timeout=3600)[0].text
    with pytest.raises(TimedOutError):
        list(model.translate_stream(iter(TEXTS), timeout=0, chunk=1))
    with pytest.raises(TimedOutError):
        next(model.translate_tokens(TEXTS[0], timeout=0))


def test_streams_and_whole_texts_can_be_canceled(model: Translator) -> None:
    with pytest.raises(CanceledError):
        list(model.translate_stream(["A dog runs."] * 50, cancel=after(8), chunk=1, **LONG))
    steps = model.translate_tokens("A dog runs.", cancel=after(4), min_length=30)
    assert len([next(steps) for _ in range(3)]) == 3
    with pytest.raises(CanceledError):
        next(steps)
    with pytest.raises(CanceledError):
        TextTranslator(model).translate(["A dog runs. Two men play.\n"] * 50, cancel=after(9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": -1}, "`timeout` must be a number of seconds, at least 0, but is -1"),
        ({"timeout": "1"}, "`timeout` must be a number of seconds"),
        ({"cancel": 3}, "`cancel` must be a function, or a list with one per text"),
        ({"cancel": [None]}, "`cancel` must be a function, or a list with one per text"),
        ({"cancel": [3] * len(TEXTS)}, "`cancel` must be a function"),
    ],
)
def test_wrong_arguments_are_errors(model: Translator, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        model.translate(TEXTS, **arguments)
