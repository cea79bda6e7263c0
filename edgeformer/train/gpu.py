"""Speed and precision of training on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only


class HostCopy:
    """Numbers that a GPU computes, copied to the host without waiting for them."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if values.is_cuda else None  # type: ignore[no-untyped-call] # torch
        if self._copied is not None:
            self._copied.record()

    def __call__(self) -> Any:
        """Wait for the copy, and return a number, or a list of numbers."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._values.tolist()


@contextmanager
def tf32_products() -> Iterator[None]:
    """Let a GPU round the factors of fp32 matrix products to TF32, with 10 bits of mantissa, in this block."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def use_fp32_recurrences(module: nn.Module) -> None:
    """Let torch's recurrent layers compute in fp32 under autocast.

    On a GPU, they would compute in float16 even if bf16 is asked for, whose gradients need a scaled loss:
    https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cudnn/AutocastRNN.cpp
    """
    for child in module.modules():
        if isinstance(child, nn.RNNBase):
            child.forward = partial(_in_fp32, child.forward)


def _in_fp32(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call the forward of a recurrent layer with its inputs, a packed sequence and states among them, in fp32."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor.float() if tensor.is_floating_point() else tensor

    inputs, named = tree_map_only(Tensor, cast, (inputs, named))
    with torch.autocast(tree_leaves((inputs, named))[0].device.type, enabled=False):
        return forward(*inputs, **named)
