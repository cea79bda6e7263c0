"""Configurations of the families ``lstm`` and ``lstm_attention``. Does not import torch.

They are the models of the article "PyTorch系列之机器翻译｜注意力机制｜Transformer" (2020): an encoder and a decoder
of stacked LSTMs, without and with attention.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeformer.model.fields import Probability, Size, Tying


class LSTMConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An LSTM encoder and decoder (Sutskever et al. 2014)."""

    d_model: Size = 256
    """Width of embeddings (D)."""
    hidden_size: Size = 256
    """Units of a layer (U); in the encoder, of each direction."""
    num_layers: Size = 2
    """Number of encoder layers and of decoder layers; each decoder layer starts from the state of an encoder layer."""
    bidirectional: bool = False
    """Read the source in both directions; a bridge, a linear layer with tanh, joins the final states of both."""
    tied_embeddings: Tying = "none"
    """Tables sharing a weight: none; the target embedding and the output projection; these and the source embedding."""
    dropout: Probability = 0.1
    """Dropout on embeddings, between layers and before the output projection."""
    max_source_length: Size = 256
    """Maximum source length in tokens, including the end token."""
    max_target_length: Size = 256
    """Maximum number of decoding steps."""

    def __post_init__(self) -> None:
        """Check constraints between fields; msgspec reports a ``ValueError`` as a validation error."""
        if self.tied_embeddings != "none" and self.d_model != self.hidden_size:
            raise ValueError(
                f'`tied_embeddings` = "{self.tied_embeddings}" needs `d_model` = `hidden_size`, but they are '
                f"{self.d_model} and {self.hidden_size}"
            )

    @property
    def output_width(self) -> int:
        """Width of the encoder's outputs (C): the units of all directions."""
        return (1 + self.bidirectional) * self.hidden_size


class LSTMAttentionConfig(LSTMConfig, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An LSTM with attention over all encoder outputs at every step (Bahdanau et al. 2015, Luong et al. 2015)."""

    attention: Literal["mlp", "dot", "scaled_dot"] = "mlp"
    """Score of a query and a key, without biases: ``v tanh(W q + U k)`` for ``mlp``, ``q (U k) / sqrt(hidden_size)``
    for ``dot``, and ``q k / sqrt(hidden_size)``, without parameters, for ``scaled_dot``. The latter needs encoder
    outputs as wide as a query, thus ``bidirectional`` = false."""
    attention_dropout: Probability = 0.0
    """Dropout on attention weights."""

    def __post_init__(self) -> None:
        """Also check that a key is as wide as a query if it is not projected."""
        super().__post_init__()
        if self.attention == "scaled_dot" and self.output_width != self.hidden_size:
            raise ValueError(
                '`attention` = "scaled_dot" needs encoder outputs as wide as `hidden_size`, but with `bidirectional` = '
                f'true they are {self.output_width} wide and it is {self.hidden_size}; "dot" projects them'
            )
