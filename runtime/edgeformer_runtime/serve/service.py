"""From texts to translations: routes, splitting, batches and joining, without anything of HTTP."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.errors import BundleError, OptionError
from edgeformer_runtime.serve.batching import Batcher, BatchLimits, BatchReport, Place, QueueFullError, Setting
from edgeformer_runtime.serve.documents import Documents, SentDocument
from edgeformer_runtime.source import Source
from edgeformer_runtime.text import Plan, TextOptions, TextTranslation, TextTranslator
from edgeformer_runtime.text.documents.document import Piece
from edgeformer_runtime.text.options import Format
from edgeformer_runtime.token_stream import TokenStep
from edgeformer_runtime.translator import TextHypothesis, Translation, Translator
from edgeformer_runtime.workspace.workspace import Hop, Workspace


@dataclass(frozen=True)
class Job:
    """What a request wants translated."""

    texts: Sequence[str]
    source: str
    target: str
    format: Format = "text"
    model: str = ""
    """Name of the model to use; empty chooses by language."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Decoding options; those of hypotheses and scores concern the last model of a route."""
    text_options: TextOptions = field(default_factory=TextOptions)
    """How the last model's texts are split and put together again."""
    seconds: float = math.inf
    """Time within which the translation is needed; it is refused if that is not to be expected."""


@dataclass(frozen=True)
class Streamed:
    """A token of a streamed translation, or the end of a text."""

    text: int
    """Position of the text."""
    sentence: int
    """Position of the sentence in the text."""
    step: TokenStep | None
    """``None`` at the end of a text."""
    translation: TextTranslation | None = None
    """The whole text, at its end."""


class Service:
    """Translates texts with the models of a workspace.

    Args:
        workspace: the models.
        limits: sizes of batches and queues.
        max_streams: translations that are streamed at a time.
        report: called after each batch.
        watch: called with a model's name and a function that returns the length of its queue, when it is first used.
    """

    def __init__(
        self,
        workspace: Workspace,
        limits: BatchLimits,
        *,
        max_streams: int = 4,
        report: Callable[[BatchReport], object] = lambda report: None,
        watch: Callable[[str, Callable[[], int]], object] = lambda model, length: None,
    ) -> None:
        self.workspace = workspace
        self._limits, self._report, self._watch = limits, report, watch
        self.documents = Documents()
        self._batchers: dict[str, Batcher] = {}
        self._lock = Lock()
        self._streams = threading.BoundedSemaphore(max_streams)

    @property
    def sources(self) -> list[str]:
        """Codes of all languages that can be translated from; sorted."""
        return sorted({code for model in self.workspace.models() for code in model.sources})

    @property
    def targets(self) -> list[str]:
        """Codes of all languages that can be translated to; sorted."""
        return sorted({code for model in self.workspace.models() for code in model.targets})

    def route(self, job: Job) -> tuple[Hop, ...]:
        """The models that a job needs; none if its languages are equal.

        Raises:
            OptionError: the model or the language pair does not exist.
        """
        if not job.model:
            return self.workspace.route(job.source, job.target)
        model = self.workspace.model(job.model)
        source, target = model.pair(job.source, job.target)
        if not model.translates(source, target) and (model.sources or model.targets):
            raise OptionError(f"The model `{model.name}` does not translate from `{source}` to `{target}`.")
        return (Hop(model.name, source, target),)

    def queue_length(self, model: str) -> int:
        """Number of sentences that wait for a model."""
        return self._batchers[model].queue_length if model in self._batchers else 0

    async def translate(self, job: Job) -> list[list[TextTranslation]]:
        """Translate texts.

        Returns:
            For each text, as many hypotheses as its sentences have at most, best first; the text itself if the
            languages are equal.

        Raises:
            OptionError: an option is wrong, or there is no such model.
            InputError: a text cannot be translated.
            QueueFullError: too many sentences wait.
        """
        if not (route := self.route(job)):
            return [[TextTranslation(text, ())] for text in job.texts]
        *first, last = route
        texts = list(job.texts)
        for hop in first:
            texts = await self._first_hop(hop, texts, job)
        split = partial(_split, texts=texts, format=job.format)
        return await self._hop(last, split, job)

    async def translate_document(self, document: SentDocument, source: str, target: str) -> bytes:
        """Translate a document.

        Args:
            document: the document, which is used up.
            source: language to translate from.
            target: language to translate to.

        Returns:
            The content of the translated file.

        Raises:
            DataError: see :meth:`Documents.ask`.
            InputError, OptionError, QueueFullError: see :meth:`translate`.
        """
        *first, last = self.workspace.route(source, target)
        for hop in first:
            await document.translated((await self._document_hop(hop, document.pieces), hop.target))
        return await document.written(await self._document_hop(last, document.pieces), last.target)

    async def stream(self, job: Job) -> AsyncGenerator[Streamed]:
        """Translate texts token by token, greedily or by sampling; through a third language, the last step.

        Raises:
            QueueFullError: too many translations are being streamed.
            OptionError, InputError: see :meth:`translate`; also raised by the first item.
        """
        if not (route := self.route(job)):
            for number, text in enumerate(job.texts):
                yield Streamed(number, 0, None, TextTranslation(text, ()))
            return
        *first, last = route
        if not self._streams.acquire(blocking=False):
            raise QueueFullError(1)
        try:
            texts = list(job.texts)
            for hop in first:
                texts = await self._first_hop(hop, texts, job)
            is_wanted, items = threading.Event(), asyncio.Queue[Streamed | Exception | None]()
            is_wanted.set()
            loop = asyncio.get_running_loop()

            def put(item: Streamed | Exception | None) -> None:
                loop.call_soon_threadsafe(items.put_nowait, item)

            thread = asyncio.create_task(asyncio.to_thread(self._stream, last, texts, job, put, is_wanted))
            try:
                while (item := await items.get()) is not None:
                    if isinstance(item, Exception):
                        raise item
                    yield item
            finally:
                is_wanted.clear()
                await asyncio.shield(thread)
        finally:
            self._streams.release()

    def close(self) -> None:
        """Finish what is queued, and close all models."""
        for batcher in self._batchers.values():
            batcher.close()
        self.workspace.close()

    async def _document_hop(self, hop: Hop, pieces: Sequence[Piece]) -> list[str]:
        job = Job((), hop.source, hop.target)
        return [ranks[0].text for ranks in await self._hop(hop, partial(_planned, pieces=pieces), job)]

    async def _first_hop(self, hop: Hop, texts: Sequence[str], job: Job) -> list[str]:
        """Translate texts to a language that they are translated further from."""
        split = partial(_split, texts=texts, format=job.format)
        plain = replace(job, changes={}, text_options=TextOptions())
        return [ranks[0].text for ranks in await self._hop(hop, split, plain)]

    async def _hop(
        self, hop: Hop, split: Callable[[TextTranslator], list[Plan]], job: Job
    ) -> list[list[TextTranslation]]:
        """Split texts, translate their sentences in batches, and join them, all with the same model; see
        :meth:`translate`. Begin again with the bundle that is on disk now if it is replaced at this moment, so that the
        old one lacks a file that is not open yet."""
        for attempt in range(2):
            with self._batcher(hop.model).place(len(job.texts) or 1, job.seconds) as place:
                async with self._leased(hop.model) as translator:
                    try:
                        return await self._translated(hop, translator, place, split, job)
                    except BundleError:
                        if attempt or not self.workspace.has_changed(translator):
                            raise
        raise AssertionError("unreachable")

    async def _translated(
        self, hop: Hop, translator: Translator, place: Place, split: Callable[[TextTranslator], list[Plan]], job: Job
    ) -> list[list[TextTranslation]]:
        texts = TextTranslator(translator.with_languages(hop.source, hop.target), job.text_options)
        decoding = _decoding(texts, job.changes)
        plans = await asyncio.to_thread(split, texts)
        sentences = [sentence for plan in plans for sentence in plan.sentences]
        translations = await asyncio.wrap_future(
            place.submit(sentences, Setting(translator, hop.source, hop.target, decoding))
        )
        return await asyncio.to_thread(_joined, plans, translations, decoding)

    @asynccontextmanager
    async def _leased(self, model: str) -> AsyncIterator[Translator]:
        """Use a model, which is opened in a thread if necessary."""
        stack = ExitStack()
        opening = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, self.workspace.lease(model)))
        try:
            yield await asyncio.shield(opening)
        finally:
            if opening.done():
                stack.close()
            else:  # canceled while the model is being opened
                opening.add_done_callback(lambda _: stack.close())

    def _batcher(self, model: str) -> Batcher:
        with self._lock:
            if model not in self._batchers:
                self._batchers[model] = Batcher(self.workspace, model, self._limits, self._report)
                self._watch(model, partial(self.queue_length, model))
            return self._batchers[model]

    def _stream(
        self,
        hop: Hop,
        texts: Sequence[str],
        job: Job,
        put: Callable[[Streamed | Exception | None], object],
        is_wanted: threading.Event,
    ) -> None:
        """Translate in a thread of its own, as long as someone reads."""
        try:
            with self.workspace.lease(hop.model) as translator:
                view = translator.with_languages(hop.source, hop.target)
                text_translator = TextTranslator(view, job.text_options)
                plans = _split(text_translator, texts, job.format)
                decoding = _decoding(text_translator, {"beam_size": 1, **job.changes})
                for number, plan in enumerate(plans):
                    done = []
                    for index, sentence in enumerate(plan.sentences):
                        steps = []
                        for step in view.translate_tokens(sentence, decoding):
                            if not is_wanted.is_set():
                                return
                            put(Streamed(number, index, step))
                            steps.append(step)
                        done.append(_translation(sentence, steps))
                    put(Streamed(number, len(done), None, plan.join(done, decoding)))
            put(None)
        except Exception as error:
            put(error)


def _split(translator: TextTranslator, texts: Sequence[str], format: Format) -> list[Plan]:
    return [translator.split(text, format=format) for text in texts]


def _planned(translator: TextTranslator, pieces: Sequence[Piece]) -> list[Plan]:
    return [translator.plan(piece) for piece in pieces]


def _decoding(translator: TextTranslator, changes: Mapping[str, Any]) -> DecodeOptions:
    """Decoding options, without scores of tokens unless they are requested."""
    return translator.decoding(None, **{"return_token_scores": False, **changes})


def _joined(
    plans: Sequence[Plan], translations: Sequence[Translation], decoding: DecodeOptions
) -> list[list[TextTranslation]]:
    """Join the best hypotheses of all sentences, then the second best, and so on."""
    remaining = iter(translations)
    results = []
    for plan in plans:
        own = [next(remaining) for _ in plan.sentences]
        ranks = max((len(translation.hypotheses) for translation in own), default=1)
        results.append(
            [plan.join([_ranked(translation, rank) for translation in own], decoding) for rank in range(max(1, ranks))]
        )
    return results


def _ranked(translation: Translation, rank: int) -> Translation:
    """The translation with the hypothesis of a rank as its best; the last one if it has fewer."""
    return replace(translation, hypotheses=translation.hypotheses[min(rank, len(translation.hypotheses) - 1) :][:1])


def _translation(sentence: str, steps: Sequence[TokenStep]) -> Translation:
    """The translation that steps made."""
    scores = tuple(step.log_probability for step in steps)
    tokens, ids = tuple(step.token for step in steps), tuple(step.id for step in steps)
    best = TextHypothesis(steps[-1].text, tokens, ids, sum(scores) / len(scores), steps[-1].is_last, scores)
    return Translation(Source(sentence, ()), (best,))
