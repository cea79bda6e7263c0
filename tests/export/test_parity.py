"""Exported graphs against torch, for every variant, target and search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from factory import PAIRS, VARIANTS, small_run

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer.train.run import Run
from edgeformer_export.export import export_run
from edgeformer_export.parity import MAX_LOGIT_DIFFERENCE, compare, compare_logits
from edgeformer_runtime.decode import decode
from edgeformer_runtime.manifest import Precision, Target
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.translator import Translator

# (variant, target, precision): every variant with fused operators, and each other combination at least once.
EXPORTS: list[tuple[str, Target, Precision]] = [
    *((variant, "ort", "fp32") for variant in VARIANTS),
    ("post_norm", "portable", "fp32"),
    ("free_widths", "portable", "fp32"),
    ("pre_norm", "ort", "int8"),
    ("untied_silu", "portable", "int8"),
]


@pytest.fixture(scope="module", params=EXPORTS, ids=["-".join(export) for export in EXPORTS])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, device: str) -> tuple[Run, Translator]:
    variant, target, precision = request.param
    folder = tmp_path_factory.mktemp("export")
    run = small_run(folder / "run", variant)
    export_run(run, folder / "bundle", target=target, precision=precision)
    return run, Translator(folder / "bundle", device=device)


@pytest.fixture
def fp32(exported: tuple[Run, Translator]) -> tuple[EncoderDecoder, Translator]:
    run, translator = exported
    if "int8" in translator.bundle.manifest.precision.values():
        pytest.skip("int8 rounds; its bound has a test of its own")
    return run.load_model(), translator


def random_sources(model: EncoderDecoder, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Random token ids; the last of each is the end token."""
    random = np.random.default_rng(seed)
    return [[*random.integers(4, model.source_vocab_size, length - 1).tolist(), 3] for length in lengths]


@pytest.mark.parametrize("lengths", [[1], [2], [256], [1, 256], [5, 5, 5], list(range(1, 34))], ids=lambda n: f"{len(n)}x{n[-1]}")
def test_step_logits_equal_teacher_forced_torch(fp32: tuple[EncoderDecoder, Translator], lengths: list[int]) -> None:
    model, translator = fp32
    sources = random_sources(model, lengths)
    targets = [source[:-1][:39] for source in random_sources(model, [1 + (7 * n) % 30 for n in lengths], seed=1)]
    parity = compare_logits(model, translator.session, list(zip(sources, targets, strict=True)))
    assert parity.positions == sum(len(target) + 1 for target in targets)
    assert parity.max_difference <= MAX_LOGIT_DIFFERENCE


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_output_equals_torch_token_by_token(fp32: tuple[EncoderDecoder, Translator], beam_size: int) -> None:
    model, translator = fp32
    sources = random_sources(model, [1, 3, 3, 8, 13, 21, 40, 2, 9])
    options = [DecodeOptions(beam_size=beam_size), DecodeOptions(beam_size=beam_size, max_length=7, length_penalty=0.3)]
    report = compare(model, translator.session, sources, options, "fp32")
    assert report.problems == []
    assert [entry.identical for entry in report.tokens] == [9, 9]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_gives_the_same_alone_and_in_a_batch(exported: tuple[Run, Translator], beam_size: int) -> None:
    _, translator = exported
    texts = sorted({source for source, _ in PAIRS})[::9] + ["x", "The sea.", "Old, old, old river 350!"]
    together = translator.translate(texts, beam_size=beam_size)
    for text, translation in zip(texts, together, strict=True):
        alone = translator.translate([text], beam_size=beam_size)[0]
        assert alone.best.ids == translation.best.ids
        assert alone.score == pytest.approx(translation.score, abs=1e-4)


def test_int8_stays_close_to_torch(exported: tuple[Run, Translator]) -> None:
    run, translator = exported
    if "int8" not in translator.bundle.manifest.precision.values():
        pytest.skip("fp32 has tighter tests")
    sources = [[*ids, 3] for ids in translator.source_tokenizer.encode_batch([source for source, _ in PAIRS[:40]])]
    report = compare(run.load_model(), translator.session, sources, [], "int8")
    assert report.problems == []
    assert 0 < report.logits.mean_difference < 0.1


def test_a_wrong_model_is_told_with_sentence_and_step(
    fp32: tuple[EncoderDecoder, Translator], tmp_path: Path
) -> None:
    _, translator = fp32
    variant = "post_norm"
    other = small_run(tmp_path / "run", variant, seed=1).load_model()
    if other.state_table() != translator.bundle.manifest.state:
        pytest.skip("another variant's graphs do not fit this model")
    sources = random_sources(other, [6, 9])
    report = compare(other, translator.session, sources, [DecodeOptions(beam_size=1)], "fp32")
    text = "; ".join(report.problems)
    assert "logits differ by up to" in text
    assert "sentence" in text
    assert "step" in text
    assert report.tokens[0].first is not None


def test_torch_and_onnx_report_the_same_scores(fp32: tuple[EncoderDecoder, Translator]) -> None:
    model, translator = fp32
    sources = random_sources(model, [4, 9, 15])
    options = DecodeOptions(beam_size=3, n_best=3, max_length=12)
    ours = decode(translator.session, sources, options)
    theirs = decode(TorchSession(model), sources, options)
    for one, other in zip(ours, theirs, strict=True):
        assert [hypothesis.ids for hypothesis in one] == [hypothesis.ids for hypothesis in other]
        np.testing.assert_allclose([h.score for h in one], [h.score for h in other], atol=1e-5)  # type: ignore[misc, arg-type]  # scores are never none in beam search
