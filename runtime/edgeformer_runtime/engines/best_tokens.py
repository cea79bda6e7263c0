"""The most probable extensions of a sentence's hypotheses, on ONNX Runtime: about twice as fast as numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime.engines.graphs import BEST_TOKENS, BEST_TOKENS_CHUNKED, BEST_TOKENS_PADDED
from edgeformer_runtime.search.session import FloatArray, IntArray

WHOLE = 4096
"""Maximum number of logits of a row that is searched as a whole."""
CHUNK = 256
"""Maximum number of logits in a chunk. The time is the same for sizes from 32 to 500."""
CACHED = 1 << 20
"""Maximum number of logits scanned together: 4 MB. With the logits of a whole batch, the output of one operator would
be evicted from the CPU's cache before the next operator reads it."""
MIN_CHUNK = 16
"""Minimum number of logits in a chunk. Smaller chunks would be so numerous that padding is faster."""

Extensions = tuple[NDArray[np.float64], IntArray, IntArray]


OpenGraph = Callable[[Path], ort.InferenceSession]
"""Opens the graph of a file on first use. Thread-safe."""


def graphs_on_demand(options: ort.SessionOptions) -> OpenGraph:
    """Return what opens graphs on the CPU, each once."""
    return cache(lambda path: ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]))


class OnnxBestTokens:
    """See :func:`~edgeformer_runtime.search.best_tokens.best_tokens`; the logits are not overwritten.

    An object serves one search: it binds the buffers of the logits once, and again only when they change. What a call
    returns is valid until the next call.
    """

    def __init__(self, open_graph: OpenGraph) -> None:
        self._open_graph = open_graph
        self._logits: FloatArray | None = None
        self._form: tuple[int, ...] = ()
        self._scans: list[_LogitsBinding] = []

    def __call__(self, logits: FloatArray, log_probability: NDArray[np.float64], count: int) -> Extensions:
        """Run the graph on as many sentences at a time as fit in the CPU's cache."""
        form = (count, *log_probability.shape)
        if logits is not self._logits or form != self._form:
            self._logits, self._form = logits, form
            self._scans = list(self._scans_of(logits, *form))
        if len(self._scans) == 1:
            return self._scans[0].run(log_probability)
        sentences = np.array_split(log_probability, np.cumsum([len(scan) for scan in self._scans])[:-1])
        found = [scan.run(past) for scan, past in zip(self._scans, sentences, strict=True)]
        value, token, parent = (np.concatenate(part) for part in zip(*found, strict=True))
        return value, token, parent

    def _scans_of(self, logits: FloatArray, count: int, sentences: int, beams: int) -> Iterator[_LogitsBinding]:
        """Divide the rows of a step into blocks of whole sentences."""
        block = max(1, CACHED // (beams * logits.shape[1]))
        for first in range(0, sentences, block):
            number = min(block, sentences - first)
            yield _LogitsBinding(self._open_graph, logits[first * beams : (first + number) * beams], count, number)


class _LogitsBinding:
    """The graph, bound to a buffer of logits ``(N * K, V)``, for ``count`` extensions of each of N sentences."""

    def __init__(self, open_graph: OpenGraph, logits: FloatArray, count: int, sentences: int) -> None:
        self._sentences, (rows, vocab_size) = sentences, logits.shape
        row_count = min(count, vocab_size)
        count = min(count, row_count * rows // sentences)
        self._past = np.empty((sentences, rows // sentences))
        self._row_value = np.empty((rows, row_count), np.float32)
        self._found: Extensions = (
            np.empty((sentences, count)),
            np.empty((sentences, count), np.int64),
            np.empty((sentences, count), np.int64),
        )
        path, sizes = _sizes(rows, vocab_size, row_count)
        feeds = {
            "logits": logits,
            "log_probability": self._past.reshape(rows, 1),
            "row_count": np.array([row_count]),
            "count": np.array([count]),
            "by_sentence": np.array([sentences, -1]),
            **sizes,
        }
        self._session, self._feeds = open_graph(path), feeds  # their memory is bound
        self._binding = self._session.io_binding()
        for name, array in feeds.items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        outputs = {"row_value": self._row_value, **dict(zip(("value", "token", "parent"), self._found, strict=True))}
        for name, output in outputs.items():
            self._binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(output))

    def __len__(self) -> int:
        return self._sentences

    def run(self, log_probability: NDArray[np.float64]) -> Extensions:
        """Find the extensions of hypotheses with these log-probabilities, ``(N, K)``."""
        self._past[:] = log_probability
        self._session.run_with_iobinding(self._binding)
        # A NaN anywhere in a row is in its log-sum-exp, and so in its best value. One sum tells if there is any.
        best = self._row_value[:, 0]
        if not math.isfinite(best.sum()):
            self._found[0][~np.isfinite(best).reshape(self._sentences, -1).all(axis=1)] = np.nan
        return self._found


def _sizes(rows: int, vocab_size: int, row_count: int) -> tuple[Path, dict[str, IntArray]]:
    """The graph to use for logits ``(rows, vocab_size)``, and its inputs that say how it divides them.

    As in :func:`~edgeformer_runtime.search.best_tokens.largest`, a row with many logits becomes chunks of which only
    those with the largest maxima are searched. The engine needs chunks of one size: one that divides the vocabulary,
    or else the last chunk is padded.
    """
    if vocab_size <= WHOLE:
        return BEST_TOKENS, {}
    size, width = chunking(vocab_size, vocab_size // row_count)
    chunks = width // size
    sizes = {
        "chunks": np.array([rows, chunks, size]),
        "size": np.array([size]),
        "chunk_count": np.array([min(row_count, chunks)]),
    }
    if width == vocab_size:
        return BEST_TOKENS_CHUNKED, sizes
    padding = {"padding": np.array([0, 0, 0, width - vocab_size]), "last_token": np.array([vocab_size - 1])}
    return BEST_TOKENS_PADDED, sizes | padding


@cache
def chunking(vocab_size: int, most: int) -> tuple[int, int]:
    """Chunk size, at most ``most``, and the padded row length, a multiple of the chunk size."""
    most = min(most, CHUNK)
    size = next(size for size in range(most, 0, -1) if vocab_size % size == 0)
    if size >= min(MIN_CHUNK, most):
        return size, vocab_size
    return most, -(-vocab_size // most) * most
