"""Text-to-text translation: the class that most users need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, Unpack

from msgspec.structs import asdict

from edgeformer_runtime.attention import Attention, attended, attention_of
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.signature import Key
from edgeformer_runtime.bundle.tokenizers import bundle_tokenizers
from edgeformer_runtime.encoding import EncodedTexts, decoded, encode_sources, encode_texts, refuse_string, with_ids
from edgeformer_runtime.engines.base import BundleSession, choose_engine, open_session
from edgeformer_runtime.engines.cpus import divide_cpus
from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_OPTION, MAX_THREADS, MAX_WORKERS
from edgeformer_runtime.models.names import resolve_bundle
from edgeformer_runtime.scores import Score, score_targets
from edgeformer_runtime.search.loop import Counters, decode, search_steps
from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions, TokensOrText, changed, check_count
from edgeformer_runtime.search.requests import Cancel, Stop, make_requests, stops_of
from edgeformer_runtime.search.search import Hypothesis, SentenceCallback
from edgeformer_runtime.search.session import StepSession
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import BLANK, OnError, Source, TokenStep, Translation

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose default makes `Translator` short for `Translator[BundleSession]`

    SessionT_co = TypeVar("SessionT_co", bound=StepSession, covariant=True, default=BundleSession)
else:
    from typing import TypeVar

    SessionT_co = TypeVar("SessionT_co")


class Translator(Generic[SessionT_co]):
    """A model with its tokenizers, ready to translate. Thread-safe.

    Use :meth:`open` to open a bundle, and the constructor to wrap a session of another engine. As a context manager, it
    closes itself. A translator of a bundle is pickled as the bundle's path and its settings, and opened again when it
    is unpickled. After a fork, the child process can use it on the kernels, but not in ONNX Runtime
    (:class:`SessionError`).

    Args:
        session: the model.
        source_tokenizer: tokenizer of the source side.
        target_tokenizer: tokenizer of the target side.
        defaults: decoding options for calls that do not override them.
        workers: number of batches that a call decodes concurrently.
        truncate: truncate texts with more tokens than the model accepts, rather than raise an error.
        languages: codes of the languages to translate from and to, for models with several.

    Raises:
        OptionError: ``workers`` is out of range, or the model needs a language that it does not have.
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
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        check_count("workers", workers, 1, MAX_WORKERS)
        self.session = session.with_prefix(target_tokenizer.target_prefix(*languages))
        """The model; its targets begin as those in the target language do."""
        self.source_tokenizer = source_tokenizer.for_sources(*languages)
        self.target_tokenizer = target_tokenizer
        self.languages = languages
        """Codes of the languages to translate from and to; empty if they are not known."""
        self.defaults, self.workers, self.truncate = defaults, workers, truncate

    @staticmethod
    def open(
        bundle: str | Path | Bundle,
        *,
        device: str = "cpu",
        threads: int = 0,
        workers: int = 0,
        truncate: bool = False,
        trusted_keys: Sequence[Key] | None = None,
        source_language: str = "",
        target_language: str = "",
        shortlist: bool = True,
        engine: str = "auto",
    ) -> Translator[BundleSession]:
        """Check and open a bundle. The decoding defaults come from its manifest.

        Args:
            bundle: the bundle's folder, the name of a model that ``edgeformer models`` lists, or an opened bundle.
            device: ``cpu`` or ``cuda``.
            threads: CPU threads per operator; 0 for as many as are useful for a model of this size, at most the
                available CPUs divided by ``workers``. The kernels use one.
            workers: number of batches that a call decodes concurrently, sharing one copy of the weights. By default, 1
                with CUDA or if ``threads`` is given (with the kernels, that number), otherwise one per CPU, at most 8.
            truncate: truncate texts with more tokens than the model accepts, rather than raise an error.
            trusted_keys: public keys, one of which must have signed the bundle; see
                :func:`~edgeformer_runtime.bundle.open.open_bundle`, which takes them if the bundle is opened before.
            source_language: language to translate from, as a BCP 47 tag or a code of the model; by default, the
                bundle's.
            target_language: language to translate to.
            shortlist: restrict searches on the kernels to the tokens of the bundle's shortlist, if it has one.
            engine: ``onnxruntime``; ``kernels``, which need the package ``edgeformer-kernels``, a CPU and a bundle with
                a plan; or ``auto`` for the kernels where they can be used.

        Raises:
            BundleError: the bundle is missing, damaged, not signed by a trusted key, or incompatible with this runtime.
            ConfigError: a key cannot be read, or ``edgeformer[sign]`` is not installed.
            DeviceError: the device is unknown, or not supported by the installed onnxruntime; or the engine is not
                installed.
            OptionError: ``engine`` is unknown, ``threads`` or ``workers`` is out of range, or the model does not have a
                language.
        """
        check_count("workers", workers, 0, MAX_WORKERS)
        check_count("threads", threads, 0, MAX_THREADS)
        bundle = resolve_bundle(bundle, trusted_keys)
        engine = choose_engine(bundle, engine, device)
        most_threads = 1 if engine == "kernels" else MAX_THREADS
        threads, workers = divide_cpus(
            bundle.nbytes, threads, workers if device == "cpu" else workers or 1, most_threads
        )
        session = open_session(bundle, engine=engine, device=device, threads=threads, shortlist=shortlist)
        source, target = bundle_tokenizers(bundle)
        manifest = bundle.manifest
        defaults = DecodeOptions(**asdict(manifest.generation))
        own = manifest.source_language, manifest.target_language
        languages = manifest.text.chosen(own, (source_language or own[0], target_language or own[1]))
        return Translator(session, source, target, defaults, workers=workers, truncate=truncate, languages=languages)

    @property
    def bundle(self: Translator[BundleSession]) -> Bundle:
        """The bundle that was opened."""
        return self.session.bundle

    def with_languages(self, source_language: str = "", target_language: str = "") -> Translator[SessionT_co]:
        """Return a translator between other languages, which shares this one's model; see :meth:`open`.

        Raises:
            OptionError: the model does not have a language, or needs one that is not given.
        """
        if (source_language, target_language) == self.languages:
            return self
        return Translator(
            self.session,
            self.source_tokenizer,
            self.target_tokenizer,
            self.defaults,
            workers=self.workers,
            truncate=self.truncate,
            languages=self.source_tokenizer.text.chosen(self.languages, (source_language, target_language)),
        )

    def close(self) -> None:
        """Free the model of a bundle; further calls raise :class:`SessionError`. May be called several times."""
        if isinstance(self.session, BundleSession):
            self.session.close()

    def __repr__(self) -> str:
        model = repr(self.session.bundle) if isinstance(self.session, BundleSession) else type(self.session).__name__
        return f"Translator({model}, languages={self.languages}, workers={self.workers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def options(self, options: DecodeOptions | None = None, **changes: Unpack[DecodeChanges]) -> DecodeOptions:
        """Return decoding options, by default the translator's, with some values changed, and tokens replaced with
        their ids.

        Raises:
            OptionError: a name is unknown, or a token is not in the target vocabulary.
        """
        return with_ids(self.target_tokenizer, changed(self.defaults if options is None else options, changes))

    def encode(self, texts: Iterable[str | Source], *, max_length: int | None = None) -> list[Source]:
        """Encode texts to the token ids that the model reads; see
        :func:`~edgeformer_runtime.encoding.encode_sources`.

        Raises:
            OptionError: ``texts`` is not iterable, or a single string.
        """
        refuse_string(texts)
        most = self.session.max_source_length
        return encode_sources(self.source_tokenizer, list(texts), most, max_length, truncate=self.truncate)

    def translate(
        self,
        texts: Iterable[str | Source],
        options: DecodeOptions | None = None,
        *,
        target_prefix: str | Sequence[TokensOrText | None] | None = None,
        counters: Counters | None = None,
        on_error: OnError = "raise",
        timeout: float | None = None,
        cancel: Cancel | Sequence[Cancel | None] | None = None,
        done: Callable[[int, Translation], object] | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> list[Translation]:
        """Translate texts. Each translation is independent of the other texts in the call.

        Args:
            texts: sentences, or all of them encoded, see :meth:`encode`; the translation of a blank sentence is empty.
            options: decoding options; ``None`` uses the defaults.
            target_prefix: what each translation begins with: one string for all texts, or a list with one entry per
                text: text, which the target tokenizer encodes, a list of tokens or token ids, or ``None``. The prefix
                is part of the translation and of its length, but its log-probability does not count in the score, as in
                CTranslate2.
            counters: counters to add times and counts to.
            on_error: ``raise`` fails if a text cannot be translated or is given up; ``return`` translates the others,
                and the :attr:`Translation.error` of that text says why.
            timeout: seconds after which texts that are not complete are given up.
            cancel: a function that returns whether the translation is not wanted any more, such as ``is_set`` of a
                :class:`threading.Event`, or a list with one per text, or ``None``. It is called before every decoder
                step, in any thread; the texts that it gives up take no part in that step.
            done: called with the position and the translation of texts that are complete before the others, in any
                thread; see :func:`~edgeformer_runtime.search.loop.decode`.
            changes: fields of :class:`DecodeOptions` to change in ``options``, such as ``beam_size=1``.

        Raises:
            InputError: a text is not a string of valid Unicode, or its target prefix leaves no room for another token.
            InputTooLongError: a text has more tokens than the model accepts, and ``truncate`` is not set.
            OptionError: an option is unknown or out of range, ``texts`` is not iterable or a single string, or a target
                prefix cannot be encoded.
            SessionError: the translator is closed, or was opened in ONNX Runtime before a fork.
            CanceledError: ``cancel`` said so.
            TimedOutError: the translation took longer than ``timeout``.
        """
        refuse_string(texts)
        texts, options = list(texts), self.options(options, **changes)
        stops = stops_of(cancel, timeout, len(texts))
        encoded = self._encoded(texts, options, target_prefix, on_error)
        hypotheses = decode(
            self.session,
            [encoded.sources[index].ids for index in encoded.read],
            options,
            counters,
            prefixes=[encoded.prefixes[index] for index in encoded.read],
            workers=self.workers,
            stops=[stops[index] for index in encoded.read],
            done=self._told(done, encoded, options),
        )
        return self._translations(encoded, hypotheses, stops, options, on_error)

    def translate_stream(
        self,
        texts: Iterable[str],
        options: DecodeOptions | None = None,
        *,
        chunk: int = 512,
        target_prefix: str | None = None,
        counters: Counters | None = None,
        on_error: OnError = "raise",
        timeout: float | None = None,
        cancel: Cancel | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> Iterator[Translation]:
        """Translate a stream of any length in order, ``chunk`` texts at a time; see :meth:`translate`. The index of an
        error counts from the first text of the stream, and ``timeout`` from the first translation that is asked for."""
        refuse_string(texts)
        check_count("chunk", chunk, 1, MAX_OPTION)
        first, stop, iterator = 0, Stop(cancel, timeout), iter(texts)
        while block := list(islice(iterator, chunk)):
            try:
                translations = self.translate(
                    block,
                    options,
                    target_prefix=target_prefix,
                    counters=counters,
                    on_error=on_error,
                    timeout=stop.seconds_left,
                    cancel=cancel,
                    **changes,
                )
            except InputError as error:
                raise error.at(first + error.index) from None
            yield from (translation.at(first) for translation in translations)
            first += len(block)

    def translate_tokens(
        self,
        text: str | Source,
        options: DecodeOptions | None = None,
        *,
        target_prefix: TokensOrText | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
        **changes: Unpack[DecodeChanges],
    ) -> Iterator[TokenStep]:
        """Translate a text and yield each token as soon as it is decoded, greedily or by sampling.

        The last step has the text, and the :attr:`TokenStep.translation`, that :meth:`translate` gives with the same
        options.

        Args:
            text: a sentence; a blank one yields nothing.
            options: decoding options; ``None`` uses the defaults with ``beam_size=1``.
            target_prefix, cancel, changes: see :meth:`translate`.
            timeout: seconds after the first step is asked for; see :meth:`translate`.

        Raises:
            OptionError: an option is one of beam search or for several hypotheses.
            EdgeformerError: see :meth:`translate`.
        """
        options = self.options(replace(self.defaults, beam_size=1) if options is None else options, **changes)
        stop, tokenizer = Stop(cancel, timeout), self.target_tokenizer
        encoded = self._encoded([text], options, [target_prefix], "raise")
        if not encoded.read:
            return
        requests = make_requests(self.session, [encoded.sources[0].ids], encoded.prefixes, options, [stop])
        if options.beam_size != 1 or options.n_best != 1 or options.return_alternatives:
            raise OptionError(
                "A translation can be streamed only with `beam_size` 1 and `n_best` 1, without `return_alternatives`."
            )
        stop.check()
        for search in search_steps(self.session, requests, replace(options, return_token_scores=True), Counters()):
            if not search.is_finished:
                ids, scores = search.history[0].tolist(), search.token_scores[0].tolist()
                yield TokenStep(ids[-1], tokenizer.tokens(ids[-1:])[0], scores[-1], tokenizer.decode(ids), False)
                continue
            (hypotheses,) = search.finish()
            if not hypotheses:
                stop.check()
            (hypothesis,) = hypotheses
            last = self.session.special.eos if hypothesis.finished else hypothesis.ids[-1]
            score = (hypothesis.token_scores or ())[-1]
            if not options.return_token_scores:
                hypothesis = replace(hypothesis, token_scores=None)
            (translation,) = self._translations(encoded, [[hypothesis]], [stop], options, "raise")
            yield TokenStep(last, tokenizer.tokens([last])[0], score, translation.text, True, translation)

    def score(
        self,
        texts: Iterable[str],
        targets: Iterable[TokensOrText],
        *,
        end_token: bool = True,
        max_batch_tokens: int = 4096,
    ) -> list[Score]:
        """Compute log-probabilities of given translations of texts; see
        :func:`~edgeformer_runtime.scores.score_targets`, and :meth:`encode` for further errors."""
        sources = self.encode(texts)
        return score_targets(self.session, self.target_tokenizer, sources, targets, end_token, max_batch_tokens)

    def attention(self, translations: Sequence[Translation], *, max_batch_tokens: int = 4096) -> list[Attention]:
        """Compute attention weights for the best hypothesis of each translation; see
        :func:`~edgeformer_runtime.attention.attention_of`."""
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return attention_of(self.session, tokenizers, translations, max_batch_tokens)

    def too_long(self, texts: Sequence[str]) -> set[int]:
        """Return the positions of texts with more tokens, end token included, than the model accepts."""
        limit = self.session.max_source_length
        encoded = self.source_tokenizer.encode_batch(texts, special_tokens=True)
        return {index for index, ids in enumerate(encoded) if len(ids) > limit}

    def _encoded(
        self,
        texts: Sequence[str | Source],
        options: DecodeOptions,
        target_prefix: str | Sequence[TokensOrText | None] | None,
        on_error: OnError,
    ) -> EncodedTexts:
        """Check options, and encode texts and prefixes; see :func:`~edgeformer_runtime.encoding.encode_texts`."""
        options.verify()
        if options.needs_attention:
            self.session.open_attention()  # a bundle without attention is an error before any work
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return encode_texts(self.session, tokenizers, texts, options, target_prefix, on_error, truncate=self.truncate)

    def _told(
        self, done: Callable[[int, Translation], object] | None, encoded: EncodedTexts, options: DecodeOptions
    ) -> SentenceCallback | None:
        """A function that takes hypotheses, and calls one that takes translations; ``None`` if translations are not
        complete without attention weights."""
        if done is None or options.needs_attention:
            return None

        def tell(number: int, hypotheses: Sequence[Hypothesis]) -> None:
            index = encoded.read[number]
            if not (source := encoded.sources[index]).needs_attention:
                done(index, decoded(self.target_tokenizer, source, hypotheses))

        return tell

    def _translations(
        self,
        encoded: EncodedTexts,
        hypotheses: Sequence[Sequence[Hypothesis]],
        stops: Sequence[Stop | None],
        options: DecodeOptions,
        on_error: OnError,
    ) -> list[Translation]:
        """Decode hypotheses, which are those of the texts that were read; none of a text that was given up.

        Raises:
            StoppedError: a text was given up, and errors are raised.
        """
        blank = replace(BLANK, token_scores=() if options.return_token_scores else None)
        errors = encoded.errors
        results = [
            Translation(source, () if index in errors else (blank,), errors.get(index))
            for index, source in enumerate(encoded.sources)
        ]
        for index, of_text in zip(encoded.read, hypotheses, strict=True):
            error = stop.error if (stop := stops[index]) and not of_text else None
            if error and on_error == "raise":
                raise error
            results[index] = decoded(self.target_tokenizer, encoded.sources[index], of_text, error)
        if not options.needs_attention and not any(source.needs_attention for source in encoded.sources):
            return results
        return attended(self.session, (self.source_tokenizer, self.target_tokenizer), results, options)


AnyTranslator = Translator[StepSession]
"""A translator with any type of session."""
