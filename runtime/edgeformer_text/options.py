"""How a text is split into sentences and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_OPTION
from edgeformer_runtime.search.options import check_count
from edgeformer_text.glossary import Glossary

Capitals = Literal["auto", "lower", "keep"]
"""What the model reads in place of text in capitals."""
Format = Literal["text", "html"]
"""What a text is written in."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How a text is split into sentences and put together again."""

    max_sentence_tokens: int | None = None
    """Split sentences with more tokens than this, end token included. ``None`` is what the model reads, or three
    quarters of what it writes if that is less, since a translation may be longer than its source."""
    capitals: Capitals = "auto"
    """``lower``: the model reads text in capitals in lowercase, and its translation gets capitals. ``keep``: it reads
    capitals. ``auto``: lowercase if capitals take at least a tenth more tokens."""
    match_surface: bool = True
    """Remove a period that ends a translation but not its source, add final punctuation that was lost, and begin with a
    capital where the source does."""
    add_period: bool = True
    """Give the model a period after a sentence without final punctuation if it needs one, as its bundle says, and
    remove that of the translation."""
    max_repeats: int = 4
    """Shorten a translation that ends with the same words this often in a row to one copy, unless the source repeats
    itself too; 0 shortens none."""
    protect: bool = True
    """Keep placeholders, such as ``{name}``, ``%s`` and ``:emoji:``, URLs, e-mail addresses, mentions and hashtags as
    they are."""
    check_numbers: bool = True
    """Compare the digits of each translation with those of its source, and correct or mark it."""
    glossary: Glossary | Mapping[str, str] | None = None
    """Terms with given translations."""
    min_confidence: float | None = None
    """Mark sentences whose confidence is less as doubtful. ``None`` is what the bundle says."""
    word_details: bool = False
    """Return the words of each translation, with their probabilities and alignment."""

    def verify(self) -> None:
        """Check all values.

        Raises:
            OptionError: a value is out of range.
        """
        if self.max_sentence_tokens is not None:
            check_count("max_sentence_tokens", self.max_sentence_tokens, 2, MAX_OPTION)
        check_count("max_repeats", self.max_repeats, 0, MAX_OPTION)
        if self.max_repeats in (1, 2):
            raise OptionError(f"`max_repeats` must be 0 or at least 3, but is {self.max_repeats}.")
        if self.min_confidence is not None and not 0 <= self.min_confidence <= 1:
            raise OptionError(f"`min_confidence` must be from 0 to 1, but is {self.min_confidence}.")
        if self.capitals not in get_args(Capitals):
            raise OptionError(f"`capitals` must be one of {', '.join(get_args(Capitals))}, but is {self.capitals!r}.")
        terms = self.glossary if isinstance(self.glossary, Mapping) else {}
        is_known = self.glossary is None or isinstance(self.glossary, Glossary | Mapping)
        if not is_known or not all(isinstance(word, str) for pair in terms.items() for word in pair):
            raise OptionError(f"`glossary` must be a Glossary or a dictionary of texts, but is {self.glossary!r}.")
