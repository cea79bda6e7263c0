/** Puts placeholders where they belong in a translation. */
import { type Item, range, type Span } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import {
  baseCode,
  endsAlphanumeric,
  endsWithLetter,
  escaped,
  isSpace,
  startsAlphanumeric,
  startsWithLetter,
  trimStart,
} from "./patterns.js";
import { type AlignedSentence, endsOf, joined, round, sharesOf, type Word } from "./words.js";

/** Signs without a space before them, without one after them, and those that French sets apart. */
const { closing: CLOSING, opening: OPENING, others, apart: APART } = lexicon.signs;
const SIGNS = CLOSING + OPENING + others;
/** Letters that may be joined to a placeholder: particles of Korean, prefixes of Hebrew and Arabic. */
const JOINED = /^[\u0590-\u08ff\u1100-\u11ff\uac00-\ud7ff]/u;

/** Whether a translation has all placeholders, perhaps with other white space. */
export function copied(items: readonly Item[], text: string): boolean {
  return found(items, text).size === items.length;
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
  const attended = found(read, target, placed);
  const first = found(read, target);
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
function found(items: readonly Item[], text: string, sentence?: AlignedSentence): Map<Item, Span> {
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
