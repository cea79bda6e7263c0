"""Measurements of a server for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edgeformer_server.queue.batching import BatchReport

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All measurements of a process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.requests = counter("edgeformer_requests", "Requests.", ["path", "status"])
        self.latency = histogram("edgeformer_request_seconds", "Time to answer a request.", ["path"], buckets=_SECONDS)
        self.in_flight = gauge("edgeformer_requests_in_flight", "Requests being answered.")
        self.queue = gauge("edgeformer_queue_sentences", "Sentences that wait.", ["model"])
        self.batch_size = histogram("edgeformer_batch_sentences", "Sentences of a batch.", ["model"], buckets=_SIZES)
        self.batch_requests = histogram("edgeformer_batch_requests", "Requests of a batch.", ["model"], buckets=_SIZES)
        self.batch_seconds = histogram(
            "edgeformer_batch_seconds", "Time to translate a batch.", ["model"], buckets=_SECONDS
        )
        self.waiting = histogram(
            "edgeformer_queue_seconds", "Time that the oldest request of a batch waited.", ["model"], buckets=_SECONDS
        )
        self.tokens = counter("edgeformer_tokens", "Tokens read and written.", ["model", "side"])

    def add_batch(self, report: BatchReport) -> None:
        """Count a batch."""
        self.batch_size.labels(report.model).observe(report.sentences)
        self.batch_requests.labels(report.model).observe(report.requests)
        self.batch_seconds.labels(report.model).observe(report.seconds)
        self.waiting.labels(report.model).observe(report.waited)
        self.tokens.labels(report.model, "source").inc(report.source_tokens)
        self.tokens.labels(report.model, "target").inc(report.target_tokens)

    def text(self, queues: Mapping[str, int]) -> bytes:
        """All measurements in Prometheus' text format.

        Args:
            queues: number of sentences that wait for each model.
        """
        for model, length in queues.items():
            self.queue.labels(model).set(length)
        return generate_latest(self.registry)
