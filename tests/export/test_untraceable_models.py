# mypy: disable-error-code="no-any-return, no-untyped-call"
"""What the exporter says of models from outside the package that PyTorch's exporter cannot translate, and how it helps
with those that it can."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from edgeformer.model.base import State
from edgeformer.model.check import check_model
from edgeformer_export.model_graphs import check_exportable, optimizations, optimized_graphs
from edgeformer_export.tracing.to_onnx import to_onnx
from edgeformer_export.writer import ExportError
from edgeformer_runtime.contract import ENCODER_FILE, ROWS, StateTensor
from tests.strangers import NoFields, Stranger, constant, mask_of

D = 32


class Attentive(Stranger):
    """Embeddings as the memory, and a GRU cell that attends to them."""

    def __init__(self) -> None:
        super().__init__(NoFields(), 40, 50)
        self.cell, self.query = nn.GRUCell(D, D), nn.Linear(D, D)
        self.projection = nn.Linear(2 * D, 50)

    def memory(self, source: Tensor, source_length: Tensor) -> Tensor:
        return self.source_embedding(source)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        mask = mask_of(source_length, source.shape[1])
        memory = self.memory(source, source_length).masked_fill(~mask[:, :, None], 0.0)
        return {"memory": memory, "mask": mask, "hidden": memory.sum(1) / source_length[:, None]}

    def attend(self, hidden: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        query = self.query(hidden).reshape(len(memory), -1, D)
        scores = (query @ memory.transpose(1, 2)).masked_fill(~mask[:, None], -1e9)
        return (scores.softmax(-1) @ memory).flatten(0, 1)

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = self.cell(self.target_embedding(token), state["hidden"])
        context = self.attend(hidden, state["memory"], state["mask"])
        return self.projection(torch.cat([hidden, context], -1)), {"hidden": hidden}

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        state, outputs = self.encode(source, source_length), []
        for position, token in enumerate(target.unbind(1)):
            logits, new = self.step(token, torch.tensor(position), state)
            state |= new
            outputs.append(logits)
        return torch.stack(outputs, 1)

    def state_table(self) -> tuple[StateTensor, ...]:
        hidden = StateTensor(name="hidden", kind="recurrent", dtype="float32", axes=(ROWS, D))
        return (constant("memory", D), constant("mask", dtype="bool"), hidden)


class Recurrent(Attentive):
    def __init__(self, kind: Any = nn.GRU, batch_first: bool = True) -> None:
        super().__init__()
        self.recurrent = kind(D, D, batch_first=batch_first)

    def memory(self, source: Tensor, source_length: Tensor) -> Tensor:
        embedded = self.source_embedding(source)
        if self.recurrent.batch_first:
            return self.recurrent(embedded)[0]
        return self.recurrent(embedded.transpose(0, 1))[0].transpose(0, 1)


class Packed(Recurrent):
    def memory(self, source: Tensor, source_length: Tensor) -> Tensor:
        embedded = self.source_embedding(source)
        packed = pack_padded_sequence(embedded, source_length.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=source.shape[1])[0]


class OnThreeAxes(Attentive):
    def attend(self, hidden: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        query = self.query(hidden).reshape(len(memory), -1, D)
        return F.scaled_dot_product_attention(query, memory, memory, attn_mask=mask[:, None]).flatten(0, 1)


class OnFourAxes(Attentive):
    """As the message says."""

    def attend(self, hidden: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        query = self.query(hidden).reshape(len(memory), -1, D).unsqueeze(1)
        memory = memory.unsqueeze(1)
        return F.scaled_dot_product_attention(query, memory, memory, attn_mask=mask[:, None, None]).flatten(0, 2)


class ByRow(Attentive):
    """A memory for each row, as in code that knows no beams."""

    def attend(self, hidden: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        beams = len(hidden) // len(memory)
        memory, mask = self.repeated(memory, beams), self.repeated(mask, beams)
        scores = (memory @ self.query(hidden)[:, :, None])[:, :, 0].masked_fill(~mask, -1e9)
        return (scores.softmax(-1)[:, None] @ memory)[:, 0]

    def repeated(self, x: Tensor, beams: int) -> Tensor:
        return x.repeat_interleave(beams, 0)


class Tiled(ByRow):
    def repeated(self, x: Tensor, beams: int) -> Tensor:
        return x[:, None].repeat(1, beams, *(1 for _ in x.shape[1:])).flatten(0, 1)


class Expanded(ByRow):
    """As the message says."""

    def repeated(self, x: Tensor, beams: int) -> Tensor:
        return x[:, None].expand(-1, beams, *x.shape[1:]).flatten(0, 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(
            Packed,
            r"The model's `encode` cannot be traced: \w+: .*\(.*test_untraceable_models\.py:\d+\)\. "
            r"`pack_padded_sequence` reads the lengths as values\. Run the layer on the padded source .*",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            OnThreeAxes,
            r"The model's `step` cannot be traced: .*\. `scaled_dot_product_attention` must get queries, keys and "
            r"values with four axes, .*`unsqueeze\(1\)`\.",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ByRow,
            r"The model's `step` cannot be exported: PyTorch's exporter mistranslates `repeat_interleave` by a number "
            r"that depends on the batch; write `x\[:, None\]\.expand\(-1, k, …\)\.flatten\(0, 1\)` .*",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Tiled,
            r"The model's `step` needs operators that bundles may not use: Tile \(from `repeat`; use `expand` and "
            r"`reshape`\)\. See the rules in docs/your-own-model\.md\.",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_exported_is_named_with_what_to_write_instead(kind: type[Attentive], message: str) -> None:
    model = kind()
    check_model(model)
    with pytest.raises(ExportError) as caught:
        check_exportable(model)
    assert re.fullmatch(message, str(caught.value)), caught.value


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OnFourAxes, Expanded])
def test_what_the_messages_say_to_write_can_be_exported(kind: type[Attentive]) -> None:
    check_exportable(kind())


@pytest.mark.slow
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers_of_torch_are_traced_for_all_lengths_whatever_was_traced_before(
    kind: Any, batch_first: bool
) -> None:
    model = Recurrent(kind, batch_first)
    check_exportable(model)
    traced = to_onnx(model, "ort").graphs
    graphs, _ = optimized_graphs(traced, partial(optimizations, target="ort", in_blocks=False, for_cuda=False))
    outputs = {value.name: str(value.shape) for value in graphs[ENCODER_FILE].graph.outputs}
    assert outputs == {"memory": "[N,S,32]", "mask": "[N,S]", "hidden": "[N,32]"}
    session = onnxruntime.InferenceSession(
        ir.to_proto(graphs[ENCODER_FILE]).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for size in (1, 5, 8):
        source, length = torch.arange(4, 4 + 3 * size).reshape(3, size), torch.full((3,), size)
        (memory,) = session.run(["memory"], {"source": source.numpy(), "source_length": length.numpy()})
        with torch.no_grad():
            expected = model.encode(source, length)["memory"].numpy()
        np.testing.assert_allclose(memory, expected, atol=1e-5)
