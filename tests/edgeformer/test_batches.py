from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer.config import TokenizerConfig
from edgeformer.data.batches import NO_LABEL, Batch, BatchStream, EncodedPairs, RaggedArray, evenly_spaced, in_order
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import DataError
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.tokenizers import Tokenizer, special_tokens

BOS, EOS = 2, 3


def pairs_of(lengths: list[tuple[int, int]]) -> EncodedPairs:
    """Pairs of these lengths; source ``i`` consists of token ``i + 4``, so that rows can be told apart."""
    return EncodedPairs(
        source=RaggedArray.from_sequences([[index + 4] * source + [EOS] for index, (source, _) in enumerate(lengths)]),
        target=RaggedArray.from_sequences(
            [[BOS] + [index + 4] * target + [EOS] for index, (_, target) in enumerate(lengths)]
        ),
        kept=np.arange(len(lengths)),
        too_long=0,
        special=SpecialTokens(bos=BOS, eos=EOS),
    )


def example(size: int = 200) -> EncodedPairs:
    random = np.random.default_rng(0)
    return pairs_of([(int(s), int(t)) for s, t in random.integers(1, 20, (size, 2))])


def rows_of(batch: Batch) -> list[int]:
    return [int(token) - 4 for token in batch.source[:, 0]]


def same(one: Batch, other: Batch) -> bool:
    names = ("source", "source_length", "target", "labels")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@given(total=st.integers(0, 5000), count=st.integers(0, 1200))
def test_evenly_spaced(total: int, count: int) -> None:
    rows = evenly_spaced(total, count).tolist()
    gaps = {after - before for before, after in pairwise(rows)}
    assert len(rows) == min(total, count)
    assert len(rows) < 2 or (rows[0], rows[-1]) == (0, total - 1)
    assert not gaps or (min(gaps) >= 1 and max(gaps) - min(gaps) <= 1)


LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, batch_tokens=st.integers(1, 80), seed=st.integers(0, 5))
def test_an_epoch_has_every_pair_once_within_the_token_limit(
    lengths: list[tuple[int, int]], batch_tokens: int, seed: int
) -> None:
    pairs = pairs_of(lengths)
    stream = BatchStream(pairs, batch_tokens=batch_tokens, seed=seed)
    batches = list(islice(stream.start_at(0), 2 * stream.epoch_batches))
    for epoch in (batches[: stream.epoch_batches], batches[stream.epoch_batches :]):
        assert sorted(row for batch in epoch for row in rows_of(batch)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.source) == 1 or max(batch.source.size, batch.labels.size) <= batch_tokens
    padded = sum(batch.source.size + batch.labels.size for batch in batches)
    true = sum(int((batch.source != 0).sum() + (batch.labels != NO_LABEL).sum()) for batch in batches)
    assert stream.padding == pytest.approx(1 - true / padded)
    assert sorted(row for batch in in_order(pairs, batch_tokens) for row in rows_of(batch)) == list(range(len(lengths)))


def test_collate_shifts_and_pads() -> None:
    pairs = pairs_of([(2, 1), (1, 3)])
    batch = pairs.collate(np.array([0, 1]), 6)
    assert batch.source.tolist() == [[4, 4, EOS], [5, EOS, 0]]
    assert batch.source_length.tolist() == [3, 2]
    assert batch.target.tolist() == [[BOS, 4, EOS, EOS], [BOS, 5, 5, 5]]
    assert batch.labels.tolist() == [[4, EOS, NO_LABEL, NO_LABEL], [5, 5, 5, EOS]]
    assert {array.dtype for array in (batch.source, batch.source_length, batch.target, batch.labels)} == {
        np.dtype("int64")
    }


@pytest.mark.parametrize("step", [1, 7, 50])
def test_a_later_start_gives_the_same_batches(step: int) -> None:
    pairs = example()
    straight = list(islice(BatchStream(pairs, batch_tokens=100, seed=1, accumulate=2).start_at(0), 2 * step + 10))
    resumed = list(islice(BatchStream(pairs, batch_tokens=100, seed=1, accumulate=2).start_at(step), 10))
    assert all(same(one, other) for one, other in zip(straight[2 * step :], resumed, strict=True))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("world_size", [1, 2])
def test_update_tokens_count_all_processes_and_batches(accumulate: int, world_size: int) -> None:
    pairs = example()
    streams = [
        BatchStream(pairs, batch_tokens=60, seed=1, accumulate=accumulate, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for step in range(20):
        update = [stream.batch(step * accumulate + place) for stream in streams for place in range(accumulate)]
        tokens = sum(int((batch.labels != NO_LABEL).sum()) for batch in update)
        assert [batch.update_tokens for batch in update] == [tokens] * len(update)


def test_processes_share_an_epoch() -> None:
    pairs = example()
    alone = BatchStream(pairs, batch_tokens=60, seed=1)
    ranks = [BatchStream(pairs, batch_tokens=60, seed=1, rank=rank, world_size=3) for rank in range(3)]
    for index in range(30):
        assert same(ranks[index % 3].batch(index // 3), alone.batch(index))


def test_encode_adds_special_tokens_and_drops_what_is_too_long(tmp_path: Path) -> None:
    text = [("a b", "c"), ("a b c d e f", "c"), ("b", "c d e f g h"), ("c", "d e")]
    library = train_tokenizers(text, TokenizerConfig(kind="word", vocab_size=50))[0]
    tokenizer = Tokenizer(library)
    special = special_tokens(tokenizer, tokenizer, ())
    pairs = EncodedPairs.encode(
        text, tokenizer, tokenizer, max_source_length=4, max_target_length=4, special=special, folder=tmp_path
    )
    assert pairs.kept.tolist() == [0, 3]
    assert pairs.too_long == 2
    assert pairs.target.padded(np.array([0]), 0).tolist() == [[BOS, *tokenizer.encode("c"), EOS]]
    assert pairs.source.padded(np.array([0]), 0).tolist() == [[*tokenizer.encode("a b"), EOS]]
    with pytest.raises(DataError, match="None of 4 sentence pairs fits `max_source_length` = 1"):
        EncodedPairs.encode(
            text, tokenizer, tokenizer, max_source_length=1, max_target_length=4, special=special, folder=tmp_path
        )
