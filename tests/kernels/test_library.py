"""The library by way of its package in Python: memory, arguments, and who owns what."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray

from tests.amounts import examples
from tests.kernels.cases import EOS, SHAPES, TINY, Model, Shape, make_model
from tests.robustness import outcomes

kernels = pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")

NARROW = Shape(width=16, heads=8, key_width=1, value_width=2, inner=16, layers=2, rows=16)
ODD = Shape(width=48, heads=3, key_width=17, value_width=33, inner=80, layers=2, rows=65, gated=True, norm_first=True)
EVERY_SHAPE = {**SHAPES, **TINY, "narrow": NARROW, "odd": ODD}
FEW_BYTES = 1 << 20
"""What packed weights may take in any case."""
OVERHEAD = 200_000
"""What opening takes for its arguments and for the layers themselves."""
SLACK = 30_000
"""What the interpreter takes meanwhile."""


def allocated() -> int:
    """Bytes that this process has from the C library and has not given back."""
    return outcomes.allocated() or pytest.skip("the C library does not say how much memory is allocated")


@pytest.fixture
def kept_garbage() -> Iterator[None]:
    """No garbage of other tests is collected meanwhile, which would give memory back."""
    gc.disable()
    yield
    gc.enable()


def aligned(content: bytes) -> NDArray[np.uint8]:
    """A copy of some bytes, at the beginning of a cache line."""
    room = np.zeros(len(content) + 64, np.uint8)
    weights = room[-room.ctypes.data % 64 :][: len(content)]
    weights[:] = np.frombuffer(content, np.uint8)
    return weights


def opened(shape: Shape) -> Any:
    plan, weights = make_model(shape)
    return kernels.Model(aligned(weights), plan.numbers())


@dataclass
class Overlapping(Model):
    """A model whose tensors are all in the same place."""

    def place(self, array: NDArray[Any]) -> int:
        """Make room for the array."""
        self.weights.extend(b"\0" * (array.nbytes - len(self.weights)))
        return 0


SHAPE = st.builds(
    Shape,
    width=st.sampled_from([16, 64]),
    heads=st.sampled_from([1, 16, 256]),
    key_width=st.sampled_from([1, 2, 15, 17]),
    value_width=st.sampled_from([1, 16, 33]),
    inner=st.sampled_from([16, 256]),
    layers=st.sampled_from([1, 16]),
    rows=st.sampled_from([1, 65, 500]),
    recurrent=st.booleans(),
    gated=st.booleans(),
)


@examples(15, 150)
@given(shape=SHAPE, more=st.sampled_from([0, 10**4, 10**6, 10**7]))
def test_an_opened_model_takes_memory_in_proportion_to_its_weights(shape: Shape, more: int) -> None:
    """However plans point at the same weights again and again, and whatever is padded."""
    model = Overlapping(shape, np.random.default_rng(0))
    numbers: list[float] = model.plan().numbers()
    weights, before = aligned(bytes(len(model.weights) + more)), allocated()
    limit = 4 * len(weights) + FEW_BYTES
    try:
        held = kernels.Model(weights, numbers)
    except kernels.KernelError as error:
        problem = str(error)
    else:
        problem = ""
        assert allocated() - before <= limit + OVERHEAD
        del held
    assert problem in ("", "its products take more memory than the weights explain")
    if problem:
        heads = shape.heads * 16 * -(-max(shape.key_width, shape.value_width) // 16)
        widest = max(heads, 3 * shape.inner, shape.rows, 64)
        assert 20 * (shape.layers + 1) * widest * (shape.width + 12) > limit, "it fits"


@pytest.mark.parametrize("shape", sorted(EVERY_SHAPE.keys() - {"narrow"}))
def test_models_that_repeat_nothing_are_never_too_large(shape: str) -> None:
    used = EVERY_SHAPE[shape]
    for changed in (used, replace(used, layers=20), replace(used, rows=1000)):
        opened(changed)


PLAIN = kernels.SearchOptions(1, 1, 1, False, True, True, False, False, 1.0, 0, EOS)


def searched(batch: Any, sentences: int, steps: int, beams: int) -> int:
    """Search, and return the most bytes that were allocated meanwhile."""
    options = PLAIN._replace(beams=beams, hypotheses=beams, places=beams, wants_scores=True, suppressed=[EOS])
    seen: list[int] = []

    def stopped(sentence: int) -> bool:
        if not sentence:
            seen.append(allocated())
        return False

    batch.search([[1]] * sentences, [steps] * sentences, [0.0] * sentences, options, stopped, None, lambda: stopped(0))
    return max(seen)


def stepped(batch: Any, sentences: int, steps: int, beams: int, width: int) -> None:
    batch.select(np.arange(sentences).repeat(beams))
    logits = np.empty((batch.rows, width), np.float32)
    for step in range(steps):
        batch.step(np.full(batch.rows, 3), logits)
        batch.select(np.arange(batch.rows)[::-1].copy() if step % 3 == 2 else np.arange(batch.rows))


@pytest.mark.usefixtures("kept_garbage")
@pytest.mark.parametrize("shape", EVERY_SHAPE)
@pytest.mark.parametrize("is_restricted", [False, True])
@pytest.mark.parametrize("is_searched", [False, True])
@pytest.mark.parametrize(
    ("sentences", "beams", "source", "steps"), [(1, 1, 1, 1), (1, 6, 64, 64), (40, 4, 5, 40), (9, 1, 33, 64)]
)
def test_a_batch_takes_no_more_memory_than_is_said_and_says_what_it_takes(
    shape: str, sentences: int, beams: int, source: int, steps: int, is_restricted: bool, is_searched: bool
) -> None:
    used = EVERY_SHAPE[shape]
    model = opened(used)
    said, before = model.batch_bytes(sentences, sentences * beams, source, steps), allocated()
    batch = model.start([[3] * (1 + (source - 1) * (n % 3 == 0)) for n in range(sentences)])
    if is_restricted:
        batch.restrict(np.arange(used.rows), np.ones((sentences, used.rows), np.bool_))
    peak = 0
    if is_searched:
        peak = searched(batch, sentences, steps, beams) - before
    else:
        stepped(batch, sentences, steps, beams, used.rows)
    taken, held = allocated() - before, batch.nbytes
    assert held <= said
    assert max(taken, peak) <= said + SLACK
    assert held <= taken + SLACK
    assert taken <= 1.2 * held + SLACK
    assert said < 40 * (held + SLACK), "the limit must not refuse what fits"


@pytest.mark.parametrize("shape", ["gated", "ssru"])
@pytest.mark.parametrize("steps", [1, 200, 3000])
def test_what_a_batch_leaves_does_not_make_the_next_one_larger(shape: str, steps: int) -> None:
    plan, weights = make_model(replace(SHAPES[shape], has_positions=False))
    plan = structs.replace(plan, target=structs.replace(plan.target, positions=3000))
    model = kernels.Model(aligned(weights), plan.numbers())
    batch = model.start([[3]])
    stepped(batch, 1, steps, 1, SHAPES[shape].rows)
    left = batch.nbytes
    del batch
    batch = model.start([[3]] * 300)
    stepped(batch, 300, 1, 1, SHAPES[shape].rows)
    assert batch.nbytes <= left + model.batch_bytes(300, 300, 1, 1)


def test_a_batch_that_a_model_cannot_have_is_infinite() -> None:
    model = opened(SHAPES["post_norm"])
    for sizes in ((0, 1, 1, 1), (2, 1, 1, 1), (1, 1, 0, 1), (1, 1, 65, 1), (1, 1, 1, 65), (1, 2**40, 1, 1)):
        assert model.batch_bytes(*sizes) == np.inf


def test_what_the_library_owns_is_not_copied() -> None:
    model = opened(TINY["transformer"])
    batch = model.start([[3, 4]])
    for owner in (model, batch):
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps, lambda owner: copy.copy([owner])[0].__reduce__()):
            with pytest.raises(TypeError, match=f"A {type(owner).__name__} of the kernels cannot be copied or pickled"):
                duplicate(owner)
    kernels.Model.__new__(kernels.Model).__del__()  # as if opening had failed
    batch.step(np.array([3]), np.empty((1, TINY["transformer"].rows), np.float32))


def calls() -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Calls of a batch of two sentences, the longest of 3 tokens, with an argument that is wrong: what is said of it,
    the method, and its arguments."""
    rows = SHAPES["post_norm"].rows
    token, logits, weights = np.array([3, 4]), np.zeros((2, rows), np.float32), np.zeros((2, 3), np.float32)
    read_only, usable, listed = logits.copy(), np.ones((2, 3), np.bool_), np.array([1, 2, 3])
    read_only.flags.writeable = False
    wrong: Any
    yield from (
        (problem, method, (wrong, result))
        for method, result in (("step", logits), ("attend", weights))
        for problem, wrong in (
            *(("token", token.astype(dtype)) for dtype in (np.int32, float)),
            *(("token", wrong) for wrong in (token[:1], np.arange(3), np.arange(3)[::2])),
            *(("a token is out of range", np.array([3, wrong])) for wrong in (rows, -1, 2**62)),
        )
    )
    for wrong in (logits.astype(float), logits[:1], logits.T, logits[:, ::2], read_only):
        yield "logits", "step", (token, wrong)
    yield "no room", "step", (token, logits[:, : rows - 1].copy())
    for wrong in (weights.astype(float), weights[:1], np.empty((2, 2), np.float32)):
        yield "weights", "attend", (token, wrong)
    for wrong in (np.array([0, 1], np.int32), np.array([[0, 1]])):
        yield "rows", "select", (wrong,)
    for wrong in (np.array([0, 2]), np.array([-1]), np.empty(0, np.int64)):
        yield "a row is out of range", "select", (wrong,)
    for tokens in ([3, 2, 4], [2, 2, 3], [0, 1, rows], [-1, 0, 1]):
        yield "listed tokens are out of range or not in", "restrict", (np.array(tokens), usable)
    for wrong in (usable[:1], usable[:, :2], usable.astype(np.int64)):
        yield "usable", "restrict", (listed, wrong)
    yield "listed", "restrict", (listed.astype(np.int32), usable)


@pytest.mark.parametrize(("problem", "method", "arguments"), list(calls()))
def test_a_wrong_argument_is_refused_and_changes_nothing(problem: str, method: str, arguments: tuple[Any, ...]) -> None:
    model, results = opened(SHAPES["post_norm"]), []
    for is_tried in (False, True):
        batch, logits = model.start([[3, 4, 5], [6]]), np.empty((2, SHAPES["post_norm"].rows), np.float32)
        batch.step(np.array([1, 1]), logits)
        if is_tried:
            with pytest.raises(kernels.KernelError, match=problem):
                getattr(batch, method)(*arguments)
        batch.step(np.array([7, 8]), logits)
        results.append(logits)
    np.testing.assert_array_equal(results[0], results[1])


HUGE = 2**70


WRONG: dict[str, tuple[Any, ...]] = {
    "begin": ([[1]], [[1], [1, 2]], [[], []], [[1], [-1]], [[1], [HUGE]]),
    "most": ([], [4, 0], [4, 65], [4, 2**61]),
    "initial": ([0.0], [0.0, "0"]),
    "beams": (0, -1, 1025, HUGE, 1 + 2**64),
    "hypotheses": (0, -1, 2**60, HUGE),
    "places": (0, 2, HUGE),
    "length_penalty": (np.nan, np.inf, 10**400),
    "given_length": (-1, 2**62),
    "suppressed": ([-1], [10**6], [5, 5], [HUGE]),
    "forbidden": ([-1], [10**6], [5, 5]),
    "loop_repeats": (-1, 1, HUGE),
    "loop_given": (-1, 2),
}
"""Arguments and options of a search of two sentences."""


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_search_is_refused(name: str, value: Any) -> None:
    batch = opened(SHAPES["post_norm"]).start([[3, 4, 5], [6]])
    right: dict[str, Any] = {"begin": [[1], [1]], "most": [4, 4], "initial": [0.0, 0.0]}
    changes = {} if name in right else {name: value}
    with pytest.raises(kernels.KernelError):
        batch.search(*(right | {name: value} if name in right else right).values(), PLAIN._replace(**changes))
    assert len(batch.search(*right.values(), PLAIN)) == 2


@pytest.mark.parametrize(
    "sources", [[], [[]], [[3], []], [[-1]], [[10**6]], [[HUGE]], [[3] * 65], [["a"]], [[3.5]], [3]]
)
def test_a_wrong_source_is_refused(sources: Any) -> None:
    with pytest.raises(kernels.KernelError):
        opened(SHAPES["post_norm"]).start(sources)


def test_a_wrong_plan_is_refused() -> None:
    plan, weights = make_model(SHAPES["post_norm"])
    content, numbers = aligned(weights), plan.numbers()
    for wrong in ([], numbers[:-1], [*numbers, 0], [10**400, *numbers[1:]], ["1", *numbers[1:]], [None, *numbers[1:]]):
        with pytest.raises(kernels.KernelError):
            kernels.Model(content, wrong)
    for other in (content[::2], content[1:], content.astype(np.int8), content.reshape(1, -1), content[:0]):
        with pytest.raises(kernels.KernelError):
            kernels.Model(other, numbers)


def test_a_step_past_the_last_one_says_so() -> None:
    shape = TINY["ssru"]
    batch, logits = opened(shape).start([[3]]), np.empty((1, shape.rows), np.float32)
    for _ in range(64):
        batch.step(np.array([3]), logits)
    with pytest.raises(kernels.KernelError, match="all steps of the model are made"):
        batch.step(np.array([3]), logits)


def test_a_search_tells_of_its_first_step() -> None:
    told: list[str] = []

    def stopped(_: int) -> bool:
        told.append("asked")
        return False

    batch = opened(SHAPES["ssru"]).start([[3, 4], [5]])
    batch.search([[1], [1]], [4, 4], [0.0, 0.0], PLAIN, stopped, None, lambda: told.append("begun"))
    assert told[0] == "begun"
    assert told.count("begun") == 1
    assert len(told) > 3


@pytest.mark.parametrize("beams", [1, 3])
def test_a_batch_that_is_searched_does_nothing_else(beams: int) -> None:
    """Its rows are those of the search, to its end and while it calls back."""
    shape, options = SHAPES["post_norm"], PLAIN._replace(beams=beams, hypotheses=beams, places=beams)
    logits, usable = np.empty((2, shape.rows), np.float32), np.ones((2, 3), np.bool_)

    def refuses(_: int) -> bool:
        calls: list[Callable[[], object]] = [
            lambda: batch.step(np.array([3, 4]), logits),
            lambda: batch.attend(np.array([3, 4]), logits[:, :2].copy()),
            lambda: batch.select(np.zeros(100, np.int64)),
            lambda: batch.restrict(np.array([1, 2, 3]), usable),
            lambda: batch.search([[1], [1]], [4, 4], [0.0, 0.0], options),
        ]
        for call in calls:
            with pytest.raises(kernels.KernelError, match="was searched"):
                call()
        return False

    batch, alone = (opened(shape).start([[3, 4], [5]]) for _ in range(2))
    found = batch.search([[1], [1]], [4, 4], [0.0, 0.0], options, refuses, lambda *_: refuses(0), lambda: refuses(0))
    assert found == alone.search([[1], [1]], [4, 4], [0.0, 0.0], options)
    refuses(0)
