"""The model families that ship with the package. Torch is not imported until a model is built."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from edgeformer.families import Family
from edgeformer.model.lstm.config import LSTMAttentionConfig, LSTMConfig
from edgeformer.model.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from edgeformer.model.base import EncoderDecoder


def _transformer(config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    from edgeformer.model.transformer.model import Transformer
    from edgeformer.model.transformer.self_attention import CausalSelfAttention

    return Transformer(config, source_vocab_size, target_vocab_size, CausalSelfAttention)


def _ssru(config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    from edgeformer.model.transformer.model import Transformer
    from edgeformer.model.transformer.ssru import SSRU

    return Transformer(config, source_vocab_size, target_vocab_size, SSRU)


def _lstm(config: LSTMConfig, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    from edgeformer.model.lstm.model import LSTMModel

    return LSTMModel(config, source_vocab_size, target_vocab_size)


def _lstm_attention(config: LSTMAttentionConfig, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    from edgeformer.model.lstm.attention_model import LSTMAttentionModel

    return LSTMAttentionModel(config, source_vocab_size, target_vocab_size)


def _presets(family: str) -> dict[str, Callable[[], TransformerConfig]]:
    """Return the named configurations of ``transformer/presets.toml`` for a family."""
    text = (resources.files(__package__) / "transformer" / "presets.toml").read_text(encoding="utf-8")
    presets = tomllib.loads(text)[family]
    return {name: partial(msgspec.convert, fields, TransformerConfig) for name, fields in presets.items()}


TRANSFORMER = Family(
    name="transformer", config_type=TransformerConfig, build=_transformer, presets=_presets("transformer")
)
SSRU = Family(name="ssru", config_type=TransformerConfig, build=_ssru, presets=_presets("ssru"))
"""A Transformer whose decoder uses the simpler simple recurrent unit (SSRU) instead of self-attention."""
LSTM = Family(name="lstm", config_type=LSTMConfig, build=_lstm)
LSTM_ATTENTION = Family(name="lstm_attention", config_type=LSTMAttentionConfig, build=_lstm_attention)
