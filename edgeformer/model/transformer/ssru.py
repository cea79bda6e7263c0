"""The simpler simple recurrent unit, which takes the place of a decoder layer's self-attention."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from edgeformer.model.transformer.config import TransformerConfig
from edgeformer_runtime.contract import ROWS, StateTensor


def step_by_step(kept: Tensor, added: Tensor) -> Tensor:
    """Return ``c_t = kept_t * c_(t-1) + added_t`` for all t, from zero, ``(N, T, D)``."""
    cell, cells = torch.zeros_like(added[:, 0]), []
    for kept_now, added_now in zip(kept.unbind(1), added.unbind(1), strict=True):
        cell = torch.addcmul(added_now, kept_now, cell)
        cells.append(cell)
    return torch.stack(cells, 1)


def by_doubling(kept: Tensor, added: Tensor) -> Tensor:
    """The same in log2(T) rounds: more arithmetic, but fewer kernels to launch on a GPU (Hillis and Steele 1986)."""
    reach = 1  # steps that `added` sums up, and through which `kept` keeps an earlier cell
    while reach < kept.shape[1]:
        later = torch.addcmul(added[:, reach:], kept[:, reach:], added[:, :-reach])
        added = torch.cat((added[:, :reach], later), 1)
        kept = torch.cat((kept[:, :reach], kept[:, reach:] * kept[:, :-reach]), 1)
        reach *= 2
    return added


class SSRU(nn.Module):
    """A recurrence with one gate and one cell, whose steps all cost the same.

    Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section 3.1::

        f_t = sigmoid(W_f x_t + b_f)
        c_t = f_t * c_(t-1) + (1 - f_t) * W x_t
        y_t = relu(c_t)
    """

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.forget = nn.Linear(config.d_model, config.d_model)
        self.candidate = nn.Linear(config.d_model, config.d_model, bias=False)
        self._name = f"ssru_cell.{index}"

    def forward(self, x: Tensor) -> Tensor:
        """Compute all positions, ``(N, T, D) -> (N, T, D)``: the products at once, then the cells in fp32."""
        forget = self.forget(x).float().sigmoid()
        update = (1 - forget) * self.candidate(x)
        return (step_by_step if x.device.type == "cpu" else by_doubling)(forget, update).relu()

    def initial(self, sentences: int) -> dict[str, Tensor]:
        """Return the cell before the first token, zeros ``(N, 1, D)``."""
        return {self._name: self.forget.weight.new_zeros((sentences, 1, self.forget.out_features))}

    def step(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute one position of every row, ``(R, 1, D) -> (R, 1, D)``, and the cell after it."""
        cell, candidate = state[self._name], self.candidate(x)
        # f * c + (1 - f) * w with one product fewer
        cell = candidate + self.forget(x).sigmoid() * (cell - candidate)
        return cell.relu(), {self._name: cell}

    def state_table(self) -> tuple[StateTensor, ...]:
        """The cell."""
        axes = (ROWS, 1, self.forget.out_features)
        return (StateTensor(name=self._name, kind="recurrent", dtype="float32", axes=axes),)
