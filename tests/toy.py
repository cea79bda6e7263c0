"""A language model small enough to search by hand: its logits are a seeded function of source and prefix."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.search import Hypothesis
from edgeformer_runtime.search.session import DecoderState, FloatArray, IntArray, StepSession

Ids = tuple[int, ...]


@dataclass
class ToyState(DecoderState):
    """The tokens that every row has seen; a real session holds tensors instead."""

    session: ToySession
    sources: tuple[Ids, ...]
    prefixes: tuple[Ids, ...]

    @property
    def nbytes(self) -> int:
        return 8 * sum(map(len, self.prefixes))

    def step(self, token: IntArray) -> FloatArray:
        """See :class:`~edgeformer_runtime.search.session.DecoderState`."""
        rows, sentences = len(self.prefixes), len(self.sources)
        assert token.shape == (rows,)
        assert rows % sentences == 0
        self.session.rows.append(rows)
        self.prefixes = tuple((*prefix, int(new)) for prefix, new in zip(self.prefixes, token, strict=True))
        assert all(prefix[0] == self.session.special.bos for prefix in self.prefixes)
        beams = rows // sentences
        return np.stack(
            [self.session.logits(self.sources[row // beams], prefix[1:]) for row, prefix in enumerate(self.prefixes)]
        )

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        if sentences is not None:
            self.sources = tuple(self.sources[index] for index in sentences)
        self.prefixes = tuple(self.prefixes[index] for index in rows)


@dataclass
class ToySession(StepSession):
    """A step session with seeded random logits; records the number of rows of every step."""

    seed: int = 0
    vocab_size: int = 8
    max_target_length: int = 12
    end_bias: float = 0.0
    """Value added to the end token's logit; larger values end sentences sooner."""
    special: SpecialTokens = field(default_factory=SpecialTokens)
    max_source_length: int = 50
    rows: list[int] = field(default_factory=list)
    row_multiple: int = 1

    def logits(self, source: Ids, prefix: Ids) -> FloatArray:
        """Compute the logits ``(V,)`` of the token after a prefix, which excludes the start token."""
        generator = np.random.default_rng(zlib.crc32(repr((self.seed, source, prefix)).encode()))
        values = generator.normal(scale=2.0, size=self.vocab_size)
        values[self.special.eos] += self.end_bias
        return values.astype(np.float32)

    def start(self, source: IntArray, source_length: IntArray) -> ToyState:
        """See :class:`~edgeformer_runtime.search.session.StepSession`."""
        sources = tuple(tuple(row[:length].tolist()) for row, length in zip(source, source_length, strict=True))
        return ToyState(self, sources, ((),) * len(sources))

    def log_probabilities(self, source: Ids, prefix: Ids, min_length: int = 0) -> NDArray[np.float64]:
        """Compute log-probabilities ``(V,)`` with padding, start token and a premature end token suppressed."""
        logits = self.logits(source, prefix).astype(np.float64)
        logits[[self.special.pad, self.special.bos]] = -np.inf
        if len(prefix) < min_length:
            logits[self.special.eos] = -np.inf
        values: NDArray[np.float64] = logits - np.log(np.exp(logits).sum())
        values[list(self.special.forbid)] = -np.inf
        return values


@dataclass(frozen=True)
class Reference:
    """Result of a straightforward search for one sentence, and the number of its steps."""

    hypotheses: list[Hypothesis]
    steps: int


def score(log_probability: float, length: int, length_penalty: float) -> float:
    """Compute the documented score formula; ``length`` includes the end token."""
    return log_probability / float(length**length_penalty)


def reference_greedy(session: ToySession, source: Ids, options: DecodeOptions, prefix: Ids = ()) -> Reference:
    """Choose the most probable token until the end token or the limit is reached."""
    limit = min(options.max_length or session.max_target_length, session.max_target_length)
    ids = prefix
    total = 0.0
    for step in range(len(prefix) + 1, limit + 1):
        values = session.log_probabilities(source, ids, options.min_length)
        token = int(values.argmax())
        total += float(values[token])
        if token == session.special.eos:
            return Reference([Hypothesis(ids, score(total, step, options.length_penalty), True)], step)
        ids = (*ids, token)
    return Reference([Hypothesis(ids, score(total, limit, options.length_penalty), False)], limit)


def reference_beam(session: ToySession, source: Ids, options: DecodeOptions, prefix: Ids = ()) -> Reference:
    """Run beam search for one sentence with lists of Python tuples, without padding or arrays of beams."""
    limit = min(options.max_length or session.max_target_length, session.max_target_length)
    beams, end = options.beam_size, session.special.eos
    alive: list[tuple[float, Ids]] = [(0.0, prefix)]
    hypotheses: list[Hypothesis] = []
    steps = 0
    for steps in range(len(prefix) + 1, limit + 1):
        extensions = []
        for total, ids in alive:
            values = session.log_probabilities(source, ids, options.min_length)
            extensions += [(total + float(values[token]), ids, token) for token in np.flatnonzero(np.isfinite(values))]
        extensions.sort(key=lambda extension: -extension[0])
        if prefix and steps == len(prefix) + 1:  # an end token counts only if it is the best extension
            extensions = [
                (-np.inf, (), token) if rank and token == end else (total, ids, token)
                for rank, (total, ids, token) in enumerate(extensions)
            ]
        if options.beam_shrinks:
            del extensions[beams - len(hypotheses) :]
        for total, ids, token in extensions[:beams]:
            if token == end and np.isfinite(total) and (len(hypotheses) < beams or not options.early_stopping):
                hypotheses.append(Hypothesis(ids, score(total, steps, options.length_penalty), True))
        if (options.early_stopping and len(hypotheses) == beams) or not extensions:
            break
        going_on = [each for each in extensions if each[2] != end or each[0] == -np.inf][:beams]  # which takes a place
        alive = [(total, (*ids, int(token))) for total, ids, token in going_on if np.isfinite(total)]
        if not options.early_stopping and steps < limit and len(hypotheses) >= beams:
            worst = sorted((hypothesis.score or 0.0 for hypothesis in hypotheses), reverse=True)[beams - 1]
            if not any(score(total, steps, options.length_penalty) > worst for total, _ in alive):
                break
    else:
        missing = beams - len(hypotheses) if options.early_stopping else beams
        hypotheses += [
            Hypothesis(ids, score(total, limit, options.length_penalty), False) for total, ids in alive[:missing]
        ]
    hypotheses.sort(key=lambda hypothesis: -(hypothesis.score or 0.0))
    return Reference(hypotheses[: options.n_best], steps)


def same(hypotheses: Sequence[Hypothesis], expected: Sequence[Hypothesis], tolerance: float = 1e-5) -> bool:
    """Return whether ids, order and ends are equal, and scores within a tolerance: the search sums float32 values."""
    return len(hypotheses) == len(expected) and all(
        a.ids == b.ids
        and a.finished == b.finished
        and a.score is not None
        and b.score is not None
        and abs(a.score - b.score) <= tolerance * max(1.0, abs(b.score))
        for a, b in zip(hypotheses, expected, strict=True)
    )
