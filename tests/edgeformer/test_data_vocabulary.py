"""Training of tokenizers of every kind."""

from __future__ import annotations

from functools import cache
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.config import TokenizerConfig
from edgeformer.data.vocabulary import SPECIAL_TOKENS, minimum_vocab_size, train_tokenizer, train_tokenizers
from edgeformer.errors import ConfigError, DataError
from edgeformer_runtime.tokenizers import Tokenizer

Kind = Literal["word", "bpe", "unigram"]
KINDS: tuple[Kind, ...] = ("word", "bpe", "unigram")
BYTE_LEVEL: tuple[Kind, ...] = ("bpe", "unigram")
PAIRS = [
    ("Where is the station?", "Où est la gare\u202f?"),
    ("It is 12:45 - already!", "Il est 12:45 - déjà\u202f!"),
    (" two  spaces, \t tab", "l'été\u00a0: «\u00a0oui\u00a0»"),
    ("Tags </s> and <pad> are text", "naïve 😀 e\u0301"),
] * 5


@cache
def trained(
    kind: Kind, split_digits: bool = False, lowercase: bool = False, add_prefix_space: bool = False
) -> Tokenizer:
    config = TokenizerConfig(
        kind=kind,
        vocab_size=400,
        split_digits=split_digits,
        lowercase=lowercase,
        add_prefix_space=add_prefix_space,
    )
    return Tokenizer(train_tokenizers(PAIRS, config)[0])


@pytest.mark.parametrize("split_digits", [False, True])
def test_known_words_round_trip(split_digits: bool) -> None:
    tokenizer = trained("word", split_digits)
    for text in (text for pair in PAIRS for text in pair):
        ids = tokenizer.encode(text)
        assert tokenizer.unk_id not in ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("add_prefix_space", [False, True])
@pytest.mark.parametrize("kind", BYTE_LEVEL)
@given(text=st.text())
def test_any_text_round_trips(kind: Kind, add_prefix_space: bool, text: str) -> None:
    tokenizer = trained(kind, add_prefix_space=add_prefix_space)
    ids = tokenizer.encode(text)
    assert all(index >= len(SPECIAL_TOKENS) for index in ids)
    assert tokenizer.decode(ids) == text


@cache
def split_at_space(kind: Kind) -> Tokenizer:
    texts = ["don &apos;t stop-and-go 12.5 </s></s> a</s> <pad>", "a b-c", "stop-and-go"] * 9
    return Tokenizer(train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=360, split="space")))


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@given(text=st.text() | st.text(alphabet=" \ta<>/s"))
def test_any_text_split_at_space_round_trips(kind: Kind, text: str) -> None:
    ids = split_at_space(kind).encode(text)
    assert all(index >= len(SPECIAL_TOKENS) for index in ids)
    assert split_at_space(kind).decode(ids) == text


def test_subwords_reach_across_punctuation_but_not_space() -> None:
    tokenizer = split_at_space("bpe")
    words = "stop-and-go &apos;t"
    assert tokenizer.tokens(tokenizer.encode(words)) == ["Ġstop-and-go", "Ġ&apos;t"]
    assert tokenizer.encode(f"{words} {words}") == tokenizer.encode(words) * 2


def test_word_kind_has_one_token_for_a_word_anywhere() -> None:
    tokenizer = trained("word")
    assert tokenizer.encode("is is") == tokenizer.encode("is") * 2
    assert tokenizer.encode("zebra") == [tokenizer.unk_id]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("l'homme qu'il n’a", [" l'", "homme", " qu'", "il", " n’", "a"]),
        ("s'il t'aime d'accord", [" s'", "il", " t'", "aime", " d'", "accord"]),
        ("don't it's i'd you’ll", [" do", "n't", " it", "'s", " i", "'d", " you", "’ll"]),
        ("o'clock boys' 'tis can't've", [" o'", "clock", " boys", "'", " '", "tis", " ca", "n't", "'ve"]),
    ],
)
def test_elisions_and_contractions_are_words(text: str, tokens: list[str]) -> None:
    tokenizer = Tokenizer(train_tokenizer([text], TokenizerConfig(kind="word")))
    ids = tokenizer.encode(text)
    assert tokenizer.tokens(ids) == tokens
    assert tokenizer.decode(ids) == text


def test_word_kind_keeps_every_word_unless_asked() -> None:
    texts = [f"w{number}" for number in range(40_000)]
    assert train_tokenizer(texts, TokenizerConfig(kind="word")).get_vocab_size() == 40_004
    assert train_tokenizer(texts, TokenizerConfig(kind="word", vocab_size=50)).get_vocab_size() == 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_text_cannot_inject_a_special_token(kind: Kind, token: str) -> None:
    repeated = TokenizerConfig(kind=kind, vocab_size=300)
    tokenizer = Tokenizer(train_tokenizer([f"{token}{token} {token} a"] * 50, repeated))
    ids = tokenizer.encode(f"a {token}{token} {token}")
    assert not set(ids) & {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    if kind != "word":
        assert tokenizer.unk_id not in ids


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(kind: Kind, shared: bool) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=330, shared=shared)
    first = [tokenizer.to_str() for tokenizer in train_tokenizers(PAIRS, config)]
    assert [tokenizer.to_str() for tokenizer in train_tokenizers(PAIRS, config)] == first


@pytest.mark.parametrize("split_digits", [False, True])
@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_with_a_space_before_it_the_first_word_is_as_inside(kind: Kind, split_digits: bool) -> None:
    tokenizer = trained(kind, split_digits, add_prefix_space=True)
    for word in ("is", "train", "12"):
        assert tokenizer.encode(f"the {word}")[-len(tokenizer.encode(word)) :] == tokenizer.encode(word)
        assert tokenizer.spans(word)[0][0] == 0


def test_shared_or_not() -> None:
    source, target = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=300))
    assert source is target
    source, target = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=300, shared=False, kind="word"))
    assert source.token_to_id(" gare") is None
    assert target.token_to_id(" gare") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_digits_are_split_and_capitals_lowered(kind: Kind) -> None:
    tokenizer = trained(kind, split_digits=True, lowercase=True)
    tokens = tokenizer.tokens(tokenizer.encode("It is 12:45"))
    assert [token for token in tokens if any(char.isdigit() for char in token)] == ["1", "2", "4", "5"]
    assert tokenizer.decode(tokenizer.encode("WHERE Is")) == "where is"


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_vocabulary_names_the_minimum(kind: Kind) -> None:
    minimum = minimum_vocab_size(TokenizerConfig(kind=kind))
    assert minimum == (5 if kind == "word" else 260)
    with pytest.raises(ConfigError, match=f"at least {minimum} .*but is {minimum - 1}"):
        train_tokenizer(["a"], TokenizerConfig(kind=kind, vocab_size=minimum - 1))
    tokenizer = Tokenizer(train_tokenizer(["a"], TokenizerConfig(kind=kind, vocab_size=minimum)))
    assert tokenizer.vocab_size == minimum
    assert tokenizer.decode(tokenizer.encode("a")) == "a"


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_no_text(texts: list[str]) -> None:
    with pytest.raises(DataError, match="every sentence is empty"):
        train_tokenizer(texts, TokenizerConfig(vocab_size=300))
