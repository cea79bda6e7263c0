"""Golden examples: a few inputs with the output recorded at export, to be run again on the device.

Each text has its output from greedy search and from beam search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.plain_files import reading, shortened
from edgeformer_runtime.check.sizes import size_problems
from edgeformer_runtime.contract import GOLDEN_FILE
from edgeformer_runtime.engines import Engine
from edgeformer_runtime.engines.base import choose_engine
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.errors import BundleError, ModelError
from edgeformer_runtime.limits import (
    MAX_BEAM_SIZE,
    MAX_EXAMPLES,
    MAX_GOLDEN_BYTES,
    Number,
)
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.forced_steps import Pair, score_batches
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.search import Hypothesis
from edgeformer_runtime.search.session import StepSession
from edgeformer_runtime.translator import Translator

_ROUNDING = 1e-5
"""Largest difference of log-probabilities that comes from the order of additions alone."""
_MIN_EQUAL = 0.5
"""Share of log-probabilities that are equal on both engines at least. Of a trained model, 99.9 % are; with one constant
that is wrong by one percent, 0.3 %."""


class GoldenCase(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One input and its expected output."""

    text: str
    beam_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BEAM_SIZE)]
    """Hypotheses kept per sentence; 1 is greedy search."""
    ids: tuple[Number, ...]
    """Token ids of the best hypothesis."""
    score: float
    """Normalized log-probability of the best hypothesis."""
    source: tuple[Number, ...]
    """Source token ids, end token included."""
    output: str
    """Text of the best hypothesis."""
    margin: float
    """How far any two logits of a step may shift relative to each other without changing the output. Greedy search:
    the smallest gap between the best and the second-best logit. Beam search: the largest shift that was tried and left
    the output unchanged."""


class Golden(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Content of the golden file."""

    cases: Annotated[tuple[GoldenCase, ...], msgspec.Meta(min_length=1, max_length=MAX_EXAMPLES)]
    """Examples with greedy search, then the same texts with the bundle's default beam size."""
    listed: Annotated[tuple[GoldenCase, ...], msgspec.Meta(max_length=MAX_EXAMPLES)] = ()
    """Examples whose output on the kernels is the same with the bundle's shortlist, if it has one."""


class GoldenResult(msgspec.Struct, kw_only=True, frozen=True):
    """Result of running the golden examples."""

    cases: int
    """Number of examples."""
    failed: int
    """Number of examples whose tokens or score differ, or that could not be run."""
    empty: int
    """Number of examples whose recorded output is empty."""
    max_score_difference: float
    """Largest score difference among the examples whose tokens match."""
    score_tolerance: float
    """Largest score difference allowed."""
    min_margin: float
    """Smallest :attr:`GoldenCase.margin` of all examples."""
    engines: tuple[Engine, ...]
    """The engines that ran the examples."""
    problems: tuple[str, ...]
    """One sentence per problem, in the order of the computation."""


def read_golden(bundle: Bundle) -> Golden:
    """Read the bundle's golden file.

    Raises:
        BundleError: the file cannot be parsed, contains no examples, or contradicts the manifest.
    """
    data = bundle.read(GOLDEN_FILE, MAX_GOLDEN_BYTES)
    try:
        golden = msgspec.json.decode(data, type=Golden)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BundleError(f"`{GOLDEN_FILE}` cannot be parsed ({shortened(error)}); export the bundle again.") from None
    if (problem := next(_contradictions(golden, bundle.manifest), None)) is not None:
        raise BundleError(f"`{GOLDEN_FILE}` does not belong to this bundle: {problem}. Export the bundle again.")
    return golden


def _contradictions(golden: Golden, manifest: Manifest) -> Iterator[str]:
    """Yield each value that a bundle with this manifest cannot have recorded."""
    if golden.listed and not manifest.has_shortlist:
        yield "it has examples with a shortlist, but the bundle has none"
    for number, case in enumerate(golden.cases + golden.listed, 1):
        if not _is_source(case.source, manifest) or not _is_target(case.ids, manifest):
            yield f"example {number} has tokens or a length that the model does not have"


def _is_source(ids: Sequence[int], manifest: Manifest) -> bool:
    return 1 <= len(ids) <= manifest.max_source_length and 0 <= min(ids) <= max(ids) < manifest.source_vocab_size


def _is_target(ids: Sequence[int], manifest: Manifest) -> bool:
    lowest, highest = min(ids, default=0), max(ids, default=0)
    return len(ids) <= manifest.max_target_length and 0 <= lowest <= highest < manifest.target_vocab_size


def score_tolerance(manifest: Manifest) -> float:
    """Largest score difference allowed for a bundle."""
    return max(PRECISIONS[name].tolerances.score for name in manifest.precision.values())


def check_golden(translator: Translator) -> GoldenResult:
    """Run the golden examples and compare them with the record.

    Tokens must match, and scores must be within :func:`score_tolerance`. ONNX Runtime runs the examples first, then the
    kernels, where they can be used.

    Raises:
        BundleError: the golden file cannot be parsed, contains no examples, or contradicts the manifest.
    """
    if translator.session.engine == "kernels":
        with Translator.open(translator.bundle, engine="onnxruntime") as opened:
            return check_golden(opened)
    golden = read_golden(translator.bundle)
    with reading(translator.bundle.path / GOLDEN_FILE):
        return _compared(translator, golden)


def _compared(translator: Translator, golden: Golden) -> GoldenResult:
    tolerance = score_tolerance(translator.bundle.manifest)
    session, outcome = translator.session, _GoldenRun()
    assert isinstance(session, OnnxSession)
    problems = [*_tokenizer_problems(translator, golden.cases), *size_problems(session)]
    _run_cases(translator, golden.cases, 1, tolerance, outcome)
    engines: list[Engine] = ["onnxruntime"]
    problems += outcome.problems
    if not problems and choose_engine(translator.bundle, "auto", session.device) == "kernels":
        engines.append("kernels")
        problems += kernel_problems(translator, golden)
    if translator.bundle.has_attention and not problems:
        problems += _attention_problems(translator, golden.cases[0].text)
    cases = golden.cases + (golden.listed if "kernels" in engines else ())
    return GoldenResult(
        cases=len(cases),
        failed=outcome.failed,
        empty=sum(not case.ids for case in cases),
        max_score_difference=outcome.largest,
        score_tolerance=tolerance,
        min_margin=min(case.margin for case in golden.cases),
        engines=tuple(engines),
        problems=tuple(problems),
    )


def kernel_problems(translator: Translator, golden: Golden) -> list[str]:
    """Compare the kernels with ONNX Runtime on the golden examples.

    Outputs must be those of the record. The log-probabilities of their tokens must be those of ONNX Runtime, except
    that some may differ by what one activation, rounded to the other of two neighboring integers, changes: norms and
    softmax add in another order, which decides when a value lies half-way between two integers. A plan with any wrong
    constant changes nearly all of them.

    Returns:
        One sentence per difference.
    """
    bundle, outcome, tolerance = translator.bundle, _GoldenRun(), score_tolerance(translator.bundle.manifest)
    problems = []
    for first, cases, shortlist in ((1, golden.cases, False), (1 + len(golden.cases), golden.listed, True)):
        if not cases:
            continue
        with Translator.open(bundle, engine="kernels", shortlist=shortlist) as kernels:
            _run_cases(kernels, cases, first, tolerance, outcome)
            if not shortlist:
                sessions = translator.session, kernels.session
                pairs = [(case.source, case.ids or (translator.session.special.eos,)) for case in cases]
                ours, theirs = (_token_scores(session, pairs) for session in sessions)
                if (equal := float(np.mean(np.abs(ours - theirs) <= _ROUNDING))) < _MIN_EQUAL:
                    problems.append(
                        f"{equal:.0%} of the log-probabilities are those of ONNX Runtime, less than the "
                        f"{_MIN_EQUAL:.0%} that rounding leaves"
                    )
    return [f"on the kernels, {problem}" for problem in (*problems, *outcome.problems)]


def _token_scores(session: StepSession, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Log-probability of every token of some targets."""
    return np.concatenate([scores for batch in score_batches(session, pairs) for _, scores in batch])


@dataclass
class _GoldenRun:
    """Results of the examples that were run so far."""

    problems: list[str] = field(default_factory=list)
    """One sentence per example whose output differs from the record, or beam size that could not be run."""
    failed: int = 0
    """Number of these examples."""
    largest: float = 0.0
    """Largest score difference of an example whose tokens match."""


def _run_cases(
    translator: Translator, cases: Sequence[GoldenCase], first: int, tolerance: float, outcome: _GoldenRun
) -> None:
    """Run examples, the first of which has a number, and add to the outcome."""
    for beam_size in sorted({case.beam_size for case in cases}):
        numbered = [(number, case) for number, case in enumerate(cases, first) if case.beam_size == beam_size]
        try:
            hypotheses = _decoded(translator, [case for _, case in numbered], beam_size)
        except ModelError as error:
            outcome.problems.append(f"beam {beam_size}: {error}".removesuffix("."))
            outcome.failed += len(numbered)
            continue
        for (number, case), best in zip(numbered, hypotheses, strict=True):
            difference = abs((best.score or 0.0) - case.score)
            if best.ids == case.ids:
                outcome.largest = max(outcome.largest, difference)
            if best.ids != case.ids or not difference <= tolerance:
                outcome.problems.append(_difference(translator, number, case, best))
                outcome.failed += 1


def _decoded(translator: Translator, cases: Sequence[GoldenCase], beam_size: int) -> list[Hypothesis]:
    """Best output of each example, decoded from the recorded ids so that a wrong tokenizer cannot mask graph errors."""
    sources, options = [case.source for case in cases], translator.options(beam_size=beam_size)
    outputs = decode(translator.session, sources, options, workers=translator.workers)
    return [best for best, *_ in outputs]


def _difference(translator: Translator, number: int, case: GoldenCase, best: Hypothesis) -> str:
    """Say where the output of an example differs from the record, or that only its score does."""
    example, tokenizer = f"example {number} (beam {case.beam_size})", translator.target_tokenizer
    score = f"{best.score or 0.0:.6f} instead of {case.score:.6f}"
    if best.ids == case.ids:
        return f"{example} has score {score}: {shortened(repr(case.text))}"
    position = first_difference(best.ids, case.ids)
    expected, found = (
        f"{ids[position]} {tokenizer.tokens([ids[position]])[0]!r}" if position < len(ids) else "the end"
        for ids in (case.ids, best.ids)
    )
    text, output, record = (shortened(repr(text)) for text in (case.text, tokenizer.decode(best.ids), case.output))
    return (
        f"{example}, token {position + 1} differs: expected {expected}, got {found}; {text} gave {output} instead of "
        f"{record}, with score {score}"
    )


def _tokenizer_problems(translator: Translator, cases: Sequence[GoldenCase]) -> list[str]:
    """Report the first text that each tokenizer encodes or decodes differently from the record."""
    problems, files = [], translator.bundle.manifest.tokenizers
    for side, tokenizer, name, expected in (
        ("source", translator.source_tokenizer, files.source, files.source_vocabulary),
        ("target", translator.target_tokenizer, files.target, files.target_vocabulary),
    ):
        if tokenizer.vocabulary_sha256 != expected:
            problems.append(f"the {side} tokenizer `{name}` has another vocabulary than the model")
    for number, case in enumerate(cases, 1):
        source = tuple(translator.source_tokenizer.encode_batch([case.text], special_tokens=True)[0])
        if source != case.source:
            position = first_difference(source, case.source)
            expected, actual = (
                str(ids[position]) if position < len(ids) else "the end" for ids in (case.source, source)
            )
            problems.append(
                f"the source tokenizer `{files.source}` does not fit the examples: token {position + 1} of "
                f"example {number} is {actual} instead of {expected} in {shortened(repr(case.text))}"
            )
            break
    for number, case in enumerate(cases, 1):
        text = translator.target_tokenizer.decode(case.ids)
        if text != case.output:
            problems.append(
                f"the target tokenizer `{files.target}` does not fit the examples: the tokens of example {number} "
                f"are {shortened(repr(text))} instead of {shortened(repr(case.output))}"
            )
            break
    return problems


def _attention_problems(translator: Translator, text: str) -> list[str]:
    """Run the attention graph, which no other check uses, and check that its weights sum to 1."""
    (attention,) = translator.attention(translator.translate([text], beam_size=1))
    sums = attention.weights.sum(axis=1)
    return [] if np.allclose(sums, 1, atol=1e-3) else ["attention weights of example 1 do not add up to one"]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    """Index of the first differing token; the shorter length if one sequence is a prefix of the other."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))
