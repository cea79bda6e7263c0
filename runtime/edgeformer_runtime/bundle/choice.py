"""What ``edgeformer export --precision auto`` measured, and which candidate it chose."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from edgeformer_runtime.interval import Interval
from edgeformer_runtime.limits import Number
from edgeformer_runtime.precision import Precision

Objective = Literal["latency", "size"]


class Latency(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Time per sentence when sentences are translated one at a time."""

    median_ms: float
    """Median over all sentences and rounds."""
    median_interval: Interval | None = None
    """Confidence interval of the median."""
    relative: float | None = None
    """Median of the ratios to the time of the fastest admissible candidate for the same sentence in the same round.
    Candidates are compared by it."""
    relative_interval: Interval | None = None
    """Confidence interval of that ratio; ``None`` for that candidate itself."""
    p25_ms: float
    """First quartile."""
    p75_ms: float
    """Third quartile."""
    differ_alone: Number
    """Number of sentences whose translation differs when translated alone rather than in a batch."""
    mean_ms: float | UnsetType = UNSET
    """Mean over the sentences; only in bundles of earlier versions, which lack both intervals and the ratio."""


class Quality(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Scores of one candidate on the common evaluation text."""

    bleu: float
    """Corpus BLEU, 0 … 100."""
    chrf: float
    """chrF2, 0 … 100."""
    drop: float
    """BLEU of fp32 minus BLEU of this candidate."""
    drop_interval: Interval | None = None
    """Confidence interval of the drop, by paired bootstrap; ``None`` in bundles of earlier versions."""
    identical: Number
    """Number of sentences with the same translation as fp32."""
    drop_error: float | UnsetType = UNSET
    """Half the width of the drop's confidence interval; only in bundles of earlier versions."""


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
    """Why the candidate is inadmissible whatever its quality, as a sentence; empty if it is not."""
    in_budget: bool = False
    """Whether the measured drop is within the budget."""
    on_front: bool = False
    """Whether the candidate is admissible and no other admissible candidate is better in quality, latency or size
    without being worse in another of them. Quality and latency differ only if they differ significantly. The chosen
    candidate is always on the front."""
    chosen: bool = False
    """Whether this candidate is exported."""

    @property
    def admissible(self) -> bool:
        """Whether the candidate may be chosen."""
        return self.in_budget and not self.refused


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
    reason: str = ""
    """Why it was chosen, in a few sentences; empty in bundles of earlier versions."""
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
    """CPU threads per operator; 0 for as many as a model of its size has use for."""
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
    rounds: Number = 0
    """Number of times that each sentence was timed; 0 in bundles of earlier versions."""
    timed_sentences: Number = 0
    """Number of sentences timed; 0 in bundles of earlier versions."""
    tie: float
    """Relative difference up to which latencies are equal, however significant it is."""
    previous: str | None
    """Previous choice with the same settings, kept unless another candidate is clearly better; ``None`` if there is no
    previous choice."""
    sensitivity: dict[Precision, list[Sensitivity]]
    """All layers, most sensitive first, for each precision that has mixed candidates."""
    failed: dict[str, str] = {}
    """Candidates that could not be built or run, with the reason."""
    noise: float | UnsetType = UNSET
    """Relative difference between repeated latency measurements; only in bundles of earlier versions."""
