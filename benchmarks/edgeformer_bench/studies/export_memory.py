"""Measures memory and time of exports, stage by stage, of models with random weights in the sizes of published ones.

Usage: ``python -m edgeformer_bench.studies.export_memory opus bart --precision int8 --folder DIR``
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.engine.memory import peak_memory_mb
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.selfcheck.machine import machine_summary

if TYPE_CHECKING:
    from edgeformer.model.base import EncoderDecoder
    from edgeformer_runtime.bundle.manifest import SpecialTokens

_OPUS = {"d_model": 512, "d_ff": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6, "activation": "silu"}
_BART = {"d_model": 768, "d_ff": 3072, "heads": 12, "positions": "learned", "scale_embeddings": False}
_NLLB = {"d_model": 1024, "d_ff": 4096, "heads": 16, "encoder_layers": 12, "decoder_layers": 12, "norm": "pre"}
SIZES: dict[str, tuple[int, dict[str, Any]]] = {
    "tiny": (1_000, {"d_model": 32, "d_ff": 64, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}),
    "opus": (58_101, {**_OPUS, "max_source_length": 512, "max_target_length": 512}),
    "bart": (
        50_265,
        {**_BART, "max_source_length": 1024, "max_target_length": 1024, "activation": "gelu", "embedding_norm": True},
    ),
    "nllb": (256_206, {**_NLLB, "max_source_length": 1024, "max_target_length": 1024}),
}
"""Vocabulary and settings of models such as OPUS-MT, BART base and NLLB-200 distilled 600M; ``tiny`` shows what
does not grow with the model."""
LINES = 64
LENGTH = 20
"""Target position at which the end token becomes the most probable one."""
ROWS = 64
"""Random sentences whose features show the model's positions."""


@dataclass(frozen=True)
class StageMemory:
    """What one stage of an export took."""

    stage: str
    seconds: float
    peak_mb: float
    """Peak of resident memory, mapped files included, in 10^6 bytes."""


def make_run(folder: Path, size: str) -> None:
    """Write a run folder with random weights.

    Args:
        folder: the folder to write.
        size: one of :data:`SIZES`.
    """
    import torch

    from edgeformer.config import TokenizerConfig, recipe_from_tree
    from edgeformer.data.vocabulary import train_tokenizers
    from edgeformer.train.checkpoints.weights import save_weights
    from edgeformer.train.run import Run, RunInfo

    vocab_size, settings = SIZES[size]
    random = Random(0)
    words = [f"w{number}" for number in range(vocab_size - 4)]
    tokenizers = train_tokenizers([(" ".join(words), "")], TokenizerConfig(kind="word"))
    lines = [" ".join(random.choices(words, k=random.randint(4, 40))) for _ in range(LINES)]
    model_section = {"family": "transformer", "tied_embeddings": "all", "output_bias": True, **settings}
    recipe = recipe_from_tree({"model": model_section, "tokenizer": {"kind": "imported"}}, size)
    torch.manual_seed(0)
    info = RunInfo(status="imported")
    run = Run.create(folder, recipe, *tokenizers, [(line, line) for line in lines], info)
    model = run.build_model().eval()
    for name, weight in model.named_parameters():
        if name.startswith("decoder_layers") and weight.ndim == 2:
            weight.data *= 0.3  # so that outputs depend on the position, not on the last token only
    _let_end(model, run.special)
    save_weights(model, run.model_path)
    run.update(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
    )


def _let_end(model: EncoderDecoder, special: SpecialTokens) -> None:
    """Make the end token more likely from one position to the next, and the best one at about :data:`LENGTH`."""
    import torch

    from edgeformer.model.session import TorchSession

    random, length = np.random.default_rng(0), np.full(ROWS, LENGTH)
    source = random.integers(4, model.source_vocab_size, (ROWS, LENGTH))
    state, target = TorchSession(model, special).start(source, length), [np.full(ROWS, special.bos)]
    for _ in range(2 * LENGTH):  # greedy search, which never ends
        logits = state.step(target[-1])
        logits[:, [*special.suppress, special.eos]] = -np.inf
        target.append(logits.argmax(axis=1))
    with torch.no_grad():
        batch = map(torch.from_numpy, (source, length, np.stack(target, 1)))
        features = model.features(*batch)  # (N, T, D)
        position = torch.arange(float(features.shape[1])).expand(ROWS, -1).flatten() / LENGTH - 1
        x = features.flatten(0, 1)
        best = model.projection(x[::LENGTH]).max(dim=1).values.mean()
        # Linear regression of the position
        weight = torch.linalg.solve(x.T @ x + torch.eye(x.shape[1]), x.T @ position)
        model.projection.weight[special.eos] = 3 * weight * best
        model.projection.bias[special.eos] = best


def measure(run: Path, out: Path, precision: Precision) -> list[StageMemory]:
    """Export a run in this process; the first entry is the memory of its imports.

    Args:
        run: the run.
        out: the bundle to write.
        precision: the precision of the bundle.
    """
    import onnxscript  # noqa: F401  # imported by the tracer when it is first used
    import torch.onnx._internal.exporter._core  # noqa: F401

    from edgeformer.train.run import Run
    from edgeformer_export.export import export_run

    stages: list[StageMemory] = []
    current, begin = "imports", time.perf_counter()

    def next_stage(name: str) -> None:
        nonlocal current, begin
        stages.append(StageMemory(current, time.perf_counter() - begin, peak_memory_mb() or 0.0))
        _reset_peak()
        current, begin = name, time.perf_counter()

    def progress(stage: str, fraction: float) -> None:
        del fraction
        if stage != current:
            next_stage(stage)

    _reset_peak()
    next_stage("load")
    export_run(Run.open(run), out, precision=precision, overwrite=True, force=precision != "fp32", progress=progress)
    next_stage("")
    return stages


def _reset_peak() -> None:
    """Let the system measure this process's peak memory from now on."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _in_process(run: Path, out: Path, precision: Precision) -> list[StageMemory]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, run, out, precision).result()


@click.command(cls=Command)
@click.argument("sizes", nargs=-1, required=True, type=click.Choice([*SIZES]))
@click.option("--precision", default="int8", show_default=True, type=click.Choice([*PRECISIONS]), help="Precision.")
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="Folder of runs and bundles.")
def main(sizes: Sequence[str], precision: Precision, folder: Path) -> None:
    """Export models of SIZES with random weights, which are made in the folder if they are not there."""
    summary = table(
        f"Export in {precision}", "size", "parameters", "minutes", "peak MB", "above imports MB", "bytes each"
    )
    for size in sizes:
        run, out = folder / size, folder / f"{size}.{precision}"
        if not run.exists():
            make_run(run, size)
        shutil.rmtree(out, ignore_errors=True)
        stages = _in_process(run, out, precision)
        rows = table(f"{size}, {precision}", "stage", "seconds", "peak MB")
        for stage in stages:
            rows.add_row(stage.stage, f"{stage.seconds:.1f}", f"{stage.peak_mb:.0f}")
        console().print(rows)
        parameters = msgspec.json.decode((run / "run.json").read_bytes())["parameters"]
        peak = max(stage.peak_mb for stage in stages)
        above = peak - stages[0].peak_mb
        minutes = sum(stage.seconds for stage in stages) / 60
        cells = f"{parameters:,}", f"{minutes:.1f}", f"{peak:.0f}", f"{above:.0f}", f"{1e6 * above / parameters:.1f}"
        summary.add_row(size, *cells)
    console().print(summary)
    console().print(machine_summary())


if __name__ == "__main__":
    main()
