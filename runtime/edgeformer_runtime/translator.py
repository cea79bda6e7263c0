"""Text-to-text translation: the class that most users need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Unpack

import numpy as np

from edgeformer_runtime.attention import Attention, attention_weights
from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.bundle.signature import Key
from edgeformer_runtime.bundle.tokenizer_file import bundle_tokenizer
from edgeformer_runtime.decoding.loop import Counters, decode
from edgeformer_runtime.decoding.options import DecodeChanges, DecodeOptions, check_count
from edgeformer_runtime.decoding.search import Hypothesis
from edgeformer_runtime.decoding.session import AttentiveSession, StepSession
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import BundleError, InputError, OptionError
from edgeformer_runtime.limits import MAX_THREADS, MAX_WORKERS
from edgeformer_runtime.source import Source, encode_sources
from edgeformer_runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose default makes `Translator` short for `Translator[OnnxSession]`

    SessionT_co = TypeVar("SessionT_co", bound=StepSession, covariant=True, default=OnnxSession)
else:
    from typing import TypeVar

    SessionT_co = TypeVar("SessionT_co")


@dataclass(frozen=True)
class TextHypothesis:
    """One possible translation."""

    text: str
    """Detokenized text."""
    tokens: tuple[str, ...]
    """Tokens as the vocabulary writes them, without start and end token."""
    ids: tuple[int, ...]
    """Token ids, without start and end token."""
    score: float | None
    """Normalized log-probability (see :class:`DecodeOptions`); ``None`` if scores were not requested."""
    finished: bool
    """Whether it ended with the end token, rather than at the length limit."""


BLANK = TextHypothesis(text="", tokens=(), ids=(), score=0.0, finished=True)
"""Translation of a blank text."""


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    source: Source
    """The text and the token ids that the model read."""
    hypotheses: tuple[TextHypothesis, ...]
    """``n_best`` translations, best first."""

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


class Translator(Generic[SessionT_co]):
    """A model with its tokenizers, ready to translate. Thread-safe.

    Use :meth:`open` to open a bundle, and the constructor to wrap a session of another engine.

    Args:
        session: the model.
        source_tokenizer: tokenizer of the source side.
        target_tokenizer: tokenizer of the target side.
        defaults: decoding options for calls that do not override them.
        workers: number of batches that a call decodes concurrently.
        truncate: truncate texts with more tokens than the model accepts, rather than raise an error.

    Raises:
        OptionError: ``workers`` is out of range.
    """

    def __init__(
        self,
        session: SessionT_co,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        defaults: DecodeOptions,
        *,
        workers: int = 1,
        truncate: bool = False,
    ) -> None:
        check_count("workers", workers, 1, MAX_WORKERS)
        self.session = session
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.defaults, self.workers, self.truncate = defaults, workers, truncate

    @staticmethod
    def open(
        bundle: str | Path | Bundle,
        *,
        device: str = "cpu",
        threads: int = 0,
        workers: int = 1,
        truncate: bool = False,
        trusted_keys: Sequence[Key] | None = None,
    ) -> Translator[OnnxSession]:
        """Check and open a bundle. The decoding defaults come from its manifest.

        Args:
            bundle: the bundle's folder, or an opened bundle.
            device: ``cpu`` or ``cuda``.
            threads: CPU threads per operator; 0 divides all available CPUs among the workers.
            workers: number of batches that a call decodes concurrently, sharing one copy of the weights. For many
                sentences, several workers with one thread each are faster than one worker with several threads; for a
                single sentence, they are slower.
            truncate: truncate texts with more tokens than the model accepts, rather than raise an error.
            trusted_keys: public keys, one of which must have signed the bundle; see
                :func:`~edgeformer_runtime.bundle.open.open_bundle`, which takes them if the bundle is opened before.

        Raises:
            BundleError: the bundle is missing, damaged, not signed by a trusted key, or incompatible with this runtime.
            ConfigError: a key cannot be read, or ``edgeformer[sign]`` is not installed.
            DeviceError: the device is unknown, or not supported by the installed onnxruntime.
            OptionError: ``threads`` or ``workers`` is out of range.
        """
        check_count("workers", workers, 1, MAX_WORKERS)
        check_count("threads", threads, 0, MAX_THREADS)
        if not isinstance(bundle, Bundle):
            bundle = open_bundle(bundle, trusted_keys=trusted_keys)
        elif trusted_keys is not None:
            raise OptionError("`trusted_keys` has no effect on an opened bundle; pass it to `open_bundle`.")
        threads = threads or max(1, available_cpus() // workers)
        files, generation = bundle.manifest.tokenizers, bundle.manifest.generation
        session = OnnxSession(bundle, device=device, threads=threads)
        source = bundle_tokenizer(bundle, files.source)
        target = source if files.target == files.source else bundle_tokenizer(bundle, files.target)
        _check_tokenizer(bundle, "source", source, bundle.manifest.source_vocab_size)
        _check_tokenizer(bundle, "target", target, bundle.manifest.target_vocab_size)
        defaults = DecodeOptions(beam_size=generation.beam_size, length_penalty=generation.length_penalty)
        return Translator(session, source, target, defaults, workers=workers, truncate=truncate)

    @property
    def bundle(self: Translator[OnnxSession]) -> Bundle:
        """The bundle that was opened."""
        return self.session.bundle

    def options(self, **changes: Unpack[DecodeChanges]) -> DecodeOptions:
        """Return the decoding defaults with some values changed.

        Raises:
            OptionError: a name is unknown.
        """
        return _changed(self.defaults, changes)

    def encode(self, texts: Sequence[str]) -> list[Source]:
        """Encode texts to the token ids that the model reads.

        Raises:
            InputError: a text is not valid Unicode.
            InputTooLongError: a text has more tokens than the model accepts, and ``truncate`` is not set.
        """
        limit = self.session.max_source_length
        return encode_sources(self.source_tokenizer, texts, limit, truncate=self.truncate)

    def translate(
        self,
        texts: Sequence[str],
        options: DecodeOptions | None = None,
        *,
        counters: Counters | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> list[Translation]:
        """Translate texts. Each translation is independent of the other texts in the call.

        Args:
            texts: sentences; the translation of a blank sentence is empty.
            options: decoding options; ``None`` uses the defaults.
            counters: counters to add times and counts to.
            changes: fields of :class:`DecodeOptions` to change in ``options``, such as ``beam_size=1``.

        Raises:
            InputError: a text is not valid Unicode.
            InputTooLongError: a text has more tokens than the model accepts, and ``truncate`` is not set.
            OptionError: an option is unknown or out of range.
        """
        _refuse_string(texts)
        options = _changed(options or self.defaults, changes)
        sources = self.encode(texts)
        ids = [source.ids for source in sources if source.ids]
        decoded = iter(decode(self.session, ids, options, counters, workers=self.workers))
        return [
            Translation(source, tuple(map(self._detokenized, next(decoded))) if source.ids else (BLANK,))
            for source in sources
        ]

    def translate_stream(
        self,
        texts: Iterable[str],
        options: DecodeOptions | None = None,
        *,
        chunk: int = 512,
        counters: Counters | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> Iterator[Translation]:
        """Translate a stream of any length in order, ``chunk`` texts at a time; see :meth:`translate`."""
        _refuse_string(texts)
        if chunk < 1:
            raise OptionError(f"`chunk` must be at least 1, but is {chunk}.")
        iterator, done = iter(texts), 0
        while block := list(islice(iterator, chunk)):
            try:
                yield from self.translate(block, options, counters=counters, **changes)
            except InputError as error:
                raise error.at(done + error.index) from None
            done += len(block)

    def attention(
        self: Translator[AttentiveSession], translations: Sequence[Translation], *, max_batch_tokens: int = 4096
    ) -> list[Attention]:
        """Compute attention weights for the best hypothesis of each translation.

        Args:
            translations: results of :meth:`translate`.
            max_batch_tokens: maximum batch size, in source tokens.

        Returns:
            The attention of each translation; empty for a blank text.

        Raises:
            BundleError: the model has no attention weights, or the bundle has changed since it was opened.
        """
        eos = self.session.special.eos
        results = [Attention((), (), np.empty((0, 0), np.float32), finished=False)] * len(translations)
        read = [index for index, translation in enumerate(translations) if translation.source.ids]
        sources = [translations[index].source.ids for index in read]
        targets = [(*best.ids, *[eos] * best.finished) for best in (translations[index].best for index in read)]
        weights = attention_weights(self.session, sources, targets, max_batch_tokens)
        for index, source, target, matrix in zip(read, sources, targets, weights, strict=True):
            results[index] = Attention(
                tuple(self.source_tokenizer.tokens(source)),
                tuple(self.target_tokenizer.tokens(target)),
                matrix,
                translations[index].best.finished,
            )
        return results

    def too_long(self, texts: Sequence[str]) -> set[int]:
        """Return the positions of texts with more tokens, end token included, than the model accepts."""
        limit = self.session.max_source_length
        encoded = self.source_tokenizer.encode_batch(texts, end_token=True)
        return {index for index, ids in enumerate(encoded) if len(ids) > limit}

    def _detokenized(self, hypothesis: Hypothesis) -> TextHypothesis:
        ids, tokenizer = hypothesis.ids, self.target_tokenizer
        return TextHypothesis(
            tokenizer.decode(ids), tuple(tokenizer.tokens(ids)), ids, hypothesis.score, hypothesis.finished
        )


AnyTranslator = Translator[StepSession]
"""A translator with any type of session."""


def _changed(options: DecodeOptions, changes: DecodeChanges) -> DecodeOptions:
    valid = DecodeOptions.__dataclass_fields__
    if unknown := [f"`{name}`" for name in changes if name not in valid]:
        plural = "s" if len(unknown) > 1 else ""
        raise OptionError(f"Unknown option{plural} {', '.join(unknown)}. Valid options: {', '.join(valid)}.")
    return replace(options, **changes)


def _check_tokenizer(bundle: Bundle, side: str, tokenizer: Tokenizer, vocab_size: int) -> None:
    special = bundle.manifest.special
    ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    unk = tokenizer.unk_id if special.unk is None else special.unk
    if tokenizer.vocab_size > vocab_size or ids != (special.pad, special.bos, special.eos, unk):
        raise BundleError(
            f"Bundle `{bundle.path}`: the {side} tokenizer, with {tokenizer.vocab_size} tokens, is not the model's; "
            "export the bundle again."
        )


def _refuse_string(texts: Iterable[str]) -> None:
    if isinstance(texts, str):
        raise OptionError("`texts` must be a list of strings, but is a string; write translate([text]).")
