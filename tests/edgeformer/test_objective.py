"""The loss that training minimizes, of models with and without declared features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder, State
from edgeformer.train.loss import Objective
from edgeformer_runtime.contract import StateTensor

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # order of summation; rounding to 8 bits


class BagOfWords(EncoderDecoder):
    """The mean source embedding plus that of the last target token, projected: a family of somebody else."""

    has_features = True
    source_vocab_size, target_vocab_size = 20, 30

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = nn.Embedding(20, 8), nn.Embedding(30, 8)
        self.projection = nn.Linear(8, 30, bias=bias)

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = self.projection(self.features(source, source_length, target))
        return logits

    def features(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        mean: Tensor = self.source_embedding(source).sum(1) / source_length[:, None]
        embedded: Tensor = self.target_embedding(target)
        return mean[:, None] + embedded

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        raise NotImplementedError

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        raise NotImplementedError

    def state_table(self) -> tuple[StateTensor, ...]:
        raise NotImplementedError


class OwnForward(BagOfWords):
    """Overrides the forward alone, so that its inherited features say nothing about it."""

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        return super().forward(source, source_length, target) * 2


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources ``(3, 5)``, their lengths, targets and labels ``(3, 4)``; padding is 0, and -1 in the labels."""
    labels = torch.tensor([[5, 6, 7, 2], [8, 2, -1, -1], [9, 10, 2, -1]])
    source = torch.arange(15).view(3, 5) + 1
    return source, torch.tensor([5, 5, 5]), torch.where(labels < 0, 0, labels.roll(1, 1)).clamp_min(0), labels


def loss_and_gradients(model: EncoderDecoder, precision: str) -> tuple[Tensor, list[Tensor]]:
    objective = Objective(model, label_smoothing=0.1)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = objective(*batch())
    return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("bias", [False, True])
def test_declared_features_give_the_same_loss_and_gradients(bias: bool, precision: str) -> None:
    torch.manual_seed(0)
    model = BagOfWords(bias)
    with_features, gradients = loss_and_gradients(model, precision)
    model.has_features = False
    without, expected = loss_and_gradients(model, precision)
    torch.testing.assert_close(with_features, without, rtol=TOLERANCE[precision], atol=0)
    for gradient, reference in zip(gradients, expected, strict=True):
        assert (gradient - reference).norm() <= TOLERANCE[precision] * reference.norm()


def test_logits_are_not_computed_from_declared_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BagOfWords, "forward", lambda *_: pytest.fail("all logits at once"))
    loss, _ = loss_and_gradients(BagOfWords(bias=True), "fp32")
    assert torch.isfinite(loss)


def test_an_own_forward_is_what_counts() -> None:
    torch.manual_seed(0)
    model = OwnForward(bias=True)
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
