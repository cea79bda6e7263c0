"""Times the operators that the exporter chooses among, by number of rows: matrix products and norms.

Usage: ``python -m edgeformer_bench.studies.operators --width 512 --out-width 2048``
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from edgeformer_bench.timer import Timing, alternate, timed
from edgeformer_export.passes.norms import FuseSkipNorm, VectorNorm
from edgeformer_export.passes.patterns import constant
from edgeformer_export.quantize.blocks import QuantizeBlocks
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.static import QuantizeStatic
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.selfcheck.machine import machine_summary

ROWS = (1, 2, 4, 8, 32)
RANDOM = np.random.default_rng(1)


@click.command()
@click.option("--width", default=512, show_default=True, type=click.IntRange(16), help="Inputs of a product or norm.")
@click.option("--out-width", default=2048, show_default=True, type=click.IntRange(16), help="Outputs of a product.")
@click.option("--repeat", default=300, show_default=True, type=click.IntRange(1), help="Measured rounds.")
def main(width: int, out_width: int, repeat: int) -> None:
    """Time each form, made by the exporter's own passes: medians of alternating rounds on one thread."""
    bounds = {"x": QuantizationRange(scale=8 / 255, zero_point=128)}
    products: dict[str, list[ir.passes.PassBase]] = {
        "fp32": [],
        "int8": [QuantizeStatic(bounds, "ort", frozenset())],
        "int8-block": [QuantizeBlocks(8)],
        "int4": [QuantizeBlocks(4)],
    }
    norms: dict[str, list[ir.passes.PassBase]] = {
        "SkipLayerNormalization": [FuseSkipNorm()],
        "vector operators": [VectorNorm()],
    }
    _measure(f"Product {width} x {out_width}, µs", lambda: _product(width, out_width), products, width, repeat)
    _measure(f"Residual sum and norm of {width}, µs", lambda: _norm(width), norms, width, repeat)
    console().print(machine_summary())


def _measure(
    title: str, build: Callable[[], ir.Model], forms: dict[str, list[ir.passes.PassBase]], width: int, repeat: int
) -> None:
    sessions = {}
    for name, passes in forms.items():
        model = build()
        for graph_pass in passes:
            graph_pass(model)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        sessions[name] = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    rows = table(title, "rows", *forms)
    for count in ROWS:
        feed = {"x": RANDOM.normal(size=(count, 1, width)).astype(np.float32)}
        turns = {name: timed(partial(session.run, None, feed)) for name, session in sessions.items()}
        results = alternate(turns, rounds=repeat)
        rows.add_row(str(count), *(f"{1000 * Timing.of(seconds).median_ms:.0f}" for seconds in results.values()))
    console().print(rows)


def _product(width: int, out_width: int) -> ir.Model:
    graph = _graph(width)
    weight = RANDOM.normal(size=(width, out_width)).astype(np.float32)
    return _finish(graph, [ir.node("MatMul", [graph.inputs[0], constant(graph, "weight", weight)])], out_width)


def _norm(width: int) -> ir.Model:
    graph, ones, zeros = _graph(width), np.ones(width, np.float32), np.zeros(width, np.float32)
    x = graph.inputs[0]
    scaled = ir.node("Neg", [x])
    added = ir.node("Add", [x, scaled.outputs[0]])
    for node in (scaled, added):
        node.outputs[0].shape, node.outputs[0].type = x.shape, x.type
    inputs = [added.outputs[0], constant(graph, "gamma", ones), constant(graph, "beta", zeros)]
    return _finish(graph, [scaled, added, ir.node("LayerNormalization", inputs)], width)


def _graph(width: int) -> ir.Graph:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["R", 1, width]))
    return ir.Graph([x], [], nodes=[], opset_imports={"": 20}, name="operators")


def _finish(graph: ir.Graph, nodes: list[ir.Node], width: int) -> ir.Model:
    for index, node in enumerate(nodes):
        node.outputs[0].name = f"value.{index}"
    y = nodes[-1].outputs[0]
    y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["R", 1, width])
    graph.extend(nodes)
    graph.outputs.append(y)
    return ir.Model(graph, ir_version=10)


if __name__ == "__main__":
    main()
