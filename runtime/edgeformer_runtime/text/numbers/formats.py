"""How languages write numbers."""

from __future__ import annotations

import re
import unicodedata

SPACE = "\u00a0\u202f\u2009"
"""Spaces that do not end a line, inside numbers."""
_DIGIT_FORMATS = (
    (",", ".", "en he hi ja ko th zh"),
    (".", ",", "ca da de el es gl hr id is it nl pt ro sl tr vi"),
    ("\u00a0", ",", "bg cs et fi hu lt lv nb no pl ru sk sv uk"),
    ("\u202f", ",", "fr"),
)
"""Separator of thousands, decimal mark, and languages, from Unicode's CLDR."""
FORMATS = {code: (group, mark) for group, mark, codes in _DIGIT_FORMATS for code in codes.split()}
"""These two by language."""
TIME = re.compile(
    r"(?<!\d)(?P<hour>\d{1,2})(?!\d)(?:(?::|\s?h\s?)(?P<minute>\d\d)(?!\d))?(?:\s?(?P<half>[ap])\.?\s?m(?!\w)\.?)?"
)
_ORDINALS = {"de": ".", "es": ".º", "fr": "e", "it": "º", "nl": "e", "pt": "º"}
"""What follows the digits of an ordinal number above 1."""
_BEFORE_AMOUNT = re.compile(r"[$€£¥₹]\s?$")
_AFTER_AMOUNT = re.compile(r"\s?[%‰°$€£¥₹]")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th|er|re|e|ème|[.]?[ºª])")


def base_code(language: str) -> str:
    """The language of a code without script and region, in two letters if it has such: ``hi`` for ``hin_Deva``."""
    code = re.split("[-_]", language)[0]
    if len(code) != 3 or not (code.isascii() and code.isalpha()):
        return code
    from langcodes import Language  # most codes have two letters

    return Language.get(code).prefer_macrolanguage().language or code


def ascii_digits(text: str) -> str:
    """Text with the digits of ASCII in place of those of other scripts."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in text)


def with_signs(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of a number and of the sign of a currency or unit beside it. One that has a sign is an amount,
    so that a point or comma in it is the mark of decimals or thousands."""
    before, after = _BEFORE_AMOUNT.search(text[:start]), _AFTER_AMOUNT.match(text, end)
    return before.start() if before else start, after.end() if after else end


def adapted(text: str, languages: tuple[str, str], *, is_amount: bool) -> str:
    """Write a number as the target language does, as far as its meaning is certain: amounts, groups of thousands,
    clock times with the half of the day, and ordinal numbers.

    Args:
        text: the number, as the source has it.
        languages: language codes of source and target.
        is_amount: whether a single point or comma is certainly not part of a version, a chapter or the like.
    """
    text, (own, other) = ascii_digits(text), map(base_code, languages)
    if own == other:
        return text
    if (time := TIME.fullmatch(text)) and (time["half"] or "h" in text):
        return _time(time, text, other)
    if ordinal := _ORDINAL.fullmatch(text):
        return ordinal[1] + _ordinal(ordinal[1], other)
    if own not in FORMATS or other not in FORMATS:
        return text
    (group, mark), (new_group, new_mark) = FORMATS[own], FORMATS[other]
    groups = f"[ {SPACE}]" if group in SPACE else re.escape(group)
    number = re.fullmatch(rf"([-−+]?)(\d{{1,3}}(?:{groups}\d{{3}})+|\d+)(?:{re.escape(mark)}(\d+))?", text)
    if number is None:
        return text
    sign, integer, decimals = number[1], re.sub(groups, "\0", number[2]), number[3]
    if decimals and mark == "." and "\0" not in integer and not is_amount:
        return text  # perhaps a version or a chapter
    return sign + integer.replace("\0", new_group) + (new_mark + decimals if decimals else "")


def _time(time: re.Match[str], text: str, language: str) -> str:
    if language == "en" and time["half"]:
        return text
    hour = int(time["hour"]) % 12 + 12 * (time["half"] == "p") if time["half"] else int(time["hour"])
    if language == "fr":
        return f"{hour}\u00a0h" + (f"\u00a0{time['minute']}" if time["minute"] else "")
    return f"{hour}:{time['minute'] or '00'}"


def _ordinal(digits: str, language: str) -> str:
    """What makes digits an ordinal number; nothing where that is not known."""
    if language == "en":
        last = int(digits) % 10 if int(digits) % 100 not in (11, 12, 13) else 0
        return {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return "er" if language == "fr" and digits == "1" else _ORDINALS.get(language, "")
