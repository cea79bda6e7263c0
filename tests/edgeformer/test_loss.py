from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from edgeformer.config import TrainConfig
from edgeformer.data.batches import NO_LABEL, BatchStream, EncodedPairs, RaggedArray
from edgeformer.model.build import build_model
from edgeformer.model.transformer.model import Transformer
from edgeformer.train import loss as loss_module
from edgeformer.train.loss import Objective, projected_cross_entropy, smoothed_cross_entropy
from edgeformer.train.prefetch import prefetched_batches
from edgeformer.train.state import TrainingState, build_optimizer
from edgeformer.train.trainer import Trainer
from edgeformer_runtime.bundle.manifest import SpecialTokens
from tests.factory import randomise, small_recipe

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


@pytest.mark.slow
@pytest.mark.parametrize("scale", [4, 8, 12])
def test_losses_in_bf16_are_as_accurate_as_stated(scale: float) -> None:
    """For models that know little and models that are sure of the label."""
    generator = torch.Generator().manual_seed(0)
    projection = nn.Linear(256, 1000, bias=False)
    nn.init.normal_(projection.weight, std=256**-0.5, generator=generator)
    labels = torch.randint(0, 1000, (400,), generator=generator)
    features = scale * projection.weight.detach()[labels] + 0.8 * torch.randn(400, 256, generator=generator)
    expected = nn.functional.cross_entropy(projection(features), labels, reduction="none").detach()
    features.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = [
            projected_cross_entropy(row[None, None], projection, label[None, None]).nll
            for row, label in zip(features, labels, strict=True)
        ]
    errors = torch.stack(found) - expected
    assert 1e-4 < errors.abs().median() < 0.01
    assert errors.abs().quantile(0.99) < 0.03
    assert errors.mean().abs() < 0.001


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


def test_logits_are_not_computed_from_declared_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "forward", lambda *_: pytest.fail("all logits at once"))
    model = build_model(small_recipe("output_bias"), 30, 30)
    source, labels = torch.arange(15).view(3, 5), torch.ones(3, 5, dtype=torch.int64)
    assert torch.isfinite(Objective(model, 0.1)(source, torch.tensor([5, 5, 5]), source, labels))


class MaskedSoftmaxCELoss(nn.CrossEntropyLoss):
    """The loss of the article "PyTorch系列之机器翻译｜注意力机制｜Transformer", as it is there."""

    def forward(self, pred: Tensor, label: Tensor, valid_length: Tensor) -> Tensor:  # type: ignore[override]
        weights = torch.ones_like(label)
        mask = torch.arange(label.size(1))[None, :] < valid_length[:, None]
        weights[~mask] = 0
        self.reduction = "none"
        output = super().forward(pred.transpose(1, 2), label)
        return (output * weights.float()).mean(dim=1)


@pytest.mark.parametrize("loss_mean", ["tokens", "padded_length"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_update_takes_the_mean_of_the_recipe(loss_mean: str, accumulate: int) -> None:
    """Of the document's loss, the sum over the sentences, which is what "Dive into Deep Learning" differentiates."""
    chance = np.random.default_rng(0)
    special = SpecialTokens()
    source_ids, target_ids = (
        RaggedArray.from_sequences([chance.integers(5, 30, chance.integers(2, 9)).tolist() for _ in range(60)])
        for _ in range(2)
    )
    pairs = EncodedPairs(source_ids, target_ids, np.arange(60), 0, special)
    stream = BatchStream(pairs, batch_tokens=40, seed=1, accumulate=accumulate)
    model = randomise(build_model(small_recipe("post_norm", {"dropout": 0.0}), 30, 30), 0)
    expected = torch.zeros(())
    for index in range(accumulate):
        batch = stream.batch(index)
        source, length, target, labels = map(
            torch.from_numpy, (batch.source, batch.source_length, batch.target, batch.labels)
        )
        true = labels >= 0
        pred = model(source, length, target)
        if loss_mean == "padded_length":
            expected = expected + MaskedSoftmaxCELoss()(pred, labels.clamp_min(0), true.sum(1)).sum()
        else:
            expected = (
                expected + nn.functional.cross_entropy(pred[true], labels[true], reduction="sum") / batch.update_tokens
            )
    norm = torch.cat(
        [gradient.flatten() for gradient in torch.autograd.grad(expected, list(model.parameters()))]
    ).norm()
    config = TrainConfig(loss_mean=loss_mean, accumulate=accumulate, label_smoothing=0.0, clip_norm=0.0)  # type: ignore[arg-type]
    fabric = Fabric(accelerator="cpu")
    nothing: Any = None
    run: Any = SimpleNamespace(recipe=SimpleNamespace(train=config, model={"family": "transformer"}))
    state = TrainingState(model, build_optimizer(model, config))
    trainer = Trainer(run, fabric, state, stream, nothing, nothing)
    module, optimizer = fabric.setup(Objective(model, 0.0), state.optimizer)
    update = trainer.update(module, optimizer, prefetched_batches(stream.start_at(0)))
    torch.testing.assert_close(update.gradient_norm, norm.detach())
    if loss_mean == "tokens":
        torch.testing.assert_close(update.loss, expected.detach())  # else it is reported per token all the same
