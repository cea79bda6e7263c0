"""What Lightning trains: a model with its loss, optimizer and schedule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgeformer.config import TrainConfig
from edgeformer.data.batches import BatchStream
from edgeformer.errors import TrainingError
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer import Transformer
from edgeformer.train.loss import projected_cross_entropy, smoothed_cross_entropy
from edgeformer.train.schedule import learning_rate


class TensorBatch(NamedTuple):
    """A :class:`~edgeformer.data.batches.Batch` as tensors; Lightning moves them to the device."""

    source: Tensor
    source_length: Tensor
    target: Tensor
    labels: Tensor
    update_tokens: int


class TensorStream:
    """The batches from one update on; every iteration begins there."""

    def __init__(self, stream: BatchStream, step: int) -> None:
        self._stream, self._step = stream, step

    def __iter__(self) -> Iterator[TensorBatch]:
        for batch in self._stream.start_at(self._step):
            yield TensorBatch(
                torch.from_numpy(batch.source),
                torch.from_numpy(batch.source_length),
                torch.from_numpy(batch.target),
                torch.from_numpy(batch.labels),
                batch.update_tokens,
            )


class TrainingModule(pl.LightningModule):
    """Divides the loss of an update by its true tokens, over all its batches and processes.

    Dropout is seeded by seed, batch and process, so that a resumed run needs no random state.
    """

    def __init__(self, model: EncoderDecoder, config: TrainConfig, stream: BatchStream, d_model: int) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.stream = stream
        self.d_model = d_model
        self.gradient_norm = torch.zeros(())
        """Norm of the last update's gradient before clipping."""
        self.update_loss = torch.zeros(())
        """Smoothed loss per token of this process's part of the last update."""

    def train_dataloader(self) -> TensorStream:
        """The batches from the next update on."""
        return TensorStream(self.stream, self.trainer.global_step)

    def on_train_batch_start(self, batch: TensorBatch, batch_idx: int) -> None:
        """Seed dropout."""
        place = batch_idx % self.config.accumulate
        if place == 0:
            self.update_loss = torch.zeros((), device=self.device)
        number = self.trainer.global_step * self.config.accumulate + place
        seeds = np.random.SeedSequence((self.config.seed, number, self.global_rank))
        torch.manual_seed(int(seeds.generate_state(1)[0]))

    def training_step(self, batch: TensorBatch, batch_idx: int) -> Tensor:
        """Loss of one batch, scaled for the update it is part of."""
        source, source_length, target, labels, update_tokens = batch
        with self._attention_backend():
            if isinstance(self.model, Transformer) and type(self.model).forward is Transformer.forward:
                features = self.model.features(source, source_length, target)
                sums = projected_cross_entropy(features, self.model.projection, labels, self.config.label_smoothing)
            else:
                logits = self.model(source, source_length, target)
                sums = smoothed_cross_entropy(logits, labels, self.config.label_smoothing)
        # Lightning divides by `accumulate`, and DDP by the number of processes.
        scale = self.config.accumulate * self.trainer.world_size / update_tokens
        self.update_loss += sums.loss.detach() * (self.trainer.world_size / update_tokens)
        return sums.loss * scale

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Set the rate, clip the norm, and refuse an update that is not finite before it can spoil the weights.

        Raises:
            TrainingError: the gradient is infinite or not a number.
        """
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(self.trainer.global_step + 1, self.config, self.d_model)
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(
            self.parameters(), self.config.clip_norm or float("inf"), foreach=True
        )
        if not torch.isfinite(self.gradient_norm):
            raise TrainingError(
                f"The gradient became infinite or not a number in step {self.trainer.global_step + 1} "
                f"(loss {self.update_loss.item():.4g})."
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW without decay for biases and norms; with no decay at all it is Adam (Loshchilov and Hutter 2019)."""
        config = self.config
        decayed = [parameter for parameter in self.parameters() if parameter.ndim > 1]
        plain = [parameter for parameter in self.parameters() if parameter.ndim <= 1]
        return torch.optim.AdamW(
            [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=config.learning_rate,
            betas=config.adam_betas,
            eps=config.adam_eps,
            fused=True,
        )

    def _attention_backend(self) -> AbstractContextManager[None]:
        """Plain matrix products on CPU: for sentences in bf16, torch's fused kernel takes several times as long."""
        return sdpa_kernel(SDPBackend.MATH) if self.device.type == "cpu" else nullcontext()
