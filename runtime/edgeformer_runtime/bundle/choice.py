"""What ``edgeformer export --precision auto`` measured, and which candidate it took."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeformer_runtime.precision import Precision

Objective = Literal["latency", "size"]


class Latency(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Time per sentence, translated one at a time."""

    mean_ms: float
    """Mean over the sentences, of the fastest of all rounds of each; candidates are compared by it."""
    median_ms: float
    """Median over them."""
    p25_ms: float
    """First quartile."""
    p75_ms: float
    """Third quartile."""
    differ_alone: int
    """Sentences whose translation differs when they are translated alone rather than in a batch."""


class Quality(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Scores of one candidate on the text that all are compared on."""

    bleu: float
    """Corpus BLEU, 0 … 100."""
    chrf: float
    """chrF2, 0 … 100."""
    drop: float
    """BLEU of fp32 minus this BLEU."""
    drop_error: float
    """Half the width of the drop's 95 % confidence interval, by paired bootstrap."""
    identical: int
    """Sentences translated as by fp32."""


class Measured(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One candidate with all its figures."""

    name: str
    """What tables call it."""
    precision: Precision
    """The precision that it is exported with."""
    kept: dict[str, Precision]
    """Layers that are kept in another precision."""
    quality: Quality
    """On the text."""
    latency: Latency
    """On this machine."""
    bytes: int
    """Bytes of its files."""
    refused: str = ""
    """Why it is never chosen, as a sentence; empty if it may be."""
    in_budget: bool = False
    """Whether its drop is within the budget."""
    on_front: bool = False
    """Whether no other candidate is at least as good in quality, latency and size, and better in one of them."""
    chosen: bool = False
    """Whether it is the one to export."""


class LayerChange(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What one quantized layer does to the predictions of reference translations."""

    kl_divergence: float
    """Mean Kullback-Leibler divergence of the next token's distribution from that of fp32, in nats."""
    nll_increase: float
    """Increase of the mean negative log-likelihood of the reference tokens, in nats; may be below zero by chance."""


class Sensitivity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One layer in one precision."""

    layer: str
    """Its name."""
    precision: Precision
    """The lowest precision that one of its operators gets."""
    change: LayerChange
    """What it does to the predictions, with all other layers in fp32."""
    snr_db: float | None
    """Signal-to-noise ratio of the weight."""
    bytes: int
    """Bytes of the weight."""
    fp32_bytes: int
    """Bytes in fp32."""


class Choice(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """All candidates with their figures, and how they were measured."""

    chosen: str
    """Name of the candidate that was taken."""
    max_bleu_drop: float
    """Budget, in BLEU."""
    optimise: Objective
    """What is minimized within the budget."""
    candidates: list[Measured]
    """Figures, fp32 first."""
    remarks: list[str]
    """What the figures do not show by themselves, one sentence each."""
    text: str
    """What was translated."""
    sentences: int
    """Sentences translated."""
    too_long: int
    """Sentences left out because the model does not take that many tokens."""
    beam_size: int
    """Hypotheses kept, for quality and for latency."""
    threads: int
    """CPU threads per operator; 0 for every available CPU."""
    bleu_signature: str
    """sacreBLEU's signature."""
    chrf_signature: str
    """sacreBLEU's signature."""
    machine: str
    """Processor and system."""
    engine: str
    """The engine and its version."""
    clock: str
    """What latencies are measured with."""
    noise: float
    """Relative difference between latencies that were measured twice."""
    tie: float
    """Relative difference below which latencies are equal."""
    previous: str | None
    """What was chosen before with the same settings, which stays unless another is clearly better; ``None`` if nothing
    was."""
    sensitivity: dict[Precision, list[Sensitivity]]
    """All layers, the most sensitive first, for each precision that has mixed candidates."""
