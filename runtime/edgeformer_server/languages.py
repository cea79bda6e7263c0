"""English names of languages."""

from __future__ import annotations

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
