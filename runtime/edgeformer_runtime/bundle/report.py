"""What the exporter did to a model and measured; informational only, not used by the runtime."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edgeformer_runtime.bundle.parity import ParityReport
from edgeformer_runtime.limits import Number, Text
from edgeformer_runtime.precision import Precision


class PassRecord(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Effect of one pass on one graph; earlier versions recorded more, which is ignored."""

    name: str
    """Class name of the pass."""
    nodes_before: Number
    """Number of nodes in the graph before the pass."""
    nodes_after: Number
    """Number of nodes in the graph after the pass."""
    bytes_before: Number
    """Size of all weights before the pass, in bytes."""
    bytes_after: Number
    """Size of all weights after the pass, in bytes."""
    outcome: Literal["changed", "unchanged", "rejected"]
    """``unchanged`` if operators and size of the weights are the same; ``rejected`` if the result was worse and was
    discarded."""
    removed: dict[str, Number] = {}
    """Decrease in the number of nodes, by operator."""
    added: dict[str, Number] = {}
    """Increase in the number of nodes, by operator."""


class TensorReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One weight of a bundle."""

    name: str
    """PyTorch parameter name without ``.weight``; if several form one product, the differing parts are in braces."""
    read_by: tuple[str, ...]
    """Operators that read the weight, each with its graph, kind and name."""
    shape: tuple[Number, Number]
    """Rows and columns; in ``int8``, each row has one scale."""
    precision: Precision
    """Precision in which the weight is stored."""
    snr_db: float | None
    """Signal-to-noise ratio: ``10 log10(sum of squares / sum of squared errors)``; ``None`` if there is no error."""
    bytes: Number
    """Size in bytes, scales included."""
    fp32_bytes: Number
    """Size in fp32, in bytes."""


class QuantizationReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Precision of each weight."""

    kept: dict[str, Precision] = {}
    """Layers kept in a precision other than the bundle's, as earlier versions could."""
    tensors: tuple[TensorReport, ...]
    """Every weight that can be quantized."""


class ShortlistReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a shortlist costs, measured on text that it was not learned from."""

    origin: Text
    """Where the lists come from."""
    sentences: Number
    """Number of sentences measured."""
    median_tokens: float
    """Median number of target tokens that a sentence may use."""
    kept: float
    """Share of the tokens of greedy search without shortlist that the shortlist has, from 0 to 1."""
    identical: Number
    """Number of sentences whose translation is the same with and without shortlist."""
    bleu: float | None
    """BLEU of greedy search with shortlist; ``None`` without references."""
    bleu_whole: float | None
    """BLEU of greedy search with the whole vocabulary."""


class PeriodReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a period does for sentences without final punctuation."""

    sentences: Number
    """Number of sentences that were translated without and with a period."""
    gain: float
    """Mean increase of the mean log-probability of the tokens before final punctuation."""
    error: float
    """Standard error of that mean."""
    is_needed: bool
    """Whether the increase is large enough that whole texts get a period."""


class Report(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The exporter's report; missing parts are omitted from the JSON."""

    passes: dict[str, tuple[PassRecord, ...]] = {}
    """Passes by graph file, in order of execution."""
    operators: dict[str, dict[str, Number]] = {}
    """Number of operators by kind, for each graph file. Operators outside the ONNX standard are prefixed with their
    domain, as in ``com.microsoft.MatMulNBits``."""
    quantization: QuantizationReport | None = None
    """Precision of each weight; ``None`` if none is quantized."""
    shortlist: ShortlistReport | None = None
    """What the shortlist costs; ``None`` without one."""
    parity: ParityReport | None = None
    """Comparison with PyTorch; ``None`` while the bundle is still being exported."""
    period: PeriodReport | None = None
    """What a period does for sentences without one; ``None`` if it was not measured."""
    choice: dict[str, Any] | None = None
    """What ``--precision auto`` measured and chose; ``None`` if the precision was specified."""
