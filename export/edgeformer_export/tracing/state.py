"""The decoder's state in a bundle, derived from the model's own state table."""

from __future__ import annotations

import msgspec

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import StateTensor


def bundle_state(model: EncoderDecoder, target: Target, *, for_cuda: bool = False) -> tuple[StateTensor, ...]:
    """The state table of a bundle of a model.

    - A cache that the target writes in place has its capacity for an axis: P becomes T.
    - float32 becomes float16 for CUDA.

    Args:
        model: the model.
        target: which operators may be used.
        for_cuda: the bundle is in half precision, for CUDA.
    """
    in_place = {name for cache in in_place_caches(model, target, for_cuda=for_cuda) for name in cache.cache_names}

    def in_bundle(tensor: StateTensor) -> StateTensor:
        axes, dtype = tensor.axes, tensor.dtype
        if tensor.name in in_place:
            axes = tuple(contract.CAPACITY_AXIS if axis == contract.PAST_AXIS else axis for axis in axes)
        if for_cuda and dtype == "float32":
            dtype = "float16"
        return msgspec.structs.replace(tensor, axes=axes, dtype=dtype)

    return tuple(in_bundle(tensor) for tensor in model.state_table())


def in_place_caches(model: EncoderDecoder, target: Target, *, for_cuda: bool = False) -> list[CausalSelfAttention]:
    """The self-attention layers whose caches the target writes in place; all others let theirs grow.

    ONNX Runtime's operator requires keys and values of the same width, on CUDA one of
    :data:`~edgeformer_runtime.contract.CUDA_HEAD_WIDTHS`.
    """
    if target != "ort":
        return []
    layers = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    return [
        layer
        for layer in layers
        if layer.attention.key_width == layer.attention.value_width
        and (not for_cuda or layer.attention.key_width in contract.CUDA_HEAD_WIDTHS)
    ]
