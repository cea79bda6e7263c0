"""What every model family promises: forward against step, masks, gradients, shared encoder state of beams."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgeformer.families import get_family, model_config
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.parity.comparison import compare_logits
from edgeformer_runtime.bundle.manifest import SpecialTokens
from tests.factory import randomise
from tests.variants import VARIANTS

VOCAB = 50

# Largest difference between two ways to compute the same logits in fp32, which are of order 1 … 10.
TOLERANCE = 2e-5


def build(variant: str, seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    section = VARIANTS[variant]
    return randomise(get_family(section["family"]).build(model_config(section), VOCAB, VOCAB), seed)


def random_pairs(count: int, longest: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    random = np.random.default_rng(seed)

    def ids() -> list[int]:
        return [int(token) for token in random.integers(4, VOCAB, random.integers(0, longest + 1))]

    return [([*ids(), 3], ids()) for _ in range(count)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "longest"), [(1, 0), pytest.param(1, 20, marks=pytest.mark.slow), (7, 12)])
def test_step_by_step_logits_equal_teacher_forced_logits(variant: str, batch: int, longest: int) -> None:
    model = build(variant)
    parity = compare_logits(model, TorchSession(model, SpecialTokens()), random_pairs(batch, longest))
    assert parity.positions >= batch
    assert parity.max_difference <= TOLERANCE


def test_gradients_reach_every_parameter() -> None:
    for variant in VARIANTS:
        model = build(variant).train()
        logits = model(torch.tensor([[5, 6, 3], [9, 3, 0]]), torch.tensor([3, 2]), torch.tensor([[2, 9, 8], [2, 7, 6]]))
        logits.logsumexp(-1).sum().backward()
        without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert without == [], variant
