"""Small untrained models, runs and bundles. Random weights give less certain output than trained ones, which makes them
a harder test of parity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import functional

from edgeformer.config import Recipe, recipe_from_tree
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.run.info import RunInfo
from edgeformer.run.weights import save_weights
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.requests import pad
from tests.variants import VARIANTS

PAIRS = [
    (
        f"The {adjective} {noun} {verb} {number} times near the {place}.",
        f"{noun} {adjective} {verb} {number} fois, {place} !",
    )
    for adjective in ("small", "old", "green")
    for noun in ("dog", "river", "machine")
    for verb in ("runs", "turns", "sings")
    for number in (2, 14, 350)
    for place in ("house", "sea", "café")
]


def small_recipe(
    variant: str = "post_norm",
    model: Mapping[str, Any] | None = None,
    *,
    section: Mapping[str, Any] | None = None,
    **tokenizer: Any,
) -> Recipe:
    """Make a recipe of one of :data:`VARIANTS`; ``model`` overrides its settings, and ``section`` replaces them."""
    tree = {
        "model": {**(section or VARIANTS[variant]), **(model or {})},
        "tokenizer": {"vocab_size": 300, **tokenizer},
        "data": {"train": ["unused.tsv"]},
        "source_language": "en",
        "target_language": "fr",
    }
    return recipe_from_tree(tree, "test")


Model = TypeVar("Model", bound=EncoderDecoder)


def randomise(model: Model, seed: int) -> Model:
    """Set random weights large enough that logits are spread out and no bias is zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def small_run(
    path: Path,
    variant: str = "post_norm",
    seed: int = 0,
    *,
    steps: int = 0,
    model: Mapping[str, Any] | None = None,
    pairs: int = len(PAIRS),
    **tokenizer: Any,
) -> Run:
    """Create a run folder as training would leave it.

    Args:
        path: the new folder.
        variant: one of :data:`VARIANTS`.
        seed: seed of weights and batches.
        steps: number of updates that train the model on :data:`PAIRS`; 0 leaves the weights random. A random model
            never ends a sentence, so testing rows that leave a batch requires a trained one; 100 steps take two
            seconds, and outputs then differ in text and length.
        model: settings of the model that override the variant's.
        pairs: number of :data:`PAIRS` in the run's sample.
        tokenizer: settings of the tokenizer.
    """
    recipe = small_recipe(variant, model, **tokenizer)
    tokenizers = train_tokenizers(PAIRS, recipe.tokenizer)
    run = Run.create(path, recipe, *tokenizers, sample=PAIRS[:pairs], info=RunInfo(status="finished"))
    torch.manual_seed(seed)
    save_weights(randomise(run.build_model(), seed), run.model_path)
    if steps:
        network = run.load_model()
        teach(network, run, steps, seed)
        save_weights(network, run.model_path)
    return run


def taught_run(path: Path, variant: str = "post_norm", *, steps: int = 100) -> Run:
    """Create a run whose model is partially trained on :data:`PAIRS`."""
    return small_run(path, variant, steps=steps)


def teach(network: EncoderDecoder, run: Run, steps: int, seed: int) -> None:
    """Train a model on :data:`PAIRS`, partially; it is left in evaluation mode."""
    special = SpecialTokens()
    sources = run.source_tokenizer.encode_batch([source for source, _ in PAIRS])
    targets = run.target_tokenizer.encode_batch([target for _, target in PAIRS])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are so small that more threads would only wait for each other
    network.train()
    for _ in range(steps):
        batch = torch.randint(len(PAIRS), (32,), generator=order).tolist()
        source, source_length = pad([[*sources[index], special.eos] for index in batch], special.pad)
        target, _ = pad([[special.bos, *targets[index], special.eos] for index in batch], special.pad)
        given, wanted = torch.from_numpy(target[:, :-1]), torch.from_numpy(target[:, 1:])
        logits = network(torch.from_numpy(source), torch.from_numpy(source_length), given)
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=special.pad)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        optimizer.step()
    torch.set_num_threads(threads)
    network.eval()
