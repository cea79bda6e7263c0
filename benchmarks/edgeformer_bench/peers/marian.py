"""Marian's own CPU decoder, with the weights of a run. Requires the package ``pymarian``, of 600 MB, which may have an
environment of its own; its process then uses that environment's interpreter. Conversion uses this one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from edgeformer_bench.peers.base import PeerError, Spec
from edgeformer_bench.peers.converted import ConvertedModel, side_names

MODEL_FILE = "model.npz"
VOCABULARY_FILES = "source.yml", "target.yml"
ONE_BATCH = {"mini_batch": 10_000, "maxi_batch": 1}
SORTED_BATCHES = {"mini_batch": 32, "maxi_batch": 100, "maxi_batch_sort": "src"}


class MarianPeer:
    """A converted model.

    Args:
        folder: output of :func:`~edgeformer_bench.peers.marian_model.convert_run`.
        threads: CPU threads, each of which translates batches of its own.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        import pymarian

        self.version = f"pymarian {pymarian.__version__}"
        self._model, self._folder, self._threads = ConvertedModel(folder), folder, threads
        sides = self._model.source_tokenizer, self._model.target_tokenizer
        source, target = map(side_names, sides)
        self._names, self._ids = source, {name: index for index, name in enumerate(target)}
        self._translator = cache(self._open)

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """See :meth:`Peer.translate`."""
        if length is not None:
            raise PeerError("Marian cannot decode a given number of tokens.")
        return self._translate(sources, beam_size, in_one_batch=True)

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`TextPeer.translate_texts`; Marian sorts texts by length and forms batches."""
        return self._model.texts(texts, partial(self._translate, beam_size=beam_size, in_one_batch=False))

    def _translate(self, sources: Sequence[Sequence[int]], beam_size: int, *, in_one_batch: bool) -> list[list[int]]:
        # Marian appends the end token.
        lines = [" ".join(self._names[index] for index in source[:-1]) for source in sources]
        output = self._translator(beam_size, in_one_batch).translate(lines)
        return [
            [self._ids[name] for name in line.split()[:limit]]
            for line, limit in zip(output, self._model.limits(sources), strict=True)
        ]

    def _open(self, beam_size: int, in_one_batch: bool) -> Any:
        """Load the model; Marian's decoder has one beam size."""
        import pymarian

        generation = self._model.rules.generation
        if beam_size > 1 and not generation.beam_shrinks:
            raise PeerError("Marian's beam search needs `beam_shrinks`; with --beam 1, there is no difference.")
        return pymarian.Translator(
            models=str(self._folder / MODEL_FILE),
            vocabs=[str(self._folder / name) for name in VOCABULARY_FILES],
            beam_size=beam_size,
            normalize=generation.length_penalty,
            max_length_factor=generation.max_len_a or self._model.rules.max_target_length,
            cpu_threads=self._threads,
            quiet=True,
            quiet_translation=True,
            **(ONE_BATCH if in_one_batch else SORTED_BATCHES),
        )


def open_peer(spec: Spec) -> MarianPeer:
    """Open a converted model."""
    return MarianPeer(Path(spec.model), spec.threads)
