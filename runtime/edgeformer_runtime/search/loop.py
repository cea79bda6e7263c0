"""The decode loop: batches, steps, search. The same for every model family, engine and search."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import GIB, MAX_DECODING_BYTES
from edgeformer_runtime.search.alternatives import decode_alternatives
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.processors import build_processors
from edgeformer_runtime.search.requests import Request, Stop, make_requests, pad, request_batches
from edgeformer_runtime.search.search import BeamSearch, GreedySearch, Hypothesis, Search, SentenceCallback
from edgeformer_runtime.search.session import FloatArray, IntArray, StepSession


@dataclass
class Counters:
    """Time and work counters of decoding. Calls add to the counters, so one object can cover several calls."""

    sentences: int = 0
    """Number of sentences decoded."""
    batches: int = 0
    """Number of batches decoded."""
    steps: int = 0
    """Number of decoder steps, regardless of their number of rows."""
    row_steps: int = 0
    """Number of rows, summed over all steps."""
    tokens: int = 0
    """Number of tokens in the best hypotheses, end tokens included."""
    encoder_seconds: float = 0.0
    """Wall-clock time in the encoder."""
    decoder_seconds: float = 0.0
    """Wall-clock time in the step decoder."""
    first_token_seconds: float = 0.0
    """Wall-clock time from the start of each batch to its first tokens, summed over batches."""
    batch_seconds: float = 0.0
    """Wall-clock time, summed over batches."""
    total_seconds: float = 0.0
    """Wall-clock time of whole calls; less than :attr:`batch_seconds` if several batches are decoded at a time."""
    peak_state_bytes: int = 0
    """Largest size of a decoder state, in bytes."""

    @property
    def host_seconds(self) -> float:
        """Time that batches spend outside both graphs: search and copies."""
        return self.batch_seconds - self.encoder_seconds - self.decoder_seconds

    def add(self, other: Counters) -> None:
        """Add the counts and times of another call, and keep the larger peak."""
        mine, theirs = vars(self), vars(other)
        peak = max(self.peak_state_bytes, other.peak_state_bytes)
        mine.update({name: value + theirs[name] for name, value in mine.items()}, peak_state_bytes=peak)


def decode(
    session: StepSession,
    sources: Sequence[Sequence[int]],
    options: DecodeOptions,
    counters: Counters | None = None,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    workers: int = 1,
    stops: Sequence[Stop | None] | None = None,
    done: SentenceCallback | None = None,
) -> list[list[Hypothesis]]:
    """Decode sentences. Outputs are in the order of the sources and independent of batching.

    Args:
        session: the model.
        sources: token ids of each sentence, end token included; at most ``session.max_source_length`` each.
        options: how to search.
        counters: counters to add times and counts to.
        prefixes: token ids that each output begins with, without start token; they may differ in length and be empty.
            They are part of the output and of its length, but their log-probability does not count in its score.
        workers: number of batches decoded at a time, each in its own thread, sharing the weights; fewer if they do
            not fit in memory together.
        stops: what gives each sentence up before it is complete, asked before every step.
        done: called with sentences that are complete before the others of their batch are; not with options that
            choose among the results of a search.

    Returns:
        For each sentence, ``n_best`` hypotheses, best first; an empty list if it was given up.

    Raises:
        InputError: a prefix leaves no room for another token.
        OptionError: an option is out of range.
    """
    counters = Counters() if counters is None else counters
    started = time.perf_counter()
    requests = make_requests(session, sources, prefixes, options, stops)
    if options.return_alternatives:
        decoded = partial(_decode_requests, session, counters=counters, workers=workers)
        results = decode_alternatives(decoded, requests, options, session.special)
    elif options.is_sampling:
        results = _grouped(_decode_requests(session, requests, options, counters, workers), options.n_best)
    else:
        results = _decode_requests(session, requests, options, counters, workers, done)
    counters.sentences += len(sources)
    counters.tokens += sum(len(best.ids) + best.finished for hypotheses in results for best in hypotheses[:1])
    counters.total_seconds += time.perf_counter() - started
    return results


def _grouped(samples: Sequence[list[Hypothesis]], count: int) -> list[list[Hypothesis]]:
    """The samples of each sentence, best first; an empty list if one of them was given up."""
    groups = [samples[start : start + count] for start in range(0, len(samples), count)]
    return [
        sorted((sample for (sample,) in group), key=lambda sample: sample.score or 0.0, reverse=True)
        if all(group)
        else []
        for group in groups
    ]


def _decode_requests(
    session: StepSession,
    requests: Sequence[Request],
    options: DecodeOptions,
    counters: Counters,
    workers: int,
    done: SentenceCallback | None = None,
) -> list[list[Hypothesis]]:
    """Decode requests in batches, several at a time; by the engine alone, if it can search by itself."""
    batches, workers = _fitting(session, requests, list(request_batches(session, requests, options)), options, workers)

    def decoded(batch: list[int]) -> tuple[dict[int, list[Hypothesis]], Counters]:
        spent = Counters()
        if given_up := _stopped(requests, batch):
            batch = [index for index in batch if index not in given_up]
        if not batch:
            return {}, spent
        told = None if done is None else lambda index, found: done(batch[index], found)
        chosen = [requests[index] for index in batch]
        found = session.search(chosen, options, spent, told)
        if found is None:
            found = _decode_batch(session, chosen, options, spent, told)
        return dict(zip(batch, found, strict=True)), spent

    results: list[list[Hypothesis]] = [[] for _ in requests]
    with ThreadPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for hypotheses, spent in map(decoded, batches) if pool is None else pool.map(decoded, batches):
            counters.add(spent)
            for index, of_sentence in hypotheses.items():
                results[index] = of_sentence
    return results


def _stopped(requests: Sequence[Request], indices: Collection[int]) -> list[int]:
    """Those of some requests that have to be given up. Requests may share what gives them up, which is asked once."""
    stops = {requests[index].stop for index in indices} - {None}
    stops = {stop for stop in stops if stop is not None and stop.is_set()}
    return [index for index in indices if requests[index].stop in stops] if stops else []


def _fitting(
    session: StepSession, requests: Sequence[Request], batches: list[list[int]], options: DecodeOptions, workers: int
) -> tuple[list[list[int]], int]:
    """Divide batches until each fits in memory even if every translation is as long as allowed, and reduce the number
    of those that are decoded at a time to what fits together.

    Raises:
        OptionError: a sentence alone needs more than :data:`~edgeformer_runtime.limits.MAX_DECODING_BYTES`.
    """
    multiple = session.row_multiple if options.beam_size > 1 else 1
    beams = -(-options.beam_size // multiple) * multiple

    fitting, largest = [], 1
    while batches:
        batch = batches.pop()
        longest = len(requests[batch[0]].source)  # each begins with its longest sentence
        steps = _most_steps(session, [requests[index] for index in batch])
        needed = session.batch_bytes(len(batch), len(batch) * beams, longest, steps)
        if needed <= MAX_DECODING_BYTES:
            fitting.append(batch)
            largest = max(largest, needed)
        elif len(batch) > 1:
            half = len(batch) // 2
            batches += [batch[:half], batch[half:]]
        else:
            raise OptionError(
                f"`beam_size` {options.beam_size} may need {needed / GIB:,.1f} GiB for state and logits, more than the "
                f"limit of {MAX_DECODING_BYTES // GIB} GiB; reduce `beam_size` or `max_length`."
            )
    return fitting[::-1], min(workers, len(fitting), MAX_DECODING_BYTES // largest)


def _decode_batch(
    session: StepSession,
    requests: Sequence[Request],
    options: DecodeOptions,
    counters: Counters,
    done: SentenceCallback | None,
) -> list[list[Hypothesis]]:
    """Decode one batch step by step, to the end."""
    live = set(range(len(requests)))
    for search in search_steps(session, requests, options, counters):
        if done is not None:
            ended = live.difference(search.sentence.tolist())
            for index in ended:
                if hypotheses := search.hypotheses(index):  # none if it was given up
                    done(index, hypotheses)
            live -= ended
    return search.finish()


def search_steps(
    session: StepSession, requests: Sequence[Request], options: DecodeOptions, counters: Counters
) -> Iterator[Search]:
    """Decode one batch step by step.

    Args:
        session: the model.
        requests: at least one; the prefixes have the same length.
        options: how to search.
        counters: counters to add times and counts to.

    Yields:
        The search after each of its steps, always the same object; at least once.
    """
    clock = time.perf_counter
    begin = clock()
    state = session.start_search(*pad([request.source for request in requests], session.special.pad))
    state.bound(_most_steps(session, requests))
    processors = build_processors(options, session.special)
    search = _search(session, requests, options)
    if len(search.token) > len(requests):  # the search starts with several rows per sentence
        state.select(np.arange(len(requests)).repeat(len(search.token) // len(requests)), None)
    counters.encoder_seconds += clock() - begin
    counters.batches += 1

    def step(token: IntArray) -> FloatArray:
        step_begin = clock()
        logits = state.step(token)
        counters.decoder_seconds += clock() - step_begin
        counters.steps += 1
        counters.row_steps += len(logits)
        return logits

    for token in search.before:
        if len(_stopped(requests, range(len(requests)))) == len(requests):
            search.drop(range(len(requests)))
            yield search
            break
        step(token)
    is_first, may_stop = True, any(request.stop is not None for request in requests)
    while not search.is_finished:
        logits = step(search.token)
        for process in processors:
            process(search.history, logits)
        advance = search.advance(logits)
        if is_first:
            counters.first_token_seconds += clock() - begin
            is_first = False
        if may_stop and (given_up := _stopped(requests, set(search.sentence.tolist()))):
            advance = advance.then(*search.drop(given_up))
        is_finished = search.is_finished
        if is_finished or advance.sentences is not None:  # a state is largest before sentences are dropped
            counters.peak_state_bytes = max(counters.peak_state_bytes, state.nbytes)
        if advance.rows is not None and not is_finished:
            state.select(advance.rows, advance.sentences)
        yield search
    counters.batch_seconds += clock() - begin


def _search(session: StepSession, requests: Sequence[Request], options: DecodeOptions) -> Search:
    if options.beam_size == 1:
        return GreedySearch(requests, options, session.special)
    return BeamSearch(requests, options, session.special, session.best_tokens, row_multiple=session.row_multiple)


def _most_steps(session: StepSession, requests: Sequence[Request]) -> int:
    """Number of steps of a search whose outputs are as long as allowed, those of what they begin with included."""
    return len(session.special.prefix) + max(request.limit for request in requests)
