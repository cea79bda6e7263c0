"""Search settings of a model: first tokens, tokens that are never generated, and defaults of beam search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.settings import shown
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.limits import MAX_AFFIX_TOKENS, MAX_BEAM_SIZE, MAX_LENGTH_PENALTY

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "guidance_scale": (1,),
    "penalty_alpha": (0,),
    "sequence_bias": (),
    "begin_suppress_tokens": ([],),
    "forced_decoder_ids": ([],),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "constraints": (),
    "stop_strings": (),
    "watermarking_config": (),
}
"""Settings that change translations but have no place in a model's decoding defaults, and values without effect."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a model's outputs are searched for. Tokens are ids of the target vocabulary."""

    start: int
    """First input of the decoder."""
    end: int
    """Ends an output."""
    pad: int
    """Pads batches."""
    forced: int | None
    """First token of every output, if it is not searched for."""
    never: tuple[int, ...]
    """Tokens that are never generated."""
    renormalized: bool
    """Whether those are left out of the distribution, rather than having no probability."""
    max_steps: int | None
    """Limit of output tokens, if it is stated."""
    generation: Generation
    notes: tuple[str, ...] = field(default=())


def read_search(config: Mapping[str, Any], generation: Mapping[str, Any], rows: int) -> Search:
    """Read search settings.

    Args:
        config: content of ``config.json``, for tokens that the generation settings lack.
        generation: the generation settings.
        rows: size of the target vocabulary.

    Raises:
        ImporterError: a value is not valid, or the model has several end tokens.
    """

    def token(name: str) -> int | None:
        stated = generation.get(name)
        return _token(config.get(name) if stated is None else stated, name, rows)

    def needed(*names: str) -> int:
        for name in names:
            if (value := token(name)) is not None:
                return value
        raise ImporterError(f"Neither config.json nor generation_config.json has `{names[0]}`.")

    end, pad = needed("eos_token_id"), needed("pad_token_id")
    start = needed("decoder_start_token_id", "bos_token_id")
    never, notes = _never(generation, end, rows)
    notes += [
        f"`{name}` {shown(value)} of the model's generation settings is not a default here."
        for name, neutral in _NEUTRAL.items()
        if (value := generation.get(name)) is not None and value not in neutral
    ]
    beams = _whole(generation, "num_beams", 1, MAX_BEAM_SIZE) or 1
    early_stopping = generation.get("early_stopping")
    if beams > 1 and early_stopping == "never":
        notes.append('`early_stopping` "never" is not supported; the search ends as with `early_stopping` false.')
    return Search(
        start=start,
        end=end,
        pad=pad,
        forced=token("forced_bos_token_id"),
        never=never,
        renormalized=generation.get("renormalize_logits") is True,
        max_steps=_max_steps(generation),
        generation=Generation(
            beam_size=beams,
            length_penalty=_length_penalty(generation),
            length_includes_end=True,
            early_stopping=early_stopping is True,
        ),
        notes=tuple(notes),
    )


def _token(value: Any, name: str, rows: int) -> int | None:
    """A token id; a list of one is the same.

    Raises:
        ImporterError: it is something else, or there are several.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < rows:
        raise ImporterError(f"`{name}` must be one token of the vocabulary, but is {shown(value)}.")
    return value


def _whole(values: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = values.get(name)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise ImporterError(f"`{name}` must be a whole number from {least} to {most:,}, but is {shown(value)}.")
    return value


def _length_penalty(generation: Mapping[str, Any]) -> float:
    value = generation.get("length_penalty")
    value = 1.0 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ImporterError(f"`length_penalty` must be a number, but is {shown(value)}.")
    if abs(value) > MAX_LENGTH_PENALTY:
        raise ImporterError(f"`length_penalty` must be at most {MAX_LENGTH_PENALTY}, but is {shown(value)}.")
    return float(value)


def _max_steps(generation: Mapping[str, Any]) -> int | None:
    """Limit of output tokens; ``max_length`` counts the start token."""
    steps = _whole(generation, "max_new_tokens", 1, 2**31)
    if steps is not None:
        return steps
    length = _whole(generation, "max_length", 1, 2**31)
    return None if length is None else max(1, length - 1)


def _never(generation: Mapping[str, Any], end: int, rows: int) -> tuple[tuple[int, ...], list[str]]:
    """Tokens that are never generated, without the end token, which may be among them without effect; and notes.

    Raises:
        ImporterError: there are too many, or something else than tokens.
    """
    words, tokens = generation.get("bad_words_ids") or [], generation.get("suppress_tokens") or []
    if not isinstance(words, list) or not isinstance(tokens, list) or not all(isinstance(word, list) for word in words):
        raise ImporterError("`bad_words_ids` must be a list of lists of tokens, and `suppress_tokens` one of tokens.")
    single: Sequence[Any] = [word[0] for word in words if len(word) == 1] + tokens
    never = {token for value in single if (token := _token(value, "bad_words_ids", rows)) is not None} - {end}
    if len(never) > MAX_AFFIX_TOKENS:
        raise ImporterError(
            f"The generation settings exclude {len(never)} tokens, but a model may exclude {MAX_AFFIX_TOKENS}."
        )
    longer = sum(len(word) != 1 for word in words)
    notes = [f"{longer} of `bad_words_ids` have several tokens and are not excluded by default."] if longer else []
    return tuple(sorted(never)), notes
