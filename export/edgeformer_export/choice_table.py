"""Tables of a precision choice as text, for the terminal, the report page and the model card."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_runtime.bundle.choice import Choice, Measured, Sensitivity

COLUMNS = ("candidate", "BLEU", "drop", "±", "same", "ms", "MB", "Pareto", "budget")
SENSITIVITY_COLUMNS = ("layer", "precision", "KL divergence", "NLL increase", "SNR dB", "kB", "fp32 kB")


def rows(choice: Choice) -> list[tuple[str, ...]]:
    """Return a row for each candidate, with the columns :data:`COLUMNS`."""
    return [
        (
            candidate.name,
            f"{candidate.quality.bleu:.2f}",
            f"{candidate.quality.drop:+.2f}",
            f"{candidate.quality.drop_error:.2f}",
            f"{candidate.quality.identical / choice.sentences:.0%}",
            f"{candidate.latency.mean_ms:.2f}",
            f"{candidate.bytes / 1e6:.2f}",
            "yes" if candidate.on_front else "",
            _verdict(candidate),
        )
        for candidate in choice.candidates
    ]


def _verdict(candidate: Measured) -> str:
    if candidate.chosen:
        return "chosen"
    if candidate.refused:
        return "never"
    return "yes" if candidate.in_budget else "no"


def sensitivity_rows(order: Sequence[Sensitivity]) -> list[tuple[str, ...]]:
    """Return a row for each layer, with the columns :data:`SENSITIVITY_COLUMNS`."""
    return [
        (
            layer.layer,
            layer.precision,
            f"{layer.change.kl_divergence:.2e}",
            f"{layer.change.nll_increase:+.1e}",
            "" if layer.snr_db is None else f"{layer.snr_db:.1f}",
            f"{layer.bytes / 1e3:.1f}",
            f"{layer.fp32_bytes / 1e3:.1f}",
        )
        for layer in order
    ]


def threads_in_words(threads: int) -> str:
    """Format a number of threads: ``1 thread``, ``2 threads``; 0 means every available CPU."""
    return {0: "all CPUs", 1: "1 thread"}.get(threads, f"{threads} threads")


def explanation(choice: Choice) -> list[str]:
    """Explain what the columns mean and how the choice was made, in a few sentences each."""
    search = "greedy search" if choice.beam_size == 1 else f"beam {choice.beam_size}"
    objective = "the fastest" if choice.optimise == "latency" else "the smallest"
    return [
        f"Quality: {choice.text}, {choice.sentences:,} sentences, {search}; BLEU {choice.bleu_signature}, chrF "
        f"{choice.chrf_signature}. `drop` is fp32's BLEU minus this one, `±` half the width of its 95 % confidence "
        "interval (paired bootstrap), `same` the share of sentences with fp32's translation.",
        f"Latency: {choice.clock} per sentence, one at a time, {search}, {threads_in_words(choice.threads)}, in "
        "alternating rounds; mean over the sentences of the fastest round. "
        f"{choice.engine} on {choice.machine}.",
        f"Choice: {objective} of the candidates whose BLEU drops by at most {choice.max_bleu_drop:g}. Latencies within "
        f"{choice.tie:.0%} of each other are equal (measured noise {choice.noise:.1%}); on a tie the smallest wins, "
        "then the one with the smallest drop, then the first by name."
        + (f" Chosen before: {choice.previous}, which is kept within twice that." if choice.previous else ""),
        "MB is 10^6 bytes of graphs, weights and tokenizers. `int4+2`, for example, is int4 with its two most "
        "sensitive layers kept higher: int4 as int8-block, others as fp32.",
    ]
