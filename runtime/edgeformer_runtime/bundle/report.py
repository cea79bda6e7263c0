"""Record of an export: passes, quantization, measurements. Informational only; not used to translate."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from edgeformer_runtime.limits import Number
from edgeformer_runtime.precision import Precision


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

    tensors: tuple[TensorReport, ...]
    """Every weight that can be quantized."""


class LayerOutput(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A tensor of a graph that PyTorch also computes."""

    file: Annotated[str, msgspec.Meta(pattern=r"\A(?:encoder|decoder)\.onnx\Z")]
    """File name of the graph."""
    tensor: str
    """Name of the tensor in the graph."""
    module: str | None
    """Path of the PyTorch module whose output it is; ``None`` for an output of the graph."""
    error: float
    """Largest relative error compared with PyTorch at export."""


class Report(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The exporter's report; missing parts are omitted from the JSON. The exporter has the types of what is a mapping
    here, since nothing on a device reads it."""

    passes: dict[str, Any] = {}
    """Passes by graph file, in order of execution."""
    operators: dict[str, dict[str, Number]] = {}
    """Number of operators by kind, for each graph file. Operators outside the ONNX standard are prefixed with their
    domain, as in ``com.microsoft.MatMulNBits``."""
    quantization: QuantizationReport | None = None
    """Precision of each weight; ``None`` if none is quantized."""
    shortlist: dict[str, Any] | None = None
    """Cost of the shortlist; ``None`` without one."""
    parity: dict[str, Any] | None = None
    """Comparison with PyTorch; ``None`` while the bundle is still being exported."""
    layers: tuple[LayerOutput, ...] = ()
    """The tensors that ``verify --checkpoint`` compares with PyTorch's to find the first layer that differs."""
    period: dict[str, Any] | None = None
    """Effect of a period on sentences without one; ``None`` if it was not measured."""
    kernels: str = ""
    """Reason why an int8 bundle has no plan for the kernels; empty if it has."""
    choice: dict[str, Any] | None = None
    """Measurements and choice of ``--precision auto``; ``None`` if the precision was specified."""
