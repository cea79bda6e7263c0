"""The check of a model's contract: sound models pass and stay as they are, and each kind of mistake is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgeformer.errors import ConfigError
from edgeformer.families import get_family, model_config
from edgeformer.model.base import EncoderDecoder, State
from edgeformer.model.check import check_model
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SENTENCES, SOURCE_AXIS, StateTensor
from edgeformer_runtime.errors import ModelError
from tests.factory import randomise
from tests.variants import VARIANTS, varied_blocks

D = 8


class Small(EncoderDecoder):
    """A GRU, attention to embedded sources, and the mean of all earlier target embeddings: every kind of state."""

    has_attention = True
    source_vocab_size, target_vocab_size = 20, 30
    max_source_length, max_target_length = 9, 9

    def __init__(self) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(self.source_vocab_size, D)
        self.target_embedding = nn.Embedding(self.target_vocab_size, D)
        self.cell = nn.GRUCell(D, D)
        self.projection = nn.Linear(D, self.target_vocab_size)

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        logits: Tensor = self.projection(self.before_projection(source, source_length, target))
        return logits

    def before_projection(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        state = self.encoded(source, source_length)
        hidden, outputs = state["hidden"], []
        embedded = self.target_embedding(target)
        for index in range(target.shape[1]):
            hidden = self.cell(embedded[:, index], hidden)
            context, _ = self.attend(hidden, state)
            outputs.append(hidden + context + embedded[:, : index + 1].mean(1))
        return torch.stack(outputs, 1)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        return self.encoded(source, source_length)

    def encoded(self, source: Tensor, source_length: Tensor) -> State:
        mask = torch.arange(source.shape[1]) < source_length[:, None]
        memory = self.source_embedding(source)
        hidden = memory.masked_fill(~mask[:, :, None], 0.0).sum(1) / source_length[:, None]
        return {"memory": memory, "mask": mask, "hidden": hidden}

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        return self.stepped(token, state)[:2]

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        return self.stepped(token, state)

    def stepped(self, token: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        embedded = self.target_embedding(token)
        hidden = self.cell(embedded, state["hidden"])
        seen = torch.cat((state["seen"], embedded[:, None]), 1)
        context, weights = self.attend(hidden, state)
        return self.projection(hidden + context + seen.mean(1)), {"hidden": hidden, "seen": seen}, weights

    def attend(self, hidden: Tensor, state: State) -> tuple[Tensor, Tensor]:
        query = hidden.reshape(state["memory"].shape[0], -1, D)
        scores = (query @ state["memory"].transpose(1, 2)).masked_fill(~state["mask"][:, None], -1e9)
        weights = scores.softmax(-1)
        return (weights @ state["memory"]).flatten(0, 1), weights.flatten(0, 1)

    def state_table(self) -> tuple[StateTensor, ...]:
        return (
            StateTensor(name="memory", kind="constant", dtype="float32", axes=(SENTENCES, SOURCE_AXIS, D)),
            StateTensor(name="mask", kind="constant", dtype="bool", axes=(SENTENCES, SOURCE_AXIS)),
            StateTensor(name="hidden", kind="recurrent", dtype="float32", axes=(ROWS, D)),
            StateTensor(name="seen", kind="cache", dtype="float32", axes=(ROWS, PAST_AXIS, D)),
        )


def small(**replaced: Any) -> EncoderDecoder:
    """A :class:`Small` of which some attributes and methods are others."""
    torch.manual_seed(0)
    kind: type[Small] = type("Changed", (Small,), replaced)
    return kind()


def altered(method: str, change: Callable[[Any], Any]) -> EncoderDecoder:
    """A :class:`Small` of which one method's result is another."""
    return small(**{method: lambda self, *inputs: change(getattr(Small, method)(self, *inputs))})


def problems(model: EncoderDecoder) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_model(model)
    found = re.fullmatch(
        r"Model `Changed` breaks the contract: (.*)\. See docs/your-own-model\.md\.", str(caught.value)
    )
    assert found is not None, caught.value
    # How large a difference is, is rounded arithmetic.
    return [re.sub(r" \(by \S+\)$", "", problem) for problem in found[1].split("; ")]


@pytest.mark.parametrize("variant", varied_blocks())
def test_every_family_passes(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = VARIANTS[variant]
    torch.manual_seed(0)
    model = get_family(section["family"]).build(model_config(section), 50, 50)
    check_model(model)
    check_model(randomise(model, seed=0))
    step = type(model).step
    monkeypatch.setattr(type(model), "step", lambda self, token, *rest: step(self, token.roll(1), *rest))
    with pytest.raises(ConfigError, match="`step` returns different logits than `forward`, first at step 0"):
        check_model(model)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_random_state_are_left_as_they_are(training: bool) -> None:
    def noisy(self: Small, source: Tensor, source_length: Tensor) -> State:
        torch.rand(3)
        return self.encoded(source, source_length)

    model = small(encode=noisy).train(training)
    model.get_submodule("projection").eval()
    nn.init.zeros_(model.get_parameter("projection.bias"))
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    state = torch.get_rng_state()
    check_model(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.children()] == [training, training, training, False]
    assert model.training == training
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_small_vocabularies_and_short_limits(limit: int) -> None:
    sizes = {"source_vocab_size": 4 + limit, "target_vocab_size": 4 + limit}
    model = small(**sizes, max_source_length=limit, max_target_length=limit)
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    check_model(model)
    assert {inputs[0].shape[1] for inputs in seen} == {max(1, limit - 1), limit}
    assert {inputs[2].shape[1] for inputs in seen} == {min(4, limit), limit}


@pytest.mark.slow
def test_late_positions_are_checked_where_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    section = VARIANTS["post_norm"]
    model = get_family(section["family"]).build(model_config(section), 50, 50)
    check_model(model, full_length=True)
    step, attend = type(model).step, type(model).step_with_attention
    monkeypatch.setattr(type(model), "step", lambda self, token, at, state: step(self, token, at.clamp(max=30), state))
    monkeypatch.setattr(
        type(model), "step_with_attention", lambda self, token, at, state: attend(self, token, at.clamp(max=30), state)
    )
    check_model(model)
    with pytest.raises(ConfigError, match="with 256 source and 80 target tokens, first at step 31"):
        check_model(model, full_length=True)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_table_of_positions_shorter_than_the_limit_is_found(side: str) -> None:
    torch.manual_seed(0)
    section = {**VARIANTS["post_norm"], "positions": "learned"}
    model = get_family(section["family"]).build(model_config(section), 50, 50)
    setattr(model, f"max_{side}_length", 300)
    with pytest.raises(ConfigError, match=r"`forward` with \d+ source and \d+ target tokens, raises \w+Error: "):
        check_model(model)


def hidden_state(name: str = "hidden", kind: Any = "recurrent", dtype: Any = "float32", *axes: Any) -> tuple[Any, ...]:
    state = StateTensor(name=name, kind=kind, dtype=dtype, axes=axes or (ROWS, D))
    return tuple(state if tensor.name == "hidden" else tensor for tensor in Small().state_table())


def in_place(self: Small, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
    state["hidden"].mul_(0.5)
    state["extra"] = state["hidden"]
    return self.stepped(token, state)[:2]


def first_beams_first(self: Small, hidden: Tensor, state: State) -> tuple[Tensor, Tensor]:
    query = hidden.reshape(-1, state["memory"].shape[0], D).transpose(0, 1)
    weights = (query @ state["memory"].transpose(1, 2)).masked_fill(~state["mask"][:, None], -1e9).softmax(-1)
    return (weights @ state["memory"]).transpose(0, 1).flatten(0, 1), weights.transpose(0, 1).flatten(0, 1)


def one_beam(self: Small, hidden: Tensor, state: State) -> tuple[Tensor, Tensor]:
    weights = (state["memory"] @ hidden[:, :, None]).squeeze(2).masked_fill(~state["mask"], -1e9).softmax(-1)
    return (weights[:, None] @ state["memory"]).squeeze(1), weights


def sees_padding(self: Small, source: Tensor, source_length: Tensor) -> State:
    return {**self.encoded(source, source_length), "hidden": self.source_embedding(source).mean(1)}


def sees_the_batch(self: Small, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
    logits = Small.forward(self, source, source_length, target)
    return logits + 0.1 * logits.mean(0)


def sees_the_future(self: Small, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
    later: Tensor = self.projection(self.target_embedding(target)).roll(-1, 1)
    return Small.forward(self, source, source_length, target) + 0.1 * later


FORWARD_SEES = "`forward` sees padding or the other sentences of a batch, first at step 0"
STEP_SEES = "`encode` or `step` sees padding or the other sentences of a batch, first at step 0"
STEP_DIFFERS = "`step` returns different logits than `forward`, first at step 0"
BEAMS = [
    f"with K = 3 beams, row r of `{method}` must belong to sentence r // K, first at step 0"
    for method in ("step", "step_with_attention")
]
ATTENTION_DIFFERS = "`step_with_attention` returns different logits than `step`, first at step 0"

MISTAKES: dict[str, tuple[EncoderDecoder, list[str]]] = {
    "no limit": (
        small(max_target_length=None),
        ["`max_target_length` must be a positive integer, but is None"],
    ),
    "unknown kind": (
        altered("state_table", lambda table: hidden_state(kind="konstant")),
        ["`state_table` must return a tuple of StateTensor: Invalid enum value 'konstant' - at `$[2].kind`"],
    ),
    "clashing names": (
        altered("state_table", lambda table: (*hidden_state("logits"), *hidden_state("past.seen")[2:3])),
        [
            f"state `{name}` needs another name, since an input or output has this one"
            for name in ("logits", "past.seen")
        ],
    ),
    "forgotten tensor": (
        altered("encode", lambda state: {name: state[name] for name in ("memory", "hidden")}),
        ["`encode` must return a dict of `memory`, `mask`, `hidden`, but returns `memory`, `hidden`"],
    ),
    "not a dict": (
        altered("encode", lambda state: tuple(state.values())),
        ["`encode` must return a dict of `memory`, `mask`, `hidden`, but returns tuple"],
    ),
    "dtype": (
        altered("encode", lambda state: {**state, "mask": state["mask"].int()}),
        ["state `mask` of `encode` must be bool (6, 7), but is int32 (6, 7)"],
    ),
    "cache does not grow": (
        altered("step", lambda result: (result[0], {**result[1], "seen": result[1]["seen"][:, 1:]})),
        ["state `seen` of `step` must be float32 (6, 1, 8), but is float32 (6, 0, 8)"],
    ),
    "logits": (
        altered("step", lambda result: (result[0][:, None], result[1])),
        ["logits of `step` must be float32 (6, 30), but is float32 (6, 1, 30)"],
    ),
    "only logits": (
        altered("step", lambda result: result[0]),
        ["`step` must return a tuple of logits and state"],
    ),
    "in place": (
        small(step=in_place, has_attention=False),
        [
            "`step` changes state `hidden` in place",
            "`step` changes state `extra` in place",
            STEP_DIFFERS,
        ],
    ),
    "forgets": (
        altered("step", lambda result: (result[0], {**result[1], "seen": result[1]["seen"] * 0})),
        ["`step` returns different logits than `forward`, first at step 1"],
    ),
    "future": (small(forward=sees_the_future), [STEP_DIFFERS]),
    "batch": (small(forward=sees_the_batch), [FORWARD_SEES, STEP_DIFFERS]),
    "padding": (small(encode=sees_padding), [STEP_DIFFERS, STEP_SEES]),
    "padding everywhere": (
        altered("encoded", lambda state: {**state, "mask": torch.ones_like(state["mask"])}),
        [FORWARD_SEES, STEP_SEES, "weights of `step_with_attention` must be zero on padding"],
    ),
    "beams": (
        small(attend=first_beams_first),
        [*BEAMS],
    ),
    "weights": (
        altered("step_with_attention", lambda result: (*result[:2], 2 * result[2])),
        ["weights of `step_with_attention` must add up to 1"],
    ),
    "attended logits": (
        altered("step_with_attention", lambda result: (result[0] + 1, *result[1:])),
        [ATTENTION_DIFFERS],
    ),
    "not a number": (
        altered("forward", lambda logits: logits / 0),
        ["`forward` returns logits that are not finite numbers"],
    ),
}
"""Models with a mistake, and all that the check says of each."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    model, expected = MISTAKES[mistake]
    assert problems(model) == expected


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (small(attend=one_beam), "`step` of 3 beams raises RuntimeError: The size of tensor .*"),
        (altered("forward", lambda logits: logits + dict[str, Tensor]()["bias"]), "`forward` raises KeyError: 'bias'"),
        (
            small(step_with_attention=EncoderDecoder.step_with_attention),
            "`step_with_attention` raises .* does not expose attention weights",
        ),
    ],
    ids=["torch", "forward", "missing"],
)
def test_an_exception_is_told_with_the_line_that_raised_it(model: EncoderDecoder, problem: str) -> None:
    first, *others = problems(model)
    found = re.fullmatch(rf"{problem} \((.*\.py):(\d+)\)", first)
    assert found is not None, first
    assert others == []
    line = Path(found[1]).read_text(encoding="utf-8").splitlines()[int(found[2]) - 1]
    assert re.search(r'masked_fill|\["bias"\]|raise NotImplementedError', line)


def test_a_projection_that_begins_with_zeros_hides_nothing() -> None:
    for mistake in ("forgets", "beams"):
        model, expected = MISTAKES[mistake]
        zeroed = small(**{name: value for name, value in vars(type(model)).items() if not name.startswith("__")})
        for name in ("projection.weight", "projection.bias"):
            nn.init.zeros_(zeroed.get_parameter(name))
        assert problems(zeroed) == expected
        assert not zeroed.get_parameter("projection.weight").any()


def test_weights_that_are_not_numbers_are_no_breach_of_contract() -> None:
    model = small()
    with torch.no_grad():
        model.get_parameter("cell.weight_ih")[0, 0] = float("nan")
    with pytest.raises(ModelError, match=r"not finite numbers: cell\.weight_ih\."):
        check_model(model)


def test_declared_features_are_compared_with_forward() -> None:
    features = Small.before_projection
    check_model(small(has_features=True, features=features))
    shifted = small(has_features=True, features=lambda self, *inputs: features(self, *inputs) + 1)
    assert problems(shifted) == ["`projection` of `features` returns different logits than `forward`, first at step 0"]
    narrow = small(has_features=True, features=lambda self, *inputs: features(self, *inputs)[..., :4])
    assert problems(narrow) == ["result of `features` must be float32 (6, 4, 8), but is float32 (6, 4, 4)"]
    model = small(has_features=True, features=features)
    model.projection = nn.Sequential(model.projection)  # type: ignore[assignment]  # the mistake under test
    assert problems(model) == ["`projection` must be an nn.Linear, but is Sequential"]


def test_a_class_with_its_own_forward_declares_its_features_again() -> None:
    parent = type(small(has_features=True, features=Small.before_projection))

    def child(**replaced: Any) -> EncoderDecoder:
        kind: type[Small] = type("Child", (parent,), replaced)
        return kind()

    assert parent().has_features
    assert child().has_features
    assert not child(forward=Small.forward).has_features
    assert child(forward=Small.forward, has_features=True).has_features
