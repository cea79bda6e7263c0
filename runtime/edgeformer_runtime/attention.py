"""Where a model looks: attention weights of finished translations.

They are computed afterwards, by feeding a translation through the attention graph. So decoding does the same work
whether anybody asks for them or not, and any pair of sentences can be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeformer_runtime.decoding.batching import length_sorted_batches, pad
from edgeformer_runtime.decoding.session import AttentiveSession, FloatArray


@dataclass(frozen=True)
class Attention:
    """The weight of every source token for every target token."""

    source_tokens: tuple[str, ...]
    """The source's tokens, its end token among them; S of them."""
    target_tokens: tuple[str, ...]
    """The translation's tokens, and its end token if it has one; T of them."""
    weights: FloatArray
    """``(T, S)``, float32; each row adds up to one."""
    finished: bool
    """Whether the last target token is the end token."""

    @property
    def alignment(self) -> tuple[tuple[int, int], ...]:
        """The source token with the largest weight for each target token, as pairs ``(source, target)`` counted from 0;
        end tokens are left out on both sides."""
        words = self.weights[: len(self.target_tokens) - self.finished, :-1]
        return tuple((int(row.argmax()), target) for target, row in enumerate(words) if row.size)


def attention_weights(
    session: AttentiveSession[Any],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    max_batch_tokens: int = 4096,
) -> list[FloatArray]:
    """Attention of the steps that yield given targets.

    Args:
        session: the model.
        sources: token ids of each sentence, end token included.
        targets: token ids of each translation without start token; with the end token, or without it if its step is
            not wanted.
        max_batch_tokens: bound of sentences times longest source of a batch.

    Returns:
        Weights of each pair, ``(T, S)``, float32: row ``t`` belongs to the step that yields target token ``t``.

    Raises:
        BundleError: the model has no attention weights.
        ValueError: a target has more tokens than the model takes.
    """
    if (longest := max(map(len, targets), default=0)) > session.max_target_length:
        raise ValueError(f"a target has {longest} tokens, more than the model's {session.max_target_length}")
    results: list[FloatArray] = [np.empty((0, 0), np.float32)] * len(sources)
    for batch in length_sorted_batches([len(source) for source in sources], 1, max_batch_tokens):
        source, source_length = pad([sources[index] for index in batch], session.special.pad)
        given, steps = pad([[session.special.bos, *targets[index]][:-1] for index in batch], session.special.pad)
        state = session.start(source, source_length)
        columns = []
        for position in range(given.shape[1]):
            token = np.ascontiguousarray(given[:, position])
            weights, state = session.attend(token, position, state)
            columns.append(weights)
        # T tensors (N, S) -> (N, T, S)
        stacked = np.stack(columns, axis=1) if columns else np.empty((len(batch), 0, source.shape[1]), np.float32)
        for row, index in enumerate(batch):
            results[index] = stacked[row, : steps[row], : source_length[row]]
    return results
