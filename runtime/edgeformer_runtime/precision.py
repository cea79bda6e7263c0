"""The table of precisions: what each precision is, where it runs, and how far its results may deviate.

The exporter, the runtime, verification, precision selection and help texts read it. A new precision takes a name in
:data:`Precision`, a row in :data:`PRECISIONS`, and an exporter pass that produces its graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from edgeformer_runtime.contract import DType

Precision = Literal["fp32", "fp16", "int8", "int4"]
"""Name of a precision; described by its row in :data:`PRECISIONS`."""

BLOCK_SIZE = 256
"""Values that share a scale in block-quantized weights. The operators support no larger blocks, and smaller blocks are
slower: with 128, a 4-bit product of four rows takes about 10 % longer, with no measurable gain in quality."""
MIN_BLOCK = 16
"""Smallest block size that the operators support; narrower weights are not quantized in blocks."""


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """How far the results of a precision may deviate, with the reason for each limit."""

    score: float
    """Largest score difference of a golden example. Kernels for other processors add in a different order; where
    activations are quantized, such a difference may move an activation to the next of its 256 levels."""
    logits: float
    """Largest difference of a logit from PyTorch's, for logits up to 10; scaled with the largest logit beyond that, as
    rounding errors are. In fp32, the two differ in the order of additions and in the last digits of tanh and exp. In
    fp16, every tensor is rounded to 11 bits, which changes a logit of 10 by up to 0.004, and the values it is computed
    from are rounded too; tested models differed by up to 0.013. No limit for quantized weights, which are judged by
    :attr:`top1_agreement`."""
    attention: float
    """Largest difference of an attention weight from PyTorch's; tested fp16 models differed by up to 0.002. No limit
    for quantized weights, as with :attr:`logits`."""
    top1_agreement: float
    """Smallest fraction of teacher-forced positions whose most probable token matches PyTorch's; no limit where
    :attr:`logits` has one. Correctly quantized trained models are well above it; a missing mask or a wrong weight falls
    well below it."""
    identical_output: bool
    """Whether output must match PyTorch token for token. If not, tokens with nearly equal logits may swap ranks."""
    inner_tensor: float
    """Minimum relative tolerance for a tensor inside the graphs, compared with PyTorch's, when searching for the first
    difference. Raised to twice the error at export if that is larger, since other sentences may exceed that error."""
    unknown_tensor: float
    """Relative tolerance for a tensor inside the graphs whose error at export is unknown."""
    matching_tensor: float
    """Two tensors are considered the same if, before weights are quantized, they differ by less than this fraction of
    their largest value. Allows for rounding of the graph's floating-point type."""


@dataclass(frozen=True, kw_only=True)
class PrecisionTraits:
    """One row of the table of precisions."""

    purpose: str
    """Purpose in one sentence, as shown by ``edgeformer export --help``."""
    bits: int
    """Bits per weight."""
    block_size: int | None = None
    """Maximum number of values that share a scale; ``None`` if weights are not quantized in blocks."""
    dtype: DType = "float32"
    """Type of activations and state between operators."""
    devices: tuple[str, ...]
    """Devices that can run it."""
    optimized_for: str
    """Device for whose kernels the graphs are traced."""
    portable: bool
    """Whether standard ONNX operators suffice (``--target portable``)."""
    operators: tuple[str, ...] = ()
    """Operators that read the decoder's weights with ``--target ort``; empty if no special operators do."""
    integer_products: bool = False
    """Whether matrix products multiply 8-bit integers in a way that saturates on some processors and therefore require
    the engine's exact setting there; see :mod:`~edgeformer_runtime.engines.onnx_graphs`."""
    row_multiple: int = 1
    """Number of rows that the kernels process together. A leftover row is rounded differently, so the decode loop keeps
    the number of rows a multiple of this."""
    encoder: Precision
    """Precision of the encoder's matrix products, which have many rows, whereas blocks are fast for few rows. Also used
    for weights that are too narrow for blocks and for operators that cannot read blocks."""
    tolerances: Tolerances
    """How far results may deviate."""

    @property
    def is_quantized(self) -> bool:
        """Whether weights are integers."""
        return self.bits <= 8

    @property
    def in_blocks(self) -> bool:
        """Whether weights are quantized in blocks."""
        return self.block_size is not None


_INTEGERS = Tolerances(
    score=5e-2,
    logits=inf,
    attention=inf,
    top1_agreement=0.9,
    identical_output=False,
    inner_tensor=0.02,
    unknown_tensor=0.5,
    matching_tensor=1e-4,
)

PRECISIONS: dict[Precision, PrecisionTraits] = {
    "fp32": PrecisionTraits(
        purpose="Weights as trained, for CPU and CUDA.",
        bits=32,
        devices=("cpu", "cuda"),
        optimized_for="cpu",
        portable=True,
        encoder="fp32",
        tolerances=Tolerances(
            score=1e-4,
            logits=1e-4,
            attention=1e-4,
            top1_agreement=0.0,
            identical_output=True,
            inner_tensor=1e-3,
            unknown_tensor=1e-3,
            matching_tensor=1e-4,
        ),
    ),
    "fp16": PrecisionTraits(
        purpose="Half precision of weights, activations and state, for CUDA.",
        bits=16,
        dtype="float16",
        devices=("cpu", "cuda"),
        optimized_for="cuda",
        portable=True,
        encoder="fp16",
        tolerances=Tolerances(
            score=2e-2,
            logits=5e-2,
            attention=1e-2,
            top1_agreement=0.0,
            identical_output=False,
            inner_tensor=0.02,
            unknown_tensor=0.5,
            matching_tensor=2e-2,
        ),
    ),
    "int8": PrecisionTraits(
        purpose="Fastest on CPUs for many rows (sentences times beams); ranges of activations are calibrated on "
        "training text.",
        bits=8,
        devices=("cpu",),
        optimized_for="cpu",
        portable=True,
        operators=("MatMulIntegerToFloat", "QGemm"),
        integer_products=True,
        encoder="int8",
        tolerances=_INTEGERS,
    ),
    "int4": PrecisionTraits(
        purpose="Smallest, and fastest on CPUs for one row, with 4-bit weights in blocks.",
        bits=4,
        block_size=BLOCK_SIZE,
        devices=("cpu",),
        optimized_for="cpu",
        portable=False,
        operators=("MatMulNBits", "GatherBlockQuantized"),
        row_multiple=2,
        encoder="int8",
        tolerances=_INTEGERS,
    ),
}
"""All precisions, highest first."""


def lowest(precisions: Iterable[Precision]) -> Precision:
    """Return the lowest of the given precisions.

    Args:
        precisions: at least one precision.
    """
    return max(precisions, key=list(PRECISIONS).index)
