"""What a plan computes, written from ``docs/contract.md`` with numpy, which tests that page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Part = dict[str, Any]
ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"]


def numbers(value: Any, name: str = "") -> Iterator[float]:
    """Yield the numbers of a plan, whose objects have their fields in order."""
    if isinstance(value, dict):
        for field, item in value.items():
            if field != "output" or item is not None:
                yield from numbers(item, field)
    elif isinstance(value, list):
        yield from [float(len(value))] if name in ("encoder", "decoder") else []
        for item in value:
            yield from numbers(item)
    elif isinstance(value, str):
        yield float(ACTIVATIONS.index(value))
    else:
        yield -1.0 if value is None else float(value)


def sigmoid(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def activated(name: str, x: Array) -> Array:
    """Apply an activation to each element."""
    factors: dict[str, Callable[[Array], Array]] = {
        "relu": lambda x: x > 0,
        "gelu": lambda x: (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        "gelu_tanh": lambda x: (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
        "gelu_sigmoid": lambda x: sigmoid(1.702 * x),
        "silu": sigmoid,
    }
    y: Array = x * factors[name](x)
    return y


class PlanReader:
    """A model that is computed from its plan, one sentence at a time and without caches."""

    def __init__(self, plan: Part, weights: bytes) -> None:
        self.plan, self.weights = plan, weights

    def tensor(self, offset: int, count: int, dtype: str = "<f4") -> Array:
        return np.frombuffer(self.weights, dtype, count, offset)

    def norm(self, norm: Part, x: Array) -> Array:
        if norm["weight"] is None:
            return x
        centered = x - (x.mean(axis=1, keepdims=True) if self.plan["norm_centers"] else np.float32(0))
        deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + np.float32(self.plan["epsilon"]))
        y: Array = centered / deviation * self.tensor(norm["weight"], x.shape[1])
        return y if norm["bias"] is None else y + self.tensor(norm["bias"], x.shape[1])

    def linear(self, linear: Part, x: Array) -> Array:
        """Multiply ``(rows, inputs)`` in integers."""
        columns, part = linear["columns"], slice(linear["first"], linear["first"] + linear["count"])
        stored = self.tensor(linear["weight"], x.shape[1] * columns, "i1").astype(np.int32)
        weight = stored.reshape(columns, -1).T if linear["by_rows"] else stored.reshape(-1, columns)
        rounded = np.rint(x.astype(np.float32) / np.float32(linear["input_scale"])) + linear["input_zero"]
        integers = np.clip(rounded, 0, linear["input_most"]).astype(np.int32) - linear["input_zero"]
        scale = np.float32(linear["input_scale"]) * self.tensor(linear["scale"], columns)[part]
        y: Array = (integers @ weight[:, part]).astype(np.float32) * scale
        return y if linear["bias"] is None else y + self.tensor(linear["bias"], columns)[part]

    def embedded(self, embedding: Part, ids: list[int]) -> Array:
        width, rows = self.plan["width"], embedding["rows"]
        scale = self.tensor(embedding["scale"], rows)[ids][:, None]
        x = self.tensor(embedding["table"], rows * width, "i1").reshape(rows, width)[ids].astype(np.float32) * scale
        if embedding["position"] is not None:
            x = x + self.tensor(embedding["position"], len(ids) * width).reshape(len(ids), width)
        return self.norm(embedding["norm"], x)

    def attended(self, projected: list[Array], scale: float, *, causal: bool = False) -> Array:
        """Attend from queries ``(T, H E)`` to keys ``(S, H E)`` and values ``(S, H F)``."""
        heads, count = self.plan["heads"], len(projected[0])
        q, k, v = (x.reshape(len(x), heads, -1).transpose(1, 0, 2) for x in projected)  # (H, T or S, E or F)
        scores = q @ k.transpose(0, 2, 1) * np.float32(scale)
        if causal:
            scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        heads_together: Array = (weights @ v).transpose(1, 0, 2).reshape(count, -1)
        return heads_together

    def input(self, norm: Part, x: Array) -> Array:
        """What a sublayer reads."""
        return self.norm(norm, x) if self.plan["norm_first"] else x

    def added(self, norm: Part, x: Array, y: Array) -> Array:
        """The stream after a sublayer."""
        return x + y if self.plan["norm_first"] else self.norm(norm, x + y)

    def feed_forward(self, layer: Part, x: Array) -> Array:
        inner = [self.linear(linear, self.input(layer["norm"], x)) for linear in layer["inner"]]
        y = activated(self.plan["activation"], inner[0]) * (inner[1] if self.plan["gated"] else np.float32(1))
        return self.added(layer["norm"], x, self.linear(layer["outer"], y))

    def looked_back(self, layer: Part, x: Array) -> Array:
        """Self-attention to the target so far, or the recurrence instead."""
        projected = [self.linear(linear, self.input(layer["norm"], x)) for linear in layer["target"]]
        if not self.plan["recurrent"]:
            y = self.attended(projected, self.plan["decoder_scale"], causal=True)
            return self.added(layer["norm"], x, self.linear(layer["output"], y))
        cell, cells = np.zeros(x.shape[1], np.float32), []
        for candidate, forget in zip(projected[0], sigmoid(projected[1]), strict=True):
            cell = candidate + forget * (cell - candidate)
            cells.append(np.maximum(cell, 0))
        return self.added(layer["norm"], x, np.array(cells))

    def logits(self, source: list[int], target: list[int]) -> Array:
        """Return the logits after each token of a target that begins with the start token, ``(T, V)``."""
        memory = self.embedded(self.plan["source"], source)
        for layer in self.plan["encoder"]:
            projected = [self.linear(linear, self.input(layer["norm"], memory)) for linear in layer["query_key_value"]]
            y = self.attended(projected, self.plan["encoder_scale"])
            memory = self.added(layer["norm"], memory, self.linear(layer["output"], y))
            memory = self.feed_forward(layer["feed_forward"], memory)
        memory = self.norm(self.plan["encoder_norm"], memory)
        x = self.embedded(self.plan["target"], target)
        for layer in self.plan["decoder"]:
            x = self.looked_back(layer, x)
            query = self.linear(layer["cross_query"], self.input(layer["cross_norm"], x))
            memories = [self.linear(linear, memory) for linear in layer["memory"]]
            y = self.attended([query, *memories], self.plan["cross_scale"])
            x = self.added(layer["cross_norm"], x, self.linear(layer["cross_output"], y))
            x = self.feed_forward(layer["feed_forward"], x)
        x = self.norm(self.plan["decoder_norm"], x)
        return self.linear(self.plan["projection"], x * np.float32(self.plan["output_scale"]))
