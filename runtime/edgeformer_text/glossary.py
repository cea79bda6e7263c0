"""Terms with given translations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgeformer_runtime.errors import DataError
from edgeformer_text.block import LETTER, Block, Item, overlapping, word_limits


class Glossary:
    """Terms of the source language and their translations. Immutable.

    A term is found as a whole word or words, in the case in which it is written, capitalized or in capitals; in scripts
    without spaces between words, wherever it is written.

    Args:
        terms: the translation of each term.

    Raises:
        DataError: a term or a translation is blank.
    """

    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms: dict[str, str] = {}
        for source, target in terms.items():
            if not source.strip() or not target.strip():
                raise DataError(f"A term and its translation must not be blank, but are `{source}` and `{target}`.")
            self.terms[" ".join(source.split())] = " ".join(target.split())
        self._translations = {
            form(source): form(target)
            for form in (str.upper, _capitalized, str)  # the last, which is as written, wins
            for source, target in self.terms.items()
        }
        longest_first = sorted(self._translations, key=len, reverse=True)
        alternatives = "|".join(re.escape(term).replace(r"\ ", r"\s+") for term in longest_first)
        # Something matches everywhere, so that a search does not hold up all other threads until the end of the text.
        begin, end = word_limits("-")
        pattern = rf"{begin}(?P<term>{alternatives}){end}|(?:{LETTER.pattern}|-){{1,64}}|(?s:.)"
        self._pattern = re.compile(pattern) if alternatives else None

    def __repr__(self) -> str:
        return f"Glossary({len(self.terms):,} terms)"

    @classmethod
    def from_file(cls, path: str | Path) -> Glossary:
        """Read a UTF-8 file with a term, a tab and its translation per line; blank lines and those that begin with
        ``#`` are skipped.

        Raises:
            DataError: the file cannot be read, or a line is not a term, a tab and a translation.
        """
        try:
            content = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise DataError(f"Glossary `{path}` is not UTF-8 text.") from None
        except OSError as error:
            raise DataError(f"Glossary `{path}` cannot be read: {error.strerror}.") from None
        terms = {}
        for number, line in enumerate(content.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            source, _, target = line.partition("\t")
            if not source.strip() or not target.strip() or "\t" in target.strip():
                raise DataError(
                    f"Line {number} of `{path}` must be a term, a tab and its translation, but is `{line[:80]}`."
                )
            terms[source] = target
        return cls(terms)

    def items(self, block: Block, taken: Iterable[Item]) -> list[Item]:
        """Find the terms in a block, outside other items."""
        if self._pattern is None:
            return []
        items, taken = [], sorted(taken, key=lambda item: item.start)
        for match in self._pattern.finditer(block.text):
            is_divided = "\n" in match[0] and not block.is_markup
            if match["term"] and not is_divided and not overlapping(taken, *match.span()):
                text = self._translations[" ".join(match[0].split())]
                items.append(Item(*match.span(), text, text, is_term=True))
        return items


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
