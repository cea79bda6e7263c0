"""Exported graphs against torch, for every variant, target and search."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.parity.comparison import compare, compare_logits
from edgeformer_runtime.bundle.manifest import SpecialTokens, Target
from edgeformer_runtime.cli.verify import print_parity
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.cuda import sizes, skip_unless_supported
from tests.factory import PAIRS, small_run
from tests.store import Store
from tests.variants import VARIANTS, is_slow

Export = tuple[str, Target, Precision]

# Every variant with fused operators, and each other combination of target and precision.
FP32: list[Export] = [
    *((variant, "ort", "fp32") for variant in VARIANTS),
    ("post_norm", "portable", "fp32"),
    ("free_widths", "portable", "fp32"),
]
INT8: list[Export] = [
    ("pre_norm", "ort", "int8"),
    ("untied_silu", "portable", "int8"),
    ("attention_encoder", "ort", "int8"),
    ("output_bias", "ort", "int8"),
    ("output_bias", "portable", "int8"),
]


def exports(*chosen: Export) -> pytest.MarkDecorator:
    """Run a test for each of these exports; each is made once for all tests."""
    slow = {export for export in chosen if is_slow(export[0]) or export[1] == "portable"}
    params = [
        pytest.param(export, marks=[pytest.mark.slow] if export in slow else [], id="-".join(export))
        for export in chosen
    ]
    return pytest.mark.parametrize("exported", params, indirect=True)


@pytest.fixture(scope="module")
def exported(request: pytest.FixtureRequest, store: Store, device: str) -> Exported:
    variant, target, precision = request.param
    model = sizes(variant, device)
    skip_unless_supported(precision, device)
    bundle = store.bundle(variant, precision, target, model=model)
    return Exported(store.run(variant, model=model).load_model(), Translator.open(bundle, device=device))


class Exported(NamedTuple):
    model: EncoderDecoder
    translator: Translator


def random_sources(model: EncoderDecoder, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Random token ids; the last of each is the end token."""
    random = np.random.default_rng(seed)
    return [[*random.integers(4, model.source_vocab_size, length - 1).tolist(), 3] for length in lengths]


@exports(*FP32)
@pytest.mark.parametrize(
    "lengths",
    [[1], [256], [1, 256], list(range(1, 34))],
    ids=lambda lengths: f"{len(lengths)}x{lengths[-1]}",
)
def test_step_logits_equal_teacher_forced_torch(exported: Exported, lengths: list[int]) -> None:
    sources = random_sources(exported.model, lengths)
    targets = [ids[:-1][:39] for ids in random_sources(exported.model, [1 + (7 * n) % 30 for n in lengths], seed=1)]
    parity = compare_logits(exported.model, exported.translator.session, list(zip(sources, targets, strict=True)))
    assert parity.positions == sum(len(target) + 1 for target in targets)
    assert parity.max_difference <= PRECISIONS["fp32"].tolerances.logits


@exports(*FP32)
@pytest.mark.parametrize("beam_size", [1, pytest.param(2, marks=pytest.mark.slow), 5])
def test_output_equals_torch_token_by_token(exported: Exported, beam_size: int) -> None:
    sources = random_sources(exported.model, [1, 3, 3, 8, 13, 21, 40, 2, 9])
    options = [DecodeOptions(beam_size=beam_size), DecodeOptions(beam_size=beam_size, max_length=7, length_penalty=0.3)]
    report = compare(exported.model, exported.translator.session, sources, options, "fp32")
    assert report.problems == []
    assert [entry.identical for entry in report.tokens] == [9, 9]


@exports(*FP32)
def test_torch_and_onnx_report_the_same_scores(exported: Exported) -> None:
    sources = random_sources(exported.model, [4, 9, 15])
    options = DecodeOptions(beam_size=3, n_best=3, max_length=12)
    ours = decode(exported.translator.session, sources, options)
    theirs = decode(TorchSession(exported.model, SpecialTokens()), sources, options)
    for hypotheses, reference in zip(ours, theirs, strict=True):
        assert [hypothesis.ids for hypothesis in hypotheses] == [hypothesis.ids for hypothesis in reference]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
            [hyp.score for hyp in reference], abs=1e-5
        )


@exports(*INT8)
def test_int8_stays_close_to_torch(exported: Exported) -> None:
    tokenizer = exported.translator.source_tokenizer
    sources = tokenizer.encode_batch([source for source, _ in PAIRS[:40]], special_tokens=True)
    with Translator.open(exported.translator.bundle, engine="onnxruntime") as graphs:
        report = compare(exported.model, graphs.session, sources, [], "int8")
    assert report.problems == []
    assert 0 < report.logits.mean_difference < 0.1


@exports(("post_norm", "ort", "fp32"))
def test_a_wrong_model_is_told_with_sentence_and_step(exported: Exported, tmp_path: Path) -> None:
    other_model = small_run(tmp_path / "run", "post_norm", seed=1).load_model()
    sources = random_sources(other_model, [6, 9])
    report = compare(other_model, exported.translator.session, sources, [DecodeOptions(beam_size=1)], "fp32")
    assert report.logits.max_difference > 0.1
    assert report.tokens[0].first is not None
    logits, attention, tokens = report.problems
    assert "attention weights differ" in attention
    assert f"sentence {report.logits.worst_sentence + 1}, step {report.logits.worst_step + 1}" in logits
    assert f"sentence {report.tokens[0].first.sentence + 1} at step {report.tokens[0].first.step + 1}" in tokens


@exports(("post_norm", "ort", "fp32"))
def test_the_bound_grows_with_large_logits_and_no_further(exported: Exported) -> None:
    report = compare(exported.model, exported.translator.session, random_sources(exported.model, [6, 9]), [], "fp32")
    assert report.problems == []

    def judged(difference: float, largest: float) -> list[str]:
        logits = msgspec.structs.replace(report.logits, max_difference=difference, largest=largest)
        return msgspec.structs.replace(report, logits=logits).problems

    assert judged(0.99e-4, 2.0) == judged(1.9e-4, 20.0) == []
    assert "more than 1.0e-04" in judged(1.1e-4, 2.0)[0]
    assert "more than 2.0e-04" in judged(2.1e-4, 20.0)[0]


def test_empty_outputs_are_told(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    model, special = store.run("output_bias").load_model(), SpecialTokens()
    model.projection.bias.data[special.eos] += 1000
    session, sources = TorchSession(model, special), random_sources(model, [6, 9, 4])
    report = compare(model, session, sources, [DecodeOptions(beam_size=1), DecodeOptions(beam_size=3)], "fp32")
    assert [(entry.identical, entry.empty) for entry in report.tokens] == [(3, 3), (3, 3)]
    assert report.problems == []
    assert report.warnings[1].startswith("3 of 3 outputs compared with beam size 3 are empty")
    print_parity(report.facts, report.warnings)
    assert capsys.readouterr().err.count("Warning: 3 of 3 outputs compared with beam size") == 2
    few = msgspec.structs.replace(report.tokens[0], sentences=30)
    assert msgspec.structs.replace(report, tokens=(few,)).warnings == []
