"""The decode loop's session on torch: the reference for every parity check, and the decoder used for validation."""

from __future__ import annotations

import torch
from torch import Tensor

from edgeformer.model.base import EncoderDecoder, State
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SENTENCES
from edgeformer_runtime.search.session import DecoderState, FloatArray, IntArray, StepSession


class TorchState(DecoderState):
    """The state of one batch in PyTorch.

    The model's own ``step`` is pure; here, its results replace the previous tensors.

    Args:
        model: the model, in evaluation mode.
        tensors: outputs of the model's encoder, with one row per sentence.
    """

    def __init__(self, model: EncoderDecoder, tensors: State) -> None:
        self._model, self._table = model, model.state_table()
        self._device = next(model.parameters()).device
        self.tensors = dict(tensors)
        """State tensors by their names in the model's state table."""
        self.length = 0
        """Number of steps so far."""

    @property
    def nbytes(self) -> int:
        """Size of all state tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @torch.inference_mode()
    def step(self, token: IntArray) -> FloatArray:
        """Advance every row, in place; see :meth:`~edgeformer_runtime.search.session.DecoderState.step`."""
        logits, new_tensors = self._model.step(*self._inputs(token), self.tensors)
        self._advance(new_tensors)
        return logits.float().cpu().numpy()

    @torch.inference_mode()
    def attend(self, token: IntArray) -> FloatArray:
        """Advance every row, in place; see :meth:`~edgeformer_runtime.search.session.DecoderState.attend`."""
        _, new_tensors, weights = self._model.step_with_attention(*self._inputs(token), self.tensors)
        self._advance(new_tensors)
        return weights.float().cpu().numpy()

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Select rows, in place; see :meth:`~edgeformer_runtime.search.session.DecoderState.select`."""
        for entry in self._table:
            index = sentences if entry.axes[0] == SENTENCES else rows
            if index is not None:
                tensor = self.tensors[entry.name]
                self.tensors[entry.name] = tensor.index_select(0, torch.from_numpy(index).to(self._device))

    def _inputs(self, token: IntArray) -> tuple[Tensor, Tensor]:
        """Return token ``(R,)`` and position ``()`` on the model's device."""
        return torch.from_numpy(token).to(self._device), torch.tensor(self.length, device=self._device)

    def _advance(self, new_tensors: State) -> None:
        self.tensors, self.length = {**self.tensors, **new_tensors}, self.length + 1


class TorchSession(StepSession):
    """A model in evaluation mode, on the device of its weights."""

    def __init__(self, model: EncoderDecoder, special: SpecialTokens) -> None:
        self.model = model.eval()
        self.special = special
        self.max_source_length = model.max_source_length
        self.max_target_length = model.max_target_length
        self._device = next(model.parameters()).device

    @torch.inference_mode()
    def start(self, source: IntArray, source_length: IntArray) -> TorchState:
        """Run the encoder; see :meth:`~edgeformer_runtime.search.session.StepSession.start`."""
        tensors = self.model.encode(*(torch.from_numpy(array).to(self._device) for array in (source, source_length)))
        sizes = {ROWS: len(source), PAST_AXIS: 0}
        for entry in self.model.state_table():
            if entry.kind == "cache":
                dtype = getattr(torch, entry.dtype)
                tensors[entry.name] = torch.empty(entry.shape(sizes), dtype=dtype, device=self._device)
        return TorchState(self.model, tensors)
