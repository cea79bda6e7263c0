"""The optimizer: which tensors of every family decay, and how an update is computed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from edgeformer.config import TrainConfig
from edgeformer.model.build import build_model
from edgeformer.train.state import build_optimizer
from tests.factory import small_recipe
from tests.variants import varied_blocks

CONFIG = TrainConfig(weight_decay=0.1, learning_rate=0.01, adam_betas=(0.7, 0.8), adam_eps=1e-3)


@pytest.mark.parametrize("variant", varied_blocks())
def test_matrices_decay_and_biases_and_norms_do_not(variant: str) -> None:
    """With a gradient of zero, decay is all that moves a tensor."""
    module = build_model(small_recipe(variant), 20, 20)
    norms = {id(p) for m in module.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm) for p in m.parameters()}
    before = {key: parameter.detach().clone() for key, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    build_optimizer(module, CONFIG).step()
    for key, parameter in module.named_parameters():
        decays = id(parameter) not in norms and "bias" not in key
        torch.testing.assert_close(parameter.detach(), before[key] * (1 - 0.01 * 0.1 * decays), msg=key)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_updates_are_those_of_adam_with_decoupled_decay(weight_decay: float) -> None:
    """The formulas of Kingma and Ba 2015 and Loshchilov and Hutter 2019, in double precision."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 0.5)
    optimizer = build_optimizer(
        layer, TrainConfig(weight_decay=weight_decay, learning_rate=0.01, adam_betas=(0.7, 0.8), adam_eps=1e-3)
    )
    weight, mean, square = 0.5, 0.0, 0.0
    for step, (gradient, rate) in enumerate([(2e-3, 0.01), (-5e-3, 0.02), (1e-3, 0.005)], 1):
        for group in optimizer.param_groups:  # as training does
            group["lr"] = rate
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
        mean, square = 0.7 * mean + 0.3 * gradient, 0.8 * square + 0.2 * gradient**2
        weight -= rate * weight_decay * weight
        weight -= rate * (mean / (1 - 0.7**step)) / (math.sqrt(square / (1 - 0.8**step)) + 1e-3)
        assert layer.weight.item() == pytest.approx(weight, rel=1e-5)


def test_tied_tensors_are_updated_once() -> None:
    module = build_model(small_recipe("post_norm"), 20, 20)
    groups = build_optimizer(module, CONFIG).param_groups
    updated = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(updated) == len(set(updated)) == len(list(module.parameters()))
