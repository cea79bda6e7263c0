"""The loss that training minimizes, of models with and without declared features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.transformer.model import Transformer
from edgeformer.train.loss import Objective
from tests.factory import small_recipe

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # order of summation; rounding to 8 bits


class OwnForward(Transformer):
    """Overrides the forward alone, so that its inherited features say nothing about it."""

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        return super().forward(source, source_length, target) * 2


def model_of(variant: str) -> EncoderDecoder:
    torch.manual_seed(0)
    return build_model(small_recipe(variant, {"dropout": 0.0}), 30, 30)


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources ``(3, 5)``, their lengths, targets and labels ``(3, 4)``; padding is 0, and -1 in the labels."""
    labels = torch.tensor([[5, 6, 7, 2], [8, 2, -1, -1], [9, 10, 2, -1]])
    source = torch.arange(15).view(3, 5) + 1
    return source, torch.tensor([5, 5, 5]), torch.where(labels < 0, 0, labels.roll(1, 1)).clamp_min(0), labels


def loss_and_gradients(model: EncoderDecoder, precision: str) -> tuple[Tensor, Tensor]:
    """The loss, and the gradients of all parameters in one vector."""
    objective = Objective(model, label_smoothing=0.1)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = objective(*batch())
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), torch.cat([gradient.flatten() for gradient in gradients])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", ["post_norm", "output_bias"])
def test_declared_features_give_the_same_loss_and_gradients(variant: str, precision: str) -> None:
    model = model_of(variant)
    with_features, gradients = loss_and_gradients(model, precision)
    model.has_features = False
    without, expected = loss_and_gradients(model, precision)
    torch.testing.assert_close(with_features, without, rtol=TOLERANCE[precision], atol=0)
    assert (gradients - expected).norm() <= TOLERANCE[precision] * expected.norm()


def test_logits_are_not_computed_from_declared_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "forward", lambda *_: pytest.fail("all logits at once"))
    loss, _ = loss_and_gradients(model_of("output_bias"), "fp32")
    assert torch.isfinite(loss)


def test_an_own_forward_is_what_counts() -> None:
    model = model_of("output_bias")
    model.__class__ = OwnForward
    model.eval()
    loss, _ = loss_and_gradients(model, "fp32")
    source, length, target, labels = batch()
    expected = nn.functional.cross_entropy(
        model(source, length, target).flatten(0, 1),
        labels.flatten(),
        ignore_index=-1,
        label_smoothing=0.1,
        reduction="sum",
    )
    torch.testing.assert_close(loss, expected.detach())
