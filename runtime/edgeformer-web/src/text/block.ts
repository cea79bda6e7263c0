/** A block: a paragraph, line or cell, whose sentences are translated one by one. All offsets are in UTF-16 units. */
import lexicon from "./lexicon.json" with { type: "json" };
import { endsWithLetter, isSpace, startsWithLetter, trimEnd, trimStart } from "./patterns.js";
import { lowered } from "./surface.js";

/** First character, and the one after the last. */
export type Span = readonly [number, number];
/** Text, or the caller's number for a tag, an element that is copied, or the like. */
export type Piece = string | number;

/** A tag, which stands before a character of a block. */
export interface Tag {
  offset: number;
  /** How it is written: the caller's number. */
  raw: number;
  /** Position, among the tags of the block, of the other tag of its element; undefined if it stands for itself. */
  partner?: number | undefined;
  /** Position of the opening tag of the innermost element around it. */
  parent?: number | undefined;
}

/** Characters of a block that are not translated. */
export interface Item {
  start: number;
  end: number;
  /** What the translation must have. */
  text: string;
  /** How that is written. */
  raw: readonly Piece[];
}

/** A paragraph, line or cell. It can be sent to a worker. */
export interface Block {
  text: string;
  /** Ordered. */
  tags: readonly Tag[];
  /** Parts that are not translated: ordered, disjoint. */
  items: readonly Item[];
  /** Spaces that the document does not have, between words that an element without text separates. */
  added?: ReadonlySet<number>;
  /** Whether white space only separates words. */
  isMarkup: boolean;
}

/** How characters of a block are written. */
export function written(block: Block, start: number, end: number): Piece[] {
  const pieces: Piece[] = [];
  let offset = start;
  const copy = (until: number) => {
    const text = block.text.slice(offset, until);
    const units = text.split("").filter((_, index) => !block.added?.has(offset + index));
    pieces.push(units.join(""));
  };
  for (const item of overlapping(block.items, start, end)) {
    copy(item.start);
    if (item.start >= start) pieces.push(...item.raw);
    offset = item.end;
  }
  copy(end);
  return pieces.filter((piece) => piece !== "");
}

/** Those of ordered, disjoint items that have characters of a span, or that an offset is inside of. */
export function overlapping(items: readonly Item[], start: number, end: number): Item[] {
  return items.filter((item) => item.end > start && item.start < end);
}

/** What the model reads of a sentence. */
export interface Reading {
  text: string;
  /** Offset of each of its characters in the block, and that of its end. */
  offsets: readonly number[];
  /** Whether it is in lowercase in place of capitals. */
  isUpper: boolean;
  /** Items that were left out. */
  without: readonly Item[];
  /** The period that was added. */
  addedPeriod: string;
}

/** A sentence with spaces in place of items. */
export function withoutItems(text: string, [start, end]: Span, items: readonly Item[]): string {
  let sentence = text.slice(start, end);
  for (const item of overlapping(items, start, end)) {
    const [first, last] = [Math.max(item.start, start) - start, Math.min(item.end, end) - start];
    sentence = sentence.slice(0, first) + " ".repeat(last - first) + sentence.slice(last);
  }
  return sentence;
}

/**
 * Makes what the model reads of a sentence.
 *
 * @param items its placeholders.
 * @param without parts of it to leave out.
 * @param addedPeriod a period to add.
 */
export function read(
  block: Block,
  span: Span,
  items: readonly Item[],
  isUpper: boolean,
  without: readonly Item[],
  addedPeriod: string,
): Reading {
  const [start, end] = span;
  let text = block.text.slice(start, end);
  if (isUpper) {
    const lower = lowered(withoutItems(block.text, span, items));
    text = Array.from({ length: text.length }, (_, at) => (isSpace(lower[at]!) ? text[at] : lower[at])).join("");
  }
  let kept = range(start, end);
  if (without.length || block.isMarkup || UNREAD.test(text)) {
    kept = kept.filter((offset) => !without.some((item) => item.start <= offset && offset < item.end));
    kept = kept.filter((offset) => !UNREAD.test(block.text[offset]!));
    kept = withoutDoubleSpaces(block.text, kept);
    text = kept.map((offset) => text[offset - start]).join("");
    if (without.length) [text, kept] = withGaps(text, kept);
  }
  if (block.isMarkup)
    text = Array.from({ length: text.length }, (_, at) => (isSpace(text[at]!) ? " " : text[at])).join("");
  const added = text ? addedPeriod : "";
  const offsets = [...kept, ...Array.from(added, () => end), end];
  return { text: text + added, offsets, isUpper, without, addedPeriod: added };
}

/** Whole numbers from one up to another. */
export function range(start: number, end: number): number[] {
  return Array.from({ length: end - start }, (_, index) => start + index);
}

/** A text with a space wherever something was left out between two words. */
function withGaps(text: string, offsets: readonly number[]): [string, number[]] {
  let spaced = text.slice(0, 1);
  const kept = offsets.slice(0, 1);
  for (let index = 1; index < offsets.length; index++) {
    const isGap = offsets[index]! > offsets[index - 1]! + 1;
    if (isGap && endsWithLetter(text.slice(0, index)) && startsWithLetter(text.slice(index))) {
      spaced += " ";
      kept.push(offsets[index - 1]! + 1);
    }
    spaced += text[index];
    kept.push(offsets[index]!);
  }
  return [spaced, kept];
}

/** Characters of a text without white space after white space, at the beginning and at the end. */
function withoutDoubleSpaces(text: string, offsets: readonly number[]): number[] {
  const kept: number[] = [];
  for (const offset of offsets)
    if (!isSpace(text[offset]!) || (kept.length && !isSpace(text[kept.at(-1)!]!))) kept.push(offset);
  while (kept.length && isSpace(text[kept.at(-1)!]!)) kept.pop();
  return kept;
}

/** The span without white space and invisible characters at its ends; none if nothing is left. */
export function trimmed(text: string, start: number, end: number): Span[] {
  const visible = text.slice(start, end).replace(INVISIBLE, " ");
  const first = start + visible.length - trimStart(visible).length;
  const last = start + trimEnd(visible).length;
  return first < last ? [[first, last]] : [];
}

/** What models are not given: soft hyphens, marks of direction, word joiners, byte order marks. */
const UNREAD = new RegExp(lexicon.scripts.unread);
/** Null, zero width space, and what models are not given. */
const INVISIBLE = new RegExp(`[\\0\\u200b]|${UNREAD.source}`, "g");
