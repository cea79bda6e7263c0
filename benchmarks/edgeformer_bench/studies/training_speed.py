"""CPU training speed: ours compared with a plain fp32 loop around ``torch.nn.Transformer``, on the same batches.

Usage: ``python -m edgeformer_bench.studies.training_speed multi30k-en-de-tiny --data FOLDER``
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import msgspec
import torch
from torch import Tensor, nn

from edgeformer.config import Recipe, load_recipe
from edgeformer.data.batches import NO_LABEL, BatchStream, EncodedPairs
from edgeformer.data.corpora import load_corpus
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import ConfigError
from edgeformer.families import model_config
from edgeformer.model.build import build_model
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.layers import sinusoids
from edgeformer.train.cpu import prepare_for_cpu
from edgeformer.train.loop import Update, run_updates
from edgeformer.train.objective import Objective
from edgeformer.train.optimizer import build_optimizer, learning_rate
from edgeformer.train.processes import launch
from edgeformer.train.stopping import LimitReached
from edgeformer_bench.commands import Command
from edgeformer_bench.timer import alternate
from edgeformer_runtime.cli.output import console, plural, table
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.tokenizer import Tokenizer, special_tokens

SIDES = ("edgeformer", "torch.nn.Transformer")


@dataclass(frozen=True)
class Round:
    """The first updates of a training."""

    tokens: int
    """Number of target tokens, excluding padding."""
    seconds: float
    """Time of the updates in seconds, including batching and optimizer."""
    loss: float
    """Loss per token of the last update, in nats; shows that both sides learn the same."""


class Ours:
    """What ``edgeformer train`` does between two validations."""

    def __init__(self, recipe: Recipe, stream: BatchStream, vocab_size: int) -> None:
        model = build_model(recipe, vocab_size, vocab_size)
        prepare_for_cpu(model)
        self.config, self.stream, self.d_model = recipe.train, stream, _transformer(recipe).d_model
        self.fabric = launch(recipe.train)
        self.objective = Objective(model, recipe.train.label_smoothing)

    def run(self, updates: int) -> Round:
        """Train on the first batches of the recipe for a number of updates."""
        optimizer = build_optimizer(self.objective, self.config)
        last: list[Update] = []

        def stop_at_last(update: Update) -> LimitReached | None:
            last[:] = [update]
            return LimitReached("max_steps", updates) if update.step == updates else None

        begin = time.perf_counter()
        run_updates(
            self.fabric,
            self.objective,
            optimizer,
            self.stream,
            self.config,
            learning_rate=lambda step: learning_rate(step, self.config, self.d_model),
            step=0,
            after_update=stop_at_last,
        )
        return Round(_tokens(self.stream, updates), time.perf_counter() - begin, last[0].loss.item())


class Plain(nn.Module):
    """Torch's Transformer, loss and AdamW in a loop, as written without a toolkit."""

    def __init__(self, recipe: Recipe, stream: BatchStream, vocab_size: int) -> None:
        super().__init__()
        self.config, self.stream = recipe.train, stream
        size = _transformer(recipe)
        self.scale = math.sqrt(size.d_model)
        self.embedding = nn.Embedding(vocab_size, size.d_model)
        nn.init.normal_(self.embedding.weight, std=1 / self.scale)
        self.positions = sinusoids(max(size.max_source_length, size.max_target_length), size.d_model)
        self.dropout = nn.Dropout(size.dropout)
        layers = (size.encoder_layers, size.decoder_layers, size.d_ff, size.dropout)
        pre = size.norm == "pre"
        self.transformer = nn.Transformer(
            size.d_model, size.heads, *layers, size.activation, norm_first=pre, batch_first=True
        )
        # Torch applies dropout in two more places; the recipe determines whether to keep that.
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = size.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = size.activation_dropout
        self.projection = nn.Linear(size.d_model, vocab_size, bias=False)
        self.projection.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits ``(N, T, V)`` from token ids ``(N, S)`` and ``(N, T)``, padded with 0."""
        causal, padding = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1), source == 0
        masks = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        x = self.transformer(self._embed(source), self._embed(target), **masks, tgt_is_causal=True)
        logits: Tensor = self.projection(x)
        return logits

    def _embed(self, token: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embedding(token) * self.scale + self.positions[: token.shape[1]])
        return embedded

    def run(self, updates: int) -> Round:
        """Train on the first batches of the recipe for a number of updates."""
        config, d_model = self.config, self.embedding.embedding_dim
        optimizer = torch.optim.AdamW(
            self.parameters(), betas=config.adam_betas, eps=config.adam_eps, weight_decay=config.weight_decay
        )
        criterion = nn.CrossEntropyLoss(ignore_index=NO_LABEL, label_smoothing=config.label_smoothing, reduction="sum")
        begin = time.perf_counter()
        loss = 0.0
        for index in range(updates * config.accumulate):
            batch = self.stream.batch(index)
            if index % config.accumulate == 0:
                optimizer.zero_grad()
                loss = 0.0
            logits = self(torch.from_numpy(batch.source), torch.from_numpy(batch.target))
            part = criterion(logits.flatten(0, 1), torch.from_numpy(batch.labels).flatten()) / batch.update_tokens
            part.backward()
            loss += part.item()
            if (index + 1) % config.accumulate == 0:
                if config.clip_norm:
                    nn.utils.clip_grad_norm_(self.parameters(), config.clip_norm)
                optimizer.param_groups[0]["lr"] = learning_rate(index // config.accumulate + 1, config, d_model)
                optimizer.step()
        return Round(_tokens(self.stream, updates), time.perf_counter() - begin, loss)


def measure(recipe: Recipe, data: Path | None, *, updates: int, rounds: int, threads: int) -> dict[str, list[Round]]:
    """Train both sides in alternating rounds, each in its own process.

    Args:
        recipe: a recipe of family ``transformer``, with one vocabulary and all tables tied.
        data: folder with corpora.
        updates: number of updates per round, always from the start of training.
        rounds: number of measured rounds, after one warm-up round.
        threads: CPU threads; 0 uses every CPU available to the process.

    Returns:
        Measured rounds of each side.

    Raises:
        ConfigError: the recipe's model has no counterpart in torch, or a process failed.
    """
    _transformer(recipe)
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        turns = {}
        for side in SIDES:
            settings = (side, recipe, data, threads or available_cpus())
            pool = stack.enter_context(ProcessPoolExecutor(1, context, _prepare, settings))
            turns[side] = partial(_train_in, pool, updates)
        try:
            return alternate(turns, rounds=rounds)
        except BrokenProcessPool:
            raise ConfigError("One side of the comparison failed; see above.") from None


_run: Callable[[int], Round]
"""Trains the side of this process for a number of updates."""


def _prepare(side: str, recipe: Recipe, data: Path | None, threads: int) -> None:
    """Set up the side that this process trains."""
    global _run
    torch.set_num_threads(threads)
    torch.manual_seed(recipe.train.seed)
    corpus = load_corpus(recipe.data, data)
    tokenizer = Tokenizer(train_tokenizers(corpus.train, recipe.tokenizer)[0])
    size, train = _transformer(recipe), recipe.train
    pairs = EncodedPairs.encode(
        corpus.train,
        tokenizer,
        tokenizer,
        max_source_length=size.max_source_length,
        max_target_length=size.max_target_length,
        special=special_tokens(tokenizer, tokenizer, ()),
    )
    stream = BatchStream(pairs, batch_tokens=train.batch_tokens, seed=train.seed, accumulate=train.accumulate)
    _run = (Ours if side == SIDES[0] else Plain)(recipe, stream, tokenizer.vocab_size).run


def _train(updates: int) -> Round:
    return _run(updates)


def _train_in(pool: ProcessPoolExecutor, updates: int) -> Round:
    return pool.submit(_train, updates).result()


def _transformer(recipe: Recipe) -> TransformerConfig:
    """Return the model's configuration; fail if torch has no equivalent model."""
    size = model_config(recipe.model)
    plain = TransformerConfig(tied_embeddings="all")
    sizes = ("d_model", "d_ff", "heads", "encoder_layers", "decoder_layers", "max_source_length", "max_target_length")
    free = (*sizes, "norm", "activation", "dropout", "attention_dropout", "activation_dropout")
    if not isinstance(size, TransformerConfig) or recipe.model["family"] != "transformer":
        raise ConfigError("The recipe's family must be `transformer`; torch has no other model to compare with.")
    changed = {name: getattr(size, name) for name in free}
    if size != msgspec.structs.replace(plain, **changed) or size.activation == "silu":
        raise ConfigError("The recipe's model has variations that `torch.nn.Transformer` lacks; choose another recipe.")
    return size


def _tokens(stream: BatchStream, updates: int) -> int:
    """Count the target tokens of the first updates, excluding padding."""
    return sum(stream.batch(update * stream.accumulate).update_tokens for update in range(updates))


def _speed(rounds: Sequence[Round]) -> float:
    return statistics.median(entry.tokens / entry.seconds for entry in rounds)


@click.command(cls=Command)
@click.argument("recipe")
@click.option("--data", type=click.Path(path_type=Path), help="Folder with corpora.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a value of the recipe; may be repeated."
)
@click.option("--updates", type=click.IntRange(1), default=4, show_default=True, help="Updates per round.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Measured rounds.")
@click.option(
    "--threads", type=click.IntRange(0), default=0, help="CPU threads; 0 uses every CPU available to the process."
)
def main(recipe: str, data: Path | None, overrides: tuple[str, ...], updates: int, rounds: int, threads: int) -> None:
    """Train the model of RECIPE and its counterpart in torch in alternating rounds, and compare their speed."""
    loaded = load_recipe(recipe, overrides)
    results = measure(loaded, data, updates=updates, rounds=rounds, threads=threads)
    train = loaded.train
    size = f"{train.accumulate} x {train.batch_tokens:,} tokens per update, {plural(updates, 'update')} per round"
    rows = table(f"{recipe}: {size}", "", "precision", "median tokens/s", "min tokens/s", "max tokens/s", "loss")
    for side, precision in zip(SIDES, (train.precision, "fp32"), strict=True):
        speeds = [entry.tokens / entry.seconds for entry in results[side]]
        figures = (f"{value:,.0f}" for value in (_speed(results[side]), min(speeds), max(speeds)))
        rows.add_row(side, precision, *figures, f"{results[side][-1].loss:.3f}")
    console().print(rows)
    ours, plain = (_speed(results[side]) for side in SIDES)
    console().print(f"ratio {ours / plain:.2f}; {machine_summary()}, {plural(threads or available_cpus(), 'thread')}")


if __name__ == "__main__":
    main()
