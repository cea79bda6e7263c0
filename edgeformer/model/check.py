"""Checks that a model satisfies the contract, by comparing its methods with each other on two short sources and one of
the maximum length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import msgspec
import torch
from torch import Tensor, nn

from edgeformer.errors import ConfigError
from edgeformer.model.base import EncoderDecoder, State, empty_caches
from edgeformer.traceback_summary import describe
from edgeformer_runtime import contract
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SENTENCES, SOURCE_AXIS, StateTensor, state_problems
from edgeformer_runtime.errors import ModelError

LENGTHS = (4, 7)
"""Lengths of the N sources without padding; the last one is the longest."""
BEAMS = 3
"""Beams per sentence, K."""
STEPS = 4
"""Target length, T."""
TOLERANCE = 1e-3
"""Maximum difference between logits that should be equal, in standard deviations of the logits. Rounding is below 1e-5;
the effect of a single source or target token is above 1e-2, even before training."""
LONG_TOLERANCE = 1e-2
"""The same at the model's maximum lengths, where rounding accumulates over many steps."""
MAX_LENGTH = 4096
"""Greatest length to check; a model that accepts more is checked up to here."""
MAX_LOGITS = 1 << 27
"""Maximum number of logits to compute at once; a longer target is cut to it."""
Progress = Callable[[float], None]
"""Called with the fraction done, 0 … 1."""
_INPUTS = {contract.SOURCE, contract.SOURCE_LENGTH, contract.TOKEN, contract.POSITION}
_OUTPUTS = {contract.LOGITS, contract.ATTENTION}


def check_model(
    model: EncoderDecoder, *, full_length: bool = False, progress: Progress = lambda fraction: None
) -> None:
    """Run every method of a model, trained or not, and compare the results.

    Weights, training modes and random states are restored before returning.

    Args:
        model: the model.
        full_length: also decode one target of the maximum length step by step, which may take minutes.
        progress: called with the fraction done, 0 … 1.

    Raises:
        ConfigError: the model breaks the contract of :class:`EncoderDecoder`; lists every problem found.
        ModelError: the model has NaN or infinite weights.
    """
    modes = [(module, module.training) for module in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    try:
        random_state = torch.random.fork_rng([device] if device.type == "cuda" else [])
        with torch.no_grad(), random_state, _one_thread(), _uneven(model):
            problems = _ContractCheck(model.eval(), device, progress).run(full_length=full_length)
    finally:
        for module, training in modes:
            module.training = training
    if problems:
        listed = "; ".join(problems)
        raise ConfigError(f"Model `{type(model).__name__}` breaks the contract: {listed}. See docs/your-own-model.md.")


@contextmanager
def _uneven(model: EncoderDecoder) -> Iterator[None]:
    """Temporarily vary the values of parameters whose elements are all equal, such as a new bias.

    A weight initialized with zeros would hide every mistake in the layers before it.
    """
    generator = torch.Generator().manual_seed(0)
    saved = []
    try:
        for parameter in model.parameters():
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                saved.append((parameter, parameter.clone()))
                parameter.add_((0.2 * torch.rand(parameter.shape, generator=generator)).to(parameter))
        yield
    finally:
        for parameter, values in saved:
            parameter.copy_(values)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run operators in one thread. Most are for few rows and too small to be divided: where other processes need the
    CPUs, nearly all time would be spent waiting for the other threads of each."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _StopError(Exception):
    """The remaining checks depend on the part that failed."""


class _ContractCheck:
    """The inputs of one check, and the problems found so far."""

    def __init__(self, model: EncoderDecoder, device: torch.device, progress: Progress) -> None:
        self.model, self.device, self.progress = model, device, progress
        self.problems: dict[str, str] = {}
        """Each problem with the place where it was first seen."""
        self.table: tuple[StateTensor, ...] = ()
        self.tolerance = float("inf")

    def run(self, *, full_length: bool) -> list[str]:
        """Run the check and return all problems."""
        with suppress(_StopError):
            self.make_inputs()
            expected = None
            with suppress(_StopError):
                expected = self.check_forward()
            self.check_table()
            self.check_steps(expected)
            if not self.problems:
                self.check_limits(stepwise=full_length)
        return [problem + where for problem, where in self.problems.items()]

    def make_inputs(self) -> None:
        """Make sources ``(N, S)``; then a source for each row, ``(R, S)``, with distinct targets ``(R, T)``."""
        for name in ("source_vocab_size", "target_vocab_size", "max_source_length", "max_target_length"):
            value = getattr(self.model, name, None)
            if not isinstance(value, int) or value < 1:
                self.stop(f"`{name}` must be a positive integer, but is {value}")

        count, longest = len(LENGTHS), self.model.max_source_length
        lengths = [max(1, min(length, longest - count + 1 + index)) for index, length in enumerate(LENGTHS)]
        self.length = torch.tensor(lengths, device=self.device)
        self.source = self.ids(count, lengths[-1], self.model.source_vocab_size)
        self.target = self.ids(count * BEAMS, min(STEPS, self.model.max_target_length), self.model.target_vocab_size)
        self.row_source, self.row_length = (x.repeat_interleave(BEAMS, 0) for x in (self.source, self.length))

    def ids(self, rows: int, columns: int, vocab_size: int) -> Tensor:
        """Make distinct rows of token ids, ``(rows, columns)``."""
        first = min(4, vocab_size - 1)  # no special ids, not even on padding: masks must come from lengths
        values = 5 * torch.arange(rows)[:, None] + torch.arange(columns)
        return (first + values % (vocab_size - first)).to(self.device)

    def alone(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return unpadded source, length and target of a row as a batch of one."""
        index, length = slice(row, row + 1), self.row_length[row : row + 1]
        return self.row_source[index, : int(length)], length, self.target[index]

    def check_forward(self) -> Tensor:
        """Compute logits ``(R, T, V)`` of all rows, which must match those of each row on its own."""
        logits = self.forward(self.row_source, self.row_length, self.target)
        self.tolerance = max(TOLERANCE * float(logits.std()), 1e-6 * float(logits.abs().max()))
        for row in (0, len(logits) - 1):
            alone = self.forward(*self.alone(row))
            self.compare(logits[row], alone[0], "`forward` sees padding or the other sentences of a batch")
        if self.model.has_features:
            with suppress(_StopError):
                self.check_features(logits)
        return logits

    def check_features(self, expected: Tensor) -> None:
        """Compare projected features of all rows with the logits ``(R, T, V)`` of ``forward``."""
        projection = getattr(self.model, "projection", None)
        if not isinstance(projection, nn.Linear):
            self.stop(f"`projection` must be an nn.Linear, but is {type(projection).__name__}")
        features = self.call("`features`", self.model.features, self.row_source, self.row_length, self.target)
        self.tensor("result of `features`", features, "float32", (*self.target.shape, projection.in_features))
        problem = "`projection` of `features` returns different logits than `forward`"
        logits = self.tensor("`projection` of `features`", projection(features), "float32", tuple(expected.shape))
        self.compare(logits, expected, problem)

    def forward(self, source: Tensor, length: Tensor, target: Tensor) -> Tensor:
        """Call ``forward`` and check its logits, ``(rows, T, V)``."""
        logits = self.call("`forward`", self.model, source, length, target)
        shape = (*target.shape, self.model.target_vocab_size)
        checked = self.tensor("logits of `forward`", logits, "float32", shape)
        if not bool(checked.isfinite().all()):
            bad = [name for name, value in self.model.named_parameters() if not bool(value.isfinite().all())]
            if bad:
                raise ModelError(f"The model has weights that are not finite numbers: {', '.join(bad)}.")
            self.stop("`forward` returns logits that are not finite numbers")
        return checked

    def check_table(self) -> None:
        """Check the state table and the names in it."""
        table = self.call("`state_table`", self.model.state_table)
        try:
            self.table = msgspec.convert(msgspec.to_builtins(table), tuple[StateTensor, ...])
        except (msgspec.ValidationError, TypeError) as error:
            self.stop(f"`state_table` must return a tuple of StateTensor: {error}")
        problems = state_problems(self.table)
        for tensor in self.table:
            if tensor.name in _INPUTS | _OUTPUTS or tensor.name.startswith(("past.", "present.")):
                problems.append(f"state `{tensor.name}` needs another name, since an input or output has this one")
        if problems:
            self.stop(*problems)

    def check_steps(self, expected: Tensor | None) -> None:
        """Compare stepwise logits with ``forward``: all rows, then single sentences, then several beams each."""
        single, weights = self.steps("", self.row_source, self.row_length, self.target)
        if expected is None:
            return
        self.compare(single, expected, "`step` returns different logits than `forward`")
        for row in (0, len(single) - 1):
            alone, _ = self.steps(" of one sentence", *self.alone(row))
            self.compare(single[row], alone[0], "`encode` or `step` sees padding or the other sentences of a batch")
        beams, beam_weights = self.steps(f" of {BEAMS} beams", self.source, self.length, self.target)
        problem = f"with K = {BEAMS} beams, row r of `{{}}` must belong to sentence r // K"
        self.compare(beams, single, problem.format("step"))
        if weights is not None and beam_weights is not None:
            self.compare(beam_weights, weights, problem.format("step_with_attention"))
            self.check_attention(weights)

    def check_limits(self, *, stepwise: bool) -> None:
        """Compute logits at the model's limits, which tables of positions may be too short for."""
        model = self.model
        count = max(1, min(model.max_target_length, MAX_LENGTH, MAX_LOGITS // model.target_vocab_size))
        source = self.ids(1, min(model.max_source_length, MAX_LENGTH), model.source_vocab_size)
        target = self.ids(1, count, model.target_vocab_size)
        length = torch.tensor([source.shape[1]], device=self.device)
        where = f" with {source.shape[1]} source and {count} target tokens"
        expected = self.call(f"`forward`{where},", model, source, length, target)
        if stepwise:
            found, _ = self.steps(where, source, length, target, self.progress)
            self.tolerance *= LONG_TOLERANCE / TOLERANCE
            self.compare(found, expected, f"`step` returns different logits than `forward`{where}")

    def steps(
        self, label: str, source: Tensor, length: Tensor, target: Tensor, progress: Progress = lambda fraction: None
    ) -> tuple[Tensor, Tensor | None]:
        """Decode step by step with R // N beams per sentence.

        Returns:
            Logits ``(R, T, V)``, and attention weights ``(R, T, S)`` or ``None``.
        """
        beams = len(target) // len(source)
        sizes = {SENTENCES: len(source), ROWS: len(target), SOURCE_AXIS: source.shape[1], PAST_AXIS: 0}
        encoded = self.call(f"`encode`{label}", self.model.encode, source, length)
        from_encoder = [tensor for tensor in self.table if tensor.from_encoder]
        state = dict(self.state(f"`encode`{label}", encoded, from_encoder, {**sizes, ROWS: len(source)}))
        state |= empty_caches(self.table, len(target), self.device)
        for tensor in self.table:
            if tensor.kind != "cache" and tensor.axes[0] == ROWS:
                state[tensor.name] = state[tensor.name].repeat_interleave(beams, 0)
        logits = torch.empty((*target.shape, self.model.target_vocab_size), device=self.device)
        weights = []
        for position, token in enumerate(target.T.contiguous()):
            sizes[PAST_AXIS] = position + 1
            logits[:, position], new_state, _ = self.step("step", label, token, position, state, sizes)
            if self.model.has_attention:
                attended, _, attention = self.step("step_with_attention", label, token, position, state, sizes)
                problem = "`step_with_attention` returns different logits than `step`"
                self.compare(attended[:, None], logits[:, position, None], problem, position)
                weights.append(attention)
            state |= new_state
            progress((position + 1) / target.shape[1])
        return logits, torch.stack(weights, 1) if weights else None

    def step(
        self, name: str, label: str, token: Tensor, position: int, state: State, sizes: Mapping[str, int]
    ) -> tuple[Tensor, State, Tensor]:
        """Call a step method and check its logits ``(R, V)``, new state and, if it returns them, weights ``(R, S)``."""
        before = {key: value._version for key, value in state.items()}
        passed, position_tensor = dict(state), torch.tensor(position, device=self.device)
        result = self.call(f"`{name}`{label}", getattr(self.model, name), token, position_tensor, passed)
        for key in {**state, **passed}:
            if passed.get(key) is not state.get(key) or state[key]._version != before[key]:
                self.note(f"`{name}` changes state `{key}` in place")
        parts = ("logits", "state", "weights") if name == "step_with_attention" else ("logits", "state")
        if not isinstance(result, tuple) or len(result) != len(parts):
            self.stop(f"`{name}` must return a tuple of {' and '.join(parts)}")
        shape = (sizes[ROWS], self.model.target_vocab_size)
        logits = self.tensor(f"logits of `{name}`{label}", result[0], "float32", shape)
        updated = [tensor for tensor in self.table if tensor.kind != "constant"]
        new_state = self.state(f"`{name}`{label}", result[1], updated, sizes)
        if len(parts) == 2:
            return logits, new_state, logits.new_empty(0)
        shape = (sizes[ROWS], sizes[SOURCE_AXIS])
        return logits, new_state, self.tensor(f"weights of `{name}`{label}", result[2], "float32", shape)

    def check_attention(self, weights: Tensor) -> None:
        """Check attention weights ``(R, T, S)``."""
        padding = torch.arange(weights.shape[2], device=self.device) >= self.row_length[:, None]
        if not bool((weights.transpose(1, 2)[padding].abs() <= 1e-6).all()):
            self.note("weights of `step_with_attention` must be zero on padding")
        if not bool(((weights.sum(2) - 1).abs() <= 1e-3).all()):
            self.note("weights of `step_with_attention` must add up to 1")

    def state(self, method: str, state: Any, tensors: list[StateTensor], sizes: Mapping[str, int]) -> State:
        """Return the result of a method if it consists of the expected tensors; stop otherwise."""
        names = [tensor.name for tensor in tensors]
        if not isinstance(state, dict) or set(state) != set(names):
            returned = _listed(state) if isinstance(state, dict) else type(state).__name__
            self.stop(f"{method} must return a dict of {_listed(names)}, but returns {returned}")
        for tensor in tensors:
            what = f"state `{tensor.name}` of {method}"
            self.tensor(what, state[tensor.name], tensor.dtype, tensor.shape(sizes))
        return state

    def tensor(self, what: str, value: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """Return the value if it is a tensor of the given dtype and shape; stop otherwise."""
        if not isinstance(value, Tensor):
            self.stop(f"{what} must be a tensor, but is {type(value).__name__}")
        actual = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        if actual != f"{dtype} {shape}":
            self.stop(f"{what} must be {dtype} {shape}, but is {actual}")
        return value

    def compare(self, actual: Tensor, expected: Tensor, problem: str, first: int = 0) -> None:
        """Compare logits ``(…, T, V)``, the first of which are those of step ``first``; NaN counts as a difference."""
        for step, (left, right) in enumerate(zip(actual.unbind(-2), expected.unbind(-2), strict=True), first):
            difference = float((left - right).abs().nan_to_num(float("inf")).max())
            if difference > self.tolerance:
                self.note(problem, f", first at step {step} (by {difference:.1g})")
                return

    def call(self, what: str, function: Callable[..., Any], *inputs: Any) -> Any:
        """Call a method of the model; an exception is noted as a problem."""
        try:
            return function(*inputs)
        except Exception as error:  # third-party code may raise anything
            self.stop(f"{what} raises {describe(error)}")

    def stop(self, *problems: str) -> NoReturn:
        """Note problems, and skip all checks that depend on the affected part."""
        for problem in problems:
            self.note(problem)
        raise _StopError

    def note(self, problem: str, where: str = "") -> None:
        """Note a problem; repetitions are ignored."""
        self.problems.setdefault(problem, where)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"
