"""From texts to translations: routes, splitting, batches and joining, without anything of HTTP."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import msgspec

from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Stop
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator
from edgeformer_server.files.document_process import DocumentRequest
from edgeformer_server.files.documents import DocumentProcesses
from edgeformer_server.languages import Hop
from edgeformer_server.queue.batching import MAX_BATCHES, Batcher, BatchReport, BatchSettings, ClosedError, Ticket
from edgeformer_server.settings import ServeSettings
from edgeformer_server.workspace import Workspace
from edgeformer_text import Plan, TextOptions, TextTranslation, TextTranslator
from edgeformer_text.documents.document import Piece
from edgeformer_text.options import Format
from edgeformer_text.plan import Joining
from edgeformer_text.results import distinct, plausible
from edgeformer_text.segmentation import SentenceLimit

LARGE_TEXT = 20_000
"""Characters of a request from which on its texts are large; documents are, too."""
OPENING_THREADS = 8
"""Models that are opened at a time."""
BATCH_THREADS = 128
"""Batches in progress of all models at a time, unless a single model may have more."""
TEXT_THREADS = 3
"""Requests whose texts are split or joined at a time."""
LARGE_TEXT_THREADS = 1
"""The same for large texts. As they take long, and Python runs one thread at a time, each slows down the others."""


@dataclass(frozen=True)
class Job:
    """What a request wants translated."""

    texts: Sequence[str | Piece]
    """Texts, or what there is to translate of a document."""
    route: Sequence[Hop]
    """The models that translate them; see :meth:`Catalog.route`."""
    format: Format = "text"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Decoding options; those of hypotheses and scores concern the last model of a route."""
    text_options: TextOptions = field(default_factory=TextOptions)
    """How the last model's texts are split and put together again."""
    seconds: float = math.inf
    """Time within which the translation is needed; it is refused if that is not to be expected."""


class TokenEvent(msgspec.Struct):
    """A token of a streamed translation."""

    text: int
    """Position of the text."""
    sentence: int
    """Position of the sentence in the text."""
    token: str
    log_probability: float
    partial: str
    """The sentence so far."""
    is_last: bool


class TextEvent(msgspec.Struct):
    """The end of a text."""

    text: int
    translation: str


StreamEvent = TokenEvent | TextEvent


Texts = list[list[TextTranslation]]
"""For each text, its translations, best first."""
Work = Joining[Texts]
"""What is done to texts before, between and after the translations of their sentences."""


class Service:
    """Translates texts with the models of a workspace.

    Args:
        workspace: the models.
        settings: sizes of batches, queues and requests.
        report: called after each batch.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ServeSettings,
        *,
        report: Callable[[BatchReport], object] = lambda report: None,
    ) -> None:
        self.workspace = workspace
        workspace.close_translator = lambda translator: threading.Thread(target=translator.close).start()
        self._settings, self._report = settings, report
        self.documents = DocumentProcesses()
        self._batchers: dict[str, Batcher] = {}
        most = MAX_BATCHES * settings.batch.parallel
        self._batches = ThreadPoolExecutor(max(BATCH_THREADS, most), "translate")
        self._batches.submit(int)  # starts one, on which batches can wait if no other can start
        self._openers = ThreadPoolExecutor(OPENING_THREADS, "open")
        self._opening = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """Of each model, so that only one thread opens it, and requests for other models do not wait for it."""
        self._texts = ThreadPoolExecutor(TEXT_THREADS, "texts")
        self._large_texts = ThreadPoolExecutor(LARGE_TEXT_THREADS, "large-texts")
        self._streams = ThreadPoolExecutor(settings.max_streams, "stream")
        self._free_streams = asyncio.Semaphore(settings.max_streams)

    async def translate(self, job: Job) -> Texts:
        """Translate texts.

        Returns:
            For each text, as many hypotheses as its sentences have at most, best first; the text itself if the
            languages are equal.

        Raises:
            OptionError: an option is wrong, or there is no such model.
            InputError: a text cannot be translated.
            QueueFullError: too many sentences wait.
        """
        if not job.route:
            return [[TextTranslation(str(text), ())] for text in job.texts]
        job = await self._at_last_hop(job) if len(job.route) > 1 else job
        return await self._hop(job.route[-1], job)

    async def translate_document(
        self, document: DocumentRequest, pieces: Sequence[Piece], route: Sequence[Hop]
    ) -> bytes:
        """Translate a document.

        Args:
            document: the document, to which its translations are added.
            pieces: what there is to translate of it.
            route: the models that translate it.

        Returns:
            The content of the translated file.

        Raises:
            DataError: see :meth:`DocumentProcesses.ask`.
            InputError, OptionError, QueueFullError: see :meth:`translate`.
        """
        content = document.content
        for hop in route:
            document.translations.append((await self._best(hop, Job(pieces, route)), hop.target))
            document.is_last = hop is route[-1]
            answer = await self.documents.ask(document)
            pieces, content = answer.pieces, answer.content
        return content

    async def stream(self, job: Job) -> AsyncGenerator[StreamEvent]:
        """Translate texts token by token, greedily or by sampling; through a third language, the last step.

        Raises:
            OptionError, InputError: see :meth:`translate`; also raised by the first item.
        """
        if not job.route:
            for number, (same,) in enumerate(await self.translate(job)):
                yield TextEvent(number, same.text)
            return
        job = await self._at_last_hop(job)
        hop, gone = job.route[-1], threading.Event()
        async with self._free_streams, self._leased(hop.model) as translator:
            steps = self._steps(translator.with_languages(hop.source, hop.target), job, Stop(gone.is_set))
            step = self._next_step(steps)
            try:
                while (item := await asyncio.shield(step)) is not None:
                    yield item
                    step = self._next_step(steps)
            finally:
                gone.set()
                await asyncio.gather(step, return_exceptions=True)  # until then, the model is in use

    def _next_step(self, steps: Iterator[StreamEvent]) -> asyncio.Future[StreamEvent | None]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._streams, next, steps, None)
        except RuntimeError:  # the threads have ended
            raise ClosedError("The server is shutting down.") from None

    def queue_lengths(self) -> dict[str, int]:
        """Number of sentences that wait for each model that has been used."""
        return {model: batcher.queue_length for model, batcher in list(self._batchers.items())}

    def close(self) -> None:
        """Finish what is queued, and close all models."""
        for batcher in self._batchers.values():
            batcher.close()
        for executor in (self._texts, self._large_texts, self._streams, self._openers, self._batches):
            executor.shutdown()
        self.workspace.close()

    async def _at_last_hop(self, job: Job) -> Job:
        """The job with texts in the language that the last model of its route reads."""
        for hop in job.route[:-1]:
            plain = replace(job, changes={}, text_options=TextOptions())
            job = replace(job, texts=await self._best(hop, plain))
        return job

    async def _best(self, hop: Hop, job: Job) -> list[str]:
        return [ranks[0].text for ranks in await self._hop(hop, job)]

    async def _hop(self, hop: Hop, job: Job) -> Texts:
        """Split texts, translate their sentences in batches, and join them, all with the same model; see
        :meth:`translate`. Begin again with the bundle that is on disk now if it is replaced at this moment, so that the
        old one lacks a file that is not open yet."""
        for attempt in range(2):
            with self._batcher(hop.model).admit(len(job.texts) or 1, job.seconds) as ticket:
                async with self._leased(hop.model) as translator:
                    try:
                        return await self._translated(hop, translator, ticket, job)
                    except BundleError:
                        if attempt or not self.workspace.has_changed(translator):
                            raise
        raise AssertionError("unreachable")

    async def _translated(self, hop: Hop, translator: Translator, ticket: Ticket, job: Job) -> Texts:
        if job.format == "html":
            job = replace(job, texts=[await self._read(text) for text in job.texts])
        size = sum(len(text) if isinstance(text, str) else LARGE_TEXT for text in job.texts)
        size += sum(map(len, glossary)) if isinstance(glossary := job.text_options.glossary, Mapping) else 0
        run = partial(
            asyncio.get_running_loop().run_in_executor, self._texts if size < LARGE_TEXT else self._large_texts
        )
        gone = threading.Event()
        stop = Stop(gone.is_set)
        begun: tuple[Work, BatchSettings] | None = None

        def begin() -> tuple[Work, BatchSettings]:
            texts = TextTranslator(translator.with_languages(hop.source, hop.target), job.text_options)
            decoding = self._decoding(texts, job.changes)
            work = _work(self._split(texts, job, stop), decoding, stop)
            return work, BatchSettings(translator, hop.source, hop.target, decoding)

        def advance(translations: Sequence[Translation] | None) -> Future[list[Translation]] | Texts:
            nonlocal begun
            try:
                work, setting = begun = begun or begin()
                sentences = next(work) if translations is None else work.send(translations)
            except StopIteration as end:
                return cast(Texts, end.value)
            return ticket.submit(sentences, setting)

        translations: Sequence[Translation] | None = None
        try:
            while True:
                step = await run(advance, translations)
                if not isinstance(step, Future):
                    return step
                translations = await asyncio.wrap_future(step)
        finally:
            gone.set()

    async def _read(self, text: str | Piece) -> str | Piece:
        """What there is to translate of a large text in HTML: it is read as documents are, in another process, since
        reading it here would hold up all other requests."""
        if not isinstance(text, str) or len(text) < LARGE_TEXT:
            return text
        content = f"\ufeff{text}".encode(errors="surrogatepass")  # the mark of a file, which is not part of its text
        return (await self.documents.ask(DocumentRequest("text.html", content))).pieces[0]

    @asynccontextmanager
    async def _leased(self, model: str) -> AsyncIterator[Translator]:
        """Use a model, which is opened in a thread if necessary. Whoever waits for a translation leases its model; a
        batch that nobody waits for may find it closed."""
        if (lease := self.workspace.lease_open(model)) is not None:
            with lease as translator:
                yield translator
            return
        stack, run, lock = ExitStack(), asyncio.get_running_loop().run_in_executor, self._opening[model]
        await lock.acquire()
        try:
            opening = run(self._openers, stack.enter_context, self.workspace.lease(model))
        except RuntimeError:  # no thread can start
            lock.release()
            raise
        opening.add_done_callback(lambda _: lock.release())
        try:
            yield await asyncio.shield(opening)
        finally:  # which may come while the model is still being opened
            opening.add_done_callback(lambda _: stack.close())

    def _batcher(self, model: str) -> Batcher:
        if model not in self._batchers:
            self._batchers[model] = Batcher(model, self._settings.batch, self._report, self._batches)
        return self._batchers[model]

    def _decoding(self, translator: TextTranslator, changes: Mapping[str, Any]) -> DecodeOptions:
        """Decoding options, without scores of tokens unless they are requested, and no longer than allowed."""
        needs_scores = bool(changes.get("return_alternatives"))
        decoding = translator.decoding(None, **{"return_token_scores": needs_scores, **changes})
        limit = self._settings.max_output_tokens
        return replace(decoding, max_length=min(decoding.max_length or limit, limit))

    def _steps(self, translator: Translator, job: Job, stop: Stop) -> Iterator[StreamEvent]:
        """Translate token by token."""
        texts = TextTranslator(translator, job.text_options)
        decoding = self._decoding(texts, {"beam_size": 1, **job.changes})
        for number, plan in enumerate(self._split(texts, job, stop)):
            done = []
            for index, sentence in enumerate(plan.sentences):
                for step in translator.translate_tokens(sentence, decoding, cancel=stop.cancel):
                    yield TokenEvent(number, index, step.token, step.log_probability, step.text, step.is_last)
                    done += [step.translation] if step.translation else []
            again = partial(translator.translate, options=decoding, cancel=stop.cancel)
            yield TextEvent(number, plan.join(done, again, stop).text)

    def _split(self, translator: TextTranslator, job: Job, stop: Stop) -> list[Plan]:
        """Split texts into sentences.

        Raises:
            OptionError: there are too many.
            StoppedError: nobody waits for them any more.
        """
        limit = SentenceLimit(self._settings.max_sentences, stop)
        return [
            translator.split(text, format=job.format, limit=limit)
            if isinstance(text, str)
            else translator.plan(text, limit)
            for text in job.texts
        ]


def _work(plans: Sequence[Plan], decoding: DecodeOptions, stop: Stop) -> Work:
    """Ask for the translations of all sentences, and join the best hypothesis of each, then the second best, and so
    on."""
    remaining = iter((yield [sentence for plan in plans for sentence in plan.sentences]))
    results = []
    for plan in plans:
        own = [next(remaining) for _ in plan.sentences]
        if decoding.return_alternatives:
            own = list(map(plausible, own))
        ranks = max((len(translation.hypotheses) for translation in own), default=1)
        joined = []
        for rank in range(max(1, ranks)):
            joined.append((yield from plan.joining([_ranked(translation, rank) for translation in own], stop)))  # noqa: PERF401
        results.append(distinct(joined))
    return results


def _ranked(translation: Translation, rank: int) -> Translation:
    """The translation with the hypothesis of a rank as its best; the last one if it has fewer."""
    return replace(translation, hypotheses=translation.hypotheses[min(rank, len(translation.hypotheses) - 1) :][:1])
