"""A choice of precision as rows of text, for the terminal, the page and the model card."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_export.auto.choice import Choice, Measured
from edgeformer_export.auto.sensitivity import Sensitivity

COLUMNS = ("candidate", "BLEU", "drop", "±", "same", "ms", "MB", "Pareto", "budget")
SENSITIVITY_COLUMNS = ("layer", "precision", "KL divergence", "more nats a token", "SNR dB", "kB", "fp32 kB")


def rows(choice: Choice) -> list[tuple[str, ...]]:
    """A row for each candidate, under :data:`COLUMNS`."""
    return [
        (
            one.name,
            f"{one.quality.bleu:.2f}",
            f"{one.quality.drop:+.2f}",
            f"{one.quality.drop_error:.2f}",
            f"{one.quality.identical / choice.sentences:.0%}",
            f"{one.latency.mean_ms:.2f}",
            f"{one.bytes / 1e6:.2f}",
            "yes" if one.on_front else "",
            _verdict(one),
        )
        for one in choice.candidates
    ]


def _verdict(one: Measured) -> str:
    if one.chosen:
        return "chosen"
    if one.refused:
        return "never"
    return "yes" if one.in_budget else "no"


def sensitivity_rows(order: Sequence[Sensitivity]) -> list[tuple[str, ...]]:
    """A row for each layer, under :data:`SENSITIVITY_COLUMNS`."""
    return [
        (
            one.layer,
            one.precision,
            f"{one.change.kl_divergence:.2e}",
            f"{one.change.nll_increase:+.1e}",
            "" if one.snr_db is None else f"{one.snr_db:.1f}",
            f"{one.bytes / 1e3:.1f}",
            f"{one.fp32_bytes / 1e3:.1f}",
        )
        for one in order
    ]


def explanation(choice: Choice) -> list[str]:
    """What the columns are, and how the choice was made; a sentence or two each."""
    threads = {0: "all threads", 1: "one thread"}.get(choice.threads, f"{choice.threads} threads")
    search = "greedy search" if choice.beam_size == 1 else f"beam {choice.beam_size}"
    by = "the fastest" if choice.optimise == "latency" else "the smallest"
    return [
        f"Quality: {choice.text}, {choice.sentences:,} sentences, {search}; BLEU {choice.bleu_signature}, chrF "
        f"{choice.chrf_signature}. `drop` is fp32's BLEU less this one, `±` half of the interval in which it "
        "lies with 95 % certainty (paired bootstrap), `same` the share of sentences with fp32's translation.",
        f"Latency: {choice.clock} of one sentence at a time, {search}, {threads}, candidates in turn again and again; "
        f"mean over sentences of the fastest round. {choice.engine} on {choice.machine}.",
        f"Choice: of the candidates whose BLEU drops by {choice.max_bleu_drop:g} or less, {by}. Latencies that differ "
        f"by less than {choice.tie:.0%} are equal (measured noise {choice.noise:.1%}); of equals the "
        "smallest, then the one with the smallest drop, then the first name."
        + (f" Chosen before: {choice.previous}, which stays within twice that." if choice.previous else ""),
        "MB is 10^6 bytes of graphs, weights and tokenizers. `int4+2` would be int4 with its two most sensitive layers "
        "kept higher: int4 as int8-block, others as fp32.",
    ]
