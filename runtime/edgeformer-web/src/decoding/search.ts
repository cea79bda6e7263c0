/**
 * Greedy and beam search for one sentence, step by step. The rules are those of `decoding/search.py` and of the kernels:
 *
 * A hypothesis is finished when its end token is among the K best of the K * V extensions. A sentence is finished when
 * it has `places` finished hypotheses. Unfinished hypotheses that may not become longer fill the remaining places. If
 * the beam shrinks, each finished hypothesis also takes one of the K places of those that continue. Without early
 * stopping, a sentence continues while an unfinished hypothesis scores higher than the worst of the best `places`.
 */
import type { EngineBatch, Hypothesis, PlainSearch, SearchSentence } from "../engine/interface.js";
import { EdgeformerError } from "../errors.js";
import { endsInRepeats, type Processor } from "./processors.js";

/** What else a search needs to know. */
export interface StepRules {
  processors: readonly Processor[];
  /** Tokens of the logits, (C,); undefined for the whole vocabulary. */
  listed: Int32Array | undefined;
  vocabSize: number;
  /** See `DecodeOptions.maxNgramRepeats`. */
  maxNgramRepeats: number;
}

/** A hypothesis that may go on. */
interface PartialHypothesis {
  /** Tokens so far, those of the prefix included. */
  ids: readonly number[];
  /** Log-probability after each token. */
  trail: readonly number[];
  logProbability: number;
}

/** An extension of a live hypothesis by one token. */
interface Extension {
  logProbability: number;
  token: number;
  /** Number of the hypothesis. */
  row: number;
}

/** The state of the search for one sentence. */
export class StepSearch {
  #live: PartialHypothesis[];
  #isFirst = true;
  readonly #found: Hypothesis[] = [];

  /**
   * @param given tokens of the prefix, the last of `sentence.begin`.
   */
  constructor(
    private readonly sentence: SearchSentence,
    private readonly given: readonly number[],
    private readonly options: PlainSearch,
    private readonly rules: StepRules,
  ) {
    const trail = given.map((_, i) => (i === given.length - 1 ? sentence.initial : 0));
    this.#live = [{ ids: given, trail, logProbability: sentence.initial }];
  }

  /** The best unfinished hypothesis; with greedy search, the only one. */
  get best(): { ids: readonly number[]; tokenScores: number[] } | undefined {
    const [best] = this.#live;
    return best && { ids: best.ids, tokenScores: differences(best.trail) };
  }

  /** Hypotheses, best first; without what is below the number that was asked for. */
  get hypotheses(): Hypothesis[] {
    return [...this.#found].sort((a, b) => b.score - a.score).slice(0, this.options.hypotheses);
  }

  /** Runs the search on a batch of this sentence alone; yields after every step. */
  async *run(batch: EngineBatch): AsyncGenerator<void> {
    const { begin } = this.sentence;
    for (const token of begin.slice(0, -1)) await batch.step([token]);
    let tokens = [begin.at(-1)!];
    while (this.#live.length) {
      const rows = this.#advance(await batch.step(tokens));
      if (rows.length && !(rows.length === tokens.length && rows.every((row, i) => row === i)))
        await batch.select(rows);
      tokens = this.#live.map(({ ids }) => ids.at(-1)!);
      yield;
    }
  }

  /** Extends all hypotheses by one token; returns the rows that the next ones continue. */
  #advance(logits: Float32Array): number[] {
    const { beams, end, followsPrefix, shrinks } = this.options;
    const width = logits.length / this.#live.length;
    const pool: Extension[] = [];
    for (const [row, live] of this.#live.entries())
      this.#extend(live, row, logits.subarray(row * width, (row + 1) * width), pool);
    if (!Number.isFinite(pool[0]?.logProbability)) throw this.#notFinite();
    const room = shrinks ? Math.max(0, beams - this.#found.length) : pool.length;
    const onlyBest = this.#isFirst && followsPrefix;
    const going: Extension[] = [];
    for (const [rank, extension] of pool.slice(0, room).entries()) {
      if (extension.token !== end) going.push(extension);
      else if (rank < beams && !(onlyBest && rank > 0)) this.#collect(extension, true);
    }
    this.#isFirst = false;
    return this.#continue(going.slice(0, beams));
  }

  /** Adds the best extensions of a hypothesis to the pool, which has the best of all, in order. */
  #extend(live: PartialHypothesis, row: number, logits: Float32Array, pool: Extension[]): void {
    const { listed, processors } = this.rules;
    const size = this.options.beams === 1 ? 1 : 2 * this.options.beams;
    let [values, tokens] = [logits, listed];
    if (listed && processors.length) {
      values = new Float32Array(this.rules.vocabSize).fill(-Infinity);
      for (let i = 0; i < listed.length; i++) values[listed[i]!] = logits[i]!;
      tokens = undefined;
    }
    for (const process of processors) process(live.ids, values);
    const wantsSum = this.options.wantsScores || this.options.beams > 1;
    const sum = wantsSum ? logSumExp(values) : 0;
    if (Number.isNaN(sum)) throw this.#notFinite();
    if (!tokens) for (const token of this.options.forbidden) values[token] = -Infinity;
    for (let i = 0; i < values.length; i++) {
      const logit = values[i]!;
      if (!(logit > -Infinity)) continue;
      const logProbability = live.logProbability + (wantsSum ? logit - sum : logit);
      if (pool.length === size && !(logProbability > pool[size - 1]!.logProbability)) continue;
      let rank = pool.length;
      while (rank > 0 && logProbability > pool[rank - 1]!.logProbability) rank--;
      pool.splice(rank, 0, { logProbability, token: tokens ? tokens[i]! : i, row });
      if (pool.length > size) pool.pop();
    }
  }

  /** Keeps the hypotheses that may become longer; returns the rows that they continue. */
  #continue(going: Extension[]): number[] {
    const { places, stopsEarly, lengthPenalty, givenLength } = this.options;
    const next = going.map((extension) => this.#longer(extension));
    const length = (next[0]?.ids.length ?? 0) - this.given.length;
    const isStopped = ({ ids }: PartialHypothesis) =>
      length >= this.sentence.most ||
      (this.rules.maxNgramRepeats > 0 && endsInRepeats(ids, this.rules.maxNgramRepeats));
    const stays = next.map((live) => !isStopped(live));
    for (const [i, extension] of going.entries()) if (!stays[i]) this.#collect(extension, false);
    let rows = going.filter((_, i) => stays[i]).map(({ row }) => row);
    this.#live = next.filter((_, i) => stays[i]);
    if (this.#found.length >= places && this.#live.length) {
      const best = normalized(
        this.#live[0]!.logProbability,
        givenLength + this.#live[0]!.ids.length - this.given.length,
        lengthPenalty,
      );
      if (stopsEarly || !(best > this.hypotheses[places - 1]!.score)) [rows, this.#live] = [[], []];
    }
    return rows;
  }

  #longer({ logProbability, token, row }: Extension): PartialHypothesis {
    const { ids, trail } = this.#live[row]!;
    return { ids: [...ids, token], trail: [...trail, logProbability], logProbability };
  }

  /** Adds a hypothesis to the results, if there is room. */
  #collect(extension: Extension, finished: boolean): void {
    const { stopsEarly, places, countsEnd, givenLength, lengthPenalty } = this.options;
    if (stopsEarly && this.#found.length >= places) return;
    const { ids, trail, logProbability } = this.#longer(extension);
    const length = givenLength + ids.length - this.given.length - Number(finished && !countsEnd);
    const score = normalized(logProbability, length, lengthPenalty);
    this.#found.push({ ids: finished ? ids.slice(0, -1) : [...ids], score, finished, tokenScores: differences(trail) });
  }

  #notFinite(): EdgeformerError {
    return new EdgeformerError(
      "model",
      "No token has a finite logit: the model's weights are damaged, or decoding options such as `minLength`, " +
        "`noRepeatNgramSize` and `suppressTokens` together forbid every token.",
    );
  }
}

/** The score of a hypothesis. */
export function normalized(logProbability: number, length: number, lengthPenalty: number): number {
  return logProbability / Math.max(length, 1) ** lengthPenalty;
}

/** Logarithm of the sum of exponentials; NaN if a value is. */
function logSumExp(values: Float32Array): number {
  let peak = -Infinity;
  for (let i = 0; i < values.length; i++) if (!(values[i]! <= peak)) peak = values[i]!;
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += Math.exp(values[i]! - peak);
  return peak + Math.log(sum);
}

function differences(trail: readonly number[]): number[] {
  return trail.map((value, i) => value - (trail[i - 1] ?? 0));
}
