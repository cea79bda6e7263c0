"""Which operator gets which precision, and what that does to a weight: error and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer_export.quantize.blocks import (
    BLOCK_SIZE,
    MIN_BLOCK,
    Bits,
    choose_block_size,
    dequantize_blocks,
    quantize_blocks,
)
from edgeformer_export.quantize.layers import Layer, Use
from edgeformer_export.quantize.static import quantize_columns
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Precision

BLOCK_BITS: dict[Precision, Bits] = {"int8-block": 8, "int4": 4}
HIGHER: dict[Precision, Precision] = {"int4": "int8-block", "int8-block": "fp32", "int8": "fp32"}
"""What a layer gets that is kept higher than the rest."""
QUANTIZED: tuple[Precision, ...] = ("int8", "int8-block", "int4")

Assigned = Mapping[str, Mapping[str, Precision]]
"""For each graph, the precision of each of its operators with weights, by :attr:`Use.name`."""


class TensorReport(msgspec.Struct, kw_only=True, frozen=True):
    """One weight of a bundle."""

    name: str
    """See :class:`~edgeformer_export.quantize.layers.Layer`."""
    read_by: tuple[str, ...]
    """The operators that read it: for each its graph, its kind and its name."""
    shape: tuple[int, int]
    """Rows and columns; a row of ``int8`` has one scale."""
    precision: Precision
    """How it is stored."""
    snr_db: float | None
    """Signal-to-noise ratio: ``10 log10(sum of squares / sum of squared errors)``; none if there is no error."""
    bytes: int
    """Bytes, scales included."""
    fp32_bytes: int
    """Bytes in fp32."""


def given(use: Use, precision: Precision) -> Precision:
    """What an operator gets in a bundle of a precision: the encoder, which has many rows, has int8 instead of blocks,
    and so have weights that are too narrow for blocks."""
    if precision in BLOCK_BITS:
        many_rows = use.kind == "linear" and use.file == contract.ENCODER_FILE
        if many_rows or use.kind == "stored" or use.rows.shape[1] < MIN_BLOCK:
            return "int8"
    return precision


def higher(layer: Layer, precision: Precision) -> Precision:
    """The precision to keep a layer in that is too sensitive for the one of its bundle."""
    return HIGHER[given(layer.uses[-1], precision)]


def assign(layers: Sequence[Layer], precision: Precision, keep: Mapping[str, Precision]) -> Assigned:
    """The precision of every operator.

    Args:
        layers: all layers of a model.
        precision: of the bundle.
        keep: other precisions of some layers, by :attr:`Layer.name`.

    Raises:
        ExportError: there is no such layer.
    """
    if unknown := sorted(keep.keys() - {layer.name for layer in layers}):
        raise ExportError(
            f"The model has no layer {', '.join(unknown)}; it has {', '.join(one.name for one in layers)}."
        )
    assigned: dict[str, dict[str, Precision]] = {contract.ENCODER_FILE: {}, contract.DECODER_FILE: {}}
    for layer in layers:
        for use in layer.uses:
            assigned[use.file][use.name] = given(use, keep.get(layer.name, precision))
    return assigned


def tensor_reports(layers: Sequence[Layer], assigned: Assigned) -> list[TensorReport]:
    """What becomes of every weight; a weight that is read in two precisions is stored, and listed, twice."""
    reports = []
    for layer in layers:
        for precision in dict.fromkeys(assigned[use.file][use.name] for use in layer.uses):
            error, nbytes = stored(layer, precision)
            readers = [use for use in layer.uses if assigned[use.file][use.name] == precision]
            reports.append(
                TensorReport(
                    name=layer.name,
                    read_by=tuple(f"{use.file} {use.kind} {use.name}" for use in readers),
                    shape=(layer.rows.shape[0], layer.rows.shape[1]),
                    precision=precision,
                    snr_db=error,
                    bytes=nbytes,
                    fp32_bytes=layer.rows.nbytes,
                )
            )
    return reports


def stored(layer: Layer, precision: Precision) -> tuple[float | None, int]:
    """Signal-to-noise ratio in dB and bytes of a weight in a precision; see :class:`TensorReport`."""
    if precision not in layer.stored:
        layer.stored[precision] = _stored(layer.rows, precision)
    return layer.stored[precision]


def _stored(rows: NDArray[np.float32], precision: Precision) -> tuple[float | None, int]:
    if precision == "fp32":
        return None, rows.nbytes
    if precision in BLOCK_BITS:
        bits = BLOCK_BITS[precision]
        blocks = quantize_blocks(rows, bits, choose_block_size(rows.shape[1], bits, BLOCK_SIZE))
        rounded, nbytes = dequantize_blocks(blocks, bits, rows.shape[1]), blocks.packed.nbytes + blocks.scales.nbytes
    else:
        integers, scale = quantize_columns(rows.T)
        rounded, nbytes = (integers * scale).T, integers.nbytes + scale.nbytes
    return _decibels(rows, rounded), nbytes


def _decibels(rows: NDArray[np.float32], rounded: NDArray[np.float32]) -> float | None:
    signal = float(np.square(rows, dtype=np.float64).sum())
    noise = float(np.square(rows - rounded, dtype=np.float64).sum())
    return None if noise == 0 or signal == 0 else round(10 * math.log10(signal / noise), 2)
