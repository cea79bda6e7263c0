/** Changes of the logits of the next token, given the tokens that were generated so far. */
import type { SpecialTokens } from "../bundle/manifest.js";
import type { IdOptions } from "./options.js";

/**
 * Changes logits in place.
 *
 * @param history tokens of the row so far, without what every target begins with.
 * @param logits logits of the next token, (V,).
 */
export type Processor = (history: readonly number[], logits: Float32Array) => void;

/** The processors that the options require, in the order of those in Python. */
export function buildProcessors(options: IdOptions, special: SpecialTokens, isListed: boolean): Processor[] {
  const processors: Processor[] = [];
  if (options.repetitionPenalty !== 1) processors.push(repetitionPenalty(options.repetitionPenalty));
  if (options.noRepeatNgramSize) processors.push(noRepeatNgram(options.noRepeatNgramSize));
  if (options.minLength)
    processors.push((history, logits) => {
      if (history.length < options.minLength) logits[special.eos] = -Infinity;
    });
  if (options.suppressSequences.length) processors.push(suppressSequences(options.suppressSequences));
  const never = new Set([...(isListed ? [] : special.suppress), ...options.suppressTokens]);
  if (options.disableUnk && special.unk !== null) never.add(special.unk);
  if (never.size)
    processors.push((_, logits) => {
      for (const token of never) logits[token] = -Infinity;
    });
  return processors;
}

/** Makes tokens that were generated before less likely (Keskar et al. 2019, section 4.1). */
function repetitionPenalty(penalty: number): Processor {
  return (history, logits) => {
    for (const token of new Set(history)) logits[token]! *= logits[token]! > 0 ? 1 / penalty : penalty;
  };
}

/** Forbids any token that would repeat an n-gram (Paulus et al. 2017, section 2.5). */
function noRepeatNgram(size: number): Processor {
  return (history, logits) => {
    const last = history.length - size + 1; // where the tokens begin that the next one would make an n-gram
    for (let start = 0; start < last; start++) {
      let same = 0;
      while (same < size - 1 && history[start + same] === history[last + same]) same++;
      if (same === size - 1) logits[history[start + same]!] = -Infinity;
    }
  };
}

/** Forbids the last token of each sequence after all of its others. */
function suppressSequences(sequences: readonly (readonly number[])[]): Processor {
  return (history, logits) => {
    for (const sequence of sequences) {
      const begin = history.length - sequence.length + 1;
      if (begin >= 0 && sequence.slice(0, -1).every((token, i) => history[begin + i] === token))
        logits[sequence.at(-1)!] = -Infinity;
    }
  };
}

const MAX_NGRAM = 8;

/** Whether tokens end with an n-gram of at most eight tokens, `count` times in a row. */
export function endsInRepeats(history: readonly number[], count: number): boolean {
  for (let size = 1; size <= Math.min(MAX_NGRAM, Math.floor(history.length / count)); size++) {
    const first = history.length - size * count;
    let same = first + size;
    while (same < history.length && history[same] === history[same - size]) same++;
    if (same === history.length) return true;
  }
  return false;
}
