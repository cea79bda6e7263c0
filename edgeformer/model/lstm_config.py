"""Configuration and presets of the families ``lstm`` and ``lstm_attention``. Imports no torch.

The models of the article "PyTorch系列之机器翻译｜注意力机制｜Transformer" (2020): an encoder and a decoder of
stacked LSTMs, without and with attention.
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
    """Units of a layer, in the encoder in each direction."""
    num_layers: Size = 2
    """Layers of the encoder and of the decoder; each decoder layer starts from the state of an encoder layer."""
    bidirectional: bool = False
    """Read the source in both directions; a linear layer with tanh (the bridge) turns both final states into one."""
    tied_embeddings: Tying = "none"
    """Which share one table: nothing; target embedding and output projection; those and the source embedding."""
    dropout: Probability = 0.1
    """Dropout on embeddings, between layers and before the output projection."""
    max_source_length: Size = 256
    """Longest source in tokens, end token included."""
    max_target_length: Size = 256
    """Largest number of decoding steps."""

    def __post_init__(self) -> None:
        """Check what depends on several fields; msgspec reports a ``ValueError`` as a validation error."""
        if self.tied_embeddings != "none" and self.d_model != self.hidden_size:
            raise ValueError(
                f'`tied_embeddings` = "{self.tied_embeddings}" needs `d_model` = `hidden_size`, but they are '
                f"{self.d_model} and {self.hidden_size}"
            )

    @property
    def output_width(self) -> int:
        """Width of the encoder's outputs: the units of all directions."""
        return (1 + self.bidirectional) * self.hidden_size


class LSTMAttentionConfig(LSTMConfig, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The same with attention over all encoder outputs at each step (Bahdanau et al. 2015, Luong et al. 2015)."""

    attention: Literal["mlp", "dot", "scaled_dot"] = "mlp"
    """Score of a query and a key: ``v tanh(W q + U k)`` without biases, ``q (U k) / sqrt(hidden_size)``, or without
    any parameters ``q k / sqrt(hidden_size)``, which needs ``bidirectional`` = false."""
    attention_dropout: Probability = 0.0
    """Dropout on attention weights."""

    def __post_init__(self) -> None:
        """Also check that a key is as wide as a query where no projection makes it so."""
        super().__post_init__()
        if self.attention == "scaled_dot" and self.output_width != self.hidden_size:
            raise ValueError(
                '`attention` = "scaled_dot" needs encoder outputs as wide as `hidden_size`, but with `bidirectional` = '
                f'true they are {self.output_width} wide and it is {self.hidden_size}; "dot" projects them'
            )
