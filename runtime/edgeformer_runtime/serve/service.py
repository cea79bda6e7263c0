"""From texts to translations: routes, splitting, batches and joining, without anything of HTTP."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.requests import Stop
from edgeformer_runtime.errors import BundleError, OptionError
from edgeformer_runtime.serve.batching import Batcher, BatchReport, Setting, Ticket
from edgeformer_runtime.serve.files.documents import Documents, SentDocument
from edgeformer_runtime.serve.settings import ServeSettings
from edgeformer_runtime.text import Plan, TextOptions, TextTranslation, TextTranslator
from edgeformer_runtime.text.documents.document import Piece
from edgeformer_runtime.text.options import Format
from edgeformer_runtime.text.results import distinct, plausible
from edgeformer_runtime.token_stream import TokenStep
from edgeformer_runtime.translator import Translation, Translator
from edgeformer_runtime.workspace.workspace import Hop, Workspace

LARGE_TEXT = 20_000
"""Characters of a request from which on its texts are large; documents are, too."""
OPENING_THREADS = 4
"""Requests that open a model, or find it open and unchanged, at a time."""
TEXT_THREADS = 4
"""Requests whose texts are split or joined at a time; and as many whose texts are large, so that others do not wait."""


@dataclass(frozen=True)
class Job:
    """What a request wants translated."""

    texts: Sequence[str]
    route: Sequence[Hop]
    """The models that translate them; see :meth:`Service.route`."""
    format: Format = "text"
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
        settings: sizes of batches, queues and requests.
        report: called after each batch.
        watch: called with a model's name and the length of its queue, whenever that changes.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ServeSettings,
        *,
        report: Callable[[BatchReport], object] = lambda report: None,
        watch: Callable[[str, int], object] = lambda model, length: None,
    ) -> None:
        self.workspace = workspace
        self._settings, self._report, self._watch = settings, report, watch
        self.documents = Documents()
        self._batchers: dict[str, Batcher] = {}
        self._openers: dict[str, ThreadPoolExecutor] = {}
        """Open each model, so that requests for other models do not wait for it."""
        self._texts = ThreadPoolExecutor(TEXT_THREADS, "texts")
        self._large_texts = ThreadPoolExecutor(TEXT_THREADS, "large-texts")
        self._streams = ThreadPoolExecutor(settings.max_streams, "stream")

    @property
    def sources(self) -> list[str]:
        """Codes of all languages that can be translated from; sorted."""
        return sorted({code for model in self.workspace.models() for code in model.sources})

    @property
    def targets(self) -> list[str]:
        """Codes of all languages that can be translated to; sorted."""
        return sorted({code for model in self.workspace.models() for code in model.targets})

    def route(self, source: str, target: str, name: str = "") -> tuple[Hop, ...]:
        """The models that translate a language pair, or the model of a name; none if the languages are equal.

        Raises:
            OptionError: the model or the language pair does not exist.
        """
        if not name:
            return self.workspace.route(source, target)
        model = self.workspace.model(name)
        source, target = model.pair(source, target)
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
        if not job.route:
            return [[TextTranslation(text, ())] for text in job.texts]
        *first, last = job.route
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
            OptionError, InputError: see :meth:`translate`; also raised by the first item.
        """
        if not job.route:
            for number, text in enumerate(job.texts):
                yield Streamed(number, 0, None, TextTranslation(text, ()))
            return
        *first, last = job.route
        texts = list(job.texts)
        for hop in first:
            texts = await self._first_hop(hop, texts, job)
        gone, items = threading.Event(), asyncio.Queue[Streamed | Exception | None]()
        loop = asyncio.get_running_loop()

        def put(item: Streamed | Exception | None) -> None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(items.put_nowait, item)

        thread = self._streams.submit(self._stream, last, texts, job, put, Stop(gone.is_set))
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            gone.set()
            thread.cancel()

    def close(self) -> None:
        """Finish what is queued, and close all models."""
        for batcher in self._batchers.values():
            batcher.close()
        for executor in (self._texts, self._large_texts, self._streams, *self._openers.values()):
            executor.shutdown()
        self.workspace.close()

    async def _document_hop(self, hop: Hop, pieces: Sequence[Piece]) -> list[str]:
        job = Job((), (hop,))
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
            batcher = self._batcher(hop.model)
            with batcher.admit(len(job.texts) or 1, job.seconds) as ticket:
                async with self._leased(hop.model) as translator:
                    try:
                        return await self._translated(hop, translator, batcher, ticket, split, job)
                    except BundleError:
                        if attempt or not self.workspace.has_changed(translator):
                            raise
        raise AssertionError("unreachable")

    async def _translated(
        self,
        hop: Hop,
        translator: Translator,
        batcher: Batcher,
        ticket: Ticket,
        split: Callable[[TextTranslator], list[Plan]],
        job: Job,
    ) -> list[list[TextTranslation]]:
        texts = TextTranslator(translator.with_languages(hop.source, hop.target), job.text_options)
        decoding = self._decoding(texts, job.changes)
        is_small = 0 < sum(map(len, job.texts)) <= LARGE_TEXT  # a document has none here
        executor = self._texts if is_small else self._large_texts
        gone, run = threading.Event(), partial(asyncio.get_running_loop().run_in_executor, executor)
        try:
            plans = self._checked(await run(split, texts))
            sentences = [sentence for plan in plans for sentence in plan.sentences]
            setting = Setting(translator, hop.source, hop.target, decoding)
            translations = await asyncio.wrap_future(batcher.submit(sentences, setting, ticket))
            return await run(_joined, plans, translations, decoding, Stop(gone.is_set))
        finally:
            gone.set()

    @asynccontextmanager
    async def _leased(self, model: str) -> AsyncIterator[Translator]:
        """Use a model, which is opened in a thread of its own if necessary. Whoever waits for a translation leases its
        model; a batch that nobody waits for may find it closed."""
        if model not in self._openers:
            self._openers[model] = ThreadPoolExecutor(OPENING_THREADS, f"open {model}")
        stack, run = ExitStack(), partial(asyncio.get_running_loop().run_in_executor, self._openers[model])
        opening = asyncio.ensure_future(run(stack.enter_context, self.workspace.lease(model)))
        try:
            yield await asyncio.shield(opening)
        finally:
            if opening.done():
                stack.close()
            else:  # canceled while the model is being opened
                opening.add_done_callback(lambda _: stack.close())

    def _batcher(self, model: str) -> Batcher:
        if model not in self._batchers:
            watch = partial(self._watch, model)
            self._batchers[model] = Batcher(model, self._settings.batch, self._report, watch)
        return self._batchers[model]

    def _decoding(self, translator: TextTranslator, changes: Mapping[str, Any]) -> DecodeOptions:
        """Decoding options, without scores of tokens unless they are requested, and no longer than allowed."""
        needs_scores = bool(changes.get("return_alternatives"))
        decoding = translator.decoding(None, **{"return_token_scores": needs_scores, **changes})
        limit = self._settings.max_output_tokens
        return replace(decoding, max_length=min(decoding.max_length or limit, limit))

    def _stream(
        self,
        hop: Hop,
        texts: Sequence[str],
        job: Job,
        put: Callable[[Streamed | Exception | None], object],
        stop: Stop,
    ) -> None:
        """Translate in a thread of its own, as long as someone reads."""
        try:
            with self.workspace.lease(hop.model) as translator:
                view = translator.with_languages(hop.source, hop.target)
                text_translator = TextTranslator(view, job.text_options)
                decoding = self._decoding(text_translator, {"beam_size": 1, **job.changes})
                plans = self._checked(_split(text_translator, texts, job.format))
                for number, plan in enumerate(plans):
                    done = []
                    for index, sentence in enumerate(plan.sentences):
                        for step in view.translate_tokens(sentence, decoding, cancel=stop.is_canceled):
                            put(Streamed(number, index, step))
                            done += [step.translation] if step.translation else []
                    put(Streamed(number, len(done), None, plan.join(done, decoding, stop)))
            put(None)
        except Exception as error:
            put(error)

    def _checked(self, plans: list[Plan]) -> list[Plan]:
        """Plans, which may not have too many sentences.

        Raises:
            OptionError: they have.
        """
        count, limit = sum(len(plan.sentences) for plan in plans), self._settings.max_sentences
        if count > limit:
            raise OptionError(f"there are {count:,} sentences, more than this server's limit of {limit:,}.")
        return plans


def _split(translator: TextTranslator, texts: Sequence[str], format: Format) -> list[Plan]:
    return [translator.split(text, format=format) for text in texts]


def _planned(translator: TextTranslator, pieces: Sequence[Piece]) -> list[Plan]:
    return [translator.plan(piece) for piece in pieces]


def _joined(
    plans: Sequence[Plan], translations: Sequence[Translation], decoding: DecodeOptions, stop: Stop
) -> list[list[TextTranslation]]:
    """Join the best hypotheses of all sentences, then the second best, and so on."""
    remaining = iter(translations)
    results = []
    for plan in plans:
        own = [next(remaining) for _ in plan.sentences]
        if decoding.return_alternatives:
            own = list(map(plausible, own))
        ranks = max((len(translation.hypotheses) for translation in own), default=1)
        of_rank = ([_ranked(translation, rank) for translation in own] for rank in range(max(1, ranks)))
        results.append(distinct(plan.join(chosen, decoding, stop) for chosen in of_rank))
    return results


def _ranked(translation: Translation, rank: int) -> Translation:
    """The translation with the hypothesis of a rank as its best; the last one if it has fewer."""
    return replace(translation, hypotheses=translation.hypotheses[min(rank, len(translation.hypotheses) - 1) :][:1])
