"""The configuration of a run: the fields of a recipe and their defaults.

A recipe is a TOML file with the sections of :class:`Recipe`. This module imports nothing heavy, so that reading a
recipe or reporting a mistake in one does not slow down start-up.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edgeformer.errors import ConfigError
from edgeformer.wording import reworded
from edgeformer_runtime.limits import MAX_COUNT, MAX_THREADS

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A number of something, or a seed."""
PositiveCount = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
"""A number of something, of which there is at least one."""
Real = Annotated[float, Meta(ge=0, le=MAX_COUNT)]
"""A finite number, which may be zero."""
PositiveReal = Annotated[float, Meta(gt=0, le=MAX_COUNT)]
"""A finite number above zero."""
Fraction = Annotated[float, Meta(ge=0, lt=1)]
"""A share that is not the whole."""


class TokenizerConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How text becomes token ids."""

    kind: Literal["word", "bpe", "unigram", "imported"] = "bpe"
    """Word level, byte-level byte-pair encoding, or byte-level unigram language model. The latter two never produce
    unknown tokens. ``imported`` marks a tokenizer that came with an imported model."""
    vocab_size: PositiveCount | None = None
    """Maximum number of vocabulary entries, special tokens included. Default: 8,000 for ``bpe`` and ``unigram``; every
    word of the training text for ``word``."""
    shared: bool = True
    """Use one vocabulary for both sides; required by ``tied_embeddings = "all"``."""
    split: Literal["punctuation", "space"] = "punctuation"
    """Boundaries that no subword of ``bpe`` or ``unigram`` crosses: those between letters, digits and punctuation, or
    only whitespace, for text that is already tokenized."""
    split_digits: bool = False
    """Make every digit a separate token, so that numbers are copied rather than memorized."""
    add_prefix_space: bool = False
    """Begin every text with a space, so that ``bpe`` and ``unigram`` have the same token for a word at the beginning of
    a sentence as inside: a small model knows "dog" as the word that it has seen after "the"."""
    lowercase: bool = False
    """Lowercase the text before tokenizing it. The output is then lowercase too."""


class DataConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which text to train on, and which sentence pairs to keep."""

    corpus: str | tuple[str, ...] | None = None
    """A named corpus (see ``edgeformer data list``), or a folder that ``edgeformer data prepare`` has written, or a
    list of them, each of which is split by itself; one that is listed twice counts twice. Omit it to specify files
    instead."""
    train: tuple[str, ...] = ()
    """Two files with aligned lines (source, target), or one tab-separated file; plain, ``.gz``, or
    ``archive.zip:member``. Beside a folder as ``corpus``, they replace its training text."""
    valid: tuple[str, ...] = ()
    """The same for validation; if omitted, it is split from ``train`` by source sentence."""
    test: tuple[str, ...] = ()
    """The same for the final test; if omitted, it is split from ``train`` by source sentence."""
    valid_size: PositiveCount = 1000
    """Number of source sentences split off for validation if no file is given."""
    test_size: PositiveCount = 1000
    """Number of source sentences split off for testing if no file is given."""
    max_words: PositiveCount = 80
    """Maximum sentence length on either side, in whitespace-separated words; longer pairs are dropped."""
    max_ratio: PositiveReal = 9.0
    """Maximum ratio between the two sides' lengths in words (after adding one to each length)."""
    keep_repeated: bool = False
    """Keep training pairs that repeat an earlier one exactly, in text that repeats pairs on purpose."""
    seed: Count = 1
    """Seed of the split."""


class TrainConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How to train. A step is one update of the weights."""

    max_steps: PositiveCount = 10_000
    """Number of updates after which training stops."""
    max_minutes: PositiveReal | None = None
    """Minutes of wall-clock time after which training stops; no limit by default. Earlier sessions of a resumed run
    count. If fewer updates than ``max_steps`` fit into them, warm-up and cool-down take the same shares of the time as
    they would of ``max_steps``."""
    batch_tokens: PositiveCount = 4096
    """Batch size in tokens, on the longer side of the batch and with padding included."""
    accumulate: PositiveCount = 1
    """Number of batches whose gradients are accumulated for one update."""
    learning_rate: PositiveReal = 1e-3
    """Peak learning rate of ``inverse_sqrt``; scale factor of ``noam``."""
    schedule: Literal["inverse_sqrt", "noam"] = "inverse_sqrt"
    """Linear warm-up, then decay with the inverse square root of the step; ``noam`` also scales by ``d_model ** -0.5``
    as in Vaswani et al. 2017, section 5.3."""
    warmup_steps: PositiveCount | None = None
    """Number of updates of linear warm-up. Default: a tenth of ``max_steps``, at most 1,000; resuming with other limits
    does not change it."""
    cooldown_steps: Count = 0
    """Number of updates at the end of ``max_steps`` over which the learning rate decays linearly to zero."""
    label_smoothing: Fraction = 0.1
    """Probability mass spread evenly over the vocabulary (Szegedy et al. 2016)."""
    adam_betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_eps: PositiveReal = 1e-9
    """Adam's epsilon."""
    weight_decay: Real = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_norm: Real = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    loss_mean: Literal["tokens", "padded_length"] = "tokens"
    """How the losses of tokens are averaged: over all true target tokens of an update; or, as in
    ``MaskedSoftmaxCELoss`` of "Dive into Deep Learning", over the padded length of each sentence, whose means are
    summed, so that a token counts more in a batch of short sentences. Reported losses are per true token."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward and backward pass; weights are always kept in fp32. On a GPU, factors of fp32 matrix
    products are rounded to TF32, and recurrent layers of torch compute in fp32."""
    validate_every: PositiveCount = 500
    """Number of updates between validations; each validation writes a checkpoint."""
    validate_sentences: Count = 500
    """Number of validation sentences to decode greedily for BLEU; the loss is computed on all of them."""
    patience: Count = 0
    """Number of validations without a lower loss after which training stops; 0 disables early stopping."""
    average: PositiveCount = 5
    """Number of checkpoints whose weights are averaged into the final model."""
    average_of: Literal["best", "last"] = "best"
    """Which checkpoints to average: those with the lowest validation loss, or the last ones. If the mean has a higher
    loss than the best of them alone, that one becomes the final model."""
    seed: Count = 1
    """Seed of initialization, batch order and dropout."""
    threads: Annotated[int, Meta(ge=0, le=MAX_THREADS)] = 0
    """CPU threads; 0 lets torch choose."""

    @property
    def warmup(self) -> int:
        """Number of updates of warm-up, as given or by default."""
        return min(1000, max(1, self.max_steps // 10)) if self.warmup_steps is None else self.warmup_steps


class Recipe(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Everything that defines a trained model. ``model`` is checked by its family (see :mod:`edgeformer.families`)."""

    model: dict[str, Any]
    """``family``, an optional ``preset`` and the fields of the family's configuration."""
    tokenizer: TokenizerConfig = msgspec.field(default_factory=TokenizerConfig)
    """Section ``[tokenizer]``."""
    data: DataConfig = msgspec.field(default_factory=DataConfig)
    """Section ``[data]``."""
    train: TrainConfig = msgspec.field(default_factory=TrainConfig)
    """Section ``[train]``."""
    description: str = ""
    """One-line description for readers."""
    source_language: str = ""
    """BCP 47 tag of the source language."""
    target_language: str = ""
    """BCP 47 tag of the target language."""


def with_warmup(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe with another ``train.warmup_steps``."""
    return msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, warmup_steps=steps))


def recipe_names() -> list[str]:
    """List the names of the recipes that ship with the package."""
    folder = resources.files("edgeformer") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply ``key=value`` overrides.

    Args:
        name_or_path: a name listed by :func:`recipe_names`, or the path of a TOML or JSON file.
        overrides: ``section.key=value`` with a TOML value; a bare word is a string.

    Raises:
        ConfigError: unknown recipe, unreadable file, unknown key, or a value of the wrong type.
    """
    path = Path(name_or_path)
    if name_or_path in recipe_names():
        text = (resources.files("edgeformer") / "recipes" / f"{name_or_path}.toml").read_text(encoding="utf-8")
    elif path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"Recipe `{path}` is not UTF-8 text: {error}.") from None
    else:
        known = ", ".join(recipe_names())
        raise ConfigError(f"`{name_or_path}` is neither a recipe nor a file. Recipes: {known}.")
    try:
        tree = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"Recipe `{name_or_path}` cannot be parsed: {error}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"Recipe `{name_or_path}` must be a table of sections, but is {type(tree).__name__}.")
    apply_overrides(tree, overrides)
    return recipe_from_tree(tree, name_or_path)


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    """Change a parsed recipe in place.

    Args:
        tree: the recipe.
        overrides: ``section.key=value`` with a TOML value; a bare word is a string.

    Raises:
        ConfigError: an override has another form.
    """
    for override in overrides:
        key, separator, value = override.partition("=")
        *sections, name = key.strip().split(".")
        if not separator or not all((*sections, name)):
            raise ConfigError(
                f"`--set {override}` must have the form section.key=value, for example train.max_steps=500."
            )
        try:
            parsed: Any = tomllib.loads(f"value = {value.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value.strip()
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                raise ConfigError(f"`--set {override}`: `{section}` is a value, not a section.")
        node[name] = parsed


def recipe_from_tree(tree: dict[str, Any], origin: str) -> Recipe:
    """Convert a parsed recipe to a :class:`Recipe` and check it; ``origin`` names it in errors."""
    from edgeformer.families import model_config  # families imports this package's model configurations

    try:
        recipe = msgspec.convert(tree, Recipe)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Recipe `{origin}`: {reworded(error, Recipe)}.{_suggestion(str(error))}") from None
    _verify(recipe, model_config(recipe.model), origin)
    return recipe


def _suggestion(error: str) -> str:
    """Suggest the key that an unknown key was probably meant to be."""
    unknown = re.search(r"unknown field `(.+?)`", error)
    sections = {"tokenizer": TokenizerConfig, "data": DataConfig, "train": TrainConfig}
    keys = {field: f"{name}.{field}" for name, section in sections.items() for field in section.__struct_fields__}
    keys |= {field: field for field in Recipe.__struct_fields__}
    close = get_close_matches(unknown[1], keys, n=1) if unknown else []
    above = ", above all sections" if close and close[0] in Recipe.__struct_fields__ and "$." in error else ""
    return f" Did you mean `{keys[close[0]]}`{above}?" if close else ""


def _verify(recipe: Recipe, model: msgspec.Struct, origin: str) -> None:
    """Raise a single error that lists all settings that do not go together."""
    train, data, tokenizer = recipe.train, recipe.data, recipe.tokenizer
    problems = []
    tied = getattr(model, "tied_embeddings", None)
    if tied in {"all", "inputs"} and not tokenizer.shared and tokenizer.kind != "imported":
        problems.append(f'`model.tied_embeddings` = "{tied}" needs `tokenizer.shared` = true, but it is false')
    if train.schedule == "noam" and not getattr(model, "d_model", None):
        problems.append(
            '`train.schedule` = "noam" needs a model with a field `d_model`, '
            f"but family `{recipe.model['family']}` has none"
        )
    if not data.corpus and not data.train and tokenizer.kind != "imported":
        problems.append("give either `data.corpus` or `data.train`")
    for key, files in {"data.train": data.train, "data.valid": data.valid, "data.test": data.test}.items():
        if len(files) > 2:
            problems.append(f"`{key}` takes one tab-separated file or two aligned files, but has {len(files)}")
    if problems:
        raise ConfigError(f"Recipe `{origin}`: " + "; ".join(problems) + ".")
