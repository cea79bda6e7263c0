"""On a GPU the same comes out as on the CPU; skipped where onnxruntime can use none.

The rest of the suite runs its bundles on a GPU with ``pytest --device cuda``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from edgeformer.model.base import EncoderDecoder
from edgeformer_export.parity.comparison import compare, compare_logits
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.engines.onnx import PROVIDERS
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.bundles import onnx_session
from tests.company import changed_by_company
from tests.cuda import needs_cuda, sizes
from tests.factory import PAIRS
from tests.store import RunSettings, Store

pytestmark = needs_cuda

Case = tuple[str, Precision, Target]
CASES: list[Case] = [
    ("post_norm", "fp32", "ort"),
    ("post_norm", "fp16", "ort"),
    ("post_norm", "fp32", "portable"),
    ("free_widths", "fp16", "ort"),  # caches that grow
    ("ssru", "fp32", "ort"),
    ("ssru", "fp16", "ort"),
    ("lstm_mlp", "fp32", "ort"),
    ("lstm_mlp", "fp16", "ort"),
    ("lstm_bridge", "fp16", "portable"),
]
TEXTS = [*sorted({source for source, _ in PAIRS})[::4], "x", "The sea.", "Old, old, old river 350!"]


class Opened(NamedTuple):
    model: EncoderDecoder
    path: Path
    cuda: Translator
    cpu: Translator
    precision: Precision


@pytest.fixture(scope="module")
def open_case(store: Store) -> Callable[..., Opened]:
    """Opens a bundle on both devices; each is exported once."""

    @cache
    def opened(case: Case, taught: tuple[str, ...] = ("post_norm",)) -> Opened:
        variant, precision, target = case
        settings: RunSettings = {"steps": 100 if variant in taught else 0, "model": sizes(variant, "cuda")}
        bundle = store.bundle(variant, precision, target, **settings)
        cuda, cpu = (Translator.open(bundle, device=device, threads=1) for device in ("cuda", "cpu"))
        return Opened(store.run(variant, **settings).load_model(), bundle, cuda, cpu, precision)

    return opened


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, open_case: Callable[..., Opened]) -> Opened:
    return open_case(request.param)


@pytest.fixture(params=CASES[:2], ids="-".join)
def taught(request: pytest.FixtureRequest, open_case: Callable[..., Opened]) -> Opened:
    """Knows when a sentence ends, and writes its caches in place."""
    return open_case(request.param)


def random_sources(lengths: list[int], seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(4, 300, length - 1).tolist(), 3] for length in lengths]


def test_graphs_run_there(case: Opened) -> None:
    for graph in (
        onnx_session(case.cuda)._graphs.encoder,
        onnx_session(case.cuda)._graphs.steps["decoder.onnx"].session,
    ):
        assert graph.get_providers()[0] == PROVIDERS["cuda"]
        assert graph.get_provider_options()[PROVIDERS["cuda"]]["use_tf32"] == "0"


@pytest.mark.parametrize("export", CASES, ids="-".join)
def test_logits_are_torchs(export: Case, open_case: Callable[..., Opened]) -> None:
    """Alone and in a batch, with random weights: after 100 updates, those of ``post_norm`` amplify rounding on text
    unlike what they have seen, in PyTorch as well; see ``test_half.py``."""
    case = open_case(export, taught=())
    sources = random_sources([1, 2, 9, 40, 256, 5, 5])
    targets = [ids[:-1] for ids in random_sources([1, 4, 30, 12, 7, 39, 2], seed=1)]
    pairs = list(zip(sources, targets, strict=True))
    for batch in (pairs, *([pair] for pair in pairs)):
        parity = compare_logits(case.model, case.cuda.session, batch)
        assert parity.max_difference <= PRECISIONS[case.precision].tolerances.logits * max(1.0, parity.largest / 10)


def test_attention_and_output_are_torchs(case: Opened) -> None:
    options = [DecodeOptions(beam_size=1), DecodeOptions(beam_size=3)]
    report = compare(case.model, case.cuda.session, random_sources([3, 8, 13, 21]), options, case.precision)
    assert report.problems == []


@pytest.mark.parametrize("beam_size", [1, 4])
def test_rows_that_leave_at_different_steps_leave_the_others_as_they_are(taught: Opened, beam_size: int) -> None:
    on_cuda, expected = (translator.translate(TEXTS, beam_size=beam_size) for translator in (taught.cuda, taught.cpu))
    assert len({len(translation.best.ids) for translation in expected}) > 1
    same = [a.best.ids == b.best.ids for a, b in zip(on_cuda, expected, strict=True)]
    # In float16, two tokens may be so close that another order of additions decides between them.
    assert sum(same) >= len(same) * (1 if taught.precision == "fp32" else 0.9)
    for a, b, equal in zip(on_cuda, expected, same, strict=True):
        if equal:
            assert a.score == pytest.approx(b.score, abs=1e-3 if taught.precision == "fp32" else 2e-2)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_gives_the_same_alone_and_in_a_batch(taught: Opened, beam_size: int) -> None:
    tolerance = 1e-3 if taught.precision == "fp32" else 5e-2
    changed = changed_by_company(taught.cuda, TEXTS, tolerance=tolerance, beam_size=beam_size)
    # In float16, two tokens may be so close that another order of additions decides between them.
    assert len(changed) <= len(TEXTS) * (0 if taught.precision == "fp32" else 0.1)


def test_threads_share_one_session(case: Opened) -> None:
    options = DecodeOptions(beam_size=3, max_length=12)
    works = [random_sources([2, 5, 9, 3], seed) for seed in range(6)]
    expected = [decode(case.cuda.session, work, options) for work in works]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda work: decode(case.cuda.session, work, options), works))
    for actual, reference in zip(results, expected, strict=True):
        assert [best.ids for best, *_ in actual] == [best.ids for best, *_ in reference]


def test_the_state_stays_there(case: Opened) -> None:
    session, table = onnx_session(case.cuda), case.cuda.bundle.manifest.state
    state = session.start(np.array([[5, 6, 3], [7, 3, 0], [8, 9, 3]]), np.array([3, 2, 3]))
    state.select(np.array([0, 0, 1, 1, 2, 2]), None)
    for token in range(4, 7):
        state.step(np.full(6, token))
        assert {value.device_name() for value in state.tensors.values()} == {"cuda"}
        before = dict(state.tensors)
        state.select(np.array([1, 0, 2, 2, 5, 4]), None)
        for tensor in table:
            moved = tensor.kind != "constant" and not tensor.in_place
            assert (state.tensors[tensor.name] is before[tensor.name]) != moved
    state.select(np.array([5, 4, 0, 1]), np.array([2, 0]))
    assert {value.device_name() for value in state.tensors.values()} == {"cuda"}
    for tensor in table:
        assert state.tensors[tensor.name].shape()[0] == {"N": 2, "R": 4}[str(tensor.axes[0])]
