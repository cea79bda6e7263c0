"""The server's own API: texts with scores, alignments and decoding options, streamed tokens, and the models."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from edgeformer_runtime.contract import ATTENTION_FILE
from edgeformer_server.api.types import (
    ModelInfo,
    Models,
    Options,
    Sentence,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
    WordLink,
)
from edgeformer_server.errors import ApiError
from edgeformer_server.languages import chosen_pair
from edgeformer_server.queue.batching import ClosedError
from edgeformer_server.request import (
    ServerContext,
    bearer_token,
    check_sizes,
    client_of,
    context_of,
    decode_body,
    error_response,
    json_response,
    run_while_connected,
)
from edgeformer_server.service import Job, StreamEvent, TokenEvent
from edgeformer_text import SentenceTranslation, TextOptions, TextTranslation

_DECODER = msgspec.json.Decoder(TranslateRequest)


@dataclass(frozen=True)
class _CheckedRequest:
    """A valid request, and the job that answers it."""

    body: TranslateRequest
    job: Job
    source: str
    target: str


async def translate(request: Request) -> Response:
    """Translate texts."""
    context = context_of(request)
    checked = await _checked(request, context)
    request.state.log.update(texts=len(checked.job.texts), characters=sum(map(len, checked.job.texts)))
    if checked.job.route:
        request.state.log["model"] = checked.job.route[-1].model
    if checked.body.stream:
        return await _streamed(context, checked)
    return json_response(await run_while_connected(request, _answer(context, checked), checked.job.seconds))


async def _checked(request: Request, context: ServerContext) -> _CheckedRequest:
    """Read and check a request.

    Raises:
        ApiError: it is not valid.
        OptionError: there is no such model or pair.
    """
    try:
        body = await decode_body(await request.body(), _DECODER.decode)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ApiError(400, f"Invalid request: {str(error)[:300]}") from None
    context.access.check(bearer_token(request), client_of(request), len(body.texts), missing_status=401)
    check_sizes(context, body.texts, body.format)
    _check_options(context, body.options)
    if body.alignments and body.format != "text":
        raise ApiError(400, "Invalid request: `alignments` are of plain text only.")
    source, target, catalog = body.source, body.target, context.service.workspace.catalog()
    if body.model:
        source, target = catalog.model(body.model).pair(source, target)
    else:
        for name, value in (("source", source), ("target", target)):
            if not value:
                raise ApiError(400, f"Invalid request: give `{name}`, or a `model`.")
    if source.lower() == "auto":
        source, target, _, route = await asyncio.to_thread(
            chosen_pair, catalog, source, target, body.texts, body.format, body.model
        )
    else:
        source, target = catalog.codes(source, target)
        route = catalog.route(source, target, body.model)
    changes = msgspec.to_builtins(body.options)
    changes |= {"return_token_scores": True} if body.scores and not body.stream else {}
    changes |= {"return_attention": True} if body.alignments and not body.stream else {}
    text_options = TextOptions(glossary=body.glossary or None, word_details=body.alignments and not body.stream)
    seconds = min(body.timeout or math.inf, context.settings.request_seconds)
    job = Job(body.texts, route, body.format, changes, text_options, seconds)
    if body.glossary and len(route) > 1:
        raise ApiError(400, "Invalid request: a glossary needs a model that translates the pair directly.")
    needed = ["replace_unknowns"] * bool(changes.get("replace_unknowns")) + ["alignments"] * body.alignments
    if needed and route:
        model = catalog.model(route[-1].model)
        if ATTENTION_FILE not in model.manifest.files:
            what = f"the model `{model.name}` has no attention weights for `{needed[0]}`"
            raise ApiError(400, f"Invalid request: {what}.")
    return _CheckedRequest(body, job, source, target)


def _check_options(context: ServerContext, options: Options) -> None:
    """Check that options do not ask for more work than the server permits.

    Raises:
        ApiError: one does.
    """
    settings = context.settings
    limits = {
        "beam_size": settings.max_beam,
        "n_best": max(settings.max_beam, settings.max_alternatives + 1),
        "min_length": settings.max_output_tokens,
        "max_length": settings.max_output_tokens,
    }
    for name, limit in limits.items():
        value = getattr(options, name)
        if value is not UNSET and value > limit:
            raise ApiError(400, f"Invalid request: `{name}` must be at most {limit} on this server, but is {value}.")


async def _answer(context: ServerContext, checked: _CheckedRequest) -> TranslateResponse:
    results = await context.service.translate(checked.job)
    texts = await asyncio.to_thread(lambda: [_described(checked, ranks) for ranks in results])
    return TranslateResponse(texts, checked.source, checked.target, [hop.model for hop in checked.job.route])


def _described(checked: _CheckedRequest, ranks: Sequence[TextTranslation]) -> TranslatedText:
    best, *others = ranks
    sentences = []
    for sentence in best.sentences:
        described = Sentence(sentence.source_span, sentence.target_span, wrong_numbers=sentence.wrong_numbers)
        if checked.body.alignments:
            described.words = _links(sentence)
        if checked.body.scores and sentence.translation:
            described.score, described.confidence = sentence.translation.score, sentence.confidence
            described.is_doubtful = sentence.is_doubtful
        sentences.append(described)
    return TranslatedText(best.text, sentences, [other.text for other in others])


def _links(sentence: SentenceTranslation) -> list[WordLink]:
    """Which words of a sentence come from which, in characters of the whole texts."""
    source, target = sentence.source_span[0], sentence.target_span[0]
    return [
        WordLink(
            (source + word.source_span[0], source + word.source_span[1]),
            (target + word.target_span[0], target + word.target_span[1]),
        )
        for word in sentence.words
        if word.source_span is not None
    ]


async def _streamed(context: ServerContext, checked: _CheckedRequest) -> Response:
    """Answer with server-sent events, once the first one is there, so that errors until then are plain ones."""
    deadline = time.monotonic() + checked.job.seconds
    items = context.service.stream(checked.job)

    async def events() -> AsyncGenerator[bytes]:
        item: StreamEvent | None = first
        try:
            while item is not None:
                yield _event(item)
                async with asyncio.timeout(deadline - time.monotonic()):
                    item = await anext(items, None)
            yield b"event: done\ndata: {}\n\n"
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if not context.is_draining:
                    raise
                error = ClosedError("The server is shutting down.")  # its time to do so is over
            yield b"event: error\ndata: " + bytes(error_response(error).body) + b"\n\n"
        finally:
            await items.aclose()

    try:
        async with asyncio.timeout(checked.job.seconds):
            first = await anext(items, None)
    except BaseException:
        await items.aclose()
        raise
    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _event(item: StreamEvent) -> bytes:
    name = b"token" if isinstance(item, TokenEvent) else b"text"
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(item) + b"\n\n"


async def models(request: Request) -> Response:
    """List the models."""
    workspace = context_of(request).service.workspace
    listed = [
        ModelInfo(
            model.name,
            sorted(model.sources),
            sorted(model.targets),
            model.manifest.family,
            model.precision,
            model.manifest.parameters,
            model.manifest.max_source_length,
            ATTENTION_FILE in model.manifest.files,
            workspace.is_open(model),
        )
        for model in workspace.catalog().models
    ]
    return json_response(Models(listed))


ROUTES = [Route("/v1/translate", translate, methods=["POST"]), Route("/v1/models", models, methods=["GET"])]
