/** The words of a translation and what they were translated from. */
import type { Tokenizers } from "../tokenizer/interface.js";
import type { Item, Reading, Span } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import {
  endsAlphanumeric,
  LETTER,
  python,
  startsAlphanumeric,
  trim,
  trimEnd,
  trimStart,
  UNSPACED,
} from "./patterns.js";
import { capitals, initial, type SurfaceChange } from "./surface.js";

/** A word or a punctuation mark. */
export const WORD = python(
  `[${UNSPACED}][\\u0300-\\u036f\\ufe00-\\ufe0f]*|${lexicon.scripts.elision}|(?:${LETTER})+(?:['’\\-](?:${LETTER})+)*|\\S`,
  "g",
);

/** How much each target token attends to each source token, `(T, S)`, without those that the model expects around a
 * source; null if the model does not say so. */
export type AttentionRows = readonly (readonly number[])[] | null;

/** What a translator writes for a sentence. */
export interface SentenceTranslation {
  text: string;
  /** Ids of its tokens. */
  ids: readonly number[];
}

/** A word or punctuation mark of a translation. */
export interface Word {
  text: string;
  /** White space before it. */
  space: string;
  /** Share of its attention on each source token, `(S,)`. */
  shares: readonly number[];
  /** The placeholder that it is. */
  item?: Item | undefined;
}

/** A translation whose words have their share of attention on each source token. */
export interface AlignedSentence {
  words: readonly Word[];
  /** White space after the last word. */
  end: string;
  /** Characters of the block of each of the S source tokens. */
  tokens: readonly Span[];
  /** Characters of the block of the words of the source. */
  sourceWords: readonly Span[];
}

/** The share of each word's attention on characters of the source, from 0 to 1, `(W,)`: a difference of the sums of the
 * attention on all tokens left of an offset. */
export function sharesOf({ words, tokens }: AlignedSentence, start: number, end: number): number[] {
  const center = (token: number) => (tokens[token]![0] + tokens[token]![1]) / 2;
  const order = [...tokens.keys()].sort((one, other) => center(one) - center(other) || one - other);
  return words.map(({ shares }) => {
    let [sum, before, until] = [0, 0, 0];
    for (const token of order) {
      sum += shares[token]!;
      if (center(token) < start) before = sum;
      if (center(token) < end) until = sum;
    }
    return Math.max(before, until) - before;
  });
}

/** For each word: the source word that it attends to most, the last of several; undefined if it attends to none. */
export function sourcesOf(sentence: AlignedSentence): (Span | undefined)[] {
  const found = sentence.words.map((): { span?: Span; share: number } => ({ share: 0 }));
  for (const span of sentence.sourceWords)
    sharesOf(sentence, ...span).forEach((share, index) => {
      const rounded = round(share);
      if (rounded && rounded >= found[index]!.share) found[index] = { span, share: rounded };
    });
  return found.map(({ span }) => span);
}

/** To 6 decimals, so that sums in another order are the same. */
export const round = (value: number): number => Math.round(value * 1e6) / 1e6;

/** Whether a word is neither a placeholder nor a punctuation mark. */
export const isWord = ({ item, text }: Word): boolean => !item && startsAlphanumeric(text);

/** Whether an article that has lost its vowel is joined to a word. */
export function isElided(words: readonly Word[], index: number): boolean {
  return index > 0 && !words[index]!.space && /['’]$/.test(words[index - 1]!.text);
}

/** The text of words, white space between them included. */
export const joined = (words: readonly Word[]): string => words.map(({ space, text }) => space + text).join("");

/** The end of each word in the text of the translation. */
export function endsOf({ words }: AlignedSentence): number[] {
  let end = 0;
  return words.map(({ space, text }) => (end += space.length + text.length));
}

/** Divides a translation into words. */
export function aligned(
  reading: Reading,
  translation: SentenceTranslation,
  attention: AttentionRows,
  tokenizers: Tokenizers,
  change: SurfaceChange,
): AlignedSentence {
  // Weights (T, S): how much each target token attends to each source token. Without attention, words take the place of
  // source tokens, and each target token attends to the one beside it, as if both texts were equally long.
  const { offsets, addedPeriod } = reading;
  const { text } = translation;
  const ends = targetEnds(tokenizers, translation);
  const own = addedPeriod ? reading.text.slice(0, -addedPeriod.length) : reading.text;
  const { spans, weights } = weighted(reading.text, text, ends, attention, tokenizers);
  // A word has the mean attention of the tokens that have part of it.
  const words: Word[] = [];
  let offset = 0;
  for (const match of text.slice(0, change.keep).matchAll(WORD)) {
    const last = match.index + match[0].length;
    const rows = weights.filter((_, row) => ends[row]! > match.index && (row ? ends[row - 1]! : 0) < last);
    const shares = spans.map((_, token) =>
      Math.fround(rows.reduce((sum, row) => Math.fround(sum + row[token]!), 0) / Math.max(1, rows.length)),
    );
    const shown = words.length ? match[0] : initial(change, match[0]);
    words.push({ text: capitals(change, shown), space: text.slice(offset, match.index), shares });
    offset = last;
  }
  // Punctuation that the sentence gets attends to nothing; that at the end of both, to that of the source.
  if (change.added && words.length) {
    const added = trimStart(change.added);
    words.push({ text: added, space: change.added.slice(0, -added.length), shares: spans.map(() => 0) });
  }
  const final = words.at(-1);
  if (final && !isAlphanumeric(final.text) && !endsAlphanumeric(own))
    words[words.length - 1] = { ...final, shares: spans.map((_, token) => Number(token === spans.length - 1)) };
  // Spans of the source in characters of its block. Tokens of the period that was added for the model are empty.
  const inBlock = ([start, end]: Span): Span => [
    offsets[start]!,
    start < Math.min(end, own.length) ? offsets[end - 1]! + 1 : offsets[start]!,
  ];
  const sourceWords = [...own.matchAll(WORD)].map((match) => inBlock([match.index, match.index + match[0].length]));
  const end = change.added && words.length ? "" : text.slice(offset, change.keep);
  return { words, end, tokens: spans.map(inBlock), sourceWords };
}

const isAlphanumeric = (text: string): boolean => /^[\p{L}\p{N}]+$/u.test(text);

/** The source tokens that words attend to, and the weights. */
function weighted(
  source: string,
  text: string,
  ends: readonly number[],
  attention: AttentionRows,
  tokenizers: Tokenizers,
): { spans: Span[]; weights: number[][] } {
  if (attention?.[0]?.length) {
    const spans = sourceSpans(tokenizers, source).slice(0, attention[0].length); // the source may have been truncated
    const weights = attention.slice(0, ends.length).map((row) => {
      const sum = row.reduce((one, other) => Math.fround(one + other), 0);
      return row.map((weight) => Math.fround(weight / Math.max(sum, 1e-9)));
    });
    return { spans, weights };
  }
  const words: Span[] = [...source.matchAll(WORD)].map((match) => [match.index, match.index + match[0].length]);
  if (!words.length) words.push([0, source.length]);
  const weights = ends.map((end, row) => {
    const center = (((row ? ends[row - 1]! : 0) + end) / 2 / Math.max(1, text.length)) * source.length;
    const distances = words.map(([first, last]) => Math.abs((first + last) / 2 - center));
    const nearest = distances.indexOf(Math.min(...distances));
    return words.map((_, word) => Number(word === nearest));
  });
  return { spans: words, weights };
}

/** The end of each token in the text: a prefix of the tokens is decoded to a prefix of the text. */
function targetEnds({ target }: Tokenizers, { text, ids }: SentenceTranslation): number[] {
  if (target.decode(ids) !== text)
    // unknown tokens were replaced
    return ids.map((_, index) => Math.floor((text.length * (index + 1)) / ids.length));
  let common = 0;
  return ids.map((_, index) => {
    if (index === ids.length - 1) return text.length;
    const part = target.decode(ids.slice(0, index + 1));
    if (part.startsWith(text.slice(0, common)))
      while (common < Math.min(part.length, text.length) && part[common] === text[common]) common++;
    return common;
  });
}

/** The characters of each source token, without the white space around them. A character that is divided among several
 * tokens is of the first. */
function sourceSpans({ source }: Tokenizers, text: string): Span[] {
  let offset = 0;
  return source.spans(text).map(([start, end]): Span => {
    const part = text.slice(Math.max(start, offset), end);
    if (!trim(part)) return [offset, offset];
    offset = end - part.length + trimEnd(part).length;
    return [end - trimStart(part).length, offset];
  });
}
