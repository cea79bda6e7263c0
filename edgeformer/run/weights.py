"""A model's weights as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save

from edgeformer.errors import CheckpointError
from edgeformer.model.base import EncoderDecoder
from edgeformer_runtime.files import write_atomically


def load_weights(model: EncoderDecoder, path: Path) -> EncoderDecoder:
    """Load a safetensors file into a model that has exactly its tensors; shared tensors are stored once.

    Raises:
        CheckpointError: the file is missing, damaged, or belongs to another model.
    """
    try:
        load_model(model, path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"Weights `{path}` are damaged: {error}. Restore the file or train again.") from None
    except RuntimeError as error:
        cause = shorten(str(error), 240, placeholder=" …")
        raise CheckpointError(f"Weights `{path}` belong to another model or an earlier version: {cause}.") from None
    return model


def save_weights(model: EncoderDecoder, path: Path) -> None:
    """Write a model's weights as safetensors, shared ones once. The file is replaced as a whole."""
    stored: dict[tuple[int, torch.Size], str] = {}
    for name, tensor in model.state_dict().items():
        stored.setdefault((tensor.data_ptr(), tensor.shape), name)
    state = model.state_dict()
    write_atomically(path, save({name: state[name].cpu().contiguous() for name in stored.values()}))
