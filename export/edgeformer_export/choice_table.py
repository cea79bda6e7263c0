"""A precision choice as text, for the terminal, the report page and the model card."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_runtime.bundle.choice import Choice, Measured, Sensitivity
from edgeformer_runtime.interval import Interval

QUALITY_COLUMNS = ("candidate", "BLEU", "drop", "95 % interval", "same", "MB", "admissible")
LATENCY_COLUMNS = ("candidate", "median ms", "95 % interval", "ratio", "95 % interval", "result")
SENSITIVITY_COLUMNS = ("layer", "precision", "KL divergence", "NLL increase", "SNR dB", "kB", "fp32 kB")


def quality_rows(choice: Choice) -> list[tuple[str, ...]]:
    """Return a row for each candidate, with the columns :data:`QUALITY_COLUMNS`."""
    return [
        (
            candidate.name,
            f"{candidate.quality.bleu:.2f}",
            f"{candidate.quality.drop:+.2f}",
            "–" if candidate is choice.candidates[0] else _between(candidate.quality.drop_interval, "+.2f"),
            f"{candidate.quality.identical / choice.sentences:.0%}",
            f"{candidate.bytes / 1e6:.2f}",
            "yes" if candidate is choice.candidates[0] else _admissible(candidate),
        )
        for candidate in choice.candidates
    ]


def latency_rows(choice: Choice) -> list[tuple[str, ...]]:
    """Return a row for each candidate, with the columns :data:`LATENCY_COLUMNS`."""
    shortest = min(candidate.latency.median_ms for candidate in choice.candidates)
    milliseconds = f".{2 if shortest < 10 else 1 if shortest < 100 else 0}f"
    return [
        (
            candidate.name,
            f"{candidate.latency.median_ms:{milliseconds}}",
            _between(candidate.latency.median_interval, milliseconds),
            "–" if candidate.latency.relative is None else f"{candidate.latency.relative:.2f}",
            _between(candidate.latency.relative_interval, ".2f"),
            _result(candidate),
        )
        for candidate in choice.candidates
    ]


def _between(interval: Interval | None, spec: str) -> str:
    return "–" if interval is None else f"{interval:{spec}}"


def _admissible(candidate: Measured) -> str:
    if candidate.refused:
        return "no, refused"
    if not candidate.in_budget:
        return "no, over budget"
    interval = candidate.quality.drop_interval
    return "yes, no worse" if interval is not None and interval.low <= 0 else "yes"


def _result(candidate: Measured) -> str:
    if candidate.chosen:
        return "chosen"
    if not candidate.admissible:
        return "–"
    return "Pareto" if candidate.on_front else "dominated"


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
    """Format a number of threads: ``1 thread``, ``2 threads``; 0 means as many as are useful."""
    return {0: "as many threads as are useful", 1: "1 thread"}.get(threads, f"{threads} threads")


def quality_notes(choice: Choice) -> list[str]:
    """Explain how quality was measured and what is admissible."""
    return [
        f"Quality: {choice.text}, {choice.sentences:,} sentences, {_search(choice)}; BLEU {choice.bleu_signature}, "
        f"chrF {choice.chrf_signature}. `drop` is fp32's BLEU minus this one, with its 95 % confidence interval by "
        "paired bootstrap; `same` is the share of sentences with fp32's translation.",
        f"Admissible: candidates whose measured drop is at most {choice.max_bleu_drop:g}, unless they are refused. "
        "They are `no worse` than fp32 if the interval contains 0 or is below it.",
        "MB is 10^6 bytes of graphs, weights and tokenizers. `int4+2`, for example, is int4 with its two most "
        "sensitive layers kept higher: int4 as int8-block, others as fp32.",
    ]


def latency_notes(choice: Choice) -> list[str]:
    """Explain how latency was measured and how the choice was made."""
    what = "fast" if choice.optimise == "latency" else "small"
    return [
        f"Latency: {choice.clock} per sentence, one at a time, {_search(choice)}, {threads_in_words(choice.threads)}; "
        f"median of {choice.timed_sentences} sentences in {choice.rounds} alternating rounds. `ratio` is the median "
        "ratio to the time of the fastest admissible candidate for the same sentence in the same round. Intervals are "
        f"95 % confidence intervals by bootstrap over rounds and sentences. {choice.engine} on {choice.machine}.",
        "Two latencies are equal if the interval of their ratio contains 1, or if the ratio differs from 1 by at most "
        f"{100 * choice.tie:.0f} %. `dominated`: another admissible candidate is better in quality, latency or size, "
        "and not worse in another of them; `Pareto`: none is. Inadmissible candidates do not count.",
        f"Rule: the {what}est admissible candidate. Of those equally {what}, the ones with a significantly lower BLEU "
        "than the best are dropped, and of the rest the smallest is chosen, then the one with the smallest drop, then "
        "the first by name.",
        f"Chosen: {choice.chosen}. {choice.reason}",
    ]


def _search(choice: Choice) -> str:
    return "greedy search" if choice.beam_size == 1 else f"beam {choice.beam_size}"
