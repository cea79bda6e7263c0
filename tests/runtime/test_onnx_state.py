"""The decoder's state on ONNX Runtime: whatever rows and sentences do, each row continues its own prefix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.engines.cuda import DeviceRows, DeviceTensors
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.engines.onnx_state import OnnxState
from edgeformer_runtime.engines.state_tensors import StateTensors
from edgeformer_runtime.search.forced_steps import forced_attention, forced_steps
from edgeformer_runtime.search.loop import Counters, decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.search import packed
from edgeformer_runtime.search.session import FloatArray, IntArray
from edgeformer_runtime.translator import Translator
from tests.amounts import combinations, examples
from tests.bundles import onnx_session
from tests.store import COMMITTED, Store

STEPS = 72
"""More than the first and the second capacity of caches that are written in place, 32 and 64."""
LONGEST = 80
"""The models' limit."""

# One of each kind of state that changes: a cache that is written in place, one that grows, a cell, several cells with
# memory of the source.
VARIANTS = ("post_norm", "free_widths", "ssru", pytest.param("lstm_mlp", marks=pytest.mark.slow))


class Batch(NamedTuple):
    source: IntArray
    length: IntArray


@pytest.fixture(scope="module")
def opened(store: Store, device: str) -> Callable[[str], Translator]:
    """Opens a bundle of a variant, which is exported once."""

    @cache
    def open_variant(variant: str) -> Translator:
        bundle = COMMITTED / ("fp32" if variant == "post_norm" else variant)
        if device != "cpu" or not bundle.exists():
            pytest.importorskip("onnxscript")
            from tests.cuda import sizes

            bundle = store.bundle(variant, model=sizes(variant, device))
        return Translator.open(bundle, device=device, threads=1)

    return open_variant


@pytest.fixture(scope="module", params=VARIANTS)
def translator_of_each(request: pytest.FixtureRequest, opened: Callable[[str], Translator]) -> Translator:
    return opened(request.param)


def device_rows(table: tuple[StateTensor, ...]) -> DeviceRows:
    """What picks rows on a device, on the CPU."""
    dtypes = {tensor.dtype for tensor in table}
    return DeviceRows(dtypes, "cpu", ort.SessionOptions(), [("CPUExecutionProvider", {})])


@pytest.fixture(scope="module", params=["host", "device"])
def session(request: pytest.FixtureRequest, translator_of_each: Translator, device: str) -> OnnxSession:
    """With the state of the CPU, and with that of other devices, which runs on the CPU too."""
    opened = onnx_session(translator_of_each).with_prefix(())
    if request.param == "device":
        if device != "cpu":
            pytest.skip("the session has no other state on this device")
        rows = device_rows(translator_of_each.bundle.manifest.state)
        opened.make_tensors = partial(DeviceTensors, rows=rows)
    return opened


@pytest.fixture
def in_place(opened: Callable[[str], Translator], device: str) -> OnnxSession:
    if device != "cpu":
        pytest.skip("memory is looked at, and capacity grows, on the CPU only")
    return onnx_session(opened("post_norm"))


def batch_of(lengths: list[int], seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    source = np.zeros((len(lengths), max(lengths)), np.int64)
    for row, length in enumerate(lengths):
        source[row, :length] = [*random.integers(4, 300, length - 1), 3]
    return Batch(source, np.array(lengths))


def decoded_alone(session: OnnxSession, batch: Batch, sentences: IntArray, tokens: IntArray) -> FloatArray:
    """Logits after the last token of each row ``(R, T)``, from the start, each row a sentence of its own."""
    state = session.start(batch.source[sentences], batch.length[sentences])
    for token in tokens.T:
        logits = state.step(np.ascontiguousarray(token))
    return logits


def same(outputs: FloatArray, expected: FloatArray) -> None:
    np.testing.assert_allclose(outputs, expected, atol=2e-5, rtol=1e-5)


def started(session: OnnxSession, batch: Batch, beams: int) -> OnnxState:
    """The state before the first step, with K rows per sentence."""
    state = session.start(batch.source, batch.length)
    state.select(np.arange(len(batch.length)).repeat(beams), None)
    return state


class Rows:
    """Decodes random tokens, and remembers what each row has been fed."""

    def __init__(self, session: OnnxSession, batch: Batch, beams: int, seed: int = 0) -> None:
        self.session, self.batch, self.beams = session, batch, beams
        self.random = np.random.default_rng(seed)
        self.state = started(session, batch, beams)
        self.origin = np.arange(len(batch.length))
        self.tokens = np.empty((len(self.origin) * beams, 0), np.int64)

    def step(self) -> FloatArray:
        token = self.random.integers(4, 300, len(self.tokens))
        logits = self.state.step(token)
        self.tokens = np.concatenate((self.tokens, token[:, None]), axis=1)
        return logits

    def select(self, sentences: IntArray | None = None) -> None:
        """Go on from random beams of these sentences."""
        self.spread(self.beams, sentences)

    def spread(self, beams: int, sentences: IntArray | None = None) -> None:
        """Go on with so many beams of these sentences, from random ones."""
        kept = np.arange(len(self.origin)) if sentences is None else sentences
        parents = self.random.integers(0, self.beams, (len(kept), beams))
        rows = (kept[:, None] * self.beams + parents).ravel()
        self.state.select(rows, sentences)
        self.beams = beams
        self.tokens, self.origin = self.tokens[rows], self.origin[kept]

    def check(self, logits: FloatArray) -> None:
        same(logits, decoded_alone(self.session, self.batch, self.origin.repeat(self.beams), self.tokens))


@examples(5, 200, derandomize=True)
@given(st.data())
def test_each_row_continues_its_own_prefix(session: OnnxSession, data: st.DataObject) -> None:
    """Whatever happened before: steps with one row per sentence, with several, and sentences that are dropped."""
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    rows = Rows(session, batch_of(lengths), beams=1, seed=data.draw(st.integers(0, 99)))
    beams = data.draw(st.integers(1, 3))
    for steps in data.draw(st.permutations([1, 2, 16, 34])):  # more than the first capacity, 32
        for number in range(steps):
            logits = rows.step()
            if number + 1 < steps:
                rows.select()
        rows.check(logits)
        assert rows.state.nbytes == sum(value.tensor_size_in_bytes() for value in rows.state.tensors.values())
        alive = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows.origin), max_size=len(rows.origin))))
        alive[data.draw(st.integers(0, len(alive) - 1))] = True
        shuffled = np.array(data.draw(st.permutations(np.flatnonzero(alive).tolist())))
        rows.spread(beams, None if alive.all() else data.draw(st.sampled_from([packed(alive), shuffled])))


@combinations(
    limits=[{"max_length": 1}, {"max_length": 33}, {"max_len_a": 2.0, "max_len_b": 1}, {}],
    beam_size=[1, 3],
    begins=[(), (7, 9)],
    prefix=[(), (5, 6, 7)],
)
def test_memory_is_reckoned_for_the_steps_that_a_call_can_make(
    session: OnnxSession, limits: dict[str, Any], beam_size: int, begins: tuple[int, ...], prefix: tuple[int, ...]
) -> None:
    """If all outputs are as long as allowed, the estimate is the size of the state and the logits, old and new."""
    session = session.with_prefix(begins)
    prefix = prefix[: limits.get("max_length", len(prefix) + 1) - 1]
    limit = {1: 1, 33: 33, None: 13 if "max_len_a" in limits else LONGEST - len(begins)}[limits.get("max_length")]
    options = DecodeOptions(beam_size=beam_size, min_length=limit, **limits)
    estimates = []

    def batch_bytes(*sizes: int) -> int:
        estimates.append(OnnxSession.batch_bytes(session, *sizes))
        return estimates[-1]

    vars(session)["batch_bytes"] = batch_bytes
    counters = Counters()
    sources = [[4, 5, 6, 7, 8, 3], [9, 10, 11, 12, 13, 3]]
    results = decode(session, sources, options, counters, prefixes=[prefix] * 2)
    assert {len(best.ids) + best.finished for best, *_ in results} == {limit}
    assert counters.steps == len(begins) + limit
    logits = 2 * beam_size * session.bundle.manifest.target_vocab_size * 4
    taken = 2 * (counters.peak_state_bytes + logits)
    if limit > 1 or beam_size == 1:
        assert estimates == [taken]
    else:  # the first step, of one row per sentence, is the last one
        assert estimates[0] >= taken


def test_scores_and_attention_take_memory_for_their_targets_alone(session: OnnxSession) -> None:
    batch, capacities = batch_of([7, 3]), set()
    for feed in (lambda state, target: list(forced_steps(state, target)), forced_attention):
        if feed is forced_attention and not session.bundle.has_attention:
            continue
        state = session.start(batch.source, batch.length)
        feed(state, np.full((2, 5), 7))
        capacities |= {
            value.shape()[tensor.axes.index("T")]
            for tensor, value in ((tensor, state.tensors[tensor.name]) for tensor in session.bundle.manifest.state)
            if tensor.in_place
        }
    assert capacities <= {5}


def test_attention_steps_and_plain_ones_share_a_state(in_place: OnnxSession) -> None:
    batch = batch_of([7, 3])
    plain, mixed = Rows(in_place, batch, beams=2), Rows(in_place, batch, beams=2)
    for position in range(40):
        expected = plain.step()
        if position % 3 == 1:
            token = np.ascontiguousarray(plain.tokens[:, -1])
            weights = mixed.state.attend(token)
            assert weights.shape == (4, 7)
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
            assert not weights[2:, 3:].any()
        else:
            np.testing.assert_array_equal(mixed.step(), expected)
        for rows in (plain, mixed):  # the same random parents, and tokens of the next step
            rows.random, rows.tokens = np.random.default_rng(position), plain.tokens
            rows.select()


def test_shapes_follow_the_state_table(translator: Translator, device: str) -> None:
    session, manifest = onnx_session(translator), translator.bundle.manifest
    state = started(session, batch_of([4, 2, 3]), 2)
    for position in range(2):
        logits = state.step(np.full(6, 2 + position))
    capacity = 32 if device == "cpu" else manifest.max_target_length
    sizes = {"N": 3, "R": 6, "S": 4, "P": 2, "T": capacity}
    assert {axis for tensor in manifest.state for axis in tensor.axes if isinstance(axis, str)} <= set(sizes)
    for tensor in manifest.state:
        expected = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
        assert state.tensors[tensor.name].shape() == expected, tensor.name
        assert str(state.tensors[tensor.name].numpy().dtype) == tensor.dtype
    assert logits.shape == (6, manifest.target_vocab_size)
    assert logits.dtype == np.float32


def test_capacity_doubles_up_to_the_longest_target(in_place: OnnxSession) -> None:
    state = started(in_place, batch_of([4, 2]), 2)
    capacity = []
    for position in range(LONGEST):
        state.step(np.full(4, 5))
        assert state.length == position + 1
        capacity.append(state.tensors["self_key.0"].shape()[2])
    assert capacity == [32] * 32 + [64] * 32 + [LONGEST] * 16
    with pytest.raises(ValueError, match=f"all of the model's {LONGEST} steps"):
        state.step(np.full(4, 5))


def test_constants_are_not_copied_when_beams_change_places(translator_of_each: Translator) -> None:
    rows = Rows(onnx_session(translator_of_each), batch_of([7, 3, 5]), beams=3)
    table = translator_of_each.bundle.manifest.state
    constants = {tensor.name for tensor in table if tensor.kind == "constant"}
    moving = {tensor.name for tensor in table if tensor.kind != "constant" and not tensor.in_place}
    assert constants <= rows.state.tensors.keys()
    rows.step()
    before = dict(rows.state.tensors)
    rows.select()
    assert {name for name, value in rows.state.tensors.items() if value is before[name]} == before.keys() - moving


def test_a_dropped_sentence_moves_one_other_into_its_place(in_place: OnnxSession) -> None:
    rows = Rows(in_place, batch_of([7, 3, 5, 2, 6]), beams=2)
    for _ in range(3):
        rows.step()
    contents = {name: value.numpy().copy() for name, value in rows.state.tensors.items()}
    rows.select(packed(np.array([True, False, True, True, True])))
    assert rows.origin.tolist() == [0, 4, 2, 3]
    for name, value in rows.state.tensors.items():
        block = 2 if name.startswith("self_") else 1
        index = (np.array([0, 4, 2, 3])[:, None] * block + np.arange(block)).ravel()
        used = (slice(None), slice(None), slice(3)) if name.startswith("self_") else ()
        np.testing.assert_array_equal(value.numpy()[used], contents[name][index][used], err_msg=name)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_constant_may_be_repeated_per_row(on_device: bool) -> None:
    """Its rows of one sentence are equal, so reordering them changes nothing."""
    table = (StateTensor(name="bias", kind="constant", dtype="float32", axes=("R", 1)),)
    values = {"bias": ort.OrtValue.ortvalue_from_numpy(np.array([[7], [8], [9]], np.float32), "cpu")}
    kind = partial(DeviceTensors, rows=device_rows(table)) if on_device else StateTensors
    tensors = kind(values, table, "cpu", sentences=3, max_length=40)
    tensors.select(np.array([0, 0, 1, 1, 2, 2]), None)
    before = tensors.values["bias"]
    np.testing.assert_array_equal(before.numpy().ravel(), [7, 7, 8, 8, 9, 9])
    tensors.select(np.array([1, 0, 3, 3, 4, 4]), None)
    assert tensors.values["bias"] is before
    tensors.select(np.array([5, 4, 3, 3]), np.array([2, 1]))
    np.testing.assert_array_equal(tensors.values["bias"].numpy().ravel(), [9, 9, 8, 8])
