"""Text in, text out: the promises that do not depend on what the model says."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import (
    Counters,
    DecodeOptions,
    EdgeformerError,
    InputError,
    InputTooLongError,
    OptionError,
    Translation,
    Translator,
)
from tests.amounts import examples
from tests.company import changed_by_company
from tests.cuda import skip_unless_supported

NOUNS, PLACES = ("dog", "river", "machine"), ("house", "sea", "café")
TEXTS = [
    " ".join(f"The {noun} {verb} {number} times near the {place}." for place in PLACES[: 1 + index % 3])
    if index % 4
    else f"{verb} {noun}"[: 3 + index]
    for index, (noun, verb, number) in enumerate(
        (noun, verb, number)
        for noun in NOUNS
        for verb in ("runs", "turns", "sings", "x")
        for number in (2, 14, 350, 9, 70)
    )
]
BLANK = ["", " ", "\t", "\u00a0", "\u3000 \r"]


@pytest.fixture(scope="module", params=["fp32", "int8"])
def either(request: pytest.FixtureRequest, small_bundle: Path, small_bundle_int8: Path, device: str) -> Translator:
    """The fp32 bundle, then the int8 bundle."""
    skip_unless_supported(request.param, device)
    return Translator.open({"fp32": small_bundle, "int8": small_bundle_int8}[request.param], device=device, threads=1)


def outputs(translations: list[Translation]) -> list[list[tuple[tuple[int, ...], bool]]]:
    return [[(hypothesis.ids, hypothesis.finished) for hypothesis in t.hypotheses] for t in translations]


def scores(translations: list[Translation]) -> list[float]:
    found = [hypothesis.score for translation in translations for hypothesis in translation.hypotheses]
    return [score for score in found if score is not None]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_bound_of_memory_changes_no_output(either: Translator, beam_size: int) -> None:
    small, large = Counters(), Counters()
    one = either.translate(TEXTS, beam_size=beam_size, max_batch_tokens=1, counters=small)
    many = either.translate(TEXTS, beam_size=beam_size, max_batch_tokens=4096, counters=large)
    assert outputs(one) == outputs(many)
    np.testing.assert_allclose(scores(one), scores(many), atol=1e-5)
    assert small.batches == len(TEXTS) > large.batches
    assert small.row_steps == large.row_steps, "a finished row must cost nothing in a batch either"
    assert small.peak_state_bytes <= large.peak_state_bytes
    if either.session.engine == "onnxruntime":  # a batch on the kernels holds what the largest one before left to it
        assert small.peak_state_bytes < large.peak_state_bytes


def test_the_number_of_threads_changes_no_output(small_bundle: Path, translator: Translator) -> None:
    two = Translator.open(small_bundle, threads=2).translate(TEXTS, n_best=4)
    assert outputs(two) == outputs(translator.translate(TEXTS, n_best=4))


def test_one_translator_serves_many_threads(either: Translator) -> None:
    def call(number: int) -> list[Translation]:
        return either.translate(TEXTS[number : number + 9], beam_size=1 + number % 4)

    serial = [call(number) for number in range(12)]
    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(call, range(12)))
    assert parallel == serial


def test_blank_texts_are_empty_and_leave_the_others_alone(translator: Translator) -> None:
    mixed = [text for pair in zip(TEXTS[: len(BLANK)], BLANK, strict=True) for text in pair]
    counters = Counters()
    translations = translator.translate(mixed, counters=counters)
    assert translations[::2] == translator.translate(TEXTS[: len(BLANK)])
    for translation in translations[1::2]:
        assert (translation.text, translation.tokens, translation.score) == ("", (), 0.0)
        assert translation.best.finished
    assert counters.sentences == len(BLANK)
    assert translator.translate([]) == []
    assert [translation.text for translation in translator.translate(BLANK)] == [""] * len(BLANK)


def test_a_translation_describes_its_best_hypothesis(translator: Translator) -> None:
    (translation,) = translator.translate(["The old dog runs 2 times near the sea."], beam_size=4, n_best=3)
    best = translation.hypotheses[0]
    assert translation.best is best
    assert (translation.text, translation.tokens, translation.score) == (best.text, best.tokens, best.score)
    assert translation.text == translator.target_tokenizer.decode(best.ids)
    assert list(translation.tokens) == translator.target_tokenizer.tokens(best.ids)
    found = scores([translation])
    assert len(found) == 3
    assert found == sorted(found, reverse=True)
    assert len({hypothesis.ids for hypothesis in translation.hypotheses}) == 3


def test_defaults_are_the_bundles(translator: Translator) -> None:
    generation = translator.bundle.manifest.generation
    expected = DecodeOptions(beam_size=generation.beam_size, length_penalty=generation.length_penalty)
    assert translator.defaults == translator.options() == expected
    assert translator.options(beam_size=7).beam_size == 7
    explicit = translator.translate(TEXTS[:5], beam_size=generation.beam_size, length_penalty=generation.length_penalty)
    assert translator.translate(TEXTS[:5]) == explicit


def test_an_unknown_option_is_named_with_the_valid_ones(translator: Translator) -> None:
    with pytest.raises(
        OptionError, match=r"Unknown options `beams`, `top_k`\. Valid options: beam_size, n_best"
    ) as caught:
        translator.translate(["a"], beams=2, top_k=1, beam_size=1)  # type: ignore[call-arg]  # what the test is about
    assert "`beam_size`" not in str(caught.value)


def test_a_text_too_long_may_be_truncated(translator: Translator, device: str) -> None:
    truncating = Translator.open(translator.bundle, device=device, threads=1, truncate=True)
    limit = translator.bundle.manifest.max_source_length
    words = [f"dog{index}" for index in range(limit)]
    tokens = translator.source_tokenizer.encode(" ".join(words))
    fits = translator.source_tokenizer.decode(tokens[: limit - 1])
    assert translator.source_tokenizer.encode(fits) == tokens[: limit - 1]
    short, long, blank = truncating.translate(["The dog.", " ".join(words), " " * 2 * limit], beam_size=1)
    surplus = len(tokens) + 1 - limit
    assert [found.source.truncated for found in (short, long, blank)] == [0, surplus, 0]
    (whole,) = translator.translate([fits], beam_size=1)
    assert (whole.source.ids, whole.source.truncated) == (long.source.ids, 0)
    assert outputs([whole]) == outputs([long])
    assert scores([whole]) == pytest.approx(scores([long]), abs=1e-5)
    (weights,) = truncating.attention([long])
    assert len(weights.source_tokens) == limit


@pytest.mark.parametrize("chunk", [1, 4, 7, 512])
def test_a_stream_gives_what_a_list_gives(translator: Translator, chunk: int) -> None:
    texts = TEXTS[:12] + BLANK
    counters = Counters()
    streamed = list(translator.translate_stream(iter(texts), chunk=chunk, beam_size=1, counters=counters))
    assert outputs(streamed) == outputs(translator.translate(texts, beam_size=1))
    assert counters.sentences == 12


def test_a_stream_reads_no_further_than_its_chunk(translator: Translator) -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for text in TEXTS:
            read += 1
            yield text

    stream = translator.translate_stream(lines(), chunk=3, beam_size=1)
    next(stream)
    assert read == 3
    for _ in range(3):
        next(stream)
    assert read == 6


def test_a_stream_counts_texts_over_all_chunks(translator: Translator) -> None:
    texts = ["The dog.", "", "sea", "", "The dog.", "x " * translator.bundle.manifest.max_source_length]
    stream = translator.translate_stream(texts, chunk=2, beam_size=1)
    first = [next(stream) for _ in range(4)]
    assert [translation.text == "" for translation in first] == [False, True, False, True]
    with pytest.raises(InputTooLongError, match="Text 6 has") as caught:
        list(stream)
    assert caught.value.index == 5


@examples(25, 200)
@given(st.lists(st.text(st.characters(), max_size=30), max_size=4), st.sampled_from([1, 2]))
def test_any_text_gives_one_translation(translator: Translator, texts: list[str], beam_size: int) -> None:
    if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
        with pytest.raises(InputError, match="surrogate"):
            translator.translate(texts, beam_size=beam_size, max_length=6)
        return
    translations = translator.translate(texts, beam_size=beam_size, max_length=6)
    assert len(translations) == len(texts)
    for text, translation in zip(texts, translations, strict=True):
        assert len(translation.best.ids) <= 6
        assert text.strip() or translation.best.ids == ()


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (None, "`texts` must be a list of strings, but is None."),
        (b"x", "`texts` must be a list of strings, but is b'x'."),
        (7, "`texts` must be a list of strings, but is 7."),
        ("x", "`texts` must be a list of strings, but is a string; write translate([text])."),
        (["a", None], "Text 2 must be a string, but is None."),
        ([b"x"], "Text 1 must be a string, but is b'x'."),
    ],
)
def test_what_is_no_list_of_strings_is_refused(translator: Translator, texts: Any, problem: str) -> None:
    for call in (
        translator.translate,
        translator.encode,
        lambda texts: list(translator.translate_stream(texts)),
    ):
        with pytest.raises(EdgeformerError) as caught:
            call(texts)
        assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"threads": "2"}, "`threads` must be a whole number, but is '2'."),
        ({"threads": -1}, "`threads` must be at least 0, but is -1."),
        ({"threads": 2**40}, f"`threads` must be at most 256, but is {2**40}."),
        ({"threads": None}, "`threads` must be a whole number, but is None."),
        ({"workers": None}, "`workers` must be a whole number, but is None."),
        ({"workers": -1}, "`workers` must be at least 0, but is -1."),
        ({"workers": 257}, "`workers` must be at most 256, but is 257."),
        ({"workers": True}, "`workers` must be a whole number, but is True."),
        ({"device": None}, "`device` must be one of cpu, cuda, but is `None`."),
    ],
)
def test_wrong_settings_are_named(small_bundle: Path, settings: dict[str, Any], problem: str) -> None:
    before = threading.active_count()
    with pytest.raises(EdgeformerError) as caught:
        Translator.open(small_bundle, **settings)
    assert str(caught.value) == problem
    assert threading.active_count() == before


def test_wrong_arguments_are_named(translator: Translator) -> None:
    wrong: Any = None
    with pytest.raises(OptionError, match="`bundle` must be a path or an opened bundle, but is None"):
        Translator.open(wrong)
    wrong = {"beam_size": 2}
    with pytest.raises(OptionError, match=r"`options` must be DecodeOptions, but is \{'beam_size': 2\}"):
        translator.translate(["a"], wrong)
    wrong = "ignore"
    with pytest.raises(OptionError, match="`chunk` must be at least 1, but is 0"):
        next(translator.translate_stream(["a"], chunk=0))
    with pytest.raises(OptionError, match="`on_error` must be one of raise, return, but is 'ignore'"):
        translator.translate(["a"], on_error=wrong)


def test_errors_can_be_returned_with_the_other_translations(translator: Translator) -> None:
    long = "x " * translator.bundle.manifest.max_source_length
    texts = ["The dog.", long, "", "bad \ud800", "The sea."]
    translations = translator.translate(texts, on_error="return")
    good = translator.translate(["The dog.", "", "The sea."])
    assert [translations[index] for index in (0, 2, 4)] == good
    errors = [translation.error for translation in translations]
    assert [error.index if isinstance(error, InputError) else error for error in errors] == [None, 1, None, 3, None]
    assert isinstance(translations[1].error, InputTooLongError)
    with pytest.raises(InputTooLongError, match="Text 2 has"):
        _ = translations[1].text
    assert translations[1].source.text == long
    stream = translator.translate_stream(texts, chunk=2, on_error="return")
    assert [str(translation.error) for translation in stream] == [
        str(translation.error) for translation in translations
    ]
    assert translator.attention(translations)[1].weights.size == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suppress_tokens": ["nowhere"]}, "`suppress_tokens`: `nowhere` is not a token of the target vocabulary."),
        ({"suppress_tokens": [300]}, "`suppress_tokens`: a token id must be between 0 and 299, but is 300."),
        ({"suppress_tokens": "a"}, "`suppress_tokens` must be a list of tokens, but is 'a'."),
        ({"suppress_sequences": ["\ud800"]}, "`suppress_sequences` must be valid Unicode"),
        ({"suppress_sequences": [[1.5]]}, "`suppress_sequences`: a token must be a string or a token id, but is 1.5."),
        ({"suppress_sequences": [""]}, "`suppress_sequences` must be a list of lists of token ids, none of them empty"),
    ],
)
def test_tokens_outside_the_vocabulary_are_named(translator: Translator, changes: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        translator.translate(TEXTS[:1], **changes)
    assert str(caught.value).startswith(message)


def test_text_and_tokens_that_are_not_generated(translator: Translator) -> None:
    (free,) = translator.translate(TEXTS[:1])
    token, pair = free.tokens[2], free.tokens[2:4]
    (without,) = translator.translate(TEXTS[:1], suppress_tokens=[token])
    assert token not in without.tokens
    assert without == translator.translate(TEXTS[:1], suppress_tokens=[free.best.ids[2]])[0]
    assert without == translator.translate(TEXTS[:1], translator.options(suppress_tokens=[token]))[0]
    text = translator.target_tokenizer.decode(free.best.ids[2:4])
    for sequence in (pair, free.best.ids[2:4]):
        (without,) = translator.translate(TEXTS[:1], suppress_sequences=[sequence])
        assert pair not in list(zip(without.tokens, without.tokens[1:], strict=False))
    encoded = translator.options(suppress_sequences=[text]).suppress_sequences
    spellings = (text, f" {text}")
    assert encoded == list(dict.fromkeys(tuple(translator.target_tokenizer.encode(each)) for each in spellings))


RANDOM = st.fixed_dictionaries(
    {},
    optional={
        "beam_size": st.integers(1, 4),
        "patience": st.sampled_from([0.5, 2.0]),
        "length_penalty": st.sampled_from([0.0, 0.6, 2.0]),
        "length_includes_end": st.booleans(),
        "min_length": st.integers(0, 20),
        "max_len_a": st.sampled_from([0.0, 0.8, 1.5]),
        "max_len_b": st.integers(0, 5),
        "max_ngram_repeats": st.sampled_from([0, 2, 3]),
        "max_input_length": st.none() | st.integers(2, 20),  # the end token and one of the text
        "no_repeat_ngram_size": st.integers(0, 3),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "suppress_tokens": st.lists(st.integers(20, 299), max_size=4),
        "suppress_sequences": st.lists(st.lists(st.integers(20, 299), min_size=1, max_size=3), max_size=3),
        "disable_unk": st.booleans(),
        "return_token_scores": st.booleans(),
        "return_attention": st.booleans(),
        "replace_unknowns": st.booleans(),
        "target_prefix": st.lists(
            st.none() | st.sampled_from(["river", "green", "g", "dog !"]), min_size=5, max_size=5
        ),
    },
)
MODES = st.sampled_from([{}, {"return_alternatives": True, "n_best": 3}, {"sampling_topk": 0, "n_best": 2, "seed": 5}])


@examples(5, 50, derandomize=True)
@given(RANDOM, MODES, st.sampled_from([1, 60, 4096]), st.integers(0, len(TEXTS) - 5))
def test_no_option_lets_a_batch_matter(
    both: dict[str, Translator], changes: dict[str, Any], mode: dict[str, Any], max_batch_tokens: int, start: int
) -> None:
    texts = TEXTS[start : start + 5]
    changes = {**changes, **mode}
    if "sampling_topk" in mode:
        changes |= {"beam_size": 1}
    prefixes = changes.pop("target_prefix", None) or [None] * len(texts)
    for translator in both.values():
        assert not changed_by_company(
            translator,
            texts,
            tolerance=1e-4,
            target_prefix=prefixes,
            max_batch_tokens=max_batch_tokens,
            **changes,
        )


@pytest.fixture(scope="module")
def both(translator: Translator, small_bundle_int4: Path, device: str) -> dict[str, Translator]:
    """A bundle whose rows are computed one by one, and one whose rows are computed in pairs, with several workers."""
    if device == "cuda":
        return {"fp32": translator}
    return {"fp32": translator, "int4": Translator.open(small_bundle_int4, threads=1, workers=2)}


def test_attention_comes_with_every_hypothesis(translator: Translator) -> None:
    texts = [TEXTS[1], " ", TEXTS[2]]
    translations = translator.translate(texts, n_best=3, return_attention=True)
    assert outputs(translations) == outputs(translator.translate(texts, n_best=3))
    for translation in translations:
        for hypothesis in translation.hypotheses:
            assert hypothesis.attention is not None
            (apart,) = translator.attention([Translation(translation.source, (hypothesis,))])
            np.testing.assert_allclose(hypothesis.attention.weights, apart.weights, atol=1e-5)
    assert all(best.attention is None for best in translator.translate(texts)[0].hypotheses)


def test_unknown_tokens_are_replaced_with_what_they_attend_to(translator: Translator) -> None:
    text = TEXTS[1]
    unk = translator.target_tokenizer.unk_id
    (free,) = translator.translate([text])
    # The model never writes the unknown token by itself: forbid everything else in its place.
    prefix = [*free.best.ids[:3], unk]
    (plain,) = translator.translate([text], target_prefix=[prefix], return_attention=True)
    (replaced,) = translator.translate([text], target_prefix=[prefix], replace_unknowns=True)
    assert replaced.best.ids == plain.best.ids
    assert replaced.best.attention is None
    assert plain.best.attention is not None
    (place,) = [place for place, target in plain.best.attention.alignment if target == 3]
    piece = translator.source_tokenizer.pieces(text)[place]
    decode = translator.target_tokenizer.decode
    assert replaced.text == (decode(plain.best.ids[:3]) + piece + decode(plain.best.ids[4:])).strip()
    assert replaced.text != plain.text


def test_sources_are_truncated_on_request(translator: Translator) -> None:
    text = TEXTS[1]
    ids = (*translator.source_tokenizer.encode(text), translator.session.special.eos)
    (short,) = translator.translate([text], max_input_length=6)
    assert short.source.ids == (*ids[:5], ids[-1])
    assert short.source.truncated == len(ids) - 6
    (whole,) = translator.translate([text], max_input_length=len(ids))
    assert whole == translator.translate([text])[0]
    long = "dog " * 400
    assert len(translator.translate([long], max_input_length=8)[0].source.ids) == 8
    with pytest.raises(InputTooLongError):
        translator.translate([long], max_input_length=10_000)


EXTREME = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers() | st.text(max_size=2) | st.lists(st.integers() | st.none(), max_size=2), max_size=3),
)


@examples(40, 400, derandomize=True)
@given(st.sampled_from(sorted(DecodeOptions.__dataclass_fields__)), EXTREME)
def test_no_value_of_an_option_ends_in_a_traceback(translator: Translator, name: str, value: Any) -> None:
    with contextlib.suppress(EdgeformerError):
        (translation,) = translator.translate(["dog"], **{"beam_size": 2, "max_length": 5, name: value})
        assert translation.hypotheses
