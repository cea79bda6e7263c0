"""From a recipe to an untrained model."""

from __future__ import annotations

from edgeformer.config import Recipe
from edgeformer.errors import ConfigError
from edgeformer.families import get_family, model_config
from edgeformer.model.base import EncoderDecoder
from edgeformer.traceback_summary import describe


def build_model(recipe: Recipe, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    """An untrained model as a recipe says.

    Raises:
        ConfigError: the vocabularies do not suit the model, or the family cannot build it.
    """
    family, config = get_family(recipe.model["family"]), model_config(recipe.model)
    try:
        model: object = family.build(config, source_vocab_size, target_vocab_size)
    except ValueError as error:
        raise ConfigError(f"Section [model]: {error}") from None
    except Exception as error:  # a stranger's code may raise anything
        raise ConfigError(f"Family `{family.name}` cannot build its model: {describe(error)}.") from error
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(f"Family `{family.name}` must build an EncoderDecoder, but builds a {type(model).__name__}.")
    return model
