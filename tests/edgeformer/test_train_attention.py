"""The attention that training uses on CPU, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgeformer.model.transformer.attention import MultiHeadAttention, Scoring, torch_attention
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.train.cpu import training_attention, use_training_attention

TOLERANCE = {
    torch.float32: 1e-5,  # order of summation
    torch.bfloat16: 4e-2,  # weights and gradients are rounded to 8 bits, in other places
}
HEADS, KEY_WIDTH, VALUE_WIDTH = 2, 6, 10


def example(queries: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query ``(3, Q, H * E)``, key ``(3, H, S, E)``, value ``(3, H, S, F)`` and padding ``(3, S)``."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(3, queries, HEADS * KEY_WIDTH, generator=generator).to(dtype)
    key, value = (
        torch.randn(3, keys, HEADS, width, generator=generator).to(dtype).transpose(1, 2)
        for width in (KEY_WIDTH, VALUE_WIDTH)
    )
    padding = (torch.arange(keys) < torch.tensor([keys, 1, keys - 1])[:, None]).to(torch.int32)
    return query, key, value, padding


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("queries", "keys", "causal", "padded"),
    [(4, 7, False, False), (4, 7, False, True), (5, 5, True, False), (1, 2, False, True)],
)
def test_equals_torch(dtype: torch.dtype, queries: int, keys: int, causal: bool, padded: bool) -> None:
    *inputs, padding = example(queries, keys, dtype)
    results = []
    for kernel, precision in ((training_attention, dtype), (torch_attention, torch.float32)):
        leaves = [tensor.to(precision).requires_grad_() for tensor in inputs]
        query, key, value = leaves
        context = kernel(query, key, value, Scoring(0.4, padding if padded else None, causal))
        assert context.dtype == precision
        gradient = torch.linspace(-1, 1, context.numel()).view_as(context).to(precision)
        results.append([context, *torch.autograd.grad(context, leaves, gradient)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours.float(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_padding_gets_no_weight_and_no_gradient() -> None:
    query, key, value, padding = example(4, 7, torch.float32)
    value.requires_grad_()
    context = training_attention(query, key, value, Scoring(1.0, padding))
    torch.testing.assert_close(context[1], value[1, :, :1].expand(-1, 4, -1).transpose(0, 1).flatten(1))
    (gradient,) = torch.autograd.grad(context.sum(), value)
    assert not gradient.transpose(1, 2)[padding == 0].any()
    assert gradient.transpose(1, 2)[padding == 1].any()


def test_torch_does_what_needs_no_gradient_and_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Scoring] = []
    monkeypatch.setattr("edgeformer.train.cpu.torch_attention", lambda *arguments: calls.append(arguments[-1]))
    query, key, value, padding = example(4, 4, torch.float32)
    training_attention(query, key, value, Scoring(0.5, padding, dropout=0.25))
    with torch.no_grad():
        training_attention(query, key, value, Scoring(0.5, padding))
    training_attention(query, key, value, Scoring(0.5, padding))
    assert [call.dropout for call in calls] == [0.25, 0.0]


def test_every_kernel_of_torch_is_exchanged_and_no_other() -> None:
    config = TransformerConfig(d_model=8, d_ff=8, heads=2)

    def own(*_: object) -> Tensor:
        return torch.zeros(())

    model = nn.ModuleList(MultiHeadAttention(config) for _ in range(3))
    model[1].kernel = own  # type: ignore[assignment]  # it is never called
    use_training_attention(model)
    assert [module.kernel for module in model] == [training_attention, own, training_attention]
    assert MultiHeadAttention.kernel is torch_attention
