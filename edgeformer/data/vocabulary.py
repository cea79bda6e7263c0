"""Training of tokenizers: word-level, byte-level BPE (Sennrich et al. 2016) and byte-level unigram (Kudo 2018)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edgeformer.config import TokenizerConfig
from edgeformer.data.batches import evenly_spaced
from edgeformer.data.text import Pair, TextPairs
from edgeformer.errors import ConfigError, DataError
from edgeformer_runtime.tokenizers import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, UNK_TOKEN
from edgeformer_runtime.tokenizers.tokenizer_file import SPACE_PATTERN, WORD_PATTERN

SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, BOS_TOKEN, EOS_TOKEN)
"""In the order of their ids, which begin at 0."""

_SUBWORDS, _NO_LIMIT = 8000, 2**31
"""Default vocabulary sizes of the subword kinds and of the word kind."""


MAX_PAIRS = 2_000_000
"""Pairs that subwords are learned from, evenly spaced over all; the word kind counts the words of all."""


def train_tokenizers(pairs: Sequence[Pair] | TextPairs, config: TokenizerConfig) -> tuple[Tokenizer, Tokenizer]:
    """Train the source and target tokenizers, which are the same object if ``config.shared`` is set.

    Subwords are learned from at most :data:`MAX_PAIRS`.

    Raises:
        ConfigError: the vocabulary size is below the minimum, or the recipe is that of an imported model.
        DataError: there is no text.
    """
    if config.kind == "imported":
        raise ConfigError(
            "`tokenizer.kind` is `imported`: this is the recipe of an imported model, whose tokenizer cannot be "
            "trained."
        )
    text = TextPairs.of(pairs)
    rows = evenly_spaced(len(text), len(text) if config.kind == "word" else MAX_PAIRS)
    if config.shared:
        shared = train_tokenizer(chain.from_iterable(text.rows(rows)), config)
        return shared, shared
    source, target = (train_tokenizer((pair[side] for pair in text.rows(rows)), config) for side in (0, 1))
    return source, target


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts in the same order always give the same tokenizer.

    Byte-level kinds decode to exactly the text they encoded. So does the word kind, whitespace included, except that
    unknown words become ``<unk>``. If ``config.lowercase`` is set, the decoded text is in lower case.

    Raises:
        ConfigError: the vocabulary size is below the minimum.
        DataError: there is no text.
    """
    minimum, limit = minimum_vocab_size(config), max_vocab_size(config)
    if limit < minimum:
        raise ConfigError(
            f"`tokenizer.vocab_size` must be at least {minimum} for kind `{config.kind}` "
            f"(special tokens and alphabet), but is {limit}."
        )
    tokenizer = _untrained(config)
    tokenizer.train_from_iterator(_non_empty(texts), trainer=_trainer(config))
    if config.kind == "unigram":
        tokenizer.model = _reproducible(tokenizer)
    return tokenizer


def minimum_vocab_size(config: TokenizerConfig) -> int:
    """Special tokens plus the 256 bytes, or plus one word for the word kind."""
    return len(SPECIAL_TOKENS) + (1 if config.kind == "word" else len(pre_tokenizers.ByteLevel.alphabet()))


def max_vocab_size(config: TokenizerConfig) -> int:
    """``config.vocab_size``, or the default of ``config.kind``."""
    if config.vocab_size is None:
        return _NO_LIMIT if config.kind == "word" else _SUBWORDS
    return config.vocab_size


def _untrained(config: TokenizerConfig) -> Tokenizer:
    """The pipeline around the model: normalizer, pre-tokenizer and decoder."""
    normalizer: list[normalizers.Normalizer] = [normalizers.Lowercase()] if config.lowercase else []
    prefixed = config.kind == "word" or config.split == "space" or config.add_prefix_space
    if prefixed:
        # With a space before it, the first word is the same token as inside a sentence; the decoder strips the space.
        normalizer.append(normalizers.Prepend(" "))
    pre_tokenizer: list[pre_tokenizers.PreTokenizer] = []
    if config.split_digits:
        pre_tokenizer.append(pre_tokenizers.Digits(individual_digits=True))
    if config.kind == "word":
        pre_tokenizer.append(pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="isolated"))
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNK_TOKEN))
        tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    else:
        tokenizer = Tokenizer(models.BPE() if config.kind == "bpe" else models.Unigram())
        tokenizer.decoder = decoders.ByteLevel()
        if config.split == "space":
            pre_tokenizer.append(pre_tokenizers.Split(Regex(SPACE_PATTERN), behavior="isolated"))
        if prefixed:
            tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        # ByteLevel's own pattern separates letters from punctuation, so no merge can spell a special token.
        pre_tokenizer.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=config.split != "space"))
    if normalizer:
        tokenizer.normalizer = normalizers.Sequence(normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer)
    return tokenizer


def _trainer(config: TokenizerConfig) -> trainers.Trainer:
    special, limit = list(SPECIAL_TOKENS), max_vocab_size(config)
    if config.kind == "word":
        return trainers.WordLevelTrainer(vocab_size=limit, special_tokens=special, show_progress=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if config.kind == "bpe":
        return trainers.BpeTrainer(
            vocab_size=limit, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    return trainers.UnigramTrainer(
        vocab_size=limit,
        special_tokens=special,
        initial_alphabet=alphabet,
        unk_token=UNK_TOKEN,
        show_progress=False,
    )


def _reproducible(tokenizer: Tokenizer) -> models.Unigram:
    """The trained unigram model without the randomness of its trainer.

    The library sums in the order of a randomly seeded hash map: the last digits of scores vary, pieces with equal
    scores change places, and bytes missing from the text get scores just below the lowest one, in any order.
    """
    model = json.loads(tokenizer.to_str())["model"]
    special, pieces = model["vocab"][: len(SPECIAL_TOKENS)], dict(model["vocab"][len(SPECIAL_TOKENS) :])
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    lowest_of_others = min((score for piece, score in pieces.items() if piece not in alphabet), default=0.0)
    floor = min(pieces.values())
    scores = {
        piece: round(floor if piece in alphabet and score < lowest_of_others else score, 6)
        for piece, score in pieces.items()
    }
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return models.Unigram([*map(tuple, special), *ranked], unk_id=model["unk_id"], byte_fallback=False)


def _non_empty(texts: Iterable[str]) -> Iterator[str]:
    iterator = (text for text in texts if text)
    first = next(iterator, None)
    if first is None:
        raise DataError("Training a tokenizer needs text, but every sentence is empty; check `data.train`.")
    return chain([first], iterator)
