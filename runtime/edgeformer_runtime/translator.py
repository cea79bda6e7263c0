"""Text in, text out: the class most users need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgeformer_runtime.attention import Attention, attention_weights
from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.decoding.loop import Counters, decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.search import Hypothesis
from edgeformer_runtime.decoding.session import AnySession
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import BundleError, InputError, InputTooLongError, OptionError
from edgeformer_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextHypothesis:
    """One possible translation."""

    text: str
    """Detokenised text."""
    tokens: tuple[str, ...]
    """Tokens as the vocabulary writes them, without start and end token."""
    ids: tuple[int, ...]
    """Their ids."""
    score: float | None
    """Normalised log-probability (see :class:`DecodeOptions`); none if it was not asked for."""
    finished: bool
    """Whether it ended by itself, and was not cut off at the length limit."""


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    hypotheses: tuple[TextHypothesis, ...]
    """``n_best`` translations, best first."""
    cut: int = 0
    """Source tokens that were left out, where texts may be cut."""

    @property
    def best(self) -> TextHypothesis:
        """The best hypothesis."""
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        """Text of the best hypothesis."""
        return self.best.text

    @property
    def tokens(self) -> tuple[str, ...]:
        """Tokens of the best hypothesis."""
        return self.best.tokens

    @property
    def score(self) -> float | None:
        """Score of the best hypothesis."""
        return self.best.score


EMPTY = Translation((TextHypothesis("", (), (), 0.0, True),))
"""What a text without anything but white space translates to."""


def encode_sources(
    session: AnySession, tokenizer: Tokenizer, texts: Sequence[str], cut: dict[int, int] | None = None
) -> dict[int, list[int]]:
    """Source ids with end token by position in ``texts``; those of white space alone are left out.

    Args:
        session: knows how many tokens the model takes.
        tokenizer: of the source side.
        texts: sentences.
        cut: lets texts with more tokens be cut, and receives how many were left out, by position.

    Raises:
        InputError: a text has more tokens than the model takes and may not be cut, or is not valid Unicode.
    """
    encoded, eos, limit = tokenizer.encode_batch(texts), session.special.eos, session.max_source_length
    sources = {index: [*encoded[index], eos] for index, text in enumerate(texts) if text.strip()}
    for index, ids in sources.items():
        if (surplus := len(ids) - limit) > 0:
            if cut is None:
                raise InputTooLongError(index, len(ids), limit)
            cut[index] = surplus
            del ids[limit - 1 : -1]
    return sources


def translate_texts(
    session: AnySession,
    source: Tokenizer,
    target: Tokenizer,
    texts: Sequence[str],
    options: DecodeOptions,
    counters: Counters | None = None,
    *,
    workers: int = 1,
    truncate: bool = False,
) -> list[Translation]:
    """Translate with any session. Texts of white space alone are not decoded and give :data:`EMPTY`.

    Raises:
        InputTooLongError: a text has more tokens than the model takes, and ``truncate`` does not allow to cut it;
            ``index`` counts within ``texts``.
        OptionError: an option is out of its range.
    """
    cut: dict[int, int] = {}
    sources = encode_sources(session, source, texts, cut if truncate else None)
    translations = [EMPTY] * len(texts)
    decoded = decode(session, list(sources.values()), options, counters, workers=workers)
    for index, hypotheses in zip(sources, decoded, strict=True):
        found = tuple(_with_text(hypothesis, target) for hypothesis in hypotheses)
        translations[index] = Translation(found, cut.get(index, 0))
    return translations


class Translator:
    """A bundle, ready to translate. One object serves many threads."""

    def __init__(
        self,
        bundle: str | Path | Bundle,
        *,
        device: str = "cpu",
        threads: int = 0,
        workers: int = 1,
        truncate: bool = False,
    ) -> None:
        """Check and open a bundle.

        Args:
            bundle: its folder, or a bundle opened before.
            device: ``cpu`` or ``cuda``.
            threads: CPU threads of one operator; 0 takes all that this process may use, divided among the workers.
            workers: batches of one call translated at the same time, with one copy of the weights. Several workers with
                a thread each translate many sentences sooner than one with several threads; one sentence takes longer.
            truncate: cut a text that has more tokens than the model takes, which is an error otherwise.

        Raises:
            BundleError: the bundle is missing or damaged, or not for this runtime.
            DeviceError: the device is unknown or not supported by the installed onnxruntime.
            OptionError: there is no worker.
        """
        if workers < 1:
            raise OptionError(f"`workers` must be at least 1, but is {workers}.")
        self.workers, self.truncate = workers, truncate
        self.bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        manifest = self.bundle.manifest
        threads = threads or max(1, available_cpus() // workers)
        self.session = OnnxSession(self.bundle, device=device, threads=threads)
        self.source_tokenizer = Tokenizer.from_file(self.bundle.file(manifest.tokenizers.source))
        self.target_tokenizer = (
            self.source_tokenizer
            if manifest.tokenizers.target == manifest.tokenizers.source
            else Tokenizer.from_file(self.bundle.file(manifest.tokenizers.target))
        )
        for side, tokenizer, size in (
            ("source", self.source_tokenizer, manifest.source_vocab_size),
            ("target", self.target_tokenizer, manifest.target_vocab_size),
        ):
            special = manifest.special
            ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)
            if tokenizer.vocab_size > size or ids != (special.pad, special.bos, special.eos):
                raise BundleError(
                    f"Bundle `{self.bundle.path}`: the {side} tokenizer, of {tokenizer.vocab_size} tokens, is not the "
                    "model's; export it again."
                )

    def options(self, **changes: Any) -> DecodeOptions:
        """The bundle's decoding defaults with some values changed.

        Raises:
            OptionError: a name is unknown.
        """
        generation = self.bundle.manifest.generation
        defaults = DecodeOptions(beam_size=generation.beam_size, length_penalty=generation.length_penalty)
        try:
            return replace(defaults, **changes)
        except TypeError:
            known = DecodeOptions.__dataclass_fields__
            unknown = ", ".join(f"`{name}`" for name in changes if name not in known)
            raise OptionError(f"There is no decoding option {unknown}; known are {', '.join(known)}.") from None

    def translate(self, texts: Sequence[str], *, counters: Counters | None = None, **changes: Any) -> list[Translation]:
        """Translate texts; the same text gives the same translation alone or among others.

        Args:
            texts: sentences; one with nothing but white space gives an empty translation.
            counters: receives times and counts.
            changes: fields of :class:`DecodeOptions` that differ from the bundle's defaults, such as ``beam_size=1``.

        Raises:
            InputTooLongError: a text has more tokens than the model takes, and may not be cut.
            OptionError: an option is unknown or out of its range.
        """
        _refuse_string(texts)
        return translate_texts(
            self.session,
            self.source_tokenizer,
            self.target_tokenizer,
            texts,
            self.options(**changes),
            counters,
            workers=self.workers,
            truncate=self.truncate,
        )

    def attention(
        self, texts: Sequence[str], translations: Sequence[Translation], *, max_batch_tokens: int = 4096
    ) -> list[Attention]:
        """Attention weights of the best translation of each text.

        Args:
            texts: the sources.
            translations: what :meth:`translate` made of them.
            max_batch_tokens: bound of a batch's memory, in tokens.

        Returns:
            One per text; empty for a text of white space alone.

        Raises:
            BundleError: the model has no attention weights, or the bundle has changed since it was opened.
            InputTooLongError: a text has more tokens than the model takes, and may not be cut.
            OptionError: there are more texts than translations, or fewer.
        """
        _refuse_string(texts)
        if len(texts) != len(translations):
            raise OptionError(
                f"`translations` must be those of `texts`, but there are {len(translations)} of {len(texts)} texts."
            )
        eos = self.session.special.eos
        sources = encode_sources(self.session, self.source_tokenizer, texts, {} if self.truncate else None)
        best = [translation.best for translation in translations]
        targets = {index: [*best[index].ids, *[eos] * best[index].finished] for index in sources}
        results = [Attention((), (), np.empty((0, 0), np.float32), finished=False)] * len(texts)
        weights = attention_weights(self.session, list(sources.values()), list(targets.values()), max_batch_tokens)
        for index, matrix in zip(sources, weights, strict=True):
            results[index] = Attention(
                tuple(self.source_tokenizer.tokens(sources[index])),
                tuple(self.target_tokenizer.tokens(targets[index])),
                matrix,
                best[index].finished,
            )
        return results

    def translate_stream(
        self, texts: Iterable[str], *, chunk: int = 512, counters: Counters | None = None, **changes: Any
    ) -> Iterator[Translation]:
        """Translate a stream of any length in order; holds ``chunk`` texts at a time. Arguments as in
        :meth:`translate`."""
        _refuse_string(texts)
        if chunk < 1:
            raise OptionError(f"`chunk` must be at least 1, but is {chunk}.")
        iterator, done = iter(texts), 0
        while block := list(islice(iterator, chunk)):
            try:
                yield from self.translate(block, counters=counters, **changes)
            except InputError as error:
                raise error.at(done + error.index) from None
            done += len(block)


def _refuse_string(texts: Iterable[str]) -> None:
    if isinstance(texts, str):
        raise OptionError("`texts` must be a list of strings, but is one string; write translate([text]).")


def _with_text(hypothesis: Hypothesis, tokenizer: Tokenizer) -> TextHypothesis:
    return TextHypothesis(
        text=tokenizer.decode(hypothesis.ids),
        tokens=tuple(tokenizer.tokens(hypothesis.ids)),
        ids=hypothesis.ids,
        score=hypothesis.score,
        finished=hypothesis.finished,
    )
