"""What requests of both APIs have in common: languages, and limits on texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgeformer_runtime.bundle.text_format import public_code
from edgeformer_runtime.errors import ConfigError, OptionError
from edgeformer_server import languages
from edgeformer_server.context import ServerContext
from edgeformer_server.errors import ApiError
from edgeformer_server.workspace.catalog import Catalog, Hop
from edgeformer_text.languages import detect_languages
from edgeformer_text.markup import readable
from edgeformer_text.options import Format

MAX_TAGS = 50_000
"""Tags of the texts of a request, each of which takes the time of a hundred characters. Files are read elsewhere."""
UNKNOWN: dict[str, Any] = {"confidence": 0.0, "language": "en"}
"""What LibreTranslate detects where it detects nothing."""


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
            name = languages.language_name(others[0].language)
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
        names = [f"{languages.language_name(code)} ({code})" for code in (target_code, source_code)]
        raise ApiError(400, f"{names[0]} is not available as a target language from {names[1]}") from None
    return source_code, target_code, found, route


def check_sizes(context: ServerContext, texts: Sequence[str], format: Format = "text") -> None:
    """Check the number of texts, their lengths, and the number of tags in HTML.

    Raises:
        ApiError: there are too many, or one is too long.
    """
    settings = context.settings
    for sizes, limit in (((len(texts),), settings.max_texts), (map(len, texts), settings.max_characters)):
        if limit is not None and (size := max(sizes, default=0)) > limit:
            raise ApiError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    if format == "html" and sum(text.count("<") for text in texts) > MAX_TAGS:
        raise ApiError(400, f"Invalid request: there are more than {MAX_TAGS:,} tags; send less at a time, or a file")
