"""Models to time: presets with random weights, which are as fast as trained models for a given output length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import tokenizers
import torch

from edgeformer.config import recipe_from_tree
from edgeformer.data.dates import generate_dates
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.run.info import RunInfo
from edgeformer.run.weights import save_weights
from edgeformer_runtime.bundle.manifest import Precision, SpecialTokens

PRECISIONS: tuple[Precision, ...] = tuple(name for name in get_args(Precision) if name != "fp16")
"""Precisions that run on the CPU."""
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
