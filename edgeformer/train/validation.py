"""Validation: loss over all pairs, and BLEU and exact matches of decoded output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from edgeformer.data.batches import EncodedPairs, evenly_spaced, in_order
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer.quality.scores import score
from edgeformer.run.folder import Run
from edgeformer.run.info import Validation
from edgeformer.train.loss import smoothed_cross_entropy
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions


@dataclass(frozen=True, kw_only=True)
class Validator:
    """Scores of a model on the validation pairs."""

    run: Run
    """Has the recipe, whose section ``[train]`` says how much to decode and how much to compute at a time."""
    encoded: EncodedPairs
    """Validation pairs that fit the model."""
    references: Sequence[str]
    """Target text of each pair."""
    autocast: Callable[[], AbstractContextManager[object]]
    """Opens a block that computes in the precision of training."""
    tokenized: bool = False
    """The references are already tokenized, so BLEU does not tokenize them."""

    def __call__(self, model: EncoderDecoder, *, step: int, minutes: float) -> Validation:
        """Validate a model, whose mode and random state do not change."""
        was_training = model.training
        model.eval()
        try:
            loss, nll = self._losses(model)
            bleu, exact_match, count = self._decoded(model)
        finally:
            model.train(was_training)
        return Validation(
            step=step,
            loss=loss,
            perplexity=math.exp(min(nll, 700.0)),
            bleu=bleu,
            exact_match=exact_match,
            sentences=count,
            minutes=minutes,
        )

    @cached_property
    def unigram_perplexity(self) -> float:
        """Perplexity of a model that knows how frequent each token is, and nothing else."""
        batches = in_order(self.encoded, self.run.recipe.train.batch_tokens)
        labels = np.concatenate([batch.labels[batch.labels >= 0] for batch in batches])
        share = np.unique(labels, return_counts=True)[1] / len(labels)
        return math.exp(-(share * np.log(share)).sum())

    @torch.inference_mode()
    def _losses(self, model: EncoderDecoder) -> tuple[float, float]:
        """Return the mean smoothed and plain cross-entropy per token."""
        device = next(model.parameters()).device
        smoothing = self.run.recipe.train.label_smoothing
        tokens, total = 0, torch.zeros(2, dtype=torch.float64, device=device)
        with self.autocast():
            for batch in in_order(self.encoded, self.run.recipe.train.batch_tokens):
                source, length, target, labels = (
                    torch.from_numpy(array).to(device)
                    for array in (batch.source, batch.source_length, batch.target, batch.labels)
                )
                sums = smoothed_cross_entropy(model(source, length, target), labels, smoothing)
                total += torch.stack((sums.loss, sums.nll))
                tokens += sums.tokens
        loss, nll = (total / tokens).tolist()
        return loss, nll

    def _decoded(self, model: EncoderDecoder) -> tuple[float, float, int]:
        """Return BLEU, the fraction of exact matches, and the number of sentences, decoded greedily."""
        rows = evenly_spaced(len(self.encoded), self.run.recipe.train.validate_sentences)
        if not len(rows):
            return 0.0, 0.0, 0
        source = self.encoded.source
        sources = [source.flat[source.start[row] : source.start[row] + source.length[row]].tolist() for row in rows]
        # An untrained model does not end its sentences; twice the longest reference is enough to see that.
        longest = 2 * int(self.encoded.target.length[rows].max())
        options = DecodeOptions(beam_size=1, max_length=longest, return_scores=False)
        outputs = decode(TorchSession(model, self.run.special), sources, options)
        texts = [self.run.target_tokenizer.decode(best.ids) for best, *_ in outputs]
        references = [self.references[row] for row in rows]
        if self.run.recipe.tokenizer.lowercase:
            references = [reference.lower() for reference in references]
        scores = score(texts, references, tokenize="none" if self.tokenized else "13a")
        return scores.bleu, scores.exact_match, scores.sentences
