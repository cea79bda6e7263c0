# mypy: disable-error-code="no-any-return, no-untyped-call"
"""A BART of Hugging Face's ``transformers``, wrapped as a model family as its owner would do it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BartConfig, BartModel, DynamicCache, EncoderDecoderCache

from edgeformer.families import Family
from edgeformer.model.base import EncoderDecoder, State
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SOURCE_AXIS, StateTensor
from tests.strangers import HEADS, LIMIT, WIDTH, D, NoFields, mask_of

LAYERS = 2


class WrappedBart(EncoderDecoder):
    """Lewis et al. 2020. The keys and values of ``past_key_values`` are the state: those of self-attention are caches,
    and those of cross-attention are constants with a row for each beam, as ``transformers`` has them."""

    max_source_length = max_target_length = LIMIT

    def __init__(self, _: NoFields, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.bart = BartModel(
            BartConfig(
                vocab_size=max(source_vocab_size, target_vocab_size),
                d_model=D,
                encoder_layers=LAYERS,
                decoder_layers=LAYERS,
                encoder_attention_heads=HEADS,
                decoder_attention_heads=HEADS,
                encoder_ffn_dim=48,
                decoder_ffn_dim=48,
                max_position_embeddings=LIMIT,
                dropout=0.0,
                pad_token_id=0,
                bos_token_id=2,
                eos_token_id=3,
                attn_implementation="eager",
            )
        )
        nn.init.normal_(self.bart.shared.weight, std=D**-0.5)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        mask = mask_of(source_length, source.shape[1])
        memory = self.bart.encoder(source, attention_mask=additive(mask[:, None, None])).last_hidden_state
        state = {"mask": mask}
        for index, layer in enumerate(self.bart.decoder.layers):
            attention = layer.encoder_attn
            for name, projection in (("key", attention.k_proj), ("value", attention.v_proj)):
                state[f"cross_{name}.{index}"] = projection(memory).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        return state

    def decode(self, target: Tensor, visible: Tensor, state: State, past: DynamicCache) -> Tensor:
        """Logits ``(R, T, V)`` of targets ``(R, T)`` that see past and present positions, ``(T, P + T)``."""
        cross = DynamicCache([(state[f"cross_key.{i}"], state[f"cross_value.{i}"]) for i in range(LAYERS)])
        memory = state["cross_key.0"].new_zeros(
            len(target), state["mask"].shape[1], D
        )  # keys and values are in `cross`
        hidden = self.bart.decoder(
            target,
            attention_mask=additive(visible.expand(len(target), 1, -1, -1)),
            encoder_hidden_states=memory,
            encoder_attention_mask=additive(state["mask"][:, None, None]),
            past_key_values=EncoderDecoderCache(past, cross),
            use_cache=True,
        ).last_hidden_state
        return F.linear(hidden, self.bart.shared.weight[: self.target_vocab_size])

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).tril()
        return self.decode(target, causal, self.encode(source, source_length), DynamicCache())

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        past = DynamicCache([(state[f"key.{i}"], state[f"value.{i}"]) for i in range(LAYERS)])
        visible = torch.ones(1, state["key.0"].shape[2] + 1, dtype=torch.bool, device=token.device)
        logits = self.decode(token[:, None], visible, state, past)
        new = {f"key.{i}": layer.keys for i, layer in enumerate(past.layers)}
        new |= {f"value.{i}": layer.values for i, layer in enumerate(past.layers)}
        return logits[:, 0], new

    def state_table(self) -> tuple[StateTensor, ...]:
        tensors = [StateTensor(name="mask", kind="constant", dtype="bool", axes=(ROWS, SOURCE_AXIS))]
        for index in range(LAYERS):
            for name in ("key", "value"):
                axes = (ROWS, HEADS, SOURCE_AXIS, WIDTH)
                tensors.append(StateTensor(name=f"cross_{name}.{index}", kind="constant", dtype="float32", axes=axes))
        for index in range(LAYERS):
            for name in ("key", "value"):
                axes = (ROWS, HEADS, PAST_AXIS, WIDTH)
                tensors.append(StateTensor(name=f"{name}.{index}", kind="cache", dtype="float32", axes=axes))
        return tuple(tensors)


def additive(mask: Tensor) -> Tensor:
    """A mask with four axes, which ``transformers`` adds to scores as it is."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)


BART = Family(name="wrapped_bart", config_type=NoFields, build=WrappedBart)
