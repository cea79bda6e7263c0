"""Grows a trained model to the sizes of a preset, to time large models on real sentences without training them.

A grown model translates like the small one, and takes as long as any model of its size. Every unit is repeated, and
the layer that reads the copies divides by their number (Net2WiderNet: Chen, Goodfellow & Shlens, "Net2Net", ICLR 2016);
repetition changes neither the mean nor the variance that LayerNorm sees. The vocabulary is padded with entries that no
text produces and that are never chosen.

    python -m edgeformer_bench.studies.grow RUN --preset base --out GROWN
    python -m edgeformer_bench.grid --no-grid --run GROWN --source FILE
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import tokenizers
import torch
from torch import Tensor, nn

from edgeformer.config import recipe_from_tree
from edgeformer.errors import ConfigError
from edgeformer.families import model_config
from edgeformer.model.transformer.attention import MultiHeadAttention
from edgeformer.model.transformer.config import TransformerConfig, base, edge
from edgeformer.model.transformer.layers import Embedding, FeedForward
from edgeformer.train.checkpoints.weights import save_weights
from edgeformer.train.run import Run, RunInfo
from edgeformer_bench.commands import Command
from edgeformer_bench.grid.models import filled
from edgeformer_runtime.bundle.manifest import SpecialTokens

PRESETS = {"edge": edge, "base": base}
SAMPLE_PAIRS = 64
"""Number of pairs that export uses for calibration and comparison."""


@dataclass(frozen=True)
class Growth:
    """Which unit of the small model each unit of the large one repeats."""

    small: TransformerConfig
    large: TransformerConfig

    def __post_init__(self) -> None:
        """Reject models that cannot grow without changing their results."""
        for name in ("d_model", "d_ff", "heads", "key_width", "value_width"):
            little, great = getattr(self.small, name), getattr(self.large, name)
            if great % little:
                raise ConfigError(f"`{name}` would grow from {little} to {great}, which is not a multiple of it.")
        for name in ("encoder_layers", "decoder_layers"):
            little, great = getattr(self.small, name), getattr(self.large, name)
            if great != little:
                raise ConfigError(f"The preset has {great} `{name}`, but the run's model has {little}.")
        if self.small.tied_embeddings != "all" or self.small.share_head_projection:
            raise ConfigError('Only models with `tied_embeddings = "all"` and full heads can grow.')

    @property
    def features(self) -> Tensor:
        """Return source units of the residual stream, ``(D,)``."""
        return torch.arange(self.large.d_model) % self.small.d_model

    @property
    def hidden(self) -> Tensor:
        """Return source units of the feed-forward layers, ``(d_ff,)``."""
        return torch.arange(self.large.d_ff) % self.small.d_ff

    @property
    def table_factor(self) -> float:
        """Return the factor for the token table that keeps scaled embeddings unchanged."""
        small_scale = math.sqrt(self.small.d_model) if self.small.scale_embeddings else 1.0
        return small_scale / math.sqrt(self.large.d_model)

    def heads(self, width: int, large_width: int) -> Tensor:
        """Return source units of all heads, whose width also grows."""
        head = torch.arange(self.large.heads) % self.small.heads
        return (head[:, None] * width + torch.arange(large_width) % width).flatten()

    def linear(self, small: nn.Linear, large: nn.Linear, outputs: Tensor, inputs: Tensor, factor: float = 1.0) -> None:
        """Fill a linear layer; ``factor`` scales its output."""
        copies = len(inputs) / small.in_features
        large.weight.copy_(small.weight[outputs][:, inputs] * (factor / copies))
        if small.bias is not None and large.bias is not None:
            large.bias.copy_(small.bias[outputs] * factor)

    def attention(self, small: MultiHeadAttention, large: MultiHeadAttention) -> None:
        """Fill an attention layer."""
        keys = self.heads(small.key_width, large.key_width)
        values = self.heads(small.value_width, large.value_width)
        # Scores are sums over the copies, divided by the square root of the large width.
        factor = small.scale / (large.scale * large.key_width / small.key_width)
        self.linear(small.query, large.query, keys, self.features, factor)
        self.linear(small.key, large.key, keys, self.features)
        self.linear(small.value, large.value, values, self.features)
        self.linear(small.output, large.output, self.features, values)

    def embedding(self, small: Embedding, large: Embedding) -> None:
        """Fill the token and position tables."""
        table = small.tokens.weight[:, self.features] * self.table_factor
        unused = large.tokens.num_embeddings - len(table)
        # The start token is never chosen, and so neither are its copies.
        large.tokens.weight.copy_(torch.cat((table, table[SpecialTokens().bos].expand(unused, -1))))
        if large.positions is not None and small.positions is not None:
            large.positions.copy_(small.positions[:, self.features])

    @torch.no_grad()
    def fill(self, small: nn.Module, large: nn.Module) -> None:
        """Make the large model compute the same results as the small one."""
        for little, great in zip(small.modules(), large.modules(), strict=True):
            if isinstance(little, MultiHeadAttention) and isinstance(great, MultiHeadAttention):
                self.attention(little, great)
            elif isinstance(little, FeedForward) and isinstance(great, FeedForward):
                self.linear(_linear(little[0]), _linear(great[0]), self.hidden, self.features)
                self.linear(_linear(little[3]), _linear(great[3]), self.features, self.hidden)
            elif isinstance(little, Embedding) and isinstance(great, Embedding):
                self.embedding(little, great)
            elif isinstance(little, nn.LayerNorm) and isinstance(great, nn.LayerNorm):
                great.weight.copy_(little.weight[self.features])
                great.bias.copy_(little.bias[self.features])
        # The output projection sums over the copies.
        last_layer = f"decoder_layers.{self.large.decoder_layers - 1}"
        final = "decoder_norm" if self.large.norm == "pre" else f"{last_layer}.feed_forward_residual.norm"
        for parameter in large.get_submodule(final).parameters():
            parameter.div_(self.table_factor * self.large.d_model / self.small.d_model)


def _linear(module: nn.Module) -> nn.Linear:
    if not isinstance(module, nn.Linear):
        raise TypeError(f"a linear layer is expected, but it is a {type(module).__name__}")
    return module


def grow(run: Run, out: Path, preset: str, vocab_size: int) -> Run:
    """Write a run folder whose model has the sizes of a preset and computes the same results as that of ``run``.

    Raises:
        ConfigError: the model cannot grow to these sizes.
        CheckpointError: the run has no final model, or ``out`` is not empty.
    """
    small, model = model_config(run.recipe.model), run.load_model()
    family = run.recipe.model["family"]
    if family != "transformer" or not isinstance(small, TransformerConfig) or not run.recipe.tokenizer.shared:
        raise ConfigError("Only a `transformer` with a shared vocabulary can grow.")
    sizes = PRESETS[preset]()
    large = msgspec.structs.replace(
        small,
        d_model=sizes.d_model,
        d_ff=sizes.d_ff,
        heads=sizes.heads,
        encoder_layers=sizes.encoder_layers,
        decoder_layers=sizes.decoder_layers,
        positions="learned",
        scale_embeddings=True,
    )
    growth = Growth(small, large)
    tree = msgspec.to_builtins(run.recipe)
    tree["model"] = {**msgspec.to_builtins(large), "family": family}
    tokenizer = filled(tokenizers.Tokenizer.from_file(str(run.source_tokenizer_path)), vocab_size)
    recipe = recipe_from_tree(tree, str(run.path))
    info = RunInfo(status="finished", generation=run.info.generation)
    grown = Run.create(out, recipe, tokenizer, tokenizer, sample=run.sample[:SAMPLE_PAIRS], info=info)
    wide = grown.build_model()
    growth.fill(model, wide)
    save_weights(wide, grown.model_path)
    return grown


@click.command(cls=Command)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--preset", type=click.Choice(list(PRESETS)), required=True, help="Sizes to grow to.")
@click.option(
    "--vocab-size", default=32_000, show_default=True, type=click.IntRange(1), help="Vocabulary size to grow to."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Run folder to write.")
def main(run: Path, preset: str, vocab_size: int, out: Path) -> None:
    """Grow the trained RUN, which must have as many layers as the preset."""
    grown = grow(Run.open(run), out, preset, vocab_size)
    parameters = sum(parameter.numel() for parameter in grown.load_model().parameters())
    click.echo(f"{out}: {parameters:,} parameters", err=True)


if __name__ == "__main__":
    main()
