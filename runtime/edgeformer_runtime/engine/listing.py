"""The output projection of the tokens that a batch may use."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort

from edgeformer_runtime import contract
from edgeformer_runtime.decoding.session import FloatArray, IntArray
from edgeformer_runtime.engine.engine_errors import EngineErrors
from edgeformer_runtime.shortlist import Shortlist

TABLE_BYTES = 8 << 20
"""Largest table of weights that is kept in float32, whose rows are copied in a tenth of the time that reading quantized
rows takes."""


class Listing:
    """A shortlist, with the graph that reads the weights of its tokens.

    Args:
        shortlist: the lists.
        graph: the opened graph.

    Raises:
        ModelError: the engine fails.
    """

    def __init__(self, shortlist: Shortlist, graph: ort.InferenceSession) -> None:
        self._shortlist, self._graph = shortlist, graph
        self._table: tuple[FloatArray, FloatArray] | None = None
        vocab_size, width = len(shortlist.frequent), graph.get_outputs()[0].shape[1]
        if vocab_size * width * 4 <= TABLE_BYTES:
            self._table = self._read(np.arange(vocab_size))

    def __call__(self, source: IntArray, source_length: IntArray) -> tuple[IntArray, dict[str, ort.OrtValue]]:
        """Return the tokens that a batch may use, ``(C,)``, and the constants of the step graph by name.

        Args:
            source: token ids, padded at the end, ``(N, S)``.
            source_length: true lengths, ``(N,)``.

        Raises:
            ModelError: the engine fails.
        """
        lengths = source_length.tolist()
        sources = [row[:length] for row, length in zip(source.tolist(), lengths, strict=True)]
        listed, usable = self._shortlist.listed_together(sources)
        if self._table is None:
            weight, bias = self._read(listed)
        else:
            weight, bias = (table.take(listed, axis=0) for table in self._table)
        constants = {contract.LISTED_WEIGHT: weight, contract.LISTED_BIAS: np.where(usable, bias, np.float32(-np.inf))}
        return listed, {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in constants.items()}

    def _read(self, listed: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the weights ``(C, D)`` and biases ``(C,)`` of tokens."""
        with EngineErrors(contract.SHORTLIST_WEIGHT_FILE):
            weight, bias = self._graph.run(
                [contract.LISTED_WEIGHT, contract.PROJECTION_BIAS], {contract.LISTED: listed}
            )
        return weight, bias
