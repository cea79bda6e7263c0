"""How probable a model finds given translations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgeformer_runtime.encoding import token_ids
from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_OPTION
from edgeformer_runtime.search.forced_steps import score_batches
from edgeformer_runtime.search.options import TokensOrText, check_count
from edgeformer_runtime.search.requests import longest_target
from edgeformer_runtime.search.session import StepSession
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import Source


@dataclass(frozen=True)
class Score:
    """How probable a model finds a given translation."""

    source: Source
    """The text and the token ids that the model read."""
    ids: tuple[int, ...]
    """Token ids of the translation, with the end token if it is scored."""
    tokens: tuple[str, ...]
    """These tokens as the vocabulary writes them."""
    token_scores: tuple[float, ...]
    """Natural logarithm of the probability of each token, given the source and the tokens before it."""

    @property
    def log_probability(self) -> float:
        """Sum of the token scores; 0 for a blank text."""
        return math.fsum(self.token_scores)

    @property
    def mean(self) -> float:
        """Mean of the token scores; 0 for a blank text."""
        return self.log_probability / max(1, len(self.token_scores))


def score_targets(
    session: StepSession,
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    targets: Iterable[TokensOrText],
    end_token: bool,
    max_batch_tokens: int,
) -> list[Score]:
    """Compute log-probabilities of given translations. Each is independent of the others in the call.

    Unlike those of :meth:`~edgeformer_runtime.translator.Translator.translate`, these probabilities are those of the
    whole vocabulary, without options that forbid tokens or change their probabilities.

    Args:
        session: the model.
        tokenizer: tokenizer of the target side.
        sources: texts and their ids.
        targets: a translation of each: text, which the target tokenizer encodes, or tokens or token ids without the end
            token.
        end_token: score the end token too, as CTranslate2 does.
        max_batch_tokens: maximum batch size in tokens, those of the longer side.

    Raises:
        InputError: a text is blank although its translation is not, or a translation has more tokens than the model can
            write.
        OptionError: there is not one translation per text, or one cannot be encoded.
    """
    check_count("max_batch_tokens", max_batch_tokens, 1, MAX_OPTION)
    if not isinstance(targets, Iterable) or isinstance(targets, str | bytes):
        raise OptionError(f"`targets` must be a list with one translation per text, but is {targets!r}.")
    targets = list(targets)
    if len(targets) != len(sources):
        raise OptionError(f"There must be one translation per text, {len(sources)}, but there are {len(targets)}.")
    end = (session.special.eos,) if end_token else ()
    limit = longest_target(session)
    ids: list[tuple[int, ...]] = []
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        given = token_ids(tokenizer, target, f"The translation of text {index + 1}")
        if given and not source.ids:
            raise InputError(index, "is blank, but its translation is not; a blank text has a blank translation.")
        ids.append((*given, *end) if source.ids else ())
        if len(ids[index]) > limit:
            raise InputError(
                index,
                f"has a translation of {len(ids[index])} tokens, but the model writes at most {limit}; split both.",
            )
    read = [index for index, target in enumerate(ids) if target]
    scores: list[tuple[float, ...]] = [()] * len(sources)
    for batch in score_batches(session, [(sources[index].ids, ids[index]) for index in read], max_batch_tokens):
        for place, of_pair in batch:
            scores[read[place]] = tuple(of_pair.tolist())
    names = [tuple(tokenizer.tokens(target)) for target in ids]
    return list(map(Score, sources, ids, names, scores))
