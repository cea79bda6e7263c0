"""Batches of roughly equal token counts, each computed from its index alone, so that a run can be resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import DataError
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.tokenizers import Tokenizer

Ids = NDArray[np.int64]


_BLOCK = 10_000
"""Pairs that are tokenized at a time."""
_FILES = {"ids": "<i4", "start": "<i8", "length": "<i4", "kept": "<i8", "too_long": "<i8"}
"""Files of encoded pairs, and their dtypes: the tokens of each source and its target in turns, the index of the first
token and the number of tokens of each of these sequences, the index of each pair in the text, and pairs dropped from
each block."""
NO_LABEL = -1
"""Label of tokens that do not count in the loss."""


@dataclass(frozen=True)
class Batch:
    """Padded token ids of N sentence pairs, int64."""

    source: Ids
    """Source with its end token, ``(N, S)``."""
    source_length: Ids
    """True source lengths, ``(N,)``."""
    target: Ids
    """Decoder input: the start token, then the target, ``(N, T)``."""
    labels: Ids
    """Target with its end token, ``(N, T)``; :data:`NO_LABEL` after it, and for tokens that every target begins with,
    which are never chosen."""
    update_tokens: int
    """Labels of the whole update without padding, over all its batches and processes; its loss is divided by this."""


@dataclass(frozen=True)
class RaggedArray:
    """Sequences of different lengths in one flat array."""

    flat: NDArray[np.int32]
    """The concatenated sequences."""
    start: Ids
    """Index of each sequence's first element."""
    length: NDArray[np.int32]
    """Length of each sequence."""

    @classmethod
    def from_sequences(cls, sequences: Sequence[Sequence[int]]) -> RaggedArray:
        """Concatenate sequences."""
        length = np.fromiter(map(len, sequences), np.int32, len(sequences))
        flat = np.fromiter(chain.from_iterable(sequences), np.int32, int(length.sum()))
        return cls(flat, np.cumsum(length, dtype=np.int64) - length, length)

    def padded(self, rows: Ids, pad_id: int) -> Ids:
        """Return the given sequences as ``(len(rows), longest)``, int64, padded at the end."""
        length = self.length[rows]
        column = np.arange(length.max())
        is_token = column < length[:, None]
        padded = np.full(is_token.shape, pad_id, np.int64)
        padded[is_token] = self.flat[(self.start[rows, None] + column)[is_token]]
        return padded


@dataclass(frozen=True)
class EncodedPairs:
    """Tokenized sentence pairs that fit the model, mapped from files, which all processes of a machine share."""

    source: RaggedArray
    """Each source with its end token."""
    target: RaggedArray
    """Each target from its start token to its end token."""
    kept: Ids
    """Index of each pair in the text that was encoded."""
    too_long: int
    """Pairs dropped because a side has more tokens than the model accepts."""
    special: SpecialTokens
    """The tokens that targets begin with, and the one that pads sources."""

    @classmethod
    def encode(
        cls,
        pairs: Iterable[tuple[str, str]],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_source_length: int,
        max_target_length: int,
        special: SpecialTokens,
        folder: Path,
    ) -> EncodedPairs:
        """Tokenize pairs and drop those that are too long for the model, counting the end token.

        Memory has one block of pairs at a time.

        Args:
            pairs: sources and targets.
            source_tokenizer: adds what the model expects around a source.
            target_tokenizer: adds the end token.
            max_source_length: in tokens.
            max_target_length: in tokens.
            special: ids of the special tokens, and what every target begins with.
            folder: an empty folder for the files.

        Raises:
            DataError: no pair fits.
            OSError: a file cannot be written.
        """
        iterator, read, length, kept = iter(pairs), 0, 0, 0
        with ExitStack() as stack:
            files = {name: stack.enter_context((folder / name).open("wb")) for name in _FILES}
            while block := list(islice(iterator, _BLOCK)):
                sources = source_tokenizer.encode_batch([source for source, _ in block], special_tokens=True)
                encoded = target_tokenizer.encode_batch([target for _, target in block], special_tokens=True)
                targets = [[*special.start, *ids] for ids in encoded]
                fitting = [
                    index
                    for index, (source, target) in enumerate(zip(sources, targets, strict=True))
                    if len(source) <= max_source_length and len(target) - 1 <= max_target_length
                ]
                both = RaggedArray.from_sequences(
                    [ids for index in fitting for ids in (sources[index], targets[index])]
                )
                arrays: dict[str, NDArray[Any]] = {
                    "ids": both.flat,
                    "start": both.start + length,
                    "length": both.length,
                    "kept": np.array(fitting, np.int64) + read,
                    "too_long": np.array([len(block) - len(fitting)]),
                }
                for name, file in files.items():
                    file.write(arrays[name].astype(_FILES[name]).tobytes())
                read, length, kept = read + len(block), length + len(both.flat), kept + len(fitting)
        if not kept:
            raise DataError(
                f"None of {read:,} sentence pairs fits `max_source_length` = {max_source_length} and "
                f"`max_target_length` = {max_target_length} tokens; raise these limits in [model]."
            )
        return cls.open(folder, special)

    @classmethod
    def open(cls, folder: Path, special: SpecialTokens) -> EncodedPairs:
        """Map the files that :meth:`encode` has written."""
        ids, start, length, kept, too_long = (
            np.asarray(np.memmap(folder / name, dtype, "r")) for name, dtype in _FILES.items()
        )
        source, target = (RaggedArray(ids, start[side::2], length[side::2]) for side in (0, 1))
        return cls(source, target, kept, int(too_long.sum()), special)

    def __len__(self) -> int:
        return len(self.kept)

    def collate(self, rows: Ids, update_tokens: int) -> Batch:
        """Pad the given pairs into one batch."""
        whole = self.target.padded(rows, NO_LABEL)
        labels = np.ascontiguousarray(whole[:, 1:])
        target = np.where(labels == NO_LABEL, self.special.eos, whole[:, :-1])  # no true token depends on padding
        labels[:, : len(self.special.prefix)] = NO_LABEL
        length = self.source.length[rows].astype(np.int64)
        return Batch(self.source.padded(rows, self.special.pad), length, target, labels, update_tokens)

    def labels(self, rows: Ids) -> int:
        """Number of labels of the given pairs."""
        return int((self.target.length[rows] - len(self.special.start)).sum())


class BatchStream:
    """An endless, numbered stream of training batches, bucketed by length.

    Every epoch sorts the pairs by target length, then by source length, breaks ties at random, cuts them into batches
    of at most ``batch_tokens`` on the longer side, and shuffles the batches. The sorted lengths never change, so all
    epochs have the same cuts, and batch ``k`` is found without iterating over those before it.

    Args:
        pairs: training pairs.
        batch_tokens: maximum number of tokens on the longer side, with padding; a longer pair is a batch by itself.
        seed: determines, together with the epoch, the composition and order of the batches.
        accumulate: batches per update on each process.
        rank: index of this process.
        world_size: number of processes.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        *,
        batch_tokens: int,
        seed: int,
        accumulate: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.pairs = pairs
        self.seed, self.accumulate, self.rank, self.world_size = seed, accumulate, rank, world_size
        self._cuts = length_cuts(pairs, _sorted_rows(pairs), batch_tokens)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    @property
    def epoch_batches(self) -> int:
        """Batches per epoch, over all processes."""
        return len(self._cuts) - 1

    @cached_property
    def padding(self) -> float:
        """Fraction of padding among all source and target tokens of an epoch."""
        rows = _sorted_rows(self.pairs)
        first, size = self._cuts[:-1], np.diff(self._cuts)
        padded = true = 0
        for length in (self.pairs.source.length[rows], self.pairs.target.length[rows] - 1):
            true += int(length.sum())
            padded += int((np.maximum.reduceat(length, first) * size).sum())
        return 1 - true / padded

    def batch(self, index: int) -> Batch:
        """Return batch ``index`` of this process, counted from 0."""
        step = index // self.accumulate
        per_update = self.accumulate * self.world_size
        update_tokens = sum(
            self.pairs.labels(self._rows(number)) for number in range(step * per_update, (step + 1) * per_update)
        )
        return self.pairs.collate(self._rows(index * self.world_size + self.rank), update_tokens)

    def start_at(self, step: int) -> Iterator[Batch]:
        """Yield batches forever, beginning with the first one of update ``step``, counted from 0."""
        index = step * self.accumulate
        while True:
            yield self.batch(index)
            index += 1

    def _rows(self, number: int) -> Ids:
        """Pairs of a batch, whose number counts the batches of all processes."""
        epoch, position = divmod(number, self.epoch_batches)
        rows, order = self._order(epoch)
        cut = order[position]
        return rows[self._cuts[cut] : self._cuts[cut + 1]]

    def _shuffle(self, epoch: int) -> tuple[Ids, Ids]:
        """The sorted pairs with ties broken at random, and the order of the batches."""
        random = np.random.default_rng((self.seed, epoch))
        rows = _sorted_rows(self.pairs, random.permutation(len(self.pairs)))
        return rows, random.permutation(self.epoch_batches)


def in_order(pairs: EncodedPairs, batch_tokens: int) -> Iterator[Batch]:
    """Yield every pair once, in batches sorted by length, for validation."""
    rows = _sorted_rows(pairs)
    cuts = length_cuts(pairs, rows, batch_tokens)
    for begin, end in pairwise(cuts.tolist()):
        chosen = rows[begin:end]
        yield pairs.collate(chosen, pairs.labels(chosen))


def evenly_spaced(total: int, count: int) -> Ids:
    """At most ``count`` evenly spaced, increasing integers from 0 to ``total - 1``."""
    return np.linspace(0, total - 1, min(count, total)).round().astype(np.int64)


def length_cuts(pairs: EncodedPairs, rows: Ids, batch_tokens: int) -> Ids:
    """Boundaries, from 0 to ``len(rows)``, of batches with at most ``batch_tokens`` on the longer side."""
    widths = np.maximum(pairs.source.length[rows], pairs.target.length[rows] - 1).tolist()
    cuts, begin, widest = [0], 0, 0
    for end, width in enumerate(widths):
        widest = max(widest, width)
        if (end + 1 - begin) * widest > batch_tokens and end > begin:
            cuts.append(end)
            begin, widest = end, width
    return np.array([*cuts, len(widths)])


def _sorted_rows(pairs: EncodedPairs, tie_break: Ids | None = None) -> Ids:
    """Rows sorted by target length; source lengths alternately increase and decrease, so neighbors differ little."""
    target, source = pairs.target.length, pairs.source.length
    snake = np.where(target % 2 == 0, source, -source)
    keys = (snake, target) if tie_break is None else (tie_break, snake, target)
    return np.lexsort(keys)
