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
    names = _stored_names(model)
    state = {name: content[stored] for name, stored in names.items() if stored in content}
    surplus = {f"{name} (surplus)": content[name] for name in content.keys() - names.values()}
    try:
        model.load_state_dict(state | surplus)
    except RuntimeError as error:
        cause = shorten(str(error), 240, placeholder=" …")
        raise CheckpointError(f"Weights `{path}` belong to another model or an earlier version: {cause}.") from None
    return model


def save_weights(model: EncoderDecoder, path: Path) -> None:
    """Write a model's weights as safetensors, shared ones once. The file is replaced as a whole."""
    state = model.state_dict()
    write_atomically(path, save({name: _whole(state[name]) for name in dict.fromkeys(_stored_names(model).values())}))


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with a storage of its own. On a GPU, cuDNN lets all weights of an LSTM be parts of one."""
    tensor = tensor.cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _stored_names(model: EncoderDecoder) -> dict[str, str]:
    """The name under which each tensor of a model's state is stored: a shared one once, by its first name."""
    first: dict[tuple[object, ...], str] = {}
    state = model.state_dict().items()
    return {name: first.setdefault((value.data_ptr(), value.shape, value.stride()), name) for name, value in state}
