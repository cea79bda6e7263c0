"""Whether a translation has the numbers of its sentence.

What a number is in any language, step by step:

1. A digit is a decimal digit of any script and counts by its value: ``3``, ``３`` and ``٣`` are the same.
2. Digits side by side are a group. Groups of thousands are one group, whatever is between them: ``1,250``, ``1.250``
   and ``1 250`` are ``1250``. A zero before a single digit does not count, nor do the minutes of a full hour.
3. What else is between groups is the language's affair, as is their order: ``12.5`` and ``12,5`` are the groups ``12``
   and ``5``, and a date has the same three in any order. So do times, versions, scores, ranges and phone numbers.
4. Other spellings may stand for a group, but are not required themselves: words and ordinals (``three``, ``third``),
   Roman numerals (``XIV``), numerals that are not decimal (``三``, ``½``, ``²``), the hour of the other clock (``15 h``
   for ``3 p.m.``), a decade without its century, the number of a month (``3月``).
5. A translation has the numbers of its source if each side has every group of the other as often, or what may stand for
   it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from edgeformer_runtime.text.numbers.formats import FORMATS, SPACE, TIME, ascii_digits, base_code

_WORDS = {
    "de": "null eins,erste zwei,zweite drei,dritte vier,vierte fünf,fünfte sechs,sechste sieben,siebte acht,achte "
    "neun,neunte zehn,zehnte elf,elfte zwölf,zwölfte",
    "en": "zero one,first,once two,second,twice three,third four,fourth five,fifth six,sixth seven,seventh "
    "eight,eighth nine,ninth ten,tenth eleven,eleventh twelve,twelfth",
    "es": "cero uno,primer,primero,primera dos,segundo,segunda tres,tercer,tercero,tercera cuatro,cuarto,cuarta "
    "cinco,quinto,quinta seis,sexto,sexta siete,séptimo,séptima ocho,octavo,octava nueve,noveno,novena "
    "diez,décimo,décima once doce",
    "fr": "zéro premier,première deux,deuxième,second,seconde trois,troisième quatre,quatrième cinq,cinquième "
    "six,sixième sept,septième huit,huitième neuf,neuvième dix,dixième onze,onzième douze,douzième",
    "it": "zero uno,primo,prima due,secondo,seconda tre,terzo,terza quattro,quarto,quarta cinque,quinto,quinta "
    "sei,sesto,sesta sette,settimo,settima otto,ottavo,ottava nove,nono,nona dieci,decimo,decima undici dodici",
    "nl": "nul één,eerste twee,tweede drie,derde vier,vierde vijf,vijfde zes,zesde zeven,zevende acht,achtste "
    "negen,negende tien,tiende elf,elfde twaalf,twaalfde",
    "pt": "zero primeiro,primeira dois,duas,segundo,segunda três,terceiro,terceira quatro,quarto,quarta "
    "cinco,quinto,quinta seis,sexto,sexta sete,sétimo,sétima oito,oitavo,oitava nove,nono,nona dez,décimo,décima "
    "onze doze",
}
"""Numbers from 0 on that style guides write in words, cardinal and ordinal; no articles, which are everywhere."""
_VALUES = {
    code: {word: str(value) for value, forms in enumerate(words.split()) for word in forms.split(",")}
    for code, words in _WORDS.items()
}
_CLOCK = r"\d{1,2}(?::\d\d)?\s?[ap]\.?\s?m\b(?:\.(?!\s*$))?|\d{1,2}\s?h\s?\d\d(?!\d)"
_PHONE = rf"\+?(?:\d+|\(\d+\))(?:[-./ {SPACE}](?:\d+|\(\d+\))){{2,}}"
_PLAIN = rf"(?:(?<!\w)[-−+])?[A-Za-z]{{0,8}}\d(?:[A-Za-z\d]|[.,:/'’\-–{SPACE}](?=\d)"
_NUMBER = [re.compile(rf"{_CLOCK}|{_PHONE}(?![,\d])|{_PLAIN}{thousands})*") for thousands in ("", r"| (?=\d{3}(?!\d))")]
"""A number as it is written, with the letters and signs that belong to it, in languages that do not separate thousands
with spaces, and in those that do."""
_FULL_HOUR = re.compile(r"(?<!\d)(\d{1,2})(?::|\s?h\s?)00(?![\d:])")
_AREA = re.compile(r"(?<![^\W\d_])([kcdm]?m)[23](?!\w)")
"""A square or cubic unit, whose figure is an exponent."""
_THOUSANDS = [
    re.compile(rf"(?<![\d.,])\d{{1,3}}([.,'’{space}])\d{{3}}(?:\1\d{{3}})*(?!\d)") for space in (SPACE, f"{SPACE} ")
]
"""Groups of thousands in languages that do not separate them with spaces, and in those that do."""
_MONTH = re.compile(r"\d{1,2}(?=\s?[月월])")
_MYRIADS = re.compile(r"\d\s?[万萬億亿만억]")
_DECADE = re.compile(r"(?:\b(?:années|anni|años|anos|jaren)\s+['’]?(\d{2,4}))|(\d{1,3}0)(?:['’]?s|er)\b")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ROMAN = re.compile(r"(?<!\w)(?:[IVX]{2,6}|V|X)(?=(?:e|er|ème|°|º)?(?!\w))")


class Number(NamedTuple):
    """A number of a text, as it is written."""

    start: int
    end: int
    groups: Counter[str]
    """Its groups of digits."""


@dataclass(frozen=True)
class Differences:
    """Groups of digits that are not the same in a sentence and its translation."""

    missing: Counter[str] = field(default_factory=Counter)
    """What the translation lacks."""
    surplus: Counter[str] = field(default_factory=Counter)
    """What it has beyond its source's."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.missing.total() + self.surplus.total()

    @property
    def groups(self) -> tuple[str, ...]:
        """All of them, each as often as it is wrong."""
        return (*self.missing.elements(), *self.surplus.elements())


def numbers(text: str, language: str) -> list[Number]:
    """Find the numbers of a text."""
    found = _NUMBER[_has_spaces(language)].finditer(ascii_digits(text))
    return [Number(*match.span(), _groups(match[0], language)) for match in found]


def differences(source: str, target: str, languages: tuple[str, str]) -> Differences:
    """Compare the numbers of a sentence with those of its translation. Without digits, a sentence has none that its
    translation could lack, and what words became is not judged."""
    if not any(map(str.isdecimal, source)):
        return Differences()
    source, target = ascii_digits(source), ascii_digits(target)
    if bool(_MYRIADS.search(source)) != bool(_MYRIADS.search(target)):
        return Differences()  # 1.5 million is 150万
    mine, theirs = _instead(source, languages[0]), _instead(target, languages[1])  # what is on both sides is neither
    found = []
    for is_joined in (True, False):
        own, other = (
            _groups(text, code, is_joined=is_joined) for text, code in zip((source, target), languages, strict=True)
        )
        missing, surplus = own - other, other - own
        found.append(Differences(missing - (theirs - mine), surplus - (mine - theirs)))
    return min(found, key=lambda found: found.count)


def _has_spaces(language: str) -> bool:
    """Return whether a language separates thousands with spaces, or is not known."""
    return FORMATS.get(base_code(language), " ")[0] in f" {SPACE}"


def _groups(text: str, language: str, *, is_joined: bool = True) -> Counter[str]:
    """The groups of digits that the other side must have."""
    text = _FULL_HOUR.sub(r"\1", _AREA.sub(r"\1", _MONTH.sub("", text)))
    if is_joined:
        text = _THOUSANDS[_has_spaces(language)].sub(lambda match: re.sub(r"\D", "", match[0]), text)
    return Counter(group[1:] if len(group) == 2 and group[0] == "0" else group for group in re.findall(r"\d+", text))


def _instead(text: str, language: str) -> Counter[str]:
    """The groups of digits that other spellings in a text may stand for."""
    return Counter(_stand_ins(text, base_code(language)))


def _stand_ins(text: str, code: str) -> Iterator[str]:
    values = _VALUES.get(code, {})
    for word in _WORD.findall(text.lower()):
        if word in values or word[:-1] in values:  # without the ending of a plural
            yield values.get(word) or values[word[:-1]]
    for numeral in _ROMAN.findall(text):
        yield str(_roman(numeral))
    for character in text:
        if not character.isascii() and (value := unicodedata.numeric(character, None)) is not None:
            yield from re.findall(r"\d+", unicodedata.normalize("NFKC", character)) or [f"{value:g}"]
    for match in TIME.finditer(text):
        hour = int(match["hour"])
        if match["half"]:
            yield str(hour % 12 + 12 * (match["half"] == "p"))
        elif 12 < hour <= 24:
            yield str(hour - 12)
        elif not hour:
            yield "12"
    for match in _MONTH.finditer(text):
        yield match[0].lstrip("0")
    for long, short in _DECADE.findall(text):
        decade = long or short
        yield from [decade[-2:]] if len(decade) > 2 else [f"19{decade}", f"20{decade}"]


def _roman(numeral: str) -> int:
    figures = [{"I": 1, "V": 5, "X": 10}[letter] for letter in numeral]
    return sum(-one if one < following else one for one, following in zip(figures, [*figures[1:], 0], strict=True))
