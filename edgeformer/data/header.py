"""Recognition of a line that names the columns of a table instead of holding sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ROLES = _listed("source src target tgt trg input output text sentence segment translation reference ref hypothesis")
_LANGUAGES = _listed(
    "arabic bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german greek hebrew "
    "hindi hungarian icelandic indonesian irish italian japanese korean latvian lithuanian norwegian persian polish "
    "portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish ukrainian vietnamese"
)
_CODES = _listed(
    "ar bg ca zh hr cs da nl en et fi fr de el he hi hu is id ga it ja ko lv lt no fa pl pt ro ru sr sk sl es sv th tr "
    "uk vi ara bul cat zho hrv ces dan nld eng est fin fra deu ell heb hin hun isl ind gle ita jpn kor lav lit nor fas "
    "pol por ron rus srp slk slv spa swe tha tur ukr vie"
)
_NUMBERS = frozenset({"1", "2"})
_TELLING = _ROLES | _LANGUAGES | {"en", "eng"}
_NAMES = _TELLING | _CODES | _NUMBERS
_INDEX = frozenset({"", "id", "index", "idx", "no", "line", "unnamed: 0"})


def names_columns(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are the names of a source and a target column, perhaps after that of an index.

    Such names are English words and language codes: ``source`` and ``target``, ``English`` and ``French``,
    ``sentence1`` and ``sentence2``, ``en`` and ``fr``. As a translation, no such pair makes sense, so that a pair of
    one-word sentences is not taken for a header. Codes can be words (in German, "it" is "es"), and count only beside
    such a name or ``en``.
    """
    if cells and cells[0].strip().casefold() in _INDEX and names_columns(cells[1:]):
        return True
    if len(cells) < 2:
        return False
    first, second = (_words(cell) for cell in cells[:2])
    return bool(first and second) and first != second and not _TELLING.isdisjoint(first + second)


def _words(cell: str) -> list[str]:
    """Return the words of a column's name, or nothing if the cell has anything else."""
    name = re.sub(r"^([a-z]{2,3})[-_][a-z]{2,4}$", r"\1", cell.strip().strip('#"').casefold())  # en-US is en
    words = re.findall(r"[^\W\d_]+|\d+", name) if re.fullmatch(r"[\w\s-]*", name) else []
    return words if _NAMES.issuperset(words) and not _NUMBERS.issuperset(words) else []
