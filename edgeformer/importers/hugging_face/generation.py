"""Search settings of a model: first tokens, tokens that are never generated, and defaults of beam search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.settings import checked, shown
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.limits import MAX_AFFIX_TOKENS, MAX_BEAM_SIZE, MAX_LENGTH_PENALTY

Steps = Annotated[int, Meta(ge=1, le=2**31)]
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    **dict.fromkeys(("num_beam_groups", "repetition_penalty", "encoder_repetition_penalty", "guidance_scale"), 1),
    **dict.fromkeys(("diversity_penalty", "penalty_alpha", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), 0),
    **dict.fromkeys(("min_length", "min_new_tokens"), 0),
    "begin_suppress_tokens": [],
    "forced_decoder_ids": [],
    **dict.fromkeys(("sequence_bias", "exponential_decay_length_penalty", "force_words_ids", "constraints"), None),
    **dict.fromkeys(("stop_strings", "watermarking_config"), None),
}
"""Settings that change translations but have no place in a model's decoding defaults, and values without effect."""


class GenerationConfig(msgspec.Struct, frozen=True):
    """Settings that become defaults."""

    num_beams: Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)] = 1
    length_penalty: Annotated[float, Meta(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)] = 1.0
    early_stopping: Any = None
    max_new_tokens: Steps | None = None
    max_length: Steps | None = None
    """Counts the start token, too."""
    renormalize_logits: Any = None
    bad_words_ids: list[list[Any]] = []
    suppress_tokens: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
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


def read_search(config: Mapping[str, Any], generation: Mapping[str, Any], rows: int) -> SearchSettings:
    """Read search settings for ``rows`` target tokens; those that ``generation`` lacks are in ``config.json``."""

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
    settings = checked(generation, GenerationConfig)
    never, notes = _never(settings, end, rows)
    notes += [
        f"`{name}` {shown(value)} of the model's generation settings is not a default here."
        for name, neutral in _NEUTRAL.items()
        if (value := generation.get(name)) is not None and value != neutral
    ]
    if settings.num_beams > 1 and settings.early_stopping == "never":
        notes.append('`early_stopping` "never" is not supported; the search ends as with `early_stopping` false.')
    max_steps = settings.max_new_tokens
    if max_steps is None and settings.max_length is not None:
        max_steps = max(1, settings.max_length - 1)
    return SearchSettings(
        start=start,
        end=end,
        pad=pad,
        forced=token("forced_bos_token_id"),
        never=never,
        renormalized=settings.renormalize_logits is True,
        max_steps=max_steps,
        generation=Generation(
            beam_size=settings.num_beams,
            length_penalty=settings.length_penalty,
            length_includes_end=True,
            early_stopping=settings.early_stopping is True,
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


def _never(settings: GenerationConfig, end: int, rows: int) -> tuple[tuple[int, ...], list[str]]:
    """Tokens that are never generated, without the end token, which may be among them without effect; and notes."""
    words = settings.bad_words_ids
    single = [word[0] for word in words if len(word) == 1] + settings.suppress_tokens
    never = {token for value in single if (token := _token(value, "bad_words_ids", rows)) is not None} - {end}
    if len(never) > MAX_AFFIX_TOKENS:
        raise ImporterError(
            f"The generation settings exclude {len(never)} tokens, but a model may exclude {MAX_AFFIX_TOKENS}."
        )
    longer = sum(len(word) != 1 for word in words)
    notes = [f"{longer} of `bad_words_ids` have several tokens and are not excluded by default."] if longer else []
    return tuple(sorted(never)), notes
