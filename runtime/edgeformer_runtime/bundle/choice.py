"""What ``edgeformer export --precision auto`` measured, and which candidate it chose."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeformer_runtime.limits import Number
from edgeformer_runtime.precision import Precision

Objective = Literal["latency", "size"]


class Latency(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Time per sentence when sentences are translated one at a time."""

    mean_ms: float
    """Mean over the sentences, using the fastest round of each; candidates are compared by it."""
    median_ms: float
    """Median over the sentences."""
    p25_ms: float
    """First quartile over the sentences."""
    p75_ms: float
    """Third quartile over the sentences."""
    differ_alone: Number
    """Number of sentences whose translation differs when translated alone rather than in a batch."""


class Quality(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Scores of one candidate on the common evaluation text."""

    bleu: float
    """Corpus BLEU, 0 … 100."""
    chrf: float
    """chrF2, 0 … 100."""
    drop: float
    """BLEU of fp32 minus BLEU of this candidate."""
    drop_error: float
    """Half the width of the drop's 95 % confidence interval, by paired bootstrap."""
    identical: Number
    """Number of sentences with the same translation as fp32."""


class Measured(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One candidate with all its measurements."""

    name: str
    """Name shown in tables."""
    precision: Precision
    """Precision of the export."""
    kept: dict[str, Precision]
    """Layers kept in another precision."""
    quality: Quality
    """Quality on the evaluation text."""
    latency: Latency
    """Latency on the machine that measured it."""
    bytes: Number
    """Total size of the files, in bytes."""
    refused: str = ""
    """Why the candidate cannot be chosen, as a sentence; empty if it can."""
    in_budget: bool = False
    """Whether the BLEU drop is within the budget."""
    on_front: bool = False
    """Whether it is Pareto-optimal: no other candidate is at least as good in quality, latency and size, and better in
    one of them."""
    chosen: bool = False
    """Whether this candidate is exported."""


class LayerChange(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Effect of quantizing one layer on the predictions for reference translations."""

    kl_divergence: float
    """Mean Kullback-Leibler divergence of the next-token distribution from that of fp32, in nats."""
    nll_increase: float
    """Increase of the mean negative log-likelihood of the reference tokens, in nats; may be negative by chance."""


class Sensitivity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One layer in one precision."""

    layer: str
    """Name of the layer."""
    precision: Precision
    """Lowest precision of its operators."""
    change: LayerChange
    """Effect on the predictions, with all other layers in fp32."""
    snr_db: float | None
    """Signal-to-noise ratio of the weight."""
    bytes: Number
    """Size of the weight, in bytes."""
    fp32_bytes: Number
    """Size in fp32, in bytes."""


class Choice(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """All candidates with their measurements, and how they were measured."""

    chosen: str
    """Name of the chosen candidate."""
    max_bleu_drop: float
    """Quality budget, in BLEU."""
    optimise: Objective
    """What is minimized within the budget."""
    candidates: list[Measured]
    """All candidates, fp32 first."""
    remarks: list[str]
    """Notes on what the measurements alone do not show, one sentence each."""
    text: str
    """The evaluation text."""
    sentences: Number
    """Number of sentences translated."""
    too_long: Number
    """Number of sentences skipped because they have more tokens than the model accepts."""
    beam_size: Number
    """Hypotheses kept per sentence, for both quality and latency."""
    threads: Number
    """CPU threads per operator; 0 uses every available CPU."""
    bleu_signature: str
    """sacreBLEU's signature of the BLEU scores."""
    chrf_signature: str
    """sacreBLEU's signature of the chrF2 scores."""
    machine: str
    """Processor and system."""
    engine: str
    """The engine and its version."""
    clock: str
    """Clock used to measure latencies."""
    noise: float
    """Relative difference between repeated latency measurements."""
    tie: float
    """Relative difference below which latencies are considered equal."""
    previous: str | None
    """Previous choice with the same settings, kept unless another candidate is clearly better; ``None`` if there is no
    previous choice."""
    sensitivity: dict[Precision, list[Sensitivity]]
    """All layers, most sensitive first, for each precision that has mixed candidates."""
    failed: dict[str, str] = {}
    """Candidates that could not be built or run, with the reason."""
