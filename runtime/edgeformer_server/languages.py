"""Languages: their names, which of them the models translate, and which of them a request means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from edgeformer_runtime.bundle.text_format import matching_code, public_code
from edgeformer_runtime.errors import ConfigError, OptionError
from edgeformer_runtime.models.model import Model
from edgeformer_server.errors import ApiError
from edgeformer_text.languages import detect_languages
from edgeformer_text.markup import readable
from edgeformer_text.options import Format

PIVOT = "en"
"""Preferred language between two models that together translate a pair that neither does alone."""
MAX_CODE = 64
"""Characters of a code that are looked at."""
MAX_PAIRS = 256
"""Pairs of languages whose codes and models are remembered."""
UNKNOWN: dict[str, Any] = {"confidence": 0.0, "language": "en"}
"""What LibreTranslate detects where it detects nothing."""
_NAMES = """af Afrikaans|sq Albanian|am Amharic|ar Arabic|hy Armenian|az Azerbaijani|eu Basque|be Belarusian|bn Bengali|
bs Bosnian|bg Bulgarian|my Burmese|ca Catalan|zh Chinese|zh-Hans Chinese|zh-Hant Chinese (traditional)|
zt Chinese (traditional)|hr Croatian|cs Czech|da Danish|nl Dutch|en English|eo Esperanto|et Estonian|fi Finnish|
fr French|gl Galician|ka Georgian|de German|el Greek|gu Gujarati|ht Haitian Creole|ha Hausa|he Hebrew|hi Hindi|
hu Hungarian|is Icelandic|ig Igbo|id Indonesian|ga Irish|it Italian|ja Japanese|jv Javanese|kn Kannada|kk Kazakh|
km Khmer|rw Kinyarwanda|ko Korean|ku Kurdish|ky Kyrgyz|lo Lao|la Latin|lv Latvian|ln Lingala|lt Lithuanian|
lb Luxembourgish|mk Macedonian|mg Malagasy|ms Malay|ml Malayalam|mt Maltese|mi Maori|mr Marathi|mn Mongolian|
ne Nepali|no Norwegian|nb Norwegian Bokmål|nn Norwegian Nynorsk|oc Occitan|or Odia|ps Pashto|fa Persian|pl Polish|
pt Portuguese|pt-BR Portuguese (Brazil)|pb Portuguese (Brazil)|pa Punjabi|ro Romanian|ru Russian|gd Scottish Gaelic|
sr Serbian|si Sinhala|sk Slovak|sl Slovenian|so Somali|es Spanish|su Sundanese|sw Swahili|sv Swedish|tl Tagalog|
tg Tajik|ta Tamil|tt Tatar|te Telugu|th Thai|tr Turkish|tk Turkmen|uk Ukrainian|ur Urdu|ug Uyghur|uz Uzbek|
vi Vietnamese|cy Welsh|xh Xhosa|yi Yiddish|yo Yoruba|zu Zulu"""
NAMES = dict(entry.strip().split(" ", 1) for entry in _NAMES.split("|"))
"""English names of languages by code."""


def language_name(code: str) -> str:
    """English name of a language; its code if the name is not known."""
    return NAMES.get(code) or NAMES.get(code.partition("-")[0].partition("_")[0]) or code


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
        self._codes = lru_cache(MAX_PAIRS)(self._matching_codes)
        self.route = lru_cache(MAX_PAIRS)(self._route)
        """Return the models that translate a pair of languages; see :meth:`_route`."""

    @cached_property
    def sources(self) -> list[str]:
        """Codes of all languages that can be translated from; sorted."""
        return sorted({code for model in self.models for code in model.sources})

    @cached_property
    def targets(self) -> list[str]:
        """Codes of all languages that can be translated to; sorted."""
        return sorted({code for model in self.models for code in model.targets})

    def codes(self, source: str, target: str) -> tuple[str, str]:
        """The models' codes of languages that a client means; unchanged if no model has one, but for their length."""
        return self._codes(source[:MAX_CODE], target[:MAX_CODE])

    def _matching_codes(self, source: str, target: str) -> tuple[str, str]:
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

    def _route(self, source: str, target: str, name: str = "") -> tuple[Hop, ...]:
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


def detected(catalog: Catalog, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Detect the languages that texts are probably in, most probable first, as ``/detect`` answers: those of the
    models, of which others of the same language, such as ``pt-BR``, count.

    Raises:
        ApiError: languages cannot be detected on this server.
    """
    try:
        found = dict(detect_languages("\n".join(texts)))
    except ConfigError:
        raise ApiError(
            400, "Language detection is not installed on this server: pip install 'edgeformer[detect]'"
        ) from None
    shares = {code: found.get(public_code(code).lower().partition("-")[0], 0.0) for code in catalog.sources}
    ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    percent = [(public_code(code), round(100 * share, 1)) for code, share in ranked if share >= 0.005]
    return [{"confidence": share, "language": code} for code, share in percent] or [UNKNOWN]


def chosen_pair(
    catalog: Catalog, source: str, target: str, texts: Sequence[str], format: Format = "text", model: str = ""
) -> tuple[str, str, dict[str, Any], tuple[Hop, ...]]:
    """Codes of the models' languages that a request means, what was detected, and the models that translate the pair:
    the one that the request names, if it does.

    Raises:
        ApiError: a language or the pair is not supported.
    """
    known = {*catalog.sources, *catalog.targets}
    source_code, target_code = catalog.codes(source, target)
    found: dict[str, Any] = {}
    if source.lower() == "auto":
        texts = list(map(readable, texts)) if format == "html" else texts
        found = detected(catalog, texts)[0] if any(map(str.isalpha, "".join(texts))) else UNKNOWN
        if found is UNKNOWN and (others := detect_languages("\n".join(texts))):
            name = language_name(others[0].language)
            raise ApiError(
                400, f"The text seems to be {name}, which is not supported; choose its language if it is not"
            )
        source_code, _ = catalog.codes(found["language"], target)
        if found is UNKNOWN and source_code not in known:
            source_code = catalog.sources[0]
    for given, code in ((source, source_code), (target, target_code)):
        if code not in known:
            raise ApiError(400, f"{given.lower()[:64]} is not supported")
    try:
        route = catalog.route(source_code, target_code, model)
    except OptionError:
        names = [f"{language_name(code)} ({code})" for code in (target_code, source_code)]
        raise ApiError(400, f"{names[0]} is not available as a target language from {names[1]}") from None
    return source_code, target_code, found, route
