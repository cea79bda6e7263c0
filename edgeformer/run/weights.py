"""A model's weights as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from edgeformer.errors import CheckpointError
from edgeformer.model.base import EncoderDecoder
from edgeformer_runtime.files import write_atomically


def load_weights(model: EncoderDecoder, path: Path) -> EncoderDecoder:
    """Load a safetensors file into a model that has exactly its tensors; shared tensors are stored once.

    Raises:
        CheckpointError: the file is missing, damaged, or belongs to another model.
    """
    try:
        content = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"Weights `{path}` are damaged: {error}. Restore the file or train again.") from None
    state: dict[str, torch.Tensor] = {}
    for names in _names_by_tensor(model):
        if stored := [name for name in names if name in content]:
            state |= dict.fromkeys(names, content.pop(stored[0]))
    try:
        model.load_state_dict(state | {f"{name} (surplus)": tensor for name, tensor in content.items()})
    except RuntimeError as error:
        cause = shorten(str(error), 240, placeholder=" …")
        raise CheckpointError(f"Weights `{path}` belong to another model or an earlier version: {cause}.") from None
    return model


def save_weights(model: EncoderDecoder, path: Path) -> None:
    """Write a model's weights as safetensors, shared ones once. The file is replaced as a whole."""
    state = model.state_dict()
    write_atomically(path, save({names[0]: _whole(state[names[0]]) for names in _names_by_tensor(model)}))


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with a storage of its own; on a GPU, cuDNN lets all weights of an LSTM be parts of one."""
    tensor = tensor.cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _names_by_tensor(model: EncoderDecoder) -> list[list[str]]:
    """Group the names of a model's state by the tensor that they stand for."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, tensor in model.state_dict().items():
        groups.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), []).append(name)
    return list(groups.values())
