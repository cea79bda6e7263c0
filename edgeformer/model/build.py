"""Construction of an untrained model from a recipe."""

from __future__ import annotations

from edgeformer.config import Recipe
from edgeformer.errors import ConfigError
from edgeformer.families import get_family, model_config
from edgeformer.model.base import EncoderDecoder
from edgeformer.traceback_summary import describe


def build_model(recipe: Recipe, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    """Build the untrained model that a recipe describes.

    Raises:
        ConfigError: the vocabularies do not fit the model, or the family failed to build it.
    """
    family, config = get_family(recipe.model["family"]), model_config(recipe.model)
    try:
        model: object = family.build(config, source_vocab_size, target_vocab_size)
    except ValueError as error:
        raise ConfigError(f"Section [model]: {error}") from None
    except Exception as error:  # third-party code may raise anything
        raise ConfigError(f"Family `{family.name}` cannot build its model: {describe(error)}.") from error
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(f"Family `{family.name}` must build an EncoderDecoder, but builds a {type(model).__name__}.")
    return model
