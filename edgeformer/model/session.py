"""The decode loop's session on torch: the reference of every parity check, and what validation decodes with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from edgeformer.model.base import EncoderDecoder, State
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import SENTENCES, StateTensor
from edgeformer_runtime.decoding.best_tokens import best_tokens
from edgeformer_runtime.decoding.session import FloatArray, IntArray


@dataclass(frozen=True)
class TorchState:
    """State tensors of a torch model, by the names of its state table."""

    tensors: State
    table: tuple[StateTensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held by all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def select(self, rows: IntArray, sentences: IntArray | None) -> Self:
        """Reorder, repeat and drop; see :class:`~edgeformer_runtime.decoding.session.DecoderState`."""
        selected = dict(self.tensors)
        for entry in self.table:
            index = sentences if entry.axes[0] == SENTENCES else rows
            if index is not None:
                tensor = self.tensors[entry.name]
                selected[entry.name] = tensor.index_select(0, torch.from_numpy(index).to(tensor.device))
        return type(self)(selected, self.table)


class TorchSession:
    """A model in evaluation mode, on the device where its weights are."""

    rows_in_pairs = False

    def __init__(self, model: EncoderDecoder, special: SpecialTokens | None = None) -> None:
        self.model = model.eval()
        self.special = special or SpecialTokens()
        self.max_source_length = model.max_source_length
        self.max_target_length = model.max_target_length
        self.best_tokens = best_tokens
        self._device = next(model.parameters()).device

    @torch.inference_mode()
    def start(self, source: IntArray, source_length: IntArray) -> TorchState:
        """Run the encoder; see :meth:`~edgeformer_runtime.decoding.session.StepSession.start`."""
        table = self.model.state_table()
        tensors = self.model.encode(self._tensor(source), self._tensor(source_length))
        for entry in table:
            if entry.kind == "cache":
                shape = [len(source), *(0 if isinstance(axis, str) else axis for axis in entry.axes[1:])]
                tensors[entry.name] = torch.empty(shape, dtype=getattr(torch, entry.dtype), device=self._device)
        return TorchState(tensors, table)

    @torch.inference_mode()
    def step(self, token: IntArray, position: int, state: TorchState) -> tuple[FloatArray, TorchState]:
        """Advance every row; see :meth:`~edgeformer_runtime.decoding.session.StepSession.step`."""
        where = torch.tensor(position, device=self._device)
        logits, new_tensors = self.model.step(self._tensor(token), where, state.tensors)
        return logits.float().cpu().numpy(), TorchState({**state.tensors, **new_tensors}, state.table)

    @torch.inference_mode()
    def attend(self, token: IntArray, position: int, state: TorchState) -> tuple[FloatArray, TorchState]:
        """Advance every row, with attention; see
        :meth:`~edgeformer_runtime.decoding.session.AttentiveSession.attend`."""
        where = torch.tensor(position, device=self._device)
        _, new_tensors, weights = self.model.step_with_attention(self._tensor(token), where, state.tensors)
        return weights.float().cpu().numpy(), TorchState({**state.tensors, **new_tensors}, state.table)

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(array).to(self._device)
