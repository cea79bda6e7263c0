"""English names of languages, and which language a text is in."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from edgeformer_runtime.bundle.text_format import public_code
from edgeformer_runtime.text.languages import detect_languages

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


def detect(texts: Sequence[str], among: Collection[str]) -> list[tuple[str, float]]:
    """Return the languages that texts are probably in, most probable first, with percentages.

    Args:
        texts: texts of one language.
        among: codes of the languages that may come out; others of the same language, such as ``pt-BR``, count.

    Raises:
        ConfigError: ``edgeformer[detect]`` is not installed.
    """
    ranked = dict(detect_languages("\n".join(texts)))
    shares = {code: ranked.get(public_code(code).lower().partition("-")[0], 0.0) for code in among}
    return [
        (code, round(100 * share, 1))
        for code, share in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        if share >= 0.005
    ]
