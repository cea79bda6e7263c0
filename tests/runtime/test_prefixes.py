"""Target prefixes: forced, part of the output, and without effect on other sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import DecodeOptions, InputError, OptionError, Translator
from edgeformer_runtime.search.loop import decode
from tests.amounts import examples
from tests.runtime.test_search import MODELS, PREFIXES, SOURCES, beam_options, with_room, within
from tests.toy import Ids, ToySession

TEXTS = ["The old dog runs 2 times near the sea.", "The green river turns 14 times near the house.", "The dog sings."]


@examples(40, 500, derandomize=True)
@given(
    MODELS,
    st.lists(st.tuples(SOURCES, PREFIXES), min_size=2, max_size=7)
    | st.lists(st.tuples(SOURCES, st.just(())), min_size=2, max_size=7),  # of one length, which share a batch
    beam_options(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 30, 4096]),
)
def test_a_sentence_gets_the_same_output_alone_and_in_any_batch(
    session: ToySession,
    pairs: list[tuple[Ids, Ids]],
    options: DecodeOptions,
    shrinks: bool,
    early: bool,
    max_batch_tokens: int,
) -> None:
    options = replace(within(session, options), beam_shrinks=shrinks and early, early_stopping=early)
    options = replace(options, max_batch_tokens=max_batch_tokens)
    sources = [source for source, _ in pairs]
    prefixes = [with_room(session, prefix, options) for _, prefix in pairs]
    together = decode(session, sources, options, prefixes=prefixes, workers=2)
    alone = [
        decode(session, [source], options, prefixes=[prefix])[0]
        for source, prefix in zip(sources, prefixes, strict=True)
    ]
    assert together == alone
    assert together[::-1] == decode(session, sources[::-1], options, prefixes=prefixes[::-1])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_prefixes_of_one_length_share_a_batch_with_one_row_per_sentence(beam_size: int) -> None:
    session = ToySession(max_target_length=6, end_bias=-50.0)
    decode(session, [(4,), (5,)], DecodeOptions(beam_size=beam_size), prefixes=[(4, 5, 6), (6, 5, 4)])
    assert session.rows == [2, 2, 2, 2, 2 * beam_size, 2 * beam_size]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_begins_with_its_prefix(translator: Translator, beam_size: int) -> None:
    free = translator.translate(TEXTS, beam_size=beam_size)
    tokens = [translation.tokens[:3] for translation in free]
    ids = [translation.best.ids[:3] for translation in free]
    for prefix in (tokens, ids, [translator.target_tokenizer.decode(of_text) for of_text in ids]):
        forced = translator.translate(TEXTS, beam_size=beam_size, target_prefix=prefix)
        for translation, expected in zip(forced, ids, strict=True):
            assert translation.best.ids[:3] == expected
    together = translator.translate(TEXTS, beam_size=beam_size, target_prefix=["green", None, tokens[2]])
    assert together[0].text.startswith("green")
    alone = translator.translate(TEXTS[:1], beam_size=beam_size, target_prefix="green")
    assert alone == list(translator.translate_stream(TEXTS[:1], beam_size=beam_size, target_prefix="green"))
    for batch, apart in ((together[0], alone[0]), (together[1], free[1])):
        assert [each.ids for each in batch.hypotheses] == [each.ids for each in apart.hypotheses]
        assert batch.score == pytest.approx(apart.score, abs=1e-5)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (["a"], "`target_prefix` must be a string, or a list with one entry per text, 3, but is 1."),
        (3, "`target_prefix` must be a string, or a list with one entry per text, 3, but is 3."),
        ([None, ["nowhere"], None], "The target prefix of text 2: `nowhere` is not a token of the target vocabulary."),
        ([[10**6], None, None], "The target prefix of text 1: a token id must be between 0 and 299, but is 1000000."),
        ([None, None, [1.5]], "The target prefix of text 3: a token must be a string or a token id, but is 1.5."),
        ([None, None, 7], "The target prefix of text 3 must be a string or a list of tokens, but is 7."),
        ([["</s>"], None, None], "The target prefix of text 1 must not contain the start, end or padding token."),
        (["\ud800", None, None], "The target prefix of text 1 must be valid Unicode, but contains a lone surrogate"),
    ],
)
def test_a_wrong_prefix_is_named(translator: Translator, prefix: object, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        translator.translate(TEXTS, target_prefix=prefix)  # type: ignore[arg-type]  # the point of the test
    assert str(caught.value).startswith(message)


def test_a_prefix_that_is_too_long_fails_alone_if_errors_are_returned(translator: Translator) -> None:
    prefix = [None, "old dog " * 200, None]
    failed = translator.translate(TEXTS, target_prefix=prefix, on_error="return")
    assert isinstance(failed[1].error, InputError)
    assert str(failed[1].error).startswith("Text 2 has a target prefix of")
    assert failed[::2] == translator.translate(TEXTS[::2])
    with pytest.raises(InputError, match="Text 2 has a target prefix of"):
        translator.translate(TEXTS, target_prefix=prefix)
