"""What a :class:`~edgeformer_runtime.Translator` reads and returns: sources, hypotheses, translations and steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from edgeformer_runtime.errors import InputError, StoppedError

if TYPE_CHECKING:
    from edgeformer_runtime.attention import Attention


OnError = Literal["raise", "return"]
"""What becomes of the error of a text: it is raised, or returned as :attr:`Translation.error`."""


@dataclass(frozen=True)
class Source:
    """A text and its token ids."""

    text: str
    """The original text."""
    ids: tuple[int, ...]
    """Token ids, special tokens included; empty if the text is blank."""
    truncated: int = 0
    """Number of tokens dropped from the end of the text to fit the model."""
    needs_attention: bool = False
    """Whether its translations get attention weights, whatever the options say."""
    spans: Sequence[tuple[int, int]] | None = field(default=None, compare=False, repr=False)
    """Characters of the text that each token stands for, without those of special tokens; ``None`` if unknown."""


@dataclass(frozen=True)
class TextHypothesis:
    """One possible translation."""

    text: str
    """Detokenized text."""
    tokens: tuple[str, ...]
    """Tokens as the vocabulary writes them, without the end token and what every target begins with."""
    ids: tuple[int, ...]
    """Their ids."""
    score: float | None
    """Normalized log-probability (see :class:`DecodeOptions`); ``None`` if scores were not requested."""
    finished: bool
    """Whether it ended with the end token, rather than at the length limit or in a loop."""
    token_scores: tuple[float, ...] | None = None
    """Log-probability of each token, and of the end token if there is one; 0 for the tokens of a target prefix.
    ``None`` if they were not requested."""
    attention: Attention | None = field(default=None, compare=False)
    """Attention weights, if they were requested."""

    @property
    def confidence(self) -> float | None:
        """Geometric mean of the probabilities of all tokens, those of :attr:`token_scores`; 1 if there is none, and
        ``None`` if they were not requested."""
        if self.token_scores is None:
            return None
        return math.exp(math.fsum(self.token_scores) / max(1, len(self.token_scores)))

    def __repr__(self) -> str:
        score = None if self.score is None else round(self.score, 4)
        return f"TextHypothesis({shown(self.text)}, score={score}{'' if self.finished else ', finished=False'})"


BLANK = TextHypothesis(text="", tokens=(), ids=(), score=0.0, finished=True)
"""Translation of a blank text."""


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    source: Source
    """The text and the token ids that the model read."""
    hypotheses: tuple[TextHypothesis, ...]
    """``n_best`` translations, best first; empty if there is an error."""
    error: InputError | StoppedError | None = None
    """Why the text was not translated, if errors are returned; :attr:`best` and what it is made of raise it."""

    @property
    def best(self) -> TextHypothesis:
        """The best hypothesis.

        Raises:
            InputError: the text could not be translated.
            StoppedError: its translation was given up.
        """
        if self.error is not None:
            raise self.error
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        """Text of the best hypothesis."""
        return self.best.text

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of the best hypothesis."""
        return self.best.tokens

    @property
    def score(self) -> float | None:
        """Score of the best hypothesis."""
        return self.best.score

    def at(self, first: int) -> Translation:
        """Return the same translation; the index of its error counts from a text that is ``first`` before this call."""
        if not isinstance(self.error, InputError):
            return self
        return replace(self, error=self.error.at(first + self.error.index))

    def __repr__(self) -> str:
        result = f"error={self.error!r}" if self.error is not None else ", ".join(map(repr, self.hypotheses))
        return f"Translation({shown(self.source.text)} → {result})"


@dataclass(frozen=True)
class TokenStep:
    """One step of a translation."""

    id: int
    """Id of the new token."""
    token: str
    """The new token as the vocabulary writes it."""
    log_probability: float
    """Natural logarithm of its probability."""
    text: str
    """Text so far, target prefix included. Its end may change if the next token continues a character or a word."""
    is_last: bool
    """Whether the translation is complete: the new token is the end token, or the last one that is allowed."""
    translation: Translation | None = None
    """The complete translation, with the last step."""


_SHOWN = 60
"""Characters of a text in what Python shows of it."""


def shown(text: str) -> str:
    """A text as Python shows it, without the end of a long one."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")
