"""The table of precisions: what each one is, where it runs, and how far its results may deviate.

Exporter, runtime, verification, the choice of a precision, and help texts read it. A new precision is a name in
:data:`Precision`, a row in :data:`PRECISIONS`, and a pass of the exporter that makes its graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from edgeformer_runtime.contract import DType

Precision = Literal["fp32", "fp16", "int8", "int8-block", "int4"]
"""Name of a precision; rows of :data:`PRECISIONS` say what it is."""

BLOCK_SIZE = 256
"""Values that share a scale where weights are in blocks. The operators take no larger blocks, and smaller ones are
slower: with 128, a product of four rows takes about a tenth longer in 4 bits, with no measurable gain in quality."""


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """How far results of a precision may deviate, each with its reason."""

    score: float
    """Largest difference of a golden example's score. Kernels of another processor add up in another order; where
    activations are integers, such a difference may move one to the next of its 256 levels."""
    same_kernels: float
    """Largest relative difference of a traced tensor where the same kernels run as at export. None was ever observed,
    with any number of threads. Where activations are rounded, a different last digit would move one to the next of its
    levels."""
    other_kernels: float
    """The same where other kernels run. Between an x86 processor and emulated ARM64 ones, single tensors differed by
    3e-6 (fp32), 0.017 (int8) and 0.064 (int4, whose kernels round activations differently)."""
    logits: float
    """Largest difference of a logit from PyTorch's, for logits up to 10; it grows with the largest logit, as rounding
    does. In fp32, both sides differ in the order of additions and in the last digits of tanh and exp. In fp16, every
    tensor is rounded to 11 bits: a logit of 10 by up to 0.004, and so is everything that it is computed from; models
    at hand differed by up to 0.013. No limit for quantized weights, which are judged by :attr:`top1_agreement`."""
    attention: float
    """Largest difference of an attention weight from PyTorch's; fp16 models at hand differed by up to 0.002. No limit
    for quantized weights, as with :attr:`logits`."""
    top1_agreement: float
    """Smallest share of teacher-forced positions whose most probable token is PyTorch's; no limit where
    :attr:`logits` has one. A sound quantized model of a trained network is well above; a dropped mask or a wrong weight
    is well below."""
    identical_output: bool
    """Whether output must match PyTorch token for token. Elsewhere, tokens whose logits are close may change places."""
    inner_tensor: float
    """Smallest tolerance, relative, for a tensor inside the graphs against PyTorch's, when the first difference is
    searched. It is raised to twice the error at export, which another sentence may exceed."""
    unknown_tensor: float
    """The same for a tensor whose error at export is not known."""
    matching_tensor: float
    """Two tensors are taken for the same if they differ by less than this part of their largest value, before weights
    are quantized: rounding of the graph's floating-point type."""


@dataclass(frozen=True, kw_only=True)
class PrecisionTraits:
    """One row of the table."""

    purpose: str
    """What it is for, as ``edgeformer export --help`` shows it; one sentence."""
    bits: int
    """Bits of a weight."""
    block_size: int | None = None
    """Values that share a scale, at most, where rows of weights are cut into blocks; ``None`` where they are not."""
    dtype: DType = "float32"
    """Type of activations and state between operators."""
    devices: tuple[str, ...]
    """Devices that can run it."""
    optimised_for: str
    """The device whose kernels the graphs are traced for."""
    portable: bool
    """Whether operators of the ONNX standard suffice (``--target portable``)."""
    operators: tuple[str, ...] = ()
    """Operators that read its weights in the decoder, for ``--target ort``; empty where no special ones do."""
    min_onnxruntime: str
    """Oldest onnxruntime whose operators can do what the graphs need, ``major.minor``."""
    integer_products: bool = False
    """Whether matrix products multiply 8-bit integers in a way that saturates on some processors, so that they need
    the engine's exact setting; see :mod:`~edgeformer_runtime.engine.integer_products`."""
    row_multiple: int = 1
    """Rows that the kernels process together. The result of a row that is left over is rounded differently, so the
    decode loop keeps the number of rows a multiple of this."""
    encoder: Precision
    """What the encoder's matrix products get, which have many rows; blocks are fast for few. Weights that are too
    narrow for blocks, and those of operators that cannot read blocks, get it too."""
    kept_as: Precision | None = None
    """What a layer gets that is too sensitive for this precision; ``None`` where no layer is."""
    mixed_candidates: bool = False
    """Whether ``--precision auto`` also tries it with its most sensitive layers kept as :attr:`kept_as`."""
    tolerances: Tolerances
    """How far its results may deviate."""

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
    same_kernels=2e-3,
    other_kernels=0.04,
    logits=inf,
    attention=inf,
    top1_agreement=0.9,
    identical_output=False,
    inner_tensor=0.02,
    unknown_tensor=0.5,
    matching_tensor=1e-4,
)
_BLOCKS = replace(_INTEGERS, other_kernels=0.15)

PRECISIONS: dict[Precision, PrecisionTraits] = {
    "fp32": PrecisionTraits(
        purpose="Weights as trained, for CPU and CUDA.",
        bits=32,
        devices=("cpu", "cuda"),
        optimised_for="cpu",
        portable=True,
        min_onnxruntime="1.22",
        encoder="fp32",
        tolerances=Tolerances(
            score=1e-4,
            same_kernels=1e-4,
            other_kernels=1e-3,
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
        optimised_for="cuda",
        portable=True,
        min_onnxruntime="1.22",
        encoder="fp16",
        tolerances=Tolerances(
            score=2e-2,
            same_kernels=2e-3,
            other_kernels=0.04,
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
        optimised_for="cpu",
        portable=True,
        operators=("MatMulIntegerToFloat", "QGemm"),
        min_onnxruntime="1.22",
        integer_products=True,
        encoder="int8",
        kept_as="fp32",
        mixed_candidates=True,
        tolerances=_INTEGERS,
    ),
    "int8-block": PrecisionTraits(
        purpose="Fastest on CPUs for one row, with 8-bit weights in blocks.",
        bits=8,
        block_size=BLOCK_SIZE,
        devices=("cpu",),
        optimised_for="cpu",
        portable=False,
        operators=("MatMulNBits", "GatherBlockQuantized"),
        min_onnxruntime="1.23",
        row_multiple=2,
        encoder="int8",
        kept_as="fp32",
        tolerances=_BLOCKS,
    ),
    "int4": PrecisionTraits(
        purpose="Smallest, and also fastest on CPUs for one row, with 4-bit weights in blocks.",
        bits=4,
        block_size=BLOCK_SIZE,
        devices=("cpu",),
        optimised_for="cpu",
        portable=False,
        operators=("MatMulNBits", "GatherBlockQuantized"),
        min_onnxruntime="1.23",
        row_multiple=2,
        encoder="int8",
        kept_as="int8-block",
        mixed_candidates=True,
        tolerances=_BLOCKS,
    ),
}
"""All precisions, the highest first."""


def lowest(precisions: Iterable[Precision]) -> Precision:
    """The lowest of some precisions.

    Args:
        precisions: at least one.
    """
    return max(precisions, key=list(PRECISIONS).index)
