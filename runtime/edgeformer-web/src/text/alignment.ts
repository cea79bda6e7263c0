/** The words of a translation, what they were translated from, and placeholders among them. */
import type { Tokenizers } from "../tokenizer/interface.js";
import { type Item, type Reading, range, type Span } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import {
  baseCode,
  endsAlphanumeric,
  endsWithLetter,
  escaped,
  isSpace,
  LETTER,
  python,
  startsAlphanumeric,
  startsWithLetter,
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

/** Signs without a space before them, without one after them, and those that French sets apart. */
const { closing: CLOSING, opening: OPENING, others, apart: APART } = lexicon.signs;
const SIGNS = CLOSING + OPENING + others;
/** Letters that may be joined to a placeholder: particles of Korean, prefixes of Hebrew and Arabic. */
const JOINED = /^[\u0590-\u08ff\u1100-\u11ff\uac00-\ud7ff]/u;

/** Whether a translation has all placeholders, perhaps with other white space. */
export function copied(items: readonly Item[], text: string): boolean {
  return occurrences(items, text).size === items.length;
}

/**
 * Puts every item into a translation exactly once. An item that the translation has stays in its place; of several
 * copies, that with the most attention on the item. Otherwise it is put between the words whose sources are before and
 * after it.
 *
 * @param items items of the sentence, in order.
 * @param text text of the block.
 * @param start offset in the block where the sentence begins.
 * @param without those of the items that the model did not read.
 */
export function restored(
  sentence: AlignedSentence,
  items: readonly Item[],
  text: string,
  start: number,
  without: readonly Item[],
): AlignedSentence {
  let placed = withTokens(sentence, items);
  const target = joined(placed.words);
  const read = items.filter((item) => !without.includes(item));
  const attended = occurrences(read, target, placed);
  const first = occurrences(read, target);
  const kept = first.size > attended.size ? first : attended;
  for (const [item, span] of [...kept].sort(([, one], [, other]) => other[0] - one[0]))
    placed = putOver(placed, item, span);
  // Of several that belong between the same words, the last one put there is the first.
  for (const item of items.filter((item) => !kept.has(item)).reverse()) placed = inserted(placed, item, text, start);
  return placed;
}

/** The sentence with a source token, to which no word attends, for each item of which the model read nothing. */
function withTokens(sentence: AlignedSentence, items: readonly Item[]): AlignedSentence {
  const unread = items.filter((item) => !on(sentence, item).some(Boolean)).map(({ start, end }): Span => [start, end]);
  if (!unread.length) return sentence;
  const words = sentence.words.map((word) => ({ ...word, shares: [...word.shares, ...unread.map(() => 0)] }));
  return { ...sentence, words, tokens: [...sentence.tokens, ...unread] };
}

/** Shares of a word that was translated from an item, `(S,)`. */
function on({ tokens }: AlignedSentence, { start, end }: Item): number[] {
  const inner = tokens.map(([first, last]) => Number(start <= (first + last) / 2 && (first + last) / 2 < end));
  const count = inner.reduce((one, other) => one + other, 0);
  return inner.map((share) => share / Math.max(1, count));
}

/** The run of words whose gains have the largest sum; undefined if no sum is positive. Of several, the one that ends
 * first, and of these the shortest. */
export function bestRun(gains: readonly number[]): Span | undefined {
  let best: Span | undefined;
  let [largest, first, total] = [0, 0, 0];
  gains.forEach((gain, index) => {
    if (total <= 0) [first, total] = [index, 0];
    total += gain;
    if (total > largest) [best, largest] = [[first, index + 1], total];
  });
  return best;
}

/**
 * The gap between words that best separates what was translated from before an offset of the source from what was
 * translated from after it.
 *
 * @param gaps gaps to choose from, in order: the number of words before each.
 */
export function bestGap(sentence: AlignedSentence, offset: number, gaps: readonly number[]): number {
  const after = sharesOf(sentence, offset, Number.POSITIVE_INFINITY);
  const scores = [0];
  for (const [index, share] of sharesOf(sentence, -1, offset).entries())
    scores.push(scores[index]! + share - after[index]!);
  return gaps.reduce((best, gap) => (round(scores[gap]!) > round(scores[best]!) ? gap : best), gaps[0]!);
}

/** Where a translation has each of those items that it has: the first copy, or the one with the most attention. */
function occurrences(items: readonly Item[], text: string, sentence?: AlignedSentence): Map<Item, Span> {
  const spans = new Map<Item, Span>();
  for (const item of items) {
    const characters = [...item.text].filter((character) => !isSpace(character)).map(escaped);
    const [before, after] = [/^\p{Nd}/u, /\p{Nd}$/u].map((digit) => digit.test(item.text)); // not part of a longer number
    const pattern = `${before ? "(?<!\\p{Nd})" : ""}${characters.join("\\s*")}${after ? "(?!\\p{Nd})" : ""}`;
    const free = [...text.matchAll(new RegExp(`(?=(${pattern}))`, "giu"))] // those that overlap, too
      .map((match): Span => [match.index, match.index + match[1]!.length])
      .filter(([first, last]) => [...spans.values()].every(([start, end]) => last <= start || first >= end));
    const exact = free.filter((span) => text.slice(...span) === item.text);
    const attention = (span: Span) => (sentence ? attentionOn(sentence, item, span) : 0);
    if (free.length)
      spans.set(
        item,
        (exact.length ? exact : free).reduce((one, other) => (attention(other) > attention(one) ? other : one)),
      );
  }
  return spans;
}

/** The attention on an item of the word that has a span of the translation. */
function attentionOn(sentence: AlignedSentence, { start, end }: Item, span: Span): number {
  const word = endsOf(sentence).findIndex((offset) => offset > span[0]);
  return round(sharesOf(sentence, start, end)[word] ?? 0);
}

/** Replaces characters of a translation with an item, and keeps the rest of the words they are in. */
export function putOver(sentence: AlignedSentence, item: Item, [first, last]: Span): AlignedSentence {
  const ends = endsOf(sentence);
  let isPut = false;
  const words = sentence.words.flatMap((word, index): Word[] => {
    const end = ends[index]!;
    const start = end - word.text.length;
    if (end <= first || start >= last) return [word];
    const parts: Word[] = [];
    if (start < first) parts.push({ ...word, text: word.text.slice(0, first - start) });
    if (!isPut)
      parts.push({ text: item.text, space: start < first ? "" : word.space, shares: on(sentence, item), item });
    isPut = true;
    if (end > last) parts.push({ ...word, text: word.text.slice(last - start), space: "" });
    return parts;
  });
  return { ...sentence, words };
}

/** Inserts an item between words, with white space around it as in the source; quotation marks and the like around it
 * may be missing in the translation. */
function inserted(sentence: AlignedSentence, item: Item, text: string, start: number): AlignedSentence {
  const { words } = sentence;
  const gap = bestGap(sentence, item.start, range(0, words.length + 1));
  const before = [...text.slice(Math.max(start, item.start - 2), item.start)].at(-1) ?? "";
  const [after = ""] = text.slice(item.end, item.end + 2);
  const behindWord = gap > 0 && endsWithLetter(words[gap - 1]!.text);
  const isSpaced = isSpace(before) || (behindWord && !endsAlphanumeric(before));
  const space = gap ? (isSpaced ? " " : "") : (words[0]?.space ?? "");
  const added: Word[] = [{ text: item.text, space, shares: on(sentence, item), item }];
  const following = words[gap];
  if (following) {
    const isApart = isSpace(after) || !gap || (startsWithLetter(following.text) && !startsAlphanumeric(after));
    const wanted = startsAlphanumeric(following.text) && isApart ? " " : "";
    added.push({ ...following, space: (gap ? following.space : "") || wanted });
  }
  return { ...sentence, words: [...words.slice(0, gap), ...added, ...words.slice(gap + 1)] };
}

/** Writes placeholders and their neighbors with the space that belongs between them: that of the source beside the same
 * sign, or else none before a comma and inside brackets; words do not join them. */
export function spaced(sentence: AlignedSentence, text: string, span: Span, language: string): AlignedSentence {
  const words = sentence.words.map((right, index, all): Word => {
    const [left, next] = [all[index - 1], all[index + 1]];
    if (!left || !(left.item || right.item)) return right;
    const before = text.slice(span[0], right.item?.start ?? 0);
    const beside = left.item ? text.slice(left.item.end, span[1]) : [...before].reverse().join("");
    const sign = left.item ? [...right.text][0]! : [...left.text].at(-1)!;
    const isName = sign === "." && next && !next.space && startsAlphanumeric(next.text); // such as ".NET"
    const isSame = trimStart(beside).startsWith(sign) && SIGNS.includes(sign);
    const isJoint = (startsWithLetter(sign) && !JOINED.test(sign)) || (left.item && right.item);
    const hasSpace = isSpace(beside.slice(0, 1)); // in French, as in "{name} !"; other languages have none
    const isApart = APART.includes(sign) && !isJoint && (hasSpace || baseCode(language) === "fr");
    if (isName || isApart) return right;
    if (hasSpace && (isSame || isJoint)) return { ...right, space: right.space || " " };
    return isSame || (left.item ? CLOSING : OPENING).includes(sign) ? { ...right, space: "" } : right;
  });
  return { ...sentence, words };
}
