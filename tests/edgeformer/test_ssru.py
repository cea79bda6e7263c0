"""The simpler simple recurrent unit against its equations."""

from __future__ import annotations

import numpy as np
import torch

from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.ssru import SSRU


def test_unit_follows_its_equations() -> None:
    torch.manual_seed(0)
    unit = SSRU(TransformerConfig(d_model=8, d_ff=16, heads=2), 0)
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        forget_weight, bias, weight = (
            tensor.numpy().astype(np.float64)
            for tensor in (unit.forget.weight, unit.forget.bias, unit.candidate.weight)
        )
        actual = unit(x).numpy()
        state, steps = unit.initial(2), []
        for position in range(5):
            y, state = unit.step(x[:, position, None], state)
            steps.append(y[:, 0].numpy())
    cell = np.zeros((2, 8))
    for position in range(5):
        now = x[:, position].numpy().astype(np.float64)
        forget = 1 / (1 + np.exp(-(now @ forget_weight.T + bias)))
        cell = forget * cell + (1 - forget) * (now @ weight.T)
        np.testing.assert_allclose(actual[:, position], np.maximum(cell, 0), atol=1e-6)
        np.testing.assert_allclose(steps[position], np.maximum(cell, 0), atol=1e-6)
    np.testing.assert_allclose(state["ssru_cell.0"][:, 0], cell, atol=1e-6)
