"""What every target begins with: the same in translation, scores, training, validation, calibration and comparison."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edgeformer.data.batches import NO_LABEL, EncodedPairs
from edgeformer.model.session import TorchSession, TorchState
from edgeformer.quality.evaluation import evaluate_texts
from edgeformer.quality.perplexity import perplexity
from edgeformer.quality.translators import open_translator, run_translator
from edgeformer.run.folder import Run
from edgeformer.train.validation import Validator
from edgeformer_export.export import export_run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.parity.comparison import compare
from edgeformer_export.parity.inner_graphs import InnerGraph
from edgeformer_export.parity.margins import beam_margins, greedy_margins
from edgeformer_export.sample import sample_pairs
from edgeformer_runtime.check.golden import read_golden
from edgeformer_runtime.search.forced_steps import forced_batch
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import IntArray
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import AnyTranslator, Translator
from tests import factory
from tests.store import CPU_PRECISIONS

FAMILIES = ("post_norm", "ssru", "lstm", "lstm_dot")
"""A model of each family, whose targets are made to begin with one of its tokens."""
IMPORTED = ("m2m", "nllb", "mbart_50")
"""Models that are published with a token that every target begins with."""
CASES = [
    pytest.param(name, marks=[] if name in {"post_norm", "nllb"} else [pytest.mark.slow])
    for name in (*FAMILIES, *IMPORTED)
]
LONGEST = 30


@dataclass
class Case:
    """A model whose targets begin with tokens of its own."""

    run: Run
    texts: list[str]
    translator: AnyTranslator = field(init=False)

    def __post_init__(self) -> None:
        self.model = self.run.load_model()
        self.translator = run_translator(self.run, self.model)
        assert self.run.special.prefix

    @cached_property
    def greedy(self) -> list[Translation]:
        return self.translator.translate(self.texts, beam_size=1, max_length=LONGEST, return_token_scores=True)

    def encoded(self, pairs: list[tuple[str, str]]) -> EncodedPairs:
        return EncodedPairs.encode(
            pairs,
            self.run.source_tokenizer,
            self.run.target_tokenizer,
            max_source_length=self.model.max_source_length,
            max_target_length=self.model.max_target_length,
            special=self.run.special,
            folder=Path(mkdtemp(dir=self.run.path.parent)),
        )


def own(variant: str, folder: Path) -> Case:
    run = factory.small_run(folder, variant, steps=300 if variant.startswith("lstm") else 60)
    first = run.target_tokenizer.tokens(run.target_tokenizer.encode("river"))[:1]
    run.update(text=msgspec.structs.replace(run.info.text, target_prefix=tuple(first)))
    return Case(Run.open(folder), [source for source, _ in factory.PAIRS[:12]])


def imported(architecture: str, folder: Path) -> Case:
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    from edgeformer.importers.read import read_model
    from edgeformer.importers.run_folder import write_run
    from tests.importers.hugging_face_models import ARCHITECTURES, SENTENCES, TRANSLATES

    ARCHITECTURES[architecture](folder / "model")
    source, target = TRANSLATES.get(architecture, ("", ""))
    found = read_model(folder / "model", None, source_language=source, target_language=target)
    texts = list(SENTENCES[:12])
    return Case(write_run(found.model, folder / "run", found.origin, text=texts), texts)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("targets") / request.param
    return own(request.param, folder) if request.param in FAMILIES else imported(request.param, folder)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_scores_of_a_translation_are_those_that_translating_gives(case: Case, beam_size: int) -> None:
    translations = case.translator.translate(
        case.texts, beam_size=beam_size, max_length=LONGEST, return_token_scores=True
    )
    for finished in (True, False):
        chosen = [entry for entry in translations if entry.best.finished == finished]
        scores = case.translator.score(
            [entry.source.text for entry in chosen], [entry.best.ids for entry in chosen], end_token=finished
        )
        for entry, score in zip(chosen, scores, strict=True):
            never = case.run.special.forbid
            assert score.ids[: len(entry.best.ids)] == entry.best.ids
            if not never:
                assert entry.best.token_scores == pytest.approx(score.token_scores, abs=1e-4)


def test_validation_and_evaluation_of_its_own_translations_agree(case: Case) -> None:
    translations = case.greedy
    pairs = [(entry.source.text, entry.text) for entry in translations if entry.text.strip()]
    assert len(pairs) > 2
    encoded = case.encoded(pairs)
    references = [pairs[index][1] for index in encoded.kept]
    validator = Validator(run=case.run, encoded=encoded, references=references, autocast=nullcontext)
    options = case.translator.options(beam_size=1, max_length=2 * int(encoded.target.length.max()))
    texts = [pairs[index][0] for index in encoded.kept]
    evaluation = evaluate_texts(case.translator, texts, references, options)
    figures = validator(case.model, step=0, minutes=0.0)
    assert figures.exact_match == evaluation.scores.exact_match
    assert figures.bleu == pytest.approx(evaluation.scores.bleu)
    assert figures.bleu > 99.0 or not all(entry.best.finished for entry in translations)
    if not case.run.special.suppress:
        assert figures.perplexity == pytest.approx(perplexity(case.translator, texts, references).perplexity, rel=1e-4)


def test_perplexity_is_that_of_the_tokens_after_what_is_given(case: Case) -> None:
    special = case.run.special
    references = [entry.text for entry in case.greedy]
    total, count = 0.0, 0
    for text, reference in zip(case.texts, references, strict=True):
        source = case.run.source_tokenizer.encode_batch([text], special_tokens=True)[0]
        target = case.run.target_tokenizer.encode_batch([reference], special_tokens=True)[0]
        if len(target) < 2:
            continue
        fed = torch.tensor([[*special.start, *target[:-1]]])
        with torch.no_grad():
            logits = case.model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0].double()
        logits[:, list(special.suppress)] = -math.inf
        chosen = logits.log_softmax(-1)[len(special.prefix) :]
        total -= chosen[torch.arange(len(target)), torch.tensor(target)].sum().item()
        count += len(target)
    found = perplexity(case.translator, case.texts, references)
    assert found.tokens == count
    assert found.perplexity == pytest.approx(math.exp(total / count), rel=1e-4)


class RecordingState(TorchState):
    """A state that keeps the tokens that it is fed."""

    fed: list[IntArray]

    def step(self, token: IntArray) -> Any:
        self.fed.append(token.copy())
        return super().step(token)

    def attend(self, token: IntArray) -> Any:
        self.fed.append(token.copy())
        return super().attend(token)


class RecordingSession(TorchSession):
    """A session that keeps the tokens that its states are fed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fed: list[list[IntArray]] = []

    def start(self, source: IntArray, source_length: IntArray) -> TorchState:
        state = RecordingState(self.model, super().start(source, source_length).tensors)
        self.fed.append([])
        state.fed = self.fed[-1]
        return state


SOME: dict[str, Any] = {
    "beam_size": 3,
    "n_best": 2,
    "patience": 2.0,
    "length_penalty": 0.5,
    "max_length": 9,
    "min_length": 4,
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.3,
    "max_ngram_repeats": 2,
    "sampling_temperature": 1.3,
    "sampling_topk": 5,
    "sampling_topp": 0.9,
    "suppress_tokens": [7],
    "suppress_sequences": [[8, 9]],
    "min_alternative_expansion_prob": 0.01,
    "max_len_a": 2.0,
    "max_len_b": 3,
    "max_input_length": 9,
    "max_batch_tokens": 40,
    "seed": 3,
}
"""A value of each option that is not the default; of flags, the opposite."""


@pytest.mark.parametrize("case", ["post_norm", pytest.param("nllb", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("name", [option.name for option in fields(DecodeOptions)])
def test_no_option_takes_what_is_given_away(case: Case, name: str) -> None:
    if name in {"return_attention", "replace_unknowns"} and not case.model.has_attention:
        pytest.skip("the model has no attention weights")
    session = RecordingSession(case.model, case.run.special)
    tokenizers = case.run.source_tokenizer, case.run.target_tokenizer
    translator = Translator(session, *tokenizers, DecodeOptions(), languages=case.run.languages)
    value = SOME.get(name, not getattr(DecodeOptions(), name))
    changes = {"beam_size": 2, "max_length": 12, name: value}
    if name == "return_alternatives":
        changes["n_best"] = 2
    if name.startswith("sampling_"):
        changes = {"beam_size": 1, "sampling_topk": 5, **changes} | {"beam_size": 1}
    if name == "n_best":
        changes["beam_size"] = 3
    prefix = translator.target_tokenizer.encode(case.greedy[0].text)[:2] or None
    for given in (None, [prefix, *[None] * 2]):
        translator.translate(case.texts[:3], target_prefix=given, **changes)
    start = case.run.special.start
    assert session.fed
    for steps in session.fed:
        assert all((step == token).all() for step, token in zip(steps, start, strict=False))
        assert len(steps) >= len(start)


def test_what_is_forced_is_what_translation_feeds(case: Case) -> None:
    """Calibration, second moments, sensitivity and comparison all feed what :func:`forced_batch` makes."""
    session = RecordingSession(case.model, case.run.special)
    tokenizers = case.run.source_tokenizer, case.run.target_tokenizer
    translator = Translator(session, *tokenizers, DecodeOptions(beam_size=1), languages=case.run.languages)
    for text in case.texts[:4]:
        session.fed.clear()
        (translation,) = translator.translate([text], max_length=LONGEST)
        fed = [int(step[0]) for step in session.fed[0]]
        batch = forced_batch([(translation.source.ids, translation.best.ids)], case.run.special)
        assert batch.target[0, : len(fed)].tolist() == fed
        assert len(fed) == batch.target.shape[1] - (not translation.best.finished)


def test_comparison_judges_what_translation_writes(case: Case) -> None:
    sources = [source.ids for source in case.translator.encode(case.texts[:6])]
    judged = TorchSession(case.model, case.run.special)
    report = compare(case.model, judged, sources, [DecodeOptions(beam_size=1, max_length=LONGEST)], "fp32")
    assert not report.problems
    outputs = [entry.best.ids for entry in case.greedy[:6]]
    margins = greedy_margins(judged, sources, outputs)
    assert all(margin > 0 for margin in margins)
    options = DecodeOptions(beam_size=2, max_length=LONGEST)
    best = [entry.best.ids for entry in case.translator.translate(case.texts[:3], options)]
    assert beam_margins(judged, sources[:3], best, options, [1e-6]) == [1e-6] * 3


def test_training_neither_learns_nor_counts_what_is_given(case: Case) -> None:
    pairs = [(entry.source.text, entry.text) for entry in case.greedy if entry.text.strip()]
    encoded = case.encoded(pairs)
    rows = np.arange(len(encoded))
    batch = encoded.collate(rows, encoded.labels(rows))
    start = case.run.special.start
    assert (batch.target[:, : len(start)] == start).all()
    assert (batch.labels[:, : len(start) - 1] == NO_LABEL).all()
    assert (batch.labels != NO_LABEL).sum() == batch.update_tokens
    for row, index in enumerate(encoded.kept):
        wanted = case.run.target_tokenizer.encode_batch([pairs[index][1]], special_tokens=True)[0]
        assert batch.labels[row][batch.labels[row] != NO_LABEL].tolist() == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "precision"), [*zip(IMPORTED, CPU_PRECISIONS, strict=False), ("nllb", CPU_PRECISIONS[-1])]
)
def test_a_bundle_does_as_its_run_does(architecture: str, precision: Any, tmp_path: Path) -> None:
    case = imported(architecture, tmp_path)
    report = export_run(case.run, tmp_path / "bundle", precision=precision, force=True)
    bundle = Translator.open(report.bundle)
    assert max(entry.margin for entry in read_golden(bundle.bundle).cases) > 0
    assert bundle.session.special == case.run.special
    translations = bundle.translate(case.texts, beam_size=1, max_length=LONGEST, return_token_scores=True)
    scores = bundle.score(case.texts, [entry.best.ids for entry in translations], end_token=True)
    for entry, score in zip(translations, scores, strict=True):
        given = entry.best.token_scores
        assert given is not None
        assert given == pytest.approx(score.token_scores[: len(given)], abs=5e-3)
    if precision == "fp32":
        references = [entry.text for entry in case.greedy]
        ours, theirs = (
            perplexity(translator, case.texts, references).perplexity
            for translator in (bundle, open_translator(case.run.path))
        )
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_calibration_feeds_what_every_target_begins_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, fed = own("post_norm", tmp_path / "run"), list[IntArray]()

    def recorded(decoder: InnerGraph, encoded: Any, table: Any, target: IntArray) -> Any:
        fed.append(target)
        return decode(decoder, encoded, table, target)

    decode = InnerGraph.decode
    monkeypatch.setattr(InnerGraph, "decode", recorded)
    model_graphs = ModelGraphs(case.run)
    assert model_graphs.pairs[0].source == sample_pairs(case.run, case.model)[0].source
    export_run(case.run, tmp_path / "bundle", precision="int8", force=True, model_graphs=model_graphs)
    start = case.run.special.start
    assert fed
    assert all((batch[:, : len(start)] == start).all() for batch in fed)
