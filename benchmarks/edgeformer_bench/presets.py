"""Compares presets with random weights, which are as fast as trained models for a given length of the output:
``python -m edgeformer_bench.presets``, which is ``make bench``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import tokenizers
import torch

from edgeformer.config import recipe_from_tree
from edgeformer.data.dates import generate_dates
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.run.info import RunInfo
from edgeformer.run.weights import save_weights
from edgeformer_bench.commands import Command, command_line
from edgeformer_bench.compare import Comparison, PeerSelection, compare
from edgeformer_bench.latency import BenchmarkOptions
from edgeformer_bench.peers.base import ONNXRUNTIME, PEERS
from edgeformer_bench.tables import print_comparison
from edgeformer_export.export import export_run
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.cli.output import json_text, plural
from edgeformer_runtime.engines.cpus import available_cpus
from edgeformer_runtime.files import write_atomically
from edgeformer_runtime.precision import PRECISIONS

PRESETS = ("tiny", "edge", "base")
WORKLOADS = {"1x1": (1, 1), "1x4": (1, 4), "32x1": (32, 1), "32x4": (32, 4)}
"""Sentences per call and hypotheses kept, by name."""
ON_CPU = tuple(name for name, traits in PRECISIONS.items() if traits.optimized_for == "cpu")
EXPANSION = 1.5
"""Target tokens per source token."""
SENTENCES = 8
"""Random sentences that are translated at least, so that their outputs can be compared."""
TRAINED_TOKENS = 1000
TRAINED_PAIRS = 2000
"""Number of pairs that the tokenizer is trained on."""
SAMPLE_PAIRS = 4
"""Number of pairs that export uses for calibration and comparison; few, since random weights never end a sentence."""
MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH = 64, 96


def random_run(path: Path, preset: str, vocab_size: int) -> Run:
    """Make a run folder with random weights, as training on the embedded corpus would leave it.

    The corpus is too small for a large vocabulary, so the tokenizer is padded with entries that no text produces. These
    add to the sizes of the embedding and the output projection, and random sources use them.
    """
    tree = {
        "model": {
            "family": "transformer",
            "preset": preset,
            "max_source_length": MAX_SOURCE_LENGTH,
            "max_target_length": MAX_TARGET_LENGTH,
        },
        "tokenizer": {"vocab_size": TRAINED_TOKENS},
        "data": {"corpus": "dates-en-fr"},
    }
    recipe = recipe_from_tree(tree, "bench")
    pairs = generate_dates(size=TRAINED_PAIRS)
    tokenizer = filled(train_tokenizers(pairs, recipe.tokenizer)[0], vocab_size)
    sample = pairs[:SAMPLE_PAIRS]
    run = Run.create(path, recipe, tokenizer, tokenizer, sample=sample, info=RunInfo(status="finished"))
    torch.manual_seed(1)
    save_weights(sharpened(run.build_model()), run.model_path)
    return run


def sharpened(model: EncoderDecoder) -> EncoderDecoder:
    """Make random weights more similar to trained ones.

    The outputs of sublayers are scaled down by the square root of their number (Radford et al. 2019, section 2.3).
    Otherwise, the two best logits would be so close that no quantized model would pass the exporter's comparison. The
    rows of the padding and start tokens are zeros, so that no system chooses them, whether or not it suppresses them.
    """
    names = ("output.weight", "feed_forward.3.weight")
    added = [parameter for name, parameter in model.named_parameters() if name.endswith(names)]
    with torch.no_grad():
        for parameter in added:
            parameter.mul_(len(added) ** -0.5)
        for name, parameter in model.named_parameters():
            if name.endswith("embedding.tokens.weight"):
                parameter[[SpecialTokens().pad, SpecialTokens().bos]] = 0.0
    return model


def filled(tokenizer: tokenizers.Tokenizer, vocab_size: int) -> tokenizers.Tokenizer:
    """Return the tokenizer, padded with unused entries up to ``vocab_size``."""
    tree = json.loads(tokenizer.to_str())
    vocabulary = tree["model"]["vocab"]
    vocabulary |= {f"<unused {index}>": index for index in range(len(vocabulary), vocab_size)}
    return tokenizers.Tokenizer.from_str(json.dumps(tree))


def random_sources(random: np.random.Generator, count: int, length: int, vocab_size: int) -> list[list[int]]:
    """Draw random token ids of ``count`` sentences of ``length`` tokens, end token included."""
    special = SpecialTokens()
    sources = random.integers(max(special.eos, special.bos) + 1, vocab_size, size=(count, length))
    sources[:, -1] = special.eos
    rows: list[list[int]] = sources.tolist()
    return rows


def _several(name: str, kind: click.ParamType[Any], default: Sequence[Any], text: str) -> Callable[[Any], Any]:
    """Create an option that may be repeated."""
    help_text = f"{text}; may be repeated."
    return click.option(f"--{name}", name, multiple=True, type=kind, default=default, show_default=True, help=help_text)


@click.command(cls=Command)
@_several("preset", click.Choice(PRESETS), PRESETS[1:], "Size of the model")
@_several("precision", click.Choice(ON_CPU), ON_CPU, "Precision of our bundles")
@_several("against", click.Choice((ONNXRUNTIME, *PEERS)), ("ctranslate2", "torch"), "Engine to compare with")
@_several("workload", click.Choice(list(WORKLOADS)), list(WORKLOADS), "Batch size x beam size")
@_several("length", click.IntRange(2, MAX_SOURCE_LENGTH), [20], "Source tokens")
@_several("threads", click.IntRange(1), [1], "CPU threads per operator")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Measured rounds per table.")
@click.option("--vocab-size", default=32_000, show_default=True, type=click.IntRange(TRAINED_TOKENS), help="Tokens.")
@click.option(
    "--json",
    "out",
    type=click.Path(path_type=Path),
    default=Path("runs/bench.json"),
    show_default=True,
    help="File for all results, saved after each table.",
)
def main(
    preset: Sequence[str],
    precision: Sequence[Any],
    against: Sequence[str],
    vocab_size: int,
    out: Path,
    **choices: Any,
) -> None:
    """Compare presets with other engines that have the same weights, as `edgeformer bench` compares trained models.

    Weights are random, and every output has half as many tokens again as its source. Prints a table for each preset,
    workload, length and number of threads.
    """
    if max(choices["threads"]) > available_cpus():
        raise click.UsageError(f"This process has {plural(available_cpus(), 'CPU')}; --threads must not exceed that.")
    results: list[Comparison] = []
    for name in preset:
        with TemporaryDirectory() as folder:
            work = Path(folder)
            run = random_run(work / "run", name, vocab_size)
            bundles = [
                export_run(run, work / f"{name} {each}", precision=each, force=True).bundle for each in precision
            ]
            peers = PeerSelection(peers=against, run=run.path, work=work)
            for result in _comparisons(bundles, peers, run.source_tokenizer.vocab_size, **choices):
                results.append(result)
                report = {"command": command_line(), "vocab_size": vocab_size, "comparisons": results}
                write_atomically(out, json_text(report).encode())
                print_comparison(result)


def _comparisons(
    bundles: Sequence[Path],
    peers: PeerSelection,
    vocab_size: int,
    *,
    workload: Sequence[str],
    length: Sequence[int],
    threads: Sequence[int],
    rounds: int,
) -> Iterator[Comparison]:
    """Compare the bundles of a preset on all workloads."""
    random = np.random.default_rng(1)
    for count, tokens, name in product(threads, length, workload):
        batch, beam = WORKLOADS[name]
        how = BenchmarkOptions(beam_size=beam, batch_size=batch, repeat=rounds, threads=count)
        sources = random_sources(random, max(SENTENCES, batch), tokens, vocab_size)
        yield compare(bundles, sources, how, peers, length=round(EXPANSION * tokens))


if __name__ == "__main__":
    main()
