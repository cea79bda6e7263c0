"""Which models there are at one moment, and what they translate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from edgeformer_runtime.bundle.text_format import matching_code
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.models.model import Model

PIVOT = "en"
"""Preferred language between two models that together translate a pair that neither does alone."""


@dataclass(frozen=True)
class Hop:
    """One step of a route: a model and the languages it translates between."""

    model: str
    source: str
    target: str


class Catalog:
    """The models of a workspace at one moment.

    Args:
        models: the models, of which the first is preferred.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(models)

    @cached_property
    def sources(self) -> list[str]:
        """Codes of all languages that can be translated from; sorted."""
        return sorted({code for model in self.models for code in model.sources})

    @cached_property
    def targets(self) -> list[str]:
        """Codes of all languages that can be translated to; sorted."""
        return sorted({code for model in self.models for code in model.targets})

    def codes(self, source: str, target: str) -> tuple[str, str]:
        """The models' codes of languages that a client means; unchanged if no model has one."""
        known = {*self.sources, *self.targets}
        return (
            matching_code(source, self.sources) or matching_code(source, known) or source,
            matching_code(target, self.targets) or matching_code(target, known) or target,
        )

    def model(self, name: str) -> Model:
        """Return a model by name.

        Raises:
            OptionError: there is no such model.
        """
        for model in self.models:
            if model.name == name:
                return model
        names = ", ".join(model.name for model in self.models)
        raise OptionError(f"There is no model `{name}`; the models are {names}.")

    def targets_of(self, source: str) -> list[str]:
        """Codes of the languages that a language can be translated to, directly or through another; sorted."""
        first = {target for model in self.models if source in model.sources for target in model.targets}
        second = {target for model in self.models if model.sources & (first - {source}) for target in model.targets}
        return sorted((first | second) - {source})

    def route(self, source: str, target: str, name: str = "") -> tuple[Hop, ...]:
        """Return the one or two models that translate a language pair, or the model of a name. Equal languages need no
        model.

        Raises:
            OptionError: no model, and no two in a row, translate it, or the named one does not exist or translate it.
        """
        if name:
            model = self.model(name)
            source, target = model.pair(source, target)
            if not model.translates(source, target) and (model.sources or model.targets):
                raise OptionError(f"The model `{name}` does not translate from `{source}` to `{target}`.")
            return (Hop(name, source, target),)
        for model in self.models:
            if model.translates(source, target):
                return (Hop(model.name, source, target),)
        if source == target and any(source in model.sources | model.targets for model in self.models):
            return ()
        chains = [
            (first, middle, second)
            for first in self.models
            for second in self.models
            for middle in first.targets & second.sources
            if first.translates(source, middle) and second.translates(middle, target)
        ]
        if not chains:
            raise OptionError(f"No model translates from `{source}` to `{target}`.")
        first, middle, second = min(chains, key=lambda chain: (chain[1] != PIVOT, chain[1]))
        return Hop(first.name, source, middle), Hop(second.name, middle, target)
