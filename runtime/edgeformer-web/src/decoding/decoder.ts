/** The decode loop: batches for searches that the engine runs by itself, and steps for all others. */
import type { Manifest, SpecialTokens } from "../bundle/manifest.js";
import type { Engine, Hypothesis, PlainSearch, SearchSentence } from "../engine/interface.js";
import { type IdOptions, placesOf } from "./options.js";
import { buildProcessors } from "./processors.js";
import { normalized, StepSearch } from "./search.js";
import type { Shortlist } from "./shortlist.js";

/** One sentence to decode. */
export interface DecodeRequest {
  /** Source ids, end token included. */
  source: readonly number[];
  /** First tokens of the output, which are not searched for. */
  prefix: readonly number[];
  /** Maximum number of output tokens, those of the prefix and the end token included; more than the prefix has. */
  limit: number;
  /** Log-probability of the last token of the prefix, if a search has found it; undefined if it was given. */
  logProbability?: number | undefined;
}

/** Rows of a batch: more take no less time each. */
const MAX_ROWS = 16;
/** Milliseconds after which other tasks, such as a cancellation, get their turn. */
const TURN = 20;
let lastTurn = 0;

/** Decodes sentences with a model. */
export class Decoder {
  constructor(
    private readonly engine: Engine,
    private readonly manifest: Manifest,
    private readonly special: SpecialTokens,
    private readonly shortlist: Shortlist | undefined,
  ) {}

  /** Maximum number of output tokens of a source, end token included. */
  limit(options: IdOptions, sourceLength?: number, prefixLength = 0): number {
    const longest = this.manifest.max_target_length - this.special.prefix.length;
    const limit = Math.min(options.maxLength ?? longest, longest);
    if (sourceLength === undefined || !(options.maxLenA || options.maxLenB)) return limit;
    return Math.min(limit, Math.max(prefixLength + 1, Math.trunc(options.maxLenA * sourceLength) + options.maxLenB));
  }

  /** Decodes sentences; for each, `nBest` hypotheses at most, best first. */
  async decode(requests: readonly DecodeRequest[], options: IdOptions, signal?: AbortSignal): Promise<Hypothesis[][]> {
    if (options.returnAlternatives) return this.#alternatives(requests, options, signal);
    if (!this.engine.search || !isPlain(options)) {
      const results: Hypothesis[][] = [];
      for (const request of requests) {
        const search = this.steps(request, options, signal);
        let step = await search.next();
        while (!step.done) step = await search.next();
        results.push(step.value);
      }
      return results;
    }
    const results = new Map<DecodeRequest, Hypothesis[]>();
    for (const batch of batches(requests, options.beamSize)) {
      await breathe(signal);
      const listing = this.shortlist?.listing(batch.map(({ source }) => source));
      const sentences = batch.map((request) => this.#sentence(request));
      const search = this.#plain(batch[0]!, options, listing !== undefined);
      const found = this.engine.search(sentences, listing, search);
      for (const [i, request] of batch.entries()) results.set(request, given(request, found[i]!, options));
    }
    return requests.map((request) => results.get(request)!);
  }

  /** Decodes a sentence step by step; yields its best unfinished hypothesis after every step. */
  async *steps(
    request: DecodeRequest,
    options: IdOptions,
    signal?: AbortSignal,
  ): AsyncGenerator<{ ids: readonly number[]; tokenScores: number[] }, Hypothesis[]> {
    const listing = this.shortlist?.listing([request.source]);
    const plain = this.#plain(request, options, listing !== undefined);
    const search = new StepSearch(this.#sentence(request), request.prefix, plain, {
      processors: buildProcessors(options, this.special, listing !== undefined),
      listed: listing?.listed,
      vocabSize: this.manifest.target_vocab_size,
      maxNgramRepeats: options.maxNgramRepeats,
    });
    const batch = await this.engine.start(request.source, listing);
    try {
      for await (const _ of search.run(batch)) {
        await breathe(signal);
        if (search.best) yield search.best;
      }
    } finally {
      batch.end();
    }
    return search.hypotheses.slice(0, options.nBest);
  }

  #sentence(request: DecodeRequest): SearchSentence {
    return {
      source: request.source,
      begin: [this.special.bos, ...this.special.prefix, ...request.prefix],
      most: request.limit - request.prefix.length,
      initial: request.logProbability ?? 0,
    };
  }

  #plain(request: DecodeRequest, options: IdOptions, isListed: boolean): PlainSearch {
    const isGreedy = options.beamSize === 1;
    const places = isGreedy ? 1 : placesOf(options);
    const begin = this.special.prefix.length + request.prefix.length;
    return {
      beams: options.beamSize,
      hypotheses: isGreedy ? 1 : Math.max(options.nBest, places),
      places,
      shrinks: options.beamShrinks && !isGreedy,
      stopsEarly: options.earlyStopping || isGreedy,
      countsEnd: options.lengthIncludesEnd,
      followsPrefix: begin > 0 && request.logProbability === undefined,
      wantsScores: options.returnScores || options.returnTokenScores || options.nBest > 1,
      lengthPenalty: options.lengthPenalty,
      givenLength: begin,
      end: this.special.eos,
      suppressed: isListed ? [] : this.special.suppress,
      forbidden: isListed ? [] : this.special.forbid,
      loopRepeats: options.maxNgramRepeats,
      loopGiven: request.prefix.length,
    };
  }

  /** Finds the most probable tokens at the first position, and continues each of them. */
  async #alternatives(
    requests: readonly DecodeRequest[],
    options: IdOptions,
    signal?: AbortSignal,
  ): Promise<Hypothesis[][]> {
    const onlyTokens: IdOptions = {
      ...options,
      returnAlternatives: false,
      beamSize: options.nBest,
      patience: 1,
      lengthPenalty: 0,
      maxNgramRepeats: 0,
      returnScores: true,
      suppressTokens: [...options.suppressTokens, this.special.eos],
    };
    const shortest = requests.map((request) => ({ ...request, limit: request.prefix.length + 1 }));
    const firsts = await this.decode(shortest, onlyTokens, signal);
    const results: Hypothesis[][] = [];
    for (const [i, request] of requests.entries()) {
      const kept = firsts[i]!.filter(
        ({ score }, rank) => rank === 0 || Math.exp(score) >= options.minAlternativeExpansionProb,
      );
      const branches = kept.map(({ ids, score }) => ({ ...request, prefix: ids, logProbability: score }));
      if (request.limit > request.prefix.length + 1) {
        const continued = { ...options, returnAlternatives: false, nBest: 1, returnScores: true };
        results.push((await this.decode(branches, continued, signal)).flat());
      } else {
        const length = this.special.prefix.length + request.limit;
        const score = (first: Hypothesis) => normalized(first.score, length, options.lengthPenalty);
        results.push(kept.map((first) => ({ ...first, score: score(first) })));
      }
    }
    return results;
  }
}

/** Lets other tasks run now and then, and gives up if the signal says so. */
async function breathe(signal: AbortSignal | undefined): Promise<void> {
  if (performance.now() - lastTurn > TURN) {
    await new Promise((resolve) => setTimeout(resolve));
    lastTurn = performance.now();
  }
  signal?.throwIfAborted();
}

/** Whether nothing changes logits, and nothing but the rules of beam search decides. */
function isPlain(options: IdOptions): boolean {
  return !(
    options.minLength ||
    options.noRepeatNgramSize ||
    options.repetitionPenalty !== 1 ||
    options.suppressTokens.length ||
    options.suppressSequences.length ||
    options.disableUnk
  );
}

/** Groups requests by the length of their prefixes, longest source first. */
function* batches(requests: readonly DecodeRequest[], beamSize: number): Generator<DecodeRequest[]> {
  const size = Math.max(1, Math.floor(MAX_ROWS / beamSize));
  const order = [...requests].sort((a, b) => a.prefix.length - b.prefix.length || b.source.length - a.source.length);
  for (let start = 0; start < order.length; ) {
    const first = order[start]!;
    const batch = order.slice(start, start + size).filter(({ prefix }) => prefix.length === first.prefix.length);
    yield batch;
    start += batch.length;
  }
}

/** The best hypotheses of a sentence, their given tokens in front. */
function given({ prefix, logProbability = 0 }: DecodeRequest, found: Hypothesis[], options: IdOptions): Hypothesis[] {
  const scores = prefix.map((_, i) => (i === prefix.length - 1 ? logProbability : 0));
  return found.slice(0, options.nBest).map((hypothesis) => ({
    ...hypothesis,
    ids: [...prefix, ...hypothesis.ids],
    tokenScores: [...scores, ...hypothesis.tokenScores],
  }));
}
