"""The decoder's state on ONNX Runtime: buffers that are bound once, written in place and moved only when necessary.

A step of a Transformer with N = 2 sentences, K = 2 beams and room for T = 8 positions, after three steps::

    host                                     state (``StateTensors``), one row per beam
    ┌───────────────────────────┐            ┌─────────────────────────┐
    │ token              (R,)   │──┐         │ k k k · · · · ·  row 0  │ in-place caches (R, T): past and
    │ position           ()     │──┤         │ k k k · · · · ·  row 1  │ present are one buffer, in which
    │ cache_indirection (N,K,T) │──┤ inputs  │ k k k · · · · ·  row 2  │ the step writes position 3
    │ beam_width         (1,)   │──┤         │ k k k · · · · ·  row 3  │
    └───────────────────────────┘  │         ├─────────────────────────┤
                                   ├──graph──│ s s s s s   sentence 0  │ constants (N, S): read only
    ┌───────────────────────────┐  │         │ s s s s s   sentence 1  │
    │ logits             (R, V) │◀─┘ output  ├─────────────────────────┤
    └───────────────────────────┘            │ h h h h          (R, …) │ recurrent tensors and growing
                                             └─────────────────────────┘ caches: replaced by each step

``Binding`` connects a graph to these buffers. When beams are reordered, in-place caches stay where they are and
``CacheIndirection`` is updated: for each beam and position, it says which row of the sentence holds the entry. Bindings
are created again when the number of rows or the capacity changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.engines.onnx_graphs import Binding, StepGraph, engine_errors
from edgeformer_runtime.engines.state_tensors import StateTensors
from edgeformer_runtime.search.session import DecoderState, FloatArray, IntArray


class OnnxState(DecoderState):
    """The state of one batch in ONNX Runtime.

    Args:
        tensors: the state's tensors.
        decoder: the step decoder.
        attention: returns the attention graph, which is opened on first use.
        source_width: S, the length of the longest source.
    """

    def __init__(
        self,
        tensors: StateTensors,
        decoder: StepGraph,
        attention: Callable[[], StepGraph],
        source_width: int,
    ) -> None:
        self._tensors, self._decoder, self._attention = tensors, decoder, attention
        self._source_width = source_width
        self._position = np.zeros((), np.int64)
        self._rebuild()

    @property
    def tensors(self) -> dict[str, ort.OrtValue]:
        """The state's tensors by name."""
        self._tensors.allocate()
        return self._tensors.values

    @property
    def outputs(self) -> dict[str, ort.OrtValue]:
        """Outputs of the decoder's last step; see :attr:`Binding.outputs`."""
        return self._bindings[self._decoder.file].outputs

    @property
    def length(self) -> int:
        """Number of steps completed."""
        return self._tensors.length

    @property
    def nbytes(self) -> int:
        """Size of all state tensors, in bytes."""
        self._tensors.allocate()
        return self._tensors.nbytes

    def step(self, token: IntArray) -> FloatArray:
        """Advance every row by one token, in place; see
        :meth:`~edgeformer_runtime.search.session.DecoderState.step`.

        Raises:
            ModelError: the engine fails.
            ValueError: the maximum number of steps has been reached.
        """
        return self._run(self._decoder, token)

    def attend(self, token: IntArray) -> FloatArray:
        """Advance every row by one token, in place, and return attention weights; see
        :meth:`~edgeformer_runtime.search.session.DecoderState.attend`.

        Raises:
            BundleError: the model has no attention weights.
            ModelError: the engine fails.
            ValueError: the maximum number of steps has been reached.
        """
        return self._run(self._attention(), token).copy()

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Reorder, repeat and drop rows, in place; see :meth:`~edgeformer_runtime.search.session.DecoderState.select`.

        The number of beams may change only before beams are reordered: a search begins with one row per sentence.
        """
        tensors, beams = self._tensors, self._tensors.beams
        tensors.select(rows, sentences)
        if tensors.beams != beams:
            self._rebuild()
            return
        if self._indirection is not None:
            self._indirection.select(rows, sentences, tensors.length)
        if sentences is not None:
            self._token = np.zeros(len(rows), np.int64)
            self._bindings.clear()

    def bound(self, steps: int) -> None:
        """Make room for ``steps`` steps; see :meth:`~edgeformer_runtime.search.session.DecoderState.bound`."""
        self._tensors.bound(steps)
        self._rebuild()

    def skip(self, length: int) -> None:
        """Continue as if ``length`` steps had been made, with arbitrary results. This tells whether the model can make
        its last steps without making all others."""
        self._tensors.skip(length)
        self._rebuild()

    def _run(self, graph: StepGraph, token: IntArray) -> FloatArray:
        tensors = self._tensors
        if tensors.length >= tensors.capacity:
            self._widen()
        with engine_errors(graph.file):
            binding = self._bindings.get(graph.file)
            if binding is None:
                binding = self._bindings[graph.file] = self._bind(graph)
            self._token[:], self._position[...] = token, tensors.length
            output = binding.run()
        tensors.length += 1
        return output

    def _rebuild(self) -> None:
        """Create everything whose shape depends on the number of beams."""
        tensors = self._tensors
        self._indirection = (
            CacheIndirection(tensors.sentences, tensors.beams, tensors.capacity) if tensors.has_in_place else None
        )
        self._token = np.zeros(tensors.rows, np.int64)
        self._bindings: dict[str, Binding] = {}
        self._buffers: dict[str, NDArray[np.float32]] = {}

    def _widen(self) -> None:
        """Increase the capacity of in-place caches."""
        tensors = self._tensors
        if tensors.capacity == tensors.max_length:
            raise ValueError(f"the state has made all of the model's {tensors.max_length} steps")
        tensors.widen()
        if self._indirection is not None:
            self._indirection.widen(tensors.capacity)
            self._bindings.clear()

    def _bind(self, graph: StepGraph) -> Binding:
        self._tensors.allocate()
        rows, width = self._tensors.rows, self._source_width if graph.width is None else graph.width
        # While the number of beams is unchanged, rows only become fewer, so the first buffer is large enough.
        buffer = self._buffers.setdefault(graph.file, np.empty((rows, width), np.float32))[:rows]
        host: dict[str, NDArray[Any]] = {contract.TOKEN: self._token, contract.POSITION: self._position}
        resent = [] if self._tensors.read_in_place else [contract.TOKEN, contract.POSITION]
        if self._indirection is not None:
            host |= {
                contract.CACHE_INDIRECTION: self._indirection.table,
                contract.BEAM_WIDTH: self._indirection.beam_width,
            }
            if resent and self._tensors.beams > 1:
                resent.append(contract.CACHE_INDIRECTION)
        values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in host.items()}
        return Binding(graph, self._tensors, values, resent, buffer)


class CacheIndirection:
    """For each beam and position, the beam of the same sentence whose cache row holds the entry.

    Example with two beams: the second continued the first after position 1, and each has written its own row since::

        position   0  1  2  3
        beam 0     0  0  0  0        all entries are read from row 0
        beam 1     0  0  1  1        positions 0 and 1 are read from row 0, the rest from row 1

    Args:
        sentences: N.
        beams: K.
        capacity: number of positions that fit in the caches.
    """

    def __init__(self, sentences: int, beams: int, capacity: int) -> None:
        self._sentences, self._beams = sentences, beams
        self.beam_width = np.array([beams], np.int32)
        """K, ``(1,)``, int32."""
        self.table = self._own_rows(capacity)
        """``(N, K, T)``, int32."""

    def select(self, rows: IntArray, sentences: IntArray | None, length: int) -> None:
        """Point every beam to the rows that hold its past; K must not change.

        Args:
            rows: for each beam, the row that it continues, ``(N' * K,)``.
            sentences: for each sentence to keep, its current index, ``(N',)``; ``None`` keeps all.
            length: number of positions written so far.
        """
        parent = rows % self._beams  # (N' * K,): beam to continue
        if sentences is not None:
            self._sentences = len(sentences)
            self.table = np.ascontiguousarray(self.table[sentences])
            rows = parent.reshape(-1, self._beams) + np.arange(0, len(rows), self._beams)[:, None]
            rows = rows.ravel()
        if self._beams > 1 and length:
            last = length - 1
            table = self.table.reshape(len(rows), -1)  # a view
            table[:, :last] = table.take(rows, axis=0)[:, :last]
            table[:, last] = parent  # each row wrote its own last entry, so it is in the parent's row

    def widen(self, capacity: int) -> None:
        """Enlarge the table to a larger cache capacity."""
        wider = self._own_rows(capacity)
        wider[:, :, : self.table.shape[2]] = self.table
        self.table = wider

    def _own_rows(self, capacity: int) -> NDArray[np.int32]:
        """A table in which every beam reads its past from its own row."""
        table = np.empty((self._sentences, self._beams, capacity), np.int32)
        table[:] = np.arange(self._beams)[:, None]
        return table
