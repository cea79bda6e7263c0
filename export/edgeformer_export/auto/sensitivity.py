"""Measures how much the model's predictions change when a single layer is quantized."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from edgeformer_export.auto.measurements import Measurements
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.quantize.assignment import assign, precision_of, stored
from edgeformer_export.quantize.calibration import batches
from edgeformer_export.quantize.layers import Layer
from edgeformer_export.sample import spread
from edgeformer_export.weights import open_graph
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.choice import LayerChange, Sensitivity
from edgeformer_runtime.decoding.forced_steps import Pair, forced_batch
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.selfcheck.inner_graphs import InnerGraph, Values, run_decoder, run_encoder

PAIRS = 64
"""Number of pairs from the run's sample to measure on; activations are calibrated on these and others."""


def measure_sensitivity(
    model_graphs: ModelGraphs,
    precision: Precision,
    measurements: Measurements,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[Sensitivity]:
    """Measure every layer of a model, the most sensitive first.

    Args:
        model_graphs: the model.
        precision: the bundle's precision; that of a layer follows from it by
            :func:`~edgeformer_export.quantize.assignment.precision_of`.
        measurements: stores the results, so that no layer is measured twice.
        progress: called with the fraction of layers done.
    """
    probe, results = _Probe(model_graphs, precision), []
    layers = model_graphs.optimized(precision).layers
    for number, layer in enumerate(layers, 1):
        lowest = precision_of(layer.uses[-1], precision)
        each = "+".join(dict.fromkeys(precision_of(use, precision) for use in layer.uses))
        change = measurements.measured(f"sensitivity {each} {layer.name}", LayerChange, partial(probe.measure, layer))
        snr_db, nbytes = stored(layer, lowest, model_graphs.rounding)
        results.append(
            Sensitivity(
                layer=layer.name,
                precision=lowest,
                change=change,
                snr_db=snr_db,
                bytes=nbytes,
                fp32_bytes=layer.rows.nbytes,
            )
        )
        progress(number / len(layers))
    return sorted(results, key=lambda entry: (-entry.change.kl_divergence, entry.layer))


class _Probe:
    """The fp32 graphs and their predictions, opened when the first layer is measured."""

    def __init__(self, model_graphs: ModelGraphs, precision: Precision) -> None:
        self._model_graphs, self._precision = model_graphs, precision
        pairs: list[Pair] = [(pair.source, pair.target) for pair in spread(model_graphs.pairs, PAIRS)]
        self._batches = [forced_batch(batch, model_graphs.special) for batch in batches(pairs)]

    def measure(self, layer: Layer) -> LayerChange:
        """Quantize a layer and compare predictions."""
        model_graphs = self._model_graphs
        optimized = model_graphs.optimized(self._precision)
        everything = assign(optimized.layers, self._precision, {})
        alone = {
            file: {use.name: everything[file][use.name] for use in layer.uses if use.file == file}
            for file in optimized.graphs
        }
        graphs = model_graphs.quantized(self._precision, alone).graphs
        opened = {
            file: open_graph(file, graphs[file]) if alone[file] else reference
            for file, reference in self._graphs.items()
        }
        divergence = nll = 0.0
        positions = 0
        for number, batch in enumerate(self._batches):
            reference = self._predictions[number]
            encoded = self._encoded[number]
            if alone[contract.ENCODER_FILE]:
                encoded = run_encoder(opened[contract.ENCODER_FILE], batch.source, batch.source_length)
            decoded = run_decoder(opened[contract.DECODER_FILE], encoded, model_graphs.traced.table, batch.target)
            for (rows, labels, expected), outputs in zip(reference, decoded, strict=True):
                actual = log_softmax(outputs[contract.LOGITS].numpy()[rows])
                divergence += float((np.exp(expected) * (expected - actual)).sum())
                at = np.arange(len(rows)), labels
                nll += float((expected[at] - actual[at]).sum())
                positions += len(rows)
        return LayerChange(kl_divergence=max(0.0, divergence / positions), nll_increase=nll / positions)

    @cached_property
    def _graphs(self) -> dict[str, InnerGraph]:
        graphs = self._model_graphs.optimized(self._precision).graphs
        return {file: open_graph(file, graph) for file, graph in graphs.items()}

    @cached_property
    def _encoded(self) -> list[Values]:
        encoder = self._graphs[contract.ENCODER_FILE]
        return [run_encoder(encoder, batch.source, batch.source_length) for batch in self._batches]

    @cached_property
    def _predictions(self) -> list[list[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float32]]]]:
        """Compute, for each batch and position, the rows whose next token is chosen, these tokens, and the
        log-probabilities ``(rows, V)``."""
        decoder, table = self._graphs[contract.DECODER_FILE], self._model_graphs.traced.table
        given = len(self._model_graphs.special.prefix)
        predictions = []
        for batch, encoded in zip(self._batches, self._encoded, strict=True):
            # (N, T): the token that follows each input token
            labels = np.pad(batch.target[:, 1:], ((0, 0), (0, 1)))
            labels[np.arange(len(labels)), batch.target_length - 1] = self._model_graphs.special.eos
            of_batch = []
            for position, outputs in enumerate(run_decoder(decoder, encoded, table, batch.target)):
                rows = np.flatnonzero((given <= position) & (position < batch.target_length))
                of_batch.append((rows, labels[rows, position], log_softmax(outputs[contract.LOGITS].numpy()[rows])))
            predictions.append(of_batch)
        return predictions


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute log-probabilities ``(R, V)``."""
    shifted: NDArray[np.float32] = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return shifted
