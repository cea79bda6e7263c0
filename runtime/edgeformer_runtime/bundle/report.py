"""What the exporter did to a model and measured on the way; for people, the runtime does not depend on it."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeformer_runtime.bundle.choice import Choice
from edgeformer_runtime.bundle.parity import ParityReport
from edgeformer_runtime.precision import Precision


class PassRecord(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one pass did to one graph."""

    name: str
    """Class of the pass."""
    nodes_before: int
    """Nodes of the graph before it."""
    nodes_after: int
    """Nodes after it."""
    bytes_before: int
    """Bytes of all weights before it."""
    bytes_after: int
    """Bytes of all weights after it."""
    outcome: Literal["changed", "unchanged", "rejected"]
    """``unchanged`` if only names and metadata differ; ``rejected`` if the result was worse and was discarded."""
    removed: dict[str, int] = {}
    """By how much it reduced the number of nodes, by operator."""
    added: dict[str, int] = {}
    """By how much it increased the number of nodes, by operator."""
    rewired: int = 0
    """Number of nodes that stayed but read other values."""
    constants_removed: int = 0
    """Number of constants that the graph no longer has."""
    constants_added: int = 0
    """Number of constants with new content: folded, merged or quantized."""


class TensorReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One weight of a bundle."""

    name: str
    """The torch parameter without ``.weight``; of several that are one product, what differs is in braces."""
    read_by: tuple[str, ...]
    """The operators that read it: the graph, kind and name of each."""
    shape: tuple[int, int]
    """Rows and columns; a row of ``int8`` has one scale."""
    precision: Precision
    """How it is stored."""
    snr_db: float | None
    """Signal-to-noise ratio: ``10 log10(sum of squares / sum of squared errors)``; ``None`` if there is no error."""
    bytes: int
    """Bytes, scales included."""
    fp32_bytes: int
    """Bytes in fp32."""


class QuantizationReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which weight got which precision."""

    kept: dict[str, Precision]
    """Layers that are kept in another precision than the bundle's."""
    tensors: tuple[TensorReport, ...]
    """Every weight that can be quantized."""


class Report(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The exporter's report; a part that was not made is left out of the JSON."""

    passes: dict[str, tuple[PassRecord, ...]] = {}
    """Passes by graph file, in their order."""
    operators: dict[str, dict[str, int]] = {}
    """Number of operators by kind, for each graph file; those outside the ONNX standard have their domain before their
    name, such as ``com.microsoft.MatMulNBits``."""
    quantization: QuantizationReport | None = None
    """Precision of each weight; ``None`` if none is quantized."""
    parity: ParityReport | None = None
    """Comparison with PyTorch; ``None`` in a bundle that is still being made."""
    choice: Choice | None = None
    """How ``--precision auto`` chose; ``None`` if the precision was given."""
