from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from edgeformer.data.batches import NO_LABEL
from edgeformer.train import loss as loss_module
from edgeformer.train.loss import projected_cross_entropy, smoothed_cross_entropy

TOLERANCE = {
    torch.float32: 1e-5,  # order of summation
    torch.bfloat16: 2e-2,  # the gradient is rounded to 8 bits
}


def reference(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[float, float, int]:
    """The definition, token by token, in double precision."""
    loss = nll = 0.0
    tokens = 0
    for row, row_labels in zip(logits.tolist(), labels.tolist(), strict=True):
        for scores, label in zip(row, row_labels, strict=True):
            if label == NO_LABEL:
                continue
            normalizer = math.log(math.fsum(math.exp(score) for score in scores))
            log_probabilities = [score - normalizer for score in scores]
            nll -= log_probabilities[label]
            target = [smoothing / len(scores) + (1 - smoothing) * (index == label) for index in range(len(scores))]
            loss -= math.fsum(p * q for p, q in zip(target, log_probabilities, strict=True))
            tokens += 1
    return loss, nll, tokens


def example(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 5, 11, generator=generator).mul_(3).to(dtype)
    labels = torch.randint(1, 11, (3, 5), generator=generator)
    labels[0, 3:] = NO_LABEL
    labels[2, 1:] = NO_LABEL
    return logits, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_definition(smoothing: float, dtype: torch.dtype) -> None:
    logits, labels = example(dtype)
    sums = smoothed_cross_entropy(logits, labels, smoothing)
    loss, nll, tokens = reference(logits.float(), labels, smoothing)
    assert sums.loss.item() == pytest.approx(loss, rel=1e-5)
    assert sums.nll.item() == pytest.approx(nll, rel=1e-5)
    assert sums.tokens == tokens == 9


def test_all_padding_is_zero() -> None:
    logits = torch.full((1, 2, 4), float("inf"), requires_grad=True)
    sums = smoothed_cross_entropy(logits, torch.full((1, 2), NO_LABEL), 0.1)
    assert (sums.loss.item(), sums.nll.item(), sums.tokens) == (0, 0, 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 40, 2**22], ids="chunk={}".format)
def test_projection_and_loss_in_one(smoothing: float, bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    features, projection, labels = projected_example(bias)
    leaves = [features, *projection.parameters()]
    apart = smoothed_cross_entropy(projection(features), labels, smoothing)
    joined = projected_cross_entropy(features, projection, labels, smoothing)
    torch.testing.assert_close(joined.loss, apart.loss)
    torch.testing.assert_close(joined.nll, apart.nll)
    assert joined.tokens == apart.tokens == 9
    expected = torch.autograd.grad(2.5 * apart.loss, leaves)
    for actual, reference in zip(torch.autograd.grad(2.5 * joined.loss, leaves), expected, strict=True):
        torch.testing.assert_close(actual, reference, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_projection_and_loss_in_bf16(bias: bool) -> None:
    features, projection, labels = projected_example(bias)
    leaves = [features, *projection.parameters()]
    apart = smoothed_cross_entropy(projection(features), labels, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        joined = projected_cross_entropy(features, projection, labels, 0.1)
    assert joined.loss.dtype == torch.float32
    torch.testing.assert_close(joined.loss, apart.loss, rtol=1e-2, atol=0)
    expected = torch.autograd.grad(apart.loss, leaves)
    for actual, reference in zip(torch.autograd.grad(joined.loss, leaves), expected, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - reference).norm() < 2e-2 * reference.norm()


def test_projection_of_padding_alone_is_zero() -> None:
    features, projection, labels = projected_example(bias=True)
    sums = projected_cross_entropy(features, projection, torch.full_like(labels, NO_LABEL), 0.1)
    assert (sums.loss.item(), sums.nll.item(), sums.tokens) == (0, 0, 0)
    assert not any(gradient.any() for gradient in torch.autograd.grad(sums.loss, [features, *projection.parameters()]))


def test_projection_to_large_logits_stays_finite() -> None:
    projection = nn.Linear(1, 3, bias=False)
    nn.init.constant_(projection.weight, 1e4)
    projection.weight.data[2] = -1e4
    features = torch.ones(1, 1, 1, requires_grad=True)
    sums = projected_cross_entropy(features, projection, torch.tensor([[2]]), 0.1)
    assert 80 < sums.nll.item() < 90
    (gradient,) = torch.autograd.grad(sums.loss, features)
    probabilities, distribution = (0.5, 0.5, 0.0), (0.1 / 3, 0.1 / 3, 0.9 + 0.1 / 3)
    expected = sum(w * (p - q) for w, p, q in zip((1e4, 1e4, -1e4), probabilities, distribution, strict=True))
    assert gradient.item() == pytest.approx(expected, rel=1e-5)


def projected_example(bias: bool) -> tuple[Tensor, nn.Linear, Tensor]:
    """Features ``(3, 5, 7)``, a projection to 11 entries, and labels with padding."""
    torch.manual_seed(1)
    features, projection = torch.randn(3, 5, 7, requires_grad=True), nn.Linear(7, 11, bias=bias)
    return features, projection, example()[1]
