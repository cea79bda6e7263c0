"""The effect of rounding a weight on a model: second moments, measured on text of the training set.

- An error in the weight of a *product* is multiplied by the product's inputs ``x``: it counts by ``E[x xᵀ]``.
- An error in the row of a *table* enters the model as it is. It counts by ``E[g gᵀ]``, where ``g`` is the gradient of
  the loss with respect to the row that was looked up (the Fisher information: to second order, an error ``e`` increases
  the loss by ``eᵀ E[g gᵀ] e / 2``).
- A table that is also an output projection counts by the sum of both, scaled to the same trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from edgeformer.model.base import EncoderDecoder
from edgeformer_export.passes.patterns import find_linears
from edgeformer_export.quantize.calibration import TOKENS, TRANSLATING, CalibrationData, batches, observed
from edgeformer_export.quantize.layers import Layer
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.forced_steps import Pair, forced_batch

Matrix = NDArray[np.float32]

MAX_WIDTH = 4096
"""Moments of wider inputs are not measured: their memory grows with the square of the width, the time for them with its
cube."""
VECTORS = 1024
"""Number of vectors whose products are summed at a time."""
LOGITS = 1 << 24
"""Maximum number of logits whose gradients are computed at a time."""


@dataclass
class Moments:
    """Sums ``x xᵀ`` over vectors ``x``."""

    total: Matrix | float = 0.0
    """The sum, ``(width, width)``; 0 before the first vector."""
    _waiting: list[Matrix] = field(default_factory=list)
    """Vectors to be summed together: one large product takes less time than many small ones."""

    def observe(self, vectors: Matrix) -> None:
        """Add vectors, ``(…, width)``."""
        self._waiting.append(vectors.reshape(-1, vectors.shape[-1]))
        if sum(map(len, self._waiting)) >= VECTORS:
            self.flush()

    def flush(self) -> None:
        """Sum the vectors that wait for others."""
        if self._waiting:
            vectors = np.concatenate(self._waiting)
            self.total, self._waiting = self.total + vectors.T @ vectors, []


def weight_moments(
    model: EncoderDecoder,
    layers: Sequence[Layer],
    data: CalibrationData,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, Matrix]:
    """Measure the second moments of tables and of the weights of the decoder's products.

    Args:
        model: the torch model.
        layers: its weights.
        data: its graphs and their text.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Moments ``(width, width)``, in any unit, by the name of the layer; without those that are unknown.
    """
    inputs = input_moments(data, lambda fraction: progress(fraction / 2))
    gradients = lookup_moments(model, data.pairs, data.special, lambda fraction: progress((1 + fraction) / 2))
    moments = {}
    for layer in layers:
        sums = [*_of_products(layer, inputs), *_of_lookups(layer, gradients)]
        sums = [total for total in sums if 0 < np.trace(total) < np.inf]
        if sums:
            moments[layer.name] = sums[0] if len(sums) == 1 else _scaled_sum(sums)
    return moments


def _of_products(layer: Layer, inputs: Mapping[str, Matrix]) -> list[Matrix]:
    """Return the moments of all inputs that a weight is multiplied by, if there are any."""
    found = [
        inputs[reader.name]
        for reader in layer.readers
        if reader.file == contract.DECODER_FILE and reader.name in inputs
    ]
    return [sum(found[1:], start=found[0])] if found else []


def _of_lookups(layer: Layer, gradients: Mapping[str, Matrix]) -> list[Matrix]:
    """Return the moments of a table's gradients, if a weight is one; if they are unknown, all errors count alike."""
    width = layer.rows.shape[1]
    if width > MAX_WIDTH or not any(reader.kind == "lookup" and reader.file in TRANSLATING for reader in layer.readers):
        return []
    known = gradients.get(layer.parameters[0].name) if len(layer.parameters) == 1 else None
    return [np.eye(width, dtype=np.float32) if known is None else known]


def _scaled_sum(sums: Sequence[Matrix]) -> Matrix:
    total: Matrix = np.sum([matrix / np.trace(matrix) for matrix in sums], axis=0)
    return total


def input_moments(
    data: CalibrationData, progress: Callable[[float], None] = lambda fraction: None
) -> dict[str, Matrix]:
    """Measure the inputs of the decoder's products; see :func:`weight_moments` for the arguments.

    Returns:
        Moments by the name of each product's output; the same array for products with the same input.
    """
    decoder = data.graphs[contract.DECODER_FILE].graph
    inputs = {
        str(linear.output.name): str(linear.activation.name)
        for linear in find_linears(decoder)
        if linear.weight.shape[0] <= MAX_WIDTH
    }
    moments = {name: Moments() for name in inputs.values()}
    names = {contract.DECODER_FILE: moments}
    for file, outputs, unfinished in observed(data, names, progress):
        for name, of_input in moments.items() if file == contract.DECODER_FILE else ():
            vectors = outputs[name].numpy()
            of_input.observe(vectors[unfinished] if len(vectors) == len(unfinished) else vectors)
    for of_input in moments.values():
        of_input.flush()
    return {output: np.asarray(moments[name].total) for output, name in inputs.items()}


def lookup_moments(
    model: EncoderDecoder,
    pairs: Sequence[Pair],
    special: SpecialTokens,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, Matrix]:
    """Measure the gradients of the loss with respect to rows of embedding tables.

    Args:
        model: the torch model.
        pairs: text of the training set.
        special: special token ids.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Moments by the name of the table's parameter without ``.weight``; only of tables in an ``nn.Embedding``.
    """
    names = {id(parameter): name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    moments: dict[str, Moments] = defaultdict(Moments)
    taken: list[tuple[str, Tensor]] = []

    def take(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
        rows = output.detach().requires_grad_()
        taken.append((names[id(module.weight)], rows))
        return rows.clone()  # which the model may modify in place

    tables = [module for module in model.eval().modules() if isinstance(module, nn.Embedding)]
    hooks = [module.register_forward_hook(take) for module in tables if module.embedding_dim <= MAX_WIDTH]
    try:
        all_batches = batches(pairs, min(TOKENS, LOGITS // model.target_vocab_size))
        for number, pairs_of_batch in enumerate(all_batches, 1):
            taken.clear()
            loss = _loss(model, pairs_of_batch, special)
            gradients = torch.autograd.grad(loss, [rows for _, rows in taken], allow_unused=True) if taken else ()
            for (name, _), gradient in zip(taken, gradients, strict=True):
                if gradient is not None:
                    moments[name].observe(gradient.numpy())
            progress(number / len(all_batches))
    finally:
        for hook in hooks:
            hook.remove()
    for of_table in moments.values():
        of_table.flush()
    return {name: np.asarray(of_table.total) for name, of_table in moments.items()}


def _loss(model: EncoderDecoder, pairs: Sequence[Pair], special: SpecialTokens) -> Tensor:
    """Sum the negative log-likelihoods of all target tokens, end tokens included."""
    batch = forced_batch([(source, [*target, special.eos]) for source, target in pairs], special)
    source, source_length, target = map(torch.from_numpy, (batch.source, batch.source_length, batch.target))
    logits = model(source, source_length, target[:, :-1])  # (N, T, V)
    step = torch.arange(logits.shape[1])
    chosen = (len(special.prefix) <= step) & (step < torch.from_numpy(batch.target_length)[:, None] - 1)
    return functional.cross_entropy(logits[chosen].float(), target[:, 1:][chosen], reduction="sum")
