"""A translation token by token, while it is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.search.loop import Counters, search_steps
from edgeformer_runtime.search.requests import Stop, make_requests
from edgeformer_runtime.search.session import StepSession
from edgeformer_runtime.tokenizers import Tokenizer

if TYPE_CHECKING:
    from edgeformer_runtime.sentences import Sentences
    from edgeformer_runtime.translation import Translation


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


def token_steps(session: StepSession, tokenizer: Tokenizer, sentence: Sentences, stop: Stop) -> Iterator[TokenStep]:
    """Decode a sentence step by step, greedily or by sampling.

    Args:
        session: the model.
        tokenizer: tokenizer of the target side.
        sentence: a call with one sentence.
        stop: asked before each step whether the sentence has to be given up.

    Raises:
        OptionError: an option is out of range, or is one of beam search or for several hypotheses.
        StoppedError: the sentence was given up.
    """
    options = sentence.options
    requests = make_requests(session, sentence.sources, sentence.prefixes, options, [stop])
    if options.beam_size != 1 or options.n_best != 1 or options.return_alternatives:
        raise OptionError(
            "A translation can be streamed only with `beam_size` 1 and `n_best` 1, without `return_alternatives`."
        )
    stop.check()
    for search in search_steps(session, requests, replace(options, return_token_scores=True), Counters()):
        translation = None
        if search.is_finished:
            (found,) = search.finish()
            if not found:
                stop.check()
            (hypothesis,) = found
            ids = [*hypothesis.ids, *[session.special.eos] * hypothesis.finished]
            scores = hypothesis.token_scores or ()
            hypothesis = hypothesis if options.return_token_scores else replace(hypothesis, token_scores=None)
            (translation,) = sentence.translations([[hypothesis]])
        else:
            ids, scores = search.history[0].tolist(), tuple(search.token_scores[0].tolist())
        text = tokenizer.decode(ids) if translation is None else translation.text
        yield TokenStep(ids[-1], tokenizer.tokens(ids[-1:])[0], scores[-1], text, translation is not None, translation)
