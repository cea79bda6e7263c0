# mypy: disable-error-code="no-untyped-call"
"""What training on a GPU depends on, as far as it can be observed without one: backends, dtypes, storages, waiting."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence

from edgeformer.config import TrainConfig
from edgeformer.data.batches import Batch
from edgeformer.errors import TrainingError
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.lstm.model import LSTMCell, LSTMLayer
from edgeformer.model.transformer.model import Transformer
from edgeformer.model.transformer.ssru import by_doubling, step_by_step
from edgeformer.quality.translators import open_translator
from edgeformer.run.info import Validation
from edgeformer.run.weights import load_weights, save_weights
from edgeformer.train.averaging import load_average
from edgeformer.train.gpu import use_fp32_recurrences
from edgeformer.train.loss import Objective
from edgeformer.train.prefetch import prefetched_batches
from edgeformer.train.processes import uses_bf16
from edgeformer.train.state import TrainingState, build_optimizer
from edgeformer.train.trainer import Trainer, Update, train
from tests.edgeformer.trainings import SIZES, recipe, write_letters
from tests.factory import randomise, small_recipe
from tests.variants import varied_blocks


def small_model(variant: str) -> EncoderDecoder:
    return randomise(build_model(small_recipe(variant), 30, 30), 0)


def test_training_takes_tf32_and_nothing_takes_cudnns_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuDNN builds a plan for each new shape, and nearly every batch and step has one."""
    allowed: dict[str, set[tuple[bool, bool]]] = {"training": set(), "alone": set()}

    def noting(original: Any, phase: str) -> Any:
        def call(model: Any, *inputs: Any) -> Any:
            settings = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.matmul.allow_tf32
            allowed[phase].add(settings)
            return original(model, *inputs)

        return call

    torch.backends.cuda.enable_cudnn_sdp(True)
    monkeypatch.setattr("edgeformer.train.setup.check_model", lambda model: None)  # compares in full precision
    for phase in allowed:
        with monkeypatch.context() as context:
            for name in ("features", "encode", "step"):
                context.setattr(Transformer, name, noting(getattr(Transformer, name), phase))
            if phase == "training":
                run = train(recipe(write_letters(tmp_path), family="ssru"), tmp_path / "run").run
            else:
                torch.backends.cuda.enable_cudnn_sdp(True)
                open_translator(run.path).translate(["a b c"])
    assert allowed == {"training": {(False, True)}, "alone": {(False, False)}}
    for family in SIZES:
        torch.backends.cuda.enable_cudnn_sdp(True)
        build_model(recipe("unused", family=family), 30, 30)
        assert not torch.backends.cuda.cudnn_sdp_enabled()


def share_storage(parameters: list[Any]) -> None:
    """Make parameters parts of one storage, as cuDNN does with the weights of an LSTM on a GPU."""
    flat, start = torch.cat([parameter.detach().flatten() for parameter in parameters]), 0
    for parameter in parameters:
        parameter.data = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()


@pytest.mark.parametrize("variant", varied_blocks())
def test_weights_in_one_storage_are_saved_loaded_averaged_and_resumed(variant: str, tmp_path: Path) -> None:
    model, other = small_model(variant), randomise(small_model(variant), 1)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for each in (model, other):
        share_storage(list(each.parameters()))
    save_weights(model, tmp_path / "weights.safetensors")
    TrainingState(model, build_optimizer(model, TrainConfig())).save(tmp_path / "last.ckpt")

    def restored(loaded: EncoderDecoder) -> bool:
        return all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())

    assert not restored(other)
    for load in (
        lambda: load_weights(other, tmp_path / "weights.safetensors"),
        lambda: load_average(other, [tmp_path / "weights.safetensors"] * 2),
        lambda: TrainingState(other, build_optimizer(other, TrainConfig())).restore(tmp_path / "last.ckpt"),
    ):
        load()
        assert restored(other)
        randomise(other, 2)
        assert not restored(other)
    plain = small_model(variant)  # as an export or another machine would build it
    assert restored(load_weights(randomise(plain, 3), tmp_path / "weights.safetensors"))
    stored = load_file(tmp_path / "weights.safetensors")
    parameters = sum(parameter.numel() for parameter in plain.parameters())
    tables = sum(buffer.numel() for name, buffer in plain.named_buffers() if name in expected)
    assert sum(tensor.numel() for tensor in stored.values()) == parameters + tables  # shared tensors once


def test_a_tensor_and_its_transpose_in_one_storage_are_two(tmp_path: Path) -> None:
    model = small_model("post_norm")
    query, key = model.get_parameter("encoder_layers.0.attention.query.weight"), "encoder_layers.0.attention.key"
    model.get_submodule(key).weight = nn.Parameter(query.detach().t())
    save_weights(model, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    assert torch.equal(stored[f"{key}.weight"], query.t())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_compute_in_fp32_under_autocast(kind: type[nn.LSTM | nn.GRU | nn.RNN]) -> None:
    torch.manual_seed(0)
    layer = kind(6, 5, num_layers=2, bidirectional=True)
    x, start = torch.randn(4, 3, 6), torch.randn(4, 3, 5)
    packed = pack_padded_sequence(x, torch.tensor([4, 1, 3]), enforce_sorted=False)
    state = (start, start) if kind is nn.LSTM else start
    expected = [layer(x), layer(x, state), layer(packed)]
    use_fp32_recurrences(layer)
    half = (start.bfloat16(), start.bfloat16()) if kind is nn.LSTM else start.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = [layer(x), layer(x, state), layer(packed)]
        assert layer(x.bfloat16(), hx=half)[0].dtype == torch.float32
    torch.testing.assert_close(found[:2], expected[:2], rtol=0, atol=0)
    assert torch.equal(found[2][0].data, expected[2][0].data)
    torch.autograd.backward(found[0][0].sum())
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_both_ways_to_compute_the_cells_of_an_ssru_are_the_recurrence(length: int) -> None:
    torch.manual_seed(0)
    kept = torch.rand(3, length, 5, requires_grad=True)
    added = torch.randn(3, length, 5, requires_grad=True)
    cell, expected = torch.zeros(3, 5), []
    for step in range(length):
        cell = kept[:, step] * cell + added[:, step]
        expected.append(cell)
    weight = torch.randn(3, length, 5)

    def gradients(cells: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((cells * weight).sum(), (kept, added), materialize_grads=True)

    expected_gradients = gradients(torch.stack(expected, 1))
    for compute in (step_by_step, by_doubling):
        cells = compute(kept, added)
        torch.testing.assert_close(cells, torch.stack(expected, 1))
        torch.testing.assert_close(gradients(cells), expected_gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_run_of_the_cell_is_its_steps(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    cell = LSTMCell(5, 4).to(dtype)
    nn.init.normal_(cell.gates.bias)
    x, hidden, memory = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((3, 6, 5), (3, 4), (3, 4)))
    outputs, state = [], (hidden, memory)
    for step in range(6):
        state = cell(x[:, step], *state)
        outputs.append(state[0])
    expected, found = torch.stack(outputs, 1), cell.run(x, hidden, memory)
    torch.testing.assert_close(found, expected)
    leaves = (x, hidden, memory, *cell.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), leaves), torch.autograd.grad(expected.square().sum(), leaves)
    )
    if dtype == torch.float32:
        with torch.autocast("cpu", torch.bfloat16):
            in_bf16 = cell.run(x, hidden, memory)
        assert in_bf16.dtype == torch.float32  # the cell state adds up in fp32
        torch.testing.assert_close(in_bf16, expected, rtol=0, atol=0.05)


def unpacked(lstm: nn.LSTM, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM that reads padding, too: torch takes the lengths of packed sequences from the host."""
    del length
    outputs, (hidden, cell) = lstm(x)
    return outputs, hidden, cell


def test_no_number_of_an_update_is_waited_for() -> None:
    """Fake tensors have no numbers, so whatever would read one fails."""
    with FakeTensorMode():
        model = build_model(small_recipe("post_norm"), 30, 30)
        optimizer = build_optimizer(model, TrainConfig())
        batch = (*(torch.zeros(shape, dtype=torch.int64) for shape in ((3, 5), 3, (3, 4), (3, 4))),)
        with pytest.raises(DynamicOutputShapeException):
            Objective(model, 0.1)(*batch)  # finds the labels that are not padding
        loss = Objective(model, 0.1)(*batch, torch.zeros(9, dtype=torch.int64))
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("variant", varied_blocks())
def test_all_tensors_of_an_update_are_on_the_device_and_only_an_lstm_reads_one(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors on the device ``meta`` take the ways of a GPU, have no numbers, and do not mix with those of a CPU."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which does not know the device
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.float32)
    monkeypatch.setattr(LSTMLayer, "kernel", staticmethod(unpacked))
    read: list[Tensor] = []

    def cpu(tensor: Tensor) -> Tensor:
        read.append(tensor)
        return tensor

    monkeypatch.setattr(Tensor, "cpu", cpu)
    model = build_model(small_recipe(variant), 30, 30).to("meta")
    batch = [torch.zeros(size, dtype=torch.int64, device="meta") for size in ((3, 5), 3, (3, 4), (3, 4), 9)]
    torch.autograd.backward(Objective(model, 0.1)(*batch))
    assert all(parameter.grad is not None and parameter.grad.is_meta for parameter in model.parameters())
    assert [tensor is batch[1] for tensor in read] == [True] * variant.startswith("lstm"), "lengths are read once"


def trainer(device: str, world_size: int = 1, **train_fields: Any) -> Trainer:
    """A trainer of nothing, on the first of some processes."""
    config = TrainConfig(**{"max_steps": 100, **train_fields})
    fabric: Any = SimpleNamespace(world_size=world_size, device=torch.device(device), broadcast=lambda value: value)
    run: Any = SimpleNamespace(recipe=SimpleNamespace(train=config, model={"family": "transformer"}))
    nothing: Any = None
    return Trainer(run, fabric, TrainingState(nothing, nothing), nothing, nothing, nothing)


def update(step: int, norm: float) -> Update:
    return Update(step, 9, torch.tensor(norm), torch.tensor(norm), 0.1)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_is_found_at_once_or_one_update_later(number: float) -> None:
    watched = trainer("cpu")
    assert watched.after_update(update(1, 1.0)) is None
    with pytest.raises(TrainingError, match=r"in step 2 \(loss (nan|inf)\)"):
        watched.after_update(update(2, number))
    watched = trainer("cuda")
    assert watched.after_update(update(1, number)) is None
    with pytest.raises(TrainingError, match="in step 1 "):
        watched.after_update(update(2, 1.0))


def test_a_gradient_that_is_no_number_is_found_before_anything_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    for reason in ("validate", "_save"):
        monkeypatch.setattr(Trainer, reason, lambda _: pytest.fail("saved"))
    with pytest.raises(TrainingError, match="in step 1 "):
        trainer("cuda", validate_every=1).after_update(update(1, float("nan")))
    interrupted = trainer("cuda")
    interrupted.signals.handle(15, None)
    with pytest.raises(TrainingError, match="in step 1 "):
        interrupted.after_update(update(1, float("nan")))


@pytest.mark.parametrize("limits", [{"patience": 1}, {"max_steps": 4}])
def test_several_processes_stop_at_once_at_limits_that_all_reach(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update later, they would validate again, and average what no single process would have."""

    def validate(self: Trainer) -> None:
        step = self.progress.step
        validation = Validation(step=step, loss=step, perplexity=1, bleu=0, exact_match=0, sentences=0, minutes=0)
        self.progress.validations = [*self.progress.validations, validation]

    monkeypatch.setattr(Trainer, "validate", validate)
    watched = trainer("cpu", world_size=2, validate_every=2, **limits)
    monkeypatch.setattr(watched, "_agree", lambda *_: None)  # as at the first time that a process asks
    reasons = [watched.after_update(update(step, 1.0)) for step in range(1, 5)]
    assert [str(reason) for reason in reasons] == ["None"] * 3 + [f"{key} = {value}" for key, value in limits.items()]


def test_batches_are_prepared_in_order_by_a_thread_that_is_one_ahead_and_ends(tmp_path: Path) -> None:
    threads = threading.active_count()
    made: list[str] = []
    second = threading.Event()

    def batches() -> Iterator[Batch]:
        for number in range(9):
            made.append(threading.current_thread().name)
            if number == 1:
                second.set()
            ids = torch.full((2, 3), number).numpy()
            yield Batch(ids, ids[:, 0], ids, torch.tensor([[4, -1, -1], [5, 6, -1]]).numpy(), 3)

    prepared = prefetched_batches(batches())
    batch, inputs = next(prepared)
    assert second.wait(10)  # is prepared while this one is in use
    assert threading.main_thread().name not in made
    assert [tensor.tolist() for tensor in inputs[3:]] == [batch.labels.tolist(), [0, 3, 4]]
    assert [int(next(prepared)[0].source[0, 0]) for _ in range(3)] == [1, 2, 3]
    prepared.close()
    assert threading.active_count() == threads
    train(recipe(write_letters(tmp_path)), tmp_path / "run")
    assert threading.active_count() == threads


def test_a_batch_that_cannot_be_made_ends_the_training() -> None:
    def batches() -> Iterator[Batch]:
        yield from ()
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        next(prefetched_batches(batches()))


@pytest.mark.parametrize(("major", "expected"), [(7, False), (8, True), (9, True)])
def test_bf16_is_not_for_gpus_that_emulate_it(major: int, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(major=major))
    assert uses_bf16(TrainConfig(precision="bf16")) == expected
    assert not uses_bf16(TrainConfig(precision="fp32"))


def test_a_checkpoint_is_not_held_in_memory_beside_the_weights(tmp_path: Path) -> None:
    model = build_model(small_recipe("lstm", {"hidden_size": 200}), 30, 30)
    state = TrainingState(model, build_optimizer(model, TrainConfig()))
    tracemalloc.start()
    try:
        state.save(tmp_path / "last.ckpt")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.2 * (tmp_path / "last.ckpt").stat().st_size


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits of processes")
@pytest.mark.parametrize("room", [0.0, 0.99])
def test_a_checkpoint_for_which_the_disk_has_no_room_is_an_error_of_the_disk(tmp_path: Path, room: float) -> None:
    """Torch raises an error of its own, which the command line would show as a traceback."""
    import resource

    model = build_model(small_recipe("lstm", {"hidden_size": 200}), 30, 30)
    state, path = TrainingState(model, build_optimizer(model, TrainConfig())), tmp_path / "last.ckpt"
    state.save(path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(room * len(before)), limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            state.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]
