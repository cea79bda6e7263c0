"""The model families that ship with the package. Torch is not imported until a model is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeformer.families import Family
from edgeformer.model.lstm.config import LSTMAttentionConfig, LSTMConfig
from edgeformer.model.transformer import config as presets
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


TRANSFORMER = Family(
    name="transformer",
    config_type=TransformerConfig,
    build=_transformer,
    presets={
        "tiny": presets.tiny,
        "edge": presets.edge,
        "base": presets.base,
        "free_widths": presets.free_widths,
        "free_widths_small": presets.free_widths_small,
        "incremental": presets.incremental,
        "shared_heads": presets.shared_heads,
        "word_level": presets.word_level,
        "word_level_small": presets.word_level_small,
    },
)
SSRU = Family(
    name="ssru",
    config_type=TransformerConfig,
    build=_ssru,
    presets={"tiny": presets.tiny, "edge": presets.edge, "bergamot": presets.bergamot},
)
"""A Transformer whose decoder uses the simpler simple recurrent unit (SSRU) instead of self-attention."""
LSTM = Family(name="lstm", config_type=LSTMConfig, build=_lstm)
LSTM_ATTENTION = Family(name="lstm_attention", config_type=LSTMAttentionConfig, build=_lstm_attention)
