"""Settings of small models: every family and its variations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

SMALL = {"d_model": 32, "d_ff": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_target_length": 80}
SMALL_LSTM = {"d_model": 32, "hidden_size": 32, "max_target_length": 80}

VARIANTS: dict[str, dict[str, Any]] = {
    "post_norm": {"family": "transformer", **SMALL, "tied_embeddings": "all"},
    "pre_norm": {
        "family": "transformer",
        **SMALL,
        "norm": "pre",
        "tied_embeddings": "decoder",
        "activation": "gelu",
    },
    "untied_silu": {
        "family": "transformer",
        **SMALL,
        "tied_embeddings": "none",
        "activation": "silu",
        "scale_embeddings": False,
        "output_bias": True,
    },
    "free_widths": {
        "family": "transformer",
        **SMALL,
        "d_k": 6,
        "d_v": 10,
        "attention_bias": False,
        "attention_output_bias": False,
    },
    "shared_heads": {
        "family": "transformer",
        **SMALL,
        "positions": "learned",
        "share_head_projection": True,
        "attention_bias": False,
        "attention_scale": "d_model",
        "dropout_after_norm": True,
    },
    "uneven_depth": {
        "family": "transformer",
        **SMALL,
        "encoder_layers": 3,
        "decoder_layers": 1,
        "tied_embeddings": "all",
    },
    "t5": {
        "family": "transformer",
        **SMALL,
        "norm": "pre",
        "norm_type": "rms",
        "norm_epsilon": 1e-6,
        "positions": "none",
        "relative_bias": {"buckets": 8, "max_distance": 20},
        "attention_bias": False,
        "attention_output_bias": False,
        "attention_scale": "none",
        "scale_embeddings": False,
        "activation": "gelu_tanh",
        "ffn_bias": False,
        "ffn_gated": True,
        "tied_embeddings": "inputs",
    },
    "t5_per_layer": {
        "family": "transformer",
        **SMALL,
        "decoder_d_ff": 48,
        "norm": "pre",
        "norm_type": "rms",
        "positions": "none",
        "relative_bias": {"buckets": 8, "max_distance": 20, "per_layer": True},
        "output_scale": 0.5,
        "tied_embeddings": "all",
    },
    "bart": {
        "family": "transformer",
        **SMALL,
        "positions": "learned",
        "embedding_norm": True,
        "final_norm": True,
        "scale_embeddings": False,
        "activation": "gelu_sigmoid",
        "output_bias": True,
        "tied_embeddings": "all",
    },
    "marian_ssru": {
        "family": "ssru",
        **SMALL,
        "positions": "table",
        "norm_epsilon": 1e-6,
        "scale_embeddings": 5.0,
        "output_bias": True,
        "tied_embeddings": "all",
    },
    "attention_encoder": {
        "family": "transformer",
        **SMALL,
        "norm": "pre",
        "encoder_attention_only": True,
        "tied_embeddings": "all",
    },
    "output_bias": {"family": "transformer", **SMALL, "output_bias": True, "tied_embeddings": "all"},
    "ssru": {"family": "ssru", **SMALL, "norm": "pre", "tied_embeddings": "all"},
    "lstm": {"family": "lstm", **SMALL_LSTM, "hidden_size": 24},
    "lstm_bridge": {"family": "lstm", **SMALL_LSTM, "bidirectional": True, "tied_embeddings": "all"},
    "lstm_mlp": {
        "family": "lstm_attention",
        **SMALL_LSTM,
        "num_layers": 1,
        "bidirectional": True,
        "tied_embeddings": "decoder",
    },
    "lstm_dot": {"family": "lstm_attention", **SMALL_LSTM, "attention": "dot", "hidden_size": 24},
    "lstm_scaled_dot": {"family": "lstm_attention", **SMALL_LSTM, "attention": "scaled_dot", "hidden_size": 24},
}
"""``[model]`` sections of small models: every family and its variations."""

FAST = {"post_norm", "free_widths", "ssru"}
"""Variants whose graphs are tested with the fast tests: one with each kind of state. Tracing a model takes some ten
seconds."""


EVERY_BLOCK = {"post_norm", "t5", "marian_ssru", "lstm_bridge", "lstm_dot"}
"""Variants that together have every kind of layer; those of all others are tried with the slow tests."""


def is_slow(variant: str) -> bool:
    """Return whether the graphs of a variant are tested with the slow tests only."""
    return variant not in FAST


def traced_variants(variants: Iterable[str] = VARIANTS) -> list[str | ParameterSet]:
    """Return parameters for tests that need traced graphs of variants; those not in :data:`FAST` are marked as slow."""
    return [pytest.param(variant, marks=pytest.mark.slow) if is_slow(variant) else variant for variant in variants]


def varied_blocks() -> list[str | ParameterSet]:
    """Return parameters for tests of every variant; those not in :data:`EVERY_BLOCK` are marked as slow."""
    return [name if name in EVERY_BLOCK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
